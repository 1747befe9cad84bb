//! Why threads waited: reasons, wakers, locks and chains against programs that know.

use std::collections::BTreeMap;

use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool};

use super::{Length, shares::disk_folder};

/// Blocked time whose reason must be right, percent.
const RIGHT: f64 = 99.0;

/// Rows: of the blocked time of each measured function that waits for one thing, the part that has
/// the right reason.
pub(super) fn reasons_right(run: &Run) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let mut by_reason: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for function in run.truth.functions.iter().filter(|f| !f.reason.is_empty()) {
        by_reason
            .entry(&function.reason)
            .or_default()
            .push(function);
    }
    let all = run.recorded.folded("off-cpu")?;
    for (reason, functions) in by_reason {
        let right = run
            .recorded
            .folded_where("off-cpu", &["--reason", reason])?;
        for function in functions {
            // Its own thread's time: a child that borrows the stack has another name.
            let own = run.truth.threads.iter().find(|t| t.tid == function.tid);
            let time = |lines: &[crate::folded::Line]| -> u64 {
                lines
                    .iter()
                    .filter(|l| own.is_none_or(|t| t.name == l.thread))
                    .filter(|l| l.contains(&function.name))
                    .map(|l| l.ns)
                    .sum()
            };
            let whole = time(&all);
            card.at_least(
                format!("{} blocked for {reason}", function.name),
                100.0 * time(&right) as f64 / whole as f64,
                RIGHT,
                "%",
            );
        }
    }
    Ok(card)
}

pub(super) fn reasons(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let (seconds, folder) = (length.text(), disk_folder(tool));
    let flags = ["--seconds", &seconds, "--dir", &folder];
    let run = tool.measure("reasons", &flags, &Options::at(99))?;
    reasons_right(&run)
}
