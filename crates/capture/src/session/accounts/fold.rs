//! Ended threads beyond a stated number, folded into groups.
//!
//! A machine that starts a thousand processes a second would fill the memory with threads that are of no interest one
//! by one. So only the [`KEPT_ENDED`] ended threads with the longest lives stand for themselves. Others are added up
//! by their program, their name and the program of their parent. Sums are kept to the nanosecond; a group has the
//! number of its threads, and no single one.
//!
//! Whatever comes later of a folded thread belongs to its group: [`Accounts::index`] says so.

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::{Context, LedgerSlice, LedgerSlices, Limit, Process, Slices};

use super::Accounts;
use super::groups::{Ended, FIRST_NUMBER, Folded, Folding, GroupKey, GroupProcess, Role, number};
use super::settle::settle;
use super::thread::{ThreadAccount, context};
use super::ticks::Ticks;
use crate::event::FLAG_KERNEL_THREAD;

/// Ended threads that stand for themselves, those with the longest lives. Some 1.5 KiB each with their samples
/// (measured, 300 process starts a second on 2 CPUs): 6 MiB.
pub const KEPT_ENDED: usize = 4096;
/// Further ended threads that are kept until they are folded in one go: each pass visits all samples.
const FOLDED_AT_ONCE: usize = 2048;
/// Most groups. Threads of further names are one group: a target may give each thread a name of its own.
const MAX_GROUPS: usize = 1024;
/// Name of that group, and of its program.
const REST: &str = "[ended]";
/// First record id of a group; the kernel programs count from 1.
const FIRST_RECORD: u64 = 1 << 63;

impl Folding {
    /// A thread ended.
    pub(super) fn ended(&mut self, index: u32, thread: &ThreadAccount) {
        let name_of = |pid: u32| self.known.get(&pid).map(|known| known.name.clone());
        let parent = self.known.get(&thread.pid).map_or(0, |known| known.parent);
        let end = thread.last.map_or(0, |d| d.now);
        let key = GroupKey {
            program: name_of(thread.pid).unwrap_or_default(),
            name: thread.name.clone(),
            parent: name_of(parent).unwrap_or_default(),
            ancestor: self.ancestor(thread.pid, end),
        };
        self.ended.push(Ended { index, key });
    }

    /// Puts a thread where there is room; returns its place.
    pub(super) fn place(&mut self, threads: &mut Vec<ThreadAccount>, thread: ThreadAccount) -> u32 {
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
    fn surplus(&mut self, threads: &[ThreadAccount]) -> Vec<Ended> {
        let wall = |e: &Ended| {
            let last = threads[e.index as usize].last;
            last.map_or(0, |d| d.now.saturating_sub(d.birth))
        };
        self.ended.sort_by_key(|e| std::cmp::Reverse(wall(e)));
        self.ended.split_off(KEPT_ENDED)
    }
}

impl ThreadAccount {
    /// A row without a thread of its own.
    fn without_books(id: u64, role: Role) -> ThreadAccount {
        ThreadAccount {
            id,
            role,
            pid: 0,
            tid: 0,
            name: "".into(),
            first_name: "".into(),
            runtime_name: None,
            birth: 0,
            held: 0,
            last: None,
            given: Default::default(),
            given_until: 0,
            done: true,
            shown: None,
            told: false,
        }
    }
}

impl Accounts {
    /// Sums of ticks over all threads so far.
    pub(super) fn ticks(&self) -> Ticks {
        let mut ticks = Ticks::of(self.threads.iter().filter_map(|t| t.last.as_ref()));
        ticks.user = ticks.user.saturating_add(self.folding.ticks.user);
        ticks.kernel = ticks.kernel.saturating_add(self.folding.ticks.kernel);
        ticks
    }

