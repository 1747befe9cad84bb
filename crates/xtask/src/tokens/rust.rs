//! Rust's tokens, by `proc-macro2`.
//!
//! The lexer turns a doc comment into the tokens of `#[doc = "…"]`. Such an attribute is dropped
//! if it was written as a comment, and stays if it was written as an attribute.

use std::str::FromStr;

use proc_macro2::{Delimiter, Spacing, TokenStream, TokenTree};

use super::Token;

/// The tokens of a file.
///
/// # Errors
/// The line and column where the text is not Rust.
pub fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let stream = TokenStream::from_str(text).map_err(|error| {
        let at = error.span().start();
        format!("line {}, column {}: not Rust", at.line, at.column + 1)
    })?;
    let mut flat = Vec::new();
    flatten(stream, &mut flat);
    Ok(flat)
}

fn flatten(stream: TokenStream, flat: &mut Vec<Token>) {
    let mut trees = stream.into_iter();
    let mut joined = false;
    while let Some(tree) = trees.next() {
        match tree {
            TokenTree::Punct(punct) if punct.span().byte_range().len() > 1 => {
                skip_doc_comment(&mut trees);
            }
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                flat.push(token(open, group.span_open().start().line));
                flatten(group.stream(), flat);
                flat.push(token(close, group.span_close().start().line));
            }
            TokenTree::Punct(punct) => {
                // `&&` and `& &` are different to the compiler, so signs that touch stay together.
                match flat.last_mut() {
                    Some(last) if joined => last.text.push(punct.as_char()),
                    _ => flat.push(token(&punct.to_string(), punct.span().start().line)),
                }
                joined = punct.spacing() == Spacing::Joint;
                continue;
            }
            other => flat.push(token(&other.to_string(), other.span().start().line)),
        }
        joined = false;
    }
}

/// Drops the rest of a doc comment. All its tokens bear the span of the whole comment, so its `#`
/// is longer than one byte. An inner one has `!` between `#` and the bracket.
fn skip_doc_comment(trees: &mut impl Iterator<Item = TokenTree>) {
    for tree in trees.by_ref() {
        if matches!(tree, TokenTree::Group(_)) {
            return;
        }
    }
}

fn token(text: &str, line: usize) -> Token {
    Token {
        text: text.to_string(),
        line,
    }
}
