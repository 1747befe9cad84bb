//! Names of threads that a runtime has and the kernel does not, on every interpreter and Node.js that is found,
//! by each tier.

use crate::python::interpreters;
use crate::score::within;
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool, node};

use super::{Length, measure};

/// The tiers, by how they are asked for.
const TIERS: &[(&str, &[&str])] = &[
    ("eBPF", &[]),
    ("perf events", &["--backend", "perf"]),
    ("/proc", &["--backend", "proc"]),
];
/// Threads of Node.js's pools: their name and number.
const POOLS: [(&str, u32); 2] = [("libuv-worker", 3), ("V8Worker", 2)];

/// Length of a recording, s: names need no samples.
const SECONDS: &str = "1";

pub(super) fn thread_names(tool: &Tool, _: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let flags = ["--seconds", SECONDS];
    for interpreter in interpreters()? {
        for (tier, more) in tiers(interpreter.minor() == 12) {
            let program = interpreter.start_names(&flags)?;
            let run = measure(program, tool, &Options::at(99).with(more))?;
            judge(
                &mut card,
                &run,
                &format!("python {}, {tier}", interpreter.version),
            );
        }
    }
    for (i, node) in node::installed()?.into_iter().enumerate() {
        for (tier, more) in tiers(i == 0) {
            let [(_, uv), (_, v8)] = POOLS;
            let program = node.start_names((uv, v8), &flags)?;
            let run = measure(program, tool, &Options::at(99).with(more))?;
            let way = format!("node {}, {tier}", node.version);
            judge(&mut card, &run, &way);
            for (name, count) in POOLS {
                let all = run.report.threads.iter().filter(|t| t.name == name);
                card.near(
                    format!("{way}: threads named {name}"),
                    f64::from(count),
                    all.count() as f64,
                    within(0.0, ""),
                );
            }
        }
    }
    Ok(card)
}

/// All tiers, or the first one.
fn tiers(all: bool) -> impl Iterator<Item = &'static (&'static str, &'static [&'static str])> {
    TIERS.iter().take(if all { TIERS.len() } else { 1 })
}

/// Row: how many threads do not have the name that the program says.
fn judge(card: &mut Scorecard, run: &Run, way: &str) {
    let is_told = |pid: u32, tid: u32, name: &str| {
        let mut all = run.report.threads.iter();
        all.any(|t| (t.pid, t.tid) == (pid, tid) && t.name == name)
    };
    let wrong = (run.truth.threads.iter()).filter(|t| !is_told(t.pid, t.tid, &t.name));
    let names: Vec<&str> = wrong.map(|t| &*t.name).collect();
    let told = match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    };
    card.at_most(
        format!("{way}: threads without their name{told}"),
        names.len() as f64,
        0.0,
        "",
    );
    let known = run.truth.threads.len() as f64;
    card.at_least(format!("{way}: threads with a name"), known, 3.0, "");
}
