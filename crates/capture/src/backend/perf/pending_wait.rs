//! Polls of the present wait of a thread with recorded switches, until these tell how long it was.

use wallscope_model::BlockReason;
use wallscope_observe::{PreemptedStack, PreemptedStackTaken, QueuedPoll, WaitProbe};

use crate::backend::proc::call_site_check::SOON;

/// A wait at least so many times as long as a poll was late is as likely met by that poll as by any other.
const LONG: u64 = 16;

/// Polls of a thread's present wait.
#[derive(Clone, Copy, Debug, Default)]
pub struct PendingWait {
    /// A poll that met the thread blocked.
    pub probe: Option<ProbedWait>,
    /// Polls that may have met it waiting for a CPU after that.
    pub queued: Option<QueuedPoll>,
    /// Polls in time at waits of the thread so far.
    pub in_time: u32,
}

/// A poll that met a thread blocked, and facts about the wait that came later.
#[derive(Clone, Copy, Debug)]
pub struct ProbedWait {
    /// The poll.
    pub poll: WaitProbe,
    /// Reason of the wait, where its end told it.
    pub ended_by: Option<BlockReason>,
    /// Polls do not follow the wait any longer.
    pub left: bool,
}

impl PendingWait {
    /// Whether a poll has met the wait that began at `begin`.
    pub fn is_probed(&self, begin: u64) -> bool {
        self.probe.is_some_and(|p| p.poll.at >= begin)
    }

    /// Whether a poll has met the thread waiting for a CPU after the wait that began at `begin`.
    pub fn is_queued(&self, begin: u64) -> bool {
        self.queued.is_some_and(|q| q.at >= begin)
    }

    /// Takes a poll of a thread that may have been woken: several of one wait are one.
    pub fn meet(&mut self, poll: QueuedPoll) {
        match &mut self.queued {
            Some(known) if known.at >= poll.begin => known.ns = known.ns.saturating_add(poll.ns),
            slot => *slot = Some(poll),
        }
    }
}

/// Whether a poll came too late to be independent of a wait of `length` ns: a poll that came late came just when
/// some thread had blocked.
pub fn is_late_for(poll: &WaitProbe, length: u64) -> bool {
    length < LONG.saturating_mul(poll.late_ns)
}

/// Facts that a poll gives about a wait that ended at `end`: the reason, and whether the stack is that of the wait.
/// `None`: the wait had ended before anything was read.
pub fn of_wait(poll: &WaitProbe, end: u64) -> Option<(BlockReason, bool)> {
    let reason = match poll.until < end {
        true => poll.reason,
        false => poll.call.reason,
    };
    let soon = if poll.called { SOON } else { 0 };
    // If only the call is known, nothing was copied.
    let copied = poll.copied > poll.call.until && poll.copied < end.saturating_add(soon);
    (poll.call.until < end).then_some((reason, copied))
}

/// The stack at which a thread is preempted next, and its present preemption.
#[derive(Clone, Copy, Debug, Default)]
pub struct Preemption {
    /// The stack of a preemption that is to come.
    pub next: Option<PreemptedStack>,
    /// The present one.
    pub present: Option<PutOff>,
}

/// A thread that was preempted where its stack is known.
#[derive(Clone, Copy, Debug)]
pub struct PutOff {
    /// Since when, ns on the recording's clock.
    pub since: u64,
    /// The stack.
    pub stack: u32,
    /// Chance that a preemption after such a time on a CPU has a known stack.
    pub chance: f64,
}

impl PutOff {
    /// A thread with that stack, on its CPU since `on_since` where that is known, is preempted at `time`.
    pub fn at(stack: PreemptedStack, on_since: Option<u64>, time: u64) -> Option<PutOff> {
        let chance = match stack.taken {
            PreemptedStackTaken::AtSwitch(switches) => 1.0 / switches.max(1) as f64,
            PreemptedStackTaken::Before(period_ns) => {
                let ran = time.saturating_sub(on_since?) as f64;
                (ran / period_ns.max(1) as f64).clamp(1e-4, 1.0)
            }
        };
        Some(PutOff {
            since: time,
            stack: stack.stack,
            chance,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wallscope_model::WaitSeen;
    use wallscope_observe::ProbedCall;

    fn probe() -> WaitProbe {
        WaitProbe {
            thread: 0,
            at: 100,
            spacing_ns: 1000,
            late_ns: 0,
            call: ProbedCall {
                until: 110,
                reason: BlockReason::Disk,
                sp: 0,
            },
            until: 140,
            reason: BlockReason::KernelLock,
            copied: 125,
            called: false,
            stack: 1,
            whole: true,
            seen: WaitSeen::default(),
        }
    }

    #[test]
    fn a_wait_keeps_what_was_read_before_its_end() {
        let poll = probe();
        assert_eq!(of_wait(&poll, 105), None);
        assert_eq!(of_wait(&poll, 111), Some((BlockReason::Disk, false)));
        assert_eq!(of_wait(&poll, 126), Some((BlockReason::Disk, true)));
        assert_eq!(of_wait(&poll, 141), Some((BlockReason::KernelLock, true)));
        let nothing = WaitProbe {
            copied: 110,
            ..poll
        };
        assert_eq!(of_wait(&nothing, 126), Some((BlockReason::Disk, false)));
        let late = WaitProbe {
            late_ns: 300,
            ..poll
        };
        assert!(!is_late_for(&poll, 1) && is_late_for(&late, 2000));
        assert!(!is_late_for(&late, 9000));
        // The call that led there is still on the stack.
        let called = WaitProbe {
            called: true,
            ..poll
        };
        assert_eq!(of_wait(&called, 105), None);
        assert_eq!(of_wait(&called, 111), Some((BlockReason::Disk, true)));
        let late = WaitProbe {
            copied: 112 + SOON,
            ..called
        };
        assert_eq!(of_wait(&late, 111), Some((BlockReason::Disk, false)));
    }

    #[test]
    fn polls_of_one_wait_are_one_and_those_of_an_earlier_one_go() {
        let poll = |at, begin| QueuedPoll {
            thread: 0,
            begin,
            at,
            read: at,
            stack: None,
            ns: 10,
            late: false,
        };
        let mut wait = PendingWait::default();
        wait.meet(poll(100, 90));
        wait.meet(poll(110, 90));
        assert_eq!(wait.queued.map(|q| (q.at, q.ns)), Some((100, 20)));
        wait.meet(poll(200, 150));
        assert_eq!(wait.queued.map(|q| (q.at, q.ns)), Some((200, 10)));
        assert!(wait.is_queued(150) && !wait.is_queued(201));
    }

    #[test]
    fn a_sampled_stack_stands_for_preemptions_by_the_length_of_the_time_on_the_cpu() {
        let stack = |taken| PreemptedStack {
            thread: 0,
            stack: 3,
            taken,
        };
        let chance = |taken, on_since| PutOff::at(stack(taken), on_since, 600).map(|p| p.chance);
        assert_eq!(chance(PreemptedStackTaken::AtSwitch(4), None), Some(0.25));
        let before = PreemptedStackTaken::Before(1000);
        assert_eq!(chance(before, Some(100)), Some(0.5));
        assert_eq!(chance(before, None), None);
        let short = PreemptedStackTaken::Before(100);
        assert_eq!(chance(short, Some(100)), Some(1.0));
    }
}
