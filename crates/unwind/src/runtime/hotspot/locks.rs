//! Monitors that Java threads wait to enter: of which class, and whose they are.
//!
//! The VM's own record of a thread says which monitor it is about to enter, and a monitor's record who
//! has it: by that one's record, or, where the monitor was a mere mark on its stack before, by a
//! place on that stack. From JDK 24 on it is a number of the thread's; and where the owner locked the object
//! before anybody else came, nobody may have said so since: then the object stands in the owner's list of locked
//! objects, from JDK 21 on. The threads stand in a list that is made anew with each change, before JDK 12 or so in
//! a chain.

use super::{flags, method::class_name, parking::Objects, structs::Tables, vm::Vm};
use crate::runtime::memory::Memory;

/// Most threads of one VM.
const MOST_THREADS: u32 = 1 << 16;

/// Where that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    list: List,
    /// In a thread's record: the system's part, its stack, the monitor it is about to enter.
    system: u64,
    stack_base: u64,
    stack_size: u64,
    pending: u64,
    /// In the system's part: the thread's id.
    id: u64,
    /// In a monitor: the object, and who has it.
    object: u64,
    owner: u64,
    /// In a thread's record: the number that it owns monitors by; from JDK 24 on.
    owner_id: Option<u64>,
    /// In a thread's record: where its list of locked objects begins, and how far from the record it ends.
    locked: Option<(u64, u64)>,
    /// In an object.
    pub(super) class: ClassWord,
    /// The addresses of what makes a pointer of a class's four bytes.
    base: u64,
    shift: u64,
}

/// Where the records of all Java threads are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// At this address the pointer to an array that is never changed; in it, its length and its entries.
    Array { at: u64, length: u64, threads: u64 },
    /// At these addresses the pointer to the newest, and how many there are; in a record, the next older one.
    Chain { newest: u64, count: u64, next: u64 },
}

impl List {
    fn of(tables: &Tables) -> Option<List> {
        let array = || {
            Some(List::Array {
                at: tables.get("ThreadsSMRSupport", "_java_thread_list")?,
                length: tables.get("ThreadsList", "_length")?,
                threads: tables.get("ThreadsList", "_threads")?,
            })
        };
        let chain = || {
            Some(List::Chain {
                newest: tables.get("Threads", "_thread_list")?,
                count: tables.get("Threads", "_number_of_threads")?,
                next: tables.get("JavaThread", "_next")?,
            })
        };
        array().or_else(chain)
    }

    /// What changes with it. Two changes of a chain that leave its length and its newest thread alone are seen
    /// with the next one.
    fn state(self, memory: &mut Memory<'_>) -> Option<u64> {
        match self {
            List::Array { at, .. } => memory.word(at),
            List::Chain { newest, count, .. } => {
                let count = u64::from(memory.half(count)?);
                Some(memory.word(newest)? ^ count.rotate_right(16))
            }
        }
    }

