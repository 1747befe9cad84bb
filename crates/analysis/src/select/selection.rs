//! The conditions of a selection.

use std::fmt;
use std::ops::Range;

use regex::Regex;
use wallscope_model::{Label, Recording, State};

/// Conditions of a selection; the default selects everything. Conditions of different kinds must
/// all hold; of one kind, any of them.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Threads with one of these names.
    pub threads: Vec<String>,
    /// Processes with one of these names or ids.
    pub processes: Vec<String>,
    /// Threads with one of these values of the label `service`; exact.
    pub services: Vec<String>,
    /// These states.
    pub states: Vec<State>,
    /// These block reasons, parts, or causes of not being seen, by the contract's names.
    pub reasons: Vec<&'static str>,
    /// These labels beyond the contract's own, as key and value in words; of one key any.
    pub labels: Vec<(String, String)>,
    /// From and to, ns after the recording's start.
    pub time: Option<Range<u64>>,
    /// Stacks with a function of such a name.
    pub function: Option<Regex>,
    /// Stacks with code of a module with such a path.
    pub module: Option<Regex>,
    /// Stacks with such a frame.
    pub focus: Option<Regex>,
    /// Not stacks with such a frame.
    pub ignore: Option<Regex>,
    /// Leave out such frames.
    pub hide: Option<Regex>,
    /// Leave out callers above such a frame.
    pub show_from: Option<Regex>,
    /// Show a function that calls itself once.
    pub collapse_recursion: bool,
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        let mut list = |key: &str, values: Vec<&str>| {
            if !values.is_empty() {
                words.push(format!("{key} {}", values.join(" or ")));
            }
        };
        list("thread", self.threads.iter().map(|s| s.as_str()).collect());
        let processes = self.processes.iter().map(|s| s.as_str()).collect();
        list("process", processes);
        list(
            "service",
            self.services.iter().map(|s| s.as_str()).collect(),
        );
        list("state", self.states.iter().map(|s| s.name()).collect());
        list("reason", self.reasons.clone());
        let labels: Vec<String> = (self.labels.iter())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        list("label", labels.iter().map(|s| s.as_str()).collect());
        for (key, pattern) in self.patterns() {
            list(key, pattern.iter().map(|r| r.as_str()).collect());
        }
        if let Some(t) = &self.time {
            let second = |ns: u64| ns as f64 / 1e9;
            words.push(format!("time {}..{} s", second(t.start), second(t.end)));
        }
        if self.collapse_recursion {
            words.push("recursion collapsed".to_string());
        }
        f.write_str(&words.join(", "))
    }
}

impl Selection {
    pub(super) fn patterns(&self) -> [(&'static str, &Option<Regex>); 6] {
        [
            ("function", &self.function),
            ("module", &self.module),
            ("focus", &self.focus),
            ("ignore", &self.ignore),
            ("hide", &self.hide),
            ("show-from", &self.show_from),
        ]
    }

    /// Whether everything is selected and nothing changed.
    pub fn is_everything(&self) -> bool {
        self.to_string().is_empty()
    }

    /// Whether the selection depends on stacks.
    pub(super) fn by_stack(&self) -> bool {
        // Hiding frames also drops stacks: those without a frame left.
        self.patterns().iter().any(|(_, p)| p.is_some())
    }

    /// Whether the selection is known from samples only.
    pub(super) fn is_estimated(&self) -> bool {
        let by_sample = self.by_stack() || !self.labels.is_empty();
        by_sample || (self.time.is_some() && !self.reasons.is_empty())
    }

    /// Whether only some of a thread's time is selected.
    pub(super) fn is_partial(&self) -> bool {
        self.is_estimated()
            || self.time.is_some()
            || !self.states.is_empty()
            || !self.reasons.is_empty()
    }

    pub(super) fn wants_state(&self, state: State, reason: Option<&str>) -> bool {
        (self.states.is_empty() || self.states.contains(&state))
            && (self.reasons.is_empty() || reason.is_some_and(|r| self.reasons.contains(&r)))
    }

    /// For each set of labels, whether it is wanted; the last entry is for samples without labels.
    pub(super) fn label_sets(&self, rec: &Recording) -> Vec<bool> {
        let meets = |set: &[Label]| {
            self.labels.iter().all(|(key, _)| {
                let any = |l: &Label| {
                    let is = |(k, v): &(String, String)| {
                        k == key && **k == *l.key && *v == l.value.to_string()
                    };
                    self.labels.iter().any(is)
                };
                set.iter().any(any)
            })
        };
        let sets = rec.label_sets.iter().map(|set| meets(set));
        sets.chain([self.labels.is_empty()]).collect()
    }
}
