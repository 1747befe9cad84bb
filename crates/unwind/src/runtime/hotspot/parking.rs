//! Objects that Java threads are parked for: the locks, queues and latches of
//! `java.util.concurrent`.
//!
//! A parking thread stores the object in a field of its `java.lang.Thread`. The class itself
//! describes that field's offset. It is read once, from the first thread with a class. Objects move
//! but classes do not, so an object is reported by its class.

use super::{
    flags,
    method::{Stream, class_name, constant, number},
    structs::{Layout, Tables},
};
use crate::runtime::memory::Memory;

/// The class, and its field.
const CLASS: &str = "java.lang.Thread";
const FIELD: &str = "parkBlocker";
/// Maximum superclasses up to that class, and maximum fields of a class.
const MAX_CLASSES: usize = 16;
const MAX_FIELDS: u32 = 512;
/// Field entry up to JDK 20, in 2-byte words: access, name, type, value, and the offset in two.
const FIELD_WORDS: u64 = 6;
/// Maximum bytes of a field description, from JDK 21 on.
pub(super) const MAX_STREAM_BYTES: usize = 1 << 14;
/// First JDK version in which a thread's record holds a handle of its object, not a pointer.
const FIRST_HANDLES: u32 = 16;
/// Location of a class's field description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fields {
    /// Up to JDK 20: an array, and the count of the class's own fields.
    Array { at: u64, data: u64, count: u64 },
    /// From JDK 21 on: a stream of numbers.
    Stream { at: u64, data: u64 },
}

/// Offsets and addresses for objects of threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ParkingOffsets {
    /// In the VM's record of a thread: the offset of the pointer to its object.
    pub(super) thread: u64,
    /// It is the pointer itself, not a handle's address; up to JDK 15.
    pub(super) direct: bool,
    pub(super) superclass: u64,
    pub(super) pool: u64,
    pub(super) fields: Fields,
    /// Addresses of the base and shift of compressed object pointers; `None`: pointers have eight
    /// bytes.
    pub(super) short: Option<(u64, u64)>,
    pub(super) tries: u32,
    pub(super) found: Option<u32>,
}

impl ParkingOffsets {
    /// Builds the offsets from the tables; `None` if any is missing. `major`: the JDK version.
    pub(super) fn of(
        tables: &Tables,
        major: u32,
        memory: &mut Memory<'_>,
    ) -> Option<ParkingOffsets> {
        let oops = |field: &str| {
            let names = [format!("_narrow_oop.{field}"), field.to_owned()];
            let of = ["CompressedOops", "Universe"].into_iter();
            { of }.find_map(|of| names.iter().find_map(|name| tables.get(of, name)))
        };
        let fields = match tables.get("InstanceKlass", "_fieldinfo_stream") {
            Some(at) => Fields::Stream {
                at,
                data: tables.get("Array<u1>", "_data")?,
            },
            None => Fields::Array {
                at: tables.get("InstanceKlass", "_fields")?,
                data: tables.get("Array<u2>", "_data")?,
                count: tables.get("InstanceKlass", "_java_fields_count")?,
            },
        };
        let [compressed, moving] = flags::are_set(tables, ["UseCompressedOops", "UseZGC"], memory)?;
        // ZGC's pointers carry tag bits, and objects may have moved away from their address.
        if moving == Some(true) {
            return None;
        }
        let short = match compressed {
            Some(false) => None,
            _ => Some((oops("_base")?, oops("_shift")?)),
        };
        Some(ParkingOffsets {
            thread: tables.get("JavaThread", "_threadObj")?,
            direct: major < FIRST_HANDLES,
            superclass: tables.get("Klass", "_super")?,
            pool: tables.get("InstanceKlass", "_constants")?,
            fields,
            short,
            tries: 0,
            found: None,
        })
    }

