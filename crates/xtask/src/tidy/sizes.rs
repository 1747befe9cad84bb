//! Limits of functions, structs and files.
//!
//! `clippy.toml` could hold some of them for Rust. They are here so that one list of exceptions and
//! one way of counting serve Rust, C and JavaScript.

use super::braced_facts::{self, CFile};
use super::definition::{Function, Struct};
use super::ratchet::Excess;
use super::sources::{Purpose, Source};
use crate::tokens::Language;

/// Lines of a function, from its name to its end.
pub const FUNCTION_LINES: usize = 100;
/// A long function; [`LONG_FUNCTIONS`] of them may be.
pub const LONG_FUNCTION_LINES: usize = 80;
/// How many long functions there may be.
pub const LONG_FUNCTIONS: usize = 10;
/// Fields of a struct.
pub const STRUCT_FIELDS: usize = 20;
/// A wide struct; [`WIDE_STRUCTS`] of them may be.
pub const WIDE_STRUCT_FIELDS: usize = 15;
/// How many wide structs there may be.
pub const WIDE_STRUCTS: usize = 8;
/// Parameters of a function, without `self`.
pub const PARAMETERS: usize = 4;
/// Lines of a file.
pub const FILE_LINES: usize = 500;
/// Of 100 files, how many may be longer.
pub const LONG_FILES_PERCENT: usize = 3;

/// All functions and structs, each with its path.
#[derive(Debug, Default)]
pub struct Sizes {
    functions: Vec<(String, Function)>,
    structs: Vec<(String, Struct)>,
    /// Paths and lines of the code files.
    files: Vec<(String, usize)>,
}

/// Measures the code.
pub fn measure(sources: &[Source]) -> Sizes {
    let mut sizes = Sizes::default();
    for source in sources.iter().filter(|s| s.purpose == Purpose::Code) {
        let (functions, structs) = match source.language {
            Some(Language::Rust) => (source.rust.functions.clone(), source.rust.structs.clone()),
            Some(Language::C) => {
                let file = match source.path.ends_with(".h") {
                    true => CFile::Header,
                    false => CFile::Source,
                };
                let facts = braced_facts::c(&source.tokens, file);
                (facts.functions, facts.structs)
            }
            Some(Language::JavaScript) => (braced_facts::javascript(source), Vec::new()),
            _ => continue,
        };
        let path = &source.path;
        sizes
            .files
            .push((path.clone(), source.text.lines().count()));
        let functions = functions.into_iter().map(|f| (path.clone(), f));
        sizes.functions.extend(functions);
        let structs = structs.into_iter().map(|s| (path.clone(), s));
        sizes.structs.extend(structs);
    }
    sizes
}

impl Sizes {
    /// Functions that are too long.
    pub fn long_functions(&self) -> Vec<Excess> {
        let over = |limit: usize| self.functions.iter().filter(move |(_, f)| f.lines > limit);
        let single = over(FUNCTION_LINES).map(|(path, function)| Excess {
            thing: format!("{path} {}", function.name),
            value: function.lines,
            note: format!("line {}: at most {FUNCTION_LINES} lines", function.line),
        });
        let together = total(
            over(LONG_FUNCTION_LINES).count(),
            LONG_FUNCTIONS,
            format!("functions over {LONG_FUNCTION_LINES} lines"),
        );
        single.chain(together).collect()
    }

    /// Structs with too many fields.
    pub fn wide_structs(&self) -> Vec<Excess> {
        let over = |limit: usize| self.structs.iter().filter(move |(_, s)| s.fields > limit);
        let single = over(STRUCT_FIELDS).map(|(path, own)| Excess {
            thing: format!("{path} {}", own.name),
            value: own.fields,
            note: format!("line {}: at most {STRUCT_FIELDS} fields", own.line),
        });
        let together = total(
            over(WIDE_STRUCT_FIELDS).count(),
            WIDE_STRUCTS,
            format!("structs over {WIDE_STRUCT_FIELDS} fields"),
        );
        single.chain(together).collect()
    }

    /// Functions with too many parameters.
    pub fn many_parameters(&self) -> Vec<Excess> {
        let many = self
            .functions
            .iter()
            .filter(|(_, f)| f.parameters > PARAMETERS);
        many.map(|(path, function)| Excess {
            thing: format!("{path} {}", function.name),
            value: function.parameters,
            note: format!(
                "line {}: at most {PARAMETERS} parameters; a struct holds more",
                function.line
            ),
        })
        .collect()
    }

    /// Functions for other modules that take a bool.
    pub fn flags(&self) -> Vec<Excess> {
        let with = self.functions.iter().filter(|(_, f)| f.flags > 0);
        with.map(|(path, function)| Excess {
            thing: format!("{path} {}", function.name),
            value: function.flags,
            note: format!(
                "line {}: a bool says nothing at the call; take an enum or options",
                function.line
            ),
        })
        .collect()
    }

    /// Long files, if they are more than their share.
    pub fn long_files(&self) -> Vec<Excess> {
        let long = self.files.iter().filter(|(_, lines)| *lines > FILE_LINES);
        let allowed = self.files.len() * LONG_FILES_PERCENT / 100;
        total(
            long.count(),
            allowed,
            format!("files over {FILE_LINES} lines"),
        )
        .into_iter()
        .collect()
    }
}

fn total(count: usize, allowed: usize, thing: String) -> Option<Excess> {
    (count > allowed).then(|| Excess {
        thing,
        value: count,
        note: format!("at most {allowed} in all"),
    })
}
