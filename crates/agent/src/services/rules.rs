//! The user's rules: match → set, drop, rename, exclude.

use crate::config::Rule;

use super::{Facts, Labels, SERVICE};

/// Outcome of the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labelled {
    /// The process is left out of windows.
    Excluded,
    /// Its labels.
    Labels(Labels),
}

/// Applies `rules` in their order; each sees the labels that the earlier ones left.
pub(super) fn apply(rules: &[Rule], facts: &Facts, mut labels: Labels) -> Labelled {
    for rule in rules {
        if !matches(rule, facts, &labels) {
            continue;
        }
        if rule.exclude {
            return Labelled::Excluded;
        }
        for key in &rule.drop {
            labels.remove(key);
        }
        for (old, new) in &rule.rename {
            if let Some(value) = labels.remove(old) {
                labels.insert(new.clone(), value);
            }
        }
        for (key, value) in &rule.set {
            labels.insert(key.clone(), value.clone());
        }
    }
    labels
        .entry(SERVICE.to_string())
        .or_insert_with(|| super::program::name(facts));
    Labelled::Labels(labels)
}

/// Whether all patterns match. A fact or label that is missing matches nothing.
fn matches(rule: &Rule, facts: &Facts, labels: &Labels) -> bool {
    rule.matches.iter().all(|(key, pattern)| {
        let value = match key.as_str() {
            "cgroup" => Some(&facts.cgroup),
            "comm" => Some(&facts.comm),
            "exe" => Some(&facts.exe),
            label => labels.get(label),
        };
        value.is_some_and(|v| pattern.0.is_match(v))
    })
}
