//! Threads and their books over time: from the kernel's cumulative figures to ledgers and slices.
//!
//! The kernel programs only add up. At every tick the changed threads hand over their sums; the difference to the
//! previous sums belongs to the slices in between. A thread that did not change stayed in one state, so its time is
//! known without a report.

mod fold;
mod groups;
mod settle;
mod thread;
mod thread_names;
mod ticks;

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, Context, LedgerSlice, LedgerSlices, Slices};

use crate::{
    event::{self, Dump, ThreadEvent, how, state},
    slices,
};

pub use groups::{Folded, number};
use groups::{Folding, Role};
pub use settle::settled;
use thread::{Sums, ThreadAccount, context};

/// The open interval of a blocked thread.
#[derive(Clone, Copy, Debug)]
pub struct StillBlocked {
    /// Its record.
    pub id: u64,
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// It has no user mode.
    pub is_kernel_thread: bool,
    /// Reason, as the kernel programs number it.
    pub detail: u8,
    /// Since when, ns.
    pub since: u64,
}

/// Up to this many processes, reading each is cheaper than reading all of the machine's.
const FEW_PROCESSES: usize = 4;

/// All threads of the recording, by the order in which they were met.
pub struct Accounts {
    threads: Vec<ThreadAccount>,
    /// Indices of the threads that have not ended.
    live: Vec<u32>,
    most_alive: usize,
    by_id: FxHashMap<u64, u32>,
    /// Names from runtimes, by process and thread, of threads that have not been met yet.
    unmet: FxHashMap<(u32, u32), Arc<str>>,
    slices: LedgerSlices,
    grid: Slices,
    /// When slices were closed last.
    ticked: u64,
    /// Ledgers that threads reported since then.
    reports: u64,
    /// End of the window, once it is over. A thread born later is left out.
    end_ns: u64,
    folding: Folding,
}

impl Accounts {
    /// An empty set, with slices of `width_ns` from `start_ns`.
    pub fn new(start_ns: u64, width_ns: u64) -> Accounts {
        Accounts {
            threads: Vec::new(),
            live: Vec::new(),
            most_alive: 0,
            by_id: FxHashMap::default(),
            unmet: FxHashMap::default(),
            slices: LedgerSlices::default(),
            grid: Slices {
                start_ns,
                width_ns,
                count: 0,
            },
            ticked: start_ns,
            reports: 0,
            end_ns: u64::MAX,
            folding: Folding::default(),
        }
    }

    /// Whether `now` is in another slice than the last tick.
    pub fn ends_slice(&self, now: u64) -> bool {
        slices::ends_slice(&self.grid, self.ticked, now)
    }

    /// Ends the window at `end_ns`: threads born later are left out.
    pub fn close(&mut self, end_ns: u64) {
        self.end_ns = end_ns;
    }

    fn comes_late(&self, id: u64, birth: u64) -> bool {
        birth >= self.end_ns && !self.by_id.contains_key(&id)
    }

    /// The division into slices so far.
    pub fn grid(&self) -> Slices {
        self.grid
    }

    /// Rows that the slices have so far: one for each thread and slice in which the thread lived.
    pub fn rows(&self) -> usize {
        self.slices.len()
    }

    /// Rows that the slices will have when they are closed up to `now`, at most.
    pub fn rows_at(&self, now: u64) -> usize {
        let slices =
            now.saturating_sub(self.ticked.max(self.grid.start_ns)) / self.grid.width_ns.max(1);
        let each = usize::try_from(slices)
            .unwrap_or(usize::MAX)
            .saturating_add(1);
        self.rows()
            .saturating_add(self.live.len().saturating_mul(each))
    }

    /// Threads met so far.
    pub fn len(&self) -> usize {
        self.threads.len()
    }

    /// Threads that had not ended at the last tick.
    pub fn alive(&self) -> usize {
        self.live.len()
    }

    /// The processes of living threads, where they are few.
    pub fn few_processes(&self) -> Option<Vec<u32>> {
        let mut pids = Vec::new();
        for index in &self.live {
            let pid = self.threads[*index as usize].pid;
            if !pids.contains(&pid) {
                if pids.len() == FEW_PROCESSES {
                    return None;
                }
                pids.push(pid);
            }
        }
        Some(pids)
    }

    /// Most threads that were alive at once, between two ticks.
    pub fn most_alive(&self) -> usize {
        self.most_alive
    }

    /// Whether the last figures of every thread are in.
    pub fn all_done(&self) -> bool {
        self.live
            .iter()
            .all(|index| self.threads[*index as usize].done)
    }

