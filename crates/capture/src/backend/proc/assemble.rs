//! Observations → the recording: threads, ledgers, slices, stacks, losses.

use std::collections::BTreeMap;

use wallscope_model::{
    Audit, Context, HostSample, Ledger, Loss, ModuleId, OnCpu, Recording, Runnable, Slices,
    StackEnd, UnknownCause, WaitSeen, Window,
};
use wallscope_observe::{Counter, ProcessClocks};
use wallscope_procfs::process::SchedStat;

use super::{
    account::Account,
    estimator::PollEstimator,
    reason_imputation::ReasonImputation,
    samples::{Known, Polled},
    spans,
    thread_ledger::{ThreadLedger, Totals},
    unseen_children::unseen_children,
};
use crate::{
    backend::perf::SwitchRecords,
    session::{
        assemble::Assembled as Finished,
        build::Stacks,
        domain, jit_hints,
        naming::Names,
        peers::{FoundPeers, name_measured},
        tasks,
        thread_names::name_threads,
    },
};

/// Results of assembling a recording beside the recording itself.
pub struct Assembled {
    /// Modules of code made at run time, with their processes.
    pub jit: Vec<(ModuleId, u32)>,
    /// Connections waited for, as they were seen, by sample.
    pub seen: Vec<WaitSeen>,
}

/// Whether more observations follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// They do: this is a part.
    SoFar,
    /// They do not.
    Whole,
}

impl PollEstimator {
    /// Makes the recording.
    pub fn finish(mut self, names: Names<'_>) -> Finished {
        let end_ns = self.facts.end_ns.unwrap_or(self.grid.start_ns);
        let described = std::mem::take(&mut self.facts.domain);
        let mut recording = Recording {
            window: Window {
                start_ns: self.grid.start_ns,
                end_ns,
                clock: "CLOCK_MONOTONIC".into(),
                start_unix_ns: self.facts.start_unix_ns,
            },
            host: std::mem::take(&mut self.facts.host),
            cost: self.facts.cost.clone(),
            pauses: std::mem::take(&mut self.pauses).finish(),
            domain: described.domain,
            ..Recording::default()
        };
        if let Some(limit) = self.timeline.kept_bytes() {
            self.keep_spans_within(limit);
            let spans = (0..).map(wallscope_model::ContextId).zip(&self.accounts);
            let spans = spans.filter_map(|(context, a)| Some((context, a.book.spans.as_ref()?)));
            let timeline = spans::timeline(spans, limit);
            let notes = &mut recording.domain.notes;
            let at = (described.timeline_note as usize).min(notes.len());
            notes.insert(at, domain::timeline(&timeline));
            recording.timeline = Some(timeline);
        }
        let Assembled { jit, seen } = self.assemble(&mut recording, Extent::Whole, names);
        Finished {
            recording,
            jit,
            seen,
            moments: Vec::new(),
        }
    }

    /// Fills `recording` with the observations since the last time.
    pub fn assemble(
        &mut self,
        recording: &mut Recording,
        extent: Extent,
        names: Names<'_>,
    ) -> Assembled {
        self.samples.by_thread();
        let on_cpu = self.threads(recording, extent);
        name_threads(&self.thread_names, &mut recording.contexts);
        let mut stacks = Stacks::new(self.facts.modules.clone());
        stacks.interpreter_frames = self.interpreter_frames;
        if extent == Extent::Whole {
            let facts = std::mem::take(&mut self.facts.tasks);
            tasks::assemble::assemble(recording, &mut stacks, &facts, names.code);
            tasks::assemble::describe(&mut recording.domain, facts.words);
        }
        let seen;
        (recording.samples, seen) = self.samples.finish(&mut stacks, names.code);
        if extent == Extent::Whole {
            let (events, threads) = (std::mem::take(&mut self.events), self.accounts.len());
            recording.events =
                events.finish(threads as u32, &self.samples, &mut stacks, names.code);
            let other_end = |s: &_| names.host.other_end(s);
            let sockets: Vec<_> = self.sockets.values().copied().collect();
            recording.peers = FoundPeers::new(&sockets, &self.others, 0, &other_end).peers();
        }
        self.processes(recording, &on_cpu);
        name_measured(recording);
        self.losses(recording, &stacks);
        let maker = |pid| names.code.maker(pid);
        let unnamed = jit_hints::unnamed_code(stacks.unnamed_code(), maker);
        recording.domain.limits.extend(unnamed);
        let jit = stacks.give_to(recording);
        Assembled { jit, seen }
    }

