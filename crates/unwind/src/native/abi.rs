//! Rust mirror of the structures and values in `bpf/unwind_abi.h`.

use wallscope_model::StackEnd;

use crate::runtime::hotspot::abi as hotspot;

/// Maximum frames of one stack.
pub const MAX_FRAMES: usize = 1024;
/// Bytes of `uw_work.buf`: two chunks of stack memory.
const BUF_BYTES: usize = 8192;
const CACHE_SIZE: usize = 512;
/// File ids are below this; higher values mark words that are not frames.
pub const FILES: u16 = 0xff00;

/// Bit of a [`FrameWord`]: its address is not a return address.
const FRAME_EXACT: u64 = 1 << 47;

/// An address in code, or an offset of code in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pc {
    /// The instruction that runs next.
    Running(u64),
    /// The instruction to which a call returns.
    Return(u64),
}

impl Pc {
    /// The address itself.
    pub(crate) fn address(self) -> u64 {
        match self {
            Pc::Running(at) | Pc::Return(at) => at,
        }
    }

    /// The address to look the code up at: within the call instruction of a return address.
    pub(crate) fn lookup(self) -> u64 {
        match self {
            Pc::Running(at) => at,
            Pc::Return(at) => at.wrapping_sub(1),
        }
    }
}

/// A frame as the unwinder emits it: file id and offset, equal in every process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FrameWord(pub u64);

impl FrameWord {
    /// The file id ([`crate::native::TableStore::file_key`]). It is below [`FILES`] for a frame;
    /// higher values are other words (see [`crate::runtime::hotspot::Item`]). It is 0 where the
    /// address lies in no mapped file; [`FrameWord::offset`] is then the address itself.
    pub fn file(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The offset in the file, or the address. For a frame that is not exact it is the return
    /// address: one past the call instruction.
    pub fn offset(self) -> u64 {
        self.0 & (FRAME_EXACT - 1)
    }

    /// Whether this is the innermost frame, or one that a signal interrupted.
    pub fn is_exact(self) -> bool {
        self.0 & FRAME_EXACT != 0
    }

    /// The offset, with its meaning.
    pub(crate) fn pc(self) -> Pc {
        match self.is_exact() {
            true => Pc::Running(self.offset()),
            false => Pc::Return(self.offset()),
        }
    }

    /// The offset to look names up at: within the call instruction.
    pub fn lookup_offset(self) -> u64 {
        self.offset().saturating_sub(!self.is_exact() as u64)
    }
}

/// Why a stack ended (`enum uw_end`). The values are also the ids of rules that end a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum End {
    /// At the thread's entry point.
    Root = 1,
    /// At the frame limit.
    MaxFrames = 2,
    /// At an address in no known mapping.
    NoMapping = 3,
    /// The process or the mapping's table is not loaded (yet).
    NotLoaded = 4,
    /// At code without unwind information.
    NoInfo = 5,
    /// At unwind information that cannot be followed.
    BadRule = 6,
    /// At stack memory that could not be read.
    Unreadable = 7,
    /// The next frame would not lie above this one.
    NoProgress = 8,
}

impl End {
    /// Converts `raw`; `None` for values that C never writes.
    pub fn from_raw(raw: u16) -> Option<End> {
        Some(match raw {
            1 => End::Root,
            2 => End::MaxFrames,
            3 => End::NoMapping,
            4 => End::NotLoaded,
            5 => End::NoInfo,
            6 => End::BadRule,
            7 => End::Unreadable,
            8 => End::NoProgress,
            _ => return None,
        })
    }
}

impl From<End> for StackEnd {
    fn from(end: End) -> StackEnd {
        match end {
            End::Root => StackEnd::Root,
            End::MaxFrames => StackEnd::MaxFrames,
            End::NoMapping => StackEnd::NoMapping,
            End::NotLoaded => StackEnd::TableNotLoaded,
            End::NoInfo => StackEnd::NoUnwindInfo,
            End::BadRule => StackEnd::BadRule,
            End::Unreadable => StackEnd::Unreadable,
            End::NoProgress => StackEnd::NoProgress,
        }
    }
}

