//! Costs of measuring.
//!
//! `pieces` lets each tool in turn measure a workload that works on, for several rounds, and compares with the
//! unmeasured stretches just before and after. A machine that slows down for a while and differences between two
//! runs of a program change nothing there. `compare` lists workloads and tools. `own` takes wallscope's own
//! figures: delays, CPU, memory; `probes` the costs of single functions. `exchange` times files read and
//! written, `real` measures programs of others; `servers` starts them. `overhead` sets the throughput that
//! servers keep under a recording beside the printed overhead, `always_on` measures the agent. `peer` starts and
//! ends the tools.

mod always_on;
mod compare;
mod comparison;
mod effort;
mod exchange;
mod figure;
mod overhead;
mod own;
mod peer;
mod pieces;
mod probes;
mod real;
mod servers;

pub use comparison::{Comparison, Standing};
pub use effort::Effort;
pub use figure::Figure;
pub use overhead::Watched;

use wallscope_testkit::Tool;

use serde::{Deserialize, Serialize};

use crate::{Outcome, machine, release_tool};

/// Everything measured.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(bound(deserialize = "'de: 'static"))]
pub struct Measured {
    /// Workloads under several tools.
    pub comparisons: Vec<Comparison>,
    /// wallscope's own figures.
    pub figures: Vec<Figure>,
}

impl Measured {
    /// Adds those of another part.
    pub fn extend(&mut self, part: Measured) {
        self.comparisons.extend(part.comparisons);
        self.figures.extend(part.figures);
    }

    /// An own figure by its key; NaN if it was not taken.
    pub fn figure(&self, key: &str) -> f64 {
        let found = self.figures.iter().find(|figure| figure.key == key);
        found.map_or(f64::NAN, |figure| figure.value)
    }

    /// A tool's place in a comparison.
    pub fn standing(&self, workload: &str, peer: &str) -> Option<&Standing> {
        let comparison = self.comparisons.iter().find(|c| c.workload == workload)?;
        comparison.standings.iter().find(|s| s.peer == peer)
    }
}

/// The parts that the benchmark is taken in, in their order: truth programs, then groups of own figures.
pub const PARTS: [&str; 8] = [
    "pingpong", "fixed", "python", "java", "go", "node", "own", "probes",
];

/// Takes the figures of one of [`PARTS`], and prints each.
///
/// # Errors
/// When wallscope or a truth program cannot run here. A peer or a language that cannot is left out, and named.
pub fn measure(tool: &Tool, effort: Effort, part: &str) -> Outcome<Measured> {
    let mut measured = Measured::default();
    match part {
        "own" => measured.figures = own::all(tool, effort)?,
        "probes" => measured.figures = probes::all(tool, effort)?,
        program => measured.comparisons = compare::named(tool, effort, program)?,
    }
    for comparison in &measured.comparisons {
        println!("{comparison}");
    }
    for figure in &measured.figures {
        println!("{figure}");
    }
    Ok(measured)
}

/// Selection of benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// Truth programs, own figures, probes, files.
    Usual,
    /// One truth program, by its name.
    Only(&'a str),
    /// Files read and written.
    Files,
    /// Programs of others.
    Real,
    /// Throughput kept and printed overhead; the load of that name, or all.
    Overhead(Watched, Option<&'a str>),
    /// What an agent costs.
    Agent,
    /// What following waits, tasks and collections costs.
    Blame,
}

/// The task; whether everything holds that is held here.
///
/// # Errors
/// As [`measure`], and when folded stacks differ from another tool's.
pub fn run(effort: Effort, what: Selection<'_>) -> Outcome<bool> {
    let tool = release_tool()?;
    println!("{}, {}", machine::date(), machine::describe());
    println!(
        "load before: {:.2}; more than a few tenths spoils the figures\n",
        machine::load()
    );
    if let Selection::Only(name) = what {
        let found = compare::named(&tool, effort, name)?;
        found.iter().for_each(|comparison| println!("{comparison}"));
        return match found.is_empty() {
            true => Err(format!("no workload {name} could be compared here").into()),
            false => Ok(true),
        };
    }
    if let Selection::Overhead(watched, load) = what {
        return overhead::run(&tool, effort.overhead, watched, load);
    }
    if what == Selection::Agent {
        return always_on::run(&tool, effort.agent.0, effort.agent.1);
    }
    if what == Selection::Blame {
        return overhead::run_blame(
            &tool,
            effort.seconds as u64,
            effort.overhead.most_rounds.min(12),
        );
    }
    if what == Selection::Real {
        return real::all(&tool, effort.seconds, effort.rounds);
    }
    if what == Selection::Usual {
        for part in PARTS {
            measure(&tool, effort, part)?;
        }
    }
    for figure in exchange::all(&tool, effort.files)? {
        println!("{figure}");
    }
    Ok(true)
}
