//! The attempts, one row each: the attempt, the loss if it is refused, the remedy.

use std::io;

use super::{
    attempts::{
        PID_REMEDY, bpf_at_scheduler, first_pid_namespace, kernel_names, perf_clock,
        perf_clock_with_kernel, perf_cycles, perf_switches, perf_system, readable, tracepoints,
    },
    finding::{Finding, Tier},
    perf_restrictions::PerfRestrictions,
    settings::{self, proc_is_ours},
    subject::Subject,
    uprobes::uprobes,
};
use crate::{Error, backend::ebpf::KernelFeatures};

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
/// Remedy if `/proc` is missing, or belongs to another pid namespace.
pub const PROC_REMEDY: &str =
    "mount -t proc proc /proc (in the pid namespace's own mount namespace: unshare --mount-proc)";

/// One attempt.
struct Check {
    /// Short stable name, for scripts.
    id: &'static str,
    /// Description.
    what: &'static str,
    /// The backend that needs it.
    tier: Tier,
    attempt: fn(&Host) -> io::Result<()>,
    /// The loss without it.
    lost: &'static str,
    remedy: Remedy,
}

/// Remedy for a refused attempt.
#[derive(Clone, Copy)]
enum Remedy {
    /// This text, on each host.
    Always(&'static str),
    /// A capability, which counts only in the first user namespace.
    Privilege(&'static str),
    /// The remedy for the cause that refuses perf events of own processes.
    OwnEvents,
    /// A capability. A cause that refuses even own events comes first.
    AfterOwnEvents(&'static str),
}

/// State that attempts share: processes to inspect, and earlier results.
struct Host {
    child: io::Result<Subject>,
    stranger: io::Result<Subject>,
    own_events: io::Result<()>,
    first_user_namespace: bool,
}

impl Host {
    fn new() -> Host {
        Host {
            child: Subject::child(),
            stranger: Subject::stranger(),
            own_events: perf_clock(),
            first_user_namespace: settings::is_first_user_namespace(),
        }
    }

    /// Inspects a child of ours.
    fn child(&self, inspect: fn(&Subject) -> io::Result<()>) -> io::Result<()> {
        self.child.as_ref().map_err(clone).and_then(inspect)
    }

    /// Inspects a process that does not descend from us.
    fn stranger(&self, inspect: fn(&Subject) -> io::Result<()>) -> io::Result<()> {
        self.stranger.as_ref().map_err(clone).and_then(inspect)
    }

    fn remedy(&self, remedy: Remedy) -> &'static str {
        match (remedy, &self.own_events) {
            (Remedy::Always(words), _) => words,
            (Remedy::OwnEvents, Ok(())) => PERF_REMEDY,
            (Remedy::OwnEvents | Remedy::AfterOwnEvents(_), Err(e)) => {
                PerfRestrictions::now().remedy(e)
            }
            (Remedy::Privilege(words) | Remedy::AfterOwnEvents(words), _) => {
                match self.first_user_namespace {
                    true => words,
                    false => NAMESPACE_REMEDY,
                }
            }
        }
    }
}

/// Tries everything.
pub fn probe() -> Vec<Finding> {
    let host = Host::new();
    let finding = |check: &Check| Finding {
        id: check.id,
        what: check.what,
        tier: check.tier,
        outcome: (check.attempt)(&host).map_err(|e| e.to_string()),
        lost: check.lost,
        remedy: host.remedy(check.remedy),
    };
    CHECKS.iter().map(finding).collect()
}

const CHECKS: &[Check] = &[
    Check {
        id: "btf",
        what: "kernel type information (BTF)",
        tier: Tier::Ebpf,
        attempt: |_| readable("/sys/kernel/btf/vmlinux"),
        lost: "the eBPF backend",
        remedy: Remedy::Always(
            "a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of all large distributions are",
        ),
    },
    Check {
        id: "bpf_kernel",
        what: "a kernel that has what the eBPF programs are made of",
        tier: Tier::Ebpf,
        attempt: |_| kernel_has_all(),
        lost: "the eBPF backend",
        remedy: Remedy::Always("Linux 6.1 or later"),
    },
    Check {
        id: "pid_namespace",
        what: "process ids as the kernel's programs see them",
        tier: Tier::Ebpf,
        attempt: |_| first_pid_namespace(),
        lost: "the eBPF backend: it would measure other processes than those named",
        remedy: Remedy::Always(PID_REMEDY),
    },
    Check {
        id: "bpf_sched",
        what: "eBPF programs at scheduler hooks",
        tier: Tier::Ebpf,
        attempt: |_| bpf_at_scheduler(),
        lost: "each switch counted as it happens, kernel stacks, stacks of running threads of everybody",
        remedy: Remedy::Privilege(BPF_REMEDY),
    },
    Check {
        id: "perf_system",
        what: "perf events of the whole machine",
        tier: Tier::Ebpf,
        attempt: |_| perf_system(),
        lost: "the sampling clock and the mapping records of the eBPF backend",
        remedy: Remedy::AfterOwnEvents(PERFMON_REMEDY),
    },
    Check {
        id: "perf_own",
        what: "perf events of own processes",
        tier: Tier::Perf,
        attempt: |on| on.own_events.as_ref().map(drop).map_err(clone),
        lost: "stacks of running threads without eBPF",
        remedy: Remedy::OwnEvents,
    },
    Check {
        id: "perf_switches",
        what: "context-switch records of own processes",
        tier: Tier::Perf,
        attempt: |_| perf_switches(),
        lost: "preemption told apart from waiting, without eBPF",
        remedy: Remedy::OwnEvents,
    },
    Check {
        id: "perf_kernel",
        what: "perf events that include the kernel",
        tier: Tier::Extra,
        attempt: |_| perf_clock_with_kernel(),
        lost: "kernel stacks of running threads without eBPF",
        remedy: Remedy::AfterOwnEvents(KERNEL_REMEDY),
    },
    Check {
        id: "pmu",
        what: "hardware performance counters",
        tier: Tier::Extra,
        attempt: |_| perf_cycles(),
        lost: "whether computing is bound by memory or by instructions; samples go by the software clock",
        remedy: Remedy::Always(
            "a physical machine, or a virtual one that is given counters (a vPMU), and perf events of own processes",
        ),
    },
    Check {
        id: "tracepoints",
        what: "tracepoints",
        tier: Tier::Extra,
        attempt: |_| tracepoints(),
        lost: "kernel events by name",
        remedy: Remedy::Always("root; /sys/kernel/tracing mounted and readable"),
    },
    Check {
        id: "uprobes",
        what: "probes in user programs",
        tier: Tier::Extra,
        attempt: |_| uprobes(),
        lost: "count and latency: calls of single functions",
        remedy: Remedy::Privilege(PROBES_REMEDY),
    },
    Check {
        id: "proc_own",
        what: "a /proc that shows process ids as they are here",
        tier: Tier::Proc,
        attempt: |_| proc_is_ours(),
        lost: "everything without eBPF: other processes would be measured than those named",
        remedy: Remedy::Always(PROC_REMEDY),
    },
    Check {
        id: "child_schedstat",
        what: "the scheduler's books of a thread (schedstat)",
        tier: Tier::Proc,
        attempt: |on| on.child(Subject::schedstat),
        lost: "everything without eBPF: there are no totals to rely on",
        remedy: Remedy::Always(
            "a kernel built with CONFIG_SCHED_INFO=y; a /proc that shows the process (not hidepid)",
        ),
    },
    Check {
        id: "child_syscall",
        what: "what a child of ours waits in (/proc/PID/task/TID/syscall)",
        tier: Tier::Proc,
        attempt: |on| on.child(Subject::syscall),
        lost: "reasons and stacks of waiting threads without eBPF; there remain computing, queueing, waiting",
        remedy: Remedy::Always(
            "a kernel built with CONFIG_HAVE_ARCH_TRACEHOOK; a program that is not setuid",
        ),
    },
    Check {
        id: "child_memory",
        what: "memory of a child of ours (process_vm_readv)",
        tier: Tier::Proc,
        attempt: |on| on.child(Subject::memory),
        lost: "stacks of waiting threads without eBPF",
        remedy: Remedy::Always(
            "a seccomp profile that permits process_vm_readv (see --print docker)",
        ),
    },
    Check {
        id: "other_syscall",
        what: "the same of another process of this user",
        tier: Tier::Proc,
        attempt: |on| on.stranger(Subject::syscall),
        lost: "reasons and stacks of processes that already run (-p), without eBPF",
        remedy: Remedy::Always(PARENT_REMEDY),
    },
    Check {
        id: "other_memory",
        what: "memory of another process of this user",
        tier: Tier::Proc,
        attempt: |on| on.stranger(Subject::memory),
        lost: "stacks of processes that already run (-p), without eBPF",
        remedy: Remedy::Always(PARENT_REMEDY),
    },
    Check {
        id: "wchan",
        what: "where in the kernel a thread waits (wchan)",
        tier: Tier::Extra,
        attempt: |on| on.child(Subject::wchan),
        lost: "page faults and locks inside the kernel told apart, without eBPF",
        remedy: Remedy::Always("a kernel built with CONFIG_KALLSYMS=y"),
    },
    Check {
        id: "kernel_stack",
        what: "kernel stacks from /proc",
        tier: Tier::Extra,
        attempt: |on| on.child(Subject::stack),
        lost: "kernel stacks without eBPF",
        remedy: Remedy::Always("root (CAP_SYS_ADMIN in the first user namespace)"),
    },
    Check {
        id: "ptrace",
        what: "ptrace of a child of ours",
        tier: Tier::Extra,
        attempt: |on| on.child(Subject::ptrace),
        lost: "stopping a running thread to read its stack, where perf events are refused",
        remedy: Remedy::Always(
            "a seccomp profile that permits ptrace; kernel.yama.ptrace_scope below 3",
        ),
    },
    Check {
        id: "kernel_names",
        what: "names of kernel functions (/proc/kallsyms)",
        tier: Tier::Extra,
        attempt: |_| kernel_names(),
        lost: "kernel frames show as addresses",
        remedy: Remedy::Privilege("root, or CAP_SYSLOG and kernel.kptr_restrict below 2"),
    },
    Check {
        id: "cgroup",
        what: "counters of the own cgroup",
        tier: Tier::Extra,
        attempt: |_| cgroup_counters(),
        lost: "time throttled by a CPU quota",
        remedy: Remedy::Always("the cgroup file system mounted at /sys/fs/cgroup"),
    },
    Check {
        id: "psi",
        what: "pressure stall information",
        tier: Tier::Extra,
        attempt: |_| readable("/proc/pressure/cpu"),
        lost: "how much the host as a whole is starved of CPU, memory or I/O",
        remedy: Remedy::Always("a kernel with CONFIG_PSI=y, started without psi=0"),
    },
];

fn clone(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(
        || io::Error::new(e.kind(), e.to_string()),
        io::Error::from_raw_os_error,
    )
}

/// Whether the kernel is recent enough. If its features cannot be read, another finding reports that.
fn kernel_has_all() -> io::Result<()> {
    match KernelFeatures::inspect().and_then(KernelFeatures::with_all_that_is_needed) {
        Err(e @ Error::NotSupported { .. }) => Err(io::Error::other(e.to_string())),
        _ => Ok(()),
    }
}

fn cgroup_counters() -> io::Result<()> {
    readable("/sys/fs/cgroup/cpu.stat")
        .or_else(|_| readable("/sys/fs/cgroup/cpu/cpu.stat"))
        .or_else(|_| readable("/sys/fs/cgroup/cgroup.controllers"))
}
