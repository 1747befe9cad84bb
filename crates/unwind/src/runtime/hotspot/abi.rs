//! Rust mirror of the structures and values in `bpf/hotspot_abi.h`. A test in the native unwinder's
//! `abi.rs` compares both.

/// Maximum code heaps.
pub(crate) const MAX_HEAPS: usize = 4;
/// Maximum offset in a blob: a blob's header is read in one piece.
pub(crate) const MAX_BLOB_OFFSET: u64 = 480;

pub(crate) const WORD_BYTECODE: u64 = 0xfff9 << 48;
pub(crate) const WORD_SCRIPT_CODE: u64 = 0xfffa << 48;
pub(crate) const WORD_FUNCTION: u64 = 0xfffb << 48;
pub(crate) const WORD_PID: u64 = 0xfffc << 48;
pub(crate) const WORD_CODE: u64 = 0xfffd << 48;
pub(crate) const WORD_METHOD: u64 = 0xfffe << 48;
pub(crate) const WORD_BCP: u64 = 0xffff << 48;

/// A code heap (`struct hs_heap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Heap {
    /// First address.
    pub low: u64,
    /// One past the last address.
    pub high: u64,
    /// Address of its segment map.
    pub segmap: u64,
}

/// The HotSpot or V8 runtime of one process (`struct hs_proc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Proc {
    /// First address of all its code.
    pub low: u64,
    /// One past the last address.
    pub high: u64,
    /// Its code heaps.
    pub heap: [Heap; MAX_HEAPS],
    /// Offset in a blob: its name.
    pub blob_name: u16,
    /// Offset in a blob: the start of its code.
    pub blob_begin: u16,
    /// Offset in a blob: the end of its code.
    pub blob_end: u16,
    /// Offset in a blob: the size of its frames, in words.
    pub blob_frame_size: u16,
    /// Offset in a blob: the code offset from which a frame is complete.
    pub blob_complete: u16,
    /// Offset in a compiled method's blob: its deoptimisation handler.
    pub method_deopt: u16,
    /// Offset in a compiled method's blob: the frame slot of the original return address.
    pub method_orig_pc: u16,
    /// Offset in a compiled method's blob: the compile id.
    pub method_id: u16,
    /// Whether start, end and handler are offsets from the blob.
    pub offsets: u8,
    /// Bytes of a segment, as a power of two.
    pub segment_shift: u8,
    /// Bytes before each blob.
    pub header: u8,
    /// V8 instead: offset of the SharedFunctionInfo in a function; 0: not V8.
    pub js_shared: u8,
    /// V8: offset of the code in a function.
    pub js_code: u8,
    /// V8: distance below a frame pointer of the bytecode offset.
    pub js_bytecode: u8,
    /// Padding, zero.
    pub pad0: [u8; 2],
}

impl Proc {
    /// The bytes that the kernel programs get.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: only integers, without padding (16 + 96 + 16 + 6 + 2 bytes), read while `self` is
        // borrowed.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Proc>()) }
    }

    /// Whether an address lies in the VM's code.
    pub fn owns(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.high.wrapping_sub(self.low)
    }
}

const _: () = assert!(size_of::<Proc>() == 16 + 24 * MAX_HEAPS + 16 + 6 + 2);

/// Memory outside the stack (`struct hs_side`).
#[derive(Clone, Copy)]
#[repr(C)]
struct Side {
    len: u32,
    pad0: u32,
    at: u64,
    words: [u64; 65],
}

/// State of a walk (`struct hs_walk`).
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Walk {
    proc: Proc,
    names: [[u64; 2]; 8],
    blob: [u64; 7],
    search: [u64; 3],
    stage: u8,
    pid_emitted: u8,
    from_cache: u8,
    optional: u8,
    side: Side,
}
