//! The values that observations carry. Times are ns of CLOCK_MONOTONIC unless a field says otherwise.

use std::sync::Arc;

use wallscope_model::{Domain, FrameKind, Function, Limit, Module, StackEnd, State};

use crate::wire::{Input, Malformed, Wire, fields, variants};

/// How a recording begins, and the options that the recorder needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Start of the window.
    pub start_ns: u64,
    /// Start of the window, ns since the epoch.
    pub start_unix_ns: u64,
    /// First length of a time slice, ns.
    pub slice_ns: u64,
    /// Memory for single intervals, bytes; `None`: they are not kept.
    pub timeline_bytes: Option<u64>,
    /// Frames of interpreters are kept beside those of their programs.
    pub interpreter_frames: bool,
    /// Code of the kernel by which interrupts are known.
    pub interrupts: Vec<InterruptCode>,
    /// First period of off-CPU stacks, ns; 0: no stacks are taken.
    pub off_cpu_period_ns: u64,
    /// Boot of the kernel, as `/proc/sys/kernel/random/boot_id` names it; empty: not known. Addresses of
    /// kernel code mean something within it only.
    pub boot: String,
}

/// A function of the kernel's interrupts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterruptCode {
    /// First address.
    pub start: u64,
    /// One past the last.
    pub end: u64,
    /// Purpose of the interrupt; empty: unknown.
    pub serves: Arc<str>,
}

/// A moment of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The command was let go: its time begins here.
    Released {
        /// The command's process.
        pid: u32,
        /// When.
        time: u64,
    },
    /// The counters of all changed threads have been observed: time slices are closed up to here.
    Tick {
        /// When.
        time: u64,
    },
    /// The window is over.
    End {
        /// When.
        time: u64,
    },
    /// All cumulative figures (histograms, sums of locks, connections, counts of events) are up to date.
    Figures {
        /// When.
        time: u64,
    },
    /// All records of switches up to here have been observed (perf backend).
    Drained {
        /// When.
        time: u64,
    },
    /// Records of switches are missing, and it is not known of which threads (perf backend).
    RecordsLost {
        /// When that was recorded.
        time: u64,
    },
}

/// A user stack that was unwound by the collector from a copy of its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnwoundStack {
    /// Its hash.
    pub hash: u64,
    /// How it ended.
    pub end: StackEnd,
    /// Frames, innermost first, as the kernel programs write them.
    pub frames: Vec<u64>,
}

/// Times at which addresses of a process changed their meaning, as far as they are known now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeChanges {
    /// The process.
    pub pid: u32,
    /// Number of the times known before that stay, counted from the first.
    pub kept: u32,
    /// The times after those, ascending.
    pub times: Vec<u64>,
}

/// A thread with a wait for a lock that turned out to be a sleep of its runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SleepingThread {
    /// Its record.
    pub record: u64,
}

/// A thread that has, or had, a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockHolder {
    /// A measured thread, by its record.
    Record(u64),
    /// A thread that is not measured.
    Stranger {
        /// Process.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Name.
        name: Arc<str>,
    },
}

/// Holder of the lock that a thread waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockOwner {
    /// Record of the waiting thread.
    pub record: u64,
    /// Begin of its wait.
    pub begin: u64,
    /// The holder.
    pub holder: LockHolder,
    /// Number of the recorder's evidence; 0: the runtime names the holder.
    pub evidence: u8,
    /// The wait goes on as the recording ends; otherwise the holder is the one at its beginning.
    pub at_end: bool,
}

/// The name of a resource that threads waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceName {
    /// Hash by which samples refer to it.
    pub hash: u64,
    /// The name, for people.
    pub name: Arc<str>,
}

/// A lock with another hash in another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SameLock {
    /// The other hash.
    pub hash: u64,
    /// The hash under which the lock was observed first.
    pub first: u64,
}

/// Facts about connections at the start of the recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connected {
    /// The kernel reports sending and receiving.
    pub followed: bool,
    /// Processes that had a stream socket, ascending.
    pub talkers: Vec<u32>,
}

