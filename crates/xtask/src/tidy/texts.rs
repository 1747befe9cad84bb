//! Words that no text of the repository may hold: paths of the machine it was written on, marks of
//! work left undone, names of modules without a subject.

use super::sources::Source;

/// Put together here, so that this file does not hold them itself.
fn forbidden() -> Vec<String> {
    let join = |parts: &[&str]| parts.concat();
    vec![
        join(&["/wo", "rk/"]),
        join(&["/ho", "me/"]),
        join(&["/Us", "ers/"]),
        join(&["TO", "DO"]),
        join(&["FIX", "ME"]),
        join(&["unimple", "mented!"]),
        join(&["<<<<", "<<<"]),
    ]
}

const NAMELESS: &[&str] = &["utils", "util", "common", "shared", "helpers", "misc"];

/// What is wrong with one text, one line each.
pub fn faults(path: &str, text: &str) -> Vec<String> {
    let words = forbidden();
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for word in words.iter().filter(|word| line.contains(*word)) {
            wrong.push(format!("{path}:{}: holds {word:?}", number + 1));
        }
    }
    let stem = path.rsplit('/').next().unwrap_or(path);
    let stem = stem.split('.').next().unwrap_or(stem);
    let folders = path.rsplit_once('/').map_or("", |(folders, _)| folders);
    if path.ends_with(".rs")
        && (NAMELESS.contains(&stem) || folders.split('/').any(|f| NAMELESS.contains(&f)))
    {
        wrong.push(format!("{path}: a module is named after what it does"));
    }
    wrong
}

/// What is wrong in the repository, one line each.
pub fn violations(sources: &[Source]) -> Vec<String> {
    let wrong = sources
        .iter()
        .map(|source| faults(&source.path, &source.text));
    wrong.flatten().collect()
}