    /// Threads with their ledgers, and these by slice. Returns the CPU time of each process so far, ns.
    fn threads(&mut self, recording: &mut Recording, extent: Extent) -> BTreeMap<u32, u64> {
        let (grid, tick_ns) = (self.grid, self.switches.tick_ns);
        let (mut on_cpu, mut last_slice) = (BTreeMap::<u32, u64>::new(), 0);
        let beyond = (self.accounts.iter()).map(|a| a.beyond_counters_ns(tick_ns));
        let stolen = Stolen::of(&recording.host, beyond.fold(0, u64::saturating_add));
        let unseen = unseen_ticks(&self.accounts, &self.processes);
        let programs = self.facts.processes.values();
        let programs = programs.map(|p| (p.pid, p.exe.clone())).collect();
        let mut imputation = ReasonImputation::new(&self.accounts, programs);
        for (index, a) in (0u32..).zip(&mut self.accounts) {
            // For a runnable thread the time since its counters last moved is known only once they move again.
            if a.course.is_none() && (extent == Extent::Whole || !a.alive) {
                a.counters.settle(a.book.sliced(grid));
            }
            let (start_ns, end_ns) = (a.book.start_ns, a.book.seen_ns);
            let imputed = imputation.weights(a);
            if let Some(weights) = &imputed {
                a.book.impute(weights);
            }
            let book = std::mem::replace(&mut a.book, ThreadLedger::new(end_ns));
            let totals = book.finish(&a.waits);
            let ticks = own_or_unseen_ticks(a, &unseen);
            if self.switches.kind == SwitchRecords::UserOnly {
                let (user, kernel) = ticks;
                let stack = self
                    .samples
                    .stack(Polled::none(a.pid, StackEnd::NotSampled));
                (self.samples).unsampled_part(index, stack, kernel, user.max(1));
            }
            if imputed.is_some() {
                imputation.count(totals.blocked.iter().sum());
            }
            let known = Known {
                waits: &a.waits,
                woken: totals.woken,
                preempted: totals.preempted,
            };
            self.samples.settle(index, known);
            a.on_cpu_ns += totals.on_cpu;
            *on_cpu.entry(a.pid).or_default() += a.on_cpu_ns;
            for row in &totals.slices {
                last_slice = last_slice.max(row.slice);
                let row = wallscope_model::LedgerSlice {
                    context: index,
                    ..*row
                };
                recording.ledger_slices.push(row);
            }
            let stolen_ns = stolen.part(a.beyond_counters_ns(tick_ns));
            recording.contexts.push(Context {
                pid: a.pid,
                tid: a.tid,
                ledger: ledger(a, &totals, end_ns - start_ns, (stolen_ns, ticks)),
                name: a.name.as_str().into(),
                start_ns,
                end_ns,
            });
            a.shown();
        }
        recording.domain.notes.extend(imputation.note());
        let window = recording.window.end_ns - recording.window.start_ns;
        let count = window.div_ceil(grid.width_ns.max(1)) as u32;
        recording.slices = Slices {
            count: count.max(last_slice + 1),
            ..grid
        };
        on_cpu
    }

    /// Drops the oldest intervals of all threads until the rest fits into `limit_bytes`.
    pub fn keep_spans_within(&mut self, limit_bytes: u64) {
        let all = self.accounts.iter_mut();
        let mut spans: Vec<_> = all.filter_map(|a| a.book.spans.as_mut()).collect();
        spans::keep_within(&mut spans, limit_bytes);
    }

    /// Processes, each with its CPU time outside of the seen threads. `on_cpu`: CPU time of its seen threads, ns.
    fn processes(&self, recording: &mut Recording, on_cpu: &BTreeMap<u32, u64>) {
        // With a record of each birth the poller sees all children.
        let unseen = match self.switches.kind {
            SwitchRecords::None => unseen_children(&self.processes, on_cpu),
            _ => BTreeMap::new(),
        };
        recording.processes = self.facts.processes.values().cloned().collect();
        for p in &mut recording.processes {
            if let Some(clocks) = self.processes.get(&p.pid) {
                let known = on_cpu.get(&p.pid).copied().unwrap_or(0);
                let [then, now] = clocks.cpu_ns;
                let all = clocks.before_ns.saturating_add(now.saturating_sub(then));
                let children = unseen.get(&p.pid).copied().unwrap_or(0);
                p.unattributed_on_cpu_ns = all.saturating_sub(known).saturating_add(children);
            }
        }
    }

    fn losses(&self, recording: &mut Recording, stacks: &Stacks) {
        let all = self.facts.losses.iter();
        let counted = all.filter(|l| matches!(l.by, Counter::Collector | Counter::Tasks));
        let mut losses: Vec<_> = counted.map(|l| (l.cause.clone(), l.count)).collect();
        losses.push(("malformed event".into(), self.malformed));
        let mut truncated: Vec<_> = stacks.truncated.iter().collect();
        truncated.sort();
        let causes = truncated.into_iter();
        losses.extend(causes.map(|(end, n)| (format!("truncated:{}", end.name()), *n)));
        let losses = losses.into_iter().filter(|(_, count)| *count > 0);
        recording.losses = losses.map(|(cause, count)| Loss { cause, count }).collect();
    }
}

