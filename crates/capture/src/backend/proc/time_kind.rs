//! Kinds of a thread's time.

use wallscope_model::BlockReason;

/// Kind of a stretch of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeKind {
    /// On a CPU.
    OnCpu,
    /// Waiting for a CPU since it was woken or born.
    Queued,
    /// Preempted, and waiting for a CPU since.
    PutOff,
    /// Blocked.
    Blocked,
    /// Neither on a CPU nor preempted: blocked, except for [`TimeKind::Woken`].
    Off,
    /// The part of [`TimeKind::Off`] that was spent waiting for a CPU.
    Woken,
    /// Not known: records are missing, and no counter has that time.
    Unknown,
    /// Seen blocked for this reason, in a wait of a class by length: a weight, no time of its own.
    Seen(BlockReason, u8),
}

/// The class of waits without a recorded length.
pub const ANY: u8 = 0;
