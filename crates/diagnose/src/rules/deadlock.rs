//! Owners of locks that threads never got: a deadlock, or a thread that keeps its lock.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::{BlockReason, ContextId, Recording, Role, told_by};

use crate::labels::{resource, text_label};
use crate::wake_chain::{WakeChains, thread_of};
use crate::words;

/// A lock that a thread waits for, and its owner.
struct OwnedLock {
    name: Option<Arc<str>>,
    owner: ContextId,
}

/// Maximum number of threads of a deadlock that are named.
const MAX_THREADS: usize = 6;

/// Owners of locks that were never released.
pub(super) struct LockOwners {
    /// Threads that wait for each other in a cycle; empty: no cycle is known.
    pub cycle: Vec<ContextId>,
    /// Waiters with their locks and owners, in words.
    pub text: String,
}

/// Owners of the locks that `stuck` threads never got; `None`: no owner is known.
pub(super) fn lock_owners(recording: &Recording, stuck: &[ContextId]) -> Option<LockOwners> {
    let waits = owned_locks(recording);
    let mut from = stuck.to_vec();
    from.sort();
    // A thread that wakes now and then to try again may be part of a cycle too.
    let others = waits.keys().filter(|c| !stuck.contains(c));
    let mut others: Vec<ContextId> = others.copied().collect();
    others.sort();
    let cycle = from.iter().chain(&others).find_map(|c| cycle(&waits, *c));
    let line = |thread: &ContextId| line(recording, &waits, *thread);
    if let Some(cycle) = cycle {
        let shown = cycle.iter().take(MAX_THREADS).map(line);
        let more = cycle.len().saturating_sub(MAX_THREADS);
        let more = (more > 0).then(|| format!("and {more} more"));
        let all: Vec<String> = shown.chain(more).collect();
        let all = all.join("; ");
        return Some(LockOwners {
            text: format!("{all} (from the owners in the locks' memory)"),
            cycle,
        });
    }
    let first = from.iter().find(|c| waits.contains_key(c))?;
    Some(LockOwners {
        cycle: Vec::new(),
        text: format!("{} (from the owner in the lock's memory)", line(first)),
    })
}

/// Threads that wait for a lock with a known owner at the end of the recording.
fn owned_locks(recording: &Recording) -> HashMap<ContextId, OwnedLock> {
    let mut waits: HashMap<ContextId, OwnedLock> = HashMap::new();
    for (sample, hops) in WakeChains::new(recording).samples() {
        let sample = &recording.samples[sample as usize];
        if sample.reason != Some(BlockReason::Lock) {
            continue;
        }
        for hop in hops.iter().map(|hop| &recording.hops[*hop as usize]) {
            // Threads that wait for each other one after the other, each for a while, form no cycle.
            let told = text_label(recording, hop.labels, told_by::KEY)
                .filter(|told| !told.ends_with(told_by::THEN));
            let owner = thread_of(recording, hop).filter(|_| hop.role == Role::Held);
            if let (Some(_), Some(owner)) = (told, owner) {
                let name = resource(recording, sample);
                waits.insert(sample.context, OwnedLock { name, owner });
            }
        }
    }
    waits
}

/// The cycle that the owners of locks form from a thread on, if they form one.
fn cycle(waits: &HashMap<ContextId, OwnedLock>, first: ContextId) -> Option<Vec<ContextId>> {
    let mut path = Vec::new();
    let mut at = first;
    while let Some(wait) = waits.get(&at) {
        if let Some(begin) = path.iter().position(|c| *c == at) {
            return Some(path[begin..].to_vec());
        }
        path.push(at);
        at = wait.owner;
    }
    None
}

/// A waiter with its lock and the lock's owner, in words.
fn line(recording: &Recording, waits: &HashMap<ContextId, OwnedLock>, thread: ContextId) -> String {
    let wait = &waits[&thread];
    let lock = match &wait.name {
        Some(lock) => match words::resource(lock) {
            Some(lock) => format!("{lock}, which"),
            None => "a lock that".into(),
        },
        None => "a lock that".into(),
    };
    let name = thread_name(recording, thread);
    match wait.owner == thread {
        true => format!("{name} waits for {lock} it holds itself"),
        false => format!(
            "{name} waits for {lock} {} holds",
            thread_name(recording, wait.owner)
        ),
    }
}

/// A thread's name, with its id where others have the same name.
fn thread_name(recording: &Recording, thread: ContextId) -> String {
    let context = &recording.contexts[thread.0 as usize];
    let all = recording.contexts.iter();
    match all.filter(|other| other.name == context.name).count() {
        1 => context.name.to_string(),
        _ => format!("{} ({})", context.name, context.tid),
    }
}
