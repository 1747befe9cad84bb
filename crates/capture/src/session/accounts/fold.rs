//! Ended threads beyond a stated number, folded into groups.
//!
//! A machine that starts a thousand processes a second would fill the memory with threads that nobody asks for
//! one by one. So the [`KEPT_ENDED`] ended threads with the longest lives stand for themselves. Others are
//! added up by their program, their name and the program of their parent. Sums are kept to the nanosecond; a
//! group has the number of its threads, and no single one.
//!
//! Whatever comes later of a folded thread belongs to its group: [`Accounts::index`] says so.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::{Context, Ledger, LedgerSlice, LedgerSlices, Limit, Process, Slices};

use super::{Accounts, Thread, Ticks, context, settle};
use crate::event::FLAG_KERNEL_THREAD;

/// Ended threads that stand for themselves, those with the longest lives. Some 1.5 KiB each with their samples
/// (measured, 300 process starts a second on 2 CPUs): 6 MiB.
pub const KEPT_ENDED: usize = 4096;
/// Further ended threads that are kept until they are folded in one go: each pass visits all samples.
const FOLDED_AT_ONCE: usize = 1024;
/// Most groups. Threads of further names are one group: a target may give each thread a name of its own.
const MOST_GROUPS: usize = 1024;
/// Name of that group, and of its program.
const REST: &str = "[ended]";
/// First number of a process or thread that stands for a group; the kernel's own end at 2²².
const FIRST_NUMBER: u32 = 1 << 30;
/// First record id of a group; the kernel programs count from 1.
const FIRST_RECORD: u64 = 1 << 63;

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
    ledger: Ledger,
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
    fn add(&mut self, c: &Context, undivided: u64) {
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
struct GroupKey {
    program: Arc<str>,
    name: Arc<str>,
    parent: Arc<str>,
}

/// A process with threads that stand for themselves.
struct Known {
    name: Arc<str>,
    parent: u32,
    threads: u32,
}

/// An ended thread that stands for itself.
struct Ended {
    index: u32,
    key: GroupKey,
}

/// Bookkeeping of ended threads.
#[derive(Default)]
pub(super) struct Folding {
    ended: Vec<Ended>,
    groups: FxHashMap<GroupKey, u32>,
    /// Places that stand for nothing.
    vacant: Vec<u32>,
    known: FxHashMap<u32, Known>,
    /// Ticks of threads that have no place any more.
    ticks: Ticks,
    /// Threads in groups.
    folded: u64,
    /// Groups as processes: number, program.
    programs: Vec<(u32, Arc<str>)>,
    numbers: FxHashMap<(Arc<str>, Arc<str>), u32>,
    changes: Folded,
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
    fn gone(&mut self, pid: u32) {
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

    /// A thread ended.
    pub(super) fn ended(&mut self, index: u32, thread: &Thread) {
        let name_of = |pid: u32| self.known.get(&pid).map(|known| known.name.clone());
        let parent = self.known.get(&thread.pid).map_or(0, |known| known.parent);
        let key = GroupKey {
            program: name_of(thread.pid).unwrap_or_default(),
            name: thread.name.clone(),
            parent: name_of(parent).unwrap_or_default(),
        };
        self.ended.push(Ended { index, key });
    }

    /// Puts a thread where there is room; returns its place.
    pub(super) fn place(&mut self, threads: &mut Vec<Thread>, thread: Thread) -> u32 {
        match self.vacant.pop() {
            Some(index) => {
                threads[index as usize] = thread;
                index
            }
            None => {
                threads.push(thread);
                (threads.len() - 1) as u32
            }
        }
    }

    /// The ended threads that no longer stand for themselves: those with the shortest lives.
    fn surplus(&mut self, threads: &[Thread]) -> Vec<Ended> {
        let wall = |e: &Ended| {
            let last = threads[e.index as usize].last;
            last.map_or(0, |d| d.now.saturating_sub(d.birth))
        };
        self.ended.sort_by_key(|e| std::cmp::Reverse(wall(e)));
        self.ended.split_off(KEPT_ENDED)
    }

    /// The number that stands for processes of `program` whose parents ran `parent`. It depends on the names
    /// alone where no other has it, so that it is one in several recordings.
    fn process(&mut self, program: &Arc<str>, parent: &Arc<str>) -> u32 {
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

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its thread stands for itself, or is not known.
    Own,
    /// Its thread is part of a group.
    Grouped,
}

impl Accounts {
    /// Sums of ticks over all threads so far.
    pub(super) fn ticks(&self) -> Ticks {
        let mut ticks = Ticks::of(&self.threads);
        ticks.user = ticks.user.saturating_add(self.folding.ticks.user);
        ticks.kernel = ticks.kernel.saturating_add(self.folding.ticks.kernel);
        ticks
    }

    /// Folds ended threads, where there are too many of them. Returns what has changed since the last call: the
    /// caller moves all that it keeps by the records of these threads.
    pub fn fold(&mut self) -> Folded {
        if self.folding.ended.len() >= KEPT_ENDED + FOLDED_AT_ONCE {
            self.fold_surplus();
        }
        std::mem::take(&mut self.folding.changes)
    }

    fn fold_surplus(&mut self) {
        let surplus = self.folding.surplus(&self.threads);
        let mut places: FxHashMap<u32, u32> = FxHashMap::default();
        for Ended { index, key } in &surplus {
            let group = self.group(key);
            places.insert(*index, group);
            let record = self.threads[group as usize].id;
            let id = self.threads[*index as usize].id;
            self.folding.changes.to.insert(id, record);
        }
        self.fold_slices(&places);
        for Ended { index, .. } in surplus {
            self.add_to_group(index, places[&index]);
        }
    }

    /// The place of a group, which is made if there is none.
    fn group(&mut self, key: &GroupKey) -> u32 {
        let full = self.folding.groups.len() >= MOST_GROUPS;
        let rest = || GroupKey {
            program: REST.into(),
            name: REST.into(),
            parent: "".into(),
        };
        let key = match self.folding.groups.get(key) {
            Some(index) => return *index,
            None if full => rest(),
            None => key.clone(),
        };
        if let Some(index) = self.folding.groups.get(&key) {
            return *index;
        }
        let thread = Thread {
            id: FIRST_RECORD + self.folding.groups.len() as u64,
            role: Role::Group(Box::default()),
            pid: self.folding.process(&key.program, &key.parent),
            tid: number(&[&key.program, &key.name, &key.parent]),
            name: key.name.clone(),
            birth: 0,
            held: 0,
            last: None,
            given: Default::default(),
            given_until: 0,
            done: true,
            shown: None,
            told: false,
        };
        let id = thread.id;
        let index = self.folding.place(&mut self.threads, thread);
        self.by_id.insert(id, index);
        self.folding.groups.insert(key, index);
        index
    }

    /// Gives the slices of the threads in `places` to their groups.
    fn fold_slices(&mut self, places: &FxHashMap<u32, u32>) {
        let groups: FxHashSet<u32> = self.folding.groups.values().copied().collect();
        let mut own: FxHashMap<u32, Vec<LedgerSlice>> = FxHashMap::default();
        let mut sums = LedgerSlices::default();
        for row in std::mem::take(&mut self.slices).iter() {
            if places.contains_key(&row.context) {
                own.entry(row.context).or_default().push(row);
            } else if groups.contains(&row.context) {
                sums.push(row);
            } else {
                self.slices.push(row);
            }
        }
        // The last slice is not known yet.
        let grid = Slices {
            count: u32::MAX,
            ..self.grid
        };
        let mut folded: Vec<(&u32, &u32)> = places.iter().collect();
        folded.sort_unstable();
        for (index, group) in folded {
            let mut rows = own.remove(index).unwrap_or_default();
            let thread = &self.threads[*index as usize];
            // What looks have shown is not in slices any more.
            if thread.shown.is_none() && !thread.told {
                let whole = context(thread, &Ticks::default());
                rows.sort_by_key(|row| row.slice);
                let lacks = settle(&mut rows, *index, &whole, grid);
                rows.push(lacks);
            }
            sums.extend(rows.into_iter().map(|row| LedgerSlice {
                context: *group,
                ..row
            }));
        }
        self.slices
            .extend(sums.sorted(|context, slice| (context, slice)).iter());
    }

    /// Adds a thread to its group, and leaves its place.
    fn add_to_group(&mut self, index: u32, group: u32) {
        let thread = self.vacate(index);
        self.by_id.insert(thread.id, group);
        self.folding.folded += 1;
        if thread.told {
            return;
        }
        let whole = context(&thread, &Ticks::default());
        let part = match &thread.shown {
            None => whole,
            Some(shown) => Context {
                start_ns: shown.1.min(whole.end_ns),
                ledger: whole.ledger.since(&shown.0),
                ..whole
            },
        };
        let met_none = |d: &crate::event::Dump| {
            d.utime == 0 && d.stime == 0 && d.flags & FLAG_KERNEL_THREAD == 0
        };
        let undivided = match thread.last.as_ref().is_some_and(met_none) {
            true => part.ledger.on_cpu.user,
            false => 0,
        };
        if let Role::Group(sum) = &mut self.threads[group as usize].role {
            sum.add(&part, undivided);
        }
    }

    /// Leaves the place of a thread to others.
    fn vacate(&mut self, index: u32) -> Thread {
        let nothing = Thread {
            id: 0,
            role: Role::Vacant,
            pid: 0,
            tid: 0,
            name: "".into(),
            birth: 0,
            held: 0,
            last: None,
            given: Default::default(),
            given_until: 0,
            done: true,
            shown: None,
            told: true,
        };
        let thread = std::mem::replace(&mut self.threads[index as usize], nothing);
        if let Some(dump) = &thread.last {
            self.folding.ticks.add(dump);
        }
        self.folding.gone(thread.pid);
        self.folding.vacant.push(index);
        thread
    }

    /// Forgets the ended threads that a look has shown whole. To be called before the next look.
    pub fn drop_told(&mut self) {
        let ended = std::mem::take(&mut self.folding.ended);
        for e in ended {
            if self.threads[e.index as usize].told {
                let thread = self.vacate(e.index);
                self.by_id.remove(&thread.id);
                self.folding.changes.dropped.push(thread.id);
            } else {
                self.folding.ended.push(e);
            }
        }
    }

    /// Takes the places out that stand for nothing: from here on indices are those of the recording's
    /// contexts.
    pub fn compact(&mut self) {
        if self.folding.vacant.is_empty() {
            return;
        }
        let mut to: Vec<u32> = Vec::with_capacity(self.threads.len());
        let mut next = 0;
        for thread in &self.threads {
            to.push(next);
            next += u32::from(!matches!(thread.role, Role::Vacant));
        }
        (self.threads).retain(|thread| !matches!(thread.role, Role::Vacant));
        self.folding.vacant.clear();
        let place = |index: &mut u32| *index = to[*index as usize];
        self.live.iter_mut().for_each(place);
        self.by_id.values_mut().for_each(place);
        self.folding.groups.values_mut().for_each(place);
        (self.folding.ended.iter_mut()).for_each(|e| place(&mut e.index));
        self.slices =
            std::mem::take(&mut self.slices).sorted(|context, slice| (to[context as usize], slice));
    }

    /// What became of record `id`.
    pub fn fate(&self, id: u64) -> Fate {
        match self.index(id) {
            Some(index) if !self.threads[index as usize].role.is_own() => Fate::Grouped,
            _ => Fate::Own,
        }
    }

    /// The record under which sums of record `id` are kept: its own, or its group's.
    pub fn record(&self, id: u64) -> u64 {
        self.index(id)
            .map_or(id, |index| self.threads[index as usize].id)
    }

    /// The processes that stand for groups.
    pub fn folded_processes(&self) -> Vec<Process> {
        let process = |(pid, name): &(u32, Arc<str>)| Process {
            pid: *pid,
            name: name.clone(),
            ..Process::default()
        };
        self.folding.programs.iter().map(process).collect()
    }

    /// What the domain says of groups, if there are any.
    pub fn folded_limit(&self) -> Option<Limit> {
        let (threads, groups) = (self.folding.folded, self.folding.groups.len());
        (threads > 0).then(|| Limit {
            what: format!(
                "single ended threads: {threads} are folded into {groups} groups by program, name and parent's \
                 program, whose process and thread numbers begin at {FIRST_NUMBER}; their times are exact, chains of waits end at them; the \
                 {KEPT_ENDED} ended threads with the longest lives stand for themselves"
            ),
            remedy: "`-p PID` or `--cgroup PATH` of fewer processes".into(),
        })
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
