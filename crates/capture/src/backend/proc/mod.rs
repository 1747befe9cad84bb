//! The ledger with nothing but `/proc` and `process_vm_readv`.
//!
//! ```text
//! watch.rs     who: processes, threads, children as they appear
//! book.rs      a thread's books: the scheduler's own counters, read now and then
//! waiting.rs   what a waiting thread waits for, and its stack, without stopping it
//! samples.rs   stacks and the time they stand for; pace.rs: how often to look
//! domain.rs    what this could not see
//! ```
//!
//! Every round each thread's `schedstat` is read. One that has not run since the last round still
//! does what it did, which costs no further reading; after a while it is looked at every eighth
//! round only. One that ran and now waits is asked for its system call and its stack.
//!
//! With perf events ([`super::perf`]) running threads are sampled too, and preemption is told apart.
//! Without them it does not see the stacks of running threads, which would have to be stopped for that, nor
//! kernel stacks, nor wakers; threads that live less than a listing are seen as CPU time of their
//! process.

mod book;
mod domain;
mod pace;
mod samples;
mod waiting;
mod watch;

use std::time::Duration;

use wallscope_model::{
    BlockReason, Context, Cost, HostSample, Ledger, Loss, ModuleId, OnCpu, Part, Recording,
    Runnable, Slices, StackEnd, State, Window,
};
use wallscope_object::host::HostReader;
use wallscope_unwind::native::{End, FrameWord, MemoryTables, Unwinder};

use crate::{
    Error,
    backend::{
        ebpf::timer::parse_cpu_list,
        perf::{Clock, Record, Running},
    },
    session::{
        self, Captured, Live, Observer, Options, Progress, Stop,
        build::Stacks,
        cost::{self, CostMeter},
        events::{Event, Events},
        files::Files,
        managed,
        processes::Processes,
    },
    syscalls,
    target::{Held, Target, cgroup_members},
};
use book::Doing;
use pace::Pace;
use samples::{Look, Samples};
use waiting::Where;
use watch::Watch;

/// Between two searches for new threads and processes, ns.
const FOLLOW: u64 = 100_000_000;
/// Looks left out at most at a thread that sleeps.
const MOST_SKIPPED: u32 = 7;
/// Between two readings of a process's mappings, ns.
const REMAP: u64 = 100_000_000;

/// Everything that a round of looks needs.
struct Looker {
    watch: Watch,
    processes: Processes<MemoryTables>,
    samples: Samples,
    unwinder: Unwinder,
    managed: managed::Reader,
    interpreter_frames: bool,
    table: [u8; syscalls::TABLE],
    grid: Slices,
    /// Stacks that changed while they were read.
    raced: u64,
    /// Looks left out at threads that slept.
    skipped: u64,
    clock: Option<Clock>,
    /// Samples of threads that were gone before they could be listed.
    strangers: u64,
}

/// Whether to use perf events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerfEvents {
    /// They are what was asked for.
    Must,
    /// Where they are allowed.
    May,
    /// Only `/proc`.
    Not,
}

