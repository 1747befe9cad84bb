//! State of the estimator for recorded switches, beside the accounts of threads.

use super::SwitchRecordLatency;

/// Records of switches beside the polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SwitchRecords {
    /// There are none: totals are the counters'.
    #[default]
    None,
    /// Samples of running threads fall on user code only.
    UserOnly,
    /// Samples fall on kernel code too.
    WithKernel,
}

/// See the top of this file.
#[derive(Debug, Default)]
pub struct RecordedSwitches {
    /// The records.
    pub kind: SwitchRecords,
    /// The kernel's timer tick, ns.
    pub tick_ns: u64,
    /// How late switches in are recorded.
    pub lag: SwitchRecordLatency,
    /// Up to when all records have come, ns.
    pub drained_ns: u64,
    /// Threads with a reading of counters that was not compared with their records yet.
    pub unsettled: Vec<u32>,
    /// Probed waits that had ended before anything was read.
    pub raced: u64,
    /// Probed waits that had ended before their callers were read.
    pub glimpsed: u64,
}
