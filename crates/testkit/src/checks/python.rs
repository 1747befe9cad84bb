//! Python: functions, stacks and the interpreter's lock, on every interpreter that is found.

use std::collections::BTreeSet;

use crate::folded::{Frame, Line};
use crate::python::{Interpreter, interpreters};
use crate::score::{share, stacks, within};
use crate::tool::{Options, Run};
use crate::truth::Truth;
use crate::{Error, Scorecard, Tool};

use super::{Length, fixed_work, measure};

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 99.0;

pub(super) fn python(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = by_ebpf(tool, length, interpreters()?)?;
    card.rows.extend(from_outside(tool, length)?.rows);
    Ok(card)
}

/// Frames that a program in the kernel reads at the moment of the sample, on every interpreter.
fn by_ebpf(
    tool: &Tool,
    length: Length,
    interpreters: Vec<Interpreter>,
) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (options, seconds) = length.managed();
    let seconds = seconds.to_string();
    for interpreter in &interpreters {
        let program = interpreter.start(&["mix", "--seconds", &seconds])?;
        let run = measure(program, tool, &options)?;
        for mut row in judge(&run)?.rows {
            row.what = format!("python {} ({})", row.what, interpreter.version);
            card.rows.push(row);
        }
    }
    let with_trampolines = interpreters.iter().filter(|i| i.minor() >= 12);
    if let Some(interpreter) = with_trampolines.max_by_key(|i| i.minor()) {
        let program = interpreter.start_with_trampolines(&["mix", "--seconds", &seconds])?;
        let run = measure(program, tool, &options)?;
        // The interpreter wrote it, and leaves it; where it did not, there is nothing to remove.
        let _ = std::fs::remove_file(format!("/tmp/perf-{}.map", run.truth.pid));
        let mut judged = judge(&run)?;
        judged.rows.extend(of_trampolines(&run).rows);
        for mut row in judged.rows {
            row.what = format!("python -X perf: {} ({})", row.what, interpreter.version);
            card.rows.push(row);
        }
    }
    Ok(card)
}

/// Rows for functions that have a trampoline each (`-X perf`): the interpreter names them.
///
/// A trampoline is left where its function has no frame: while a generator's frame is cleared, and after the
/// interpreter has freed all frames at its end.
fn of_trampolines(run: &Run) -> Scorecard {
    let mut card = Scorecard::default();
    let time = |keep: &dyn Fn(&Line) -> bool| -> f64 {
        (run.stacks.iter().filter(|l| keep(l)))
            .map(|l| l.ns as f64)
            .sum()
    };
    let twice = time(&|l| shows_twice(&l.frames));
    card.at_most("functions shown twice", twice / 1e6, 0.0, "ms");
    // A trampoline as the leaf is a call without a frame in the interpreter yet.
    let is_under = |l: &Line| {
        let callers = l.frames.iter().rev().skip(1);
        callers.map(in_trampoline).any(|f| f.is_some())
    };
    let share = 100.0 * time(&is_under) / time(&|_| true);
    card.at_most("under trampolines", share, 1.0, "%");
    card
}

/// The qualified name of the function of a trampoline: `f` of `py::f:/path`.
fn in_trampoline(frame: &Frame) -> Option<&str> {
    let name = frame.name.strip_prefix("py::")?;
    Some(name.split_once(":/").map_or(name, |(name, _)| name))
}

/// Whether one call has both its trampoline's frame and the interpreter's, which lies between this trampoline
/// and the next one. `frames`: from the root.
fn shows_twice(frames: &[Frame]) -> bool {
    let mut callees = frames.iter().enumerate();
    callees.any(|(at, frame)| {
        let Some(function) = in_trampoline(frame) else {
            return false;
        };
        let own = frames[at + 1..].iter();
        own.take_while(|f| in_trampoline(f).is_none())
            .any(|f| f.name == function)
    })
}

/// Rows of [`python`] by eBPF; in a short run on the oldest and the newest interpreter only, which differ most in
/// how they keep frames.
pub(super) fn ends_by_ebpf(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut all = interpreters()?;
    if length.is_short() && all.len() > 2 {
        all.sort_by_key(Interpreter::minor);
        all.drain(1..all.len() - 1);
    }
    by_ebpf(tool, length, all)
}

