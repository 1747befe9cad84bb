//! Java monitors: the class of a monitor's object, and its owner.
//!
//! The VM's record of a thread names the monitor that it is about to enter, and a monitor names its
//! owner. The owner is a thread's record. If the monitor was a stack lock before, it is an address
//! on the owner's stack. From JDK 24 on it is a number of the thread. If the owner locked the
//! object before any contention, the monitor may not name it yet. From JDK 21 on the owner's list
//! of locked objects then contains the object.
//!
//! The threads are in a list that is replaced at each change; before about JDK 12, in a chain.

use super::{flags, parking::ParkingOffsets, structs::Tables};
use crate::runtime::memory::Memory;

/// Maximum threads of one VM.
const MAX_THREADS: u32 = 1 << 16;

/// Offsets and addresses for monitors and threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MonitorOffsets {
    pub(super) list: ThreadListLocation,
    /// In a thread's record: the OS thread, the stack, the monitor that it is about to enter.
    pub(super) system: u64,
    pub(super) stack_base: u64,
    pub(super) stack_size: u64,
    pub(super) pending: u64,
    /// In the OS thread: its id.
    pub(super) id: u64,
    /// In a monitor: the object and the owner.
    pub(super) object: u64,
    pub(super) owner: u64,
    /// In a thread's record: its number as an owner of monitors; from JDK 24 on.
    pub(super) owner_id: Option<u64>,
    /// In a thread's record: the offset of the list of locked objects, and the offset of the list's
    /// end offset.
    pub(super) locked: Option<(u64, u64)>,
    /// In an object.
    pub(super) class: ClassWord,
    /// Addresses of the base and shift of compressed class pointers.
    pub(super) base: u64,
    pub(super) shift: u64,
}

/// Location of the records of all Java threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ThreadListLocation {
    /// The address of a pointer to an immutable array, and the offsets of its length and entries.
    Array { at: u64, length: u64, threads: u64 },
    /// The addresses of the newest record and of the count, and the offset of the next older
    /// record.
    Chain { newest: u64, count: u64, next: u64 },
}

impl ThreadListLocation {
    fn of(tables: &Tables) -> Option<ThreadListLocation> {
        let array = || {
            Some(ThreadListLocation::Array {
                at: tables.get("ThreadsSMRSupport", "_java_thread_list")?,
                length: tables.get("ThreadsList", "_length")?,
                threads: tables.get("ThreadsList", "_threads")?,
            })
        };
        let chain = || {
            Some(ThreadListLocation::Chain {
                newest: tables.get("Threads", "_thread_list")?,
                count: tables.get("Threads", "_number_of_threads")?,
                next: tables.get("JavaThread", "_next")?,
            })
        };
        array().or_else(chain)
    }

    /// A value that changes with the list. It misses changes of a chain that keep its length and
    /// newest thread, until the next change.
    pub(super) fn state(self, memory: &mut Memory<'_>) -> Option<u64> {
        match self {
            ThreadListLocation::Array { at, .. } => memory.word(at),
            ThreadListLocation::Chain { newest, count, .. } => {
                let count = u64::from(memory.half(count)?);
                Some(memory.word(newest)? ^ count.rotate_right(16))
            }
        }
    }

    /// Reads the threads' records.
    pub(super) fn records(self, memory: &mut Memory<'_>) -> Option<Vec<u64>> {
        match self {
            ThreadListLocation::Array {
                at,
                length,
                threads,
            } => {
                let list = memory.word(at)?;
                let n = memory.half(list.checked_add(length)?)?;
                if n > MAX_THREADS {
                    return None;
                }
                let first = memory.word(list.checked_add(threads)?)?;
                let all = (0..u64::from(n)).filter_map(|i| memory.word(first.checked_add(8 * i)?));
                Some(all.collect())
            }
            ThreadListLocation::Chain { newest, next, .. } => {
                let mut all = Vec::new();
                let mut record = memory.word(newest)?;
                while record != 0 && all.len() < MAX_THREADS as usize {
                    all.push(record);
                    // A record that ends meanwhile cuts the chain; the next read is complete.
                    record = record
                        .checked_add(next)
                        .and_then(|at| memory.word(at))
                        .unwrap_or(0);
                }
                Some(all)
            }
        }
    }
}

/// Location of the class in an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassWord {
    /// Offset in the object.
    pub(super) at: u64,
    /// Number of low bits of the four bytes that are not the class
    /// (`-XX:+UseCompactObjectHeaders`).
    pub(super) below: u32,
    /// The class is a full pointer (`-XX:-UseCompressedClassPointers`).
    pub(super) whole: bool,
}

/// Bit of the object's first word at which its class begins, with compact headers.
const CLASS_IN_MARK: u32 = 42;

impl ClassWord {
    /// `short`: offset of a separate 4-byte class. `compact`, `compressed`: the VM's flags.
    fn of(short: u64, compact: bool, compressed: bool) -> ClassWord {
        match compact {
            true => ClassWord {
                at: 4,
                below: CLASS_IN_MARK - 32,
                whole: false,
            },
            false => ClassWord {
                at: short,
                below: 0,
                whole: !compressed,
            },
        }
    }
}

