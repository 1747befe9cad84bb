//! Why threads waited: reasons, wakers, locks and chains against programs that know.

use std::collections::BTreeMap;

use crate::score::{chance, within};
use crate::tool::{Options, Run};
use crate::{Error, Scorecard, Tool};

use super::{Length, disk_folder};

/// Blocked time that must have the right reason, percent.
const RIGHT: f64 = 99.0;
/// Waits in `io_uring_enter` that must have the right reason where the ring's memory is read from outside, percent.
/// A wait can end between the thread's state and the ring's words; the host of a virtual machine that takes a CPU in
/// between makes that longer.
const RIGHT_FROM_OUTSIDE: f64 = 95.0;

/// Rows: of the blocked time of each measured function that waits for one thing, the part that has
/// the right reason.
pub(super) fn reasons_right(run: &Run) -> Result<Scorecard, Error> {
    reasons_of(run, |_, _| Some(RIGHT))
}

/// As [`reasons_right`]. `promised`: the least percentage, by the function's name and its waits in ns, where there is
/// one.
fn reasons_of(run: &Run, promised: impl Fn(&str, f64) -> Option<f64>) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let mut by_reason: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for function in run.truth.functions.iter().filter(|f| !f.reason.is_empty()) {
        by_reason
            .entry(&function.reason)
            .or_default()
            .push(function);
    }
    let all = run.recorded.folded("off-cpu")?;
    for (reason, functions) in by_reason {
        let right = run
            .recorded
            .folded_where("off-cpu", &["--reason", reason])?;
        for function in functions {
            // Its own thread's time: a child that borrows the stack has another name.
            let own = run.truth.threads.iter().find(|t| t.tid == function.tid);
            let time = |lines: &[crate::folded::Line]| -> u64 {
                lines
                    .iter()
                    .filter(|l| own.is_none_or(|t| t.name == l.thread))
                    .filter(|l| l.contains(&function.name))
                    .map(|l| l.ns)
                    .sum()
            };
            let whole = time(&all) as f64;
            let Some(promised) = promised(&function.name, whole) else {
                continue;
            };
            card.at_least(
                format!("{} blocked for {reason}", function.name),
                100.0 * time(&right) as f64 / whole,
                promised,
                "%",
            );
        }
    }
    Ok(card)
}

pub(super) fn reasons(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let (seconds, folder) = (length.text(), disk_folder(tool));
    let flags = ["--seconds", &seconds, "--dir", &folder];
    let run = tool.measure("reasons", &flags, &Options::at(99))?;
    let mut card = reasons_right(&run)?;
    let main = run.truth.threads.iter().find(|t| t.name == "r-fifo");
    let pid = main.map_or(0, |t| t.pid);
    if run.truth.extra("uring").is_ok() {
        let made = |t: &&crate::report::Thread| t.pid == pid && t.name.starts_with("iou-wrk-");
        card.at_least(
            "threads seen that io_uring made",
            run.report.threads.iter().filter(made).count() as f64,
            1.0,
            "",
        );
    }
    let (fd, port) = (
        run.truth.extra("udp_fd")?,
        run.truth.extra("udp_peer_port")?,
    );
    for (function, resource) in [
        ("reason_fifo", format!("openat /tmp/wallscope-fifo-{pid}")),
        ("reason_udp", format!("peer 127.0.0.1:{port} (fd {fd})")),
    ] {
        waited_for(&mut card, &run, function, &resource)?;
    }
    Ok(card)
}

/// Row: how much of the waiting in `function` is told to be for `resource`.
fn waited_for(
    card: &mut Scorecard,
    run: &Run,
    function: &str,
    resource: &str,
) -> Result<(), Error> {
    let time = |more: &[&str]| -> Result<u64, Error> {
        let lines = run.recorded.folded_where("off-cpu", more)?;
        let own = lines.iter().filter(|l| l.contains(function));
        Ok(own.map(|l| l.ns).sum())
    };
    let label = format!("resource={resource}");
    card.at_least(
        format!("{function} waited for {resource}"),
        100.0 * time(&["--label", &label])? as f64 / time(&[])? as f64,
        RIGHT,
        "%",
    );
    Ok(())
}

