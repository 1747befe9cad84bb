//! Rules about time on a CPU, and about time without one.

use std::collections::{HashMap, HashSet};

use wallscope_model::{BlockReason, Context, State};

use super::call_path::{common_function, main_system_call};
use super::details::asked_and_answered;
use super::kernel_work::{churn, mostly_starts};
use super::verdict::{Finding, Spent, Verdict, found, place};
use super::wait_target::wait_target;
use crate::evidence::host_facts::{self, Room};
use crate::evidence::{Cause, Evidence, Level, WorkKind, largest, tasks};
use crate::thresholds::{
    AT_MEMORY_LIMIT, CAUSE_SHARE, COLLECT_IS_CAUSE, COLLECT_OF_COMPUTING, CPU_FIRST,
    CPUS_WITH_ROOM, HELD_BACK_OF_BUSY, HOT_OF_COMPUTING, IDLE_CPUS, KERNEL_AT_LIMIT,
    LASTING_OF_COMPUTING, ONE_CPU, ONE_THREAD_SHARE, QUOTA_BINDING, QUOTA_OTHER_WAITS, QUOTA_SHARE,
    ROOT_OF_WAITS, SHORTAGE_OF_COMPUTING, SHORTAGE_OF_WINDOW, SHORTAGE_SHARE,
};
use crate::words;

/// A CPU quota held threads back.
pub(super) fn quota(e: &Evidence<'_>) -> Finding {
    let l = &e.bottleneck.ledger;
    let binding = host_facts::throttled_periods(e.recording).unwrap_or(0.0) >= QUOTA_BINDING;
    // Without kernel programs, the cgroup's own counters show that a quota ran out, but not which thread it held
    // back, or for how long.
    let told_apart = e.follows_requests() || l.runnable.throttled > 0;
    let ns = match !told_apart && binding {
        true => l.state_ns(State::Runnable),
        false => l.runnable.throttled,
    };
    let share = e.share(ns);
    let group = e
        .host("cpu quota")
        .map_or_else(String::new, |r| format!(" ({})", r.saturation));
    found(format!("throttled: {}{group}", words::share(share)), (share >= QUOTA_SHARE && (binding || ns >= e.main_wait().1 / QUOTA_OTHER_WAITS)).then(|| {
            let share = words::share(share);
            let main = largest(&e.causes, State::OnCpu, None);
            let untold = (!told_apart).then(|| {
                format!("ready threads waited {share}; the quota's part of that is not told apart on this tier")
            });
            Verdict::new(format!(
                "The CPU quota of its cgroup{} holds ready threads back", quota_words(e)
            ))
            .outside()
            .of(e, Spent::runnable(ns, None))
            .because("throttled")
            .measured(e.host("cpu quota").map(|r| r.saturation.clone()))
            .measured(untold)
            .rooted(main.map(|c| {
                format!(
                    "{} uses more of the quota than any other function ({} of active time)",
                    c.function,
                    words::share(c.share)
                )
            }))
            .advised(Some(
                "raise the quota (cpu.max of that cgroup, or of one above it), or compute less".into(),
            ))
        }))
}

/// ` /api.slice (it uses 0.49 of 0.50 CPUs)`: the cgroup, and the use and the size of its quota.
fn quota_words(e: &Evidence<'_>) -> String {
    let groups = e
        .recording
        .host
        .iter()
        .filter_map(|s| s.facts.cgroup.as_ref());
    let path = groups
        .map(|group| &*group.path)
        // `/` names nothing: a container's own group is `/` from within.
        .find(|path| !path.is_empty() && *path != "/");
    let path = path.map_or_else(String::new, |path| format!(" {path}"));
    let used = e.bottleneck.busy_cpus();
    let size = e.totals.quota_cpus;
    let size = size.map_or_else(String::new, |size| {
        format!(" (it uses {used:.2} of {size:.2} CPUs)")
    });
    path + &size
}

