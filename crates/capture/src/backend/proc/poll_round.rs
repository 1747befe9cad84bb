//! Rounds of polls: every thread that is due, one after the other.

use wallscope_observe::{
    EndedThread, FirstState, Mark, Observation, ProbedCall, Rebased, RecordsEndCause, RunnablePoll,
    StackBegin, ThreadPoll, WaitProbe,
};

use super::{
    account::observed,
    counters::PolledActivity,
    facts::LaterRecords,
    pending_stop::PendingStopSample,
    poller::{ProcPoller, REMAP},
    subreaper::Subreaper,
    wait_observation::ENOUGH,
};
use crate::{
    clock,
    target::{Target, cgroup_members},
};

/// Most polls in a row that are left out at a thread that sleeps.
const MAX_SKIPPED: u32 = 7;
/// If nothing reports changes of mappings, those of one process after the other are read again. The pause
/// after each reading is this many times its length.
const REVIEW_TIMES: u64 = 5000;
/// Rounds that are more than this far apart, ns, and more than this many periods, are not late rounds: we were
/// stopped, or the machine was.
const AWAY: (u64, u64) = (1_000_000_000, 8);
/// A poller that wakes this long after a round was due had to wait for a CPU, ns.
pub const LATE: u64 = 100_000;
/// A thread that is blocked for less than 1/`HARDLY` of its time is not looked for at its known wait sites.
const HARDLY: u64 = 16;
/// A late poll of a thread is used if there was none for this many periods.
const RARELY: u64 = 16;

/// Whether a round of polls comes when it was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TickLateness {
    /// It does.
    InTime,
    /// It had to wait for a CPU: it comes just when some thread has blocked.
    Late,
    /// The machine was slow to wake a CPU that slept. The poll falls on no event of any thread, but threads
    /// that were to wake up meanwhile have woken with us.
    WokenLate,
}

/// Threads that a round polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolledThreads {
    /// One of every so many, but none that sleep for long.
    OneOf(usize),
    /// All threads, also those that sleep, and the scheduler's counters of all.
    All,
}

/// One round of polls.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// When it was due, ns on the recording's clock.
    pub due_ns: u64,
    /// Whether it comes in time.
    pub lateness: TickLateness,
    /// Nominal time between two polls of a thread, ns.
    pub period_ns: u64,
    /// Threads that it polls.
    pub threads: PolledThreads,
}

impl Round {
    /// A round in time that polls all threads.
    pub fn of_all(due_ns: u64, period_ns: u64) -> Round {
        Round {
            due_ns,
            lateness: TickLateness::InTime,
            period_ns,
            threads: PolledThreads::All,
        }
    }

    /// Whether it polls all threads.
    fn is_of_all(&self) -> bool {
        self.threads == PolledThreads::All
    }

    /// It polls one in this many threads.
    fn stride(&self) -> usize {
        match self.threads {
            PolledThreads::OneOf(stride) => stride,
            PolledThreads::All => 1,
        }
    }

    /// Whether its polls are late: they favour threads that have just blocked or were just woken.
    pub fn is_late(&self) -> bool {
        self.lateness == TickLateness::Late
    }
}

impl ProcPoller {
    /// Makes one round of polls.
    pub fn round(&mut self, round: &Round) {
        self.rounds.due_ns = round.due_ns;
        self.rounds.woken_late = round.lateness == TickLateness::WokenLate;
        let (period, stride) = (round.period_ns, round.stride());
        self.processes.jit_mut().follow();
        let halted = self.have_halted();
        let now = clock::now();
        self.tally.late += u64::from(round.is_late());
        self.rounds.number = self.rounds.number.wrapping_add(1);
        self.records.runnable.turn();
        let passed = match self.rounds.last_ns {
            0 => 0,
            last => now.saturating_sub(last),
        };
        if passed > AWAY.0 && passed > AWAY.1 * period {
            self.tally.away_ns += passed;
        }
        let since = passed * stride as u64;
        self.rounds.spacing_ns = if self.rounds.last_ns == 0 {
            period
        } else {
            // Moving mean of the real time between rounds, never below the period that was asked for.
            (self.rounds.spacing_ns * 7 / 8 + since / 8).max(period)
        };
        self.rounds.last_ns = now;
        if let Some(connections) = &mut self.connections {
            connections.follow(self.watch.living.iter().copied(), now);
            connections.poll(now);
        }
        let thread_names = &mut self.processes.managed_mut().thread_names;
        thread_names.births(self.watch.threads.iter().map(|t| t.pid));
        thread_names.read_due();
        self.watch.leave_out_dead();
        if round.is_of_all() {
            self.watch.wake_all();
        }
        self.review(passed);
        let mut gone = Vec::new();
        let mut awake = std::mem::take(&mut self.watch.awake);
        let resting = self.watch.live.len().saturating_sub(awake.len());
        self.tally.skipped += (resting / stride) as u64;
        awake.retain(|index| {
            let t = &self.watch.threads[*index];
            if !t.alive {
                return false;
            }
            if !round.is_of_all() && !(self.rounds.number + index).is_multiple_of(stride) {
                return true;
            }
            let there = if t.records.open {
                self.poll_between_switches(*index, round)
            } else {
                self.poll_counters(*index, round)
            };
            if !there {
                gone.push(*index);
                return false;
            }
            let account = &self.intake.estimator.accounts[*index];
            let t = &mut self.watch.threads[*index];
            t.duty.awake = !t.rests(account);
            if !t.duty.awake {
                t.records.ration.take_if(|r| r.is_idle());
            }
            t.duty.awake
        });
        awake.append(&mut self.watch.awake);
        self.watch.awake = awake;
        // Stacks of halted threads have been copied and can wait. The present activity of threads cannot.
        self.take_stacks(halted);
        for index in gone {
            self.ended(index);
        }
    }