    /// The index of the thread with record `id`, if it was met.
    pub fn index(&self, id: u64) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// The interval that is still open in each thread's last figures: thread, state, detail, ns.
    pub fn open(&self) -> impl Iterator<Item = (u32, u8, u8, u64)> {
        (0u32..).zip(&self.threads).filter_map(|(index, t)| {
            let d = t.last?;
            let ns = d.now.saturating_sub(d.since.max(d.birth + t.held));
            (ns > 0).then_some((index, d.state, d.detail, ns))
        })
    }

    /// Each thread's last figures: thread, figures.
    pub fn last(&self) -> impl Iterator<Item = (u32, &Dump)> {
        (0u32..)
            .zip(&self.threads)
            .filter_map(|(index, t)| Some((index, t.last.as_ref()?)))
    }

    /// The last figures of each thread that has not ended.
    pub fn living(&self) -> impl Iterator<Item = &Dump> {
        let threads = self.live.iter().map(|index| &self.threads[*index as usize]);
        threads.filter(|t| !t.done).filter_map(|t| t.last.as_ref())
    }

    /// Process and thread id of the thread with record `id`, if it was met and stands for itself.
    pub fn ids(&self, id: u64) -> Option<(u32, u32)> {
        let thread = &self.threads[self.index(id)? as usize];
        thread.role.is_own().then_some((thread.pid, thread.tid))
    }

    /// When thread `index` existed, as far as its figures tell.
    pub fn life(&self, index: u32) -> Range<u64> {
        let t = &self.threads[index as usize];
        let (birth, end) = t.last.map_or((t.birth, t.birth), |d| (d.birth, d.now));
        birth + t.held..end
    }

    /// When thread `index` ended; [`u64::MAX`]: it has not, as far as its figures tell.
    pub fn end(&self, index: u32) -> u64 {
        let t = &self.threads[index as usize];
        let last = t.last.filter(|_| t.done);
        last.map_or(u64::MAX, |d| d.now)
    }

    /// The process of thread `index`.
    pub fn pid(&self, index: u32) -> u32 {
        self.threads[index as usize].pid
    }

    /// Notes that thread `index`, which seemed to wait for a lock, sleeps. Its time already in slices stays
    /// there until they are settled.
    pub fn sleeps(&mut self, index: u32) {
        let t = &mut self.threads[index as usize];
        let Some(d) = (t.last.as_mut())
            .filter(|d| d.state == state::BLOCKED && d.detail == BlockReason::Lock as u8)
        else {
            return;
        };
        d.detail = BlockReason::Timer as u8;
        let lock = &mut t.given.blocked[BlockReason::Lock as usize];
        let given = t.given_until.saturating_sub(d.since).min(*lock);
        *lock -= given;
        t.given.blocked[BlockReason::Timer as usize] += given;
    }

    /// The command's first thread, held at our pipe since it was found, is let go now: its own time
    /// begins here, and slices forget the time before.
    pub fn begins(&mut self, pid: u32, now: u64) {
        let Some(index) = self.threads.iter().position(|t| t.pid == pid) else {
            return;
        };
        let thread = &mut self.threads[index];
        thread.held = now.saturating_sub(thread.birth);
        (thread.given, thread.given_until) = (Sums::default(), now);
        let held = index as u32;
        let others = self.slices.iter().filter(|row| row.context != held);
        self.slices = others.collect();
    }

    /// A thread was born, found, or runs a new program.
    pub fn thread(&mut self, e: &ThreadEvent) {
        if self.comes_late(e.id, e.time) {
            return;
        }
        let index = self.meet(e.id, e.pid, e.tid, e.time);
        let thread = &mut self.threads[index as usize];
        if !thread.role.is_own() {
            return;
        }
        self.folding.moves(thread.pid, e.pid);
        (thread.pid, thread.tid) = (e.pid, e.tid);
        if e.how == how::EXEC {
            thread.first_name = "".into();
        }
        thread.is_called(&event::text(&e.comm));
        if e.pid == e.tid {
            self.folding.called(e.pid, &thread.name, Some(e.parent));
        }
        if e.how != how::EXEC {
            thread.birth = thread.birth.min(e.time);
        }
    }

    fn meet(&mut self, id: u64, pid: u32, tid: u32, birth: u64) -> u32 {
        *self.by_id.entry(id).or_insert_with(|| {
            self.folding.met(pid, birth);
            let thread = ThreadAccount {
                id,
                role: Role::Own,
                pid,
                tid,
                name: "".into(),
                first_name: "".into(),
                runtime_name: self.unmet.remove(&(pid, tid)),
                birth,
                held: 0,
                last: None,
                given: Sums::default(),
                given_until: birth,
                done: false,
                shown: None,
                told: false,
            };
            let index = self.folding.place(&mut self.threads, thread);
            self.live.push(index);
            self.most_alive = self.most_alive.max(self.live.len());
            index
        })
    }

