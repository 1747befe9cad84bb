//! Records that the kernel programs send: the mirror of `bpf/event.h`, field by field.

use wallscope_model::BlockReason;
use wallscope_unwind::runtime::{
    go,
    hotspot::{Operation, Parking, SafepointPlaces},
};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Number of parts of runnable time.
pub const PARTS: usize = 3;

/// `enum ws_state`, the states that time is spent in.
pub mod state {
    /// Scheduled on a CPU.
    pub const ON_CPU: u8 = 1;
    /// Wants a CPU.
    pub const RUNNABLE: u8 = 2;
    /// Waits for something else.
    pub const BLOCKED: u8 = 3;
    /// In samples only: the sending of a request.
    pub const ASKED: u8 = 16;
    /// In samples only: at an event.
    pub const HIT: u8 = 17;
}

/// `enum ws_kind`: the first word of a record. A first word up to the unwinder's `MAX_FRAMES` is the
/// frame count of a user stack.
pub mod kind {
    /// A thread was born, found, or changed by exec.
    pub const THREAD: u32 = 0x10001;
    /// A thread's last figures.
    pub const EXIT: u32 = 0x10002;
    /// A stretch of time charged to a stack.
    pub const SAMPLE: u32 = 0x10003;
    /// A kernel stack.
    pub const KSTACK: u32 = 0x10004;
    /// The user stack that a ticket stands for.
    pub const RESOLVE: u32 = 0x10005;
    /// A stack as it is, to be unwound later.
    pub const RAW: u32 = 0x10006;
    /// The managed frames of a stack.
    pub const MANAGED: u32 = 0x10007;
    /// A native stack and the managed frames that belong to it.
    pub const JOIN: u32 = 0x10008;
    /// Histogram of a thread's interval lengths.
    pub const HISTOGRAM: u32 = 0x10020;
    /// The resource that a thread waited for.
    pub const RESOURCE: u32 = 0x10009;
    /// End of a wait, with its waker.
    pub const WAKE: u32 = 0x1000a;
    /// The owner of a Java monitor.
    pub const OWNER: u32 = 0x1000b;
    /// Holders of an interpreter's lock.
    pub const HOLDS: u32 = 0x1000c;
    /// Words of memory around a lock.
    pub const WORDS: u32 = 0x1000d;
    /// A runtime stopped its threads.
    pub const PAUSE: u32 = 0x1000e;
    /// A connection is gone.
    pub const SOCKET: u32 = 0x10021;
    /// End of a request that has a sample of its sender.
    pub const ANSWER: u32 = 0x10022;
}

/// `struct ws_head`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Head {
    /// One of [`kind`].
    pub kind: u32,
    /// Size of the whole record in bytes.
    pub size: u32,
}

/// `struct ws_account`: closed intervals of one thread, ns.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Account {
    /// On-CPU time, interrupt and stolen time included.
    pub on_cpu: u64,
    /// The part of it that interrupts took.
    pub irq: u64,
    /// The part of it that the hypervisor took.
    pub stolen: u64,
    /// Woken, preempted, throttled.
    pub runnable: [u64; PARTS],
    /// By reason, in the order of the model.
    pub blocked: [u64; BlockReason::COUNT],
    /// Time that was seen, but not attributed to a state.
    pub limbo: u64,
    /// Corrected from the kernel's counters.
    pub repaired: u64,
    /// Voluntary switches.
    pub voluntary: u64,
    /// Involuntary switches.
    pub involuntary: u64,
}

/// `ws_thread_event.how`; the remaining value means that the thread existed before.
pub mod how {
    /// A new thread.
    pub const BORN: u32 = 0;
    /// The thread runs a new program.
    pub const EXEC: u32 = 1;
}

/// `struct ws_thread_event`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ThreadEvent {
    /// Kind and size.
    pub head: Head,
    /// Id of the record.
    pub id: u64,
    /// When.
    pub time: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Parent process.
    pub parent: u32,
    /// One of [`how`].
    pub how: u32,
    /// Name.
    pub comm: [u8; 16],
}

impl ThreadEvent {
    /// The thread's name.
    pub fn name(&self) -> String {
        text(&self.comm)
    }
}

