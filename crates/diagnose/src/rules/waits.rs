//! Rules about waits that others have to end.

use std::borrow::Cow;

use wallscope_model::{BlockReason, PauseGroup, State};

use super::collections::pauses_words;
use super::details::{beside, length_words, relax_commits, saturated, waker_words};
use super::verdict::{Finding, SLEEP, Spent, Verdict, WAIT, found, place, subject, with_resource};
use super::wait_target::{VM_PAUSE, wait_target};
use crate::delays::Delay;
use crate::evidence::{
    Cause, ENDED_BY_OTHERS, Evidence, Level, Resource, Wakers, host_facts, largest,
};
use crate::frames::Side;
use crate::knowledge::{ROW_ACCESS, TRANSACTION_ENDS, knows, waits_for_condition};
use crate::thresholds::{
    CAUSE_SHARE, DELAY_SHARE, MOSTLY_ENDED, ONE_THREAD_SHARE, SAME_FUNCTION_SHARE,
};
use crate::words;

/// One reason takes much of the active time, or of one thread's.
pub(super) fn waiting(e: &Evidence<'_>) -> Finding {
    let (reason, ns) = e.main_wait();
    let share = e.share(ns);
    let of_one_thread = e.bottleneck.load(e.most_of_one_thread(reason));
    found(
        format!(
            "most on {}: {}; of one thread: {} of the window",
            words::reason(reason),
            words::share(share),
            words::share(of_one_thread)
        ),
        (share >= CAUSE_SHARE || of_one_thread >= ONE_THREAD_SHARE)
            .then(|| wait_verdict(e, reason, ns)),
    )
}

/// The verdict on waits for `reason`, with everything that is known of them.
pub(super) fn wait_verdict(e: &Evidence<'_>, reason: BlockReason, ns: u64) -> Verdict {
    let by = largest(&e.causes, State::Blocked, Some(reason));
    let ended = e.wakers(reason);
    let target = by.map_or(words::target(reason), |c| wait_target(e, reason, c));
    let pauses = (target == VM_PAUSE).then(|| main_operation(e)).flatten();
    let target = pauses.map_or(Cow::Borrowed(target), |group| {
        let operation = &group.operation;
        format!("the end of Java VM pauses that collect nothing (safepoints for {operation})")
            .into()
    });
    let lock = by.filter(|_| reason == BlockReason::Lock);
    let transactions = lock.and_then(|c| transactions(e, c, &ended));
    let target = match transactions {
        Some(_) => "rows that another transaction keeps locked".into(),
        None => target,
    };
    let cause = match reason {
        BlockReason::Stopped => {
            "It is stopped by a signal, a debugger or a frozen cgroup".to_string()
        }
        _ => format!(
            "{}{} for {}",
            subject(by, WAIT),
            place(by, ns),
            with_resource(&target, by)
        ),
    };
    let mut verdict = Verdict::new(cause)
        .because(reason.name())
        .of(e, Spent::blocked(ns, by))
        .of_waits(e.blocked_samples(reason).collect());
    verdict.holder = ended.main();
    let limit = memory_limit(e, reason);
    verdict
        .with(waker_words(&ended))
        .advised(
            pauses.map(|group| format!("find the caller that asks the VM for {}", group.operation)),
        )
        .measured(pauses_words(pauses.into_iter()))
        .advised(transactions)
        .advised(by.and_then(|c| relax_commits(e, c)))
        .rooted(lock.and_then(|c| other_wait_there(e, c)))
        .measured(by.and_then(|c| length_words(e, c, reason)))
        .rooted(limit.map(|limit| {
            format!(
                "its cgroup is at its memory limit ({}), so the kernel takes pages away from it",
                limit.saturation
            )
        }))
        .measured(saturated(e, reason).filter(|_| limit.is_none()))
        .advised(limit.map(|_| "raise the memory limit of its cgroup, or use less memory".into()))
        .with(beside(e))
}

/// The memory limit of the target's cgroup, if it is met and the kernel reclaims pages because of it.
fn memory_limit<'e>(e: &'e Evidence<'_>, reason: BlockReason) -> Option<&'e Resource> {
    let of_memory = matches!(reason, BlockReason::PageFault | BlockReason::Memory);
    let limit = e.host("memory limit").filter(|_| of_memory);
    limit.filter(|limit| limit.level == Level::Saturated)
}

/// The group with most time of pauses that collect nothing: one operation of the virtual machine. `None` unless such
/// pauses are most of the waits of the thread that waits most.
fn main_operation<'e>(e: &Evidence<'e>) -> Option<&'e PauseGroup> {
    let others = || e.recording.pauses.iter().filter(|g| !g.collects());
    let paused: u64 = others().map(|g| g.total_ns).sum();
    let most = paused * 2 > e.most_of_one_thread(BlockReason::Lock);
    others().max_by_key(|g| g.total_ns).filter(|_| most)
}

