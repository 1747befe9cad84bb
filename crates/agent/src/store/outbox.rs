//! Windows that wait for delivery to one target: links to the store's files.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::read::scan;
use super::{StoreError, Stored};

/// Directory of the outboxes within a store.
const OUTBOX: &str = "outbox";

/// The windows that one target has not acknowledged.
#[derive(Clone, Debug)]
pub struct Outbox {
    dir: PathBuf,
}

impl Outbox {
    /// The outbox of `target` in the store `store`; it is made if there is none.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn open(store: &Path, target: &str) -> Result<Outbox, StoreError> {
        let dir = store.join(OUTBOX).join(target);
        super::files::create_dir(&store.join(OUTBOX))?;
        super::files::create_dir(&dir)?;
        Ok(Outbox { dir })
    }

    /// The windows in it, oldest first.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn pending(&self) -> Result<Vec<Stored>, StoreError> {
        scan(&self.dir)
    }

    /// Adds the window in `file` as `name`.
    pub(super) fn add(&self, file: &Path, name: &str) -> Result<(), StoreError> {
        let link = self.dir.join(name);
        match fs::hard_link(file, &link) {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => Err(StoreError::io("link", link)(e)),
            _ => Ok(()),
        }
    }

    /// Whether the window `name` is in it.
    pub fn contains(&self, name: &str) -> bool {
        self.dir.join(name).exists()
    }

    /// Takes a window out that was acknowledged, or is to be dropped; `false`: it was not in it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn remove(&self, name: &str) -> Result<bool, StoreError> {
        let link = self.dir.join(name);
        match fs::remove_file(&link) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(StoreError::io("remove", link)(e)),
        }
    }
}

/// Start of the names of files that say that a window was sent, perhaps.
const SENT: &str = ".sent-";

impl Outbox {
    /// Marks a window as sent before it is sent. `true`: it was marked already, so an earlier attempt may have
    /// reached a receiver that does not recognise it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn mark_sent(&self, name: &super::WindowName) -> Result<bool, StoreError> {
        let path = self.dir.join(format!("{SENT}{}", name.file_name()));
        if path.exists() {
            return Ok(true);
        }
        super::files::create(&path).map_err(StoreError::io("write", path))?;
        Ok(false)
    }

    /// Removes the mark of a window that was acknowledged.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn unmark_sent(&self, name: &super::WindowName) -> Result<(), StoreError> {
        self.remove(&format!("{SENT}{}", name.file_name()))
            .map(|_| ())
    }
}

/// Removes outboxes of targets that are not in `targets`: no courier would empty them, and their links keep
/// dropped windows on the disk.
pub(super) fn remove_others(store: &Path, targets: &[String]) -> Result<(), StoreError> {
    let dir = store.join(OUTBOX);
    let entries = match fs::read_dir(&dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(StoreError::io("read", dir)(e)),
    };
    for entry in entries.flatten() {
        let is_target = |t: &String| *t == *entry.file_name().to_string_lossy();
        if !targets.iter().any(is_target) {
            fs::remove_dir_all(entry.path()).map_err(StoreError::io("remove", entry.path()))?;
        }
    }
    Ok(())
}
