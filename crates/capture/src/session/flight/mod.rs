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
mod values;
mod writer;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use coding::WrongFlight;
pub use lanes::{FlightMemory, FlightPart};
use values::{Chunk, Open};
pub use values::{FlightLimits, FlightSnapshot};
pub(super) use writer::FlightWriter;

/// Bytes of the kernel's ring of turns: some 37,000 turns.
pub(super) const KERNEL_RING: u32 = 2 << 20;
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

    fn push(&self, chunk: Chunk) {
        self.lock().push(chunk, &self.limits);
    }

    fn set_open(&self, open: Arc<[Open]>) {
        self.lock().open = open;
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

#[cfg(test)]
mod tests;
