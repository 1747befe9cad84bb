//! The spool: a log beside a recording's file, for a recorder that does not end in order.
//!
//! `run.pb.gz` has the spool `run.pb.gz.spool`. Its recorder holds a lock on it, which the kernel releases
//! when the process ends, for any reason. So a spool without a lock is one that was left behind. A new
//! recorder never writes over it: its own spool is `run.pb.gz.2.spool` then, and so on.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Seek as _},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use crate::{
    lock::{hold, is_being_written},
    write::LogFile,
};

/// Names that are tried for a spool.
const MAX_NAMES: u32 = 100;

/// The place of a spool, and its file once it is made. Clones mean one spool.
#[derive(Clone, Debug)]
pub struct Spool {
    output: PathBuf,
    owner: Option<(u32, u32)>,
    bound: u64,
    file: Arc<OnceLock<LogFile>>,
}

impl Spool {
    /// A spool for the recording at `output`. It keeps to `bound` bytes, except for observations that are never
    /// left out.
    pub fn beside(output: &Path, bound: u64) -> Spool {
        Spool {
            output: output.into(),
            owner: None,
            bound,
            file: Arc::default(),
        }
    }

    /// Gives the file to this user and group.
    pub fn owned_by(mut self, user: u32, group: u32) -> Spool {
        self.owner = Some((user, group));
        self
    }

    /// Maximum bytes; observations that are never left out may exceed it.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// Its path, once it is made.
    pub fn path(&self) -> Option<&Path> {
        self.file.get().map(LogFile::path)
    }

    /// Makes the file, which only its owner can read, under the first name that is free. A file that was made
    /// before is emptied: its recorder gave up before anything was measured.
    ///
    /// # Errors
    /// It cannot be made there.
    pub fn create(&self) -> io::Result<LogFile> {
        if let Some(log) = self.file.get() {
            let mut file = log.file();
            file.set_len(0)?;
            file.rewind()?;
            return Ok(log.clone());
        }
        for number in 1..=MAX_NAMES {
            let path = name(&self.output, number);
            match create_new(&path) {
                Ok(file) => {
                    hold(&file);
                    if let Some((user, group)) = self.owner {
                        fchown(&file, Some(user), Some(group))?;
                    }
                    let log = LogFile::spool(file, &path);
                    return Ok(self.file.get_or_init(|| log).clone());
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Removes the file, if there is one: the recording is safe.
    pub fn remove(&self) {
        let Some(log) = self.file.get() else { return };
        let id = |m: fs::Metadata| (m.dev(), m.ino());
        let own = log.file().metadata().map(id).ok();
        // Another process may have put another file there.
        if own.is_some() && log.path().symlink_metadata().map(id).ok() == own {
            // The next recorder finds a spool that cannot be removed.
            let _ = fs::remove_file(log.path());
        }
    }

    /// Spools in `folder` that were left behind, for outputs with names that begin with `prefix`, and
    /// their sizes, bytes.
    pub fn left_behind(folder: &Path, prefix: &str) -> Vec<(PathBuf, u64)> {
        // A folder that cannot be listed has no spool that can be recovered.
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut found = Vec::new();
        for entry in entries {
            let name = entry.file_name();
            let is_one = |n: &str| n.starts_with(prefix) && n.ends_with(".spool");
            let size = entry.metadata().ok().filter(fs::Metadata::is_file);
            if name.to_str().is_some_and(is_one)
                && let Some(meta) = size
                && !is_being_written(&entry.path())
            {
                // The path as the user names the folder, without a `.` that we added.
                let path = match folder == Path::new(".") {
                    true => PathBuf::from(name),
                    false => entry.path(),
                };
                found.push((path, meta.len()));
            }
        }
        found.sort();
        found
    }
}

/// The name of the `number`th spool for `output`.
fn name(output: &Path, number: u32) -> PathBuf {
    let mut name = output.as_os_str().to_owned();
    if number > 1 {
        name.push(format!(".{number}"));
    }
    name.push(".spool");
    name.into()
}

#[expect(
    clippy::disallowed_methods,
    reason = "makes a file beside the one that the user names, and opens none that exists"
)]
fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn a_spool_is_private_and_never_replaces_another() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.pb.gz");
        let first = Spool::beside(&output, LogFile::BOUND);
        let log = first.create().unwrap();
        assert_eq!(log.path(), folder.path().join("run.pb.gz.spool"));
        let mode = log.file().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = Spool::beside(&output, LogFile::BOUND);
        assert_eq!(
            second.create().unwrap().path(),
            folder.path().join("run.pb.gz.2.spool")
        );
        second.remove();
        first.remove();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_spool_that_is_made_again_begins_anew() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::beside(&folder.path().join("run"), LogFile::BOUND);
        let refused = spool.create().unwrap();
        let mut first = refused.file();
        first.write_all(b"of the way that was refused").unwrap();
        let log = spool.create().unwrap();
        let mut again = log.file();
        again.write_all(b"new").unwrap();
        assert_eq!(fs::read(log.path()).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_what_no_recorder_holds_was_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let output = folder.path().join("run.pb.gz");
        let spool = Spool::beside(&output, LogFile::BOUND);
        let log = spool.create().unwrap();
        assert!(is_being_written(log.path()));
        let left = |prefix| Spool::left_behind(folder.path(), prefix);
        assert_eq!(left("run.pb.gz"), []);
        let path = log.path().to_path_buf();
        drop((log, spool));
        assert_eq!(left("run.pb.gz"), [(path, 0)]);
        assert_eq!(left("other"), []);
    }

    #[test]
    fn a_file_that_took_the_name_stays() {
        let folder = tempfile::tempdir().unwrap();
        let spool = Spool::beside(&folder.path().join("run"), LogFile::BOUND);
        let path = spool.create().unwrap().path().to_path_buf();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another").unwrap();
        spool.remove();
        assert_eq!(fs::read(&path).unwrap(), b"another");
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        std::os::unix::fs::symlink(&target, folder.path().join("run.spool")).unwrap();
        let spool = Spool::beside(&folder.path().join("run"), LogFile::BOUND);
        assert_eq!(
            spool.create().unwrap().path(),
            folder.path().join("run.2.spool")
        );
        assert!(!target.exists());
    }
}
