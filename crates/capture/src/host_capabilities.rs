//! Privileges and kernel features of this host, found by trying them.
//!
//! Versions and sysctls say which acts *should* be allowed; containers, seccomp filters and security
//! modules decide which are. So each thing is tried once, in the smallest form that the kernel judges
//! the same way: load an empty program, open and close an event, read a process forked for
//! the purpose. Two such processes are used, a child of ours and a process that does not descend from us,
//! because Yama treats them differently.
//!
//! It changes nothing on the host and keeps nothing open. It does not inspect a particular target:
//! another user's processes need CAP_SYS_PTRACE in addition to the rights found here.

use std::io;

pub(crate) mod attempts;
mod checks;
mod finding;
mod perf_restrictions;
mod settings;
mod subject;
mod uprobes;

use attempts::{bpf_at_scheduler, first_pid_namespace, perf_system, readable};
pub use checks::{PROC_REMEDY, probe};
pub use finding::{Finding, Tier};
pub(crate) use perf_restrictions::PerfRestrictions;
pub use settings::{Setting, proc_is_ours, settings};

/// Meaning of a refusal, and the attempt.
type Try = (&'static str, fn() -> io::Result<()>);

/// Why the eBPF backend cannot be used here; `None`: it can.
pub fn ebpf_refused() -> Option<String> {
    let tries: [Try; 4] = [
        ("eBPF programs see other process ids", first_pid_namespace),
        (
            "eBPF needs kernel type information (/sys/kernel/btf/vmlinux)",
            || readable("/sys/kernel/btf/vmlinux"),
        ),
        ("eBPF is refused", bpf_at_scheduler),
        ("eBPF needs perf events of the whole machine", perf_system),
    ];
    tries
        .into_iter()
        .find_map(|(what, attempt)| Some(format!("{what}: {}", attempt().err()?)))
}

/// Whether the finding named `id` was positive.
pub fn allowed(findings: &[Finding], id: &str) -> bool {
    findings.iter().any(|f| f.id == id && f.outcome.is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_finding_says_what_is_lost_and_what_helps() {
        let all = probe();
        let mut ids: Vec<_> = all.iter().map(|f| f.id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), all.len(), "names are unique");
        for f in &all {
            assert!(!f.lost.is_empty() && !f.remedy.is_empty(), "{}", f.id);
            println!("{:16} {:?}", f.id, f.outcome);
        }
        // Any process may read the scheduler's counters of its own child.
        assert!(allowed(&all, "proc_own") && allowed(&all, "child_schedstat"));
    }
}
