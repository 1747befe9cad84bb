//! Totals do not depend on the sampling rate.

use std::time::Duration;

use crate::score::within;
use crate::tool::Options;
use crate::{Error, Program, Scorecard, Tool};

use super::Length;

const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn rates(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let mut program = Program::start("mix", &["--seconds", &seconds])?;
    // Of the same run, so that only the rate differs.
    let seldom = tool.attach(program.pids(), &Options::at(49))?;
    let often = tool.attach(program.pids(), &Options::at(997))?;
    program.release()?;
    let truth = program.truth(LIMIT)?;
    let often = often.stop()?.report()?;
    let seldom = seldom.stop()?.report()?;
    program.finish()?;
    let mut card = Scorecard::default();
    let windows = (seldom.window.end_ns - seldom.window.start_ns) as f64
        - (often.window.end_ns - often.window.start_ns) as f64;
    for own in &truth.threads {
        let find = |report: &crate::report::Report| {
            report.thread(own.pid, own.tid).cloned().unwrap_or_default()
        };
        let (a, b) = (find(&seldom), find(&often));
        let relative = |a: u64, b: f64| 100.0 * (a as f64 - b) / b;
        card.near(
            format!("{} on-CPU, 49 Hz against 997 Hz", own.name),
            0.0,
            relative(a.on_cpu_ns, b.on_cpu_ns as f64),
            within(1.0, "%"),
        );
        // The first of two recordings is the longer one, by time in which all are blocked.
        let blocked = b.blocked_ns as f64 + windows;
        card.near(
            format!("{} blocked, 49 Hz against 997 Hz", own.name),
            0.0,
            relative(a.blocked_ns, blocked),
            within(1.0, "%"),
        );
    }
    Ok(card)
}
