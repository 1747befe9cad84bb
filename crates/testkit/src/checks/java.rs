//! Java: methods and stacks, interpreted and compiled, on every VM that is found.

use std::time::Duration;

use crate::java::{Java, installed};
use crate::score::share::{self, Nearness};
use crate::score::stacks;
use crate::tool::{Options, Run};
use crate::truth::FunctionTruth;
use crate::{Error, Scorecard, Tool};

use super::{Length, python};

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 97.0;
const LIMIT: Duration = Duration::from_secs(120);

fn measure(java: &Java, tool: &Tool, flags: &[&str], options: &Options) -> Result<Run, Error> {
    let mut program = java.start(flags)?;
    let recorder = tool.attach(program.pids(), options)?;
    program.release()?;
    let truth = program.truth(LIMIT)?;
    let recorded = recorder.stop()?;
    program.finish()?;
    Run::read(truth, recorded)
}

pub(super) fn java(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let short = length.seconds < 10.0;
    let seconds = format!("{}", if short { 2.0 } else { length.seconds });
    // The full length is the one that the promise is stated for: at 99 Hz.
    let hz = if short { 499 } else { 99 };
    // What is measured is whether stacks are right. On a busy machine they cost more, and slowing
    // down for that would leave few of them.
    let options = Options {
        hz,
        more: vec!["--max-overhead".into(), "50".into()],
    };
    for java in installed()?.into_iter().take(2) {
        let run = measure(&java, tool, &["mix", "--seconds", &seconds], &options)?;
        for mut row in judge(&run, hz).rows {
            row.what = format!("{} {}", java.version, row.what);
            card.rows.push(row);
        }
    }
    Ok(card)
}

fn judge(run: &Run, hz: u32) -> Scorecard {
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
        .extend(python::chains(&run.truth, &run.stacks, |name| name).rows);
    // These threads wait for nothing else than what they are named after, but for their gate before
    // and after. The first sleep of a thread has been counted by the time that it is known for one.
    for own in &run.truth.threads {
        let reason = match own.name.as_str() {
            "java-hold" | "java-keep" => "timer",
            "java-want" | "java-take" => "lock",
            _ => continue,
        };
        let measured = |f: &&FunctionTruth| f.tid == own.tid && f.reason == reason;
        let of_it: u64 = run
            .truth
            .functions
            .iter()
            .filter(measured)
            .map(FunctionTruth::blocked_ns)
            .sum();
        let thread = run.report.thread(own.pid, own.tid).cloned();
        let blocked = thread.unwrap_or_default().blocked;
        let seen = blocked.get(reason).copied().unwrap_or(0);
        card.at_least(
            format!("{reason} of {}'s waits", own.name),
            100.0 * seen as f64 / of_it as f64,
            90.0,
            "%",
        );
    }
    card
}

pub(super) fn java_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let units = format!("{}", length.seconds * 4000.0);
    for java in installed()? {
        let (mut bare, mut recorded) = (f64::INFINITY, f64::INFINITY);
        let mut live = Vec::new();
        for _ in 0..length.repeats.clamp(3, 8) {
            let flags = ["fixed", "--units", &units];
            let mut program = java.start(&flags)?;
            program.release()?;
            bare = bare.min(program.truth(LIMIT)?.extra("cpu_ns")?);
            program.finish()?;
            let run = measure(&java, tool, &flags, &Options::at(99))?;
            recorded = recorded.min(run.truth.extra("cpu_ns")?);
            live.push(run.recorded.took.to_live.as_secs_f64());
        }
        live.sort_by(f64::total_cmp);
        let version = &java.version;
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