/// Frames that are read from outside, a little later.
fn from_outside(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (_, seconds) = length.managed();
    let seconds = seconds.to_string();
    let looks = Options {
        hz: 99,
        more: vec!["--backend".into(), "proc".into()],
    };
    for interpreter in interpreters()?.into_iter().take(1) {
        let program = interpreter.start(&["mix", "--seconds", &seconds])?;
        let run = measure(program, tool, &looks)?;
        let mut judged = chains(&run.truth, &run.stacks, plain);
        // So few looks may have met it in none of its waits.
        judged
            .rows
            .retain(|row| row.what.contains("py_bottom") && !row.measured.contains("NaN"));
        judged.rows.extend(strangers(&run.truth, &run.stacks).rows);
        for mut row in judged.rows {
            row.what = format!("python without eBPF: {}", row.what);
            card.rows.push(row);
        }
    }
    let all = interpreters()?;
    for (way, more) in [
        // Whether frames are right is asked, not their cost: at the usual limit few are read.
        (
            "by perf events",
            &["--backend", "perf", "--max-overhead", "50"][..],
        ),
        ("by stops", &["--backend", "proc", "--allow-stop"]),
    ] {
        // The oldest one keeps its frames in objects, the newest one in chunks of its own.
        let oldest = all.iter().min_by_key(|i| i.minor());
        let ends = [
            oldest.filter(|_| way == "by perf events"),
            all.iter().max_by_key(|i| i.minor()),
        ];
        for interpreter in ends.into_iter().flatten() {
            let running = Options::at(199).with(more);
            let program = interpreter.start(&["mix", "--seconds", &seconds])?;
            let run = measure(program, tool, &running)?;
            let mut judged = running_functions(&run);
            // A poll hardly ever meets a thread that is on a CPU for moments only.
            let often = |what: &str| way == "by perf events" || what.contains("py-count");
            judged.rows.retain(|row| often(&row.what));
            for mut row in judged.rows {
                row.what = format!("python {way}: {} ({})", row.what, interpreter.version);
                card.rows.push(row);
            }
        }
    }
    Ok(card)
}

/// Rows for functions of running threads, where frames are read from outside.
fn running_functions(run: &Run) -> Scorecard {
    let mut card = run.evidence().shares("on-cpu", share::MANAGED);
    card.rows.extend(strangers(&run.truth, &run.stacks).rows);
    let counts = |l: &Line| l.thread.starts_with("py-count");
    let is_named = |l: &Line| run.truth.functions.iter().any(|f| l.contains(&f.name));
    let what = "on-cpu of py-count under its functions";
    let named = run.evidence().named(what, 90.0, counts, is_named);
    card.rows.extend(named.rows);
    card
}

/// Row: the share of time under functions that only other threads call.
fn strangers(truth: &Truth, lines: &[Line]) -> Scorecard {
    let mut card = Scorecard::default();
    let (mut all, mut wrong) = (0u64, 0u64);
    for thread in &truth.threads {
        let calls = |name: &str| {
            let mut of_name = truth.functions.iter().filter(|f| f.name == name);
            of_name.any(|f| f.tid == thread.tid)
        };
        for line in lines.iter().filter(|line| line.thread == thread.name) {
            let mut measured = truth.functions.iter().filter(|f| line.contains(&f.name));
            all += line.ns;
            if measured.any(|f| !calls(&f.name)) {
                wrong += line.ns;
            }
        }
    }
    card.at_most(
        "time under functions of other threads",
        100.0 * wrong as f64 / all as f64,
        0.1,
        "%",
    );
    card
}

fn judge(run: &Run) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    card.rows.extend(run.evidence().managed_shares().rows);
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    let names: Vec<&str> = run.truth.threads.iter().map(|t| t.name.as_str()).collect();
    card.rows
        .extend(stacks::whole(&run.stacks, |name| names.contains(&name), WHOLE).rows);
    card.rows
        .extend(chains(&run.truth, &run.stacks, plain).rows);
    card.rows.extend(strangers(&run.truth, &run.stacks).rows);
    for own in run
        .truth
        .threads
        .iter()
        .filter(|t| t.name.starts_with("py-count"))
    {
        let waited = own
            .work_wall_ns
            .saturating_sub(own.on_cpu_ns + own.run_delay_ns);
        let thread = run.report.thread(own.pid, own.tid).cloned();
        let blocked = thread.unwrap_or_default().blocked;
        let percent =
            |reason: &str| 100.0 * blocked.get(reason).copied().unwrap_or(0) as f64 / waited as f64;
        // Counting, it waits for nothing else; before and after, for its gate.
        card.at_least(
            format!("gil of {}'s waits", own.name),
            percent("gil"),
            95.0,
            "%",
        );
        // More than all of them only as far as the kernel's own count of queueing is off.
        card.at_most(
            format!("the same of {}", own.name),
            percent("gil"),
            115.0,
            "%",
        );
        card.at_most(
            format!("lock of {}'s waits", own.name),
            percent("lock"),
            5.0,
            "%",
        );
    }
    Ok(card)
}

/// Holders of the interpreter's lock while others waited for it.
pub(super) fn gil(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let seconds = length.text();
    let mut all = interpreters()?;
    // The layouts of the oldest and of the newest one differ most.
    all.sort_by_key(Interpreter::minor);
    all.dedup_by(|a, b| a.version == b.version);
    let ends = [all.first().cloned(), all.last().cloned()];
    for interpreter in ends.into_iter().flatten() {
        let program = interpreter.start(&["gil", "--seconds", &seconds])?;
        // With the default limit not each wait has a stack, and one without cuts nothing, as in `hands`.
        let options = Options::at(499).with(&["--max-overhead", "50"]);
        let run = measure(program, tool, &options)?;
        for mut row in holders(&run)?.rows {
            row.what = format!("python {} ({})", row.what, interpreter.version);
            card.rows.push(row);
        }
    }
    Ok(card)
}

