//! Tests the CPython walk over hand-made memory: without an interpreter, for each version's frame
//! chain, and over garbage.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wallscope_unwind::runtime::python::{
    InterpretedThread, ListedThread, Walker,
    abi::{End, Proc, WORD_ENTRY},
    template, threads,
};

/// Memory as words at addresses; other addresses do not exist.
#[derive(Default)]
struct Memory(BTreeMap<u64, u8>);

impl Memory {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.0
            .extend(bytes.iter().zip(at..).map(|(b, at)| (at, *b)));
    }

    fn word(&mut self, at: u64, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }

    /// Adds a structure of `size` zero bytes.
    fn object(&mut self, at: u64, size: usize) {
        self.put(at, &vec![0; size]);
    }

    fn read(&self, at: u64, to: &mut [u8]) -> bool {
        to.iter_mut().zip(at..).all(|(b, at)| {
            self.0.get(&at).is_some_and(|byte| {
                *b = *byte;
                true
            })
        })
    }
}

const RUNTIME: u64 = 0x10_0000;
const INTERP: u64 = 0x20_0000;
const OTHER: u64 = 0x30_0000;
const MINE: u64 = 0x31_0000;
const CFRAME: u64 = 0x32_0000;
const FRAMES: u64 = 0x40_0000;
const CODES: u64 = 0x50_0000;
const THREAD: u64 = 0x7f00_0000_1740;

/// Offsets of a version, from its headers. The tables in `layout.rs` come from the headers too;
/// these were copied a second time, by hand.
struct Offsets {
    interp_head: u64,
    threads: u64,
    thread: u64,
    ts_frame: u64,
    code: u64,
    back: u64,
    instr: u64,
    first_line: u64,
    name: u64,
    start: u64,
}

const V3_10: Offsets = Offsets {
    interp_head: 32,
    threads: 8,
    thread: 176,
    ts_frame: 24,
    code: 32,
    back: 24,
    instr: 96,
    first_line: 40,
    name: 112,
    start: 0,
};
const V3_11: Offsets = Offsets {
    interp_head: 40,
    threads: 16,
    thread: 152,
    ts_frame: 56,
    code: 32,
    back: 48,
    instr: 56,
    first_line: 72,
    name: 128,
    start: 184,
};
const V3_12: Offsets = Offsets {
    interp_head: 40,
    threads: 72,
    thread: 136,
    ts_frame: 56,
    code: 0,
    back: 8,
    instr: 56,
    first_line: 68,
    name: 128,
    start: 192,
};

/// A runtime with two threads; the second has three frames, innermost first.
fn memory(o: &Offsets) -> Memory {
    let mut m = Memory::default();
    m.word(RUNTIME + o.interp_head, INTERP);
    m.object(INTERP, 256);
    m.word(INTERP + o.threads, OTHER);
    for thread in [OTHER, MINE] {
        m.object(thread, 256);
    }
    m.word(OTHER + 8, MINE);
    m.word(OTHER + o.thread, THREAD - 4096);
    m.word(MINE + o.thread, THREAD);
    m.word(MINE + o.ts_frame, FRAMES);
    for i in 0..3 {
        let (frame, code) = (FRAMES + i * 0x1000, CODES + i * 0x1000);
        m.object(frame, 128);
        m.object(code, 256);
        m.word(frame + o.code, code);
        m.word(frame + o.back, if i < 2 { frame + 0x1000 } else { 0 });
        m.word(code + o.first_line, 10 * (i + 1));
        m.word(code + o.name, 0x60_0000 + 64 * i);
        let lasti = 4 * (i + 1);
        if o.start > 0 {
            m.word(frame + o.instr, code + o.start + lasti);
        } else {
            m.word(frame + o.instr, lasti / 2); // f_lasti counts units of two bytes in 3.10
        }
    }
    m
}

fn process(minor: u32) -> Proc {
    let mut process = template(minor).expect("a supported version");
    process.runtime = RUNTIME;
    process
}

/// Code, offset and entry mark of each frame.
fn frames(words: &[u64]) -> Vec<(u64, i32, bool)> {
    let frame = |w: &[u64]| {
        (
            w[0] & (WORD_ENTRY - 1),
            w[1] as u32 as i32,
            w[0] & WORD_ENTRY != 0,
        )
    };
    words.chunks_exact(2).map(frame).collect()
}

fn expected(entries: [bool; 3]) -> Vec<(u64, i32, bool)> {
    (0..3)
        .zip(entries)
        .map(|(i, entry)| (CODES + i * 0x1000, 4 * (i as i32 + 1), entry))
        .collect()
}

