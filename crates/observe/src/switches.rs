//! Switches that perf events record, and polls of threads with such records, as plain values. Times are ns of
//! CLOCK_MONOTONIC.
//!
//! Threads and stacks have the numbers of the polls ([`crate::PolledThread`], [`crate::PolledStack`]).

use wallscope_model::{BlockReason, WaitSeen};

use crate::{
    polls::SchedCounters,
    wire::{Input, Malformed, Wire, fields, variants},
};

/// Switches of threads are recorded in this recording, beside the polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchRecording {
    /// Samples of running threads fall on kernel code too.
    pub samples_kernel: bool,
    /// The kernel's timer tick, ns.
    pub tick_ns: u64,
}

/// The switches of a thread are recorded from here on. Its time so far is that of its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsBegin {
    /// The thread.
    pub thread: u32,
    /// When.
    pub time: u64,
    /// The scheduler's counters then.
    pub counters: SchedCounters,
    /// State of the thread then.
    pub state: FirstState,
    /// Only a part of its switches is recorded: its totals are the counters'.
    pub by_counters: bool,
    /// Time without records so far, because its switches were too many for a record of each, ns.
    pub unrecorded_ns: u64,
}

/// State of a thread as the records of its switches begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstState {
    /// The first record, or the first reading of its counters, tells.
    Unknown,
    /// It was just born, and waits for a CPU.
    Born,
    /// It is blocked.
    Blocked,
    /// It is on a CPU.
    OnCpu,
}

/// A recorded switch of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The thread.
    pub thread: u32,
    /// When.
    pub time: u64,
    /// The event.
    pub step: SwitchStep,
}

/// Event that a switch record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchStep {
    /// It got a CPU.
    In,
    /// It left its CPU.
    Out {
        /// It would have gone on.
        preempted: bool,
    },
    /// It ended.
    End,
}

/// The scheduler's counters of a thread with recorded switches were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterReading {
    /// The thread.
    pub thread: u32,
    /// When.
    pub time: u64,
    /// The counters.
    pub counters: SchedCounters,
    /// No later time is accounted by these records.
    pub last: bool,
}

/// The switches of a thread are not recorded any more, though it goes on: its counters tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsEnd {
    /// The thread.
    pub thread: u32,
    /// Why.
    pub cause: RecordsEndCause,
}

/// Why the switches of a thread are not recorded any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordsEndCause {
    /// The recorder closed its events for a while.
    Closed,
    /// Records stopped coming.
    Stopped,
}

/// A sample of a running thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunningSample {
    /// The thread.
    pub thread: u32,
    /// Its stack.
    pub stack: u32,
    /// When.
    pub time: u64,
    /// Time on a CPU since the sample before, or the weight that the sampling design gives the sample, ns.
    pub ns: u64,
    /// It ran user code.
    pub user_mode: bool,
}

/// The stack at which a thread is preempted, if its next switch is a preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreemptedStack {
    /// The thread.
    pub thread: u32,
    /// The stack.
    pub stack: u32,
    /// Source of the stack.
    pub taken: PreemptedStackTaken,
}

/// Source of a preempted thread's stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreemptedStackTaken {
    /// It was copied at the switch. One in this many switches is copied.
    AtSwitch(u64),
    /// It is the stack of the last sample in the present time on a CPU. The value is the distance of samples, ns.
    Before(u64),
}

/// A poll of a waiting thread with recorded switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitProbe {
    /// The thread.
    pub thread: u32,
    /// When it began.
    pub at: u64,
    /// Time between two polls, ns.
    pub spacing_ns: u64,
    /// Delay of the poll because no CPU was free, ns; 0: in time.
    pub late_ns: u64,
    /// The system call, which was read first.
    pub call: ProbedCall,
    /// Time at which everything that shows the reason had been read.
    pub until: u64,
    /// Reason of the wait, if it lasted until then.
    pub reason: BlockReason,
    /// Time at which the stack had been copied; equal to the time of the call if it was not copied.
    pub copied: u64,
    /// The stack is that of the wait, even if the wait ended shortly before it was copied.
    pub called: bool,
    /// The stack.
    pub stack: u32,
    /// The stack has callers, not only the innermost frame.
    pub whole: bool,
    /// The connections that the thread waits for.
    pub seen: WaitSeen,
}

/// The system call of a waiting thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedCall {
    /// When it had been read.
    pub until: u64,
    /// Reason of the wait by the call alone.
    pub reason: BlockReason,
    /// Stack pointer.
    pub sp: u64,
}

