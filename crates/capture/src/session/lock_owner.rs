//! Owner of a lock of the C library, read from the lock's own memory. Two kinds of wait need it: a wait that
//! is not over at the end of a recording, and a wait that ends by its own time limit. For these, no thread
//! was seen to release the lock.
//!
//! glibc keeps the owner's thread id beside a mutex's word. Robust mutexes and those with priority
//! inheritance keep it in the word itself. A read-write lock keeps its writer's id. To the kernel each is a
//! word of memory, like many words that keep no id. So an owner is believed only if all of these agree:
//! - The thread still waits at that word, by the call and with the value that such a lock waits with.
//! - The word says that a thread waits.
//! - The memory around the word is as in such a lock.
//! - The id is that of a live thread, of the same process or of one that maps the same memory.
//! - The names of the functions on the waiter's stack, which are known later
//!   (`wallscope_diagnose::lock_names`).
//!
//! Semaphores, and the locks of Rust, Go, C++20 and Python's `threading`, keep no id, so no owner is found
//! for them.

use rustc_hash::FxHashMap;
use wallscope_model::told_by;
use wallscope_observe::LockHolder;
use wallscope_procfs::{kernel_file, maps, process};

use crate::{
    backend::proc::waiting::{Call, SyscallState},
    event::{WORDS_BEFORE, WordsEvent},
    syscalls::{self, FUTEX_LOCK_PI2, futex_operation},
    target::read_memory,
};

/// Most waits that are examined: each takes some 20 µs.
const MAX_WAITS: usize = 4096;

/// Bits of a futex's word: a thread waits; the id of the owner.
const WAITERS: u32 = 0x8000_0000;
const ID: u32 = 0x3fff_ffff;
/// Value of a plain mutex's word while a thread waits for it, and of a read-write lock's.
const MUTEX_AWAITED: u32 = 2;
const RWLOCK_AWAITED: u32 = 3;
/// Kinds of mutex that are locked by that word: normal to adaptive, shared between processes or not, and the
/// flags for lock elision.
const PLAIN_KINDS: u32 = 3 | 128 | 256 | 512;
/// Bits of a read-write lock's first word: a writer has it, and it is the writers' turn.
const WRITERS_TURN: u32 = 1;
const WRITE_LOCKED: u32 = 2;
/// Ids of threads are below this (`PID_MAX_LIMIT`). A thread that parks in Rust's standard library waits with the value
/// `u32::MAX`.
const ID_LIMIT: u32 = 1 << 22;
/// Value that musl writes into plain mutexes instead of an id (`EBUSY`).
const NO_ID: u32 = 16;

/// Evidence for a lock's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerEvidence {
    /// A mutex.
    Mutex = 1,
    /// A read-write lock.
    RwLock = 2,
    /// A futex with priority inheritance, which the kernel locks and hands off: its word is the owner's id.
    Futex = 3,
    /// A Java monitor.
    Monitor = 4,
    /// A mutex, when the wait began.
    MutexThen = 5,
    /// A read-write lock, when the wait began.
    RwLockThen = 6,
    /// A futex with priority inheritance, when the wait began.
    FutexThen = 7,
}

impl OwnerEvidence {
    /// Returns the name, in a recording, of the evidence with this number.
    pub fn name(number: u8) -> Option<&'static str> {
        [
            told_by::MUTEX,
            told_by::RWLOCK,
            told_by::FUTEX,
            told_by::MONITOR,
            told_by::MUTEX_THEN,
            told_by::RWLOCK_THEN,
            told_by::FUTEX_THEN,
        ]
        .get(usize::from(number).checked_sub(1)?)
        .copied()
    }

    /// Returns the evidence with this number; `None`: there is none.
    pub fn from_number(number: u8) -> Option<OwnerEvidence> {
        [
            OwnerEvidence::Mutex,
            OwnerEvidence::RwLock,
            OwnerEvidence::Futex,
            OwnerEvidence::Monitor,
            OwnerEvidence::MutexThen,
            OwnerEvidence::RwLockThen,
            OwnerEvidence::FutexThen,
        ]
        .get(usize::from(number).checked_sub(1)?)
        .copied()
    }

    /// Returns the evidence that stands for this lock when the wait began.
    pub fn then(self) -> OwnerEvidence {
        match self {
            OwnerEvidence::Mutex => OwnerEvidence::MutexThen,
            OwnerEvidence::RwLock => OwnerEvidence::RwLockThen,
            OwnerEvidence::Futex => OwnerEvidence::FutexThen,
            other => other,
        }
    }

    /// Whether the evidence is from when the wait began.
    pub fn was_then(self) -> bool {
        matches!(
            self,
            OwnerEvidence::MutexThen | OwnerEvidence::RwLockThen | OwnerEvidence::FutexThen
        )
    }
}

