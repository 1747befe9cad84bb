//! The Firefox Profiler's processed profiles (Firefox's own, samply's and others') ↔ recording.
//!
//! Read are samples with their stacks. Where the file says how much CPU time passed since a
//! thread's last sample, that much is on-CPU and the rest of the time between is not known;
//! otherwise a sample stands for the sampling interval in a state that is not known. Written are
//! all states, each a category, by thread and over time; where single intervals were kept, each as a
//! marker.

mod read;
mod write;

use super::json;

pub(super) use read::read;
pub(super) use write::write;

/// Whether it is a processed profile.
pub(super) fn detect(head: &[u8]) -> bool {
    let processed = json::has(head, "\"preprocessedProfileVersion\"");
    json::start(head) == Some(b'{') && processed
}
