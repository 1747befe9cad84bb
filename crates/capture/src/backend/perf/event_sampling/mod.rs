//! Stacks at events by name (`record -e`) without kernel programs.
//!
//! Each event is opened for each watched thread and CPU. Threads that such a thread makes later inherit it. After a
//! number of occurrences, the *gap*, it writes a sample of user registers and stack to the ring of its own CPU. The
//! user may set the gap. Otherwise the gap follows the counts, so that all threads together give about as many
//! stacks a second as one busy CPU gives by the clock. (The kernel could adapt it by itself, but in bursts it then
//! prefers the occurrences after a pause.) An inherited event keeps the gap of its birth. If that gap is far too
//! small, the event is switched off, and a note says so. Threads that have inherited the same event exchange it
//! whenever one follows the other on a CPU. So the gap is that of the event that a sample names, whichever thread
//! runs.
//!
//! The number of occurrences is not taken from samples: the kernel counts it ([`division`]).
//!
//! A user that may not measure the kernel gets events of user mode only. Events that happen in the kernel only are
//! refused: they would seem never to happen.

mod counter;
mod division;
mod intake;
mod records;
mod words;

pub use division::EventFamilies;

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use perf_event_open_sys::{self as perf, bindings as b};
use rustc_hash::FxHashMap;
use wallscope_observe::CountedEvent;

use super::{
    Record,
    perf_attr::{RESERVED, STACK, ask_for_stack, attributes, open},
};
use crate::{
    Error,
    backend::ring::Ring,
    clock,
    counter::{EventSpec, Source, why},
};
use counter::Counter;

/// Data pages of one CPU's ring, and the fewest: each sample takes two and a half.
const DATA_PAGES: usize = 32;
const MIN_PAGES: usize = 8;

/// Occurrences per stack before any was counted; a prime number.
const FIRST_GAP: u64 = 101;
/// Least time between two changes of the gaps, ns.
const ADAPT_EVERY_NS: u64 = 100_000_000;
/// Ratio of stacks to wanted stacks from which on an event floods.
const FLOOD_RATIO: u64 = 50;
/// Checks in a row with a flood after which an event is switched off.
const FLOODED_CHECKS: u32 = 3;

/// Occurrences per stack from some time on.
#[derive(Clone, Copy, Default)]
struct Gap {
    /// Since when, ns.
    since_ns: u64,
    /// Lowest id, by the kernel, of an event that inherits this gap.
    first: u64,
    hits: u64,
}

/// One event.
struct Event {
    spec: EventSpec,
    /// Its counters, by index of the thread that they were opened for.
    counters: FxHashMap<usize, Vec<Counter>>,
    /// The last one is in force.
    gaps: Vec<Gap>,
    /// Occurrences and stacks at the last check of the gap, and stacks since then.
    counted: u64,
    stacks: u64,
    /// Checks in a row that found a flood of stacks.
    flooded: u32,
}

impl Event {
    fn gap(&self) -> u64 {
        self.gaps.last().map_or(FIRST_GAP, |gap| gap.hits)
    }

    /// The gap of the event with the kernel's id `stream`. An opened event has the gap in force at `time`, an inherited
    /// one that of its birth.
    fn gap_of(&self, stream: u64, opened: bool, time: u64) -> u64 {
        let before = self.gaps.partition_point(|gap| {
            if opened {
                gap.since_ns <= time
            } else {
                gap.first <= stream
            }
        });
        self.gaps[before.saturating_sub(1)].hits
    }

    fn hits(&self) -> u64 {
        self.counters.values().flatten().map(Counter::hits).sum()
    }

    fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.counters.values().flatten().map(|c| &c.fd)
    }
}

/// Events to sample, and how.
#[derive(Clone, Copy, Debug)]
pub struct EventSampling<'a> {
    /// The events.
    pub events: &'a [EventSpec],
    /// Occurrences per stack, if the user sets that.
    pub gap: Option<u64>,
    /// Stacks a second otherwise.
    pub hz: u32,
    /// Descriptors that may be open.
    pub descriptors: usize,
    /// Whether the kernel may be measured.
    pub with_kernel: bool,
}

/// The events that were asked for.
pub struct EventSampler {
    events: Vec<Event>,
    rings: Vec<(u32, Ring)>,
    /// The kernel's numbers of opened events -> the event.
    ids: FxHashMap<u64, usize>,
    /// Begin of the recording: earlier occurrences do not count, ns.
    begun_ns: u64,
    /// The user sets the gap.
    is_fixed: bool,
    /// Stacks a second otherwise.
    hz: u64,
    adapted_ns: u64,
    with_kernel: bool,
    room: usize,
    /// Threads for which there were no descriptors left.
    pub left_out: u64,
    /// Samples that did not fit.
    pub lost: u64,
}

