//! Unwinding in user space, by the steps of the kernel programs: for copied stacks, and for stacks
//! that can be read while their thread is blocked.

use crate::native::abi::{self, End, FrameWord, Host, MAX_FRAMES, Pc, Work};
use crate::native::cfi_synthesis::cfa_offset::RuledCode;
use crate::native::sink::MemoryTables;
use rustc_hash::FxHashMap;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// Bit per register, by DWARF number: all registers.
const ALL_REGISTERS: u16 = 0xffff;
/// Maximum cached CFA offsets.
const MAX_CACHED_OFFSETS: usize = 1 << 14;

/// User registers of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// The sixteen general registers by DWARF number: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 …
    /// r15.
    pub general: [u64; 16],
}

/// The innermost end of a stack that is to be unwound.
#[derive(Clone, Copy, Debug)]
pub struct StackStart<'r> {
    process: u32,
    registers: &'r Registers,
    /// Bit per register, by DWARF number.
    known: u16,
    max_frames: usize,
}

impl<'r> StackStart<'r> {
    /// A thread of process `process` of the tables, with these registers.
    pub fn new(process: u32, registers: &'r Registers) -> StackStart<'r> {
        StackStart {
            process,
            registers,
            known: ALL_REGISTERS,
            max_frames: MAX_FRAMES,
        }
    }

    /// With only the registers in `known` (a bit each, by DWARF number). If a rule needs an unknown
    /// rbp, the CFA offset of the code is used instead.
    pub fn knowing(self, known: u16) -> StackStart<'r> {
        StackStart { known, ..self }
    }

    /// With a result of at most `max_frames` frames, and never more than [`MAX_FRAMES`].
    pub fn at_most(self, max_frames: usize) -> StackStart<'r> {
        StackStart { max_frames, ..self }
    }
}

/// Memory of a stack that was copied: each closure fills a buffer from an address on and returns the
/// bytes read.
#[derive(Clone, Copy, Debug)]
pub struct CopiedMemory<F, G, H> {
    /// The stack.
    pub stack: F,
    /// A HotSpot VM's data about its code, which only the process has.
    pub beside: G,
    /// Instructions.
    pub code: H,
}

/// An unwound stack.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unwound {
    /// Frames, innermost first.
    pub frames: Vec<FrameWord>,
    /// Reason why the stack ended.
    pub end: End,
    /// Frames that were unwound by frame pointer: such a frame's caller may be missing.
    pub by_frame_pointer: u16,
    /// Hash of the frames.
    pub hash: u64,
}

/// Unwinds one stack at a time. Reuse it: it caches the rules of addresses that it has seen.
pub struct Unwinder {
    work: Box<Work>,
    cfa_offsets: CfaOffsets,
}

/// CFA − stack pointer in bytes, by generation of mappings, frame and exactness.
type CfaOffsets = FxHashMap<(u32, u64, bool), Option<i64>>;

impl Unwinder {
    /// Creates an unwinder (30 KB).
    pub fn new() -> Unwinder {
        let layout = Layout::new::<Work>();
        // SAFETY: the layout has a size; all zeroes is a valid Work, which holds only integers.
        let work = unsafe {
            let at = alloc_zeroed(layout);
            if at.is_null() {
                handle_alloc_error(layout);
            }
            Box::from_raw(at.cast::<Work>())
        };
        Unwinder {
            work,
            cfa_offsets: CfaOffsets::default(),
        }
    }

    /// Unwinds a stack from its start, by `tables`.
    ///
    /// `read` fills a buffer from an address on and returns the bytes read. HotSpot code adds further
    /// words ([`crate::runtime::hotspot::items`]).
    pub fn unwind<F: FnMut(u64, &mut [u8]) -> usize>(
        &mut self,
        tables: &MemoryTables,
        start: StackStart<'_>,
        mut read: F,
    ) -> Unwound {
        let context: *mut libc::c_void = (&raw mut read).cast();
        self.run(tables, start, [(read_into::<F> as Reader, context); 3])
    }

    /// Unwinds a copied stack, like [`Unwinder::unwind`].
    pub fn unwind_copy<F, G, H>(
        &mut self,
        tables: &MemoryTables,
        start: StackStart<'_>,
        mut memory: CopiedMemory<F, G, H>,
    ) -> Unwound
    where
        F: FnMut(u64, &mut [u8]) -> usize,
        G: FnMut(u64, &mut [u8]) -> usize,
        H: FnMut(u64, &mut [u8]) -> usize,
    {
        let reads = [
            (read_into::<F> as Reader, (&raw mut memory.stack).cast()),
            (read_into::<G> as Reader, (&raw mut memory.beside).cast()),
            (read_into::<H> as Reader, (&raw mut memory.code).cast()),
        ];
        self.run(tables, start, reads)
    }

