//! What the rules need to know of C and JavaScript, read from their tokens without a grammar.
//!
//! It knows brackets and the shapes of definitions. That suffices for code in one style; where a
//! shape is not recognised, a definition is missed, never invented.

use super::definition::{Function, Struct};
use super::sources::Source;
use crate::tokens::Token;

/// What a C file defines.
#[derive(Debug, Default)]
pub struct CFacts {
    /// Functions with a body.
    pub functions: Vec<Function>,
    /// Structs with a body.
    pub structs: Vec<Struct>,
    /// Names defined at the top level: functions, macros, types, constants, variables.
    pub names: Vec<String>,
    /// Tags of structs, unions and enums with a body.
    pub tags: Vec<String>,
}

/// Kind of a C file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CFile {
    /// Its functions are for other files.
    Header,
    /// Its functions are its own.
    Source,
}

/// The facts of a C file.
pub fn c(tokens: &[Token], file: CFile) -> CFacts {
    let mut facts = CFacts::default();
    let code = without_directives(tokens, &mut facts.names);
    let mut at = 0;
    while at < code.len() {
        at = match c_definition(&code, at, file, &mut facts) {
            Some(end) => end,
            None if is_opening(&code[at].text) => closing(&code, at) + 1,
            None => at + 1,
        };
    }
    let given = given_layouts(&code);
    let kernel = kernel_mirrors(tokens);
    for own in &mut facts.structs {
        let in_mirror = kernel.iter().any(|lines| lines.contains(&own.line));
        if in_mirror || given.contains(&own.name.as_str()) {
            own.fields = 0;
        }
    }
    facts
}

/// Structs with an asserted size: their other side, a mirror or the kernel, gives their fields.
fn given_layouts<'a>(code: &[&'a Token]) -> Vec<&'a str> {
    let asserted = code.windows(6).filter(|six| {
        let text: Vec<&str> = six.iter().map(|token| token.text.as_str()).collect();
        ASSERTIONS.contains(&text[0]) && text[1..5] == ["(", "sizeof", "(", "struct"]
    });
    asserted.map(|six| six[5].text.as_str()).collect()
}

/// Lines between the pragmas that make the structs there the kernel's own (CO-RE).
fn kernel_mirrors(tokens: &[Token]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut begin = None;
    for (at, token) in tokens.iter().enumerate() {
        match token.text.as_str() {
            "preserve_access_index" if follows_pragma(tokens, at) => begin = Some(token.line),
            "pop" if follows_pragma(tokens, at) => {
                found.extend(begin.take().map(|begin| begin..token.line));
            }
            _ => {}
        }
    }
    found
}

/// Whether the directive of a token is a pragma.
fn follows_pragma(tokens: &[Token], at: usize) -> bool {
    let line = tokens[at].line;
    let own = tokens[..at].iter().rev().take_while(|t| t.line == line);
    own.into_iter().any(|token| token.text == "pragma")
}

/// The tokens outside of directives; the names of macros go to `names`.
fn without_directives<'a>(tokens: &'a [Token], names: &mut Vec<String>) -> Vec<&'a Token> {
    let mut code = Vec::new();
    let mut all = tokens.iter().peekable();
    while let Some(token) = all.next() {
        if token.text != "#" {
            code.push(token);
            continue;
        }
        let is_define = all.peek().is_some_and(|next| next.text == "define");
        let rest = all.by_ref().take_while(|token| token.text != "\n");
        let name = rest
            .collect::<Vec<_>>()
            .get(1)
            .map(|name| name.text.clone());
        if let (true, Some(name)) = (is_define, name) {
            names.push(name.trim_end_matches('(').to_string());
        }
    }
    code
}

/// Reads a definition that begins at a token of the top level, and gives the place after it.
fn c_definition(code: &[&Token], at: usize, file: CFile, facts: &mut CFacts) -> Option<usize> {
    let text = |at: usize| code.get(at).map_or("", |token| token.text.as_str());
    match text(at) {
        "struct" | "union" | "enum" if is_name(text(at + 1)) && text(at + 2) == "{" => {
            facts.tags.push(text(at + 1).to_string());
            let end = closing(code, at + 2);
            if text(at) == "enum" {
                constants(&code[at + 3..end], &mut facts.names);
            } else {
                facts.structs.push(Struct {
                    name: text(at + 1).to_string(),
                    line: code[at + 1].line,
                    fields: fields(&code[at + 3..end]),
                });
            }
            Some(declared_name(code, end + 1, &mut facts.names))
        }
        "struct" | "union" | "enum" if text(at + 1) == "{" => {
            let end = closing(code, at + 1);
            if text(at) == "enum" {
                constants(&code[at + 2..end], &mut facts.names);
            }
            Some(declared_name(code, end + 1, &mut facts.names))
        }
        "(" if at > 0 && ATTRIBUTES.contains(&text(at - 1)) => Some(closing(code, at) + 1),
        "(" if at > 0 && is_name(text(at - 1)) => {
            let parameters_end = closing(code, at);
            let body = body(code, parameters_end + 1)?;
            let end = closing(code, body);
            let called = text(at - 1);
            let parameters = split(&code[at + 1..parameters_end]);
            // `BPF_PROG(name, …)` and its kin: the kernel chose the parameters.
            let by_macro = called.chars().all(|c| c.is_ascii_uppercase() || c == '_');
            let name = match (by_macro, parameters.first()) {
                (true, Some(first)) => first.first().map_or(called, |token| &token.text),
                _ => called,
            };
            facts.names.push(name.to_string());
            let own = parameters.iter().filter(|p| p.len() > 1);
            facts.functions.push(Function {
                name: name.to_string(),
                line: code[at - 1].line,
                lines: code[end].line + 1 - code[at - 1].line,
                parameters: if by_macro { 0 } else { own.clone().count() },
                flags: match file == CFile::Header && !by_macro {
                    true => own.filter(|p| is_bool(p)).count(),
                    false => 0,
                },
            });
            Some(end + 1)
        }
        "=" | "[" | ";" if at > 0 && is_name(text(at - 1)) => {
            // A variable, if a type stands before it, and not `extern`.
            let begins = code[..at]
                .iter()
                .rposition(|t| [";", "}"].contains(&t.text.as_str()));
            let declaration = &code[begins.map_or(0, |at| at + 1)..at];
            let first = declaration.first().map_or("", |t| t.text.as_str());
            let forward = ["struct", "union", "enum"].contains(&first) && declaration.len() == 2;
            if declaration.len() > 1 && first != "extern" && !forward {
                facts.names.push(text(at - 1).to_string());
            }
            None
        }
        _ => None,
    }
}

