//! Stacks at events by name (`record -e`) without kernel programs.
//!
//! Each event is opened for each watched thread and CPU, inherited by what the thread makes later. It
//! writes a sample of user registers and stack to a ring of its own CPU every so many hits: as many as
//! the user asks for, or so many that all threads together give about as many stacks a second as one
//! busy CPU gives by the clock. That gap is adapted by what is counted. (The kernel could adapt it by
//! itself, but where hits come in bursts it then prefers those after a pause.) What was inherited keeps
//! the gap of its birth; where that is far too small, the event is switched off, and it is said.
//!
//! How often an event happened is not taken from samples but counted by the kernel: a descriptor tells
//! the hits of its thread together with those of all that inherited from it. A thread that stands
//! alone has its exact count; where others inherited, the samples divide the exact sum among them.
//!
//! Who may not measure the kernel gets what happens in user mode; events that happen in the kernel only
//! are refused to them, because they would look as if nothing had happened.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use perf_event_open_sys::{self as perf, bindings as b};
use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, EventHits, EventSource, Limit, Part, State, WaitSeen};
use wallscope_unwind::native::TableSink;

use super::{RESERVED, Running, ask_for_stack, attributes, open, record};
use crate::{
    Error,
    backend::{
        proc::{
            looker::Looker,
            samples::{Look, Samples, Weight},
            thread::Thread,
        },
        ring::Ring,
    },
    counter::{EventSpec, Source, why},
    session::{build::Stacks, processes::Processes},
};

/// Data pages of one CPU's ring, and the fewest: each sample takes two and a half.
const DATA_PAGES: usize = 32;
const FEWEST_PAGES: usize = 8;

/// Hits a stack before any was counted: prime.
const FIRST_GAP: u64 = 101;
/// Least time between two looks at the gaps, ns.
const ADAPT: u64 = 100_000_000;
/// So many times as many stacks as wanted are far too many.
const FLOOD: u64 = 50;

/// A descriptor, and what it had counted when the recording began.
struct Counter {
    fd: OwnedFd,
    base: u64,
}

/// One event.
struct Event {
    spec: EventSpec,
    /// By index of the thread that they were opened for.
    counters: FxHashMap<usize, Vec<Counter>>,
    /// Hits that the samples stand for, by thread.
    sampled: FxHashMap<usize, u64>,
    samples: Samples,
    /// Hits a stack, since when (ns); the last one is that of the present.
    gaps: Vec<(u64, u64)>,
    /// When those who inherited were born, ns: they keep the gap of then.
    born: FxHashMap<usize, u64>,
    /// Hits and stacks when the gap was looked at last, and stacks since then.
    counted: u64,
    stacks: u64,
    /// Looks in a row that found far too many stacks.
    flooded: u32,
}

impl Event {
    fn gap(&self) -> u64 {
        self.gaps.last().map_or(FIRST_GAP, |(_, gap)| *gap)
    }

    /// Of a thread at some time.
    fn gap_of(&self, thread: usize, time: u64) -> u64 {
        let time = self.born.get(&thread).copied().unwrap_or(time);
        let before = self.gaps.partition_point(|(since, _)| *since <= time);
        self.gaps[before.saturating_sub(1)].1
    }

    fn hits(&self) -> u64 {
        self.counters.values().flatten().map(Counter::hits).sum()
    }

    fn descriptors(&self) -> impl Iterator<Item = &OwnedFd> {
        self.counters.values().flatten().map(|c| &c.fd)
    }
}

