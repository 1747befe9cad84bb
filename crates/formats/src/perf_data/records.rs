//! The records of a `perf.data` file: walked, their sizes checked, compressed ones unpacked
//! (`perf record -z`), before the parser sees them.

use std::ops::Range;

use zstd_safe::{DCtx, InBuffer, OutBuffer};

use super::super::ReadError;
use super::damaged;
use super::order::Order;

const MMAP2: u32 = 10;
const ATTRIBUTE: u32 = 64;
/// Descriptions of tracepoints: more bytes than the record says, and the parser does not know of them.
const TRACING_DATA: u32 = 66;
const AUXTRACE: u32 = 71;
const FEATURE: u32 = 80;
/// All of it is compressed records.
const COMPRESSED: u32 = 81;
/// A length, then so many bytes of compressed records, then padding.
const COMPRESSED2: u32 = 83;

/// The feature that names events.
pub(super) const EVENT_DESC: u32 = 12;

/// Where the flags stand in the description of an event.
const FLAGS: usize = 40;

/// Most bytes of one step of decompression.
const STEP: usize = 256 << 10;

/// One record.
struct Record {
    kind: u32,
    /// What stands behind its header of eight bytes.
    body: Range<usize>,
    /// Where the next one begins: some records have more bytes behind them than they say.
    next: usize,
}

/// The record at `at`; `None` where what its size says is not so.
fn record(bytes: &[u8], at: usize, end: usize, order: Order) -> Option<Record> {
    let kind = order.int(bytes, at)?;
    let size = usize::from(order.short(bytes, at + 6)?);
    let body = at + 8..at.checked_add(size)?;
    if size < 8 || body.end > end {
        return None;
    }
    let more = match kind {
        TRACING_DATA => (order.int(bytes, body.start)? as usize).checked_next_multiple_of(8)?,
        AUXTRACE if size < 16 => return None,
        AUXTRACE => usize::try_from(order.long(bytes, body.start)?).ok()?,
        _ => 0,
    };
    let next = body.end.checked_add(more).filter(|n| *n <= end)?;
    Some(Record { kind, body, next })
}

/// Makes the records in `range` fit, and their flags those of a little-endian machine; returns where
/// the last one ends whose sizes are true.
///
/// # Errors
/// [`ReadError::Damaged`] where the events are not described.
pub(super) fn fit(bytes: &mut [u8], range: Range<usize>, order: Order) -> Result<usize, ReadError> {
    /// Of [`MMAP2`]: a build id stands in place of the inode.
    const WITH_BUILD_ID: u16 = 1 << 14;
    let mut at = range.start;
    while let Some(r) = record(bytes, at, range.end, order) {
        match r.kind {
            MMAP2
                if r.body.len() > 32
                    && order.short(bytes, at + 4).unwrap_or(0) & WITH_BUILD_ID != 0 =>
            {
                // More bytes than a build id has.
                bytes[at + 40] = bytes[at + 40].min(20);
            }
            ATTRIBUTE => turn(bytes, r.body.start, order),
            FEATURE
                if r.body.len() >= 8
                    && order.long(bytes, r.body.start) == Some(EVENT_DESC.into()) =>
            {
                let own = r.body.start + 8;
                let events = events(&bytes[own..r.body.end], order);
                let events =
                    events.ok_or_else(|| damaged("its header does not describe its events"))?;
                for event in events {
                    turn(bytes, own + event, order);
                }
            }
            _ => {}
        }
        at = r.next;
    }
    Ok(at)
}

/// Where the events stand in their description, which is walked through; `None` where it is not whole.
pub(super) fn events(data: &[u8], order: Order) -> Option<Vec<usize>> {
    let (events, attribute) = (order.int(data, 0)?, order.int(data, 4)? as usize);
    let mut at = 8usize;
    if attribute < 64 || events as usize > data.len() / attribute {
        return None;
    }
    let mut all = Vec::with_capacity(events as usize);
    for _ in 0..events {
        all.push(at);
        at = at.checked_add(attribute)?;
        let ids = order.int(data, at)? as usize;
        let name = order.int(data, at.checked_add(4)?)? as usize;
        at = at
            .checked_add(8)?
            .checked_add(name)?
            .checked_add(ids.checked_mul(8)?)?;
        data.get(..at)?;
    }
    Some(all)
}

