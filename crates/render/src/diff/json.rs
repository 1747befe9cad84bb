//! The comparison as JSON, schema `wallscope.diff/1`. Keys are added, never changed.

use serde_json::{Map, Value, json};
use wallscope_model::compare::Difference;

use wallscope_analysis::diff::{Comparison, Metric, Normal, Outcome, Verdict};

fn difference(d: &Difference) -> Value {
    json!({
        "base": d.base, "new": d.new, "delta": d.delta, "low": d.low, "high": d.high,
        "relative": d.relative(), "p": d.p, "standard_error": d.error, "df": d.df,
        "resolvable": d.resolvable(),
    })
}

/// Renders a comparison and its judged conditions.
pub fn render(c: &Comparison, outcomes: &[Outcome]) -> String {
    let o = &c.options;
    let normal = match o.normal {
        Normal::Second => "second",
        Normal::CpuSecond => "cpu-second",
        Normal::Total => "total",
        Normal::Request => "request",
        Normal::Raw => "raw",
    };
    let metric = match o.metric {
        Metric::Program => "program",
        Metric::Own => "own",
        Metric::Total => "total",
    };
    let functions: Vec<Value> = (c.functions.iter())
        .map(|r| {
            let states: serde_json::Map<String, Value> = (r.states.iter())
                .map(|s| {
                    let mut v = difference(&s.difference);
                    v["changed"] = s.changed.into();
                    v["reason"] = s.reason.into();
                    (s.state.name().to_string(), v)
                })
                .collect();
            json!({
                "name": &*r.function.name, "module": &*r.function.module,
                "changed": r.changed, "what": r.what(), "q": r.q, "samples": r.samples,
                "all": difference(&r.all), "states": states,
                "held_by": r.held_by.as_ref().map(|h| json!({
                    "function": &*h.function, "thread": &*h.thread, "share": h.share,
                })),
            })
        })
        .collect();
    let whole: Vec<Value> = (c.whole.iter())
        .map(|r| {
            let mut v = difference(&r.difference);
            v["state"] = r.state.map(|s| s.name()).into();
            v["reason"] = r.reason.into();
            v["q"] = r.q.into();
            v
        })
        .collect();
    let verdict = |v: Verdict| match v {
        Verdict::Fired => "fired",
        Verdict::Holds => "holds",
        Verdict::Undecided => "undecided",
        Verdict::Nothing => "nothing",
    };
    let conditions: Vec<Value> = (outcomes.iter())
        .map(|o| json!({"condition": o.condition, "verdict": verdict(o.verdict), "says": o.says}))
        .collect();
    let dispersion: Map<String, Value> = (c.priors.iter())
        .map(|(state, p)| {
            let value = json!({"usual": p.dispersion, "df": p.df});
            (state.name().to_string(), value)
        })
        .collect();
    let value = json!({
        "schema": "wallscope.diff/1",
        "view": o.view.name(), "normal": normal, "by": metric, "idle": o.idle.name(),
        "hidden_idle_ns": {"base": c.hidden_idle_ns.0, "new": c.hidden_idle_ns.1},
        "unit": if o.normal == Normal::Total { "share" } else { c.measured.name() },
        "false_discovery_rate": o.fdr,
        "runs": {"base": c.runs.0, "new": c.runs.1},
        "seconds": {"base": c.seconds.0, "new": c.seconds.1},
        "dispersion": {"usual": c.prior.dispersion, "df": c.prior.df, "states": dispersion},
        "resolves_share": c.resolves(),
        "whole": whole, "functions": functions, "conditions": conditions, "notes": c.notes,
    });
    crate::json::text(&value)
}
