//! Waiting for work against waiting for an answer; and spinning.

use crate::score::within;
use crate::tool::Options;
use crate::{Error, Scorecard, Tool};

use super::Length;

/// Sampled blocked time of one thread over some seconds, and requests at the window's edges.
const IDLE: f64 = 5.0;

/// Whether the running kernel's type information has `name`.
fn kernel_has(name: &str) -> bool {
    let btf = std::fs::read("/sys/kernel/btf/vmlinux").unwrap_or_default();
    btf.windows(name.len()).any(|w| w == name.as_bytes())
}

pub(super) fn upstream(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("upstream", &["--seconds", &seconds], &Options::at(99))?;
    let mut card = Scorecard::default();
    let followed = kernel_has("btf_trace_sock_send_length");
    let owed = run.truth.extra("owed_ns")?;
    for own in &run.truth.threads {
        let seen = run.report.thread(own.pid, own.tid);
        let Some(seen) = seen.filter(|t| t.wall_ns > 0) else {
            continue;
        };
        if own.name == "loop" && followed {
            let busy = seen.wall_ns - seen.idle_ns;
            // Before its gate opens and after its work it waits for a lock, which is not idle.
            let apart = seen.blocked.get("lock").copied().unwrap_or(0);
            let truth = 100.0 * owed / seen.wall_ns as f64;
            let share = 100.0 * (busy - apart.min(busy)) as f64 / seen.wall_ns as f64;
            card.near(
                "the loop's time that is not idle",
                truth,
                share,
                within(IDLE, "%"),
            );
        } else if own.name.starts_with("pool-") {
            let share = 100.0 * seen.idle_ns as f64 / seen.wall_ns as f64;
            card.at_least(format!("{}: parked, idle", own.name), share, 80.0, "%");
        }
    }
    if !followed {
        eprintln!(
            "skipped requests in flight: this kernel does not name the sender (Linux 6.3 does)"
        );
        return Ok(card);
    }
    let port = run.truth.extra("upstream_port")?;
    let address = format!("127.0.0.1:{port}");
    let peer = run
        .report
        .peers
        .iter()
        .find(|p| p.asks && p.address == address);
    let peer = peer.cloned().unwrap_or_default();
    let requests = run.truth.extra("requests")?;
    card.near(
        "requests to upstream",
        requests,
        peer.requests as f64,
        within(1.0, ""),
    );
    let awaited = run.truth.extra("awaited_ns")?;
    let off = 100.0 * (peer.in_flight_ns as f64 / awaited - 1.0);
    card.near("time until upstream answered", 0.0, off, within(3.0, "%"));
    let pid = run.truth.extra("upstream_pid")?;
    card.near(
        "upstream's process",
        pid,
        f64::from(peer.peer_pid),
        within(0.0, ""),
    );
    if !kernel_has("bpf_task_work_schedule_resume_impl") {
        eprintln!("skipped senders' stacks: threads cannot read their own here (Linux 6.18)");
        return Ok(card);
    }
    let sender = |s: &crate::report::PeerStack| s.frames.iter().any(|f| f == "loop_ask_upstream");
    let named: u64 = peer.stacks.iter().filter(|s| sender(s)).map(|s| s.ns).sum();
    let all: u64 = peer.stacks.iter().map(|s| s.ns).sum();
    let share = 100.0 * named as f64 / all.max(1) as f64;
    card.at_least(
        "senders' stacks with the function that sends",
        share,
        95.0,
        "%",
    );
    Ok(card)
}

pub(super) fn long_ago(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("long-ago", &["--seconds", &seconds], &Options::at(99))?;
    let mut card = Scorecard::default();
    for own in &run.truth.threads {
        let seen = run.report.thread(own.pid, own.tid);
        let Some(seen) = seen.filter(|t| t.wall_ns > 0) else {
            continue;
        };
        let idle = 100.0 * seen.idle_ns as f64 / seen.wall_ns as f64;
        if own.name.starts_with("pool-") {
            card.at_least(format!("{}: parked, idle", own.name), idle, 80.0, "%");
        } else if own.name == "asker" && kernel_has("btf_trace_sock_send_length") {
            card.at_most("a thread that polls for the answer, idle", idle, 1.0, "%");
        } else if own.name.starts_with("hung-") {
            let what = format!("{}: waits for an answer on a unix socket, idle", own.name);
            card.at_most(what, idle, 1.0, "%");
        }
    }
    Ok(card)
}

pub(super) fn aside(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("aside", &["--seconds", &seconds], &Options::at(99))?;
    let mut card = Scorecard::default();
    if !kernel_has("btf_trace_sock_send_length") {
        eprintln!(
            "skipped requests in flight: this kernel does not name the sender (Linux 6.3 does)"
        );
        return Ok(card);
    }
    for own in &run.truth.threads {
        let seen = run.report.thread(own.pid, own.tid);
        let Some(seen) = seen.filter(|t| t.wall_ns > 0) else {
            continue;
        };
        let idle = 100.0 * seen.idle_ns as f64 / seen.wall_ns as f64;
        match own.name.as_str() {
            "loop" | "reader" => card.at_most(
                format!("{}: waits for another's answer, idle", own.name),
                idle,
                IDLE,
                "%",
            ),
            "other-loop" => card.at_least("a loop that nobody owes, idle", idle, 80.0, "%"),
            _ => {}
        }
    }
    let nowhere = run.report.peers.iter().filter(|p| p.address == "port 0");
    card.near(
        "peers nowhere",
        0.0,
        nowhere.count() as f64,
        within(0.0, ""),
    );
    Ok(card)
}

pub(super) fn spin(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let run = tool.measure("spin", &["--seconds", &seconds], &Options::at(99))?;
    let output = tool.run(&["report".as_ref(), run.recorded.path().as_os_str()])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|l| l.contains("spin or yield"));
    let mut card = Scorecard::default();
    let said = f64::from(u8::from(line.is_some()));
    card.at_least("suspects that threads spin", said, 1.0, "");
    let suspected = line.is_some_and(|l| l.contains("suspected"));
    card.at_least("as a suspicion", f64::from(u8::from(suspected)), 1.0, "");
    Ok(card)
}
