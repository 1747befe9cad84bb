//! Cost of probes to a process, beside the prediction before they are placed: one function is entered and left
//! 10,000 times a second. Its thread's CPU time per call is compared with that of a twin without probes. Both
//! hold the cost of hooks at switches.

use std::process::Command;
use std::time::Duration;

use wallscope_testkit::probing::Prober;
use wallscope_testkit::{Error, Program, Tool, program};

use super::effort::Effort;
use super::figure::Figure;
use crate::{Outcome, median};

const LIMIT: Duration = Duration::from_secs(120);
/// Calls a second, as the program paces them.
const RATE: f64 = 10_000.0;

/// CPU time that probes added to the thread per call, ns, and wallscope's prediction.
fn once(tool: &Tool, seconds: &str, verb: &str) -> Result<(f64, f64), Error> {
    let mut command = Command::new(program::plain());
    command.args(["--seconds", seconds]);
    let mut program = Program::start_command("plain", command)?;
    let pid = program.pids()[0].to_string();
    let flags = [verb, "calls_paced", "-p", &pid, "--max-overhead", "90"];
    let prober = Prober::start(tool, &flags)?;
    program.release()?;
    let truth = program.truth(LIMIT)?;
    let said = prober.stop()?;
    program.finish()?;
    let cost = truth.extra("paced_ns")? - truth.extra("twin_ns")?;
    let predicted = said["cost"]["probe_ns"].as_f64().unwrap_or(f64::NAN);
    Ok((cost, predicted / truth.extra("paced_calls")?))
}

/// Both verbs' figures.
pub(super) fn all(tool: &Tool, effort: Effort) -> Outcome<Vec<Figure>> {
    let seconds = (effort.seconds / 4.0).max(1.0).to_string();
    let mut figures = Vec::new();
    for (verb, share, factor) in [
        (
            "latency",
            (
                "probe-latency",
                "one function timed, 10,000 calls/s: of one core",
            ),
            (
                "predicted-latency",
                "what timing costs: predicted against measured",
            ),
        ),
        (
            "count",
            (
                "probe-count",
                "one function counted, 10,000 calls/s: of one core",
            ),
            (
                "predicted-count",
                "what counting costs: predicted against measured",
            ),
        ),
    ] {
        let (mut costs, mut predictions) = (Vec::new(), Vec::new());
        // The first of each is for the caches.
        for round in 0..=effort.rounds {
            let (cost, predicted) = once(tool, &seconds, verb)?;
            if round > 0 {
                costs.push(cost);
                predictions.push(predicted);
            }
        }
        let (cost, predicted) = (median(costs), median(predictions));
        let figure = |(key, what), value, unit| Figure {
            key,
            what,
            value,
            unit,
        };
        figures.push(figure(share, cost * RATE / 1e7, "%"));
        let apart = (predicted / cost).max(cost / predicted);
        figures.push(figure(factor, apart, "×"));
        eprintln!("{verb}: {cost:.0} ns a call measured, {predicted:.0} ns predicted");
    }
    Ok(figures)
}
