//! Mirror of `bpf/calls.h`.

use wallscope_model::BlockReason;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::event::{Head, PARTS};

pub use wallscope_model::calls::{COARSE, OCTAVES};

/// Meaning of a probe site: `enum ws_site`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Site {
    /// Entry; the kernel emulates the instruction.
    Entry = 0,
    /// Entry; the instruction is single-stepped.
    SteppedEntry,
    /// The kernel's return probe.
    Return,
    /// A `ret`, single-stepped.
    Ret,
    /// A jump out of the function.
    Jump,
    /// A conditional jump out of the function.
    Branch,
    /// A jump by register or table.
    Indirect,
    /// The place where exceptions are caught.
    Catch,
    /// The first of a pair of events.
    Begin,
    /// The second.
    End,
}

impl Site {
    /// Number of kinds.
    pub const COUNT: usize = 10;
}

/// Description of a site for the programs (`WS_COOKIE_…`).
#[derive(Clone, Copy, Debug)]
pub struct Cookie {
    /// Index of the function.
    pub function: u16,
    /// Its meaning.
    pub site: Site,
    /// Condition code of a branch.
    pub condition: u8,
    /// Bytes pushed since the entry.
    pub depth: u16,
    /// Index of an indirect jump.
    pub jump: u16,
    /// Whether the function is only reached by a tail call.
    pub followed: bool,
}

impl Cookie {
    /// A site without particulars.
    pub fn new(function: u16, site: Site) -> Cookie {
        Cookie {
            function,
            site,
            condition: 0,
            depth: 0,
            jump: 0,
            followed: false,
        }
    }

    /// The cookie as one word, for the kernel.
    pub fn pack(self) -> u64 {
        u64::from(self.function)
            | (self.site as u64) << 16
            | u64::from(self.condition & 15) << 20
            | u64::from(self.depth) << 24
            | u64::from(self.jump) << 40
            | u64::from(self.followed) << 56
    }
}

/// Time of a call: on the CPU, runnable by part, blocked by reason.
pub const BOOKS: usize = 1 + PARTS + BlockReason::COUNT;

/// `struct ws_jump`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Jump {
    pub low: i64,
    pub high: i64,
    pub displacement: i64,
    pub base: u8,
    pub index: u8,
    pub scale: u8,
    pub memory: u8,
    pub pad0: u32,
}

/// `struct ws_coarse`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Coarse {
    pub count: u64,
    pub wall: u64,
    pub books: [u64; BOOKS],
}

/// `struct ws_tally`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tally {
    pub entered: u64,
    pub ended: u64,
    pub by_jump: u64,
    pub by_catch: u64,
    pub left: u64,
    pub begun: u64,
    pub deep: u64,
    pub longest: u64,
    pub wall: u64,
}

/// `struct ws_met_kind`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct MetKind {
    pub count: u64,
    pub cold: u64,
}

/// `struct ws_met`.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Met {
    /// By `Site as usize`.
    pub kind: [MetKind; 16],
    pub stay: [u64; 16],
}

/// `struct ws_slow`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Slow {
    pub head: Head,
    pub begin: u64,
    pub end: u64,
    pub wall: u64,
    pub books: [u64; BOOKS],
    pub function: u32,
    pub pid: u32,
    pub tid: u32,
    pub pad0: u32,
    pub comm: [u8; 16],
}

const _: () = assert!(size_of::<Jump>() == 32);
const _: () = assert!(size_of::<Coarse>() == 160);
const _: () = assert!(size_of::<Tally>() == 72);
const _: () = assert!(size_of::<Met>() == 384);
const _: () = assert!(size_of::<Slow>() == 208);
