//! Shares of named functions, and the ledger beneath them.

use std::collections::BTreeSet;

use crate::folded::Line;
use crate::score::ledger::{Limits, agrees};
use crate::score::{chance, share, stacks, within};
use crate::tool::{Options, Run};
use crate::{Error, Program, Scorecard, Tool, program};

use super::{Length, disk_folder, measure, why::reasons_right};

/// User stacks that reach the root, percent of sampled time.
pub(super) const WHOLE: f64 = 99.9;

/// The rows that every program can be held to.
fn common(run: &Run, views: &[&str]) -> Scorecard {
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    for view in views {
        let promise = match *view {
            "on-cpu" => share::ON_CPU,
            _ => share::OFF_CPU,
        };
        card.rows.extend(run.evidence().shares(view, promise).rows);
    }
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    let names: Vec<&str> = run.truth.threads.iter().map(|t| t.name.as_str()).collect();
    card.rows
        .extend(stacks::whole(&run.stacks, |name| names.contains(&name), WHOLE).rows);
    card
}

/// A program and the views that are compared with its truth.
struct Experiment<'a> {
    program: &'a str,
    flags: &'a [&'a str],
    views: &'a [&'a str],
}

fn usual(tool: &Tool, length: Length, what: &Experiment<'_>) -> Result<Scorecard, Error> {
    Ok(usual_run(tool, length, what)?.1)
}

fn usual_run(
    tool: &Tool,
    length: Length,
    what: &Experiment<'_>,
) -> Result<(Run, Scorecard), Error> {
    let seconds = length.text();
    let flags = [&["--seconds", &seconds], what.flags].concat();
    let run = tool.measure(what.program, &flags, &length.options())?;
    let mut card = common(&run, what.views);
    card.rows.extend(reasons_right(&run)?.rows);
    Ok((run, card))
}

pub(super) fn mix(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("mix", &["--seconds", &seconds], &length.options())?;
    let mut card = common(&run, &["wall", "off-cpu", "on-cpu"]);
    let bytes = run.report.cost.rss_bytes + run.report.cost.kernel_bytes;
    card.at_most(
        "memory, own and in the kernel",
        bytes as f64 / 1048576.0,
        64.0,
        "MiB",
    );
    Ok(card)
}

pub(super) fn shares(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    // Nothing here blocks: only the on-CPU rows of the whole-stack score mean anything.
    let seconds = length.text();
    let run = tool.measure("shares", &["--seconds", &seconds], &length.options())?;
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    (card.rows).extend(run.evidence().shares("on-cpu", share::ON_CPU).rows);
    card.rows
        .extend(share::sums(&run.report, &run.stacks, &run.truth).rows);
    Ok(card)
}

/// Halves of a round that is as long as samples are apart: always at the same distance, samples would all fall
/// into one of them.
pub(super) fn in_step(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let (seconds, hz) = (length.text(), 199);
    let flags = ["--seconds", &seconds, "--hz", &format!("{hz}")];
    let mut card = Scorecard::default();
    for backend in ["ebpf", "perf"] {
        let options = Options::at(hz).with(&["--backend", backend]);
        let run = tool.measure("instep", &flags, &options)?;
        card.extend(backend, run.evidence().shares("on-cpu", 10.0));
    }
    Ok(card)
}

/// Only the mapping at the moment of a sample tells which library it is.
pub(super) fn plugins(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let mut card = Scorecard::default();
    for backend in ["ebpf", "perf"] {
        let options = Options::at(997).with(&["--max-overhead", "25", "--backend", backend]);
        let run = tool.measure("plugins", &["--seconds", &seconds], &options)?;
        card.at_least(
            format!("{backend}: both at one address"),
            run.truth.extra("same_place")?,
            1.0,
            "",
        );
        for (view, points) in [("off-cpu", 2.0), ("on-cpu", 3.0)] {
            card.extend(backend, run.evidence().shares(view, points));
        }
    }
    Ok(card)
}

/// So many threads wait that the limit of cost changes the time of a stack more than once.
pub(super) fn turns(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.seconds.max(6.0).to_string();
    let run = tool.measure("turns", &["--seconds", &seconds], &Options::at(99))?;
    let mut card = Scorecard::default();
    let is_change = |note: &&String| note.contains("of off-CPU time a stack");
    let changes = run.report.domain.notes.iter().filter(is_change).count();
    card.at_least("changes of the time of a stack", changes as f64, 2.0, "");
    (card.rows).extend(run.evidence().shares("off-cpu", 3.0).rows);
    Ok(card)
}

