//! Go: functions and stacks, of a program with everything in it and of one as it is shipped.

use crate::go::{Build, GoProgram, PLAIN, STRIPPED, WITH_C, installed};
use crate::score::{Estimate, chance, share, stacks};
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool};

use super::python::chains;
use super::{Length, fixed_work, measure};

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;
/// Promised of user stacks that wait, without eBPF, percent of sampled time: some threads go on while they are
/// read, and are marked as lost. Where the way from C to Go is not found it is 76 to 94.
const WHOLE_OUTSIDE: f64 = 90.0;

pub(super) fn go(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (options, seconds) = length.managed();
    let seconds = seconds.to_string();
    for go in installed()? {
        for build in [PLAIN, STRIPPED, WITH_C] {
            let built = go.build(build)?;
            let flags = ["mix", "--seconds", &seconds];
            let run = measure(built.start(&flags)?, tool, &options)?;
            for mut row in judge(&run, build).rows {
                row.what = format!("go {} ({}, {})", row.what, go.version, build.name);
                card.rows.push(row);
            }
        }
        let built = go.build(WITH_C)?;
        card.rows
            .extend(outside_rows(tool, &built, &seconds, &go.version)?.rows);
    }
    Ok(card)
}

/// Rows on the program with C in it, without eBPF.
fn outside_rows(
    tool: &Tool,
    built: &GoProgram,
    seconds: &str,
    version: &str,
) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    for backend in ["perf", "proc"] {
        let run = outside(tool, built, backend, seconds)?;
        let mut rows = stacks::whole(
            &run.stacks,
            |name| name.starts_with("go-mix"),
            WHOLE_OUTSIDE,
        )
        .rows;
        // A goroutine that computes goes on while its stack is read: a busy machine reads late.
        rows.retain(|row| row.what.contains("blocked"));
        let waits = run.stacks.iter().filter(|l| l.state == "blocked");
        let waits = waits.filter(|l| l.contains("main.goWaitInC") && l.contains("c_nap"));
        let waits: u64 = waits.map(|l| l.ns).sum();
        card.at_least(
            format!("go in C, by {backend}: waiting in it, from Go ({version})"),
            waits as f64 / 1e6,
            1.0,
            "ms",
        );
        for mut row in rows {
            row.what = format!("go in C, by {backend}: {} ({version})", row.what);
            card.rows.push(row);
        }
    }
    Ok(card)
}

/// The program, measured without eBPF.
fn outside(tool: &Tool, built: &GoProgram, backend: &str, seconds: &str) -> Result<Run, Error> {
    let options = Options::at(99).with(&["--max-overhead", "20", "--backend", backend]);
    measure(built.start(&["mix", "--seconds", seconds])?, tool, &options)
}

fn judge(run: &Run, build: Build) -> Scorecard {
    let mut card = Scorecard::default();
    let evidence = run.evidence();
    card.rows.extend(evidence.managed_shares().rows);
    (card.rows).extend(evidence.shares("off-cpu", share::MANAGED).rows);
    let names: Vec<&str> = run.truth.threads.iter().map(|t| t.name.as_str()).collect();
    card.rows
        .extend(stacks::whole(&run.stacks, |name| names.contains(&name), WHOLE).rows);
    // The runtime's own threads as well: they wait on their own stacks.
    let mut all = stacks::whole(&run.stacks, |_| true, WHOLE);
    for row in &mut all.rows {
        row.what = format!("of all threads: {}", row.what);
    }
    card.rows.extend(all.rows);
    card.rows
        .extend(chains(&run.truth, &run.stacks, |name| name).rows);
    let inlined = |under: &str| {
        let of = run.stacks.iter().filter(|l| l.contains(under));
        let named = of.filter(|l| l.frames.iter().any(|f| f.name == "main.turn"));
        named.map(|l| l.ns).sum::<u64>() as f64
    };
    card.at_least(
        format!("an inlined function in a {} program", build.name),
        inlined("main.goHeavy"),
        1.0,
        "ns",
    );
    card
}

/// Functions in which goroutines of the program wait, and the reason of each one's waits.
const WAITS: &[(&str, &str)] = &[
    ("main.parkReceive", "channel"),
    ("main.parkSend", "channel"),
    ("main.parkSelect", "select"),
    ("main.parkLock", "mutex"),
    ("main.parkSleep", "timer"),
    ("main.parkRead", "network"),
];

pub(super) fn goroutines(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let seconds = format!("{}", length.seconds);
    for go in installed()? {
        let built = go.build(STRIPPED)?;
        // The program itself lists its goroutines, so the tier that counts its threads does not matter.
        for backend in ["ebpf", "proc"] {
            let program = built.start(&["park", "--seconds", &seconds])?;
            let options = Options {
                more: vec!["--backend".into(), backend.into()],
                ..Options::at(99)
            };
            let run = measure(program, tool, &options)?;
            card.extend(&format!("{} {backend}", go.version), waits(&run)?);
        }
    }
    Ok(card)
}

fn waits(run: &Run) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let report = run.recorded.json(&["report"])?;
    let tasks = report["tasks"].as_array().cloned().unwrap_or_default();
    let looks = tasks.iter().filter_map(|t| t["looks"].as_u64()).max();
    let looks = looks.unwrap_or(0) as f64;
    card.at_least("looks", looks, 5.0, "");
    let waits: Vec<_> = tasks
        .iter()
        .flat_map(|t| t["waits"].as_array().cloned().unwrap_or_default())
        .collect();
    for (function, reason) in WAITS {
        let existed = run.truth.extra(&format!("{function} existed"))?;
        let waited = run.truth.extra(&format!("{function} waited"))?;
        let label = format!("what={}", function.trim_start_matches("main."));
        let own = waits.iter().filter(|w| {
            let frames = w["frames"].as_array();
            let there = frames.is_some_and(|f| f.iter().any(|f| f == function));
            let labelled = w["labels"].as_array();
            there && labelled.is_some_and(|l| l.iter().any(|l| *l == label))
        });
        let (mut all, mut right) = (0.0, 0.0);
        for wait in own {
            let ns = wait["ns"].as_f64().unwrap_or(0.0);
            all += ns;
            // After its wait a task still waits to be run.
            let ready = wait["state"] == "runnable";
            right += if ready || wait["reason"] == *reason {
                ns
            } else {
                0.0
            };
        }
        let share = waited / existed;
        let estimate = Estimate {
            truth: 100.0 * share,
            measured: 100.0 * all / existed,
            promise: share::MANAGED,
            chance: chance::polled(share, looks),
            tier: run.report.domain.backend.clone(),
            ..Estimate::default()
        };
        card.estimate(format!("{function} waits, of its time"), estimate);
        let right = 100.0 * right / all;
        card.at_least(format!("{reason} of that"), right, 80.0, "%");
    }
    Ok(card)
}

pub(super) fn go_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let built = GoProgram::build(PLAIN)?;
    let units = format!("{}", length.seconds * 3000.0);
    fixed_work("Go", tool, length, || {
        built.start(&["fixed", "--units", &units])
    })
}
