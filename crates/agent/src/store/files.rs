//! Files of a store: only their owner reads them, and they appear whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use super::StoreError;

/// Start of the names of files that are being written.
pub(super) const NEW: &str = ".new-";

/// Writes a file beside the windows as they are written: whole or not at all.
///
/// # Errors
/// [`StoreError::Io`].
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), StoreError> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(StoreError::io("write", path)(
            ErrorKind::InvalidInput.into(),
        ));
    };
    create_dir(dir)?;
    let new = dir.join(format!("{NEW}{}", name.to_string_lossy()));
    let done = || -> io::Result<()> {
        let mut out = BufWriter::new(create(&new)?);
        write(&mut out)?;
        out.flush()?;
        out.get_ref().sync_data()?;
        fs::rename(&new, path)
    };
    done().map_err(|e| {
        // Makes room for the next file. The first error is reported.
        let _ = fs::remove_file(&new);
        StoreError::io("write", path)(e)
    })?;
    sync_dir(dir)
}

/// Makes a file that only its owner reads.
#[expect(clippy::disallowed_methods, reason = "the user names the directory")]
pub(super) fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
}

/// Makes a directory that only its owner reads, if there is none.
pub(super) fn create_dir(dir: &Path) -> Result<(), StoreError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(dir);
    made.map_err(StoreError::io("make", dir))
}

#[expect(clippy::disallowed_methods, reason = "the user names the directory")]
pub(super) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    let synced = File::open(dir).and_then(|d| d.sync_all());
    synced.map_err(StoreError::io("sync", dir))
}

/// Removes files that an ended agent was writing.
pub(super) fn remove_unfinished(dir: &Path) -> Result<(), StoreError> {
    let entries = fs::read_dir(dir).map_err(StoreError::io("read", dir))?;
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(NEW) {
            fs::remove_file(entry.path()).map_err(StoreError::io("remove", entry.path()))?;
        }
    }
    Ok(())
}
