//! Rules about time on a CPU, and about time without one.

use std::collections::HashMap;

use wallscope_model::State;

use super::causes::{Cause, largest};
use super::evidence::Evidence;
use super::for_what::for_what;
use super::verdict::{Found, Verdict, found, main_code, mostly};
use super::work::Kind;
use super::{CPU_FIRST, Level, callers, facts, rules_tasks};
use crate::words;

pub(super) fn quota(e: &Evidence<'_>) -> Found {
    let l = &e.bottleneck.ledger;
    let others = e.main_wait().1;
    let binding = facts::throttled_periods(e.recording).unwrap_or(0.0);
    // Without kernel programs the cgroup's own counters tell of a quota, and not whom it held back for how long.
    let apart = e.recording.domain.backend == "ebpf" || l.runnable.throttled > 0;
    let ns = match apart {
        false if binding >= facts::BINDING => l.state_ns(State::Runnable),
        _ => l.runnable.throttled,
    };
    let share = e.share(ns);
    let group = e
        .host("cpu quota")
        .map_or_else(String::new, |r| format!(" ({})", r.saturation));
    found(
        format!("throttled: {}{group}", words::share(share)),
        share >= 0.05 && (ns >= others / 4 || binding >= facts::BINDING),
        || {
            let held = match apart {
                true => format!(
                    "it held ready threads back for {} of active time",
                    words::share(share)
                ),
                false => format!(
                    "ready threads waited for a CPU {} of active time (how much of that was for the quota is not \
                     told apart here)",
                    words::share(share)
                ),
            };
            Verdict::new(format!(
                "The cause is the CPU quota of its cgroup{group}: {held}"
            ))
            .outside()
            .of(e, State::Runnable, ns, None)
            .because("throttled")
            .with(main_code(e, State::OnCpu).map(|c| {
                format!(
                    "What uses the quota up is mostly {} ({} of active time)",
                    c.function,
                    words::share(c.share)
                )
            }))
        },
    )
}

pub(super) fn reclaim(e: &Evidence<'_>) -> Found {
    let ns = e.work.ns(Kind::Reclaim);
    let share = e.share(ns);
    let limit = e.host("memory limit");
    found(
        format!("memory reclaim: {}", words::share(share)),
        share >= 0.15,
        || {
            let whose = match limit {
                Some(r) if r.utilisation.is_some_and(|u| u > 0.9) => format!(
                    "its cgroup is at its memory limit ({}, {:.0} % in use)",
                    r.saturation,
                    r.utilisation.unwrap_or(1.0) * 100.0
                ),
                _ => "the machine is short of memory".to_string(),
            };
            let by = samples_of(e, Kind::Reclaim);
            let by = by.as_ref();
            let blocked = e.blocked(wallscope_model::BlockReason::Memory);
            let state = if blocked * 2 > ns {
                State::Blocked
            } else {
                State::OnCpu
            };
            let mut v = Verdict::new(format!(
                "The kernel frees memory for it {} of active time: {whose}{}",
                words::share(share),
                by.map_or_else(String::new, |(f, ns)| format!(
                    "; most of it in {f} ({} of active time)",
                    words::share(e.share(*ns))
                ))
            ))
            .because("memory")
            .of(e, state, ns, None);
            v.function = by.map(|(f, _)| f.clone());
            v
        },
    )
}

/// The program's own function with most time in `kind` of work.
fn samples_of(e: &Evidence<'_>, kind: Kind) -> Option<(String, u64)> {
    let mut sums: HashMap<&str, u64> = HashMap::new();
    for c in e.causes {
        let ns: u64 = (c.samples.iter())
            .filter(|i| e.work.kind(&e.recording.samples[**i as usize]) == Some(kind))
            .map(|i| e.waits.sample_ns[*i as usize])
            .sum();
        *sums.entry(&c.function).or_default() += ns;
    }
    sums.into_iter()
        .filter(|(name, ns)| *ns > 0 && !name.starts_with('['))
        .max_by_key(|(name, ns)| (*ns, std::cmp::Reverse(*name)))
        .map(|(name, ns)| (name.to_string(), ns))
}

/// CPUs: who computes less has nothing to do (as for idle).
const NEXT_TO_NOTHING: f64 = 0.01;

