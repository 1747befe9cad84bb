//! Looking at threads: one round after the other, at everybody whose turn it is.

use std::io;

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, Part, Slices, StackEnd, State};
use wallscope_unwind::native::{MemoryTables, Unwinder};

use super::{
    book::Kind,
    counters::Doing,
    samples::{Look, Samples, Weight},
    stop::{Glance, Halted, Stopper},
    thread::Sight,
    waiting::{self, Pages, Where},
    watch::Watch,
};
use crate::{
    backend::perf::{Clock, Course, Lag, Running},
    session::{self, managed, processes::Processes, resources::Locks as _},
    syscalls,
    target::{Target, cgroup_members},
};

/// Looks left out at most at a thread that sleeps.
const MOST_SKIPPED: u32 = 7;
/// Between two readings of a process's mappings, ns.
pub const REMAP: u64 = 100_000_000;
/// A round that begins so long after it was due had to wait for a CPU, ns.
const LATE: u64 = 300_000;

/// Things that happened on the way, counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Stacks that changed while they were read.
    pub raced: u64,
    /// Looks left out at threads that slept.
    pub skipped: u64,
    /// Samples of threads that were gone before they could be listed.
    pub strangers: u64,
    /// Rounds that came late.
    pub late: u64,
    /// Threads whose records stopped coming.
    pub deaf: u64,
}

/// Everything that a round of looks needs.
pub struct Looker {
    pub watch: Watch,
    pub processes: Processes<MemoryTables>,
    pub samples: Samples,
    pub unwinder: Unwinder,
    pub managed: managed::Reader,
    pub interpreter_frames: bool,
    pub table: [u8; syscalls::TABLE],
    pub grid: Slices,
    pub clock: Option<Clock>,
    pub stopper: Option<Stopper>,
    pub tally: Tally,
    /// Time between two rounds as it is at present, ns.
    pub spacing_ns: u64,
    /// What taking samples took, ns.
    pub sampling_ns: u64,
    /// How late switches in are recorded.
    pub lag: Lag,
    /// Up to when all records have been taken, ns.
    pub drained_ns: u64,
    /// Threads may have been born unseen.
    pub relist: bool,
    last_round_ns: u64,
    /// Threads whose stack is still to come: the thread, and the stretch that it stands for.
    owed: FxHashMap<u32, (usize, u64, u64)>,
}

impl Looker {
    /// Nobody is looked at yet; up to `room` threads' files may be kept open.
    pub fn new(processes: Processes<MemoryTables>, grid: Slices, room: usize) -> Looker {
        Looker {
            watch: Watch::new(room),
            processes,
            samples: Samples::default(),
            unwinder: Unwinder::new(),
            managed: managed::Reader::default(),
            interpreter_frames: false,
            table: syscalls::reasons(),
            grid,
            clock: None,
            stopper: None,
            tally: Tally::default(),
            spacing_ns: 0,
            sampling_ns: 0,
            lag: Lag::default(),
            drained_ns: 0,
            relist: false,
            last_round_ns: 0,
            owed: FxHashMap::default(),
        }
    }

