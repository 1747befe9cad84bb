//! Java's virtual threads: the reasons and lengths of their waits, and the stacks of parked ones.

use serde_json::Value;

use crate::folded::Line;
use crate::java::installed;
use crate::score::share::MANAGED;
use crate::score::{Estimate, chance};
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool};

use super::{Length, measure};

/// Functions of the program, and the reason of each one's waits.
const WAITS: &[(&str, &str)] = &[
    ("vtNap", "timer"),
    ("vtHold", "timer"),
    ("vtWant", "lock"),
    ("vtEnter", "lock"),
    ("vtWait", "event"),
    ("vtTake", "queue"),
    ("vtPark", "other"),
    ("vtRead", "network"),
];

/// Those that wait in `synchronized`.
const HELD: &[&str] = &["vtEnter", "vtWait"];

/// A backend, flags of the VM, whether objects move meanwhile, and whether it is for long runs only.
const RUNS: &[(&str, &[&str], bool, bool)] = &[
    ("ebpf", &[], true, false),
    ("proc", &[], false, false),
    ("perf", &[], false, true),
    // Other heads of objects, wide pointers, all in the interpreter, another collector.
    ("ebpf", &["-XX:-UseCompressedOops", "-Xint"], false, true),
    (
        "proc",
        &["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
        true,
        true,
    ),
    ("proc", &["-XX:+UseParallelGC"], true, true),
];

pub(super) fn virtual_threads(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let short = length.seconds < 10.0;
    let seconds = if short { 1.5 } else { length.seconds }.to_string();
    let all = installed()?.into_iter().filter(|j| j.has_virtual_threads());
    let all: Vec<_> = all.collect();
    if all.is_empty() {
        let why = "no JDK from 21 on is installed: older ones have no virtual threads";
        return Err(Error::CannotRunHere(why.into()));
    }
    // Two, and those that were asked for.
    let all = all.iter().enumerate();
    for (_, java) in all.filter(|(n, java)| *n < 2 || java.named) {
        for (backend, vm, moving, long) in RUNS {
            if *long && short {
                continue;
            }
            let mut flags = vec!["--seconds", &seconds];
            flags.extend(moving.then_some("--garbage"));
            let program = java.start_virtual(vm, &flags)?;
            // Looks cost as much as they are allowed to: more of them are nearer to the truth.
            let options = Options {
                hz: 99,
                more: ["--backend", backend, "--max-overhead", "10"]
                    .map(String::from)
                    .to_vec(),
            };
            let run = measure(program, tool, &options)?;
            let what = format!("{} {backend} {}", java.version, vm.join(" "));
            for mut row in judge(&run, java.pins())?.rows {
                row.what = format!("java {}: {}", what.trim_end(), row.what);
                card.rows.push(row);
            }
        }
    }
    Ok(card)
}

/// `pins`: a virtual thread that waits in `synchronized` holds its carrier; the carrier's stack is not read.
fn judge(run: &Run, pins: bool) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let report = run.recorded.json(&["report"])?;
    let tasks = report["tasks"].as_array().cloned().unwrap_or_default();
    let own = tasks.iter().filter(|t| t["kind"] == "virtual thread");
    let own: Vec<&Value> = own.collect();
    let looks = own.iter().filter_map(|t| t["looks"].as_u64()).max();
    let looks = looks.unwrap_or(0) as f64;
    card.at_least("looks", looks, 20.0, "");
    let waits: Vec<Value> = { own.iter() }
        .flat_map(|t| t["waits"].as_array().cloned().unwrap_or_default())
        .collect();
    let estimate = |truth: f64, measured: f64| Estimate {
        truth: 100.0 * truth,
        measured: 100.0 * measured,
        promise: MANAGED,
        chance: chance::polled(truth, looks),
        tier: run.report.domain.backend.clone(),
        ..Estimate::default()
    };
    let (mut errors, mut shares) = (Vec::new(), Vec::new());
    for (function, reason) in WAITS {
        let existed = run.truth.extra(&format!("{function} existed"))?;
        let share = run.truth.extra(&format!("{function} waited"))? / existed;
        let frame = format!("Virtual.{function}");
        let held = pins && HELD.contains(function);
        let inside = waits.iter().filter(|w| match held {
            true => names(w).is_empty() && w["reason"] == *reason,
            false => names(w).contains(&frame.as_str()),
        });
        let (mut all, mut right) = (0.0, 0.0);
        for wait in inside {
            all += ns(wait);
            // After its wait a task still waits to be run.
            let ready = wait["state"] == "runnable";
            right += if ready || wait["reason"] == *reason {
                ns(wait)
            } else {
                0.0
            };
        }
        errors.push(100.0 * (all / existed - share).abs());
        shares.push(share);
        card.estimate(
            format!("{function} waits, of its thread's time"),
            estimate(share, all / existed),
        );
        card.at_least(format!("{reason} of that"), 100.0 * right / all, 80.0, "%");
    }
    card.at_most(
        "these shares are off by, on average",
        errors.iter().sum::<f64>() / errors.len() as f64,
        MANAGED + chance::mean_of_polled(&shares, looks),
        "points",
    );
    let (truth, measured) = running(run, &own)?;
    card.estimate("running, of all that work", estimate(truth, measured));
    parked(run, &waits, &mut card);
    mounted(run, &mut card);
    let losses = report["losses"].as_array().into_iter().flatten();
    let lost = losses
        .filter(|l| l["cause"] == "virtual thread stack that could not be followed")
        .filter_map(|l| l["count"].as_f64())
        .sum::<f64>();
    let seen: f64 = waits.iter().filter_map(|w| w["count"].as_f64()).sum();
    card.at_most(
        "stacks that end before their root",
        100.0 * lost / seen,
        1.0,
        "%",
    );
    Ok(card)
}

