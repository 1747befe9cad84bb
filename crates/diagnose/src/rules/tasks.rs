//! Rules about tasks that a runtime schedules itself.

use std::sync::Arc;

use wallscope_model::{BlockReason, State, TaskGroup};

use super::cpu::computing;
use super::verdict::{Finding, Verdict, bound};
use super::wait_target::wait_target;
use crate::evidence::Evidence;
use crate::evidence::tasks::{HeldBack, SLEEP, SYSTEM_CALL, Tasks, waited_for};
use crate::thresholds::{
    CAUSE_SHARE, TASKS_BUSY, TASKS_OWED_FOLLOWED, TASKS_OWED_POLLED, TASKS_WAITING,
};
use crate::words;

/// Name of the rule on tasks that wait for something that others hold back.
pub(crate) const TASKS_LOCK: &str = "tasks-lock";

/// Maximum number of functions in which tasks sleep that are listed.
const MAX_SLEEPS: usize = 3;

/// `ns` of tasks' time as a mean number of tasks.
fn at_once(e: &Evidence<'_>, ns: u64) -> f64 {
    ns as f64 / e.recording.window.length_ns().max(1) as f64
}

/// Other tasks that run, or are ready to, most of their time: the waiting ones may wait for them.
fn busy_tasks(e: &Evidence<'_>, began: &str) -> Option<String> {
    let ready = |g: &TaskGroup| g.state_ns(State::OnCpu) + g.state_ns(State::Runnable);
    let part = |g: &TaskGroup| ready(g) as f64 / g.wall_ns().max(1) as f64;
    let groups = e.recording.tasks.iter();
    let busy = groups.filter(|g| &*g.name != began && part(g) >= TASKS_BUSY);
    let main = busy.max_by_key(|g| ready(g))?;
    (at_once(e, ready(main)) >= CAUSE_SHARE).then(|| {
        format!(
            "meanwhile {}s of entry function {} run, or are ready to, {} of their time",
            main.kind,
            main.name,
            words::share(part(main))
        )
    })
}

/// Functions in which tasks sleep by the clock: while callers wait for a loop that polls, they may
/// wait for these.
pub(super) fn sleeping_tasks(e: &Evidence<'_>) -> Option<String> {
    let named: Vec<String> = (waited_for(e.recording, SLEEP).into_iter())
        .map(|(function, ns)| (function, at_once(e, ns)))
        .filter(|(_, at_once)| *at_once >= CAUSE_SHARE)
        .take(MAX_SLEEPS)
        .map(|(function, at_once)| format!("{function} ({at_once:.1} of them on average)"))
        .collect();
    let kind = &e.recording.tasks.first()?.kind;
    (!named.is_empty()).then(|| format!("{kind}s sleep meanwhile in {}", words::list(&named)))
}

/// Tasks wait for something that others hold back.
pub(super) fn held_back(e: &Evidence<'_>) -> Finding {
    let tasks = Tasks::most_held_back(e.recording);
    let waited = tasks.held_ns();
    let share = waited as f64 / tasks.active.max(1) as f64;
    let looked_at = format!(
        "those that wait most for things that others hold: {:.1} on average, {} of their time in the program's \
         functions",
        at_once(e, waited),
        words::share(share)
    );
    // If the task that takes or gives it computes, that computing is the finding. A little computing is none: it may
    // be all of the active time, because threads without a task to run are idle.
    let computed = e.bottleneck.on_cpu_ns();
    let computes = || at_once(e, computed) >= CAUSE_SHARE && computing(e).verdict.is_some();
    let much = share >= CAUSE_SHARE && at_once(e, waited) >= TASKS_WAITING;
    let applies = |(_, what, _): &HeldPlace<'_>| {
        much && match what {
            HeldBack::Lock | HeldBack::Pool => true,
            HeldBack::Receiver => !computes(),
            HeldBack::Sender => owed(e, waited) && !computes(),
        }
    };
    let place = tasks.place().filter(applies);
    let verdict = place.map(|place| task_verdict(e, &tasks, place, share));
    Finding { looked_at, verdict }
}

/// A function, the thing held back that tasks wait for there, and the time, ns.
type HeldPlace<'t> = (&'t Arc<str>, HeldBack, u64);

/// Whether callers are owed answers about as long as tasks wait for a sender. A task that waits for news (a stream of
/// events) waits in such places, too, but not for a first answer.
fn owed(e: &Evidence<'_>, waited: u64) -> bool {
    let factor = match e.follows_requests() {
        true => TASKS_OWED_FOLLOWED,
        false => TASKS_OWED_POLLED,
    };
    waited as f64 <= factor * e.requests.owed_ns as f64
}

fn task_verdict(e: &Evidence<'_>, tasks: &Tasks<'_>, place: HeldPlace<'_>, share: f64) -> Verdict {
    let (function, what, ns) = place;
    let (kind, waited) = (tasks.kind, tasks.held_ns());
    let mut verdict = Verdict::new(format!(
        "{:.1} {kind}s on average wait for {} in {function} (entry function {})",
        at_once(e, waited),
        what.words(),
        tasks.began,
    ));
    verdict.state = Some(State::Blocked);
    verdict.reason = Some(what.reason());
    verdict.function = Some(function.to_string());
    verdict.share = share;
    verdict.whole =
        format!("the time that {kind}s of this entry function run, or wait in the program's code");
    verdict.confidence = format!(
        "sampled: {} polls of the runtime's list of {kind}s",
        tasks.polls
    );
    verdict.parts.evidence.push(format!(
        "{} polls of all {kind}s; {} of these waits are in {function}",
        tasks.polls,
        words::share(ns as f64 / waited.max(1) as f64)
    ));
    verdict.bound = bound(share, &verdict.whole);
    with_roots(e, tasks, place, verdict)
}

