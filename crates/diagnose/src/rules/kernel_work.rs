//! Rules about CPU time that goes into the kernel's or a runtime's work: memory reclaim, starting
//! threads, page faults, spinning.

use std::collections::HashMap;

use wallscope_model::{BlockReason, Recording, Sample, State};

use super::verdict::{Finding, Spent, Verdict, found};
use crate::evidence::{Evidence, WorkKind};
use crate::frames::{Side, passes};
use crate::knowledge::STARTS_OTHERS;
use crate::thresholds::{
    CHURN_OF_ACTIVE, CHURN_OF_COMPUTING, CHURN_PROCESSES, CHURN_RATE, CPU_FIRST, FAULT_SHARE,
    NEAR_MEMORY_LIMIT, RECLAIM_SHARE, SPIN_PART, SPIN_SHARE,
};
use crate::words;

/// The program's own function with most time in a kind of work, and that time, ns.
fn main_function(e: &Evidence<'_>, kind: WorkKind) -> Option<(String, u64)> {
    main_function_of(e, |sample| e.work.kind(sample) == Some(kind))
}

/// The program's own function with most time in samples for which `counts` holds, and that time, ns.
fn main_function_of(e: &Evidence<'_>, counts: impl Fn(&Sample) -> bool) -> Option<(String, u64)> {
    let mut sums: HashMap<&str, u64> = HashMap::new();
    for c in e.causes.iter().filter(|c| c.has_function()) {
        let of_kind = (c.samples.iter()).filter(|i| counts(e.sample(**i)));
        let ns: u64 = of_kind.map(|i| e.sample_ns(*i)).sum();
        *sums.entry(&c.function).or_default() += ns;
    }
    sums.into_iter()
        .filter(|(_, ns)| *ns > 0)
        .max_by_key(|(name, ns)| (*ns, std::cmp::Reverse(*name)))
        .map(|(name, ns)| (name.to_string(), ns))
}

/// `PREFIX f`; empty where no function is known.
fn mostly_in(prefix: &str, by: Option<&(String, u64)>) -> String {
    by.map_or_else(String::new, |(function, _)| format!("{prefix} {function}"))
}

/// The kernel frees memory for the process.
pub(super) fn reclaim(e: &Evidence<'_>) -> Finding {
    let ns = e.work.ns(WorkKind::Reclaim);
    let share = e.share(ns);
    found(
        format!("memory reclaim: {}", words::share(share)),
        (share >= RECLAIM_SHARE).then(|| {
            let limit = e.host("memory limit");
            let shortage = match limit.and_then(|r| Some((r, r.utilisation?))) {
                Some((limit, used)) if used > NEAR_MEMORY_LIMIT => format!(
                    "the cgroup is at its memory limit ({}, {:.0} % in use)",
                    limit.saturation,
                    used * 100.0
                ),
                _ => "the machine is short of memory".to_string(),
            };
            let by = main_function(e, WorkKind::Reclaim);
            let state = match e.blocked(BlockReason::Memory) * 2 > ns {
                true => State::Blocked,
                false => State::OnCpu,
            };
            let cause = format!(
                "The kernel has to free memory before it can go on{}: {shortage}",
                mostly_in(" in", by.as_ref())
            );
            let spent = Spent {
                state,
                ns,
                by: None,
            };
            let verdict = Verdict::new(cause).because("memory").of(e, spent);
            in_main(verdict, by).advised(Some("raise the memory limit, or use less memory".into()))
        }),
    )
}

fn in_main(mut verdict: Verdict, by: Option<(String, u64)>) -> Verdict {
    verdict.function = by.map(|(function, _)| function);
    verdict
}

/// The function that spends most time starting threads or processes. If no start was sampled: the function in which
/// the new ones spend most of the time that they take to begin and end.
fn starter(e: &Evidence<'_>) -> Option<(String, u64)> {
    let starts = |sample: &Sample| {
        sample.state == State::OnCpu
            && passes(e.recording, sample.stack, Side::Kernel, STARTS_OTHERS)
    };
    main_function_of(e, starts).or_else(|| main_function(e, WorkKind::Start))
}

/// Names of parent and child of most of the processes that another process of the recording started.
fn main_pair(recording: &Recording) -> Option<(&str, &str)> {
    let names: HashMap<u32, &str> =
        (recording.processes.iter().map(|p| (p.pid, &*p.name))).collect();
    let mut pairs: HashMap<(&str, &str), u64> = HashMap::new();
    for process in &recording.processes {
        if let Some(parent) = names.get(&process.parent) {
            *pairs.entry((parent, &process.name)).or_default() += 1;
        }
    }
    let main = (pairs.into_iter()).max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
    main.map(|(pair, _)| pair)
}

