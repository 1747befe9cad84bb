//! What this host lets us do, found by trying it.
//!
//! Versions and sysctls say what *should* be allowed; containers, seccomp filters and security
//! modules decide what is. So each thing is tried once, in the smallest form that the kernel judges
//! the same way: an empty program is loaded, an event is opened and closed, a process forked for
//! the purpose is read. Two such processes are used, a child of ours and one that is no relative
//! any more, because Yama tells them apart.
//!
//! It changes nothing on the host and keeps nothing open. It does not look at a particular target:
//! another user's processes need CAP_SYS_PTRACE on top of what is found here.

use std::io;

pub(crate) mod attempts;
mod settings;
mod standing;
mod subject;
mod uprobes;

pub use settings::{Setting, proc_is_ours, settings};
pub(crate) use standing::Standing;
use subject::Subject;
use uprobes::uprobes;

use crate::{Error, backend::ebpf::Kernel};
use attempts::{
    PID_REMEDY, bpf_at_scheduler, first_pid_namespace, kernel_names, perf_clock, perf_cycles,
    perf_switches, perf_system, readable, tracepoints,
};

/// What something is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The eBPF backend.
    Ebpf,
    /// Perf events of an ordinary user.
    Perf,
    /// `/proc` and reading of memory.
    Proc,
    /// No backend depends on it.
    Extra,
}

impl Tier {
    /// The name that `--backend` takes; `extra` for what no backend depends on.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Ebpf => "ebpf",
            Tier::Perf => "perf",
            Tier::Proc => "proc",
            Tier::Extra => "extra",
        }
    }
}

/// One thing that was tried.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Short stable name, for scripts.
    pub id: &'static str,
    /// What it is.
    pub what: &'static str,
    /// What it is needed for.
    pub tier: Tier,
    /// Whether it was allowed; otherwise what the kernel said.
    pub outcome: Result<(), String>,
    /// What is lost without it.
    pub lost: &'static str,
    /// What would allow it.
    pub remedy: &'static str,
}

const BPF_REMEDY: &str = "run as root, or give the file the capabilities: sudo setcap \
     cap_bpf,cap_perfmon,cap_sys_ptrace,cap_syslog+ep $(command -v wallscope); in a container, see \
     wallscope doctor --print docker";
const PERF_REMEDY: &str = "sudo sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON; in a \
     container, a seccomp profile that permits perf_event_open";
const KERNEL_REMEDY: &str = "sudo sysctl kernel.perf_event_paranoid=1, or CAP_PERFMON";
const PERFMON_REMEDY: &str = "CAP_PERFMON, or root";
const PROBES_REMEDY: &str = "CAP_BPF and CAP_PERFMON, or root; before Linux 6.6 root";
const NAMESPACE_REMEDY: &str = "wallscope in the host's own user namespace (outside of this container, or in one that \
     is not rootless): capabilities that this one gives do not count for it";
const PARENT_REMEDY: &str = "start the program with wallscope: wallscope record -- CMD; or sudo \
     sysctl kernel.yama.ptrace_scope=0, or CAP_SYS_PTRACE";
/// What helps where `/proc` is missing, or is that of another pid namespace.
pub const PROC_REMEDY: &str =
    "mount -t proc proc /proc (in the pid namespace's own mount namespace: unshare --mount-proc)";