    /// The threads' records.
    fn records(self, memory: &mut Memory<'_>) -> Option<Vec<u64>> {
        match self {
            List::Array {
                at,
                length,
                threads,
            } => {
                let list = memory.word(at)?;
                let n = memory.half(list.checked_add(length)?)?;
                if n > MOST_THREADS {
                    return None;
                }
                let first = memory.word(list.checked_add(threads)?)?;
                let all = (0..u64::from(n)).filter_map(|i| memory.word(first.checked_add(8 * i)?));
                Some(all.collect())
            }
            List::Chain { newest, next, .. } => {
                let mut all = Vec::new();
                let mut record = memory.word(newest)?;
                while record != 0 && all.len() < MOST_THREADS as usize {
                    all.push(record);
                    // One that goes meanwhile cuts it short: the next time it is whole.
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

/// Where an object says of which class it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassWord {
    /// The offset in it.
    pub(super) at: u64,
    /// Of four bytes, so many bits are something else (`-XX:+UseCompactObjectHeaders`).
    pub(super) below: u32,
    /// It is a whole pointer (`-XX:-UseCompressedClassPointers`).
    pub(super) whole: bool,
}

/// The bit of an object's first word at which its class begins, with compact heads.
const CLASS_IN_MARK: u32 = 42;

impl ClassWord {
    /// `short`: where it is in four bytes of its own. `compact`, `compressed`: the VM's flags.
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

impl Places {
    /// What the tables say; `None` where they do not say all of it.
    pub(super) fn of(tables: &Tables, memory: &mut Memory<'_>) -> Option<Places> {
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
        Some(Places {
            list: List::of(tables)?,
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

impl Places {
    /// The address of the class that `narrow` stands for.
    pub(super) fn class(&self, narrow: u32, memory: &mut Memory<'_>) -> Option<u64> {
        let base = memory.word(self.base)?;
        let shift = memory.half(self.shift)?;
        u64::from(narrow).checked_shl(shift)?.checked_add(base)
    }

    /// The thread that has locked the object of `monitor`, by the threads' own lists.
    fn locker(&self, monitor: u64, threads: &[JavaThread], memory: &mut Memory<'_>) -> Option<u32> {
        let (first, top) = self.locked?;
        let handle = memory.word(monitor.checked_add(self.object)?)?;
        let object = memory.word(handle).filter(|object| *object != 0)?;
        let mut has = |t: &JavaThread| {
            let end = memory.half(t.record + top).map_or(0, u64::from);
            let many = end.saturating_sub(first) / 8;
            let mut all = (0..many.min(MOST_LOCKED)).map(|i| t.record + first + 8 * i);
            all.any(|at| memory.word(at) == Some(object))
        };
        threads.iter().find(|t| has(t)).map(|t| t.tid)
    }

    /// The class of the object at `object`.
    pub(super) fn class_of(&self, object: u64, memory: &mut Memory<'_>) -> Option<u64> {
        let at = object.checked_add(self.class.at)?;
        if self.class.whole {
            return memory.word(at);
        }
        let narrow = memory.half(at)? >> self.class.below;
        self.class(narrow, memory)
    }
}

/// A Java thread, by what the system and the VM know it by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JavaThread {
    /// The system's id, as the process itself sees it.
    pub tid: u32,
    /// Address of the VM's record.
    pub record: u64,
    /// Its stack: first address, and one past the last.
    stack: (u64, u64),
    /// Where the pointer to its object is; 0: not known.
    pub object: u64,
    /// The number that it owns monitors by; 0: by its record.
    owner_id: u64,
}

/// What a monitor has for an owner who has not been told that it is one now, and the largest such mark.
const UNSAID: u64 = 1;
const MARKS: u64 = 2;
/// Most objects in a thread's list of locked ones.
const MOST_LOCKED: u64 = 64;

impl Vm {
    /// Its Java threads; `None` where they are the same as when asked last, or cannot be read.
    pub fn new_threads(
        &mut self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<&[JavaThread]> {
        let mut memory = Memory(read);
        let places = self.locks.clone()?;
        let list = places.list.state(&mut memory)?;
        if list == self.thread_list {
            return None;
        }
        let records = places.list.records(&mut memory)?;
        let mut all = Vec::with_capacity(records.len());
        for record in records {
            // One that is just coming or going has no place yet, or none any more.
            all.extend(thread(&places, record, self.objects.as_ref(), &mut memory));
        }
        self.thread_list = list;
        self.threads = all;
        Some(&self.threads)
    }

    /// Where in a thread's record the monitor is that it is about to enter, and where in a monitor
    /// its owner.
    pub fn lock_places(&self) -> Option<(u64, u64)> {
        self.locks.as_ref().map(|p| (p.pending, p.owner))
    }

    /// The thread, as its process sees it, that `owner` in a monitor stands for.
    pub fn owner(&self, owner: u64) -> Option<u32> {
        let mut threads = self.threads.iter();
        let found = threads.find(|t| {
            let numbered = owner > MARKS && t.owner_id == owner;
            numbered || t.record == owner || (t.stack.0..t.stack.1).contains(&owner)
        });
        found.map(|t| t.tid)
    }

    /// The thread, as its process sees it, that has the monitor at `monitor` now.
    pub fn has_monitor(
        &self,
        monitor: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<u32> {
        let mut memory = Memory(read);
        let places = self.locks.as_ref()?;
        let owner = memory.word(monitor.checked_add(places.owner)?)?;
        if owner != UNSAID {
            return self.owner(owner);
        }
        places.locker(monitor, &self.threads, &mut memory)
    }

    /// The class of the object that a monitor is of.
    pub fn monitor_class(
        &self,
        monitor: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<String> {
        let mut memory = Memory(read);
        let places = self.locks.as_ref()?;
        let handle = memory.word(monitor.checked_add(places.object)?)?;
        // From 16 on a weak handle, before the object itself.
        let object = memory.word(handle);
        let mut class = |object: u64| {
            let class = places.class_of(object, &mut memory)?;
            class_name(&self.layout, class, &mut memory)
        };
        object.and_then(&mut class).or_else(|| class(handle))
    }
}

fn thread(
    places: &Places,
    record: u64,
    objects: Option<&Objects>,
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

    const NOWHERE: List = List::Array {
        at: 0,
        length: 0,
        threads: 0,
    };

    /// A process's memory that has these words, by address.
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
            // The newest of a chain, and how many there are.
            (0x4000, 0xc000),
            (0x4008, 3),
            (0xc020, 0xb000),
            (0xb020, 0xa000),
            (0xa020, 0),
        ];
        let mut read = of_words(&words);
        let mut memory = Memory(&mut read);
        let array = List::Array {
            at: 0x1000,
            length: 8,
            threads: 16,
        };
        let chain = List::Chain {
            newest: 0x4000,
            count: 0x4008,
            next: 0x20,
        };
        let (old, new) = (vec![0xa000, 0xb000, 0xc000], vec![0xc000, 0xb000, 0xa000]);
        assert_eq!(array.records(&mut memory), Some(old));
        assert_eq!(chain.records(&mut memory), Some(new));
        assert!(array.state(&mut memory).is_some() && chain.state(&mut memory).is_some());
        let torn = List::Chain {
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
            let places = Places {
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
        let places = Places {
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
        // The monitor's handle, and the object; of the first thread a list whose second entry is left over.
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
        assert_eq!(places.locker(0x7100, &threads, &mut memory), Some(2));
        assert_eq!(places.locker(0x7100, &threads[..1], &mut memory), None);
        assert_eq!(places.locker(0x7300, &threads, &mut memory), None);
    }
}
