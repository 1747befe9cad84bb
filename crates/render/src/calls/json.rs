//! `latency --json`: schema `wallscope.latency/1`; `count --json`: `wallscope.count/1`. Keys are added,
//! never changed.

use serde_json::{Map, Value, json};
use wallscope_model::calls::{Band, CallBooks, Calls, FunctionCalls, Lengths};

use super::{CallsDisplay, bands, quantiles};

/// Everything.
pub fn json(calls: &Calls, display: &CallsDisplay) -> String {
    let window = calls.window_ns();
    let functions: Vec<Value> = calls
        .functions
        .iter()
        .map(|f| function(f, calls, display))
        .collect();
    let slowest: Vec<Value> = calls
        .slowest
        .iter()
        .map(|s| {
            json!({
                "function": calls.functions.get(s.function).map(|f| &f.name),
                "start_ns": s.start_ns,
                "length_ns": s.length,
                "pid": s.pid,
                "tid": s.tid,
                "thread": s.thread,
                "ledger": books(&s.books),
            })
        })
        .collect();
    let limits: Vec<Value> = calls
        .domain
        .limits
        .iter()
        .map(|l| json!({"what": l.what, "remedy": l.remedy}))
        .collect();
    let losses: Vec<Value> = calls
        .losses
        .iter()
        .map(|l| json!({"cause": l.cause, "count": l.count}))
        .collect();
    let events: Vec<Value> = calls
        .domain
        .events
        .iter()
        .map(|e| json!({"what": e.what, "event": e.event, "rate": e.rate}))
        .collect();
    let mut whole = json!({
        "schema": if calls.timed { "wallscope.latency/1" } else { "wallscope.count/1" },
        "domain": {
            "tool": calls.domain.tool,
            "backend": calls.domain.backend,
            "privilege": calls.domain.privilege,
            "kernel": calls.domain.kernel,
            "cpus": calls.domain.cpus,
            "target": calls.domain.target,
            "events": events,
            "limits": limits,
            "notes": calls.domain.notes,
        },
        "window": {
            "start_ns": calls.start_ns,
            "end_ns": calls.end_ns,
            "start_unix_ns": calls.start_unix_ns,
            "clock": "CLOCK_MONOTONIC",
        },
        "functions": functions,
        "losses": losses,
        "cost": {
            "probe_ns": calls.probe_ns,
            "share_of_one_cpu": share(calls.probe_ns, window),
        },
        "stopped": calls.stopped,
    });
    if let (true, Value::Object(map)) = (calls.timed, &mut whole) {
        map.insert("slowest".into(), slowest.into());
    }
    crate::json::text(&whole)
}

fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

fn function(f: &FunctionCalls, calls: &Calls, display: &CallsDisplay) -> Value {
    let window = calls.window_ns();
    let t = &f.tally;
    let slices: Vec<Value> = f
        .slices
        .iter()
        .map(|s| {
            let mut slice = json!({
                "start_ns": s.start_ns,
                "end_ns": s.end_ns,
                "calls": s.entered,
            });
            if calls.timed {
                slice["ended"] = s.lengths.count().into();
                slice["quantiles"] = quantile_map(&s.lengths, f.longest);
            }
            slice
        })
        .collect();
    let mut out = json!({
        "name": f.name,
        "module": f.module,
        "probes": f.probes,
        "calls": t.entered,
        "per_second": t.entered as f64 * 1e9 / window.max(1) as f64,
        "slices": slices,
    });
    if !calls.timed {
        return out;
    }
    let lengths: Vec<Value> = f
        .lengths
        .parts()
        .map(|(from, to, n)| json!([from, to, n]))
        .collect();
    let rows: Vec<Value> = bands(f)
        .into_iter()
        .map(|(name, words, b)| {
            let mut row = band(&b);
            row["name"] = name.into();
            row["of"] = words.into();
            row
        })
        .collect();
    out["ended"] = json!({
        "with_length": t.ended,
        "by_tail_call": t.by_tail_call,
        "by_exception": t.by_exception,
        "left": t.left,
        "too_deep": t.deep,
        "still_open": t.open(),
        "began_before": t.begun,
    });
    out["wall_ns"] = f.wall.into();
    out["max_ns"] = f.longest.into();
    out["mean_ns"] = (f.wall / t.ended.max(1)).into();
    out["quantiles"] = quantile_map(&f.lengths, f.longest);
    if let Some(interval) = display.expected_interval {
        let corrected = f.lengths.corrected(interval);
        out["corrected"] = json!({
            "expected_interval_ns": interval,
            "calls": corrected.count(),
            "quantiles": quantile_map(&corrected, f.longest),
        });
    }
    out["histogram"] = lengths.into();
    out["ledger"] = books(&f.total().books);
    out["bands"] = rows.into();
    out["subtracted_ns"] = f.subtracted.into();
    out
}

fn quantile_map(lengths: &Lengths, longest: u64) -> Value {
    let map: Map<String, Value> = quantiles(lengths, longest)
        .into_iter()
        .map(|(name, _, ns)| (format!("{name}_ns"), ns.into()))
        .collect();
    map.into()
}

fn band(b: &Band) -> Value {
    json!({
        "calls": b.count,
        "mean_ns": b.wall / b.count.max(1),
        "wall_ns": b.wall,
        "ledger": books(&b.books),
    })
}

/// The parts that are not nothing; `blocked` by reason.
fn books(b: &CallBooks) -> Value {
    let parts = b.parts();
    let runnable = ["woken", "preempted", "throttled"];
    let of = |wanted: &dyn Fn(&str) -> bool| -> Value {
        let map: Map<String, Value> = parts
            .iter()
            .filter(|(name, _)| wanted(name))
            .map(|(name, ns)| ((*name).to_string(), (*ns).into()))
            .collect();
        map.into()
    };
    json!({
        "on_cpu_ns": b.on_cpu,
        "runnable_ns": b.runnable.total(),
        "blocked_ns": b.blocked.iter().sum::<u64>(),
        "runnable": of(&|n| runnable.contains(&n)),
        "blocked": of(&|n| n != "on_cpu" && !runnable.contains(&n)),
    })
}
