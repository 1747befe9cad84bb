//! Delay of the records of switches in.
//!
//! The kernel writes the record of a switch-in at the end of its own work for the switch, with that of perf events in
//! it. By every other clock the thread's time has begun some microseconds before: more of them after an idle CPU,
//! fewer after another thread. Each switch-in is dated back by the mean that the thread's counters tell, or by the
//! mean of all threads if its own switches are few. It is dated back by [`SwitchRecordLatency::MAX_DELAY_NS`] at
//! most: a larger delay stays visible as a difference between the two witnesses.

/// How late records of switches in are written, as the counters tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct SwitchRecordLatency {
    late_ns: i64,
    ins: u64,
}

impl SwitchRecordLatency {
    /// Largest delay, ns: a larger one was never seen, and would be an error of another kind.
    pub const MAX_DELAY_NS: u64 = 20_000;
    /// Switches that are enough to tell.
    const ENOUGH: u64 = 32;

    pub(super) fn add(&mut self, late_ns: i64, ins: u64) {
        self.late_ns = self.late_ns.saturating_add(late_ns);
        self.ins += ins;
    }

    /// Its own figure, or that of `others` where it has seen too little.
    pub(super) fn or(&self, others: &SwitchRecordLatency) -> u64 {
        if self.ins < SwitchRecordLatency::ENOUGH {
            others.ns()
        } else {
            self.ns()
        }
    }

    /// Mean delay of one switch in, ns.
    pub fn ns(&self) -> u64 {
        let mean = u64::try_from(self.late_ns).unwrap_or(0) / self.ins.max(1);
        mean.min(SwitchRecordLatency::MAX_DELAY_NS)
    }
}
