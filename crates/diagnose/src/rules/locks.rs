//! Rules about locks: a serial program, and threads that never get a lock.

use wallscope_model::BlockReason;

use super::deadlock::{LockOwners, lock_owners};
use super::details::{ask_for_holder, beside};
use super::verdict::{Finding, Spent, Verdict, found, place, resource_of};
use super::waits::wait_verdict;
use crate::evidence::{Cause, Evidence};
use crate::lock_wait::own_lock;
use crate::thresholds::{MIN_WINDOW_NS, SERIAL_BY_WAITERS, SERIAL_SHARE, STUCK_SHARE};
use crate::words;

/// Threads wait for a lock that they hold in turn themselves.
pub(super) fn serial(e: &Evidence<'_>) -> Finding {
    use BlockReason::{Gil, KernelLock, Lock};
    let (reason, ns) = [Lock, Gil, KernelLock]
        .map(|r| (r, e.blocked(r)))
        .into_iter()
        .fold((Lock, 0), |a, b| if b.1 > a.1 { b } else { a });
    let share = e.share(ns);
    let own = match share >= SERIAL_SHARE {
        true => e.wakers(reason).by_waiters,
        false => 0.0,
    };
    found(
        format!(
            "{}: {} of active time, {} of it ended by threads that wait for the same",
            words::reason(reason),
            words::share(share),
            words::share(own)
        ),
        (share >= SERIAL_SHARE && own >= SERIAL_BY_WAITERS && ns >= e.main_wait().1)
            .then(|| wait_verdict(e, reason, ns)),
    )
}

/// Threads wait for a lock to the end of the recording and never get it.
pub(super) fn stuck(e: &Evidence<'_>) -> Finding {
    let b = &e.bottleneck;
    let owners = lock_owners(e.recording, &b.stuck);
    let mut stuck = b.stuck.clone();
    let cycle = owners.iter().flat_map(|owners| &owners.cycle);
    stuck.extend(cycle.filter(|c| !b.stuck.contains(c)));
    let at_lock = |c: &Cause| -> u64 {
        let of_stuck = |i: &u32| {
            let s = e.sample(*i);
            let lock = s.reason == Some(BlockReason::Lock) || own_lock(e.recording, s).is_some();
            lock && stuck.contains(&s.context)
        };
        let samples: Vec<u32> = c.samples.iter().copied().filter(of_stuck).collect();
        e.time(&samples)
    };
    let ns: u64 = e.causes.iter().map(at_lock).sum();
    let (n, share) = (stuck.len(), e.share(ns));
    found(
        format!(
            "{n} threads got nowhere at a lock: {} of active time",
            words::share(share)
        ),
        (n > 0 && share >= STUCK_SHARE && b.window_ns >= MIN_WINDOW_NS).then(|| {
            let by = e.causes.iter().max_by_key(|c| (at_lock(c), c.ns));
            let at_lock = by.filter(|c| c.reason == Some(BlockReason::Lock.name()));
            let asked = by.and_then(|c| ask_for_holder(e, c));
            let unknown = match asked {
                Some(_) => OWNER_INSIDE,
                None => OWNER_UNKNOWN,
            };
            let threads = match n {
                1 => "One thread waits".into(),
                n => format!("{n} threads wait"),
            };
            Verdict::new(format!(
                "{threads}{} for a lock{} that {} never got: {}",
                place(by, ns),
                resource_of(at_lock),
                match n {
                    1 => "it",
                    _ => "they",
                },
                match asked {
                    Some(_) => KEPT_INSIDE,
                    None => why_stuck(owners.as_ref()),
                }
            ))
            .because(BlockReason::Lock.name())
            .of(e, Spent::blocked(ns, by))
            .rooted(Some(
                owners.map_or_else(|| unknown.into(), |owners| owners.text),
            ))
            .advised(asked)
            .with(beside(e))
        }),
    )
}

const OWNER_UNKNOWN: &str = "the owner is not known: no thread released the lock, and the lock keeps no owner \
                             (semaphores, and locks of Rust, Go and Python)";

/// Holder of a lock that a server keeps in its own memory; servers resolve deadlocks of these.
const OWNER_INSIDE: &str =
    "only the server itself knows the holder; no thread of this recording released the lock";
const KEPT_INSIDE: &str =
    "its holder kept it all the time, as a transaction that is left open does";

fn why_stuck(owners: Option<&LockOwners>) -> &'static str {
    match owners {
        Some(owners) if owners.cycle.len() == 1 => "it is a deadlock of one thread with itself",
        Some(owners) if !owners.cycle.is_empty() => "it is a deadlock",
        Some(_) => "its owner keeps it, or other threads always come first (starvation)",
        None => {
            "it is a deadlock, or its owner keeps it, or other threads always come first (starvation)"
        }
    }
}
