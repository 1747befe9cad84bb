use super::*;
use crate::native::abi::{End, Rule};
use crate::native::{Capacity, MemoryTables, Registers, StackStart, Unwinder, Unwound};
use std::fs::File;
use std::path::PathBuf;

/// A sink with space for few mappings.
struct Small {
    inner: MemoryTables,
    mappings: usize,
}

impl TableSink for Small {
    fn capacity(&self) -> Capacity {
        Capacity {
            mappings: self.mappings,
            ..self.inner.capacity()
        }
    }
    fn put_rules(&mut self, first: usize, rules: &[Rule]) -> Result<(), SinkError> {
        self.inner.put_rules(first, rules)
    }
    fn put_tables(&mut self, tables: &[(u16, Table)]) -> Result<(), SinkError> {
        self.inner.put_tables(tables)
    }
    fn drop_table(&mut self, file: u16) -> Result<(), SinkError> {
        self.inner.drop_table(file)
    }
    fn put_mappings(&mut self, first: u32, mappings: &[Mapping]) {
        assert!(first as usize + mappings.len() <= self.mappings);
        self.inner.put_mappings(first, mappings);
    }
    fn put_proc(&mut self, tgid: u32, proc: Proc) -> Result<(), SinkError> {
        self.inner.put_proc(tgid, proc)
    }
    fn remove_proc(&mut self, tgid: u32) {
        self.inner.remove_proc(tgid);
    }
    fn put_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError> {
        self.inner.put_hotspot(tgid, vm)
    }
    fn procs(&self) -> Result<Vec<(u32, Proc)>, SinkError> {
        self.inner.procs()
    }
}

fn store(mappings: usize, limit: u64) -> TableStore<Small> {
    let inner = MemoryTables::new();
    TableStore::new(Small { inner, mappings }, limit).unwrap()
}

const ANONYMOUS: MappingSpec<'static> = MappingSpec {
    start: 0x1000,
    end: 0x2000,
    pgoff: 0,
    source: Source::Anonymous,
};

struct Binary {
    file: File,
    key: FileKey,
}

impl Binary {
    fn open(path: impl Into<PathBuf>) -> Binary {
        let file = File::open(path.into()).unwrap();
        let key = FileKey::of_file(&file).unwrap();
        Binary { file, key }
    }

    fn at(&self, start: u64) -> MappingSpec<'_> {
        MappingSpec {
            start,
            end: start + (1 << 30),
            pgoff: 0,
            source: Source::File {
                key: &self.key,
                file: Some(&self.file),
            },
        }
    }
}

/// Two programs that every machine has, of different sizes.
fn two() -> (Binary, Binary) {
    (
        Binary::open(std::env::current_exe().unwrap()),
        Binary::open(std::fs::canonicalize("/bin/sh").unwrap()),
    )
}

#[test]
fn entries_are_used_again_but_never_under_a_process() {
    let mut store = store(100, 1 << 30);
    for i in 0..1000 {
        let list = vec![ANONYMOUS; 7];
        store.set_process(i % 5, &list).unwrap();
        let generations: Vec<u32> = store
            .sink
            .procs()
            .unwrap()
            .iter()
            .map(|p| p.1.generation)
            .collect();
        for (_, p) in store.sink.procs().unwrap() {
            for m in &store.sink.inner.mappings[p.first as usize..(p.first + p.count) as usize] {
                assert_eq!(m.generation, p.generation);
            }
        }
        let distinct: FxHashSet<u32> = generations.iter().copied().collect();
        assert_eq!(distinct.len(), generations.len());
    }
    assert_eq!(store.stats().processes_refused, 0);
    for tgid in 0..5 {
        store.forget_process(tgid);
    }
    store.collect().unwrap();
    assert_eq!(store.stats().mappings, 0);
    assert_eq!(store.slots, SlotAllocator::new(100));
}

#[test]
fn what_the_kernel_copied_at_a_fork_keeps_its_entries() {
    let mut store = store(20, 1 << 30);
    store.set_process(1, &[ANONYMOUS; 8]).unwrap();
    let copy = store.sink.inner.procs[&1];
    store.sink.put_proc(77, copy).unwrap();
    // The parent's list changes often; the child's entries stay.
    for _ in 0..50 {
        store.set_process(1, &[ANONYMOUS; 6]).unwrap();
        let of_child = &store.sink.inner.mappings[copy.first as usize..][..8];
        assert!(of_child.iter().all(|m| m.generation == copy.generation));
    }
    assert_eq!(store.stats().processes_refused, 0);
    store.forget_process(77);
    store.collect().unwrap();
    assert_eq!(store.stats().mappings, 6);
}

