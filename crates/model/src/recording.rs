//! The recording: everything one measurement produced, before any view of it.

use std::sync::Arc;

use crate::shape::ShapeRow;
use crate::{
    BlockReason, Cost, Domain, Frame, Function, HostSample, Label, LabelsId, Ledger, LedgerSlices,
    Loss, Module, Part, Peer, Stack, StackId, State,
};

/// Index into [`Recording::contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);

/// The stretch of time that was measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Start on `clock`, ns.
    pub start_ns: u64,
    /// End on `clock`, ns.
    pub end_ns: u64,
    /// The clock: `CLOCK_MONOTONIC`.
    pub clock: String,
    /// Start on the wall clock, ns since the epoch.
    pub start_unix_ns: u64,
}

impl Window {
    /// How long it is, ns.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// A thread, with its ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Process id, in the recorder's pid namespace.
    pub pid: u32,
    /// Thread id, likewise.
    pub tid: u32,
    /// Thread name (`comm`), as last seen.
    pub name: Arc<str>,
    /// Start of its existence within the window, ns on the recording's clock.
    pub start_ns: u64,
    /// End of its existence within the window.
    pub end_ns: u64,
    /// Where its time went.
    pub ledger: Ledger,
}

/// A process, for what its threads do not tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Parent process id, 0 where unknown.
    pub parent: u32,
    /// Name (`comm` of its first thread, or the executable's name).
    pub name: Arc<str>,
    /// Path of the executable, empty where unknown.
    pub exe: Arc<str>,
    /// Command line, arguments joined by spaces; empty where unknown.
    pub cmdline: Arc<str>,
    /// On-CPU time of threads that were never seen as threads, ns.
    pub unattributed_on_cpu_ns: u64,
    /// User and group by which the kernel decided which files the process may open; `None`: unknown.
    /// A reader with more rights opens files that the process names with these.
    pub user: Option<FileUser>,
}

/// A user and a group of the recorded machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A part of a sample's time, by slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceValue {
    /// Index of the slice (see [`Slices`]).
    pub slice: u32,
    /// Samples in it.
    pub count: u64,
    /// Estimated time in it, ns, before scaling.
    pub ns: u64,
}

/// Samples of the same stack in the same state of the same context, added up.
///
/// `ns` is `samples × period`, *unscaled*. [`crate::scale`] scales it to the ledger's exact total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Whose time.
    pub context: ContextId,
    /// The stack that spent it.
    pub stack: StackId,
    /// In which state.
    pub state: State,
    /// For [`State::Blocked`]: what it waited for.
    pub reason: Option<BlockReason>,
    /// For the other states: which part, where known.
    pub part: Option<Part>,
    /// Whether the time was idle.
    pub idle: bool,
    /// The CPU, for on-CPU samples where known.
    pub cpu: Option<u32>,
    /// Further labels, if any.
    pub labels: Option<LabelsId>,
    /// Number of samples.
    pub count: u64,
    /// Estimated time, ns, before scaling.
    pub ns: u64,
    /// The same by time slice; sums to `count` and `ns`.
    pub slices: Vec<SliceValue>,
}

impl Sample {
    /// The contract's `reason` label: a block reason, or the part of another state.
    pub fn reason_name(&self) -> Option<&'static str> {
        self.reason
            .map(BlockReason::name)
            .or(self.part.map(Part::name))
    }
}

/// The division of the window into time slices of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// Start of slice 0 on the recording's clock, ns.
    pub start_ns: u64,
    /// Length of a slice, ns; 0: the recording has no slices.
    pub width_ns: u64,
    /// How many.
    pub count: u32,
}

/// Everything one measurement produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// What was measured and how.
    pub domain: Domain,
    /// When.
    pub window: Window,
    /// Threads, with their ledgers.
    pub contexts: Vec<Context>,
    /// Their processes.
    pub processes: Vec<Process>,
    /// Files that code came from.
    pub modules: Vec<Module>,
    /// Named functions.
    pub functions: Vec<Function>,
    /// Distinct code addresses.
    pub frames: Vec<Frame>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Distinct sets of further labels, each in ascending order.
    pub label_sets: Vec<Vec<Label>>,
    /// Sampled time.
    pub samples: Vec<Sample>,
    /// Who appears in `hops`.
    pub actors: Vec<crate::Actor>,
    /// Who ended waits, and what that one did meanwhile; parents before children.
    pub hops: Vec<crate::Hop>,
    /// Exact waits by context and lock.
    pub locks: Vec<crate::LockWait>,
    /// The division into time slices.
    pub slices: Slices,
    /// Ledgers by slice; rows without any time are left out.
    pub ledger_slices: LedgerSlices,
    /// Whom the processes talk to, and for how long they awaited or owed answers.
    pub peers: Vec<Peer>,
    /// What a runtime schedules itself: its own clock, never added to threads.
    pub tasks: Vec<crate::TaskGroup>,
    /// How long the intervals were that the ledgers sum up.
    pub shapes: Vec<ShapeRow>,
    /// The single intervals, where they were kept.
    pub timeline: Option<crate::Timeline>,
    /// Stacks taken at events, where they were asked for.
    pub events: Vec<crate::EventHits>,
    /// The host, over time.
    pub host: Vec<HostSample>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// What it cost.
    pub cost: Cost,
}
