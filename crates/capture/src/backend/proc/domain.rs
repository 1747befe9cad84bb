//! The domain of a recording made without eBPF, in words.

use wallscope_model::{Column, Domain, EventSource, Limit, State};
use wallscope_observe::DescribedDomain;

use super::{
    account::Account,
    poller::{ProcPoller, Tally},
    thread::TrackedThread,
};
use crate::backend::perf::{EventSampler, ThreadEvents};

/// Results of stopping running threads.
pub struct Stops {
    /// Stops that gave a stack.
    pub count: u64,
    /// Time for which threads stood still, summed, ns.
    pub ns: u64,
    /// Why they could not be stopped.
    pub refused: Option<String>,
}

/// Facts from which the words are made.
pub struct Facts<'a> {
    /// Why this backend was chosen.
    pub reason: String,
    /// The target in words.
    pub target: String,
    /// Whether the target is some processes, and others are found as their descendants.
    pub descends: bool,
    /// Polls a second that were asked for.
    pub asked_hz: u32,
    /// Polls a second that were made.
    pub hz: f64,
    /// Samples a second of a thread that ran all the time.
    pub sample_hz: f64,
    /// Number of processes with waits that could not be read.
    pub unreadable: u64,
    /// CPUs online.
    pub cpus: u32,
    /// Stops of running threads, if they were permitted.
    pub stops: Option<Stops>,
    /// Everything else that was counted.
    pub poller: &'a ProcPoller,
    /// Whether single intervals were asked for.
    pub timeline_asked: bool,
    /// Notes on events during the recording.
    pub notes: Vec<String>,
    /// Runtimes of managed code that were met.
    pub runtimes: Vec<String>,
}

impl Facts<'_> {
    /// Mean time between two polls, ms.
    fn interval_ms(&self) -> f64 {
        1000.0 / self.hz.max(0.001)
    }
}

/// The domain, and the place of the note on intervals.
pub fn describe(f: &Facts<'_>) -> DescribedDomain {
    let uname = rustix::system::uname();
    let uid = rustix::process::geteuid();
    let (notes, timeline_note) = notes(f);
    let domain = Domain {
        unit: wallscope_model::Unit::Nanoseconds,
        tool: concat!("wallscope ", env!("CARGO_PKG_VERSION")).into(),
        backend: f.poller.name().into(),
        backend_reason: f.reason.clone(),
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
        target: f.target.clone(),
        events: events(f),
        columns: columns(f.poller.clock.is_some()),
        limits: limits(f),
        notes,
    };
    DescribedDomain {
        domain,
        timeline_note,
    }
}

fn limit(what: String, remedy: &str) -> Limit {
    Limit {
        what,
        remedy: remedy.into(),
    }
}

/// Notes, and the place among them of the note on intervals.
fn notes(f: &Facts<'_>) -> (Vec<String>, u32) {
    let clock = f.poller.clock.as_ref();
    let mut notes = f.notes.clone();
    notes.extend(on_polls(f));
    if clock.is_some() {
        notes.push("totals are those of the switch records; the kernel's counters are the second witness, but for the time from wake-up to CPU, which only they tell".into());
        notes.push(format!("switches in are recorded after the kernel's work for them: each is dated back by the mean that its thread's counters tell, 20 µs at most; over all threads it is {:.1} µs", f.poller.intake.estimator.switches.lag.ns() as f64 / 1e3));
        notes.push(queueing(clock.is_some_and(ThreadEvents::tells_leaving)).into());
        notes.push("throttled time stands as preempted or woken".into());
        notes.push("samples of a thread come at even distances of its own computing: what it repeats exactly as often is always met in the same place; another rate (-F) tells".into());
        notes.push("time stolen by the host of a virtual machine is what the switch records have beyond the kernel's counter (less a tick for a thread that runs), and at most what the host took from the machine".into());
    } else {
        notes.push("the residue is zero by construction, and the kernel's books are no second witness here: the totals are taken from them".into());
        notes.push("runnable time is not divided: all of it stands as woken".into());
    }
    let glimpsed = f.poller.tally.glimpsed + f.poller.intake.estimator.switches.glimpsed;
    if glimpsed > 0 {
        notes.push(format!(
            "{} waits ended while they were looked at, after their call was known and before their stack was: they have the reason that the call tells, and the callers with which the same thread was seen at the same place of the same stack, or none (truncated:lost)",
            glimpsed
        ));
    }
    if !f.runtimes.is_empty() {
        notes.push(format!(
            "managed frames read with the stack, in place of the interpreter's: {}",
            f.runtimes.join(", ")
        ));
    }
    let timeline_note = notes.len() as u32;
    if f.timeline_asked && clock.is_some() {
        notes.push("intervals of the timeline are those of the switch records, not dated back: a blocked interval reaches to the switch that ends it, so it contains the wait for a CPU after the wake-up; it has a reason where a poll fell into it".into());
    }
    if let Some(stops) = &f.stops {
        notes.push(match (&stops.refused, clock) {
            (_, Some(_)) => "stopping threads was permitted and not needed: perf events show running threads".into(),
            (Some(why), None) => format!("running threads could not be stopped to see their stacks: {why}"),
            (None, None) => format!(
                "running threads were stopped {} times to see their stacks, for {:.3} ms in all, {:.1} µs each, the way to the halt included",
                stops.count, stops.ns as f64 / 1e6, stops.ns as f64 / 1e3 / stops.count.max(1) as f64
            ),
        });
    }
    notes.push("where the kernel moves sleepers to another CPU before it takes them off the queue (Linux 6.12 and later), its counter of waiting for a CPU has the rest of such sleeps in it, and so has runnable time here".into());
    let connections = f.poller.connections.as_ref();
    match connections.and_then(|c| c.problem.as_ref()) {
        None => notes.push(format!(
            "requests in flight are those that {} polls of connections found: the direction of the last data, by the kernel's tick; their number is that of segments, and their time that between the polls that found them open",
            connections.map_or(0, |c| c.asked)
        )),
        Some(why) => notes.push(format!("connections are not known: {why}")),
    }
    if f.poller.orphans.is_some() {
        notes.push("processes that lost their parent were children of wallscope's until the end, so that it found them".into());
    }
    if f.poller.records.affinity.went {
        notes.push("frames that had to be read at once were read on the CPU of most of these threads: they stood still meanwhile, which is in their preempted time".into());
    }
    (notes, timeline_note)
}