pub(super) fn shortage(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let ns = b.ledger.runnable.woken + b.ledger.runnable.preempted;
    let (share, computing) = (e.share(ns), b.on_cpu());
    // Threads that each do something now and then are late now and then where others compute.
    let least = match b.busy_cpus() < NEXT_TO_NOTHING {
        true => 0.05 * b.active_threads.max(1) as f64,
        false => 0.05,
    };
    let room = facts::room(e.recording, b);
    let told = room.as_ref().map_or_else(String::new, |r| {
        format!(
            "; of the {} CPUs it may use: itself {:.0} %, everybody {:.0} %",
            r.cpus,
            r.own * 100.0,
            r.used * 100.0
        )
    });
    found(
        format!(
            "waiting for a CPU: {}, computing: {}{told}",
            words::share(share),
            words::share(computing),
        ),
        share >= 0.25
            && b.load(ns) >= least
            && share >= computing / 2.0
            && ns >= lock_or_half(e)
            && ns >= rules_tasks::held_ns(e) / 2,
        || {
            let by = largest(e.causes, State::Runnable, None);
            // While one of its threads waits, the others of them are what may run in its place.
            let n = b.active_threads.max(1) as f64;
            let (whose, outside) = match &room {
                Some(r) if (r.used - r.own) > r.own * (n - 1.0) / n => (
                    format!(
                        "others use them ({:.0} % of {}, itself {:.0} %): the cause is outside this process",
                        (r.used - r.own) * 100.0,
                        the_cpus(r.cpus),
                        r.own * 100.0
                    ),
                    true,
                ),
                Some(r) if r.used < 0.75 => (
                    format!(
                        "{} free {:.0} % of the time: its threads come in bursts",
                        match r.cpus {
                            1 => "the CPU that it may use is".to_string(),
                            n => format!("the {n} CPUs that it may use are"),
                        },
                        (1.0 - r.used) * 100.0
                    ),
                    false,
                ),
                Some(r) if e.bottleneck.cpus > r.cpus as u32 => (
                    format!(
                        "it has more busy threads than the {} of {} CPUs that it may use (affinity \
                         or cpuset)",
                        r.cpus, e.bottleneck.cpus
                    ),
                    false,
                ),
                _ => ("it has more busy threads than CPUs".to_string(), false),
            };
            let v = Verdict::new(format!(
                "Threads that are ready wait for a CPU {} of active time: {whose}{}",
                words::share(share),
                mostly(by)
            ))
            .of(e, State::Runnable, ns, by);
            if !outside {
                return v.with(runs(e)).with(started(e)).with(waits_too(e));
            }
            v.outside()
                .with(room.as_ref().and_then(|r| facts::others(e.recording, r)))
                .with(facts::stands_back(e.recording))
        },
    )
}

/// What runs while others wait for a CPU.
fn runs(e: &Evidence<'_>) -> Option<String> {
    let (c, ns) = hottest(e)?;
    let computed = e.bottleneck.ledger.state_ns(State::OnCpu);
    (ns as f64 >= 0.3 * computed as f64).then(|| {
        format!(
            "What runs meanwhile is mostly {} ({} of what is computed)",
            c.function,
            words::share(ns as f64 / computed.max(1) as f64)
        )
    })
}

/// Threads or processes that it starts all the time are what CPUs are used for.
fn started(e: &Evidence<'_>) -> Option<String> {
    churn(e).verdict.map(|v| v.cause)
}

/// A wait for others that takes as much as makes a cause.
fn waits_too(e: &Evidence<'_>) -> Option<String> {
    let (reason, ns) = e.main_wait();
    let by = largest(e.causes, State::Blocked, Some(reason));
    (e.share(ns) >= 0.20).then(|| {
        format!(
            "It also waits for {} {} of active time{}",
            by.map_or(words::reason(reason), |c| for_what(e, reason, c)),
            words::share(e.share(ns)),
            mostly(by)
        )
    })
}

/// The wait that comes before a shortage of CPUs: half of the longest, or all of it where that is for locks,
/// which more CPUs would not end.
fn lock_or_half(e: &Evidence<'_>) -> u64 {
    use wallscope_model::BlockReason::{Gil, KernelLock, Lock};
    match e.main_wait() {
        (Lock | Gil | KernelLock, ns) => ns,
        (_, ns) => ns / 2,
    }
}

