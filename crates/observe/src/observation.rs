//! Kinds of observations, and the number of each in a log.

use std::sync::Arc;

use wallscope_model::{Cost, Function, HostSample, Module, Process};

use crate::{
    facts::{
        Begin, CodeChanges, CodeMaker, Connected, CountedEvent, CountedLoss, DescribedDomain,
        EventHits, FrameName, FrameRoles, Histogram, KernelFunction, LockOwner, LockWaits,
        ManagedName, Mark, ObservedTaskTime, ObservedTasks, OtherEnd, ProgramName, ResourceName,
        SameLock, SleepingThread, Symbol, TaskStack, TaskWords, ThreadName, UnwinderFile,
        UnwoundStack,
    },
    kind,
    memory::StackMemory,
    polls::{
        EndedThread, PolledStack, PolledThread, ProcessClocks, Rebased, StoppedThread, ThreadPoll,
        ThreadStatus,
    },
    switches::{
        CounterHeir, CounterReading, EventStack, HitsOfEnded, OpenWait, PreemptedStack,
        ProbedReason, QueuedPoll, RecordsBegin, RecordsEnd, RunningSample, Switch, SwitchRecording,
        UnfollowedWait, WaitProbe,
    },
    wire::{Input, Malformed, Wire},
    words::Words,
};

/// Importance of an observation: less important ones are left out as a log grows to its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Importance {
    /// Wakers: left out from half of the bound on.
    Wake,
    /// Samples and single intervals: left out from three quarters on.
    Sample,
    /// Polls and switches, from which the recorder computes the ledgers: never left out. Their number has no
    /// limit, so a spool ends when they reach its bound.
    Event,
    /// Counters of threads, and all observations that give them meaning: never left out.
    Ledger,
}

