//! The long proof of `wallscope diff`, with live recordings: one program against itself, one function made
//! dearer, and the coverage of the intervals against the programs' own figures.
//!
//! Trials of five runs against five, and pairs of runs of another program, are made on two CPUs at a time,
//! each with its recorders on a CPU of its own (`lanes`). A trial's runs serve twice: base against
//! new, where something changed, and side by side within the base and within the new ones, where
//! nothing did. No recording is in two pairs, and none in two trials, so that their outcomes are
//! independent of each other. A second figure, of trials put together at random from all runs, is
//! printed beside: it says more of how often the change is found than twenty trials can.
//!
//! It needs a quiet machine and less than half an hour at full length. The short form, by resampling,
//! is `crates/render/tests/compare.rs`.

mod design;
mod lanes;
mod runs;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;
use wallscope_testkit::Tool;

pub use design::Length;

use crate::{Outcome, machine, release_tool};
use design::{DEARER, RUNS, SAME};
use lanes::Lanes;
use runs::{Pair, Run, Trial};

/// Result of `wallscope diff`.
struct Comparison(Value);

impl Comparison {
    fn of(tool: &Tool, base: &[PathBuf], new: &[PathBuf], options: &[&str]) -> Outcome<Comparison> {
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
        Ok(Comparison(serde_json::from_slice(&out.stdout)?))
    }

    fn functions(&self) -> impl Iterator<Item = &Value> {
        self.0["functions"].as_array().into_iter().flatten()
    }

    /// Its report in words.
    fn changed(&self) -> Vec<String> {
        let text = |f: &Value, key: &str| f[key].as_str().unwrap_or("").to_string();
        self.functions()
            .filter(|f| f["changed"] == true)
            .map(|f| format!("{} {}", text(f, "name"), text(f, "what")))
            .collect()
    }

    fn found(&self) -> bool {
        let named = format!("{DEARER} computes more");
        self.changed().iter().any(|c| c.starts_with(&named))
    }

    /// The interval of a function's on-CPU time.
    fn interval(&self, name: &str) -> Option<(f64, f64)> {
        let row = self.functions().find(|f| f["name"] == name)?;
        let d = &row["states"]["on_cpu"];
        Some((d["low"].as_f64()?, d["high"].as_f64()?))
    }
}

/// Base against new, by request: a pass of the program.
fn by_pass(tool: &Tool, base: &[&Run], new: &[&Run]) -> Outcome<Comparison> {
    let files = |side: &[&Run]| -> Vec<PathBuf> { side.iter().map(|r| r.path()).collect() };
    let counts = |side: &[&Run]| {
        let counts: Vec<String> = side.iter().map(|r| r.passes().to_string()).collect();
        counts.join(",")
    };
    let (base_counts, new_counts) = (counts(base), counts(new));
    let options = [
        "--per",
        "request",
        "--by",
        "total",
        "--base-requests",
        &base_counts,
        "--new-requests",
        &new_counts,
    ];
    Comparison::of(tool, &files(base), &files(new), &options)
}

/// Results of all experiments.
#[derive(Default)]
struct Tally {
    pairs: usize,
    /// Pairs in which anything was reported.
    wrong: usize,
    found: usize,
    cases: usize,
    held: usize,
}

impl Tally {
    fn add(&mut self, other: &Tally) {
        self.pairs += other.pairs;
        self.wrong += other.wrong;
        self.found += other.found;
        self.cases += other.cases;
        self.held += other.held;
    }

    /// One program against itself; prints the report.
    fn pair(&mut self, tool: &Tool, a: PathBuf, b: PathBuf) -> Outcome<Vec<String>> {
        let changed = Comparison::of(tool, &[a], &[b], &[])?.changed();
        self.pairs += 1;
        self.wrong += usize::from(!changed.is_empty());
        Ok(changed)
    }

    /// One trial; prints its result.
    fn trial(&mut self, tool: &Tool, trial: &Trial) -> Outcome<String> {
        let [base, new] = trial.sides();
        let comparison = by_pass(tool, &base, &new)?;
        self.found += usize::from(comparison.found());
        let mut says = match comparison.changed() {
            none if none.is_empty() => "nothing reported".to_string(),
            changed => changed.join("; "),
        };
        let mean = |side: &[&Run], step: &str| -> f64 {
            side.iter().map(|r| r.step(step)).sum::<f64>() / side.len() as f64
        };
        for step in [SAME, DEARER] {
            let want = mean(&new, step) - mean(&base, step);
            if let Some((low, high)) = comparison.interval(step) {
                self.cases += 1;
                self.held += usize::from(low <= want && want <= high);
                write!(says, "; {step} {low:.0}..{high:.0} ns, truth {want:.0}")?;
            }
        }
        for side in [base, new] {
            for pair in side.chunks_exact(2) {
                let changed = self.pair(tool, pair[0].path(), pair[1].path())?;
                if !changed.is_empty() {
                    write!(says, "; in a pair of equals: {}", changed.join("; "))?;
                }
            }
        }
        Ok(says)
    }
}

