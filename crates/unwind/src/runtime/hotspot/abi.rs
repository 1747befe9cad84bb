//! The values that the C side (`bpf/hotspot_abi.h`) and this side exchange. The test that both agree
//! is with those of the native unwinder.

/// Heaps of code.
pub(crate) const HEAPS: usize = 4;
/// No offset in a blob may be larger: it is read as one piece.
pub(crate) const MOST_OFFSET: u64 = 480;

pub(crate) const WORD_BYTECODE: u64 = 0xfff9 << 48;
pub(crate) const WORD_SCRIPT_CODE: u64 = 0xfffa << 48;
pub(crate) const WORD_FUNCTION: u64 = 0xfffb << 48;
pub(crate) const WORD_PID: u64 = 0xfffc << 48;
pub(crate) const WORD_CODE: u64 = 0xfffd << 48;
pub(crate) const WORD_METHOD: u64 = 0xfffe << 48;
pub(crate) const WORD_BCP: u64 = 0xffff << 48;

/// A heap of code (`struct hs_heap`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Heap {
    /// First address.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Its map of segments.
    pub segmap: u64,
}

/// The VM of one process, HotSpot or V8 (`struct hs_proc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Proc {
    /// First address of all its code.
    pub low: u64,
    /// One past the last.
    pub high: u64,
    /// Its heaps of code.
    pub heap: [Heap; HEAPS],
    /// Offsets in a blob of code.
    pub blob_name: u16,
    /// Of its code, from the blob's beginning.
    pub blob_begin: u16,
    /// Of its end.
    pub blob_end: u16,
    /// Of the size of its frames, in words.
    pub blob_frame_size: u16,
    /// Of the place in the code from which on the frame is complete.
    pub blob_complete: u16,
    /// Offsets in the blob of a compiled method: of its deoptimisation handler,
    pub method_deopt: u16,
    /// of where a frame keeps what it would have returned to,
    pub method_orig_pc: u16,
    /// and of the compilation's number.
    pub method_id: u16,
    /// Whether beginning, end and handler are offsets from the blob.
    pub offsets: u8,
    /// Bytes of a segment, as a power of two.
    pub segment_shift: u8,
    /// Bytes before each blob.
    pub header: u8,
    /// Instead of all this, V8: where its functions keep what they share with others of their
    /// source; 0: not V8.
    pub js_shared: u8,
    /// Where they keep their code.
    pub js_code: u8,
    /// How far below a frame's pointer its place in the bytecode is.
    pub js_bytecode: u8,
    /// Zero.
    pub pad0: [u8; 2],
}

impl Proc {
    /// The bytes that the kernel programs get.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: only integers, without padding (16 + 96 + 16 + 6 + 2 bytes), read for as long as
        // `self` is borrowed.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Proc>()) }
    }

    /// Whether an address lies in the VM's code.
    pub fn owns(&self, address: u64) -> bool {
        address.wrapping_sub(self.low) < self.high.wrapping_sub(self.low)
    }
}

const _: () = assert!(size_of::<Proc>() == 16 + 24 * HEAPS + 16 + 6 + 2);

/// `struct hs_walk`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Walk {
    proc: Proc,
    names: [[u64; 2]; 8],
    words: [u64; 7],
    halves: [u32; 5],
    stage: u8,
    told: u8,
    guessed: u8,
    optional: u8,
    side_len: u32,
    pad1: u32,
    side_at: u64,
    side: [u64; 65],
}
