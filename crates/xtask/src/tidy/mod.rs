//! Keeps the house in order: which crate may depend on which (`floors`), and what no text of the
//! repository may hold (`texts`). A test runs it; as a task it also lists the longest files.

pub mod floors;
pub mod texts;

use crate::Outcome;

/// The task.
///
/// # Errors
/// When the repository cannot be read.
pub fn run() -> Outcome<bool> {
    let mut wrong = floors::violations(&floors::crates()?);
    wrong.extend(texts::violations()?);
    println!("longest files (over {} lines):", texts::LONG);
    for (lines, path) in texts::longest()? {
        println!("  {lines:>5}  {path}");
    }
    for line in &wrong {
        eprintln!("{line}");
    }
    println!("{} faults", wrong.len());
    Ok(wrong.is_empty())
}