/// Measures `options.target` by looking at `/proc`. `reason`: why by this backend.
///
/// # Errors
/// No such target, or not even its books can be read; nothing was recorded then.
pub(crate) fn record(
    options: &Options,
    mut reason: String,
    perf: PerfEvents,
    observer: &mut dyn Observer,
) -> Result<Captured, Error> {
    more_descriptors();
    let mut held = match &options.target {
        Target::Command(argv) => Some(Held::start(argv)?),
        _ => None,
    };
    let chosen = session::choose(&options.target, held.as_ref())?;
    refuse_32_bit(&options.target, &chosen.pids)?;
    let mut processes = Processes::over(Files::over(MemoryTables::new())?);
    if let (Target::Command(argv), Some(held)) = (&options.target, &held) {
        processes.prepare_command(held.pid(), &argv[0]);
    }
    for pid in &chosen.pids {
        processes.found(*pid);
    }
    let mut host = HostReader::open(chosen.pids.first().copied());
    let mut events = Events::new(&chosen.watch, options.duration)?;
    let width_ns = session::first_slice(options.duration);
    let start_ns = session::now();
    let start_unix_ns = session::unix_now();
    let mut looker = Looker {
        watch: Watch::default(),
        processes,
        samples: Samples::default(),
        unwinder: Unwinder::new(),
        managed: managed::Reader::default(),
        interpreter_frames: options.interpreter_frames,
        table: syscalls::reasons(),
        grid: Slices {
            start_ns,
            width_ns,
            count: 0,
        },
        raced: 0,
        skipped: 0,
        clock: None,
        strangers: 0,
    };
    for pid in &chosen.pids {
        looker.watch.process(*pid, None, session::now());
    }
    if let (Some(pid), true) = (chosen.pids.first(), looker.watch.threads.is_empty()) {
        return Err(unseen(*pid));
    }
    if perf != PerfEvents::Not {
        let tids: Vec<u32> = looker.watch.threads.iter().map(|t| t.tid).collect();
        match Clock::open(&tids, &online_cpus(), options.hz) {
            Ok(clock) => {
                for fd in clock.descriptors() {
                    events.sideband(fd)?;
                }
                looker.clock = Some(clock);
            }
            Err(e) if perf == PerfEvents::Must => return Err(perf_refused(&e)),
            Err(e) => reason = format!("{reason}; perf events are refused: {e}"),
        }
    }
    let mut facts = vec![HostSample {
        time_ns: session::now(),
        facts: session::all_facts(&mut host, &chosen.pids),
    }];
    observer.live(&Live {
        target: options.target.describe(),
        threads: looker.watch.threads.len(),
        event: format!("{} backend, {reason}; looks", looker.name()),
        hz: options.hz,
    });
    let meter = CostMeter::start();
    let mut pace = Pace::new(options.hz, options.max_overhead, session::now(), 0);
    if let Some(held) = &mut held {
        // It stood at our gate until now, which is none of its own time.
        let now = session::now();
        for t in &mut looker.watch.threads {
            if let Ok(books) = t.schedstat() {
                t.book = book::Book::new(now, books);
            }
        }
        held.release()?;
    }

    let mut notes = Vec::new();
    let (mut next_host, mut followed) = (start_ns + 1_000_000_000, session::now());
    let stop = loop {
        let now = session::now();
        if let Err(e) = events.tick_every(now, pace.next_ns()) {
            notes.push(e.to_string());
            break Stop::Signal;
        }
        match events.wait() {
            Event::News => looker.drain(followed, session::now()),
            Event::Tick => {
                looker.drain(followed, session::now());
                looker.round(pace.period_ns());
                let now = session::now();
                if now >= followed + FOLLOW {
                    looker.follow(&options.target, followed, now);
                    followed = now;
                    observer.progress(&Progress {
                        elapsed: Duration::from_nanos(now - start_ns),
                        threads: looker.watch.live.len(),
                        stacks: looker.samples.distinct(),
                    });
                }
                if now >= next_host {
                    next_host = now + 1_000_000_000;
                    facts.push(HostSample {
                        time_ns: now,
                        facts: host.read(),
                    });
                }
                pace.check(now, meter.own_ns());
            }
            Event::Duration => break Stop::Duration,
            Event::TargetEnded => break Stop::TargetEnded,
            Event::Signal => break Stop::Signal,
        }
    };

    if let Some(clock) = &mut looker.clock {
        clock.stop();
    }
    looker.drain(followed, session::now());
    for t in &mut looker.watch.threads {
        t.skip = 0;
    }
    looker.round(pace.period_ns());
    let end_ns = session::now();
    let own_cpu_ns = meter.own_ns();
    looker.watch.close();
    for t in looker.watch.threads.iter_mut().filter(|t| t.alive) {
        t.refresh();
    }
    facts.push(HostSample {
        time_ns: session::now(),
        facts: session::all_facts(&mut host, &chosen.pids),
    });
    let command_end = held
        .as_mut()
        .and_then(|h| h.finish(stop == Stop::TargetEnded));
    let mut recording = Recording {
        window: Window {
            start_ns,
            end_ns,
            clock: "CLOCK_MONOTONIC".into(),
            start_unix_ns,
        },
        host: facts,
        cost: Cost {
            bpf_ns: 0,
            own_cpu_ns,
            rss_bytes: cost::peak_rss_bytes(),
            kernel_bytes: looker.clock.as_ref().map_or(0, Clock::bytes),
            target_stopped_ns: 0,
        },
        ..Recording::default()
    };
    let cpus = std::thread::available_parallelism().map_or(0, |n| n.get() as u32);
    recording.domain = domain::describe(domain::Facts {
        reason,
        target: options.target.describe(),
        asked_hz: options.hz,
        hz: pace.rounds as f64 * 1e9 / (end_ns - start_ns).max(1) as f64,
        skipped: looker.skipped,
        unreadable: looker
            .watch
            .processes
            .values()
            .filter(|p| !p.readable)
            .count() as u64,
        kernel_threads: looker.watch.kernel_threads,
        cpus,
        clock: looker.clock.as_ref().map(|c| (c.with_kernel, c.left_out)),
        notes,
        runtimes: looker.processes.managed().describe(),
    });
    let (jit, processes) = assemble(looker, &mut recording);
    Ok(Captured {
        recording,
        sources: processes.into_sources(&jit),
        stop,
        command_end,
    })
}

