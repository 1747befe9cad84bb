//! The long, full check: every experiment of the testkit at full length, every cost, held to what
//! the project promises, and written down whether it holds or not.
//!
//! `promise` is the table of what is promised and how it is judged; `page` writes it as
//! `docs/verification.md`. Nothing is repeated until it passes: one run, one page. What is repeated
//! is an experiment during which the host of a virtual machine took its CPUs away for more than
//! [`MOST_STOLEN`], whatever came out; the page says how much and how often.
//!
//! It does not cover real programs, which need to be installed and set up.

mod page;
pub mod promise;

use std::fs;
use std::time::Instant;

use wallscope_testkit::calm::{CpuTime, MOST_STOLEN};
use wallscope_testkit::checks::{self, Check, Kind, Length};
use wallscope_testkit::{Error, Tool};

use crate::bench::{self, Effort};
use crate::{Outcome, machine, release_tool, root};
use promise::{Experiment, PROMISES};

/// How often an experiment is made at most.
const MOST_TIMES: usize = 3;

fn make(check: &Check, tool: &Tool, length: Length) -> Experiment {
    let mut stolen = Vec::new();
    loop {
        let before = CpuTime::now();
        let mut experiment = make_once(check, tool, length);
        stolen.push(before.stolen_since());
        if stolen.len() == MOST_TIMES || stolen.last().is_none_or(|share| *share <= MOST_STOLEN) {
            experiment.stolen = stolen;
            return experiment;
        }
    }
}

fn make_once(check: &Check, tool: &Tool, length: Length) -> Experiment {
    let outcome = match (check.run)(tool, length) {
        Ok(card) => Ok(card),
        Err(Error::CannotRunHere(why)) => Err(format!("cannot run here: {why}")),
        Err(error) => Err(error.to_string()),
    };
    Experiment {
        name: check.name,
        about: check.about,
        outcome,
        stolen: Vec::new(),
    }
}

fn named(name: &str) -> Outcome<&'static Check> {
    checks::by_name(name).ok_or_else(|| {
        let all: Vec<&str> = checks::ALL.iter().map(|check| check.name).collect();
        format!("no experiment {name}; there are: {}", all.join(", ")).into()
    })
}

/// One experiment alone. Returns whether all its rows hold.
///
/// # Errors
/// When there is none of that name, or it cannot be made.
pub fn only(name: &str, quick: bool) -> Outcome<bool> {
    let check = named(name)?;
    let length = if quick { Length::SHORT } else { Length::FULL };
    println!("{}, load {:.2}\n", machine::describe(), machine::load());
    let card = make_once(check, &release_tool()?, length).outcome?;
    println!("{card}");
    Ok(card.passed())
}

/// The task, `without` one experiment of that name: what needs it counts as not measured. Returns
/// whether every promise held.
///
/// # Errors
/// When it cannot measure here at all, or there is no experiment of that name.
pub fn run(quick: bool, write: bool, without: Option<&str>) -> Outcome<bool> {
    let without = without.map(named).transpose()?.map(|check| check.name);
    let (length, effort) = if quick {
        (Length::SHORT, Effort::QUICK)
    } else {
        (Length::FULL, Effort::FULL)
    };
    let tool = release_tool()?;
    let (begun, cpu_time) = (Instant::now(), CpuTime::now());
    let header = page::Header {
        date: machine::date(),
        machine: machine::describe(),
        load: machine::load(),
    };
    println!(
        "{}, {}, load {:.2}\n",
        header.date, header.machine, header.load
    );

    let measured = bench::measure(&tool, effort)?;
    let mut experiments = Vec::new();
    // What costs is measured by the benchmark above, against peers and over more rounds.
    for check in checks::ALL
        .iter()
        .filter(|check| check.kind != Kind::Timing)
    {
        let experiment = if without == Some(check.name) {
            Experiment::left_out(check)
        } else {
            make(check, &tool, length)
        };
        println!("{}", page::experiment_line(&experiment));
        experiments.push(experiment);
    }
    let judged: Vec<promise::Judged> = PROMISES
        .iter()
        .map(|promise| promise.judge(&experiments, &measured))
        .collect();
    let text = page::write(
        &header,
        (begun.elapsed(), cpu_time.stolen_since()),
        length,
        &judged,
        &experiments,
        &measured,
    );
    println!("\n{}", page::promises(&judged));
    if write {
        let path = root().join("docs/verification.md");
        fs::write(&path, text)?;
        println!("written: docs/verification.md");
    }
    Ok(judged.iter().all(|judged| judged.pass))
}
