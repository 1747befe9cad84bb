//! `cargo xtask same-code`: whether a change alters comments only.
//!
//! Every file that differs between a commit and the work tree is split into tokens on both sides,
//! without comments and doc comments. The lists must be equal. A file that is new, gone or of a
//! language that `tokens` does not know is a difference: the task never passes over code that it
//! cannot read. Documents and pictures hold no code and are passed over.
//!
//! clap makes help text of doc comments, so a change of comments alone can still change `--help`.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::tokens::{Language, Token, tokens};

/// Endings of files without code.
const DOCUMENTS: &[&str] = &["md", "png", "svg", "txt"];

/// The task, in the repository of the current folder. The first argument is the commit if git
/// knows it as one, else the first of the paths.
///
/// # Errors
/// When git cannot be asked.
pub fn run(arguments: &[&str]) -> Outcome<bool> {
    let arguments: Vec<&str> = arguments.iter().copied().filter(|a| *a != "--").collect();
    let (base, paths) = match arguments.split_first() {
        Some((first, paths)) if is_commit(first) => (*first, paths),
        _ => ("HEAD~1", &arguments[..]),
    };
    let found = differences(Path::new("."), base, paths)?;
    for line in &found.different {
        println!("{line}");
    }
    match found.different.len() {
        0 => println!("same code since {base}: {} files compared", found.compared),
        n => println!("{n} of {} changed files differ in code", found.compared),
    }
    Ok(found.different.is_empty())
}

/// Result of a comparison.
#[derive(Debug, Default)]
pub struct Differences {
    /// Changed files that may hold code.
    pub compared: usize,
    /// One line for each file with different code, with the first token that differs.
    pub different: Vec<String>,
}

/// Compares `base` with the work tree of the repository that holds `folder`. `paths` are relative
/// to `folder`; with none, every changed or untracked file counts.
///
/// # Errors
/// When git cannot be asked or a file cannot be read.
pub fn differences(folder: &Path, base: &str, paths: &[&str]) -> Outcome<Differences> {
    let top = git(folder, &["rev-parse", "--show-toplevel"])?;
    let top = Path::new(top.trim_end());
    let arguments = |fixed: &[&'static str]| -> Vec<String> {
        let fixed = fixed.iter().map(ToString::to_string);
        let paths = paths.iter().map(ToString::to_string);
        fixed.chain(["--".to_string()]).chain(paths).collect()
    };
    let mut diff = arguments(&["diff", "--name-status", "--no-renames", "-z"]);
    diff.insert(4, base.to_string());
    let untracked = arguments(&[
        "ls-files",
        "--others",
        "--exclude-standard",
        "--full-name",
        "-z",
    ]);
    let changed = git(folder, &as_strs(&diff))?;
    let untracked = git(folder, &as_strs(&untracked))?;

    let mut fields = changed.split_terminator('\0');
    let mut found = Differences::default();
    while let (Some(status), Some(path)) = (fields.next(), fields.next()) {
        if is_document(path) {
            continue;
        }
        found.compared += 1;
        let difference = match status {
            "A" => Some("new file".to_string()),
            "D" => Some("removed file".to_string()),
            _ => file_difference(top, base, path)?,
        };
        found
            .different
            .extend(difference.map(|difference| format!("{path}: {difference}")));
    }
    for path in untracked
        .split_terminator('\0')
        .filter(|path| !is_document(path))
    {
        found.compared += 1;
        found
            .different
            .push(format!("{path}: new file, unknown to git"));
    }
    Ok(found)
}

fn file_difference(top: &Path, base: &str, path: &str) -> Outcome<Option<String>> {
    let Some(language) = Language::of_path(path) else {
        return Ok(Some(
            "changed, and comments of such files are unknown here".into(),
        ));
    };
    let old = git(top, &["show", &format!("{base}:{path}")])?;
    let new = std::fs::read_to_string(top.join(path)).map_err(|e| format!("{path}: {e}"))?;
    Ok(text_difference(language, &old, &new))
}

/// The first token in which two texts differ, in words; `None` if they differ in comments only.
pub fn text_difference(language: Language, old: &str, new: &str) -> Option<String> {
    let (old, new) = match (tokens(language, old), tokens(language, new)) {
        (Ok(old), Ok(new)) => (old, new),
        (Err(error), _) => return Some(format!("before, {error}")),
        (_, Err(error)) => return Some(format!("now, {error}")),
    };
    let longest = old.len().max(new.len());
    let at = (0..longest).find(|at| old.get(*at).map(text) != new.get(*at).map(text))?;
    Some(format!(
        "was {}, is {}",
        shown(old.get(at)),
        shown(new.get(at))
    ))
}

fn text(token: &Token) -> &str {
    &token.text
}

fn shown(token: Option<&Token>) -> String {
    match token {
        Some(token) if token.text == "\n" => format!("a line's end (line {})", token.line),
        Some(token) => {
            let text: String = token.text.trim().chars().take(60).collect();
            format!("`{text}` (line {})", token.line)
        }
        None => "the end of the file".into(),
    }
}

fn is_document(path: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, ending)| DOCUMENTS.contains(&ending))
}

fn is_commit(name: &str) -> bool {
    git(
        Path::new("."),
        &[
            "rev-parse",
            "--verify",
            "--quiet",
            &format!("{name}^{{commit}}"),
        ],
    )
    .is_ok()
}

fn as_strs(strings: &[String]) -> Vec<&str> {
    strings.iter().map(String::as_str).collect()
}

fn git(folder: &Path, arguments: &[&str]) -> Outcome<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(folder)
        .output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git {}: {}", arguments.join(" "), said.trim()).into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
