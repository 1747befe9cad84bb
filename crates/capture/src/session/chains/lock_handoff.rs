//! Who had a lock while a thread waited for it: whoever let a waiter in had it up to then, and whoever the lock
//! itself named when another began to wait.

use std::{collections::VecDeque, rc::Rc};

use rustc_hash::{FxHashMap, FxHashSet};

use super::{
    super::wait_tree::{Follow, Who},
    wake::Wake,
};

/// Moments that are remembered of a lock.
const MOST: usize = 4096;
/// Pieces that one wait is cut into at most: what lies before them is given to who ended the wait.
const MOST_PIECES: usize = 256;

/// By what it is known who had a lock.
#[derive(Clone)]
pub(super) enum By {
    /// It let somebody in.
    Wake(Rc<Wake>),
    /// A runtime said so.
    Owner(Who),
}

/// Who had locks.
#[derive(Default)]
pub(super) struct Handed {
    /// Moments at which it is known, by lock, by time.
    known: FxHashMap<u64, VecDeque<(u64, By)>>,
    /// What stands for more than one lock.
    kinds: FxHashSet<u64>,
    /// Further names of locks that several processes share, and the one that they are known by here.
    same: FxHashMap<u64, u64>,
}

impl Handed {
    /// At `time` it is known who had `resource`. 0 stands for any lock.
    pub fn add(&mut self, resource: u64, time: u64, by: By) {
        if resource == 0 || self.kinds.contains(&resource) {
            return;
        }
        let resource = self.lock(resource);
        let known = self.known.entry(resource).or_default();
        let at = known.partition_point(|k| k.0 <= time);
        known.insert(at, (time, by));
        if known.len() > MOST {
            known.pop_front();
        }
    }

    /// `resource` is the name of several locks.
    pub fn leave_out(&mut self, resource: u64) {
        self.kinds.insert(resource);
        self.known.remove(&resource);
    }

    /// `resource` is another process's name for `lock`.
    pub fn is_same(&mut self, resource: u64, lock: u64) {
        self.same.insert(resource, lock);
        for (time, by) in self.known.remove(&resource).unwrap_or_default() {
            self.add(lock, time, by);
        }
    }

    /// The one name of the lock that `resource` is a name of.
    fn lock(&self, resource: u64) -> u64 {
        *self.same.get(&resource).unwrap_or(&resource)
    }

    /// When somebody was let in last, 0: it is not known that anybody ever was.
    pub fn last(&self, resource: u64) -> u64 {
        let known = self.known.get(&self.lock(resource)).into_iter().flatten();
        let last = known.rev().find(|(_, by)| matches!(by, By::Wake(_)));
        last.map_or(0, |(time, _)| *time)
    }

    /// `at`, a part of a wait for `resource`, in pieces, each with who had the lock at its end, or at the next moment
    /// after it and before `until` at which that is known; what comes after all of these is last, with nobody. The times
    /// of pieces sum to that of `at`, and the last one counts.
    pub fn pieces(&self, at: Follow, resource: u64, until: u64) -> Vec<(Follow, Option<By>)> {
        let known: Vec<&(u64, By)> =
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
        let known = &known[known.len().saturating_sub(MOST_PIECES)..];
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

    /// Halves what is remembered.
    pub fn forget(&mut self) {
        self.known.retain(|_, known| {
            known.drain(..known.len().div_ceil(2));
            !known.is_empty()
        });
    }
}