/// `struct ws_dump`: one thread's times and counters at one moment.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Dump {
    /// Kind and size.
    pub head: Head,
    /// Id of the record.
    pub id: u64,
    /// When this was written.
    pub now: u64,
    /// When the record begins.
    pub birth: u64,
    /// When the current state began.
    pub since: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// One of [`state`].
    pub state: u8,
    /// Part of runnable time, or reason of blocked time.
    pub detail: u8,
    /// [`FLAG_KERNEL_THREAD`] and others.
    pub flags: u8,
    /// Block reason of the turn under way.
    pub block_reason: u8,
    /// CPU it last ran on.
    pub cpu: u32,
    /// The turn's stretch on a CPU, if that is over.
    pub stretch: u64,
    /// The turn's block, if that is over, ns.
    pub block: u64,
    /// Closed intervals.
    pub acc: Account,
    /// Growth of the kernel's on-CPU counter since birth.
    pub kernel_exec: u64,
    /// Growth of the kernel's run-queue counter since birth.
    pub kernel_run_delay: u64,
    /// Growth of the kernel's switch counters since birth.
    pub kernel_switches: u64,
    /// User-mode time by the kernel's tick, since birth.
    pub utime: u64,
    /// Kernel-mode time by the kernel's tick, since birth.
    pub stime: u64,
    /// Name.
    pub comm: [u8; 16],
}

/// A thread of the kernel's: it has no user mode.
pub const FLAG_KERNEL_THREAD: u8 = 1;
/// The kernel's on-CPU counter leaves interrupt time out.
pub const FLAG_IRQ_OUT: u8 = 4;
/// A request of the thread was in flight when it last began to wait.
pub const FLAG_ASKING: u8 = 8;

/// `struct ws_turn`: a thread was on a CPU, then blocked, then waited for a CPU; all up to `time`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Turn {
    /// When it got the CPU again, or ended.
    pub time: u64,
    /// On the CPU, ns.
    pub stretch: u64,
    /// Blocked, ns.
    pub block: u64,
    /// Waiting for a CPU, ns.
    pub waited: u64,
    /// Id of the record.
    pub id: u32,
    /// Record of the waker; 0: not known.
    pub waker: u32,
    /// Block reason.
    pub reason: u8,
    /// Part of runnable time.
    pub part: u8,
    /// Whether a request of the thread was in flight when the block began.
    pub asking: u8,
    /// Unused.
    pub pad0: [u8; 5],
}

impl Turn {
    /// When its first interval began, ns.
    pub fn begin(&self) -> u64 {
        let all = self.stretch.saturating_add(self.block);
        self.time.saturating_sub(all.saturating_add(self.waited))
    }
}

/// `struct ws_sample`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SampleEvent {
    /// Kind and size.
    pub head: Head,
    /// Id of the record.
    pub id: u64,
    /// Begin of the interval that crossed.
    pub begin: u64,
    /// Its end.
    pub end: u64,
    /// Weight, ns.
    pub ns: u64,
    /// Hash of the kernel stack, 0: none.
    pub kstack: u64,
    /// Hash of the user stack, or a ticket.
    pub ustack: u64,
    /// Hash of the resource that it waited for, 0: not known.
    pub resource: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Periods charged.
    pub count: u32,
    /// CPU.
    pub cpu: u16,
    /// One of [`state`].
    pub state: u8,
    /// Part or reason.
    pub detail: u8,
    /// See `SAMPLE_*`.
    pub flags: u32,
    /// Unused.
    pub pad0: u32,
}

/// `ustack` is a ticket.
pub const SAMPLE_DEFERRED: u32 = 1;
/// There is no user stack.
pub const SAMPLE_NO_USER: u32 = 2;
/// A request of the thread was in flight when it began to wait.
pub const SAMPLE_IN_FLIGHT: u32 = 0x100;
/// `WS_S_AWAITS`: the thread itself awaits the answer to a request in flight.
pub const SAMPLE_AWAITS: u32 = 0x400;
/// The thread has sent or received on stream sockets.
pub const SAMPLE_TALKS: u32 = 0x200;
/// The CPU was in user mode.
pub const SAMPLE_USER_MODE: u32 = 4;

/// The interval is not over.
pub const SAMPLE_OPEN: u32 = 8;

/// `struct ws_resolve`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Resolve {
    /// Kind and size.
    pub head: Head,
    /// Id of the record.
    pub id: u64,
    /// The ticket.
    pub ticket: u64,
    /// Hash of the user stack it stands for.
    pub ustack: u64,
    /// For a stack read before its wake-up: the futex that the thread waits for with a time limit; 0: none,
    /// or not known.
    pub futex: u64,
}

