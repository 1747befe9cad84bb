//! Threads and processes that come and go, and blocks that the window does not hold whole.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::folded::Line;
use crate::score::ledger::{Limits, agrees, closes};
use crate::score::{Row, share, within};
use crate::tool::{Options, Run};
use crate::{Error, Program, Scorecard, Tool};

use super::Length;

pub(super) fn short(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("short", &["--seconds", &seconds], &length.options())?;
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    let evidence = run.evidence();
    (card.rows).extend(evidence.shares("off-cpu", share::OFF_CPU).rows);
    (card.rows).extend(evidence.shares("on-cpu", share::ON_CPU).rows);
    Ok(card)
}

fn time_with(lines: &[Line], function: &str, state: Option<&str>) -> f64 {
    let held = lines.iter().filter(|line| line.contains(function));
    let held = held.filter(|line| state.is_none_or(|state| line.state == state));
    held.map(|line| line.ns).sum::<u64>() as f64
}

pub(super) fn span(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("span", &["--seconds", &seconds], &Options::at(499))?;
    let mut card = closes(&run.report, &Limits::default());
    let window = &run.report.window;
    card.push(Row {
        what: "the clock".into(),
        truth: "monotonic".into(),
        measured: window.clock.clone(),
        limit: "".into(),
        pass: window.clock.to_lowercase().contains("monotonic"),
        ..Row::default()
    });
    let (start, end) = (window.start_ns as f64, window.end_ns as f64);
    let expected = [
        ("span-forever", "span_forever", end - start),
        (
            "span-edge",
            "span_start_edge",
            run.truth.extra("edge_released_ns")? - start,
        ),
        (
            "span-late",
            "span_end_edge",
            end - run.truth.extra("end_block_began_ns")?,
        ),
        (
            "span-killed",
            "span_killed_child",
            run.truth.extra("child_killed_ns")? - start,
        ),
    ];
    let percent = |ns: f64| 100.0 * ns / (end - start);
    for (thread, function, ns) in expected {
        let own = run.truth.threads.iter().find(|t| t.name == thread);
        let ledger = own.and_then(|own| run.report.thread(own.pid, own.tid));
        let blocked = ledger.map_or(f64::NAN, |ledger| ledger.blocked_ns as f64);
        // The late one slept a little before its last block, so its ledger has more.
        if thread != "span-late" {
            card.near(
                format!("{thread} blocked"),
                percent(ns),
                percent(blocked),
                within(0.5, "%"),
            );
        }
        let stacks = time_with(&run.stacks, function, Some("blocked"));
        card.near(
            format!("off-cpu {function}"),
            percent(ns),
            percent(stacks),
            within(1.0, "%"),
        );
    }
    Ok(card)
}

pub(super) fn execs(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    // About 45 ms a round.
    let rounds = format!("{}", ((length.seconds * 20.0) as u64).clamp(6, 180));
    let run = tool.measure("execs", &["--rounds", &rounds], &Options::at(997))?;
    let mut card = closes(&run.report, &Limits::default());
    let children = run
        .truth
        .threads
        .iter()
        .filter(|t| t.name.starts_with("exec-"));
    let (mut missing, mut short_of, mut all) = (0, 0, 0);
    for own in children {
        all += 1;
        // An exec by a non-leader ends one thread and gives its number to another: two rows.
        let lives = run
            .report
            .threads
            .iter()
            .filter(|t| (t.pid, t.tid) == (own.pid, own.tid));
        match lives.map(|thread| thread.wall_ns).sum::<u64>() {
            0 => missing += 1,
            // From its fork to its last reading, whatever it was called in between.
            wall if wall + 2_000_000 < own.work_wall_ns => short_of += 1,
            _ => {}
        }
    }
    card.at_least("children told by the program", f64::from(all), 6.0, "");
    card.at_most("children not seen", f64::from(missing), 0.0, "");
    card.at_most(
        "children seen for less than their life",
        f64::from(short_of),
        0.0,
        "",
    );
    for function in ["exec_child_compute", "exec_child_sleep", "exec_wait_child"] {
        let own = run.truth.functions.iter().filter(|f| f.name == function);
        let truth = own.map(|f| f.wall_ns).sum::<u64>() as f64;
        let measured = time_with(&run.stacks, function, None);
        card.near(
            format!("{function}, of its own time"),
            100.0,
            100.0 * measured / truth,
            within(10.0, "%"),
        );
    }
    Ok(card)
}