/// Ready threads wait for a CPU.
pub(super) fn shortage(e: &Evidence<'_>) -> Finding {
    let b = &e.bottleneck;
    let ns = b.ledger.runnable.woken + b.ledger.runnable.preempted;
    let (share, computing) = (e.share(ns), b.on_cpu());
    // Threads that each run only now and then are sometimes late if others compute.
    let least = match b.busy_cpus() < IDLE_CPUS {
        true => SHORTAGE_OF_WINDOW * b.active_threads.max(1) as f64,
        false => SHORTAGE_OF_WINDOW,
    };
    let room = host_facts::room(e.recording, b);
    let told = room.as_ref().map_or_else(String::new, |r| {
        format!(
            "; of the {} CPUs it may use: itself {:.0} %, everybody {:.0} %",
            r.cpus,
            r.own * 100.0,
            r.used * 100.0
        )
    });
    found(format!(
            "waiting for a CPU: {}, computing: {}{told}",
            words::share(share),
            words::share(computing),
        ), (share >= SHORTAGE_SHARE
            && b.load(ns) >= least
            && share >= computing * SHORTAGE_OF_COMPUTING
            && ns >= longer_waits(e)
            && ns >= tasks::kept_ns(e.recording) / 2)
            .then(|| origin(e, room.as_ref()))
            // With more CPUs the program starts more threads, and a collector fills all CPUs that it gets.
            .filter(|origin| {
                let itself = matches!(origin.taker, Taker::Itself);
                !(itself && (mostly_starts(e) || collects(e, b.on_cpu_ns()).1))
            })
            .map(|origin| {
            let by = largest(&e.causes, State::Runnable, None);
            let verdict = Verdict::new(origin.cause)
                .of(e, Spent::runnable(ns, by))
                .measured(origin.figures)
                .assuming(
                    "with CPUs enough, these threads would run at once and wait for nothing else instead",
                );
            match origin.taker {
                Taker::Others => verdict
                    .outside()
                    .rooted(room.and_then(|r| host_facts::others(e.recording, &r)))
                    .measured(host_facts::stands_back(e.recording))
                    .advised(Some("move the other work away, or reserve CPUs".into())),
                Taker::Itself => verdict
                    .rooted(runs(e))
                    .with(churn(e).verdict.map(|v| v.cause))
                    .with(waits_too(e))
                    .advised(Some("use fewer busy threads, or allow more CPUs".into())),
                Taker::Quota => verdict
                    .rooted(Some(
                        "a CPU quota of its cgroup or of one above it, or its scheduling class, which this recording \
                         could not read"
                            .into(),
                    ))
                    .advised(Some(
                        "look at cpu.max or cpu.cfs_quota_us of its cgroup and of those above it".into(),
                    )),
                Taker::Unknown => verdict
                    .rooted(Some(
                        "other programs may use the CPUs, or its threads come in bursts: this recording has no \
                         figures of the host"
                            .into(),
                    ))
                    .with(waits_too(e))
                    .advised(Some("look at the CPU use of the whole host meanwhile (top)".into())),
            }
        }))
}

/// The user of the CPUs that ready threads wait for.
enum Taker {
    Itself,
    Others,
    /// No program: a quota, or the scheduling class.
    Quota,
    /// The recording has no figures of the host.
    Unknown,
}

/// Origin of a shortage of CPUs.
struct Origin {
    /// The cause, in a sentence without a full stop.
    cause: String,
    /// Use of the CPUs, in words.
    figures: Option<String>,
    taker: Taker,
}

impl Origin {
    fn itself(cause: String) -> Origin {
        Origin {
            cause: format!("Ready threads wait for a CPU: {cause}"),
            figures: None,
            taker: Taker::Itself,
        }
    }
}

/// Origin of a shortage of CPUs by the host's figures, or by the process's own computing without them.
fn origin(e: &Evidence<'_>, room: Option<&Room>) -> Origin {
    let b = &e.bottleneck;
    let busy_threads = || Origin::itself("it has more busy threads than CPUs".into());
    let Some(r) = room else {
        let filled = b.busy_cpus() >= CPUS_WITH_ROOM * f64::from(b.cpus);
        return match filled {
            true => busy_threads(),
            false => Origin {
                cause: format!(
                    "Ready threads wait for a CPU, though they keep only {:.2} of {} CPUs busy",
                    b.busy_cpus(),
                    b.cpus
                ),
                figures: None,
                taker: Taker::Unknown,
            },
        };
    };
    if let Some(held_back) = held_back(e, r) {
        return held_back;
    }
    let others = r.used - r.own;
    // While one of its threads waits, the other ones may run in its place.
    let n = b.active_threads.max(1) as f64;
    if others > r.own * (n - 1.0) / n {
        return Origin {
            cause: "Programs outside this process use the CPUs while its ready threads wait".into(),
            figures: Some(format!(
                "other programs use {:.0} % of {}, this process {:.0} %",
                others * 100.0,
                allowed(r),
                r.own * 100.0
            )),
            taker: Taker::Others,
        };
    }
    if r.used < CPUS_WITH_ROOM {
        return Origin::itself(format!(
            "they come in bursts, while {} {} free {:.0} % of the time",
            allowed(r),
            if r.cpus == 1 { "is" } else { "are" },
            (1.0 - r.used) * 100.0
        ));
    }
    match b.cpus > r.cpus as u32 {
        true => Origin::itself(format!(
            "it has more busy threads than the {} of {} CPUs that it may use (affinity or cpuset)",
            r.cpus, b.cpus
        )),
        false => busy_threads(),
    }
}