/// `enum ws_resource_kind`.
pub mod resource_kind {
    /// A lock.
    pub const LOCK: u32 = 1;
    /// A file, by its path.
    pub const FILE: u32 = 2;
    /// A path as the call was given it.
    pub const PATH: u32 = 3;
    /// A network socket.
    pub const SOCKET: u32 = 4;
    /// A unix socket.
    pub const UNIX: u32 = 5;
    /// A pipe.
    pub const PIPE: u32 = 6;
    /// An eventfd, epoll and the like.
    pub const ANONYMOUS: u32 = 7;
    /// A page.
    pub const FAULT: u32 = 8;
    /// A Java monitor.
    pub const MONITOR: u32 = 10;
    /// The end of a process, by its id in our PID namespace.
    pub const PROCESS: u32 = 11;
    /// The end of a child, by its id in the waiter's PID namespace.
    pub const OWN_CHILD: u32 = 12;
}

/// Most names of a path (`WS_NAMES`).
pub const NAMES: usize = 10;

/// `struct ws_resource`: the resource that a thread waited for.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ResourceEvent {
    /// Kind and size.
    pub head: Head,
    /// Hash that samples refer to.
    pub hash: u64,
    /// A futex's address, an inode number; see [`resource_kind`].
    pub address: u64,
    /// One of [`resource_kind`].
    pub kind: u32,
    /// The process in which the address or number is valid; 0: all.
    pub pid: u32,
    /// Number of the system call, all ones: a page fault.
    pub call: u32,
    /// Descriptor.
    pub fd: i32,
    /// Device of the file system (kernel's own encoding).
    pub device: u32,
    /// Process at the other end of a unix socket.
    pub peer_pid: u32,
    /// Address family.
    pub family: u16,
    /// Own port.
    pub local_port: u16,
    /// Port of the other end, in network order.
    pub peer_port: u16,
    /// 1: a UDP socket bound only by its first datagram, so that a datagram which arrives is an answer.
    pub asks: u16,
    /// Own address.
    pub local: [u8; 16],
    /// Address of the other end.
    pub peer: [u8; 16],
    /// How many names.
    pub names: u32,
    /// Unused.
    pub pad1: u32,
    /// The file's own name, then those of its folders up to the root of its file system.
    pub name: [[u8; 64]; NAMES],
}

/// `struct ws_step`: a change of a thread's state.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Step {
    /// When.
    pub time: u64,
    /// For a wake-up: the waker's record; 0: none.
    pub waker: u32,
    /// The state from then on, one of [`state`].
    pub state: u8,
    /// Part or reason.
    pub detail: u8,
    /// Unused.
    pub pad0: u16,
}

/// Most steps that are remembered (`WS_STEPS`).
pub const STEPS: usize = 16;

/// `struct ws_wake`: the end of a wait that is charged to a stack.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WakeEvent {
    /// Kind and size.
    pub head: Head,
    /// Record of the sleeper.
    pub id: u64,
    /// Begin of its wait, as in its sample.
    pub begin: u64,
    /// When it was woken.
    pub time: u64,
    /// Record of the waker, 0: not measured.
    pub waker: u64,
    /// The waker's kernel stack, as in [`SampleEvent`].
    pub kstack: u64,
    /// The waker's user stack, as in [`SampleEvent`].
    pub ustack: u64,
    /// The waker's process.
    pub pid: u32,
    /// The waker's thread.
    pub tid: u32,
    /// See `SAMPLE_*`.
    pub flags: u32,
    /// Changes of the waker's state, ever.
    pub steps: u32,
    /// The waker's name.
    pub comm: [u8; 16],
    /// The last changes; number n is at n % [`STEPS`].
    pub step: [Step; STEPS],
}

/// A key and value of `java_threads`: the place of the monitor that a thread waits to enter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorPlace {
    /// The thread.
    pub tid: u32,
    /// Address of the pointer to the monitor.
    pub pending: u64,
    /// Offset of the owner in a monitor.
    pub owner: u64,
    /// Place of the pointer to the thread's Java object, and of the word in it that names the object for which the
    /// thread is parked.
    pub parked: Option<(u64, Parking)>,
}

