//! Switch records, and the samples and polls between them, as parts of a thread's time.
//!
//! Like the rest of the estimator, this module reads no clock, file or process. Its input are observations, which
//! [`super::intake`] and the poller make.

use wallscope_model::{BlockReason, Part, StackEnd, State, WaitSeen};
use wallscope_observe::{
    CounterReading, OpenWait, PreemptedStack, ProbedReason, QueuedPoll, RecordsBegin, RecordsEnd,
    RecordsEndCause, RunningSample, Switch, SwitchRecording, SwitchStep, UnfollowedWait, WaitProbe,
};

use super::{
    SwitchTimeline,
    pending_wait::{PendingWait, Preemption, ProbedWait, PutOff, is_late_for, of_wait},
    recorded::SwitchRecords,
    wait_strata::{chance, class},
};
use crate::backend::proc::{
    account::schedstat,
    counters::Counters,
    estimator::PollEstimator,
    samples::{PollSample, Polled, Weight, WeightScope},
    spans::Spans,
    time_kind::TimeKind,
    wait_observation::ENOUGH,
};

/// Most time that all samples of a thread may stand for, ns: two years. Sums of it do not overflow.
const MAX_CLAIMED_NS: u64 = 1 << 56;

/// A wait that a poll fell into.
struct SeenWait {
    thread: u32,
    begin: u64,
    end: u64,
    probe: ProbedWait,
    /// Reason of the wait.
    reason: BlockReason,
    /// Its stack, as an index of the samples' stacks.
    stack: u32,
    /// That stack is whole; else it is the innermost frame.
    whole: bool,
}

impl PollEstimator {
    /// Switches are recorded, beside the polls.
    pub fn records_switches(&mut self, recording: &SwitchRecording) -> Option<()> {
        self.switches.tick_ns = recording.tick_ns;
        self.switches.kind = match recording.samples_kernel {
            true => SwitchRecords::WithKernel,
            false => SwitchRecords::UserOnly,
        };
        if self.timeline.bytes.is_some() {
            self.timeline.is_kept = true;
            for account in &mut self.accounts {
                account.book.spans.get_or_insert_with(Spans::default);
            }
        }
        Some(())
    }

    /// The switches of a thread are recorded from here on. Its counters tell its time so far.
    pub fn begin_records(&mut self, begin: &RecordsBegin) -> Option<()> {
        let account = self.accounts.get(begin.thread as usize)?;
        let seen_ns = account.book.seen_ns;
        let is_plausible = begin.time >= seen_ns && account.may_have_computed(begin.counters);
        if is_plausible {
            self.make_room(seen_ns, begin.time);
        }
        let (grid, account) = (self.grid, &mut self.accounts[begin.thread as usize]);
        let (books, doing) = (schedstat(begin.counters), account.seen.doing);
        if is_plausible {
            let book = account.book.sliced(grid);
            account.counters.book_poll(book, begin.time, books, doing);
        }
        account.counters.settle(account.book.sliced(grid));
        account.unrecorded_ns = begin.unrecorded_ns;
        account.wait = PendingWait {
            in_time: account.wait.in_time,
            ..PendingWait::default()
        };
        account.preemption = Preemption::default();
        let time = begin.time.max(seen_ns);
        let mut course = SwitchTimeline::joined(time, books).in_state(begin.state);
        if begin.by_counters {
            course = course.by_counters();
        }
        account.course = Some(course);
        is_plausible.then_some(())
    }

    /// The records of a thread have ended: from here on its counters tell.
    pub fn end_records(&mut self, end: &RecordsEnd) -> Option<()> {
        let account = self.accounts.get_mut(end.thread as usize)?;
        let mut course = account.course.take()?;
        if end.cause == RecordsEndCause::Stopped {
            // For the time since its last record, the counters decide.
            course.mistrust();
            account.book.spans = None;
        }
        let mut book = account.book.sliced(self.grid);
        course.settle(&mut book, &mut self.switches.lag, u64::MAX);
        account.counters = Counters::new(course.books());
        account.told_by(&course, self.switches.tick_ns);
        let seen_ns = account.book.seen_ns;
        match (course.off_since(), end.cause) {
            (Some(begin), RecordsEndCause::Closed) => self.waited(end.thread, begin, seen_ns),
            _ => Some(()),
        }
    }