    /// A thread's figures at one moment.
    pub fn dump(&mut self, d: &Dump) {
        self.reports += 1;
        self.figures(d);
    }

    /// The last figures of a thread.
    pub fn last_dump(&mut self, d: &Dump) {
        if let Some(index) = self.figures(d) {
            self.threads[index as usize].done = true;
        }
    }

    /// Takes a thread's figures, and gives its index if they are news.
    fn figures(&mut self, d: &Dump) -> Option<u32> {
        if self.comes_late(d.id, d.birth) {
            return None;
        }
        let index = self.meet(d.id, d.pid, d.tid, d.birth);
        let thread = &mut self.threads[index as usize];
        if !thread.role.is_own() || thread.done || thread.last.is_some_and(|l| l.now > d.now) {
            return None;
        }
        self.folding.moves(thread.pid, d.pid);
        thread.birth = d.birth;
        thread.given_until = thread.given_until.max(d.birth);
        (thread.pid, thread.tid) = (d.pid, d.tid);
        thread.is_called(&event::text(&d.comm));
        if d.pid == d.tid {
            self.folding.called(d.pid, &thread.name, None);
        }
        thread.last = Some(*d);
        self.give(index, d.now);
        Some(index)
    }

    /// Gives the growth of a thread's sums up to `until` to the slices it falls into.
    fn give(&mut self, context: u32, until: u64) {
        let grid = self.grid;
        let thread = &mut self.threads[context as usize];
        let Some(last) = thread.last else { return };
        if until <= thread.given_until || grid.width_ns == 0 {
            return;
        }
        let now = Sums::of(thread, &last, until.max(last.since));
        let from = thread.given_until.max(grid.start_ns);
        let slice_of = |time: u64| (time.saturating_sub(grid.start_ns) / grid.width_ns) as u32;
        let (first, end) = (slice_of(from), slice_of(until.max(from + 1) - 1));
        let length = until.saturating_sub(from).max(1);
        let mut done = 0u64;
        // The share of a place that lies before `done_len` of `length`, without rounding drift.
        let part = |growth: u64, upto: u64| match upto {
            0 => 0,
            _ if growth == 0 || upto == length => growth,
            _ => (u128::from(growth) * u128::from(upto) / u128::from(length)) as u64,
        };
        for slice in first..=end {
            let slice_end = grid.start_ns + u64::from(slice + 1) * grid.width_ns;
            let upto = if slice == end {
                length
            } else {
                slice_end.saturating_sub(from).min(length)
            };
            let piece = |new: u64, old: u64| {
                let growth = new.saturating_sub(old);
                part(growth, upto) - part(growth, done)
            };
            let mut row = LedgerSlice {
                context,
                slice,
                on_cpu_ns: piece(now.on_cpu, thread.given.on_cpu),
                runnable_ns: piece(now.runnable, thread.given.runnable),
                ..LedgerSlice::default()
            };
            for (i, value) in row.blocked.iter_mut().enumerate() {
                *value = piece(now.blocked[i], thread.given.blocked[i]);
            }
            done = upto;
            self.slices.add(row);
        }
        // Time that was given too early is not given again when it is reported.
        thread.given.on_cpu = thread.given.on_cpu.max(now.on_cpu);
        thread.given.runnable = thread.given.runnable.max(now.runnable);
        for (given, now) in thread.given.blocked.iter_mut().zip(now.blocked) {
            *given = now.max(*given);
        }
        thread.given_until = until;
    }

    /// Closes slices up to `now`: threads without news have stayed as they were.
    pub fn tick(&mut self, now: u64) {
        self.ticked = self.ticked.max(now);
        let (threads, folding) = (&self.threads, &mut self.folding);
        self.live.retain(|index| {
            let thread = &threads[*index as usize];
            if thread.done {
                folding.ended(*index, thread);
            }
            !thread.done
        });
        for at in 0..self.live.len() {
            self.give(self.live[at], now);
        }
    }

    /// Returns the number of ledgers that threads reported since the last call.
    pub fn take_reports(&mut self) -> u64 {
        std::mem::take(&mut self.reports)
    }