fn holders(run: &Run) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let locks = run.recorded.json(&["locks"])?;
    let mut rows = locks["locks"].as_array().into_iter().flatten();
    let is_gil = |l: &&serde_json::Value| {
        let name = l["name"].as_str();
        name.is_some_and(|n| n.starts_with("the GIL of "))
    };
    let gil = rows
        .find(is_gil)
        .ok_or_else(|| Error::Output("no lock is called the GIL".into()))?;
    let text = |h: &serde_json::Value, key: &str| h[key].as_str().unwrap_or_default().to_owned();
    let held = |fits: &dyn Fn(&str, &str) -> bool| -> f64 {
        let holders = gil["holders"].as_array().into_iter().flatten();
        let fitting = holders
            .filter(|h| h["had_it"] == true && fits(&text(h, "thread"), &text(h, "function")));
        fitting.map(|h| h["ns"].as_f64().unwrap_or(0.0)).sum()
    };
    let total = gil["total_ns"].as_f64().unwrap_or(0.0);
    card.at_least(
        "GIL waits with a holder",
        100.0 * held(&|_, _| true) / total,
        95.0,
        "%",
    );
    // Both of the others want it all the time, but for when they or py-grip wait for a CPU.
    let gripped = 2.0 * run.truth.extra("gripped_ns")?;
    card.near(
        "GIL waits for py-grip, of the truth",
        100.0,
        100.0 * held(&|holder, _| holder == "py-grip") / gripped,
        within(15.0, "%"),
    );
    // What is left has no function: there they waited for a CPU.
    let hogs = held(&|holder, ran| holder.starts_with("py-hog-") && !ran.is_empty());
    let known = held(&|holder, ran| holder.starts_with("py-hog-") && ran == "py_hog");
    card.at_least(
        "GIL held in py_hog, of py-hog's functions",
        100.0 * known / hogs,
        90.0,
        "%",
    );
    Ok(card)
}

/// Classes and enclosing functions are part of a name from 3.11 on only.
fn plain(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// Rows: of the time under each function that wrote its callers down, how much shows exactly
/// those.
/// `plain`: the part of a name that the program wrote down.
pub(super) fn chains(truth: &Truth, lines: &[Line], plain: fn(&str) -> &str) -> Scorecard {
    let mut card = Scorecard::default();
    let known: BTreeSet<&str> = truth
        .chains
        .iter()
        .flat_map(|c| c.frames.iter().map(|f| f.name.as_str()))
        .collect();
    for chain in &truth.chains {
        let thread = truth.threads.iter().find(|t| t.tid == chain.tid);
        let name = thread.map_or("", |t| t.name.as_str());
        let expected: Vec<&str> = chain.frames.iter().rev().map(|f| f.name.as_str()).collect();
        let (mut all, mut right, mut example) = (0, 0, String::new());
        for line in lines.iter().filter(|line| line.thread == name) {
            let names = line.frames.iter().map(|f| plain(&f.name));
            let shown: Vec<&str> = names.filter(|n| known.contains(n)).collect();
            let Some(at) = shown.iter().position(|n| *n == chain.leaf) else {
                continue;
            };
            all += line.ns;
            if shown[..=at] == expected {
                right += line.ns;
            } else if example.is_empty() {
                example = format!(": {}", shown[..=at].join(";"));
            }
        }
        card.at_least(
            format!("{} under its callers{example}", chain.leaf),
            100.0 * right as f64 / all as f64,
            99.0,
            "%",
        );
    }
    card
}

pub(super) fn python_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let units = format!("{}", length.seconds * 1500.0);
    for interpreter in interpreters()? {
        let what = format!("Python {}", interpreter.version);
        let start = || interpreter.start(&["fixed", "--units", &units]);
        card.rows
            .extend(fixed_work(&what, tool, length, start)?.rows);
    }
    Ok(card)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folded::FrameSuffix;

    fn frames(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| Frame {
            name: (*name).to_owned(),
            kind: FrameSuffix::User,
        };
        names.iter().map(frame).collect()
    }

    #[test]
    fn a_call_with_its_trampoline_and_its_frame_is_shown_twice() {
        let both = ["main", "py::C.f:/a/b.py", "_PyEval_EvalFrameDefault", "C.f"];
        assert!(shows_twice(&frames(&both)));
        let cleared = ["C.f", "py::C.f.<genexpr>:/b.py", "tupledealloc"];
        assert!(!shows_twice(&frames(&cleared)));
        let recursive = ["C.f", "py::C.f:/b.py", "frame_dealloc"];
        assert!(!shows_twice(&frames(&recursive)));
        let next = ["py::a:/b.py", "py::C.f:/b.py", "C.f"];
        assert!(shows_twice(&frames(&next)));
    }
}
