//! Objects of the Java heap: pointers, classes, arrays, texts, and whether objects may be moving.
//!
//! A stop-the-world collector counts its collections. Data read between two equal counts, with no
//! collection active at either, belongs to objects that did not move.

use super::super::{flags, locks::ClassWord, structs::Tables};
use crate::runtime::memory::Memory;

/// Maximum bytes of a text.
const MAX_TEXT_BYTES: u32 = 256;

/// Encoding of pointers, classes and arrays in the heap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Heap {
    /// Base and shift of compressed pointers; `None`: pointers have eight bytes.
    short: Option<(u64, u32)>,
    class: ClassWord,
    /// Base and shift of compressed class pointers.
    class_base: u64,
    class_shift: u32,
    /// Whether byte arrays start directly behind their length.
    packed: bool,
    /// Addresses of the VM's count of collections, and of its flag for an active one.
    collections: u64,
    active: u64,
}

impl Heap {
    /// Builds the encoding from the tables. `None`: not ready yet.
    ///
    /// # Errors
    /// Reason why the heap cannot be read, for display.
    pub(super) fn of(
        tables: &Tables,
        class: ClassWord,
        major: u32,
        memory: &mut Memory<'_>,
    ) -> Result<Option<Heap>, String> {
        let wanted = ["UseCompressedOops", "UseZGC", "UseShenandoahGC"];
        let Some([compressed, z, shenandoah]) = flags::are_set(tables, wanted, memory) else {
            return Ok(None);
        };
        // These collectors move objects while the program runs: pointers carry tag bits, or lead to
        // stale copies.
        for (set, name) in [(z, "ZGC"), (shenandoah, "Shenandoah")] {
            if set == Some(true) {
                return Err(format!(
                    "{name} moves objects while the program runs, and nothing tells which are moving"
                ));
            }
        }
        let lacks = |what: &str| format!("its tables lack {what}");
        let either = |of: &str, a: &str, b: &str| tables.get(of, a).or_else(|| tables.get(of, b));
        let heap_at = tables
            .get("Universe", "_collectedHeap")
            .ok_or_else(|| lacks("Universe::_collectedHeap"))?;
        let count = tables
            .get("CollectedHeap", "_total_collections")
            .ok_or_else(|| lacks("CollectedHeap::_total_collections"))?;
        let active = either("CollectedHeap", "_is_stw_gc_active", "_is_gc_active")
            .ok_or_else(|| lacks("CollectedHeap::_is_stw_gc_active"))?;
        let narrow = |of: &str, what: &str| {
            either(of, &format!("_narrow_oop.{what}"), what)
                .or_else(|| either(of, &format!("_narrow_klass.{what}"), what))
        };
        let mut pair = |of: &str| {
            let (base, shift) = (narrow(of, "_base")?, narrow(of, "_shift")?);
            Some((memory.word(base)?, memory.half(shift)? & 63))
        };
        let short = match compressed {
            Some(false) => None,
            _ => Some(pair("CompressedOops").ok_or_else(|| lacks("CompressedOops::_base"))?),
        };
        let (class_base, class_shift) = pair("CompressedKlassPointers")
            .ok_or_else(|| lacks("CompressedKlassPointers::_base"))?;
        Ok(memory.word(heap_at).filter(|h| *h != 0).map(|heap| Heap {
            short,
            class,
            class_base,
            class_shift,
            packed: major >= 23,
            collections: heap + count,
            active: heap + active,
        }))
    }

    /// Bytes of a pointer.
    pub(super) fn pointer(&self) -> usize {
        if self.short.is_some() { 4 } else { 8 }
    }

    /// The class of an object, from its first bytes.
    pub(super) fn class(&self, object: &[u8]) -> Option<u64> {
        let at = self.class.at as usize;
        if self.class.whole {
            return word(object, at);
        }
        let narrow = half(object, at)? >> self.class.below;
        (u64::from(narrow) << self.class_shift).checked_add(self.class_base)
    }

