//! Objects and texts of V8's heap.
//!
//! The target runs, and objects move. Every read is bounded, and the type of each object is
//! checked.

use std::ops::Range;

use rustc_hash::FxHashMap;

use super::layout::Layout;
use crate::runtime::memory::Memory;

/// Maximum cached object types, by map.
const MAX_CACHED_TYPES: usize = 4096;
/// Maximum pieces of a concatenated text.
const MAX_TEXT_PIECES: usize = 4096;

/// Reader of one process's V8 heap.
pub(super) struct Heap<'a> {
    pub(super) layout: &'a Layout,
    kinds: &'a mut FxHashMap<u64, u16>,
    pub(super) memory: Memory<'a>,
}

impl<'a> Heap<'a> {
    pub(super) fn new(
        layout: &'a Layout,
        kinds: &'a mut FxHashMap<u64, u16>,
        read: &'a mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Heap<'a> {
        Heap {
            layout,
            kinds,
            memory: Memory(read),
        }
    }

    /// The address and type of the object that `word` points to.
    pub(super) fn object(&mut self, word: u64) -> Option<(u64, u16)> {
        let at = address(word)?;
        let map = address(self.memory.word(at)?)?;
        if let Some(kind) = self.kinds.get(&map) {
            return Some((at, *kind));
        }
        let mut bytes = [0u8; 2];
        self.memory.bytes(map + self.layout.map_kind, &mut bytes)?;
        let kind = u16::from_le_bytes(bytes);
        if self.kinds.len() >= MAX_CACHED_TYPES {
            self.kinds.clear();
        }
        self.kinds.insert(map, kind);
        Some((at, kind))
    }

    /// The address of the object that `word` points to, if it has type `kind`.
    pub(super) fn object_of(&mut self, word: u64, kind: u16) -> Option<u64> {
        let (at, found) = self.object(word)?;
        (found == kind).then_some(at)
    }

    /// Reads the elements of an array, of `width` bytes each.
    pub(super) fn array(&mut self, at: u64, width: usize, most: usize) -> Option<Vec<u8>> {
        let n = number(self.memory.word(at + self.layout.array_length)?)? as usize;
        if n > most {
            return None;
        }
        let mut bytes = vec![0u8; n * width];
        if !bytes.is_empty() {
            self.memory.bytes(at + self.layout.array_data, &mut bytes)?;
        }
        Some(bytes)
    }

    /// Reads the text that `word` points to, of at most `most` characters, in UTF-16 units.
    pub(super) fn units(&mut self, word: u64, most: usize) -> Option<Vec<u16>> {
        // A stack of pieces to append: a text, and the part of it.
        let mut open = vec![(word, 0usize, usize::MAX)];
        let mut out = Vec::new();
        let mut pieces = 0..MAX_TEXT_PIECES;
        while let Some((word, from, upto)) = open.pop() {
            pieces.next()?;
            let (at, kind) = self.object(word)?;
            let t = &self.layout.text;
            if kind >= t.first_other {
                return None;
            }
            let length = self.memory.half(at + self.layout.text.length)? as usize;
            let (from, upto) = (from.min(length), upto.min(length));
            let t = &self.layout.text;
            if out.len() + (upto - from) > most {
                return None;
            }
            let narrow = kind & t.tags.encoding == t.tags.one_byte;
            match kind & t.tags.representation {
                r if r == t.tags.sequential => {
                    let data = if narrow {
                        t.one_byte_data
                    } else {
                        t.two_byte_data
                    };
                    self.add(&mut out, at + data, narrow, from..upto)?;
                }
                r if r == t.tags.external => {
                    let data = self.memory.word(at + t.external_data).filter(|d| *d != 0)?;
                    self.add(&mut out, data, narrow, from..upto)?;
                }
                r if r == t.tags.cons => {
                    let (first, second) = (at + t.first, at + t.second);
                    let (first, second) = (self.memory.word(first)?, self.memory.word(second)?);
                    let (inner, _) = self.object(first)?;
                    let split = self.memory.half(inner + self.layout.text.length)? as usize;
                    let after = |n: usize| n.saturating_sub(split);
                    open.push((second, after(from), after(upto)));
                    open.push((first, from.min(split), upto.min(split)));
                }
                r if r == t.tags.sliced => {
                    let (parent, offset) = (at + t.parent, at + t.offset);
                    let begin = number(self.memory.word(offset)?)? as usize;
                    open.push((self.memory.word(parent)?, begin + from, begin + upto));
                }
                r if r == t.tags.thin => {
                    let actual = at + t.actual;
                    open.push((self.memory.word(actual)?, from, upto));
                }
                _ => return None,
            }
        }
        Some(out)
    }

    fn add(
        &mut self,
        out: &mut Vec<u16>,
        data: u64,
        narrow: bool,
        range: Range<usize>,
    ) -> Option<()> {
        let Range {
            start: from,
            end: upto,
        } = range;
        let width = if narrow { 1 } else { 2 };
        let mut bytes = vec![0u8; (upto - from) * width];
        if bytes.is_empty() {
            return Some(());
        }
        self.memory
            .bytes(data.checked_add((from * width) as u64)?, &mut bytes)?;
        if narrow {
            // Latin-1
            out.extend(bytes.iter().map(|b| u16::from(*b)));
        } else {
            out.extend(
                bytes
                    .chunks_exact(2)
                    .map(|b| u16::from_le_bytes([b[0], b[1]])),
            );
        }
        Some(())
    }

    /// Reads the text that `word` points to, of at most `most` characters.
    pub(super) fn text(&mut self, word: u64, most: usize) -> Option<String> {
        let units = self.units(word, most)?;
        let text = String::from_utf16_lossy(&units);
        Some(text.replace(char::is_control, " "))
    }
}

/// The address in a tagged pointer, if `word` is one.
pub(super) fn address(word: u64) -> Option<u64> {
    (word & 3 == 1 && word >> 47 == 0 && word > 4096).then(|| word - 1)
}

/// The value of a small integer, if `word` is one.
pub(super) fn number(word: u64) -> Option<u32> {
    (word & 0xffff_ffff == 0).then_some((word >> 32) as u32)
}
