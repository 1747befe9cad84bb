//! `record --max-total-overhead`: steps that were given up stand in the domain, and the ledger closes all the same.

use wallscope_testkit::score::ledger::{Limits, closes};
use wallscope_testkit::tool::Options;
use wallscope_testkit::{Error, with_tool_alone};

/// Steps in the order in which they are taken, as the domain names them.
const STEPS: [&str; 4] = [
    "request tracking",
    "stacks and wakers",
    "block reasons of threads that switch more than 10,000 times a second",
    "all scheduler hooks",
];

/// When a step was taken, s, by the words of its limit.
fn given_up_at(what: &str) -> Option<f64> {
    let (_, rest) = what.split_once(" given up from ")?;
    rest.split_once(" s ")?.0.parse().ok()
}

#[test]
fn a_ping_pong_under_a_low_budget_is_given_up_step_by_step() {
    with_tool_alone("budget pingpong", |tool| {
        let options = Options::at(99).with(&["--max-total-overhead", "0.2"]);
        // Some ten seconds and more.
        let run = tool.measure("pingpong", &["--rounds", "2000000"], &options)?;
        // Without the hooks, each reading of the kernel's counters divides the time since the one before.
        let limits = Limits {
            repaired_ppm: 1e6,
            ..Limits::default()
        };
        let card = closes(&run.report, &limits);
        if let Some(row) = card.rows.iter().find(|row| !row.pass) {
            return Err(Error::Output(format!(
                "it does not close: {}: {}, limit {}",
                row.what, row.measured, row.limit
            )));
        }
        let report = run.recorded.json(&["report"])?;
        let limits = report["domain"]["limits"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let words: Vec<&str> = limits.iter().filter_map(|l| l["what"].as_str()).collect();
        let mut last = 0.0;
        for step in STEPS {
            let told = words.iter().find(|w| w.starts_with(step));
            let at = told.and_then(|w| given_up_at(w)).unwrap_or(-1.0);
            if at <= last {
                return Err(Error::Output(format!(
                    "{step} at {at} s, after {last} s: {words:#?}"
                )));
            }
            last = at;
        }
        // The kernel's counts are those of the programs, to a tick at each end.
        let counted: u64 = run.truth.threads.iter().map(|t| t.on_cpu_ns).sum();
        let known = |tid: u32| run.truth.threads.iter().any(|t| t.tid == tid);
        let booked = run.report.threads.iter().filter(|t| known(t.tid));
        let booked: u64 = booked.map(|t| t.on_cpu_ns).sum();
        if booked.abs_diff(counted) > counted / 100 {
            return Err(Error::Output(format!(
                "{booked} ns on the CPU, {counted} by the kernel's count"
            )));
        }
        Ok(())
    });
}
