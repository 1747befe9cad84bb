//! The queues of a recording: contended locks, servers, pools, CPUs and disks, with arrivals, service,
//! waits, and the waits under more load.
//!
//! One file a kind reads the recording: [`lock`], [`server`], [`cpu`], [`disk`]. Each names the values that it could
//! not determine. [`what_if`] asks how long the threads' work takes if one function is faster,
//! [`scaling`] how throughput grows over several recordings.
//!
//! The mathematics is in [`crate::queueing`]. Times here are seconds.

mod blocks;
mod cpu;
mod disk;
mod known;
mod lock;
mod queue;
mod replay;
pub mod scaling;
mod seconds;
mod server;
pub mod what_if;
mod workers;

use crate::view::Analysis;

pub use queue::{Absent, Queue, QueueKind, Queues, System};

/// Finds the queues of a recording.
pub fn queues(analysis: &Analysis<'_>) -> Queues {
    let mut found = Queues::default();
    if !analysis.recording.domain.unit.is_time() {
        return found;
    }
    lock::queues(analysis, &mut found);
    server::queues(analysis.recording, &mut found);
    cpu::queues(analysis.recording, &mut found);
    disk::queues(analysis.recording, &mut found);
    (found.rows).sort_by(|a, b| a.headroom.value.total_cmp(&b.headroom.value));
    found
}

#[cfg(test)]
mod tests;
