//! Groups of ended threads, and facts of those that stand for themselves.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{Context, Ledger};

use super::ticks::Ticks;

/// First number of a process or thread that stands for a group; the kernel's own end at 2²².
pub(super) const FIRST_NUMBER: u32 = 1 << 30;

/// Age at which a process is expected to outlive its descendants, ns: its labels are theirs.
const LONG_NS: u64 = 10_000_000_000;
/// Most ancestors of a process that are followed.
const MAX_ANCESTORS: usize = 16;

/// Use of a place among the threads.
pub(super) enum Role {
    /// The thread.
    Own,
    /// A group of ended threads.
    Group(Box<Group>),
    /// Nothing any more; the next thread gets the place.
    Vacant,
}

impl Role {
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Role::Own)
    }
}

/// Threads of one program, name and parent's program.
#[derive(Default)]
pub(super) struct Group {
    /// Sum of the ledgers, without `undivided`.
    ledger: Ledger,
    /// On-CPU time of threads that met no tick: divided between user and kernel at the end.
    undivided: u64,
    /// First birth and last end.
    span: Option<(u64, u64)>,
}

/// A ledger and the time that it is about.
pub(super) struct Sum {
    pub(super) ledger: Ledger,
    span: (u64, u64),
}

impl Sum {
    /// The context of it.
    pub(super) fn of(self, pid: u32, tid: u32, name: Arc<str>) -> Context {
        Context {
            pid,
            tid,
            name,
            start_ns: self.span.0,
            end_ns: self.span.1,
            ledger: self.ledger,
        }
    }
}

impl Group {
    /// The sum so far.
    pub(super) fn ledger(&self, ticks: &Ticks) -> Sum {
        let mut ledger = self.ledger.clone();
        let kernel = ticks.kernel_part(self.undivided);
        ledger.on_cpu.kernel += kernel;
        ledger.on_cpu.user += self.undivided - kernel;
        let span = self.span.unwrap_or_default();
        Sum { ledger, span }
    }

    /// The sum since it was taken last; `None`: nothing was added.
    pub(super) fn take(&mut self, ticks: &Ticks) -> Option<Sum> {
        self.span?;
        let sum = self.ledger(ticks);
        *self = Group::default();
        Some(sum)
    }

    /// Whether no thread was added since the sums were taken.
    pub(super) fn is_empty(&self) -> bool {
        self.span.is_none()
    }

    /// Adds a thread: `c` without the division of `undivided`.
    pub(super) fn add(&mut self, c: &Context, undivided: u64) {
        match &mut self.span {
            // An audit of nothing is valid.
            None => (self.ledger, self.span) = (c.ledger.clone(), Some((c.start_ns, c.end_ns))),
            Some((start, end)) => {
                (*start, *end) = ((*start).min(c.start_ns), (*end).max(c.end_ns));
                self.ledger.add(&c.ledger);
            }
        }
        self.ledger.on_cpu.user -= undivided;
        self.undivided += undivided;
    }
}

/// Properties that the threads of a group have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    pub(super) program: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) parent: Arc<str>,
    /// Process id of the nearest ancestor that had run for long; 0: none is known.
    pub(super) ancestor: u32,
}

/// A process with threads that stand for themselves.
pub(super) struct Known {
    pub(super) name: Arc<str>,
    pub(super) parent: u32,
    /// Birth of its first known thread, ns.
    pub(super) birth: u64,
    pub(super) threads: u32,
}

/// The processes that groups stand for.
pub(super) struct GroupProcess {
    pub(super) program: Arc<str>,
    parent: Arc<str>,
    pub(super) ancestor: u32,
    /// Their groups, one for each name of a thread.
    groups: u32,
    /// Threads in them that have not been told yet.
    pub(super) threads: u64,
}

impl GroupProcess {
    fn is_same(&self, other: &GroupProcess) -> bool {
        let key = |p: &GroupProcess| (p.program.clone(), p.parent.clone(), p.ancestor);
        key(self) == key(other)
    }
}

/// An ended thread that stands for itself.
pub(super) struct Ended {
    pub(super) index: u32,
    pub(super) key: GroupKey,
}