/// Ready threads that are kept from running: on average they wait for longer than the CPUs that they may use are busy.
fn held_back(e: &Evidence<'_>, r: &Room) -> Option<Origin> {
    let b = &e.bottleneck;
    let threads = b.active_threads.max(1) as f64;
    let waited = b.ledger.state_ns(State::Runnable) as f64 / threads / b.window_ns.max(1) as f64;
    (waited > HELD_BACK_OF_BUSY * r.used).then(|| Origin {
        cause: "Ready threads are kept from running though CPUs are free".into(),
        figures: Some(format!(
            "they wait {:.0} % of the window on average, while {} {} busy {:.0} %",
            waited * 100.0,
            allowed(r),
            if r.cpus == 1 { "is" } else { "are" },
            r.used * 100.0
        )),
        taker: Taker::Quota,
    })
}

/// The CPUs that the process may use, in words.
fn allowed(r: &Room) -> String {
    match r.cpus {
        1 => "the one CPU that it may use".into(),
        n => format!("the {n} CPUs that it may use"),
    }
}

/// The function that runs while others wait for a CPU.
fn runs(e: &Evidence<'_>) -> Option<String> {
    let (c, ns) = hottest(e)?;
    let computed = e.bottleneck.on_cpu_ns();
    (ns as f64 >= HOT_OF_COMPUTING * computed as f64).then(|| {
        format!(
            "{} runs meanwhile ({} of the computing)",
            c.function,
            words::share(ns as f64 / computed.max(1) as f64)
        )
    })
}

/// A wait for others that would make a cause by itself.
fn waits_too(e: &Evidence<'_>) -> Option<String> {
    let (reason, ns) = e.main_wait();
    let by = largest(&e.causes, State::Blocked, Some(reason));
    (e.share(ns) >= CAUSE_SHARE).then(|| {
        format!(
            "It also waits for {} {} of active time{}",
            by.map_or(words::target(reason), |c| wait_target(e, reason, c)),
            words::share(e.share(ns)),
            place(by, ns)
        )
    })
}

/// The wait that takes precedence over a shortage of CPUs, ns: half of the longest wait. All of it counts if more
/// CPUs would not end it: waits for locks, a disk, answers of others, or threads that are blocked themselves.
fn longer_waits(e: &Evidence<'_>) -> u64 {
    use BlockReason::{Disk, Gil, KernelLock, Lock, Network};
    let (reason, ns) = e.main_wait();
    let blocked = |waits: Vec<u32>| {
        let roots = e.roots(&waits).into_iter();
        let blocked = roots.filter(|root| root.state == State::Blocked && root.open.is_none());
        blocked.map(|root| root.share).sum::<f64>() > ROOT_OF_WAITS
    };
    let longest = match reason {
        Lock | Gil | KernelLock | Disk | Network => ns,
        _ if blocked(e.blocked_samples(reason).collect()) => ns,
        _ => ns / 2,
    };
    longest.max(e.polled_for_answers())
}

/// On-CPU causes of one function taken together: the largest, and its time, ns.
fn hottest<'e>(e: &'e Evidence<'_>) -> Option<(&'e Cause, u64)> {
    let mut sums: HashMap<(&str, &str), (&Cause, u64)> = HashMap::new();
    let running = e.causes.iter().filter(|c| c.state == State::OnCpu);
    for c in running.filter(|c| c.has_function()) {
        let sum = sums.entry((&c.function, &c.module)).or_insert((c, 0));
        sum.1 += c.ns;
    }
    let all = sums.into_values();
    all.max_by_key(|(c, ns)| (*ns, std::cmp::Reverse(c.function.clone())))
}

/// A memory limit that is met while the kernel computes. Without stacks of running threads, nothing else shows that
/// the kernel frees memory.
fn at_the_limit(e: &Evidence<'_>) -> Option<String> {
    let limit = e.host("memory limit")?;
    let met =
        limit.level == Level::Saturated && limit.utilisation.is_some_and(|u| u > AT_MEMORY_LIMIT);
    (kernel_part(e) >= KERNEL_AT_LIMIT && met).then(|| {
        format!(
            "the cgroup is at its memory limit ({}): the kernel may be searching for memory to free",
            limit.saturation
        )
    })
}

