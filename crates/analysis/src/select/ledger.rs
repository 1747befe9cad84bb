//! Ledgers of a selection.

use std::ops::Range;

use rustc_hash::FxHashMap;
use wallscope_model::scale::Unsampled;
use wallscope_model::{
    Audit, BlockReason, Context, Ledger, LedgerSlice, LedgerSlices, OnCpu, Part, Recording,
    Runnable, Sample, State, UnknownCause,
};

use super::selection::Selection;

/// Time by state, and by reason where the ledger has one.
#[derive(Clone, Default)]
struct Sums {
    on_cpu: [u64; 4],
    /// On-CPU time without a known part.
    on_cpu_whole: u64,
    runnable: [u64; 3],
    /// Runnable time without a known part.
    runnable_whole: u64,
    blocked: [u64; BlockReason::COUNT],
    unknown: [u64; UnknownCause::COUNT],
    idle: u64,
}

const ON_CPU: [Part; 4] = [Part::User, Part::Kernel, Part::Irq, Part::Stolen];
const RUNNABLE: [Part; 3] = [Part::Woken, Part::Preempted, Part::Throttled];

impl Sums {
    fn add(&mut self, state: State, reason: Option<&str>, ns: u64) {
        match state {
            State::OnCpu => match ON_CPU.iter().position(|p| Some(p.name()) == reason) {
                Some(i) => self.on_cpu[i] += ns,
                None => self.on_cpu_whole += ns,
            },
            State::Runnable => match RUNNABLE.iter().position(|p| Some(p.name()) == reason) {
                Some(i) => self.runnable[i] += ns,
                None => self.runnable_whole += ns,
            },
            State::Blocked => {
                let reason = reason.and_then(BlockReason::from_name);
                self.blocked[reason.unwrap_or(BlockReason::Other) as usize] += ns;
            }
            State::Unknown => {
                let cause = reason.and_then(UnknownCause::from_name);
                self.unknown[cause.unwrap_or(UnknownCause::NotInSource) as usize] += ns;
            }
        }
    }

    /// The ledger of these sums. Time without a known part is divided in the proportions of `whole`.
    fn ledger(&self, whole: &Ledger) -> Ledger {
        let c = whole.on_cpu;
        let rest = split(self.on_cpu_whole, [c.user, c.kernel, c.irq, c.stolen]);
        let [user, kernel, irq, stolen] = std::array::from_fn(|i| self.on_cpu[i] + rest[i]);
        let r = whole.runnable;
        let rest = split(self.runnable_whole, [r.woken, r.preempted, r.throttled]);
        let [woken, preempted, throttled] = std::array::from_fn(|i| self.runnable[i] + rest[i]);
        let mut ledger = Ledger {
            on_cpu: OnCpu {
                user,
                kernel,
                irq,
                stolen,
            },
            runnable: Runnable {
                woken,
                preempted,
                throttled,
            },
            blocked: self.blocked,
            unknown: self.unknown,
            idle_ns: self.idle,
            audit: Audit::default(),
            ..Ledger::default()
        };
        ledger.wall_ns = State::ALL.iter().map(|s| ledger.state_ns(*s)).sum();
        ledger
    }
}

/// `ns` in proportion to `parts`, to the nanosecond; all in the first where they are empty.
fn split<const N: usize>(ns: u64, parts: [u64; N]) -> [u64; N] {
    let all: u128 = parts.iter().map(|p| u128::from(*p)).sum();
    if all == 0 {
        return std::array::from_fn(|i| if i == 0 { ns } else { 0 });
    }
    let (mut before, mut given) = (0u128, 0);
    parts.map(|p| {
        before += u128::from(p);
        let upto = (u128::from(ns) * before / all) as u64;
        upto - std::mem::replace(&mut given, upto)
    })
}

/// Selected time.
pub(super) struct Kept<'a> {
    pub(super) samples: &'a [Sample],
    /// Time of the ledger without a sample.
    pub(super) unsampled: &'a [Unsampled],
}

