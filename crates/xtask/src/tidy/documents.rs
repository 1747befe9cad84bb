//! Lengths of the documents that everybody reads first.

use super::ratchet::Excess;
use super::sources::Source;

/// Documents, and the lines that each may have.
pub const LINES: &[(&str, usize)] = &[("README.md", 150), ("ARCHITECTURE.md", 250)];

/// Documents that are too long.
pub fn find(sources: &[Source]) -> Vec<Excess> {
    let limit_of = |source: &Source| LINES.iter().find(|(path, _)| *path == source.path);
    let measured = sources.iter().filter_map(|source| {
        let (path, limit) = limit_of(source)?;
        let lines = source.text.lines().count();
        (lines > *limit).then(|| Excess {
            thing: path.to_string(),
            value: lines,
            note: format!("at most {limit} lines; details belong in docs/"),
        })
    });
    measured.collect()
}
