//! The rule engine: one table of named rules over one [`Evidence`].
//!
//! The first rule of [`RULES`] that applies gives the verdict; every rule that was tried is kept with its figures.
//! The ladder prints the verdict in full, and the sentence at the end of a recording prints its conclusion.
//! Thresholds are in [`crate::thresholds`].
//!
//! To add a rule: write its judgement in the file of its topic, add a row here, and a scenario that
//! needs it to the testkit.

mod accept_queue;
mod answers;
mod blind_spots;
mod call_path;
mod collections;
mod conclusions;
mod cpu;
mod deadlock;
mod details;
mod event_loops;
mod kernel_work;
mod limits;
mod locks;
mod notes;
mod requests;
mod rest;
mod root;
mod stalled;
mod table;
mod tasks;
mod verdict;
mod wait_target;
mod waits;

use wallscope_model::State;

use crate::evidence::Evidence;
use crate::words;

use blind_spots::BlindSpot;
pub(crate) use notes::NOTES;
pub(crate) use table::RULES;
use table::{Conclude, Rank, Rule};
pub(crate) use tasks::TASKS_LOCK;
pub use verdict::{ACTIVE, Verdict, VerdictParts};

/// A rule that was tried.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TriedRule {
    /// Its name.
    pub rule: &'static str,
    /// When it speaks, and the source of its thresholds.
    pub when: &'static str,
    /// The figures that it judged by.
    pub looked_at: String,
    /// Whether it applied.
    pub applied: bool,
    /// Whether it gave the verdict: the first one that applied.
    pub spoke: bool,
}

/// Outcome of the rules.
pub(crate) struct Judgement {
    /// The verdict of the first rule that applied.
    pub verdict: Verdict,
    /// Its conclusion in a clause.
    pub conclusion: String,
    /// When its rule speaks.
    pub when: &'static str,
    /// Causes of the other bottlenecks that apply, as clauses, with the rules' names.
    pub also: Vec<(&'static str, String)>,
    /// Every rule that was tried, in order.
    pub tried: Vec<TriedRule>,
}

/// Assumption of a verdict on waits where wakers are unknown.
const WAKERS_UNKNOWN: &str = "the waiting is not for the program's own computing: no record says which thread waits for which";

/// Tries the rules in order.
pub(crate) fn judge(e: &Evidence<'_>) -> Judgement {
    let mut tried: Vec<TriedRule> = Vec::new();
    let mut spoken: Option<(&Rule, Verdict)> = None;
    let (mut named, mut also) = (Vec::new(), Vec::new());
    for rule in RULES {
        let found = (rule.judge)(e);
        tried.push(TriedRule {
            rule: rule.name,
            when: rule.when,
            looked_at: found.looked_at,
            applied: found.verdict.is_some(),
            spoke: found.verdict.is_some() && spoken.is_none(),
        });
        match (found.verdict, &spoken) {
            (Some(verdict), None) => spoken = Some((rule, verdict)),
            (Some(verdict), Some((_, first)))
                if first.bottleneck && rule.rank != Rank::Fallback =>
            {
                named.push(rule.name);
                // A verdict on the same waits as the first rule's is no further finding.
                let other = (verdict.reason, &verdict.function) != (first.reason, &first.function);
                let clause = (verdict.bottleneck && other).then(|| words::clause(&verdict.cause));
                also.extend(clause.map(|clause| (rule.name, clause)));
            }
            _ => {}
        }
        let ends = spoken
            .as_ref()
            .is_some_and(|(rule, _)| rule.rank == Rank::Final);
        if ends {
            break;
        }
    }
    let Some((rule, mut verdict)) = spoken else {
        unreachable!("the last rule always speaks")
    };
    verdict.rule = rule.name;
    verdict.also = named;
    let verdict = completed(e, verdict, rule.blind);
    let (when, conclude) = match verdict.rule == accept_queue::NAME {
        true => (accept_queue::WHEN, conclusions::cause as Conclude),
        false => (rule.when, rule.conclude),
    };
    Judgement {
        conclusion: conclude(e, &verdict),
        when,
        verdict,
        also,
        tried,
    }
}

/// The verdict with its root, its callers, its assumption, its blind spot and a full accept queue.
fn completed(e: &Evidence<'_>, verdict: Verdict, blind: &[BlindSpot]) -> Verdict {
    let mut verdict = root::with_root(e, verdict);
    if verdict.state == Some(State::Blocked) {
        let function = verdict.function.as_deref();
        let callers = function.and_then(|f| call_path::callers(e, f, State::Blocked));
        verdict.more.extend(callers);
        if verdict.bottleneck && e.recording.hops.is_empty() {
            verdict.assumes = verdict.assumes.or(Some(WAKERS_UNKNOWN));
        }
    }
    let mut verdict = accept_queue::add(e, verdict);
    verdict.parts.not_seen = blind_spots::first_that_matters(e, blind);
    verdict.parts.impact = impact(e, &verdict);
    verdict
}

/// Time that the cause of a bottleneck explains, in words.
fn impact(e: &Evidence<'_>, verdict: &Verdict) -> String {
    if !verdict.bottleneck || verdict.bound.is_empty() {
        return String::new();
    }
    let active = e.bottleneck.active_ns();
    let whole = match (&*verdict.whole, e.bottleneck.active_threads) {
        (ACTIVE, threads @ 2..) => format!(
            "{} of {ACTIVE} ({threads} threads together)",
            words::time(active)
        ),
        (ACTIVE, _) => format!("{} of {ACTIVE}", words::time(active)),
        (whole, _) => whole.to_owned(),
    };
    let parts = verdict.parts.shares.iter();
    let parts: Vec<String> = parts
        .map(|(part, share)| format!("{} {part}", words::time((share * active as f64) as u64)))
        .collect();
    let parts = match (parts.is_empty(), verdict.state) {
        (true, Some(State::OnCpu)) => ": all that it computes".into(),
        (true, _) => String::new(),
        (false, _) => format!(": {}", words::list(&parts)),
    };
    format!(
        "{} at most {} of {whole}{parts}",
        saving(verdict),
        words::share(verdict.share)
    )
}

/// The change that saves the impact, as a subject and a verb: it covers the time that the impact counts, and no other.
fn saving(verdict: &Verdict) -> &'static str {
    let computed = |(part, _): &(&str, f64)| root::COMPUTING.contains(part);
    match verdict.state {
        _ if verdict.parts.shares.iter().any(computed) => "a fix saves",
        Some(State::Blocked) => "an end of these waits saves",
        Some(State::OnCpu) => "faster code saves",
        Some(State::Runnable) => "enough CPU time saves",
        _ => "a fix saves",
    }
}
