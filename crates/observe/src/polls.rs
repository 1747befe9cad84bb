//! Results of polls of `/proc`, as plain values. Times are ns of CLOCK_MONOTONIC.
//!
//! Threads have numbers from 0 in the order of their [`PolledThread`]s.

use std::sync::Arc;

use wallscope_model::{BlockReason, StackEnd, WaitSeen};

use crate::wire::{Input, Malformed, Wire, fields, variants};

/// The scheduler's counters of a thread (`/proc/PID/task/TID/schedstat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedCounters {
    /// Time on a CPU, ns.
    pub on_cpu_ns: u64,
    /// Time on a run queue, ns.
    pub run_delay_ns: u64,
    /// Times it was put on a CPU.
    pub timeslices: u64,
}

/// The moment from which a thread's time counts, and its counters then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountBegin {
    /// When.
    pub time: u64,
    /// The scheduler's counters.
    pub counters: SchedCounters,
    /// Timer ticks in user mode and in the kernel.
    pub ticks: (u64, u64),
    /// Voluntary and involuntary switches.
    pub switches: (u64, u64),
}

/// A thread that is measured from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolledThread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name.
    pub name: Arc<str>,
    /// Begin of its time.
    pub begin: AccountBegin,
}

/// A thread's time begins anew: it stood at the recorder's gate until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rebased {
    /// The thread.
    pub thread: u32,
    /// Begin of its time.
    pub begin: AccountBegin,
}

/// Extent of the stack that a poll read, and its stack pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackBegin {
    /// The whole stack.
    Whole(u64),
    /// The innermost frame: the wait was over before its callers were read.
    Innermost(u64),
}

/// State of a thread at a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolledState {
    /// Reason of its wait; `None`: it was runnable.
    pub blocked: Option<BlockReason>,
    /// Number of its stack, where one was read.
    pub stack: Option<u32>,
    /// Extent of that stack, where its stack pointer is known.
    pub begin: Option<StackBegin>,
    /// The connections that it waits for.
    pub seen: WaitSeen,
}

/// A poll of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadPoll {
    /// The thread.
    pub thread: u32,
    /// When.
    pub time: u64,
    /// The scheduler's counters.
    pub counters: SchedCounters,
    /// Polls left out since the last one, as the thread slept.
    pub left_out: u32,
    /// The observed state; `None`: the thread has not run since the last poll, and sleeps on.
    pub saw: Option<PolledState>,
}

/// A thread was stopped for a moment after a poll that found it runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoppedThread {
    /// The poll.
    pub poll: RunnablePoll,
    /// When it was found again.
    pub time: u64,
    /// The scheduler's counters then.
    pub counters: SchedCounters,
    /// How it was found.
    pub found: FoundThread,
}

/// A poll that found a thread on a CPU, or waiting for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunnablePoll {
    /// The thread.
    pub thread: u32,
    /// When the poll was due.
    pub due: u64,
    /// When it was made.
    pub time: u64,
    /// The scheduler's counters then.
    pub counters: SchedCounters,
    /// When it had left its CPU by then, where that was read.
    pub left: Option<CpuDeparture>,
    /// Stack of the wait that it may just have been woken from.
    pub woken_from: Option<u32>,
    /// The thread was on the poller's CPU, or waited for it.
    pub behind: bool,
    /// Begin of the interval that the poll represents.
    pub begin: u64,
    /// Its end.
    pub end: u64,
}

/// When a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuDeparture {
    /// Time on the clock of that CPU, ns.
    pub at_ns: u64,
    /// Number of migrations by then.
    pub migrations: u64,
}

/// How a thread was found after a poll that saw it runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundThread {
    /// It was stopped on its way back to user mode.
    Halted {
        /// It was at the end of a system call.
        in_call: bool,
        /// When it had left its CPU, where that was read.
        left: Option<CpuDeparture>,
        /// Position in its program.
        place: StopPlace,
        /// Its stack.
        stack: u32,
    },
    /// It was blocked again before it could be stopped. The value is the reason of its wait before the poll, if known.
    Asleep(Option<BlockReason>),
    /// It was not stopped, and has run since. The value is the reason of its wait before the poll.
    Ran(BlockReason),
}

/// Wait that a thread has just been woken from, as far as its stack at the stop shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopPlace {
    /// It was at the end of a call that waits for this reason.
    Call(BlockReason),
    /// A poll has seen it wait there for a page.
    Fault,
    /// No wait is known there.
    Computing,
}

/// A thread is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedThread {
    /// The thread.
    pub thread: u32,
    /// Time of the poll that did not find it.
    pub time: u64,
    /// The scheduler's counters as they were read last.
    pub counters: SchedCounters,
    /// The whole target has ended, just before that poll.
    pub with_target: bool,
}

