//! From a flight recorder's turns to the lanes of a recording.

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, Interval, Lane, Recording, Timeline};

use super::coding::Reader;
use super::values::{Chunk, FlightSnapshot, Open};
use crate::event::{RING_TURN, Turn};
use crate::session::timeline::{put_open, put_turn};

/// The part of a recording that a flight recorder covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlightPart {
    /// Covered time of the recording, ns; 0: none.
    pub covered_ns: u64,
    /// Time by threshold in force, ns; ascending.
    pub thresholds: Vec<(u64, u64)>,
    /// Intervals that were put into the recording.
    pub intervals: u64,
}

impl FlightSnapshot {
    /// Gives `recording`, merged windows of the session, the intervals of its threads as a timeline, and tells
    /// its domain. Threads that the recording lacks, of an excluded service for instance, stay out. `is_own_memory`
    /// tells whether the flight recorder's limit holds for the timeline too: the oldest chunks are dropped then.
    ///
    /// Windows may have ended since the last one of `recording`, as naming takes time. An interval of such a window
    /// counts up to the end of the recording.
    pub fn put_into(&self, recording: &mut Recording, memory: FlightMemory) -> FlightPart {
        let window = recording.window.start_ns..recording.window.end_ns;
        let chunks = self.chunks.iter().map(|c| &**c);
        let (mut chunks, later): (Vec<&Chunk>, Vec<&Chunk>) = (chunks)
            .filter(|c| c.end_ns > window.start)
            .partition(|c| c.start_ns < window.end);
        let dropped = match memory {
            FlightMemory::Unlimited => 0,
            FlightMemory::Recorder => self.keep_newest(&mut chunks),
        };
        let mut lanes = Lanes::new(recording);
        let mut flown = FlightPart::default();
        for chunk in chunks {
            lanes.put_chunk(chunk);
            let end_ns = chunk.end_ns.min(window.end);
            let ns = end_ns.saturating_sub(chunk.start_ns.max(window.start));
            flown.covered_ns += ns;
            match flown
                .thresholds
                .iter_mut()
                .find(|(t, _)| *t == chunk.threshold_ns)
            {
                Some((_, sum)) => *sum += ns,
                None => flown.thresholds.push((chunk.threshold_ns, ns)),
            }
        }
        flown.thresholds.sort_unstable();
        later.into_iter().for_each(|chunk| lanes.put_chunk(chunk));
        for open in self.open.iter().filter(|o| o.now > window.start) {
            lanes.put_open(open);
        }
        let lanes = lanes.finish();
        flown.intervals = lanes.iter().map(|l| l.intervals.len() as u64).sum();
        let lost = recording.losses.iter().find(|l| l.cause == RING_TURN);
        recording.timeline = Some(Timeline {
            lanes,
            limit_bytes: self.limits.bytes,
            dropped,
            lost: lost.map_or(0, |l| l.count),
        });
        let note = flown.note(self.limits.bytes, dropped);
        recording.domain.notes.push(note);
        flown
    }

    /// Leaves as many of the newest chunks as have intervals of the recorder's memory; the intervals of the others.
    fn keep_newest(&self, chunks: &mut Vec<&Chunk>) -> u64 {
        let room = self.limits.bytes - self.limits.ring_bytes();
        let mut left = room / size_of::<Interval>() as u64;
        let mut dropped = 0;
        let mut first = 0;
        for (at, chunk) in chunks.iter().enumerate().rev() {
            let n = intervals(chunk);
            if n > left {
                (left, dropped) = (0, dropped + n);
                first = first.max(at + 1);
            } else {
                left -= n;
            }
        }
        chunks.drain(..first);
        dropped
    }
}

/// The memory that intervals of a snapshot may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlightMemory {
    /// The rest of the recorder's own.
    Recorder,
    /// Another process's, without a limit.
    Unlimited,
}

