//! Exceptions from the rules, in committed lists that may only shrink.
//!
//! Each rule has a list `crates/xtask/ratchet/RULE.txt`, one exception a line: a value and the
//! thing that has it. A thing over its rule's limit and not in the list is a fault; so is a value that
//! grew. A line that is no longer needed, or that has too high a value, is a fault too, or the ground won
//! would be lost again: `cargo xtask tidy --shrink` writes the lists anew. It refuses to
//! write one with more lines or a larger sum, so moved and renamed things keep their exception.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::{Outcome, root};

/// Something over the limit of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excess {
    /// Path, and the name within it.
    pub thing: String,
    /// How large it is, in the unit of the rule.
    pub value: usize,
    /// Where exactly, and how to mend it.
    pub note: String,
}

/// Values by thing.
pub type List = BTreeMap<String, usize>;

/// The list of present values. Of two things with one name the larger counts.
pub fn list_of(excesses: &[Excess]) -> List {
    let mut list = List::new();
    for excess in excesses {
        let value = list.entry(excess.thing.clone()).or_default();
        *value = excess.value.max(*value);
    }
    list
}

/// What is wrong, one line each: new and grown exceptions, and lines of the list that are too high.
pub fn faults(rule: &str, allowed: &List, excesses: &[Excess]) -> Vec<String> {
    let mut wrong = Vec::new();
    for excess in excesses {
        let listed = allowed.get(&excess.thing).copied();
        if listed.is_none_or(|listed| excess.value > listed) {
            let listed = listed.map_or(String::new(), |listed| format!(", was {listed}"));
            let Excess { thing, value, note } = excess;
            wrong.push(format!("{rule}: {thing}: {value}{listed}; {note}"));
        }
    }
    let present = list_of(excesses);
    for (thing, listed) in allowed {
        let now = present.get(thing).copied().unwrap_or_default();
        if now < *listed {
            wrong.push(format!(
                "{rule}: {thing}: {now}, and the list allows {listed}; run `cargo xtask tidy --shrink`"
            ));
        }
    }
    wrong
}

/// The new list, if it is no larger than the old one in lines and in sum.
///
/// # Errors
/// The two sizes.
pub fn shrunk(rule: &str, old: &List, excesses: &[Excess]) -> Result<List, String> {
    let new = list_of(excesses);
    let size = |list: &List| (list.len(), list.values().sum::<usize>());
    let (was, is) = (size(old), size(&new));
    if is.0 > was.0 || is.1 > was.1 {
        return Err(format!(
            "{rule}: the list would grow from {} lines (sum {}) to {} (sum {}); `cargo xtask tidy` names the new ones",
            was.0, was.1, is.0, is.1
        ));
    }
    Ok(new)
}

fn path(rule: &str) -> PathBuf {
    root().join(format!("crates/xtask/ratchet/{rule}.txt"))
}

/// The committed list of a rule; empty if there is none.
///
/// # Errors
/// When a line is not a value and a thing.
pub fn read(rule: &str) -> Outcome<List> {
    match fs::read_to_string(path(rule)) {
        Ok(text) => Ok(parse(&text).map_err(|line| format!("{}: {line}", path(rule).display()))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(List::new()),
        Err(error) => Err(format!("{}: {error}", path(rule).display()).into()),
    }
}

/// A list from its text; the faulty line if there is one.
pub fn parse(text: &str) -> Result<List, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (value, thing) = line.split_once(' ').ok_or(line)?;
            Ok((thing.to_string(), value.parse().map_err(|_| line)?))
        })
        .collect::<Result<List, &str>>()
        .map_err(|line| format!("not a value and a thing: {line:?}"))
}

/// Writes the list of a rule, or removes the file of an empty one.
///
/// # Errors
/// When it cannot be written.
pub fn write(rule: &str, title: &str, list: &List) -> Outcome<()> {
    let path = path(rule);
    if list.is_empty() {
        return match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        };
    }
    let mut text = format!("# {title}. May only shrink: cargo xtask tidy --shrink\n");
    for (thing, value) in list {
        text.push_str(&format!("{value} {thing}\n"));
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    Ok(fs::write(path, text)?)
}
