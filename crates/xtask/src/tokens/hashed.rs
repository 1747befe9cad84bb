//! Lines of languages whose comments begin with `#`.
//!
//! A full line is a comment if `#` is its first character and a space or nothing follows. So `#!`,
//! `#include` in a here-document and `#[…]` stay. A comment behind code counts as code: this errs
//! towards a difference.

use super::Token;

/// The lines that are neither blank nor a comment.
pub fn tokens(text: &str) -> Vec<Token> {
    let lines = text.lines().enumerate();
    let kept = lines.filter(|(_, line)| !is_blank_or_comment(line));
    kept.map(|(number, line)| Token {
        text: line.trim_end().to_string(),
        line: number + 1,
    })
    .collect()
}

fn is_blank_or_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line == "#" || line.starts_with("# ")
}
