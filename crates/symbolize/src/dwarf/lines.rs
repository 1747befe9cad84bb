//! Runs a unit's line program once, as a stream.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use gimli::UnitRef;
use rustc_hash::FxHashMap;

use super::query::{Query, Slice};
use crate::demangle::clean_text;

/// Rows between two checks of the deadline.
const ROWS_PER_CHECK: u32 = 1 << 16;

/// The lines of the wanted addresses.
pub(super) struct LineHits {
    /// File index and line of each address.
    rows: Vec<Option<(u64, u32)>>,
    /// Paths of these files.
    files: RefCell<FxHashMap<u64, Arc<str>>>,
}

impl LineHits {
    /// Returns the file and line of the `i`th address.
    pub(super) fn get(&self, i: usize) -> Option<(Arc<str>, u32)> {
        let (file, line) = (*self.rows.get(i)?)?;
        let path = self.files.borrow().get(&file).cloned();
        Some((path.unwrap_or_default(), line))
    }

    /// Returns the path of file `index` of the unit; empty if there is none.
    pub(super) fn file(&self, unit: UnitRef<'_, Slice<'_>>, index: u64) -> Arc<str> {
        self.files
            .borrow_mut()
            .entry(index)
            .or_insert_with(|| file_path(unit, index))
            .clone()
    }
}

/// Runs the unit's line program for the wanted addresses with an index in `covered`, ascending.
pub(super) fn find(unit: UnitRef<'_, Slice<'_>>, query: Query<'_>, covered: &[usize]) -> LineHits {
    let wanted = query.wanted;
    let mut hits = LineHits {
        rows: vec![None; covered.len()],
        files: RefCell::default(),
    };
    let Some(program) = unit.line_program.clone() else {
        return hits;
    };
    let (Some(first), Some(last)) = (covered.first(), covered.last()) else {
        return hits;
    };
    let (first, last) = (wanted[*first], wanted[*last]);
    let mut rows = program.rows();
    let mut before: Option<(u64, u64, u32)> = None;
    let mut steps = 0u32;
    // An error ends the program; the rows so far stand.
    while let Ok(Some((_, row))) = rows.next_row() {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(ROWS_PER_CHECK) && Instant::now() >= query.deadline {
            break;
        }
        let here = row.address();
        if let Some((start, file, line)) = before
            && here > first
            && start <= last
            && (query.executable)(start)
        {
            let from = covered.partition_point(|i| wanted[*i] < start);
            for i in from..covered.len() {
                if wanted[covered[i]] >= here {
                    break;
                }
                // The first of overlapping sequences counts.
                hits.rows[i].get_or_insert((file, line));
            }
        }
        before = (!row.end_sequence()).then(|| {
            let line = row
                .line()
                .map_or(0, |l| u32::try_from(l.get()).unwrap_or(0));
            (here, row.file_index(), line)
        });
    }
    let used: Vec<u64> = hits.rows.iter().flatten().map(|r| r.0).collect();
    for file in used {
        hits.file(unit, file);
    }
    hits
}

/// Returns the path of file `index` in the unit's table, joined to its directory and its
/// compilation directory.
pub(super) fn file_path(unit: UnitRef<'_, Slice<'_>>, index: u64) -> Arc<str> {
    let text = |value| {
        unit.attr_string(value)
            .ok()
            .map(|s: Slice<'_>| s.to_string_lossy())
    };
    let Some(header) = unit.line_program.as_ref().map(|p| p.header()) else {
        return Arc::default();
    };
    let Some(file) = header.file(index) else {
        return Arc::default();
    };
    let mut path = String::new();
    if let Some(dir) = unit.comp_dir {
        path.push_str(&dir.to_string_lossy());
    }
    if let Some(dir) = file.directory(header).and_then(text) {
        push_path(&mut path, &dir);
    }
    if let Some(name) = text(file.path_name()) {
        push_path(&mut path, &name);
    }
    clean_text(path.into()).into()
}

/// Appends `part`, or replaces the path if `part` is absolute.
fn push_path(path: &mut String, part: &str) {
    if part.starts_with('/') {
        path.clear();
    } else if !path.is_empty() && !path.ends_with('/') {
        path.push('/');
    }
    path.push_str(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_joined_unless_absolute() {
        let mut path = String::from("/build");
        push_path(&mut path, "src");
        push_path(&mut path, "a.c");
        assert_eq!(path, "/build/src/a.c");
        push_path(&mut path, "/usr/include/x.h");
        assert_eq!(path, "/usr/include/x.h");
        let mut path = String::new();
        push_path(&mut path, "a.c");
        assert_eq!(path, "a.c");
    }
}