/// Bookkeeping of ended threads.
#[derive(Default)]
pub(super) struct Folding {
    pub(super) ended: Vec<Ended>,
    pub(super) groups: FxHashMap<GroupKey, u32>,
    /// Places that stand for nothing.
    pub(super) vacant: Vec<u32>,
    pub(super) known: FxHashMap<u32, Known>,
    /// Ticks of threads that have no place any more.
    pub(super) ticks: Ticks,
    /// Records of threads that were in groups at the last snapshot.
    pub(super) settled: Vec<u64>,
    /// Threads in groups.
    pub(super) folded: u64,
    /// Groups as processes, by number.
    pub(super) processes: FxHashMap<u32, GroupProcess>,
    /// Whether groups are told apart by ancestor: their labels differ.
    pub(super) follows_ancestors: bool,
    /// Groups ever made.
    pub(super) made: u64,
    pub(super) changes: Folded,
}

impl Folding {
    /// A thread of process `pid`, born at `birth`, was met.
    pub(super) fn met(&mut self, pid: u32, birth: u64) {
        let known = self.known.entry(pid).or_insert_with(|| Known {
            name: "".into(),
            parent: 0,
            birth,
            threads: 0,
        });
        known.threads += 1;
        known.birth = known.birth.min(birth);
    }

    /// The nearest ancestor of process `pid` that had run for [`LONG_NS`] at `now`; 0: none is known, or wanted.
    pub(super) fn ancestor(&self, pid: u32, now: u64) -> u32 {
        if !self.follows_ancestors {
            return 0;
        }
        let parent = |pid: &u32| self.known.get(pid).map(|known| known.parent);
        let mut ancestors = std::iter::successors(parent(&pid), parent).take(MAX_ANCESTORS);
        let is_long = |pid: &u32| {
            let known = self.known.get(pid);
            known.is_some_and(|known| known.birth.saturating_add(LONG_NS) <= now)
        };
        ancestors.find(is_long).unwrap_or(0)
    }

    /// A thread of process `from` is one of `to` instead.
    pub(super) fn moves(&mut self, from: u32, to: u32) {
        if from != to {
            let birth = self.known.get(&from).map_or(u64::MAX, |known| known.birth);
            self.met(to, birth);
            self.gone(from);
        }
    }

    /// A thread of process `pid` stands for itself no more.
    pub(super) fn gone(&mut self, pid: u32) {
        let Some(known) = self.known.get_mut(&pid) else {
            return;
        };
        known.threads = known.threads.saturating_sub(1);
        if known.threads == 0 {
            self.known.remove(&pid);
            self.changes.forgotten.push(pid);
        }
    }

    /// The first thread of process `pid` has this name; `parent`: where it is told.
    pub(super) fn called(&mut self, pid: u32, name: &Arc<str>, parent: Option<u32>) {
        if let Some(known) = self.known.get_mut(&pid) {
            known.name = name.clone();
            known.parent = parent.unwrap_or(known.parent);
        }
    }

    /// The number that stands for the processes of a group: those of its program, with its parent's program and its
    /// ancestor. It depends on the names alone where no other has it, so that it is one in several recordings.
    pub(super) fn process(&mut self, key: &GroupKey) -> u32 {
        let own = GroupProcess {
            program: key.program.clone(),
            parent: key.parent.clone(),
            ancestor: key.ancestor,
            groups: 0,
            threads: 0,
        };
        let mut number = number(&[&key.program, &key.parent]);
        while let Some(taken) = self.processes.get(&number)
            && !taken.is_same(&own)
        {
            number = FIRST_NUMBER | ((number + 1) % FIRST_NUMBER);
        }
        self.processes.entry(number).or_insert(own).groups += 1;
        number
    }

    /// A group of the processes with this number is no more.
    pub(super) fn leave_process(&mut self, number: u32) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.groups -= 1;
            if process.groups == 0 {
                self.processes.remove(&number);
            }
        }
    }
}

/// A number from 2³⁰ to 2³¹ that stands for these names (FNV-1a).
pub fn number(names: &[&str]) -> u32 {
    let bytes = names.iter().flat_map(|name| name.bytes().chain([0]));
    let hash = bytes.fold(0x811c_9dc5u32, |hash, b| {
        (hash ^ u32::from(b)).wrapping_mul(0x0100_0193)
    });
    FIRST_NUMBER | (hash % FIRST_NUMBER)
}

/// Threads that stand for themselves no more.
#[derive(Default)]
pub struct Folded {
    /// The record of each thread's group, by the thread's record.
    pub to: FxHashMap<u64, u64>,
    /// Records that are not known any more.
    pub dropped: Vec<u64>,
    /// Processes of which no thread stands for itself any more.
    pub forgotten: Vec<u32>,
}
