//! The CPython walk over memory made by hand: without an interpreter, for each way in which
//! versions chain their frames, and over garbage.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wallscope_unwind::runtime::python::{
    Walker,
    abi::{End, Proc, WORD_ENTRY},
    template,
};

/// Memory with words at addresses; what was not written is not there.
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

    /// A structure of `size` zero bytes.
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

/// Offsets of a version, as its headers have them (the tables in `layout.rs` were made from the
/// same, so these are written down a second time, by hand).
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

/// A runtime with two threads, the second one with three frames, innermost first.
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
            m.word(frame + o.instr, lasti / 2); // units of two bytes in 3.10
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
    // A shim between the second and the third frame, and one at the end.
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
    // What is remembered of a thread is believed only if it is so.
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

proptest! {
    #[test]
    fn garbage_ends_the_walk(minor in 8u32..=12, seed in any::<u64>(), dense in any::<bool>()) {
        // Words that are addresses of more such words, or anything.
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
