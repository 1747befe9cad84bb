//! Histograms of interval lengths: the kernel programs' counts as rows of the recording.
//!
//! Histograms over all threads, by state, reason and part, have fine buckets; those by thread and state have coarse
//! ones. An interval that is open when the recording ends counts as one, with its length so far.

use rustc_hash::FxHashMap;
use wallscope_model::histogram::{COARSE, FINE, Histogram, HistogramRow};
use wallscope_model::{BlockReason, ContextId, Part, State};
use wallscope_observe::Histogram as ObservedHistogram;
use zerocopy::FromBytes;

use super::accounts::{Accounts, Folded};
use crate::event::{COARSE_BUCKETS, HistogramHead, PARTS, state};

/// A thread's states in the order of `histogram.h`.
const OWN: [State; 3] = [State::OnCpu, State::Runnable, State::Blocked];
/// Classes of `histogram.h`.
const CLASSES: usize = 1 + PARTS + BlockReason::COUNT;
const RUNNABLE: [Part; PARTS] = [Part::Woken, Part::Preempted, Part::Throttled];

/// Everything that has come in.
#[derive(Default)]
pub struct Histograms {
    /// By class of `histogram.h`: the longest, and counts by fine bucket.
    all: [(u64, Vec<u64>); CLASSES],
    /// By thread's record id and state.
    own: FxHashMap<u64, [Histogram; 3]>,
    /// Intervals that are over but in no bucket yet: state, detail, ns.
    pending: Vec<(u8, u8, u64)>,
}

impl Histograms {
    /// Takes the histogram of a class, in the place of an earlier one; `None`: there is no such class.
    pub fn class(&mut self, h: &ObservedHistogram) -> Option<()> {
        *self.all.get_mut(h.class as usize)? = (h.longest_ns, h.counts.clone());
        Some(())
    }

    /// Takes a `struct ws_histogram_event`; `None` if it is malformed.
    pub fn own(&mut self, bytes: &[u8]) -> Option<()> {
        let (head, rest) = HistogramHead::read_from_prefix(bytes).ok()?;
        let mut own = OWN.map(|_| Histogram::new(COARSE));
        for pair in rest.chunks_exact(8).take(head.n as usize) {
            let index = u32::from_ne_bytes(pair[..4].try_into().ok()?);
            let count = u32::from_ne_bytes(pair[4..].try_into().ok()?);
            let histogram = own.get_mut((index / COARSE_BUCKETS) as usize)?;
            histogram.add_bucket((index % COARSE_BUCKETS) as u16, f64::from(count));
        }
        for (histogram, max) in own.iter_mut().zip(head.max) {
            histogram.max_ns = max;
        }
        if head.stretch > 0 {
            own[0].add(head.stretch, 1.0);
            self.pending.push((state::ON_CPU, 0, head.stretch));
        }
        if head.block > 0 {
            own[2].add(head.block, 1.0);
            let reason = head.block_reason as u8;
            self.pending.push((state::BLOCKED, reason, head.block));
        }
        self.own.insert(head.id, own);
        Some(())
    }

    /// Moves the histograms of threads that stand for themselves no more.
    pub fn fold(&mut self, folded: &Folded) {
        for (from, to) in &folded.to {
            let Some(own) = self.own.remove(from) else {
                continue;
            };
            let into = (self.own.entry(*to)).or_insert_with(|| OWN.map(|_| Histogram::new(COARSE)));
            for (into, histogram) in into.iter_mut().zip(&own) {
                into.merge(histogram);
            }
        }
        for id in &folded.dropped {
            self.own.remove(id);
        }
    }

    /// The rows, with the intervals that are still open in `accounts`.
    pub fn finish(self, accounts: &Accounts) -> Vec<HistogramRow> {
        let mut all: Vec<Histogram> = self.all.iter().map(fine).collect();
        let mut own: FxHashMap<u32, [Histogram; 3]> = FxHashMap::default();
        for (id, histograms) in self.own {
            let Some(index) = accounts.index(id) else {
                continue;
            };
            match own.get_mut(&index) {
                // It came after its thread was folded.
                Some(group) => {
                    let both = group.iter_mut().zip(&histograms);
                    both.for_each(|(group, histogram)| group.merge(histogram));
                }
                None => {
                    own.insert(index, histograms);
                }
            }
        }
        for (index, state, detail, ns) in accounts.open() {
            let Some(class) = class_of(state, detail) else {
                continue;
            };
            all[class].add(ns, 1.0);
            let histograms = own
                .entry(index)
                .or_insert_with(|| OWN.map(|_| Histogram::new(COARSE)));
            histograms[usize::from(state) - 1].add(ns, 1.0);
        }
        for (state, detail, ns) in self.pending {
            if let Some(class) = class_of(state, detail) {
                all[class].add(ns, 1.0);
            }
        }
        let mut rows: Vec<HistogramRow> = all.into_iter().enumerate().map(of_class).collect();
        let mut own: Vec<_> = own.into_iter().collect();
        own.sort_by_key(|(index, _)| *index);
        for (index, histograms) in own {
            rows.extend(
                OWN.iter()
                    .zip(histograms)
                    .map(|(state, histogram)| HistogramRow {
                        context: Some(ContextId(index)),
                        stack: None,
                        state: *state,
                        reason: None,
                        part: None,
                        histogram,
                    }),
            );
        }
        rows.retain(|r| !r.histogram.counts.is_empty());
        rows
    }
}