/// Waits at rings of io_uring. Every ring of the program waits for requests of known kinds.
pub(super) fn uring(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let (seconds, folder) = (length.text(), disk_folder(tool));
    let flags = ["--seconds", &seconds, "--dir", &folder];
    let run = tool.measure("uring", &flags, &Options::at(99))?;
    let mut card = reasons_right(&run)?;
    for backend in ["perf", "proc"] {
        let options = Options::at(99).with(&["--backend", backend]);
        let run = tool.measure("uring", &flags, &options)?;
        let samples = |ns| run.evidence().samples("off-cpu", ns);
        let by_chance = |ns| chance::binomial(RIGHT_FROM_OUTSIDE / 100.0, samples(ns));
        // A pipe is polled beside that ring: only the end of the wait tells, which proc does not see.
        let is_promised = |name: &str| backend == "perf" || name != "uring_epoll_receive";
        let promised =
            |name: &str, ns| is_promised(name).then(|| RIGHT_FROM_OUTSIDE - by_chance(ns));
        card.extend(backend, reasons_of(&run, promised)?);
    }
    Ok(card)
}

/// A thread that is held up until memory has been freed: the reason, and how long it was.
/// It must end at all: the program waits for itself where its thread is made to touch
/// memory that it alone brings in.
pub(super) fn userfault(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("userfault", &["--seconds", &seconds], &Options::at(99))?;
    let mut card = reasons_right(&run)?;
    let touched = run.truth.threads.iter().find(|t| t.name == "uf-touch");
    let touched = touched.map_or(0, |t| t.operations);
    card.at_least("pages that were brought in", touched as f64, 10.0, "");
    Ok(card)
}

pub(super) fn reclaim(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let (seconds, folder) = (length.text(), disk_folder(tool));
    let flags = ["--seconds", &seconds, "--dir", &folder];
    let run = tool.measure("reclaim", &flags, &Options::at(499))?;
    let mut card = reasons_right(&run)?;
    for function in &run.truth.functions {
        let lines = run.recorded.folded("off-cpu")?;
        let own = lines.iter().filter(|l| l.contains(&function.name));
        let blocked = function.blocked_ns();
        card.near(
            format!("{} blocked, of what it was by its own clock", function.name),
            100.0,
            100.0 * own.map(|l| l.ns).sum::<u64>() as f64 / blocked as f64,
            within(3.0, "%"),
        );
    }
    Ok(card)
}

/// Rows: the view off-wake and the chains of `thread` hold as much time as the ledger says.
fn sums(run: &Run, thread: &str) -> Result<Scorecard, Error> {
    let mut card = Scorecard::default();
    let blocked: u64 = run.report.threads.iter().map(|t| t.blocked_ns).sum();
    let off_wake = run.recorded.folded("off-wake")?;
    let sum: u64 = off_wake.iter().map(|l| l.ns).sum();
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;
    card.near(
        "off-wake, of blocked time",
        100.0,
        percent(sum, blocked),
        within(1.0, "%"),
    );
    let seen = |l: &&crate::folded::Line| l.frames.iter().any(|f| f.name.starts_with("[woken by "));
    let known: u64 = off_wake.iter().filter(seen).map(|l| l.ns).sum();
    card.at_least(
        "waker known, of blocked time",
        percent(known, blocked),
        95.0,
        "%",
    );
    let why = run.recorded.json(&["why", "--thread", thread])?;
    let threads = run.report.threads.iter().filter(|t| t.name == thread);
    let wall: u64 = threads.map(|t| t.wall_ns).sum();
    let ends: u64 = entries(&why["ends"]).map(|(_, ns)| ns).sum();
    card.near(
        format!("ends of the chains of {thread}, of its wall time"),
        100.0,
        percent(ends, wall),
        within(1.0, "%"),
    );
    Ok(card)
}

/// `[{what, ns}]`.
fn entries(list: &serde_json::Value) -> impl Iterator<Item = (&str, u64)> {
    let all = list.as_array().into_iter().flatten();
    all.map(|e| {
        (
            e["what"].as_str().unwrap_or_default(),
            e["ns"].as_u64().unwrap_or_default(),
        )
    })
}