/// A stack that polls saw for the first time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolledStack {
    /// Its number: stacks are counted from 0, and one that is too large for a log leaves a gap.
    pub number: u32,
    /// The process in which its addresses mean something.
    pub pid: u32,
    /// The version of the meaning of its addresses.
    pub code: u64,
    /// How it ended.
    pub end: StackEnd,
    /// Native frames in the unwinder's words, innermost first.
    pub native: Vec<u64>,
    /// Managed frames, two words each.
    pub managed: Vec<u64>,
    /// Name of the thing waited for.
    pub resource: Option<Arc<str>>,
}

/// Facts about a thread that change slowly. A later status replaces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadStatus {
    /// The thread.
    pub thread: u32,
    /// Name.
    pub name: Arc<str>,
    /// Timer ticks in user mode and in the kernel.
    pub ticks: (u64, u64),
    /// Voluntary and involuntary switches.
    pub switches: (u64, u64),
    /// The scheduler's counters as they were read last.
    pub counters: SchedCounters,
}

/// The clocks of a process, each at its beginning and now. Later clocks replace them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessClocks {
    /// The process.
    pub pid: u32,
    /// Its parent; 0: not known.
    pub parent: u32,
    /// It has ended.
    pub ended: bool,
    /// CPU time of all its threads, ns.
    pub cpu_ns: [u64; 2],
    /// CPU time of processes that had its id before, ns.
    pub before_ns: u64,
    /// CPU time of children that it has waited for, and of theirs, ns.
    pub reaped_ns: [u64; 2],
    /// Timer ticks of all its threads in user mode and in the kernel.
    pub ticks: [(u64, u64); 2],
}

variants! {
    BlockReason {
        Lock = 0, Gil = 1, Disk = 2, Network = 3, Pipe = 4, Timer = 5, Poll = 6, Child = 7,
        PageFault = 8, Memory = 9, KernelLock = 10, Gc = 11, Stopped = 12, Other = 13,
    }
}

fields! {
    WaitSeen { in_flight, awaits, talks }
    SchedCounters { on_cpu_ns, run_delay_ns, timeslices }
    AccountBegin { time, counters, ticks, switches }
    PolledThread { pid, tid, name, begin }
    Rebased { thread, begin }
    PolledState { blocked, stack, begin, seen }
    ThreadPoll { thread, time, counters, left_out, saw }
    StoppedThread { poll, time, counters, found }
    RunnablePoll { thread, due, time, counters, left, woken_from, behind, begin, end }
    CpuDeparture { at_ns, migrations }
    EndedThread { thread, time, counters, with_target }
    PolledStack { number, pid, code, end, native, managed, resource }
    ThreadStatus { thread, name, ticks, switches, counters }
    ProcessClocks { pid, parent, ended, cpu_ns, before_ns, reaped_ns, ticks }
}

impl Wire for StackBegin {
    fn put(&self, out: &mut Vec<u8>) {
        let (number, sp) = match *self {
            StackBegin::Whole(sp) => (0u8, sp),
            StackBegin::Innermost(sp) => (1, sp),
        };
        out.push(number);
        sp.put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<StackBegin, Malformed> {
        match from.byte()? {
            0 => Ok(StackBegin::Whole(u64::get(from)?)),
            1 => Ok(StackBegin::Innermost(u64::get(from)?)),
            _ => Err(Malformed::Variant),
        }
    }
}

impl Wire for StopPlace {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            StopPlace::Call(reason) => {
                out.push(0);
                reason.put(out);
            }
            StopPlace::Fault => out.push(1),
            StopPlace::Computing => out.push(2),
        }
    }

    fn get(from: &mut Input<'_>) -> Result<StopPlace, Malformed> {
        match from.byte()? {
            0 => Ok(StopPlace::Call(Wire::get(from)?)),
            1 => Ok(StopPlace::Fault),
            2 => Ok(StopPlace::Computing),
            _ => Err(Malformed::Variant),
        }
    }
}

impl Wire for FoundThread {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            FoundThread::Halted {
                in_call,
                left,
                place,
                stack,
            } => {
                out.push(0);
                (*in_call, *left).put(out);
                (*place, *stack).put(out);
            }
            FoundThread::Asleep(reason) => {
                out.push(1);
                reason.put(out);
            }
            FoundThread::Ran(reason) => {
                out.push(2);
                reason.put(out);
            }
        }
    }

    fn get(from: &mut Input<'_>) -> Result<FoundThread, Malformed> {
        Ok(match from.byte()? {
            0 => FoundThread::Halted {
                in_call: Wire::get(from)?,
                left: Wire::get(from)?,
                place: Wire::get(from)?,
                stack: Wire::get(from)?,
            },
            1 => FoundThread::Asleep(Wire::get(from)?),
            2 => FoundThread::Ran(Wire::get(from)?),
            _ => return Err(Malformed::Variant),
        })
    }
}