/// Name, what, needed for, outcome, what is lost, what helps.
type Row = (
    &'static str,
    &'static str,
    Tier,
    io::Result<()>,
    &'static str,
    &'static str,
);
/// What a refusal means, and the attempt.
type Try = (&'static str, fn() -> io::Result<()>);

/// Tries everything.
pub fn probe() -> Vec<Finding> {
    let child = Subject::child();
    let stranger = Subject::stranger();
    let of_child =
        |read: fn(&Subject) -> io::Result<()>| child.as_ref().map_err(clone).and_then(read);
    let of_stranger =
        |read: fn(&Subject) -> io::Result<()>| stranger.as_ref().map_err(clone).and_then(read);
    let own = perf_clock(true);
    let own_remedy = own
        .as_ref()
        .map_or_else(|e| Standing::now().remedy(e), |()| PERF_REMEDY);
    let first = settings::is_first_user_namespace();
    let privileged = |remedy| if first { remedy } else { NAMESPACE_REMEDY };
    // What refuses even own events, refuses all others.
    let kernel_remedy = (own.as_ref()).map_or(own_remedy, |()| privileged(KERNEL_REMEDY));
    let system_remedy = (own.as_ref()).map_or(own_remedy, |()| privileged(PERFMON_REMEDY));
    let rows: Vec<Row> = vec![
        (
            "btf",
            "kernel type information (BTF)",
            Tier::Ebpf,
            readable("/sys/kernel/btf/vmlinux"),
            "the eBPF backend",
            "a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of all large distributions are",
        ),
        (
            "bpf_kernel",
            "a kernel that has what the eBPF programs are made of",
            Tier::Ebpf,
            kernel_has_all(),
            "the eBPF backend",
            "Linux 6.1 or later",
        ),
        (
            "pid_namespace",
            "process ids as the kernel's programs see them",
            Tier::Ebpf,
            first_pid_namespace(),
            "the eBPF backend: it would measure other processes than those named",
            PID_REMEDY,
        ),
        (
            "bpf_sched",
            "eBPF programs at scheduler hooks",
            Tier::Ebpf,
            bpf_at_scheduler(),
            "each switch counted as it happens, kernel stacks, stacks of running threads of everybody",
            privileged(BPF_REMEDY),
        ),
        (
            "perf_system",
            "perf events of the whole machine",
            Tier::Ebpf,
            perf_system(),
            "the sampling clock and the mapping records of the eBPF backend",
            system_remedy,
        ),
        (
            "perf_own",
            "perf events of own processes",
            Tier::Perf,
            own,
            "stacks of running threads without eBPF",
            own_remedy,
        ),
        (
            "perf_switches",
            "context-switch records of own processes",
            Tier::Perf,
            perf_switches(),
            "preemption told apart from waiting, without eBPF",
            own_remedy,
        ),
        (
            "perf_kernel",
            "perf events that include the kernel",
            Tier::Extra,
            perf_clock(false),
            "kernel stacks of running threads without eBPF",
            kernel_remedy,
        ),
        (
            "pmu",
            "hardware performance counters",
            Tier::Extra,
            perf_cycles(),
            "whether computing is bound by memory or by instructions; samples go by the software clock",
            "a physical machine, or a virtual one that is given counters (a vPMU), and perf events of own processes",
        ),
        (
            "tracepoints",
            "tracepoints",
            Tier::Extra,
            tracepoints(),
            "kernel events by name",
            "root; /sys/kernel/tracing mounted and readable",
        ),
        (
            "uprobes",
            "probes in user programs",
            Tier::Extra,
            uprobes(),
            "count and latency: calls of single functions",
            privileged(PROBES_REMEDY),
        ),
        (
            "proc_own",
            "a /proc that shows process ids as they are here",
            Tier::Proc,
            proc_is_ours(),
            "everything without eBPF: other processes would be measured than those named",
            PROC_REMEDY,
        ),
        (
            "child_schedstat",
            "the scheduler's books of a thread (schedstat)",
            Tier::Proc,
            of_child(Subject::schedstat),
            "everything without eBPF: there are no totals to rely on",
            "a kernel built with CONFIG_SCHED_INFO=y; a /proc that shows the process (not hidepid)",
        ),
        (
            "child_syscall",
            "what a child of ours waits in (/proc/PID/task/TID/syscall)",
            Tier::Proc,
            of_child(Subject::syscall),
            "reasons and stacks of waiting threads without eBPF; there remain computing, queueing, waiting",
            "a kernel built with CONFIG_HAVE_ARCH_TRACEHOOK; a program that is not setuid",
        ),
        (
            "child_memory",
            "memory of a child of ours (process_vm_readv)",
            Tier::Proc,
            of_child(Subject::memory),
            "stacks of waiting threads without eBPF",
            "a seccomp profile that permits process_vm_readv (see --print docker)",
        ),
        (
            "other_syscall",
            "the same of another process of this user",
            Tier::Proc,
            of_stranger(Subject::syscall),
            "reasons and stacks of processes that already run (-p), without eBPF",
            PARENT_REMEDY,
        ),
        (
            "other_memory",
            "memory of another process of this user",
            Tier::Proc,
            of_stranger(Subject::memory),
            "stacks of processes that already run (-p), without eBPF",
            PARENT_REMEDY,
        ),
        (
            "wchan",
            "where in the kernel a thread waits (wchan)",
            Tier::Extra,
            of_child(Subject::wchan),
            "page faults and locks inside the kernel told apart, without eBPF",
            "a kernel built with CONFIG_KALLSYMS=y",
        ),
        (
            "kernel_stack",
            "kernel stacks from /proc",
            Tier::Extra,
            of_child(Subject::stack),
            "kernel stacks without eBPF",
            "root (CAP_SYS_ADMIN in the first user namespace)",
        ),
        (
            "ptrace",
            "ptrace of a child of ours",
            Tier::Extra,
            of_child(Subject::ptrace),
            "stopping a running thread to read its stack, where perf events are refused",
            "a seccomp profile that permits ptrace; kernel.yama.ptrace_scope below 3",
        ),
        (
            "kernel_names",
            "names of kernel functions (/proc/kallsyms)",
            Tier::Extra,
            kernel_names(),
            "kernel frames show as addresses",
            privileged("root, or CAP_SYSLOG and kernel.kptr_restrict below 2"),
        ),
        (
            "cgroup",
            "counters of the own cgroup",
            Tier::Extra,
            cgroup_counters(),
            "time throttled by a CPU quota",
            "the cgroup file system mounted at /sys/fs/cgroup",
        ),
        (
            "psi",
            "pressure stall information",
            Tier::Extra,
            readable("/proc/pressure/cpu"),
            "how much the host as a whole is starved of CPU, memory or I/O",
            "a kernel with CONFIG_PSI=y, started without psi=0",
        ),
    ];
    rows.into_iter()
        .map(|(id, what, tier, outcome, lost, remedy)| Finding {
            id,
            what,
            tier,
            outcome: outcome.map_err(|e| e.to_string()),
            lost,
            remedy,
        })
        .collect()
}

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

fn clone(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(
        || io::Error::new(e.kind(), e.to_string()),
        io::Error::from_raw_os_error,
    )
}

/// Whether the kernel is recent enough; one that does not tell is another finding's.
fn kernel_has_all() -> io::Result<()> {
    match Kernel::inspect().and_then(Kernel::with_all_that_is_needed) {
        Err(e @ Error::NotSupported { .. }) => Err(io::Error::other(e.to_string())),
        _ => Ok(()),
    }
}

fn cgroup_counters() -> io::Result<()> {
    readable("/sys/fs/cgroup/cpu.stat")
        .or_else(|_| readable("/sys/fs/cgroup/cpu/cpu.stat"))
        .or_else(|_| readable("/sys/fs/cgroup/cgroup.controllers"))
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
        // Any process may see the books of its own child.
        assert!(allowed(&all, "proc_own") && allowed(&all, "child_schedstat"));
    }
}