/// The name between a closing brace and `;`: `} name SEC(".maps");`.
fn declared_name(code: &[&Token], at: usize, names: &mut Vec<String>) -> usize {
    match code.get(at) {
        Some(token) if is_name(&token.text) && !token.text.starts_with("__") => {
            names.push(token.text.clone());
            at + 1
        }
        _ => at,
    }
}

/// Names of compile-time assertions.
const ASSERTIONS: &[&str] = &["_Static_assert", "static_assert"];
/// Names before a bracket that is no parameter list.
const ATTRIBUTES: &[&str] = &["SEC", "__attribute__", "_Static_assert", "static_assert"];

/// Where the body begins that follows a parameter list, after attributes.
fn body(code: &[&Token], mut at: usize) -> Option<usize> {
    while let Some(token) = code.get(at) {
        match token.text.as_str() {
            "{" => return Some(at),
            "(" => at = closing(code, at) + 1,
            text if text.starts_with("__") => at += 1,
            _ => return None,
        }
    }
    None
}

fn constants(body: &[&Token], names: &mut Vec<String>) {
    for constant in split(body) {
        names.extend(constant.first().map(|token| token.text.clone()));
    }
}

fn fields(body: &[&Token]) -> usize {
    let mut count = 0;
    let mut at = 0;
    while at < body.len() {
        match body[at].text.as_str() {
            ";" | "," => count += 1,
            text if is_opening(text) => at = closing(body, at),
            _ => {}
        }
        at += 1;
    }
    count
}

fn is_bool(parameter: &[&Token]) -> bool {
    let has = |wanted: &str| parameter.iter().any(|token| token.text == wanted);
    (has("bool") || has("_Bool")) && !has("*")
}

/// Words before `(` that begin no function.
const STATEMENTS: &[&str] = &[
    "if", "for", "while", "switch", "catch", "return", "with", "await", "typeof", "of", "in",
    "new", "super", "function",
];

/// The functions of a JavaScript file that have a name and a body in braces.
pub fn javascript(source: &Source) -> Vec<Function> {
    let tokens: Vec<&Token> = source.tokens.iter().collect();
    let text = |at: usize| tokens.get(at).map_or("", |token| plain(&token.text));
    let mut functions = Vec::new();
    for at in 1..tokens.len() {
        if text(at) != "(" {
            continue;
        }
        let end = closing(&tokens, at);
        let arrow = text(end + 1) == "=>";
        let body = end + 1 + usize::from(arrow);
        let name = match arrow {
            true if text(at - 1) == "async" => text(at.saturating_sub(3)),
            true if text(at - 1) == "=" => text(at.saturating_sub(2)),
            true => "",
            false => text(at - 1),
        };
        if text(body) != "{" || !is_name(name) || STATEMENTS.contains(&name) {
            continue;
        }
        let name_line = tokens[at - 1].line;
        let exported = exports(&source.text, name);
        functions.push(Function {
            name: name.to_string(),
            line: name_line,
            lines: tokens[closing(&tokens, body)].line + 1 - name_line,
            parameters: split(&tokens[at + 1..end]).len(),
            flags: exported.map_or(0, |comment| comment.matches("@param {boolean}").count()),
        });
    }
    functions
}

/// The comment before `export function NAME`, if it is exported so.
fn exports<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let at = text.find(&format!("export function {name}("))?;
    let before = text[..at].trim_end();
    match before.ends_with("*/") {
        true => before.rfind("/**").map(|begins| &before[begins..]),
        false => Some(""),
    }
}

/// A token without the newline that may be part of it.
pub fn plain(text: &str) -> &str {
    text.trim_start_matches('\n')
}

/// Whether a token is a name.
pub fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    let begins = chars
        .next()
        .is_some_and(|c| c.is_alphabetic() || c == '_' || c == '$');
    begins && chars.all(|c| c.is_alphanumeric() || c == '_' || c == '$')
}

fn is_opening(text: &str) -> bool {
    ["(", "[", "{"].contains(&text)
}

/// The place of the bracket that closes the one at `at`, or the last token. Templates in
/// JavaScript open with `${` and close with `}` within their own tokens.
fn closing(tokens: &[&Token], at: usize) -> usize {
    let mut depth = 0;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        match plain(&token.text) {
            text if is_opening(text) => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return place;
        }
    }
    tokens.len().saturating_sub(1)
}

/// The parts between commas of this level; none of nothing and of `void`.
fn split<'a>(tokens: &[&'a Token]) -> Vec<Vec<&'a Token>> {
    let mut parts = vec![Vec::new()];
    let mut depth = 0;
    for token in tokens {
        match plain(&token.text) {
            text if is_opening(text) => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            "," if depth == 0 => {
                parts.push(Vec::new());
                continue;
            }
            _ => {}
        }
        if let Some(part) = parts.last_mut() {
            part.push(*token);
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}