/// Owner of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// Evidence for it.
    pub told: OwnerEvidence,
    /// The owner's process.
    pub pid: u32,
    /// The owner's thread.
    pub tid: u32,
}

/// Reads the owners of locks.
#[derive(Default)]
pub struct Reader {
    /// Threads by process: id in the process's own PID namespace, id in ours.
    threads: FxHashMap<u32, Vec<(u32, u32)>>,
    looked_into: usize,
}

impl Reader {
    /// Returns the owner of the lock with its word at `address` that thread `tid` of process `pid` waits for
    /// now.
    pub fn owner(&mut self, pid: u32, tid: u32, address: u64) -> Option<LockOwner> {
        let word = |offset: i64| {
            let mut bytes = [0; 4];
            let at = address.checked_add_signed(offset)?;
            (read_memory(tid, at, &mut bytes) == bytes.len()).then(|| u32::from_ne_bytes(bytes))
        };
        // Most waits are for something else: one read of the word shows that.
        let now = word(0)?;
        if !matches!(now, MUTEX_AWAITED | RWLOCK_AWAITED) && now & WAITERS == 0 {
            return None;
        }
        if self.looked_into >= MAX_WAITS {
            return None;
        }
        self.looked_into += 1;
        let before = call(pid, tid)?;
        if !syscalls::is_futex(before.number.into()) || before.arguments[0] != address {
            return None;
        }
        let [_, op, value, ..] = before.arguments;
        let candidates = owners(op as u32, value as u32, word);
        // The thread may have got the lock meanwhile.
        if word(0)? != now || call(pid, tid)? != before {
            return None;
        }
        self.one(pid, address, candidates, |_| false)
    }

    /// Returns the owner of the lock that a thread began to wait for with a time limit, from the words around
    /// its futex. `measured`: whether that process has or had a thread of this id.
    pub fn had(&mut self, e: &WordsEvent, measured: impl Fn(u32) -> bool) -> Option<LockOwner> {
        let word = |offset: i64| {
            let index = usize::try_from(offset / 4 + WORDS_BEFORE as i64).ok()?;
            e.word.get(index).copied()
        };
        let candidates = owners(e.op, e.value, word);
        if self.looked_into >= MAX_WAITS || candidates.iter().all(Option::is_none) {
            return None;
        }
        self.looked_into += 1;
        self.one(e.pid, e.address, candidates, measured)
    }

    /// Returns the thread that `candidates` name, if all that can be found are the same one.
    fn one(
        &mut self,
        pid: u32,
        address: u64,
        candidates: [Option<(OwnerEvidence, u32)>; 2],
        measured: impl Fn(u32) -> bool,
    ) -> Option<LockOwner> {
        let mut alive = candidates.into_iter().flatten().filter_map(|(told, id)| {
            let own = self.thread(pid, id).or_else(|| measured(id).then_some(id));
            let (pid, tid) = match own {
                Some(tid) => (pid, tid),
                None => (sharer(pid, address, id)?, id),
            };
            Some(LockOwner { told, pid, tid })
        });
        let owner = alive.next()?;
        alive.all(|other| other == owner).then_some(owner)
    }

    /// Returns the thread of `pid` that has `id` in the process's own PID namespace.
    fn thread(&mut self, pid: u32, id: u32) -> Option<u32> {
        let known = self.threads.entry(pid).or_insert_with(|| {
            let all = process::threads(pid).unwrap_or_default();
            match process::inner_tid(pid) {
                Ok(inner) if inner != pid => (all.into_iter())
                    .filter_map(|tid| Some((process::inner_tid(tid).ok()?, tid)))
                    .collect(),
                _ => all.into_iter().map(|tid| (tid, tid)).collect(),
            }
        });
        known
            .iter()
            .find(|(inner, _)| *inner == id)
            .map(|(_, tid)| *tid)
    }
}

/// Returns the system call that a thread waits in.
pub(super) fn call(pid: u32, tid: u32) -> Option<Call> {
    let text = kernel_file::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).ok()?;
    match SyscallState::parse(&text)? {
        SyscallState::Blocked { call, .. } => call,
        SyscallState::Running => None,
    }
}

