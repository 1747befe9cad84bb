//! Cumulative figures, losses and similar facts that changed since they were observed last.
//!
//! The kernel programs and the collector add up. A log that may end early needs the sums so far, and
//! a recording those at its end. Both are observed here, and only values that differ from before are.

use std::{hash::Hash, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::Cost;
use wallscope_observe::{
    CountedLoss, Counter, CounterHeir, DescribedDomain, EventHits, Histogram, LockWaits,
    Observation, ProcessClocks,
};
use zerocopy::IntoBytes;

use super::observation_sink::ObservationSink;
use crate::{
    backend::ebpf::Programs,
    event::{self, SocketRecord},
};

/// Figures of a lock's waits, and its name.
type LockFigures = ([u64; 3], Arc<str>);

/// Values as they were observed last.
#[derive(Default)]
pub struct LastValues {
    losses: FxHashMap<(Counter, String), u64>,
    histograms: FxHashMap<u32, (u64, Vec<u64>)>,
    /// Total, longest, count, and name, by record, lock and call.
    locks: FxHashMap<(u64, u64, u64), LockFigures>,
    sockets: FxHashMap<u64, Box<[u8]>>,
    hits: FxHashMap<(u32, u64), u64>,
    heirs: FxHashMap<u32, u32>,
    clocks: FxHashMap<u32, ProcessClocks>,
    domain: Option<DescribedDomain>,
    /// Memory that measuring took at the last reading.
    pub memory: Cost,
    /// When all figures were observed last, ns.
    pub figures_ns: u64,
}

/// Puts a value. Returns whether it differs from the value before.
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

impl LastValues {
    /// Observes figures of the kernel programs: histograms of intervals, connections, counts of events.
    pub fn figures(&mut self, programs: &Programs, sink: &mut dyn ObservationSink) {
        for (class, (longest_ns, counts)) in (0u32..).zip(programs.histograms()) {
            if is_new(&mut self.histograms, class, (longest_ns, counts.clone())) {
                sink.observe(Observation::Histogram(Histogram {
                    class,
                    longest_ns,
                    counts,
                }));
            }
        }
        let mut sockets: Vec<SocketRecord> = programs.sockets();
        sockets.sort_unstable_by_key(|s| s.cookie);
        self.sockets(&sockets, sink);
        let hits = programs.hits();
        let hits = hits.into_iter().map(|(record, event, hits)| EventHits {
            event: event as u32,
            record,
            hits,
        });
        self.hits(hits, sink);
    }

    /// Observes connections.
    pub fn sockets(&mut self, all: &[SocketRecord], sink: &mut dyn ObservationSink) {
        for socket in all {
            if is_new(&mut self.sockets, socket.cookie, socket.as_bytes().into()) {
                sink.observe(Observation::Socket(socket.as_bytes()));
            }
        }
    }

    /// Observes counts of events.
    pub fn hits(
        &mut self,
        all: impl IntoIterator<Item = EventHits>,
        sink: &mut dyn ObservationSink,
    ) {
        for hits in all {
            if is_new(&mut self.hits, (hits.event, hits.record), hits.hits) {
                sink.observe(Observation::EventHits(hits));
            }
        }
    }

    /// Observes that a thread has inherited counters.
    pub fn heir(&mut self, heir: CounterHeir, sink: &mut dyn ObservationSink) {
        if is_new(&mut self.heirs, heir.thread, heir.of) {
            sink.observe(Observation::CounterHeir(heir));
        }
    }

    /// Observes the clocks of a process.
    pub fn clocks(&mut self, clocks: ProcessClocks, sink: &mut dyn ObservationSink) {
        if is_new(&mut self.clocks, clocks.pid, clocks) {
            sink.observe(Observation::ProcessClocks(clocks));
        }
    }

    /// Observes exact waits for locks.
    pub fn lock_waits(&mut self, all: Vec<LockWaits>, sink: &mut dyn ObservationSink) {
        for waits in all {
            let sums = [waits.total_ns, waits.longest_ns, waits.count];
            let key = (waits.record, waits.address, waits.call);
            if is_new(&mut self.locks, key, (sums, waits.name.clone())) {
                sink.observe(Observation::LockWaits(waits));
            }
        }
    }

    /// Observes losses in the kernel programs.
    pub fn kernel_losses(&mut self, programs: &Programs, sink: &mut dyn ObservationSink) {
        let causes = event::LOSSES.iter().map(|cause| (*cause).to_owned());
        let losses = causes.zip(programs.losses());
        self.losses(Counter::Kernel, losses, sink);
    }

    /// Observes losses that `by` has counted so far. Several of one cause are one.
    pub fn losses(
        &mut self,
        by: Counter,
        all: impl IntoIterator<Item = (String, u64)>,
        sink: &mut dyn ObservationSink,
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
                sink.observe(Observation::Loss(CountedLoss { by, cause, count }));
            }
        }
    }

    /// Observes the domain.
    pub fn domain(&mut self, domain: DescribedDomain, sink: &mut dyn ObservationSink) {
        if self.domain.as_ref() != Some(&domain) {
            self.domain = Some(domain.clone());
            sink.observe(Observation::Domain(domain));
        }
    }
}
