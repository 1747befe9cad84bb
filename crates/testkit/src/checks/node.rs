//! Node.js: JavaScript functions as V8's heap tells them, and stacks through V8's own code, on every
//! version that is found.

use crate::folded::Line;
use crate::node::{Node, installed};
use crate::score::share::MANAGED;
use crate::score::{Estimate, chance, stacks};
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool};

use super::{Length, fixed_work, measure};

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;
/// Promised of user stacks without eBPF, percent of sampled time: the rest of deep stacks is read a moment later.
const WHOLE_OUTSIDE: f64 = 95.0;

/// Promised of names of a comparison's frames, percent: it is called so often that a tenth of the time is at its entry.
const NAMED: f64 = 99.0;

/// How Node.js is started, and how often its program warms up.
const WAYS: &[(&str, &[&str], &str)] = &[
    ("as it is", &[], "60"),
    ("never optimised", &["--no-opt"], "10"),
    ("interpreted only", &["--jitless"], "2"),
    ("on large pages", &["--use-largepages=on"], "60"),
    (
        "frames of its own",
        &["--interpreted-frames-native-stack"],
        "60",
    ),
];

/// The functions that a turn calls, and their own figures.
const PARTS: [(&str, &str); 6] = [
    ("jsHeavy", "heavy_ns"),
    ("jsLight", "light_ns"),
    ("jsNative", "native_ns"),
    ("jsAdd", "add_ns"),
    ("jsLoad", "load_ns"),
    ("jsCall", "call_ns"),
];

pub(super) fn node(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (options, seconds) = length.managed();
    let seconds = format!("{seconds}");
    let all = installed()?;
    let first = &all[0];
    for node in &all {
        for (way, flags_of_node, warm) in WAYS {
            let flags = ["--seconds", &seconds, "--warm", warm];
            let program = node.start(flags_of_node, &flags)?;
            let run = measure(program, tool, &options)?;
            let mut judged = judge(&run)?;
            if *way == "never optimised" {
                judged.rows.extend(entered(&run).rows);
            }
            for mut row in judged.rows {
                row.what = format!("node {} ({}, {way})", row.what, node.version);
                card.rows.push(row);
            }
        }
    }
    for (way, more) in &[
        // Each sample of JavaScript has to be read at once: within 1 % of a CPU there are too few for six functions.
        (
            "by perf events",
            &["--backend", "perf", "--max-overhead", "20"][..],
        ),
        (
            "by stops",
            &["--backend", "proc", "--allow-stop", "--max-overhead", "50"],
        ),
    ] {
        let outside = Options::at(499).with(more);
        let program = first.start(&[], &["--seconds", &seconds, "--warm", "60"])?;
        let run = measure(program, tool, &outside)?;
        let mut judged = judge(&run)?;
        (judged.rows).retain(|row| !row.what.contains("reach the root"));
        let whole = stacks::whole(&run.stacks, |_| true, WHOLE_OUTSIDE).rows;
        let whole = whole.into_iter().filter(|r| r.what.contains("on_cpu"));
        judged.rows.extend(whole);
        for mut row in judged.rows {
            row.what = format!("node {way}: {}", row.what);
            card.rows.push(row);
        }
    }
    Ok(card)
}

fn judge(run: &Run) -> Result<Scorecard, Error> {
    let mut card = stacks::whole(&run.stacks, |_| true, WHOLE);
    let under = |name: &str| -> f64 {
        let of = run.stacks.iter().filter(|l| l.state == "on_cpu");
        let of = of.filter(|l| l.contains(name));
        of.map(|l| l.ns as f64).sum()
    };
    let (heavy, light) = (under("jsHeavy"), under("jsLight"));
    let took = |what| run.truth.extra(what);
    let truth = took("heavy_ns")? / (took("heavy_ns")? + took("light_ns")?);
    let evidence = run.evidence();
    let estimate = |truth: f64, seen: f64, whole: f64| Estimate {
        truth: 100.0 * truth,
        measured: 100.0 * seen / whole,
        promise: MANAGED,
        chance: chance::binomial(truth, evidence.samples("on-cpu", whole)),
        tier: run.report.domain.backend.clone(),
        ..Estimate::default()
    };
    card.estimate(
        "on-cpu jsHeavy, of it and jsLight",
        estimate(truth, heavy, heavy + light),
    );
    card.at_least("under jsNative", under("jsNative") / 1e6, 1.0, "ms");
    // What they call directly has no frame of its own: none of it may be told as their caller's.
    let six = PARTS.map(|(name, took_by)| Ok((name, under(name), took(took_by)?)));
    let six = six.into_iter().collect::<Result<Vec<_>, Error>>()?;
    let (measured, all): (f64, f64) =
        (six.iter()).fold((0.0, 0.0), |sum, one| (sum.0 + one.1, sum.1 + one.2));
    for (name, seen, truth) in six.iter().skip(3) {
        card.estimate(
            format!("on-cpu {name}, of the six"),
            estimate(truth / all, *seen, measured),
        );
    }
    let is_under_turn = |l: &Line| l.contains("turn");
    let is_of_six = |l: &Line| six.iter().any(|(name, ..)| l.contains(name));
    let what = "on-cpu the six, of it under turn";
    let named = evidence.named(what, 97.0, is_under_turn, is_of_six);
    card.rows.extend(named.rows);
    // A function that has not made its frame yet has a name, and its caller is not left out.
    let is_sorting = |l: &Line| l.contains("Builtins_ArrayTimSort");
    let is_whole =
        |l: &Line| l.contains("jsNative") && !l.frames.iter().any(|f| f.name.starts_with("[0x"));
    let what = "on-cpu with names, of a sort's";
    let named = evidence.named(what, NAMED, is_sorting, is_whole);
    card.rows.extend(named.rows);
    // Node.js 24 gives its main thread a name; before, it has its file's.
    let is_main = |l: &Line| l.thread.starts_with("node") || l.thread == "MainThread";
    let what = "on-cpu under turn, of the main thread's";
    let named = evidence.named(what, 90.0, is_main, is_under_turn);
    card.rows.extend(named.rows);
    Ok(card)
}

/// Row: baseline code that V8's builtin makes a frame for is named, and its caller is not taken for it.
fn entered(run: &Run) -> Scorecard {
    let is_entering =
        |l: &Line| l.contains("jsCall") && l.contains("Builtins_BaselineOutOfLinePrologue");
    let what = "on-cpu with their function, of entries of a tiny one";
    let evidence = run.evidence();
    evidence.named(what, NAMED, is_entering, |l| l.contains("tiny"))
}

pub(super) fn node_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let units = format!("{}", length.seconds * 300.0);
    let all = installed()?;
    let first: &Node = &all[0];
    fixed_work("Node.js", tool, length, || {
        first.start(&[], &["--units", &units])
    })
}
