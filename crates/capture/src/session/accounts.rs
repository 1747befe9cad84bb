//! Threads and their books over time: from the kernel's cumulative figures to ledgers and slices.
//!
//! The kernel programs only ever add up. At every tick the changed threads hand over their sums;
//! the difference to the last sums belongs to the slices in between. A thread that did not change
//! stayed in one state, so its time is known without asking.

mod fold;
mod groups;
mod thread_names;
mod ticks;

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{
    Audit, BlockReason, Context, Ledger, LedgerSlice, LedgerSlices, OnCpu, Runnable, Slices,
    UnknownCause,
};

use crate::event::{self, Dump, ThreadEvent, how, state};

pub use groups::{Folded, number};
use groups::{Folding, Role};
use ticks::Ticks;

/// Time in each state up to some moment, open interval included.
#[derive(Clone, Copy, Default)]
struct Sums {
    on_cpu: u64,
    runnable: u64,
    blocked: [u64; BlockReason::COUNT],
}

impl Sums {
    /// The sums of `thread` by its figures in `dump`, as they stand at `now`.
    fn of(thread: &Thread, dump: &Dump, now: u64) -> Sums {
        let mut sums = Sums::at(dump, now);
        let queued = sums.queued_while_held(thread);
        sums.blocked[BlockReason::Pipe as usize] -= thread.held - queued;
        sums.runnable = sums.runnable.saturating_sub(queued);
        sums
    }

    /// Part of `thread`'s time held at our pipe that a repair counted as runnable. The thread slept for all
    /// of that time. The kernel's figure, which pauses by the hypervisor disturb, may date its wake-up before
    /// its release.
    fn queued_while_held(&self, thread: &Thread) -> u64 {
        let asleep = self.blocked[BlockReason::Pipe as usize];
        thread.held.saturating_sub(asleep)
    }

    /// The sums of `dump` as they stand at `now` (not before `dump.since`).
    fn at(dump: &Dump, now: u64) -> Sums {
        let mut sums = Sums {
            on_cpu: dump.acc.on_cpu,
            runnable: dump.acc.runnable.iter().sum(),
            blocked: dump.acc.blocked,
        };
        let open = now.saturating_sub(dump.since);
        match dump.state {
            state::ON_CPU => sums.on_cpu += open,
            state::RUNNABLE => sums.runnable += open,
            state::BLOCKED => {
                if let Some(slot) = sums.blocked.get_mut(dump.detail as usize) {
                    *slot += open;
                }
            }
            _ => {}
        }
        sums
    }
}

/// A thread as seen so far.
struct Thread {
    /// Its record.
    id: u64,
    role: Role,
    pid: u32,
    tid: u32,
    name: Arc<str>,
    /// The name that it was met with.
    first_name: Arc<str>,
    /// The name that its runtime gave it.
    runtime_name: Option<Arc<str>>,
    birth: u64,
    /// Time at the beginning that is not its own: it was held, blocked on our pipe.
    held: u64,
    /// The last figures, if any came.
    last: Option<Dump>,
    /// What has been given to slices so far, and up to when.
    given: Sums,
    given_until: u64,
    done: bool,
    /// What looks have shown so far, and up to when; `None`: nothing.
    shown: Option<Box<(Ledger, u64)>>,
    /// It has ended, and a look has shown all of it.
    told: bool,
}

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
const FEW: usize = 4;

