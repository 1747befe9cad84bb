//! FILE arguments: a path or `-`, in any format that can be read.

use std::io::{ErrorKind, Read as _};
use std::path::Path;

use wallscope_model::Recording;
use wallscope_report::format::{Bounds, ReadError, read};

use crate::failure::Failure;

/// Reads the recording in `path`; warnings go to stderr.
pub fn recording(path: &Path) -> Result<Recording, Failure> {
    let name = if path == Path::new("-") {
        "standard input".to_string()
    } else {
        format!("'{}'", path.display())
    };
    let bytes = bytes(path).map_err(|e| {
        let next = match e.kind() {
            ErrorKind::NotFound => "check the path, or record one: wallscope record -o FILE -- CMD",
            ErrorKind::PermissionDenied => "read it as its owner, or copy it first",
            ErrorKind::IsADirectory => "name a file in it",
            _ => "check the file and its disk",
        };
        Failure::unreadable(format!("cannot read {name}: {e}; {next}"))
    })?;
    let read = read(&bytes, Bounds::default()).map_err(|e| {
        let next = match &e {
            ReadError::Empty => "was the recording stopped before it was written? Record again",
            ReadError::Unrecognised { .. } => {
                "wallscope reads gzip pprof, its own and other tools'"
            }
            ReadError::Truncated => "copy it again, or record again",
            ReadError::Damaged { .. } => "copy it again; go tool pprof -raw may show what is left",
            ReadError::TooLarge { .. } => "is it a profile at all? If so, record for less time",
            ReadError::NoTime { .. } => "use go tool pprof for profiles of memory or counts",
        };
        Failure::unreadable(format!("cannot use {name}: {e}; {next}"))
    })?;
    for warning in &read.warnings {
        eprintln!("wallscope: warning: {name}: {warning}");
    }
    Ok(read.recording)
}

fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    std::fs::read(path)
}