/// Returns the owners that the memory around a futex names, for a call with this operation and value. `word`:
/// the four bytes at this offset from the futex.
fn owners(
    op: u32,
    value: u32,
    word: impl Fn(i64) -> Option<u32>,
) -> [Option<(OwnerEvidence, u32)>; 2] {
    let now = word(0);
    let of = |told: OwnerEvidence, id: Option<u32>| {
        let id = id.filter(|id| !matches!(*id, 0 | NO_ID) && *id < ID_LIMIT);
        id.map(|id| (told, id))
    };
    let in_word = || now.filter(|now| now & WAITERS != 0).map(|now| now & ID);
    match futex_operation(op.into()) {
        libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => [of(OwnerEvidence::Futex, in_word()), None],
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => match value {
            // struct __pthread_mutex_s: lock, count, owner, users, kind.
            MUTEX_AWAITED if now == Some(value) => {
                let users = word(12).is_some_and(|users| users > 0);
                let plain = word(16).is_some_and(|kind| kind & !PLAIN_KINDS == 0);
                [
                    of(OwnerEvidence::Mutex, word(8).filter(|_| users && plain)),
                    None,
                ]
            }
            // struct __pthread_rwlock_arch_t: readers, writers, turn, writers' turn, two words, writer.
            // Readers wait at the turn, writers at the writers' turn.
            RWLOCK_AWAITED if now == Some(value) => {
                let both = WRITERS_TURN | WRITE_LOCKED;
                let of_reader = word(-8).filter(|readers| readers & both == both);
                let of_writer = word(-12).filter(|readers| readers & WRITE_LOCKED != 0);
                [
                    of(OwnerEvidence::RwLock, of_reader.and_then(|_| word(16))),
                    of(OwnerEvidence::RwLock, of_writer.and_then(|_| word(12))),
                ]
            }
            value if value & WAITERS != 0 => [of(OwnerEvidence::Mutex, in_word()), None],
            _ => [None, None],
        },
        _ => [None, None],
    }
}

/// Returns the process of thread `tid`, if it maps the memory that `pid` shares at `address`.
fn sharer(pid: u32, address: u64, tid: u32) -> Option<u32> {
    let all = maps::read(pid).ok()?;
    let inside = |m: &&maps::Mapping| (m.start..m.end).contains(&address);
    let ours = all.iter().find(inside).filter(|m| m.shared)?;
    // An id means the same to both processes only if both are in our PID namespace.
    let status = process::status(tid).ok()?;
    if status.ns_pids.last() != Some(&tid) || process::inner_pid(pid).ok()? != pid {
        return None;
    }
    let theirs = maps::read(status.tgid).ok()?;
    let same = |m: &maps::Mapping| m.shared && (m.device, m.inode) == (ours.device, ours.inode);
    theirs.iter().any(same).then_some(status.tgid)
}

