//! Tests the walk through run-time code over hand-made memory: V8 functions of frames, and code
//! that only returns.

use std::collections::BTreeMap;

use wallscope_unwind::native::{
    End, MappingSpec, MemoryTables, Registers, Source, StackStart, TableStore, Unwinder, Unwound,
};
use wallscope_unwind::runtime::hotspot::{Item, ScriptPosition, abi::Proc, items};

const PID: u32 = 4711;
const CODE: u64 = 0x7f10_0000_0000;
const STACK: u64 = 0x7f40_0000_0000;
const HEAP: u64 = 0x1111_0000_0000;
const RBP: usize = 6;
const RSP: usize = 7;

/// Memory as a list of regions.
#[derive(Default)]
struct Memory(BTreeMap<u64, Vec<u8>>);

impl Memory {
    fn new() -> Memory {
        let regions = [CODE, STACK, HEAP].map(|at| (at, vec![0; 4096]));
        Memory(BTreeMap::from(regions))
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (start, region) = self.0.range_mut(..=at).next_back().expect("a region");
        let from = (at - start) as usize;
        region[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn words(&mut self, at: u64, words: &[u64]) {
        for (word, at) in words.iter().zip((at..).step_by(8)) {
            self.put(at, &word.to_le_bytes());
        }
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

    /// The stack of a thread at `ip`, in a process with one anonymous executable mapping.
    fn walk(&self, ip: u64, sp: u64, fp: u64, v8: Option<Proc>) -> Unwound {
        let mut registers = Registers {
            ip,
            ..Registers::default()
        };
        registers.general[RSP] = sp;
        registers.general[RBP] = fp;
        self.walk_from(&registers, v8)
    }

    fn walk_from(&self, registers: &Registers, v8: Option<Proc>) -> Unwound {
        let mut store = TableStore::new(MemoryTables::new(), 1 << 20).expect("memory");
        let code = MappingSpec {
            start: CODE,
            end: CODE + 4096,
            pgoff: 0,
            source: Source::Anonymous,
        };
        store.set_process(PID, &[code]).expect("memory");
        if let Some(v8) = v8 {
            store.set_hotspot(PID, &v8).expect("memory");
        }
        let start = StackStart::new(PID, registers);
        Unwinder::new().unwind(store.sink(), start, |at, to| self.read(at, to))
    }
}

fn v8() -> Proc {
    Proc {
        js_shared: 24,
        js_code: 48,
        js_bytecode: 40,
        ..Proc::default()
    }
}

/// The functions in a stack.
fn functions_of(walked: &Unwound) -> Vec<(u64, ScriptPosition)> {
    let words: Vec<u64> = walked.frames.iter().map(|w| w.0).collect();
    let function = |item: &Item| match item {
        Item::Script {
            function, place, ..
        } => Some((*function, *place)),
        _ => None,
    };
    items(&words).1.iter().filter_map(function).collect()
}

/// The functions that a walk finds when they lie `distance` bytes apart in the heap.
fn functions(distance: u64) -> Vec<(u64, ScriptPosition)> {
    let mut m = Memory::new();
    for i in 0..3 {
        let (function, fp) = (HEAP + 64 + i * distance, STACK + 0x100 + i * 0x80);
        // Map, properties, elements, SharedFunctionInfo, context, cell, code.
        let shared = 0x2001 + 16 * i;
        m.words(function, &[0x1001, 0, 0, shared, 0, 0, 0x3001 + 16 * i]);
        // Feedback, bytecode offset, count, function, context, then caller and return address.
        let caller = if i < 2 { fp + 0x80 } else { 0 };
        m.words(
            fp - 40,
            &[
                0x4001,
                0x5001,
                1,
                function + 1,
                0x6001,
                caller,
                CODE + 0x100,
            ],
        );
    }
    functions_of(&m.walk(CODE + 0x80, STACK + 0x40, STACK + 0x100, Some(v8())))
}

#[test]
fn functions_are_known_wherever_they_lie_beside_each_other() {
    let expected: Vec<_> = (0..3)
        .map(|i| (0x2001 + 16 * i, ScriptPosition::Code(0x3001 + 16 * i)))
        .collect();
    // A read for one function fetches bytes behind it: all of the next function, a part, or none.
    for distance in (56..1024).step_by(8) {
        assert_eq!(functions(distance), expected, "{distance} bytes apart");
    }
}

#[test]
fn code_that_only_returns_needs_no_frame_pointer() {
    for (by, shift) in [(8u8, 0), (8, 3), (8, 5), (24, 7), (0x78, 1)] {
        let mut m = Memory::new();
        let back = CODE + 0x200 + shift;
        // add $by, %rsp; ret
        m.put(back, &[0x48, 0x83, 0xc4, by, 0xc3]);
        // The innermost function keeps a frame pointer, and passes on a value that is none.
        m.words(STACK + 0x100, &[0x77, back]);
        m.words(STACK + 0x110 + u64::from(by), &[CODE + 0x300]);
        let walked = m.walk(CODE + 0x80, STACK + 0x80, STACK + 0x100, None);
        let frames: Vec<u64> = walked.frames.iter().map(|w| w.lookup_offset()).collect();
        assert_eq!(frames[..], [CODE + 0x80, back - 1, CODE + 0x2ff]);
        assert_eq!(walked.end, End::NoProgress);
    }
    // Code that cannot be read is unwound by frame pointer: only the leaf's code is available.
    let mut m = Memory::new();
    m.0.insert(CODE, vec![0; 0x100]);
    m.words(STACK + 0x100, &[STACK + 0x180, CODE + 0x200]);
    m.words(STACK + 0x180, &[0, CODE + 0x300]);
    let walked = m.walk(CODE + 0x80, STACK + 0x80, STACK + 0x100, None);
    assert_eq!((walked.frames.len(), walked.end), (3, End::Root));
    // And code that continues differently.
    for bytes in [[0x48, 0x83, 0xc4, 8, 0x5d], [0x48, 0x83, 0xec, 8, 0xc3]] {
        let mut m = Memory::new();
        m.put(CODE + 0x200, &bytes);
        m.words(STACK + 0x100, &[STACK + 0x180, CODE + 0x200]);
        m.words(STACK + 0x180, &[0, CODE + 0x300]);
        let walked = m.walk(CODE + 0x80, STACK + 0x80, STACK + 0x100, None);
        assert_eq!(walked.frames.len(), 3);
        assert_eq!(walked.end, End::Root);
    }
}

/// Code of V8 up to its frame: mov -0x30(%rcx), %rbx; testb $1, 7(%rbx); jne; push %rbp; mov %rsp, %rbp.
const ENTRY: &[u8] = &[
    0x48, 0x8b, 0x59, 0xd0, 0xf6, 0x43, 0x07, 0x01, 0x0f, 0x85, 0, 0, 0, 0, 0x55, 0x48, 0x8b, 0xec,
];
/// From the frame on: pop %rbp; cmp $2, %rcx; jg; ret $16; pop %r10; lea (%rsp,%rcx,8), %rsp; push %r10; ret.
const EXIT: &[u8] = &[
    0x5d, 0x48, 0x83, 0xf9, 0x02, 0x7f, 0x03, 0xc2, 0x10, 0, 0x41, 0x5a, 0x48, 0x8d, 0x24, 0xcc,
    0x41, 0x52, 0xc3,
];

/// The stack of a function at `CODE + 0x80`, interrupted `at` bytes further, while rbp is its caller's.
fn without_frame(at: u64, general: &[(usize, u64)]) -> Unwound {
    let mut m = Memory::new();
    m.put(CODE + 0x80, ENTRY);
    m.put(CODE + 0xc0, EXIT);
    for (function, shared) in [(HEAP, 0x2001), (HEAP + 0x100, 0x2011)] {
        m.words(function, &[0x1001, 0, 0, shared, 0, 0, 0x3001]);
    }
    m.words(STACK + 0x80, &[CODE + 0x200]);
    // The caller's frame: bytecode offset, count, function, context, its caller's frame, return address.
    let caller = [1, 0, 0, HEAP + 0x101, 0x6001, 0, CODE + 0x300];
    m.words(STACK + 0x100 - 40, &caller);
    let mut registers = Registers {
        ip: CODE + 0x80 + at,
        ..Registers::default()
    };
    registers.general[RBP] = STACK + 0x100;
    registers.general[RSP] = STACK + 0x80;
    for (register, value) in general {
        registers.general[*register] = *value;
    }
    m.walk_from(&registers, Some(v8()))
}

#[test]
fn compiled_javascript_without_a_frame_is_left_by_the_stack_pointer() {
    let [rcx, rsi, rdi, r10] = [2, 4, 5, 10];
    let [callee, caller] = [0x2001, 0x2011].map(|f| (f, ScriptPosition::Code(0x3001)));
    let is_walked = |at: u64, general: &[(usize, u64)], functions: &[(u64, ScriptPosition)]| {
        let walked = without_frame(at, general);
        assert_eq!(functions_of(&walked), functions, "at {at:#x}");
        assert_eq!(walked.end, End::Root, "at {at:#x}");
        let frames: Vec<u64> = walked
            .frames
            .iter()
            .map(|w| w.0 & 0x7fff_ffff_ffff)
            .collect();
        let places = [CODE + 0x80 + at, CODE + 0x200, CODE + 0x300];
        assert!(places.iter().all(|p| frames.contains(p)), "{frames:x?}");
    };
    for at in [0, 4, 8, 14] {
        let entered = [(rcx, CODE + 0x80), (rsi, 0x6001), (rdi, HEAP + 1)];
        is_walked(at, &entered, &[callee, caller]);
    }
    // What lies below the stack pointer has the function, and is not copied.
    for at in [0x41, 0x45, 0x47, 0x4a] {
        is_walked(at, &[(rcx, 2)], &[caller]);
    }
    for (at, sp) in [(0x4c, 0x88), (0x50, 0x88 + 40)] {
        let popped = [(rcx, 5), (r10, CODE + 0x200), (RSP, STACK + sp)];
        is_walked(at, &popped, &[caller]);
    }
    // In a body rbp is its own, whatever rcx holds.
    let walked = without_frame(0x20, &[(rcx, CODE + 0x80)]);
    assert_eq!(functions_of(&walked), [caller]);
    let words = walked.frames.iter().map(|w| w.0 & 0x7fff_ffff_ffff);
    assert!(!words.into_iter().any(|w| w == CODE + 0x200));
}
