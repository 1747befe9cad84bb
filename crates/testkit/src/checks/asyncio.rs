//! asyncio: the awaits of tasks and their lengths, on each interpreter, with asyncio's part in C and without.

use crate::python::{Interpreter, interpreters};
use crate::score::share::MANAGED;
use crate::score::{Estimate, chance};
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool};

use super::{Length, measure};

/// Functions of the program, and the reason of each one's waits.
const WAITS: &[(&str, &str)] = &[
    ("aio_nap", "timer"),
    ("aio_hold", "timer"),
    ("aio_want", "lock"),
    ("aio_gather", "task"),
    ("aio_group", "task"),
    ("aio_await", "task"),
    ("aio_thread", "thread"),
    ("aio_threads", "thread"),
    ("aio_take", "queue"),
    ("aio_read", "network"),
    ("aio_next", "timer"),
];

pub(super) fn asyncio(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let short = length.seconds < 10.0;
    let seconds = if short { 1.5 } else { length.seconds }.to_string();
    let mut all = interpreters()?;
    all.sort_by_key(Interpreter::minor);
    // One of each version will do.
    all.dedup_by_key(|i| i.minor());
    let last = all.len().saturating_sub(1);
    for (i, interpreter) in all.iter().enumerate() {
        // The oldest and the newest one differ most in how they keep attributes.
        let ways: &[&[&str]] = match i == 0 || i == last {
            true => &[&[], &["--plain"]],
            false => &[&[]],
        };
        for way in ways {
            let mut flags = vec!["--seconds", &seconds];
            flags.extend(*way);
            let program = interpreter.start_tasks(&flags)?;
            // Looks cost as much as they are allowed to: more of them are nearer to the truth.
            let options = Options {
                hz: 99,
                more: vec!["--max-overhead".into(), "10".into()],
            };
            let run = measure(program, tool, &options)?;
            for mut row in judge(&run)?.rows {
                let way = way.first().map_or("", |w| w);
                row.what = format!("python {} {way}: {}", interpreter.version, row.what);
                card.rows.push(row);
            }
        }
    }
    Ok(card)
}

fn judge(run: &Run) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let report = run.recorded.json(&["report"])?;
    let of_asyncio = |t: &&serde_json::Value| t["kind"] == "asyncio task";
    let tasks = report["tasks"].as_array().cloned().unwrap_or_default();
    let looks = tasks
        .iter()
        .filter(of_asyncio)
        .filter_map(|t| t["looks"].as_u64());
    let looks = looks.max().unwrap_or(0) as f64;
    card.at_least("looks", looks, 20.0, "");
    let waits: Vec<_> = (tasks.iter().filter(of_asyncio))
        .flat_map(|t| t["waits"].as_array().cloned().unwrap_or_default())
        .collect();
    let (mut errors, mut shares) = (Vec::new(), Vec::new());
    for (function, reason) in WAITS {
        // Groups of tasks came with 3.11.
        let Ok(existed) = run.truth.extra(&format!("{function} existed")) else {
            continue;
        };
        let waited = run.truth.extra(&format!("{function} waited"))?;
        let label = format!("task=does {function}");
        let (mut all, mut right) = (0.0, 0.0);
        for wait in &waits {
            let frames = wait["frames"].as_array();
            let names = frames.into_iter().flatten().filter_map(|f| f.as_str());
            let there = names
                .into_iter()
                .any(|n| n.rsplit('.').next() == Some(*function));
            let labelled = wait["labels"].as_array();
            if !there || !labelled.is_some_and(|l| l.iter().any(|l| *l == label)) {
                continue;
            }
            let ns = wait["ns"].as_f64().unwrap_or(0.0);
            all += ns;
            // After its wait a task still waits to be run.
            let ready = wait["state"] == "runnable";
            right += if ready || wait["reason"] == *reason {
                ns
            } else {
                0.0
            };
        }
        let share = waited / existed;
        let estimate = Estimate {
            truth: 100.0 * share,
            measured: 100.0 * all / existed,
            promise: MANAGED,
            chance: chance::polled(share, looks),
            tier: run.report.domain.backend.clone(),
            ..Estimate::default()
        };
        errors.push(estimate.error().abs());
        shares.push(share);
        card.estimate(format!("{function} awaits, of its task's time"), estimate);
        card.at_least(format!("{reason} of that"), 100.0 * right / all, 80.0, "%");
    }
    card.at_most(
        "these shares are off by, on average",
        errors.iter().sum::<f64>() / errors.len() as f64,
        MANAGED + chance::mean_of_polled(&shares, looks),
        "points",
    );
    let losses = report["losses"].as_array().into_iter().flatten();
    let lost = losses
        .filter(|l| l["cause"] == "asyncio task stack that could not be followed")
        .filter_map(|l| l["count"].as_f64())
        .sum::<f64>();
    let seen: f64 = waits.iter().filter_map(|w| w["count"].as_f64()).sum();
    card.at_most(
        "tasks that moved while they were read",
        100.0 * lost / (lost + seen),
        2.0,
        "%",
    );
    Ok(card)
}
