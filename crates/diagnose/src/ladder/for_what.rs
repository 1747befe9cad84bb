//! What is waited for, where the stack says more than the reason.

use wallscope_model::{BlockReason, FrameKind, Recording, Sample};

use super::causes::Cause;
use super::evidence::Evidence;
use super::news::{awaits_result, brings, gives};
use super::waits::{RESOLVERS, takes_a_lock};
use crate::idle::waits_for_condition;
use crate::words;

/// What it sends is not taken.
pub(super) const TO_READ: &str =
    "the reader of a pipe or local socket that it writes to, which is slower than it";
/// The same of queues of messages.
pub(super) const TO_RECEIVE: &str =
    "whoever receives from a queue of messages that it fills, who is slower than it";
/// The same of connections.
pub(super) const TO_TAKE: &str =
    "the network to take what it sends: the other end reads slower than it writes";

/// Connections are not made.
pub(super) const TO_CONNECT: &str = "connections to be made";

/// Where Java's threads wait for memory to be allocated to, and where the VM has them wait for a pause to end.
const JAVA_HEAP: [&str; 4] = [
    "CollectedHeap::mem_allocate",
    "CollectedHeap::attempt_allocation",
    "MemAllocator::allocate",
    "VM_CollectForAllocation",
];
const JAVA_PAUSES: [&str; 2] = ["SafepointSynchronize::block", "SafepointMechanism::process"];

/// What the waits of `c`, for `reason`, are for, in words.
pub(super) fn for_what(e: &Evidence<'_>, reason: BlockReason, c: &Cause) -> &'static str {
    let user = |known: &'static [&'static str]| {
        e.mostly_passes(c, move |kind, name| {
            kind != FrameKind::Kernel && known.iter().any(|k| name.contains(k))
        })
    };
    let kernel = |known: &'static [&'static str]| {
        e.mostly_passes(c, move |kind, name| {
            kind == FrameKind::Kernel && known.iter().any(|k| name.contains(k))
        })
    };
    let by_call = |calls: &'static [&'static str]| {
        let of_libc = |name: &str| {
            let plain = name.trim_start_matches("__GI_").trim_start_matches('_');
            calls.contains(&plain.strip_prefix("libc_").unwrap_or(plain))
        };
        e.mostly_passes(c, move |kind, name| {
            kind != FrameKind::Kernel && of_libc(name)
        })
    };
    match reason {
        BlockReason::Lock
            if user(&[
                "pthread_join",
                "pthread_clockjoin",
                "JoinHandle",
                "JoinInner",
            ]) =>
        {
            "threads to end that it joins"
        }
        BlockReason::Lock if user(&["aio_suspend", "lio_listio"]) => {
            "what it asked of a disk by the C library's own threads (aio)"
        }
        BlockReason::Lock if user(&["std::__atomic_futex_unsigned_base", "__future_base"]) => {
            "the results of other threads (std::future)"
        }
        BlockReason::Lock if e.mostly(c, awaits_result) => {
            "the results of other threads (a future)"
        }
        BlockReason::Lock if user(&["barrier_wait", "Barrier::wait", "CyclicBarrier.await"]) => {
            "other threads to arrive at a barrier"
        }
        BlockReason::Lock if user(&["rwlock_wrlock", "rwlock_timedwrlock"]) => {
            "a read-write lock, to write"
        }
        BlockReason::Lock if user(&["rwlock_rdlock", "rwlock_timedrdlock"]) => {
            "a read-write lock, to read"
        }
        BlockReason::Lock if user(&["semop", "semtimedop"]) => "a semaphore of System V",
        BlockReason::Lock if in_openmp(e, c) => "the other threads of its parallel loops (OpenMP)",
        BlockReason::Lock if user(&JAVA_HEAP) => {
            "memory of the Java heap, of which too little is free (garbage has to be collected first, or others \
             ask at the same time)"
        }
        BlockReason::Lock if user(&JAVA_PAUSES) => {
            "a pause of the Java VM to end (a safepoint, mostly for the collection of garbage)"
        }
        BlockReason::Lock if e.mostly_passes(c, |_, name| allocates(name)) => {
            "the lock of the memory allocator (malloc)"
        }
        BlockReason::Lock if e.mostly(c, takes_a_lock) => words::reason(reason),
        BlockReason::Lock if e.mostly(c, gives) => {
            "others to take what it brings, or to give back what it takes (a full queue, an empty \
             pool)"
        }
        BlockReason::Lock
            if kernel(&["flock_lock_inode", "fcntl_setlk", "locks_lock_inode"])
                || by_call(&["flock", "lockf", "fcntl", "fcntl64"]) =>
        {
            "the lock of a file"
        }
        BlockReason::Lock
            if e.mostly_passes(c, |kind, name| {
                kind != FrameKind::Kernel && waits_for_condition(name)
            }) =>
        {
            "other threads (at a condition or semaphore)"
        }
        BlockReason::Disk if user(&["fsync", "fdatasync", "msync", "sync_file_range"]) => {
            "what it wrote to be safe on the disk (fsync)"
        }
        BlockReason::Disk if kernel(&["fsync_range", "do_fsync", "datasync"]) => {
            "what it wrote to be safe on the disk (fsync)"
        }
        BlockReason::Disk
            if kernel(&[
                "__fuse_simple_request",
                "fuse_simple_request",
                "fuse_request_",
            ]) =>
        {
            "a file system that a process serves (FUSE)"
        }
        BlockReason::Disk
            if kernel(&[
                "nfs_",
                "nfs4_",
                "rpc_wait_bit_killable",
                "cifs_",
                "smb2_",
                "ceph_",
            ]) =>
        {
            "a file system over the network"
        }
        BlockReason::Pipe
            if kernel(&[
                "pipe_write",
                "unix_stream_sendmsg",
                "unix_dgram_sendmsg",
                "n_tty_write",
            ]) =>
        {
            TO_READ
        }
        BlockReason::Pipe if kernel(&["wait_for_partner", "fifo_open"]) => {
            "somebody to open the other end of a named pipe"
        }
        BlockReason::Pipe if kernel(&["mq_timedsend", "do_msgsnd"]) => TO_RECEIVE,
        BlockReason::Pipe if kernel(&["mq_timedreceive", "do_msgrcv"]) => "messages from a queue",
        // Without the kernel's functions.
        BlockReason::Pipe if by_call(&["mq_timedsend", "mq_send", "msgsnd"]) => TO_RECEIVE,
        BlockReason::Pipe if by_call(&["mq_timedreceive", "mq_receive", "msgrcv"]) => {
            "messages from a queue"
        }
        BlockReason::Pipe if e.mostly(c, brings) => TO_READ,
        BlockReason::Pipe if e.mostly_of_child(c) => "the output of child processes",
        BlockReason::Network if kernel(&["tcp_sendmsg", "sk_stream_wait_memory"]) => TO_TAKE,
        BlockReason::Network if kernel(&["connect"]) || by_call(&["connect"]) => TO_CONNECT,
        BlockReason::Network if e.mostly(c, brings) => TO_TAKE,
        BlockReason::Network | BlockReason::Poll if resolves(e, c) => "names to be resolved (DNS)",
        reason => words::reason(reason),
    }
}