/// The events that were asked for.
pub struct Hits {
    events: Vec<Event>,
    rings: Vec<(u32, Ring)>,
    /// The kernel's numbers of what was opened -> the event.
    ids: FxHashMap<u64, usize>,
    /// The user wants so many hits a stack.
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

/// A sample as it lies in the ring.
struct Hit {
    event: usize,
    time: u64,
    running: Running,
}

impl Hits {
    /// Makes the rings; events are opened by [`Hits::join`]. `with_kernel`: the kernel may be measured.
    ///
    /// # Errors
    /// An event cannot be had here, or no ring.
    pub fn open(
        specs: &[EventSpec],
        gap: Option<u64>,
        hz: u32,
        cpus: &[u32],
        descriptors: usize,
        with_kernel: bool,
    ) -> Result<Hits, Error> {
        let refused = |spec: &EventSpec, e: &io::Error| Error::NoEvent {
            name: spec.name.clone(),
            why: why(spec, e),
        };
        let mut hits = Hits {
            events: Vec::with_capacity(specs.len()),
            rings: Vec::new(),
            ids: FxHashMap::default(),
            is_fixed: gap.is_some(),
            hz: u64::from(hz.max(1)),
            adapted_ns: 0,
            with_kernel,
            room: descriptors.saturating_sub(RESERVED) / 2,
            left_out: 0,
            lost: 0,
        };
        for spec in specs {
            if !with_kernel && spec.is_of_the_kernel() {
                let e = io::Error::from_raw_os_error(libc::EACCES);
                return Err(refused(spec, &e));
            }
            // Of our own thread, to see whether there is such an event.
            let first = cpus.first().copied().unwrap_or(0);
            let gap = gap.unwrap_or(FIRST_GAP);
            hits.event(spec, gap, 0, first)
                .map_err(|e| refused(spec, &e))?;
            hits.events.push(Event {
                spec: spec.clone(),
                counters: FxHashMap::default(),
                sampled: FxHashMap::default(),
                samples: Samples::default(),
                gaps: vec![(0, gap)],
                born: FxHashMap::default(),
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
                    let ring = event.and_then(|e| Ring::map(e, DATA_PAGES, FEWEST_PAGES));
                    hits.rings.push((*cpu, ring.map_err(no_ring)?));
                }
            }
        }
        Ok(hits)
    }