macro_rules! observations {
    (
        records { $($(#[$rmeta:meta])* $rnumber:literal $record:ident,)* }
        values { $($(#[$vmeta:meta])* $vnumber:literal $value:ident($type:ty),)* }
    ) => {
        /// One observation. Records are the bytes of a C struct of the kernel programs.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Observation<'a> {
            $($(#[$rmeta])* $record(&'a [u8]),)*
            $($(#[$vmeta])* $value($type),)*
        }

        impl Observation<'_> {
            /// Appends the encoding.
            pub(crate) fn put(&self, words: &mut Words, out: &mut Vec<u8>) {
                match self {
                    $(Observation::$record(bytes) => {
                        out.push($rnumber);
                        words.put($rnumber, bytes, out);
                    })*
                    $(Observation::$value(value) => {
                        out.push($vnumber);
                        value.put(out);
                    })*
                }
            }
        }

        impl<'a> Observation<'a> {
            /// Reads one. The bytes of a record go to `record`.
            ///
            /// # Errors
            /// The bytes are no observation, or one of a kind that this version does not know.
            pub(crate) fn get(
                words: &mut Words,
                from: &mut Input<'_>,
                record: &'a mut Vec<u8>,
            ) -> Result<Observation<'a>, Malformed> {
                match from.byte()? {
                    $($rnumber => {
                        words.get($rnumber, from, record)?;
                        Ok(Observation::$record(record))
                    })*
                    $($vnumber => Ok(Observation::$value(Wire::get(from)?)),)*
                    number => Err(Malformed::Kind(number)),
                }
            }
        }
    };
}

observations! {
    records {
        /// A record of the event ring: a thread event, last figures, sample, stack, wake-up, resource…
        1 Event,
        /// A record of the timeline's ring (`struct ws_turn`).
        2 Turn,
        /// A thread's counters (`struct ws_dump`) as the task iterator copied them.
        3 Books,
        /// The last counters of a thread that lives on when the recording ends.
        4 LastBooks,
        /// A connection that is open (`struct ws_socket`). A later record of its cookie replaces it.
        5 Socket,
        /// The counters, at the start of the recording, of a thread that existed before. Only a recovery needs
        /// them: the thread may not run before the recorder ends.
        6 FirstBooks,
    }
    values {
        /// The first observation of a log.
        16 Begin(Begin),
        /// A moment.
        17 Mark(Mark),
        /// A stack that was unwound from a copy of its memory.
        18 Stack(UnwoundStack),
        /// Addresses changed their meaning.
        19 CodeChanges(CodeChanges),
        /// A wait for a lock was a sleep.
        20 Sleeping(SleepingThread),
        /// A lock had a holder.
        21 LockOwner(LockOwner),
        /// A resource has a name.
        22 ResourceName(ResourceName),
        /// Two hashes mean one lock.
        23 SameLock(SameLock),
        /// Connections at the start.
        24 Connected(Connected),
        /// The other end of a connection.
        25 OtherEnd(OtherEnd),
        /// A histogram.
        26 Histogram(Histogram),
        /// Exact waits for a lock.
        27 LockWaits(LockWaits),
        /// An event at which stacks were taken.
        28 CountedEvent(CountedEvent),
        /// Number of such events in a thread.
        29 EventHits(EventHits),
        /// A loss.
        30 Loss(CountedLoss),
        /// Cost of measuring so far.
        31 Cost(Cost),
        /// Facts about the host.
        32 Host(Box<HostSample>),
        /// The domain, as far as it is known.
        33 Domain(DescribedDomain),
        /// A process in its present state. A later one with the same pid replaces it.
        34 Process(Process),
        /// A file that code came from; they come in the order of their numbers.
        35 Module(Module),
        /// Tasks of a runtime.
        36 Tasks(ObservedTasks),
        /// Time of the tasks before.
        37 TaskTime(ObservedTaskTime),
        /// A stack of tasks.
        38 TaskStack(TaskStack),
        /// Note and limit of the domain about tasks.
        39 TaskWords(TaskWords),
        /// The unwinder's number of a file.
        40 UnwinderFile(UnwinderFile),
        /// A runtime gave a thread a name. A later name of the thread replaces it.
        41 ThreadName(ThreadName),
        /// A user frame has a name.
        48 FrameName(FrameName),
        /// An interpreter's frame has a name.
        49 ManagedName(ManagedName),
        /// Native frames have roles in a runtime.
        50 FrameRoles(FrameRoles),
        /// A process runs a program.
        51 ProgramName(ProgramName),
        /// A kernel stack waits in a function.
        52 KernelFunction(KernelFunction),
        /// A runtime makes code.
        53 CodeMaker(CodeMaker),
        /// A function that the symboliser found.
        56 SymbolFunction(Function),
        /// A frame that the symboliser named.
        57 Symbol(Symbol),
        /// Stack memory, where it is kept.
        60 StackMemory(Box<StackMemory>),
        /// A note made after the end of measuring.
        58 Note(Arc<str>),
        /// Observations that the log's bound, or their size, has left out so far.
        62 LeftOut(LeftOut),
        /// The log is whole: observations that its bound, or their size, left out.
        63 Closed(LeftOut),
        /// The first observation of a log of the proc and perf backends.
        64 PollsBegin(Begin),
        /// A thread comes under watch.
        65 PolledThread(PolledThread),
        /// A thread's time begins anew.
        66 Rebased(Rebased),
        /// A poll of a thread.
        67 ThreadPoll(ThreadPoll),
        /// A thread was found again after a poll that saw it runnable.
        68 StoppedThread(StoppedThread),
        /// A thread is gone.
        69 EndedThread(EndedThread),
        /// A stack that polls saw for the first time.
        70 PolledStack(PolledStack),
        /// Facts about a thread that change slowly.
        71 ThreadStatus(ThreadStatus),
        /// The clocks of a process.
        72 ProcessClocks(ProcessClocks),
        /// Perf events record switches.
        73 SwitchRecording(SwitchRecording),
        /// The switches of a thread are recorded from here on.
        74 RecordsBegin(RecordsBegin),
        /// A recorded switch.
        75 Switch(Switch),
        /// The counters of a thread with recorded switches.
        76 CounterReading(CounterReading),
        /// The switches of a thread are not recorded any more.
        77 RecordsEnd(RecordsEnd),
        /// A sample of a running thread.
        78 RunningSample(RunningSample),
        /// The stack of a thread that is about to be preempted.
        79 PreemptedStack(PreemptedStack),
        /// A poll of a waiting thread with recorded switches.
        80 WaitProbe(WaitProbe),
        /// The end of a probed wait tells its reason.
        81 ProbedReason(ProbedReason),
        /// A probed wait is not followed to its end.
        82 UnfollowedWait(UnfollowedWait),
        /// A poll of a thread that waits for a CPU.
        83 QueuedPoll(QueuedPoll),
        /// A wait counts up to now.
        84 OpenWait(OpenWait),
        /// A stack at an event by name.
        85 EventStack(EventStack),
        /// Number of events in a thread that has ended.
        86 HitsOfEnded(HitsOfEnded),
        /// A thread inherited the counters of another one.
        87 CounterHeir(CounterHeir),
    }
}

/// Observations that are not in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Wakers.
    pub wakes: u64,
    /// Samples and single intervals.
    pub samples: u64,
    /// Observations too large for a frame.
    pub too_large: u64,
}

crate::wire::fields! {
    LeftOut { wakes, samples, too_large }
}

impl LeftOut {
    /// Whether nothing is missing.
    pub fn is_empty(self) -> bool {
        self == LeftOut::default()
    }
}

impl Observation<'_> {
    /// Its importance.
    pub fn importance(&self) -> Importance {
        match self {
            Observation::Event(bytes) => {
                let first = bytes.get(..4).and_then(|b| b.try_into().ok());
                match first.map_or(0, u32::from_le_bytes) {
                    kind::WAKE => Importance::Wake,
                    kind::SAMPLE => Importance::Sample,
                    _ => Importance::Ledger,
                }
            }
            Observation::Turn(_)
            | Observation::RunningSample(_)
            | Observation::PreemptedStack(_)
            | Observation::QueuedPoll(_)
            | Observation::EventStack(_)
            | Observation::StackMemory(_) => Importance::Sample,
            Observation::ThreadPoll(_)
            | Observation::StoppedThread(_)
            | Observation::Switch(_)
            | Observation::CounterReading(_)
            | Observation::WaitProbe(_) => Importance::Event,
            _ => Importance::Ledger,
        }
    }

    /// The record, if it is one.
    pub(crate) fn record(&self) -> Option<&[u8]> {
        match self {
            Observation::Event(bytes)
            | Observation::Turn(bytes)
            | Observation::Books(bytes)
            | Observation::LastBooks(bytes)
            | Observation::Socket(bytes)
            | Observation::FirstBooks(bytes) => Some(bytes),
            _ => None,
        }
    }
}
