//! The header of the file, looked at before anything is taken from it: sizes and places are within the
//! file, or what they belong to is left out. The parser behind it believes them.

use super::super::ReadError;
use super::damaged;

/// Bytes of the header.
const HEADER: usize = 104;
/// Where sections stand in it: offset, then size.
const ATTRIBUTES: usize = 24;
const DATA: usize = 40;
const EVENT_TYPES: usize = 56;
const FEATURES: usize = 72;
/// The feature that names events.
const EVENT_DESC: u32 = 12;

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    let b: [u8; 8] = bytes.get(at..at.checked_add(8)?)?.try_into().ok()?;
    Some(u64::from_le_bytes(b))
}

fn int(bytes: &[u8], at: usize) -> Option<u32> {
    let b: [u8; 4] = bytes.get(at..at.checked_add(4)?)?.try_into().ok()?;
    Some(u32::from_le_bytes(b))
}

/// A section that lies within the file.
fn section(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let start = usize::try_from(long(bytes, at)?).ok()?;
    let size = usize::try_from(long(bytes, at + 8)?).ok()?;
    bytes.get(start..start.checked_add(size)?)
}

/// Makes the header fit the file; returns whether something had to be left out because the file
/// ends before it.
///
/// # Errors
/// [`ReadError::Damaged`] where the events are not described, or it is another machine's file.
pub(super) fn fit(bytes: &mut [u8]) -> Result<bool, ReadError> {
    if bytes.starts_with(b"2ELIFREP") {
        return Err(damaged(
            "it comes from a big-endian machine, which is not read here",
        ));
    }
    if bytes.len() < HEADER {
        return Err(ReadError::Truncated);
    }
    let attribute = long(bytes, 16).unwrap_or(0);
    if !(64..=4096).contains(&attribute) || section(bytes, ATTRIBUTES).is_none() {
        return Err(damaged("its header does not describe its events"));
    }
    // perf of before 2013 named events here; the parser believes what stands there.
    bytes[EVENT_TYPES..EVENT_TYPES + 16].fill(0);
    let len = bytes.len() as u64;
    let (start, size) = (
        long(bytes, DATA).unwrap_or(0),
        long(bytes, DATA + 8).unwrap_or(0),
    );
    if start > len {
        return Err(ReadError::Truncated);
    }
    if start < HEADER as u64 {
        return Err(damaged(
            "its header says that its data lies within the header",
        ));
    }
    // Without its end perf itself has not said how long the data is.
    let whole = size > 0 && start.checked_add(size).is_some_and(|end| end <= len);
    let end = if whole { start + size } else { len } as usize;
    let good = records_fit(bytes, start as usize, end)?;
    let cut = !whole || good < end;
    let features = !cut && features_fit(bytes, end);
    if cut {
        let size = (good as u64 - start).to_le_bytes();
        bytes[DATA + 8..DATA + 16].copy_from_slice(&size);
    }
    if !features {
        let had = bytes[FEATURES..HEADER].iter().any(|b| *b != 0);
        bytes[FEATURES..HEADER].fill(0);
        return Ok(cut || had);
    }
    Ok(false)
}

/// Makes the records of a file that was written to a pipe fit; returns whether it ends in the middle.
///
/// # Errors
/// As [`fit`].
pub(super) fn fit_pipe(bytes: &mut Vec<u8>) -> Result<bool, ReadError> {
    if let Some(range) = tracing_data(bytes) {
        bytes.drain(range);
    }
    let end = bytes.len();
    let good = records_fit(bytes, 16, end)?;
    bytes.truncate(good);
    Ok(good < end)
}

/// Descriptions of tracepoints: more bytes than the record says, and the parser does not know of them.
const TRACING_DATA: u32 = 66;

/// Where the descriptions of tracepoints lie among the records of a pipe.
fn tracing_data(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let mut at = 16usize;
    loop {
        let size = usize::from(u16::from_le_bytes([
            *bytes.get(at + 6)?,
            *bytes.get(at + 7)?,
        ]));
        if size < 8 {
            return None;
        }
        if int(bytes, at)? == TRACING_DATA {
            let more = (int(bytes, at + 8)? as usize).next_multiple_of(8);
            let end = (at + size).checked_add(more)?;
            return (end <= bytes.len()).then_some(at..end);
        }
        at += size;
    }
}

