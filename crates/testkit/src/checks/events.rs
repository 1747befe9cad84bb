//! Stacks at events against a program that counts the events it causes: exact by thread, attributed to the
//! functions that cause them.

use serde_json::Value;

use crate::score::{chance, share, within};
use crate::tool::Options;
use crate::{Error, Scorecard, Tool};

use super::Length;

const FAULTS: &str = "page-faults";
const WRITES: &str = "syscalls:sys_enter_write";
const SWITCHES: &str = "sched:sched_switch";

pub(super) fn events(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let options = Options {
        more: vec!["-e".into(), format!("{FAULTS},{WRITES},{SWITCHES}")],
        ..Options::at(99)
    };
    let run = tool.measure("events", &["--seconds", &length.text()], &options)?;
    let named = |own: &&crate::truth::ThreadTruth| own.name == "events";
    let own = (run.truth.threads.iter().find(named))
        .ok_or_else(|| Error::Protocol("events has no thread of that name".into()))?;
    let mut card = Scorecard::default();
    for (event, functions) in [
        (FAULTS, &["events_touch"][..]),
        (WRITES, &["events_write_much", "events_write_little"]),
    ] {
        let said = run.recorded.json(&["report", "--value", event])?;
        let right: Vec<f64> = (functions.iter())
            .map(|name| run.truth.extra(name))
            .collect::<Result<_, _>>()?;
        let sum: f64 = right.iter().sum();
        for (name, right) in functions.iter().zip(right) {
            let seen = function(&said, name);
            let stacks = said["views"]["wall"]["samples"].as_f64().unwrap_or(0.0);
            let limit = share::ON_CPU + chance::binomial(right / sum, stacks);
            let limit = limit / 100.0 * sum;
            card.near(format!("{event} in {name}"), right, seen, within(limit, ""));
        }
        // It starts its stack and its clock with some faults, and ends with a line.
        let seen = thread(&said, own.tid);
        card.near(
            format!("{event} of the thread"),
            sum,
            seen,
            within(64.0, ""),
        );
    }
    let said = run.recorded.json(&["report", "--value", SWITCHES])?;
    let right = (own.voluntary_switches + own.involuntary_switches) as f64;
    // What the host hides of switches, both miss; before its release and after its work it has some.
    let seen = thread(&said, own.tid);
    card.near(
        "switches of the thread",
        right,
        seen,
        within(8.0 + 0.03 * right, ""),
    );
    // The clock's own figures stand beside them, untouched.
    let timed = (run.report.thread(own.pid, own.tid)).map_or(0, |t| t.wall_ns);
    card.at_least(
        "its wall time",
        timed as f64,
        own.work_wall_ns as f64 * 0.99,
        "ns",
    );
    Ok(card)
}

fn function(said: &Value, name: &str) -> f64 {
    let rows = said["functions"].as_array().into_iter().flatten();
    let own = rows.filter(|f| f["name"] == name);
    own.filter_map(|f| f["views"]["wall"]["total_ns"].as_f64())
        .sum()
}

fn thread(said: &Value, tid: u32) -> f64 {
    let mut rows = said["threads"].as_array().into_iter().flatten();
    let own = rows.find(|t| t["tid"] == tid);
    own.and_then(|t| t["wall_ns"].as_f64()).unwrap_or(0.0)
}
