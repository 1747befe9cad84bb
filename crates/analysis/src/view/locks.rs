//! Locks: their waiters, waiting time and wait sites, and what their holders did meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wallscope_model::{BlockReason, Hop, Role, StackId, attribution};

use super::{Analysis, waits::hop_line};

/// A share of a lock's waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// What.
    pub what: String,
    /// Scaled time, ns.
    pub ns: u64,
}

/// A thread and function that released a lock to a waiter, or held it while others waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Thread name.
    pub who: String,
    /// The function that released the lock, or the function that the holder ran meanwhile.
    pub place: String,
    /// Whether it is known to have held the lock, not only to have ended waits.
    pub had_it: bool,
    /// Remark to be put behind its name, else empty: how it ended waits without giving what was waited
    /// for, or that the holder is read from the lock's memory.
    pub how: &'static str,
    /// The kind of lock, if the holder is read from the lock's memory and not from a release.
    pub told_by: Option<String>,
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
    /// The part of that in which the waiting thread was idle, by the waits that were sampled, ns.
    pub idle_ns: u64,
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
    /// The functions that were called there to wait, which tell what kind of lock it is, most first.
    pub through: Vec<Share>,
    /// Threads and functions that held it or ended the waits, most first.
    pub holders: Vec<Holder>,
}

impl LockRow {
    /// Whether more than half of its waiting time is idle.
    pub fn is_idle(&self) -> bool {
        self.idle_ns > self.total_ns / 2
    }

    /// Time waited for it that was not idle, ns.
    pub fn in_earnest_ns(&self) -> u64 {
        self.total_ns - self.idle_ns
    }

    /// Whether a thread holds it while others wait: it is neither a condition nor the end of a thread.
    pub fn is_lock(&self) -> bool {
        !self.is_join() && !self.name.starts_with(attribution::CONDITION)
    }

    fn is_join(&self) -> bool {
        self.name.starts_with(attribution::END_OF_THREAD)
    }
}