/// First rule id that comes from a file's unwind information.
pub(crate) const RULE_USER: u32 = 22;
pub(crate) const RULE_FP: u32 = 16;
pub(crate) const RULE_SIGNAL: u32 = 17;
pub(crate) const RULE_FP_ENTRY: u32 = 18;
pub(crate) const RULE_FP_PUSHED: u32 = 19;
pub(crate) const RULE_RETURNS: u32 = 20;
pub(crate) const RULE_FP_POPPED: u32 = 21;

pub(crate) const KIND_REG: u8 = 1;
pub(crate) const KIND_DEREF: u8 = 2;
pub(crate) const KIND_PLT: u8 = 3;
pub(crate) const KIND_FP: u8 = 4;
pub(crate) const KIND_SIGNAL: u8 = 5;
pub(crate) const KIND_SPAWN: u8 = 6;
pub(crate) const KIND_GO: u8 = 7;
pub(crate) const KIND_OTHER: u8 = 8;

pub(crate) const RA_IN_REG: u8 = 0x10;

/// DWARF numbers of the callee-saved registers, in the order of [`Rule::slot`].
pub(crate) const SAVED_REGS: [u16; 6] = [3, 6, 12, 13, 14, 15];

/// How to unwind one frame to its caller (`struct uw_rule`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Rule {
    /// Added to the base register, bytes.
    pub cfa_off: i32,
    /// Added after the dereference, bytes. For a PLT: the byte of an entry from which on its push
    /// has happened.
    pub cfa_add: i16,
    /// The kind, `enum uw_kind`.
    pub kind: u8,
    /// DWARF number of the CFA's base register.
    pub reg: u8,
    /// 0: the return address is at CFA − 8; else 0x10 | the register that holds it.
    pub ra: u8,
    /// Bit per callee-saved register: it is in memory…
    pub saved: u8,
    /// …relative to this frame's rbp, not to the CFA.
    pub rbp_rel: u8,
    /// Bit per callee-saved register: it cannot be recovered.
    pub lost: u8,
    /// Memory location of each, in words of 8 bytes.
    pub slot: [i16; 6],
}

/// An executable mapping as kernel programs see it (`struct uw_mapping`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// `pc + delta` = offset in the file (wrapping).
    pub delta: u64,
    /// File id | flags << 16.
    pub file: u32,
    /// Generation of the list that it belongs to.
    pub generation: u32,
}

pub(crate) const MAP_FP: u32 = 0x1_0000;
pub(crate) const MAP_PENDING: u32 = 0x2_0000;
pub(crate) const MAP_NOTHING: u32 = 0x4_0000;

/// The range of a process's mappings (`struct uw_proc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Proc {
    /// Index of the first mapping.
    pub first: u32,
    /// Number of mappings.
    pub count: u32,
    /// Their generation; 0 means none.
    pub generation: u32,
    /// Number of mappings marked pending because their addresses were unmapped.
    pub voided: u32,
}

#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Cached {
    pc: u64,
    frame: u64,
    generation: u32,
    rule: u32,
}

/// A stack as the unwinder emits it (`struct uw_stack`).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct RawStack {
    /// Frames in use.
    pub n: u32,
    /// The [`End`] as a number.
    pub end: u16,
    /// Frames that were unwound by frame pointer.
    pub by_fp: u16,
    /// Hash of the frames.
    pub hash: u64,
    /// Frames, innermost first.
    pub frames: [u64; MAX_FRAMES],
}

/// Registers of the current frame by DWARF number (`struct uw_regs`).
#[repr(C)]
pub(crate) struct Regs {
    pub value: [u64; 16],
    pub ip: u64,
    valid: u16,
    located: u16,
    pad0: u32,
}

/// The current frame (`struct uw_frame`).
#[repr(C)]
struct Frame {
    word: u64,
    cfa: u64,
    js_fp: u64,
    exact: u8,
    by_fp: u8,
    js_entry: u8,
    pad0: [u8; 5],
}

/// Search for the rule of the current frame (`struct uw_search`).
#[repr(C)]
struct Search {
    rule: u32,
    lo: u32,
    hi: u32,
}