/// Notes on the polls themselves.
fn on_polls(f: &Facts<'_>) -> Vec<String> {
    let tally = &f.poller.tally;
    let clock = f.poller.clock.as_ref();
    let mut notes = Vec::new();
    notes.push(format!(
        "polls: {} a second requested, {:.1} made; {} left out at threads that had not run; {} rounds began late{}",
        f.asked_hz,
        f.hz,
        tally.skipped,
        tally.late,
        clock.map_or("", |_| " for want of a CPU")
    ));
    if tally.away_ns > 0 {
        notes.push(format!(
            "for {:.1} s no poll was made, though some were due: wallscope was stopped, or the machine was; reasons and stacks of that time are those of other times",
            tally.away_ns as f64 / 1e9
        ));
    }
    notes.push("user and kernel parts of on-CPU time are divided by the kernel's tick, a sample; their sum is exact".into());
    notes
}

/// Limits of the view, each with its remedy.
fn limits(f: &Facts<'_>) -> Vec<Limit> {
    let interval_ms = f.interval_ms();
    let kernel_threads = f.poller.watch.kernel_threads;
    let clock = f.poller.clock.as_ref();
    let mut limits = on_lives(f);
    limits.push(limit(
        "which code sends requests: peers have no sender stacks; which thread a request belongs to: a wait is taken to be for the connections that its call names; requests over unix sockets beyond what is unread; connections that come and go between two lists of them (a second; ten milliseconds or more where waits name new ones)".into(),
        "the ebpf backend",
    ));
    limits.extend(f.poller.hits.iter().flat_map(EventSampler::limits));
    if let Some(what) = rationed(f.poller) {
        limits.push(limit(what, "the ebpf backend"));
    }
    limits.extend([
        limit(format!("which of several waits shorter than {interval_ms:.0} ms a thread was in: reasons and stacks of short waits are sampled"), "a higher rate (-F), or the ebpf backend"),
        limit("kernel stacks, the waker of a thread, and throttling apart from other queueing".into(), "the ebpf backend"),
        limit("of threads that wait, callers of code that finds its frame by a register that cannot be told there (frame pointers of code made at run time, of frames that change their size): such stacks end as truncated:bad_rule".into(), "the ebpf backend"),
    ]);
    if f.timeline_asked && clock.is_none() {
        limits.push(limit(
            "single intervals, so there is no timeline (--timeline): no switch is recorded".into(),
            "the ebpf or perf backend",
        ));
    }
    limits.extend(on_running(f));
    let Tally {
        read,
        read_after_ns,
        ..
    } = f.poller.tally;
    if let Some(after_ns) = read_after_ns.checked_div(read) {
        limits.push(limit(
            format!(
                "which Python function a thread ran at the very moment of a sample: its frames are read {:.0} µs later on average, when it may run another one, or wait",
                after_ns as f64 / 1e3
            ),
            "the ebpf backend",
        ));
    }
    if f.poller.rings.unknown > 0 {
        limits.push(limit(
            format!("the requests behind waits in io_uring_enter, at {} polls (the ring could not be read, or its last requests do not tell): their reason is poll", f.poller.rings.unknown),
            "the ebpf backend",
        ));
    }
    if f.unreadable > 0 {
        limits.push(limit(
            format!("what the threads of {} processes waited for, and their stacks: reading them is refused", f.unreadable),
            "start the program with wallscope (wallscope record -- CMD), or CAP_SYS_PTRACE; see wallscope doctor",
        ));
    }
    if kernel_threads > 0 {
        limits.push(limit(
            format!("{kernel_threads} threads of the kernel"),
            "the ebpf backend",
        ));
    }
    limits
}