impl Looker {
    /// The contract's name of what is used.
    fn name(&self) -> &'static str {
        if self.clock.is_some() { "perf" } else { "proc" }
    }

    /// Takes what the events have written. `since`: when threads were listed last.
    fn drain(&mut self, since: u64, now: u64) {
        let Some(clock) = &mut self.clock else { return };
        let period = clock.period_ns;
        for (time, record) in clock.drain() {
            match record {
                Record::Sample(running) => {
                    self.processes.settle();
                    self.ran(&running, time, period, since, now);
                }
                Record::In { pid, tid } => {
                    if let Some(index) = self.watch.find(pid, tid) {
                        let t = &mut self.watch.threads[index];
                        t.preempted += t.put_off.take().map_or(0, |off| time.saturating_sub(off));
                    }
                }
                Record::Out {
                    pid,
                    tid,
                    preempted,
                } => {
                    if let (true, Some(index)) = (preempted, self.watch.find(pid, tid)) {
                        self.watch.threads[index].put_off = Some(time);
                    }
                }
                Record::Change(change) => self.processes.change(change),
                Record::Lost(_) => {}
            }
        }
        self.processes.settle();
    }

    /// A thread was sampled on its CPU.
    fn ran(&mut self, r: &Running, time: u64, period: u64, since: u64, now: u64) {
        if self.watch.process(r.pid, Some(since), now) {
            self.processes.found(r.pid);
        }
        let Some(index) = self.watch.heard_of(r.pid, r.tid, since, now) else {
            self.strangers += 1;
            return;
        };
        let mut stack = self.unwind_running(r);
        if let Some(process) = self.watch.processes.get_mut(&r.pid)
            && matches!(stack.1, StackEnd::NoMapping | StackEnd::TableNotLoaded)
            && now >= process.mapped_ns + REMAP
        {
            process.mapped_ns = now;
            self.processes.found(r.pid);
            stack = self.unwind_running(r);
        }
        let stack = self.samples.stack(r.pid, stack.0, stack.1);
        let part = if r.user_mode {
            Part::User
        } else {
            Part::Kernel
        };
        self.samples.add(
            self.grid,
            &Look {
                thread: index as u32,
                stack,
                state: State::OnCpu,
                reason: None,
                part: Some(part),
                begin: time.saturating_sub(period),
                end: time,
            },
        );
    }

    fn unwind_running(&mut self, r: &Running) -> (Vec<FrameWord>, StackEnd) {
        let mut beyond = false;
        let tables = self.processes.files().tables();
        let stack = self
            .unwinder
            .unwind(tables, r.pid, &r.registers, usize::MAX, |address, to| {
                beyond |= address.saturating_add(to.len() as u64) > r.end();
                r.read(address, to)
            });
        let end = if beyond && stack.end == End::Unreadable {
            StackEnd::WindowEnd
        } else {
            stack.end.into()
        };
        (stack.frames, end)
    }

    /// One look at every thread whose turn it is.
    fn round(&mut self, period: u64) {
        let live = std::mem::take(&mut self.watch.live);
        let (live, gone): (Vec<_>, Vec<_>) = live.into_iter().partition(|i| self.look(*i, period));
        self.watch.live = live;
        for index in gone {
            self.watch.gone(index);
        }
    }

    /// One look at a thread; false: it is gone.
    fn look(&mut self, index: usize, period: u64) -> bool {
        let t = &mut self.watch.threads[index];
        if t.skip > 0 {
            t.skip -= 1;
            self.skipped += 1;
            return true;
        }
        let Ok(books) = t.schedstat() else {
            return false;
        };
        let now = session::now();
        let same = t.book.unchanged(books);
        if same && matches!(t.doing, Doing::Blocked(_)) {
            t.quiet = t.quiet.saturating_add(1);
            // Looked at less and less often, but never so that a wait would go unnoticed: the time
            // it has not run for is its own witness.
            t.skip = (t.quiet / 2).min(MOST_SKIPPED);
        } else {
            (t.quiet, t.ran) = (0, true);
            match self.see(index, now) {
                Some(doing) => self.watch.threads[index].doing = doing,
                None => return false,
            }
        }
        let t = &mut self.watch.threads[index];
        let weight = t.book.look(now, books, t.doing, period, self.grid);
        if let (Doing::Blocked(reason), Some(stack)) = (t.doing, t.stack) {
            t.reason = reason;
            self.samples.add(
                self.grid,
                &Look {
                    thread: index as u32,
                    stack,
                    state: State::Blocked,
                    reason: Some(reason),
                    part: None,
                    begin: now - weight,
                    end: now,
                },
            );
        }
        true
    }

    /// What a thread that has moved does now. `None`: it is gone.
    fn see(&mut self, index: usize, now: u64) -> Option<Doing> {
        let t = &mut self.watch.threads[index];
        let (pid, tid) = (t.pid, t.tid);
        t.stack = None;
        let process = self.watch.processes.get_mut(&pid)?;
        if process.readable {
            // Twice: it may move while it is read, and then mostly stays.
            for _ in 0..2 {
                let mut buffer = [0u8; 256];
                let text = match t.place(&mut buffer) {
                    Ok(text) => text,
                    Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return None,
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
                    Err(_) => {
                        process.readable = false;
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
                    t.stack = Some(self.samples.stack(pid, Vec::new(), StackEnd::Gone));
                    return Some(Doing::Blocked(BlockReason::Other));
                }
                let mut reason = waiting::reason(&self.table, pid, tid, call, t.reason);
                if let (BlockReason::Lock, Some((_, address))) = (reason, call)
                    && self.processes.managed().is_gil(pid, address)
                {
                    reason = BlockReason::Gil;
                }
                let read = |unwinder: &mut Unwinder, processes: &mut Processes<MemoryTables>| {
                    waiting::unwind(unwinder, processes.files().tables(), pid, sp, pc)
                };
                let mut stack = read(&mut self.unwinder, &mut self.processes);
                let unknown = matches!(stack.1, StackEnd::NoMapping | StackEnd::TableNotLoaded);
                if unknown && now >= process.mapped_ns + REMAP {
                    process.mapped_ns = now;
                    self.processes.found(pid);
                    stack = read(&mut self.unwinder, &mut self.processes);
                }
                let managed = self.processes.managed();
                let managed = managed.read(&mut self.managed, pid, tid, &stack.0);
                let mut again = [0u8; 256];
                match t.place(&mut again) {
                    Ok(after) if after == text => {
                        let words = managed.map_or_else(Box::default, |m| {
                            self.processes.managed_mut().name(&m);
                            m.words
                        });
                        t.stack = Some(self.samples.mixed(pid, stack.0, words, stack.1));
                        return Some(Doing::Blocked(reason));
                    }
                    _ => self.raced += 1,
                }
            }
            if process.readable {
                // It runs and waits in turn, faster than it can be read.
                t.stack = Some(self.samples.stack(pid, Vec::new(), StackEnd::Lost));
                return Some(Doing::Blocked(t.reason));
            }
        }
        Some(match t.letter() {
            'R' => Doing::Running,
            'D' => Doing::Blocked(BlockReason::Disk),
            'T' | 't' => Doing::Blocked(BlockReason::Stopped),
            _ => Doing::Blocked(BlockReason::Other),
        })
    }

    /// Takes in what is new.
    fn follow(&mut self, target: &Target, since: u64, now: u64) {
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
    }
}

