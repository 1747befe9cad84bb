//! Groups of ended threads, and what is known of those that stand for themselves.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{Context, Ledger};

use super::ticks::Ticks;

/// First number of a process or thread that stands for a group; the kernel's own end at 2²².
pub(super) const FIRST_NUMBER: u32 = 1 << 30;

/// What a thread's place among the threads stands for.
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

/// What the threads of a group have in common.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupKey {
    pub(super) program: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) parent: Arc<str>,
}

/// A process with threads that stand for themselves.
pub(super) struct Known {
    pub(super) name: Arc<str>,
    pub(super) parent: u32,
    pub(super) threads: u32,
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
    /// Threads in groups.
    pub(super) folded: u64,
    /// Groups as processes: number, program.
    pub(super) programs: Vec<(u32, Arc<str>)>,
    pub(super) numbers: FxHashMap<(Arc<str>, Arc<str>), u32>,
    pub(super) changes: Folded,
}

impl Folding {
    /// A thread of process `pid` was met.
    pub(super) fn met(&mut self, pid: u32) {
        let known = self.known.entry(pid).or_insert_with(|| Known {
            name: "".into(),
            parent: 0,
            threads: 0,
        });
        known.threads += 1;
    }

    /// A thread of process `from` is one of `to` instead.
    pub(super) fn moves(&mut self, from: u32, to: u32) {
        if from != to {
            self.met(to);
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

    /// The number that stands for processes of `program` with parents that ran `parent`. It depends on the names
    /// alone where no other has it, so that it is one in several recordings.
    pub(super) fn process(&mut self, program: &Arc<str>, parent: &Arc<str>) -> u32 {
        let (numbers, programs) = (&mut self.numbers, &mut self.programs);
        let key = (program.clone(), parent.clone());
        *numbers.entry(key).or_insert_with(|| {
            let mut number = number(&[program, parent]);
            while programs.iter().any(|(taken, _)| *taken == number) {
                number = FIRST_NUMBER | ((number + 1) % FIRST_NUMBER);
            }
            programs.push((number, program.clone()));
            number
        })
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
