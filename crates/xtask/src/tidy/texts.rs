//! What no text of the repository may hold: paths of the machine it was written on, marks of work
//! left undone, modules without a subject. And how long files are.

use std::fs;
use std::process::Command;

use crate::{Outcome, root};

/// Files above this many lines are listed.
pub const LONG: usize = 500;

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
const TEXTS: &[&str] = &[
    "rs", "c", "cc", "h", "toml", "md", "sh", "js", "css", "html", "proto", "json",
];

/// Paths of what git knows or would take, below the root. A file that git lists and that is gone
/// is left out.
fn paths() -> Outcome<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let known = text.lines().map(str::to_string);
    Ok(known.filter(|path| root().join(path).is_file()).collect())
}

fn is_text(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| TEXTS.contains(&ending)) && !path.ends_with("package-lock.json")
}

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
///
/// # Errors
/// When it cannot be read.
pub fn violations() -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    for path in paths()?.into_iter().filter(|path| is_text(path)) {
        let text = fs::read_to_string(root().join(&path)).map_err(|e| format!("{path}: {e}"))?;
        wrong.extend(faults(&path, &text));
    }
    Ok(wrong)
}

/// Sources of more than [`LONG`] lines, the longest first.
///
/// # Errors
/// When the repository cannot be read.
pub fn longest() -> Outcome<Vec<(usize, String)>> {
    let mut long = Vec::new();
    for path in paths()?.into_iter().filter(|path| is_text(path)) {
        let lines = fs::read_to_string(root().join(&path))?.lines().count();
        if lines > LONG {
            long.push((lines, path));
        }
    }
    long.sort_by(|a, b| b.cmp(a));
    Ok(long)
}