fn ns(wait: &Value) -> f64 {
    wait["ns"].as_f64().unwrap_or(0.0)
}

fn names(wait: &Value) -> Vec<&str> {
    let frames = wait["frames"].as_array().into_iter().flatten();
    frames.filter_map(Value::as_str).collect()
}

/// Fraction of the working threads' time in which they ran: the program's own, and the measured one. A thread on
/// a carrier that waits for a CPU counts as running, as the library has it.
fn running(run: &Run, own: &[&Value]) -> Result<(f64, f64), Error> {
    let (mut ran, mut existed) = (0.0, 0.0);
    for function in WAITS.iter().map(|(f, _)| *f).chain(["vtSpin", "vtLater"]) {
        ran += run.truth.extra(&format!("{function} ran"))?;
        existed += run.truth.extra(&format!("{function} existed"))?;
    }
    // The library's own, and those that are parked for good, run no time worth mentioning.
    let seen: f64 = own.iter().filter_map(|t| t["on_cpu_ns"].as_f64()).sum();
    Ok((ran / existed, seen / existed))
}

/// Row: computing of a thread after a wait is below the functions that had called it, or said not to
/// be so. Only where running threads have stacks.
fn mounted(run: &Run, card: &mut Scorecard) {
    let computes = |l: &&Line| l.state == "on_cpu" && l.contains("Virtual.vtLate");
    let (mut all, mut told) = (0.0, 0.0);
    for line in run.stacks.iter().filter(computes) {
        let whole = line.contains("Virtual.drive") || line.contains("[left in the heap]");
        let cut = line.truncated.is_some();
        all += line.ns as f64;
        told += if whole || cut { line.ns as f64 } else { 0.0 };
    }
    if all > 0.0 {
        card.at_least(
            "callers of what computes, or a word",
            100.0 * told / all,
            99.0,
            "%",
        );
    }
}

/// Rows: whether the stacks of those that are parked for good are those that they have told themselves.
fn parked(run: &Run, waits: &[Value], card: &mut Scorecard) {
    let labelled = |w: &&Value| {
        let labels = w["labels"].as_array().into_iter().flatten();
        { labels }.any(|l| *l == "vthread=vt-parked-*")
    };
    let program = |name: &&str| name.starts_with("Virtual.");
    let truths: Vec<Vec<&str>> = { run.truth.chains.iter() }
        .map(|chain| chain.frames.iter().map(|f| f.name.as_str()).collect())
        .collect();
    let (mut all, mut right) = (0.0, 0.0);
    let mut found = vec![false; truths.len()];
    for wait in waits.iter().filter(labelled) {
        let frames = names(wait);
        // The library leaves out the frames of parking and beginning; of the program nothing may be missing.
        let told = truths.iter().position(|truth| {
            let mut rest = frames.iter();
            let in_order = truth.iter().all(|name| rest.any(|f| f == name));
            let ours = frames.iter().copied().filter(program);
            in_order && ours.eq(truth.iter().copied().filter(program))
        });
        all += ns(wait);
        if let Some(i) = told {
            found[i] = true;
            right += ns(wait);
        }
    }
    card.at_least(
        "stacks of parked ones as they tell them",
        100.0 * right / all,
        99.0,
        "%",
    );
    let found = found.iter().filter(|f| **f).count() as f64;
    card.at_least(
        "of these stacks found",
        100.0 * found / truths.len() as f64,
        100.0,
        "%",
    );
}
