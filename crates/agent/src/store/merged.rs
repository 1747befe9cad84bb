//! A range of a store as one recording.

use std::path::Path;

use jiff::tz::TimeZone;
use wallscope_formats::{Options, open};
use wallscope_model::Recording;
use wallscope_model::merge::{self, Merger};

use super::range::{TimeRange, shown};
use super::read::{Stored, list, one_host};
use super::{StoreError, WindowName};

/// The windows of a range, merged.
#[derive(Debug)]
pub struct Selected {
    /// The recording.
    pub recording: Recording,
    /// Number of its windows.
    pub windows: usize,
    /// Sentences about parts that a reader left out, with the window's name.
    pub warnings: Vec<String>,
}

/// Merges the windows of `dir` that overlap `range`. Windows are never divided: the recording begins
/// with the first and ends with the last of them. Threads are joined within a boot of the machine.
///
/// # Errors
/// [`StoreError`].
pub fn merged(dir: &Path, range: TimeRange) -> Result<Selected, StoreError> {
    let all = list(dir)?;
    let is_in = |name: &WindowName| {
        name.start_ms < range.until_ms && name.end_ms().max(name.start_ms + 1) > range.from_ms
    };
    let chosen: Vec<&Stored> = all.iter().filter(|w| is_in(&w.name)).collect();
    let (Some(first), Some(last)) = (all.first(), all.last()) else {
        return Err(StoreError::NoStore {
            path: dir.to_owned(),
        });
    };
    one_host(&all)?;
    if chosen.is_empty() {
        let local = |ms| shown(ms, &TimeZone::system());
        return Err(StoreError::OutsideRange {
            from: local(range.from_ms),
            until: local(range.until_ms),
            first: local(first.name.start_ms),
            last: local(last.name.end_ms()),
        });
    }
    let mut boots = Vec::new();
    let mut warnings = Vec::new();
    for windows in chosen.chunk_by(|a, b| a.name.key.boot == b.name.key.boot) {
        boots.push(merged_boot(windows, &mut warnings)?);
    }
    let recording = match boots.len() {
        1 => boots.remove(0),
        _ => merge::merge(&boots).map_err(|source| StoreError::Domains {
            at: "the machine's last start".to_string(),
            source,
        })?,
    };
    Ok(Selected {
        recording,
        windows: chosen.len(),
        warnings,
    })
}

/// Merges windows of one boot. No two of them are in memory at once.
fn merged_boot(windows: &[&Stored], warnings: &mut Vec<String>) -> Result<Recording, StoreError> {
    let mut merger = Merger::windows();
    for stored in windows {
        let window = read(stored, warnings)?;
        merger.add(&window).map_err(|source| StoreError::Domains {
            at: shown(stored.name.start_ms, &TimeZone::system()),
            source,
        })?;
    }
    merger.finish().map_err(|source| StoreError::Domains {
        at: String::new(),
        source,
    })
}

fn read(stored: &Stored, warnings: &mut Vec<String>) -> Result<Recording, StoreError> {
    #[expect(clippy::disallowed_methods, reason = "the user names the directory")]
    let file = std::fs::File::open(&stored.path).map_err(StoreError::io("read", &stored.path))?;
    let read = open(file, Options::default()).map_err(|source| StoreError::Window {
        path: stored.path.clone(),
        source,
    })?;
    let name = stored.name.file_name();
    warnings.extend(read.warnings.iter().map(|w| format!("{name}: {w}")));
    Ok(read.recording)
}
