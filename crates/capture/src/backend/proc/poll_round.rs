//! Rounds of polls: every thread that is due, one after the other.

use wallscope_model::State;

use super::{
    counters::{Counters, Doing},
    pending_stop::PendingStopSample,
    poller::{ENOUGH, ProcPoller, REMAP},
    samples::{Look, Meant, Weight},
    subreaper::Subreaper,
    time_kind::{ANY, TimeKind},
    wait_observation::{SeenDoing, WaitObservation},
};
use crate::{
    backend::perf::{SwitchTimeline, waits::Waits},
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
            let there = if t.course.is_some() {
                self.look_between_switches(*index, late, all)
            } else {
                self.look(*index, period, late, all)
            };
            if !there {
                gone.push(*index);
                return false;
            }
            let t = &mut self.watch.threads[*index];
            t.awake = !t.rests();
            if !t.awake {
                t.ration.take_if(|r| r.is_idle());
            }
            t.awake
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
            self.watch.threads[index].review = true;
            self.watch.wake(index);
        }
    }

    /// What the target did until now was waiting at our gate, and none of its own time.
    pub fn rebase(&mut self) {
        let now = clock::now();
        self.samples.forget();
        for t in &mut self.watch.threads {
            if let Ok(books) = t.schedstat() {
                t.begin(now, books);
                (t.waits, t.sight, t.queued) = (Waits::default(), None, None);
                t.stack = None;
                if t.course.is_some() {
                    t.course = Some(SwitchTimeline::waiting(now, books));
                }
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
            if t.course.is_none() {
                if t.alive && !self.look(index, period, false, true) {
                    self.ended(index);
                }
                continue;
            }
            let books = t.schedstat();
            if let (Ok(books), Some(course)) = (books, &mut t.course) {
                course.read(clock::now(), books, true);
            }
        }
        self.last_drain(since, clock::now());
    }

    /// A poll of a thread with recorded switches. Only its wait is of interest, and not even that if the
    /// thread was seen in the wait before. False: the thread is gone.
    fn look_between_switches(&mut self, index: usize, late: bool, all: bool) -> bool {
        let grid = self.grid;
        let t = &mut self.watch.threads[index];
        let Some(course) = &mut t.course else {
            return true;
        };
        course.settle(&mut t.book, grid, &mut self.lag, self.drained_ns);
        let (off, on) = (course.off_since(), course.on_since());
        if course.is_deaf() {
            // From here on as if there had never been records.
            self.tally.deaf += 1;
            let Ok(books) = t.schedstat() else {
                return false;
            };
            if let (Some(mut course), Some(clock)) = (t.course.take(), &mut self.clock) {
                // What it did since its last record, the counters tell.
                course.mistrust();
                course.read(clock::now(), books, true);
                course.settle(&mut t.book, grid, &mut self.lag, u64::MAX);
                t.counters = Counters::new(course.books());
                t.told_by(&course, self.tick_ns);
                clock.leave(t.tid);
            }
            t.book.spans = None;
            return true;
        }
        if std::mem::take(&mut t.review) || all || course.moved() {
            let Ok(books) = t.schedstat() else {
                // Its last record is on its way; if that was lost, listing will not find it.
                t.quiet += 1;
                return t.quiet < 100;
            };
            if let Some(course) = &mut t.course {
                course.read(clock::now(), books, false);
            }
        }
        let known = off.is_some_and(|begin| t.sight.is_some_and(|s| s.at >= begin));
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
                let t = &mut self.watch.threads[index];
                t.reason = reason;
                // Without a glimpse it was not seen in this wait.
                if let (Some(stack), Some(less)) = (t.stack, t.glimpse) {
                    t.sight = Some(WaitObservation {
                        at,
                        until: t.stood_ns,
                        copied: t.copied_ns,
                        called: t.called,
                        less,
                        stack,
                        reason,
                        seen: t.seen,
                        late_ns: if late { at - self.due_ns.min(at) } else { 0 },
                        left: false,
                    });
                }
            }
        }
        true
    }

    /// One look at a thread by its counters; false: it is gone. `late`: it is left to the next round, if enough
    /// rounds were in time so far, and whatever it does: leaving out only threads that have moved would favour
    /// sleepers. For the same reason it is not asked whether we were put off our CPU on the way, which
    /// happens when some thread's wait ends.
    fn look(&mut self, index: usize, period: u64, late: bool, all: bool) -> bool {
        let t = &mut self.watch.threads[index];
        if t.skip > 0 && !all {
            t.skip -= 1;
            self.tally.skipped += 1;
            return true;
        }
        let before = t.seen_doing();
        let Ok(books) = t.schedstat() else {
            self.slept_until_gone(index, before);
            return false;
        };
        let now = clock::now();
        self.was_woken(index, books);
        let t = &mut self.watch.threads[index];
        let same = t.counters.unchanged(books);
        let sleeps = same && matches!(t.doing, Doing::Blocked(_));
        let left_out = u64::from(t.left_out);
        let rarely = now.saturating_sub(t.book.seen_ns) > RARELY * period;
        if late && !all && !rarely && t.in_time >= ENOUGH {
            t.ran |= !sleeps;
            return true;
        }
        t.in_time += u32::from(!late && !sleeps);
        if sleeps {
            t.quiet = t.quiet.saturating_add(1);
            // Looked at less often the longer it sleeps, so that what is not seen is little beside what is: the
            // time it has not run for is its own witness.
            let slept = t.slept.saturating_add(1);
            t.skip = left_out_after(slept, index);
            t.slept = slept.saturating_add(t.skip);
            t.left_out = t.skip;
        } else {
            (t.quiet, t.slept, t.left_out, t.ran) = (0, 0, 0, true);
            match self.see(index, now) {
                Some(doing) => self.watch.threads[index].doing = doing,
                None => {
                    self.slept_until_gone(index, before);
                    return false;
                }
            }
        }
        let grid = self.grid;
        let t = &mut self.watch.threads[index];
        let begin = t.book.seen_ns;
        let [computed, queued] = t.counters.since(books);
        // A thread that hardly waits for anything else has hardly just been woken.
        let waits = computed + queued < now.saturating_sub(begin) / HARDLY * (HARDLY - 1);
        t.counters.look(&mut t.book, now, books, t.doing, grid);
        // Whether it ran is known, but not when. Where looks were left out because it slept, it slept for half
        // of their time on average; for the rest it did what it does now.
        let unseen = match same {
            true => 0,
            false => now.saturating_sub(begin) * left_out / (left_out + 1) / 2,
        };
        let edge = begin + unseen;
        if unseen > 0 {
            self.stands_for(index, before, begin, edge);
        }
        let present = self.watch.threads[index].seen_doing();
        self.stands_for(index, present, edge, now);
        if self.watch.threads[index].doing == Doing::Running {
            self.halt(PendingStopSample {
                index,
                due: self.due_ns,
                looked: now,
                books,
                left: None,
                queued,
                waits,
                stood: None,
                behind: false,
                begin: edge,
                end: now,
            });
        }
        true
    }

    /// A thread is gone that slept when it was seen last, which may be a while ago, as those are looked at less
    /// often. When it ended is not known: in the middle of that time, as for births; now, if it ended with the
    /// target. Until then it slept.
    fn slept_until_gone(&mut self, index: usize, before: SeenDoing) {
        let t = &mut self.watch.threads[index];
        let (begin, now) = (t.book.seen_ns, clock::now());
        // While its parent has not asked for its end, its name can be read.
        t.catch_up(now);
        if t.course.is_some() || !matches!(before.0, Doing::Blocked(_)) {
            return;
        }
        let part = if self.target_ended { 1 } else { 2 };
        let end = begin + now.saturating_sub(begin) / part;
        let books = t.audit[1];
        (t.counters).look(&mut t.book, end, books, before.0, self.grid);
        self.stands_for(index, before, begin, end);
    }

    /// What was seen of a thread stands for `begin..end`.
    fn stands_for(
        &mut self,
        index: usize,
        (doing, stack, sp, seen): SeenDoing,
        begin: u64,
        end: u64,
    ) {
        let (Doing::Blocked(reason), Some(stack)) = (doing, stack) else {
            return;
        };
        let t = &mut self.watch.threads[index];
        t.reason = reason;
        let ns = end - begin;
        t.book
            .add(self.grid, begin, end, TimeKind::Seen(reason, ANY), ns);
        self.samples.add(
            self.grid,
            &Look {
                thread: index as u32,
                stack,
                state: State::Blocked,
                reason: Some(reason),
                part: None,
                begin,
                end,
                ns,
                weight: match sp {
                    Some(sp) => Weight::Innermost { sp, of: Meant::Own },
                    None => Weight::Own,
                },
                seen,
            },
        );
    }

    /// Takes in what is new.
    pub fn follow(&mut self, target: &Target, since: u64, now: u64) {
        let known = self.watch.threads.len();
        let mut changed = self.watch.follow(since, now);
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
            if pid != std::process::id() && self.watch.process(pid, Some(since), now) {
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
            if t.alive && t.course.is_none() && !self.look(index, self.spacing_ns, false, true) {
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
