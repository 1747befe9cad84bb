//! Ledgers added up.

use wallscope_model::{Ledger, Recording};

/// Ledgers added up.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// Sum of the threads' ledgers.
    pub ledger: Ledger,
    /// Threads with time.
    pub threads: usize,
    /// On-CPU time of processes that no thread has, ns.
    pub unattributed_ns: u64,
}

impl Sums {
    /// Adds the ledgers of a recording, or of a part of its time.
    pub fn add(&mut self, recording: &Recording) {
        let present = recording.contexts.iter().filter(|c| c.ledger.wall_ns > 0);
        self.threads = self.threads.max(present.clone().count());
        for c in present {
            self.ledger.add(&c.ledger);
        }
        let more = recording.processes.iter().map(|p| p.unattributed_on_cpu_ns);
        self.unattributed_ns = self.unattributed_ns.max(more.sum());
    }
}