/// Adds the activities of the tasks that may hold back the thing waited for at `place`, and the thing to change.
fn with_roots(
    e: &Evidence<'_>,
    tasks: &Tasks<'_>,
    (function, what, _): HeldPlace<'_>,
    verdict: Verdict,
) -> Verdict {
    let kind = tasks.kind;
    let locks = matches!(what, HeldBack::Lock);
    let computes = locks
        .then(|| computed_in(e, function))
        .filter(|ns| at_once(e, *ns) >= CAUSE_SHARE);
    let across = match locks {
        true => held_across(e, tasks, function, computes),
        false => tasks
            .inside(function)
            .map(|(reason, ns)| (Arc::clone(function), reason, ns)),
    };
    let advice = advice(what, kind, across.as_ref().map(|(f, ..)| f));
    let across = across.map(|(f, reason, ns)| {
        let held_across = if locks {
            "; perhaps the lock is held across that"
        } else {
            ""
        };
        let reason = match reason {
            SYSTEM_CALL => threads_wait(e, &f).unwrap_or("a system call"),
            reason => words::of_task(reason),
        };
        format!(
            "{:.1} other {kind}s on average wait in {f} for {reason}{held_across}",
            at_once(e, ns)
        )
    });
    let computes = computes.map(|ns| {
        format!(
            "{:.1} {kind}s on average compute in {function}, probably with the lock",
            at_once(e, ns)
        )
    });
    // A task that sleeps in a function that does not take the lock hardly holds it.
    let is_holder = |reason: &str| !(locks && reason == SLEEP);
    let is_told = across.is_some() || computes.is_some();
    let elsewhere = tasks
        .elsewhere()
        .filter(|(_, reason, ns)| !is_told && is_holder(reason) && at_once(e, *ns) >= CAUSE_SHARE)
        .map(|(f, reason, ns)| {
            format!(
                "{:.1} other {kind}s on average wait for {} in {f}",
                at_once(e, ns),
                words::of_task(reason)
            )
        });
    // The other end of a channel may be a task of another entry function.
    let other_end = (!locks && !is_told && elsewhere.is_none())
        .then(|| sleeping_tasks(e))
        .flatten();
    verdict
        .rooted(across)
        .rooted(computes)
        .rooted(elsewhere)
        .rooted(other_end)
        .rooted(busy_tasks(e, tasks.began))
        .advised(advice)
}

/// The wait across which tasks may hold the lock that is waited for in `function`: its function, reason and time, ns.
/// A sleeping task hardly holds the lock if another one is in a system call. `computed`: time that tasks compute
/// there.
fn held_across<'t>(
    e: &Evidence<'_>,
    tasks: &'t Tasks<'_>,
    function: &Arc<str>,
    computed: Option<u64>,
) -> Option<(Arc<str>, &'t str, u64)> {
    let inside = tasks.inside(function);
    let calls = match inside {
        Some((reason, _)) if reason != SLEEP => None,
        _ if computed.is_some() => None,
        _ => waited_for(e.recording, SYSTEM_CALL).into_iter().next(),
    };
    let calls = calls.filter(|(f, ns)| f != function && at_once(e, *ns) >= CAUSE_SHARE);
    match calls {
        Some((f, ns)) => Some((f, SYSTEM_CALL, ns)),
        None => inside.map(|(reason, ns)| (Arc::clone(function), reason, ns)),
    }
}

/// The thing to change; `across`: the function in which tasks may keep a lock while they wait.
fn advice(what: HeldBack, kind: &str, across: Option<&Arc<str>>) -> Option<String> {
    match (what, across) {
        (HeldBack::Lock, Some(f)) => Some(format!(
            "read {f}: if it keeps the lock across that wait, wait outside the lock, or once for many (batch)"
        )),
        (HeldBack::Lock, None) => Some("hold the lock for less time, or split it".into()),
        (HeldBack::Receiver, _) => Some(format!(
            "make the receiver faster, or let more {kind}s receive"
        )),
        (HeldBack::Pool | HeldBack::Sender, _) => None,
    }
}

/// On-CPU time of threads in `function`, ns.
fn computed_in(e: &Evidence<'_>, function: &str) -> u64 {
    let computing = e.causes.iter().filter(|c| c.state == State::OnCpu);
    let own = computing.filter(|c| &*c.function == function);
    own.map(|c| c.ns).sum()
}

/// Target of the longest wait of threads in `function`, which are tasks in a system call.
fn threads_wait(e: &Evidence<'_>, function: &str) -> Option<&'static str> {
    let waits = e.causes.iter().filter(|c| c.state == State::Blocked);
    let longest = waits
        .filter(|c| &*c.function == function)
        .max_by_key(|c| c.ns)?;
    let reason = longest.reason.and_then(BlockReason::from_name)?;
    Some(wait_target(e, reason, longest))
}