pub(super) fn cover(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    // Of 20 functions each: the promise is stated for at least 300 cases. A short run has half of them, and its limit
    // allows for that. Its recordings have as many samples in a third of the time or less.
    let (recordings, seconds, hz) = match length.is_short() {
        true => (8, 1.0, 299),
        false => (16, length.seconds, 99),
    };
    let seconds = format!("{seconds}");
    let (mut held, mut cases) = (0, 0);
    for _ in 0..recordings {
        let run = tool.measure("cover", &["--seconds", &seconds], &Options::at(hz))?;
        let (more, of) = share::covered(&run.report, &run.truth, "on-cpu");
        held += more;
        cases += of;
    }
    let promised = 0.93;
    let mut card = Scorecard::default();
    card.at_least(
        format!("intervals that hold the truth, of {cases}"),
        100.0 * held as f64 / cases as f64,
        100.0 * promised - chance::binomial(promised, cases as f64),
        "%",
    );
    Ok(card)
}

pub(super) fn convoy(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let convoy = Experiment {
        program: "convoy",
        flags: &[],
        views: &["wall", "off-cpu", "on-cpu"],
    };
    let (run, mut card) = usual_run(tool, length, &convoy)?;
    // The mutex is 0x28 bytes into an object on the heap.
    let locks = run.recorded.json(&["locks"])?;
    let (mut named, mut all) = (0, 0);
    for lock in locks["locks"].as_array().into_iter().flatten() {
        let ns = lock["total_ns"].as_u64().unwrap_or_default();
        let name = lock["name"].as_str().unwrap_or_default();
        all += ns;
        if name.contains("ConvoyQueue+0x28, heap of process") {
            named += ns;
        }
    }
    let percent = 100.0 * named as f64 / all.max(1) as f64;
    card.at_least("waits for the lock by its class", percent, 95.0, "%");
    Ok(card)
}

/// Programs without unwind information: their stacks are as whole and as right as those of others.
pub(super) fn bare(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    for name in ["mix", "convoy"] {
        let mut command = std::process::Command::new(program::bare());
        let seconds = length.text();
        command.args([name, "--seconds", &seconds, "--hold", "--linger"]);
        let program = Program::start_command(name, command)?;
        let run = measure(program, tool, &length.options())?;
        card.extend(name, common(&run, &["wall", "off-cpu", "on-cpu"]));
    }
    Ok(card)
}

/// Code that the program moved to memory without a file, recorded from before and from after it moved.
pub(super) fn moved_code(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let seconds = length.text();
    for to in ["anonymous", "shared"] {
        for backend in ["ebpf", "perf"] {
            let options = Options::at(199).with(&["--backend", backend, "--max-overhead", "20"]);
            let flags = ["mix", "--seconds", &seconds, "--moved", to];
            let attached = tool.measure(flags[0], &flags[1..], &options)?;
            let launched = tool.measure_launched(&flags, &options)?;
            for (way, run) in [("attached", attached), ("launched", launched)] {
                let way = format!("{to}, {backend}, {way}");
                card.extend(&way, run.evidence().shares("on-cpu", 2.0));
                let names: Vec<&str> = run.truth.threads.iter().map(|t| &*t.name).collect();
                let workers = |name: &str| names.contains(&name);
                let mut whole = stacks::whole(&run.stacks, workers, 99.0);
                whole.rows.retain(|row| row.what.contains("on_cpu"));
                card.extend(&way, whole);
            }
        }
    }
    Ok(card)
}

pub(super) fn disk(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let folder = disk_folder(tool);
    let disk = Experiment {
        program: "disk",
        flags: &["--dir", &folder],
        views: &["wall", "off-cpu"],
    };
    usual(tool, length, &disk)
}

/// On the first CPU and on the last: an idle CPU's timer comes late, or not at all, as its kernel likes.
fn on_both_ends(tool: &Tool, length: Length, what: &Experiment<'_>) -> Result<Scorecard, Error> {
    let last = std::thread::available_parallelism().map_or(0, |n| n.get() - 1);
    let mut card = Scorecard::default();
    for cpu in BTreeSet::from([0, last]) {
        let cpu = cpu.to_string();
        let flags = [what.flags, &["--cpu", &cpu]].concat();
        let pinned = Experiment {
            flags: &flags,
            ..*what
        };
        for mut row in usual(tool, length, &pinned)?.rows {
            // What is promised goes by how a row begins.
            row.what = format!("{}, CPU {cpu}", row.what);
            card.rows.push(row);
        }
    }
    Ok(card)
}

pub(super) fn faults(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let folder = disk_folder(tool);
    let faults = Experiment {
        program: "faults",
        flags: &["--dir", &folder],
        views: &["wall", "off-cpu", "on-cpu"],
    };
    on_both_ends(tool, length, &faults)
}

pub(super) fn bursts(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let bursts = Experiment {
        program: "bursts",
        flags: &[],
        views: &["off-cpu", "on-cpu"],
    };
    on_both_ends(tool, length, &bursts)
}

pub(super) fn rpc(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let rpc = Experiment {
        program: "rpc",
        flags: &[],
        views: &["wall", "off-cpu"],
    };
    usual(tool, length, &rpc)
}

