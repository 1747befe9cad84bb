//! The header of the file, looked at before anything is taken from it: sizes and places are within the
//! file, or what they belong to is left out. The parser behind it believes them.

use super::super::ReadError;
use super::damaged;
use super::order::Order;
use super::records::{self, EVENT_DESC};

/// Bytes of the header.
const HEADER: usize = 104;
/// Where sections stand in it: offset, then size.
const ATTRIBUTES: usize = 24;
const DATA: usize = 40;
const EVENT_TYPES: usize = 56;
const FEATURES: usize = 72;
/// Bytes of the header of a file that was written to a pipe.
const PIPE_HEADER: usize = 16;

/// A section's bounds, if it lies within the file.
fn section(bytes: &[u8], at: usize, order: Order) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(order.long(bytes, at)?).ok()?;
    let size = usize::try_from(order.long(bytes, at.checked_add(8)?)?).ok()?;
    let end = start.checked_add(size)?;
    (end <= bytes.len()).then_some(start..end)
}

/// Whether it was written to a pipe: then records follow each other, and there is no header to speak of.
pub(super) fn is_pipe(bytes: &[u8]) -> bool {
    Order::of(bytes).long(bytes, 8) == Some(PIPE_HEADER as u64)
}

/// Makes the header fit the file and unpacks its records, to `most` bytes; returns whether something
/// had to be left out because the file ends before it.
///
/// # Errors
/// [`ReadError::Damaged`] where the events are not described, [`ReadError::TooLarge`].
pub(super) fn fit(bytes: &mut Vec<u8>, most: u64) -> Result<bool, ReadError> {
    let order = Order::of(bytes);
    if bytes.len() < HEADER {
        return Err(ReadError::Truncated);
    }
    let attribute = order.long(bytes, 16).unwrap_or(0);
    let attributes = section(bytes, ATTRIBUTES, order)
        .filter(|_| (64..=4096).contains(&attribute))
        .ok_or_else(|| damaged("its header does not describe its events"))?;
    // perf of before 2013 named events here; the parser believes what stands there.
    bytes[EVENT_TYPES..EVENT_TYPES + 16].fill(0);
    let len = bytes.len() as u64;
    let (start, size) = (
        order.long(bytes, DATA).unwrap_or(0),
        order.long(bytes, DATA + 8).unwrap_or(0),
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
    let (start, mut end) = (
        start as usize,
        if whole { start + size } else { len } as usize,
    );
    for event in attributes.step_by(attribute as usize) {
        records::turn(bytes, event, order);
    }
    let mut cut = !whole;
    if let Some(unpacked) = records::unpack(bytes, start..end, order, most)? {
        cut |= unpacked.cut;
        let new_end = start + unpacked.bytes.len();
        bytes.splice(start..end, unpacked.bytes);
        move_features(bytes, end as u64, new_end, order);
        end = new_end;
        order.put_long(bytes, DATA + 8, (end - start) as u64);
    }
    let good = records::fit(bytes, start..end, order)?;
    cut |= good < end;
    let features = !cut && features_fit(bytes, end, order);
    if cut {
        order.put_long(bytes, DATA + 8, (good - start) as u64);
    }
    if !features {
        let had = bytes[FEATURES..HEADER].iter().any(|b| *b != 0);
        bytes[FEATURES..HEADER].fill(0);
        return Ok(cut || had);
    }
    Ok(false)
}

/// Makes the records of a file that was written to a pipe fit, as [`fit`]; returns whether it ends in
/// the middle.
///
/// # Errors
/// As [`fit`].
pub(super) fn fit_pipe(bytes: &mut Vec<u8>, most: u64) -> Result<bool, ReadError> {
    let order = Order::of(bytes);
    let mut cut = false;
    if let Some(unpacked) = records::unpack(bytes, PIPE_HEADER..bytes.len(), order, most)? {
        cut = unpacked.cut;
        bytes.truncate(PIPE_HEADER);
        bytes.extend(unpacked.bytes);
    }
    let end = bytes.len();
    let good = records::fit(bytes, PIPE_HEADER..end, order)?;
    bytes.truncate(good);
    Ok(cut || good < end)
}

/// The features that the header says there are.
fn features(bytes: &[u8], order: Order) -> impl Iterator<Item = u32> + use<> {
    let words: Vec<u64> = (FEATURES..HEADER)
        .step_by(8)
        .map(|at| order.long(bytes, at).unwrap_or(0))
        .collect();
    (0..256u32).filter(move |bit| words[*bit as usize / 64] >> (bit % 64) & 1 == 1)
}

/// The data's end has moved from `old` to `at`, and what lay behind it with it.
fn move_features(bytes: &mut [u8], old: u64, at: usize, order: Order) {
    for (i, _) in features(bytes, order).enumerate() {
        let entry = at + 16 * i;
        if let Some(offset) = order.long(bytes, entry).filter(|o| *o >= old) {
            order.put_long(bytes, entry, (offset - old).wrapping_add(at as u64));
        }
    }
}

/// Whether every feature's section lies in the file, and the names of events in theirs, whose flags
/// are turned.
fn features_fit(bytes: &mut [u8], at: usize, order: Order) -> bool {
    for (i, bit) in features(bytes, order).enumerate() {
        let Some(own) = section(bytes, at + 16 * i, order) else {
            return false;
        };
        if bit == EVENT_DESC {
            let start = own.start;
            let Some(events) = records::events(&bytes[own], order) else {
                return false;
            };
            for event in events {
                records::turn(bytes, start + event, order);
            }
        }
    }
    true
}

/// The text of a feature that is one.
pub(super) fn text(data: Option<&[u8]>, order: Order) -> String {
    data.and_then(|d| text_at(d, 0, order))
        .map_or(String::new(), |(t, _)| t)
}

/// The texts of a feature that is a list of them.
pub(super) fn texts(data: Option<&[u8]>, order: Order) -> Vec<String> {
    let mut out = Vec::new();
    let Some(data) = data else { return out };
    let n = order.int(data, 0).unwrap_or(0);
    let mut at = 4;
    for _ in 0..n {
        let Some((text, next)) = text_at(data, at, order) else {
            break;
        };
        out.push(text);
        at = next;
    }
    out
}

fn text_at(data: &[u8], at: usize, order: Order) -> Option<(String, usize)> {
    let size = order.int(data, at)? as usize;
    let end = at.checked_add(4)?.checked_add(size)?;
    let own = data.get(at + 4..end)?;
    let own = own.split(|c| *c == 0).next().unwrap_or(own);
    Some((String::from_utf8_lossy(own).into_owned(), end))
}

/// CPUs online: the second of two numbers.
pub(super) fn cpus(data: Option<&[u8]>, order: Order) -> u32 {
    data.and_then(|d| order.int(d, 4)).unwrap_or(0)
}