/// The process starts threads or processes all the time.
pub(super) fn churn(e: &Evidence<'_>) -> Finding {
    let b = &e.bottleneck;
    let births = b.births as f64 / (b.window_ns.max(1) as f64 / 1e9);
    let unseen = e.totals.unattributed_ns;
    let ns = e.work.ns(WorkKind::Start);
    let computed = b.on_cpu_ns() + unseen;
    let ready = b.ledger.state_ns(State::Runnable);
    let of_work = starting(e);
    found(
        format!(
            "{births:.0} threads started a second; starting and ending them: {} of computing",
            words::share(of_work)
        ),
        (births >= CHURN_RATE
            && of_work >= CHURN_OF_COMPUTING
            && e.share(ns + unseen) >= CHURN_OF_ACTIVE
            && b.load(computed + ready) >= CPU_FIRST)
            .then(|| {
                // Groups of ended threads do not show whether they are processes. They are taken to be like the
                // threads that are kept one by one.
                let processes = e.recording.processes.len() as f64;
                let single = (b.births - b.folded) as f64;
                let (what, started) = match processes > single * CHURN_PROCESSES {
                    true => ("processes", main_pair(e.recording)),
                    false => ("threads", None),
                };
                let by = starter(e);
                let through = match (started, &by) {
                    (Some((parent, child)), _) => format!(", mostly {child} by {parent}"),
                    (None, Some((function, _))) => format!(", mostly from {function}"),
                    (None, None) => String::new(),
                };
                let verdict = Verdict::new(format!(
                "It starts {births:.0} {what} a second{through}: starting and ending them takes {} of its \
                 computing",
                words::share(of_work),
            ))
            .of(e, Spent::on_cpu(ns, None))
            .because("kernel");
                in_main(verdict, by).advised(Some(
                    "keep and reuse them (a pool, one process for many inputs)".into(),
                ))
            }),
    )
}

/// Whether starting and ending threads or processes takes most of the computing, and all that [`churn`] asks.
pub(super) fn mostly_starts(e: &Evidence<'_>) -> bool {
    starting(e) > 0.5 && churn(e).verdict.is_some()
}

/// Part of the computing that goes into starting and ending threads or processes.
fn starting(e: &Evidence<'_>) -> f64 {
    let unseen = e.totals.unattributed_ns;
    let computed = e.bottleneck.on_cpu_ns() + unseen;
    (e.work.ns(WorkKind::Start) + unseen) as f64 / computed.max(1) as f64
}

/// The kernel handles page faults.
pub(super) fn faults(e: &Evidence<'_>) -> Finding {
    let ns = e.work.ns(WorkKind::Fault);
    let share = e.share(ns);
    // Threads wait for pages that come from a disk: that wait, and not the handling, is the cause.
    let awaited = e.blocked(BlockReason::PageFault);
    found(
        format!(
            "handling page faults: {}, waiting for their pages: {}",
            words::share(share),
            words::share(e.share(awaited))
        ),
        (share >= FAULT_SHARE && ns >= awaited).then(|| {
            let by = main_function(e, WorkKind::Fault);
            let mut verdict = Verdict::new(format!(
                "The kernel handles page faults{}: memory is touched for the first time again and again",
                mostly_in(" in", by.as_ref())
            ))
            .of(e, Spent::on_cpu(ns, None))
            .because("kernel");
            verdict.confidence = "the share is by samples of the kernel's stack".into();
            in_main(verdict, by).advised(Some(
                "reuse memory instead of unmapping or freeing and taking it anew".into(),
            ))
        }),
    )
}

/// Threads spin or yield.
pub(super) fn spinning(e: &Evidence<'_>) -> Finding {
    let ns = e.work.ns(WorkKind::Spin);
    let share = e.share(ns);
    found(
        format!("spinning or yielding: {}", words::share(share)),
        (share >= SPIN_SHARE && ns >= e.bottleneck.on_cpu_ns() / SPIN_PART).then(|| {
            let by = main_function(e, WorkKind::Spin);
            let verdict = Verdict::new(format!(
                "It spins in {}{}: it uses a CPU to wait for another thread",
                e.work.name(WorkKind::Spin),
                mostly_in(", called from", by.as_ref())
            ))
            .of(e, Spent::on_cpu(ns, None));
            in_main(verdict, by)
                .suspected(
                    "these functions are known to wait; the thread that they wait for is not seen",
                )
                .assuming("the thing that they wait for would have come no later without spinning")
                .advised(Some("wait at a lock or condition that sleeps".into()))
        }),
    )
}