    /// The recorder ended at `end_ns`: until then a thread goes on as its records say.
    pub(in crate::backend) fn records_end_early(&mut self, thread: u32, end_ns: u64) -> Option<()> {
        let account = &mut self.accounts[thread as usize];
        // Its counters were not read to the end, so they cannot check the records.
        account.alive = false;
        let begin = account.book.seen_ns;
        self.make_room(begin, end_ns);
        let drained_ns = self.switches.drained_ns;
        let account = &mut self.accounts[thread as usize];
        let mut book = account.book.sliced(self.grid);
        let course = account.course.as_mut()?;
        course.forget_reading_after(drained_ns);
        match course.end_early(&mut book, &mut self.switches.lag, end_ns) {
            Some((begin, end)) => self.waited(thread, begin, end),
            None => Some(()),
        }
    }

    /// Takes a reading of a thread's counters. It is compared with the thread's records once all records up to its
    /// time have come.
    pub fn counters_read(&mut self, reading: &CounterReading) -> Option<()> {
        let account = self.accounts.get_mut(reading.thread as usize)?;
        let course = account.course.as_mut()?;
        let books = schedstat(reading.counters);
        match reading.last {
            true => course.read_last(reading.time, books),
            false => course.read(reading.time, books),
        }
        self.switches.unsettled.push(reading.thread);
        Some(())
    }

    /// All records up to `time` have come.
    pub fn drained(&mut self, time: u64) {
        self.switches.drained_ns = time;
        let mut unsettled = std::mem::take(&mut self.switches.unsettled);
        unsettled.retain(|thread| {
            let account = &self.accounts[*thread as usize];
            let Some(course) = account.course.as_ref().filter(|_| account.alive) else {
                return false;
            };
            if let Some(until) = course.settles_at(time) {
                self.make_room(account.book.seen_ns, until);
                let account = &mut self.accounts[*thread as usize];
                if let Some(course) = &mut account.course {
                    let mut book = account.book.sliced(self.grid);
                    course.settle(&mut book, &mut self.switches.lag, time);
                }
            }
            (self.accounts[*thread as usize].course.as_ref())
                .is_some_and(|course| course.settles_at(u64::MAX).is_some())
        });
        self.switches.unsettled = unsettled;
    }

    /// Records of unknown threads are missing.
    pub fn lost_records(&mut self) {
        let living = self.accounts.iter_mut().filter(|a| a.alive);
        living
            .filter_map(|a| a.course.as_mut())
            .for_each(SwitchTimeline::mistrust);
    }

    /// A thread switched.
    pub fn switched(&mut self, switch: &Switch) -> Option<()> {
        let account = self.accounts.get_mut(switch.thread as usize)?;
        if switch.step == SwitchStep::End {
            account.alive = false;
        }
        let Some(course) = &account.course else {
            return Some(());
        };
        let on_since = course.on_since();
        let next = account.preemption.next.take();
        let over = match switch.step {
            SwitchStep::Out { preempted: true } => {
                let put_off = next.and_then(|next| PutOff::at(next, on_since, switch.time));
                account.preemption.present = put_off;
                None
            }
            SwitchStep::In => account.preemption.present.take(),
            SwitchStep::Out { preempted: false } | SwitchStep::End => None,
        };
        let seen_ns = account.book.seen_ns;
        if let Some(put_off) = over {
            self.was_put_off(switch.thread, put_off, switch.time)?;
        }
        self.make_room(seen_ns, switch.time);
        let account = &mut self.accounts[switch.thread as usize];
        let mut book = account.book.sliced(self.grid);
        let course = account.course.as_mut()?;
        let lag = &mut self.switches.lag;
        match course.step(&mut book, lag, switch.time, switch.step) {
            Some((begin, end)) => self.waited(switch.thread, begin, end),
            None => Some(()),
        }
    }

    /// A thread was preempted, and is back on a CPU at `time`.
    fn was_put_off(&mut self, thread: u32, put_off: PutOff, time: u64) -> Option<()> {
        let waited = time.saturating_sub(put_off.since);
        self.add_claimed(&PollSample {
            thread,
            stack: put_off.stack,
            state: State::Runnable,
            reason: None,
            part: Some(Part::Preempted),
            begin: put_off.since,
            end: time,
            ns: (waited as f64 / put_off.chance) as u64,
            weight: Weight::PutOff,
            seen: WaitSeen::default(),
        })
    }