/// Part of the computing that the kernel does.
fn kernel_part(e: &Evidence<'_>) -> f64 {
    let b = &e.bottleneck;
    b.ledger.on_cpu.kernel as f64 / b.on_cpu_ns().max(1) as f64
}

/// Threads compute.
pub(super) fn computing(e: &Evidence<'_>) -> Finding {
    let b = &e.bottleneck;
    let ns = b.on_cpu_ns();
    // Waits that others end, by a wake-up or by an event.
    let waits = e.share(e.main_wait().1.max(e.handed()));
    // A parent's wait for a measured child is explained by the child's computing.
    let relayed = match b.busy_cpus() >= CPU_FIRST {
        true => e.relayed(),
        false => 0,
    };
    let of_rest = ns as f64 / b.active_ns().saturating_sub(relayed).max(1) as f64;
    let without_children = match relayed > 0 {
        true => {
            let share = words::share(of_rest);
            format!(" ({share} without waits for own children)")
        }
        false => String::new(),
    };
    let looked_at = format!(
        "computing: {} of active time{without_children}, {:.2} CPUs; waits that others end: {}",
        words::share(b.on_cpu()),
        b.busy_cpus(),
        words::share(waits)
    );
    let busy = b.busy_cpus() >= ONE_CPU || b.load(b.busiest_ns) >= ONE_THREAD_SHARE;
    let applies = of_rest > CPU_FIRST || (busy && waits < CAUSE_SHARE);
    found(looked_at, applies.then(|| computing_verdict(e, ns)))
}

fn computing_verdict(e: &Evidence<'_>, ns: u64) -> Verdict {
    let hottest = hottest(e);
    let kernel = match kernel_part(e) {
        part if part >= HOT_OF_COMPUTING => {
            format!("; {:.0} % of the computing is in the kernel", part * 100.0)
        }
        _ => String::new(),
    };
    let profile = profile(e, ns, hottest.map_or(0, |(_, ns)| ns));
    let main = hottest
        .filter(|_| profile != UNSEEN)
        .map_or_else(String::new, |(c, hot)| {
            let most = if profile == FLAT { "most in " } else { "" };
            let of = words::share(hot as f64 / ns.max(1) as f64);
            let function = words::function(&c.function);
            format!(", {most}{function} ({of} of the computing)")
        });
    let (collects, mostly) = collects(e, ns);
    let computing = match &collects {
        Some(collects) if mostly => collects.clone(),
        _ => format!("{profile}{main}{kernel}"),
    };
    let relay = relay(e);
    let cause = match &relay {
        Some((parent, child)) => {
            format!("{parent} waits for one {child} at a time, which is CPU-bound: {computing}")
        }
        None => match alone(e) {
            Some(process) => format!("CPU-bound: {process} computes alone; {computing}"),
            None => format!("CPU-bound: {computing}"),
        },
    };
    let common = common_function(e, ns)
        .filter(|(name, _)| relay.is_none() && hottest.is_none_or(|(c, _)| *c.function != **name));
    let place = common.as_ref().map(|(name, _)| name.clone());
    let place = place.or_else(|| hottest.map(|(c, _)| c.function.clone()));
    // A child that is done sooner ends its parents' waits sooner.
    let waits = relay.as_ref().map_or(0, |_| e.relayed());
    Verdict::new(cause)
    .of(e, Spent::on_cpu(ns, hottest.map(|(c, _)| c)))
    .with_other_time(e, COMPUTING, &[("in waits for that", waits)])
    .rooted(collects.filter(|_| !mostly))
    .rooted(at_the_limit(e))
    .rooted(main_system_call(e, ns))
    .rooted(common.map(|(name, share)| {
        format!("{} of the computing is in {name} and the functions that it calls", words::share(share))
    }))
    .measured(relay.as_ref().map(|_| {
        let b = &e.bottleneck;
        format!("{:.2} of {} CPUs are busy", b.busy_cpus(), b.cpus)
    }))
    .measured(by_one_thread(e).then(|| {
        let busy = words::share(e.bottleneck.load(e.bottleneck.busiest_ns));
        format!("thread {} computes for {busy} of the window, nearly all of the computing", busiest(e).map_or("", |c| &c.name))
    }))
    .measured(asked_and_answered(e).filter(|_| by_one_thread(e)))
    .advised(mostly.then(|| COLLECT_LESS.into()))
    .advised(relay.map(|(parent, _)| format!("let {parent} start several at a time (as make -j does)")))
    .advised(alone(e).map(|process| {
        format!("divide the work of {process}, or make it less: it keeps one CPU busy, and more CPUs do not help")
    }))
    .advised(place.map(|function| {
        let elsewhere = match by_one_thread(e) && e.answers() {
            true => ", call it less, or take it off the one thread that answers: its callers wait meanwhile",
            false if words::is_address(&function) => "",
            false => ", or call it less",
        };
        if words::is_address(&function) {
            let module = function.split('+').next().unwrap_or_default();
            return format!("install the debug symbols of {module} to see the function{elsewhere}");
        }
        format!("make {} faster{elsewhere}", words::function(&function))
    }))
    .with(Some(
        "Whether it waits for memory while it computes cannot be told without hardware counters"
            .into(),
    ))
}