    /// Has the counters of some threads read at their next poll, even if no record of them has come. All threads have
    /// their turn within seconds. `passed`: time since the last round, ns.
    fn review(&mut self, passed: u64) {
        for place in self.rounds.turn.next(self.watch.live.len(), passed) {
            let index = self.watch.live[place];
            self.watch.threads[index].duty.review = true;
            self.watch.wake(index);
        }
    }

    /// Drops the time of the target, process `pid`, until now: it waited for its release.
    pub fn rebase(&mut self, pid: u32) {
        let now = clock::now();
        let released = Mark::Released { pid, time: now };
        self.intake.observe(&Observation::Mark(released));
        self.watch.released(pid);
        for index in 0..self.watch.threads.len() {
            let t = &mut self.watch.threads[index];
            let Ok(books) = t.schedstat() else {
                continue;
            };
            t.probe.stack = None;
            let is_recorded = t.records.open;
            self.intake.observe(&Observation::Rebased(Rebased {
                thread: index as u32,
                begin: t.begins(now, books),
            }));
            if is_recorded {
                self.begin_records(index, now, books, FirstState::Blocked);
            }
        }
    }

    /// Makes the last poll of all threads. `since`: when threads were listed last.
    pub fn finish(&mut self, since: u64, period: u64) {
        let halted = self.have_halted();
        self.take_stacks(halted);
        let last = Round::of_all(clock::now(), period);
        self.rounds.due_ns = last.due_ns;
        self.drain(since, last.due_ns);
        for index in self.watch.live.clone() {
            let t = &mut self.watch.threads[index];
            if !t.records.open {
                if t.alive && !self.poll_counters(index, &last) {
                    self.ended(index);
                }
                continue;
            }
            if let Ok(books) = t.schedstat() {
                self.tell_counters(index, clock::now(), books, LaterRecords::LeftOut);
            }
        }
        self.last_drain(since, clock::now());
    }

    /// Polls a thread with recorded switches. Only its wait is of interest, and not even that if an earlier poll
    /// saw the thread in that wait. False: the thread is gone.
    fn poll_between_switches(&mut self, index: usize, round: &Round) -> bool {
        let Some(course) = &self.intake.estimator.accounts[index].course else {
            return true;
        };
        let (off, on) = (course.off_since(), course.on_since());
        let t = &mut self.watch.threads[index];
        if course.is_deaf() || t.records.silenced {
            return self.goes_deaf(index);
        }
        let moved = course.moved();
        if std::mem::take(&mut t.duty.review) || round.is_of_all() || moved {
            let Ok(books) = t.schedstat() else {
                // Its last record is on its way; if that was lost, listing will not find it.
                t.duty.quiet += 1;
                let is_there = t.duty.quiet < 100;
                if !is_there {
                    self.gone(index);
                }
                return is_there;
            };
            self.tell_counters(index, clock::now(), books, LaterRecords::Booked);
        }
        let wait = &self.intake.estimator.accounts[index].wait;
        let known = off.is_some_and(|begin| wait.is_probed(begin));
        let at = clock::now();
        // By its records it has been on a CPU for long, so it has hardly begun to wait just now.
        let computes = on.is_some_and(|begin| at.saturating_sub(begin) > self.rounds.spacing_ns);
        if known {
            self.tally.skipped += 1;
            self.see_again(index, round, at);
            return true;
        }
        if computes {
            return true;
        }
        match self.see(index, at) {
            None => return true,
            Some(PolledActivity::Running) => self.see_queued(index, round, at),
            Some(PolledActivity::Blocked(reason)) => {
                self.watch.threads[index].probe.reason = reason;
                let late_ns = match round.is_late() {
                    true => at - round.due_ns.min(at),
                    false => 0,
                };
                self.tell_probe(index, at, late_ns);
            }
        }
        true
    }