/// A key and value of `vms`: where the VM of a process stops threads; and keys and values of `operations`.
#[derive(Clone, Debug)]
pub struct VmPlaces {
    /// The process.
    pub pid: u32,
    /// The places.
    pub places: SafepointPlaces,
    /// Number of the VM's file.
    pub file: u64,
    /// Operations of that file; none where an earlier process had it.
    pub operations: Vec<Operation>,
}

/// Flag in a monitor's address: its low four bytes are then the class of the object that a thread is parked
/// for.
pub const PARKED: u64 = 1 << 63;

/// `struct ws_owner`: the owner of a Java monitor when a thread began to wait for it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OwnerEvent {
    /// Kind and size.
    pub head: Head,
    /// Record of the waiter.
    pub id: u64,
    /// Begin of its wait, as in its sample.
    pub begin: u64,
    /// The VM's word for the owner.
    pub owner: u64,
    /// Process.
    pub pid: u32,
    /// Unused.
    pub pad0: u32,
}

/// The futex among the words of a [`WordsEvent`].
pub const WORDS_BEFORE: usize = 3;

/// `struct ws_words`: the words around a lock's futex, read when a thread began to wait for it with a time
/// limit.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct WordsEvent {
    /// Kind and size.
    pub head: Head,
    /// Record of the waiter.
    pub id: u64,
    /// Begin of its wait, as in its sample.
    pub begin: u64,
    /// Address of the futex.
    pub address: u64,
    /// Process of the waiter.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The second argument of its call.
    pub op: u32,
    /// The third argument of its call: the value that the futex had to have.
    pub value: u32,
    /// Four bytes each; number [`WORDS_BEFORE`] is the futex.
    pub word: [u32; 8],
}

/// `struct ws_hold`: a change of the holder of an interpreter's lock.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Hold {
    /// When.
    pub since: u64,
    /// Record of the new holder; 0: it has none.
    pub id: u64,
}

/// Most holders that are remembered (`WS_HOLDS`).
pub const HOLDS: usize = 16;

/// `struct ws_holds`: the last threads that had an interpreter's lock.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HoldsEvent {
    /// Kind and size.
    pub head: Head,
    /// The interpreter's process.
    pub pid: u32,
    /// Changes, ever.
    pub changes: u32,
    /// The last ones; number n is at n % [`HOLDS`].
    pub hold: [Hold; HOLDS],
}

/// `struct ws_lock_key` and `struct ws_lock_sum`: one thread's waits for one lock.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LockSum {
    /// Record of the thread.
    pub id: u64,
    /// The futex's address; else the id of semaphores or the inode of a locked file.
    pub address: u64,
    /// Number of the system call that waited.
    pub call: u64,
    /// Time, ns.
    pub total: u64,
    /// The longest wait, ns.
    pub longest: u64,
    /// Waits.
    pub count: u64,
}

/// `struct ws_raw` without the stack's bytes, which follow.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RawHead {
    /// Kind and size.
    pub head: Head,
    /// Id of the record.
    pub id: u64,
    /// When it was taken.
    pub time: u64,
    /// The ticket it stands for.
    pub ticket: u64,
    /// Process.
    pub pid: u32,
    /// Bytes that follow.
    pub len: u32,
    /// Where the bytes begin: up to 128 bytes below rsp, within the page.
    pub start: u64,
    /// Mask of the stack's pages that could not be read, from the first page on.
    pub holes: u64,
    /// Instructions from the word of the pc on; 0: unreadable.
    pub code: [u64; 2],
    /// `struct pt_regs`: r15 r14 r13 r12 bp bx r11 r10 r9 r8 ax cx dx si di orig_ax ip cs flags sp ss.
    pub regs: [u64; 21],
}

/// `struct ws_join`: one hash for a native stack and the managed frames that were read with it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Join {
    /// Kind and size.
    pub head: Head,
    /// Hash of the pair.
    pub hash: u64,
    /// Hash of the native stack.
    pub native: u64,
    /// Hash of the managed frames.
    pub managed: u64,
}

/// `struct py_stack` without its frames, which follow.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct ManagedHead {
    /// Kind and size.
    pub head: Head,
    /// Hash of process and frames.
    pub hash: u64,
    /// Process.
    pub pid: u32,
    /// Frames, two words each.
    pub n: u32,
    /// Outcome of the walk.
    pub end: u32,
    /// Unused.
    pub pad0: u32,
}