/// Process that waits for its own child most of the window, and the child, which computes alone, where there are more
/// CPUs.
fn relay(e: &Evidence<'_>) -> Option<(String, String)> {
    let b = &e.bottleneck;
    let alone = b.cpus > 1 && b.busy_cpus() < 1.0 + (1.0 - ONE_CPU);
    let measured: HashSet<u32> = e.recording.contexts.iter().map(|c| c.pid).collect();
    let outermost = |pid: u32| {
        let process = e.recording.processes.iter().find(|p| p.pid == pid);
        process.is_some_and(|p| !measured.contains(&p.parent))
    };
    let waits = e
        .causes
        .iter()
        .filter(|c| c.is_wait_for(BlockReason::Child));
    let of_parent = |c: &&Cause| {
        let first = c.samples.first().map(|i| e.sample(*i).context);
        first.is_some_and(|at| outermost(e.recording.contexts[at.0 as usize].pid))
    };
    let wait = waits.filter(of_parent).max_by_key(|c| c.ns)?;
    let child = wait
        .because
        .first()
        .filter(|root| root.state == State::OnCpu)?;
    let most = b.load(wait.ns) >= ONE_THREAD_SHARE;
    (alone && most).then(|| (wait.thread.to_string(), child.actor.clone()))
}

/// Whether one thread computes throughout and does nearly all of the computing, where there are more CPUs.
fn by_one_thread(e: &Evidence<'_>) -> bool {
    let b = &e.bottleneck;
    let most = b.busiest_ns as f64 >= LASTING_OF_COMPUTING * b.on_cpu_ns() as f64;
    b.cpus > 1 && most && b.load(b.busiest_ns) >= ONE_CPU
}

/// The thread that computes most.
fn busiest<'e>(e: &Evidence<'e>) -> Option<&'e Context> {
    let threads = e.recording.contexts.iter();
    threads.max_by_key(|c| c.ledger.state_ns(State::OnCpu))
}

/// The process that computes alone, where several are measured: `cc1 (pid 7)`.
fn alone(e: &Evidence<'_>) -> Option<String> {
    let busiest = busiest(e).filter(|_| e.recording.processes.len() > 1 && by_one_thread(e))?;
    Some(format!("{} (pid {})", busiest.name, busiest.pid))
}

/// The computing, as a part of the impact.
const COMPUTING: &str = "computing";

/// The thing to change where a collector computes.
const COLLECT_LESS: &str = "allocate less, or allow the collector more memory";

/// The part of `ns` of computing that collects garbage, in words where it is worth a line, and whether it is most.
fn collects(e: &Evidence<'_>, ns: u64) -> (Option<String>, bool) {
    let part = e.work.ns(WorkKind::Collect) as f64 / ns.max(1) as f64;
    let words = (part >= COLLECT_OF_COMPUTING).then(|| {
        format!(
            "garbage collection takes {} of the computing ({})",
            words::share(part),
            words::function(e.work.name(WorkKind::Collect))
        )
    });
    (words, part >= COLLECT_IS_CAUSE)
}

/// Profile without stacks.
const UNSEEN: &str = "the stacks of running threads are not seen, so the place is not known";
/// Profile with one function that stands out.
const HOT: &str = "one hot spot";
/// Profile without one.
const FLAT: &str = "no single hot spot (a flat profile)";

/// The profile of `ns` of computing in words, of which the hottest function has `hot_ns`.
fn profile(e: &Evidence<'_>, ns: u64, hot_ns: u64) -> &'static str {
    let running = e.causes.iter().filter(|c| c.state == State::OnCpu);
    let named: u64 = running.filter(|c| c.has_function()).map(|c| c.ns).sum();
    if named * 2 < ns {
        UNSEEN
    } else if hot_ns as f64 >= HOT_OF_COMPUTING * ns as f64 && hot_ns > 0 {
        HOT
    } else {
        FLAT
    }
}