#[test]
fn all_threads_are_listed_with_their_ids() {
    let listed = |tid, pointer, state| ListedThread {
        tid,
        pointer,
        state,
    };
    let both = [listed(7, THREAD - 4096, OTHER), listed(8, THREAD, MINE)];
    // Up to 3.10 the thread id is at the C library's offset, later beside the pointer.
    let mut m = memory(&V3_10);
    m.put(THREAD - 4096 + 720, &7u64.to_ne_bytes());
    m.put(THREAD + 720, &8u64.to_ne_bytes());
    assert_eq!(threads(&process(10), |at, to| m.read(at, to)), both);
    let mut m = memory(&V3_11);
    m.word(OTHER + V3_11.thread + 8, 7);
    m.word(MINE + V3_11.thread + 8, 8);
    assert_eq!(threads(&process(11), |at, to| m.read(at, to)), both);
    // A frame that points nowhere, and one that points to itself: the walk keeps the frames so far
    // and ends.
    m.word(MINE + 8, 0x9999_0000);
    assert_eq!(threads(&process(11), |at, to| m.read(at, to)), both);
    m.word(MINE + 8, OTHER);
    let all = threads(&process(11), |at, to| m.read(at, to));
    assert!(all.len() > 1000 && all.starts_with(&both));
}

#[test]
fn frame_objects_each_have_a_call() {
    let m = memory(&V3_10);
    let mut state = 0;
    let walked = Walker::new().walk(&process(10), THREAD, &mut state, |at, to| m.read(at, to));
    assert_eq!(walked.end, End::Root);
    assert_eq!(frames(&walked.words), expected([true; 3]));
    assert_eq!(state, MINE);
}

#[test]
fn frames_of_3_11_say_where_a_call_begins() {
    let mut m = memory(&V3_11);
    m.object(CFRAME, 24);
    m.word(MINE + V3_11.ts_frame, CFRAME);
    m.word(CFRAME + 8, FRAMES);
    m.put(FRAMES + 0x1000 + 68, &[1]);
    m.put(FRAMES + 0x2000 + 68, &[1]);
    let walked = Walker::new().walk(&process(11), THREAD, &mut 0, |at, to| m.read(at, to));
    assert_eq!(walked.end, End::Root);
    assert_eq!(frames(&walked.words), expected([false, true, true]));
}

#[test]
fn shims_of_3_12_are_no_functions() {
    let mut m = memory(&V3_12);
    m.object(CFRAME, 24);
    m.word(MINE + V3_12.ts_frame, CFRAME);
    m.word(CFRAME, FRAMES);
    // A shim between the second and third frame, and one at the end.
    for (after, shim, next) in [
        (FRAMES + 0x1000, FRAMES + 0x8000, FRAMES + 0x2000),
        (FRAMES + 0x2000, FRAMES + 0x9000, 0),
    ] {
        m.object(shim, 128);
        m.word(after + V3_12.back, shim);
        m.word(shim + V3_12.back, next);
        m.put(shim + 70, &[3]);
    }
    let walked = Walker::new().walk(&process(12), THREAD, &mut 0, |at, to| m.read(at, to));
    assert_eq!(walked.end, End::Root);
    assert_eq!(frames(&walked.words), expected([false, true, true]));
}

#[test]
fn a_code_object_at_an_old_address_is_told_apart() {
    let mut m = memory(&V3_10);
    let walk = |m: &Memory| {
        Walker::new()
            .walk(&process(10), THREAD, &mut 0, |at, to| m.read(at, to))
            .words
    };
    let before = walk(&m);
    m.word(CODES + V3_10.name, 0x61_0000);
    let after = walk(&m);
    assert_eq!(before[0], after[0]);
    assert_ne!(before[1] >> 32, after[1] >> 32);
    assert_eq!(before[2..], after[2..]);
}

#[test]
fn what_is_missing_says_so() {
    let walk = |m: &Memory, thread: u64, mut state: u64| {
        Walker::new().walk(&process(10), thread, &mut state, |at, to| m.read(at, to))
    };
    let m = memory(&V3_10);
    assert_eq!(walk(&m, THREAD + 64, 0).end, End::NoThread);
    // A remembered thread state is checked before it is used.
    assert_eq!(walk(&m, THREAD, OTHER).words.len(), 6);
    let mut not_begun = memory(&V3_10);
    not_begun.word(RUNTIME + V3_10.interp_head, 0);
    assert_eq!(walk(&not_begun, THREAD, 0).end, End::NotReady);
    let mut cut = memory(&V3_10);
    cut.word(FRAMES + 0x1000 + V3_10.back, 0x77_0000);
    let cut = walk(&cut, THREAD, 0);
    assert_eq!((cut.end, cut.words.len()), (End::Unreadable, 4));
    let mut turned = memory(&V3_10);
    turned.word(FRAMES + 0x1000 + V3_10.back, FRAMES);
    let turned = walk(&turned, THREAD, 0);
    assert_eq!((turned.end, turned.words.len()), (End::MaxFrames, 2048));
}