/// Processes that start faster than the recorder follows each at once, with more copied stacks than may wait for the
/// end.
pub(super) fn starts(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = format!("{}", length.seconds.max(6.0));
    let run = tool.measure("starts", &["--seconds", &seconds], &Options::at(997))?;
    let mut card = closes(&run.report, &Limits::default());
    let started: u64 = run.truth.threads.iter().map(|t| t.operations).sum();
    let per_second = started as f64 / length.seconds.max(6.0);
    card.at_least("processes a second", per_second, 250.0, "");
    let own = run
        .truth
        .functions
        .iter()
        .filter(|f| f.name == "starts_compute");
    let truth = own.map(|f| f.on_cpu_ns).sum::<u64>() as f64;
    let measured = time_with(&run.stacks, "starts_compute", Some("on_cpu"));
    card.near(
        "starts_compute on the CPU, of its own time",
        100.0,
        100.0 * measured / truth,
        within(10.0, "%"),
    );
    let own = || run.stacks.iter().filter(|l| l.contains("starts_compute"));
    let whole = own().filter(|l| l.truncated.is_none()).map(|l| l.ns);
    let all = own().map(|l| l.ns).sum::<u64>() as f64;
    card.at_least(
        "stacks of starts_compute that reach the root",
        100.0 * whole.sum::<u64>() as f64 / all,
        99.0,
        "%",
    );
    Ok(card)
}

pub(super) fn rename(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("rename", &["--seconds", &seconds], &Options::at(499))?;
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    let all = run.truth.threads[0].work_wall_ns as f64;
    for own in &run.truth.functions {
        // Under whichever of its names.
        let measured = time_with(&run.stacks, &own.name, None);
        card.near(
            format!("wall {}", own.name),
            100.0 * own.wall_ns as f64 / all,
            100.0 * measured / all,
            within(1.0, "%"),
        );
    }
    Ok(card)
}

/// Memory of a recording, bytes.
fn memory(run: &Run) -> f64 {
    (run.report.cost.rss_bytes + run.report.cost.kernel_bytes) as f64
}

/// Records a program by some other target than its process id.
fn by_target(
    tool: &Tool,
    mut program: Program,
    target: &[&str],
    options: &Options,
) -> Result<Run, Error> {
    let recorder = tool.record(target, options)?;
    program.release()?;
    let truth = program.truth(Duration::from_secs(120))?;
    let recorded = recorder.stop()?;
    program.finish()?;
    Run::read(truth, recorded)
}

pub(super) fn cgroup(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let program = Program::start("throttled", &["--seconds", &seconds])?;
    let pid = program.pids()[0];
    let folder = program.cgroup()?;
    let target = ["--cgroup", &folder.display().to_string()];
    let run = by_target(tool, program, &target, &length.options())?;
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    let others = run
        .report
        .threads
        .iter()
        .filter(|thread| thread.pid != pid)
        .count();
    card.at_most("threads of other processes", others as f64, 0.0, "");
    (card.rows).extend(run.evidence().shares("on-cpu", share::ON_CPU).rows);
    Ok(card)
}

pub(super) fn everything(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let program = Program::start("mix", &["--seconds", &seconds])?;
    let run = by_target(tool, program, &["-a"], &length.options())?;
    // Entering every thread of a machine takes a while.
    let limits = Limits {
        wall_ms: 50.0,
        ..Limits::default()
    };
    let mut card = agrees(&run.report, &run.truth, &limits);
    let pids: BTreeSet<u32> = run.report.threads.iter().map(|thread| thread.pid).collect();
    card.at_least("processes seen", pids.len() as f64, 3.0, "");
    (card.rows).extend(run.evidence().shares("wall", share::OFF_CPU).rows);
    Ok(card)
}

pub(super) fn parked(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let (few, many) = (500u32, 10_000u32);
    let measure = |threads: u32| {
        let threads = threads.to_string();
        let flags = ["--seconds", &seconds, "--threads", &threads];
        tool.measure("parked", &flags, &Options::at(99))
    };
    let small = measure(few)?;
    let large = measure(many)?;
    // Ten thousand threads are not entered into the books at once: up to 285 ms were measured on 2 virtual CPUs.
    let limits = Limits {
        wall_ms: 500.0,
        ..Limits::default()
    };
    let mut card = agrees(&large.report, &large.truth, &limits);
    let each = (memory(&large) - memory(&small)) / f64::from(many - few) / 1024.0;
    card.at_most("memory for each further thread", each, 6.0, "KiB");
    let waited = time_with(&large.stacks, "parked_wait", Some("blocked"));
    let parked = large.report.threads.iter().filter(|t| t.name == "parked");
    let wall = parked.map(|t| t.wall_ns).sum::<u64>() as f64;
    card.near(
        "parked_wait, of the parked threads' time",
        100.0,
        100.0 * waited / wall,
        within(1.0, "%"),
    );
    Ok(card)
}
