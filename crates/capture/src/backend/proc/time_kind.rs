//! What the time of a thread was spent on.

use wallscope_model::BlockReason;

/// What time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeKind {
    /// On a CPU.
    OnCpu,
    /// Waiting for a CPU since it was woken or born.
    Queued,
    /// Put off the CPU while it would have gone on.
    PutOff,
    /// Blocked.
    Blocked,
    /// Neither on a CPU nor put off it: blocked, but for what is [`TimeKind::Woken`].
    Off,
    /// The part of [`TimeKind::Off`] that was spent waiting for a CPU.
    Woken,
    /// Not known: records are missing and no counter tells.
    Unknown,
    /// Seen blocked for this reason, in a wait of a class by length: a weight, no time of its own.
    Seen(BlockReason, u8),
}

/// The class of waits without a recorded length.
pub const ANY: u8 = 0;
