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
//! Samples are read with their stacks. Where the file says how much CPU time passed since a
//! thread's last sample, that much is on-CPU and the rest of the time between is not known;
//! otherwise a sample stands for the sampling interval in a state that is not known, and without an
//! interval for a count. All states are written, each a category, by thread and over time; where
//! single intervals were kept, each as a marker.

mod read;
mod tables;
mod write;

use super::json;

pub(super) use read::read;
pub(super) use write::write;

/// Whether it is a processed profile. Before version 1 only its tables tell.
pub(super) fn detect(head: &[u8]) -> bool {
    let tables = ["stackTable", "frameTable", "stringArray"];
    json::start(head) == Some(b'{')
        && (json::has_key(head, "preprocessedProfileVersion")
            || tables.iter().all(|key| json::has_key(head, key)))
}
