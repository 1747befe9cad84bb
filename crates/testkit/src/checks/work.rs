//! Recordings of programs with a fixed amount of work.

use std::time::Duration;

use super::length::Length;
use crate::tool::{Options, Run};
use crate::{Error, Program, Scorecard, Tool};

/// Time limit for the work of a program of managed code.
pub(super) const LIMIT: Duration = Duration::from_secs(120);

/// Lowest and highest number of rounds of fixed work, each with and without a recording.
const ROUNDS: [u32; 2] = [3, 8];

/// Records the whole work of a program that waits to be released.
pub(super) fn measure(mut program: Program, tool: &Tool, options: &Options) -> Result<Run, Error> {
    let recorder = tool.attach(program.pids(), options)?;
    program.release()?;
    let truth = program.truth(LIMIT)?;
    let recorded = recorder.stop()?;
    program.finish()?;
    Run::read(truth, recorded)
}

/// Rows: slowdown of a fixed amount of computing by a recording at 99 Hz, and the delay until it is attached.
/// `start` starts the program, `what` is the runtime.
pub(super) fn fixed_work(
    what: &str,
    tool: &Tool,
    length: Length,
    start: impl Fn() -> Result<Program, Error>,
) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (mut bare, mut recorded) = (f64::INFINITY, f64::INFINITY);
    let mut live = Vec::new();
    for _ in 0..length.repeats.clamp(ROUNDS[0], ROUNDS[1]) {
        let mut program = start()?;
        program.release()?;
        bare = bare.min(program.truth(LIMIT)?.extra("cpu_ns")?);
        program.finish()?;
        let run = measure(start()?, tool, &Options::at(99))?;
        recorded = recorded.min(run.truth.extra("cpu_ns")?);
        live.push(run.recorded.took.to_live.as_secs_f64());
    }
    live.sort_by(f64::total_cmp);
    card.at_most(
        format!("slowdown of {what}, best against best"),
        100.0 * (recorded / bare - 1.0),
        1.0,
        "%",
    );
    card.at_most(
        format!("attached until recording, {what}, median"),
        live[live.len() / 2],
        1.5,
        "s",
    );
    Ok(card)
}