    fn event(&self, spec: &EventSpec, gap: u64, tid: u32, cpu: u32) -> io::Result<OwnedFd> {
        let mut a = b::perf_event_attr {
            sample_type: (b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME | b::PERF_SAMPLE_ID).into(),
            clockid: libc::CLOCK_MONOTONIC,
            ..spec.attributes()
        };
        a.set_use_clockid(1);
        a.set_exclude_hv(1);
        a.set_inherit(1);
        if !self.with_kernel {
            a.set_exclude_kernel(1);
        }
        ask_for_stack(&mut a);
        // Without the period in the sample, for which software events would tell of each hit.
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

    /// Closes the events that were opened for a thread.
    pub fn leave(&mut self, index: usize) {
        for event in &mut self.events {
            let closed = event.counters.remove(&index);
            self.room += closed.map_or(0, |counters| counters.len());
        }
    }

    /// What happened so far was before the recording.
    pub fn begin(&mut self) {
        self.take();
        for counter in (self.events.iter_mut()).flat_map(|e| e.counters.values_mut().flatten()) {
            counter.base = counter.value();
        }
    }

    /// A thread was born at `time` and has inherited events.
    pub fn inherited(&mut self, index: usize, time: u64) {
        for event in &mut self.events {
            event.born.insert(index, time);
        }
    }

    /// Adapts the gaps to what was counted up to `now`, so that about `hz` stacks a second come.
    pub fn adapt(&mut self, hz: u64, now: u64) {
        let time = now.saturating_sub(self.adapted_ns);
        if self.is_fixed || time < ADAPT {
            return;
        }
        (self.hz, self.adapted_ns) = (hz.max(1), now);
        let most = (self.hz * time / 1_000_000_000).max(1);
        for event in &mut self.events {
            let hits = event.hits();
            let wanted = gap_for(hits.saturating_sub(event.counted) / most);
            let stacks = std::mem::take(&mut event.stacks);
            event.counted = hits;
            event.flooded = if stacks > most * FLOOD {
                event.flooded + 1
            } else {
                0
            };
            if event.flooded == 3 {
                for fd in event.descriptors() {
                    // SAFETY: no argument. It reaches what was inherited, too.
                    unsafe { perf::ioctls::DISABLE(fd.as_raw_fd(), 0) };
                }
            }
            let gap = event.gap();
            if (gap / 2 + 1..gap * 2).contains(&wanted) {
                continue;
            }
            event.gaps.push((crate::session::now(), wanted));
            for fd in event.descriptors() {
                // SAFETY: the ioctl reads one u64 that outlives the call. A refusal leaves the old gap.
                unsafe { perf::ioctls::PERIOD(fd.as_raw_fd(), &raw const wanted as u64) };
            }
        }
    }

    fn take(&mut self) -> Vec<Hit> {
        let Hits {
            rings, ids, lost, ..
        } = self;
        let mut taken = Vec::new();
        for (_, ring) in rings {
            ring.drain(|kind, misc, body| match kind {
                b::PERF_RECORD_SAMPLE => taken.extend(parse(misc, body, ids)),
                b::PERF_RECORD_LOST => {
                    if let Some((_, record::Record::Lost(n))) = record::parse(kind, misc, body) {
                        *lost += n;
                    }
                }
                _ => {}
            });
        }
        taken.sort_by_key(|hit| hit.time);
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

    /// For the domain.
    pub fn describe(&self) -> Vec<EventSource> {
        let user = if self.with_kernel {
            ""
        } else {
            ", in user mode only"
        };
        let describe = |e: &Event| {
            let what = match e.spec.source {
                Source::Software => "a software event",
                Source::Hardware => "a hardware counter",
                Source::Tracepoint => "a tracepoint",
            };
            EventSource {
                what: format!("stacks at {}", e.spec.name),
                event: format!("{what} of each thread{user}"),
                rate: if self.is_fixed {
                    format!(
                        "hits counted, a stack every {} of a thread and CPU",
                        e.gap()
                    )
                } else {
                    format!(
                        "hits counted, about {} stacks a second (at last one every {} hits of a thread and CPU)",
                        self.hz,
                        e.gap()
                    )
                },
            }
        };
        self.events.iter().map(describe).collect()
    }

    /// What it could not see.
    pub fn limits(&self) -> Vec<Limit> {
        let limit = |what: String, remedy: &str| Limit {
            what,
            remedy: remedy.into(),
        };
        let mut limits = vec![limit(
            "how often an event happened to each of several threads that one has made, as all of a command's are: their sum is counted, and divided by the stacks that came, which is far off where stacks were lost or a thread was born while its events were rarer than later".into(),
            "the ebpf backend",
        )];
        if !self.with_kernel {
            limits.push(limit(
                "events that happen while the kernel works for a thread".into(),
                "sudo sysctl kernel.perf_event_paranoid=1, or the ebpf backend",
            ));
        }
        for event in self.events.iter().filter(|e| e.flooded >= 3) {
            limits.push(limit(
                format!("{} after a while: stacks came far too often from threads that had inherited a small gap, and were switched off", event.spec.name),
                "--event-period N, or the ebpf backend",
            ));
        }
        if self.left_out > 0 {
            limits.push(limit(
                format!(
                    "events of {} threads: too many files were open",
                    self.left_out
                ),
                "a higher limit of open files (ulimit -n), or the ebpf backend",
            ));
        }
        limits
    }

    /// How often each event happened to whom, and with which stacks. `threads` in the order of the
    /// recording's contexts.
    pub fn finish<S: TableSink>(
        mut self,
        threads: &[Thread],
        stacks: &mut Stacks,
        processes: &Processes<S>,
    ) -> Vec<EventHits> {
        let mut families: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (index, t) in threads.iter().enumerate() {
            families
                .entry(t.heir_of.unwrap_or(index))
                .or_default()
                .push(index);
        }
        let events = self.events.iter_mut().map(|event| {
            let mut hits: Vec<(ContextId, u64)> = Vec::new();
            for (index, counters) in &event.counters {
                let own = [*index];
                let family = families.get(index).map_or(&own[..], Vec::as_slice);
                let by: Vec<u64> = (family.iter())
                    .map(|t| event.sampled.get(t).copied().unwrap_or(0))
                    .collect();
                let parts = divide(counters.iter().map(Counter::hits).sum(), &by);
                let rows = family.iter().zip(parts).filter(|(_, n)| *n > 0);
                hits.extend(rows.map(|(t, n)| (ContextId(*t as u32), n)));
            }
            hits.sort_unstable();
            EventHits {
                name: event.spec.name.clone(),
                counted: event.spec.source != Source::Hardware,
                hits,
                samples: event.samples.finish(stacks, processes).0,
            }
        });
        events.collect()
    }
}

impl Counter {
    /// What it has counted so far, scaled where the kernel took turns.
    fn value(&self) -> u64 {
        let mut word = [0u8; 8];
        match rustix::io::read(&self.fd, &mut word) {
            Ok(8) => u64::from_ne_bytes(word),
            _ => self.base,
        }
    }

    fn hits(&self) -> u64 {
        self.value().saturating_sub(self.base)
    }
}

/// `sum` by `weights`, to the last one; all of it to the first where none has any weight.
fn divide(sum: u64, weights: &[u64]) -> Vec<u64> {
    let all: u128 = weights.iter().map(|w| u128::from(*w)).sum();
    let (mut upto, mut given) = (0u128, 0);
    let part = |(i, weight): (usize, &u64)| {
        upto += u128::from(*weight);
        let end = match all {
            0 if i == 0 => sum,
            0 => given,
            _ => (u128::from(sum) * upto / all) as u64,
        };
        std::mem::replace(&mut given, end).abs_diff(end)
    };
    weights.iter().enumerate().map(part).collect()
}

/// A gap of about `hits`, which no short pattern of hits divides.
fn gap_for(hits: u64) -> u64 {
    let shares = |n: &u64| [2u64, 3, 5, 7].iter().any(|p| n.is_multiple_of(*p));
    (hits.max(1)..).find(|n| !shares(n)).unwrap_or(1)
}

fn parse(misc: u16, body: &[u8], ids: &FxHashMap<u64, usize>) -> Option<Hit> {
    let word = |at: usize| Some(u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?));
    let (who, time, id) = (word(0)?, word(8)?, word(16)?);
    let (registers, stack) = record::user_part(body, 24)?;
    Some(Hit {
        event: *ids.get(&id)?,
        time,
        running: Running {
            pid: who as u32,
            tid: (who >> 32) as u32,
            period_ns: 0,
            user_mode: record::is_user_mode(misc),
            registers,
            stack,
        },
    })
}

impl Looker {
    /// Takes the stacks at events. `since`: when threads were listed last.
    pub fn drain_hits(&mut self, since: u64, now: u64) {
        let Some(mut hits) = self.hits.take() else {
            return;
        };
        for Hit {
            event,
            time,
            running,
        } in hits.take()
        {
            let Some(index) = self.watch.heard_of(running.pid, running.tid, since, now) else {
                self.tally.strangers += 1;
                continue;
            };
            let (frames, end) = self.stack_of(&running, now);
            let event = &mut hits.events[event];
            let gap = event.gap_of(index, time);
            event.stacks += 1;
            *event.sampled.entry(index).or_default() += gap;
            let whose = self.processes.whose(running.pid, time, &frames);
            let stack = event.samples.stack(whose, frames, Box::default(), end);
            let look = Look {
                thread: index as u32,
                stack,
                state: State::OnCpu,
                reason: None,
                part: Some(if running.user_mode {
                    Part::User
                } else {
                    Part::Kernel
                }),
                begin: time,
                end: time,
                ns: gap,
                weight: Weight::Own,
                seen: WaitSeen::default(),
            };
            event.samples.add(self.grid, &look);
        }
        self.hits = Some(hits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_is_divided_by_samples_and_none_is_lost() {
        assert_eq!(divide(10, &[1, 1, 1]), [3, 3, 4]);
        assert_eq!(divide(7, &[0, 0]), [7, 0]);
        assert_eq!(divide(0, &[5, 5]), [0, 0]);
        assert_eq!(divide(u64::MAX, &[u64::MAX, 0]), [u64::MAX, 0]);
    }

    #[test]
    fn no_short_pattern_divides_a_gap() {
        assert_eq!([0, 1, 2, 100, 1000].map(gap_for), [1, 1, 11, 101, 1003]);
    }
}
