//! Shares of named functions where eBPF is not allowed, computing and waiting alike.
//!
//! Waiting for a CPU has no stacks of its own there, so that they hold on a quiet machine only.

use crate::score::share;
use crate::tool::Options;
use crate::{Error, Scorecard, Tool};

use super::Length;

/// `--backend perf`: running stacks by samples, waiting ones by looks.
pub(super) fn perf(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let tier = Tier {
        backend: "perf",
        flags: &[],
        promised: 2.0,
    };
    shares(tool, length, &tier)
}

/// `--backend proc --allow-stop`: without stops running threads have no stacks at all, and waiting ones are held to
/// the same.
pub(super) fn proc(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let tier = Tier {
        backend: "proc",
        flags: &["--allow-stop"],
        promised: 3.0,
    };
    let mut card = shares(tool, length, &tier)?;
    let (flags, options) = how(length, "proc", &[]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let run = tool.measure("mix", &flags, &options)?;
    let rows = run.evidence().shares("off-cpu", tier.promised);
    card.extend("proc, nobody stopped", rows);
    Ok(card)
}

/// For how long and how to measure by `backend` with `more` flags: twice as long as elsewhere, as the promise
/// is stated so.
fn how(length: Length, backend: &str, more: &[&str]) -> (Vec<String>, Options) {
    let seconds = format!("{}", length.seconds * 2.0);
    let options = Options {
        more: [&["--backend", backend], more]
            .concat()
            .into_iter()
            .map(String::from)
            .collect(),
        ..Options::at(99)
    };
    (vec!["--seconds".into(), seconds], options)
}

/// A way to measure.
struct Tier<'a> {
    backend: &'a str,
    flags: &'a [&'a str],
    /// Largest error of a share, points.
    promised: f64,
}

fn shares(tool: &Tool, length: Length, tier: &Tier<'_>) -> Result<Scorecard, Error> {
    let (long, options) = how(length, tier.backend, tier.flags);
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    // On a machine that has hardly anything to do its CPUs sleep, and wake late.
    let calm = [
        "--threads",
        "1",
        "--cpu-us",
        "200",
        "--nap-us",
        "5000",
        "--sleep-us",
        "40000",
    ];
    let all = [
        ("", "mix", &[][..]),
        (" calm", "mix", &calm),
        ("", "convoy", &[]),
    ];
    let some = if length.seconds < Length::FULL.seconds {
        &all[..2]
    } else {
        &all
    };
    let mut card = Scorecard::default();
    for (what, name, flags) in some {
        let flags = [&long[..], *flags].concat();
        let run = tool.measure(name, &flags, &options)?;
        let what = format!("{}{what}", tier.backend);
        let rows = run.evidence().shares("wall", tier.promised);
        card.extend(&what, rows);
        let sums = share::sums(&run.report, &run.stacks, &run.truth);
        card.extend(&what, sums);
    }
    Ok(card)
}
