//! Reads the interpreter frames of a thread from outside its process, where no kernel program does.
//!
//! - A thread that waits is read at any speed; the caller checks afterwards that it still waits.
//! - A stopped thread is read before it goes on.
//! - A running thread is read as soon as its sample has come. It runs on meanwhile, so each page is read at once,
//!   and a walk that does not reach the root is repeated.
//!
//! The caller judges whether the sample is too old.

use std::collections::hash_map::Entry;

use rustc_hash::FxHashMap;
use wallscope_procfs::process::inner_tid;
use wallscope_unwind::{
    native::FrameWord,
    runtime::{
        Role,
        python::{self, Walker, abi},
        ruby,
    },
};

use super::{Managed, ManagedStack, reader};
use crate::{clock, target::read_memory};

/// Walks of a running thread, at most, until one reaches the root.
const TRIES: u8 = 3;
const PAGE: u64 = 4096;
/// Pause between two readings of a list of threads, as a multiple of the time that a reading takes.
const LIST_PAUSE: u64 = 20;
/// Pages that are kept during a walk; memory beyond them is read piece by piece.
const MAX_PAGES: usize = 64;

/// A thread in which Python may run.
#[derive(Clone, Copy, Debug)]
pub struct Interpreted {
    pid: u32,
    tid: u32,
    proc: abi::Proc,
    /// The thread's pointer.
    pointer: u64,
    /// Where the interpreter keeps the thread; 0: not known yet.
    state: u64,
}

/// Reads the managed frames of threads, one after the other.
#[derive(Default)]
pub struct Reader {
    walk: Walk,
    /// Pointer of each thread, and where the interpreter keeps the thread, by process and thread.
    threads: FxHashMap<(u32, u32), (u64, u64)>,
    /// The interpreters' own lists of threads, by process.
    lists: FxHashMap<u32, List>,
}

/// An interpreter's list of threads as it was read last.
#[derive(Default)]
struct List {
    /// Pointer and place of each thread, by the id that the thread has in its own PID namespace.
    threads: FxHashMap<u32, (u64, u64)>,
    /// When it may be read again, ns: the longer it is, the later.
    next_ns: u64,
}

impl List {
    /// The thread that knows itself as `tid`. The list is read again if it is not there.
    fn find(&mut self, pid: u32, proc: &abi::Proc, tid: u32) -> Option<(u64, u64)> {
        let now = clock::now();
        if !self.threads.contains_key(&tid) && now >= self.next_ns {
            let all = python::threads(proc, reader(pid)).into_iter();
            self.threads = all.map(|t| (t.tid, (t.pointer, t.state))).collect();
            let end = clock::now();
            self.next_ns = end + LIST_PAUSE * (end - now);
        }
        self.threads.get(&tid).copied()
    }
}

impl Reader {
    /// The frames of `subject`; `None` where there are none.
    fn read(&mut self, subject: Interpreted) -> Option<ManagedStack> {
        let Interpreted { pid, tid, .. } = subject;
        let (stack, state) = self.walk.once(subject);
        if state == 0 {
            // The process runs another program by now, or the thread's id was reused.
            self.threads.remove(&(pid, tid));
            if let Some(list) = self.lists.get_mut(&pid) {
                list.threads.clear();
            }
        } else if let Some(known) = self.threads.get_mut(&(pid, tid)) {
            known.1 = state;
        }
        stack
    }

    /// The frames of `subject`, which runs on meanwhile; `None` where there are none, or no consistent ones.
    pub fn read_running(&mut self, subject: Interpreted) -> Option<ManagedStack> {
        (0..TRIES).find_map(|_| self.read(subject).filter(is_whole))
    }
}

/// Whether a walk came to the root.
fn is_whole(stack: &ManagedStack) -> bool {
    abi::End::from_raw(stack.end) == Some(abi::End::Root)
}

/// Walks one stack at a time. Keep it, it is large.
#[derive(Default)]
pub struct Walk {
    walker: Walker,
    pages: Pages,
}

impl Walk {
    /// The frames of `subject`, if there are any, and where the interpreter keeps its thread; 0: nowhere.
    pub fn once(&mut self, subject: Interpreted) -> (Option<ManagedStack>, u64) {
        let Interpreted { pid, mut state, .. } = subject;
        self.pages.known.clear();
        let pages = &mut self.pages;
        let stack = self
            .walker
            .walk(&subject.proc, subject.pointer, &mut state, |at, to| {
                pages.read(pid, at, to)
            });
        let stack = (!stack.words.is_empty()).then(|| ManagedStack {
            pid,
            end: stack.end as u32,
            words: stack.words.into(),
        });
        (stack, state)
    }
}

