//! One lexer for the languages with C's comments.
//!
//! It knows comments, strings, numbers, names and operators, and no grammar. A newline is part of
//! the next token where the language reads it: at the end of a directive in C, everywhere in
//! JavaScript and Go, where a statement may end with a line.

use super::token::{Language, Token};

/// Operators of more than one character, the longest first. The union of the languages: both
/// sides of a comparison are split alike.
const OPERATORS: &[&str] = &[
    ">>>=", "...", "<<=", ">>=", ">>>", "===", "!==", "**=", "&&=", "||=", "??=", "&^=", "->*",
    "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=",
    "&=", "|=", "^=", "?.", "??", "=>", "**", "::", "##", ":=", "<-",
];

/// Words after which JavaScript's `/` begins a regular expression.
const BEFORE_REGEX: &[&str] = &[
    "return",
    "typeof",
    "case",
    "in",
    "delete",
    "void",
    "throw",
    "new",
    "instanceof",
    "do",
    "else",
    "yield",
    "await",
];

/// The tokens of a text.
///
/// # Errors
/// The line at which an unclosed comment, string or template begins.
pub fn tokens(language: Language, text: &str) -> Result<Vec<Token>, String> {
    let mut lexer = Lexer {
        language,
        text,
        at: 0,
        line: 1,
        newline: false,
        in_directive: false,
        depth: 0,
        templates: Vec::new(),
        found: Vec::new(),
    };
    while lexer.step()? {}
    Ok(lexer.found)
}