/// Whether threads wait in a runtime of OpenMP: it has no names of its own for that.
fn in_openmp(e: &Evidence<'_>, c: &Cause) -> bool {
    let runtime = |name: &str| {
        ["libgomp", "libomp", "libiomp"]
            .iter()
            .any(|r| name.starts_with(r))
    };
    // It makes its system calls itself. Below it the program's loops run, which may take locks.
    let innermost = |recording: &Recording, s: &Sample| {
        let frames = &recording.stacks[s.stack.0 as usize].frames;
        let mut frames = frames.iter().map(|id| &recording.frames[id.0 as usize]);
        let module = (frames.find(|f| f.kind != FrameKind::Kernel)).and_then(|f| f.module);
        module.is_some_and(|m| runtime(recording.modules[m.0 as usize].name()))
    };
    runtime(&c.module)
        || runtime(&c.through)
        || c.through.starts_with("GOMP_")
        || e.mostly(c, innermost)
}

/// Whether a function takes memory from the C library's allocator, or gives it back.
fn allocates(name: &str) -> bool {
    const ALLOCATOR: [&str; 6] = ["malloc", "calloc", "realloc", "free", "cfree", "memalign"];
    let plain = name.trim_start_matches("__GI_").trim_start_matches('_');
    let plain = plain.trim_start_matches("libc_").trim_start_matches("int_");
    ALLOCATOR.contains(&plain)
}

/// Whether they are for the address of a name.
pub(super) fn resolves(e: &Evidence<'_>, c: &Cause) -> bool {
    e.mostly_passes(c, |kind, name| {
        kind != FrameKind::Kernel && RESOLVERS.iter().any(|r| name.starts_with(r))
    })
}
