//! A token, and the languages that have some.

/// One token and the line on which it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The token as written. A newline that the language reads is part of the token after it.
    pub text: String,
    /// Line in its file, from 1.
    pub line: usize,
    /// Byte in its file at which it begins, from 0.
    pub at: usize,
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
