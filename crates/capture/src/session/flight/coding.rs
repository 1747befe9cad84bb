//! Bytes of turns in a chunk, and of a snapshot on its way to another process.
//!
//! Numbers are LEB128: seven bits a byte, the lowest first. A turn is its distance in time from the turn
//! before (zigzag, since CPUs write nearly in order), the lengths of its intervals, its record, the waker's
//! record, and one byte for reason, part and request.

use std::sync::Arc;
use std::time::Duration;

use zerocopy::FromZeros;

use super::values::{Chunk, FlightLimits, FlightSnapshot, Known, Open};
use crate::event::Turn;

/// First bytes of a snapshot. Another layout gets another number.
const MAGIC: &[u8] = b"wallscope.flight/1\n";
/// Largest reason that a turn's byte can hold; it stands for an unknown one.
const NO_REASON: u8 = 31;

pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a turn to those of a chunk; `last_time`: the time of the turn before.
pub(super) fn put_turn(out: &mut Vec<u8>, t: &Turn, last_time: u64) {
    let after = t.time.wrapping_sub(last_time) as i64;
    put(out, (after << 1 ^ after >> 63) as u64);
    for n in [t.stretch, t.block, t.waited, t.id.into(), t.waker.into()] {
        put(out, n);
    }
    out.push(t.reason.min(NO_REASON) | (t.part & 3) << 5 | u8::from(t.asking != 0) << 7);
}

/// A reader of bytes that may be damaged.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut n = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(n);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = usize::try_from(self.number()?).ok()?;
        let (taken, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(taken)
    }

    /// As many values as the bytes say, no more than bytes are left.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = usize::try_from(self.number()?).ok()?;
        let mut all = Vec::with_capacity(n.min(self.0.len()));
        for _ in 0..n {
            all.push(one(self)?);
        }
        Some(all)
    }

    /// The next turn; `last_time`: the time of the turn before.
    pub fn turn(&mut self, last_time: u64) -> Option<Turn> {
        let zigzag = self.number()?;
        let after = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let mut t = Turn::new_zeroed();
        t.time = last_time.wrapping_add(after as u64);
        (t.stretch, t.block, t.waited) = (self.number()?, self.number()?, self.number()?);
        (t.id, t.waker) = (self.small()?, self.small()?);
        let kind = self.byte()?;
        (t.reason, t.part, t.asking) = (kind & NO_REASON, kind >> 5 & 3, kind >> 7);
        Some(t)
    }

    fn known(&mut self) -> Option<Known> {
        Some(Known {
            record: self.small()?,
            pid: self.small()?,
            tid: self.small()?,
        })
    }

    fn chunk(&mut self) -> Option<Arc<Chunk>> {
        let (start_ns, end_ns) = (self.number()?, self.number()?);
        Some(Arc::new(Chunk {
            start_ns,
            end_ns,
            threshold_ns: self.number()?,
            threads: self.list(Reader::known)?.into(),
            turns: self.bytes()?.into(),
        }))
    }

    fn open(&mut self) -> Option<Open> {
        Some(Open {
            pid: self.small()?,
            tid: self.small()?,
            since: self.number()?,
            now: self.number()?,
            stretch: self.number()?,
            block: self.number()?,
            kind: [
                self.byte()?,
                self.byte()?,
                self.byte()?,
                self.byte()?.min(1),
            ],
        })
    }

    fn snapshot(&mut self) -> Option<FlightSnapshot> {
        Some(FlightSnapshot {
            limits: FlightLimits {
                length: Duration::from_nanos(self.number()?),
                bytes: self.number()?,
            },
            chunks: self.list(Reader::chunk)?,
            open: self.list(Reader::open)?.into(),
        })
    }
}

/// Bytes that are no snapshot of a flight recorder, or one of another version.
#[derive(Debug, thiserror::Error)]
#[error("the agent's time lines have another layout: restart the agent after an upgrade")]
pub struct WrongFlight;

impl FlightSnapshot {
    /// The snapshot as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let turns: usize = self.chunks.iter().map(|c| c.turns.len()).sum();
        let mut out = Vec::with_capacity(turns + turns / 8 + 64 * self.open.len());
        out.extend(MAGIC);
        put(&mut out, self.limits.length_ns());
        put(&mut out, self.limits.bytes);
        put(&mut out, self.chunks.len() as u64);
        for c in &self.chunks {
            for n in [c.start_ns, c.end_ns, c.threshold_ns, c.threads.len() as u64] {
                put(&mut out, n);
            }
            for k in &c.threads {
                for n in [k.record, k.pid, k.tid] {
                    put(&mut out, n.into());
                }
            }
            put(&mut out, c.turns.len() as u64);
            out.extend(&c.turns);
        }
        put(&mut out, self.open.len() as u64);
        for o in self.open.iter() {
            for n in [
                o.pid.into(),
                o.tid.into(),
                o.since,
                o.now,
                o.stretch,
                o.block,
            ] {
                put(&mut out, n);
            }
            out.extend(o.kind);
        }
        out
    }

    /// The snapshot that these bytes are.
    ///
    /// # Errors
    /// They are none.
    pub fn decode(bytes: &[u8]) -> Result<FlightSnapshot, WrongFlight> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(WrongFlight)?;
        let mut reader = Reader(rest);
        let snapshot = reader.snapshot().filter(|_| reader.0.is_empty());
        snapshot.ok_or(WrongFlight)
    }
}
