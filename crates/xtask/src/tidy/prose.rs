//! Words of comments, strings and documents that STYLE does not allow.
//!
//! An interrogative pronoun in place of a noun makes a sentence that needs a second reading. Only
//! prose is searched: names in code are no prose.

use super::ratchet::Excess;
use super::sources::Source;
use crate::tokens::Language;

/// The pronouns.
const PRONOUNS: [&str; 4] = ["who", "whom", "whose", "whoever"];

/// How many lines of the whole repository may hold one.
pub const PRONOUN_LINES: usize = 20;

/// How no doc comment begins: the reader of an index does not see the comment before it.
const BEGINNING: &str = "The same ";

/// Lines with a pronoun, by file; none if they are few in all.
pub fn pronouns(sources: &[Source]) -> Vec<Excess> {
    // Books repeat words of the product, which are counted where it has them.
    let written = sources.iter().filter(|s| !s.path.ends_with(".books.json"));
    let found = written.filter_map(|source| {
        let text = masked(source);
        let lines = text
            .lines()
            .enumerate()
            .filter(|(_, line)| has_pronoun(line));
        let lines: Vec<usize> = lines.map(|(number, _)| number + 1).collect();
        let first = lines.first()?;
        Some(Excess {
            thing: source.path.clone(),
            value: lines.len(),
            note: format!("lines with a pronoun, first line {first}; name the subject"),
        })
    });
    let found: Vec<Excess> = found.collect();
    let lines: usize = found.iter().map(|excess| excess.value).sum();
    match lines <= PRONOUN_LINES {
        true => Vec::new(),
        false => found,
    }
}

/// The text with its names blanked.
fn masked(source: &Source) -> String {
    let mut bytes = source.text.clone().into_bytes();
    if matches!(source.language, None | Some(Language::Hashed)) {
        return source.text.clone();
    }
    for token in &source.tokens {
        let name = token.text.trim_start_matches('\n');
        let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let raw_string = name.contains('"');
        if is_name && !raw_string && source.text[token.at..].starts_with(name) {
            bytes[token.at..token.at + name.len()].fill(b' ');
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn has_pronoun(line: &str) -> bool {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.any(|word| PRONOUNS.iter().any(|p| word.eq_ignore_ascii_case(p)))
}

/// Doc comments that begin with [`BEGINNING`], by file.
pub fn beginnings(sources: &[Source]) -> Vec<Excess> {
    let found = sources.iter().filter_map(|source| {
        source.language?;
        let mut before = None;
        let mut lines = Vec::new();
        for (number, line) in source.text.lines().enumerate() {
            let comment = comment(line);
            let continues = comment.is_some() && comment.map(|c| c.0) == before;
            if !continues && comment.is_some_and(|(_, text)| text.starts_with(BEGINNING)) {
                lines.push(number + 1);
            }
            before = comment.map(|c| c.0);
        }
        let first = lines.first()?;
        Some(Excess {
            thing: source.path.clone(),
            value: lines.len(),
            note: format!(
                "comments begin \"{}\", first line {first}",
                BEGINNING.trim()
            ),
        })
    });
    found.collect()
}

/// The marker of a comment that fills its line, and its text.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    let markers = ["///", "//!", "//", "/**", "/*"];
    let marker = markers
        .into_iter()
        .find(|marker| line.starts_with(marker))?;
    Some((marker, line[marker.len()..].trim_start()))
}
