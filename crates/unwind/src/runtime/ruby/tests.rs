//! Made-up processes in the layouts of Ruby 3.1 and 3.3.

use super::super::python::{Miss, Walker};
use super::*;
use abi::End;

#[test]
fn tables_are_sorted() {
    assert!(GLUE.is_sorted());
}

type Pieces = Vec<(u64, Vec<u8>)>;

/// A process as memory by address.
fn read(memory: &Pieces) -> impl FnMut(u64, &mut [u8]) -> bool + '_ {
    |at, to| {
        memory.iter().any(|(from, bytes)| {
            let into = at.wrapping_sub(*from) as usize;
            let part = bytes.get(into..into.saturating_add(to.len()));
            part.map(|part| to.copy_from_slice(part)).is_some()
        })
    }
}

fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Words at offsets, with zeroes between them.
fn at(places: &[(usize, u64)], length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (at, word) in places {
        bytes[*at..at + 8].copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// A text outside its object, which has one layout in all versions.
fn text(memory: &mut Pieces, object: u64, content: &str) {
    let from = object + 0x1000_0000;
    memory.push((object, words(&[5 | 1 << 13, 0, content.len() as u64, from])));
    memory.push((from, content.as_bytes().to_vec()));
}

/// An array of `elements`, outside its object.
fn array(memory: &mut Pieces, object: u64, elements: &[u64]) {
    let from = object + 0x1000_0000;
    let length = elements.len() as u64;
    memory.push((object, words(&[7, 0, length, length, from])));
    memory.push((from, words(elements)));
}

const VM: u64 = 0x10_000;
const POINTER: u64 = 0x7000_0000;
const METHOD: u64 = 0x1111_0001;
const BLOCK: u64 = 0x2222_0001;
const CFUNC: u64 = 0x5555_0001;
const DUMMY: u64 = 0x7999_0001;
const FINISH: u64 = 0x20;
const MENT: u64 = 0x1a | 6 << 12;
const SVAR: u64 = 0x1a | 2 << 12;
const CODE: u64 = 0x1a | 7 << 12;

fn facts(version: (u32, u32)) -> Facts {
    Facts {
        version: format!("{}.{}.0", version.0, version.1),
        vm: 0x1000,
        exec: (0x100, 16),
        eval_loop: (0x200, 64),
        glue: Vec::new(),
        layout: layout::of_version(version).expect("known"),
        data: (0x2000, 16),
        names: OnceLock::new(),
    }
}

/// Load bias of the process.
const BIAS: u64 = 0xf000;

/// An iseq with its body and three lines: 10 from word 0 on, 12 from word 3, 14 from word 60.
fn piece(memory: &mut Pieces, facts: &Facts, object: u64, label: u64) {
    let body = object + 0x100;
    memory.push((object, words(&[CODE, 0, body, 0, 0])));
    let line = if facts.layout.boxed_line {
        10 << 1 | 1
    } else {
        10
    };
    let l = facts.layout.lines;
    let places = [
        (0, 70 << 32),
        (8, 0x9_0000_1000),
        (64, 0x40_0000),
        (80, label),
        (88, line),
        (l, body + 0x200),
        (l + 16, 3),
        (l + 24, body + 0x300),
    ];
    memory.push((body, at(&places, 192)));
    let mut entries = vec![0u8; 3 * facts.layout.line];
    for (entry, line) in entries
        .chunks_exact_mut(facts.layout.line)
        .zip([10u32, 12, 14])
    {
        entry[..4].copy_from_slice(&line.to_le_bytes());
    }
    memory.push((body + 0x200, entries));
    // Counts of words 0 to 53, nine in each eight bytes, then a block in which bit 6 is word 60.
    let count = |place: u64| if place < 3 { 1u64 } else { 2 };
    let mut table: Vec<u64> = (0..6)
        .map(|i| (0..9).fold(0, |nine, j| nine | count(9 * i + j) << (7 * j)))
        .collect();
    table.extend([2, 0, 1 << 6, 0, 0, 0, 0, 0, 0, 0]);
    memory.push((body + 0x300, words(&table)));
}

/// A thread runs a block called by `Array#each`, called by `Shop#total`, which has special
/// variables before its method entry. Below is the first frame of the stack. Another thread
/// precedes it in the list.
fn process(facts: &Facts) -> Pieces {
    let (l, mut memory) = (&facts.layout, Pieces::new());
    memory.push((VM, words(&[0x20_000])));
    let (ractor, other, thread) = (0x30_000, 0x31_000, 0x32_000);
    memory.push((0x20_000 + u64::from(l.lists), words(&[ractor])));
    memory.push((ractor, words(&[0x20_000 + u64::from(l.lists)])));
    let threads = ractor + u64::from(l.threads) - u64::from(l.ractor);
    memory.push((threads, words(&[other])));
    for (node, next, pointer) in [(other, thread, POINTER + 64), (thread, threads, POINTER)] {
        let mut own = pointer;
        if let Some(native) = l.thread.native {
            own = node + 0x800;
            memory.push((own + u64::from(native), words(&[pointer])));
        }
        let context = (usize::from(l.thread.context), 0x33_000);
        let places = [(0, next), (usize::from(l.thread.pointer), own), context];
        memory.push((node, at(&places, 128)));
    }
    memory.push((POINTER + GLIBC_TID, words(&[77])));
    let frame = u64::from(l.frame);
    let stack = 0x50_000;
    let first = stack + 0x1000 - 4 * frame;
    memory.push((0x33_000, words(&[stack, 0x200, first])));
    // Instruction, code and environment of each frame; its method, its parent environment and its
    // flags.
    let frames = [
        (0x9_0000_1000 + 8 * 4, 0x41_0000, [0, 0, BLOCK | FINISH]),
        (0, 0, [0x42_0000, 0, CFUNC]),
        (
            0x9_0000_1000 + 8 * 62,
            0x43_0000,
            [0x44_0000, 0, METHOD | FINISH],
        ),
        (0, 0, [0, 0, DUMMY | FINISH]),
    ];
    let mut all = Vec::new();
    for (i, (next, code, env)) in frames.into_iter().enumerate() {
        let ep = 0x51_000 + 0x100 * i as u64;
        let mut bytes = words(&[next, 0, code, 0, ep]);
        bytes.resize(frame as usize, 0);
        all.extend(bytes);
        memory.push((ep - 16, words(&env)));
    }
    memory.push((first, all));
    // Array#each, in C; Shop#total, behind special variables.
    memory.push((
        0x42_0000,
        words(&[MENT, 0, 0x42_1000, 2000 << 4, 0x46_0000]),
    ));
    memory.push((0x42_1000, words(&[1, 0])));
    memory.push((0x44_0000, words(&[SVAR, 0x45_0000, 0, 0, 0])));
    memory.push((
        0x45_0000,
        words(&[MENT, 0, 0x45_1000, 2001 << 4, 0x47_0000]),
    ));
    memory.push((0x45_1000, words(&[0, 0x43_0000])));
    piece(&mut memory, facts, 0x41_0000, 0x48_0000);
    piece(&mut memory, facts, 0x43_0000, 0x48_1000);
    text(&mut memory, 0x48_0000, "block in total");
    text(&mut memory, 0x48_1000, "total");
    text(&mut memory, 0x48_2000, "/srv/shop.rb");
    array(&mut memory, 0x40_0000, &[0x48_3000, 0x48_2000]);
    // Names of `+`, of identifier 2000, and of the variables that hold class names.
    text(&mut memory, 0x49_0000, "+");
    text(&mut memory, 0x49_1000, "each");
    text(&mut memory, 0x49_2000, "__classpath__");
    let mut part = vec![0; 1024];
    part[86] = 0x49_0000;
    array(&mut memory, 0x4a_0000, &part);
    let mut part = vec![0; 1024];
    part[2 * (2000 % 512)] = 0x49_1000;
    part[2 * (2002 % 512)] = 0x49_2000;
    array(&mut memory, 0x4b_0000, &part);
    array(&mut memory, 0x4c_0000, &[0x4a_0000, 0, 0, 0x4b_0000]);
    memory.push((0x2000 + BIAS, words(&[0x1234_5678, 0x4c_0000])));
    text(&mut memory, 0x4d_0000, "Array");
    text(&mut memory, 0x4d_1000, "Shop");
    for (class, name) in [(0x46_0000, 0x4d_0000), (0x47_0000, 0x4d_1000)] {
        match l.classes {
            layout::ClassNames::Beside(at_name, _) => {
                let places = [(0, 2), (at_name as usize, name)];
                memory.push((class, at(&places, 256)));
            }
            _ => {
                memory.push((class, at(&[(0, 2), (24, class + 0x200)], 64)));
                memory.push((class + 0x200, words(&[0, class + 0x300])));
                let table = [(32, 0), (40, 1), (48, class + 0x400)];
                memory.push((class + 0x300, at(&table, 64)));
                memory.push((class + 0x400, words(&[9, 2002 << 4, name])));
            }
        }
    }
    memory
}

#[test]
fn a_thread_is_found_walked_and_named() {
    for version in [(2, 7), (3, 0), (3, 1), (3, 3), (3, 4)] {
        let facts = facts(version);
        let mut memory = process(&facts);
        if facts.layout.ractor == 0 {
            // The list of threads is in the VM.
            let head = 0x20_000 + u64::from(facts.layout.lists);
            memory.retain(|(at, _)| *at != head && *at != 0x32_000);
            memory.insert(0, (head, words(&[0x31_000])));
            let places = [
                (0, head),
                (usize::from(facts.layout.thread.pointer), POINTER),
                (32, 0x33_000),
            ];
            memory.push((0x32_000, at(&places, 128)));
        }
        let proc = facts.process(BIAS, 3);
        assert_eq!(
            super::thread_pointer(&proc, 77, &mut read(&memory)),
            Some(POINTER)
        );
        assert_eq!(super::thread_pointer(&proc, 78, &mut read(&memory)), None);
        let mut state = 0;
        // The second walk goes to the thread directly.
        for _ in 0..2 {
            let stack = Walker::new().walk(&proc, POINTER, &mut state, read(&memory));
            assert_eq!((stack.end, state), (End::Root, 0x32_000), "{version:?}");
            let told: Vec<_> = (stack.words.chunks_exact(2))
                .map(|w| {
                    let (address, check) = (w[0] & (abi::WORD_ENTRY - 1), (w[1] >> 32) as u32);
                    let code = facts.read_code(BIAS, address, check, read(&memory));
                    let code = code.expect("a function");
                    let line = code.line_at(w[1] as u32 as i32);
                    (code.name, code.file, line, w[0] & abi::WORD_ENTRY != 0)
                })
                .collect();
            let frame =
                |name: &str, file: &str, line, entry| (name.into(), file.into(), line, entry);
            assert_eq!(
                told,
                [
                    frame("block in total", "/srv/shop.rb", 12, true),
                    frame("Array#each", "ruby:internal", 0, false),
                    frame("Shop#total", "/srv/shop.rb", 14, true),
                ]
            );
        }
        // A remembered state that is now another thread's, or unused.
        for mut state in [0x31_000, 0x66_0000] {
            let stack = Walker::new().walk(&proc, POINTER, &mut state, read(&memory));
            assert_eq!((stack.end, stack.words.len()), (End::Root, 6));
        }
        let mut state = 0;
        let stack = Walker::new().walk(&proc, POINTER + 8, &mut state, read(&memory));
        assert_eq!(stack.end, End::NoThread);
    }
}

#[test]
fn what_is_no_function_is_none() {
    let facts = facts((3, 1));
    let memory = process(&facts);
    let seen = super::super::python::check(0x45_1000 ^ 2001 << 4, 0);
    let read_at = |memory: &Pieces, at, check| facts.read_code(BIAS, at, check, read(memory));
    assert!(read_at(&memory, 0x45_0000, seen).is_ok());
    assert_eq!(read_at(&memory, 0x45_0000, 1), Err(Miss::Changed));
    assert_eq!(read_at(&memory, 0x44_0000, seen), Err(Miss::Changed));
    assert_eq!(read_at(&memory, 0x46_0000, seen), Err(Miss::Changed));
    assert_eq!(read_at(&memory, 0x60_0000, seen), Err(Miss::Unreadable));
    // A label of 2⁶³ bytes; without its line table a function keeps its first line.
    let without = |gone: u64| -> Pieces {
        let kept = memory.iter().filter(|(at, _)| *at != gone);
        kept.cloned().collect()
    };
    let mut changed = without(0x48_1000);
    changed.push((0x48_1000, words(&[5 | 1 << 13, 0, 1 << 63, 0x4000_0000])));
    assert_eq!(read_at(&changed, 0x45_0000, seen), Err(Miss::Changed));
    let code = read_at(&without(0x43_0400), 0x45_0000, seen).expect("named");
    assert_eq!((code.line_at(0x1000 + 8 * 62), code.line), (10, 10));
    // A method of an anonymous class.
    let code = read_at(&without(0x47_0000), 0x45_0000, seen).expect("named");
    assert_eq!(code.name, "total");
}

#[test]
fn chains_that_were_written_over_end() {
    let facts = facts((3, 1));
    let proc = facts.process(BIAS, 3);
    let walk = |memory: &Pieces| {
        let mut state = 0;
        Walker::new()
            .walk(&proc, POINTER, &mut state, read(memory))
            .end
    };
    let changed = |at: u64, to: &[u64]| {
        let mut memory = process(&facts);
        memory.insert(0, (at, words(to)));
        memory
    };
    // A cyclic list of threads, no VM yet, an unknown kind of frame.
    let mut circle = process(&facts);
    circle.insert(0, (0x31_000, at(&[(0, 0x31_000), (40, 0x33_000)], 128)));
    assert_eq!(walk(&circle), End::NoThread);
    assert_eq!(walk(&changed(VM, &[0])), End::NotReady);
    assert_eq!(walk(&changed(0x51_000 - 16, &[0, 0, 0x1234])), End::Garbage);
    // The remembered thread has ended, and another one reuses its pointer: with a context, and
    // without one.
    for dead in [0, 0x3b_000] {
        let mut memory = process(&facts);
        let places = [(0, 0), (80, POINTER), (40, dead)];
        memory.push((0x3a_000, at(&places, 128)));
        memory.push((0x3b_000, words(&[0, 0, 0])));
        let mut state = 0x3a_000;
        let stack = Walker::new().walk(&proc, POINTER, &mut state, read(&memory));
        assert_eq!(
            (stack.end, state, stack.words.len()),
            (End::Root, 0x32_000, 6)
        );
    }
    // The GVL's holder is behind the list of threads.
    let list = 0x30_000 - 568 + 304;
    assert_eq!(
        facts.find_gil(&proc, read(&process(&facts))),
        Some(list + 32 - 8)
    );
    // An endless stack, and the stack of a fiber that has ended.
    assert_eq!(
        walk(&changed(0x33_000, &[0x50_000, 1 << 40, 0x50_000])),
        End::Garbage
    );
    assert_eq!(walk(&changed(0x33_000, &[0, 0, 0])), End::Root);
}
