//! Java: methods and stacks, interpreted and compiled, on every VM that is found.

use crate::java::installed;
use crate::score::stacks;
use crate::score::{chance, share};
use crate::tool::{Options, Run};
use crate::truth::FunctionTruth;
use crate::{Error, Scorecard, Tool};

use super::{Length, fixed_work, measure, python};

/// Promised of user stacks, percent of sampled time.
const WHOLE: f64 = 97.0;
/// Promised of the stacks of code on large pages and of code that is compiled before it runs, percent of on-CPU time.
const WHOLE_ON_CPU: f64 = 99.0;

/// Ways to start the VM that change where its code lies or when it is made.
const WAYS: [&str; 2] = ["-Xcomp", "-XX:+UseTransparentHugePages"];

pub(super) fn java(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = by_ebpf(tool, length)?;
    card.rows.extend(ways(tool)?.rows);
    Ok(card)
}

/// Methods and stacks of each VM as it starts by default.
pub(super) fn by_ebpf(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let (options, seconds) = length.managed();
    let seconds = seconds.to_string();
    // Two, and those that were asked for.
    let all = installed()?.into_iter().enumerate();
    for (_, java) in all.filter(|(n, java)| *n < 2 || java.named) {
        let program = java.start(&[], &["mix", "--seconds", &seconds])?;
        let run = measure(program, tool, &options)?;
        for mut row in judge(&run)?.rows {
            row.what = format!("java {} ({})", row.what, java.version);
            card.rows.push(row);
        }
    }
    Ok(card)
}

/// Rows: whole stacks of the first VM, started in each of [`WAYS`], with eBPF and with perf events.
fn ways(tool: &Tool) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let Some(java) = installed()?.into_iter().next() else {
        return Ok(card);
    };
    let java = java.compiled()?;
    for way in WAYS {
        for backend in ["ebpf", "perf"] {
            let options = Options::at(99).with(&["--backend", backend]);
            let program = java.start(&[way], &["mix", "--seconds", "2"])?;
            let run = measure(program, tool, &options)?;
            let on_cpu = run.stacks.iter().filter(|l| l.state == "on_cpu");
            let samples = (run.evidence()).samples("on-cpu", on_cpu.map(|l| l.ns as f64).sum());
            let limit = WHOLE_ON_CPU - chance::binomial(WHOLE_ON_CPU / 100.0, samples);
            let rows = stacks::whole(&run.stacks, |_| true, limit).rows;
            for mut row in rows.into_iter().filter(|r| r.what.contains("on_cpu")) {
                row.what = format!("java {way}, {backend}: {}", row.what);
                card.rows.push(row);
            }
        }
    }
    Ok(card)
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
        .extend(python::chains(&run.truth, &run.stacks, |name| name).rows);
    // These threads wait only for the thing that they are named after, but for their gate before
    // and after. The first short sleep of a thread has been counted by the time that it is known for one; a long one
    // has been told meanwhile.
    for own in &run.truth.threads {
        let reason = match own.name.as_str() {
            "java-hold" | "java-keep" | "java-rest" => "timer",
            "java-want" | "java-take" => "lock",
            _ => continue,
        };
        let measured = |f: &&FunctionTruth| f.tid == own.tid && f.reason == reason;
        let of_it: u64 = run
            .truth
            .functions
            .iter()
            .filter(measured)
            .map(FunctionTruth::blocked_ns)
            .sum();
        let thread = run.report.thread(own.pid, own.tid).cloned();
        let blocked = thread.unwrap_or_default().blocked;
        let seen = blocked.get(reason).copied().unwrap_or(0);
        card.at_least(
            format!("{reason} of {}'s waits", own.name),
            100.0 * seen as f64 / of_it as f64,
            90.0,
            "%",
        );
    }
    card.rows.extend(owners(run)?.rows);
    Ok(card)
}

/// Rows: owner and class of the monitor that `java-want` waits for, and of the lock that `java-take` waits for.
fn owners(run: &Run) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let ended = run.recorded.folded("off-wake")?;
    for (waiter, place, owner) in [
        ("java-want", "Truth.want", "java-hold"),
        ("java-take", "Truth.take", "java-keep"),
    ] {
        let (mut all, mut right) = (0, 0);
        let own = ended.iter().filter(|l| l.thread == waiter);
        for line in own.filter(|l| l.contains(place)) {
            all += line.ns;
            let by = |how: &str| line.contains(&format!("[{how} by {owner}]"));
            right += if by("woken") || by("held") {
                line.ns
            } else {
                0
            };
        }
        let percent = 100.0 * right as f64 / all as f64;
        card.at_least(
            format!("{owner}, of the waits in {place}"),
            percent,
            95.0,
            "%",
        );
    }
    let locks = run.recorded.json(&["locks"])?;
    for (place, begins, class) in [
        ("Truth.want", "monitor ", "java.lang.Object "),
        (
            "Truth.take",
            "a ",
            "java.util.concurrent.locks.ReentrantLock$NonfairSync ",
        ),
    ] {
        let (mut all, mut named) = (0.0, 0.0);
        for lock in locks["locks"].as_array().into_iter().flatten() {
            let waits = lock["waits_in"].as_array().into_iter().flatten();
            let own = waits.filter(|w| w["what"] == place);
            let ns: f64 = own.map(|w| w["ns"].as_f64().unwrap_or(0.0)).sum();
            let name = lock["name"].as_str().unwrap_or_default();
            all += ns;
            if name.starts_with(begins) && name.contains(class) {
                named += ns;
            }
        }
        card.at_least(
            format!("locks named by their class, of the waits in {place}"),
            100.0 * named / all,
            90.0,
            "%",
        );
    }
    Ok(card)
}

pub(super) fn java_cost(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let units = format!("{}", length.seconds * 4000.0);
    for java in installed()? {
        let what = format!("Java {}", java.version);
        let start = || java.start(&[], &["fixed", "--units", &units]);
        card.rows
            .extend(fixed_work(&what, tool, length, start)?.rows);
    }
    Ok(card)
}