/// A wait passes while several threads have the lock, one after the other.
pub(super) fn hands(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    // With the default limit not each of so many waits has a stack, and one without cuts nothing.
    let options = Options::at(99).with(&["--max-overhead", "50"]);
    let run = tool.measure("hands", &["--seconds", &length.text()], &options)?;
    let mut card = reasons_right(&run)?;
    let kinds = [
        ("h-long", "long_ns", "is blocked (timer)"),
        ("h-short", "short_ns", "is blocked (timer)"),
        ("h-busy", "busy_ns", "computes"),
    ];
    let truth = kinds.map(|(_, extra, _)| run.truth.extra(extra));
    let truth = truth.into_iter().collect::<Result<Vec<f64>, _>>()?;
    let whole: f64 = truth.iter().sum();

    let locks = run.recorded.json(&["locks"])?;
    let lock = (locks["locks"].as_array().into_iter().flatten())
        .find(|l| {
            l["name"]
                .as_str()
                .is_some_and(|n| n.contains("hands_mutex"))
        })
        .ok_or_else(|| Error::Output("no lock is called hands_mutex".into()))?;
    let holders = || lock["holders"].as_array().into_iter().flatten();
    let ns = |value: &serde_json::Value| value["ns"].as_f64().unwrap_or(0.0);
    let all: f64 = holders().map(ns).sum();
    let mut right = 0.0;
    for ((thread, _, deed), truth) in kinds.into_iter().zip(&truth) {
        let of_kind = || holders().filter(|h| h["thread"] == thread);
        let given: f64 = of_kind().map(ns).sum();
        let (share, true_share) = (100.0 * given / all, 100.0 * truth / whole);
        right += share.min(true_share);
        card.near(
            format!("waits under {thread}"),
            true_share,
            share,
            within(5.0, "%"),
        );
        let did = of_kind().flat_map(|h| h["meanwhile"].as_array().into_iter().flatten());
        let so = did.filter(|d| d["what"].as_str().is_some_and(|w| w.contains(deed)));
        let so: f64 = so.map(ns).sum();
        card.at_least(
            format!("meanwhile {thread} {deed}"),
            100.0 * so / given,
            75.0,
            "%",
        );
    }
    card.at_least("given to the lock's owner", right, 95.0, "%");
    Ok(card)
}

pub(super) fn chain(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    // On a busy machine the samplers would slow down, and short waits not be followed any more.
    let options = Options {
        more: vec!["--max-overhead".into(), "50".into()],
        ..Options::at(499)
    };
    let run = tool.measure("chain", &["--seconds", &seconds], &options)?;
    let mut card = reasons_right(&run)?;
    card.rows.extend(sums(&run, "front")?.rows);
    let truth = |name: &str| {
        let mut all = run.truth.functions.iter().filter(|f| f.name == name);
        all.next()
            .ok_or_else(|| Error::Output(format!("the program did not measure {name}")))
    };
    let percent = |part: u64, whole: u64| 100.0 * part as f64 / whole as f64;

    let locks = run.recorded.json(&["locks"])?;
    let rows = || locks["locks"].as_array().into_iter().flatten();
    let name_of = |r: &serde_json::Value| r["name"].as_str().unwrap_or_default().to_string();
    let lock = rows()
        .find(|r| name_of(r).contains("chain_mutex"))
        .cloned()
        .unwrap_or_default();
    let total = lock["total_ns"].as_u64().unwrap_or_default();
    let waited = truth("front_get")?.blocked_ns();
    card.near(
        "waits for chain_mutex, of the truth",
        100.0,
        percent(total, waited),
        within(2.0, "%"),
    );
    let holders: Vec<(bool, u64)> = (lock["holders"].as_array().into_iter().flatten())
        .map(|h| {
            let right = h["thread"] == "middle" && h["function"] == "middle_hold";
            (right, h["ns"].as_u64().unwrap_or_default())
        })
        .collect();
    let right: u64 = holders.iter().filter(|h| h.0).map(|h| h.1).sum();
    card.at_least(
        "held by middle in middle_hold",
        percent(right, total),
        95.0,
        "%",
    );

    // In the end the front's waits for the lock come to the server's activities.
    let why = run.recorded.json(&["why", "--function", "front_get"])?;
    let whole: u64 = entries(&why["ends"]).map(|(_, ns)| ns).sum();
    let ends = |begin: &str| -> u64 {
        let fitting = entries(&why["ends"]).filter(|(what, _)| what.starts_with(begin));
        fitting.map(|(_, ns)| ns).sum()
    };
    let (slept, computed) = (truth("back_sleep")?, truth("back_compute")?);
    let served = slept.wall_ns + computed.wall_ns;
    // A wait begins anywhere in the server's work, and on a busy machine all of them also queue.
    for (begin, expected) in [
        ("back is blocked (timer", slept.blocked_ns()),
        ("back computes", computed.on_cpu_ns),
    ] {
        card.at_least(
            format!(
                "{begin}…: {:.1} % of the server's work",
                percent(expected, served)
            ),
            percent(ends(begin), whole),
            0.3 * percent(expected, served),
            "%",
        );
    }
    let left = ends("middle is blocked") + ends("front blocked");
    card.at_most(
        "left at a wait that was not followed",
        percent(left, whole),
        10.0,
        "%",
    );
    Ok(card)
}

