//! Target of a wait in words, where the stack says more than the block reason.

use wallscope_model::{BlockReason, FrameKind, Recording, Sample};

use crate::evidence::{Cause, Evidence};
use crate::frames::{Side, frames};
use crate::knowledge::{
    ANY_CONNECT, BARRIERS, CONNECT_CALLS, CPP_FUTURES, FIFO_OPEN, FILE_FAULTS, FILE_LOCK,
    FILE_LOCK_CALLS, FUSE, JAVA_HEAP, JAVA_PAUSES, JOINS, Known, LIBRARY_AIO,
    MESSAGE_RECEIVE_CALLS, MESSAGE_SEND_CALLS, MESSAGES_EMPTY, MESSAGES_FULL, NETWORK_FILES,
    OPENMP_FILES, OPENMP_FUNCTIONS, PIPE_FULL, READ_LOCKS, RESOLVERS, SEMAPHORES, SWAP_FAULTS,
    SYNC, SYNC_FUNCTIONS, TCP_FULL, WRITE_LOCKS, allocates, knows, libc_call, waits_for_condition,
};
use crate::lock_wait::takes_a_lock;
use crate::wait_direction::{awaits_result, borrows, gives, is_producer};
use crate::words;

/// Data written to a pipe or local socket is not taken.
pub(super) const TO_READ: &str =
    "the reader of a pipe or local socket, which takes data more slowly than this thread writes it";
/// Data sent to a message queue is not taken.
pub(super) const TO_RECEIVE: &str = "the receiver of a message queue that it fills";
/// Data sent over the network is not taken.
pub(super) const TO_TAKE: &str = "room to send on a connection: the other end reads too slowly";
/// Connections are not made.
pub(super) const TO_CONNECT: &str = "connections to be made";

/// A virtual machine has stopped its threads.
pub(super) const VM_PAUSE: &str =
    "the end of a Java VM pause (a safepoint, such as garbage collection)";

const TO_SYNC: &str = "writes to reach the disk (fsync)";
const MESSAGES: &str = "messages from a queue";
const NAMES: &str = "name resolution (DNS)";

