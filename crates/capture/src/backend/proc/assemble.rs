//! What was seen → the recording: threads, ledgers, slices, stacks, losses.

use std::collections::BTreeMap;

use wallscope_model::{
    Audit, Context, HostSample, Ledger, Loss, ModuleId, OnCpu, Recording, Runnable, Slices,
    StackEnd, UnknownCause, WaitSeen,
};
use wallscope_procfs::process::SchedStat;

use super::{
    lent::Lenders,
    poller::ProcPoller,
    samples::Known,
    target_tracker::TargetTracker,
    thread::Thread,
    thread_ledger::{ThreadLedger, Totals},
    tracked_process::TrackedProcess,
};
use crate::session::{build::Stacks, jit_hints, naming::CodeNames, tasks};

/// What putting a recording together gives beside it.
pub struct Assembled {
    /// Modules of code made at run time, with their processes.
    pub jit: Vec<(ModuleId, u32)>,
    /// What was seen of connections, by sample.
    pub seen: Vec<WaitSeen>,
}

/// Fills `recording` with what was seen since the last time. `last`: nothing more will be seen.
pub fn assemble(looker: &mut ProcPoller, recording: &mut Recording, last: bool) -> Assembled {
    let user_only = looker.clock.as_ref().is_some_and(|c| !c.with_kernel);
    let grid = looker.grid;
    let samples = &mut looker.samples;
    samples.by_thread();
    let mut on_cpu = BTreeMap::<u32, u64>::new();
    let mut last_slice = 0;
    let tick_ns = looker.tick_ns;
    let beyond = (looker.watch.threads.iter()).map(|t| t.beyond_counters_ns(tick_ns));
    let stolen = Stolen::of(&recording.host, beyond.sum());
    let programs = looker.processes.facts().into_iter().map(|p| (p.pid, p.exe));
    let unseen = unseen_ticks(&looker.watch);
    let mut lenders = Lenders::new(&looker.watch.threads, programs.collect());
    for (index, t) in looker.watch.threads.iter_mut().enumerate() {
        let index = index as u32;
        // What a thread that queues or computes did since its counters last moved is known later.
        if t.course.is_none() && (last || !t.alive) {
            t.counters.settle(&mut t.book, grid);
        }
        let (start_ns, end_ns) = (t.book.start_ns, t.book.seen_ns);
        let lent = lenders.lend(t);
        if let Some(weights) = &lent {
            t.book.borrow(weights);
        }
        let totals = std::mem::replace(&mut t.book, ThreadLedger::new(end_ns)).finish(&t.waits);
        if user_only {
            let (user, kernel) = own_or_unseen_ticks(t, &unseen);
            let stack = samples.none(t.pid, StackEnd::NotSampled);
            samples.unsampled_part(index, stack, kernel, user.max(1));
        }
        if lent.is_some() {
            lenders.lent(totals.blocked.iter().sum());
        }
        samples.settle(
            index,
            Known {
                waits: &t.waits,
                woken: totals.woken,
                preempted: totals.preempted,
            },
        );
        t.on_cpu_ns += totals.on_cpu;
        *on_cpu.entry(t.pid).or_default() += t.on_cpu_ns;
        for mut row in totals.slices.iter().copied() {
            row.context = index;
            last_slice = last_slice.max(row.slice);
            recording.ledger_slices.push(row);
        }
        let stolen_ns = stolen.part(t.beyond_counters_ns(tick_ns));
        recording.contexts.push(Context {
            pid: t.pid,
            tid: t.tid,
            ledger: ledger(
                t,
                &totals,
                end_ns - start_ns,
                (stolen_ns, own_or_unseen_ticks(t, &unseen)),
            ),
            name: t.name.as_str().into(),
            start_ns,
            end_ns,
        });
        t.shown();
    }
    looker
        .watch
        .processes
        .values_mut()
        .for_each(TrackedProcess::shown);
    let thread_names = &mut looker.processes.managed_mut().thread_names;
    if last {
        thread_names.read_all();
    }
    thread_names.name_threads(&mut recording.contexts);
    recording.domain.notes.extend(lenders.note());
    let window = recording.window.end_ns - recording.window.start_ns;
    let count = window.div_ceil(grid.width_ns.max(1)) as u32;
    recording.slices = Slices {
        count: count.max(last_slice + 1),
        ..grid
    };
    let mut stacks = Stacks::new(looker.processes.modules());
    stacks.interpreter_frames = looker.interpreter_frames;
    let mut losses = looker.processes.losses();
    if last {
        let seen = looker.processes.managed_mut().finish_tasks();
        let (facts, lost) = tasks::observe::observe(seen, window, &looker.processes);
        losses.extend(lost);
        tasks::assemble::assemble(recording, &mut stacks, &facts, &looker.processes);
        tasks::assemble::describe(&mut recording.domain, facts.words);
    }
    let hits_lost = looker.hits.as_ref().map_or(0, |h| h.lost);
    let seen;
    (recording.samples, seen) = looker.samples.finish(&mut stacks, &looker.processes);
    if last && let Some(hits) = looker.hits.take() {
        recording.events = hits.finish(&looker.watch.threads, &mut stacks, &looker.processes);
    }
    if last && let Some(connections) = looker.connections.take() {
        recording.peers = connections.finish();
    }
    // A poller that is told of each birth sees all children.
    let unseen = match looker.clock {
        Some(_) => BTreeMap::new(),
        None => looker.watch.unseen_children(&on_cpu),
    };
    recording.processes = looker.processes.facts();
    for p in &mut recording.processes {
        if let Some(watched) = looker.watch.processes.get(&p.pid) {
            let known = on_cpu.get(&p.pid).copied().unwrap_or(0);
            p.unattributed_on_cpu_ns =
                watched.cpu_ns().saturating_sub(known) + unseen.get(&p.pid).copied().unwrap_or(0);
        }
    }
    let lost = looker.clock.as_ref().map_or(0, |c| c.lost);
    for (cause, count) in [
        ("stack changed while it was read", looker.tally.raced),
        ("perf record lost (ring full)", lost),
        ("stack at an event lost (ring full)", hits_lost),
        (
            "sample of a thread that was gone before it was listed",
            looker.tally.strangers,
        ),
        (
            "switch records of a thread stopped coming (permission lost): its counters are used",
            looker.tally.deaf,
        ),
        (
            "Python frames of a running thread not read in time",
            looker.tally.unread,
        ),
    ] {
        losses.push((cause.into(), count));
    }
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
    recording.label_sets = std::mem::take(&mut stacks.labels.sets);
    let jit = stacks.jit_modules();
    let unnamed = jit_hints::unnamed_code(stacks.unnamed_code(), |pid| {
        CodeNames::maker(&looker.processes, pid)
    });
    recording.domain.limits.extend(unnamed);
    (recording.modules, recording.frames) = (stacks.modules, stacks.frames);
    (recording.functions, recording.stacks) = (stacks.functions, stacks.stacks);
    Assembled { jit, seen }
}

