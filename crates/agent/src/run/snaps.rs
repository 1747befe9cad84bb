//! Snaps: the last minutes before a trigger, as one recording.

use std::fs;
use std::path::{Path, PathBuf};

use wallscope_capture::session::{FlightMemory, FlightRecorder};
use wallscope_formats::pprof;
use wallscope_model::scale::scale;

use super::AgentError;
use crate::config::{Config, Trigger};
use crate::store::{StoreError, TimeRange, merged, write_atomically};

/// Directory of snaps within a store.
pub const SNAPS: &str = "snaps";

/// A snap that a trigger wants.
pub(super) struct Snap<'a> {
    /// The trigger.
    pub trigger: &'a Trigger,
    /// End, ms since the epoch.
    pub end_ms: i64,
    /// The trigger's reason.
    pub reason: &'a str,
    /// The single intervals, if they are kept.
    pub flight: Option<FlightRecorder>,
}

/// Writes the windows of the configured length before the snap's end, and the single intervals of that time, as one
/// recording; the domain says why. The trigger's oldest snaps are dropped beyond its cap of bytes.
pub(super) fn write(config: &Config, wanted: &Snap<'_>) -> Result<PathBuf, AgentError> {
    let Snap {
        trigger,
        end_ms,
        reason,
        ..
    } = *wanted;
    let length = config.snaps.length.0.as_millis();
    let range = TimeRange {
        from_ms: end_ms.saturating_sub(i64::try_from(length).unwrap_or(i64::MAX)),
        until_ms: end_ms,
    };
    let mut snap = merged(&config.store.dir, range)?.recording;
    let name = &trigger.name.get_ref().0;
    let note = format!("triggered by {name}: {reason}");
    snap.domain.notes.insert(0, note);
    if let Some(flight) = &wanted.flight {
        (flight.snapshot()).put_into(&mut snap, FlightMemory::Recorder);
    }
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
