//! The interpreter walk in user space: frames of a blocked thread of another process.

use super::abi::{self, End, MAX_FRAMES, Proc, RawStack, Work};

/// A thread's interpreter frames: two words each, innermost first (see `struct py_stack`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The frames.
    pub words: Vec<u64>,
    /// Reason why the walk ended.
    pub end: End,
}

/// Maximum threads and interpreters that are listed.
const MAX_HOPS: usize = 16_384;
/// Offset of the thread id in glibc's thread structure on x86-64, for all its versions.
const GLIBC_TID: u64 = 720;

/// A thread in the interpreter's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedThread {
    /// Its thread id, as seen in its process.
    pub tid: u32,
    /// Its pointer (`pthread_self()`).
    pub pointer: u64,
    /// Address of the interpreter's state of the thread.
    pub state: u64,
}

/// Lists the threads of all interpreters of a CPython process, for callers without access to
/// registers. The list ends early where memory cannot be read. Each thread is found through those
/// before it, so all are listed at once.
pub fn threads(proc: &Proc, read: impl FnMut(u64, &mut [u8]) -> bool) -> Vec<ListedThread> {
    let mut all = Vec::new();
    list(proc, read, &mut all);
    all
}

fn word_at(read: &mut impl FnMut(u64, &mut [u8]) -> bool, at: u64) -> Option<u64> {
    let mut bytes = [0u8; 8];
    (at != 0 && at.is_multiple_of(8) && read(at, &mut bytes)).then(|| u64::from_ne_bytes(bytes))
}

/// Appends to `all`. `None`: some memory could not be read, or there are too many.
fn list(
    proc: &Proc,
    mut read: impl FnMut(u64, &mut [u8]) -> bool,
    all: &mut Vec<ListedThread>,
) -> Option<()> {
    let (next, thread) = (usize::from(proc.ts_next), usize::from(proc.ts_thread));
    // From 3.11 on the interpreter stores the id itself, right behind the pointer.
    let own_ids = proc.kind != abi::KIND_OBJECTS;
    let (from, to) = (next.min(thread), next.max(thread + 8) + 8);
    let mut known = vec![0u8; to - from];
    let word = |bytes: &[u8], at: usize| {
        let bytes = bytes.get(at..at + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    let mut hops = 0..MAX_HOPS;
    let mut interp = word_at(&mut read, proc.runtime + u64::from(proc.interp_head))?;
    while interp != 0 {
        let mut state = word_at(&mut read, interp.checked_add(proc.interp_threads.into())?)?;
        while state != 0 {
            hops.next()?;
            if !state.is_multiple_of(8) || !read(state.checked_add(from as u64)?, &mut known) {
                return None;
            }
            let pointer = word(&known, thread - from)?;
            let tid = match own_ids {
                true => word(&known, thread - from + 8)?,
                // The memory of an ended thread is gone.
                false => word_at(&mut read, pointer.wrapping_add(GLIBC_TID)).unwrap_or(0),
            };
            all.push(ListedThread {
                tid: tid as u32,
                pointer,
                state,
            });
            state = word(&known, next - from)?;
        }
        hops.next()?;
        interp = word_at(&mut read, interp.checked_add(proc.interp_next.into())?)?;
    }
    Some(())
}

/// A thread as its interpreter knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterpretedThread {
    /// Its own pointer (`pthread_self()`).
    pub pointer: u64,
    /// Its stack pointer; 0: not known.
    pub sp: u64,
    /// Address of its state, which a walk finds and keeps here for the next one; 0: not known yet.
    pub state: u64,
}

/// Walks one stack at a time. Reuse it: it has 17 KB.
pub struct Walker {
    work: Box<Work>,
}

impl Walker {
    /// Creates a walker.
    pub fn new() -> Walker {
        // SAFETY: all zeroes is a valid Work, which holds only integers.
        let work = unsafe { std::mem::zeroed::<Work>() };
        Walker {
            work: Box::new(work),
        }
    }

    /// Walks the frames of the thread with pointer `thread` (`pthread_self()`), in the process that
    /// `proc` describes.
    ///
    /// `read` fills a buffer from an address on, completely or not at all. `state` caches the
    /// address of the thread's state; start with 0.
    pub fn walk<F: FnMut(u64, &mut [u8]) -> bool>(
        &mut self,
        proc: &Proc,
        thread: u64,
        state: &mut u64,
        read: F,
    ) -> Stack {
        let mut from = InterpretedThread {
            pointer: thread,
            sp: 0,
            state: *state,
        };
        let stack = self.walk_from(proc, &mut from, read);
        *state = from.state;
        stack
    }

    /// Walks like [`Walker::walk`], with the thread's stack pointer. It tells which of several
    /// interpreters the thread runs, and which one called it.
    pub fn walk_from<F: FnMut(u64, &mut [u8]) -> bool>(
        &mut self,
        proc: &Proc,
        thread: &mut InterpretedThread,
        mut read: F,
    ) -> Stack {
        let work = &mut *self.work;
        work.proc = *proc;
        work.search.sp = thread.sp;
        work.search.tstate = thread.state;
        let reader = abi::Reader {
            read: read_into::<F>,
            context: (&raw mut read).cast(),
        };
        // SAFETY: `work` is ours, and the context is the closure that `read_into::<F>` expects.
        unsafe { abi::py_host_walk(work, 0, thread.pointer, &raw const reader) };
        thread.state = work.search.tstate;
        let RawStack { n, end, words, .. } = &work.out;
        Stack {
            words: words[..2 * (*n as usize).min(MAX_FRAMES)].to_vec(),
            end: End::from_raw(*end).unwrap_or(End::Garbage),
        }
    }
}

impl Default for Walker {
    fn default() -> Self {
        Walker::new()
    }
}

/// Calls the closure behind `context`. A panic in it aborts the process: it cannot unwind through
/// C.
unsafe extern "C" fn read_into<F: FnMut(u64, &mut [u8]) -> bool>(
    context: *mut libc::c_void,
    address: u64,
    to: *mut u8,
    len: u64,
) -> i32 {
    // SAFETY: `context` is the `F` that `walk` borrowed for the call; `to` has `len` bytes.
    let (read, to) = unsafe {
        (
            &mut *context.cast::<F>(),
            std::slice::from_raw_parts_mut(to, len as usize),
        )
    };
    i32::from(read(address, to))
}