/// The ledger of a thread that existed for `wall_ns`, of which the host took `stolen` ns; `ticks` divide its computing.
fn ledger(t: &Thread, totals: &Totals, wall_ns: u64, (stolen, ticks): (u64, (u64, u64))) -> Ledger {
    let [(voluntary0, involuntary0), (voluntary1, involuntary1)] = t.switches;
    let told = (
        voluntary1.saturating_sub(voluntary0),
        involuntary1.saturating_sub(involuntary0),
    );
    let before = t.switches_by_records;
    let recorded = match &t.course {
        Some(course) => {
            let (voluntary, involuntary) = before.unwrap_or_default();
            Some((
                voluntary + course.voluntary,
                involuntary + course.involuntary,
            ))
        }
        None => before,
    };
    let rationed = t.ration.is_some_and(|r| r.unrecorded_ns > 0);
    let (voluntary, involuntary) = recorded.filter(|_| !rationed).unwrap_or(told);
    let mut ledger = Ledger {
        wall_ns,
        on_cpu: divide(totals.on_cpu, stolen, ticks),
        runnable: Runnable {
            woken: totals.woken,
            preempted: totals.preempted,
            throttled: 0,
        },
        blocked: totals.blocked,
        repaired_ns: t.repaired_ns + t.course.as_ref().map_or(0, |c| c.repaired_ns),
        voluntary_switches: voluntary,
        involuntary_switches: involuntary,
        // A witness is a source that did not make the figures, and was read to the end.
        audit: if t.is_recorded() && t.alive {
            let course = t.course.as_ref();
            let edges = course.map_or((0, 0), |c| (c.waited_before_ns, c.in_line_ns()));
            audit(t.audit, told, stolen, edges)
        } else {
            Audit::default()
        },
        ..Ledger::default()
    };
    ledger.unknown[UnknownCause::LostEvents as usize] = totals.unknown;
    ledger
}

