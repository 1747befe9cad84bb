//! The state of the poller: threads under watch, their perf events if there are any, and the observations so far.

use rustc_hash::FxHashMap;
use wallscope_observe::{Begin, LogWriter, Observation};
use wallscope_unwind::native::{MemoryTables, Unwinder};

use super::{
    call_site_check::CallSiteCheck, connections::Connections, estimator::PollEstimator,
    intake::Intake, io_ring::Rings, pending_stop::PendingStopSample, round_robin::RoundRobin,
    stop::Stopper, subreaper::Subreaper, target_tracker::TargetTracker,
};
use crate::{
    backend::perf::{CpuAffinity, EventSampler, RingWakeupPolicy, RunnableSampling, ThreadEvents},
    session::{last_values::LastValues, managed, processes::Processes},
    syscalls,
};

/// Longest time that has to pass between two readings of a process's mappings, ns.
pub const REMAP: u64 = 100_000_000;
/// Time between two readings of a process's mappings, as a multiple of the duration of the last one.
pub const REMAP_TIMES: u64 = 50;

/// Counts of events during the recording.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Stacks that changed while they were read.
    pub raced: u64,
    /// Waits of which only the reason and the innermost frame were seen, because their stacks changed.
    pub glimpsed: u64,
    /// Polls left out at threads that slept.
    pub skipped: u64,
    /// Samples of threads that were gone before they could be listed.
    pub strangers: u64,
    /// Samples of running threads that were read.
    pub came: u64,
    /// Those of them that were not left out.
    pub counted: u64,
    /// Rounds that came late.
    pub late: u64,
    /// Time in which no round came at all, though some were due, ns: we were stopped, or the machine was.
    pub away_ns: u64,
    /// Threads without further records.
    pub deaf: u64,
    /// Running threads with Python frames that were read.
    pub read: u64,
    /// Time from their samples to those readings, summed, ns.
    pub read_after_ns: u64,
    /// Running threads with Python frames that could not be read, or not in time.
    pub unread: u64,
}

/// Reads stacks of other threads.
#[derive(Default)]
pub struct StackReader {
    /// Unwinds native frames.
    pub unwinder: Unwinder,
    /// Reads frames of interpreters.
    pub managed: managed::Reader,
    /// Tells whether a stack that was copied late is that of the wait.
    pub calls: CallSiteCheck,
}

/// Runnable threads with stacks that are still to come.
#[derive(Default)]
pub struct PendingStacks {
    /// Stops running threads for their stacks, where that is permitted.
    pub stopper: Option<Stopper>,
    /// Threads that were asked to stop.
    pub asked: FxHashMap<u32, PendingStopSample>,
    /// Threads that waited for our CPU when they were polled: the next poll shows their activity.
    pub behind_us: FxHashMap<u32, PendingStopSample>,
}

/// Records and samples of perf events beside the polls.
#[derive(Default)]
pub struct RecordIntake {
    /// Whether samples are read as they come.
    pub ring_wakeups: RingWakeupPolicy,
    /// Keeps the poller on the CPU of a thread with samples to be read at once.
    pub affinity: CpuAffinity,
    /// Threads that wait for a CPU, or seem to.
    pub runnable: RunnableSampling,
    /// CPU time that taking samples, and waking up for them, took, ns.
    pub cost_ns: u64,
    /// Time on CPUs that samples stand for, ns.
    pub sampled_ns: u64,
    /// Up to when all records have been taken, ns.
    pub drained_ns: u64,
    /// Threads may have been born unseen.
    pub relist: bool,
}

/// The rounds of polls so far, and the present one.
#[derive(Default)]
pub struct Rounds {
    /// Rounds so far: each polls one of every so many threads.
    pub number: usize,
    /// When the last one began, ns; 0: there was none.
    pub last_ns: u64,
    /// Time between two rounds as it is at present, ns.
    pub spacing_ns: u64,
    /// When the present one was due, ns.
    pub due_ns: u64,
    /// The machine was slow to wake us for it.
    pub woken_late: bool,
    /// It is the last one, and is made because the target has ended.
    pub target_ended: bool,
    /// Threads of `watch.live` that are due for a reading of counters.
    pub(super) turn: RoundRobin,
    /// The process with the last review of its mappings, and the time of the next review, ns.
    pub(super) reviewed: (u32, u64),
}

/// Everything that a round of polls needs.
pub struct ProcPoller {
    pub watch: TargetTracker,
    pub processes: Processes<MemoryTables>,
    /// The estimator, and the log of its observations.
    pub intake: Intake,
    /// Facts that it has observed.
    pub last_values: LastValues,
    pub reader: StackReader,
    pub table: [u8; syscalls::TABLE],
    pub clock: Option<ThreadEvents>,
    pub hits: Option<EventSampler>,
    pub records: RecordIntake,
    pub pending: PendingStacks,
    pub connections: Option<Connections>,
    /// If the target is a command: those of its processes that have lost their parents.
    pub orphans: Option<Subreaper>,
    pub tally: Tally,
    /// Rings of io_uring at which threads wait.
    pub rings: Rings,
    pub rounds: Rounds,
}

impl ProcPoller {
    /// A poller without threads. The files of up to `room` threads may be kept open.
    pub fn new(
        processes: Processes<MemoryTables>,
        room: usize,
        begin: Begin,
        log: Option<LogWriter>,
    ) -> ProcPoller {
        let mut intake = Intake {
            estimator: PollEstimator::new(&begin),
            log,
        };
        intake.observe(&Observation::PollsBegin(begin));
        ProcPoller {
            watch: TargetTracker::new(room),
            processes,
            intake,
            last_values: LastValues::default(),
            reader: StackReader::default(),
            table: syscalls::reasons(),
            clock: None,
            hits: None,
            records: RecordIntake::default(),
            pending: PendingStacks::default(),
            connections: None,
            orphans: None,
            tally: Tally::default(),
            rings: Rings::default(),
            rounds: Rounds::default(),
        }
    }

    /// Name of the backend in use.
    pub fn name(&self) -> &'static str {
        if self.clock.is_some() { "perf" } else { "proc" }
    }

    /// Whether no stack of process `pid` is the command's yet. If switches are recorded, only a record shows its exec:
    /// samples that are read before that record may be older.
    pub fn is_before_exec(&mut self, pid: u32) -> bool {
        if self.clock.is_none() {
            self.watch.look_for_exec(pid);
        }
        self.watch.is_before_exec(pid)
    }

    /// A thread is gone.
    pub fn ended(&mut self, index: usize) {
        let pid = self.watch.threads[index].pid;
        if self.watch.gone(index) {
            self.processes.thread_gone(pid);
        }
    }
}