/// Walks the records between two places; returns where the last one ends whose sizes are true.
fn records_fit(bytes: &mut [u8], start: usize, end: usize) -> Result<usize, ReadError> {
    const MMAP2: u32 = 10;
    const AUXTRACE: u32 = 71;
    const FEATURE: u32 = 80;
    /// Of [`MMAP2`]: a build id stands in place of the inode.
    const WITH_BUILD_ID: u8 = 1 << 6;
    let mut at = start;
    while at + 8 <= end {
        let kind = int(bytes, at).unwrap_or(0);
        let size = usize::from(u16::from_le_bytes([bytes[at + 6], bytes[at + 7]]));
        if size < 8 || at + size > end {
            break;
        }
        let mut next = at + size;
        match kind {
            MMAP2 if bytes[at + 5] & WITH_BUILD_ID != 0 && size > 40 => {
                // More bytes than a build id has.
                bytes[at + 40] = bytes[at + 40].min(20);
            }
            // What follows such a record belongs to it.
            AUXTRACE => {
                let more = long(bytes, at + 8).and_then(|n| usize::try_from(n).ok());
                match more.and_then(|n| next.checked_add(n)).filter(|n| *n <= end) {
                    Some(after) if size >= 16 => next = after,
                    _ => break,
                }
            }
            TRACING_DATA => break,
            FEATURE if size >= 16 && long(bytes, at + 8) == Some(EVENT_DESC.into()) => {
                let own = &bytes[at + 16..at + size];
                if events_fit(own).is_none() {
                    return Err(damaged("its header does not describe its events"));
                }
            }
            _ => {}
        }
        at = next;
    }
    Ok(at)
}

/// Whether every feature's section lies in the file, and the names of events in theirs.
fn features_fit(bytes: &[u8], mut at: usize) -> bool {
    for bit in 0..256u32 {
        if bytes[FEATURES + bit as usize / 8] >> (bit % 8) & 1 == 0 {
            continue;
        }
        let Some(data) = section(bytes, at) else {
            return false;
        };
        if bit == EVENT_DESC && events_fit(data).is_none() {
            return false;
        }
        at += 16;
    }
    true
}

/// The description of events, walked through.
fn events_fit(data: &[u8]) -> Option<()> {
    let (events, attribute) = (int(data, 0)?, int(data, 4)? as usize);
    let mut at = 8usize;
    if attribute < 64 || events as usize > data.len() / attribute {
        return None;
    }
    for _ in 0..events {
        at = at.checked_add(attribute)?;
        let ids = int(data, at)? as usize;
        let name = int(data, at.checked_add(4)?)? as usize;
        at = at
            .checked_add(8)?
            .checked_add(name)?
            .checked_add(ids.checked_mul(8)?)?;
        data.get(..at)?;
    }
    Some(())
}

/// The text of a feature that is one.
pub(super) fn text(data: Option<&[u8]>) -> String {
    data.and_then(|d| text_at(d, 0))
        .map_or(String::new(), |(t, _)| t)
}

/// The texts of a feature that is a list of them.
pub(super) fn texts(data: Option<&[u8]>) -> Vec<String> {
    let mut out = Vec::new();
    let Some(data) = data else { return out };
    let n = int(data, 0).unwrap_or(0);
    let mut at = 4;
    for _ in 0..n {
        let Some((text, next)) = text_at(data, at) else {
            break;
        };
        out.push(text);
        at = next;
    }
    out
}

fn text_at(data: &[u8], at: usize) -> Option<(String, usize)> {
    let size = int(data, at)? as usize;
    let end = at.checked_add(4)?.checked_add(size)?;
    let own = data.get(at + 4..end)?;
    let own = own.split(|c| *c == 0).next().unwrap_or(own);
    Some((String::from_utf8_lossy(own).into_owned(), end))
}

/// CPUs online: the second of two numbers.
pub(super) fn cpus(data: Option<&[u8]>) -> u32 {
    data.and_then(|d| int(d, 4)).unwrap_or(0)
}
