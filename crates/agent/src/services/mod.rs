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
mod labels;
mod pods;
mod process_context;
mod program;
mod redact;
mod resolve;
mod rules;

#[cfg(test)]
mod tests;

pub use apply::{Labeller, apply};
pub use cardinality::{Cardinality, IDLE_WINDOWS, OTHER};
pub use cgroup::{CgroupMeaning, path_of, place};
pub use facts::Facts;
pub use labels::{KERNEL, Labels, SERVICE};
pub use pods::{Pod, Pods, PodsError};
pub use redact::redacted;
pub use resolve::{labelled, labels};
pub use rules::Labelled;
