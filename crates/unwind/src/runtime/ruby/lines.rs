//! The interpreter's line table: instruction → line.
//!
//! A bit for each word of an iseq tells whether an entry begins there. For the first words, running
//! counts are stored in place of bits. This module converts them to pairs of position and line,
//! behind the lower half of the code's address.

use super::super::memory::Memory;

/// Words with bits stored as counts: nine counts of seven bits in eight bytes.
const COUNTED: u32 = 54;
/// Bytes of the counts, bytes of each further block of 512 words, and the offset of its 64 bytes of
/// bits.
const COUNTS: u64 = 48;
const BLOCK: usize = 80;
const BITS: usize = 16;
/// Maximum entries of a table, and maximum words of an iseq.
const MOST: u32 = 1 << 16;
const MOST_WORDS: u32 = 1 << 20;

/// Line table fields of an iseq's body.
pub(super) struct Found {
    /// Address of the entries, and bytes of each.
    pub(super) entries: u64,
    pub(super) entry: usize,
    /// Number of entries.
    pub(super) count: u32,
    /// Address of the positions.
    pub(super) places: u64,
    /// Number of words of the code, and its address.
    pub(super) words: u32,
    pub(super) first: u64,
}

/// Reads the table in the form that [`line_at`] takes; `None` if it is invalid.
pub(super) fn read(memory: &mut Memory<'_>, found: &Found) -> Option<Vec<u8>> {
    let count = found.count;
    if count == 0 || count > MOST || found.words > MOST_WORDS {
        return None;
    }
    let mut entries = vec![0u8; count as usize * found.entry];
    memory.bytes(found.entries, &mut entries)?;
    let places = match count {
        1 => vec![0],
        _ => places(memory, found.places, found.words)?,
    };
    if places.len() != count as usize {
        return None;
    }
    let mut table = (found.first as u32).to_le_bytes().to_vec();
    for (place, entry) in places.iter().zip(entries.chunks_exact(found.entry)) {
        table.extend(place.to_le_bytes());
        table.extend(&entry[..4]);
    }
    Some(table)
}

/// The words at which an entry begins, ascending.
fn places(memory: &mut Memory<'_>, at: u64, words: u32) -> Option<Vec<u32>> {
    let mut counts = [0u8; COUNTS as usize];
    memory.bytes(at, &mut counts)?;
    let mut found = Vec::new();
    let mut before = 0;
    for place in 0..words.min(COUNTED) {
        let from = place as usize / 9 * 8;
        let nine = u64::from_le_bytes(counts[from..from + 8].try_into().expect("eight bytes"));
        let count = nine >> (7 * (place % 9)) & 127;
        if count > before {
            found.push(place);
        }
        before = count;
    }
    let blocks = words.saturating_sub(COUNTED).div_ceil(512) as usize;
    let mut bytes = vec![0u8; blocks * BLOCK];
    if blocks > 0 {
        memory.bytes(at.wrapping_add(COUNTS), &mut bytes)?;
    }
    for (block, bytes) in bytes.chunks_exact(BLOCK).enumerate() {
        for (i, byte) in bytes[BITS..].iter().enumerate() {
            let from = COUNTED + block as u32 * 512 + i as u32 * 8;
            let set = (0..8).filter(|bit| byte >> bit & 1 == 1);
            found.extend(set.map(|bit| from + bit).filter(|place| *place < words));
        }
    }
    Some(found)
}

/// The line of the call before the instruction at an address that ends with `next`.
pub(in crate::runtime) fn line_at(table: &[u8], next: u32) -> Option<u32> {
    let half = |b: &[u8]| u32::from_le_bytes(b.try_into().expect("four bytes"));
    let (first, pairs) = table.split_at_checked(4)?;
    // A frame points behind the instruction that it runs.
    let place = (next.wrapping_sub(half(first)) / 8).saturating_sub(1);
    let (pairs, _) = pairs.as_chunks::<8>();
    let behind = pairs.partition_point(|p| half(&p[..4]) <= place);
    Some(half(&pairs[behind.checked_sub(1)?][4..]))
}
