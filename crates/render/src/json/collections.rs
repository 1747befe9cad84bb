//! Garbage collection and pauses, as JSON.

use serde::Serialize;
use wallscope_analysis::view::Analysis;

/// Garbage collection. Collecting and being stopped are never added.
#[derive(Serialize)]
pub(super) struct Collections {
    /// On-CPU time of threads that collect, estimated from samples.
    on_cpu_ns: u64,
    /// Blocked time of threads that a collector stops or stalls.
    blocked_ns: u64,
    threads: Vec<CollectorThread>,
    pauses: Vec<Pauses>,
}

#[derive(Serialize)]
struct CollectorThread {
    pid: u32,
    tid: u32,
    name: String,
    on_cpu_ns: u64,
    blocked_ns: u64,
}

#[derive(Serialize)]
struct Pauses {
    pid: u32,
    operation: String,
    /// Empty: the pauses are no collections.
    kind: String,
    cause: String,
    count: u64,
    total_ns: u64,
    max_ns: u64,
    /// The longest ones: begin on the recording's clock, and length.
    longest: Vec<[u64; 2]>,
}

/// Returns the garbage collection of a recording.
pub(super) fn collections(analysis: &Analysis) -> Collections {
    let rows = analysis.collections();
    Collections {
        on_cpu_ns: rows.iter().map(|r| r.collects_ns).sum(),
        blocked_ns: rows.iter().map(|r| r.stopped_ns).sum(),
        threads: (rows.into_iter())
            .map(|r| CollectorThread {
                pid: r.pid,
                tid: r.tid,
                name: r.name.to_string(),
                on_cpu_ns: r.collects_ns,
                blocked_ns: r.stopped_ns,
            })
            .collect(),
        pauses: (analysis.pauses().into_iter())
            .map(|g| Pauses {
                pid: g.pid,
                operation: g.operation.to_string(),
                kind: g.kind.to_string(),
                cause: g.cause.to_string(),
                count: g.count,
                total_ns: g.total_ns,
                max_ns: g.max_ns(),
                longest: (g.longest.iter())
                    .map(|p| [p.start_ns, p.length_ns])
                    .collect(),
            })
            .collect(),
    }
}
