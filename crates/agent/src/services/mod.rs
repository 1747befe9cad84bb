//! Services: to which service a process belongs, and its labels.
//!
//! [`labels`] is a pure function from facts to labels. The first of these sources names the service:
//!
//! 1. `service.name` of the SDK's process context, then `OTEL_SERVICE_NAME`, then `service.name` in
//!    `OTEL_RESOURCE_ATTRIBUTES`,
//! 2. the name that Kubernetes knows for the pod, where that is configured ([`Pods`]),
//! 3. the systemd unit of the cgroup, without its ending and instance,
//! 4. the program: the executable, or the script or module that an interpreter runs.
//!
//! The user's rules come last and change any label. The number of services has a budget
//! ([`Cardinality`]): beyond it a process belongs to the service `other`, and metrics count how many.
//!
//! What it does not do: it asks no container runtime, so a container's name is not known, only its id.

mod apply;
mod cardinality;
mod cgroup;
mod environ;
mod facts;
mod pods;
mod process_context;
mod program;
mod redact;
mod rules;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use apply::{Labeller, apply};
pub use cardinality::{Cardinality, OTHER};
pub use cgroup::{Place, path_of, place};
pub use facts::Facts;
pub use pods::{Pod, Pods, PodsError};
pub use redact::redacted;
pub use rules::Labelled;

use crate::config::Rule;

/// Labels of a process; `service` is always among them.
pub type Labels = BTreeMap<String, String>;

/// Key of the service.
pub const SERVICE: &str = "service";
/// The service of threads that belong to the kernel.
pub const KERNEL: &str = "kernel";

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
