//! The timeline: single intervals sum to the ledger's totals, and name the waker.

use crate::score::within;
use crate::tool::Options;
use crate::{Error, Scorecard, Tool};

use super::Length;

pub(super) fn intervals(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let options = Options {
        more: vec!["--timeline".into()],
        ..Options::at(99)
    };
    let run = tool.measure("convoy", &["--seconds", &seconds], &options)?;
    let mut card = Scorecard::default();
    let (mut lock_blocks, mut woken) = (0, 0);
    for own in &run.truth.threads {
        let t = (run.report.thread(own.pid, own.tid))
            .cloned()
            .unwrap_or_default();
        let lane = t.timeline.clone().unwrap_or_default();
        // Intervals are as they were counted; later corrections are in the ledger alone.
        let most = (t.repaired_ns + t.unknown_ns) as f64 + t.wall_ns as f64 / 1e5;
        for (state, intervals, ledger) in [
            ("on-CPU", lane.on_cpu_ns, t.on_cpu_ns),
            ("runnable", lane.runnable_ns, t.runnable_ns),
            ("blocked", lane.blocked_ns, t.blocked_ns),
            ("no interval", lane.gaps_ns, t.unknown_ns),
        ] {
            let what = format!("{}: {state}, intervals against the ledger", own.name);
            card.near(what, ledger as f64, intervals as f64, within(most, "ns"));
        }
        let blocks: u64 = lane.blocks.values().sum();
        let switches = t.voluntary_switches as f64;
        card.near(
            format!("{}: blocked intervals against switches", own.name),
            switches,
            blocks as f64,
            within(
                // Blocks at the window's edges have no switch, or no end; and where the host hides a
                // switch, two intervals look like one.
                2.0 + 0.03 * switches,
                "",
            ),
        );
        lock_blocks += lane.blocks.get("lock").copied().unwrap_or(0);
        woken += lane.woken;
    }
    card.at_least("waits for the mutex", lock_blocks as f64, 1.0, "");
    // A thread of the program gives the mutex up.
    let share = 100.0 * woken as f64 / lock_blocks.max(1) as f64;
    card.at_least("of them, ended by a known thread", share, 95.0, "%");
    Ok(card)
}
