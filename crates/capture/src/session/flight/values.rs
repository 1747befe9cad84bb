//! Content and limits of a flight recorder.

use std::sync::Arc;
use std::time::Duration;

use zerocopy::FromZeros;

use crate::event::{Dump, FLAG_ASKING};

/// Part of the memory that the ring takes. A snap needs the rest: its intervals are some three times as large.
const RING_PART: u64 = 4;

/// Limits of a flight recorder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlightLimits {
    /// Time that it keeps.
    pub length: Duration,
    /// Memory for the ring and for the intervals of one snap, bytes.
    pub bytes: u64,
}

impl FlightLimits {
    /// Bytes of the ring.
    pub(super) fn ring_bytes(&self) -> u64 {
        self.bytes / RING_PART
    }

    pub(super) fn length_ns(&self) -> u64 {
        u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Turns between two times, and the threads that they name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chunk {
    /// Begin, ns on the recording's clock.
    pub start_ns: u64,
    /// End, ns.
    pub end_ns: u64,
    /// Largest threshold in force meanwhile, ns.
    pub threshold_ns: u64,
    /// Threads by record, ascending.
    pub threads: Box<[Known]>,
    /// Turns (`coding.rs`).
    pub turns: Box<[u8]>,
}

impl Chunk {
    pub fn bytes(&self) -> u64 {
        (size_of::<Chunk>() + size_of_val(&*self.threads) + self.turns.len()) as u64
    }
}

/// A thread that turns name by its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub record: u32,
    pub pid: u32,
    pub tid: u32,
}

/// The interval of a thread that is under way, and the parts of its turn before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub pid: u32,
    pub tid: u32,
    /// When the interval began, ns.
    pub since: u64,
    /// Time of the reading, at which the interval was still under way, ns.
    pub now: u64,
    /// Stretch on a CPU before it, ns.
    pub stretch: u64,
    /// Block before it, ns.
    pub block: u64,
    /// State, its detail, reason of the block, whether a request is in flight.
    pub kind: [u8; 4],
}

impl Open {
    /// The interval by the last figures `d`, which still hold at `now`.
    pub fn of(d: &Dump, now: u64) -> Open {
        Open {
            pid: d.pid,
            tid: d.tid,
            since: d.since,
            now: d.now.max(now),
            stretch: d.stretch,
            block: d.block,
            kind: [
                d.state,
                d.detail,
                d.block_reason,
                u8::from(d.flags & FLAG_ASKING != 0),
            ],
        }
    }

    /// The figures that it was made of, without sums.
    pub fn dump(&self) -> Dump {
        let mut d = Dump::new_zeroed();
        (d.pid, d.tid, d.since, d.now) = (self.pid, self.tid, self.since, self.now);
        (d.stretch, d.block) = (self.stretch, self.block);
        let asking;
        [d.state, d.detail, d.block_reason, asking] = self.kind;
        d.flags = asking * FLAG_ASKING;
        d
    }
}

/// The content of a flight recorder at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlightSnapshot {
    pub(super) limits: FlightLimits,
    pub(super) chunks: Vec<Arc<Chunk>>,
    pub(super) open: Arc<[Open]>,
}