fn the_cpus(n: usize) -> String {
    match n {
        1 => "the one CPU that it may use".to_string(),
        n => format!("the {n} CPUs that it may use"),
    }
}

pub(super) fn churn(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let births = b.births as f64 / (b.window_ns.max(1) as f64 / 1e9);
    let unseen: u64 = e
        .recording
        .processes
        .iter()
        .map(|p| p.unattributed_on_cpu_ns)
        .sum();
    let ns = e.work.ns(Kind::Start);
    let computed = b.ledger.state_ns(State::OnCpu) + unseen;
    let ready = b.ledger.state_ns(State::Runnable);
    let of_work = (ns + unseen) as f64 / computed.max(1) as f64;
    found(
        format!(
            "{births:.0} threads started a second; starting and ending them: {} of computing",
            words::share(of_work)
        ),
        births >= 20.0 && of_work >= 0.15 && b.load(computed + ready) >= CPU_FIRST,
        || {
            let parents = e.recording.processes.len();
            let what = if parents as f64 > b.births as f64 * 0.5 {
                "processes"
            } else {
                "threads"
            };
            let by = samples_of(e, Kind::Start);
            let mut v = Verdict::new(format!(
                "It starts {births:.0} {what} a second: starting and ending them takes {} of what \
                 it computes{}",
                words::share(of_work),
                by.as_ref().map_or_else(String::new, |(f, _)| format!(
                    "; most of that by way of {f}"
                ))
            ))
            .of(e, State::OnCpu, ns, None)
            .because("kernel");
            v.function = by.map(|(f, _)| f);
            v.with(Some(
                "Keep them and give them work (a pool, one process for many inputs) instead".into(),
            ))
        },
    )
}

pub(super) fn faults(e: &Evidence<'_>) -> Found {
    let ns = e.work.ns(Kind::Fault);
    let share = e.share(ns);
    // Pages that come from a disk are waited for: that, and not the handling, is the cause.
    let awaited = e.blocked(wallscope_model::BlockReason::PageFault);
    found(
        format!(
            "handling page faults: {}, waiting for their pages: {}",
            words::share(share),
            words::share(e.share(awaited))
        ),
        share >= 0.25 && ns >= awaited,
        || {
            let by = samples_of(e, Kind::Fault);
            let mut v = Verdict::new(format!(
                "The kernel handles its page faults {} of active time{}: memory is touched for the \
                 first time again and again (mapped and unmapped, or given back and taken anew)",
                words::share(share),
                by.as_ref().map_or_else(String::new, |(f, ns)| format!(
                    ", most of it in {f} ({} of active time)",
                    words::share(e.share(*ns))
                ))
            ))
            .of(e, State::OnCpu, ns, None)
            .because("kernel");
            v.function = by.map(|(f, _)| f);
            v.confidence = "the share is by samples of the kernel's stack".into();
            v
        },
    )
}

pub(super) fn spinning(e: &Evidence<'_>) -> Found {
    let ns = e.work.ns(Kind::Spin);
    let share = e.share(ns);
    let computed = e.bottleneck.ledger.state_ns(State::OnCpu);
    found(
        format!("spinning or yielding: {}", words::share(share)),
        share >= 0.20 && ns >= computed / 3,
        || {
            let by = samples_of(e, Kind::Spin);
            let mut v = Verdict::new(format!(
                "It spins {} of active time, on a CPU without getting anywhere, in {}{}: the time \
                 is a wait for whoever holds what it spins for",
                words::share(share),
                e.work.name(Kind::Spin),
                by.as_ref().map_or_else(String::new, |(f, ns)| format!(
                    ", most of it from {f} ({} of active time)",
                    words::share(e.share(*ns))
                ))
            ))
            .of(e, State::OnCpu, ns, None);
            v.function = by.map(|(f, _)| f);
            v.suspected("these functions are known to wait; what for is not seen")
        },
    )
}

