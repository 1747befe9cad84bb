//! Edges between C files, by the names that they define.
//!
//! A header of the kernel programs is included once into one program, so its `#include` lines do
//! not tell its needs. A file takes a name if it uses one that exactly one other file of its
//! crate defines. A member (after `.` or `->`) is no such use, nor is a name that the file declares
//! for a variable of its own. A tag counts after its keyword only.

use std::collections::{BTreeMap, BTreeSet};

use super::braced_facts::{self, CFile, is_name};
use super::edges::{Edges, add};
use super::sources::Source;
use crate::tokens::{Language, Token};

/// Keywords before a tag.
const TAGGED: &[&str] = &["struct", "union", "enum"];
/// Words before a name that declare nothing.
const PLAIN: &[&str] = &[
    "return", "else", "goto", "case", "define", "ifdef", "ifndef", "if", "defined",
];

/// Files by the name that they define; tags bear their keyword's blank in front.
type Definers<'a> = BTreeMap<String, BTreeSet<&'a str>>;

/// The edges between the C files of each crate. Only a header defines for others; a name that a
/// program defines as well may be either.
pub fn edges(sources: &[Source]) -> Edges {
    let files: Vec<&Source> = sources
        .iter()
        .filter(|s| s.is_code_in(Language::C))
        .collect();
    let mut definers = Definers::new();
    for file in &files {
        let facts = braced_facts::c(&file.tokens, CFile::Source);
        let tags = facts.tags.iter().map(|tag| format!(" {tag}"));
        for name in facts.names.into_iter().chain(tags) {
            definers.entry(name).or_default().insert(&file.path);
        }
    }
    let mut edges = Edges::new();
    for file in &files {
        for name in used(&file.tokens) {
            let only = definers.get(&name).filter(|files| files.len() == 1);
            let Some(definer) = only.and_then(BTreeSet::first) else {
                continue;
            };
            if definer.ends_with(".h") && crate_of(definer) == crate_of(&file.path) {
                add(&mut edges, &file.path, definer, name.trim());
            }
        }
    }
    edges
}

fn crate_of(path: &str) -> Option<&str> {
    path.split('/').nth(1)
}

/// The names that a file may take from others.
fn used(tokens: &[Token]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut variables = BTreeSet::new();
    let mut before = "";
    for (at, token) in tokens.iter().enumerate() {
        let name = token.text.trim_end_matches('(');
        let next = tokens.get(at + 1).map_or("", |next| next.text.as_str());
        let called = next == "(" || name.len() < token.text.len();
        if TAGGED.contains(&before) {
            names.insert(format!(" {name}"));
        } else if is_name(name) && before != "." && before != "->" {
            let declared = before == "*"
                || before == "," && next == ";"
                || is_name(before) && !PLAIN.contains(&before);
            if declared && !called {
                variables.insert(name.to_string());
            }
            names.insert(name.to_string());
        }
        before = &token.text;
    }
    names.retain(|name| !variables.contains(name));
    names
}
