//! The walk in user space: a waiting thread's Python frames, read from outside.

use super::abi::{self, End, MAX_FRAMES, Proc, RawStack, Work};

/// A thread's Python frames: two words each, innermost first (see `struct py_stack`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The frames.
    pub words: Vec<u64>,
    /// How the walk ended.
    pub end: End,
}

/// Walks one stack at a time; keep it, it is 9 KB.
pub struct Walker {
    work: Box<Work>,
}

impl Walker {
    /// A new walker.
    pub fn new() -> Walker {
        // SAFETY: all zeroes is a valid Work, which holds only integers.
        let work = unsafe { std::mem::zeroed::<Work>() };
        Walker {
            work: Box::new(work),
        }
    }

    /// The frames of the thread whose pointer is `thread` (`pthread_self()`), in the process that
    /// `proc` describes. `read` fills a buffer from an address on, whole or not at all. `state`
    /// remembers where the interpreter keeps the thread; begin with 0.
    pub fn walk<F: FnMut(u64, &mut [u8]) -> bool>(
        &mut self,
        proc: &Proc,
        thread: u64,
        state: &mut u64,
        mut read: F,
    ) -> Stack {
        let work = &mut *self.work;
        work.proc = *proc;
        work.tstate = *state;
        // SAFETY: `work` is ours, and `context` is the closure that `read_into::<F>` expects.
        unsafe { abi::py_host_walk(work, 0, thread, read_into::<F>, (&raw mut read).cast()) };
        *state = work.tstate;
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

/// Calls the closure behind `context`. A panic in it ends the process: it cannot cross C.
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