/// Restricts the ledgers of `rec`, whole and by slice, to the selection.
pub(super) fn cut(
    selection: &Selection,
    rec: &mut Recording,
    kept: &Kept<'_>,
    slices: Option<&Range<u32>>,
) {
    if !selection.is_partial() {
        return;
    }
    if let Some(range) = slices {
        let rows = rec.ledger_slices.iter();
        rec.ledger_slices = rows
            .filter(|row| range.contains(&row.slice))
            .map(|row| LedgerSlice {
                slice: row.slice - range.start,
                ..row
            })
            .collect();
    }
    let first = slices.map_or(0, |r| r.start);
    let idle = idle_by_context(kept.samples);
    // Slices do not keep the parts of on-CPU and runnable time: those are known from samples.
    let by_sample = selection.by_stack() || !selection.reasons.is_empty();
    if by_sample {
        let rows = LedgerSlices::of_samples(kept.samples);
        rec.ledger_slices = rows.sorted(|context, slice| (context, slice - first));
    } else {
        let rows = rec.ledger_slices.iter();
        rec.ledger_slices = rows.map(|row| masked(selection, row)).collect();
    }
    let sums = if selection.is_estimated() {
        sampled(rec.contexts.len(), kept)
    } else {
        counted(selection, &rec.contexts, &rec.ledger_slices, slices)
    };
    for (i, (c, mut sums)) in rec.contexts.iter_mut().zip(sums).enumerate() {
        let blocked: u64 = sums.blocked.iter().sum();
        sums.idle = idle.get(&(i as u32)).copied().unwrap_or(0).min(blocked);
        c.ledger = sums.ledger(&c.ledger);
    }
    // Not known for a part of their time.
    for p in &mut rec.processes {
        p.unattributed_on_cpu_ns = 0;
    }
}

fn idle_by_context(samples: &[Sample]) -> FxHashMap<u32, u64> {
    let mut idle: FxHashMap<u32, u64> = FxHashMap::default();
    for s in samples.iter().filter(|s| s.idle) {
        *idle.entry(s.context.0).or_default() += s.ns;
    }
    idle
}

/// Sums of sampled time and of time without samples.
fn sampled(contexts: usize, kept: &Kept<'_>) -> Vec<Sums> {
    let mut sums = vec![Sums::default(); contexts];
    for s in kept.samples {
        sums[s.context.0 as usize].add(s.state, s.reason_name(), s.ns);
    }
    for u in kept.unsampled {
        sums[u.context.0 as usize].add(u.state, u.reason, u.ns);
    }
    sums
}

/// The exact sums of the states and reasons that are wanted.
fn counted(
    selection: &Selection,
    contexts: &[Context],
    rows: &LedgerSlices,
    slices: Option<&Range<u32>>,
) -> Vec<Sums> {
    let mut sums = vec![Sums::default(); contexts.len()];
    if slices.is_some() {
        for row in rows.iter() {
            let Some(s) = sums.get_mut(row.context as usize) else {
                continue;
            };
            s.on_cpu_whole += row.on_cpu_ns;
            s.runnable_whole += row.runnable_ns;
            for (a, b) in s.blocked.iter_mut().zip(row.blocked) {
                *a += b;
            }
        }
        return sums;
    }
    for (s, c) in sums.iter_mut().zip(contexts) {
        let l = &c.ledger;
        let c = l.on_cpu;
        for (i, ns) in [c.user, c.kernel, c.irq, c.stolen].into_iter().enumerate() {
            if selection.wants_state(State::OnCpu, Some(ON_CPU[i].name())) {
                s.on_cpu[i] = ns;
            }
        }
        let r = l.runnable;
        for (i, ns) in [r.woken, r.preempted, r.throttled].into_iter().enumerate() {
            if selection.wants_state(State::Runnable, Some(RUNNABLE[i].name())) {
                s.runnable[i] = ns;
            }
        }
        for (r, ns) in BlockReason::ALL.iter().zip(l.blocked) {
            if selection.wants_state(State::Blocked, Some(r.name())) {
                s.blocked[*r as usize] = ns;
            }
        }
        for (u, ns) in UnknownCause::ALL.iter().zip(l.unknown) {
            if selection.wants_state(State::Unknown, Some(u.name())) {
                s.unknown[*u as usize] = ns;
            }
        }
    }
    sums
}

/// A slice without the states that are not wanted.
fn masked(selection: &Selection, mut row: LedgerSlice) -> LedgerSlice {
    if !selection.wants_state(State::OnCpu, None) {
        row.on_cpu_ns = 0;
    }
    if !selection.wants_state(State::Runnable, None) {
        row.runnable_ns = 0;
    }
    if !selection.wants_state(State::Blocked, None) {
        row.blocked = Default::default();
    }
    row
}