pub(super) fn crowd(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let crowd = Experiment {
        program: "crowd",
        flags: &[],
        views: &["wall", "runq"],
    };
    usual(tool, length, &crowd)
}

pub(super) fn throttled(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("throttled", &["--seconds", &seconds], &length.options())?;
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    (card.rows).extend(run.evidence().shares("on-cpu", share::ON_CPU).rows);
    for own in &run.truth.threads {
        let thread = run
            .report
            .thread(own.pid, own.tid)
            .cloned()
            .unwrap_or_default();
        let percent = |ns: u64| 100.0 * ns as f64 / thread.wall_ns as f64;
        let told = percent(own.run_delay_ns);
        card.near(
            "throttled is runnable",
            told,
            percent(thread.runnable_ns),
            within(1.0, "%"),
        );
        let own_quota = run.truth.extra("throttled_ns")?;
        card.at_least(
            "the quota bit at all",
            own_quota / 1e9,
            0.2 * run.truth.ended_ns.saturating_sub(run.truth.released_ns) as f64 / 1e9,
            "s",
        );
    }
    // Short periods: the part of the open one that the counter lacks at its end is small then. Beside a rival the
    // thread waits on when it has a new quota.
    for rival in ["0", "1"] {
        let flags = [
            "--seconds",
            &seconds,
            "--rival",
            rival,
            "--quota-us",
            "6000",
            "--period-us",
            "20000",
        ];
        let run = tool.measure("throttled", &flags, &Options::at(99))?;
        let threads = run.truth.threads.iter();
        let own = threads.filter_map(|t| run.report.thread(t.pid, t.tid));
        let parts = own.filter_map(|t| t.runnable.get("throttled"));
        card.near(
            format!("throttled, of the group's own counter, beside {rival} others on the CPU"),
            100.0,
            100.0 * parts.sum::<u64>() as f64 / run.truth.extra("throttled_ns")?,
            within(5.0, "%"),
        );
    }
    Ok(card)
}

pub(super) fn micro(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    // About 8 µs a turn.
    let count = format!("{}", (length.seconds * 100_000.0) as u64);
    let run = tool.measure("micro", &["--count", &count], &length.options())?;
    Ok(common(&run, &["wall", "off-cpu"]))
}

pub(super) fn migrate(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("migrate", &["--seconds", &seconds], &length.options())?;
    // Here the kernel's run_delay is far too large (see the limit), so it bounds nothing. What the
    // thread asked to sleep, and the rest of its wall time, do.
    let limits = Limits {
        below_delay_ppm: f64::INFINITY,
        ..Limits::default()
    };
    let mut card = agrees(&run.report, &run.truth, &limits);
    (card.rows).extend(run.evidence().shares("wall", share::OFF_CPU).rows);
    let held = |line: &&Line| line.state == "blocked" && line.contains("migrate_block");
    let blocked: u64 = run.stacks.iter().filter(held).map(|line| line.ns).sum();
    let own = run
        .truth
        .functions
        .iter()
        .filter(|f| f.name == "migrate_block");
    let most: u64 = own.map(|f| f.wall_ns - f.on_cpu_ns).sum();
    let requested = run.truth.extra("requested_ns")?;
    let percent = 100.0 * blocked as f64 / requested;
    card.at_least(
        "blocked in migrate_block, of the sleep asked for",
        percent,
        99.0,
        "%",
    );
    let highest = 100.0 * most as f64 / requested + 1.0;
    card.at_most("the same", percent, highest, "%");
    card.at_least(
        "blocks that changed CPU",
        run.truth.extra("crossings")?,
        10.0,
        "",
    );
    Ok(card)
}

fn inject(tool: &Tool, length: Length, step: &str, kind: &str) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let flags = [
        "--seconds",
        &seconds,
        "--in",
        step,
        "--kind",
        kind,
        "--delay-us",
        "3000",
    ];
    let run = tool.measure("inject", &flags, &length.options())?;
    let mut card = agrees(&run.report, &run.truth, &Limits::default());
    (card.rows).extend(run.evidence().shares("wall", share::OFF_CPU).rows);
    // What the step took beyond the delay is small beside it: the delay must stand under its name.
    let times = run
        .report
        .function(step, "wall")
        .map_or(0, |times| times.total_ns);
    let injected = run.truth.extra("injected_ns")?;
    let all: u64 = run
        .truth
        .threads
        .iter()
        .map(|t| t.work_wall_ns)
        .max()
        .unwrap_or(0);
    let found = 100.0 * times as f64 / all as f64;
    card.at_least(
        format!("{kind} delay found in {step}"),
        found,
        100.0 * injected / all as f64 - 1.0,
        "%",
    );
    Ok(card)
}

pub(super) fn inject_sleep(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    inject(tool, length, "step_parse", "sleep")
}

pub(super) fn inject_cpu(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    inject(tool, length, "step_lookup", "cpu")
}

pub(super) fn inject_lock(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    inject(tool, length, "step_store", "lock")
}