/// On-CPU causes of one function taken together, the largest first.
fn hottest<'a>(e: &Evidence<'a>) -> Option<(&'a Cause, u64)> {
    let mut sums: HashMap<(&str, &str), (&'a Cause, u64)> = HashMap::new();
    for c in e
        .causes
        .iter()
        .filter(|c| c.state == State::OnCpu && !c.function.starts_with('['))
    {
        let sum = sums.entry((&c.function, &c.module)).or_insert((c, 0));
        sum.1 += c.ns;
    }
    let all = sums.into_values();
    all.max_by_key(|(c, ns)| (*ns, std::cmp::Reverse(c.function.clone())))
}

/// Where `kernel` of what is computed is the kernel's, and the memory limit is met: without stacks of running threads
/// nothing tells that it frees memory.
fn at_the_limit(e: &Evidence<'_>, kernel: f64) -> Option<String> {
    let limit = e.host("memory limit")?;
    let met = limit.level == Level::Saturated && limit.utilisation.is_some_and(|u| u > 0.95);
    (kernel >= 0.5 && met).then(|| {
        format!(
            "Its cgroup is at its memory limit ({}): what the kernel computes may well be the search for memory to \
             free",
            limit.saturation
        )
    })
}

pub(super) fn computing(e: &Evidence<'_>) -> Found {
    let b = e.bottleneck;
    let ns = b.ledger.state_ns(State::OnCpu);
    // What others end, by a wake-up or by an event.
    let waits = e.share(e.main_wait().1.max(e.handed()));
    // A parent's wait for a child that is measured is told by what the child does, where it computes.
    let relayed = match b.busy_cpus() {
        busy if busy >= CPU_FIRST => e.relayed(),
        _ => 0,
    };
    let of_rest = ns as f64 / b.active_ns().saturating_sub(relayed).max(1) as f64;
    let looked_at = format!(
        "computing: {} of active time{}, {:.2} CPUs; waits that others end: {}",
        words::share(b.on_cpu()),
        if relayed > 0 {
            format!(
                " ({} without waits for own children)",
                words::share(of_rest)
            )
        } else {
            String::new()
        },
        b.busy_cpus(),
        words::share(waits)
    );
    let busy = b.busy_cpus() >= 0.95 || b.load(b.busiest_ns) >= CPU_FIRST;
    let applies = of_rest > CPU_FIRST || (busy && waits < 0.20);
    found(looked_at, applies, || {
        let hottest = hottest(e);
        let hot = hottest.is_some_and(|(_, most)| most as f64 >= 0.3 * ns as f64);
        let seen: u64 = (e.causes.iter())
            .filter(|c| c.state == State::OnCpu && !c.function.starts_with('['))
            .map(|c| c.ns)
            .sum();
        let kind = if seen * 2 < ns {
            "where cannot be told here: running threads' stacks are not seen"
        } else if hot {
            "with one hot spot"
        } else {
            "with no single hot spot: its on-CPU profile is flat"
        };
        let kernel = b.ledger.on_cpu.kernel as f64 / ns.max(1) as f64;
        let kernel = if kernel >= 0.3 {
            format!(", {:.0} % of that in the kernel", kernel * 100.0)
        } else {
            String::new()
        };
        let where_to = hottest.map_or_else(String::new, |(c, ns)| {
            format!(
                "; most of it in {} ({} of active time, thread {}{})",
                c.function,
                words::share(e.share(ns)),
                c.thread,
                match c.threads {
                    0 | 1 => String::new(),
                    n => format!(" and {} more", n - 1),
                }
            )
        });
        let collected = e.work.ns(Kind::Collect);
        let collects = (collected * 10 >= ns * 2).then(|| {
            format!(
                "{} of it is the collection of garbage ({}): allocate less, or give it more memory",
                words::share(collected as f64 / ns.max(1) as f64),
                e.work.name(Kind::Collect)
            )
        });
        Verdict::new(format!(
            "It computes {} of active time{kernel}, {kind}{where_to}",
            words::share(b.on_cpu()),
        ))
        .of(e, State::OnCpu, ns, hottest.map(|(c, _)| c))
        .with(collects)
        .with(callers::system_call(e, ns))
        .with(at_the_limit(e, b.ledger.on_cpu.kernel as f64 / ns.max(1) as f64))
        .with(Some(
            "Whether it waits for memory while it computes cannot be told without hardware counters"
                .into(),
        ))
    })
}
