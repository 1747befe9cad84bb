//! The lock of a log: a recorder holds it while it writes, and it goes with the process.

use std::{
    fs::{File, OpenOptions},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::{FlockOperation, OFlags, flock};

/// Locks a log until this process ends. Another process may hold the lock only for the moment of a test
/// ([`is_being_written`]).
pub(crate) fn hold(file: &File) {
    // Some file systems have no locks: a spool there is taken for one that was left behind.
    let _ = flock(file, FlockOperation::LockExclusive);
}

/// Whether a recorder holds the lock on the log at `path`.
#[expect(
    clippy::disallowed_methods,
    reason = "opened for its lock only, beside the file that the user names"
)]
pub fn is_being_written(path: &Path) -> bool {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path);
    let Ok(file) = opened else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}
