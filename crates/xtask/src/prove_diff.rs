//! The long proof of `wallscope diff`, with live recordings: one program against itself, one function
//! made dearer, and whether the intervals hold what the programs say of themselves.
//!
//! It needs a quiet machine and about an hour and a quarter at full length. The short form, by
//! resampling, is `crates/report/tests/compare.rs`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use wallscope_testkit::tool::{Options, Recorded};
use wallscope_testkit::{Program, Tool, Truth};

use crate::{Outcome, machine, release_tool};

/// How much to do.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// Pairs of one program against itself.
    pub pairs: usize,
    /// Trials of five runs against five.
    pub trials: usize,
    /// Seconds of a recording.
    pub seconds: u32,
}

impl Length {
    /// For figures to be believed.
    pub const FULL: Length = Length {
        pairs: 100,
        trials: 20,
        seconds: 10,
    };
    /// To see that it works.
    pub const QUICK: Length = Length {
        pairs: 4,
        trials: 1,
        seconds: 2,
    };
}

/// Runs a side has in a trial.
const RUNS: usize = 5;

/// Injected into one step, µs: 5 % of the time of one pass of the program.
const DEARER: &str = "55";

/// A run of the program `inject`, and what it says of itself.
struct Run {
    recorded: Recorded,
    truth: Truth,
}

impl Run {
    fn of(tool: &Tool, length: Length, delay: &str) -> Outcome<Run> {
        let seconds = length.seconds.to_string();
        let flags = [
            "--in",
            "step_store",
            "--kind",
            "cpu",
            "--delay-us",
            delay,
            "--seconds",
            &seconds,
        ];
        let mut program = Program::start("inject", &flags)?;
        let recorder = tool.attach(program.pids(), &Options::at(99))?;
        program.release()?;
        let truth = program.truth(Duration::from_secs(120))?;
        let recorded = recorder.stop()?;
        program.finish()?;
        Ok(Run { recorded, truth })
    }

    /// Passes that the program made.
    fn passes(&self) -> f64 {
        self.truth.threads.iter().map(|t| t.operations as f64).sum()
    }

    /// On-CPU time of a step in each pass, ns.
    fn step(&self, name: &str) -> f64 {
        let of = self.truth.functions.iter().filter(|f| f.name == name);
        of.map(|f| f.on_cpu_ns as f64).sum::<f64>() / self.passes()
    }
}

fn diff(tool: &Tool, base: &[PathBuf], new: &[PathBuf], options: &[String]) -> Outcome<Value> {
    let out = Command::new(tool.path())
        .arg("diff")
        .args(options)
        .arg("--json")
        .args(base)
        .arg("--")
        .args(new)
        .output()?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).into_owned().into());
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

fn changed(comparison: &Value) -> Vec<String> {
    let functions = comparison["functions"].as_array();
    (functions.into_iter().flatten())
        .filter(|f| f["changed"] == true)
        .map(|f| {
            format!(
                "{} {}",
                f["name"].as_str().unwrap_or(""),
                f["what"].as_str().unwrap_or("")
            )
        })
        .collect()
}

/// One program against itself, in pairs of recordings one after the other.
fn same(tool: &Tool, length: Length) -> Outcome<bool> {
    let flags = ["--threads", "1", "--until-line"];
    let mut program = Program::start("mix", &flags)?;
    program.release()?;
    let mut wrong = 0;
    for pair in 0..length.pairs {
        let mut files = Vec::new();
        for _ in 0..2 {
            let mut options = Options::at(99);
            options.more = vec!["-d".into(), length.seconds.to_string()];
            files.push(tool.attach(program.pids(), &options)?.ends_with(0)?);
        }
        let comparison = diff(tool, &[files[0].path()], &[files[1].path()], &[])?;
        let changed = changed(&comparison);
        if !changed.is_empty() {
            wrong += 1;
            println!("  pair {pair}: {}", changed.join("; "));
        }
    }
    let allowed = length.pairs / 20;
    println!(
        "same program: changes reported in {wrong} of {} pairs (allowed {allowed})",
        length.pairs
    );
    Ok(wrong <= allowed)
}

/// One function dearer, five runs against five, in turn.
fn dearer(tool: &Tool, length: Length) -> Outcome<bool> {
    let (mut found, mut held, mut cases) = (0, 0, 0);
    for trial in 0..length.trials {
        let mut runs: BTreeMap<&str, Vec<Run>> = BTreeMap::new();
        for _ in 0..RUNS {
            for (side, delay) in [("base", "0"), ("new", DEARER)] {
                runs.entry(side)
                    .or_default()
                    .push(Run::of(tool, length, delay)?);
            }
        }
        let files =
            |side: &str| -> Vec<PathBuf> { runs[side].iter().map(|r| r.recorded.path()).collect() };
        let counts = |side: &str| -> String {
            let counts: Vec<String> = runs[side].iter().map(|r| r.passes().to_string()).collect();
            counts.join(",")
        };
        let options = [
            "--per",
            "request",
            "--by",
            "total",
            "--base-requests",
            &counts("base"),
            "--new-requests",
            &counts("new"),
        ]
        .map(String::from);
        let comparison = diff(tool, &files("base"), &files("new"), &options)?;
        let changed = changed(&comparison);
        let named = changed
            .iter()
            .any(|c| c.starts_with("step_store computes more"));
        found += usize::from(named);
        let mean = |side: &str, step: &str| -> f64 {
            runs[side].iter().map(|r| r.step(step)).sum::<f64>() / RUNS as f64
        };
        let mut says = Vec::new();
        for step in ["step_parse", "step_store"] {
            let want = mean("new", step) - mean("base", step);
            let functions = comparison["functions"].as_array();
            let row = functions.into_iter().flatten().find(|f| f["name"] == step);
            let Some(d) = row.map(|f| &f["states"]["on_cpu"]) else {
                continue;
            };
            let (low, high) = (
                d["low"].as_f64().unwrap_or(0.0),
                d["high"].as_f64().unwrap_or(0.0),
            );
            cases += 1;
            held += usize::from(low <= want && want <= high);
            says.push(format!("{step} {low:.0}..{high:.0} ns, truth {want:.0}"));
        }
        println!(
            "  trial {trial}: {} ({})",
            changed.join("; "),
            says.join("; ")
        );
    }
    println!(
        "one step 5 % dearer: found in {found} of {} trials",
        length.trials
    );
    println!("intervals that hold the program's own truth: {held} of {cases}");
    Ok(found * 100 >= length.trials * 95 && held * 10 >= cases * 9)
}

/// The task. Returns whether all held.
///
/// # Errors
/// When it cannot measure here.
pub fn run(length: Length) -> Outcome<bool> {
    let tool = release_tool()?;
    println!(
        "{}, {}, load {:.2}",
        machine::date(),
        machine::describe(),
        machine::load()
    );
    println!(
        "binary: {}",
        Path::new(tool.path())
            .file_name()
            .unwrap_or_default()
            .display()
    );
    let same = same(&tool, length)?;
    let dearer = dearer(&tool, length)?;
    Ok(same && dearer)
}
