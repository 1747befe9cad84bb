//! Locks: who waited for them how long, where, and what their holders did meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wallscope_model::{BlockReason, Role};

use super::{Analysis, waits::hop_line};

/// A share of a lock's waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// What.
    pub what: String,
    /// Scaled time, ns.
    pub ns: u64,
}

/// Who released a lock into a waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Thread name.
    pub who: String,
    /// The function that released it.
    pub place: String,
    /// Waits that it ended, ns.
    pub ns: u64,
    /// What it did while the others waited, most first.
    pub did: Vec<Share>,
}

/// One lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockRow {
    /// Its name.
    pub name: Arc<str>,
    /// Time waited for it, all threads, ns.
    pub total_ns: u64,
    /// The longest wait, ns; 0 where it is not known.
    pub longest_ns: u64,
    /// Waits; 0 where they were not counted.
    pub count: u64,
    /// Threads that waited.
    pub waiters: usize,
    /// Whether the above was counted, not sampled.
    pub exact: bool,
    /// Where they waited, most first.
    pub waits: Vec<Share>,
    /// Who ended the waits, most first.
    pub holders: Vec<Holder>,
}

#[derive(Default)]
struct Sum {
    total: u64,
    longest: u64,
    count: u64,
    sampled: u64,
    waiters: BTreeSet<u32>,
    exact: bool,
    waits: BTreeMap<String, u64>,
    holders: BTreeMap<(String, String), (u64, BTreeMap<String, u64>)>,
}

fn shares(map: BTreeMap<String, u64>) -> Vec<Share> {
    let mut all: Vec<Share> = map
        .into_iter()
        .map(|(what, ns)| Share { what, ns })
        .collect();
    all.sort_by_key(|s| std::cmp::Reverse(s.ns));
    all
}

impl Analysis<'_> {
    /// All locks that were waited for, most time first.
    pub fn locks(&self) -> Vec<LockRow> {
        let rec = self.recording;
        let waits = self.waits();
        let mut sums: BTreeMap<Arc<str>, Sum> = BTreeMap::new();
        for l in &rec.locks {
            let name =
                (self.resource(l.labels)).unwrap_or_else(|| format!("{:#x}", l.address).into());
            let sum = sums.entry(name).or_default();
            sum.total += l.total_ns;
            sum.longest = sum.longest.max(l.longest_ns);
            sum.count += l.count;
            sum.waiters.insert(l.context.0);
            sum.exact = true;
        }
        for (i, s) in rec.samples.iter().enumerate() {
            if !matches!(
                s.reason,
                Some(BlockReason::Lock | BlockReason::Gil | BlockReason::KernelLock)
            ) {
                continue;
            }
            let ns = waits.sample_ns[i];
            let name = self
                .resource(s.labels)
                .unwrap_or_else(|| "lock without a name".into());
            let sum = sums.entry(name).or_default();
            sum.sampled += ns;
            if ns == 0 {
                continue;
            }
            sum.waiters.insert(s.context.0);
            let place = self.place(s.stack).unwrap_or_else(|| "[no stack]".into());
            *sum.waits.entry(place).or_default() += ns;
            for hop in &waits.below_sample[i] {
                let h = &rec.hops[*hop as usize];
                let place = h.stack.and_then(|s| self.place(s)).unwrap_or_default();
                let holder = sum.holders.entry((self.actor(h), place)).or_default();
                holder.0 += waits.ns[*hop as usize];
                for below in &waits.below[*hop as usize] {
                    let b = &rec.hops[*below as usize];
                    let line = match b.role {
                        Role::Woke => continue,
                        _ => hop_line(self, b),
                    };
                    *holder.1.entry(line).or_default() += waits.ns[*below as usize];
                }
            }
        }
        let mut rows: Vec<LockRow> = sums
            .into_iter()
            .map(|(name, sum)| {
                let mut holders: Vec<Holder> = sum
                    .holders
                    .into_iter()
                    .map(|((who, place), (ns, did))| Holder {
                        who,
                        place,
                        ns,
                        did: shares(did),
                    })
                    .collect();
                holders.sort_by_key(|h| std::cmp::Reverse(h.ns));
                LockRow {
                    name,
                    total_ns: if sum.exact { sum.total } else { sum.sampled },
                    longest_ns: sum.longest,
                    count: sum.count,
                    waiters: sum.waiters.len(),
                    exact: sum.exact,
                    waits: shares(sum.waits),
                    holders,
                }
            })
            .filter(|r| r.total_ns > 0)
            .collect();
        rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then(a.name.cmp(&b.name)));
        rows
    }
}