impl EventSampler {
    /// Makes the rings; events are opened by [`EventSampler::join`].
    ///
    /// # Errors
    /// An event cannot be had here, or no ring.
    pub fn open(sampling: EventSampling<'_>, cpus: &[u32]) -> Result<EventSampler, Error> {
        let EventSampling {
            events,
            gap,
            hz,
            descriptors,
            with_kernel,
        } = sampling;
        let refused = |spec: &EventSpec, e: &io::Error| Error::NoEvent {
            name: spec.name.clone(),
            why: why(spec, e),
        };
        let mut hits = EventSampler {
            events: Vec::with_capacity(events.len()),
            rings: Vec::new(),
            ids: FxHashMap::default(),
            begun_ns: 0,
            is_fixed: gap.is_some(),
            hz: u64::from(hz.max(1)),
            adapted_ns: 0,
            with_kernel,
            room: descriptors.saturating_sub(RESERVED) / 2,
            left_out: 0,
            lost: 0,
        };
        for spec in events {
            if !with_kernel && spec.is_of_the_kernel() {
                let e = io::Error::from_raw_os_error(libc::EACCES);
                return Err(refused(spec, &e));
            }
            // A try on our own thread shows whether there is such an event.
            let first = cpus.first().copied().unwrap_or(0);
            let gap = gap.unwrap_or(FIRST_GAP);
            hits.event(spec, gap, 0, first)
                .map_err(|e| refused(spec, &e))?;
            hits.events.push(Event {
                spec: spec.clone(),
                counters: FxHashMap::default(),
                gaps: vec![Gap {
                    hits: gap,
                    ..Gap::default()
                }],
                counted: 0,
                stacks: 0,
                flooded: 0,
            });
        }
        let no_ring = |e| Error::io("cannot make the rings for stacks at events", e);
        for cpu in cpus {
            let mut a = attributes(b::PERF_COUNT_SW_DUMMY);
            a.set_disabled(1);
            a.set_exclude_kernel(1);
            match open(&mut a, 0, *cpu) {
                Err(e) if e.raw_os_error() == Some(libc::ENODEV) => {}
                event => {
                    let ring = event.and_then(|e| Ring::map(e, DATA_PAGES, MIN_PAGES));
                    hits.rings.push((*cpu, ring.map_err(no_ring)?));
                }
            }
        }
        Ok(hits)
    }

    fn event(&self, spec: &EventSpec, gap: u64, tid: u32, cpu: u32) -> io::Result<OwnedFd> {
        let mut a = b::perf_event_attr {
            // The kernel's number of an opened event, and that of an inherited one.
            sample_type: (b::PERF_SAMPLE_TID
                | b::PERF_SAMPLE_TIME
                | b::PERF_SAMPLE_ID
                | b::PERF_SAMPLE_STREAM_ID)
                .into(),
            clockid: libc::CLOCK_MONOTONIC,
            ..spec.attributes()
        };
        a.set_use_clockid(1);
        a.set_exclude_hv(1);
        a.set_inherit(1);
        // The kernel reports each heir's own count when the heir ends.
        a.set_inherit_stat(1);
        a.set_sample_id_all(1);
        if !self.with_kernel {
            a.set_exclude_kernel(1);
        }
        ask_for_stack(&mut a, STACK);
        // The sample has no period: with one, software events would write a record for each occurrence.
        a.__bindgen_anon_1.sample_period = gap;
        open(&mut a, tid as i32, cpu)
    }

    /// Opens the events of a thread that is watched by its `index`.
    pub fn join(&mut self, index: usize, tid: u32) {
        let each = self.rings.len();
        for number in 0..self.events.len() {
            if self.room < each {
                self.left_out += 1;
                return;
            }
            let mut counters = Vec::with_capacity(each);
            for (cpu, ring) in &self.rings {
                // Gone, or not ours: its clock tells so too.
                let event = &self.events[number];
                let Ok(fd) = self.event(&event.spec, event.gap(), tid, *cpu) else {
                    break;
                };
                let (from, to) = (fd.as_raw_fd(), ring.event().as_raw_fd());
                let mut id = 0u64;
                // SAFETY: both descriptors are perf events of ours, and the number is written to `id`.
                let done = unsafe {
                    perf::ioctls::SET_OUTPUT(from, to) >= 0
                        && perf::ioctls::ID(from, &raw mut id) >= 0
                };
                if !done {
                    break;
                }
                self.ids.insert(id, number);
                counters.push(Counter { fd, base: 0 });
            }
            self.room -= counters.len();
            self.events[number].counters.insert(index, counters);
        }
    }

    /// Closes the events that were opened for the thread with this index, which inherits the same events.
    pub fn close_thread(&mut self, index: usize) {
        for event in &mut self.events {
            let closed = event.counters.remove(&index);
            self.room += closed.map_or(0, |counters| counters.len());
        }
    }

