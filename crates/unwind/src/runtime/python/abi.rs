//! Rust mirror of the structures and values in `bpf/python_abi.h`. The C walk also serves PHP and
//! Ruby.

/// Maximum interpreter frames of one stack: above Python's default recursion limit.
pub const MAX_FRAMES: usize = 1024;
/// Bit of a frame's first word: the outermost function of an eval-loop call.
pub const WORD_ENTRY: u64 = 1 << 48;
/// Maximum bytes that the walk reads at once.
pub(crate) const MAX_READ_BYTES: u32 = 256;

/// Values of `enum py_kind`.
pub(crate) const KIND_OBJECTS: u8 = 1;
pub(crate) const KIND_ENTRY: u8 = 2;
pub(crate) const KIND_SHIM: u8 = 3;
pub(crate) const KIND_PHP: u8 = 4;
pub(crate) const KIND_RUBY: u8 = 5;

/// Why a walk ended (`enum py_end`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum End {
    /// At the thread's outermost function.
    Root = 1,
    /// At the frame limit.
    MaxFrames = 2,
    /// There is no interpreter yet, or no longer.
    NotReady = 3,
    /// The thread does not belong to the interpreter.
    NoThread = 4,
    /// At memory that could not be read.
    Unreadable = 5,
    /// An impossible value was read.
    Garbage = 6,
}

impl End {
    /// Converts `raw`; `None` for values that C never writes.
    pub fn from_raw(raw: u32) -> Option<End> {
        Some(match raw {
            1 => End::Root,
            2 => End::MaxFrames,
            3 => End::NotReady,
            4 => End::NoThread,
            5 => End::Unreadable,
            6 => End::Garbage,
            _ => return None,
        })
    }

    /// The cause of loss to tell for this end; `None` if the stack is complete, or there is no interpreter.
    pub fn loss_cause(self) -> Option<&'static str> {
        match self {
            End::Root | End::NotReady => None,
            End::MaxFrames => Some("stack of Python, PHP or Ruby cut: more than 1024 frames"),
            End::NoThread => {
                Some("stack of Python or Ruby not read: thread unknown to the interpreter")
            }
            End::Unreadable => Some("stack of Python, PHP or Ruby cut: memory could not be read"),
            End::Garbage => Some("stack of Python, PHP or Ruby cut: what was read is no frame"),
        }
    }
}

/// A range of instructions of a file, in the unwinder's frame words (`struct py_span`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Span {
    /// The first frame word.
    pub first: u64,
    /// Bytes of code.
    pub bytes: u64,
}

/// The interpreter of one process (`struct py_proc`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Proc {
    /// Address of `_PyRuntime`; PHP: of `executor_globals`; Ruby: of `ruby_current_vm_ptr`.
    pub runtime: u64,
    /// Address of the GIL's locks; 0: unknown. Ruby: 8 before its holder.
    pub gil: u64,
    /// The eval loop, and its cold part.
    pub eval: [Span; 2],
    pub(crate) gil_bytes: u32,
    pub(crate) interp_head: u32,
    pub(crate) interp_next: u32,
    pub(crate) interp_threads: u32,
    pub(crate) ts_next: u16,
    pub(crate) ts_thread: u16,
    pub(crate) ts_frame: u16,
    pub(crate) cframe_frame: u16,
    pub(crate) ts_cframe: u16,
    pub(crate) frame_code: u16,
    pub(crate) frame_back: u16,
    pub(crate) frame_instr: u16,
    pub(crate) frame_mark: u16,
    pub(crate) code_line: u16,
    pub(crate) code_name: u16,
    pub(crate) code_start: u16,
    pub(crate) ts_wait: u16,
    pub(crate) ts_unblock: u16,
    pub(crate) kind: u8,
    pub(crate) cframe: u8,
    pub(crate) lasti_shift: u8,
    pub(crate) pad0: [u8; 1],
}

