//! The session's end of a flight recorder.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use zerocopy::FromBytes;

use super::FlightRecorder;
use super::coding;
use super::threshold::Threshold;
use super::values::{Chunk, Known, Open};
use crate::event::Turn;
use crate::session::accounts::Accounts;

/// Collects the turns of a chunk, and hands the chunk over when its time is over.
pub struct FlightWriter {
    recorder: FlightRecorder,
    threshold: Threshold,
    /// Begin of the chunk, ns.
    start_ns: u64,
    /// Time of the last turn, ns.
    last_time: u64,
    turns: Vec<u8>,
    /// Records that its turns name.
    records: FxHashSet<u32>,
}

impl FlightWriter {
    /// A writer that begins at `start_ns`.
    pub fn new(recorder: FlightRecorder, start_ns: u64) -> FlightWriter {
        let threshold = Threshold::new(recorder.bytes_a_second());
        FlightWriter {
            recorder,
            threshold,
            start_ns,
            last_time: start_ns,
            turns: Vec::new(),
            records: FxHashSet::default(),
        }
    }

    /// Length that an interval of a turn must have to be told, ns.
    pub fn threshold_ns(&self) -> u64 {
        self.threshold.ns()
    }

    /// Takes one record of the ring of turns; `None` if it is malformed.
    pub fn take(&mut self, bytes: &[u8]) -> Option<()> {
        let turn = Turn::read_from_prefix(bytes).ok()?.0;
        if !self.threshold.keeps(&turn) {
            return Some(());
        }
        let before = self.turns.len();
        coding::put_turn(&mut self.turns, &turn, self.last_time);
        self.last_time = turn.time;
        self.records.insert(turn.id);
        if turn.waker != 0 {
            self.records.insert(turn.waker);
        }
        let bytes = (self.turns.len() - before) as u64;
        self.threshold.took(&turn, bytes, self.turns.len() as u64);
        Some(())
    }

    /// Ends the chunk at `now`. To be called before accounts fold or forget threads.
    pub fn end_chunk(&mut self, now: u64, accounts: &Accounts) {
        let mut threads: Vec<Known> = (self.records.drain())
            .filter_map(|record| {
                let (pid, tid) = accounts.ids(record.into())?;
                Some(Known { record, pid, tid })
            })
            .collect();
        threads.sort_unstable_by_key(|known| known.record);
        let share = self.recorder.bytes_a_second();
        let threshold_ns = (self.threshold).end_chunk(now.saturating_sub(self.start_ns), share);
        let chunk = Chunk {
            start_ns: self.start_ns,
            end_ns: now,
            threshold_ns,
            threads: threads.into(),
            turns: self.turns.as_slice().into(),
        };
        self.turns.clear();
        // A burst is no reason to keep its memory.
        self.turns.shrink_to(share as usize);
        (self.start_ns, self.last_time) = (now, now);
        self.recorder.push(chunk);
    }

    /// Notes the intervals that are under way at `now`, the end of a window. To be called before accounts forget
    /// threads.
    pub fn note_open(&mut self, now: u64, accounts: &Accounts) {
        let open: Vec<Open> = accounts.living().map(|d| Open::of(d, now)).collect();
        self.recorder.set_open(Arc::from(open));
    }
}