    /// A thread is about to be preempted at this stack.
    pub fn leaves(&mut self, stack: &PreemptedStack) -> Option<()> {
        self.has_stack(stack.stack)?;
        let account = self.accounts.get_mut(stack.thread as usize)?;
        account.preemption.next = Some(*stack);
        Some(())
    }

    /// A running thread was sampled.
    pub fn computed(&mut self, sample: &RunningSample) -> Option<()> {
        let RunningSample { time, ns, .. } = *sample;
        self.accounts.get(sample.thread as usize)?;
        self.add_claimed(&PollSample {
            thread: sample.thread,
            stack: sample.stack,
            state: State::OnCpu,
            reason: None,
            part: Some(match sample.user_mode {
                true => Part::User,
                false => Part::Kernel,
            }),
            begin: time.saturating_sub(ns),
            end: time,
            ns,
            weight: Weight::Own,
            seen: WaitSeen::default(),
        })
    }

    /// A poll met a thread blocked. It stands for waits of that length, once the length is known.
    pub fn probed(&mut self, poll: &WaitProbe) -> Option<()> {
        self.has_stack(poll.stack)?;
        let account = self.accounts.get_mut(poll.thread as usize)?;
        account.wait.probe = Some(ProbedWait {
            poll: *poll,
            ended_by: None,
            left: false,
        });
        if poll.whole {
            let thread = poll.thread as usize;
            self.samples.stands_at(thread, poll.stack, poll.call.sp);
        }
        Some(())
    }

    /// The end of the present wait of a thread tells its reason.
    pub fn ended_by(&mut self, told: &ProbedReason) -> Option<()> {
        let account = self.accounts.get_mut(told.thread as usize)?;
        account.wait.probe.as_mut()?.ended_by = Some(told.reason);
        Some(())
    }

    /// Polls do not follow the present wait of a thread any longer.
    pub fn left(&mut self, left: UnfollowedWait) -> Option<()> {
        let account = self.accounts.get_mut(left.thread as usize)?;
        account.wait.probe.as_mut()?.left = true;
        Some(())
    }

    /// A poll may have met a thread that waits for a CPU.
    pub fn met_queued(&mut self, poll: &QueuedPoll) -> Option<()> {
        if let Some(stack) = poll.stack {
            self.has_stack(stack)?;
        }
        let account = self.accounts.get_mut(poll.thread as usize)?;
        account.wait.meet(*poll);
        Some(())
    }

    /// The wait of a thread counts up to now, though it goes on.
    pub fn waits_on(&mut self, open: &OpenWait) -> Option<()> {
        let account = self.accounts.get(open.thread as usize)?;
        self.waited(open.thread, open.begin, account.book.seen_ns)
    }

    /// A thread was off the CPU from `begin` to `end`, after a voluntary switch: polls of that time stand for it.
    fn waited(&mut self, thread: u32, begin: u64, end: u64) -> Option<()> {
        let length = end.saturating_sub(begin);
        self.claim(thread, length)?;
        let account = &mut self.accounts[thread as usize];
        account.waits.add(length);
        let queued = account.wait.queued.take_if(|q| q.at < end);
        let (stack, taken) = self.was_blocked(thread, begin, end);
        // Polls after the wake-up stand for its waiting for a CPU.
        if let Some(q) = queued.filter(|q| q.at >= begin) {
            self.claim(thread, q.ns)?;
            let found = q.stack.filter(|_| q.read < end);
            let wakeups = match q.late {
                true => &mut self.samples.wakeup_latency.late,
                false => &mut self.samples.wakeup_latency.in_time,
            };
            wakeups.queued(stack.or(found), q.ns);
        }
        taken
    }

    /// Judges the last poll of a wait, if it fell into it. Returns the stack, if that is whole.
    fn was_blocked(&mut self, thread: u32, begin: u64, end: u64) -> (Option<u32>, Option<()>) {
        let account = &mut self.accounts[thread as usize];
        let probe = account.wait.probe.take_if(|p| p.poll.at < end);
        let Some(probe) = probe.filter(|p| p.poll.at >= begin) else {
            return (None, Some(()));
        };
        let Some((reason, whole)) = of_wait(&probe.poll, end) else {
            self.switches.raced += 1;
            return (None, Some(()));
        };
        let length = end.saturating_sub(begin);
        account.wait.in_time += u32::from(!is_late_for(&probe.poll, length));
        let stack = match whole {
            true => probe.poll.stack,
            false => self.innermost(probe.poll.stack),
        };
        let taken = self.was_seen(&SeenWait {
            thread,
            begin,
            end,
            probe,
            reason: probe.ended_by.unwrap_or(reason),
            stack,
            whole,
        });
        (whole.then_some(stack), taken)
    }