/// The process at the other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherEnd {
    /// The connection.
    pub cookie: u64,
    /// The process and its name; `None`: unknown on this machine.
    pub process: Option<(u32, String)>,
    /// It was looked up before the recording began.
    pub before: bool,
}

/// Lengths of all threads' intervals in one class of time. A later histogram of the class replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// The class, by the kernel programs' number.
    pub class: u32,
    /// The longest interval, ns.
    pub longest_ns: u64,
    /// Intervals by bucket.
    pub counts: Vec<u64>,
}

/// Exact waits of one thread for one lock in one system call. A later sum of the three replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWaits {
    /// Record of the thread.
    pub record: u64,
    /// Address, or number, of the lock.
    pub address: u64,
    /// Number of the system call.
    pub call: u64,
    /// Time, ns.
    pub total_ns: u64,
    /// The longest wait, ns.
    pub longest_ns: u64,
    /// Waits.
    pub count: u64,
    /// The lock's name.
    pub name: Arc<str>,
}

/// An event at which stacks were taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedEvent {
    /// Its name.
    pub name: String,
    /// Every event was counted, not only those with a stack.
    pub counted: bool,
}

/// Number of events of one kind in a thread. A later count for the same event and thread replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventHits {
    /// Index of the event, in the order of [`CountedEvent`]s.
    pub event: u32,
    /// Record of the thread; in logs of the perf backend the number of the thread that the counters were opened
    /// for, which shares them with its heirs ([`crate::CounterHeir`]).
    pub record: u64,
    /// Number of events.
    pub hits: u64,
}

/// A loss, and the part that counted it. A later count of this cause by this part replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountedLoss {
    /// The part.
    pub by: Counter,
    /// Cause, in words.
    pub cause: String,
    /// Number of losses.
    pub count: u64,
}

/// A part of the instrument that counts losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// The kernel programs.
    Kernel,
    /// The poller of tasks.
    Tasks,
    /// Unwinding, naming, following processes.
    Collector,
    /// Symbolising.
    Symboliser,
}

/// The domain as the collector describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DescribedDomain {
    /// The domain without the recorder's own words.
    pub domain: Domain,
    /// Index among its notes at which the recorder inserts the number of intervals that it kept.
    pub timeline_note: u32,
}

/// Tasks of one process that began with the same function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTasks {
    /// The process.
    pub pid: u32,
    /// Kind of task.
    pub kind: Arc<str>,
    /// The function.
    pub name: Arc<str>,
    /// Distinct tasks.
    pub seen: u64,
    /// Polls of the process.
    pub polls: u64,
}

/// Time of the tasks that were observed last ([`ObservedTasks`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedTaskTime {
    /// State.
    pub state: State,
    /// Reason of a wait.
    pub reason: Arc<str>,
    /// The runtime's own word for it.
    pub detail: Arc<str>,
    /// Number of the stack, in the order of [`TaskStack`]s.
    pub stack: Option<u32>,
    /// Labels of the tasks.
    pub labels: Vec<(Arc<str>, Arc<str>)>,
    /// Times seen.
    pub count: u64,
    /// Time, ns.
    pub ns: u64,
}

/// The stack of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStack {
    /// The process.
    pub pid: u32,
    /// How it ended.
    pub end: StackEnd,
    /// Native frames.
    pub native: Vec<u64>,
    /// Managed frames, two words each.
    pub managed: Vec<u64>,
}

/// Note and limit of the domain about one kind of task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskWords {
    /// A note.
    pub note: String,
    /// A limit.
    pub limit: Limit,
}

/// The module that code belongs to, as the collector knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeModule {
    /// An unknown place.
    Unknown,
    /// A file, by its module's number.
    File(u32),
    /// Code that a process made at run time.
    Jit(u32),
    /// A source file, or the name of a virtual machine.
    Source(Arc<str>),
}

