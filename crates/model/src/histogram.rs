//! Histograms of interval lengths: a sum does not show whether it is fifty waits of 2 ms or one of
//! 100 ms.
//!
//! A [`Histogram`] is log-linear, as Tene's HdrHistogram. An octave of lengths is divided
//! into equal parts, so that the relative error of a length is bounded: 1.6 % with [`FINE`] parts
//! and 11 % with [`COARSE`] ones. The kernel programs count by the same division
//! (`capture/src/bpf/histogram.h`).

use crate::{BlockReason, ContextId, Part, StackId, State};

/// Bits of subdivision for lengths of all threads together.
pub const FINE: u32 = 5;
/// Bits of subdivision for lengths by thread.
pub const COARSE: u32 = 2;
/// Unit of lengths: 2 to the power of this, ns.
const UNIT: u32 = 4;
/// Number of fine buckets; the last ones hold everything longer than some 18 minutes.
pub const BUCKETS: usize = 1056;

/// The fine bucket of a length of `ns`.
pub fn bucket_of(ns: u64) -> u16 {
    let units = ns >> UNIT;
    if units < 1 << FINE {
        return units as u16;
    }
    let octave = 63 - units.leading_zeros();
    let sub = (units >> (octave - FINE)) & ((1 << FINE) - 1);
    let bucket = u64::from(octave - FINE + 1) << FINE | sub;
    bucket.min(BUCKETS as u64 - 1) as u16
}

/// The shortest length of a fine bucket, ns; defined for one past the last too.
fn low_of(bucket: u64) -> u64 {
    if bucket < 1 << FINE {
        return bucket << UNIT;
    }
    let octave = (bucket >> FINE) + u64::from(FINE) - 1;
    let sub = bucket & ((1 << FINE) - 1);
    ((1 << FINE) + sub) << (octave - u64::from(FINE)) << UNIT
}

/// Histogram of interval lengths.
///
/// ```
/// use wallscope_model::histogram::{FINE, Histogram};
///
/// let mut waits = Histogram::new(FINE);
/// for ms in 1..=100 {
///     waits.add(ms * 1_000_000, 1.0);
/// }
/// let median = waits.quantile(0.5).expect("it has intervals");
/// assert!((45_000_000..56_000_000).contains(&median), "{median}");
/// assert_eq!((waits.count(), waits.max_ns), (100.0, 100_000_000));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Bits of subdivision: [`FINE`] or fewer.
    pub bits: u32,
    /// Non-empty buckets of that subdivision, ascending, with their number of intervals: whole
    /// numbers if intervals were counted, estimates if they were sampled.
    pub counts: Vec<(u16, f64)>,
    /// The longest interval, ns.
    pub max_ns: u64,
}

impl Histogram {
    /// Creates an empty histogram with the given subdivision.
    pub fn new(bits: u32) -> Histogram {
        Histogram {
            bits: bits.min(FINE),
            ..Histogram::default()
        }
    }

    /// Number of intervals.
    pub fn count(&self) -> f64 {
        self.counts.iter().map(|(_, n)| n).sum()
    }

    /// The bounds of a bucket, ns: from the first, to before the second.
    pub fn bounds(&self, bucket: u16) -> (u64, u64) {
        let shift = FINE - self.bits.min(FINE);
        let first = u64::from(bucket) << shift;
        (low_of(first), low_of(first + (1 << shift)))
    }

