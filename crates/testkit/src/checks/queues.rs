//! Queues: arrivals, service and waits of a server that knows them; what-if against a program of which the
//! function is really made twice as fast.

use serde_json::Value;

use crate::score::within;
use crate::tool::{Options, Run};
use crate::{Error, Program, Scorecard, Tool};

use super::{LIMIT, Length};

/// Limits of the server's figures, percent; of its utilisation, points.
const ARRIVALS: f64 = 3.0;
const SERVICE: f64 = 5.0;
const UTILISATION: f64 = 3.0;
/// The wait holds wake-ups and the way through the kernel, a tenth of a millisecond or two.
const WAIT: f64 = 15.0;
/// Limit of a predicted change, percentage points.
const CHANGE: f64 = 5.0;

fn with_timeline() -> Options {
    Options {
        more: vec!["--timeline".into()],
        ..Options::at(199)
    }
}

/// What `queues --json` says of a run, with further arguments.
fn asked(tool: &Tool, run: &Run, more: &[&str]) -> Result<Value, Error> {
    let path = run.recorded.path();
    let mut arguments = vec!["queues".as_ref(), path.as_os_str(), "--json".as_ref()];
    arguments.extend(more.iter().map(std::ffi::OsStr::new));
    let output = tool.run(&arguments)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Error::Output(format!("queues failed: {said}")));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| Error::Output(format!("queues --json: {e}")))
}

pub(super) fn server(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    // Rates have to be known, so the short run is not as short as others.
    let seconds = format!("{}", length.seconds.max(6.0));
    let run = tool.measure("queue", &["--seconds", &seconds], &with_timeline())?;
    let said = asked(tool, &run, &[])?;
    let queues = said["queues"].as_array().cloned().unwrap_or_default();
    let own = |q: &&Value| q["name"] == "queue-server" && q["kind"] == "server";
    let mut card = Scorecard::default();
    let found = queues.iter().find(own);
    card.near(
        "the server is a queue",
        1.0,
        f64::from(u8::from(found.is_some())),
        within(0.0, ""),
    );
    let Some(q) = found else {
        return Ok(card);
    };
    let truth = |name: &str| run.truth.extra(name);
    let (requests, served) = (truth("requests")?, truth("served_ns")?);
    // The recording is longer than the load: rates are over its own window.
    let window = run
        .report
        .window
        .end_ns
        .saturating_sub(run.report.window.start_ns) as f64;
    let off = |measured: f64, truth: f64| 100.0 * (measured / truth - 1.0);
    let value = |of: &Value, key: &str| of[key].as_f64().unwrap_or(f64::NAN);
    let rate = value(&q["arrivals_per_s"], "value");
    card.near(
        "arrival rate, off by",
        0.0,
        off(rate, 1e9 * requests / window),
        within(ARRIVALS, "%"),
    );
    let service = value(&q["service"], "ns");
    card.near(
        "service time, off by",
        0.0,
        off(service, served / requests),
        within(SERVICE, "%"),
    );
    let busy = 100.0 * value(&q["utilisation"], "value");
    card.near(
        "utilisation",
        100.0 * served / window,
        busy,
        within(UTILISATION, "%"),
    );
    let wait = truth("response_ns")? / truth("answers")? - served / requests;
    let measured = value(&q["wait"], "ns");
    card.near("wait, off by", 0.0, off(measured, wait), within(WAIT, "%"));
    Ok(card)
}

/// Mean time of a request of a program without a recording, ns.
fn request_time(truth: &crate::Truth) -> f64 {
    let workers = || {
        truth
            .threads
            .iter()
            .filter(|t| t.name.starts_with("whatif-"))
    };
    let wall: u64 = workers().map(|t| t.work_wall_ns).sum();
    let operations: u64 = workers().map(|t| t.operations).sum();
    wall as f64 / operations.max(1) as f64
}

pub(super) fn what_if(tool: &Tool, length: Length) -> Result<Scorecard, Error> {
    let seconds = length.text();
    let mut card = Scorecard::default();
    // Where the lock is nearly always held, and where it is free for most of the time.
    for prepare in ["4000", "20000"] {
        let flags = [
            "--seconds",
            &seconds,
            "--prepare-us",
            prepare,
            "--compact-us",
        ];
        let run = tool.measure(
            "whatif",
            &[&flags[..], &["3000"]].concat(),
            &with_timeline(),
        )?;
        let said = asked(tool, &run, &["--faster", "whatif_compact=2"])?;
        let total = &said["what_if"][0];
        let predicted = 100.0
            * total["total"]["change"]["value"]
                .as_f64()
                .unwrap_or(f64::NAN);
        let mut program = Program::start("whatif", &[&flags[..], &["1500"]].concat())?;
        program.release()?;
        let faster = program.truth(LIMIT)?;
        program.finish()?;
        let real = 100.0 * (request_time(&faster) / request_time(&run.truth) - 1.0);
        let what = format!("change of a request's time, {prepare} µs without the lock");
        card.near(what, real, predicted, within(CHANGE, "%"));
        let exact = total["bound"] == Value::Bool(false);
        card.near(
            "replayed, not bounded",
            1.0,
            f64::from(u8::from(exact)),
            within(0.0, ""),
        );
    }
    Ok(card)
}
