//! The limit of open files of this process.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit as far as it may be, and returns it: a descriptor or several are kept open for each thread.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Refused: the present limit has to do.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}
