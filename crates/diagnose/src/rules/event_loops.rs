//! Rule about event loops: one thread serves many, and a call that waits in it makes all of them wait.

use wallscope_model::BlockReason;

use super::details::{length_words, relax_commits};
use super::verdict::{Finding, SLEEP, Spent, Verdict, WAIT, found, place, subject, with_resource};
use super::wait_target::wait_target;
use super::waits::FOR_CHILDREN;
use crate::delays::Delay;
use crate::evidence::tasks::ReadyTasks;
use crate::evidence::{Cause, Evidence, Upstream};
use crate::frames::{Side, functions_on};
use crate::knowledge::{EVENT_LOOP_STEPS, EVENT_LOOPS, knows};
use crate::thresholds::{CAUSE_SHARE, IDLE_PENDING, MIN_REQUESTS, TASKS_WAITING};
use crate::words;

/// Name of the rule. Its headline is the call that waits: the program can change that, whatever ends the wait.
pub(super) const NAME: &str = "event-loop";

/// A call waits inside a step of an event loop while that loop has other work.
pub(super) fn held_up(e: &Evidence<'_>) -> Finding {
    let held = e.causes.iter().find(|c| waits_in_a_step(e, c));
    let share = held.map_or(0.0, |c| c.share);
    let ready = ReadyTasks::new(e.recording);
    let looked_at = format!(
        "waited inside a step of an event loop: {}; tasks ready to run meanwhile: {:.1} on average; requests of \
         callers: {}",
        words::share(share),
        ready.at_once,
        e.requests.asked
    );
    let held = held.filter(|_| share >= CAUSE_SHARE && others_wait(e, &ready));
    found(looked_at, held.and_then(|c| verdict(e, c, &ready)))
}

/// Whether calls in steps of a loop keep its callers waiting for a part of the window that no idle process has. On
/// tiers that follow no requests, a sleep in a step looks like rest.
pub(super) fn holds_up_callers(e: &Evidence<'_>) -> bool {
    let in_steps = e.causes.iter().filter(|c| waits_in_a_step(e, c));
    let ns = in_steps.map(|c| c.ns).sum();
    e.requests.asked >= MIN_REQUESTS && e.bottleneck.load(ns) >= IDLE_PENDING
}

/// Whether the loop has other work: tasks that could run, or callers.
fn others_wait(e: &Evidence<'_>, ready: &ReadyTasks) -> bool {
    let tasks = ready.share >= CAUSE_SHARE && ready.at_once >= TASKS_WAITING;
    tasks || e.requests.asked >= MIN_REQUESTS
}

/// Whether a cause is a wait in a step for something that an asynchronous call can wait for, too. The interpreter's
/// lock and the kernel's waits for memory come with any call.
fn waits_in_a_step(e: &Evidence<'_>, c: &Cause) -> bool {
    use BlockReason::{Child, Disk, Lock, Network, Pipe, Poll, Timer};
    [Child, Disk, Lock, Network, Pipe, Poll, Timer]
        .iter()
        .any(|r| c.is_wait_for(*r))
        && is_in_a_step(e, c)
}

/// Whether most of a cause waits below a step of an event loop. The innermost loop decides: a step may run a loop of
/// its own, and that one polls.
pub(super) fn is_in_a_step(e: &Evidence<'_>, c: &Cause) -> bool {
    e.mostly(c, |recording, sample| {
        let polls = sample.reason == Some(BlockReason::Poll);
        functions_on(recording, sample.stack, Side::User)
            .find_map(|name| match knows(EVENT_LOOP_STEPS, name) {
                true => Some(true),
                false => knows(EVENT_LOOPS, name).then_some(!polls),
            })
            .unwrap_or(false)
    })
}

fn verdict(e: &Evidence<'_>, c: &Cause, ready: &ReadyTasks) -> Option<Verdict> {
    let reason = c.reason.and_then(BlockReason::from_name)?;
    let verb = match reason {
        BlockReason::Timer => SLEEP,
        _ => WAIT,
    };
    let target = match (e.mostly_delayed(c, Delay::Child), peer(e, reason, c)) {
        (true, _) => format!(" {FOR_CHILDREN}"),
        (false, Some(peer)) => format!(" for the answers of {}", peer.name),
        (false, None) if reason == BlockReason::Timer => String::new(),
        (false, None) => format!(" for {}", with_resource(wait_target(e, reason, c), Some(c))),
    };
    let says = format!(
        "{}{}{target} inside a step of an event loop, which does nothing else meanwhile",
        subject(Some(c), verb),
        place(Some(c), c.ns),
    );
    let verdict = Verdict::new(says)
        .of(e, Spent::blocked(c.ns, Some(c)))
        .of_waits(c.samples.clone())
        .measured(ready.words())
        .measured(length_words(e, c, reason))
        .advised(relax_commits(e, c))
        .advised(Some(format!(
            "make {} wait without blocking the loop (an asynchronous call), or run it in another thread",
            words::function(&c.function)
        )));
    Some(verdict)
}

/// The peer with the answers that are awaited, where it explains half of the wait or more.
fn peer<'e>(e: &'e Evidence<'_>, reason: BlockReason, c: &Cause) -> Option<&'e Upstream> {
    use BlockReason::{Network, Pipe, Poll};
    let talks = [Network, Pipe, Poll].contains(&reason);
    let peer = e.requests.upstream.as_ref();
    peer.filter(|peer| talks && peer.awaited_ns >= c.ns / 2)
}