/// `struct ws_histogram_event` without its buckets, which follow: index and count, 32 bits each.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct HistogramHead {
    /// Kind and size.
    pub head: Head,
    /// Id of the record.
    pub id: u64,
    /// The longest interval on the CPU, runnable, blocked, ns.
    pub max: [u64; 3],
    /// Stretch on the CPU of the turn under way, if it is over but in no bucket yet, ns.
    pub stretch: u64,
    /// Block of the turn under way, if it is over but in no bucket yet, ns.
    pub block: u64,
    /// Buckets that follow.
    pub n: u32,
    /// Reason of that block.
    pub block_reason: u32,
}

/// Most bytes of an operation's name, with the zero at its end (`WS_OPERATION`).
pub const OPERATION_BYTES: usize = 40;

/// `struct ws_pause`: a VM stopped its threads.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PauseEvent {
    /// Kind and size.
    pub head: Head,
    /// When the VM began to stop threads.
    pub begin: u64,
    /// When the VM let them go.
    pub end: u64,
    /// The process.
    pub pid: u32,
    /// Unused.
    pub pad0: u32,
    /// Collections by the VM's own count: young, full, pauses of concurrent ones; 0: it does not count them.
    pub collections: [u64; 3],
    /// The operation.
    pub name: [u8; OPERATION_BYTES],
    /// Causes of the present collection and of the last one; empty: the VM reports none.
    pub causes: [[u8; 32]; 2],
}

impl PauseEvent {
    /// A pause of Go's collector at time 0.
    pub fn of_go(pid: u32) -> PauseEvent {
        let mut e = PauseEvent::new_zeroed();
        e.head = Head {
            kind: kind::PAUSE,
            size: size_of::<PauseEvent>() as u32,
        };
        e.pid = pid;
        e.name[..go::COLLECTION.len()].copy_from_slice(go::COLLECTION.as_bytes());
        e
    }

    /// A pause of Go's collector at time 0, for a collection that the program asked for.
    pub fn of_go_forced(pid: u32) -> PauseEvent {
        let mut e = PauseEvent::of_go(pid);
        e.causes[0][..go::FORCED.len()].copy_from_slice(go::FORCED.as_bytes());
        e
    }
}

/// `struct ws_socket`: a stream socket and its requests in flight.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct SocketRecord {
    /// Its cookie.
    pub cookie: u64,
    /// A request is in flight since then, ns; 0: none.
    pub since: u64,
    /// Time of the first message that nothing answered.
    pub first: u64,
    /// Time with a request in flight, without the open one, ns.
    pub in_flight: u64,
    /// Record of the sender of the open request, if its stack was taken.
    pub asker: u64,
    /// Requests.
    pub requests: u32,
    /// Messages since the last answer.
    pub unanswered: u32,
    /// Process.
    pub pid: u32,
    /// Thread that counts the open request, or with [`SOCKET_OF_PROCESS`] the process.
    pub owner: u32,
    /// Process at the other end of a unix socket, 0 where not known.
    pub peer_pid: u32,
    /// Address family.
    pub family: u16,
    /// Port of the other end.
    pub peer_port: u16,
    /// Own port.
    pub local_port: u16,
    /// Whether the connection was accepted: the other side sends requests.
    pub inbound: u8,
    /// An answer was seen on it.
    pub answered: u8,
    /// The open request's sender was sampled.
    pub sampled: u8,
    /// Requests may be undercounted: polls were too far apart to tell them apart. The kernel programs count
    /// all.
    pub at_least: u8,
    /// Unused.
    pub pad0: [u8; 2],
    /// Address of the other end, IPv4 in the first four bytes.
    pub peer: [u8; 16],
    /// Path of a unix socket's listener.
    pub path: [u8; 64],
    /// The thread that got or sent the open request; 0: not known.
    pub reader: u32,
    /// Unused.
    pub pad1: u32,
    /// The kernel's address of the epoll instance that counts the open request too, 0: none.
    pub epoll: u64,
}

/// `struct ws_requests`: open requests of a thread or process.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct OpenRequests {
    /// When the last of them ended, ns.
    pub until: u64,
    /// Requests with an answer that others await.
    pub owed: u32,
    /// Requests with an answer that is awaited from others.
    pub awaited: u32,
    /// Number of requests, among the last that the thread got, that other threads answered.
    pub passes_on: u32,
    /// Unused.
    pub pad0: u32,
}