#[test]
fn tables_are_built_while_something_else_goes_on() {
    let mut store = store(20, 1 << 30);
    let (first, second) = two();
    let list = [first.at(0x1000), second.at(1 << 40), ANONYMOUS];
    let mut calls = 0;
    store.build(list.iter().map(|m| &m.source), &mut || calls += 1);
    assert!(calls >= 2, "{calls}");
    assert_eq!(store.stats().files, 2);
    assert_eq!(store.stats().tables, 0, "not in the sink yet");
    // The next list brings all of them, though it names only one.
    let ids = store.set_process(1, &list[1..]).unwrap();
    assert_eq!(ids, [2, 0]);
    assert_eq!(store.stats().tables, 2);
    calls = 0;
    store.build(list.iter().map(|m| &m.source), &mut || calls += 1);
    assert_eq!(calls, 0, "nothing is built twice");
}

#[test]
fn lists_that_do_not_fit_are_counted() {
    let mut store = store(10, 1 << 30);
    store.set_process(1, &[ANONYMOUS; 8]).unwrap();
    store.set_process(2, &[ANONYMOUS; 8]).unwrap();
    assert_eq!(store.stats().processes_refused, 1);
    assert!(!store.sink.inner.procs.contains_key(&2));
}

#[test]
fn memory_is_bounded_by_dropping_what_nobody_uses() {
    let (large, small) = two();
    let mut both = store(100, 1 << 30);
    both.set_process(1, &[large.at(1 << 40)]).unwrap();
    let of_large = both.stats().table_bytes;
    both.set_process(1, &[large.at(1 << 40), small.at(1 << 41)])
        .unwrap();
    let of_small = both.stats().table_bytes - of_large;
    assert!(of_small > 0 && of_large > of_small);

    let mut store = store(100, of_large + of_small / 2);
    let ids = store.set_process(1, &[large.at(1 << 40)]).unwrap();
    // The first is in use: the second does not fit, and its stacks end with a reason.
    let refused = store.set_process(2, &[small.at(1 << 41)]).unwrap();
    assert_eq!(store.stats().tables_refused, 1);
    let registers = Registers {
        ip: (1 << 41) + 0x5000,
        ..Registers::default()
    };
    let mut unwinder = Unwinder::new();
    let got = unwinder.unwind(
        &store.sink.inner,
        StackStart::new(2, &registers).at_most(8),
        |_, _| 0,
    );
    assert_eq!(got.end, End::NotLoaded);
    assert_eq!(got.frames[0].file(), refused[0]);
    // The first is no longer in use: it is evicted, and comes back under its id.
    store.forget_process(1);
    assert_eq!(store.set_process(2, &[small.at(1 << 41)]).unwrap(), refused);
    assert_eq!(store.stats().evicted, 1);
    assert_eq!(store.stats().table_bytes, of_small);
    store.forget_process(2);
    assert_eq!(store.set_process(3, &[large.at(1 << 40)]).unwrap(), ids);
    assert_eq!(store.stats().table_bytes, of_large);
}

#[test]
fn one_build_in_two_places_is_one_file() {
    let (_, small) = two();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    std::fs::copy(std::fs::canonicalize("/bin/sh").unwrap(), &path).unwrap();
    let copy = Binary::open(path);
    assert_ne!(copy.key, small.key);
    let mut store = store(100, 1 << 30);
    let ids = store
        .set_process(1, &[small.at(1 << 40), copy.at(1 << 41), small.at(1 << 42)])
        .unwrap();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2]);
    assert_eq!(store.stats().files, 1);
    assert_eq!(store.file_id(&copy.key), Some(ids[0]));
    assert_eq!(store.file_key(ids[0]), Some(&small.key));
}

/// A mapping of a file that is not available.
fn closed<'a>(spec: MappingSpec<'a>) -> MappingSpec<'a> {
    let Source::File { key, .. } = spec.source else {
        panic!("a file is mapped there");
    };
    let source = Source::File { key, file: None };
    MappingSpec { source, ..spec }
}