impl MonitorOffsets {
    /// Builds the offsets from the tables; `None` if any is missing.
    pub(super) fn of(tables: &Tables, memory: &mut Memory<'_>) -> Option<MonitorOffsets> {
        let thread = |field: &str| {
            let of = ["JavaThread", "Thread"].into_iter();
            { of }.find_map(|of| tables.get(of, field))
        };
        let narrow = |field: &str| {
            let of = ["CompressedKlassPointers", "Universe"].into_iter();
            { of }.find_map(|of| {
                let names = [format!("_narrow_klass.{field}"), field.to_owned()];
                { names }.iter().find_map(|name| tables.get(of, name))
            })
        };
        let wanted = ["UseCompactObjectHeaders", "UseCompressedClassPointers"];
        let [compact, compressed] = flags::are_set(tables, wanted, memory).unwrap_or_default();
        let short = tables.get("oopDesc", "_metadata._compressed_klass")?;
        Some(MonitorOffsets {
            list: ThreadListLocation::of(tables)?,
            system: thread("_osthread")?,
            stack_base: thread("_stack_base")?,
            stack_size: thread("_stack_size")?,
            pending: thread("_current_pending_monitor")?,
            id: tables.get("OSThread", "_thread_id")?,
            object: tables.get("ObjectMonitor", "_object")?,
            owner: tables.get("ObjectMonitor", "_owner")?,
            owner_id: thread("_monitor_owner_id"),
            locked: thread("_lock_stack").and_then(|stack| {
                let first = stack.checked_add(tables.get("LockStack", "_base[0]")?)?;
                Some((first, stack.checked_add(tables.get("LockStack", "_top")?)?))
            }),
            class: ClassWord::of(short, compact == Some(true), compressed != Some(false)),
            base: narrow("_base")?,
            shift: narrow("_shift")?,
        })
    }
}

impl MonitorOffsets {
    /// Converts a compressed class pointer to an address.
    pub(super) fn class(&self, narrow: u32, memory: &mut Memory<'_>) -> Option<u64> {
        let base = memory.word(self.base)?;
        let shift = memory.half(self.shift)?;
        u64::from(narrow).checked_shl(shift)?.checked_add(base)
    }

    /// Finds the thread that lists the object of `monitor` among its locked objects.
    pub(super) fn stack_locker(
        &self,
        monitor: u64,
        threads: &[JavaThread],
        memory: &mut Memory<'_>,
    ) -> Option<u32> {
        let (first, top) = self.locked?;
        let handle = memory.word(monitor.checked_add(self.object)?)?;
        let object = memory.word(handle).filter(|object| *object != 0)?;
        let mut has = |t: &JavaThread| {
            let end = memory.half(t.record + top).map_or(0, u64::from);
            let many = end.saturating_sub(first) / 8;
            let mut all = (0..many.min(MAX_LOCKED_OBJECTS)).map(|i| t.record + first + 8 * i);
            all.any(|at| memory.word(at) == Some(object))
        };
        threads.iter().find(|t| has(t)).map(|t| t.tid)
    }

    /// Reads the class of the object at `object`.
    pub(super) fn class_of(&self, object: u64, memory: &mut Memory<'_>) -> Option<u64> {
        let at = object.checked_add(self.class.at)?;
        if self.class.whole {
            return memory.word(at);
        }
        let narrow = memory.half(at)? >> self.class.below;
        self.class(narrow, memory)
    }
}

/// A Java thread, with its OS and VM identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JavaThread {
    /// The OS thread id, as seen in the process.
    pub tid: u32,
    /// Address of the VM's record.
    pub record: u64,
    /// Its stack: first address, and one past the last.
    pub(super) stack: (u64, u64),
    /// Address of the pointer to its `java.lang.Thread`; 0: unknown.
    pub object: u64,
    /// Its number as an owner of monitors; 0: it owns them by its record.
    pub(super) owner_id: u64,
}

/// Maximum objects in a thread's list of locked objects.
const MAX_LOCKED_OBJECTS: u64 = 64;

