//! Schema `wallscope.queues/1`. Keys are added, never changed. Times are integers in nanoseconds; an end
//! of an interval without bound is null.

use serde_json::{Value, json};

use wallscope_analysis::queueing::Estimate;
use wallscope_analysis::queueing::predict::{GROWTH, Outcome, Prediction};
use wallscope_analysis::queues::what_if::{Answer, Change};
use wallscope_analysis::queues::{Absent, Queue, System};

use super::{Findings, Scaling};

/// The findings as JSON, with a line break at the end.
pub fn json(findings: &Findings) -> String {
    let rows = findings.queues.as_ref().map_or(&[][..], |q| &q.rows);
    let absent = findings.queues.as_ref().map_or(&[][..], |q| &q.absent);
    let value = json!({
        "schema": "wallscope.queues/1",
        "file": findings.file,
        "queues": rows.iter().map(queue).collect::<Vec<_>>(),
        "not_described": absent.iter().map(not_described).collect::<Vec<_>>(),
        "what_if": findings.what_if.iter().map(answer).collect::<Vec<_>>(),
        "scaling": findings.scaling.as_ref().map(scaling),
    });
    crate::json::text(&value)
}

/// A number, or null if it has no bound.
fn bounded(v: f64) -> Value {
    if v.is_finite() { json!(v) } else { Value::Null }
}

fn estimate(e: &Estimate) -> Value {
    json!({ "value": bounded(e.value), "low": bounded(e.low), "high": bounded(e.high) })
}

/// Seconds as nanoseconds.
fn time(e: &Estimate) -> Value {
    let ns = |s: f64| match s.is_finite() {
        true => json!((s * 1e9).round() as i64),
        false => Value::Null,
    };
    json!({ "ns": ns(e.value), "low_ns": ns(e.low), "high_ns": ns(e.high) })
}

fn queue(q: &Queue) -> Value {
    let (system, customers) = match q.system {
        System::Open => ("open", None),
        System::Closed(customers) => ("closed", Some(customers)),
    };
    json!({
        "kind": q.kind.name(),
        "name": &*q.name,
        "system": system,
        "customers": customers,
        "because": q.because,
        "servers": q.servers,
        "arrivals_per_s": estimate(&q.arrival_rate),
        "service": time(&q.service),
        "service_variation": q.variation.as_ref().map(estimate),
        "utilisation": estimate(&q.utilisation),
        "other_work": q.others,
        "wait": q.wait.as_ref().map(time),
        "full_at_growth": estimate(&q.headroom),
        "prediction": q.prediction.as_ref().map(prediction),
        "notes": q.notes,
    })
}

fn prediction(p: &Prediction) -> Value {
    let growth = GROWTH.iter().zip(&p.growth).map(|(load, outcome)| {
        let (unstable, wait) = match outcome {
            Outcome::Unstable => (true, None),
            Outcome::Wait(e) => (false, Some(time(e))),
        };
        json!({ "load": load, "unstable": unstable, "wait": wait })
    });
    json!({
        "method": p.method.name(),
        "now": p.now.as_ref().map(time),
        "allen_cunneen": p.formula.map(|s| time(&Estimate::exact(s))),
        "growth": growth.collect::<Vec<_>>(),
    })
}

fn not_described(a: &Absent) -> Value {
    json!({ "kind": a.kind.name(), "name": &*a.name, "reason": a.reason })
}

fn changed(c: &Change) -> Value {
    json!({
        "thread": c.thread,
        "threads": c.threads,
        "before_ns": (c.before * 1e9).round() as i64,
        "change": estimate(&c.change),
    })
}

fn answer(a: &Answer) -> Value {
    json!({
        "function": a.question.function,
        "speedup": a.question.speedup,
        "bound": a.bound,
        "requests": a.requests,
        "samples": a.samples,
        "total": changed(&a.total),
        "threads": a.threads.iter().map(changed).collect::<Vec<_>>(),
        "assumptions": a.assumptions,
    })
}

fn scaling(s: &Scaling) -> Value {
    let points = s
        .points
        .iter()
        .map(|(source, p)| json!({ "source": source, "load": p.load, "per_s": p.throughput }));
    let without = s
        .without
        .iter()
        .map(|(file, reason)| json!({ "file": file, "reason": reason }));
    let fit = s.fit.as_ref().ok().map(|f| {
        json!({
            "single_per_s": estimate(&f.single),
            "contention": estimate(&f.contention),
            "coherence": estimate(&f.coherence),
            "peak_load": estimate(&f.peak_load),
            "peak_per_s": estimate(&f.peak_throughput),
            "scatter": f.scatter,
        })
    });
    json!({
        "points": points.collect::<Vec<_>>(),
        "without": without.collect::<Vec<_>>(),
        "fit": fit,
        "reason": s.fit.as_ref().err().map(ToString::to_string),
    })
}
