//! Code of a file that a process runs from anonymous memory.
//!
//! Programs move their text to anonymous pages at its own addresses, to get large pages; the mappings beside it
//! tell the file (`procfs::maps`). Node.js then copies V8's built-in functions as well, near the code that V8
//! makes. No mapping tells from where, so the bytes do: they are compared with the file that was moved.

use std::ops::Range;

use wallscope_binfmt::elf::Elf;

use crate::target::read_memory;

const PAGE: usize = 4096;
/// Sizes of a copy that is searched for, bytes.
const COPY_BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=64 << 20;
/// Pages of a copy that are compared.
const COMPARED: u64 = 16;

/// A part of a file in anonymous memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MovedCode {
    /// Addresses.
    pub range: Range<u64>,
    /// The file (an index of [`Files`](super::files::Files)), and the offset in it.
    pub file: u16,
    /// Offset of the first byte in the file.
    pub offset: u64,
}

/// The offset in `file` of the code at `range` of process `pid`, if it is a copy of a part of the file's code.
pub fn copied_from(file: &[u8], pid: u32, range: Range<u64>) -> Option<u64> {
    if !COPY_BYTES.contains(&(range.end - range.start)) {
        return None;
    }
    let elf = Elf::parse(file).ok()?;
    let code: Vec<Range<u64>> = elf
        .segments()
        .iter()
        .filter(|s| s.executable)
        .map(|s| s.offset..s.offset.saturating_add(s.file_size))
        .collect();
    let memory = |at: u64, to: &mut [u8]| read_memory(pid, at, to) == to.len();
    find(file, &code, range, memory)
}

/// The offset in `file`, within `code`, of the pages that `memory` has at `range`.
fn find(
    file: &[u8],
    code: &[Range<u64>],
    range: Range<u64>,
    memory: impl Fn(u64, &mut [u8]) -> bool,
) -> Option<u64> {
    let mut page = [0u8; PAGE];
    // Padding would be found in many places.
    if !memory(range.start, &mut page) || page.iter().all(|b| *b == page[0]) {
        return None;
    }
    let page_of = |offset: u64| {
        let at = usize::try_from(offset).ok()?;
        file.get(at..at.checked_add(PAGE)?)
    };
    let starts = code.iter().flat_map(|c| {
        let first = c.start.next_multiple_of(PAGE as u64);
        (first..c.end).step_by(PAGE)
    });
    let pages = (range.end - range.start) / PAGE as u64;
    // The last page may end with other bytes.
    let compared = (0..COMPARED).map(|i| i * (pages - 1) / COMPARED * PAGE as u64);
    let offsets = starts.filter(|offset| page_of(*offset) == Some(&page[..]));
    let mut all = offsets.filter(|offset| {
        compared.clone().all(|at| {
            let mut own = [0u8; PAGE];
            memory(range.start + at, &mut own) && page_of(offset + at) == Some(&own[..])
        })
    });
    let found = all.next()?;
    // Equal code twice: which one was copied cannot be told.
    all.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x7000_0000_0000;

    /// A file of pages that all differ.
    fn file(pages: usize) -> Vec<u8> {
        (0..pages * PAGE)
            .map(|at| ((at / PAGE) * 7 + at % 251) as u8)
            .collect()
    }

    fn found(file: &[u8], copy: &[u8]) -> Option<u64> {
        let all = 4096..file.len() as u64;
        let range = START..START + copy.len() as u64;
        find(file, &[all], range, |at, to| {
            let from = (at - START) as usize;
            copy.get(from..from + to.len())
                .map(|b| to.copy_from_slice(b))
                .is_some()
        })
    }

    #[test]
    fn a_copy_is_found_where_it_was_taken() {
        let file = file(200);
        let mut copy = file[40 * PAGE..90 * PAGE].to_vec();
        assert_eq!(found(&file, &copy), Some(40 * PAGE as u64));
        let end = copy.len() - 100;
        copy[end..].fill(0);
        assert_eq!(
            found(&file, &copy),
            Some(40 * PAGE as u64),
            "the rest of the last page"
        );
    }

    #[test]
    fn other_code_is_no_copy() {
        let mut file = file(200);
        let mut copy = file[40 * PAGE..90 * PAGE].to_vec();
        copy[30 * PAGE] ^= 1;
        copy[30 * PAGE - 1] ^= 1;
        copy[27 * PAGE..31 * PAGE].fill(9);
        assert_eq!(found(&file, &copy), None);
        assert_eq!(found(&file, &[0xcc; 20 * PAGE]), None);
        let twice = file[40 * PAGE..90 * PAGE].to_vec();
        file.extend_from_slice(&twice);
        assert_eq!(found(&file, &twice), None);
    }
}