impl Proc {
    /// Whether only the process's first thread has frames.
    pub fn is_of_first_thread(&self) -> bool {
        self.kind == KIND_PHP
    }

    /// Whether it is Ruby's, where threads are found one by one.
    pub fn is_ruby(&self) -> bool {
        self.kind == KIND_RUBY
    }

    /// Whether a lock at `address` belongs to the GIL.
    pub fn is_gil(&self, address: u64) -> bool {
        self.gil != 0 && address.wrapping_sub(self.gil) < u64::from(self.gil_bytes)
    }

    /// The bytes that the kernel programs get.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: only integers, without padding (a test compares the size with the sum of the
        // fields), read while `self` is borrowed.
        unsafe { std::slice::from_raw_parts((&raw const *self).cast(), size_of::<Proc>()) }
    }
}

/// Mirror of `struct py_stack`.
#[repr(C)]
pub(crate) struct RawStack {
    kind: u32,
    size: u32,
    hash: u64,
    pid: u32,
    pub n: u32,
    pub end: u32,
    pad0: u32,
    pub words: [u64; 2 * MAX_FRAMES],
}

/// Search for the state of a thread (`struct py_search`).
#[repr(C)]
pub(crate) struct Search {
    matching: u64,
    pub tstate: u64,
    interp: u64,
    pub sp: u64,
    floor: u64,
    best: u64,
    best_at: u64,
    several: u32,
    walked: u32,
    passed: u32,
    hops: u32,
}

/// The frame that is being read (`struct py_frame`).
#[repr(C)]
struct Frame {
    at: u64,
    back: u64,
    code: u64,
    check: u64,
    instr: u64,
    mark: u32,
    lasti: i32,
}

/// Mirror of `struct py_work`.
#[repr(C)]
pub(crate) struct Work {
    pub proc: Proc,
    pub search: Search,
    frame: Frame,
    want: u64,
    need: u32,
    stage: u32,
    buf: [u64; MAX_READ_BYTES as usize / 8],
    pub out: RawStack,
}

/// Reads memory for a walk (`struct py_reader`).
#[repr(C)]
pub(crate) struct Reader {
    /// Fills the whole buffer or returns 0: context, address, buffer, its length.
    pub(crate) read: unsafe extern "C" fn(*mut libc::c_void, u64, *mut u8, u64) -> i32,
    pub(crate) context: *mut libc::c_void,
}

unsafe extern "C" {
    pub(crate) fn py_host_walk(work: *mut Work, pid: u32, matching: u64, reader: *const Reader);
    #[cfg(test)]
    fn py_host_layout(out: *mut u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn both_sides_agree_on_layout_and_values() {
        let mut c = [0u64; 15];
        // SAFETY: py_host_layout writes 15 words.
        unsafe { py_host_layout(c.as_mut_ptr()) };
        let rust = [
            size_of::<Proc>() as u64,
            size_of::<RawStack>() as u64,
            size_of::<Work>() as u64,
            offset_of!(Proc, ts_next) as u64,
            offset_of!(Proc, kind) as u64,
            offset_of!(RawStack, words) as u64,
            offset_of!(Work, search.tstate) as u64,
            offset_of!(Work, out) as u64,
            MAX_FRAMES as u64,
            WORD_ENTRY,
            End::Garbage as u64,
            u64::from(KIND_SHIM),
            offset_of!(Work, search.sp) as u64,
            u64::from(KIND_PHP),
            u64::from(KIND_RUBY),
        ];
        assert_eq!(c, rust);
        let fields = 2 * 8 + 2 * 16 + 4 * 4 + 14 * 2 + 3 + 1;
        assert_eq!(size_of::<Proc>(), fields);
    }

    #[test]
    fn every_end_has_its_words() {
        for raw in 1..=6 {
            assert_eq!(End::from_raw(raw).map(|e| e as u32), Some(raw));
        }
        assert_eq!(End::from_raw(0), None);
        assert_eq!(End::from_raw(7), None);
    }
}