/// The module of a file that the unwinder knows by a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwinderFile {
    /// The number is that of the unwinder of copied stacks.
    pub late: bool,
    /// The unwinder's number.
    pub file: u16,
    /// The module's number, in the order of [`crate::Observation::Module`]s.
    pub module: u32,
}

/// A function at a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedLine {
    /// The function.
    pub function: Function,
    /// Line, 0 where unknown.
    pub line: u32,
}

/// A frame as the collector names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedFrame {
    /// Kind of code.
    pub kind: FrameKind,
    /// The module of the code.
    pub module: CodeModule,
    /// Offset in the module, or address.
    pub address: u64,
    /// Functions inlined into each other, innermost first; empty: the symboliser names it.
    pub lines: Vec<NamedLine>,
}

/// The question that a [`NamedFrame`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    /// The process in which the words mean something.
    pub pid: u32,
    /// The version of the meaning of its addresses.
    pub code: u64,
    /// The stack was unwound from a copy of its memory.
    pub late: bool,
    /// The frame in the unwinder's words.
    pub words: [u64; 4],
}

/// The name of a user frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameName {
    /// The frame.
    pub key: FrameKey,
    /// The name.
    pub frame: NamedFrame,
}

/// A frame of an interpreter in the words of its walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ManagedKey {
    /// The process.
    pub pid: u32,
    /// Address of the code.
    pub code: u64,
    /// The walk's value that tells code objects apart that reuse an address.
    pub check: u32,
    /// The instruction that runs.
    pub lasti: i32,
}

/// The name of an interpreter's frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedName {
    /// The frame.
    pub key: ManagedKey,
    /// The name.
    pub frame: NamedFrame,
    /// Name of the function, where it is a coroutine.
    pub coroutine: Option<Arc<str>>,
}

/// Roles of native frames in the runtime of their process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameRoles {
    /// The process.
    pub pid: u32,
    /// The frames in the unwinder's words.
    pub frames: Vec<u64>,
    /// The role of each, by number.
    pub roles: Vec<u8>,
}

/// The program of a process that has run several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramName {
    /// The process.
    pub pid: u32,
    /// Number of programs that it had run before.
    pub former: u32,
    /// The name; `None`: the process has run one program only.
    pub name: Option<Arc<str>>,
}

/// The name that a runtime gave a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadName {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// The name.
    pub name: Arc<str>,
}

/// The function of the kernel that a stack waits in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelFunction {
    /// Hash of the stack.
    pub stack: u64,
    /// The function.
    pub name: Arc<str>,
}

/// The runtime that makes code in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeMaker {
    /// The process.
    pub pid: u32,
    /// The runtime, and the flag that makes it report names; `None`: not known.
    pub maker: Option<(String, String)>,
}

/// A frame with lines that a symboliser found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Kind of code.
    pub kind: FrameKind,
    /// Module of the frame before.
    pub module: Option<u32>,
    /// Address of the frame.
    pub address: u64,
    /// Module of the frame after, where that is another one.
    pub moved_to: Option<Module>,
    /// Functions inlined into each other, innermost first.
    pub lines: Vec<SymbolLine>,
}

/// A line of a [`Symbol`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SymbolLine {
    /// A line of a function that the symboliser found: the function's number in the order of
    /// [`crate::Observation::SymbolFunction`]s, and the line.
    Found(u32, u32),
    /// A line of a function that had a name before.
    Known(NamedLine),
}

variants! {
    Counter { Kernel = 0, Tasks = 1, Collector = 2, Symboliser = 3 }
}