/// `before`, `open`: waiting for a CPU from before the beginning, which the counter has, and at the end, which it
/// has not yet, ns.
fn audit(
    [first, last]: [SchedStat; 2],
    (voluntary, involuntary): (u64, u64),
    stolen: u64,
    (before, open): (u64, u64),
) -> Audit {
    Audit {
        // With what that counter leaves out by design, by the kernel's own count of it.
        on_cpu_ns: last.on_cpu_ns.saturating_sub(first.on_cpu_ns) + stolen,
        run_delay_ns: (last.run_delay_ns)
            .saturating_sub(first.run_delay_ns)
            .saturating_sub(before)
            + open,
        switches: voluntary + involuntary,
        valid: true,
    }
}

/// Ticks that hit it in user mode and in the kernel.
fn ticks(t: &Thread) -> (u64, u64) {
    let [(user0, kernel0), (user1, kernel1)] = t.ticks;
    (user1.saturating_sub(user0), kernel1.saturating_sub(kernel0))
}

/// Ticks of each process that its threads' own ticks lack: they hit threads that ended before theirs were read.
fn unseen_ticks(watch: &TargetTracker) -> BTreeMap<u32, (u64, u64)> {
    let mut seen = BTreeMap::<u32, (u64, u64)>::new();
    for t in &watch.threads {
        let (user, kernel) = ticks(t);
        let sum = seen.entry(t.pid).or_default();
        *sum = (sum.0 + user, sum.1 + kernel);
    }
    let rest = |(pid, p): (&u32, &TrackedProcess)| {
        let [then, now] = p.ticks;
        let (user, kernel) = seen.get(pid).copied().unwrap_or_default();
        let rest = |now: u64, then: u64, seen| now.saturating_sub(then).saturating_sub(seen);
        (
            *pid,
            (rest(now.0, then.0, user), rest(now.1, then.1, kernel)),
        )
    };
    watch.processes.iter().map(rest).collect()
}

/// Ticks that divide a thread's computing: its own, or where none hit it, those of its process that hit no other
/// known thread.
fn own_or_unseen_ticks(t: &Thread, unseen: &BTreeMap<u32, (u64, u64)>) -> (u64, u64) {
    match ticks(t) {
        (0, 0) => unseen.get(&t.pid).copied().unwrap_or_default(),
        own => own,
    }
}

/// How much of what the counters leave out is the host's doing: no more than it took from the whole
/// machine. Kernels that leave interrupts out as well count those apart.
struct Stolen {
    machine_ns: u64,
    beyond_ns: u64,
}

impl Stolen {
    /// Of a machine with these facts, and threads that were `beyond_ns` longer on a CPU than counted.
    fn of(host: &[HostSample], beyond_ns: u64) -> Stolen {
        let steal = |s: &HostSample| s.facts.cpu_ns.map_or(0, |by| by[7]);
        let [first, last] = [host.first(), host.last()].map(|s| s.map_or(0, steal));
        Stolen {
            machine_ns: last.saturating_sub(first),
            beyond_ns,
        }
    }

    /// The stolen part of what one thread's counter leaves out, ns.
    fn part(&self, ns: u64) -> u64 {
        let most = self.machine_ns.min(self.beyond_ns);
        (u128::from(ns) * u128::from(most) / u128::from(self.beyond_ns.max(1))) as u64
    }
}

/// On-CPU time but for what was stolen, by the ticks that hit user and kernel code.
fn divide(on_cpu: u64, stolen: u64, (user, kernel): (u64, u64)) -> OnCpu {
    let stolen = stolen.min(on_cpu);
    let own = on_cpu - stolen;
    let part = u128::from(own) * u128::from(kernel) / u128::from((user + kernel).max(1));
    OnCpu {
        user: own - part as u64,
        kernel: part as u64,
        stolen,
        ..OnCpu::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wallscope_model::HostFacts;

    #[test]
    fn user_and_kernel_parts_sum_to_the_whole() {
        let parts = divide(1101, 100, (2, 1));
        assert_eq!((parts.user, parts.kernel, parts.stolen), (668, 333, 100));
        assert_eq!(divide(9, 0, (0, 0)).user, 9);
        assert_eq!(divide(9, 20, (1, 1)).total(), 9);
    }

    #[test]
    fn no_more_is_stolen_than_the_host_took() {
        let at = |steal| HostSample {
            facts: HostFacts {
                cpu_ns: Some([1, 1, 1, 1, 1, 1, 1, steal]),
                ..HostFacts::default()
            },
            ..HostSample::default()
        };
        let host = [at(500), at(550), at(600)];
        assert_eq!(Stolen::of(&host, 80).part(60), 60);
        assert_eq!(Stolen::of(&host, 400).part(60), 15);
        assert_eq!(Stolen::of(&[], 400).part(60), 0);
    }
}
