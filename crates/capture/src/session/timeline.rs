//! The timeline: turns of threads as they come, kept within a memory bound, and made into intervals at
//! the end.
//!
//! A turn is a stretch on a CPU, a block and a wait for a CPU, one after the other, up to the moment at which it was
//! reported. Time between two turns was not seen, or was dropped: it stays a gap. Turns come in the order of time,
//! nearly; each thread's own exactly so. When the bound is reached the oldest are dropped, a chunk at a time.

use std::collections::VecDeque;
use std::ops::Range;

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, ContextId, Interval, Lane, Part, State, Timeline};
use zerocopy::FromBytes;

use super::accounts::Accounts;
use crate::event::{Dump, FLAG_ASKING, Turn, state};

/// Bytes of the kernel's ring of turns.
pub const KERNEL_RING: u32 = 8 << 20;
/// Turns that are dropped at once.
const CHUNK: usize = 8192;
/// Parts of runnable time, in the order of `enum ws_part`.
const PARTS: [Part; 3] = [Part::Woken, Part::Preempted, Part::Throttled];

#[derive(Default)]
struct Chunk {
    turns: Vec<Turn>,
    intervals: u64,
}

/// The turns that are kept.
pub struct Turns {
    chunks: VecDeque<Chunk>,
    kept: u64,
    max_intervals: u64,
    limit_bytes: u64,
    dropped: u64,
}

/// Number of intervals in a turn.
fn intervals(t: &Turn) -> u64 {
    [t.stretch, t.block, t.waited]
        .iter()
        .filter(|ns| **ns > 0)
        .count() as u64
}

impl Turns {
    /// Keeps turns while their intervals fit into `limit_bytes`.
    pub fn new(limit_bytes: u64) -> Turns {
        Turns {
            chunks: VecDeque::new(),
            kept: 0,
            max_intervals: limit_bytes / size_of::<Interval>() as u64,
            limit_bytes,
            dropped: 0,
        }
    }

    /// Takes one record of the ring; `None` if it is malformed.
    pub fn take(&mut self, bytes: &[u8]) -> Option<()> {
        let turn = Turn::read_from_prefix(bytes).ok()?.0;
        if self.chunks.back().is_none_or(|c| c.turns.len() >= CHUNK) {
            while self.kept + 3 * CHUNK as u64 > self.max_intervals
                && let Some(oldest) = self.chunks.pop_front()
            {
                self.kept -= oldest.intervals;
                self.dropped += oldest.intervals;
            }
            self.chunks.push_back(Chunk {
                turns: Vec::with_capacity(CHUNK),
                intervals: 0,
            });
        }
        let n = intervals(&turn);
        let chunk = self.chunks.back_mut()?;
        chunk.turns.push(turn);
        chunk.intervals += n;
        self.kept += n;
        Some(())
    }

    /// Returns the lanes of all threads, with the intervals still open in `accounts`. `lost`: turns that found no
    /// room in the ring.
    pub fn finish(self, accounts: &Accounts, lost: u64) -> Timeline {
        let mut lanes: FxHashMap<u32, Vec<Interval>> = FxHashMap::default();
        let mut dropped = self.dropped;
        let of = |id: u32| accounts.index(u64::from(id));
        for chunk in self.chunks {
            for turn in &chunk.turns {
                let Some(index) = of(turn.id) else { continue };
                // Turns of several threads are no lane.
                if accounts.is_grouped(turn.id.into()) {
                    dropped += intervals(turn);
                    continue;
                }
                let waker = of(turn.waker).map(ContextId);
                let life = accounts.life(index);
                put_turn(lanes.entry(index).or_default(), &life, turn, waker);
            }
        }
        for (index, dump) in accounts.last() {
            let life = accounts.life(index);
            put_open(lanes.entry(index).or_default(), &life, dump);
        }
        let mut lanes: Vec<Lane> = lanes
            .into_iter()
            .filter(|(_, intervals)| !intervals.is_empty())
            .map(|(index, intervals)| Lane {
                context: ContextId(index),
                intervals,
            })
            .collect();
        lanes.sort_unstable_by_key(|l| l.context);
        Timeline {
            lanes,
            limit_bytes: self.limit_bytes,
            dropped,
            lost,
        }
    }
}

/// Appends intervals one after the other to the lane of a thread.
struct LaneWriter<'a> {
    lane: &'a mut Vec<Interval>,
    /// When the thread existed.
    life: &'a Range<u64>,
    /// Where the next interval begins.
    at: u64,
}

