//! The domain of a recording made without eBPF, in words.

use wallscope_model::{Column, Domain, EventSource, Limit, State};

/// What the words are made from.
pub struct Facts {
    /// Why this backend.
    pub reason: String,
    /// The target in words.
    pub target: String,
    /// Looks a second that were asked for.
    pub asked_hz: u32,
    /// Looks a second that were made.
    pub hz: f64,
    /// Looks that were left out at threads that slept.
    pub skipped: u64,
    /// Whether some process's waits could not be read.
    pub unreadable: u64,
    /// Threads of the kernel that were left out.
    pub kernel_threads: u64,
    /// CPUs online.
    pub cpus: u32,
    /// With perf events: whether they include the kernel, and threads that were refused them.
    pub clock: Option<(bool, u64)>,
    /// What happened on the way.
    pub notes: Vec<String>,
    /// Runtimes of managed code that were met.
    pub runtimes: Vec<String>,
}

/// The domain.
pub fn describe(f: Facts) -> Domain {
    let uname = rustix::system::uname();
    let uid = rustix::process::geteuid();
    let limit = |what: String, remedy: &str| Limit {
        what,
        remedy: remedy.into(),
    };
    let column = |state, exact, how: &str| Column {
        state,
        exact,
        how: how.into(),
    };
    let interval_ms = 1000.0 / f.hz.max(0.001);
    let mut notes = f.notes;
    notes.push(format!(
        "looks: {} a second asked, {:.1} made; {} left out at threads that had not run",
        f.asked_hz, f.hz, f.skipped
    ));
    notes.push("the residue is zero by construction, and the kernel's books are no second witness here: the totals are taken from them".into());
    notes.push("user and kernel parts of on-CPU time are divided by the kernel's tick, a sample; their sum is exact".into());
    notes.push(match f.clock {
        None => "runnable time is not divided: all of it stands as woken".into(),
        Some(_) => "preempted time is counted at the switches; the rest of runnable time stands as woken, throttled time too".into(),
    });
    notes.push("idle waiting is not judged in this recording".into());
    let mut limits = vec![
        limit(format!("threads that live less than about {:.0} ms: their CPU time is counted for their process, without a thread", interval_ms.max(100.0)),
            "the ebpf backend"),
        limit(format!("the last {interval_ms:.0} ms (up to eight times that, asleep) of a thread that ends: it counts as ended at the last look"), "the ebpf backend"),
        limit(format!("which of several waits shorter than {interval_ms:.0} ms a thread was in: reasons and stacks of short waits are sampled"), "a higher rate (-F), or the ebpf backend"),
        limit("kernel stacks, who woke a thread, and throttling apart from other queueing".into(), "the ebpf backend"),
        limit("callers of code that finds its frame by a register other than the stack pointer: such stacks end as truncated:bad_rule".into(), "the ebpf backend"),
    ];
    match f.clock {
        None => limits.push(limit(
            "stacks of running and of queueing threads: their time stands as [not sampled]".into(),
            "the perf backend (perf_event_paranoid 2), or the ebpf backend: run as root, or with CAP_BPF and CAP_PERFMON (wallscope doctor)",
        )),
        Some((with_kernel, left_out)) => {
            limits.push(limit("stacks of queueing threads: their time stands as [not sampled]".into(), "the ebpf backend"));
            limits.push(limit("user stacks of running threads beyond 8 KiB: they end as truncated:window_end".into(), "the ebpf backend"));
            if !with_kernel {
                limits.push(limit(
                    "where in the kernel, and from where, a thread computes: samples fall on user code; the kernel's part, by the tick, stands as truncated:lost".into(),
                    "sudo sysctl kernel.perf_event_paranoid=1, or the ebpf backend",
                ));
            }
            if left_out > 0 {
                limits.push(limit(format!("stacks of {left_out} running threads whose perf events were refused"), "a higher limit of open files (ulimit -n)"));
            }
        }
    }
    if !f.runtimes.is_empty() {
        limits.push(limit(
            format!(
                "managed frames of running threads ({}): those of waiting threads are read",
                f.runtimes.join(", ")
            ),
            "the ebpf backend",
        ));
    }
    if f.unreadable > 0 {
        limits.push(limit(
            format!("what the threads of {} processes waited for, and their stacks: reading them is refused", f.unreadable),
            "start the program with wallscope (wallscope record -- CMD), or CAP_SYS_PTRACE; see wallscope doctor",
        ));
    }
    if f.kernel_threads > 0 {
        limits.push(limit(
            format!("{} threads of the kernel", f.kernel_threads),
            "the ebpf backend",
        ));
    }
    let on_cpu = f.clock.map(|(with_kernel, _)| EventSource {
        what: "on-CPU stacks".into(),
        event: format!(
            "cpu-clock (software), {}, with registers and 8 KiB of stack",
            if with_kernel {
                "user and kernel"
            } else {
                "user code only"
            }
        ),
        rate: format!("{} Hz of each running thread", f.asked_hz),
    });
    let mut domain = Domain {
        tool: concat!("wallscope ", env!("CARGO_PKG_VERSION")).into(),
        backend: if f.clock.is_some() { "perf" } else { "proc" }.into(),
        backend_reason: f.reason,
        privilege: if uid.is_root() {
            "root".into()
        } else {
            format!("uid {}", uid.as_raw())
        },
        kernel: format!(
            "{} {}",
            uname.release().to_string_lossy(),
            uname.machine().to_string_lossy()
        ),
        cpus: f.cpus,
        target: f.target,
        events: vec![
            EventSource {
                what: "ledger".into(),
                event: "/proc/PID/task/TID/schedstat".into(),
                rate: format!("{:.1} Hz", f.hz),
            },
            EventSource {
                what: "blocked stacks and reasons".into(),
                event:
                    "/proc/PID/task/TID/syscall and process_vm_readv, without stopping the thread"
                        .into(),
                rate: format!(
                    "{:.1} Hz of each thread that runs, fewer of one that sleeps",
                    f.hz
                ),
            },
        ],
        columns: vec![
            column(
                State::OnCpu,
                true,
                "the scheduler's own counter, per thread; it lags by up to a tick at the edges",
            ),
            column(
                State::Runnable,
                true,
                "the scheduler's own counter (run_delay), per thread",
            ),
            column(
                State::Blocked,
                false,
                "the sum is what the two counters leave of wall time; reasons are divided by what the looks saw",
            ),
            column(
                State::Unknown,
                true,
                "none in this backend: what is not seen is named under limits",
            ),
        ],
        limits,
        notes,
    };
    domain.events.extend(on_cpu);
    domain
}
