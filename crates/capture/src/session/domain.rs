//! The domain of an eBPF recording in words: quantities, methods, limits.

use wallscope_model::{Column, Domain, EventSource, Limit, State, Timeline};

use wallscope_observe::DescribedDomain;

use super::{Options, pace::Pace};
use crate::backend::ebpf::{KernelFeatures, Mechanism, Programs, event_sampling::SampledEvent};

/// Facts that the words are made from.
pub struct Facts<'a> {
    /// The kernel.
    pub kernel: &'a KernelFeatures,
    /// Options of the recording.
    pub options: &'a Options,
    /// Mechanism by which stacks of blocked threads were read.
    pub mechanism: Mechanism,
    /// The on-CPU event.
    pub timer: &'static str,
    /// CPUs online.
    pub cpus: u32,
    /// Events at which stacks were taken.
    pub taps: &'a [SampledEvent],
    /// Rates at the end.
    pub pace: &'a Pace,
    /// Whether block reasons could be recognised from kernel functions.
    pub kernel_named: bool,
    /// Notes on failures and changes during the recording.
    pub notes: Vec<String>,
    /// Runtimes of managed code that were met.
    pub runtimes: Vec<String>,
    /// Cost of the way into a kernel program and out of it, ns.
    pub entry_ns: f64,
}

/// Words on the tracking of requests in flight.
const REQUESTS: &str = "requests in flight are told by the side that sent or received last on each stream socket, at the \
     calls that do: an answer that pauses half-way counts as given, of several requests at once on one \
     connection (HTTP/2) the first answer counts for all, and datagrams are not followed; where requests were \
     sent is sampled";

/// Says how the run time of the kernel programs is measured. Entering and leaving one takes `entry_ns`.
fn run_time(entry_ns: f64) -> String {
    format!(
        "run time of the kernel programs: one run in 31 at switches, wake-ups and sockets and one edge of an \
         interrupt in 16 was timed, and each stack that was read; the way into a program and out of it took \
         {entry_ns:.0} ns at the start and counts for each run; what others lost by displaced caches is estimated \
         from how much longer the programs ran than with full caches"
    )
}

fn columns() -> Vec<Column> {
    vec![
        column(
            State::OnCpu,
            "counted at each switch; interrupts by their own hooks",
        ),
        column(
            State::Runnable,
            "counted from wake-up or preemption to the CPU",
        ),
        column(
            State::Blocked,
            "counted from switch-out to wake-up; reason from system call, descriptor, task state and kernel stack",
        ),
        column(State::Unknown, "counted by cause"),
    ]
}

fn every(d: std::time::Duration) -> String {
    format!("every {} ms", d.as_nanos() as f64 / 1e6)
}

/// Returns the notes, and the index among them at which the estimator inserts its note on the timeline.
fn notes(f: &Facts<'_>) -> (Vec<String>, u32) {
    let mut notes = f.notes.clone();
    if f.pace.has_changed() {
        notes.push(format!(
            "rates at the end: {} Hz, {} of off-CPU time; each sample carries the period in force",
            f.pace.hz,
            every(f.pace.period)
        ));
    }
    notes.push(
        "user and kernel parts of on-CPU time are divided by the kernel's tick, a sample; their sum is exact; threads that \
         met no tick are divided as all others together"
            .into(),
    );
    if !f.runtimes.is_empty() {
        notes.push(format!(
            "managed frames read with the stack, in place of the interpreter's: {}",
            f.runtimes.join(", ")
        ));
    }
    notes.push(
        "lengths of intervals are counted at the switch that follows them, before repairs: over all \
         threads within 1.6 %, by thread within 11 %; those of a stack are estimated from its samples"
            .into(),
    );
    let timeline_note = notes.len() as u32;
    if f.options.stacks && f.kernel.has_hook("ws_sent") {
        notes.push(REQUESTS.into());
    }
    notes.push(run_time(f.entry_ns));
    (notes, timeline_note)
}