impl LaneWriter<'_> {
    /// Appends `ns`, as far as the thread existed then and no interval is there yet.
    fn put(&mut self, ns: u64, template: Interval) {
        let known = self.lane.last().map_or(self.life.start, Interval::end_ns);
        let start = self.at.max(known);
        self.at = self.at.saturating_add(ns);
        let ns = self.at.min(self.life.end).saturating_sub(start);
        if ns > 0 {
            self.lane.push(Interval {
                start_ns: start,
                ns,
                ..template
            });
        }
    }
}

const ON_CPU: Interval = Interval {
    start_ns: 0,
    ns: 0,
    state: State::OnCpu,
    reason: None,
    part: None,
    waker: None,
    request: false,
    idle: false,
};

/// A template: [`LaneWriter::put`] sets its start and length.
fn blocked_interval(reason: u8, waker: Option<ContextId>, request: bool) -> Interval {
    Interval {
        state: State::Blocked,
        reason: BlockReason::ALL.get(reason as usize).copied(),
        waker,
        request,
        ..ON_CPU
    }
}

/// A template, too.
fn runnable_interval(part: u8) -> Interval {
    Interval {
        state: State::Runnable,
        part: PARTS.get(part as usize).copied(),
        ..ON_CPU
    }
}

/// Appends the intervals of a turn.
pub fn put_turn(lane: &mut Vec<Interval>, life: &Range<u64>, t: &Turn, waker: Option<ContextId>) {
    let at = t.begin();
    let mut pen = LaneWriter { lane, life, at };
    pen.put(t.stretch, ON_CPU);
    pen.put(t.block, blocked_interval(t.reason, waker, t.asking != 0));
    pen.put(t.waited, runnable_interval(t.part));
}

/// Appends the turn that was open when the figures `d` were read.
pub fn put_open(lane: &mut Vec<Interval>, life: &Range<u64>, d: &Dump) {
    let over = d.stretch.saturating_add(d.block);
    let at = d.since.saturating_sub(over);
    let mut pen = LaneWriter { lane, life, at };
    pen.put(d.stretch, ON_CPU);
    let asking = d.flags & FLAG_ASKING != 0;
    pen.put(d.block, blocked_interval(d.block_reason, None, asking));
    let open = match d.state {
        state::ON_CPU => ON_CPU,
        state::RUNNABLE => runnable_interval(d.detail),
        state::BLOCKED => blocked_interval(d.detail, None, asking),
        _ => return,
    };
    pen.put(d.now.saturating_sub(d.since), open);
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn turn(time: u64, stretch: u64, block: u64, waited: u64) -> Turn {
        let mut t = Turn::new_zeroed();
        (t.time, t.stretch, t.block, t.waited) = (time, stretch, block, waited);
        t
    }

    fn seen(lane: &[Interval]) -> Vec<(u64, u64, State)> {
        lane.iter().map(|i| (i.start_ns, i.ns, i.state)).collect()
    }

    #[test]
    fn turns_become_intervals_within_the_life_of_the_thread() {
        use State::{Blocked, OnCpu, Runnable};
        let (mut lane, c) = (Vec::new(), 100..1000);
        // It was there before: time before its start is not its own.
        put_turn(&mut lane, &c, &turn(200, 60, 50, 10), None);
        put_turn(&mut lane, &c, &turn(300, 40, 0, 60), None);
        // Nothing is known of 300 … 400.
        put_turn(&mut lane, &c, &turn(500, 50, 50, 0), None);
        let mut d = Dump::new_zeroed();
        (d.since, d.now, d.state, d.stretch) = (600, 1200, state::BLOCKED, 100);
        put_open(&mut lane, &c, &d);
        assert_eq!(
            seen(&lane),
            [
                (100, 40, OnCpu),
                (140, 50, Blocked),
                (190, 10, Runnable),
                (200, 40, OnCpu),
                (240, 60, Runnable),
                (400, 50, OnCpu),
                (450, 50, Blocked),
                (500, 100, OnCpu),
                (600, 400, Blocked),
            ]
        );
        // A turn that was told twice adds nothing.
        put_turn(&mut lane, &c, &turn(500, 50, 50, 0), None);
        assert_eq!(lane.len(), 9);
    }

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let size = size_of::<Interval>() as u64;
        let most = 5 * CHUNK as u64;
        let mut turns = Turns::new(most * size);
        let n = 9 * CHUNK as u64;
        for i in 0..n {
            let t = turn(i, 1, 0, 0);
            let words = [t.time, t.stretch, t.block, t.waited, 0, 0];
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_ne_bytes()).collect();
            assert_eq!(turns.take(&bytes), Some(()));
        }
        assert_eq!(turns.kept + turns.dropped, n);
        assert!(
            turns.kept <= most && turns.kept > most / 3,
            "{}",
            turns.kept
        );
        let first = turns.chunks.front().map(|c| c.turns[0].time);
        assert_eq!(first, Some(turns.dropped));
        assert_eq!(turns.take(&[0; 12]), None);
    }
}