/// Limits on threads that live briefly.
fn on_lives(f: &Facts<'_>) -> Vec<Limit> {
    let clock = f.poller.clock.as_ref();
    let interval_ms = f.interval_ms();
    let listing_ms = interval_ms.max(100.0);
    let mut limits = match clock {
        None => vec![
            limit(
                format!(
                    "threads that live less than {interval_ms:.0} to {listing_ms:.0} ms (the longer where a search takes long): their CPU time is counted for their process, without a thread, and that of children that live as briefly for who waits for them"
                ),
                "the ebpf or perf backend",
            ),
            limit(
                "which of two libraries that take each other's place at the same addresses, until mappings are read again: a second or more, by the number of processes".into(),
                "the ebpf or perf backend",
            ),
            limit(
                "what the host of a virtual machine takes from a running thread: it stands as blocked".into(),
                "the ebpf or perf backend",
            ),
            limit(
                format!(
                    "when a thread ends, to within {interval_ms:.0} ms (up to eight times that, asleep): a thread that slept counts as ended in the middle of that time, another one at the last poll"
                ),
                "the ebpf or perf backend",
            ),
        ],
        Some(_) => vec![limit(
            format!(
                "of threads that live less than about {interval_ms:.0} ms: what they waited for, and waiting for a CPU after a wake-up (it counts as blocked)"
            ),
            "the ebpf backend",
        )],
    };
    if clock.is_none() && f.descends && f.poller.orphans.is_none() {
        limits.push(limit(
            "processes whose parents had ended by the time they were searched for, as of daemons"
                .into(),
            "wallscope record -- COMMAND, which finds these too, or the ebpf or perf backend",
        ));
    }
    limits
}

/// Limits on running threads.
fn on_running(f: &Facts<'_>) -> Vec<Limit> {
    let clock = f.poller.clock.as_ref();
    let mut limits = Vec::new();
    let better = "the perf backend (perf_event_paranoid 2), or the ebpf backend: run as root, or with CAP_BPF and CAP_PERFMON (wallscope doctor)";
    let stops = f.stops.as_ref().is_some_and(|s| s.refused.is_none());
    match clock {
        None if stops => {
            limits.push(limit("where in the kernel a running thread is: it is stopped on its way back to user code. One at the end of a call to wait in is taken to have waited there, unless the scheduler's books say that it waited for a CPU".into(), better));
            limits.push(limit(
                "a wait that begins in the very moment of a stop may end with EINTR".into(),
                better,
            ));
        }
        None => limits.push(limit(
            "stacks of running and of queueing threads: their time stands as [not sampled]".into(),
            &format!("--allow-stop, {better}"),
        )),
        Some(c) => {
            limits.push(limit(
                "what interrupts take from a running thread: it counts as computing".into(),
                "the ebpf backend",
            ));
            limits.push(limit(
                format!(
                    "user stacks of running threads beyond {} KiB, where these have changed before the rest was read: they end as truncated:window_end",
                    c.stack_bytes() >> 10
                ),
                "the ebpf backend",
            ));
            if !c.with_kernel {
                limits.push(limit(
                    "where in the kernel, and from where, a thread computes: an ordinary user may sample user code only, so that the kernel's part of on-CPU time, which the kernel's tick tells, stands as [not sampled]; totals are exact all the same".into(),
                    "sudo sysctl kernel.perf_event_paranoid=1, or the ebpf backend",
                ));
            }
            if c.left_out > 0 {
                limits.push(limit(format!("switches and running stacks of {} threads whose perf events were refused: their totals are the counters'", c.left_out), "a higher limit of open files (ulimit -n); for other users' processes, root"));
            }
        }
    }
    limits
}

