//! The files that the rules read, each read and split once.

use std::fs;
use std::process::Command;

use super::rust_facts::{self, Facts};
use crate::tokens::{Language, Token, tokens};
use crate::{Outcome, root};

/// What a file is for; decides which rules hold for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Written by people and part of a crate or of the page.
    Code,
    /// Tests, their fixtures, and programs that are measured by tests.
    Test,
    /// Made by a tool, which a line at its top says.
    Generated,
    /// Documents, manifests, scripts without a lexer here.
    Text,
}

/// One file.
#[derive(Debug)]
pub struct Source {
    /// Its path below the repository's root.
    pub path: String,
    /// Its content.
    pub text: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Its language, if `tokens` knows it.
    pub language: Option<Language>,
    /// Its tokens without comments; empty without a language.
    pub tokens: Vec<Token>,
    /// Its names, functions and structs, if it is code in Rust.
    pub rust: Facts,
}

impl Source {
    /// A file with this content.
    ///
    /// # Errors
    /// When the text does not lex or parse.
    pub fn new(path: &str, text: String) -> Result<Self, String> {
        let language = Language::of_path(path);
        let tokens = match language {
            Some(language) => tokens(language, &text).map_err(|e| format!("{path}: {e}"))?,
            None => Vec::new(),
        };
        let purpose = purpose(path, &text, language);
        let rust = match (language, purpose) {
            (Some(Language::Rust), Purpose::Code) => {
                rust_facts::facts(&text).map_err(|e| format!("{path}: {e}"))?
            }
            _ => Facts::default(),
        };
        // Places in a text are looked up among all texts that were read: the fewer, the faster.
        proc_macro2::extra::invalidate_current_thread_spans();
        Ok(Self {
            purpose,
            rust,
            path: path.to_string(),
            text,
            language,
            tokens,
        })
    }

    /// Whether the rules about code hold for this file in this language.
    pub fn is_code_in(&self, language: Language) -> bool {
        self.purpose == Purpose::Code && self.language == Some(language)
    }
}

const TEXTS: &[&str] = &[
    "rs", "c", "cc", "h", "toml", "md", "sh", "js", "css", "html", "proto", "json", "py", "go",
    "java", "php", "rb", "yml",
];

/// Every text of the repository that git knows or would take. A file that git lists and that is
/// gone is left out.
///
/// # Errors
/// When the repository cannot be read, or a source does not lex.
pub fn all() -> Outcome<Vec<Source>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let listed = String::from_utf8(output.stdout)?;
    let mut sources = Vec::new();
    for path in listed.lines().filter(|path| is_text(path)) {
        let file = root().join(path);
        if file.is_file() {
            let text = fs::read_to_string(file).map_err(|e| format!("{path}: {e}"))?;
            sources.push(Source::new(path, text)?);
        }
    }
    Ok(sources)
}

fn is_text(path: &str) -> bool {
    let ending = path.rsplit_once('.').map(|(_, ending)| ending);
    ending.is_some_and(|ending| TEXTS.contains(&ending)) && !path.ends_with("package-lock.json")
}

fn purpose(path: &str, text: &str, language: Option<Language>) -> Purpose {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = name.split('.').next().unwrap_or(name);
    let in_folder = |wanted: &str| folders.split('/').any(|folder| folder == wanted);
    let begins_generated = text.lines().take(5).any(|line| line.contains("@generated"));
    let is_test = in_folder("tests") || stem == "tests" || stem.ends_with("_tests");
    match language {
        None | Some(Language::Hashed | Language::Css) => Purpose::Text,
        _ if begins_generated => Purpose::Generated,
        _ if is_test || path.starts_with("crates/testkit/programs/") => Purpose::Test,
        _ => Purpose::Code,
    }
}
