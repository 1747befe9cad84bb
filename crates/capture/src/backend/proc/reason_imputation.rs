//! Imputes block reasons to threads that lived or waited too briefly for a poll to fall into their waits.
//!
//! Most threads of a server that makes one for each request are never polled. Their reasons are estimated
//! from other threads of the same program and name. If lengths of waits are recorded, only waits about as
//! long are compared, because a poll is likelier to meet a longer wait.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::BlockReason;

use super::{account::Account, time_kind::ANY};
use crate::backend::perf::wait_strata::WaitStrata;

type Weights = [u64; BlockReason::COUNT];
/// Program, name, and whether the thread existed for most of the time: the first thread of a server has the
/// name of the threads that it makes, but waits for other things.
type ThreadClass = (Arc<str>, String, bool);

/// Blocked time seen in the threads of one program and name: by class of length, and reason.
#[derive(Default)]
struct ReasonTimes(BTreeMap<u8, Weights>);

/// Blocked time seen, by program and name of threads.
pub struct ReasonImputation {
    programs: FxHashMap<u32, Arc<str>>,
    seen: FxHashMap<ThreadClass, ReasonTimes>,
    /// Half of the longest life of a thread, ns.
    most_ns: u64,
    /// Threads that got their reasons here, and how long these were blocked, ns.
    imputed: (usize, u64),
}

impl ReasonImputation {
    /// Collects the reasons seen in the waits of `threads`. `programs`: the program of each process.
    pub fn new(threads: &[Account], programs: FxHashMap<u32, Arc<str>>) -> ReasonImputation {
        let longest = threads.iter().map(life).max();
        let mut all = ReasonImputation {
            programs,
            seen: FxHashMap::default(),
            most_ns: longest.unwrap_or(0) / 2,
            imputed: (0, 0),
        };
        // In most recordings a poll fell into the waits of each thread.
        if threads.iter().all(was_seen) {
            return all;
        }
        for t in threads {
            let Some(key) = all.key(t).filter(|_| was_seen(t)) else {
                continue;
            };
            let of = all.seen.entry(key).or_default();
            for (reason, class, ns) in t.book.seen() {
                of.0.entry(class).or_default()[reason as usize] += ns;
            }
        }
        all
    }

    fn key(&self, t: &Account) -> Option<ThreadClass> {
        let program = self.programs.get(&t.pid)?.clone();
        Some((program, t.name.clone(), life(t) > self.most_ns))
    }

    /// Weights of reasons for a thread if no poll fell into its waits. `None`: a poll did, or no other thread
    /// has its program and name.
    pub fn weights(&self, t: &Account) -> Option<Weights> {
        if was_seen(t) {
            return None;
        }
        let (program, name, stayed) = self.key(t)?;
        let of = |stayed| self.seen.get(&(program.clone(), name.clone(), stayed));
        let weights = of(stayed).or_else(|| of(!stayed))?.weigh(&t.waits);
        weights.iter().any(|ns| *ns > 0).then_some(weights)
    }

    /// Counts a thread with imputed reasons, blocked for `ns`.
    pub fn count(&mut self, ns: u64) {
        self.imputed.0 += 1;
        self.imputed.1 += ns;
    }

    /// Note for the recording's domain.
    pub fn note(&self) -> Option<String> {
        let (threads, ns) = self.imputed;
        (ns > 0).then(|| {
            format!(
                "no poll fell into the waits of {threads} threads, {:.2} s in all: their block reasons are estimated from \
                 polled threads of the same program and name",
                ns as f64 / 1e9
            )
        })
    }
}

/// Whether a poll fell into a wait of the thread.
fn was_seen(t: &Account) -> bool {
    t.book.seen().next().is_some()
}

/// How long a thread existed, ns.
fn life(t: &Account) -> u64 {
    t.book.seen_ns.saturating_sub(t.book.start_ns)
}

impl ReasonTimes {
    /// Weights of reasons for `waits`, by the reasons seen in waits as long.
    fn weigh(&self, waits: &WaitStrata) -> Weights {
        let mut sum = Weights::default();
        let classes: Vec<u8> = self.0.keys().copied().filter(|c| *c != ANY).collect();
        let waits = waits.among(&classes);
        for class in classes {
            let (row, ns) = (&self.0[&class], waits.of(class).ns);
            let all: u128 = row.iter().map(|n| u128::from(*n)).sum();
            for (to, part) in sum.iter_mut().zip(row) {
                *to += (u128::from(*part) * u128::from(ns) / all.max(1)) as u64;
            }
        }
        if sum.iter().all(|ns| *ns == 0) {
            // Lengths are not recorded.
            for row in self.0.values() {
                for (to, part) in sum.iter_mut().zip(row) {
                    *to += part;
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::perf::wait_strata::class;

    #[test]
    fn reasons_come_from_waits_as_long() {
        let mut seen = ReasonTimes::default();
        let mut put = |length: u64, reason: BlockReason, ns: u64| {
            seen.0.entry(class(length)).or_default()[reason as usize] += ns;
        };
        put(1_000_000, BlockReason::Lock, 30);
        put(1_000_000, BlockReason::Timer, 10);
        put(60_000_000, BlockReason::Disk, 500);
        let mut waits = WaitStrata::default();
        waits.add(1_000_000);
        waits.add(1_000_000);
        let weights = seen.weigh(&waits);
        let of = |reason: BlockReason| weights[reason as usize];
        assert_eq!(of(BlockReason::Lock), 1_500_000);
        assert_eq!(of(BlockReason::Timer), 500_000);
        assert_eq!(of(BlockReason::Disk), 0);
        // If lengths are not recorded, all seen reasons count.
        let any = seen.weigh(&WaitStrata::default());
        assert_eq!(any[BlockReason::Disk as usize], 500);
    }
}
