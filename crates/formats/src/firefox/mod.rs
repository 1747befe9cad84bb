//! The Firefox Profiler's processed profiles (Firefox's own, samply's and others') ↔ recording.
//!
//! Known are versions 0 to 70 (`docs-developer/CHANGELOG-formats.md` of the Firefox Profiler):
//!
//! | from | change that stacks, names or weights depend on |
//! |---|---|
//! | 29 | weights of samples are called `weight`, not `duration` |
//! | 41 | `libs` moves from the threads to the profile |
//! | 50 | `timeDeltas` may stand in the place of `time` |
//! | 56 | strings move to `shared` |
//! | 58 | `funcTable.source` → `shared.sources` replaces `funcTable.fileName` |
//! | 60 | all tables move to `shared` |
//! | 66 | `stackTable.prefixOffset` replaces `prefix` |
//! | 70 | `frameTable.lib` replaces `resourceTable.lib` |
//!
//! A newer version is read with a warning as long as its tables have no unknown column, else
//! refused. Gecko's unprocessed profiles are refused by name. Positions of source maps
//! (`originalLocation`) and allocations are left out.
//!
//! Samples are read with their stacks. If the file has the CPU time since a thread's last sample, this time is
//! on-CPU and the rest of the time between both samples is unknown. Otherwise a sample represents the sampling
//! interval, in an unknown state; without an interval it is a count. All states are written, each as a category,
//! by thread and over time. Single intervals are written as markers if they were kept.

mod read;
mod tables;
mod write;

use super::json;

pub(super) use read::read;
pub(super) use write::write;

/// Whether the file is a processed profile. Before version 1 only the tables show it.
pub(super) fn detect(head: &[u8]) -> bool {
    let tables = ["stackTable", "frameTable", "stringArray"];
    json::start(head) == Some(b'{')
        && (json::has_key(head, "preprocessedProfileVersion")
            || tables.iter().all(|key| json::has_key(head, key)))
}