/// Sign by which a target is known, for most of a cause's time.
enum Sign {
    /// A function of the process.
    User(&'static [Known]),
    /// A function of the kernel.
    Kernel(&'static [Known]),
    /// A function of the C library, by the name of its call.
    Call(&'static [Known]),
    /// Any function that fits.
    Function(fn(Side, &str) -> bool),
    /// Samples that fit.
    Sample(fn(&Recording, &Sample) -> bool),
    /// The cause as a whole.
    Cause(fn(&Evidence<'_>, &Cause) -> bool),
}

/// A target of waits for one reason.
struct Target {
    reason: BlockReason,
    sign: Sign,
    words: &'static str,
}

const fn target(reason: BlockReason, sign: Sign, words: &'static str) -> Target {
    Target {
        reason,
        sign,
        words,
    }
}

use BlockReason::{Disk, Lock, Network, PageFault, Pipe, Poll};

/// All targets; the first with a sign that is there counts.
const TARGETS: &[Target] = &[
    target(Lock, Sign::User(JOINS), "threads to end (join)"),
    target(
        Lock,
        Sign::User(LIBRARY_AIO),
        "asynchronous disk I/O (aio of the C library)",
    ),
    target(
        Lock,
        Sign::User(CPP_FUTURES),
        "the results of other threads (std::future)",
    ),
    target(
        Lock,
        Sign::Sample(awaits_result),
        "the results of other threads (a future)",
    ),
    // The virtual machine stops its threads at a barrier of its own.
    target(
        Lock,
        Sign::User(JAVA_HEAP),
        "free memory in the Java heap (garbage is collected first)",
    ),
    target(Lock, Sign::User(JAVA_PAUSES), VM_PAUSE),
    target(Lock, Sign::User(BARRIERS), "the other threads at a barrier"),
    target(Lock, Sign::User(WRITE_LOCKS), "a read-write lock, to write"),
    target(Lock, Sign::User(READ_LOCKS), "a read-write lock, to read"),
    target(Lock, Sign::User(SEMAPHORES), "a System V semaphore"),
    target(
        Lock,
        Sign::Cause(in_openmp),
        "the other threads of its parallel loops (OpenMP)",
    ),
    target(
        Lock,
        Sign::Function(|_, name| allocates(name)),
        "the memory allocator's lock (malloc)",
    ),
    target(Lock, Sign::Sample(takes_a_lock), "a lock"),
    target(
        Lock,
        Sign::Sample(borrows),
        "an entry of an exhausted pool: all of them are in use",
    ),
    target(
        Lock,
        Sign::Sample(gives),
        "a full queue to drain, or an empty pool to get something back",
    ),
    target(Lock, Sign::Kernel(FILE_LOCK), "a file lock"),
    target(Lock, Sign::Call(FILE_LOCK_CALLS), "a file lock"),
    target(
        Lock,
        Sign::Function(|side, name| side == Side::User && waits_for_condition(name)),
        "a condition variable or semaphore",
    ),
    target(Disk, Sign::User(SYNC_FUNCTIONS), TO_SYNC),
    target(Disk, Sign::Kernel(SYNC), TO_SYNC),
    target(
        Disk,
        Sign::Kernel(FUSE),
        "a file system that another process serves (FUSE)",
    ),
    target(
        Disk,
        Sign::Kernel(NETWORK_FILES),
        "a file system over the network",
    ),
    target(Pipe, Sign::Kernel(PIPE_FULL), TO_READ),
    target(
        Pipe,
        Sign::Kernel(FIFO_OPEN),
        "another process to open the other end of a named pipe",
    ),
    target(Pipe, Sign::Kernel(MESSAGES_FULL), TO_RECEIVE),
    target(Pipe, Sign::Kernel(MESSAGES_EMPTY), MESSAGES),
    // For stacks without the kernel's functions.
    target(Pipe, Sign::Call(MESSAGE_SEND_CALLS), TO_RECEIVE),
    target(Pipe, Sign::Call(MESSAGE_RECEIVE_CALLS), MESSAGES),
    target(Pipe, Sign::Sample(is_producer), TO_READ),
    target(
        Pipe,
        Sign::Cause(|e, c| e.mostly_of_child(c)),
        "the output of child processes",
    ),
    target(
        PageFault,
        Sign::Kernel(FILE_FAULTS),
        "a page of a mapped file to be read",
    ),
    target(
        PageFault,
        Sign::Kernel(SWAP_FAULTS),
        "a page to be read back from swap",
    ),
    target(Network, Sign::Kernel(TCP_FULL), TO_TAKE),
    target(Network, Sign::Kernel(ANY_CONNECT), TO_CONNECT),
    target(Network, Sign::Call(CONNECT_CALLS), TO_CONNECT),
    target(Network, Sign::Sample(is_producer), TO_TAKE),
    target(Network, Sign::Cause(resolves), NAMES),
    target(Poll, Sign::Cause(resolves), NAMES),
];

/// Target of the waits of a cause, for `reason`, in words.
pub(super) fn wait_target(e: &Evidence<'_>, reason: BlockReason, c: &Cause) -> &'static str {
    let known = (TARGETS.iter()).find(|t| t.reason == reason && t.sign.is_there(e, c));
    known.map_or(words::target(reason), |t| t.words)
}

impl Sign {
    fn is_there(&self, e: &Evidence<'_>, c: &Cause) -> bool {
        match *self {
            Sign::User(table) => {
                e.mostly_passes(c, |side, name| side == Side::User && knows(table, name))
            }
            Sign::Kernel(table) => {
                e.mostly_passes(c, |side, name| side == Side::Kernel && knows(table, name))
            }
            Sign::Call(table) => e.mostly_passes(c, |side, name| {
                side == Side::User && knows(table, libc_call(name))
            }),
            Sign::Function(fits) => e.mostly_passes(c, fits),
            Sign::Sample(fits) => e.mostly(c, fits),
            Sign::Cause(fits) => fits(e, c),
        }
    }
}

/// Whether threads wait in a runtime of OpenMP. The runtime makes its system calls itself, and has
/// no names of its own for that. The program's loops run below it, and may take locks.
fn in_openmp(e: &Evidence<'_>, c: &Cause) -> bool {
    let innermost = |recording: &Recording, sample: &Sample| {
        let mut user = frames(recording, sample.stack).filter(|f| f.kind != FrameKind::Kernel);
        let module = user.next().and_then(|f| f.module);
        module.is_some_and(|m| knows(OPENMP_FILES, recording.modules[m.0 as usize].name()))
    };
    knows(OPENMP_FILES, &c.module) || knows(OPENMP_FUNCTIONS, &c.through) || e.mostly(c, innermost)
}

/// Whether the waits of a cause are for the address of a name.
pub(super) fn resolves(e: &Evidence<'_>, c: &Cause) -> bool {
    e.mostly_passes(c, |side, name| side == Side::User && knows(RESOLVERS, name))
}