/// Makes the flags of the event that is described at `at` those of a little-endian machine.
pub(super) fn turn(bytes: &mut [u8], at: usize, order: Order) {
    order.turn_flags(bytes, at + FLAGS);
}

/// Records unpacked.
pub(super) struct Unpacked {
    pub bytes: Vec<u8>,
    /// Whether it stopped before the end, at what was damaged.
    pub cut: bool,
}

/// The records in `range` with compressed ones unpacked and descriptions of tracepoints left out;
/// `None` where there are neither.
///
/// # Errors
/// [`ReadError::TooLarge`] beyond `most` bytes.
pub(super) fn unpack(
    bytes: &[u8],
    range: Range<usize>,
    order: Order,
    most: u64,
) -> Result<Option<Unpacked>, ReadError> {
    let walk = || {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let from = at;
            let r = record(bytes, at, range.end, order)?;
            at = r.next;
            Some((from, r))
        })
    };
    if !walk().any(|(_, r)| matches!(r.kind, COMPRESSED | COMPRESSED2 | TRACING_DATA)) {
        return Ok(None);
    }
    let mut out = Vec::new();
    let mut stream = Stream {
        context: DCtx::create(),
        step: vec![0; STEP],
        rest: Vec::new(),
        order,
        most,
    };
    let mut end = range.start;
    for (from, r) in walk() {
        let packed = match r.kind {
            TRACING_DATA => {
                end = r.next;
                continue;
            }
            COMPRESSED => Some(r.body.clone()),
            COMPRESSED2 => {
                let size = order.long(bytes, r.body.start).unwrap_or(u64::MAX);
                let packed = r.body.start.saturating_add(8)..r.body.end;
                match usize::try_from(size).ok().filter(|n| *n <= packed.len()) {
                    Some(n) => Some(packed.start..packed.start + n),
                    None => break,
                }
            }
            _ => None,
        };
        match packed {
            Some(packed) => {
                if !stream.unpack(&bytes[packed], &mut out)? {
                    break;
                }
            }
            None => out.extend_from_slice(&bytes[from..r.next]),
        }
        if out.len() as u64 > most {
            return Err(too_large(most));
        }
        end = r.next;
    }
    Ok(Some(Unpacked {
        cut: end < range.end || !stream.rest.is_empty(),
        bytes: out,
    }))
}

fn too_large(most: u64) -> ReadError {
    ReadError::TooLarge {
        what: "its compressed records hold more bytes",
        limit_mib: most >> 20,
    }
}

/// The compressed records: one stream through all of them, in which a record may begin in one and
/// end in the next.
struct Stream {
    context: DCtx<'static>,
    step: Vec<u8>,
    /// The beginning of a record whose end has not come yet.
    rest: Vec<u8>,
    order: Order,
    most: u64,
}

impl Stream {
    /// Appends the records that `packed` completes; `false` where it is damaged.
    fn unpack(&mut self, packed: &[u8], out: &mut Vec<u8>) -> Result<bool, ReadError> {
        let mut input = InBuffer::around(packed);
        loop {
            let mut output = OutBuffer::around(&mut self.step[..]);
            let before = input.pos();
            let went = self.context.decompress_stream(&mut output, &mut input);
            let n = output.pos();
            self.rest.extend_from_slice(&self.step[..n]);
            let whole = self.whole();
            out.extend(self.rest.drain(..whole));
            if (out.len() + self.rest.len()) as u64 > self.most {
                return Err(too_large(self.most));
            }
            if went.is_err() {
                return Ok(false);
            }
            let all_taken = input.pos() == packed.len();
            if all_taken && n < self.step.len() || n == 0 && input.pos() == before {
                return Ok(all_taken);
            }
        }
    }

    /// Where the last whole record of `rest` ends.
    fn whole(&self) -> usize {
        let mut at = 0;
        while let Some(r) = record(&self.rest, at, self.rest.len(), self.order) {
            at = r.next;
        }
        at
    }
}