/// Key of a holder: thread, function, and the values of [`Holder::had_it`], [`Holder::how`] and
/// [`Holder::told_by`].
type Of = (String, String, bool, &'static str, Option<String>);

#[derive(Default)]
struct Sum {
    total: u64,
    longest: u64,
    count: u64,
    sampled: u64,
    idle: u64,
    waiters: BTreeSet<u32>,
    exact: bool,
    /// Some of it was counted together with waits for others.
    uncounted: bool,
    waits: BTreeMap<String, u64>,
    through: BTreeMap<String, u64>,
    holders: BTreeMap<Of, (u64, BTreeMap<String, u64>)>,
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
    /// All locks that were waited for, most time that was not idle first.
    pub fn locks(&self) -> Vec<LockRow> {
        let rec = self.recording;
        let waits = self.waits();
        let parked = self.parked(&waits.sample_ns);
        let mut sums: BTreeMap<Arc<str>, Sum> = BTreeMap::new();
        for l in &rec.locks {
            let mut name =
                (self.resource(l.labels)).unwrap_or_else(|| format!("{:#x}", l.address).into());
            match parked.get(&name).map(|places| &places[..]) {
                // All of the word's waits were for the same.
                Some([place]) => name = place.clone(),
                Some(several) => {
                    for place in several {
                        sums.entry(place.clone()).or_default().uncounted = true;
                    }
                    continue;
                }
                None => {}
            }
            let sum = sums.entry(name).or_default();
            sum.total += l.total_ns;
            sum.longest = sum.longest.max(l.longest_ns);
            sum.count += l.count;
            sum.waiters.insert(l.context.0);
            sum.exact = true;
        }
        for (i, s) in rec.samples.iter().enumerate() {
            if !s.reason.is_some_and(|r| r.facts().is_lock) {
                continue;
            }
            let ns = waits.sample_ns[i];
            let name = self.resource(s.labels);
            let name = match name.as_ref().filter(|name| parked.contains_key(*name)) {
                Some(_) => self.parked_in(s.stack),
                None => name.unwrap_or_else(|| "lock without a name".into()),
            };
            let sum = sums.entry(name).or_default();
            sum.sampled += ns;
            sum.idle += if s.idle { ns } else { 0 };
            if ns == 0 {
                continue;
            }
            sum.waiters.insert(s.context.0);
            let place = self.place(s.stack).unwrap_or_else(|| "[no stack]".into());
            *sum.waits.entry(place).or_default() += ns;
            if let Some(called) = self.through(s.stack) {
                *sum.through.entry(called).or_default() += ns;
            }
            for hop in &waits.below_sample[i] {
                let h = &rec.hops[*hop as usize];
                let place = |hop: &Hop| self.waker_place(hop).unwrap_or_default();
                let had_it = h.role == Role::Held;
                let of = |at: &Hop| -> Of {
                    let told_by = self.told_by(h).map(str::to_owned);
                    (self.actor(h), place(at), had_it, self.how_ended(h), told_by)
                };
                let mut left = waits.ns[*hop as usize];
                for below in &waits.below[*hop as usize] {
                    let b = &rec.hops[*below as usize];
                    let line = match b.role {
                        Role::Woke | Role::Held => continue,
                        _ => hop_line(self, b).to_string(),
                    };
                    let ns = waits.ns[*below as usize];
                    // A holder has a place for each hop that it ran; a waker has one, the place it woke from.
                    let holder = sum
                        .holders
                        .entry(of(if had_it { b } else { h }))
                        .or_default();
                    *holder.1.entry(line).or_default() += ns;
                    if had_it {
                        holder.0 += ns;
                        left = left.saturating_sub(ns);
                    }
                }
                if left > 0 {
                    let holder = sum.holders.entry(of(h)).or_default();
                    holder.0 += left;
                }
            }
        }
        let mut rows: Vec<LockRow> = sums
            .into_iter()
            .map(|(name, sum)| {
                let mut holders: Vec<Holder> = sum
                    .holders
                    .into_iter()
                    .map(|((who, place, had_it, how, told_by), (ns, did))| Holder {
                        who,
                        place,
                        had_it,
                        how,
                        told_by,
                        ns,
                        did: shares(did),
                    })
                    .collect();
                holders.sort_by_key(|h| std::cmp::Reverse(h.ns));
                let idle = sum.idle as f64 / sum.sampled.max(1) as f64;
                let exact = sum.exact && !sum.uncounted;
                let total_ns = if exact { sum.total } else { sum.sampled };
                LockRow {
                    name,
                    total_ns,
                    idle_ns: ((total_ns as f64 * idle) as u64).min(total_ns),
                    longest_ns: if exact { sum.longest } else { 0 },
                    count: if exact { sum.count } else { 0 },
                    waiters: sum.waiters.len(),
                    exact,
                    waits: shares(sum.waits),
                    through: shares(sum.through),
                    holders,
                }
            })
            .filter(|r| r.total_ns > 0)
            .collect();
        // Joins come last, then locks by time that was not idle: waiting for work is no contention.
        rows.sort_by(|a, b| {
            let joins = a.is_join().cmp(&b.is_join());
            let in_earnest = b.in_earnest_ns().cmp(&a.in_earnest_ns());
            let by_all = b.total_ns.cmp(&a.total_ns);
            joins
                .then(in_earnest)
                .then(by_all)
                .then(a.name.cmp(&b.name))
        });
        rows
    }

    /// Words that threads park on ([`attribution::parks`]), with the wait sites of each. A thread parks on
    /// one word of its own for whatever it waits for, so only the wait sites tell its waits apart.
    fn parked(&self, sample_ns: &[u64]) -> BTreeMap<Arc<str>, Vec<Arc<str>>> {
        let rec = self.recording;
        let mut parked: BTreeMap<Arc<str>, Vec<Arc<str>>> = BTreeMap::new();
        for (s, ns) in rec.samples.iter().zip(sample_ns) {
            let stack = &rec.stacks[s.stack.0 as usize];
            if s.reason != Some(BlockReason::Lock) || *ns == 0 || !attribution::parks(rec, stack) {
                continue;
            }
            let Some(word) = self.resource(s.labels) else {
                continue;
            };
            let place = self.parked_in(s.stack);
            let places = parked.entry(word).or_default();
            if !places.contains(&place) {
                places.push(place);
            }
        }
        parked
    }

    fn parked_in(&self, stack: StackId) -> Arc<str> {
        let place = self.place(stack).unwrap_or_else(|| "[no stack]".into());
        // One function may wait for several things, and closures of one function have one name.
        let by = (self.through(stack)).map_or(String::new(), |called| format!(" by {called}"));
        format!("parked in {place}{by} (each thread on a word of its own)").into()
    }
}