/// Rows that another transaction has locked, where MySQL and MariaDB wait at a condition until that
/// transaction ends. Their storage engines are mostly stripped of names.
fn transactions(e: &Evidence<'_>, c: &Cause, wakers: &Wakers) -> Option<String> {
    let ends = wakers.threads.iter();
    let ends = ends.filter(|(_, function, _)| knows(TRANSACTION_ENDS, function));
    let ended: f64 = ends.map(|(.., share)| share).sum();
    let rows = || e.mostly_passes(c, |_, name| knows(ROW_ACCESS, name));
    (ended >= MOSTLY_ENDED && rows()).then(|| {
        "find the transaction that keeps rows locked until it ends: SHOW ENGINE INNODB STATUS, \
         information_schema.innodb_lock_waits"
            .into()
    })
}

/// Another wait in the function that waits for a lock: where wakers are unknown, the lock may well be
/// held across it.
fn other_wait_there(e: &Evidence<'_>, c: &Cause) -> Option<String> {
    let at_condition = |side, name: &str| side == Side::User && waits_for_condition(name);
    if !e.recording.hops.is_empty() || e.mostly_passes(c, at_condition) {
        return None;
    }
    let other = e.causes.iter().find(|o| {
        let same = (&o.function, &o.module) == (&c.function, &c.module);
        let waits = o.state == State::Blocked && o.reason != c.reason;
        same && waits && o.share >= SAME_FUNCTION_SHARE
    })?;
    let reason = other.reason.and_then(BlockReason::from_name)?;
    Some(format!(
        "perhaps the lock is held across another wait: in {} they also wait for {} ({} of active time)",
        other.function,
        wait_target(e, reason, other),
        words::share(other.share)
    ))
}

/// Waits that the kernel counts as rest and that are none: see [`Delay`].
pub(super) fn delayed(e: &Evidence<'_>) -> Finding {
    let (delay, own) = e.main_delay();
    let (ns, others) = match delay {
        // A wait for a child has two forms: for its end, and for its output.
        Delay::Child => {
            let ns = own + e.blocked(BlockReason::Child) + e.piped_from_children();
            (ns, longest_without_children(e))
        }
        _ => (own, e.main_wait().1),
    };
    let share = e.share(ns);
    let applies = share >= CAUSE_SHARE
        && e.share(own) >= DELAY_SHARE
        && ns >= others.max(e.polled_for_answers())
        // A server that starts a process for each of its callers waits for callers, while its
        // processes wait for their own needs.
        && ns >= e.handed_while_owing() + e.held();
    found(
        format!(
            "{}: {}, {} with waits of that kind in other calls",
            delay.name(),
            words::share(e.share(own)),
            words::share(share)
        ),
        applies.then(|| delay_verdict(e, delay, ns)),
    )
}

/// The longest wait that others have to end, without those for children and pipes, ns.
fn longest_without_children(e: &Evidence<'_>) -> u64 {
    let reasons = ENDED_BY_OTHERS.iter();
    let others = reasons.filter(|r| !matches!(r, BlockReason::Child | BlockReason::Pipe));
    others.map(|r| e.blocked(*r)).max().unwrap_or(0)
}

/// Target of waits for children, in whatever call.
pub(super) const FOR_CHILDREN: &str = "for child processes (their output or their end)";

fn delay_verdict(e: &Evidence<'_>, delay: Delay, ns: u64) -> Verdict {
    let by = e.main_delayed(delay);
    let (verb, cause, reason) = match delay {
        Delay::Child => (WAIT, FOR_CHILDREN, BlockReason::Child),
        Delay::Disk => (
            WAIT,
            "for disk I/O that was asked for without blocking (io_uring, aio)",
            BlockReason::Disk,
        ),
        Delay::Tries => (
            SLEEP,
            "between its tries to get a lock that another thread or process holds",
            BlockReason::Timer,
        ),
    };
    let subject = match delay {
        Delay::Tries => format!("It {}", SLEEP.one()),
        _ => subject(by, verb),
    };
    let mut samples = e.delayed_samples(delay);
    if delay == Delay::Child {
        samples.extend(e.blocked_samples(BlockReason::Child));
        samples.sort_unstable();
        samples.dedup();
    }
    let verdict = Verdict::new(format!("{subject}{} {cause}", place(by, ns)))
        .because(reason.name())
        .of(e, Spent::blocked(ns, by))
        .of_waits(samples);
    let verdict = match delay {
        Delay::Tries => with_file_lock(e, verdict),
        Delay::Disk => verdict.measured(saturated(e, BlockReason::Disk)),
        Delay::Child => verdict.with(waker_words(&e.wakers_of(&e.delayed_samples(delay)))),
    };
    verdict
        .measured(by.and_then(|c| length_words(e, c, reason)))
        .with(beside(e))
}

/// Adds the holder of a locked file, or the way to find it.
fn with_file_lock(e: &Evidence<'_>, verdict: Verdict) -> Verdict {
    match host_facts::file_locks(e.recording) {
        Some((holder, said)) => {
            let advice =
                format!("shorten the time for which {holder} keeps the lock, or end that process");
            Verdict {
                holder: Some(holder),
                ..verdict.rooted(Some(said)).advised(Some(advice))
            }
        }
        None => verdict.advised(Some(
            "run lslocks: it names the processes that hold file locks".into(),
        )),
    }
}