/// Intervals by bucket of each class, as the kernel programs count them since their start.
pub type ClassCounts = Vec<(u64, Vec<u64>)>;

/// Rows of all threads of a window: the counts that were added to `before` up to `now`. The longest interval of a
/// window is not known: it counts as the upper bound of its bucket.
pub fn added(now: &ClassCounts, before: &ClassCounts) -> Vec<HistogramRow> {
    let class = |(class, (longest_ns, counts)): (usize, &(u64, Vec<u64>))| {
        let earlier = before.get(class).map_or(&[][..], |(_, counts)| counts);
        let mut histogram = Histogram::new(FINE);
        for (bucket, n) in (0u16..).zip(counts) {
            // The kernel's counters have 32 bits.
            let earlier = earlier.get(usize::from(bucket)).copied().unwrap_or(0);
            let n = n.wrapping_sub(earlier) as u32;
            if n > 0 {
                histogram.counts.push((bucket, f64::from(n)));
            }
        }
        if let Some((highest, _)) = histogram.counts.last() {
            histogram.max_ns = histogram
                .bounds(*highest)
                .1
                .saturating_sub(1)
                .min(*longest_ns);
        }
        of_class((class, histogram))
    };
    let rows = now.iter().enumerate().map(class);
    rows.filter(|row| !row.histogram.counts.is_empty())
        .collect()
}

fn fine((max_ns, counts): &(u64, Vec<u64>)) -> Histogram {
    let mut histogram = Histogram::new(FINE);
    histogram.max_ns = *max_ns;
    histogram.counts = (0u16..)
        .zip(counts)
        .filter(|(_, n)| **n > 0)
        .map(|(bucket, n)| (bucket, *n as f64))
        .collect();
    histogram
}

/// The class of `histogram.h` that a state with its detail belongs to.
fn class_of(state: u8, detail: u8) -> Option<usize> {
    let detail = usize::from(detail);
    match state {
        state::ON_CPU => Some(0),
        state::RUNNABLE if detail < PARTS => Some(1 + detail),
        state::BLOCKED if detail < BlockReason::COUNT => Some(1 + PARTS + detail),
        _ => None,
    }
}

fn of_class((class, histogram): (usize, Histogram)) -> HistogramRow {
    let (state, part, reason) = match class {
        0 => (State::OnCpu, None, None),
        c if c <= PARTS => (State::Runnable, Some(RUNNABLE[c - 1]), None),
        c => (State::Blocked, None, Some(BlockReason::ALL[c - 1 - PARTS])),
    };
    HistogramRow {
        context: None,
        stack: None,
        state,
        reason,
        part,
        histogram,
    }
}

#[cfg(test)]
#[path = "histograms_tests.rs"]
mod more_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_the_intervals_that_were_added_in_it() {
        let counts = |of: &[(usize, u64)]| {
            let mut counts = vec![0; wallscope_model::histogram::BUCKETS];
            of.iter().for_each(|(bucket, n)| counts[*bucket] = *n);
            counts
        };
        let full = u64::from(u32::MAX);
        let before = vec![(900, counts(&[(40, 7)])), (5_000, counts(&[(50, full)]))];
        let now = vec![
            (900, counts(&[(40, 7)])),
            (5_000, counts(&[(50, 2), (60, 4)])),
        ];
        let rows = added(&now, &before);
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].state, rows[0].part),
            (State::Runnable, Some(Part::Woken))
        );
        // A counter that has come round.
        assert_eq!(rows[0].histogram.counts, [(50, 3.0), (60, 4.0)]);
        assert!(rows[0].histogram.max_ns <= 5_000 && rows[0].histogram.max_ns > 0);
        assert_eq!(added(&now, &now), []);
        assert_eq!(added(&now, &Vec::new()).len(), 2);
    }

    #[test]
    fn a_thread_s_buckets_find_their_state() {
        let mut bytes = Vec::new();
        let index = 2 * COARSE_BUCKETS + 7;
        for word in [0u32, 72] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [9u64, 0, 0, 5000, 0, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        for word in [1u32, 0, index, 3] {
            bytes.extend(word.to_ne_bytes());
        }
        let mut histograms = Histograms::default();
        assert_eq!(histograms.own(&bytes), Some(()));
        let own = &histograms.own[&9];
        assert_eq!(own[2].counts, [(7, 3.0)]);
        assert_eq!((own[2].max_ns, own[0].count()), (5000, 0.0));
        assert_eq!(histograms.own(&bytes[..40]), None);
    }
}
