//! The ladder for scripts: schema `wallscope.ladder/1`. Keys are added, never changed.

use serde_json::{Value, json};
use wallscope_analysis::blame::NotFollowed;
use wallscope_diagnose::ladder::{Cause, ExcludedTime, RootShare};
use wallscope_model::{BlockReason, State};

use super::Page;
use crate::probe_steps::{Climbed, Ended};

impl Page<'_> {
    /// Everything.
    pub(super) fn json(&self) -> String {
        let b = &self.ladder.bottleneck;
        let l = &b.ledger;
        let value = json!({
            "schema": "wallscope.ladder/1",
            "verdict": self.verdict_json(),
            "bottleneck": {
                "reading": b.reading().name(),
                "on_cpu_fraction": b.on_cpu(),
                "window_ns": b.window_ns,
                "active_ns": b.active_ns(),
                "on_cpu_ns": l.state_ns(State::OnCpu),
                "runnable_ns": l.state_ns(State::Runnable),
                "throttled_ns": l.runnable.throttled,
                "blocked_ns": l.blocked_ns(),
                "idle_ns": l.idle_ns,
                "unknown_ns": l.unknown_ns(),
                "active_threads": b.active_threads,
                "parked_threads": b.parked_threads,
                "parked_ns": b.parked_ns,
                "ticking_threads": b.ticking_threads,
                "ticking_ns": b.ticking_ns,
                "starved_ns": b.starved_ns,
                "voluntary_switches": l.voluntary_switches,
                "involuntary_switches": l.involuntary_switches,
            },
            "requests": {
                "asked": self.ladder.requests.asked,
                "mean_ns": self.ladder.requests.mean_ns(),
                "upstream": self.ladder.requests.upstream.as_ref().map(|u| json!({
                    "name": u.name,
                    "pid": u.pid,
                    "requests": u.requests,
                    "mean_ns": u.mean_ns(),
                })),
            },
            "host": self.ladder.host.iter().map(|r| json!({
                "name": r.name,
                "utilisation": r.utilisation,
                "saturation": r.saturation,
                "errors": r.errors,
                "level": r.level.name(),
            })).collect::<Vec<_>>(),
            "resolves": self.ladder.resolves,
            "causes": self.ladder.causes.iter().map(cause).collect::<Vec<_>>(),
            "apart": self.ladder.excluded.iter().map(excluded).collect::<Vec<_>>(),
            "probes": self.probes(),
            "ended": self.ended.as_ref().map(Ended::json),
            "rungs": self.climbed.as_ref().map(Climbed::json),
            "rules": self.ladder.tried.iter().map(|f| json!({
                "rule": f.rule,
                "when": f.when,
                "looked_at": f.looked_at,
                "applied": f.applied,
                "spoke": f.spoke,
            })).collect::<Vec<_>>(),
        });
        wallscope_render::json::text(&value)
    }

    /// The verdict, with its parts.
    fn verdict_json(&self) -> Value {
        let v = &self.ladder.verdict;
        json!({
            "rule": v.rule,
            "bottleneck": v.bottleneck,
            "outside": v.outside,
            "state": v.state.map(State::name),
            "reason": v.reason,
            "function": v.function,
            "resource": v.resource,
            "holder": v.holder,
            "cause": v.cause,
            "more": v.more,
            "also": v.also,
            "share": v.share,
            "confidence": v.confidence,
            "bound": v.bound,
            "not_seen": self.unseen(),
            "next": self.next(),
            "impact": v.parts.impact,
            "root": v.parts.root,
            "evidence": v.parts.evidence,
            "advice": v.parts.advice,
            "blind_spot": v.parts.not_seen,
            "because_of": v.parts.blame.iter().map(root).collect::<Vec<_>>(),
        })
    }
}

fn cause(c: &Cause) -> Value {
    json!({
        "state": c.state.name(),
        "reason": c.reason,
        "function": &*c.function,
        "module": &*c.module,
        "through": &*c.through,
        "resource": c.resource.as_deref(),
        "ns": c.ns,
        "share": c.share,
        "low": c.interval.low,
        "high": c.interval.high,
        "threads": c.threads,
        "thread": &*c.thread,
        "because_of": c.because.iter().map(root).collect::<Vec<_>>(),
    })
}

/// Time that no cause counts.
fn excluded(a: &ExcludedTime) -> Value {
    json!({
        "why": a.exclusion.name(),
        "state": a.state.name(),
        "reason": a.reason,
        "function": &*a.function,
        "module": &*a.module,
        "ns": a.ns,
        "threads": a.threads,
    })
}

/// A root of waits, with its share of them.
fn root(root: &RootShare) -> Value {
    json!({
        "words": root.words(),
        "thread": root.actor,
        "threads": root.threads,
        "own": root.own,
        "state": root.state.name(),
        "reason": root.reason.map(BlockReason::name),
        "function": &*root.function,
        "not_followed": root.open.map(NotFollowed::name),
        "share": root.share,
    })
}
