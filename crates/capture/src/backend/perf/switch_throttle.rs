//! Rationing of switch records: threads that switch very often have records for a part of the time only, because a
//! record of each switch would slow them down.
//!
//! A recorded switch costs the thread three to four microseconds: the record, the clock that is started and stopped
//! with it, and the work of perf events at every switch, even of switched-off ones. Up to [`MAX_FULL_RATE`] switches
//! a second that is a few per cent. Beyond, the events of the thread are closed and opened again in turn, for a part
//! of the time ([`MIN_RECORDED`] at least). Its totals stay exact: between its turns they are the scheduler's
//! counters', as in the `proc` backend. Facts that only records tell (preempted apart from woken, the stacks on the
//! CPU) are then sampled. The thread gets as many stacks a second as any other thread: in its turns they come more
//! often.
//!
//! Events that were inherited cannot be closed one by one: a family is given events of its own first.

/// Most switches a second of a thread with a record for each switch.
const MAX_FULL_RATE: f64 = 15_000.0;
/// The least part of the time that is recorded.
const MIN_RECORDED: f64 = 0.05;
/// Interval after which the rate of switches is judged, ns.
pub(super) const JUDGED: u64 = 100_000_000;
/// Length of a turn, in polls.
pub(super) const TURN: u64 = 2;
/// Longest turn that is made up for, ns. A late poll makes a turn longer; a pause in proportion would put off the
/// next turn for long.
const MAX_NS: u64 = 200_000_000;

/// How a thread's records are rationed.
#[derive(Clone, Copy, Debug)]
pub struct SwitchThrottle {
    /// The part of the time that is recorded; 1: all of it.
    pub share: f64,
    /// Time without records so far, ns.
    pub unrecorded_ns: u64,
    /// When the present turn, or the time between two, began.
    pub(super) since: u64,
    /// Length of the last turn, ns: turns end with polls, which may come late.
    turn_ns: u64,
    /// Switches that were counted when the turn began.
    pub(super) switches: u64,
}

impl SwitchThrottle {
    pub(super) fn new(now: u64, switches: u64) -> SwitchThrottle {
        SwitchThrottle {
            share: 1.0,
            unrecorded_ns: 0,
            since: now,
            turn_ns: 0,
            switches,
        }
    }

    /// Judges how much of the time to record: `switches` in all were counted by `now`.
    pub(super) fn judge(&mut self, now: u64, switches: u64) {
        let seconds = now.saturating_sub(self.since).max(1) as f64 / 1e9;
        let rate = switches.saturating_sub(self.switches) as f64 / seconds;
        self.share = (MAX_FULL_RATE / rate.max(1.0)).clamp(MIN_RECORDED, 1.0);
        self.turn_ns = now.saturating_sub(self.since).min(MAX_NS);
        (self.since, self.switches) = (now, switches);
    }

    /// Whether it has never been needed.
    pub fn is_idle(&self) -> bool {
        self.share >= 1.0 && self.unrecorded_ns == 0
    }

    /// How long to record nothing after the last turn, ns.
    pub(super) fn pause_ns(&self) -> u64 {
        (self.turn_ns as f64 * (1.0 / self.share - 1.0)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_those_who_switch_very_often_are_rationed() {
        let second = 1_000_000_000;
        let share = |rate: u64| {
            let mut r = SwitchThrottle::new(0, 0);
            r.judge(second, rate);
            r.share
        };
        assert_eq!(share(0), 1.0);
        assert_eq!(share(15_000), 1.0);
        assert_eq!(share(60_000), 0.25);
        assert_eq!(share(1_000_000), MIN_RECORDED);
    }

    #[test]
    fn a_turn_that_ended_late_is_made_up_for() {
        let mut r = SwitchThrottle::new(1_000, 50);
        // 60,000 a second for 30 ms, whatever the turn was to be.
        r.judge(1_000 + 30_000_000, 50 + 1_800);
        assert_eq!(
            (r.share, r.pause_ns(), r.since),
            (0.25, 90_000_000, 30_001_000)
        );
        // The next turn is judged from its own beginning on.
        (r.since, r.switches) = (200_000_000, 0);
        r.judge(210_000_000, 600);
        assert_eq!((r.share, r.pause_ns()), (0.25, 30_000_000));
    }
}