    /// Folds ended threads, where there are too many of them. Returns the changes since the last call: the
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
        let full = self.folding.groups.len() >= MAX_GROUPS;
        let rest = || GroupKey {
            program: REST.into(),
            name: REST.into(),
            parent: "".into(),
            ancestor: 0,
        };
        let key = match self.folding.groups.get(key) {
            Some(index) => return *index,
            None if full => rest(),
            None => key.clone(),
        };
        if let Some(index) = self.folding.groups.get(&key) {
            return *index;
        }
        let id = FIRST_RECORD + self.folding.made;
        self.folding.made += 1;
        let thread = ThreadAccount {
            pid: self.folding.process(&key),
            tid: number(&[&key.program, &key.name, &key.parent]),
            name: key.name.clone(),
            ..ThreadAccount::without_books(id, Role::Group(Box::default()))
        };
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
            // Slices no longer hold the time that snapshots have shown.
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
        let number = self.threads[group as usize].pid;
        if let (None, Some(process)) = (&thread.shown, self.folding.processes.get_mut(&number)) {
            process.threads += 1;
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
    fn vacate(&mut self, index: u32) -> ThreadAccount {
        let nothing = ThreadAccount {
            told: true,
            ..ThreadAccount::without_books(0, Role::Vacant)
        };
        let thread = std::mem::replace(&mut self.threads[index as usize], nothing);
        if let Some(dump) = &thread.last {
            self.folding.ticks.add(dump);
        }
        self.folding.gone(thread.pid);
        self.folding.vacant.push(index);
        thread
    }

    /// Tells groups of ended threads apart by the ancestor that outlives them.
    pub fn follow_ancestors(&mut self) {
        self.folding.follows_ancestors = true;
    }

    /// Forgets the ended threads that a snapshot has shown whole. Call it before the next snapshot.
    pub fn drop_told(&mut self) {
        // Late figures of a folded thread come within a window.
        for id in std::mem::take(&mut self.folding.settled) {
            self.by_id.remove(&id);
            self.folding.changes.dropped.push(id);
        }
        let (threads, settled) = (&self.threads, &mut self.folding.settled);
        let folded = (self.by_id.iter()).filter(|(id, index)| {
            let thread = &threads[**index as usize];
            thread.id != **id && !thread.role.is_own()
        });
        settled.extend(folded.map(|(id, _)| *id));
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
        self.drop_empty_groups();
    }

    /// Forgets the groups to which no thread was added since the last snapshot: names of programs may come and go
    /// without end.
    fn drop_empty_groups(&mut self) {
        let threads = &self.threads;
        let is_empty = |index: &u32| match &threads[*index as usize].role {
            Role::Group(sum) => sum.is_empty(),
            _ => true,
        };
        let empty = self.folding.groups.extract_if(|_, index| is_empty(index));
        let empty: FxHashSet<u32> = empty.map(|(_, index)| index).collect();
        if empty.is_empty() {
            return;
        }
        self.by_id.retain(|_, index| !empty.contains(index));
        let mut empty: Vec<u32> = empty.into_iter().collect();
        empty.sort_unstable();
        for index in empty {
            let nothing = ThreadAccount {
                told: true,
                ..ThreadAccount::without_books(0, Role::Vacant)
            };
            let group = std::mem::replace(&mut self.threads[index as usize], nothing);
            self.folding.leave_process(group.pid);
            self.folding.changes.dropped.push(group.id);
            self.folding.vacant.push(index);
        }
    }

    /// Removes the vacant places: from here on indices are those of the contexts of the recording.
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

    /// Whether the thread of record `id` is part of a group.
    pub fn is_grouped(&self, id: u64) -> bool {
        let index = self.index(id);
        index.is_some_and(|index| !self.threads[index as usize].role.is_own())
    }

    /// The record under which sums of record `id` are kept: its own, or its group's.
    pub fn record(&self, id: u64) -> u64 {
        self.index(id)
            .map_or(id, |index| self.threads[index as usize].id)
    }

    /// The processes that stand for groups, with the threads that were added to them since the last call.
    pub fn take_folded_processes(&mut self) -> Vec<Process> {
        let all = self.folding.processes.iter_mut();
        let process = |(number, group): (&u32, &mut GroupProcess)| Process {
            pid: *number,
            parent: group.ancestor,
            name: group.program.clone(),
            folded_threads: std::mem::take(&mut group.threads),
            ..Process::default()
        };
        let mut all: Vec<Process> = all.map(process).collect();
        all.sort_unstable_by_key(|process| process.pid);
        all
    }

    /// Limit that the domain states for groups, if there are any.
    pub fn folded_limit(&self) -> Option<Limit> {
        let (threads, groups) = (self.folding.folded, self.folding.groups.len());
        (threads > 0).then(|| Limit {
            what: format!(
                "single ended threads: {threads} are folded into {groups} groups by program, name and parent's \
                 program, with process and thread numbers from {FIRST_NUMBER} on; their times are exact, chains of \
                 waits end at them; the {KEPT_ENDED} ended threads with the longest lives stand for themselves"
            ),
            remedy: "`-p PID` or `--cgroup PATH` of fewer processes".into(),
        })
    }
}

#[cfg(test)]
#[path = "fold_tests.rs"]
mod tests;
