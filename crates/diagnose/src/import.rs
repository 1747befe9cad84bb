//! What can be said where no ledger is: of another tool's file, and of an event's hits: what it
//! holds, and that it does not hold the rest.
//!
//! The rules judge by a ledger in which all of wall time adds up. Here totals are sums of samples,
//! so nothing may be concluded from what is missing.

use wallscope_model::{Recording, State};

use crate::{Evidence, Finding, words};

/// The sentence for a recording that was read from another tool's file, or holds an event's hits.
pub(crate) fn finding(recording: &Recording) -> Finding {
    let e = Evidence::new(recording);
    let unit = &recording.domain.unit;
    let total = e.total.wall_ns;
    if !recording.domain.is_import() {
        let name = unit.name();
        return Finding {
            sentence: format!("{total} {name}, by where they happened: no time, so no state."),
            rule: "event",
            when: "an event of the recording was chosen in the place of its time",
            assumes: None,
            evidence: Vec::new(),
            also: Vec::new(),
        };
    }
    let what = if unit.is_time() {
        let known: Vec<String> = State::ALL
            .iter()
            .map(|s| (*s, e.total.state_ns(*s)))
            .filter(|(_, ns)| *ns > 0)
            .map(|(state, ns)| {
                let says = match state {
                    State::OnCpu => "computing",
                    State::Runnable => "waiting for a CPU",
                    State::Blocked => "blocked",
                    State::Unknown => "in a state that it does not tell",
                };
                format!("{} {says}", words::time(ns))
            })
            .collect();
        if known.is_empty() {
            "no time".to_string()
        } else {
            words::list(&known)
        }
    } else {
        format!("{total} {}", unit.name())
    };
    Finding {
        sentence: format!(
            "The file holds {what}, as another tool sampled it; what it did not sample is not in it."
        ),
        rule: "import",
        when: "the recording was made from another tool's file",
        assumes: None,
        evidence: Vec::new(),
        also: Vec::new(),
    }
}
