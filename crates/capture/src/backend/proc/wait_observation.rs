//! Results of polling a wait.

use wallscope_model::{BlockReason, WaitSeen};
use wallscope_observe::StackBegin;

use super::counters::PolledActivity;

/// A wait that ended while it was polled, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub struct PartialObservation {
    /// Block reason by its call.
    pub reason: BlockReason,
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub pc: u64,
    /// Until when it is known to have lasted, ns.
    pub until: u64,
}

/// Number of polls in time at a thread from which on late polls are not used.
pub const ENOUGH: u32 = 20;

/// What a poll saw a thread do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenDoing {
    /// Its activity.
    pub doing: PolledActivity,
    /// Its stack, as an index of the samples' stacks.
    pub stack: Option<u32>,
    /// Extent of that stack, and where it begins.
    pub begin: Option<StackBegin>,
    /// The connections that it waits for.
    pub seen: WaitSeen,
}

impl Default for SeenDoing {
    fn default() -> SeenDoing {
        SeenDoing {
            doing: PolledActivity::Running,
            stack: None,
            begin: None,
            seen: WaitSeen::default(),
        }
    }
}
