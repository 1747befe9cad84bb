//! Cumulative figures, losses and their like: what of them has changed since it was observed last.
//!
//! The kernel programs and the collector add up. A log that may end early needs the sums so far, and
//! a recording those at its end. Both are observed here, and only what differs from before is.

use std::{hash::Hash, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::Cost;
use wallscope_observe::{
    CountedLoss, Counter, DescribedDomain, EventHits, Histogram, LockWaits, Observation,
};
use zerocopy::IntoBytes;

use super::event_dispatch::EventDispatcher;
use crate::{
    backend::ebpf::Programs,
    event::{self, SocketRecord},
};

/// Figures of a lock's waits, and its name.
type ToldWaits = ([u64; 3], Arc<str>);

/// What has been observed so far.
#[derive(Default)]
pub struct Told {
    losses: FxHashMap<(Counter, String), u64>,
    histograms: FxHashMap<u32, (u64, Vec<u64>)>,
    /// Total, longest, count, and name, by record, lock and call.
    locks: FxHashMap<(u64, u64, u64), ToldWaits>,
    sockets: FxHashMap<u64, Box<[u8]>>,
    hits: FxHashMap<(u32, u64), u64>,
    domain: Option<DescribedDomain>,
    /// Memory that measuring took when it was looked at last.
    pub memory: Cost,
    /// When all figures were observed last, ns.
    pub figures_ns: u64,
}

/// Puts a value; whether it is another one than before.
fn is_new<K: Eq + Hash, V: PartialEq>(all: &mut FxHashMap<K, V>, key: K, value: V) -> bool {
    match all.get_mut(&key) {
        Some(old) if *old == value => false,
        Some(old) => {
            *old = value;
            true
        }
        None => {
            all.insert(key, value);
            true
        }
    }
}

impl Told {
    /// Observes figures of the kernel programs: lengths of intervals, connections, hits of events.
    pub fn figures(&mut self, programs: &Programs, intake: &mut EventDispatcher) {
        for (class, (longest_ns, counts)) in (0u32..).zip(programs.shapes()) {
            if is_new(&mut self.histograms, class, (longest_ns, counts.clone())) {
                intake.observe(Observation::Histogram(Histogram {
                    class,
                    longest_ns,
                    counts,
                }));
            }
        }
        let mut sockets: Vec<SocketRecord> = programs.sockets();
        sockets.sort_unstable_by_key(|s| s.cookie);
        for socket in sockets {
            if is_new(&mut self.sockets, socket.cookie, socket.as_bytes().into()) {
                intake.observe(Observation::Socket(socket.as_bytes()));
            }
        }
        for (record, event, hits) in programs.hits() {
            let event = event as u32;
            if is_new(&mut self.hits, (event, record), hits) {
                intake.observe(Observation::EventHits(EventHits {
                    event,
                    record,
                    hits,
                }));
            }
        }
    }

    /// Observes exact waits for locks.
    pub fn lock_waits(&mut self, all: Vec<LockWaits>, intake: &mut EventDispatcher) {
        for waits in all {
            let sums = [waits.total_ns, waits.longest_ns, waits.count];
            let key = (waits.record, waits.address, waits.call);
            if is_new(&mut self.locks, key, (sums, waits.name.clone())) {
                intake.observe(Observation::LockWaits(waits));
            }
        }
    }

    /// Observes losses in the kernel programs.
    pub fn kernel_losses(&mut self, programs: &Programs, intake: &mut EventDispatcher) {
        let causes = event::LOSSES.iter().map(|cause| (*cause).to_owned());
        let losses = causes.zip(programs.losses());
        self.losses(Counter::Kernel, losses, intake);
    }

    /// Observes losses that `by` has counted so far. Several of one cause are one.
    pub fn losses(
        &mut self,
        by: Counter,
        all: impl IntoIterator<Item = (String, u64)>,
        intake: &mut EventDispatcher,
    ) {
        let mut sums: Vec<(String, u64)> = Vec::new();
        let mut places: FxHashMap<String, usize> = FxHashMap::default();
        for (cause, count) in all.into_iter().filter(|(_, count)| *count > 0) {
            match places.get(&cause) {
                Some(place) => sums[*place].1 += count,
                None => {
                    places.insert(cause.clone(), sums.len());
                    sums.push((cause, count));
                }
            }
        }
        for (cause, count) in sums {
            if is_new(&mut self.losses, (by, cause.clone()), count) {
                intake.observe(Observation::Loss(CountedLoss { by, cause, count }));
            }
        }
    }

    /// Observes the domain.
    pub fn domain(&mut self, domain: DescribedDomain, intake: &mut EventDispatcher) {
        if self.domain.as_ref() != Some(&domain) {
            self.domain = Some(domain.clone());
            intake.observe(Observation::Domain(domain));
        }
    }
}
