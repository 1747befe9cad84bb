//! Garbage collection: time of threads that collect, and of threads that a collector stops.
//!
//! Collecting is on-CPU time, estimated from samples. Being stopped is blocked time, by the ledger. The two are
//! shown side by side and are never added.

use std::collections::HashSet;
use std::sync::Arc;

use wallscope_model::{BlockReason, ContextId, GC_KEY, LabelsId, PauseGroup, State};

use super::Analysis;

/// A thread with garbage collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionRow {
    /// The thread.
    pub context: ContextId,
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// Its name.
    pub name: Arc<str>,
    /// On-CPU time in which it collected, estimated from samples, ns.
    pub collects_ns: u64,
    /// Blocked time in which a collector stopped or stalled it, ns; 0 where that is not known.
    pub stopped_ns: u64,
    /// Whether the recording can tell that time: not for pauses that are known by process alone.
    pub stops_known: bool,
    /// Its wall time, ns.
    pub wall_ns: u64,
}

impl Analysis<'_> {
    /// Threads that collect, or that a collector stops; those that are stopped longest first.
    pub fn collections(&self) -> Vec<CollectionRow> {
        let rec = self.recording;
        let collects = |labels: LabelsId| {
            let set = rec.label_sets.get(labels.0 as usize);
            set.is_some_and(|set| set.iter().any(|l| &*l.key == GC_KEY))
        };
        let mut collected = vec![0u64; rec.contexts.len()];
        for piece in &self.scaled.pieces {
            let s = &rec.samples[piece.sample as usize];
            if s.state == State::OnCpu && s.labels.is_some_and(collects) {
                collected[piece.context.0 as usize] += piece.ns;
            }
        }
        let unknown: HashSet<u32> = (rec.pauses.iter())
            .filter(|group| !group.is_known_by_thread())
            .map(|group| group.pid)
            .collect();
        let mut rows: Vec<CollectionRow> = (rec.contexts.iter().zip(collected).enumerate())
            .map(|(i, (c, collects_ns))| CollectionRow {
                context: ContextId(i as u32),
                pid: c.pid,
                tid: c.tid,
                name: c.name.clone(),
                collects_ns,
                stopped_ns: c.ledger.blocked[BlockReason::Gc as usize],
                stops_known: !unknown.contains(&c.pid),
                wall_ns: c.ledger.wall_ns,
            })
            .filter(|row| row.collects_ns + row.stopped_ns > 0)
            .collect();
        rows.sort_by_key(|r| std::cmp::Reverse((r.stopped_ns, r.collects_ns)));
        rows
    }

    /// Pauses of runtimes: collections first, longest time first.
    pub fn pauses(&self) -> Vec<&PauseGroup> {
        let mut all: Vec<&PauseGroup> = self.recording.pauses.iter().collect();
        all.sort_by_key(|g| (!g.collects(), std::cmp::Reverse(g.total_ns)));
        all
    }
}
