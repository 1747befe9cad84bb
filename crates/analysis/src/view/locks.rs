//! Locks: their waiters, waiting time and wait sites, and the activity of their holders meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wallscope_model::{BlockReason, Hop, Role, StackId, attribution};

use super::waits::hop_line;
use super::{Analysis, Waits};

/// A share of a lock's waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    /// A wait site, a function or an activity, in words.
    pub what: String,
    /// Scaled time, ns.
    pub ns: u64,
}

/// A thread and function that released a lock to a waiter, or held it while others waited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Thread name.
    pub thread: String,
    /// The function that released the lock, or the function that the holder ran meanwhile.
    pub place: String,
    /// Whether it is known to have held the lock, not only to have ended waits.
    pub had_it: bool,
    /// Remark to be put behind its name, else empty: how it ended waits without a hand-over, or that the holder is
    /// read from the lock's memory.
    pub how: &'static str,
    /// The kind of lock, if the holder is read from the lock's memory and not from a release.
    pub told_by: Option<String>,
    /// Waits that it ended, ns.
    pub ns: u64,
    /// Its activities while the others waited, most first.
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
    /// Wait sites, most first.
    pub waits: Vec<Share>,
    /// The functions that were called there to wait, which tell the kind of lock, most first.
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

/// Key of a holder, with the fields of [`Holder`].
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct HolderKey {
    thread: String,
    place: String,
    had_it: bool,
    how: &'static str,
    told_by: Option<String>,
}

/// Sums of a holder.
#[derive(Default)]
struct Held {
    /// Waits that it ended, ns.
    ns: u64,
    /// Its doings meanwhile, ns.
    did: BTreeMap<String, u64>,
}

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
    holders: BTreeMap<HolderKey, Held>,
}

impl Sum {
    fn row(self, name: Arc<str>) -> LockRow {
        let holders = self.holders.into_iter().map(|(key, held)| Holder {
            thread: key.thread,
            place: key.place,
            had_it: key.had_it,
            how: key.how,
            told_by: key.told_by,
            ns: held.ns,
            did: shares(held.did),
        });
        let mut holders: Vec<Holder> = holders.collect();
        holders.sort_by_key(|h| std::cmp::Reverse(h.ns));
        let idle = self.idle as f64 / self.sampled.max(1) as f64;
        let exact = self.exact && !self.uncounted;
        let total_ns = if exact { self.total } else { self.sampled };
        LockRow {
            name,
            total_ns,
            idle_ns: ((total_ns as f64 * idle) as u64).min(total_ns),
            longest_ns: if exact { self.longest } else { 0 },
            count: if exact { self.count } else { 0 },
            waiters: self.waiters.len(),
            exact,
            waits: shares(self.waits),
            through: shares(self.through),
            holders,
        }
    }
}

fn shares(map: BTreeMap<String, u64>) -> Vec<Share> {
    let mut all: Vec<Share> = map
        .into_iter()
        .map(|(what, ns)| Share { what, ns })
        .collect();
    all.sort_by_key(|s| std::cmp::Reverse(s.ns));
    all
}

/// Locks by name, each with its sums.
type Sums = BTreeMap<Arc<str>, Sum>;

/// Words that threads park on, with the wait sites of each.
type Parked = BTreeMap<Arc<str>, Vec<Arc<str>>>;

impl Analysis<'_> {
    /// All locks that were waited for, most time that was not idle first.
    pub fn locks(&self) -> Vec<LockRow> {
        let waits = self.waits();
        let parked = self.parked(&waits.sample_ns);
        let mut sums = Sums::new();
        self.add_counted(&mut sums, &parked);
        self.add_sampled(&mut sums, &parked, &waits);
        let rows = sums.into_iter().map(|(name, sum)| sum.row(name));
        let mut rows: Vec<LockRow> = rows.filter(|r| r.total_ns > 0).collect();
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

    /// Adds the waits that were counted by lock.
    fn add_counted(&self, sums: &mut Sums, parked: &Parked) {
        for l in &self.recording.locks {
            let mut name =
                (self.resource(l.labels)).unwrap_or_else(|| format!("{:#x}", l.address).into());
            match parked.get(&name).map(|places| &places[..]) {
                // All waits on the word have one wait site.
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
    }

    /// Adds the sampled waits, with their wait sites and holders.
    fn add_sampled(&self, sums: &mut Sums, parked: &Parked, waits: &Waits) {
        for (i, s) in self.recording.samples.iter().enumerate() {
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
                self.add_holder(sum, *hop as usize, waits);
            }
        }
    }

    /// Adds the holder or waker of a hop. A holder has a place for each hop that it ran; a waker has one,
    /// the place it woke from.
    fn add_holder(&self, sum: &mut Sum, hop: usize, waits: &Waits) {
        let rec = self.recording;
        let h = &rec.hops[hop];
        let had_it = h.role == Role::Held;
        let key = |at: &Hop| HolderKey {
            thread: self.actor(h),
            place: self.waker_place(at).unwrap_or_default(),
            had_it,
            how: self.how_ended(h),
            told_by: self.told_by(h).map(str::to_owned),
        };
        let mut left = waits.ns[hop];
        for below in &waits.below[hop] {
            let b = &rec.hops[*below as usize];
            let line = match b.role {
                Role::Woke | Role::Held => continue,
                _ => hop_line(self, b).to_string(),
            };
            let ns = waits.ns[*below as usize];
            let held = (sum.holders)
                .entry(key(if had_it { b } else { h }))
                .or_default();
            *held.did.entry(line).or_default() += ns;
            if had_it {
                held.ns += ns;
                left = left.saturating_sub(ns);
            }
        }
        if left > 0 {
            sum.holders.entry(key(h)).or_default().ns += left;
        }
    }

    /// Words that threads park on ([`attribution::parks`]), with the wait sites of each. A thread parks on
    /// one word of its own for whatever it waits for, so only the wait sites tell its waits apart.
    fn parked(&self, sample_ns: &[u64]) -> Parked {
        let rec = self.recording;
        let mut parked = Parked::new();
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