    /// Observes that a poll at `at`, late by `late_ns`, met a thread with recorded switches in a wait.
    fn tell_probe(&mut self, index: usize, at: u64, late_ns: u64) {
        let probe = &self.watch.threads[index].probe;
        // Without a glimpse it was not seen in this wait.
        let (Some(stack), Some(less)) = (probe.stack, probe.glimpse) else {
            return;
        };
        self.intake.observe(&Observation::WaitProbe(WaitProbe {
            thread: index as u32,
            at,
            spacing_ns: self.rounds.spacing_ns,
            late_ns,
            call: ProbedCall {
                until: less.until,
                reason: less.reason,
                sp: less.sp,
            },
            until: probe.stood_ns,
            reason: probe.reason,
            copied: probe.copied_ns,
            called: probe.called,
            stack,
            whole: matches!(probe.begin, Some(StackBegin::Whole(_))),
            seen: probe.seen,
        }));
    }

    /// Ends the records of a thread: they have stopped although it runs. From here on it is polled by its counters.
    /// False: the thread is gone.
    fn goes_deaf(&mut self, index: usize) -> bool {
        self.tally.deaf += 1;
        let t = &mut self.watch.threads[index];
        let Ok(books) = t.schedstat() else {
            self.gone(index);
            return false;
        };
        let tid = t.tid;
        self.tell_counters(index, clock::now(), books, LaterRecords::LeftOut);
        self.end_records(index, RecordsEndCause::Stopped);
        if let Some(clock) = &mut self.clock {
            clock.leave(tid);
        }
        true
    }

    /// Polls a thread by its counters; false: it is gone. A late round leaves the thread to the next round if enough
    /// rounds were in time so far, whatever the thread does: leaving out only threads that have moved would favour
    /// sleepers. For that reason we do not check either whether we were preempted on the way, which happens when some
    /// thread's wait ends.
    fn poll_counters(&mut self, index: usize, round: &Round) -> bool {
        let (late, all) = (round.is_late(), round.is_of_all());
        let t = &mut self.watch.threads[index];
        if t.duty.skip > 0 && !all {
            t.duty.skip -= 1;
            self.tally.skipped += 1;
            return true;
        }
        let Ok(books) = t.schedstat() else {
            self.gone(index);
            return false;
        };
        let now = clock::now();
        self.was_woken(index, now, books);
        let account = &self.intake.estimator.accounts[index];
        let (since, same) = (account.book.seen_ns, account.counters.unchanged(books));
        let [computed, queued] = account.counters.since(books);
        let t = &mut self.watch.threads[index];
        let sleeps = same && matches!(t.probe.doing, PolledActivity::Blocked(_));
        let left_out = t.duty.left_out;
        let rarely = now.saturating_sub(since) > RARELY * round.period_ns;
        if late && !all && !rarely && t.duty.in_time >= ENOUGH {
            t.ran |= !sleeps;
            return true;
        }
        t.duty.in_time += u32::from(!late && !sleeps);
        if sleeps {
            t.duty.quiet = t.duty.quiet.saturating_add(1);
            // It is polled less often the longer it sleeps, so that the unseen time is short beside the seen time. Its
            // counters show that it has not run.
            let slept = t.duty.slept.saturating_add(1);
            t.duty.skip = left_out_after(slept, index);
            t.duty.slept = slept.saturating_add(t.duty.skip);
            t.duty.left_out = t.duty.skip;
        } else {
            (t.duty.quiet, t.duty.slept, t.duty.left_out, t.ran) = (0, 0, 0, true);
            let Some(doing) = self.see(index, now) else {
                self.gone(index);
                return false;
            };
            let t = &mut self.watch.threads[index];
            t.probe.doing = doing;
            if let (PolledActivity::Blocked(reason), Some(_)) = (doing, t.probe.stack) {
                t.probe.reason = reason;
            }
        }
        let t = &self.watch.threads[index];
        self.intake.observe(&Observation::ThreadPoll(ThreadPoll {
            thread: index as u32,
            time: now,
            counters: observed(books),
            left_out,
            saw: (!sleeps).then(|| t.saw()),
        }));
        if t.probe.doing == PolledActivity::Running {
            let (begin, end) = self.intake.estimator.accounts[index].stretch;
            self.halt(PendingStopSample {
                poll: RunnablePoll {
                    thread: index as u32,
                    due: self.rounds.due_ns,
                    time: now,
                    counters: observed(books),
                    left: None,
                    woken_from: None,
                    behind: false,
                    begin,
                    end,
                },
                queued,
                // A thread that is hardly ever blocked has hardly just been woken.
                waits: computed + queued < now.saturating_sub(since) / HARDLY * (HARDLY - 1),
            });
        }
        true
    }