/// Makes the recording's threads, processes, stacks and losses.
fn assemble(
    mut looker: Looker,
    recording: &mut Recording,
) -> (Vec<(ModuleId, u32)>, Processes<MemoryTables>) {
    if looker.clock.as_ref().is_some_and(|c| !c.with_kernel) {
        for (index, t) in looker.watch.threads.iter().enumerate() {
            let [(user0, kernel0), (user1, kernel1)] = t.ticks;
            let (user, kernel) = (user1.saturating_sub(user0), kernel1.saturating_sub(kernel0));
            let stack = looker.samples.stack(t.pid, Vec::new(), StackEnd::Lost);
            looker
                .samples
                .unsampled_part(index as u32, stack, kernel, user.max(1));
        }
    }
    let lost = looker.clock.as_ref().map_or(0, |c| c.lost);
    let mut stacks = Stacks::new(&looker.processes, looker.interpreter_frames);
    recording.samples = looker.samples.finish(&mut stacks, &looker.processes);
    let mut attributed = std::collections::BTreeMap::<u32, u64>::new();
    let mut last_slice = 0;
    for (index, t) in looker.watch.threads.drain(..).enumerate() {
        let (start_ns, end_ns) = (t.book.start_ns, t.book.seen_ns);
        let totals = t.book.finish(looker.grid);
        *attributed.entry(t.pid).or_default() += totals.on_cpu;
        let mut ledger = Ledger {
            wall_ns: end_ns - start_ns,
            on_cpu: divide(totals.on_cpu, t.ticks),
            runnable: queueing(totals.runnable, t.preempted),
            blocked: totals.blocked,
            ..Ledger::default()
        };
        let [(vol0, inv0), (vol1, inv1)] = t.switches;
        ledger.voluntary_switches = vol1.saturating_sub(vol0);
        ledger.involuntary_switches = inv1.saturating_sub(inv0);
        recording.contexts.push(Context {
            pid: t.pid,
            tid: t.tid,
            name: t.name.into(),
            start_ns,
            end_ns,
            ledger,
        });
        for mut row in totals.slices {
            row.context = index as u32;
            last_slice = last_slice.max(row.slice);
            recording.ledger_slices.push(row);
        }
    }
    let window = recording.window.end_ns - recording.window.start_ns;
    let count = window.div_ceil(looker.grid.width_ns.max(1)) as u32;
    recording.slices = Slices {
        count: count.max(last_slice + 1),
        ..looker.grid
    };
    recording.processes = looker.processes.facts();
    for p in &mut recording.processes {
        if let Some(watched) = looker.watch.processes.get(&p.pid) {
            let all = watched.clock[1].saturating_sub(watched.clock[0]);
            let known = attributed.get(&p.pid).copied().unwrap_or(0);
            p.unattributed_on_cpu_ns = all.saturating_sub(known);
        }
    }
    let mut losses = looker.processes.losses();
    losses.push(("stack changed while it was read".into(), looker.raced));
    losses.push(("perf record lost (ring full)".into(), lost));
    losses.push((
        "sample of a thread that was gone before it was listed".into(),
        looker.strangers,
    ));
    let mut truncated: Vec<_> = stacks.truncated.iter().collect();
    truncated.sort();
    losses.extend(
        truncated
            .into_iter()
            .map(|(end, n)| (format!("truncated:{}", end.name()), *n)),
    );
    recording.losses = losses
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(cause, count)| Loss { cause, count })
        .collect();
    let jit = stacks.jit_modules();
    (recording.modules, recording.frames) = (stacks.modules, stacks.frames);
    (recording.functions, recording.stacks) = (stacks.functions, stacks.stacks);
    (jit, looker.processes)
}