fields! {
    Begin {
        start_ns, start_unix_ns, slice_ns, timeline_bytes, interpreter_frames, interrupts,
        off_cpu_period_ns, boot,
    }
    InterruptCode { start, end, serves }
    UnwoundStack { hash, end, frames }
    CodeChanges { pid, kept, times }
    SleepingThread { record }
    LockOwner { record, begin, holder, evidence, at_end }
    ResourceName { hash, name }
    SameLock { hash, first }
    Connected { followed, talkers }
    OtherEnd { cookie, process, before }
    Histogram { class, longest_ns, counts }
    LockWaits { record, address, call, total_ns, longest_ns, count, name }
    CountedEvent { name, counted }
    EventHits { event, record, hits }
    CountedLoss { by, cause, count }
    DescribedDomain { domain, timeline_note }
    ObservedTasks { pid, kind, name, seen, polls }
    ObservedTaskTime { state, reason, detail, stack, labels, count, ns }
    TaskStack { pid, end, native, managed }
    TaskWords { note, limit }
    UnwinderFile { late, file, module }
    NamedLine { function, line }
    NamedFrame { kind, module, address, lines }
    FrameKey { pid, code, late, words }
    FrameName { key, frame }
    ManagedKey { pid, code, check, lasti }
    ManagedName { key, frame, coroutine }
    FrameRoles { pid, frames, roles }
    ProgramName { pid, former, name }
    ThreadName { pid, tid, name }
    KernelFunction { stack, name }
    CodeMaker { pid, maker }
    Symbol { kind, module, address, moved_to, lines }
}

impl Wire for Mark {
    fn put(&self, out: &mut Vec<u8>) {
        let (number, pid, time) = match *self {
            Mark::Released { pid, time } => (0u8, pid, time),
            Mark::Tick { time } => (1, 0, time),
            Mark::End { time } => (2, 0, time),
            Mark::Figures { time } => (3, 0, time),
            Mark::Drained { time } => (4, 0, time),
            Mark::RecordsLost { time } => (5, 0, time),
        };
        out.push(number);
        (pid, time).put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<Mark, Malformed> {
        let number = from.byte()?;
        let (pid, time) = <(u32, u64)>::get(from)?;
        match number {
            0 => Ok(Mark::Released { pid, time }),
            1 => Ok(Mark::Tick { time }),
            2 => Ok(Mark::End { time }),
            3 => Ok(Mark::Figures { time }),
            4 => Ok(Mark::Drained { time }),
            5 => Ok(Mark::RecordsLost { time }),
            _ => Err(Malformed::Variant),
        }
    }
}

impl Wire for LockHolder {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            LockHolder::Record(record) => {
                out.push(0);
                record.put(out);
            }
            LockHolder::Stranger { pid, tid, name } => {
                out.push(1);
                (*pid, *tid).put(out);
                name.put(out);
            }
        }
    }

    fn get(from: &mut Input<'_>) -> Result<LockHolder, Malformed> {
        match from.byte()? {
            0 => Ok(LockHolder::Record(u64::get(from)?)),
            1 => Ok(LockHolder::Stranger {
                pid: u32::get(from)?,
                tid: u32::get(from)?,
                name: Wire::get(from)?,
            }),
            _ => Err(Malformed::Variant),
        }
    }
}

impl Wire for CodeModule {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            CodeModule::Unknown => out.push(0),
            CodeModule::File(number) => {
                out.push(1);
                number.put(out);
            }
            CodeModule::Jit(pid) => {
                out.push(2);
                pid.put(out);
            }
            CodeModule::Source(path) => {
                out.push(3);
                path.put(out);
            }
        }
    }

    fn get(from: &mut Input<'_>) -> Result<CodeModule, Malformed> {
        Ok(match from.byte()? {
            0 => CodeModule::Unknown,
            1 => CodeModule::File(u32::get(from)?),
            2 => CodeModule::Jit(u32::get(from)?),
            3 => CodeModule::Source(Wire::get(from)?),
            _ => return Err(Malformed::Variant),
        })
    }
}

impl Wire for SymbolLine {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            SymbolLine::Found(function, line) => {
                out.push(0);
                (*function, *line).put(out);
            }
            SymbolLine::Known(line) => {
                out.push(1);
                line.put(out);
            }
        }
    }

    fn get(from: &mut Input<'_>) -> Result<SymbolLine, Malformed> {
        match from.byte()? {
            0 => Ok(SymbolLine::Found(u32::get(from)?, u32::get(from)?)),
            1 => Ok(SymbolLine::Known(NamedLine::get(from)?)),
            _ => Err(Malformed::Variant),
        }
    }
}