impl FlightPart {
    fn note(&self, limit_bytes: u64, dropped: u64) -> String {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let threshold = |(threshold_ns, ns): &(u64, u64)| match threshold_ns {
            0 => format!("all for {:.1} s", seconds(*ns)),
            t => {
                let us = *t as f64 / 1e3;
                format!("from {us:.0} µs on for {:.1} s", seconds(*ns))
            }
        };
        let thresholds: Vec<String> = self.thresholds.iter().map(threshold).collect();
        let kept = match thresholds.is_empty() {
            true => "none".into(),
            false => thresholds.join(", "),
        };
        let mib = limit_bytes >> 20;
        let dropped = match dropped {
            0 => String::new(),
            n => format!("; the oldest {n} were dropped to stay within it"),
        };
        format!(
            "timeline: {} intervals of the last {:.1} s by the flight recorder within {mib} MiB: {kept}; turns \
             with only shorter intervals are in the sums by second{dropped}",
            self.intervals,
            seconds(self.covered_ns),
        )
    }
}

fn intervals(chunk: &Chunk) -> u64 {
    let mut n = 0;
    turns(chunk, |t| {
        n += [t.stretch, t.block, t.waited]
            .iter()
            .filter(|ns| **ns > 0)
            .count() as u64;
    });
    n
}

/// All turns of a chunk, in their order.
fn turns(chunk: &Chunk, mut each: impl FnMut(&Turn)) {
    let mut reader = Reader(&chunk.turns);
    let mut time = chunk.start_ns;
    while let Some(turn) = reader.turn(time) {
        time = turn.time;
        each(&turn);
    }
}

/// The lanes of a recording as they grow.
struct Lanes {
    /// Contexts by process and thread.
    contexts: FxHashMap<(u32, u32), Vec<u32>>,
    /// When each context existed, ns.
    lives: Vec<std::ops::Range<u64>>,
    all: FxHashMap<u32, Vec<Interval>>,
    /// End of the recording, ns.
    end_ns: u64,
}

impl Lanes {
    fn new(recording: &Recording) -> Lanes {
        let mut contexts: FxHashMap<(u32, u32), Vec<u32>> = FxHashMap::default();
        for (index, c) in (0u32..).zip(&recording.contexts) {
            contexts.entry((c.pid, c.tid)).or_default().push(index);
        }
        Lanes {
            contexts,
            lives: recording
                .contexts
                .iter()
                .map(|c| c.start_ns..c.end_ns)
                .collect(),
            all: FxHashMap::default(),
            end_ns: recording.window.end_ns,
        }
    }

    /// The thread that had these ids at `time`: ids are used again.
    fn context(&self, pid: u32, tid: u32, time: u64) -> Option<u32> {
        let lived = |index: &&u32| {
            let life = &self.lives[**index as usize];
            (life.start..=life.end).contains(&time)
        };
        self.contexts.get(&(pid, tid))?.iter().find(lived).copied()
    }

    fn put_chunk(&mut self, chunk: &Chunk) {
        let thread = |record: u32| {
            let at = chunk
                .threads
                .binary_search_by_key(&record, |k| k.record)
                .ok()?;
            let known = chunk.threads[at];
            Some((known.pid, known.tid))
        };
        turns(chunk, |t| {
            let time = t.time.min(self.end_ns);
            if t.begin() >= self.end_ns {
                return;
            }
            let own = thread(t.id).and_then(|(pid, tid)| self.context(pid, tid, time));
            let Some(index) = own else { return };
            let woken = t.time.saturating_sub(t.waited);
            let waker = thread(t.waker).and_then(|(pid, tid)| self.context(pid, tid, woken));
            let lane = self.all.entry(index).or_default();
            put_turn(lane, &self.lives[index as usize], t, waker.map(ContextId));
        });
    }

    /// Puts an interval that was under way at the end of this recording or of a later window.
    fn put_open(&mut self, open: &Open) {
        let before = open.stretch.saturating_add(open.block);
        if open.since.saturating_sub(before) >= self.end_ns {
            return;
        }
        if let Some(context) = self.context(open.pid, open.tid, open.now.min(self.end_ns)) {
            let lane = self.all.entry(context).or_default();
            put_open(lane, &self.lives[context as usize], &open.dump());
        }
    }

    fn finish(self) -> Vec<Lane> {
        let mut lanes: Vec<Lane> = (self.all.into_iter())
            .filter(|(_, intervals)| !intervals.is_empty())
            .map(|(index, intervals)| Lane {
                context: ContextId(index),
                intervals,
            })
            .collect();
        lanes.sort_unstable_by_key(|lane| lane.context);
        lanes
    }
}
