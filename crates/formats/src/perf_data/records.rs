//! The records of a `perf.data` file: walked, compressed ones unpacked (`perf record -z`).

use std::borrow::Cow;

use zstd_safe::{DCtx, InBuffer, OutBuffer};

use super::super::ReadError;
use super::order::Order;

/// Kinds of records. Those below [`USER`] are the kernel's, the others perf's own.
pub(super) const MMAP: u32 = 1;
pub(super) const LOST: u32 = 2;
pub(super) const COMM: u32 = 3;
pub(super) const FORK: u32 = 7;
pub(super) const SAMPLE: u32 = 9;
pub(super) const MMAP2: u32 = 10;
pub(super) const LOST_SAMPLES: u32 = 13;
pub(super) const SWITCH: u32 = 14;
pub(super) const SWITCH_CPU_WIDE: u32 = 15;
pub(super) const CALLCHAIN_DEFERRED: u32 = 22;
const USER: u32 = 64;
pub(super) const ATTRIBUTE: u32 = 64;
/// Descriptions of tracepoints: more bytes than the record says.
const TRACING_DATA: u32 = 66;
pub(super) const BUILD_ID: u32 = 67;
pub(super) const FINISHED_ROUND: u32 = 68;
/// Processor trace: more bytes than the record says.
pub(super) const AUXTRACE: u32 = 71;
pub(super) const EVENT_UPDATE: u32 = 78;
pub(super) const FEATURE: u32 = 80;
/// All of it is compressed records.
const COMPRESSED: u32 = 81;
/// A length, then compressed records of this length, then padding.
const COMPRESSED2: u32 = 83;

/// Most bytes of one step of decompression.
const STEP_BYTES: usize = 256 << 10;

/// One record.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub kind: u32,
    pub misc: u16,
    /// Its bytes behind the header of eight bytes.
    pub body: &'a [u8],
    /// Bytes that belong to it: its size, and further bytes of some kinds.
    length: usize,
}

impl<'a> Record<'a> {
    /// The record at the beginning of `bytes`; `None` where its size is wrong.
    fn parse(bytes: &'a [u8], order: Order) -> Option<Record<'a>> {
        let kind = order.int(bytes, 0)?;
        let size = usize::from(order.short(bytes, 6)?);
        let body = bytes.get(8..size)?;
        let more = match kind {
            TRACING_DATA => (order.int(body, 0)? as usize).checked_next_multiple_of(8)?,
            AUXTRACE if size < 16 => return None,
            AUXTRACE => usize::try_from(order.long(body, 0)?).ok()?,
            _ => 0,
        };
        let length = size.checked_add(more).filter(|n| *n <= bytes.len())?;
        Some(Record {
            kind,
            misc: order.short(bytes, 4)?,
            body,
            length,
        })
    }

    /// Whether the kernel wrote it.
    pub(super) fn is_kernels(&self) -> bool {
        self.kind < USER
    }
}

/// Walks records up to the first with a wrong size.
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    order: Order,
    /// Where the next record begins.
    pub at: usize,
}

impl<'a> Records<'a> {
    pub(super) fn new(bytes: &'a [u8], order: Order) -> Records<'a> {
        Records {
            bytes,
            order,
            at: 0,
        }
    }

    /// The record at `at`.
    pub(super) fn get(bytes: &'a [u8], at: usize, order: Order) -> Option<Record<'a>> {
        Record::parse(bytes.get(at..)?, order)
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let record = Record::parse(&self.bytes[self.at..], self.order)?;
        self.at += record.length;
        Some(record)
    }
}

/// Records unpacked.
pub(super) struct Unpacked<'a> {
    pub bytes: Cow<'a, [u8]>,
    /// Unpacking stopped before the end, at something damaged.
    pub cut: bool,
}

/// `bytes` with compressed records unpacked.
///
/// # Errors
/// [`ReadError::TooLarge`] beyond `limit` bytes.
pub(super) fn unpack(bytes: &[u8], order: Order, limit: u64) -> Result<Unpacked<'_>, ReadError> {
    let is_packed = |r: Record| matches!(r.kind, COMPRESSED | COMPRESSED2);
    if !Records::new(bytes, order).any(is_packed) {
        return Ok(Unpacked {
            bytes: Cow::Borrowed(bytes),
            cut: false,
        });
    }
    let mut out = Vec::new();
    let mut stream = Stream {
        context: DCtx::create(),
        step: vec![0; STEP_BYTES],
        rest: Vec::new(),
        order,
        limit,
    };
    let mut records = Records::new(bytes, order);
    let mut end = 0;
    loop {
        let from = records.at;
        let Some(r) = records.next() else { break };
        let packed = match r.kind {
            COMPRESSED => Some(r.body),
            COMPRESSED2 => {
                let size = order.long(r.body, 0).unwrap_or(u64::MAX);
                let packed = r.body.get(8..).unwrap_or_default();
                match usize::try_from(size).ok().and_then(|n| packed.get(..n)) {
                    Some(packed) => Some(packed),
                    None => break,
                }
            }
            _ => None,
        };
        match packed {
            Some(packed) => {
                if !stream.unpack(packed, &mut out)? {
                    break;
                }
            }
            None => out.extend_from_slice(&bytes[from..records.at]),
        }
        if out.len() as u64 > limit {
            return Err(too_large(limit));
        }
        end = records.at;
    }
    Ok(Unpacked {
        cut: end < bytes.len() || !stream.rest.is_empty(),
        bytes: Cow::Owned(out),
    })
}

fn too_large(limit: u64) -> ReadError {
    ReadError::TooLarge {
        what: "its compressed records hold more bytes",
        limit_mib: limit >> 20,
    }
}

/// The compressed records: one stream through all of them, in which a record may begin in one and
/// end in the next.
struct Stream {
    context: DCtx<'static>,
    step: Vec<u8>,
    /// The beginning of a record that continues in the next block.
    rest: Vec<u8>,
    order: Order,
    limit: u64,
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
            let mut whole = Records::new(&self.rest, self.order);
            whole.by_ref().for_each(drop);
            let whole = whole.at;
            out.extend(self.rest.drain(..whole));
            if (out.len() + self.rest.len()) as u64 > self.limit {
                return Err(too_large(self.limit));
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
}
