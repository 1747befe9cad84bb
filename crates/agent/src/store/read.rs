//! The windows of a store, by time.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{StoreError, WindowName, version};

/// A window in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its file.
    pub path: PathBuf,
    /// Its name.
    pub name: WindowName,
    /// Its size, bytes.
    pub bytes: u64,
}

/// The windows of the store `dir`, oldest first.
///
/// # Errors
/// [`StoreError`] if it cannot be read, is no store, or has a newer layout.
pub fn list(dir: &Path) -> Result<Vec<Stored>, StoreError> {
    let marked = version::check(dir)?;
    let windows = scan(dir)?;
    if !marked && windows.is_empty() {
        return Err(StoreError::NoStore {
            path: dir.to_owned(),
        });
    }
    Ok(windows)
}

/// The windows in a directory, oldest first. Other files are left alone.
pub(super) fn scan(dir: &Path) -> Result<Vec<Stored>, StoreError> {
    let mut windows = Vec::new();
    let unreadable = || StoreError::io("read", dir);
    for entry in fs::read_dir(dir).map_err(unreadable())? {
        let entry = entry.map_err(unreadable())?;
        let Some(name) = entry.file_name().to_str().and_then(WindowName::parse) else {
            continue;
        };
        // The agent may drop a window meanwhile.
        let bytes = match entry.metadata() {
            Ok(meta) if meta.is_file() => meta.len(),
            Ok(_) => continue,
            Err(e) if e.kind() == ErrorKind::NotFound => continue,
            Err(e) => return Err(StoreError::io("read", entry.path())(e)),
        };
        windows.push(Stored {
            path: entry.path(),
            name,
            bytes,
        });
    }
    windows.sort_by_key(|w| order(&w.name));
    Ok(windows)
}

fn order(name: &WindowName) -> (i64, u64, u64) {
    (name.start_ms, name.key.epoch, name.key.sequence)
}

/// The hosts of `windows`, which must be one.
pub(super) fn one_host(windows: &[Stored]) -> Result<(), StoreError> {
    let hosts: BTreeSet<&str> = windows.iter().map(|w| &*w.name.key.host).collect();
    match hosts.len() {
        0 | 1 => Ok(()),
        _ => Err(StoreError::Hosts {
            hosts: hosts.into_iter().collect::<Vec<_>>().join(", "),
        }),
    }
}