/// Reads a thread's record.
pub(super) fn thread(
    places: &MonitorOffsets,
    record: u64,
    objects: Option<&ParkingOffsets>,
    memory: &mut Memory<'_>,
) -> Option<JavaThread> {
    let system = memory.word(record.checked_add(places.system)?)?;
    let tid = memory.half(system.checked_add(places.id)?)?;
    let base = memory.word(record + places.stack_base)?;
    let size = memory.word(record + places.stack_size)?;
    Some(JavaThread {
        tid,
        record,
        stack: (base.checked_sub(size)?, base),
        object: match objects {
            None => 0,
            Some(o) if o.direct => record + o.thread,
            Some(o) => memory.word(record + o.thread).unwrap_or(0),
        },
        owner_id: (places.owner_id).map_or(0, |at| memory.word(record + at).unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOWHERE: ThreadListLocation = ThreadListLocation::Array {
        at: 0,
        length: 0,
        threads: 0,
    };

    /// A process's memory with these words, by address.
    fn of_words(words: &[(u64, u64)]) -> impl Fn(u64, &mut [u8]) -> bool {
        move |at, to| {
            let Some((_, word)) = words.iter().find(|(a, _)| *a == at) else {
                return false;
            };
            to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
            true
        }
    }

    #[test]
    fn threads_are_found_in_a_list_or_in_a_chain() {
        let words = [
            // The pointer to the list; its length, its entries.
            (0x1000u64, 0x2000u64),
            (0x2008, 3),
            (0x2010, 0x3000),
            (0x3000, 0xa000),
            (0x3008, 0xb000),
            (0x3010, 0xc000),
            // The newest of a chain, and the count.
            (0x4000, 0xc000),
            (0x4008, 3),
            (0xc020, 0xb000),
            (0xb020, 0xa000),
            (0xa020, 0),
        ];
        let mut read = of_words(&words);
        let mut memory = Memory(&mut read);
        let array = ThreadListLocation::Array {
            at: 0x1000,
            length: 8,
            threads: 16,
        };
        let chain = ThreadListLocation::Chain {
            newest: 0x4000,
            count: 0x4008,
            next: 0x20,
        };
        let (old, new) = (vec![0xa000, 0xb000, 0xc000], vec![0xc000, 0xb000, 0xa000]);
        assert_eq!(array.records(&mut memory), Some(old));
        assert_eq!(chain.records(&mut memory), Some(new));
        assert!(array.state(&mut memory).is_some() && chain.state(&mut memory).is_some());
        let torn = ThreadListLocation::Chain {
            newest: 0x4000,
            count: 0x4008,
            next: 0x28,
        };
        assert_eq!(torn.records(&mut memory), Some(vec![0xc000]));
        assert_eq!(NOWHERE.records(&mut memory), None);
    }

    #[test]
    fn an_object_says_its_class_in_three_ways() {
        let mut object = [0u8; 16];
        object[..8]
            .copy_from_slice(&(0x2_5678 << CLASS_IN_MARK | 0x3ff_1234_5601u64).to_le_bytes());
        object[8..].copy_from_slice(&0x7f00_0000_9abcu64.to_le_bytes());
        let (base, shift) = (0x9000, 0x9008);
        let class_of = |compact, compressed| {
            let places = MonitorOffsets {
                list: NOWHERE,
                system: 0,
                stack_base: 0,
                stack_size: 0,
                pending: 0,
                id: 0,
                object: 0,
                owner: 0,
                owner_id: None,
                locked: None,
                class: ClassWord::of(8, compact, compressed),
                base,
                shift,
            };
            let mut read = |at: u64, to: &mut [u8]| {
                let words = [0x10_0000_0000u64.to_le_bytes(), 10u64.to_le_bytes()].concat();
                let (bytes, start) = match at < 0x9000 {
                    true => (&object[..], 0x1000),
                    false => (&words[..], 0x9000),
                };
                let from = (at - start) as usize;
                to.copy_from_slice(&bytes[from..from + to.len()]);
                true
            };
            places.class_of(0x1000, &mut Memory(&mut read))
        };
        assert_eq!(class_of(false, true), Some(0x10_0000_0000 + (0x9abc << 10)));
        assert_eq!(class_of(false, false), Some(0x7f00_0000_9abc));
        assert_eq!(
            class_of(true, true),
            Some(0x10_0000_0000 + (0x2_5678 << 10))
        );
    }

    #[test]
    fn who_locked_an_object_first_has_it_in_its_list() {
        let places = MonitorOffsets {
            list: NOWHERE,
            system: 0,
            stack_base: 0,
            stack_size: 0,
            pending: 0,
            id: 0,
            object: 8,
            owner: 0,
            owner_id: None,
            locked: Some((0x18, 0x10)),
            class: ClassWord::of(8, false, true),
            base: 0,
            shift: 0,
        };
        let thread = |tid, record| JavaThread {
            tid,
            record,
            stack: (0, 0),
            object: 0,
            owner_id: 0,
        };
        // The monitor's handle and object. The second entry of the first thread's list is stale.
        let words = [
            (0x7108u64, 0x7200u64),
            (0x7200, 0x5000),
            (0x1010, 0x20),
            (0x1018, 0x4000),
            (0x1020, 0x5000),
            (0x2010, 0x28),
            (0x2018, 0x4000),
            (0x2020, 0x5000),
        ];
        let mut read = of_words(&words);
        let mut memory = Memory(&mut read);
        let threads = [thread(1, 0x1000), thread(2, 0x2000)];
        assert_eq!(places.stack_locker(0x7100, &threads, &mut memory), Some(2));
        assert_eq!(
            places.stack_locker(0x7100, &threads[..1], &mut memory),
            None
        );
        assert_eq!(places.stack_locker(0x7300, &threads, &mut memory), None);
    }
}