    /// Begins the recording: earlier occurrences do not count.
    pub fn begin(&mut self) {
        self.begun_ns = clock::now();
        self.adapted_ns = self.begun_ns;
        for counter in (self.events.iter_mut()).flat_map(|e| e.counters.values_mut().flatten()) {
            counter.base = counter.value();
        }
    }

    /// Adapts the gaps to the counts up to `now`, so that about `hz` stacks a second come.
    pub fn adapt(&mut self, hz: u64, now: u64) {
        let time = now.saturating_sub(self.adapted_ns);
        if self.is_fixed || time < ADAPT_EVERY_NS {
            return;
        }
        (self.hz, self.adapted_ns) = (hz.max(1), now);
        let Some((cpu, _)) = self.rings.first() else {
            return;
        };
        let most = (self.hz * time / 1_000_000_000).max(1);
        for event in &mut self.events {
            let hits = event.hits();
            let wanted = gap_for(hits.saturating_sub(event.counted) / most);
            let stacks = std::mem::take(&mut event.stacks);
            event.counted = hits;
            event.flooded = if stacks > most * FLOOD_RATIO {
                event.flooded + 1
            } else {
                0
            };
            if event.flooded == FLOODED_CHECKS {
                for fd in event.descriptors() {
                    // SAFETY: no argument. The call reaches inherited events, too.
                    unsafe { perf::ioctls::DISABLE(fd.as_raw_fd(), 0) };
                }
            }
            let gap = event.gap();
            if (gap / 2 + 1..gap * 2).contains(&wanted) {
                continue;
            }
            // A thread that is born from now on inherits the new gap, and has a higher number.
            let Some(first) = newest(*cpu) else { continue };
            event.gaps.push(Gap {
                since_ns: clock::now(),
                first,
                hits: wanted,
            });
            for fd in event.descriptors() {
                // SAFETY: the ioctl reads one u64 that outlives the call. A refusal leaves the old gap.
                unsafe { perf::ioctls::PERIOD(fd.as_raw_fd(), &raw const wanted as u64) };
            }
        }
    }

    /// The events, as observations.
    pub fn describe_counts(&self) -> impl Iterator<Item = CountedEvent> {
        self.events.iter().map(|event| CountedEvent {
            name: event.spec.name.clone(),
            counted: event.spec.source != Source::Hardware,
        })
    }

    /// Counts so far: event, thread that the counters were opened for, occurrences.
    pub fn counted(&self) -> Vec<(usize, usize, u64)> {
        let of_event = |(number, event): (usize, &Event)| {
            let counters = event.counters.iter();
            let hits = counters
                .map(move |(thread, all)| (number, *thread, all.iter().map(Counter::hits).sum()));
            hits.collect::<Vec<_>>()
        };
        let mut all: Vec<_> = (self.events.iter().enumerate())
            .flat_map(of_event)
            .collect();
        all.sort_unstable();
        all
    }

    /// Takes all records of the rings, in no order.
    pub fn take(&mut self) -> Vec<(u64, Record)> {
        let EventSampler {
            rings, ids, lost, ..
        } = self;
        let mut taken = Vec::new();
        for (_, ring) in rings {
            ring.drain(
                |kind, misc, body| match records::parse(kind, misc, body, ids) {
                    Some((_, Record::Lost(n))) => *lost += n,
                    record => taken.extend(record),
                },
            );
        }
        taken
    }

    /// Descriptors that become readable when a ring is half full.
    pub fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.rings.iter().map(|(_, ring)| ring.event())
    }

    /// Bytes of the rings.
    pub fn bytes(&self) -> u64 {
        self.rings.iter().map(|(_, ring)| ring.bytes()).sum()
    }
}

/// A gap of about `hits`, which no short pattern of occurrences divides.
fn gap_for(hits: u64) -> u64 {
    let shares = |n: &u64| [2u64, 3, 5, 7].iter().any(|p| n.is_multiple_of(*p));
    (hits.max(1)..).find(|n| !shares(n)).unwrap_or(1)
}

/// The number that the kernel gives to an event now.
fn newest(cpu: u32) -> Option<u64> {
    let mut a = attributes(b::PERF_COUNT_SW_DUMMY);
    a.set_disabled(1);
    a.set_exclude_kernel(1);
    let event = open(&mut a, 0, cpu).ok()?;
    let mut id = 0u64;
    // SAFETY: a perf event of ours, and the number is written to `id`.
    let done = unsafe { perf::ioctls::ID(event.as_raw_fd(), &raw mut id) };
    (done >= 0).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_short_pattern_divides_a_gap() {
        assert_eq!([0, 1, 2, 100, 1000].map(gap_for), [1, 1, 11, 101, 1003]);
    }
}