    /// The innermost frame of a stack, as a stack of its own: the wait was over before its callers were read.
    fn innermost(&mut self, stack: u32) -> u32 {
        self.switches.glimpsed += 1;
        let whole = self.samples.polled(stack);
        let alone = Polled {
            frames: whole.frames.iter().take(1).copied().collect(),
            managed: Box::default(),
            end: StackEnd::Lost,
            resource: None,
            ..*whole
        };
        self.samples.stack(alone)
    }

    /// A wait that a poll met stands for waits of its thread of the same length. Each of these ends with a wake-up,
    /// and after each wake-up the thread waits for a CPU.
    fn was_seen(&mut self, w: &SeenWait) -> Option<()> {
        let (s, length) = (&w.probe.poll, w.end.saturating_sub(w.begin));
        // The chance that a poll began within the wait, and that the reason was read within it too.
        let width = length.saturating_sub(s.call.until.saturating_sub(s.at));
        let chance = chance(width, s.spacing_ns);
        let ns = (length as f64 / chance) as u64;
        let (class, late) = (class(length), is_late_for(s, length));
        let in_time = self.accounts[w.thread as usize].wait.in_time;
        let told = match late && in_time >= ENOUGH {
            true => 0,
            false => ns,
        };
        let wakeups_ns = (1000.0 / chance) as u64;
        self.claim(w.thread, ns.checked_add(told)?.checked_add(wakeups_ns)?)?;
        self.make_room(w.begin, w.end);
        let kind = TimeKind::Seen(w.reason, class);
        let book = &mut self.accounts[w.thread as usize].book;
        (book.sliced(self.grid)).add(w.begin, w.end, kind, told);
        let sp = s.call.sp;
        let weight = |of: WeightScope| match w.whole {
            true => of.into(),
            false => Weight::Innermost { sp, of },
        };
        let sample = PollSample {
            thread: w.thread,
            stack: w.stack,
            state: State::Blocked,
            reason: Some(w.reason),
            part: None,
            begin: w.begin,
            end: w.end,
            ns,
            weight: weight(WeightScope::Wait { class, late }),
            seen: s.seen,
        };
        self.samples.add(self.grid, &sample);
        let wakeup = PollSample {
            state: State::Runnable,
            reason: None,
            part: Some(Part::Woken),
            ns: wakeups_ns,
            weight: weight(WeightScope::Wakeup { class }),
            seen: WaitSeen::default(),
            ..sample
        };
        self.samples.add(self.grid, &wakeup);
        if w.whole && !w.probe.left {
            let wakeups = match s.late_ns > 0 {
                true => &mut self.samples.wakeup_latency.late,
                false => &mut self.samples.wakeup_latency.in_time,
            };
            wakeups.woke(w.stack, 1.0 / chance);
        }
        Some(())
    }

    /// Adds a sample, if its stack is known and its time is plausible.
    fn add_claimed(&mut self, sample: &PollSample) -> Option<()> {
        self.has_stack(sample.stack)?;
        self.claim(sample.thread, sample.ns)?;
        self.make_room(sample.begin, sample.end);
        self.samples.add(self.grid, sample);
        Some(())
    }

    /// Counts time that samples of a thread stand for. `None`: there cannot be so much.
    pub(in crate::backend) fn claim(&mut self, thread: u32, ns: u64) -> Option<()> {
        let account = &mut self.accounts[thread as usize];
        let claimed = account.claimed_ns.saturating_add(ns);
        account.claimed_ns = Some(claimed).filter(|ns| *ns <= MAX_CLAIMED_NS)?;
        Some(())
    }

    fn has_stack(&self, stack: u32) -> Option<()> {
        ((stack as usize) < self.samples.distinct()).then_some(())
    }
}

#[cfg(test)]
#[path = "estimate_tests.rs"]
mod tests;
