//! CPU time beyond the program's own code, by known functions on the stack: page faults, memory
//! reclaim, starting and ending threads and processes, garbage collection, spinning.
//!
//! A loop of the program's own that waits for a flag looks like any other computing and is not
//! found.

use std::collections::HashMap;

use wallscope_model::{
    BlockReason, ContextId, FrameKind, GC_KEY, Recording, Sample, StackId, State,
};

use super::active::Active;
use crate::frames::{Side, frames, function_indexes};
use crate::knowledge::{
    COLLECT, COLLECTOR_THREADS, FAULT, Known, RECLAIM, SPINNERS, START_IN_KERNEL, START_IN_LOADER,
    knows,
};
use crate::labels::text_label;

/// A kind of work that is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkKind {
    /// The kernel handles page faults.
    Fault,
    /// The kernel looks for memory to free.
    Reclaim,
    /// Threads or processes are started or ended.
    Start,
    /// A runtime collects garbage.
    Collect,
    /// Code that only waits, on a CPU.
    Spin,
}

/// Kinds of work with their names: kernel functions, then functions of programs. The first kind that fits a stack
/// counts.
const KINDS: [(WorkKind, &[Known], &[Known]); 4] = [
    (WorkKind::Reclaim, RECLAIM, &[]),
    (WorkKind::Start, START_IN_KERNEL, START_IN_LOADER),
    (WorkKind::Collect, &[], COLLECT),
    (WorkKind::Fault, FAULT, &[]),
];

/// Number of user frames, from the wait outwards, that are searched for a spinning function: the innermost one, or
/// one that it was inlined into or called by.
const SPIN_DEPTH: usize = 2;

/// Active time by kind of work.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// Time by kind, ns.
    sums: [u64; 5],
    /// Main function by kind.
    names: [Option<String>; 5],
    of_stack: Vec<Option<WorkKind>>,
    /// Active time of the collector's own threads, ns.
    pub collectors_ns: u64,
}

impl Work {
    /// Sums up the work in active time.
    pub fn new(active: Active<'_>) -> Work {
        let recording = active.recording;
        let marks: Vec<Marks> = (recording.functions.iter())
            .map(|function| Marks::of(&function.name))
            .collect();
        let stacks = || (0..recording.stacks.len() as u32).map(StackId);
        let shown: Vec<Option<(WorkKind, &str)>> = stacks()
            .map(|stack| kind_of(recording, stack, &marks))
            .collect();
        let of_collector: Vec<bool> = stacks()
            .map(|stack| is_of_collector(recording, stack, &marks))
            .collect();
        let mut work = Work {
            of_stack: shown.iter().map(|f| f.map(|(kind, _)| kind)).collect(),
            ..Work::default()
        };
        let mut names: Vec<(WorkKind, String, u64)> = Vec::new();
        let mut threads: HashMap<ContextId, ThreadTimes> = HashMap::new();
        for piece in active.scaled.pieces.iter().filter(|p| active.counts(p)) {
            let sample = &recording.samples[piece.sample as usize];
            // A collector's label also marks worker threads without a function that shows the collection.
            let label = text_label(recording, sample.labels, GC_KEY);
            let by_function = || shown[sample.stack.0 as usize].map_or("", |(_, name)| name);
            let found = match (work.kind(sample), label.as_deref()) {
                (Some(kind), _) => Some((kind, by_function())),
                (None, Some(collector)) => Some((WorkKind::Collect, collector)),
                (None, None) => None,
            };
            let is_collection = |(kind, _)| kind == WorkKind::Collect;
            let collects = label.is_some() || found.is_some_and(is_collection);
            let thread = threads.entry(piece.context).or_default();
            thread.add(sample, piece.ns, collects);
            thread.is_known |= of_collector[sample.stack.0 as usize];
            let Some((kind, name)) = found else {
                continue;
            };
            work.sums[kind as usize] += piece.ns;
            match names.iter_mut().find(|(k, n, _)| *k == kind && *n == name) {
                Some((_, _, ns)) => *ns += piece.ns,
                None => names.push((kind, name.to_string(), piece.ns)),
            }
        }
        let collectors = threads.values().filter(|t| t.is_collectors());
        work.collectors_ns = collectors.map(|t| t.all).sum();
        names.sort_by_key(|(_, _, ns)| *ns);
        for (kind, name, _) in names {
            work.names[kind as usize] = Some(name);
        }
        work
    }

