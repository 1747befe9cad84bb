//! Lines of languages with comments that begin with `#`.
//!
//! A full line is a comment if `#` is its first character and a space or nothing follows. So `#!`,
//! `#include` in a here-document and `#[…]` stay. A comment behind code counts as code: this errs
//! towards a difference.

use super::token::Token;

/// The lines that are neither blank nor a comment.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    for (number, line) in text.split_inclusive('\n').enumerate() {
        if !is_blank_or_comment(line) {
            kept.push(Token {
                text: line.trim_end().to_string(),
                line: number + 1,
                at,
            });
        }
        at += line.len();
    }
    kept
}

fn is_blank_or_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line == "#" || line.starts_with("# ")
}
