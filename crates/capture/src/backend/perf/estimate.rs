//! Switch records, and the samples between them, as parts of a thread's time.
//!
//! As the rest of the estimator this looks at no clock, file or process: the collector ([`super::intake`])
//! gives it plain values. They are no observations of the log yet.

use wallscope_model::{BlockReason, Part, State, WaitSeen};

use super::{
    switch_timeline::Step,
    waits::{chance, class},
};
use crate::backend::proc::{
    estimator::PollEstimator,
    samples::{Look, Meant, Weight},
    time_kind::TimeKind,
    wait_observation::{ENOUGH, PutOff, WaitObservation},
};

/// A sample of a running thread.
#[derive(Clone, Copy, Debug)]
pub struct RunningSample {
    /// Index of the thread.
    pub thread: usize,
    /// Its stack, as an index of the samples' stacks.
    pub stack: u32,
    /// When, ns on the recording's clock.
    pub time: u64,
    /// The time on a CPU that it stands for, ns.
    pub ns: u64,
    /// Part of that time.
    pub part: Part,
}

/// A wait that a poll fell into.
#[derive(Clone, Copy, Debug)]
pub struct SeenWait {
    /// Index of the thread.
    pub thread: usize,
    /// Begin of the wait, ns on the recording's clock.
    pub begin: u64,
    /// Its end.
    pub end: u64,
    /// What the poll saw.
    pub sight: WaitObservation,
    /// Reason of the wait.
    pub reason: BlockReason,
    /// Its stack, as an index of the samples' stacks.
    pub stack: u32,
    /// Whether that stack is whole; else it is its innermost frame.
    pub whole: bool,
    /// Time between two polls, ns.
    pub spacing_ns: u64,
    /// Polls in time at waits of the thread, with this one.
    pub in_time: u32,
}

impl PollEstimator {
    /// A thread switched at `time`. Returns the interval off the CPU, by its own will, that this ends.
    pub fn switched(&mut self, thread: usize, time: u64, step: Step) -> Option<(u64, u64)> {
        let account = &mut self.accounts[thread];
        let course = account.course.as_mut()?;
        course.step(&mut account.book, self.grid, &mut self.lag, time, step)
    }

    /// A thread was preempted, and is back on a CPU at `time`.
    pub fn was_put_off(&mut self, thread: usize, put_off: PutOff, time: u64) {
        let waited = time.saturating_sub(put_off.since);
        let look = Look {
            thread: thread as u32,
            stack: put_off.stack,
            state: State::Runnable,
            reason: None,
            part: Some(Part::Preempted),
            begin: put_off.since,
            end: time,
            ns: (waited as f64 / put_off.chance) as u64,
            weight: Weight::PutOff,
            seen: WaitSeen::default(),
        };
        self.samples.add(self.grid, &look);
    }

    /// A running thread was sampled.
    pub fn computed(&mut self, sample: &RunningSample) {
        let RunningSample { time, ns, .. } = *sample;
        let look = Look {
            thread: sample.thread as u32,
            stack: sample.stack,
            state: State::OnCpu,
            reason: None,
            part: Some(sample.part),
            begin: time.saturating_sub(ns),
            end: time,
            ns,
            weight: Weight::Own,
            seen: WaitSeen::default(),
        };
        self.samples.add(self.grid, &look);
    }

    /// What a poll saw of a wait stands for waits as long of its thread. Each wait ends with a wake-up, and
    /// each of them waits for the CPU.
    pub fn was_seen(&mut self, w: &SeenWait) {
        let (s, length) = (&w.sight, w.end.saturating_sub(w.begin));
        // Its chance to be seen: that a look began in it, and what it was for was read in it as well.
        let width = length.saturating_sub(s.less.until - s.at);
        let chance = chance(width, w.spacing_ns);
        let ns = (length as f64 / chance) as u64;
        let (class, late) = (class(length), s.is_late_for(length));
        let told = match late && w.in_time >= ENOUGH {
            true => 0,
            false => ns,
        };
        let kind = TimeKind::Seen(w.reason, class);
        let book = &mut self.accounts[w.thread].book;
        book.add(self.grid, w.begin, w.end, kind, told);
        let sp = s.less.sp;
        let weight = |of: Meant| match w.whole {
            true => of.into(),
            false => Weight::Innermost { sp, of },
        };
        let look = Look {
            thread: w.thread as u32,
            stack: w.stack,
            state: State::Blocked,
            reason: Some(w.reason),
            part: None,
            begin: w.begin,
            end: w.end,
            ns,
            weight: weight(Meant::Wait { class, late }),
            seen: s.seen,
        };
        self.samples.add(self.grid, &look);
        let wakeup = Look {
            state: State::Runnable,
            reason: None,
            part: Some(Part::Woken),
            ns: (1000.0 / chance) as u64,
            weight: weight(Meant::Wakeup { class }),
            seen: WaitSeen::default(),
            ..look
        };
        self.samples.add(self.grid, &wakeup);
        if w.whole && !s.left {
            (self.samples.queueing).woke(w.stack, 1.0 / chance, s.late_ns > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use wallscope_model::StackEnd;
    use wallscope_observe::{AccountBegin, Begin, Observation, PolledThread};

    use super::*;
    use crate::backend::proc::{samples::Polled, wait_observation::PartialObservation};

    fn estimator() -> PollEstimator {
        let mut e = PollEstimator::new(&Begin {
            slice_ns: 1 << 40,
            ..Begin::default()
        });
        e.observe(&Observation::PolledThread(PolledThread {
            pid: 7,
            tid: 7,
            name: "worker".into(),
            begin: AccountBegin::default(),
        }));
        e.samples.push(Polled::none(7, StackEnd::Root));
        e
    }

    /// A wait of 1 ms that a poll saw, made `late_ns` late, of a thread with so many polls in time.
    fn seen(late_ns: u64, in_time: u32) -> u64 {
        let mut e = estimator();
        let less = PartialObservation {
            reason: BlockReason::Lock,
            sp: 0x100,
            pc: 0,
            until: 110,
        };
        e.was_seen(&SeenWait {
            thread: 0,
            begin: 0,
            end: 1_000_000,
            sight: WaitObservation {
                at: 100,
                until: 140,
                copied: 125,
                called: false,
                less,
                stack: 0,
                reason: BlockReason::Lock,
                seen: WaitSeen::default(),
                late_ns,
                left: false,
            },
            reason: BlockReason::Lock,
            stack: 0,
            whole: true,
            spacing_ns: 10_000_000,
            in_time,
        });
        e.accounts[0].book.seen().map(|(.., ns)| ns).sum()
    }

    #[test]
    fn a_short_wait_stands_for_those_that_no_poll_met() {
        let ns = seen(0, 1);
        assert!((9_900_000..=10_200_000).contains(&ns), "{ns}");
    }

    #[test]
    fn late_polls_tell_no_reason_where_others_are_enough() {
        assert_eq!(seen(500_000, ENOUGH), 0);
        assert!(seen(500_000, ENOUGH - 1) > 0);
    }
}