    /// Doubles the width of the slices.
    pub fn coarsen(&mut self) {
        self.grid.width_ns *= 2;
        let slices = std::mem::take(&mut self.slices);
        self.slices = slices.sorted(|context, slice| (context, slice / 2));
    }

    /// Takes the slices since the last call, in no order.
    pub fn take_slices(&mut self) -> LedgerSlices {
        std::mem::take(&mut self.slices)
    }

    /// Returns the growth of each thread's ledger since the last snapshot, up to `now`, by index. Threads that ended
    /// before that snapshot are left out, and slices are forgotten.
    pub fn take_snapshot(&mut self, now: u64) -> Vec<(u32, Context)> {
        self.slices = Default::default();
        let ticks = self.ticks();
        let mut out = Vec::new();
        let names: FxHashMap<usize, Arc<str>> = self.names_of_runtimes().collect();
        for (index, t) in (0u32..).zip(&mut self.threads) {
            if let Role::Group(group) = &mut t.role {
                out.extend(
                    group
                        .take(&ticks)
                        .map(|ledger| (index, ledger.of(t.pid, t.tid, t.name.clone()))),
                );
                continue;
            }
            if t.told || !t.role.is_own() {
                continue;
            }
            t.told = t.done;
            if let Some(d) = t.last {
                // Slices of the next snapshot begin with exact sums.
                t.given = Sums::of(t, &d, now.max(d.since));
            }
            // A thread without news has stayed as it was.
            let stayed = t.last.filter(|d| !t.done && d.now < now);
            let whole = match stayed {
                Some(d) => {
                    let last = t.last.replace(Dump { now, ..d });
                    let context = context(t, &ticks);
                    t.last = last;
                    context
                }
                None => context(t, &ticks),
            };
            let whole = match names.get(&(index as usize)) {
                Some(name) => Context {
                    name: name.clone(),
                    ..whole
                },
                None => whole,
            };
            let part = match &t.shown {
                None => whole.clone(),
                Some(shown) => Context {
                    start_ns: shown.1.min(whole.end_ns),
                    ledger: whole.ledger.since(&shown.0),
                    ..whole.clone()
                },
            };
            t.shown = (!t.done).then(|| Box::new((whole.ledger, whole.end_ns)));
            out.push((index, part));
        }
        out
    }

    /// The recorder ended at `end_ns` without last figures of the threads: those without news have stayed
    /// as they were.
    pub fn stay(&mut self, end_ns: u64) {
        self.tick(end_ns);
        for index in &self.live {
            if let Some(last) = &mut self.threads[*index as usize].last {
                last.now = last.now.max(end_ns);
            }
        }
    }

    /// Threads that are blocked, as far as is known.
    pub fn still_blocked(&self) -> impl Iterator<Item = StillBlocked> {
        self.live.iter().filter_map(|context| {
            let t = &self.threads[*context as usize];
            let d = t.last.filter(|d| !t.done && d.state == state::BLOCKED)?;
            Some(StillBlocked {
                id: d.id,
                pid: t.pid,
                tid: t.tid,
                is_kernel_thread: d.flags & event::FLAG_KERNEL_THREAD != 0,
                detail: d.detail,
                since: d.since,
            })
        })
    }

    /// The finished threads and slices. `end_ns` is the end of the window.
    pub fn finish(mut self, end_ns: u64) -> (Vec<Context>, Slices, LedgerSlices) {
        self.compact();
        for thread in &mut self.threads {
            thread.done = true;
        }
        let width = self.grid.width_ns.max(1);
        self.grid.count = end_ns.saturating_sub(self.grid.start_ns).div_ceil(width) as u32;
        let most = self.grid.count.saturating_sub(1);
        let slices = std::mem::take(&mut self.slices);
        let mut slices = slices.sorted(|context, slice| (context, slice.min(most)));
        let ticks = self.ticks();
        let mut contexts: Vec<_> = self.threads.iter().map(|t| context(t, &ticks)).collect();
        for (index, name) in self.names_of_runtimes() {
            contexts[index].name = name;
        }
        // Snapshots forget the slices that they have shown.
        if self.threads.iter().all(|t| t.shown.is_none() && !t.told) {
            slices = settled(&slices, &contexts, self.grid);
        }
        (contexts, self.grid, slices)
    }
}

#[cfg(test)]
#[path = "accounts_tests.rs"]
mod books_tests;
#[cfg(test)]
#[path = "accounts_figures.rs"]
mod figures_of_threads;
#[cfg(test)]
#[path = "accounts_slices_tests.rs"]
mod slices_tests;
#[cfg(test)]
#[path = "accounts_dump_tests.rs"]
mod tests;
