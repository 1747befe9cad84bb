//! Recordings of the truth programs, with the programs' own figures.

use std::path::PathBuf;
use std::time::Duration;

use wallscope_testkit::tool::{Options, Recorded};
use wallscope_testkit::{Program, Tool, Truth};

use super::design::{DEARER, Length, RUNS};
use crate::Outcome;

/// Time of one pass of the program `inject`, µs, of which a part is injected.
const PASS: u32 = 1100;

/// A run of the program `inject`, and its own figures.
pub(super) struct Run {
    recorded: Recorded,
    truth: Truth,
}

impl Run {
    fn made(tool: &Tool, length: Length, dearer: u32) -> Outcome<Run> {
        let seconds = length.seconds.to_string();
        let delay = (PASS * dearer / 100).to_string();
        let flags = [
            "--in",
            DEARER,
            "--kind",
            "cpu",
            "--delay-us",
            &delay,
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

    /// The recording.
    pub(super) fn path(&self) -> PathBuf {
        self.recorded.path()
    }

    /// Passes that the program made.
    pub(super) fn passes(&self) -> f64 {
        self.truth.threads.iter().map(|t| t.operations as f64).sum()
    }

    /// On-CPU time of a step in each pass, ns.
    pub(super) fn step(&self, name: &str) -> f64 {
        let of = self.truth.functions.iter().filter(|f| f.name == name);
        of.map(|f| f.on_cpu_ns as f64).sum::<f64>() / self.passes()
    }
}

/// Five runs as they were, five with one function dearer.
pub(super) struct Trial {
    base: Vec<Run>,
    new: Vec<Run>,
}

impl Trial {
    /// Makes the runs of both sides in turn.
    pub(super) fn made(tool: &Tool, length: Length) -> Outcome<Trial> {
        let mut trial = Trial {
            base: Vec::new(),
            new: Vec::new(),
        };
        for _ in 0..RUNS {
            trial.base.push(Run::made(tool, length, 0)?);
            trial.new.push(Run::made(tool, length, length.dearer)?);
        }
        Ok(trial)
    }

    /// Base and new runs.
    pub(super) fn sides(&self) -> [Vec<&Run>; 2] {
        [&self.base, &self.new].map(|side| side.iter().collect())
    }
}

/// Two recordings of one running program, one after the other.
pub(super) struct Pair([Recorded; 2]);

impl Pair {
    /// Makes them.
    pub(super) fn made(tool: &Tool, length: Length) -> Outcome<Pair> {
        let mut program = Program::start("mix", &["--threads", "1", "--until-line"])?;
        program.release()?;
        let mut options = Options::at(99);
        options.more = vec!["-d".into(), length.seconds.to_string()];
        let recording =
            || -> Outcome<Recorded> { Ok(tool.attach(program.pids(), &options)?.ends_with(0)?) };
        Ok(Pair([recording()?, recording()?]))
    }

    /// The recordings.
    pub(super) fn paths(&self) -> [PathBuf; 2] {
        [self.0[0].path(), self.0[1].path()]
    }
}