/// Returns the domain, and the index among its notes at which the estimator inserts its note on the timeline.
pub fn describe(f: &Facts<'_>) -> DescribedDomain {
    let source = |what: &str, event: &str, rate: String| EventSource {
        what: what.into(),
        event: event.into(),
        rate,
    };
    let off_cpu = match f.mechanism {
        Mechanism::TaskWork => {
            "sched_switch, user stack read by the thread before it returns to user mode"
        }
        Mechanism::Interrupt => {
            "sched_switch, user stack read by the thread in an interrupt as it gets the CPU"
        }
    };
    let (notes, timeline_note) = notes(f);
    let domain = Domain {
        unit: wallscope_model::Unit::Nanoseconds,
        tool: concat!("wallscope ", env!("CARGO_PKG_VERSION")).into(),
        backend: "ebpf".into(),
        backend_reason: "the kernel permits eBPF scheduler hooks".into(),
        privilege: privilege(),
        kernel: f.kernel.release.clone(),
        cpus: f.cpus,
        target: f.options.target.describe(),
        events: [
            source("ledger", "sched_switch, sched_info", "each event".into()),
            source(
                "on-CPU stacks",
                f.timer,
                format!("{} Hz on each CPU", f.options.method.hz),
            ),
            source(
                "blocked and runnable stacks",
                off_cpu,
                format!(
                    "{} of each thread's blocked and of its runnable time",
                    every(f.options.method.off_cpu_period)
                ),
            ),
        ]
        .into_iter()
        .chain(f.taps.iter().map(SampledEvent::describe))
        .collect(),
        columns: columns(),
        limits: limits(f),
        notes,
    };
    DescribedDomain {
        domain,
        timeline_note,
    }
}

/// Note on the content of a timeline and its gaps.
pub(crate) fn timeline(t: &Timeline) -> String {
    let mut words = format!(
        "timeline: {} intervals as they were counted at the switches, before repairs, within {} MiB \
         of memory",
        t.len(),
        t.limit_bytes >> 20
    );
    if t.dropped > 0 {
        words.push_str(&format!(
            "; the oldest {} were dropped to stay within it (--timeline-memory)",
            t.dropped
        ));
    }
    if t.lost > 0 {
        words.push_str(&format!(
            "; {} turns on a CPU were lost because the ring was full",
            t.lost
        ));
    }
    words
}

fn column(state: State, how: &str) -> Column {
    Column {
        state,
        exact: true,
        how: how.into(),
    }
}

fn limits(f: &Facts<'_>) -> Vec<Limit> {
    let limit = |what: &str, remedy: &str| Limit {
        what: what.into(),
        remedy: remedy.into(),
    };
    let mut limits = vec![
        limit(
            "chains of waits end at threads that are not measured, and at waits that were too short to be charged to a stack",
            "measure the peer too (-p A,B, --cgroup, -a), or a shorter --off-cpu-period",
        ),
        limit(
            "which allocation a lock in heap memory came from: it is named by its address, where glibc's marks tell it by its place in its block, and by the C++ class of the object there if that has virtual functions",
            "`wallscope locks` tells it by the stacks that wait for it and hold it",
        ),
    ];
    if !f.kernel_named {
        limits.push(limit(
            "waits for locks inside the kernel, page faults within system calls and memory reclaim count for the system call that ran into them: the kernel hides its symbols",
            "root, or sysctl kernel.kptr_restrict=0",
        ));
    }
    if f.timer.contains("software") {
        limits.push(limit(
            "on-CPU samples in code that runs with interrupts off appear where they are switched on again",
            "a machine with a usable PMU",
        ));
        limits.push(limit(
            "whether compute is bound by memory or by instructions",
            "a machine with a usable PMU",
        ));
    }
    if f.runtimes.iter().any(|r| r.starts_with("HotSpot")) {
        limits.push(limit(
            "which of the methods inlined into compiled Java code runs between two calls: the next place that the compiler noted stands for it",
            "the VM's flags -XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints",
        ));
        limits.push(limit(
            "which Java object a thread waits for, and who owns it; a thread's first Thread.sleep counts as lock",
            "",
        ));
    }
    if f.mechanism == Mechanism::Interrupt {
        limits.push(limit(
            "what of a blocked thread's stack is not in memory (swapped out) as it wakes",
            "Linux 6.18 or later, where the thread can bring it in",
        ));
    }
    limits.extend(
        Programs::limits(f.kernel)
            .into_iter()
            .map(|what| limit(what, "")),
    );
    limits
}

/// Privileges with which this process measures.
pub(crate) fn privilege() -> String {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        "root".into()
    } else {
        format!("uid {} with capabilities", uid.as_raw())
    }
}
