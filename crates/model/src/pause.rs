//! Pauses in which a runtime stops the threads of a process: collections of garbage, and others.

use std::sync::Arc;

/// Most single pauses that a group keeps: the longest ones.
pub const MAX_LONGEST: usize = 32;

/// Operation of Go's runtime that stops the world for a collection, by the name that users see.
pub const GO_COLLECTION: &str = "gcStopTheWorld";

/// One pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pause {
    /// Its begin on the recording's clock, ns: the runtime begins to stop threads.
    pub start_ns: u64,
    /// Its length, ns.
    pub length_ns: u64,
}

/// Pauses of one process, of one kind and for one cause. Counted one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PauseGroup {
    /// The process.
    pub pid: u32,
    /// The runtime's name of the operation: `G1CollectForAllocation`, `ThreadDump`.
    pub operation: Arc<str>,
    /// Kind of collection: `young`, `full`, `remark`; empty: the operation collects nothing.
    pub kind: Arc<str>,
    /// The runtime's words for the cause of a collection: `Allocation Failure`; empty: it tells none.
    pub cause: Arc<str>,
    /// Number of pauses.
    pub count: u64,
    /// Their length in all, ns.
    pub total_ns: u64,
    /// The longest ones, by their begin; at most [`MAX_LONGEST`].
    pub longest: Vec<Pause>,
}

impl PauseGroup {
    /// Adds a pause.
    pub fn add(&mut self, pause: Pause) {
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(pause.length_ns);
        self.keep(pause);
    }

    /// Adds the pauses of `other`.
    pub fn merge(&mut self, other: &PauseGroup) {
        self.count += other.count;
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        other.longest.iter().for_each(|pause| self.keep(*pause));
    }

    fn keep(&mut self, pause: Pause) {
        let at = self.longest.partition_point(|p| *p < pause);
        self.longest.insert(at, pause);
        if self.longest.len() > MAX_LONGEST {
            let shortest = (0..self.longest.len()).min_by_key(|i| self.longest[*i].length_ns);
            self.longest.remove(shortest.unwrap_or(0));
        }
    }

    /// Whether the pauses are collections.
    pub fn collects(&self) -> bool {
        !self.kind.is_empty()
    }

    /// Whether the recording can tell the time for which each thread was stopped. Go's runtime tells the sum of the
    /// two stops of a collection and the end of the second: neither begin is known.
    pub fn is_known_by_thread(&self) -> bool {
        &*self.operation != GO_COLLECTION
    }

    /// Length of the longest pause, ns.
    pub fn max_ns(&self) -> u64 {
        self.longest.iter().map(|p| p.length_ns).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_pauses_are_kept_and_all_are_counted() {
        let mut group = PauseGroup::default();
        for n in 0..100u64 {
            group.add(Pause {
                start_ns: 1000 * n,
                length_ns: (n * 37) % 100,
            });
        }
        assert_eq!((group.count, group.total_ns), (100, 4950));
        assert_eq!((group.longest.len(), group.max_ns()), (MAX_LONGEST, 99));
        assert!(group.longest.iter().all(|p| p.length_ns >= 68));
        assert!(group.longest.is_sorted());
    }
}
