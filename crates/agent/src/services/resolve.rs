//! Facts → labels.

use std::collections::BTreeSet;

use super::cgroup::place;
use super::facts::Facts;
use super::labels::{Labels, SERVICE};
use super::pods::Pods;
use super::rules::Labelled;
use super::{environ, program, rules};
use crate::config::Rule;

/// The labels of a process, before any rule.
pub fn labels(facts: &Facts, attributes: &BTreeSet<String>, pods: &Pods) -> Labels {
    let mut labels = Labels::new();
    let place = place(&facts.cgroup);
    let mut put = |key: &str, value: Option<String>| {
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            labels.insert(key.to_string(), value);
        }
    };
    let mut resource = environ::resource(&facts.environ);
    resource.extend(facts.context.clone());
    for key in attributes {
        put(key, resource.get(key).cloned());
    }
    let pod = place.pod.as_deref().and_then(|uid| pods.get(uid));
    put("namespace", pod.map(|p| p.namespace.clone()));
    put("pod", pod.map(|p| p.name.clone()).or(place.pod.clone()));
    put("container", place.container.clone());
    put("runtime", place.runtime.map(str::to_string));
    put("unit", place.unit.clone());
    let service = (resource.get("service.name").cloned())
        .or_else(|| pod.map(|p| p.workload.clone()))
        .or_else(|| place.service())
        .unwrap_or_else(|| program::name(facts));
    put(SERVICE, Some(service));
    labels
}

/// The labels of a process, after the rules; `None`: a rule excludes it.
pub fn labelled(
    facts: &Facts,
    attributes: &BTreeSet<String>,
    pods: &Pods,
    rules: &[Rule],
) -> Labelled {
    rules::apply(rules, facts, labels(facts, attributes, pods))
}
