//! Rounds of polls: every thread that is due, one after the other.

use wallscope_observe::{
    EndedThread, FirstState, Mark, Observation, ProbedCall, Rebased, RecordsEndCause, RunnablePoll,
    StackBegin, ThreadPoll, WaitProbe,
};

use super::{
    account::observed,
    counters::Doing,
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

/// Looks left out at most at a thread that sleeps.
const MOST_SKIPPED: u32 = 7;
/// Mappings of one process after the other are read again where nothing tells of their changes. The
/// pause after each reading is so many times its length.
const REVIEW_TIMES: u64 = 5000;
/// Rounds that are so far apart, ns, and so many times as far as they should be, are no matter of being late.
const AWAY: (u64, u64) = (1_000_000_000, 8);
/// A poller that wakes this long after a round was due had to wait for a CPU, ns.
pub const LATE: u64 = 100_000;
/// A thread that waits for less than 1/`HARDLY` of its time is not looked for at places of short waits.
const HARDLY: u64 = 16;
/// Late looks are of use where there was none for so many periods.
const RARELY: u64 = 16;

/// Whether a round of looks comes when it was due.
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

impl ProcPoller {
    /// One round of looks, due at `due`, at one of every `stride` threads, at each of them at nominal
    /// distance `period`. `all`: at everybody, also at threads that sleep, and the scheduler's counters of all.
    pub fn round(&mut self, due: u64, comes: TickLateness, period: u64, stride: usize, all: bool) {
        self.due_ns = due;
        self.woken_late = comes == TickLateness::WokenLate;
        let late = comes == TickLateness::Late;
        self.processes.jit_mut().follow();
        let halted = self.have_halted();
        let now = clock::now();
        self.tally.late += u64::from(late);
        self.rounds = self.rounds.wrapping_add(1);
        self.crowd.turn();
        let passed = match self.last_round_ns {
            0 => 0,
            last => now.saturating_sub(last),
        };
        if passed > AWAY.0 && passed > AWAY.1 * period {
            self.tally.away_ns += passed;
        }
        let since = passed * stride as u64;
        self.spacing_ns = if self.last_round_ns == 0 {
            period
        } else {
            // A moving mean of how far apart rounds really are, never below what was asked.
            (self.spacing_ns * 7 / 8 + since / 8).max(period)
        };
        self.last_round_ns = now;
        if let Some(connections) = &mut self.connections {
            connections.follow(self.watch.living.iter().copied(), now);
            connections.look(now);
        }
        let thread_names = &mut self.processes.managed_mut().thread_names;
        thread_names.births(self.watch.threads.iter().map(|t| t.pid));
        thread_names.read_due();
        self.watch.leave_out_dead();
        if all {
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
            if !all && !(self.rounds + index).is_multiple_of(stride) {
                return true;
            }
            let there = if t.records.open {
                self.look_between_switches(*index, late, all)
            } else {
                self.look(*index, period, late, all)
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
        // Their stacks have been copied: that can wait, what threads do now cannot.
        self.take_stacks(halted);
        for index in gone {
            self.ended(index);
        }
    }

    /// Has the counters of some threads read at their next look though no record of them may have come: of all, one
    /// after the other, in seconds. `passed`: since the last round, ns.
    fn review(&mut self, passed: u64) {
        for place in self.turn.next(self.watch.live.len(), passed) {
            let index = self.watch.live[place];
            self.watch.threads[index].duty.review = true;
            self.watch.wake(index);
        }
    }

    /// What the target, process `pid`, did until now was waiting at our gate, and none of its own time.
    pub fn rebase(&mut self, pid: u32) {
        let now = clock::now();
        let released = Mark::Released { pid, time: now };
        self.intake.observe(&Observation::Mark(released));
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

    /// The last look at everybody. `since`: when threads were listed last. `ended`: the target has ended just now.
    pub fn finish(&mut self, since: u64, period: u64, ended: bool) {
        self.target_ended = ended;
        let halted = self.have_halted();
        self.take_stacks(halted);
        self.due_ns = clock::now();
        self.drain(since, self.due_ns);
        for index in self.watch.live.clone() {
            let t = &mut self.watch.threads[index];
            if !t.records.open {
                if t.alive && !self.look(index, period, false, true) {
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

    /// A poll of a thread with recorded switches. Only its wait is of interest, and not even that if the
    /// thread was seen in the wait before. False: the thread is gone.
    fn look_between_switches(&mut self, index: usize, late: bool, all: bool) -> bool {
        let Some(course) = &self.intake.estimator.accounts[index].course else {
            return true;
        };
        let (off, on) = (course.off_since(), course.on_since());
        let t = &mut self.watch.threads[index];
        if course.is_deaf() || t.records.silenced {
            return self.goes_deaf(index);
        }
        let moved = course.moved();
        if std::mem::take(&mut t.duty.review) || all || moved {
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
        // By its records it computes, and has for long: it hardly began to wait just now.
        let computes = on.is_some_and(|begin| at.saturating_sub(begin) > self.spacing_ns);
        if known {
            self.tally.skipped += 1;
            self.see_again(index, at, late);
            return true;
        }
        if computes {
            return true;
        }
        match self.see(index, at) {
            None => return true,
            Some(Doing::Running) => self.see_queued(index, at, late),
            Some(Doing::Blocked(reason)) => {
                self.watch.threads[index].probe.reason = reason;
                let late_ns = if late { at - self.due_ns.min(at) } else { 0 };
                self.tell_probe(index, at, late_ns);
            }
        }
        true
    }

    /// A poll at `at`, late by so much, met a thread with recorded switches in a wait.
    fn tell_probe(&mut self, index: usize, at: u64, late_ns: u64) {
        let probe = &self.watch.threads[index].probe;
        // Without a glimpse it was not seen in this wait.
        let (Some(stack), Some(less)) = (probe.stack, probe.glimpse) else {
            return;
        };
        self.intake.observe(&Observation::WaitProbe(WaitProbe {
            thread: index as u32,
            at,
            spacing_ns: self.spacing_ns,
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

    /// The records of a thread have stopped although it runs: from here on it is as if there had never been
    /// any. False: the thread is gone.
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

    /// One look at a thread by its counters; false: it is gone. `late`: it is left to the next round, if enough
    /// rounds were in time so far, and whatever it does: leaving out only threads that have moved would favour
    /// sleepers. For the same reason it is not asked whether we were put off our CPU on the way, which
    /// happens when some thread's wait ends.
    fn look(&mut self, index: usize, period: u64, late: bool, all: bool) -> bool {
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
        let sleeps = same && matches!(t.probe.doing, Doing::Blocked(_));
        let left_out = t.duty.left_out;
        let rarely = now.saturating_sub(since) > RARELY * period;
        if late && !all && !rarely && t.duty.in_time >= ENOUGH {
            t.ran |= !sleeps;
            return true;
        }
        t.duty.in_time += u32::from(!late && !sleeps);
        if sleeps {
            t.duty.quiet = t.duty.quiet.saturating_add(1);
            // Looked at less often the longer it sleeps, so that what is not seen is little beside what is: the
            // time it has not run for is its own witness.
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
            if let (Doing::Blocked(reason), Some(_)) = (doing, t.probe.stack) {
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
        if t.probe.doing == Doing::Running {
            let (begin, end) = self.intake.estimator.accounts[index].stretch;
            self.halt(PendingStopSample {
                poll: RunnablePoll {
                    thread: index as u32,
                    due: self.due_ns,
                    time: now,
                    counters: observed(books),
                    left: None,
                    woken_from: None,
                    behind: false,
                    begin,
                    end,
                },
                queued,
                // A thread that hardly waits for anything else has hardly just been woken.
                waits: computed + queued < now.saturating_sub(since) / HARDLY * (HARDLY - 1),
            });
        }
        true
    }

    /// A poll did not find a thread any more.
    fn gone(&mut self, index: usize) {
        let now = clock::now();
        let t = &mut self.watch.threads[index];
        // While its parent has not asked for its end, its name can be read.
        t.catch_up(now);
        self.intake.observe(&Observation::EndedThread(EndedThread {
            thread: index as u32,
            time: now,
            counters: observed(t.books),
            with_target: self.target_ended,
        }));
    }

    /// Takes in what is new.
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
        self.look_at_new(known, now);
        if self.clock.is_none() {
            self.review_mappings(now);
        }
    }

    /// Reads the mappings of one process after the other again: a library that takes the place of another is
    /// told by nothing else.
    fn review_mappings(&mut self, now: u64) {
        let (last, due) = self.reviewed;
        if now < due {
            return;
        }
        let living = &self.watch.living;
        let next = living.range(last + 1..).chain(living.iter()).next();
        if let Some(pid) = next.copied()
            && self.remap(pid, now)
        {
            let took = clock::now().saturating_sub(now);
            self.reviewed = (pid, now + REVIEW_TIMES * took);
        }
    }

    /// A first look at threads from number `first` on: the next may come too late for them.
    fn look_at_new(&mut self, first: usize, now: u64) {
        self.due_ns = now;
        for index in first..self.watch.threads.len() {
            let t = &self.watch.threads[index];
            if t.alive && !t.records.open && !self.look(index, self.spacing_ns, false, true) {
                self.ended(index);
            }
        }
    }
}

/// Looks to leave out at thread number `index`, which has not run for `slept` rounds.
fn left_out_after(slept: u32, index: usize) -> u32 {
    let quarter = slept / 4;
    if quarter < MOST_SKIPPED {
        quarter
    } else if quarter == MOST_SKIPPED {
        // Not all of them in the same rounds.
        MOST_SKIPPED - index as u32 % 4
    } else {
        MOST_SKIPPED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_seen_of_a_sleep_is_little_beside_what_is() {
        for index in 0..9 {
            let (mut slept, mut looks, mut most) = (0, 0, 0);
            while slept < 1000 {
                slept += 1;
                let left_out = left_out_after(slept, index);
                assert!(left_out * 4 <= slept);
                (slept, looks, most) = (slept + left_out, looks + 1, most.max(left_out));
            }
            // And a thread that sleeps for long costs little.
            assert_eq!(most, MOST_SKIPPED);
            assert!(looks < 1000 / 7, "{looks}");
        }
    }
}
