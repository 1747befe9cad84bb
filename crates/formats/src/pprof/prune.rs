//! `drop_frames` and `keep_frames` of a pprof file: functions of no interest, with all their callees
//! (an allocator in a profile of memory). Every reader of pprof leaves them out, so their caller gets
//! the value.

use regex::Regex;
use rustc_hash::FxHashSet;

use super::tables::Tables;

/// The functions that are dropped, by their ids.
#[derive(Default)]
pub(super) struct Prune {
    dropped: FxHashSet<u64>,
}

impl Prune {
    /// The frames that the file drops; a broken pattern is added to `warnings`.
    pub(super) fn of(t: &Tables, warnings: &mut Vec<String>) -> Prune {
        let mut pattern = |id: u64| {
            let text = t.string(id);
            if id == 0 || text.is_empty() {
                return None;
            }
            let regex = Regex::new(&format!("^(?:{text})$"));
            let told =
                |_| warnings.push(format!("what it wants left out, '{text}', is no pattern"));
            regex.map_err(told).ok()
        };
        let (Some(drop), keep) = (pattern(t.drop_frames), pattern(t.keep_frames)) else {
            return Prune::default();
        };
        let is =
            |name: &str| drop.is_match(name) && !keep.as_ref().is_some_and(|k| k.is_match(name));
        let functions = t.functions.iter();
        let dropped = functions
            .filter(|f| is(bare(&t.string(f.name))))
            .map(|f| f.id);
        Prune {
            dropped: dropped.collect(),
        }
    }

    /// How many of a location's lines, innermost first, are dropped; `None`: it stays as it is.
    pub(super) fn location(&self, lines: &[(u64, u64)]) -> Option<usize> {
        if self.dropped.is_empty() {
            return None;
        }
        let outermost = lines.iter().rposition(|(f, _)| self.dropped.contains(f))?;
        Some(outermost + 1)
    }
}

/// A function's name without its arguments, as patterns mean it.
fn bare(name: &str) -> &str {
    let name = name.strip_prefix('.').unwrap_or(name);
    let mut from = 0;
    while let Some(at) = name[from..].find('(').map(|at| from + at) {
        let own = ["(anonymous namespace)", "operator()"];
        let part = |word: &&&str| {
            let open = word.find('(').unwrap_or(0);
            let start = at.checked_sub(open);
            start.is_some_and(|s| name.as_bytes()[s..].starts_with(word.as_bytes()))
        };
        match own.iter().find(part) {
            Some(word) => from = at + word.len() - word.find('(').unwrap_or(0),
            None => return &name[..at],
        }
    }
    name
}

#[cfg(test)]
mod tests {
    #[test]
    fn patterns_mean_names_without_arguments() {
        for (name, bare) in [
            ("malloc", "malloc"),
            ("f(int, char)", "f"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("a::operator()(int) const", "a::operator()"),
            (".f", "f"),
            ("é(1)", "é"),
        ] {
            assert_eq!(super::bare(name), bare);
        }
    }
}