/// All threads of the recording, by the order in which they were met.
pub struct Accounts {
    threads: Vec<Thread>,
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
            end_ns: u64::MAX,
            folding: Folding::default(),
        }
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
                if pids.len() == FEW {
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
            let thread = Thread {
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
    pub fn dump(&mut self, d: &Dump, last: bool) {
        if self.comes_late(d.id, d.birth) {
            return;
        }
        let index = self.meet(d.id, d.pid, d.tid, d.birth);
        let thread = &mut self.threads[index as usize];
        if !thread.role.is_own() || thread.done || thread.last.is_some_and(|l| l.now > d.now) {
            return;
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
        thread.done = last;
        let until = d.now;
        give(&mut self.slices, self.grid, index, thread, until);
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
        for index in &self.live {
            let thread = &mut self.threads[*index as usize];
            if thread.last.is_some() {
                give(&mut self.slices, self.grid, *index, thread, now);
            }
        }
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

    /// Returns what was added to each thread's ledger since the last snapshot, up to `now`, by index. Threads
    /// that ended before that snapshot are left out, and slices are forgotten.
    pub fn look(&mut self, now: u64) -> Vec<(u32, Context)> {
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
        // Looks forget the slices that they have shown.
        if self.threads.iter().all(|t| t.shown.is_none() && !t.told) {
            slices = settled(&slices, &contexts, self.grid);
        }
        (contexts, self.grid, slices)
    }
}

/// Returns the slices, which sum to each thread's ledger. `rows` are in the order of `contexts`.
pub fn settled(rows: &LedgerSlices, contexts: &[Context], grid: Slices) -> LedgerSlices {
    let mut out = LedgerSlices::default();
    let mut rows = rows.iter().peekable();
    for (context, c) in (0u32..).zip(contexts) {
        let mut own: Vec<LedgerSlice> = Vec::new();
        while let Some(row) = rows.next_if(|row| row.context == context) {
            own.push(row);
        }
        let lacks = settle(&mut own, context, c, grid);
        out.extend(own);
        out.add(lacks);
    }
    out
}

/// Corrects the slices of a thread, and returns the row that they lack. Between two reports of a thread, its
/// slices get the state that was last known. If the next report shows another state meanwhile, the last
/// slices have too much of the first.
fn settle(own: &mut [LedgerSlice], context: u32, c: &Context, grid: Slices) -> LedgerSlice {
    fn places(row: &mut LedgerSlice) -> impl Iterator<Item = &mut u64> {
        [&mut row.on_cpu_ns, &mut row.runnable_ns]
            .into_iter()
            .chain(&mut row.blocked)
    }
    let l = &c.ledger;
    let mut lacks = LedgerSlice {
        context,
        slice: own.last().map_or_else(
            || {
                let end = c.end_ns.saturating_sub(grid.start_ns + 1) / grid.width_ns.max(1);
                end.min(u64::from(grid.count.saturating_sub(1))) as u32
            },
            |row| row.slice,
        ),
        on_cpu_ns: l.on_cpu.total(),
        runnable_ns: l.runnable.total(),
        blocked: l.blocked,
    };
    for row in own {
        for (given, lacks) in places(row).zip(places(&mut lacks)) {
            *given = (*given).min(*lacks);
            *lacks -= *given;
        }
    }
    lacks
}

/// Gives the growth of a thread's sums up to `until` to the slices it falls into.
fn give(rows: &mut LedgerSlices, grid: Slices, context: u32, thread: &mut Thread, until: u64) {
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
    let part = |growth: u64, upto: u64| {
        (u128::from(growth) * u128::from(upto) / u128::from(length)) as u64
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
        rows.add(row);
    }
    // Time that was given too early is not given again when it is reported.
    thread.given.on_cpu = thread.given.on_cpu.max(now.on_cpu);
    thread.given.runnable = thread.given.runnable.max(now.runnable);
    for (given, now) in thread.given.blocked.iter_mut().zip(now.blocked) {
        *given = now.max(*given);
    }
    thread.given_until = until;
}

fn context(t: &Thread, ticks: &Ticks) -> Context {
    if let Role::Group(group) = &t.role {
        return group.ledger(ticks).of(t.pid, t.tid, t.name.clone());
    }
    let Some(d) = t.last else {
        // Born and never heard of again: its figures were lost with the ring.
        return Context {
            pid: t.pid,
            tid: t.tid,
            name: t.name.clone(),
            start_ns: t.birth,
            end_ns: t.birth,
            ledger: Ledger::default(),
        };
    };
    let sums = Sums::of(t, &d, d.now);
    let mut ledger = Ledger {
        wall_ns: d.now.saturating_sub(d.birth + t.held),
        blocked: sums.blocked,
        repaired_ns: d.acc.repaired,
        voluntary_switches: d.acc.voluntary,
        involuntary_switches: d.acc.involuntary,
        ..Ledger::default()
    };
    ledger.unknown[UnknownCause::LostEvents as usize] = d.acc.limbo;
    let open = d.now.saturating_sub(d.since);
    let queued_while_held = Sums::at(&d, d.now).queued_while_held(t);
    let mut runnable = d.acc.runnable;
    if d.state == state::RUNNABLE
        && let Some(part) = runnable.get_mut(d.detail as usize)
    {
        *part += open;
    }
    ledger.runnable = Runnable {
        woken: runnable[0].saturating_sub(queued_while_held),
        preempted: runnable[1],
        throttled: runnable[2],
    };
    ledger.on_cpu = divide_on_cpu(&d, sums.on_cpu, ticks);
    ledger.audit = Audit {
        // With what that counter leaves out by design, by the kernel's own count of it.
        on_cpu_ns: d.kernel_exec
            + d.acc.stolen
            + if d.flags & event::FLAG_IRQ_OUT != 0 {
                d.acc.irq
            } else {
                0
            },
        run_delay_ns: d.kernel_run_delay.saturating_sub(queued_while_held),
        switches: d.kernel_switches,
        valid: true,
    };
    Context {
        pid: t.pid,
        tid: t.tid,
        name: t.name.clone(),
        start_ns: d.birth + t.held,
        end_ns: d.now,
        ledger,
    }
}

/// User against kernel by the kernel's own tick counters, which are samples; the sum is exact. Most threads
/// that live for a moment meet no tick: they are divided as `all` ticks of the recording say, so that
/// thousands of them together come out right.
fn divide_on_cpu(d: &Dump, total: u64, all: &Ticks) -> OnCpu {
    let irq = d.acc.irq.min(total);
    let stolen = d.acc.stolen.min(total - irq);
    let own = total - irq - stolen;
    let mut ticks = Ticks::default();
    ticks.add(d);
    let kernel = if d.flags & event::FLAG_KERNEL_THREAD != 0 {
        own
    } else if d.utime == 0 && d.stime == 0 {
        all.kernel_part(own)
    } else {
        ticks.kernel_part(own)
    };
    OnCpu {
        user: own - kernel,
        kernel,
        irq,
        stolen,
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
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    fn dump(id: u64, now: u64, since: u64, st: u8) -> Dump {
        let mut d = Dump::new_zeroed();
        (d.id, d.now, d.since, d.state) = (id, now, since, st);
        d.birth = 1000;
        d
    }

    #[test]
    fn slices_sum_to_the_ledger() {
        let mut a = Accounts::new(1000, 100);
        let mut d = dump(1, 1150, 1120, state::BLOCKED);
        d.detail = BlockReason::Disk as u8;
        d.acc.on_cpu = 120;
        a.dump(&d, false);
        a.tick(1390);
        let mut d = dump(1, 1500, 1480, state::ON_CPU);
        d.acc.on_cpu = 130;
        d.acc.blocked[BlockReason::Disk as usize] = 350;
        a.dump(&d, true);
        let (contexts, grid, rows) = a.finish(1500);
        assert_eq!(grid.count, 5);
        let l = &contexts[0].ledger;
        assert_eq!((l.wall_ns, l.residue_ns()), (500, 0));
        assert_eq!(
            rows.iter().map(|r| r.on_cpu_ns).sum::<u64>(),
            l.on_cpu.total()
        );
        assert_eq!(
            rows.iter()
                .map(|r| r.blocked[BlockReason::Disk as usize])
                .sum::<u64>(),
            l.blocked_ns()
        );
        assert!(
            rows.iter()
                .all(|r| r.on_cpu_ns + r.blocked.iter().sum::<u64>() <= 110)
        );
    }

    #[test]
    fn a_held_command_that_a_repair_woke_too_early_closes() {
        let mut a = Accounts::new(1000, 100);
        let mut d = dump(1, 1100, 1000, state::BLOCKED);
        d.detail = BlockReason::Pipe as u8;
        d.pid = 7;
        a.dump(&d, false);
        a.begins(7, 1300);
        // Let go at 1300, it got the CPU at 1302; the kernel says that it had queued for 12.
        let mut d = dump(1, 1500, 1302, state::ON_CPU);
        d.pid = 7;
        d.acc.blocked[BlockReason::Pipe as usize] = 290;
        d.acc.runnable[0] = 12;
        d.kernel_run_delay = 12;
        a.dump(&d, true);
        let (contexts, ..) = a.finish(1500);
        let l = &contexts[0].ledger;
        assert_eq!((l.wall_ns, l.residue_ns()), (200, 0));
        assert_eq!((l.runnable.woken, l.audit.run_delay_ns), (2, 2));
    }

    #[test]
    fn slices_sum_to_the_ledger_where_a_thread_did_not_stay_as_it_was() {
        let disk = BlockReason::Disk as usize;
        for last in [1390, 1500] {
            let mut a = Accounts::new(1000, 100);
            let mut d = dump(1, 1150, 1120, state::BLOCKED);
            d.detail = disk as u8;
            d.acc.on_cpu = 120;
            a.dump(&d, false);
            // Taken for blocked until 1390; it computed from 1200 on, and its report was under way.
            a.tick(1390);
            let mut d = dump(1, last, 1200, state::ON_CPU);
            d.acc.on_cpu = 120;
            d.acc.blocked[disk] = 80;
            a.dump(&d, true);
            let (contexts, _, rows) = a.finish(1500);
            let l = &contexts[0].ledger;
            assert_eq!(l.residue_ns(), 0);
            let on_cpu: u64 = rows.iter().map(|r| r.on_cpu_ns).sum();
            let blocked: u64 = rows.iter().map(|r| r.blocked[disk]).sum();
            assert_eq!((on_cpu, blocked), (l.on_cpu.total(), l.blocked_ns()));
        }
    }

    #[test]
    fn who_is_born_after_the_window_is_not_met() {
        let mut a = Accounts::new(1000, 100);
        a.dump(&dump(1, 1400, 1000, state::RUNNABLE), true);
        a.close(1500);
        let mut late = ThreadEvent::new_zeroed();
        (late.id, late.time) = (2, 1600);
        a.thread(&late);
        let mut d = dump(3, 1700, 1600, state::RUNNABLE);
        d.birth = 1600;
        a.dump(&d, true);
        assert_eq!(a.len(), 1);
    }

    #[test]
    fn an_idle_thread_is_known_without_news() {
        let mut a = Accounts::new(1000, 100);
        let mut d = dump(1, 1010, 1000, state::BLOCKED);
        d.detail = BlockReason::Timer as u8;
        a.dump(&d, false);
        for now in [1100, 1200, 1300] {
            a.tick(now);
        }
        d.now = 1300;
        a.dump(&d, true);
        let (_, _, rows) = a.finish(1300);
        let by_slice: Vec<_> = rows
            .iter()
            .map(|r| r.blocked[BlockReason::Timer as usize])
            .collect();
        assert_eq!(by_slice, [100, 100, 100]);
    }

    #[test]
    fn coarser_slices_keep_the_sum() {
        let mut a = Accounts::new(1000, 100);
        a.dump(&dump(1, 1400, 1000, state::RUNNABLE), false);
        a.coarsen();
        a.dump(&dump(1, 1800, 1000, state::RUNNABLE), true);
        let (_, grid, rows) = a.finish(1800);
        assert_eq!((grid.width_ns, grid.count), (200, 4));
        assert_eq!(rows.iter().map(|r| r.runnable_ns).sum::<u64>(), 800);
    }

    #[test]
    fn user_and_kernel_time_of_those_that_met_no_tick_is_that_of_the_others() {
        let mut long = dump(1, 9000, 9000, 0);
        (long.utime, long.stime) = (3_000_000, 9_000_000);
        let mut short = dump(2, 9000, 9000, 0);
        short.acc.irq = 100;
        let mut kernel = dump(3, 9000, 9000, 0);
        (kernel.flags, kernel.utime, kernel.stime) = (event::FLAG_KERNEL_THREAD, 0, 500);
        let mut ticks = Ticks::default();
        for d in [&long, &short, &kernel] {
            ticks.add(d);
        }
        let parts = |d: &Dump| {
            let on_cpu = divide_on_cpu(d, 1100, &ticks);
            (on_cpu.user, on_cpu.kernel, on_cpu.irq)
        };
        assert_eq!(parts(&long), (275, 825, 0));
        assert_eq!(parts(&short), (250, 750, 100));
        assert_eq!(parts(&kernel), (0, 1100, 0));
        // No thread met a tick, so the time counts as user, where most programs compute.
        let on_cpu = divide_on_cpu(&short, 1100, &Ticks::default());
        assert_eq!((on_cpu.user, on_cpu.kernel), (1000, 0));
    }
}