    /// Runs the C unwinder. `reads`: callbacks for the stack, other memory and code, each with its
    /// closure.
    fn run(
        &mut self,
        tables: &MemoryTables,
        start: StackStart<'_>,
        reads: [(Reader, *mut libc::c_void); 3],
    ) -> Unwound {
        let StackStart {
            process: tgid,
            registers,
            known,
            max_frames,
        } = start;
        if self.cfa_offsets.len() > MAX_CACHED_OFFSETS {
            self.cfa_offsets.clear();
        }
        let mut lookup = OffsetLookup {
            tables,
            generation: tables.procs.get(&tgid).map_or(0, |p| p.generation),
            cfa_offsets: &mut self.cfa_offsets,
            read: reads[0],
        };
        let host = Host {
            rules: tables.rules.as_ptr(),
            rule_count: tables.rules.len() as u64,
            tables: tables.tables.as_ptr(),
            table_count: tables.tables.len() as u64,
            mappings: tables.mappings.as_ptr(),
            mapping_count: tables.mappings.len() as u64,
            proc: tables.procs.get(&tgid).copied().unwrap_or_default(),
            hotspot: tables
                .hotspots
                .get(&tgid)
                .map_or(std::ptr::null(), std::ptr::from_ref),
            read: reads[0].0,
            context: reads[0].1,
            read_beside: reads[1].0,
            beside_context: reads[1].1,
            read_code: reads[2].0,
            code_context: reads[2].1,
            known: known.into(),
            cfa_offset: cfa_offset_at,
            cfa_offset_context: (&raw mut lookup).cast(),
        };
        self.work.regs.value = registers.general;
        self.work.regs.ip = registers.ip;
        // SAFETY: the arrays of `host` outlive the call with the lengths given, `work` is ours, and
        // each context is the closure that its function expects, alive in our caller.
        unsafe {
            let most = max_frames.min(MAX_FRAMES) as u32;
            abi::uw_host_unwind(&host, &mut *self.work, tgid, most);
        }
        let out = &self.work.out;
        Unwound {
            frames: out.frames[..(out.n as usize).min(MAX_FRAMES)]
                .iter()
                .map(|f| FrameWord(*f))
                .collect(),
            end: End::from_raw(out.end).unwrap_or(End::BadRule),
            by_frame_pointer: out.by_fp,
            hash: out.hash,
        }
    }
}

impl Default for Unwinder {
    fn default() -> Self {
        Unwinder::new()
    }
}

/// Lookup of CFA offsets during one unwind.
struct OffsetLookup<'u> {
    tables: &'u MemoryTables,
    generation: u32,
    cfa_offsets: &'u mut CfaOffsets,
    read: (Reader, *mut libc::c_void),
}

impl OffsetLookup<'_> {
    fn cfa_offset(&mut self, pc: Pc, frame: FrameWord) -> Option<i64> {
        let key = (self.generation, frame.0, matches!(pc, Pc::Running(_)));
        if let Some(known) = self.cfa_offsets.get(&key) {
            return *known;
        }
        let (read, context) = self.read;
        let mut code = RuledCode {
            table: self.tables.table(frame.file())?,
            rules: &self.tables.rules,
            delta: (frame.offset()).wrapping_sub(pc.lookup()),
            // SAFETY: as in `run`: the context is the closure that the function expects, which is
            // not running now, and the buffer has the given length.
            read: |at: u64, to: &mut [u8]| unsafe {
                read(context, at, to.as_mut_ptr(), to.len() as u64) as usize
            },
        };
        let cfa_offset = code.cfa_offset(pc);
        self.cfa_offsets.insert(key, cfa_offset);
        cfa_offset
    }
}

/// Looks a CFA offset up in the [`OffsetLookup`] behind `context`; 0: unknown.
unsafe extern "C" fn cfa_offset_at(
    context: *mut libc::c_void,
    ip: u64,
    frame: u64,
    exact: u32,
) -> i64 {
    // SAFETY: `context` is the value that `run` made for the call, and nothing else uses it
    // meanwhile.
    let lookup = unsafe { &mut *context.cast::<OffsetLookup<'_>>() };
    let pc = match exact {
        0 => Pc::Return(ip),
        _ => Pc::Running(ip),
    };
    let cfa_offset = lookup.cfa_offset(pc, FrameWord(frame));
    cfa_offset.unwrap_or(0)
}

type Reader = unsafe extern "C" fn(*mut libc::c_void, u64, *mut u8, u64) -> u64;

/// Calls the closure behind `context`. A panic in it aborts the process: it cannot unwind through
/// C.
unsafe extern "C" fn read_into<F: FnMut(u64, &mut [u8]) -> usize>(
    context: *mut libc::c_void,
    addr: u64,
    to: *mut u8,
    len: u64,
) -> u64 {
    // SAFETY: `context` is the `F` that `unwind` borrowed for the call; `to` has `len` bytes.
    let (read, to) = unsafe {
        (
            &mut *context.cast::<F>(),
            std::slice::from_raw_parts_mut(to, len as usize),
        )
    };
    read(addr, to).min(to.len()) as u64
}