struct Lexer<'a> {
    language: Language,
    text: &'a str,
    at: usize,
    line: usize,
    /// A newline was passed since the last token.
    newline: bool,
    /// Within a line of C that begins with `#`.
    in_directive: bool,
    depth: usize,
    /// Depth of braces at which each open template goes on.
    templates: Vec<usize>,
    found: Vec<Token>,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.text[self.at..self.at + bytes];
        self.line += passed.matches('\n').count();
        self.at += bytes;
    }

    /// Passes one token or one stretch of blanks; false at the end.
    fn step(&mut self) -> Result<bool, String> {
        let Some(first) = self.rest().chars().next() else {
            return Ok(false);
        };
        if first.is_whitespace() {
            self.blank(first);
        } else if self.rest().starts_with("/*") {
            let end = self.rest()[2..].find("*/");
            let length = end.ok_or_else(|| self.unclosed("comment"))? + 4;
            self.newline |= !self.in_directive && self.rest()[..length].contains('\n');
            self.advance(length);
        } else if self.rest().starts_with("//") && self.language != Language::Css {
            let length = self.line_comment_length();
            self.advance(length);
        } else if self.language == Language::C && self.rest().starts_with("\\\n") {
            self.advance(2);
        } else {
            let length = self.token_length(first)?;
            self.push(length);
        }
        Ok(true)
    }

    /// Bytes of a line comment. In C a backslash at its end takes the next line with it.
    fn line_comment_length(&self) -> usize {
        let rest = self.rest();
        let mut ends = rest.match_indices('\n').map(|(at, _)| at);
        let continued = |end: &usize| self.language == Language::C && rest[..*end].ends_with('\\');
        ends.find(|end| !continued(end)).unwrap_or(rest.len())
    }

    fn blank(&mut self, first: char) {
        if first == '\n' {
            self.newline = true;
            if self.in_directive {
                self.in_directive = false;
                self.found.push(Token {
                    text: "\n".into(),
                    line: self.line,
                    at: self.at,
                });
            }
        }
        self.advance(first.len_utf8());
    }

    /// Bytes of the token that begins here.
    fn token_length(&mut self, first: char) -> Result<usize, String> {
        let rest = self.rest();
        if is_name(first) {
            let name = end_of(rest, is_name);
            let raw = rest[..name].ends_with('R') && rest[name..].starts_with('"');
            // `#define f(x)` and `#define f (x)` differ only by the blank.
            let called = self.in_directive && rest[name..].starts_with('(');
            return match self.language == Language::C && raw {
                true => self.raw_string(name),
                false => Ok(name + usize::from(called)),
            };
        }
        match first {
            '`' if self.language == Language::JavaScript => self.template(1),
            '`' if self.language == Language::Go => {
                let end = rest[1..].find('`');
                end.map(|end| end + 2)
                    .ok_or_else(|| self.unclosed("string"))
            }
            '}' if self.templates.last() == Some(&self.depth) => {
                self.templates.pop();
                self.template(1)
            }
            '"' if self.language == Language::Java && rest.starts_with("\"\"\"") => {
                let end = rest[3..].find("\"\"\"");
                end.map(|end| end + 6)
                    .ok_or_else(|| self.unclosed("text block"))
            }
            '"' | '\'' => self.quoted(first),
            '/' if self.language == Language::JavaScript && self.regex_may_begin() => self.regex(),
            '#' if self.language == Language::C && (self.newline || self.found.is_empty()) => {
                self.in_directive = true;
                Ok(1)
            }
            _ => {
                let operator = OPERATORS.iter().find(|o| rest.starts_with(**o));
                self.count_brace(first);
                Ok(operator.map_or(first.len_utf8(), |o| o.len()))
            }
        }
    }

    fn count_brace(&mut self, first: char) {
        match first {
            '{' => self.depth += 1,
            '}' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }

    fn quoted(&self, quote: char) -> Result<usize, String> {
        let mut escaped = false;
        for (at, char) in self.rest().char_indices().skip(1) {
            match char {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '\n' => break,
                _ if char == quote => return Ok(at + 1),
                _ => {}
            }
        }
        Err(self.unclosed("string"))
    }

    /// A piece of a template, from after a backquote or brace to the next `${` or the end.
    fn template(&mut self, opening: usize) -> Result<usize, String> {
        let mut escaped = false;
        let mut dollar = false;
        for (at, char) in self.text[self.at + opening..].char_indices() {
            let length = opening + at + char.len_utf8();
            let was_escaped = escaped;
            escaped = char == '\\' && !was_escaped;
            match char {
                _ if was_escaped => {}
                '`' => return Ok(length),
                '{' if dollar => {
                    self.templates.push(self.depth);
                    return Ok(length);
                }
                _ => {}
            }
            dollar = char == '$' && !was_escaped;
        }
        Err(self.unclosed("template"))
    }

    /// A raw string of C++, `R"x(…)x"`; the name before the quote has `name` bytes.
    fn raw_string(&self, name: usize) -> Result<usize, String> {
        let body = &self.rest()[name + 1..];
        let whole = body.split_once('(').and_then(|(mark, inner)| {
            let end = inner.find(&format!("){mark}\""))?;
            Some(name + 1 + mark.len() + 1 + end + 1 + mark.len() + 1)
        });
        whole.ok_or_else(|| self.unclosed("string"))
    }

    fn regex_may_begin(&self) -> bool {
        let Some(last) = self.found.last() else {
            return true;
        };
        let last = last.text.trim_start_matches('\n');
        let ends_value = |c: char| is_name(c) || ")]}\"'`".contains(c);
        let counts = ["++", "--"].contains(&last);
        BEFORE_REGEX.contains(&last) || !(counts || last.ends_with(ends_value))
    }

    fn regex(&self) -> Result<usize, String> {
        let (mut escaped, mut in_class) = (false, false);
        for (at, char) in self.rest().char_indices().skip(1) {
            match char {
                '\n' => break,
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '[' => in_class = true,
                ']' => in_class = false,
                '/' if !in_class => return Ok(at + 1),
                _ => {}
            }
        }
        Err(self.unclosed("regular expression"))
    }

    fn push(&mut self, length: usize) {
        let reads_lines = matches!(self.language, Language::JavaScript | Language::Go);
        let mut text = String::new();
        if reads_lines && self.newline && !self.found.is_empty() {
            text.push('\n');
        }
        text.push_str(&self.rest()[..length]);
        let (line, at) = (self.line, self.at);
        self.advance(length);
        self.newline = false;
        self.found.push(Token { text, line, at });
    }

    fn unclosed(&self, thing: &str) -> String {
        format!("line {}: unclosed {thing}", self.line)
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

fn end_of(text: &str, wanted: impl Fn(char) -> bool) -> usize {
    text.find(|c| !wanted(c)).unwrap_or(text.len())
}