    /// Adds `count` intervals of `ns`.
    pub fn add(&mut self, ns: u64, count: f64) {
        self.add_bucket(bucket_of(ns) >> (FINE - self.bits), count);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds `count` intervals to a bucket; this does not change the longest interval.
    pub fn add_bucket(&mut self, bucket: u16, count: f64) {
        match self.counts.binary_search_by_key(&bucket, |(b, _)| *b) {
            Ok(i) => self.counts[i].1 += count,
            Err(i) => self.counts.insert(i, (bucket, count)),
        }
    }

    /// Adds another histogram; the result has the coarser subdivision of both.
    pub fn merge(&mut self, other: &Histogram) {
        if other.bits < self.bits {
            let mut coarse = Histogram::new(other.bits);
            for (bucket, count) in std::mem::take(&mut self.counts) {
                coarse.add_bucket(bucket >> (self.bits - other.bits), count);
            }
            (self.bits, self.counts) = (coarse.bits, coarse.counts);
        }
        for (bucket, count) in &other.counts {
            self.add_bucket(bucket >> (other.bits - self.bits), *count);
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// The length, ns, that a share `q` of the intervals does not exceed: the middle of its bucket,
    /// so within 1.6 % with fine and 11 % with coarse buckets. `None` without intervals.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = q.clamp(0.0, 1.0) * self.count();
        let mut sum = 0.0;
        let last = self.counts.last()?.0;
        for (bucket, count) in &self.counts {
            sum += count;
            if sum >= rank || *bucket == last {
                let (low, high) = self.bounds(*bucket);
                let middle = low + (high - low) / 2;
                let most = if self.max_ns >= low {
                    self.max_ns
                } else {
                    middle
                };
                return Some(middle.min(most));
            }
        }
        None
    }
}

/// The histogram of one state, or of one reason or part of it.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramRow {
    /// The context that spent the intervals; `None`: all threads.
    pub context: Option<ContextId>,
    /// The stack that spent them, if they were sampled by stack; `None`: all of them, counted.
    pub stack: Option<StackId>,
    /// The state.
    pub state: State,
    /// For blocked time: the reason; `None`: all.
    pub reason: Option<BlockReason>,
    /// For runnable time: the part; `None`: all.
    pub part: Option<Part>,
    /// The intervals. One that crosses the window's edge counts with its part inside.
    pub histogram: Histogram,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_without_gaps() {
        let mut end = 0;
        for bucket in 0..BUCKETS as u64 {
            let (low, high) = (low_of(bucket), low_of(bucket + 1));
            assert_eq!(low, end);
            assert!(high > low);
            end = high;
            assert_eq!(u64::from(bucket_of(low)), bucket);
            assert_eq!(u64::from(bucket_of(high - 1)), bucket);
            if low >= 1000 {
                assert!((high - low) as f64 / low as f64 <= 1.0 / 32.0);
            }
        }
        assert!(end > 1_000_000_000_000);
        assert_eq!(bucket_of(u64::MAX) as usize, BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_their_error() {
        for bits in [FINE, COARSE] {
            let mut histogram = Histogram::new(bits);
            // 1 µs … 10 ms, evenly.
            for us in 1..=10_000u64 {
                histogram.add(us * 1000, 1.0);
            }
            for q in [0.1, 0.5, 0.9, 0.99] {
                let truth = q * 1e7;
                let off = (histogram.quantile(q).unwrap() as f64 / truth - 1.0).abs();
                let most = if bits == FINE { 0.016 } else { 0.112 };
                assert!(off <= most, "{bits} bits, {q}: {off}");
            }
            assert_eq!(histogram.max_ns, 10_000_000);
            assert_eq!(histogram.count(), 10_000.0);
        }
        assert_eq!(Histogram::new(FINE).quantile(0.5), None);
    }

    #[test]
    fn histograms_of_different_grain_add() {
        let mut fine = Histogram::new(FINE);
        fine.add(2_000_000, 50.0);
        let mut coarse = Histogram::new(COARSE);
        coarse.add(100_000_000, 1.0);
        fine.merge(&coarse);
        assert_eq!(
            (fine.bits, fine.count(), fine.max_ns),
            (COARSE, 51.0, 100_000_000)
        );
        let p50 = fine.quantile(0.5).unwrap() as f64;
        assert!((p50 / 2e6 - 1.0).abs() < 0.12, "{p50}");
        assert!(fine.quantile(1.0) <= Some(100_000_000));
    }
}
