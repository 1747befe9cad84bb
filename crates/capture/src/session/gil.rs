//! Holders of an interpreter's lock over time.
//!
//! The kernel programs send the last changes of holder of each interpreter now and then. Unless there are too
//! many, they also send changes before they overwrite them. A change that was overwritten unsent leaves a gap
//! without a known holder.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::event::{HOLDS, HoldsEvent};

/// Changes that are kept for one interpreter.
const MAX_CHANGES: usize = 16_384;

/// The holders of one interpreter's lock.
#[derive(Default)]
struct Lock {
    /// Changes seen, ever.
    changes: u32,
    /// Records of the holders, by the time at which they took the lock; `None`: not known.
    holders: VecDeque<(u64, Option<u64>)>,
}

/// The holders of all interpreters' locks, by process.
#[derive(Default)]
pub struct Holders {
    locks: FxHashMap<u32, Lock>,
}

/// A stretch of time in which one thread, known or not, had the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Begin, ns.
    pub from: u64,
    /// End, ns.
    pub to: u64,
    /// Record of the holder; `None`: not known.
    pub holder: Option<u64>,
}

impl Holders {
    /// Takes a record of the kernel programs.
    pub fn take(&mut self, e: &HoldsEvent) {
        let lock = self.locks.entry(e.pid).or_default();
        if e.changes < lock.changes {
            // Another program in the same process.
            *lock = Lock::default();
        }
        let oldest = e.changes.saturating_sub(HOLDS as u32);
        if let Some((_, holder)) = lock.holders.back_mut()
            && oldest > lock.changes
        {
            // The end of its hold is among the changes that are lost.
            *holder = None;
        }
        for n in oldest.max(lock.changes)..e.changes {
            let hold = e.hold[n as usize % HOLDS];
            let last = lock.holders.back().map_or(0, |h| h.0);
            let holder = (hold.id != 0).then_some(hold.id);
            lock.holders.push_back((hold.since.max(last), holder));
        }
        lock.changes = e.changes;
        let excess = lock.holders.len().saturating_sub(MAX_CHANGES);
        lock.holders.drain(..excess);
    }

    /// Forgets ended processes.
    pub fn forget(&mut self, pids: &[u32]) {
        for pid in pids {
            self.locks.remove(pid);
        }
    }

    /// Returns the holders of the lock of `pid` between `from` and `to`; the stretches fill that time.
    pub fn between(&self, pid: u32, from: u64, to: u64) -> Vec<Stretch> {
        let mut all = vec![Stretch {
            from,
            to,
            holder: None,
        }];
        let Some(lock) = self.locks.get(&pid) else {
            return all;
        };
        let first = lock.holders.partition_point(|(since, _)| *since <= from);
        let begin = first.saturating_sub(1);
        for (since, holder) in lock.holders.range(begin..) {
            if *since >= to {
                break;
            }
            let at = (*since).max(from);
            if let Some(last) = all.last_mut() {
                last.to = at;
            }
            all.push(Stretch {
                from: at,
                to,
                holder: *holder,
            });
        }
        all.retain(|s| s.to > s.from);
        all
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::event::Hold;

    fn event(changes: u32, holds: &[(u32, u64, u64)]) -> HoldsEvent {
        let mut e = HoldsEvent::new_zeroed();
        (e.pid, e.changes) = (1, changes);
        for (n, since, id) in holds {
            e.hold[*n as usize % HOLDS] = Hold {
                since: *since,
                id: *id,
            };
        }
        e
    }

    fn stretches(holders: &Holders, from: u64, to: u64) -> Vec<(u64, u64, Option<u64>)> {
        let all = holders.between(1, from, to);
        all.iter().map(|s| (s.from, s.to, s.holder)).collect()
    }

    #[test]
    fn a_wait_is_divided_among_those_who_had_the_lock() {
        let mut h = Holders::default();
        h.take(&event(2, &[(0, 10, 7), (1, 20, 8)]));
        h.take(&event(3, &[(0, 10, 7), (1, 20, 8), (2, 30, 9)]));
        assert_eq!(stretches(&h, 22, 25), [(22, 25, Some(8))]);
        assert_eq!(
            stretches(&h, 5, 35),
            [
                (5, 10, None),
                (10, 20, Some(7)),
                (20, 30, Some(8)),
                (30, 35, Some(9))
            ]
        );
        assert_eq!(stretches(&h, 30, 40), [(30, 40, Some(9))]);
        assert_eq!(h.between(2, 0, 9).len(), 1);
    }

    #[test]
    fn what_was_overwritten_is_nobodys() {
        let mut h = Holders::default();
        h.take(&event(1, &[(0, 10, 7)]));
        let later: Vec<_> = (30..30 + HOLDS as u32)
            .map(|n| (n, 100 + u64::from(n), 8))
            .collect();
        h.take(&event(30 + HOLDS as u32, &later));
        assert_eq!(
            stretches(&h, 10, 131),
            [(10, 130, None), (130, 131, Some(8))]
        );
        // The interpreter's process runs something else now.
        h.take(&event(1, &[(0, 500, 3)]));
        assert_eq!(
            stretches(&h, 490, 510),
            [(490, 500, None), (500, 510, Some(3))]
        );
    }
}
