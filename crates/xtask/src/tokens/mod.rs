//! Splits source text into tokens and drops its comments.
//!
//! Two texts with equal tokens differ in comments and layout only. Rust goes through
//! `proc-macro2`, the lexer of Rust's own macros. C, JavaScript, TypeScript, Go, Java and CSS share
//! one small lexer (`braced`). Languages whose comments begin with `#` are compared line by line
//! (`hashed`). A text that does not lex is an error, never an empty list.

mod braced;
mod hashed;
mod rust;

/// One token and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token as written. A newline that the language reads is part of the token after it.
    pub text: String,
    /// Line in its file, from 1.
    pub line: usize,
}

/// A language that this module can split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Rust.
    Rust,
    /// C and C++; a directive ends with its line.
    C,
    /// JavaScript and TypeScript; templates and regular expressions are one token.
    JavaScript,
    /// Go; a newline may end a statement.
    Go,
    /// Java; text blocks are one token.
    Java,
    /// CSS; it has no line comments.
    Css,
    /// TOML, YAML, shell, Python, Ruby: full lines that begin with `#` are comments.
    Hashed,
}

impl Language {
    /// The language of a file, told by the ending of its name.
    pub fn of_path(path: &str) -> Option<Self> {
        let (_, ending) = path.rsplit_once('.')?;
        Some(match ending {
            "rs" => Self::Rust,
            "c" | "h" | "cc" | "cpp" | "hpp" => Self::C,
            "js" | "mjs" | "ts" => Self::JavaScript,
            "go" => Self::Go,
            "java" => Self::Java,
            "css" => Self::Css,
            "toml" | "yml" | "yaml" | "sh" | "py" | "rb" => Self::Hashed,
            _ => return None,
        })
    }
}

/// The tokens of a text, without its comments.
///
/// # Errors
/// The line and the reason, where the text is not of the language: an unclosed string, comment or
/// bracket.
pub fn tokens(language: Language, text: &str) -> Result<Vec<Token>, String> {
    match language {
        Language::Rust => rust::tokens(text),
        Language::Hashed => Ok(hashed::tokens(text)),
        _ => braced::tokens(language, text),
    }
}
