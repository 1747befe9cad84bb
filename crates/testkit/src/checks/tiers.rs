//! Shares of named functions where eBPF is not allowed, computing and waiting alike.
//!
//! Waiting for a CPU has no stacks of its own there, so that they hold on a quiet machine only.

use crate::score::share::{self, Nearness};
use crate::tool::Options;
use crate::{Error, Scorecard, Tool};

use super::Length;

/// `--backend perf`: running stacks by samples, waiting ones by looks.
pub(super) fn perf(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let promised = Nearness {
        points: 2.0,
        hz: 99,
    };
    shares(tool, length, "perf", &[], promised)
}

/// `--backend proc --allow-stop`: without stops, running threads would have no stacks at all.
pub(super) fn proc(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let promised = Nearness {
        points: 3.0,
        hz: 99,
    };
    shares(tool, length, "proc", &["--allow-stop"], promised)
}

fn shares(
    tool: &Tool,
    length: Length,
    backend: &str,
    more: &[&str],
    promised: Nearness,
) -> Result<Scorecard, Error> {
    // Twice as long as others: what is promised is stated so.
    let seconds = format!("{}", length.seconds * 2.0);
    let options = Options {
        more: [&["--backend", backend], more]
            .concat()
            .into_iter()
            .map(String::from)
            .collect(),
        ..Options::at(99)
    };
    let names = if length.seconds < Length::FULL.seconds {
        &["mix"][..]
    } else {
        &["mix", "convoy"]
    };
    let mut card = Scorecard::default();
    for name in names {
        let run = tool.measure(name, &["--seconds", &seconds], &options)?;
        let rows = share::functions(&run.truth, &run.stacks, "wall", promised);
        card.extend(backend, rows);
        let sums = share::sums(&run.report, &run.stacks, &run.truth);
        card.extend(backend, sums);
    }
    Ok(card)
}