    /// Finds the field's offset in `class` or one of its superclasses.
    pub(super) fn field(
        &self,
        layout: &Layout,
        first: u8,
        class: u64,
        memory: &mut Memory<'_>,
    ) -> Option<u32> {
        let mut class = class;
        for _ in 0..MAX_CLASSES {
            if class_name(layout, class, memory)? == CLASS {
                return self.own_field(layout, first, class, memory);
            }
            class = memory.word(class.checked_add(self.superclass)?)?;
        }
        None
    }

    fn own_field(
        &self,
        layout: &Layout,
        first: u8,
        class: u64,
        memory: &mut Memory<'_>,
    ) -> Option<u32> {
        let pool = memory.word(class.checked_add(self.pool)?)?;
        let named = |index: u32, memory: &mut Memory<'_>| {
            let index = u16::try_from(index).ok()?;
            Some(constant(layout, pool, index, memory)? == FIELD)
        };
        match self.fields {
            Fields::Array { at, data, count } => {
                let fields = memory.word(class.checked_add(at)?)?.checked_add(data)?;
                let count = memory.half(class.checked_add(count)?)? & 0xffff;
                for i in 0..u64::from(count.min(MAX_FIELDS)) {
                    let mut words = [0u8; 2 * FIELD_WORDS as usize];
                    memory.bytes(fields.checked_add(2 * FIELD_WORDS * i)?, &mut words)?;
                    let (name, offset) = decode_entry(&words);
                    if named(name, memory)? {
                        return Some(offset);
                    }
                }
                None
            }
            Fields::Stream { at, data } => {
                let at = memory.word(class.checked_add(at)?)?.checked_add(data)?;
                let mut stream = Stream::new(at, MAX_STREAM_BYTES, memory);
                let fields = decode_stream(|| number(first, || stream.byte()))?;
                let mut fields = fields.into_iter();
                let found = fields.find(|f| named(f.0, memory) == Some(true));
                found.map(|f| f.1)
            }
        }
    }
}

/// Decodes an array entry: the field's name index (its second word), and its offset (the last two
/// words, above two flag bits).
fn decode_entry(words: &[u8; 2 * FIELD_WORDS as usize]) -> (u32, u32) {
    let word = |i: usize| u32::from(u16::from_le_bytes([words[2 * i], words[2 * i + 1]]));
    (word(1), (word(5) << 16 | word(4)) >> 2)
}

/// Decodes a stream: name index and offset of all fields that the class declares.
pub(super) fn decode_stream(mut next: impl FnMut() -> Option<u32>) -> Option<Vec<(u32, u32)>> {
    let own = next()?;
    let _injected = next()?;
    let mut fields = Vec::new();
    for _ in 0..own.min(MAX_FIELDS) {
        let (name, _type, offset) = (next()?, next()?, next()?);
        let (_access, flags) = (next()?, next()?);
        // One more number each for an initial value, a generic type and a contention group.
        for _ in 0..(flags & 0b1_0101).count_ones() {
            next()?;
        }
        fields.push((name, offset));
    }
    Some(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_as_older_vms_describe_them() {
        let words: [u16; 6] = [2, 77, 5, 0, (0x98 << 2) | 1, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let at = decode_entry(&bytes.try_into().unwrap());
        assert_eq!(at, (77, (1 << 14) + 0x98));
    }

    #[test]
    fn fields_as_newer_vms_describe_them() {
        let mut numbers = [
            3, 1, // own, injected
            7, 8, 16, 2, 0, // no optional parts
            9, 8, 24, 2, 0b1_0101, 1, 2, 3, // all optional parts
            5, 8, 40, 2, 0b1010, // injected and stable have no number
        ]
        .into_iter();
        let fields = decode_stream(|| numbers.next()).unwrap();
        assert_eq!(fields, [(7, 16), (9, 24), (5, 40)]);
        assert_eq!(decode_stream(|| None), None);
        // Garbage ends where it can no longer be read, or at the limit.
        assert_eq!(
            decode_stream(|| Some(u32::MAX)).unwrap().len(),
            MAX_FIELDS as usize
        );
    }
}
