//! Holders of a lock while a thread waited for it. A thread that woke the next waiter held the lock until
//! then. A runtime may also have named the owner when another wait began.

use std::{collections::VecDeque, rc::Rc};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    super::wait_tree::{ActorKey, Follow},
    wake::Wake,
};

/// Times with a known holder that are remembered of one lock.
const MAX_HOLDS: usize = 4096;
/// Most pieces of one wait; the first piece then covers the earlier hand-offs too.
const MAX_PIECES: usize = 256;

/// Evidence that a thread held a lock.
#[derive(Clone)]
pub(super) enum HolderEvidence {
    /// The thread woke the next waiter.
    Wake(Rc<Wake>),
    /// A runtime named the owner.
    Owner(ActorKey),
}

/// Known holders of locks over time.
#[derive(Default)]
pub(super) struct LockHandoffs {
    /// Times with a known holder, ascending, by lock.
    known: FxHashMap<u64, VecDeque<(u64, HolderEvidence)>>,
    /// Resources that stand for more than one lock.
    kinds: FxHashSet<u64>,
    /// Further names of locks that several processes share, each with the name used here.
    same: FxHashMap<u64, u64>,
}

impl LockHandoffs {
    /// Notes the evidence `by` for the holder of `resource` at `time`. Resource 0 stands for any lock and is
    /// ignored.
    pub fn add(&mut self, resource: u64, time: u64, by: HolderEvidence) {
        if resource == 0 || self.kinds.contains(&resource) {
            return;
        }
        let resource = self.lock(resource);
        let known = self.known.entry(resource).or_default();
        let at = known.partition_point(|k| k.0 <= time);
        known.insert(at, (time, by));
        if known.len() > MAX_HOLDS {
            known.pop_front();
        }
    }

    /// Ignores `resource` from now on: it is the name of several locks.
    pub fn leave_out(&mut self, resource: u64) {
        self.kinds.insert(resource);
        self.known.remove(&resource);
    }

    /// Merges `resource`, another process's name for `lock`, into `lock`.
    pub fn is_same(&mut self, resource: u64, lock: u64) {
        self.same.insert(resource, lock);
        for (time, by) in self.known.remove(&resource).unwrap_or_default() {
            self.add(lock, time, by);
        }
    }

    /// Returns the name under which the lock `resource` is kept here.
    fn lock(&self, resource: u64) -> u64 {
        *self.same.get(&resource).unwrap_or(&resource)
    }

    /// Returns the time of the last known hand-off; 0: none is known.
    pub fn last(&self, resource: u64) -> u64 {
        let known = self.known.get(&self.lock(resource)).into_iter().flatten();
        let last = known
            .rev()
            .find(|(_, by)| matches!(by, HolderEvidence::Wake(_)));
        last.map_or(0, |(time, _)| *time)
    }

    /// Divides `at`, a part of a wait for `resource`, at the times with a known holder. Each piece comes with the
    /// holder at its end. If none is known there, the piece has the next holder known before `until`. Time after all
    /// of these is the last piece, without a holder. The times of the pieces sum to that of `at`, and only the last
    /// piece carries its count.
    pub fn pieces(
        &self,
        at: Follow,
        resource: u64,
        until: u64,
    ) -> Vec<(Follow, Option<HolderEvidence>)> {
        let known: Vec<&(u64, HolderEvidence)> =
            self.known
                .get(&self.lock(resource))
                .map_or(Vec::new(), |known| {
                    let first = known.partition_point(|k| k.0 <= at.from);
                    known
                        .iter()
                        .skip(first)
                        .take_while(|k| k.0 < until)
                        .collect()
                });
        let known = &known[known.len().saturating_sub(MAX_PIECES)..];
        let length = u128::from(at.to.saturating_sub(at.from).max(1));
        let upto = |time: u64| (u128::from(at.ns) * u128::from(time - at.from) / length) as u64;
        let mut pieces = Vec::new();
        let mut from = at.from;
        for (time, by) in known {
            let to = (*time).min(at.to);
            let piece = Follow {
                from,
                to,
                ns: upto(to) - upto(from),
                count: 0,
                ..at
            };
            if piece.ns > 0 {
                pieces.push((piece, Some(by.clone())));
            }
            from = to;
            if to == at.to {
                break;
            }
        }
        let given: u64 = pieces.iter().map(|(piece, _)| piece.ns).sum();
        let rest = Follow {
            from,
            ns: at.ns - given,
            ..at
        };
        match pieces.last_mut() {
            Some((last, _)) if rest.ns == 0 => last.count = at.count,
            _ => pieces.push((rest, None)),
        }
        pieces
    }

    /// Forgets the older half.
    pub fn forget(&mut self) {
        self.known.retain(|_, known| {
            known.drain(..known.len().div_ceil(2));
            !known.is_empty()
        });
    }
}

#[cfg(test)]
#[path = "lock_handoff_tests.rs"]
mod tests;
