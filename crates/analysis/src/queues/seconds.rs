//! Times of a recording in seconds.

use wallscope_model::Recording;

/// Length of the recording, s.
pub(super) fn window(recording: &Recording) -> f64 {
    recording.window.length_ns() as f64 / 1e9
}

/// Nanoseconds as seconds.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