    /// Reads the class of the object at `at`.
    pub(super) fn class_at(&self, at: u64, memory: &mut Memory<'_>) -> Option<u64> {
        let mut head = [0u8; 16];
        self.is_object(at).then_some(())?;
        memory.bytes(at, &mut head)?;
        self.class(&head)
    }

    /// Whether `at` may be the address of an object.
    pub(super) fn is_object(&self, at: u64) -> bool {
        at != 0 && at.is_multiple_of(8)
    }

    /// The pointer at offset `at` of an object; 0: null.
    pub(super) fn pointer_in(&self, object: &[u8], at: usize) -> Option<u64> {
        match self.short {
            None => word(object, at),
            Some((base, shift)) => match half(object, at)? {
                0 => Some(0),
                narrow => (u64::from(narrow) << shift).checked_add(base),
            },
        }
    }

    /// Reads the pointer at address `at`.
    pub(super) fn pointer_at(&self, at: u64, memory: &mut Memory<'_>) -> Option<u64> {
        let mut bytes = [0u8; 8];
        let own = &mut bytes[..self.pointer()];
        memory.bytes(at, own)?;
        self.pointer_in(&bytes, 0)
    }

    /// Offsets of an array's length, and of its elements of `bytes` bytes each.
    fn array(&self, bytes: usize) -> (u64, u64) {
        let length = match (self.class.below, self.class.whole) {
            (0, false) => 12,
            (0, true) => 16,
            _ => 8,
        };
        let aligned = if self.packed { bytes.max(4) as u64 } else { 8 };
        (length, (length + 4).next_multiple_of(aligned))
    }

    /// Reads the non-null pointers of the array at `at`; at most `most` slots.
    pub(super) fn pointers(
        &self,
        at: u64,
        most: usize,
        memory: &mut Memory<'_>,
    ) -> Option<Vec<u64>> {
        self.is_object(at).then_some(())?;
        let (length, first) = self.array(self.pointer());
        let n = memory.half(at + length)? as usize;
        let mut bytes = vec![0u8; n.min(most) * self.pointer()];
        if !bytes.is_empty() {
            memory.bytes(at + first, &mut bytes)?;
        }
        let all = (0..bytes.len()).step_by(self.pointer());
        let all = all.filter_map(|i| self.pointer_in(&bytes, i));
        Some(all.filter(|p| self.is_object(*p)).collect())
    }

    /// Reads the text in the byte array at `at`.
    pub(super) fn text(
        &self,
        at: u64,
        encoding: Encoding,
        memory: &mut Memory<'_>,
    ) -> Option<String> {
        self.is_object(at).then_some(())?;
        let (length, first) = self.array(1);
        let n = memory.half(at + length)?;
        if n == 0 || n > MAX_TEXT_BYTES {
            return None;
        }
        let mut bytes = vec![0u8; n as usize];
        memory.bytes(at + first, &mut bytes)?;
        let text = match encoding {
            Encoding::Latin1 => bytes.iter().map(|b| char::from(*b)).collect(),
            Encoding::Utf16 => {
                let units = bytes
                    .chunks_exact(2)
                    .map(|b| u16::from_le_bytes([b[0], b[1]]));
                String::from_utf16_lossy(&units.collect::<Vec<_>>())
            }
        };
        (!text.chars().any(char::is_control)).then_some(text)
    }

    /// Reads the number of collections so far; `None`: one is active, or it cannot be read.
    pub(super) fn moves(&self, memory: &mut Memory<'_>) -> Option<u32> {
        // One read for both: they lie close together.
        let from = self.collections.min(self.active);
        let to = self.collections.max(self.active) + 4;
        let mut bytes = vec![0u8; usize::try_from(to - from).ok().filter(|n| *n <= 256)?];
        memory.bytes(from, &mut bytes)?;
        let active = *bytes.get((self.active - from) as usize)?;
        let count = half(&bytes, (self.collections - from) as usize)?;
        (active == 0).then_some(count)
    }
}

/// Encoding of a text's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    Latin1,
    Utf16,
}

/// Reads eight bytes at offset `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Reads four bytes at offset `at`.
pub(super) fn half(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}
