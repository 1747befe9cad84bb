//! Tests the walk through HotSpot code over hand-made memory.

use std::collections::BTreeMap;

use proptest::prelude::*;
use wallscope_unwind::native::{
    End, MemoryTables, Registers, StackStart, TableSink, Unwinder, Unwound,
};
use wallscope_unwind::runtime::hotspot::abi::{Heap, Proc};
use wallscope_unwind::runtime::hotspot::{Item, items};

const PID: u32 = 4711;
const CODE: u64 = 0x7f10_0000_0000;
const CODE_BYTES: u64 = 0x4_0000;
const SEGMAP: u64 = 0x7f20_0000_0000;
const NAMES: u64 = 0x7f30_0000_0000;
const STACK: u64 = 0x7f40_0000_0000;
/// Code outside the VM, in no mapping.
const NATIVE: u64 = 0x0040_1230;
const SEGMENT: u64 = 128;
const HEADER: u64 = 16;
const RBP: usize = 6;
const RSP: usize = 7;
const R13: usize = 13;
/// Offset of the code in a blob.
const BEGIN: u64 = 0x100;

const NAME_AT: u64 = 8;
const BEGIN_AT: u64 = 16;
const END_AT: u64 = 24;
const COMPLETE_AT: u64 = 40;
const SIZE_AT: u64 = 44;
const DEOPT_AT: u64 = 56;
const ID_AT: u64 = 68;
const ORIG_AT: u64 = 80;

/// Memory as a list of regions.
#[derive(Clone, Default)]
struct Memory(BTreeMap<u64, Vec<u8>>);

