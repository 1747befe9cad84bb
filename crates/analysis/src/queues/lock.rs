//! Locks as queues: the threads that take a lock are its customers.
//!
//! Each wait for a user-space lock is counted and summed exactly; taking a free lock is not seen. So the number of
//! acquisitions follows from a model: N threads that compute and take one lock (the machine repairman). The mean
//! number of waiting threads gives the ratio of holding to other time, the rate of waits its scale. Where single
//! intervals are kept, holds are measured too: from one hand-off to the next while another thread waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use wallscope_model::{BlockReason, ContextId, Interval, Recording};

use crate::queueing::mva::{Network, Station};
use crate::queueing::predict::Closed;
use crate::queueing::{Discipline, Moments};
use crate::view::{Analysis, LockRow};

use super::blocks;
use super::cpu::MAX_CLOSED;
use super::known::Known;
use super::queue::{Absent, Queue, QueueKind, Queues, System};
use super::seconds::{seconds, window};

/// Locks that are shown, most waited for first.
const MAX_LOCKS: usize = 12;
/// Locks with fewer waiting threads than this, on average, are not contended.
const MIN_WAITING: f64 = 1e-3;
/// Fewest holds that are measured by hand-offs.
const MIN_HOLDS: usize = 30;
/// A thread's waits are for one lock if it has this share of them.
const NEARLY_ALL: f64 = 0.95;
/// Ratio of holding to other time from which a lock is saturated. Larger ratios cannot be distinguished.
const SATURATED: f64 = 1e3;

pub(super) fn queues(analysis: &Analysis<'_>, found: &mut Queues) {
    let rec = analysis.recording;
    let span = window(rec);
    let contended = |row: &&LockRow| {
        !row.is_idle()
            && seconds(row.in_earnest_ns()) / span >= MIN_WAITING
            && !row.name.starts_with("end of a thread")
    };
    let rows = analysis.locks();
    let waits = waits_by_lock(analysis);
    for row in rows.iter().filter(contended).take(MAX_LOCKS) {
        if row.is_lock() {
            found.push(queue(rec, row, waits.get(&row.name).map_or(&[][..], |w| w)));
        } else {
            found.absent.push(absent(
                row,
                QueueKind::Pool,
                "a condition variable: the recording does not tell how many units it hands out",
            ));
        }
    }
}

fn absent(row: &LockRow, kind: QueueKind, reason: &str) -> Absent {
    Absent {
        kind,
        name: row.name.clone(),
        reason: reason.to_owned(),
    }
}

/// Exact waits of one thread for one lock, ns.
type Waited = (ContextId, u64);

fn waits_by_lock(analysis: &Analysis<'_>) -> BTreeMap<Arc<str>, Vec<Waited>> {
    let mut by_lock: BTreeMap<Arc<str>, Vec<Waited>> = BTreeMap::new();
    for wait in &analysis.recording.locks {
        if let Some(name) = analysis.resource(wait.labels) {
            by_lock
                .entry(name)
                .or_default()
                .push((wait.context, wait.total_ns));
        }
    }
    by_lock
}

fn queue(rec: &Recording, row: &LockRow, waited: &[Waited]) -> Result<Queue, Absent> {
    let refuse = |reason: &str| Err(absent(row, QueueKind::Lock, reason));
    if !row.exact || waited.is_empty() {
        return refuse(
            "its waits were sampled, not counted (a tier without eBPF, a kernel lock, or a word of each thread)",
        );
    }
    if rec.slices.count == 0 {
        return refuse("the recording has no time slices");
    }
    let customers = customers(rec, row, waited);
    if customers < 2 {
        return refuse(
            "one thread waits and its holder is not in the recording: measure the holder's process too",
        );
    }
    if customers > MAX_CLOSED {
        return refuse("more threads wait for it than the model takes (500)");
    }
    let span = window(rec);
    let holds = holds(rec, waited);
    let measured = (holds.len() >= MIN_HOLDS).then(|| moments(&holds));
    let variation = measured.map_or(1.0, |(_, variation)| variation);
    let waiting = seconds(row.total_ns) / span;
    let fitted = Fitted::new(customers as f64, waiting, variation);
    let hold = measured.map_or_else(|| fitted.hold(row.count as f64 / span), |(hold, _)| hold);
    let mut notes = vec![
        "acquisitions without a wait are not recorded: their number comes from the model of threads that share one lock"
            .to_owned(),
    ];
    if measured.is_some() {
        notes.push(format!(
            "S is measured at {} hand-offs to a waiting thread",
            holds.len()
        ));
    } else {
        notes.push(
            "S comes from that model, too (cs² assumed to be 1), and may be off by a factor of two; record \
             --timeline measures it"
                .into(),
        );
    }
    if fitted.ratio >= SATURATED {
        notes.push(
            "a thread waits nearly all the time, so the time that threads spend without the lock is not known"
                .into(),
        );
    }
    let known = Known {
        kind: QueueKind::Lock,
        name: row.name.clone(),
        system: System::Closed(customers as f64),
        because: format!("{customers} threads share it; load is their number"),
        servers: 1,
        discipline: Discipline::Fifo,
        others: 0.0,
        blocks: lock_blocks(rec, waited, &Cycle::new(&fitted, hold, variation)),
        waits_known: true,
        variation_known: measured.is_some(),
        notes,
    };
    let prediction = Closed {
        customers: customers as f64,
        servers: 1,
        discipline: Discipline::Fifo,
    }
    .predict(&known.blocks);
    Ok(known.queue(Some(prediction)))
}