    /// The contract's name of what is used.
    pub fn name(&self) -> &'static str {
        if self.clock.is_some() { "perf" } else { "proc" }
    }

    /// One round of looks, which was due at `due`, at nominal distance `period`. `all`: at threads
    /// that sleep, too, and the scheduler's counters of everybody.
    pub fn round(&mut self, due: u64, period: u64, all: bool) {
        let now = session::now();
        let late = now > due + LATE;
        self.tally.late += u64::from(late);
        let since = now.saturating_sub(self.last_round_ns);
        self.spacing_ns = if self.last_round_ns == 0 {
            period
        } else {
            // A moving mean of how far apart rounds really are, never below what was asked.
            (self.spacing_ns * 7 / 8 + since / 8).max(period)
        };
        self.last_round_ns = now;
        let mut gone = Vec::new();
        let mut live = std::mem::take(&mut self.watch.live);
        live.retain(|index| {
            if !self.watch.threads[*index].alive {
                return false;
            }
            let there = if self.watch.threads[*index].course.is_some() {
                self.look_between_switches(*index, late, all)
            } else {
                self.look(*index, period, all)
            };
            if !there {
                gone.push(*index);
            }
            there
        });
        live.append(&mut self.watch.live);
        self.watch.live = live;
        for index in gone {
            self.ended(index);
        }
    }

    /// Makes the slices twice as wide.
    pub fn coarsen(&mut self) {
        self.grid.width_ns *= 2;
        self.watch.threads.iter_mut().for_each(|t| t.book.coarsen());
        self.samples.coarsen();
    }

    /// What the target did until now was waiting at our gate, and none of its own time.
    pub fn rebase(&mut self) {
        let now = session::now();
        for t in &mut self.watch.threads {
            if let Ok(books) = t.schedstat() {
                t.begin(now, books);
                (t.guessed_ns, t.sight) = (0, None);
                if t.course.is_some() {
                    t.course = Some(Course::waiting(now, books));
                }
            }
        }
    }

    /// The last look at everybody. `since`: when threads were listed last.
    pub fn finish(&mut self, since: u64, period: u64) {
        self.drain(since, session::now());
        for index in self.watch.live.clone() {
            let t = &mut self.watch.threads[index];
            if t.course.is_none() {
                if t.alive && !self.look(index, period, true) {
                    self.ended(index);
                }
                continue;
            }
            let books = t.schedstat();
            if let (Ok(books), Some(course)) = (books, &mut t.course) {
                course.read(session::now(), books, true);
            }
        }
        self.last_drain(since, session::now());
    }

    /// A thread is gone.
    pub fn ended(&mut self, index: usize) {
        let pid = self.watch.threads[index].pid;
        if self.watch.gone(index) {
            self.processes.thread_gone(pid);
        }
    }

    /// A look at a thread whose switches are recorded: only what it waits in is of interest, and not
    /// even that where it was seen in the same wait before. False: it is gone.
    fn look_between_switches(&mut self, index: usize, late: bool, all: bool) -> bool {
        let grid = self.grid;
        let t = &mut self.watch.threads[index];
        let Some(course) = &mut t.course else {
            return true;
        };
        course.settle(&mut t.book, grid, &mut self.lag, self.drained_ns);
        let off = course.off_since();
        if course.is_deaf() {
            // From here on as if there had never been records.
            self.tally.deaf += 1;
            let Ok(books) = t.schedstat() else {
                return false;
            };
            if let (Some(course), Some(clock)) = (t.course.take(), &mut self.clock) {
                t.counters = super::counters::Counters::new(books);
                t.switches_by_records = Some((course.voluntary, course.involuntary));
                t.repaired_ns = course.repaired_ns;
                clock.leave(t.tid);
            }
            t.book.seen_ns = session::now();
            t.book.spans = None;
            return true;
        }
        if all || course.moved() {
            let Ok(books) = t.schedstat() else {
                // Its last record is on its way; if that was lost, listing will not find it.
                t.quiet += 1;
                return t.quiet < 100;
            };
            if let Some(course) = &mut t.course {
                course.read(session::now(), books, false);
            }
        } else if off.is_some_and(|begin| t.sight.is_some_and(|s| s.at >= begin)) {
            self.tally.skipped += 1;
            return true;
        }
        let at = session::now();
        match self.see(index, at) {
            None => return true,
            Some(Doing::Running) => {}
            Some(Doing::Blocked(reason)) => {
                let t = &mut self.watch.threads[index];
                t.reason = reason;
                if let Some(stack) = t.stack {
                    t.sight = Some(Sight {
                        at,
                        until: t.stood_ns,
                        stack,
                        reason,
                        late,
                    });
                }
            }
        }
        true
    }

    /// One look at a thread by its counters; false: it is gone.
    fn look(&mut self, index: usize, period: u64, all: bool) -> bool {
        let t = &mut self.watch.threads[index];
        if t.skip > 0 && !all {
            t.skip -= 1;
            self.tally.skipped += 1;
            return true;
        }
        let Ok(books) = t.schedstat() else {
            return false;
        };
        let now = session::now();
        let before = (t.doing, t.stack, t.reason);
        let same = t.counters.unchanged(books);
        if same && matches!(t.doing, Doing::Blocked(_)) {
            t.quiet = t.quiet.saturating_add(1);
            // Looked at less and less often, but never so that a wait would go unnoticed: the time
            // it has not run for is its own witness.
            t.skip = match t.quiet {
                // Not all of them in the same rounds.
                1 => index as u32 % (MOST_SKIPPED + 1),
                quiet => ((1 << quiet.min(8)) - 1).min(MOST_SKIPPED),
            };
        } else {
            (t.quiet, t.ran) = (0, true);
            match self.see(index, now) {
                Some(doing) => self.watch.threads[index].doing = doing,
                None => return false,
            }
        }
        let grid = self.grid;
        let t = &mut self.watch.threads[index];
        let begin = t.book.seen_ns;
        t.counters.look(&mut t.book, now, books, t.doing, grid);
        // Whether it ran is known, but not when. If looks were left out because it slept, it slept
        // for half of that on average; for the rest it did what it does now.
        let length = now.saturating_sub(begin);
        let unseen = if same {
            0
        } else {
            length.saturating_sub(period) / 2
        };
        let edge = begin + unseen;
        if unseen > 0 {
            self.stands_for(index, before, begin, edge);
        }
        let t = &self.watch.threads[index];
        let present = (t.doing, t.stack, t.reason);
        self.stands_for(index, present, edge, now);
        if self.watch.threads[index].doing == Doing::Running {
            self.halt(index, edge, now);
        }
        true
    }

    /// What was seen of a thread stands for `begin..end`.
    fn stands_for(
        &mut self,
        index: usize,
        (doing, stack, _): (Doing, Option<u32>, BlockReason),
        begin: u64,
        end: u64,
    ) {
        let (Doing::Blocked(reason), Some(stack)) = (doing, stack) else {
            return;
        };
        let t = &mut self.watch.threads[index];
        t.reason = reason;
        let ns = end - begin;
        t.book.add(self.grid, begin, end, Kind::Seen(reason), ns);
        self.samples.add(
            self.grid,
            &Look {
                thread: index as u32,
                stack,
                state: State::Blocked,
                reason: Some(reason),
                part: None,
                begin,
                end,
                ns,
                weight: Weight::Own,
            },
        );
    }

    /// Stops a running thread for a moment to see its stack, if that was permitted. One that halts
    /// at once had a CPU; any other one waited for it.
    fn halt(&mut self, index: usize, begin: u64, end: u64) {
        let t = &self.watch.threads[index];
        let tid = t.tid;
        let Some(stopper) = &mut self.stopper else {
            return;
        };
        let glance = stopper.look(t.pid, tid);
        let late = std::mem::take(&mut stopper.late);
        match glance {
            Glance::Running(halted) => self.halted(index, halted, State::OnCpu, begin, end),
            Glance::Later => {
                let owed = self.owed.entry(tid).or_insert((index, begin, end));
                owed.2 = end;
            }
            Glance::None => {}
        }
        for (tid, halted) in late {
            if let Some((index, begin, end)) = self.owed.remove(&tid) {
                self.halted(index, halted, State::Runnable, begin, end);
            }
        }
    }

    /// The stack of a thread that was stopped stands for `begin..end`.
    fn halted(&mut self, index: usize, halted: Halted, state: State, begin: u64, end: u64) {
        let t = &self.watch.threads[index];
        let running = Running {
            pid: t.pid,
            tid: t.tid,
            period_ns: 0,
            user_mode: true,
            registers: halted.registers,
            stack: halted.stack,
        };
        let pid = t.pid;
        let mut stack = self.unwind_running(&running);
        if matches!(stack.1, StackEnd::NoMapping | StackEnd::TableNotLoaded) && self.remap(pid, end)
        {
            stack = self.unwind_running(&running);
        }
        let stack = self.samples.stack(pid, stack.0, stack.1);
        // A thread halts on its way back to user mode, wherever it was.
        let part = match state {
            State::OnCpu => Part::User,
            _ => Part::Woken,
        };
        self.samples.add(
            self.grid,
            &Look {
                thread: index as u32,
                stack,
                state,
                reason: None,
                part: Some(part),
                begin,
                end,
                ns: end - begin,
                weight: Weight::Own,
            },
        );
    }

    /// What a thread that has moved does now, and in `stood_ns` until when it is known to. `None`:
    /// it is gone.
    fn see(&mut self, index: usize, now: u64) -> Option<Doing> {
        let t = &mut self.watch.threads[index];
        let pid = t.pid;
        t.stack = None;
        let mut readable = self.watch.processes.get(&pid)?.readable;
        // Twice: it may move while it is read, and then mostly stays.
        for _ in 0..2 {
            if !readable {
                break;
            }
            let t = &mut self.watch.threads[index];
            let mut buffer = [0u8; 256];
            let text = match t.place(&mut buffer) {
                Ok(text) => text,
                Err(e) if is_gone(&e) => return None,
                Err(_) => {
                    readable = false;
                    break;
                }
            };
            let (call, sp, pc) = match Where::parse(text)? {
                Where::Running => return Some(Doing::Running),
                Where::Blocked { call, sp, pc } => (call, sp, pc),
            };
            if (sp, pc) == (0, 0) {
                // It has no user memory any more: it is ending, or has.
                if matches!(t.letter(), 'Z' | 'X' | '?') {
                    return None;
                }
                t.stood_ns = session::now();
                t.stack = Some(self.samples.stack(pid, Vec::new(), StackEnd::Gone));
                return Some(Doing::Blocked(BlockReason::Other));
            }
            // First everything that must be of one moment, then what takes longer.
            let mut pages = Pages::copy(pid, t.tid, sp, pc);
            let mut wchan = [0u8; 96];
            let wchan = t.wchan(&mut wchan);
            let mut reason = waiting::reason(&self.table, pid, wchan, call, t.reason);
            if let (BlockReason::Lock, Some((_, address))) = (reason, call)
                && self.processes.managed().is_gil(pid, address)
            {
                reason = BlockReason::Gil;
            }
            if !t.still(text) {
                self.tally.raced += 1;
                continue;
            }
            t.stood_ns = session::now();
            let mut stack = pages.unwind(&mut self.unwinder, self.processes.files().tables());
            if matches!(stack.end, StackEnd::NoMapping | StackEnd::TableNotLoaded)
                && self.remap(pid, now)
            {
                stack = pages.unwind(&mut self.unwinder, self.processes.files().tables());
            }
            let t = &mut self.watch.threads[index];
            let managed = self.processes.managed();
            let managed = managed.read(&mut self.managed, pid, t.tid, &stack.frames);
            if (stack.again || managed.is_some()) && !t.still(text) {
                self.tally.raced += 1;
                continue;
            }
            let words: Vec<u64> = stack.frames.iter().map(|w| w.0).collect();
            self.processes.managed_mut().scripts.name(&words, Some(pid));
            let java = &mut self.processes.managed_mut().java;
            java.name(words.iter().copied(), Some(pid));
            if reason == BlockReason::Lock && java.sleeps(pid, words) {
                reason = BlockReason::Timer;
            }
            let words = managed.map_or_else(Box::default, |m| {
                self.processes.managed_mut().name(&m);
                m.words
            });
            t.stack = Some(self.samples.mixed(pid, stack.frames, words, stack.end));
            return Some(Doing::Blocked(reason));
        }
        let t = &mut self.watch.threads[index];
        t.stood_ns = session::now();
        if readable {
            // It runs and waits in turn, faster than it can be read.
            t.stack = Some(self.samples.stack(pid, Vec::new(), StackEnd::Lost));
            return Some(Doing::Blocked(t.reason));
        }
        let letter = t.letter();
        if let Some(process) = self.watch.processes.get_mut(&pid) {
            process.readable = false;
        }
        Some(match letter {
            'R' => Doing::Running,
            'D' => Doing::Blocked(BlockReason::Disk),
            'T' | 't' => Doing::Blocked(BlockReason::Stopped),
            _ => Doing::Blocked(BlockReason::Other),
        })
    }

    /// Takes in what is new.
    pub fn follow(&mut self, target: &Target, since: u64, now: u64) {
        let known = self.watch.threads.len();
        let mut changed = self.watch.follow(since, now);
        let more = match target {
            Target::Cgroup(path) => wallscope_object::cgroup::find(path)
                .ok()
                .and_then(|group| cgroup_members(&group.dir).ok())
                .map_or(Vec::new(), |(_, pids)| pids),
            Target::All => wallscope_object::process::processes().unwrap_or_default(),
            Target::Pids(_) | Target::Command(_) => Vec::new(),
        };
        for pid in more {
            if pid != std::process::id() && self.watch.process(pid, Some(since), now) {
                changed.push(pid);
            }
        }
        for pid in changed {
            self.processes.found(pid);
            if let Some(p) = self.watch.processes.get_mut(&pid) {
                p.mapped_ns = now;
            }
        }
        self.join(known);
    }
}

/// Whether a thread's file says that there is no such thread any more.
fn is_gone(e: &io::Error) -> bool {
    e.raw_os_error() == Some(libc::ESRCH) || e.kind() == io::ErrorKind::NotFound
}