impl Memory {
    fn region(&mut self, at: u64, bytes: usize) {
        self.0.insert(at, vec![0; bytes]);
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (start, region) = self.0.range_mut(..=at).next_back().expect("a region");
        let from = (at - start) as usize;
        region[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    fn half(&mut self, at: u64, half: u32) {
        self.put(at, &half.to_le_bytes());
    }

    fn read(&self, at: u64, to: &mut [u8]) -> usize {
        let Some((start, region)) = self.0.range(..=at).next_back() else {
            return 0;
        };
        let from = region.get((at - start) as usize..).unwrap_or(&[]);
        let n = from.len().min(to.len());
        to[..n].copy_from_slice(&from[..n]);
        n
    }
}

/// A VM with one code heap.
struct Machine {
    memory: Memory,
    next_name: u64,
    next_segment: u64,
    registers: Registers,
    sp: u64,
}

impl Machine {
    fn new() -> Machine {
        let mut memory = Memory::default();
        memory.region(CODE, CODE_BYTES as usize);
        memory.region(SEGMAP, (CODE_BYTES / SEGMENT) as usize);
        memory.put(SEGMAP, &vec![0xff; (CODE_BYTES / SEGMENT) as usize]);
        memory.region(NAMES, 4096);
        memory.region(STACK, 1 << 16);
        Machine {
            memory,
            next_name: NAMES,
            next_segment: 3,
            registers: Registers::default(),
            sp: STACK + 0x100,
        }
    }

    fn proc() -> Proc {
        let mut proc = Proc {
            low: CODE,
            high: CODE + CODE_BYTES,
            blob_name: NAME_AT as u16,
            blob_begin: BEGIN_AT as u16,
            blob_end: END_AT as u16,
            blob_frame_size: SIZE_AT as u16,
            blob_complete: COMPLETE_AT as u16,
            method_deopt: DEOPT_AT as u16,
            method_orig_pc: ORIG_AT as u16,
            method_id: ID_AT as u16,
            segment_shift: SEGMENT.trailing_zeros() as u8,
            header: HEADER as u8,
            ..Proc::default()
        };
        proc.heap[0] = Heap {
            low: CODE,
            high: CODE + CODE_BYTES,
            segmap: SEGMAP,
        };
        proc
    }

    /// Adds a blob of `segments` segments, with frames of `words` words that are complete from byte
    /// 16 of its code on. Returns the address of its code.
    fn blob(&mut self, name: &str, segments: u64, words: u32, id: u32) -> u64 {
        let first = self.next_segment;
        self.next_segment += segments + 1;
        for i in 0..segments {
            // As the VM fills the segment map: the distance, restarted where a byte overflows.
            let back = if i <= 253 { i } else { (i - 254) % 253 + 1 };
            self.memory.put(SEGMAP + first + i, &[back as u8]);
        }
        let head = CODE + first * SEGMENT;
        let blob = head + HEADER;
        self.memory.word(head + 8, 1);
        self.memory.word(blob + NAME_AT, self.next_name);
        self.memory.put(self.next_name, name.as_bytes());
        self.next_name += 64;
        self.memory.word(blob + BEGIN_AT, blob + BEGIN);
        self.memory.word(blob + END_AT, head + segments * SEGMENT);
        self.memory.half(blob + SIZE_AT, words);
        self.memory.half(blob + COMPLETE_AT, 16);
        self.memory.word(blob + DEOPT_AT, blob + BEGIN + 0x60);
        self.memory.half(blob + ORIG_AT, 8);
        self.memory.half(blob + ID_AT, id);
        blob + BEGIN
    }

    fn push(&mut self, words: &[u64]) {
        for word in words {
            self.memory.word(self.sp, *word);
            self.sp += 8;
        }
    }

    /// The frames of a stack with its innermost code at `ip`.
    fn walk(&self, ip: u64) -> Unwound {
        let mut tables = MemoryTables::new();
        tables.put_hotspot(PID, &Machine::proc()).expect("memory");
        let mut registers = self.registers;
        registers.ip = ip;
        registers.general[RSP] = STACK + 0x100;
        let start = StackStart::new(PID, &registers);
        Unwinder::new().unwind(&tables, start, |at, to| self.memory.read(at, to))
    }
}

/// The result of a walk: compiled methods by id, interpreted ones as (method, bcp), others by
/// address.
#[derive(Debug, PartialEq)]
enum WalkedFrame {
    Id(u32, u64),
    Method(u64, u64),
    Other(u64),
}
use WalkedFrame::{Id, Method, Other};

fn seen(stack: &Unwound) -> Vec<WalkedFrame> {
    let words: Vec<u64> = stack.frames.iter().map(|w| w.0).collect();
    let (pid, items) = items(&words);
    assert_eq!(pid, Some(PID));
    items
        .iter()
        .map(|item| match item {
            Item::Native(word) => Other(word.offset()),
            Item::Compiled(word, id) => Id(*id, word.offset()),
            Item::Interpreted { method, bcp } => Method(*method, *bcp),
            Item::Script { frame, .. } => Other(frame.offset()),
        })
        .collect()
}

/// Pushes the frame of an interpreted method, up to its return address `ra`; `rbp` is its caller's.
/// Returns the value of rbp while it runs.
fn interpreted(m: &mut Machine, method: u64, bcp: u64, rbp: u64, ra: u64) -> u64 {
    let fp = m.sp + 8 * 9;
    // expression stack, bcp … method, sender's sp
    m.push(&[0, bcp, 0, 0, 0, 0, method, 0, fp + 16, rbp, ra]);
    fp
}

#[test]
fn interpreted_compiled_and_stub_frames_lead_to_native_ones() {
    let mut m = Machine::new();
    let interpreter = m.blob("Interpreter", 300, 0, 0);
    let compiled = m.blob("nmethod", 4, 6, 17);
    let stub = m.blob("StubRoutines (1)", 4, 0, 0);
    // The compiled method saves its caller's rbp in its frame and uses the register for data.
    let stub_fp = STACK + 0x100 + 8 * (11 + 6 + 12);
    let fp = interpreted(&mut m, 0x8000_1000, 0xdead, 0x55, compiled + 0x40);
    m.push(&[1, 2, 3, 4, stub_fp, stub + 0x33]);
    m.push(&[0; 12]);
    assert_eq!(m.sp, stub_fp);
    m.push(&[0x77, NATIVE]);
    m.registers.general[RBP] = fp;
    m.registers.general[R13] = 0x8000_2007;
    // Far into the blob: several steps through the segment map.
    let pc = interpreter + 290 * SEGMENT;
    let stack = m.walk(pc);
    assert_eq!(
        seen(&stack),
        [
            Method(0x8000_1000, 0x8000_2007),
            Id(17, compiled + 0x40),
            Other(stub + 0x33),
            Other(NATIVE)
        ]
    );
    assert_eq!(stack.end, End::NotLoaded);
    assert!(
        stack
            .frames
            .iter()
            .all(|w| w.file() == 0 || w.file() >= 0xfffc)
    );
}

#[test]
fn a_method_called_by_an_interpreted_one_has_its_bytecode_on_the_stack() {
    let mut m = Machine::new();
    let interpreter = m.blob("Interpreter", 8, 0, 0);
    let native = m.blob("native nmethod", 4, 4, 3);
    let fp = STACK + 0x100 + 8 * 4 + 8 * 9;
    m.push(&[0, 0, fp, interpreter + 0x21]);
    let made = interpreted(&mut m, 0x9000, 0x9123, 0, NATIVE);
    assert_eq!(made, fp);
    let stack = m.walk(native + 0x30);
    assert_eq!(
        seen(&stack),
        [Id(3, native + 0x30), Method(0x9000, 0x9123), Other(NATIVE)]
    );
}

#[test]
fn a_stub_that_does_not_know_its_frame_has_a_frame_pointer() {
    let mut m = Machine::new();
    let stub = m.blob("g1_post_barrier_slow", 4, u32::MAX, 0);
    let method = m.blob("nmethod", 4, 3, 8);
    m.push(&[1, 2, 3, 0x99, method + 0x30, 0, 0x98, NATIVE]);
    m.registers.general[RBP] = STACK + 0x100 + 8 * 3;
    let stack = m.walk(stub + 0x20);
    assert_eq!(seen(&stack), [Other(stub + 0x20), Id(8, method + 0x30)]);
    // The frame has not been made yet: the return address is still where the call put it.
    let mut m = Machine::new();
    let stub = m.blob("g1_post_barrier_slow", 4, u32::MAX, 0);
    let method = m.blob("nmethod", 4, 3, 8);
    m.push(&[method + 0x30]);
    m.registers.general[RBP] = STACK + 0x180;
    assert_eq!(seen(&m.walk(stub))[1], Id(8, method + 0x30));
}

#[test]
fn the_stub_before_a_method_keeps_a_word_above_its_frame_pointer() {
    let mut m = Machine::new();
    let stub = m.blob("StubRoutines (finalstubs)", 4, 0, 0);
    let (method, outer) = (m.blob("nmethod", 4, 3, 8), m.blob("nmethod", 4, 2, 9));
    // Interrupted in a callee of the stub: a stub with a frame size.
    let called = m.blob("nmethod", 4, 2, 7);
    m.push(&[0, stub + 0x20]);
    m.push(&[1, 2, 3, 0x99, !0, method + 0x30]);
    m.push(&[0, 0x98, outer + 0x40]);
    m.push(&[0, NATIVE]);
    m.memory.word(STACK + 0x100, STACK + 0x100 + 8 * 5);
    let seen = seen(&m.walk(called + 0x20));
    assert_eq!(
        seen[1..4],
        [
            Other(stub + 0x20),
            Id(8, method + 0x30),
            Id(9, outer + 0x40)
        ]
    );
}

/// Unwinds a compiled method interrupted where its code is `bytes`, `at` bytes after its start. On
/// the stack, `words` precede its return address into another method.
fn interrupted(bytes: &[u8], at: u64, into: u64, words: u64) -> Vec<WalkedFrame> {
    let mut m = Machine::new();
    let inner = m.blob("nmethod", 4, 4, 1);
    let outer = m.blob("nmethod", 4, 3, 2);
    m.memory.put(inner + at, bytes);
    m.push(&vec![0x1234; words as usize]);
    m.push(&[outer + 0x38]);
    m.push(&[0, 0, outer + 0x44]);
    // An address outside the VM's code, so that the walk ends.
    m.push(&[0, 0, NATIVE]);
    let mut seen = seen(&m.walk(inner + at + into));
    assert_eq!(seen.remove(0), Id(1, inner + at + into));
    for frame in &mut seen {
        if let Id(2, pc) = frame {
            *pc -= outer;
        }
    }
    seen
}

#[test]
fn code_that_makes_or_undoes_its_frame_tells_where_it_is() {
    let push = [0x55, 0x48, 0x83, 0xec, 0x10];
    let both = [Id(2, 0x38), Id(2, 0x44)];
    // Before and after the push, and with the frame made.
    assert_eq!(interrupted(&push, 0x08, 0, 0), both);
    assert_eq!(interrupted(&push, 0x08, 1, 1), both);
    assert_eq!(interrupted(&[0x90], 0x20, 0, 3), both);
    // push %rbp; mov %rsp, %rbp
    assert_eq!(interrupted(&[0x55, 0x48, 0x8b, 0xec], 0x08, 4, 1), both);
    // mov %rbp, 0x10(%rsp), after the stack pointer was moved
    assert_eq!(
        interrupted(&[0x48, 0x89, 0x6c, 0x24, 0x10], 0x08, 0, 3),
        both
    );
    // cmpl $1, 0x20(%r15); jne …: the frame is complete
    let guard = [0x41, 0x81, 0x7f, 0x20, 1, 0, 0, 0, 0x0f, 0x85];
    for into in [0, 8] {
        assert_eq!(interrupted(&guard, 0x04, into, 3), both, "{into}");
    }
    let guard = [0x41, 0x83, 0x7f, 0x20, 1, 0x0f, 0x85];
    for into in [0, 5] {
        assert_eq!(interrupted(&guard, 0x08, into, 3), both, "{into}");
    }
    // A caller outside the VM's code contradicts the prologue.
    assert_eq!(interrupted(&[0x90], 0x0c, 0, 3), both);
    // pop %rbp; cmp 0x348(%r15), %rsp; ja …; ret
    let end = [
        0x5d, 0x49, 0x3b, 0xa7, 0x48, 0x03, 0, 0, 0x0f, 0x87, 1, 0, 0, 0, 0xc3,
    ];
    assert_eq!(interrupted(&end, 0x40, 0, 1), both);
    for into in [1, 8, 14] {
        assert_eq!(interrupted(&end, 0x40, into, 0), both, "{into}");
    }
    // A comparison with a short offset.
    let end = [0x5d, 0x49, 0x3b, 0x67, 0x28, 0x0f, 0x87, 1, 0, 0, 0, 0xc3];
    for into in [1, 5, 11] {
        assert_eq!(interrupted(&end, 0x40, into, 0), both, "{into}");
    }
    // Two words pushed beyond the frame.
    assert_eq!(interrupted(&[0x90], 0x20, 0, 5), both);
}

#[test]
fn a_frame_that_was_given_up_keeps_its_true_address() {
    let mut m = Machine::new();
    let inner = m.blob("nmethod", 4, 4, 1);
    let outer = m.blob("nmethod", 4, 4, 2);
    m.push(&[0, 0, 0, outer + 0x60]);
    m.push(&[0, outer + 0x24, 0, NATIVE]);
    let found = seen(&m.walk(inner + 0x30));
    assert_eq!(found[1], Id(2, outer + 0x24));
}

#[test]
fn code_that_is_not_there_ends_the_stack() {
    let mut m = Machine::new();
    let method = m.blob("nmethod", 4, 4, 1);
    assert_eq!(m.walk(CODE + CODE_BYTES - 64).end, End::NoInfo);
    // A freed blob.
    m.memory.word(method - BEGIN - 8, 0);
    assert_eq!(m.walk(method + 0x30).end, End::NoInfo);
    m.memory.0.remove(&SEGMAP);
    assert_eq!(m.walk(method + 0x30).end, End::Unreadable);
}

#[test]
fn a_caller_outside_the_code_of_the_machine_is_not_believed() {
    let mut m = Machine::new();
    let method = m.blob("nmethod", 4, 4, 1);
    m.push(&[1, 2, 3, NATIVE, 5, 6, 7, 8, 9, 10]);
    let stack = m.walk(method + 0x30);
    assert_eq!(stack.end, End::BadRule);
    assert_eq!(seen(&stack), [Id(1, method + 0x30)]);
}

proptest! {
    /// For any memory content, a walk ends and its words can be read.
    #[test]
    fn garbage_is_survived(
        damage in prop::collection::vec((0u64..CODE_BYTES, any::<u64>()), 0..40),
        map in prop::collection::vec((0u64..CODE_BYTES / SEGMENT, any::<u8>()), 0..40),
        words in prop::collection::vec(prop_oneof![
            any::<u64>(), CODE..CODE + CODE_BYTES, STACK..STACK + 4096,
        ], 0..200),
        rbp in STACK..STACK + 4096,
        at in 0u64..4000,
    ) {
        let mut m = Machine::new();
        for (name, words) in [("Interpreter", 0), ("nmethod", 5), ("StubRoutines (1)", 0),
                              ("vtable chunks", 0), ("native nmethod", 9)] {
            m.blob(name, 5, words, 9);
        }
        for (offset, word) in damage {
            m.memory.word(CODE + (offset & !7), word);
        }
        for (segment, back) in map {
            m.memory.put(SEGMAP + segment, &[back]);
        }
        m.push(&words);
        m.registers.general[RBP] = rbp;
        let stack = m.walk(CODE + at);
        let words: Vec<u64> = stack.frames.iter().map(|w| w.0).collect();
        prop_assert!(items(&words).1.len() <= words.len());
    }
}
