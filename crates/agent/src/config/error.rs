//! Errors of a configuration: line, key, cause, and the values that are allowed.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read '{}': {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A line of it is wrong.
    #[error("'{}', line {line}, {key}: {cause}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The key, with its table: `store.max_age`.
        key: String,
        /// The cause, with the allowed values.
        cause: String,
    },
}

impl ConfigError {
    /// The error `cause` at a place of `text`.
    pub(super) fn at(path: &Path, text: &str, span: Option<Range<usize>>, cause: String) -> Self {
        let at = span.map_or(0, |s| s.start.min(text.len()));
        let before = text.get(..at).unwrap_or_default();
        ConfigError::Wrong {
            path: path.to_owned(),
            line: before.matches('\n').count() + 1,
            key: key_at(text, at),
            cause: cause.replace('\n', "; "),
        }
    }
}

/// The key at a place, with its table; the table alone where the line has no key.
fn key_at(text: &str, at: usize) -> String {
    let start = text
        .get(..at)
        .and_then(|t| t.rfind('\n'))
        .map_or(0, |i| i + 1);
    let rest = text.get(start..).unwrap_or_default();
    let line = rest.lines().next().unwrap_or_default();
    let table = (text.get(..start).unwrap_or_default().lines())
        .chain([line])
        .filter_map(|l| l.trim().strip_prefix('['))
        .next_back()
        .and_then(|l| l.trim_start_matches('[').split(']').next());
    // Within an inline table the key before the place, otherwise the line's own.
    let until_value = at.saturating_sub(start).min(line.len());
    let mut keys = line.match_indices('=').filter(|(i, _)| *i < until_value);
    let end = keys.next_back().or(line.match_indices('=').next());
    let key = end.and_then(|(i, _)| line.get(..i)).map(|left| {
        let from = left.rfind(['{', ',']).map_or(0, |i| i + 1);
        left[from..].trim()
    });
    match (table, key.filter(|k| !k.is_empty() && !k.starts_with('['))) {
        (Some(table), Some(key)) => format!("{}.{key}", table.trim()),
        (Some(table), None) => table.trim().to_string(),
        (None, Some(key)) => key.to_string(),
        (None, None) => "top level".to_string(),
    }
}
