//! Labels of processes, and their reserved names.

use std::collections::BTreeMap;

/// Labels of a process; `service` is always among them.
pub type Labels = BTreeMap<String, String>;

/// Key of the service.
pub const SERVICE: &str = "service";
/// The service of threads that belong to the kernel.
pub const KERNEL: &str = "kernel";