/// Run-queue time, of which `preempted` was seen at the switches themselves.
fn queueing(runnable: u64, preempted: u64) -> Runnable {
    let preempted = preempted.min(runnable);
    Runnable {
        woken: runnable - preempted,
        preempted,
        throttled: 0,
    }
}

fn online_cpus() -> Vec<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    parse_cpu_list(&list)
}

fn perf_refused(e: &std::io::Error) -> Error {
    Error::NotPermitted {
        what: "perf events of the target (perf_event_open)".into(),
        why: e.to_string(),
        remedy:
            "sudo sysctl kernel.perf_event_paranoid=2 allows them for own processes; --backend \
                 proc does without; see wallscope doctor"
                .into(),
    }
}

/// On-CPU time by the ticks that hit user and kernel code.
fn divide(on_cpu: u64, [(user0, kernel0), (user1, kernel1)]: [(u64, u64); 2]) -> OnCpu {
    let (user, kernel) = (user1.saturating_sub(user0), kernel1.saturating_sub(kernel0));
    let part = u128::from(on_cpu) * u128::from(kernel) / u128::from((user + kernel).max(1));
    OnCpu {
        user: on_cpu - part as u64,
        kernel: part as u64,
        ..OnCpu::default()
    }
}

/// A descriptor is kept open for each thread: as many as we may have.
fn more_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused: threads beyond the limit are read by path.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    );
}

