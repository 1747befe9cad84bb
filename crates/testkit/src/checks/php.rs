//! PHP: functions and stacks, as the engine tells them.

use crate::folded::Line;
use crate::score::share;
use crate::score::stacks;
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool, php};

use super::python::chains;
use super::{Length, fixed_work, measure};

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;

pub(super) fn php(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (managed, seconds) = length.managed();
    for (way, options) in [
        ("", managed.clone()),
        (
            " by perf events",
            Options::at(199).with(&["--backend", "perf"]),
        ),
        (
            " by stops",
            Options::at(199).with(&["--backend", "proc", "--allow-stop"]),
        ),
    ] {
        let program = php::start(&["--seconds", &format!("{seconds}")])?;
        let run = measure(program, tool, &options)?;
        let mut judged = judge(&run);
        if !way.is_empty() {
            // What has run for a moment only may be over when it is read, and stops are too few for shares.
            let told = |what: &str| {
                what == "on-cpu named" || (way.contains("perf") && what == "on-cpu php_heavy")
            };
            judged.rows.retain(|row| told(&row.what));
        }
        for mut row in judged.rows {
            row.what = format!("php{way}: {}", row.what);
            card.rows.push(row);
        }
    }
    Ok(card)
}

fn judge(run: &Run) -> Scorecard {
    let mut card = Scorecard::default();
    card.rows.extend(run.evidence().managed_shares().rows);
    let is_php = |l: &Line| l.contains("<main>");
    let named = (run.evidence()).named("on-cpu named", 95.0, |_| true, is_php);
    card.rows.extend(named.rows);
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    card.rows
        .extend(stacks::whole(&run.stacks, |_| true, WHOLE).rows);
    card.rows
        .extend(chains(&run.truth, &run.stacks, |name| name).rows);
    card
}

pub(super) fn php_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let units = format!("{}", length.seconds * 4000.0);
    fixed_work("PHP", tool, length, || php::start(&["--units", &units]))
}
