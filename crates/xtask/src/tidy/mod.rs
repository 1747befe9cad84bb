//! Keeps the house in order. `cargo xtask tidy` and a test run every rule.
//!
//! Three rules hold without exception: dependencies between crates point downward (`floors`), no
//! text holds facts of one machine (`texts`), and the lists of exceptions are exact
//! (`ratchet`). The other rules ([`RULES`]) have such a list where today's code does not meet them.

mod braced_facts;
mod c_names;
pub mod cycles;
pub mod definition;
pub mod documents;
pub mod edges;
pub mod floors;
mod js_imports;
pub mod prose;
pub mod ratchet;
mod rust_facts;
mod rust_modules;
pub mod sizes;
pub mod sources;
pub mod texts;

use crate::Outcome;
use ratchet::Excess;
use sources::Source;

/// A rule with a list of exceptions.
pub struct Rule {
    /// Name of the rule and of its list.
    pub name: &'static str,
    /// What the list holds.
    pub title: &'static str,
    /// Finds values over the limit.
    find: fn(&[Source]) -> Vec<Excess>,
}

/// The rules.
pub const RULES: &[Rule] = &[
    Rule {
        name: "cycles",
        title: "Files in import cycles, each with the number of files in its cycle",
        find: cycles::find,
    },
    Rule {
        name: "functions",
        title: "Functions of more than 100 lines",
        find: |sources| sizes::measure(sources).long_functions(),
    },
    Rule {
        name: "structs",
        title: "Structs of more than 20 fields",
        find: |sources| sizes::measure(sources).wide_structs(),
    },
    Rule {
        name: "parameters",
        title: "Functions of more than 4 parameters",
        find: |sources| sizes::measure(sources).many_parameters(),
    },
    Rule {
        name: "flags",
        title: "Functions for other modules that take a bool, each with the number of bools",
        find: |sources| sizes::measure(sources).flags(),
    },
    Rule {
        name: "files",
        title: "Files over 500 lines, if more than 3 of 100",
        find: |sources| sizes::measure(sources).long_files(),
    },
    Rule {
        name: "documents",
        title: "Lines of documents that are too long",
        find: documents::find,
    },
    Rule {
        name: "pronouns",
        title: "Lines with an interrogative pronoun, by file",
        find: |sources| prose::pronouns(sources),
    },
    Rule {
        name: "beginnings",
        title: "Comments that begin with words about another one, by file",
        find: |sources| prose::beginnings(sources),
    },
];

/// Everything that is wrong, one line each.
///
/// # Errors
/// When the repository cannot be read.
pub fn faults(sources: &[Source]) -> Outcome<Vec<String>> {
    let mut wrong = floors::violations(&floors::crates()?);
    wrong.extend(texts::violations(sources));
    for rule in RULES {
        let allowed = ratchet::read(rule.name)?;
        wrong.extend(ratchet::faults(rule.name, &allowed, &(rule.find)(sources)));
    }
    Ok(wrong)
}

/// The task: prints the faults, and how much is left in the lists.
///
/// # Errors
/// When the repository cannot be read.
pub fn run() -> Outcome<bool> {
    let wrong = faults(&sources::all()?)?;
    for rule in RULES {
        let list = ratchet::read(rule.name)?;
        let sum: usize = list.values().sum();
        println!("{:>5} exceptions (sum {sum}): {}", list.len(), rule.name);
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    println!("{} faults", wrong.len());
    Ok(wrong.is_empty())
}

/// Writes the lists of exceptions anew, each only if it does not grow.
///
/// # Errors
/// When the repository cannot be read or a list not be written.
pub fn shrink() -> Outcome<bool> {
    let sources = sources::all()?;
    let mut all = true;
    for rule in RULES {
        let old = ratchet::read(rule.name)?;
        match ratchet::shrunk(rule.name, &old, &(rule.find)(&sources)) {
            Ok(new) if new == old => {}
            Ok(new) => {
                ratchet::write(rule.name, rule.title, &new)?;
                println!(
                    "{}: {} exceptions, were {}",
                    rule.name,
                    new.len(),
                    old.len()
                );
            }
            Err(reason) => {
                eprintln!("{reason}");
                all = false;
            }
        }
    }
    Ok(all)
}