/// The ledger of a thread that existed for `wall_ns`, of which the host took `stolen` ns. `ticks` divide its on-CPU
/// time.
fn ledger(
    t: &Account,
    totals: &Totals,
    wall_ns: u64,
    (stolen, ticks): (u64, (u64, u64)),
) -> Ledger {
    let [(voluntary0, involuntary0), (voluntary1, involuntary1)] = t.switches;
    let told = (
        voluntary1.saturating_sub(voluntary0),
        involuntary1.saturating_sub(involuntary0),
    );
    let before = t.records.switches;
    let recorded = match &t.course {
        Some(course) => {
            let (voluntary, involuntary) = before.unwrap_or_default();
            Some((
                voluntary + course.untold.voluntary,
                involuntary + course.untold.involuntary,
            ))
        }
        None => before,
    };
    // Its switches were recorded for a part of its time only.
    let rationed = t.unrecorded_ns > 0 || (t.course.is_none() && before.is_some());
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
        repaired_ns: t.records.repaired_ns + t.course.as_ref().map_or(0, |c| c.untold.repaired_ns),
        voluntary_switches: voluntary,
        involuntary_switches: involuntary,
        // A witness is a source that did not make the figures, and was read to the end.
        audit: if t.is_recorded() && t.alive {
            let course = t.course.as_ref();
            let edges = course.map_or((0, 0), |c| (c.untold.waited_before_ns, c.in_line_ns()));
            audit(t.audit, told, stolen, edges)
        } else {
            Audit::default()
        },
        ..Ledger::default()
    };
    ledger.unknown[UnknownCause::LostEvents as usize] = totals.unknown;
    ledger
}

/// Figures of the second witness. `before`: run-queue latency from before the beginning, which the counter includes,
/// ns. `open`: run-queue latency at the end, which it does not include yet, ns.
fn audit(
    [first, last]: [SchedStat; 2],
    (voluntary, involuntary): (u64, u64),
    stolen: u64,
    (before, open): (u64, u64),
) -> Audit {
    Audit {
        // The counter leaves out stolen time by design. It is added by the kernel's own count of it.
        on_cpu_ns: last.on_cpu_ns.saturating_sub(first.on_cpu_ns) + stolen,
        run_delay_ns: (last.run_delay_ns)
            .saturating_sub(first.run_delay_ns)
            .saturating_sub(before)
            + open,
        switches: voluntary + involuntary,
        valid: true,
    }
}

/// Timer ticks in a thread, in user mode and in the kernel.
fn ticks(t: &Account) -> (u64, u64) {
    let [(user0, kernel0), (user1, kernel1)] = t.ticks;
    (user1.saturating_sub(user0), kernel1.saturating_sub(kernel0))
}

/// Ticks of each process beyond those of its threads: they are of threads that ended before their ticks were read.
fn unseen_ticks(
    accounts: &[Account],
    processes: &BTreeMap<u32, ProcessClocks>,
) -> BTreeMap<u32, (u64, u64)> {
    let mut seen = BTreeMap::<u32, (u64, u64)>::new();
    for a in accounts {
        let (user, kernel) = ticks(a);
        let sum = seen.entry(a.pid).or_default();
        *sum = (sum.0.saturating_add(user), sum.1.saturating_add(kernel));
    }
    let rest = |p: &ProcessClocks| {
        let [then, now] = p.ticks;
        let (user, kernel) = seen.get(&p.pid).copied().unwrap_or_default();
        let rest = |now: u64, then: u64, seen| now.saturating_sub(then).saturating_sub(seen);
        (
            p.pid,
            (rest(now.0, then.0, user), rest(now.1, then.1, kernel)),
        )
    };
    processes.values().map(rest).collect()
}

/// Ticks that divide a thread's on-CPU time: its own or, if it has none, those of its process that are of no known
/// thread.
fn own_or_unseen_ticks(t: &Account, unseen: &BTreeMap<u32, (u64, u64)>) -> (u64, u64) {
    match ticks(t) {
        (0, 0) => unseen.get(&t.pid).copied().unwrap_or_default(),
        own => own,
    }
}

/// The stolen part of the time that the counters leave out: at most the time that the host took from the whole
/// machine. Kernels with counters that leave out interrupts too count these separately.
struct Stolen {
    machine_ns: u64,
    beyond_ns: u64,
}

impl Stolen {
    /// Stolen time of a machine with these facts, and threads that were `beyond_ns` longer on a CPU than counted.
    fn of(host: &[HostSample], beyond_ns: u64) -> Stolen {
        let steal = |s: &HostSample| s.facts.cpu_ns.map_or(0, |by| by[7]);
        let [first, last] = [host.first(), host.last()].map(|s| s.map_or(0, steal));
        Stolen {
            machine_ns: last.saturating_sub(first),
            beyond_ns,
        }
    }

    /// The stolen part of the time that one thread's counter leaves out, ns.
    fn part(&self, ns: u64) -> u64 {
        let most = self.machine_ns.min(self.beyond_ns);
        (u128::from(ns) * u128::from(most) / u128::from(self.beyond_ns.max(1))) as u64
    }
}

/// Divides on-CPU time, without the stolen part, by the ticks in user and in kernel code.
fn divide(on_cpu: u64, stolen: u64, (user, kernel): (u64, u64)) -> OnCpu {
    let stolen = stolen.min(on_cpu);
    let own = on_cpu - stolen;
    let part =
        u128::from(own) * u128::from(kernel) / (u128::from(user) + u128::from(kernel)).max(1);
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
