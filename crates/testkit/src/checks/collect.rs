//! Garbage collection: pauses of Java's collectors against the VM's own log, and Go's against its runtime's figures.

use serde_json::Value;

use crate::go::{self, PLAIN, STRIPPED};
use crate::java::installed;
use crate::score::within;
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool};

use super::{Length, measure};

/// Flags of the VM by collector, and whether its pauses are long enough to compare their time.
const COLLECTORS: &[(&str, bool)] = &[
    ("-XX:+UseSerialGC", true),
    ("-XX:+UseParallelGC", true),
    ("-XX:+UseG1GC", true),
    ("-XX:+UseZGC", false),
    ("-XX:+UseShenandoahGC", false),
];
/// Promised of the time in collections, percent.
const TIME: f64 = 2.0;
/// Promised of the number of pauses, percent.
const PAUSES: f64 = 5.0;

pub(super) fn collect(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let seconds = if length.seconds < 10.0 { 2.0 } else { 10.0 }.to_string();
    let all = installed()?.into_iter().filter(|j| j.has_wait_barrier());
    // Two, and those that were asked for.
    let folder = tempfile::tempdir().map_err(|e| Error::Start(format!("a folder: {e}")))?;
    for (number, java) in all.enumerate().filter(|(n, java)| *n < 2 || java.named) {
        let java = java.compiled()?;
        for (collector, long) in COLLECTORS.iter().filter(|(flag, _)| java.takes(flag)) {
            let log = folder.path().join(format!("{number}{collector}"));
            let program = java.start_collect(collector, &log, &["--seconds", &seconds])?;
            let run = measure(program, tool, &Options::at(99))?;
            for mut row in judge(&run, *long)?.rows {
                row.what = format!("java {} {collector}: {}", java.version, row.what);
                card.rows.push(row);
            }
        }
    }
    Ok(card)
}

/// Go's collections, with each backend.
pub(super) fn collect_go(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let seconds = if length.seconds < 10.0 { 2.0 } else { 10.0 }.to_string();
    for go in go::installed()? {
        for (build, backend) in [(PLAIN, "ebpf"), (STRIPPED, "ebpf"), (STRIPPED, "proc")] {
            let program = go.build(build)?;
            let program = program.start(&["collect", "--seconds", &seconds])?;
            let options = Options::at(99).with(&["--backend", backend]);
            let run = measure(program, tool, &options)?;
            let report = run.recorded.json(&["report"])?;
            let groups = report["gc"]["pauses"].as_array().into_iter().flatten();
            let (mut count, mut ns) = (0.0, 0.0);
            for group in groups {
                count += group["count"].as_f64().unwrap_or(0.0);
                ns += group["total_ns"].as_f64().unwrap_or(0.0);
            }
            let what = format!("{} ({}, {backend})", go.version, build.name);
            let pauses = run.truth.extra("pauses")?;
            card.near(
                format!("{what}: collections"),
                pauses,
                count,
                within(1.0, ""),
            );
            let truth = run.truth.extra("paused_ns")?;
            let difference = 100.0 * (ns / truth - 1.0);
            let time = format!("{what}: time of their stops, beside the runtime's");
            card.near(time, 0.0, difference, within(TIME, "%"));
        }
    }
    Ok(card)
}

fn judge(run: &Run, long: bool) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let report = run.recorded.json(&["report"])?;
    let groups = report["gc"]["pauses"].as_array().into_iter().flatten();
    let (mut count, mut ns, mut others, mut named) = (0.0, 0.0, 0.0, 0.0);
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    for group in groups {
        let own = number(&group["count"]);
        if group["kind"] == "" {
            others += own;
            continue;
        }
        (count, ns) = (count + own, ns + number(&group["total_ns"]));
        named += if group["cause"] == "" { 0.0 } else { own };
    }
    let pauses = run.truth.extra("pauses")?;
    card.near(
        "pauses that collect",
        pauses,
        count,
        within((PAUSES / 100.0 * pauses).max(1.0), ""),
    );
    card.at_least(
        "pauses with a cause",
        100.0 * named / count.max(1.0),
        99.0,
        "%",
    );
    if long {
        let truth = run.truth.extra("paused_ns")?;
        let measured = 100.0 * (ns / truth - 1.0);
        card.near(
            "time in them, beside the VM's",
            0.0,
            measured,
            within(TIME, "%"),
        );
        // Some meet no thread that runs Java code: those stop none.
        card.at_least("other pauses that are named", others, 1.0, "");
    }
    // Both threads allocate all the time: a pause stops them, or they wait for it.
    for name in ["gc-allocate-0", "gc-allocate-1"] {
        let threads = report["gc"]["threads"].as_array().into_iter().flatten();
        let own: f64 = threads
            .filter(|t| t["name"] == name)
            .map(|t| number(&t["blocked_ns"]))
            .sum();
        if long {
            card.at_least(
                format!("{name} stopped, of the pauses"),
                100.0 * own / ns,
                90.0,
                "%",
            );
        }
    }
    Ok(card)
}