/// Events, and how often they come.
fn events(f: &Facts<'_>) -> Vec<EventSource> {
    let clock = f.poller.clock.as_ref();
    let on_cpu = clock.map(|c| EventSource {
        what: "on-CPU stacks".into(),
        event: format!(
            "cpu-clock (software), {}, with registers and {} KiB of stack",
            if c.with_kernel {
                "user and kernel"
            } else {
                "user code only"
            },
            c.stack_bytes() >> 10
        ),
        rate: format!(
            "{} Hz of each running thread asked, {:.1} Hz effective",
            f.asked_hz, f.sample_hz
        ),
    });
    let mut events = vec![
        match clock {
            Some(_) => EventSource {
                what: "ledger".into(),
                event: "context-switch records (perf_event_open)".into(),
                rate: "each switch".into(),
            },
            None => EventSource {
                what: "ledger".into(),
                event: "/proc/PID/task/TID/schedstat".into(),
                rate: format!("{:.1} Hz", f.hz),
            },
        },
        EventSource {
            what: "blocked stacks and reasons".into(),
            event: "/proc/PID/task/TID/syscall and process_vm_readv, without stopping the thread"
                .into(),
            rate: format!(
                "{:.1} Hz of each thread that runs, fewer of one that sleeps",
                f.hz
            ),
        },
    ];
    events.extend(on_cpu);
    let put_off = clock.filter(|c| c.tells_leaving()).map(|c| EventSource {
        what: "stacks of threads put off their CPU".into(),
        event: "context-switches (software), with registers and 8 KiB of stack".into(),
        rate: format!(
            "some of them: {} Hz of each thread and CPU at most{}",
            c.leaving_hz(),
            if c.is_selective() {
                "; left out are threads that were hardly ever put off, and of more than 64 those never met computing"
            } else {
                ""
            }
        ),
    });
    events.extend(put_off);
    let hits = f.poller.hits.iter();
    events.extend(hits.flat_map(EventSampler::describe));
    events
}

/// Source of each state's time. `recorded`: switches are recorded.
fn columns(recorded: bool) -> Vec<Column> {
    let column = |state, exact, how: &str| Column {
        state,
        exact,
        how: how.into(),
    };
    vec![
        column(
            State::OnCpu,
            true,
            if recorded {
                "from switch to switch, per thread"
            } else {
                "the scheduler's own counter, per thread; it lags by up to a tick at the edges"
            },
        ),
        column(
            State::Runnable,
            true,
            if recorded {
                "preempted: from switch to switch; woken: the scheduler's own counter (run_delay), per thread"
            } else {
                "the scheduler's own counter (run_delay), per thread"
            },
        ),
        column(
            State::Blocked,
            false,
            if recorded {
                "the sum is from switch to switch, less the counter's waiting for a CPU; reasons are divided by what the polls saw"
            } else {
                "the sum is what the two counters leave of wall time; reasons are divided by what the polls saw"
            },
        ),
        column(
            State::Unknown,
            true,
            if recorded {
                "time of threads that ended after records were lost"
            } else {
                "none in this backend: what is not seen is named under limits"
            },
        ),
    ]
}

/// Note on the stacks that run-queue latency is attributed to. `told`: whether threads are sampled when preempted.
fn queueing(told: bool) -> &'static str {
    match told {
        true => {
            "stacks of queueing time: one put off the CPU stands where it was then, as samples of such switches tell (threads that switch very often, and those of interpreters: where it was seen computing); that a woken thread stands where it had blocked is inferred"
        }
        false => {
            "stacks of queueing time are inferred: a woken thread stands where it had blocked, one put off the CPU where it was seen computing just before, or where that was rarely seen, computing at all; of one that gives up its CPU by a call or wakes another one that takes it, that is the wrong place (the ebpf backend sees it, and perf events that may sample the kernel)"
        }
    }
}

/// Limit for threads with switch records for a part of the time only.
fn rationed(poller: &ProcPoller) -> Option<String> {
    let start_ns = poller.intake.estimator.grid.start_ns;
    let rations = || {
        let own = |(t, a): (&TrackedThread, &Account)| {
            Some((t.records.ration?.unrecorded_ns, a.book.seen_ns))
        };
        let threads = poller.watch.threads.iter();
        let all = threads.zip(&poller.intake.estimator.accounts);
        all.filter_map(own).filter(|(ns, _)| *ns > 0)
    };
    let [without, all] = rations().fold([0.0, 0.0], |[without, all], (ns, end)| {
        let life = end.saturating_sub(start_ns);
        [without + ns as f64, all + life as f64]
    });
    (all > 0.0).then(|| {
        format!(
            "each switch of {} threads that switch very often: {:.0} % of their time has switch records and samples, between which their totals are the scheduler's counters, and waiting for a CPU counts as woken",
            rations().count(),
            100.0 * (1.0 - without / all)
        )
    })
}