/// Two interpreters of 3.12. In the newer one, `MINE` runs with frames on the stack of thread
/// `THREAD`, though it is marked as another thread's. The first one has a state for each of the two
/// threads; that of `THREAD` called the newer interpreter.
fn two_interpreters() -> Memory {
    const FIRST: u64 = 0x21_0000;
    const SAME: u64 = 0x33_0000;
    let o = &V3_12;
    let mut m = memory(o);
    m.word(INTERP, FIRST);
    m.word(INTERP + o.threads, MINE);
    m.word(MINE + o.thread, THREAD + 0x100_0000);
    m.object(FIRST, 256);
    m.word(FIRST + o.threads, OTHER);
    m.object(SAME, 256);
    m.word(OTHER + 8, SAME);
    m.word(OTHER + o.thread, THREAD + 0x100_0000);
    m.word(SAME + o.thread, THREAD);
    // The two innermost frames are the inner interpreter's, the third is the outer one's.
    m.word(FRAMES + 0x1000 + o.back, 0);
    let cframes = [
        (MINE, THREAD - 0x2000, FRAMES),
        (SAME, THREAD - 0x1000, FRAMES + 0x2000),
        (OTHER, THREAD + 0x100_0000 - 0x800, FRAMES + 0x9000),
    ];
    for (state, cframe, frame) in cframes {
        m.object(cframe, 24);
        m.word(state + o.ts_frame, cframe);
        m.word(cframe, frame);
    }
    m.object(FRAMES + 0x9000, 128);
    m.word(FRAMES + 0x9000, CODES + 0x1000);
    m
}

fn at(pointer: u64, sp: u64) -> InterpretedThread {
    InterpretedThread {
        pointer,
        sp,
        state: 0,
    }
}

#[test]
fn of_several_interpreters_the_one_on_the_threads_stack_runs() {
    let m = two_interpreters();
    let walk = |thread: u64, sp: u64| {
        let read = |at: u64, to: &mut [u8]| m.read(at, to);
        let walked = Walker::new().walk_from(&process(12), &mut at(thread, sp), read);
        (walked.end, frames(&walked.words))
    };
    let all = expected([false, true, true]);
    // The thread in which one interpreter calls the other, and a thread with frames of the other
    // only.
    assert_eq!(walk(THREAD, THREAD - 0x3000), (End::Root, all.clone()));
    assert_eq!(
        walk(THREAD, THREAD - 0x1800),
        (End::Root, all[2..].to_vec())
    );
    // The thread that the newer interpreter's state is marked with runs its own state.
    let other = THREAD + 0x100_0000;
    let (end, found) = walk(other, other - 0x3000);
    assert_eq!((end, found.len()), (End::Root, 1));
    assert_eq!(found[0].0, CODES + 0x1000);
    // A stack pointer in neither stack.
    assert_eq!(walk(THREAD, THREAD - 0x100).0, End::NoThread);
    // Without a stack pointer: the oldest state, and never another thread's.
    assert_eq!(walk(THREAD, 0).1[0].0, all[2].0);
    assert_eq!(walk(other, 0).1[0].0, CODES + 0x1000);
}

#[test]
fn of_several_interpreters_those_without_frames_do_not_count() {
    const FIRST: u64 = 0x21_0000;
    const SAME: u64 = 0x33_0000;
    let o = &V3_10;
    let mut m = memory(o);
    // A newer one, with an idle state of the thread.
    m.word(RUNTIME + o.interp_head, FIRST);
    m.object(FIRST, 256);
    m.word(FIRST, INTERP);
    m.word(FIRST + o.threads, SAME);
    m.object(SAME, 256);
    m.word(SAME + o.thread, THREAD);
    let mut process = process(10);
    for sp in [0, THREAD - 0x3000] {
        // On the stack, or identified by its frames only.
        m.word(MINE + 48, THREAD - 0x2000);
        let read = |at: u64, to: &mut [u8]| m.read(at, to);
        let walked = Walker::new().walk_from(&process, &mut at(THREAD, sp), read);
        assert_eq!(frames(&walked.words), expected([true; 3]), "{sp:#x}");
    }
    process = template(9).expect("a supported version");
    process.runtime = RUNTIME;
    let read = |at: u64, to: &mut [u8]| m.read(at, to);
    let walked = Walker::new().walk_from(&process, &mut at(THREAD, THREAD - 0x3000), read);
    assert_eq!(walked.words.len(), 6);
}

proptest! {
    #[test]
    fn garbage_ends_the_walk(minor in 8u32..=12, seed in any::<u64>(), dense in any::<bool>()) {
        // Words that are addresses of more such words, or arbitrary values.
        let mut n = seed;
        let mut next = move || {
            n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            n >> 7
        };
        let read = |_: u64, to: &mut [u8]| {
            for word in to.chunks_mut(8) {
                let value = if dense { next() & 0x7fff_ffff_fff8 } else { next() };
                let bytes = value.to_ne_bytes();
                word.copy_from_slice(&bytes[..word.len()]);
            }
            true
        };
        let walked = Walker::new().walk(&process(minor), THREAD, &mut 0, read);
        prop_assert!(walked.words.len() <= 1024);
    }
}
