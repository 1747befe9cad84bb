//! The recording: everything one measurement produced, before any view of it.

use std::sync::Arc;

use crate::histogram::HistogramRow;
use crate::{
    Context, ContextId, Cost, Domain, Frame, Function, HostSample, Label, LabelValue, LabelsId,
    LedgerSlices, Loss, Module, Peer, Sample, Stack,
};

/// The measured range of time.
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
    /// Its length, ns.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// A process: data that its threads do not have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Parent process id; 0: unknown.
    pub parent: u32,
    /// Name (`comm` of its first thread, or the executable's name).
    pub name: Arc<str>,
    /// Path of the executable; empty: unknown.
    pub exe: Arc<str>,
    /// Command line, arguments joined by spaces; empty: unknown.
    pub cmdline: Arc<str>,
    /// On-CPU time of threads that were never seen as threads, ns.
    pub unattributed_on_cpu_ns: u64,
    /// User and group by which the kernel decided which files the process may open; `None`: unknown.
    /// A reader with more rights opens files that the process names with these.
    pub user: Option<FileUser>,
    /// Number of ended threads that this entry represents; 0: it is a process. A recorder keeps one by one only those
    /// with the longest lives.
    pub folded_threads: u64,
}

/// A user and a group of the recorded machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileUser {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The division of the window into time slices of one length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slices {
    /// Start of slice 0 on the recording's clock, ns.
    pub start_ns: u64,
    /// Length of a slice, ns; 0: the recording has no slices.
    pub width_ns: u64,
    /// Number of slices.
    pub count: u32,
}

/// Everything one measurement produced.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The measurement's domain.
    pub domain: Domain,
    /// The measured range of time.
    pub window: Window,
    /// Threads, with their ledgers.
    pub contexts: Vec<Context>,
    /// Their processes.
    pub processes: Vec<Process>,
    /// Files with code.
    pub modules: Vec<Module>,
    /// Named functions.
    pub functions: Vec<Function>,
    /// Distinct code addresses.
    pub frames: Vec<Frame>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Distinct sets of further labels, each in ascending order.
    pub label_sets: Vec<Vec<Label>>,
    /// Labels of whole contexts (`service`), by context; empty, or as long as `contexts`. They divide
    /// the ledger and are exact, where a sample's labels are estimates.
    pub context_labels: Vec<Option<LabelsId>>,
    /// Sampled time.
    pub samples: Vec<Sample>,
    /// Actors that appear in `hops`.
    pub actors: Vec<crate::Actor>,
    /// Wakers of waits, and the wakers' own time meanwhile; parents before children.
    pub hops: Vec<crate::Hop>,
    /// Exact waits by context and lock.
    pub locks: Vec<crate::LockWait>,
    /// The division into time slices.
    pub slices: Slices,
    /// Ledgers by slice, without rows that have no time.
    pub ledger_slices: LedgerSlices,
    /// Peers of the processes, and the time for which replies were awaited or owed.
    pub peers: Vec<Peer>,
    /// Tasks that a runtime schedules itself: they have a clock of their own, never added to
    /// threads.
    pub tasks: Vec<crate::TaskGroup>,
    /// Pauses in which runtimes stopped their threads, by process, operation and cause.
    pub pauses: Vec<crate::PauseGroup>,
    /// Histograms of the lengths of the intervals that the ledgers sum up.
    pub histograms: Vec<HistogramRow>,
    /// The single intervals, if they were kept.
    pub timeline: Option<crate::Timeline>,
    /// Stacks taken at events, if they were requested.
    pub events: Vec<crate::EventHits>,
    /// The host, over time.
    pub host: Vec<HostSample>,
    /// Losses by cause.
    pub losses: Vec<Loss>,
    /// Cost of the recording.
    pub cost: Cost,
}

impl Recording {
    /// The text label `key` of a whole context.
    pub fn context_label(&self, context: ContextId, key: &str) -> Option<&str> {
        let set = self.context_labels.get(context.0 as usize).copied()??;
        let label = self
            .label_sets
            .get(set.0 as usize)?
            .iter()
            .find(|l| *l.key == *key)?;
        match &label.value {
            LabelValue::Text(text) => Some(text),
            LabelValue::Number(..) => None,
        }
    }
}