/// Rows of the holders of a lock in the output of `locks`.
fn holders_of<'a>(
    locks: &'a serde_json::Value,
    lock: &'a str,
) -> impl Iterator<Item = &'a serde_json::Value> {
    let rows = locks["locks"].as_array().into_iter().flatten();
    let own = rows.filter(move |r| r["name"].as_str().is_some_and(|n| n.contains(lock)));
    own.flat_map(|r| r["holders"].as_array().into_iter().flatten())
}

/// Rows: each lock has the holder that the program knows, told by the kind of lock.
fn holders_right(card: &mut Scorecard, locks: &serde_json::Value) {
    let holders = |lock: &str| -> Vec<String> {
        let mut names: Vec<String> = holders_of(locks, lock)
            .map(|h| format!("{} by {}", h["thread"], h["told_by"]).replace('"', ""))
            .collect();
        names.sort();
        names.dedup();
        names
    };
    for (lock, holder) in [
        ("held_left", "h-left by mutex"),
        ("held_right", "h-right by mutex"),
        ("held_own", "h-self by mutex"),
        ("held_plain", "h-keeper by mutex"),
        ("held_robust", "h-keeper by mutex"),
        ("held_pi", "h-keeper by futex"),
        ("held_first", "h-keeper by read-write lock"),
        ("held_second", "h-keeper by read-write lock"),
        ("held_third", ""),
        ("held_semaphore", ""),
        ("held_alike", ""),
    ] {
        let found = holders(lock);
        let right = found.join(", ") == holder;
        let what = format!("{lock} is had by: {holder} (found: {})", found.join(", "));
        card.at_least(what, f64::from(u8::from(right)), 1.0, "");
    }
}

/// Rows: waits with a time limit have the holder, and the function in which it had the lock.
fn limited_waits_right(card: &mut Scorecard, locks: &serde_json::Value) {
    // The first of these waits began before the recording, when nobody read the lock; of the last it says at the end.
    for (lock, told) in [
        ("held_limit_mutex", "mutex"),
        ("held_limit_pi", "futex"),
        ("held_limit_rw", "read-write lock"),
    ] {
        let (mut whole, mut right) = (0, 0);
        for h in holders_of(locks, lock) {
            let ns = h["ns"].as_u64().unwrap_or_default();
            whole += ns;
            let fits = h["thread"] == "h-keeper"
                && h["told_by"].as_str().is_some_and(|t| t.starts_with(told))
                && h["had_it"] == true;
            right += if fits && h["function"] == "held_keep" {
                ns
            } else {
                0
            };
        }
        card.at_least(
            format!("waits for {lock} that run out: held by h-keeper in held_keep"),
            100.0 * right as f64 / f64::max(whole as f64, 1.0),
            95.0,
            "%",
        );
    }
}

/// Locks that were taken before the recording and never given up: the owner of each, in every kind that names it,
/// and nobody where none does.
pub(super) fn held(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("held", &["--seconds", &seconds], &Options::at(99))?;
    let mut card = Scorecard::default();
    let locks = run.recorded.json(&["locks"])?;
    holders_right(&mut card, &locks);
    limited_waits_right(&mut card, &locks);
    for (thread, holder) in [("h-left", "h-right"), ("h-self", "h-self")] {
        let why = run.recorded.json(&["why", "--thread", thread])?.to_string();
        let told = why.contains(&format!("held by {holder} (")) && why.contains("(a circle)");
        card.at_least(
            format!("{thread} is held up by {holder}, in a circle"),
            f64::from(u8::from(told)),
            1.0,
            "",
        );
    }
    let path = run.recorded.path();
    let ladder = tool.run(&["ladder".as_ref(), path.as_os_str()])?;
    let text = String::from_utf8_lossy(&ladder.stdout)
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    card.at_least(
        "the ladder calls it a deadlock",
        f64::from(u8::from(text.contains("it is a deadlock"))),
        1.0,
        "",
    );
    let resource = format!("end of process held-child ({})", run.truth.extra("child")?);
    for function in ["held_child", "held_watch"] {
        waited_for(&mut card, &run, function, &resource)?;
    }
    Ok(card)
}
