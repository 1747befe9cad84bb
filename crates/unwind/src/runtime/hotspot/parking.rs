//! What parked Java threads wait for: `java.util.concurrent`'s locks, queues, latches.
//!
//! A thread that parks notes the object that it parks for in its `java.lang.Thread`. Where that field is,
//! the class itself says: its list of fields is read once, from the first thread that has a class. Objects
//! move, classes do not: what is told of such an object is its class.

use super::{
    flags,
    method::{Stream, class_name, constant, number},
    structs::{Layout, Tables},
    vm::Vm,
};
use crate::runtime::memory::Memory;

/// The class and its field.
const CLASS: &str = "java.lang.Thread";
const FIELD: &str = "parkBlocker";
/// Most classes between a thread's and that one, and most fields of it.
const MOST_CLASSES: usize = 16;
const MOST_FIELDS: u32 = 512;
/// Words of two bytes of a field, to JDK 20: access, name, type, value, and its offset in two.
const FIELD_WORDS: u64 = 6;
/// Longest description of fields, bytes, from JDK 21 on.
pub(super) const MOST_STREAM: usize = 1 << 14;
/// The first version in which a thread's record has a handle of its object, instead of a pointer.
const FIRST_HANDLES: u32 = 16;
/// How often the field is looked for before it is given up.
const TRIES: u32 = 16;

/// Where a class describes its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fields {
    /// To JDK 20: an array, and how many of it are the class's own.
    Array { at: u64, data: u64, count: u64 },
    /// From 21 on: numbers.
    Stream { at: u64, data: u64 },
}

/// Where all that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Objects {
    /// In the VM's record of a thread: where the pointer to its object is.
    pub(super) thread: u64,
    /// It is the pointer itself, instead of a handle's address; to JDK 15.
    pub(super) direct: bool,
    superclass: u64,
    pool: u64,
    fields: Fields,
    /// Addresses of what makes a pointer to an object of four bytes; `None`: pointers have eight.
    short: Option<(u64, u64)>,
    tries: u32,
    found: Option<u32>,
}

/// Where to look for what a thread is parked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parking {
    /// In its object: where the pointer is to what it is parked for.
    pub blocker: u32,
    /// Whether that has eight bytes, instead of four.
    pub long: bool,
    /// In any object: four bytes that stand for its class.
    pub class: u32,
    /// So many bits of those, the lower ones, are something else.
    pub below: u32,
    /// Pointers of four bytes are shifted so far, and count from here.
    pub shift: u32,
    /// See there.
    pub base: u64,
}

impl Objects {
    /// What the tables say; `None` where they do not say all of it.
    /// `major`: the VM's version.
    pub(super) fn of(tables: &Tables, major: u32, memory: &mut Memory<'_>) -> Option<Objects> {
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
        // There pointers carry marks, and objects may have left where they point to.
        if moving == Some(true) {
            return None;
        }
        let short = match compressed {
            Some(false) => None,
            _ => Some((oops("_base")?, oops("_shift")?)),
        };
        Some(Objects {
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

    /// Where the field is in objects of `class` or one that it is derived from.
    fn field(
        &self,
        layout: &Layout,
        first: u8,
        class: u64,
        memory: &mut Memory<'_>,
    ) -> Option<u32> {
        let mut class = class;
        for _ in 0..MOST_CLASSES {
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
                for i in 0..u64::from(count.min(MOST_FIELDS)) {
                    let mut words = [0u8; 2 * FIELD_WORDS as usize];
                    memory.bytes(fields.checked_add(2 * FIELD_WORDS * i)?, &mut words)?;
                    let (name, offset) = of_words(&words);
                    if named(name, memory)? {
                        return Some(offset);
                    }
                }
                None
            }
            Fields::Stream { at, data } => {
                let at = memory.word(class.checked_add(at)?)?.checked_add(data)?;
                let mut stream = Stream::new(at, MOST_STREAM, memory);
                let fields = of_numbers(|| number(first, || stream.byte()))?;
                let mut fields = fields.into_iter();
                let found = fields.find(|f| named(f.0, memory) == Some(true));
                found.map(|f| f.1)
            }
        }
    }
}

/// Name (its index) and offset of a field: its second word, and the last two, above two bits that say that
/// it has one.
fn of_words(words: &[u8; 2 * FIELD_WORDS as usize]) -> (u32, u32) {
    let word = |i: usize| u32::from(u16::from_le_bytes([words[2 * i], words[2 * i + 1]]));
    (word(1), (word(5) << 16 | word(4)) >> 2)
}

/// Names and offsets of all fields that a class has itself.
pub(super) fn of_numbers(mut next: impl FnMut() -> Option<u32>) -> Option<Vec<(u32, u32)>> {
    let own = next()?;
    let _injected = next()?;
    let mut fields = Vec::new();
    for _ in 0..own.min(MOST_FIELDS) {
        let (name, _type, offset) = (next()?, next()?, next()?);
        let (_access, flags) = (next()?, next()?);
        // Each more: a first value, a generic type, a group of its own.
        for _ in 0..(flags & 0b1_0101).count_ones() {
            next()?;
        }
        fields.push((name, offset));
    }
    Some(fields)
}

impl Vm {
    /// Where its threads note what they are parked for; `None` where that is not known (yet).
    pub fn parking(&mut self, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Option<Parking> {
        let mut memory = Memory(read);
        let (objects, places) = (self.objects.as_mut()?, self.locks.as_ref()?);
        if objects.found.is_none() && objects.tries < TRIES {
            objects.tries += 1;
            let known = &*objects;
            let found = self.threads.iter().find_map(|t| {
                let object = memory.word(t.object)?;
                let class = places.class_of(object, &mut memory)?;
                known.field(&self.layout, self.first, class, &mut memory)
            });
            objects.found = found;
        }
        let (base, shift) = match objects.short {
            Some((base, shift)) => (memory.word(base)?, memory.half(shift)?),
            None => (0, 0),
        };
        // Only what stands for a class in four bytes can be told with a wait.
        (!places.class.whole).then_some(())?;
        Some(Parking {
            blocker: objects.found?,
            long: objects.short.is_none(),
            class: u32::try_from(places.class.at).ok()?,
            below: places.class.below,
            shift,
            base,
        })
    }

    /// The name of the class that `narrow` stands for.
    pub fn class(
        &self,
        narrow: u32,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<String> {
        let mut memory = Memory(read);
        let class = self.locks.as_ref()?.class(narrow, &mut memory)?;
        class_name(&self.layout, class, &mut memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_as_older_vms_describe_them() {
        let words: [u16; 6] = [2, 77, 5, 0, (0x98 << 2) | 1, 1];
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let at = of_words(&bytes.try_into().unwrap());
        assert_eq!(at, (77, (1 << 14) + 0x98));
    }

    #[test]
    fn fields_as_newer_vms_describe_them() {
        let mut numbers = [
            3, 1, // own, injected
            7, 8, 16, 2, 0, // plain
            9, 8, 24, 2, 0b1_0101, 1, 2, 3, // with all there may be
            5, 8, 40, 2, 0b1010, // injected and stable say nothing more
        ]
        .into_iter();
        let fields = of_numbers(|| numbers.next()).unwrap();
        assert_eq!(fields, [(7, 16), (9, 24), (5, 40)]);
        assert_eq!(of_numbers(|| None), None);
        // Garbage ends with what can be read of it, or at the most that there may be.
        assert_eq!(
            of_numbers(|| Some(u32::MAX)).unwrap().len(),
            MOST_FIELDS as usize
        );
    }
}