#[test]
fn a_file_that_comes_to_hand_later_is_looked_at_then() {
    let (_, small) = two();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("no program");
    std::fs::write(&path, [0x90; 4096]).unwrap();
    let other = Binary::open(path);
    let mut store = store(100, 1 << 30);
    let flags = |store: &TableStore<Small>| {
        let memory = &store.sink().inner;
        let of = memory.procs[&1];
        let list = &memory.mappings[of.first as usize..][..of.count as usize];
        list.iter().map(|m| m.file & !0xffff).collect::<Vec<_>>()
    };
    let (a, b) = (small.at(1 << 40), other.at(1 << 41));
    let ids = store.set_process(1, &[closed(a), closed(b)]).unwrap();
    assert_eq!(flags(&store), [MAP_PENDING; 2]);
    assert_eq!(store.set_process(1, &[a, closed(b)]).unwrap(), ids);
    assert_eq!(flags(&store), [0, MAP_PENDING]);
    // A file with a table keeps it.
    assert_eq!(store.set_process(1, &[closed(a), b]).unwrap(), ids);
    assert_eq!(flags(&store), [0, MAP_FP]);
}

#[test]
fn code_that_is_no_program_is_left_by_frame_pointer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cache");
    std::fs::write(&path, [0x90; 4096]).unwrap();
    let cache = Binary::open(path);
    let mut store = store(100, 1 << 30);
    let ids = store.set_process(1, &[cache.at(1 << 40)]).unwrap();
    // Two frames by frame pointer, then the zero that ends such a chain. The registers are those of
    // a function's body; the test can change the code there.
    let base = 0x7f00_0000_0000u64;
    let code = (1 << 40) + 0x10;
    let stack = [base + 32, (1 << 40) + 0x20, 0, 0, 0, (1 << 40) + 0x30, 0, 0];
    let memory = |instruction: [u8; 4]| {
        move |addr: u64, to: &mut [u8]| {
            let mut text = [0x90; 64];
            text[16..20].copy_from_slice(&instruction);
            let words: Vec<u8> = stack.iter().flat_map(|w: &u64| w.to_le_bytes()).collect();
            for (start, bytes) in [(base, &words[..]), (code - 16, &text)] {
                let skip = addr.checked_sub(start).map(|s| s as usize);
                if let Some(rest) = skip.and_then(|s| bytes.get(s..)).filter(|r| !r.is_empty()) {
                    let n = rest.len().min(to.len());
                    to[..n].copy_from_slice(&rest[..n]);
                    return n;
                }
            }
            0
        }
    };
    let body = [0x48, 0x01, 0xd8, 0x90];
    let mut registers = Registers {
        ip: code,
        ..Registers::default()
    };
    registers.general[6] = base;
    registers.general[7] = base - 64;
    let mut unwinder = Unwinder::new();
    let mut run = |registers: &Registers, instruction| {
        let tables = &store.sink.inner;
        let start = StackStart::new(1, registers).at_most(8);
        unwinder.unwind(tables, start, memory(instruction))
    };
    let offsets = |u: &Unwound| u.frames.iter().map(|f| f.offset()).collect::<Vec<_>>();
    let got = run(&registers, body);
    assert_eq!(got.end, End::Root);
    assert_eq!(got.by_frame_pointer, 2);
    assert_eq!(offsets(&got), [0x10, 0x20, 0x30]);
    assert!(got.frames.iter().all(|f| f.file() == ids[0]));
    assert!(got.frames[0].is_exact() && !got.frames[1].is_exact());
    // Interrupted at its first instruction, at its last, and between the two of its prologue: rbp
    // is the caller's, and the return address is at [rsp] or one word above.
    let mut entry = registers;
    entry.general[6] = base + 32;
    entry.general[7] = base + 8;
    let push = [0x55, 0x48, 0x89, 0xe5];
    let endbr = [0xf3, 0x0f, 0x1e, 0xfa];
    for instruction in [push, [0xc3, 0, 0, 0], endbr] {
        let got = run(&entry, instruction);
        assert_eq!(
            (got.end, offsets(&got)),
            (End::Root, vec![0x10, 0x20, 0x30])
        );
    }
    let mut pushed = entry;
    pushed.general[7] = base;
    let got = run(&pushed, [0x48, 0x89, 0xe5, 0x90]);
    assert_eq!(
        (got.end, offsets(&got)),
        (End::Root, vec![0x10, 0x20, 0x30])
    );
    // In a function's body, this address would skip the caller.
    assert_eq!(offsets(&run(&entry, body)), [0x10, 0x30]);
    // A zero that no chain passed down proves nothing.
    registers.general[6] = 0;
    assert_eq!(run(&registers, body).end, End::NoInfo);
}