    /// Time of that kind, ns.
    pub fn ns(&self, kind: WorkKind) -> u64 {
        self.sums[kind as usize]
    }

    /// The kind of work that a sample's time went into.
    pub fn kind(&self, sample: &Sample) -> Option<WorkKind> {
        let shown = *self.of_stack.get(sample.stack.0 as usize)?;
        match (sample.state, sample.reason) {
            (State::OnCpu, _) => shown,
            (State::Blocked, Some(BlockReason::Memory)) => Some(WorkKind::Reclaim),
            (State::Blocked, _) => shown.filter(|kind| *kind == WorkKind::Reclaim),
            _ => None,
        }
    }

    /// The function that most of it was known by.
    pub fn name(&self, kind: WorkKind) -> &str {
        self.names[kind as usize].as_deref().unwrap_or_default()
    }
}

/// Active time of one thread, ns.
#[derive(Clone, Copy, Default)]
struct ThreadTimes {
    all: u64,
    on_cpu: u64,
    collects: u64,
    stopped: u64,
    /// A stack shows that it is a collector's own.
    is_known: bool,
}

impl ThreadTimes {
    /// Adds a sample's time; `collects`: a collector computes in it.
    fn add(&mut self, sample: &Sample, ns: u64, collects: bool) {
        self.all += ns;
        match (sample.state, sample.reason) {
            (State::OnCpu, _) => {
                self.on_cpu += ns;
                self.collects += if collects { ns } else { 0 };
            }
            (State::Blocked, Some(BlockReason::Gc)) => self.stopped += ns,
            _ => {}
        }
    }

    /// Whether the thread is the collector's own: a stack shows it, or it computes mostly in the collector and the
    /// collector never stops it.
    fn is_collectors(&self) -> bool {
        self.is_known || (self.collects * 2 > self.on_cpu && self.stopped == 0)
    }
}

/// The tables that know a function's name.
struct Marks {
    /// By row of [`KINDS`]: as a kernel function, as a function of a program.
    kinds: [[bool; 2]; KINDS.len()],
    /// Only threads of a collector have it on their stacks.
    of_collector: bool,
}

impl Marks {
    fn of(name: &str) -> Marks {
        Marks {
            kinds: KINDS.map(|(_, kernel, user)| [knows(kernel, name), knows(user, name)]),
            of_collector: knows(COLLECTOR_THREADS, name),
        }
    }
}

/// The kind of work that a stack shows, and the function that shows it. `marks`: by function of the recording.
fn kind_of<'r>(
    recording: &'r Recording,
    stack: StackId,
    marks: &[Marks],
) -> Option<(WorkKind, &'r str)> {
    if let Some(name) = spinner(recording, stack) {
        return Some((WorkKind::Spin, name));
    }
    KINDS.iter().enumerate().find_map(|(row, (kind, ..))| {
        let mut all = function_indexes(recording, stack);
        let (_, function) = all.find(|(side, function)| {
            let [kernel, user] = marks[*function].kinds[row];
            match side {
                Side::Kernel => kernel,
                Side::User => user,
            }
        })?;
        Some((*kind, &*recording.functions[function].name))
    })
}

/// Whether only threads of a collector have such a stack.
fn is_of_collector(recording: &Recording, stack: StackId, marks: &[Marks]) -> bool {
    function_indexes(recording, stack)
        .any(|(side, function)| side == Side::User && marks[function].of_collector)
}

/// The spinning function that a stack runs: its innermost function, the program's innermost ones, or
/// a kernel function on the way.
pub(crate) fn spinner(recording: &Recording, stack: StackId) -> Option<&str> {
    let mut user = 0;
    for frame in frames(recording, stack) {
        for line in &frame.lines {
            let name = &*recording.functions[line.function.0 as usize].name;
            if knows(SPINNERS, name) {
                return Some(name);
            }
            user += usize::from(frame.kind != FrameKind::Kernel);
            if user >= SPIN_DEPTH {
                return None;
            }
        }
    }
    None
}