/// Memory of a process by pages, as far as it has been read: the bytes of one page are of one moment.
#[derive(Default)]
struct Pages {
    known: Vec<u64>,
    bytes: Vec<u8>,
}

impl Pages {
    /// Fills `to` from `address` of process `pid` on, whole or not at all.
    fn read(&mut self, pid: u32, address: u64, to: &mut [u8]) -> bool {
        let page = address & !(PAGE - 1);
        let at = (address - page) as usize;
        if at + to.len() > PAGE as usize {
            return read_memory(pid, address, to) == to.len();
        }
        let index = match self.known.iter().position(|p| *p == page) {
            Some(index) => index,
            None if self.known.len() == MAX_PAGES => {
                return read_memory(pid, address, to) == to.len();
            }
            None => {
                let index = self.known.len();
                self.bytes.resize((index + 1) * PAGE as usize, 0);
                let whole = &mut self.bytes[index * PAGE as usize..];
                if read_memory(pid, page, &mut whole[..PAGE as usize]) != PAGE as usize {
                    return false;
                }
                self.known.push(page);
                index
            }
        };
        let from = index * PAGE as usize + at;
        to.copy_from_slice(&self.bytes[from..from + to.len()]);
        true
    }
}

impl Managed {
    /// Whether frames of process `pid` are kept elsewhere than on the stack, by an interpreter.
    pub fn is_interpreted(&self, pid: u32) -> bool {
        self.spaces.contains_key(&pid)
    }

    /// Access to the Python frames of thread `tid` of `pid`; `None` where it has none.
    pub fn subject(&self, reader_of: &mut Reader, pid: u32, tid: u32) -> Option<Interpreted> {
        let proc = self.spaces.get(&pid)?.proc;
        let (pointer, state) = match reader_of.threads.entry((pid, tid)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if proc.is_of_first_thread() => ((tid == pid).then_some(1)?, 0),
            Entry::Vacant(new) => {
                let inner = inner_tid(tid).unwrap_or(tid);
                let found = if proc.is_ruby() {
                    (ruby::thread_pointer(&proc, inner, &mut reader(pid))?, 0)
                } else {
                    (reader_of.lists.entry(pid).or_default()).find(pid, &proc, inner)?
                };
                *new.insert(found)
            }
        };
        Some(Interpreted {
            pid,
            tid,
            proc,
            pointer,
            state,
        })
    }

    /// The managed frames of thread `tid` of `pid`, which waits with the native stack `frames`; `None` where there
    /// are none. It may run on meanwhile; the caller checks that.
    pub fn read(
        &self,
        reader_of: &mut Reader,
        pid: u32,
        tid: u32,
        frames: &[FrameWord],
    ) -> Option<ManagedStack> {
        if !self.interprets(pid, frames) {
            return None;
        }
        let subject = self.subject(reader_of, pid, tid)?;
        reader_of.read(subject)
    }

    /// Whether Python's interpreter is on a native stack of `pid`.
    pub fn interprets(&self, pid: u32, frames: &[FrameWord]) -> bool {
        self.spaces.contains_key(&pid) && self.roles(pid, frames).contains(&Role::Interpreter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_in_one_page_is_of_one_moment() {
        let mut own = vec![1u8; 4 * PAGE as usize];
        let begin = (own.as_ptr() as u64).next_multiple_of(PAGE);
        let (pid, mut pages, mut to) = (std::process::id(), Pages::default(), [0u8; 8]);
        assert!(pages.read(pid, begin, &mut to) && to == [1; 8]);
        own.fill(2);
        assert!(
            pages.read(pid, begin + 64, &mut to) && to == [1; 8],
            "as it was"
        );
        assert!(pages.read(pid, begin + PAGE, &mut to) && to == [2; 8]);
        // Across two pages there is no one moment.
        assert!(pages.read(pid, begin + PAGE - 4, &mut to) && to == [2; 8]);
        assert!(!pages.read(pid, 0x10, &mut to));
        std::hint::black_box(&own);
    }
}
