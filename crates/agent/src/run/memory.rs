//! Memory of this process, and the one limit for it.
//!
//! Beyond `budget.max_memory` the agent gives up, one step a window: caches of names are dropped after each
//! window, then the flight recorder's ring is halved down to nothing. The ledger is never given up for memory.
//! A step is taken back after [`CALM`] windows well below the limit.

use wallscope_procfs::kernel_file;

/// Windows below [`LOW`] after which a step is taken back.
const CALM: u32 = 30;
/// Share of the limit, in percent, below which memory counts as low.
const LOW: u64 = 75;
/// Times that the flight recorder is halved before it ends: 16 MiB become 1 MiB.
const HALVINGS: u32 = 4;

/// Anonymous resident memory of this process, bytes: without code and without mapped kernel maps.
pub(super) fn resident() -> u64 {
    let statm = kernel_file::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm
        .split(' ')
        .skip(1)
        .map_while(|n| n.parse::<u64>().ok());
    let (all, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    all.saturating_sub(shared) * rustix::param::page_size() as u64
}

/// Bytes that the allocator has handed out; `None`: this C library does not report them.
pub(super) fn heap() -> Option<u64> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: it only reads the allocator's own figures, under its own locks.
        let info = unsafe { libc::mallinfo2() };
        Some((info.uordblks + info.hblkhd) as u64)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Makes the allocator give freed memory back, for a process that runs for months. Call it before threads start.
///
/// By default each thread has an arena of its own, which keeps the pages that the thread freed. Blocks of some MiB
/// (a window, the kernel's symbols) raise the size from which blocks are mappings of their own, up to 32 MiB.
pub(super) fn bound_arenas() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only sets the allocator's own parameters.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 256 << 10);
    }
}

/// Gives freed memory back to the system.
pub(super) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it only returns free pages, under the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Step of features that are given up for memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStep(u32);

impl MemoryStep {
    /// Whether caches of names are dropped after each window.
    pub fn drops_names(self) -> bool {
        self.0 > 0
    }

    /// Times that the flight recorder's ring is halved; `None`: there is no ring any more.
    pub fn halvings(self) -> Option<u32> {
        let n = self.0.saturating_sub(1);
        (n <= HALVINGS).then_some(n)
    }

    /// Number of the step, 0: nothing is given up.
    pub fn number(self) -> u32 {
        self.0
    }

    /// The step in words; empty: nothing is given up.
    pub(super) fn describe(self) -> String {
        match (self.drops_names(), self.halvings()) {
            (false, _) => String::new(),
            (true, Some(0)) => "caches of names are dropped after each window".into(),
            (true, Some(n)) => format!(
                "caches of names are dropped after each window, and the flight recorder has 1/{} of its ring",
                1 << n
            ),
            (true, None) => {
                "caches of names are dropped after each window, and there is no flight recorder"
                    .into()
            }
        }
    }
}

/// The limit, and the step in force.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    /// Most memory, bytes.
    pub limit: u64,
    /// The step in force.
    pub step: MemoryStep,
    /// Windows in a row with low memory.
    calm: u32,
}

impl MemoryBudget {
    pub fn new(limit: u64) -> MemoryBudget {
        MemoryBudget {
            limit,
            step: MemoryStep::default(),
            calm: 0,
        }
    }

    /// Judges the memory at the end of a window; the new step, if it is another one.
    pub fn check(&mut self, used: u64) -> Option<MemoryStep> {
        let is_low = used < self.limit / 100 * LOW;
        self.calm = if is_low { self.calm + 1 } else { 0 };
        let before = self.step;
        if used > self.limit && self.step.0 < HALVINGS + 2 {
            self.step.0 += 1;
        } else if self.calm >= CALM && self.step.0 > 0 {
            (self.step.0, self.calm) = (self.step.0 - 1, 0);
        }
        (self.step != before).then_some(self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_known() {
        let before = (resident(), heap());
        let block = std::hint::black_box(vec![1u8; 32 << 20]);
        let after = (resident(), heap());
        assert!(after.0 >= before.0 + (31 << 20), "{before:?} {after:?}");
        if let (Some(before), Some(after)) = (before.1, after.1) {
            assert!(after >= before + (32 << 20));
        }
        drop(block);
    }

    #[test]
    fn steps_go_up_and_come_back() {
        let mut budget = MemoryBudget::new(100 << 20);
        assert_eq!(budget.check(90 << 20), None);
        let steps: Vec<u32> = (0..8)
            .filter_map(|_| budget.check(101 << 20))
            .map(MemoryStep::number)
            .collect();
        assert_eq!(steps, [1, 2, 3, 4, 5, 6]);
        assert_eq!(budget.step.halvings(), None);
        // Between low and the limit nothing changes.
        assert!((0..100).all(|_| budget.check(90 << 20).is_none()));
        let back: Vec<u32> = (0..7 * CALM)
            .filter_map(|_| budget.check(50 << 20))
            .map(MemoryStep::number)
            .collect();
        assert_eq!(back, [5, 4, 3, 2, 1, 0]);
        assert!(budget.step.describe().is_empty());
    }
}
