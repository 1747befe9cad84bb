//! Demangles Swift names (4.0 and later) by the project's published grammar, in the notation of
//! `swift-demangle`.
//!
//! The language's own demangler is C++. Names come from untrusted files and we may run as root, so we
//! parse them in Rust, within a budget. A name with an unknown operator has no demangled form: macro
//! expansions, derivatives of functions and names of Swift 3 are such names.

mod entities;
mod generics;
mod lowered;
mod names;
mod operations;
mod parser;
mod print;
mod print_entity;
mod print_type;
mod punycode;
mod specializations;
#[cfg(test)]
mod tests;
mod tree;
mod types;

use parser::{Dialect, Nesting, Parser};

/// Prefixes of mangled names.
const PREFIXES: [(&str, Dialect); 7] = [
    ("$s", Dialect::Stable),
    ("_$s", Dialect::Stable),
    ("$S", Dialect::Stable),
    ("_$S", Dialect::Stable),
    ("$e", Dialect::Stable),
    ("_$e", Dialect::Stable),
    ("_T0", Dialect::LabelsInTypes),
];

/// The entry of a program with asynchronous top-level code. Its parts have suffixes like those of
/// mangled names.
const ASYNC_MAIN: &str = "async_Main";

/// Whether `name` looks like a mangled one.
pub(super) fn is_mangled(name: &[u8]) -> bool {
    let is_symbol = |b: &u8| b.is_ascii_alphanumeric() || b"_$.".contains(b);
    let begins = |(prefix, _): &(&str, Dialect)| name.starts_with(prefix.as_bytes());
    let is_main = name
        .strip_prefix(ASYNC_MAIN.as_bytes())
        .is_some_and(|r| r.starts_with(b"T"));
    (is_main || PREFIXES.iter().any(begins)) && name.iter().all(is_symbol)
}

/// Returns the declaration with the mangled name `name`.
pub(super) fn demangle(name: &str) -> Option<String> {
    demangle_at(name, Nesting::Outer)
}

fn demangle_at(name: &str, nesting: Nesting) -> Option<String> {
    if let Some(suffixes) = name.strip_prefix(ASYNC_MAIN).filter(|s| s.starts_with('T')) {
        let mut parser = Parser::new(suffixes, Dialect::Stable, nesting);
        let main = parser.make(tree::NodeKind::Text, ASYNC_MAIN, Vec::new())?;
        parser.push(main)?;
        let roots = parser.run()?;
        return print::print(&parser.tree, &roots);
    }
    let prefix = |(prefix, dialect): &(&str, Dialect)| Some((name.strip_prefix(prefix)?, *dialect));
    let (mangled, dialect) = PREFIXES.iter().find_map(prefix)?;
    let mut parser = Parser::new(mangled, dialect, nesting);
    let roots = parser.run()?;
    print::print(&parser.tree, &roots)
}