/// The reason of a wait, if its end shows it better than the poll did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbedReason {
    /// The thread.
    pub thread: u32,
    /// The reason.
    pub reason: BlockReason,
}

/// A probed wait that is not followed to its end: polls will not show whether the thread waits for a CPU after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnfollowedWait {
    /// The thread.
    pub thread: u32,
}

/// A poll of a thread that seemed to have been woken, and to wait for a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedPoll {
    /// The thread.
    pub thread: u32,
    /// Begin of its wait, by its records so far.
    pub begin: u64,
    /// When the poll began.
    pub at: u64,
    /// When its stack had been read.
    pub read: u64,
    /// The stack, where it was found.
    pub stack: Option<u32>,
    /// The time that the poll represents, ns.
    pub ns: u64,
    /// The poll came too late to be independent of the threads' activity.
    pub late: bool,
}

/// The wait of a thread that is blocked counts up to now, though it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenWait {
    /// The thread.
    pub thread: u32,
    /// Begin of the part that counts.
    pub begin: u64,
}

/// A stack at an event by name ([`crate::CountedEvent`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventStack {
    /// Number of the event, in the order of [`crate::CountedEvent`]s.
    pub event: u32,
    /// The thread.
    pub thread: u32,
    /// Its stack.
    pub stack: u32,
    /// When.
    pub time: u64,
    /// Number of events that the stack represents.
    pub hits: u64,
    /// It was in user mode.
    pub user_mode: bool,
}

/// Number of events in a thread that has ended, as the kernel counted them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HitsOfEnded {
    /// Number of the event.
    pub event: u32,
    /// The thread.
    pub thread: u32,
    /// Number of events.
    pub hits: u64,
}

/// A thread inherited the counters of another one: [`crate::EventHits`] of the latter are those of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterHeir {
    /// The heir.
    pub thread: u32,
    /// The thread that the counters were opened for.
    pub of: u32,
}

variants! {
    FirstState { Unknown = 0, Born = 1, Blocked = 2, OnCpu = 3 }
    RecordsEndCause { Closed = 0, Stopped = 1 }
}

fields! {
    SwitchRecording { samples_kernel, tick_ns }
    RecordsBegin { thread, time, counters, state, by_counters, unrecorded_ns }
    Switch { thread, time, step }
    CounterReading { thread, time, counters, last }
    RecordsEnd { thread, cause }
    RunningSample { thread, stack, time, ns, user_mode }
    PreemptedStack { thread, stack, taken }
    WaitProbe {
        thread, at, spacing_ns, late_ns, call, until, reason, copied, called, stack, whole, seen,
    }
    ProbedCall { until, reason, sp }
    ProbedReason { thread, reason }
    UnfollowedWait { thread }
    QueuedPoll { thread, begin, at, read, stack, ns, late }
    OpenWait { thread, begin }
    EventStack { event, thread, stack, time, hits, user_mode }
    HitsOfEnded { event, thread, hits }
    CounterHeir { thread, of }
}

impl Wire for SwitchStep {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            SwitchStep::In => 0,
            SwitchStep::Out { preempted: false } => 1,
            SwitchStep::Out { preempted: true } => 2,
            SwitchStep::End => 3,
        });
    }

    fn get(from: &mut Input<'_>) -> Result<SwitchStep, Malformed> {
        match from.byte()? {
            0 => Ok(SwitchStep::In),
            1 => Ok(SwitchStep::Out { preempted: false }),
            2 => Ok(SwitchStep::Out { preempted: true }),
            3 => Ok(SwitchStep::End),
            _ => Err(Malformed::Variant),
        }
    }
}

impl Wire for PreemptedStackTaken {
    fn put(&self, out: &mut Vec<u8>) {
        let (number, value) = match *self {
            PreemptedStackTaken::AtSwitch(switches) => (0u8, switches),
            PreemptedStackTaken::Before(period_ns) => (1, period_ns),
        };
        out.push(number);
        value.put(out);
    }

    fn get(from: &mut Input<'_>) -> Result<PreemptedStackTaken, Malformed> {
        match from.byte()? {
            0 => Ok(PreemptedStackTaken::AtSwitch(u64::get(from)?)),
            1 => Ok(PreemptedStackTaken::Before(u64::get(from)?)),
            _ => Err(Malformed::Variant),
        }
    }
}