/// Chunks of stack memory (`struct uw_chunks`).
#[repr(C)]
struct Chunks {
    base: [u64; 2],
    len: [u64; 2],
    victim: u64,
}

/// State of one unwind (`struct uw_work`).
#[repr(C)]
pub(crate) struct Work {
    pub regs: Regs,
    frame: Frame,
    proc: Proc,
    tgid: u32,
    max_frames: u32,
    search: Search,
    stage: u32,
    no_code: u32,
    want: u64,
    pub tls: u64,
    chunks: Chunks,
    hs: hotspot::Walk,
    pub out: RawStack,
    buf: [u64; BUF_BYTES / 8],
    cache: [Cached; CACHE_SIZE],
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct HostTable {
    pub words: *const u64,
    pub count: u64,
}

#[repr(C)]
pub(crate) struct Host {
    pub rules: *const Rule,
    pub rule_count: u64,
    pub tables: *const HostTable,
    pub table_count: u64,
    pub mappings: *const Mapping,
    pub mapping_count: u64,
    pub proc: Proc,
    /// The process's HotSpot VM, or null.
    pub hotspot: *const hotspot::Proc,
    pub read: unsafe extern "C" fn(*mut libc::c_void, u64, *mut u8, u64) -> u64,
    pub context: *mut libc::c_void,
    pub read_beside: unsafe extern "C" fn(*mut libc::c_void, u64, *mut u8, u64) -> u64,
    pub beside_context: *mut libc::c_void,
    pub read_code: unsafe extern "C" fn(*mut libc::c_void, u64, *mut u8, u64) -> u64,
    pub code_context: *mut libc::c_void,
    /// Bit per register, by DWARF number: its value is known.
    pub known: u64,
    pub cfa_offset: unsafe extern "C" fn(*mut libc::c_void, u64, u64, u32) -> i64,
    pub cfa_offset_context: *mut libc::c_void,
}

unsafe extern "C" {
    pub(crate) fn uw_host_unwind(host: *const Host, work: *mut Work, tgid: u32, max_frames: u32);
    #[cfg(test)]
    fn uw_host_layout(out: *mut u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn both_sides_agree_on_layout_and_values() {
        let mut c = [0u64; 32];
        // SAFETY: uw_host_layout writes 32 words.
        unsafe { uw_host_layout(c.as_mut_ptr()) };
        let rust = [
            size_of::<Rule>() as u64,
            size_of::<Mapping>() as u64,
            size_of::<Proc>() as u64,
            size_of::<RawStack>() as u64,
            size_of::<Work>() as u64,
            21 * 8,
            size_of::<Host>() as u64,
            offset_of!(Rule, slot) as u64,
            offset_of!(RawStack, frames) as u64,
            offset_of!(Work, regs.ip) as u64,
            offset_of!(Work, buf) as u64,
            offset_of!(Work, out) as u64,
            MAX_FRAMES as u64,
            RULE_USER as u64,
            FRAME_EXACT,
            End::NoProgress as u64,
            MAP_PENDING as u64,
            KIND_SIGNAL as u64,
            KIND_SPAWN as u64,
            offset_of!(Mapping, generation) as u64,
            offset_of!(Rule, saved) as u64,
            size_of::<hotspot::Proc>() as u64,
            offset_of!(hotspot::Proc, blob_name) as u64,
            offset_of!(hotspot::Proc, offsets) as u64,
            size_of::<hotspot::Walk>() as u64,
            hotspot::WORD_PID,
            hotspot::WORD_BCP,
            u64::from(FILES),
            KIND_GO as u64,
            offset_of!(Work, tls) as u64,
            KIND_OTHER as u64,
            MAP_NOTHING as u64,
        ];
        assert_eq!(c, rust);
    }

    #[test]
    fn every_end_has_its_place_in_the_model() {
        let ends: Vec<StackEnd> = (1..=8)
            .map(|raw| End::from_raw(raw).unwrap().into())
            .collect();
        let mut distinct = ends.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), ends.len());
        assert_eq!(End::from_raw(0), None);
        assert_eq!(End::from_raw(9), None);
    }
}