/// Returns the owner as a thread that is not measured.
pub fn stranger(owner: &LockOwner) -> LockHolder {
    LockHolder::Stranger {
        pid: owner.pid,
        tid: owner.tid,
        name: process::comm(owner.pid, owner.tid)
            .unwrap_or_default()
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owners that the words of a lock name to a waiter with `value`; the futex is word number `at`.
    fn say(words: &[u32], at: i64, op: i32, value: u32) -> Vec<(OwnerEvidence, u32)> {
        let word = |offset: i64| {
            let index = usize::try_from(at + offset / 4).ok()?;
            words.get(index).copied()
        };
        let found = owners(op as u32, value, word);
        found.into_iter().flatten().collect()
    }

    const WAIT: i32 = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;

    #[test]
    fn a_mutex_says_who_has_it() {
        let held = [2, 0, 77, 1, 0];
        assert_eq!(say(&held, 0, WAIT, 2), [(OwnerEvidence::Mutex, 77)]);
        let until = libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME;
        assert_eq!(say(&held, 0, until, 2), [(OwnerEvidence::Mutex, 77)]);
        // No owner, no waiter, not a mutex, or another kind of wait.
        assert_eq!(say(&[2, 0, 0, 1, 0], 0, WAIT, 2), []);
        assert_eq!(say(&[1, 0, 77, 1, 0], 0, WAIT, 2), []);
        assert_eq!(say(&[2, 0, 77, 0, 0], 0, WAIT, 2), []);
        assert_eq!(say(&[2, 0, 77, 1, 9999], 0, WAIT, 2), []);
        assert_eq!(say(&[2, 0, 77], 0, WAIT, 2), []);
        assert_eq!(say(&held, 0, libc::FUTEX_WAKE, 2), []);
        assert_eq!(say(&held, 0, WAIT, 0), []);
    }

    #[test]
    fn robust_mutexes_and_those_of_the_kernel_are_their_owners_ids() {
        let word = WAITERS | 77;
        assert_eq!(say(&[word], 0, WAIT, word), [(OwnerEvidence::Mutex, 77)]);
        let pi = libc::FUTEX_LOCK_PI | libc::FUTEX_PRIVATE_FLAG;
        assert_eq!(say(&[word], 0, pi, 0), [(OwnerEvidence::Futex, 77)]);
        assert_eq!(say(&[77], 0, pi, 0), []);
        // musl's plain one.
        let busy = WAITERS | NO_ID;
        assert_eq!(say(&[busy], 0, WAIT, busy), []);
        // A parked thread of Rust's.
        assert_eq!(say(&[u32::MAX], 0, WAIT, u32::MAX), []);
    }

    #[test]
    fn a_read_write_lock_says_who_writes() {
        let written = [3, 0, 3, 3, 0, 0, 77, 0];
        assert_eq!(say(&written, 2, WAIT, 3), [(OwnerEvidence::RwLock, 77)]);
        assert_eq!(say(&written, 3, WAIT, 3), [(OwnerEvidence::RwLock, 77)]);
        let read = [8, 1, 3, 3, 0, 0, 77, 0];
        assert_eq!(say(&read, 2, WAIT, 3), []);
    }

    #[test]
    fn what_lay_around_a_lock_says_who_had_it() {
        use zerocopy::FromZeros;
        // SAFETY: takes nothing.
        let own = unsafe { libc::gettid() } as u32;
        let mut e = WordsEvent::new_zeroed();
        (e.pid, e.op, e.value) = (std::process::id(), WAIT as u32, 2);
        e.word[WORDS_BEFORE..].copy_from_slice(&[2, 0, own, 1, 0]);
        let mut reader = Reader::default();
        let tid = |owner: Option<LockOwner>| owner.map(|o| (o.told, o.tid));
        assert_eq!(
            tid(reader.had(&e, |_| false)),
            Some((OwnerEvidence::Mutex, own))
        );
        // A thread that has ended since, and one that never was.
        e.word[WORDS_BEFORE + 2] = ID_LIMIT - 1;
        assert_eq!(
            tid(reader.had(&e, |_| true)),
            Some((OwnerEvidence::Mutex, ID_LIMIT - 1))
        );
        assert_eq!(tid(reader.had(&e, |_| false)), None);
        // A reader that waits for a read-write lock, then a writer.
        e.value = 3;
        e.word = [0, 3, 0, 3, 3, 0, 0, own];
        assert_eq!(
            tid(reader.had(&e, |_| false)),
            Some((OwnerEvidence::RwLock, own))
        );
        e.word = [3, 0, 3, 3, 0, 0, own, 0];
        assert_eq!(
            tid(reader.had(&e, |_| false)),
            Some((OwnerEvidence::RwLock, own))
        );
    }

    /// A lock of the C library, held by this thread while another waits for it.
    #[test]
    fn the_owner_of_a_true_mutex_is_found_while_another_waits() {
        use std::sync::mpsc;
        // SAFETY: all zeros is a mutex of the default kind.
        let lock: Box<libc::pthread_mutex_t> = Box::new(unsafe { std::mem::zeroed() });
        let address = &raw const *lock as u64;
        // SAFETY: takes nothing.
        let own = unsafe { libc::gettid() } as u32;
        // SAFETY: a mutex that lives until the other thread is done with it.
        assert_eq!(unsafe { libc::pthread_mutex_lock(address as *mut _) }, 0);
        let (tell, heard) = mpsc::channel();
        let waits = std::thread::spawn(move || {
            // SAFETY: takes nothing.
            let id = unsafe { libc::gettid() } as u32;
            tell.send(id).unwrap();
            // SAFETY: as above; the thread that locks it unlocks it.
            unsafe {
                libc::pthread_mutex_lock(address as *mut _);
                libc::pthread_mutex_unlock(address as *mut _);
            }
        });
        let (pid, tid) = (std::process::id(), heard.recv().unwrap());
        let mut reader = Reader::default();
        let mut found = None;
        let since = std::time::Instant::now();
        while found.is_none() && since.elapsed().as_secs() < 20 {
            found = reader.owner(pid, tid, address);
            reader.looked_into = 0;
            std::thread::yield_now();
        }
        // SAFETY: locked above, by this thread.
        unsafe { libc::pthread_mutex_unlock(address as *mut _) };
        waits.join().unwrap();
        let told = OwnerEvidence::Mutex;
        assert_eq!(
            found,
            Some(LockOwner {
                told,
                pid,
                tid: own
            })
        );
        drop(lock);
    }
}
