//! Ruby: methods, blocks and stacks, as the interpreter tells them.

use crate::folded::Line;
use crate::score::share;
use crate::score::stacks;
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool, ruby};

use super::python::chains;
use super::{Length, fixed_work, measure};

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;

pub(super) fn ruby(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
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
        // Without kernel programs names are asked for, and one share.
        let length = if way.is_empty() {
            seconds
        } else {
            seconds / 2.0
        };
        let program = ruby::start(&["--seconds", &format!("{length}")])?;
        let run = measure(program, tool, &options)?;
        let mut judged = judge(&run);
        if !way.is_empty() {
            // What has run for a moment only may be over when it is read, and stops are too few for shares.
            let told = |what: &str| {
                what == "on-cpu named"
                    || (way.contains("perf") && what == "on-cpu Worker#ruby_heavy")
            };
            judged.rows.retain(|row| told(&row.what));
        }
        for mut row in judged.rows {
            row.what = format!("ruby{way}: {}", row.what);
            card.rows.push(row);
        }
    }
    let seconds = format!("{}", seconds / 2.0);
    let program = ruby::start(&["--gil", "--seconds", &seconds])?;
    let run = measure(program, tool, &Options::at(499))?;
    for mut row in lock(&run)?.rows {
        row.what = format!("ruby: {}", row.what);
        card.rows.push(row);
    }
    Ok(card)
}

/// Threads that wait for nothing but Ruby's lock, and the lock's holders.
fn lock(run: &Run) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let counting = run.truth.threads.iter();
    for own in counting.filter(|t| t.name.starts_with("count-")) {
        let computed = own.on_cpu_ns + own.run_delay_ns;
        let waited = own.work_wall_ns.saturating_sub(computed);
        let thread = run.report.thread(own.pid, own.tid).cloned();
        let blocked = thread.unwrap_or_default().blocked;
        let gil = blocked.get("gil").copied().unwrap_or(0);
        let percent = 100.0 * gil as f64 / waited as f64;
        card.at_least(format!("gil of {}'s waits", own.name), percent, 95.0, "%");
        // More than all of them only as far as the kernel's own count of queueing is off.
        card.at_most(format!("the same of {}", own.name), percent, 115.0, "%");
    }
    let locks = run.recorded.json(&["locks"])?;
    let mut rows = locks["locks"].as_array().into_iter().flatten();
    let gil = rows
        .find(|l| (l["name"].as_str()).is_some_and(|n| n.starts_with("the GIL of ")))
        .ok_or_else(|| Error::Output("no lock is called the GIL".into()))?;
    let holders = gil["holders"].as_array().into_iter().flatten();
    let held: f64 = holders
        .filter(|h| h["had_it"] == true)
        .filter(|h| (h["thread"].as_str()).is_some_and(|t| t.starts_with("count-")))
        .map(|h| h["ns"].as_f64().unwrap_or(0.0))
        .sum();
    let total = gil["total_ns"].as_f64().unwrap_or(0.0);
    card.at_least(
        "waits for the lock with a holder",
        100.0 * held / total,
        90.0,
        "%",
    );
    Ok(card)
}

/// The name of a method, or of a block in one, without its class.
fn plain(name: &str) -> &str {
    let is_class = name.starts_with(|c: char| c.is_ascii_uppercase());
    match name.split_once(['#', '.']) {
        Some((_, method)) if is_class => method,
        _ => name,
    }
}

fn judge(run: &Run) -> Scorecard {
    let mut card = Scorecard::default();
    card.rows.extend(run.evidence().managed_shares().rows);
    // Below a method, or a block in a file or a method.
    let is_ruby =
        |l: &Line| (l.frames.iter()).any(|f| f.name.contains("Worker#") || f.name == "<main>");
    let named = (run.evidence()).named("on-cpu named", 95.0, |_| true, is_ruby);
    card.rows.extend(named.rows);
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    card.rows
        .extend(stacks::whole(&run.stacks, |_| true, WHOLE).rows);
    card.rows
        .extend(chains(&run.truth, &run.stacks, plain).rows);
    card
}

pub(super) fn ruby_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let units = format!("{}", length.seconds * 2500.0);
    fixed_work("Ruby", tool, length, || ruby::start(&["--units", &units]))
}