/// Threads that take the lock: those that waited for it, and holders of other names that never did.
fn customers(rec: &Recording, row: &LockRow, waited: &[Waited]) -> usize {
    let waiters: BTreeSet<u32> = waited.iter().map(|(c, _)| c.0).collect();
    let names: BTreeSet<&str> = (waiters.iter())
        .filter_map(|c| rec.contexts.get(*c as usize))
        .map(|c| &*c.name)
        .collect();
    let others: BTreeSet<&str> = (row.holders.iter().filter(|h| !h.place.is_empty()))
        .map(|h| &*h.thread)
        .filter(|name| !names.contains(name))
        .collect();
    let holds = |c: &&wallscope_model::Context| others.contains(&*c.name);
    waiters.len() + rec.contexts.iter().filter(holds).count()
}

/// The closed model that has the measured number of waiting threads. Its unit of time is the mean time
/// that a thread spends without the lock.
struct Fitted {
    customers: f64,
    /// Holding over other time.
    ratio: f64,
    waiting: f64,
    variation: f64,
}

impl Fitted {
    fn new(customers: f64, waiting: f64, variation: f64) -> Fitted {
        let (mut low, mut high) = (1e-6f64, SATURATED);
        for _ in 0..50 {
            let middle = (low * high).sqrt();
            match solve(customers, middle, variation).1 < waiting {
                true => low = middle,
                false => high = middle,
            }
        }
        Fitted {
            customers,
            ratio: high,
            waiting,
            variation,
        }
    }

    /// Share of the time for which the lock is held.
    fn utilisation(&self) -> f64 {
        solve(self.customers, self.ratio, self.variation).0
    }

    /// Mean hold, s, if threads begin to wait so often a second: a thread that arrives sees the lock as
    /// the others leave it (Sevcik and Mitrani; Lavenberg and Reiser, 1979–1981).
    fn hold(&self, waits: f64) -> f64 {
        let busy_at_arrival = solve(self.customers - 1.0, self.ratio, self.variation).0;
        let acquisitions = waits / busy_at_arrival.max(f64::MIN_POSITIVE);
        self.utilisation() / acquisitions
    }
}

/// Utilisation and mean number of waiting threads of the model.
fn solve(customers: f64, ratio: f64, variation: f64) -> (f64, f64) {
    let network = Network {
        think: 1.0,
        stations: vec![Station {
            service: ratio,
            variation,
            servers: 1,
        }],
    };
    let solution = network.solve(customers);
    let at = &solution.stations[0];
    (at.utilisation, solution.throughput * at.wait)
}

/// A thread's cycle: other time and holding; with the rate of acquisitions of all.
struct Cycle {
    customers: f64,
    think: f64,
    hold: f64,
    variation: f64,
}

impl Cycle {
    fn new(fitted: &Fitted, hold: f64, variation: f64) -> Cycle {
        let acquisitions = fitted.utilisation() / hold;
        let cycle = fitted.customers / acquisitions;
        Cycle {
            customers: fitted.customers,
            think: (cycle - fitted.waiting / acquisitions - hold).max(0.0),
            hold,
            variation,
        }
    }
}

/// Sums by block: waiting is exact by slice; the rest of the threads' time goes round.
fn lock_blocks(rec: &Recording, waited: &[Waited], cycle: &Cycle) -> Vec<Moments> {
    let share: BTreeMap<u32, f64> = (waited.iter())
        .filter_map(|(c, ns)| {
            let all = blocks::locked(&rec.contexts.get(c.0 as usize)?.ledger.blocked);
            (all > 0).then(|| (c.0, (*ns as f64 / all as f64).min(1.0)))
        })
        .collect();
    let waiting = blocks::of_slices(rec, |row| {
        let share = share.get(&row.context).copied().unwrap_or(0.0);
        share * blocks::locked(&row.blocked) as f64
    });
    let block = |(span, wait): (f64, f64)| {
        let jobs = (cycle.customers * span - wait).max(0.0) / (cycle.think + cycle.hold);
        let service = jobs * cycle.hold;
        Moments {
            span,
            jobs,
            service,
            service_squares: service * cycle.hold * (1.0 + cycle.variation),
            wait,
            ..Moments::default()
        }
    };
    waiting.into_iter().map(block).collect()
}

/// Holds between two hand-offs, s: the second wait had begun before the first ended, so the lock went from thread to
/// thread. Only threads that wait for this lock alone count.
fn holds(rec: &Recording, waited: &[Waited]) -> Vec<f64> {
    let Some(timeline) = &rec.timeline else {
        return Vec::new();
    };
    let only = |(c, ns): &&Waited| {
        let context = rec.contexts.get(c.0 as usize);
        let all = context.map_or(0, |c| blocks::locked(&c.ledger.blocked));
        *ns as f64 >= NEARLY_ALL * all as f64
    };
    let lanes = waited
        .iter()
        .filter(only)
        .filter_map(|(c, _)| timeline.lane(*c));
    let mut waits: Vec<&Interval> = lanes
        .flat_map(|lane| &lane.intervals)
        .filter(|i| {
            matches!(
                i.reason,
                Some(BlockReason::Lock | BlockReason::Gil | BlockReason::KernelLock)
            )
        })
        .filter(|i| i.waker.is_some())
        .collect();
    waits.sort_by_key(|i| i.end_ns());
    let pairs = waits.iter().zip(waits.iter().skip(1));
    pairs
        .filter(|(first, second)| second.start_ns < first.end_ns())
        .map(|(first, second)| seconds(second.end_ns() - first.end_ns()))
        .filter(|s| *s > 0.0)
        .collect()
}

/// Mean and squared coefficient of variation.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    (mean, squares / (mean * mean))
}
