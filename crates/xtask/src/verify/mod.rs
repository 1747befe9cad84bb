//! The long, full check: every experiment of the testkit at full length, every cost, held to what
//! the project promises, and written down whether it holds or not.
//!
//! `promise` is the table of promises with their judgement, `bias` adds the mean signed error of each
//! tier, `page` writes `docs/verification.md`. Nothing is repeated until it passes. An experiment is made once
//! more, whatever came out, if a disturbance was measured (`wallscope_testkit::disturbance`); the second time
//! alone counts, and the page gives both figures. `parts` keeps each part as it is made, so that a run that was
//! interrupted can be continued.
//!
//! It does not cover real programs, which need to be installed and set up.

mod bias;
mod page;
mod parts;
pub mod promise;

pub use parts::Earlier;

use std::fs;
use std::time::Instant;

use wallscope_testkit::checks::{self, Check, Influence, Length};
use wallscope_testkit::disturbance::{Disturbance, Meter};
use wallscope_testkit::{Error, Tool, known};

use crate::bench::{self, Effort, Measured};
use crate::{Outcome, machine, release_tool, root};
use parts::Parts;
use promise::{Experiment, PROMISES};

/// Makes an experiment, and once more if other programs disturbed it.
fn make(check: &Check, tool: &Tool, length: Length) -> Experiment {
    let first = make_once(check, tool, length);
    if !first.disturbances.iter().any(Disturbance::is_telling) {
        return first;
    }
    let mut second = make_once(check, tool, length);
    second.disturbances.splice(0..0, first.disturbances);
    second
}

fn make_once(check: &Check, tool: &Tool, length: Length) -> Experiment {
    let meter = Meter::start();
    let outcome = match (check.run)(tool, length) {
        Ok(mut card) => {
            known::allow(check.name, &mut card);
            Ok(card)
        }
        Err(Error::CannotRunHere(why)) => Err(format!("cannot run here: {why}")),
        Err(error) => Err(error.to_string()),
    };
    Experiment {
        name: check.name,
        about: check.about,
        outcome,
        disturbances: vec![meter.read()],
    }
}

fn named(name: &str) -> Outcome<&'static Check> {
    checks::by_name(name).ok_or_else(|| {
        let all: Vec<&str> = checks::ALL.iter().map(|check| check.name).collect();
        format!("no experiment {name}; there are: {}", all.join(", ")).into()
    })
}

/// Length of the experiments and of the benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// To see that it works.
    Quick,
    /// The lengths that the promised numbers are stated for.
    Full,
}

impl Extent {
    fn length(self) -> Length {
        match self {
            Extent::Quick => Length::SHORT,
            Extent::Full => Length::FULL,
        }
    }

    fn effort(self) -> Effort {
        match self {
            Extent::Quick => Effort::QUICK,
            Extent::Full => Effort::FULL,
        }
    }
}

/// Use of the page that a verification makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// It replaces `docs/verification.md`; its parts, `docs/verification.jsonl`.
    Written,
    /// It is only printed.
    Printed,
}

/// One experiment alone. Returns whether all its rows hold.
///
/// # Errors
/// When there is none of that name, or it cannot be made.
pub fn only(name: &str, extent: Extent) -> Outcome<bool> {
    let check = named(name)?;
    let length = extent.length();
    println!("{}, load {:.2}\n", machine::describe(), machine::load());
    let experiment = make_once(check, &release_tool()?, length);
    let card = experiment.outcome?;
    println!("{card}");
    for disturbance in experiment.disturbances {
        println!("disturbance: {disturbance}");
    }
    Ok(card.passed())
}

/// The benchmark of a verification.
fn benchmark(parts: &mut Parts, tool: &Tool, effort: Effort) -> Outcome<Measured> {
    let mut all = Measured::default();
    for part in bench::PARTS {
        all.extend(match parts.benchmark(part) {
            Some(measured) => measured,
            None => {
                let begun = Instant::now();
                let measured = bench::measure(tool, effort, part)?;
                parts.keep_benchmark(part, &measured, begun.elapsed())?;
                measured
            }
        });
    }
    Ok(all)
}

/// The experiments of a verification, in their order. Timing is left out: the benchmark measures it, against peers and
/// over more rounds.
fn experiments(
    parts: &mut Parts,
    (tool, length): (&Tool, Length),
    without: Option<&str>,
) -> Outcome<Vec<Experiment>> {
    let mut all = Vec::new();
    for check in checks::ALL.iter().filter(|c| c.kind != Influence::Timing) {
        let experiment = if without == Some(check.name) {
            Experiment::left_out(check)
        } else if let Some(made) = parts.experiment(check) {
            made
        } else {
            let begun = Instant::now();
            let made = make(check, tool, length);
            parts.keep_experiment(&made, begun.elapsed())?;
            made
        };
        println!("{}", page::experiment_line(&experiment));
        all.push(experiment);
    }
    all.push(bias::experiment(&all));
    Ok(all)
}

/// The task, `without` one experiment of that name: promises that need it count as not measured. Parts of an
/// interrupted run of this binary are made anew, or taken. Returns whether every promise held.
///
/// # Errors
/// When it cannot measure here at all, or there is no experiment of that name.
pub fn run(extent: Extent, page: Page, earlier: Earlier, without: Option<&str>) -> Outcome<bool> {
    let without = without.map(named).transpose()?.map(|check| check.name);
    let (length, effort) = (extent.length(), extent.effort());
    let tool = release_tool()?;
    let meter = Meter::start();
    let mut header = page::Header {
        date: machine::date(),
        machine: machine::describe(),
        load: machine::load(),
    };
    let path = root().join(match page {
        Page::Written => "docs/verification.jsonl",
        Page::Printed => "target/verify/parts.jsonl",
    });
    let mut parts = Parts::open(&path, earlier, (tool.path(), length.seconds, &header))?;
    header.date = parts.dates();
    header.machine = parts.machines();
    println!(
        "{}, {}, load {:.2}\n",
        header.date, header.machine, header.load
    );

    let measured = benchmark(&mut parts, &tool, effort)?;
    let experiments = experiments(&mut parts, (&tool, length), without)?;
    let judged: Vec<promise::Judged> = PROMISES
        .iter()
        .map(|promise| promise.judge(&experiments, &measured))
        .collect();
    let text = page::write(
        &header,
        (parts.took, meter.read()),
        &page::Results {
            length,
            judged: &judged,
            experiments: &experiments,
            measured: &measured,
        },
    );
    println!("\n{}", page::promises(&judged));
    if page == Page::Written {
        let path = root().join("docs/verification.md");
        fs::write(&path, text)?;
        println!("written: docs/verification.md");
    }
    Ok(judged.iter().all(|judged| judged.pass))
}