fn unseen(pid: u32) -> Error {
    Error::NotPermitted {
        what: format!("the scheduler's books of pid {pid} (/proc/{pid}/task/{pid}/schedstat)"),
        why: match std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")) {
            Ok(text) => format!("they read {:?}", text.trim()),
            Err(e) => e.to_string(),
        },
        remedy:
            "without them nothing can be measured; `wallscope doctor` tells what this host allows"
                .into(),
    }
}

/// 32-bit programs have other system calls and another unwinder.
fn refuse_32_bit(target: &Target, pids: &[u32]) -> Result<(), Error> {
    let Target::Pids(named) = target else {
        return Ok(());
    };
    for pid in pids.iter().filter(|pid| named.contains(pid)) {
        let mut head = [0u8; 5];
        let read = std::fs::File::open(format!("/proc/{pid}/exe"))
            .and_then(|mut f| std::io::Read::read_exact(&mut f, &mut head));
        if read.is_ok() && head == *b"\x7fELF\x01" {
            return Err(Error::NotSupported {
                what: format!("pid {pid}, a 32-bit program,"),
                release: rustix::system::uname()
                    .release()
                    .to_string_lossy()
                    .into_owned(),
                remedy: "wallscope measures 64-bit programs".into(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_kernel_parts_sum_to_the_whole() {
        let parts = divide(1001, [(5, 5), (7, 6)]);
        assert_eq!((parts.user, parts.kernel), (668, 333));
        assert_eq!(divide(9, [(0, 0), (0, 0)]).user, 9);
    }
}
