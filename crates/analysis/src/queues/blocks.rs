//! Time of threads by slice of the recording, joined into blocks; jobs by block.

use std::collections::HashMap;

use wallscope_model::{BlockReason, LedgerSlice, Recording};

use crate::queueing::simulate::Job;
use crate::queueing::{Moments, bootstrap};

use super::seconds::seconds;

/// A job with its place in time, ns on the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Visit {
    /// Its arrival.
    pub arrival_ns: u64,
    /// Its wait before service.
    pub wait_ns: u64,
    /// Its service time.
    pub service_ns: u64,
}

/// Fewest jobs from which moments and a distribution are taken.
pub(super) const MIN_JOBS: usize = 100;
/// Fewest jobs of a block.
const MIN_BLOCK_JOBS: usize = 10;

/// Jobs in the order of arrival, and their sums by block of consecutive jobs.
pub(super) fn of_visits(mut visits: Vec<Visit>) -> (Vec<Job>, Vec<Moments>) {
    visits.sort_by_key(|v| v.arrival_ns);
    let pairs = visits.iter().zip(visits.iter().skip(1));
    let jobs: Vec<Job> = pairs
        .map(|(before, v)| Job {
            gap: seconds(v.arrival_ns - before.arrival_ns),
            service: seconds(v.service_ns),
            wait: seconds(v.wait_ns),
        })
        .collect();
    let count = (jobs.len() / MIN_BLOCK_JOBS).clamp(1, bootstrap::BLOCKS);
    let size = jobs.len().div_ceil(count).max(1);
    let blocks = jobs.chunks(size).map(sums).collect();
    (jobs, blocks)
}

fn sums(jobs: &[Job]) -> Moments {
    let mut sum = Moments::default();
    for job in jobs {
        sum.add(&Moments {
            span: job.gap,
            jobs: 1.0,
            service: job.service,
            service_squares: job.service * job.service,
            wait: job.wait,
            gap: job.gap,
            gap_squares: job.gap * job.gap,
        });
    }
    sum
}

/// A value of each ledger row, s, summed by slice and then into blocks: length of the block and value.
/// `of` gives a row's value in ns; edge slices have their part in the window.
pub(super) fn of_slices(rec: &Recording, of: impl Fn(&LedgerSlice) -> f64) -> Vec<(f64, f64)> {
    let mut by_slice = vec![0.0; rec.slices.count as usize];
    for row in rec.ledger_slices.iter() {
        if let Some(sum) = by_slice.get_mut(row.slice as usize) {
            *sum += of(&row) / 1e9;
        }
    }
    let spans = (0..rec.slices.count).map(|slice| span(rec, slice));
    let whole: Vec<(f64, f64)> = spans.zip(by_slice).filter(|(s, _)| *s > 0.0).collect();
    let size = whole.len().div_ceil(bootstrap::BLOCKS).max(1);
    let join = |part: &[(f64, f64)]| part.iter().fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    whole.chunks(size).map(join).collect()
}

/// Length of a slice within the window, s.
fn span(rec: &Recording, slice: u32) -> f64 {
    let start = rec.slices.start_ns + u64::from(slice) * rec.slices.width_ns;
    let end = (start + rec.slices.width_ns).min(rec.window.end_ns);
    seconds(end.saturating_sub(start.max(rec.window.start_ns)))
}

/// Idle time by context and slice, ns: of single intervals if the recording keeps them, else of samples,
/// scaled to the ledger.
pub(super) fn idle_by_slice(rec: &Recording) -> HashMap<(u32, u32), f64> {
    let mut idle: HashMap<(u32, u32), f64> = HashMap::new();
    let mut sampled: HashMap<u32, f64> = HashMap::new();
    for sample in rec.samples.iter().filter(|s| s.idle) {
        for value in &sample.slices {
            *idle.entry((sample.context.0, value.slice)).or_default() += value.ns as f64;
            *sampled.entry(sample.context.0).or_default() += value.ns as f64;
        }
    }
    for ((context, _), ns) in &mut idle {
        let exact = rec
            .contexts
            .get(*context as usize)
            .map_or(0, |c| c.ledger.idle_ns);
        *ns *= exact as f64 / sampled[context].max(1.0);
    }
    idle
}

/// All time of a row, ns.
pub(super) fn wall(row: &LedgerSlice) -> u64 {
    row.on_cpu_ns + row.runnable_ns + row.blocked.iter().sum::<u64>()
}

/// Time of a row waiting for locks of any kind, ns.
pub(super) fn locked(row: &[u64; BlockReason::COUNT]) -> u64 {
    let locks = [BlockReason::Lock, BlockReason::Gil, BlockReason::KernelLock];
    locks.into_iter().map(|reason| row[reason as usize]).sum()
}
