//! One agent a directory: a locked file.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::AgentError;

/// A lock, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Locks `dir`, which is made if there is none.
    pub(super) fn take(dir: &Path) -> Result<Lock, AgentError> {
        let path = dir.join("agent.lock");
        let unusable = |source| AgentError::Lock {
            path: path.clone(),
            source,
        };
        let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
        made.map_err(unusable)?;
        let mut file = open(&path).map_err(unusable)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut pid = String::new();
            // Only words for the error.
            let _ = file.read_to_string(&mut pid);
            return Err(AgentError::Running {
                path,
                pid: pid.trim().to_string(),
            });
        }
        let mut write = || -> std::io::Result<()> {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        write().map_err(unusable)?;
        Ok(Lock { _file: file })
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the configuration names the directory"
)]
fn open(path: &PathBuf) -> std::io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}
