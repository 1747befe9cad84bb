//! Python: functions, stacks and the interpreter's lock, on every interpreter that is found.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::folded::Line;
use crate::python::{Interpreter, interpreters};
use crate::score::share::{self, Nearness};
use crate::score::stacks;
use crate::tool::{Options, Run};
use crate::truth::Truth;
use crate::{Error, Scorecard, Tool};

use super::Length;

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;
const LIMIT: Duration = Duration::from_secs(120);

fn measure(
    interpreter: &Interpreter,
    tool: &Tool,
    flags: &[&str],
    options: &Options,
) -> Result<Run, Error> {
    let mut program = interpreter.start(flags)?;
    let recorder = tool.attach(program.pids(), options)?;
    program.release()?;
    let truth = program.truth(LIMIT)?;
    let recorded = recorder.stop()?;
    program.finish()?;
    Run::read(truth, recorded)
}

pub(super) fn python(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    // So many interpreters may be here that each gets two seconds of a short run.
    let seconds = format!(
        "{}",
        if length.seconds < 10.0 {
            2.0
        } else {
            length.seconds
        }
    );
    // The full length is the one that the promise is stated for: at 99 Hz.
    let hz = if length.seconds < 10.0 { 499 } else { 99 };
    for interpreter in interpreters()? {
        let run = measure(
            &interpreter,
            tool,
            &["mix", "--seconds", &seconds],
            &Options::at(hz),
        )?;
        for mut row in judge(&run, hz)?.rows {
            row.what = format!("{} {}", interpreter.version, row.what);
            card.rows.push(row);
        }
    }
    let looks = Options {
        hz: 99,
        more: vec!["--backend".into(), "proc".into()],
    };
    for interpreter in interpreters()?.into_iter().take(1) {
        let run = measure(&interpreter, tool, &["mix", "--seconds", &seconds], &looks)?;
        let mut judged = chains(&run.truth, &run.stacks, plain);
        // So few looks may have met it in none of its waits.
        judged
            .rows
            .retain(|row| row.what.contains("py_bottom") && !row.measured.contains("NaN"));
        judged.rows.extend(strangers(&run.truth, &run.stacks).rows);
        for mut row in judged.rows {
            row.what = format!("without eBPF: {}", row.what);
            card.rows.push(row);
        }
    }
    Ok(card)
}

/// Row: the share of time under functions that only other threads call.
fn strangers(truth: &Truth, lines: &[Line]) -> Scorecard {
    let mut card = Scorecard::default();
    let (mut all, mut wrong) = (0u64, 0u64);
    for thread in &truth.threads {
        let calls = |name: &str| {
            let mut of_name = truth.functions.iter().filter(|f| f.name == name);
            of_name.any(|f| f.tid == thread.tid)
        };
        for line in lines.iter().filter(|line| line.thread == thread.name) {
            let mut measured = truth.functions.iter().filter(|f| line.contains(&f.name));
            all += line.ns;
            if measured.any(|f| !calls(&f.name)) {
                wrong += line.ns;
            }
        }
    }
    card.at_most(
        "time under functions of other threads",
        100.0 * wrong as f64 / all as f64,
        0.1,
        "%",
    );
    card
}

fn judge(run: &Run, hz: u32) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    for (view, hz) in [("wall", 1000), ("on-cpu", hz)] {
        let nearness = Nearness { points: 1.5, hz };
        card.rows
            .extend(share::functions(&run.truth, &run.stacks, view, nearness).rows);
    }
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    let names: Vec<&str> = run.truth.threads.iter().map(|t| t.name.as_str()).collect();
    card.rows
        .extend(stacks::whole(&run.stacks, |name| names.contains(&name), WHOLE).rows);
    card.rows
        .extend(chains(&run.truth, &run.stacks, plain).rows);
    card.rows.extend(strangers(&run.truth, &run.stacks).rows);
    for own in run
        .truth
        .threads
        .iter()
        .filter(|t| t.name.starts_with("py-count"))
    {
        let waited = own
            .work_wall_ns
            .saturating_sub(own.on_cpu_ns + own.run_delay_ns);
        let thread = run.report.thread(own.pid, own.tid).cloned();
        let blocked = thread.unwrap_or_default().blocked;
        let percent =
            |reason: &str| 100.0 * blocked.get(reason).copied().unwrap_or(0) as f64 / waited as f64;
        // Counting, it waits for nothing else; before and after, for its gate.
        card.at_least(
            format!("gil of {}'s waits", own.name),
            percent("gil"),
            95.0,
            "%",
        );
        // More than all of them only as far as the kernel's own count of queueing is off.
        card.at_most(
            format!("the same of {}", own.name),
            percent("gil"),
            115.0,
            "%",
        );
        card.at_most(
            format!("lock of {}'s waits", own.name),
            percent("lock"),
            5.0,
            "%",
        );
    }
    Ok(card)
}

/// Classes and enclosing functions are part of a name from 3.11 on only.
fn plain(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Rows: of the time under each function that wrote its callers down, how much shows exactly
/// those.
/// `plain`: the part of a name that the program wrote down.
pub(super) fn chains(truth: &Truth, lines: &[Line], plain: fn(&str) -> &str) -> Scorecard {
    let mut card = Scorecard::default();
    let known: BTreeSet<&str> = truth
        .chains
        .iter()
        .flat_map(|c| c.frames.iter().map(|f| f.name.as_str()))
        .collect();
    for chain in &truth.chains {
        let thread = truth.threads.iter().find(|t| t.tid == chain.tid);
        let name = thread.map_or("", |t| t.name.as_str());
        let expected: Vec<&str> = chain.frames.iter().rev().map(|f| f.name.as_str()).collect();
        let (mut all, mut right, mut example) = (0, 0, String::new());
        for line in lines.iter().filter(|line| line.thread == name) {
            let names = line.frames.iter().map(|f| plain(&f.name));
            let shown: Vec<&str> = names.filter(|n| known.contains(n)).collect();
            let Some(at) = shown.iter().position(|n| *n == chain.leaf) else {
                continue;
            };
            all += line.ns;
            if shown[..=at] == expected {
                right += line.ns;
            } else if example.is_empty() {
                example = format!(": {}", shown[..=at].join(";"));
            }
        }
        card.at_least(
            format!("{} under its callers{example}", chain.leaf),
            100.0 * right as f64 / all as f64,
            99.0,
            "%",
        );
    }
    card
}

pub(super) fn python_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let units = format!("{}", length.seconds * 1500.0);
    for interpreter in interpreters()? {
        let (mut bare, mut recorded) = (f64::INFINITY, f64::INFINITY);
        let mut live = Vec::new();
        for _ in 0..length.repeats.clamp(3, 8) {
            let mut program = interpreter.start(&["fixed", "--units", &units])?;
            program.release()?;
            bare = bare.min(program.truth(LIMIT)?.extra("cpu_ns")?);
            program.finish()?;
            let flags = ["fixed", "--units", &units];
            let run = measure(&interpreter, tool, &flags, &Options::at(99))?;
            recorded = recorded.min(run.truth.extra("cpu_ns")?);
            live.push(run.recorded.took.to_live.as_secs_f64());
        }
        live.sort_by(f64::total_cmp);
        let version = &interpreter.version;
        card.at_most(
            format!("{version} slowdown, best against best"),
            100.0 * (recorded / bare - 1.0),
            1.0,
            "%",
        );
        card.at_most(
            format!("{version} attached until recording, median"),
            live[live.len() / 2],
            1.5,
            "s",
        );
    }
    Ok(card)
}
