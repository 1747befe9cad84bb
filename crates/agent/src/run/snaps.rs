//! Snaps: the last minutes before a trigger, as one recording.

use std::fs;
use std::path::{Path, PathBuf};

use wallscope_formats::pprof;
use wallscope_model::scale::scale;

use super::AgentError;
use crate::config::{Config, Trigger};
use crate::store::{StoreError, TimeRange, merged, write_atomically};

/// Directory of snaps within a store.
pub const SNAPS: &str = "snaps";

/// Writes the windows of the configured length before `end_ms` (since the epoch) as one recording;
/// the domain says why. The trigger's oldest snaps are dropped beyond its cap of bytes.
pub(super) fn write(
    config: &Config,
    trigger: &Trigger,
    end_ms: i64,
    reason: &str,
) -> Result<PathBuf, AgentError> {
    let length = config.snaps.length.0.as_millis();
    let range = TimeRange {
        from_ms: end_ms.saturating_sub(i64::try_from(length).unwrap_or(i64::MAX)),
        until_ms: end_ms,
    };
    let mut snap = merged(&config.store.dir, range)?.recording;
    let name = &trigger.name.get_ref().0;
    let note = format!("triggered by {name}: {reason}");
    snap.domain.notes.insert(0, note);
    let dir = config.store.dir.join(SNAPS);
    let path = dir.join(format!("{name}_{end_ms}.pb.gz"));
    write_atomically(&path, |out| {
        pprof::write(&snap, &scale(&snap), out).map(|_| ())
    })?;
    keep_cap(&dir, name, trigger.limits.max_bytes.0, &path)?;
    Ok(path)
}

/// Removes the oldest snaps of a trigger beyond `max` bytes; the newest stays.
fn keep_cap(dir: &Path, name: &str, max: u64, newest: &Path) -> Result<(), AgentError> {
    let io = |doing: &'static str, path: &Path, source| {
        let path = path.to_owned();
        AgentError::Store(StoreError::Io {
            doing,
            path,
            source,
        })
    };
    let mut snaps: Vec<(i64, PathBuf, u64)> = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| io("read", dir, e))?.flatten() {
        let file = entry.file_name().to_string_lossy().into_owned();
        let end = (file.strip_suffix(".pb.gz"))
            .and_then(|f| f.rsplit_once('_'))
            .filter(|(own, _)| *own == name)
            .and_then(|(_, end)| end.parse().ok());
        if let (Some(end), Ok(meta)) = (end, entry.metadata()) {
            snaps.push((end, entry.path(), meta.len()));
        }
    }
    snaps.sort();
    let mut bytes: u64 = snaps.iter().map(|(_, _, size)| size).sum();
    for (_, path, size) in snaps {
        if bytes <= max || path == newest {
            break;
        }
        fs::remove_file(&path).map_err(|e| io("remove", &path, e))?;
        bytes -= size;
    }
    Ok(())
}
