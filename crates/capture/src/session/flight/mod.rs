//! Flight recorder: the single intervals of the last minutes, in bounded memory.
//!
//! A session in windows keeps no timeline, because that would grow without end. Its turns go into a ring of
//! chunks instead, a second or less each. A turn takes some 16 bytes there. The oldest chunk goes when the
//! ring is full or the chunk is older than the limit.
//!
//! A busy machine makes more turns than the ring can hold for the whole length. So a turn counts only if one
//! of its intervals is as long as a threshold. The threshold is zero while the turns fit (`threshold.rs`). The
//! kernel programs apply it, so that a short turn costs no ring space. Shorter intervals stand in the windows'
//! ledgers by second, and each chunk states its threshold.
//!
//! A chunk names its threads by process and thread id, because accounts forget threads that have ended.
//! [`FlightSnapshot::put_into`] gives the intervals to the threads of merged windows.

mod coding;
mod lanes;
mod threshold;
mod writer;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use coding::WrongFlight;
use coding::{Known, Open};
pub use lanes::{FlightMemory, Flown};
pub(super) use writer::FlightWriter;

/// How often a session with a flight recorder reads the ring of turns, ns: 50,000 turns a second write 0.6 MB
/// meanwhile. Each reading is a wake-up.
pub(super) const READ_EVERY: u64 = 200_000_000;
/// Bytes of the kernel's ring of turns: some 37,000 turns.
pub(super) const KERNEL_RING: u32 = 2 << 20;
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
    fn ring_bytes(&self) -> u64 {
        self.bytes / RING_PART
    }

    fn length_ns(&self) -> u64 {
        u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Turns between two times, and the threads that they name.
#[derive(Debug, PartialEq, Eq)]
struct Chunk {
    /// Begin, ns on the recording's clock.
    start_ns: u64,
    /// End, ns.
    end_ns: u64,
    /// Largest threshold in force meanwhile, ns.
    threshold_ns: u64,
    /// Threads by record, ascending.
    threads: Box<[Known]>,
    /// Turns (`coding.rs`).
    turns: Box<[u8]>,
}

impl Chunk {
    fn bytes(&self) -> u64 {
        (size_of::<Chunk>() + size_of_val(&*self.threads) + self.turns.len()) as u64
    }
}

#[derive(Debug)]
struct Ring {
    /// Most bytes of all chunks.
    most: u64,
    chunks: VecDeque<Arc<Chunk>>,
    /// Bytes of all chunks.
    bytes: u64,
    /// Intervals under way at the end of the last window.
    open: Arc<[Open]>,
}

impl Ring {
    fn push(&mut self, chunk: Chunk, limits: &FlightLimits) {
        let oldest_ns = chunk.end_ns.saturating_sub(limits.length_ns());
        self.bytes += chunk.bytes();
        self.chunks.push_back(Arc::new(chunk));
        self.drop_oldest(oldest_ns);
    }

    /// Keeps the bound, and nothing that ended before `oldest_ns`.
    fn drop_oldest(&mut self, oldest_ns: u64) {
        while let Some(first) = self.chunks.front()
            && (first.end_ns < oldest_ns || self.bytes > self.most)
        {
            self.bytes -= first.bytes();
            self.chunks.pop_front();
        }
    }
}

/// A flight recorder: the session writes, others take snapshots.
#[derive(Clone, Debug)]
pub struct FlightRecorder {
    limits: FlightLimits,
    ring: Arc<Mutex<Ring>>,
}

impl FlightRecorder {
    /// An empty one.
    pub fn new(limits: FlightLimits) -> FlightRecorder {
        let ring = Ring {
            most: limits.ring_bytes(),
            chunks: VecDeque::new(),
            bytes: 0,
            open: Arc::default(),
        };
        FlightRecorder {
            limits,
            ring: Arc::new(Mutex::new(ring)),
        }
    }

    /// The ring, even if a thread ended while it held the lock: it is plain data.
    fn lock(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its limits.
    pub fn limits(&self) -> FlightLimits {
        self.limits
    }

    /// Halves the ring so many times; `None`: keeps nothing.
    pub fn halve(&self, times: Option<u32>) {
        let most = times.and_then(|n| self.limits.ring_bytes().checked_shr(n));
        let mut ring = self.lock();
        ring.most = most.unwrap_or(0);
        ring.drop_oldest(0);
    }

    /// Bytes of the ring for a second of turns.
    fn bytes_a_second(&self) -> u64 {
        let seconds = self.limits.length.as_secs_f64().max(1.0);
        (self.lock().most as f64 / seconds) as u64
    }

    /// Bytes of the ring.
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Everything that is kept now. It shares its memory with the ring.
    pub fn snapshot(&self) -> FlightSnapshot {
        let ring = self.lock();
        FlightSnapshot {
            limits: self.limits,
            chunks: ring.chunks.iter().cloned().collect(),
            open: ring.open.clone(),
        }
    }
}

/// The content of a flight recorder at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlightSnapshot {
    limits: FlightLimits,
    chunks: Vec<Arc<Chunk>>,
    open: Arc<[Open]>,
}

#[cfg(test)]
mod tests;
