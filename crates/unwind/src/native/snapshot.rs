//! Unwinding in user space, with the very steps of the kernel programs: for stacks that were
//! copied, or that can be read from outside while their thread waits.

use crate::native::abi::{self, End, FrameWord, Host, MAX_FRAMES, Work};
use crate::native::sink::MemoryTables;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};

/// User registers of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// Instruction pointer.
    pub ip: u64,
    /// The sixteen general registers by DWARF number: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp,
    /// r8 … r15.
    pub general: [u64; 16],
}

/// An unwound stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwound {
    /// Innermost first.
    pub frames: Vec<FrameWord>,
    /// How it ended.
    pub end: End,
    /// Frames that were left by frame pointer: the caller of such a frame may be missing.
    pub by_frame_pointer: u16,
    /// Hash of the frames.
    pub hash: u64,
}

/// Unwinds one stack at a time. Keep it: it remembers the rules of addresses it has seen.
pub struct Unwinder {
    work: Box<Work>,
}

impl Unwinder {
    /// A new unwinder (30 KB).
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
        Unwinder { work }
    }

    /// Unwinds from `registers`, as process `tgid` of `tables`. `read` fills a buffer from an
    /// address on and returns how many bytes it could read. At most `max_frames` frames, and never
    /// more than [`MAX_FRAMES`]. Code of a HotSpot VM has further words in between
    /// ([`crate::runtime::hotspot::items`]).
    pub fn unwind<F: FnMut(u64, &mut [u8]) -> usize>(
        &mut self,
        tables: &MemoryTables,
        tgid: u32,
        registers: &Registers,
        max_frames: usize,
        mut read: F,
    ) -> Unwound {
        let context: *mut libc::c_void = (&raw mut read).cast();
        let reads = [(read_into::<F> as Reader, context); 2];
        self.run(tables, tgid, registers, max_frames, reads, false)
    }

    /// The same for stacks that were copied: `read` knows nothing but the stack. `beside` is for
    /// what a HotSpot VM keeps about its code, which can only be read from the process itself.
    pub fn unwind_copy<F, G>(
        &mut self,
        tables: &MemoryTables,
        tgid: u32,
        registers: &Registers,
        max_frames: usize,
        mut read: F,
        mut beside: G,
    ) -> Unwound
    where
        F: FnMut(u64, &mut [u8]) -> usize,
        G: FnMut(u64, &mut [u8]) -> usize,
    {
        let reads = [
            (read_into::<F> as Reader, (&raw mut read).cast()),
            (read_into::<G> as Reader, (&raw mut beside).cast()),
        ];
        self.run(tables, tgid, registers, max_frames, reads, true)
    }

    /// `reads`: the stack, what is beside it; each with the closure that it calls. `copy`: there is
    /// nothing but the stack to be read.
    fn run(
        &mut self,
        tables: &MemoryTables,
        tgid: u32,
        registers: &Registers,
        max_frames: usize,
        reads: [(Reader, *mut libc::c_void); 2],
        copy: bool,
    ) -> Unwound {
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
        };
        self.work.regs = registers.general;
        self.work.ip = registers.ip;
        // SAFETY: the arrays of `host` outlive the call with the lengths given, `work` is ours, and
        // each context is the closure that its function expects, alive in our caller.
        unsafe {
            let most = max_frames.min(MAX_FRAMES) as u32;
            abi::uw_host_unwind(&host, &mut *self.work, tgid, most, copy.into());
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

type Reader = unsafe extern "C" fn(*mut libc::c_void, u64, *mut u8, u64) -> u64;

/// Calls the closure behind `context`. A panic in it ends the process: it cannot cross C.
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