    /// Observes the end of a thread that a poll no longer found.
    fn gone(&mut self, index: usize) {
        let now = clock::now();
        let t = &mut self.watch.threads[index];
        // Its name can be read until its parent has waited for it.
        t.catch_up(now);
        self.intake.observe(&Observation::EndedThread(EndedThread {
            thread: index as u32,
            time: now,
            counters: observed(t.books),
            with_target: self.rounds.target_ended,
        }));
    }

    /// Finds new threads and processes, and polls them once.
    pub fn follow(&mut self, target: &Target, since: u64, now: u64) {
        let known = self.watch.threads.len();
        let mut changed = self.watch.follow(since, now);
        self.open_accounts();
        let more = match target {
            Target::Cgroup(path) => wallscope_procfs::cgroup::find(path)
                .ok()
                .and_then(|group| cgroup_members(&group.dir).ok())
                .map_or(Vec::new(), |(_, pids)| pids),
            Target::All => wallscope_procfs::process::processes().unwrap_or_default(),
            Target::Command(_) => self.orphans.iter().flat_map(Subreaper::living).collect(),
            Target::Pids(_) => Vec::new(),
        };
        for pid in more {
            if pid != std::process::id() && self.process(pid, Some(since), now) {
                changed.push(pid);
            }
        }
        for pid in changed {
            self.processes.found(pid);
            if let Some(p) = self.watch.processes.get_mut(&pid) {
                p.mapped_until_ns = now + REMAP;
            }
        }
        self.join(known);
        self.poll_new(known, now);
        if self.clock.is_none() {
            self.review_mappings(now);
        }
    }

    /// Reads the mappings of one process after the other again: nothing else shows that a library has taken the place
    /// of another.
    fn review_mappings(&mut self, now: u64) {
        let (last, due) = self.rounds.reviewed;
        if now < due {
            return;
        }
        let living = &self.watch.living;
        let next = living.range(last + 1..).chain(living.iter()).next();
        if let Some(pid) = next.copied()
            && self.remap(pid, now)
        {
            let took = clock::now().saturating_sub(now);
            self.rounds.reviewed = (pid, now + REVIEW_TIMES * took);
        }
    }

    /// Polls threads from number `first` on for the first time: the next round may come too late for them.
    fn poll_new(&mut self, first: usize, now: u64) {
        self.rounds.due_ns = now;
        let first_poll = Round::of_all(now, self.rounds.spacing_ns);
        for index in first..self.watch.threads.len() {
            let t = &self.watch.threads[index];
            if t.alive && !t.records.open && !self.poll_counters(index, &first_poll) {
                self.ended(index);
            }
        }
    }
}

/// Number of polls to leave out at thread number `index`, which has not run for `slept` rounds.
fn left_out_after(slept: u32, index: usize) -> u32 {
    let quarter = slept / 4;
    if quarter < MAX_SKIPPED {
        quarter
    } else if quarter == MAX_SKIPPED {
        // Sleeping threads are not all polled in the same rounds.
        MAX_SKIPPED - index as u32 % 4
    } else {
        MAX_SKIPPED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unseen_part_of_a_sleep_is_little_beside_the_seen() {
        for index in 0..9 {
            let (mut slept, mut polls, mut most) = (0, 0, 0);
            while slept < 1000 {
                slept += 1;
                let left_out = left_out_after(slept, index);
                assert!(left_out * 4 <= slept);
                (slept, polls, most) = (slept + left_out, polls + 1, most.max(left_out));
            }
            // And a thread that sleeps for long costs little.
            assert_eq!(most, MAX_SKIPPED);
            assert!(polls < 1000 / 7, "{polls}");
        }
    }
}