/// Number of trials that find the change, put together from all runs at random.
fn drawn(tool: &Tool, trials: &[Trial], count: usize) -> Outcome<usize> {
    let [mut base, mut new] = [Vec::new(), Vec::new()];
    for trial in trials {
        let sides = trial.sides();
        base.extend(&sides[0]);
        new.extend(&sides[1]);
    }
    let mut seed = 1u64;
    let mut found = 0;
    for _ in 0..count {
        for side in [&mut base, &mut new] {
            // The first runs of a shuffled side.
            for i in 0..RUNS {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
                let at = i + (seed >> 33) as usize % (side.len() - i);
                side.swap(i, at);
            }
        }
        found += usize::from(by_pass(tool, &base[..RUNS], &new[..RUNS])?.found());
    }
    Ok(found)
}

/// One experiment, by its number.
enum Job {
    Trial(usize),
    Pair(usize),
}

/// Result of one experiment.
struct Done {
    tally: Tally,
    says: String,
    /// The runs, of a trial.
    trial: Option<Trial>,
}

impl Job {
    /// Makes the recordings and compares them.
    fn done(&self, tool: &Tool, length: Length) -> Outcome<Done> {
        let mut tally = Tally::default();
        let (says, trial) = match self {
            Job::Trial(i) => {
                let trial = Trial::made(tool, length)?;
                let says = tally.trial(tool, &trial)?;
                (format!("trial {}: {says}", i + 1), Some(trial))
            }
            Job::Pair(i) => {
                let pair = Pair::made(tool, length)?;
                let [a, b] = pair.paths();
                let says = match tally.pair(tool, a, b)? {
                    none if none.is_empty() => "nothing reported".to_string(),
                    changed => changed.join("; "),
                };
                (format!("pair {}: {says}", i + 1), None)
            }
        };
        Ok(Done { tally, says, trial })
    }
}

/// The task. Returns whether all held.
///
/// # Errors
/// When it cannot measure here.
pub fn run(length: Length) -> Outcome<bool> {
    let tool = release_tool()?;
    let lanes = Lanes::here();
    println!(
        "{}, {}, load {:.2}",
        machine::date(),
        machine::describe(),
        machine::load()
    );
    let seconds = (length.trials * 2 * RUNS + length.pairs * 2) as f64
        * (f64::from(length.seconds) + 0.8)
        / lanes.count() as f64;
    println!(
        "{} trials of {RUNS} runs against {RUNS}, {} pairs, of {} s, {} at a time: about {:.0} minutes",
        length.trials,
        length.pairs,
        length.seconds,
        lanes.count(),
        seconds / 60.0
    );
    let began = Instant::now();
    // The long ones first, so that no lane is left alone for long.
    let trials = (0..length.trials).map(Job::Trial);
    let jobs: Vec<Job> = trials.chain((0..length.pairs).map(Job::Pair)).collect();
    let mut tally = Tally::default();
    let mut kept = Vec::new();
    lanes.each(
        jobs,
        |job| job.done(&tool, length),
        |done| {
            let minutes = began.elapsed().as_secs_f64() / 60.0;
            println!("{minutes:5.1} min  {}", done.says);
            tally.add(&done.tally);
            kept.extend(done.trial);
        },
    )?;
    let drawn = drawn(&tool, &kept, length.drawn)?;
    Ok(table(&tally, length, drawn))
}

/// Prints the table; returns whether all held.
fn table(tally: &Tally, length: Length, drawn: usize) -> bool {
    let share = |part: usize, of: usize| format!("{part} of {of}");
    let most = tally.pairs / 20;
    let rows = [
        (
            "pairs of equals in which any change is reported".to_string(),
            format!("at most {most}"),
            share(tally.wrong, tally.pairs),
            tally.wrong <= most,
        ),
        (
            format!("one function {} % of all time dearer: found", length.dearer),
            "at least 95 %".to_string(),
            share(tally.found, length.trials),
            tally.found * 100 >= length.trials * 95,
        ),
        (
            "the same, runs of all trials drawn anew".to_string(),
            "at least 95 %".to_string(),
            share(drawn, length.drawn),
            drawn * 100 >= length.drawn * 95,
        ),
        (
            "intervals that hold the program's own figure".to_string(),
            "at least 90 %".to_string(),
            share(tally.held, tally.cases),
            tally.held * 10 >= tally.cases * 9,
        ),
    ];
    println!("\n| what | required | measured | holds |\n|---|---|---|---|");
    for (what, required, measured, holds) in &rows {
        let holds = if *holds { "yes" } else { "**no**" };
        println!("| {what} | {required} | {measured} | {holds} |");
    }
    rows.iter().all(|(.., holds)| *holds)
}