impl Default for SocketRecord {
    fn default() -> SocketRecord {
        SocketRecord::new_zeroed()
    }
}

/// `WS_OF_PROCESS`.
pub const SOCKET_OF_PROCESS: u32 = 1 << 31;

/// `struct ws_answer`.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Answer {
    /// Kind and size.
    pub head: Head,
    /// Id of the thread that asked.
    pub id: u64,
    /// The connection.
    pub cookie: u64,
    /// From the request to the answer, ns.
    pub ns: u64,
}

/// `WS_COARSE_BUCKETS`: buckets of each of a thread's three states.
pub const COARSE_BUCKETS: u32 = 132;

/// Causes of loss in kernel code, in the order of `enum ws_loss`, in words.
pub const LOSSES: [&str; 35] = [
    "thread record could not be created",
    "event ring full: sample lost",
    "event ring full: stack lost",
    "event ring full: thread event lost",
    "event ring full: last figures of a thread lost",
    "event ring full: user stack of a sample lost",
    "deferred stack reading refused by the kernel",
    "no work area free for a user stack",
    "address space replaced before the stack was read",
    "table of known stacks full: stack sent again",
    "switch-in not seen (repaired)",
    "switch-out not seen (repaired)",
    "time off the CPU not seen (repaired)",
    "thread record changed while it was read",
    "kernel stack could not be taken",
    "no deferred-reading record for the thread",
    "stack met code without a table yet; unwound after the recording",
    "wake-up not seen (repaired)",
    "sleeper moved to another CPU: the kernel counts its sleep as queued (not believed)",
    "no managed frame could be read of a stack that has some",
    "no room for a thread's histogram of interval lengths",
    "event ring full: a thread's histogram of interval lengths lost",
    "event ring full: who ended a wait lost",
    "table of lock waits full: waits for a lock left out",
    "no room for a connection",
    "on-CPU sample over 1 ms late, or of no known time: given to who ran as it came",
    RING_TURN,
    "the Java monitor that was waited for could not be read",
    "who had an interpreter's lock could not be read",
    "table of events' hits full: hits not counted",
    "what lies around a lock could not be read",
    "switch-in not seen: dated from the kernel's own record; the wait has no stack",
    "wake-up not seen: dated from the kernel's own record; by whom is not known",
    "event ring full: a pause of a VM lost",
    "a VM's words on a pause could not be read",
];

/// The loss that leaves gaps in a timeline.
pub const RING_TURN: &str = "timeline ring full: a turn on a CPU lost";

const _: () = {
    assert!(size_of::<Account>() == 192);
    assert!(size_of::<ThreadEvent>() == 56);
    assert!(size_of::<Dump>() == 320);
    assert!(size_of::<PauseEvent>() == 160);
    assert!(size_of::<Turn>() == 48);
    assert!(size_of::<SampleEvent>() == 88);
    assert!(size_of::<ResourceEvent>() == 736);
    assert!(size_of::<WakeEvent>() == 344);
    assert!(size_of::<OwnerEvent>() == 40);
    assert!(size_of::<WordsEvent>() == 80);
    assert!(size_of::<HoldsEvent>() == 272);
    assert!(size_of::<Resolve>() == 40);
    assert!(size_of::<RawHead>() == 240);
    assert!(size_of::<Join>() == 32);
    assert!(size_of::<ManagedHead>() == 32);
    assert!(size_of::<HistogramHead>() == 64);
    assert!(size_of::<SocketRecord>() == 168);
    assert!(size_of::<OpenRequests>() == 24);
    assert!(size_of::<Answer>() == 32);
    assert!(COARSE_BUCKETS as usize * 8 == wallscope_model::histogram::BUCKETS);
};

/// A C string field as text.
pub fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use wallscope_model::BlockReason;

    #[test]
    fn block_reasons_of_the_kernel_programs_are_those_of_the_model() {
        let header = include_str!("bpf/event.h");
        let (_, rest) = header.split_once("enum ws_reason {").unwrap();
        let (reasons, _) = rest.split_once("WS_REASONS").unwrap();
        let names: Vec<String> = reasons
            .split(',')
            .filter_map(|name| name.trim().strip_prefix("WS_"))
            .map(str::to_lowercase)
            .collect();
        let model: Vec<&str> = BlockReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names, model);
    }
}
