//! What measuring costs, and that totals do not depend on how often one looks.

use std::time::{Duration, Instant};

use crate::tool::Options;
use crate::{Error, Program, Scorecard, Tool, Truth};

use super::Length;

const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn rates(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let mut program = Program::start("mix", &["--seconds", &seconds])?;
    // Of the same run, so that what differs is the rate alone.
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
            1.0,
            "%",
        );
        // The first of two recordings is the longer one, by time in which all are blocked.
        let blocked = b.blocked_ns as f64 + windows;
        card.near(
            format!("{} blocked, 49 Hz against 997 Hz", own.name),
            0.0,
            relative(a.blocked_ns, blocked),
            1.0,
            "%",
        );
    }
    Ok(card)
}

/// Runs a program, recorded or bare, and takes its truth; with the recording's cost where there
/// is one.
fn timed(
    tool: Option<&Tool>,
    name: &str,
    flags: &[&str],
) -> Result<(Truth, Option<crate::report::Report>), Error> {
    let Some(tool) = tool else {
        let mut program = Program::start(name, flags)?;
        program.release()?;
        let truth = program.truth(LIMIT)?;
        program.finish()?;
        return Ok((truth, None));
    };
    let run = tool.measure(name, flags, &Options::at(99))?;
    Ok((run.truth, Some(run.report)))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

pub(super) fn pingpong(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let rounds = format!("{}", (length.seconds * 60_000.0) as u64);
    let flags = ["--rounds", &rounds];
    let mut ratios = Vec::new();
    for _ in 0..length.repeats.clamp(3, 8) {
        let (bare, _) = timed(None, "pingpong", &flags)?;
        let (recorded, _) = timed(Some(tool), "pingpong", &flags)?;
        ratios.push(recorded.extra("ns_per_round")? / bare.extra("ns_per_round")?);
    }
    let mut card = Scorecard::default();
    card.at_most(
        format!("slowdown, median of {} pairs", ratios.len()),
        median(ratios),
        1.35,
        "×",
    );
    Ok(card)
}

pub(super) fn fixed(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let units = format!("{}", length.seconds * 8e8);
    let flags = ["--units", &units];
    let (mut bare, mut recorded, mut share) = (f64::INFINITY, f64::INFINITY, Vec::new());
    for _ in 0..length.repeats.clamp(3, 8) {
        let (truth, _) = timed(None, "fixed", &flags)?;
        bare = bare.min(truth.extra("cpu_ns")?);
        let (truth, report) = timed(Some(tool), "fixed", &flags)?;
        recorded = recorded.min(truth.extra("cpu_ns")?);
        if let Some(report) = report {
            let window = (report.window.end_ns - report.window.start_ns) as f64;
            share.push(100.0 * (report.cost.bpf_ns + report.cost.own_cpu_ns) as f64 / window);
        }
    }
    let mut card = Scorecard::default();
    card.at_most(
        "slowdown, best against best",
        100.0 * (recorded / bare - 1.0),
        1.0,
        "%",
    );
    card.at_most(
        "kernel programs and own CPU, median",
        median(share),
        0.1,
        "% of a core",
    );
    Ok(card)
}

pub(super) fn delays(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("mix", &["--seconds", &seconds], &Options::at(99))?;
    let began = Instant::now();
    run.recorded.report()?;
    let report = began.elapsed();
    let mut card = Scorecard::default();
    card.at_most(
        "start to live",
        run.recorded.took.to_live.as_secs_f64(),
        1.0,
        "s",
    );
    card.at_most(
        "stop to file",
        run.recorded.took.to_file.as_secs_f64(),
        0.5,
        "s",
    );
    card.at_most("file to report", report.as_secs_f64(), 1.0, "s");
    Ok(card)
}
