//! What a poll learns of a wait.

use wallscope_model::{BlockReason, WaitSeen};
use wallscope_observe::StackBegin;

use super::{call_site_check::SOON, counters::Doing};

/// What is known of a wait that ended while it was looked at.
#[derive(Clone, Copy, Debug)]
pub struct PartialObservation {
    /// What it was for, by its call.
    pub reason: BlockReason,
    /// Stack pointer.
    pub sp: u64,
    /// Program counter.
    pub pc: u64,
    /// Until when it is known to have lasted, ns.
    pub until: u64,
}

/// A look at a thread that was off the CPU, until it is known for how long.
#[derive(Clone, Copy, Debug)]
pub struct WaitObservation {
    /// When it began, ns on the recording's clock.
    pub at: u64,
    /// When it was over, if the thread had not moved by then.
    pub until: u64,
    /// When the stack was copied, if it had not moved by then.
    pub copied: u64,
    /// Whether what was copied is its stack also if it had just moved.
    pub called: bool,
    /// What is known of it if it had.
    pub less: PartialObservation,
    /// The stack, as an index of the samples' stacks.
    pub stack: u32,
    /// What it was blocked for.
    pub reason: BlockReason,
    /// The connections that it waited for.
    pub seen: WaitSeen,
    /// How late the look came because no CPU was free, ns; 0: in time.
    pub late_ns: u64,
    /// Whether the wait is followed no longer.
    pub left: bool,
}

/// Polls in time at a thread that are enough to do without those that came late.
pub const ENOUGH: u32 = 20;

/// Waits that are so many times as long as a look was late are as likely seen by it as by any other.
const LONG: u64 = 16;

impl WaitObservation {
    /// Whether it came too late to be independent of a wait of `length` ns: a look that came late came just when
    /// some thread had blocked.
    pub fn is_late_for(&self, length: u64) -> bool {
        length < LONG.saturating_mul(self.late_ns)
    }

    /// What it says of a wait that ended at `end`: for what, and whether its stack is that of the wait. `None`:
    /// that had ended before anything was read.
    pub fn of_wait(&self, end: u64) -> Option<(BlockReason, bool)> {
        let reason = match self.until < end {
            true => self.reason,
            false => self.less.reason,
        };
        let soon = if self.called { SOON } else { 0 };
        // Nothing was copied where no more is known than that.
        let copied = self.copied > self.less.until && self.copied < end.saturating_add(soon);
        (self.less.until < end).then_some((reason, copied))
    }
}

/// What a poll saw a thread do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenDoing {
    /// What it did.
    pub doing: Doing,
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
            doing: Doing::Running,
            stack: None,
            begin: None,
            seen: WaitSeen::default(),
        }
    }
}

/// A thread that was put off the CPU, having been sampled on it.
#[derive(Clone, Copy, Debug)]
pub struct PutOff {
    /// Since when, ns on the recording's clock.
    pub since: u64,
    /// The stack of the last sample, as an index of the samples' stacks.
    pub stack: u32,
    /// How likely such time on a CPU has a sample.
    pub chance: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_keeps_what_was_read_before_its_end() {
        let sight = WaitObservation {
            at: 100,
            until: 140,
            copied: 125,
            called: false,
            less: PartialObservation {
                reason: BlockReason::Disk,
                sp: 0,
                pc: 0,
                until: 110,
            },
            stack: 1,
            reason: BlockReason::KernelLock,
            seen: WaitSeen::default(),
            late_ns: 0,
            left: false,
        };
        assert_eq!(sight.of_wait(105), None);
        assert_eq!(sight.of_wait(111), Some((BlockReason::Disk, false)));
        assert_eq!(sight.of_wait(126), Some((BlockReason::Disk, true)));
        assert_eq!(sight.of_wait(141), Some((BlockReason::KernelLock, true)));
        let nothing = WaitObservation {
            copied: 110,
            ..sight
        };
        assert_eq!(nothing.of_wait(126), Some((BlockReason::Disk, false)));
        let waited_for = WaitObservation {
            late_ns: 300,
            ..sight
        };
        assert!(!sight.is_late_for(1) && waited_for.is_late_for(2000));
        assert!(!waited_for.is_late_for(9000));
        // The call that led there is still on the stack.
        let called = WaitObservation {
            called: true,
            ..sight
        };
        assert_eq!(called.of_wait(105), None);
        assert_eq!(called.of_wait(111), Some((BlockReason::Disk, true)));
        let late = WaitObservation {
            copied: 112 + SOON,
            ..called
        };
        assert_eq!(late.of_wait(111), Some((BlockReason::Disk, false)));
    }
}
