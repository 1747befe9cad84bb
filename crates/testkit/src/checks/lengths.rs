//! Lengths of single waits: quantiles, counts, and fifty short ones against one long one.

use crate::report::Stack;
use crate::score::within;
use crate::tool::Options;
use crate::{Error, Scorecard, Tool};

use super::Length;

/// A quantile is the middle of a bucket of 3.1 %; the program's clocks cost a little on top.
const QUANTILE: f64 = 2.0;
const CLOCKS_NS: f64 = 15_000.0;

pub(super) fn lengths(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("lengths", &["--seconds", &seconds], &Options::at(99))?;
    let mut card = Scorecard::default();
    let timer = run
        .report
        .shapes
        .iter()
        .find(|s| s.reason.as_deref() == Some("timer"))
        .cloned()
        .unwrap_or_default();
    // A few sleeps are the course's own: before the release, and while the workers settle.
    let waits = run.truth.extra("waits")?;
    card.at_least("waits counted", timer.count as f64, waits, "");
    for (name, value) in [
        ("p50_ns", timer.p50_ns),
        ("p90_ns", timer.p90_ns),
        ("p99_ns", timer.p99_ns),
        ("max_ns", timer.max_ns),
    ] {
        let truth = run.truth.extra(name)?;
        let off = 100.0 * (value as f64 - truth) / truth;
        let most = QUANTILE + 100.0 * CLOCKS_NS / truth;
        card.near(
            format!("length of waits, {name}"),
            0.0,
            off,
            within(most, "%"),
        );
    }
    for (function, thread) in [
        ("lengths_many", "lengths-many"),
        ("lengths_once", "lengths-once"),
    ] {
        let truth = run.truth.threads.iter().find(|t| t.name == thread);
        let calls = truth.map_or(0.0, |t| t.operations as f64);
        let of = |s: &&Stack| s.state == "blocked" && s.frames.iter().any(|f| f == function);
        let stacks = run.report.stacks.iter().filter(of);
        let seen: u64 = stacks
            .filter_map(|s| Some(s.intervals.as_ref()?.count))
            .sum();
        // The stack's own are estimated: each is met as often as its length has periods.
        card.near(
            format!("{function}: times, estimated"),
            0.0,
            100.0 * (seen as f64 / calls.max(1.0) - 1.0),
            within(15.0, "%"),
        );
        let own = truth.and_then(|t| run.report.thread(t.pid, t.tid));
        let own = own.cloned().unwrap_or_default();
        let switches = own.voluntary_switches + own.involuntary_switches;
        let stretches = own.shapes.get("on_cpu").map_or(0, |s| s.count);
        card.near(
            format!("{thread}: stretches on the CPU against switches"),
            0.0,
            100.0 * (stretches as f64 / switches.max(1) as f64 - 1.0),
            within(
                // Where the host hides a switch, two stretches look like one.
                3.0, "%",
            ),
        );
    }
    Ok(card)
}
