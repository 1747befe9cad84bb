//! Reasons for which a `perf.data` file is refused.

use super::super::ReadError;

/// The file has a layout that this reader does not know.
pub(super) fn unsupported(what: String) -> ReadError {
    ReadError::Unsupported {
        what,
        remedy: "read it with the perf that wrote it: perf script > FILE, and give that"
            .to_string(),
    }
}
