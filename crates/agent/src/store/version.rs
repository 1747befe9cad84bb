//! The version of a store's layout.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::Path;

use super::StoreError;

/// File that holds the version.
pub(super) const FILE: &str = "FORMAT";
const PREFIX: &str = "wallscope-store ";
/// The layout that is written; every earlier one is read.
const NEWEST: u32 = 1;

/// Checks that the layout of `dir` is known; `false`: it has no version yet.
pub(super) fn check(dir: &Path) -> Result<bool, StoreError> {
    let path = dir.join(FILE);
    #[expect(clippy::disallowed_methods, reason = "the user names the directory")]
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        Err(e) => return Err(StoreError::io("read", path)(e)),
    };
    let found = text.trim_end();
    let version: Option<u32> = found.strip_prefix(PREFIX).and_then(|v| v.parse().ok());
    match version {
        Some(1..=NEWEST) => Ok(true),
        _ => Err(StoreError::Newer {
            path: dir.to_owned(),
            found: found.chars().take(60).collect(),
            newest: format!("{PREFIX}{NEWEST}"),
        }),
    }
}

/// Writes the version, once.
pub(super) fn mark(dir: &Path) -> Result<(), StoreError> {
    if check(dir)? {
        return Ok(());
    }
    let path = dir.join(FILE);
    let new = dir.join(".new-FORMAT");
    let write = || -> std::io::Result<()> {
        let mut file = super::files::create(&new)?;
        writeln!(file, "{PREFIX}{NEWEST}")?;
        file.sync_data()?;
        fs::rename(&new, &path)
    };
    write().map_err(StoreError::io("write", path.clone()))
}
