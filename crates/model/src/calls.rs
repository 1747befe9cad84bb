//! Calls of single functions: their number, their lengths, and the states of their time.
//!
//! Lengths are counted in a log-linear histogram (as Tene's HdrHistogram): octaves of [`FINE`]
//! equal parts, so that the middle of a part is within 0.8 % of every length in it. Beside it, the
//! sums of the calls' own ledgers are kept, with [`COARSE`] parts to an octave. They tell the
//! states of calls of a given length. The kernel programs count by the same divisions.

use crate::{BlockReason, Domain, Ledger, Loss, Runnable};

/// Parts of an octave, for lengths.
pub const FINE: usize = 64;
/// Parts of an octave, for ledgers.
pub const COARSE: usize = 8;
/// Octaves. The first holds lengths below [`FINE`] ns, the last everything above 73 minutes.
pub const OCTAVES: usize = 38;

/// The shortest length of part `part` of `parts` in `octave`, ns.
fn low(octave: usize, part: usize, parts: usize) -> u64 {
    let step = FINE / parts;
    let fine = (part * step) as u64;
    match octave {
        0 => fine,
        n => (FINE as u64 + fine) << (n - 1),
    }
}

/// Octave and fine part of a length in ns.
fn place(ns: u64) -> (usize, usize) {
    if ns < FINE as u64 {
        return (0, ns as usize);
    }
    let octave = ns.ilog2() as usize - 5;
    if octave >= OCTAVES {
        return (OCTAVES - 1, FINE - 1);
    }
    (octave, (ns >> (octave - 1)) as usize & (FINE - 1))
}

/// Histogram of the lengths of calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// By octave and part, `OCTAVES × FINE`.
    counts: Vec<u64>,
}

impl Default for Lengths {
    fn default() -> Self {
        Lengths {
            counts: vec![0; OCTAVES * FINE],
        }
    }
}

impl Lengths {
    /// Adds `count` calls to a part of an octave; an index out of range counts as the last.
    pub fn add_part(&mut self, octave: usize, part: usize, count: u64) {
        let at = octave.min(OCTAVES - 1) * FINE + part.min(FINE - 1);
        self.counts[at] += count;
    }

    /// Adds `count` calls of `ns`.
    pub fn add(&mut self, ns: u64, count: u64) {
        let (octave, part) = place(ns);
        self.add_part(octave, part, count);
    }

    /// Adds the calls of `other`.
    pub fn merge(&mut self, other: &Lengths) {
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a += b;
        }
    }

    /// The calls added since `earlier`, an older state of this histogram.
    pub fn since(&self, earlier: &Lengths) -> Lengths {
        let pairs = self.counts.iter().zip(&earlier.counts);
        Lengths {
            counts: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    /// Number of calls.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Occupied parts in ascending order: the shortest length, one past the longest, and the number
    /// of calls.
    pub fn parts(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter(|(_, n)| **n > 0)
            .map(|(at, n)| {
                let (octave, part) = (at / FINE, at % FINE);
                let end = match part + 1 {
                    FINE => low(octave + 1, 0, FINE),
                    next => low(octave, next, FINE),
                };
                (low(octave, part, FINE), end, *n)
            })
    }

    /// The length, ns, that a share `q` of the calls does not exceed: the middle of its part,
    /// within 0.8 % of the truth. `None` without calls.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut sum = 0;
        for (from, to, n) in self.parts() {
            sum += n;
            if sum >= rank {
                return Some(from + (to - from) / 2);
            }
        }
        None
    }

    /// Corrects for coordinated omission, as HdrHistogram does. Each call longer than `interval` is
    /// taken to have delayed the calls due meanwhile. Their waits are added: `length − interval`,
    /// `length − 2 · interval` and so on.
    pub fn corrected(&self, interval: u64) -> Lengths {
        let mut out = self.clone();
        if interval == 0 {
            return out;
        }
        for (from, to, n) in self.parts() {
            let mut missing = (from + (to - from) / 2).saturating_sub(interval);
            while missing >= interval {
                out.add(missing, n);
                missing -= interval;
            }
        }
        out
    }
}

/// Time of some calls by state, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBooks {
    /// On a CPU.
    pub on_cpu: u64,
    /// Waiting for a CPU.
    pub runnable: Runnable,
    /// Blocked, by `BlockReason as usize`.
    pub blocked: [u64; BlockReason::COUNT],
}

impl CallBooks {
    /// The sum of all states, ns.
    pub fn total(&self) -> u64 {
        self.on_cpu + self.runnable.total() + self.blocked.iter().sum::<u64>()
    }

    /// Adds the time of `other`.
    pub fn add(&mut self, other: &CallBooks) {
        self.on_cpu += other.on_cpu;
        self.runnable.woken += other.runnable.woken;
        self.runnable.preempted += other.runnable.preempted;
        self.runnable.throttled += other.runnable.throttled;
        for (a, b) in self.blocked.iter_mut().zip(other.blocked) {
            *a += b;
        }
    }

    /// The non-zero parts, by the contract's names, largest first.
    pub fn parts(&self) -> Vec<(&'static str, u64)> {
        let mut parts = vec![
            ("on_cpu", self.on_cpu),
            ("woken", self.runnable.woken),
            ("preempted", self.runnable.preempted),
            ("throttled", self.runnable.throttled),
        ];
        let reasons = BlockReason::ALL.iter().map(|r| r.name());
        parts.extend(reasons.zip(self.blocked));
        parts.retain(|(_, ns)| *ns > 0);
        parts.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        parts
    }

    /// Converts to a ledger of `wall` ns.
    pub fn ledger(&self, wall: u64) -> Ledger {
        let mut ledger = Ledger {
            wall_ns: wall,
            runnable: self.runnable,
            blocked: self.blocked,
            ..Ledger::default()
        };
        ledger.on_cpu.user = self.on_cpu;
        ledger
    }
}

/// Calls of about equal length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Band {
    /// Number of calls.
    pub count: u64,
    /// Sum of their lengths, ns.
    pub wall: u64,
    /// Their time by state.
    pub books: CallBooks,
}

impl Band {
    /// A share of the band, as its calls are alike.
    fn part(&self, share: f64) -> Band {
        let of = |n: u64| (n as f64 * share).round() as u64;
        let b = &self.books;
        Band {
            count: of(self.count),
            wall: of(self.wall),
            books: CallBooks {
                on_cpu: of(b.on_cpu),
                runnable: Runnable {
                    woken: of(b.runnable.woken),
                    preempted: of(b.runnable.preempted),
                    throttled: of(b.runnable.throttled),
                },
                blocked: b.blocked.map(of),
            },
        }
    }

    /// Adds the calls of `other`.
    pub fn add(&mut self, other: &Band) {
        self.count += other.count;
        self.wall += other.wall;
        self.books.add(&other.books);
    }
}

/// Counts of calls by their end. `entered` counts all calls; the others are parts of it, except
/// `begun`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All calls.
    pub entered: u64,
    /// Calls with a seen end: these have lengths.
    pub ended: u64,
    /// Of `ended`: ended by a tail call that could not be followed. The length reaches up to it.
    pub by_tail_call: u64,
    /// Of `ended`: left by an exception. The length reaches up to its handler.
    pub by_exception: u64,
    /// Calls without a return: left by an exception or `longjmp`, or ended with their thread.
    pub left: u64,
    /// Calls nested too deep to be timed.
    pub deep: u64,
    /// Returns of calls that began before the measurement.
    pub begun: u64,
}

impl Tally {
    /// Calls without an end yet.
    pub fn open(&self) -> u64 {
        self.entered
            .saturating_sub(self.ended + self.left + self.deep)
    }
}

/// Calls of one function in one slice of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSlice {
    /// Start, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// End, CLOCK_MONOTONIC ns.
    pub end_ns: u64,
    /// Calls that began in the slice.
    pub entered: u64,
    /// Lengths of calls that ended in it.
    pub lengths: Lengths,
}

/// The calls of one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionCalls {
    /// The function's name.
    pub name: String,
    /// File name of its module; empty for kernel events.
    pub module: String,
    /// Its probes, in words.
    pub probes: String,
    /// Counts by end.
    pub tally: Tally,
    /// Lengths of the calls that ended, less the probes' overhead.
    pub lengths: Lengths,
    /// The longest call, ns.
    pub longest: u64,
    /// Sum of all lengths, ns.
    pub wall: u64,
    /// Ledgers by length, `OCTAVES × COARSE`; empty if calls were only counted.
    pub bands: Vec<Band>,
    /// Probe overhead subtracted from each length, ns.
    pub subtracted: u64,
    /// The calls by slice of time.
    pub slices: Vec<CallSlice>,
}

impl FunctionCalls {
    /// All calls that ended, as one band.
    pub fn total(&self) -> Band {
        let mut sum = Band::default();
        self.bands.iter().for_each(|b| sum.add(b));
        sum
    }

    /// The calls between two quantiles. A band across a quantile (12.5 % of length) contributes its
    /// share between them.
    pub fn between(&self, from: f64, to: f64) -> Band {
        let all: u64 = self.bands.iter().map(|b| b.count).sum();
        let (first, last) = (from * all as f64, to * all as f64);
        let mut before = 0.0;
        let mut sum = Band::default();
        for band in &self.bands {
            let after = before + band.count as f64;
            let within = after.min(last) - before.max(first);
            if within >= band.count as f64 {
                sum.add(band);
            } else if within > 0.0 {
                sum.add(&band.part(within / band.count as f64));
            }
            before = after;
        }
        sum
    }

    /// The length, ns, that a share `q` of the calls does not exceed.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let middle = self.lengths.quantile(q)?;
        Some(middle.min(self.longest.max(1)))
    }
}

/// A single slow call.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowCall {
    /// Index of its function.
    pub function: usize,
    /// Start, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// Length, ns.
    pub length: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The thread's name.
    pub thread: String,
    /// Its time by state.
    pub books: CallBooks,
}

/// A single call, in a measurement that keeps every call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index of its function.
    pub function: usize,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Start, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// End, CLOCK_MONOTONIC ns.
    pub end_ns: u64,
    /// Length less the probes' overhead, ns.
    pub length: u64,
    /// Its time by state.
    pub books: CallBooks,
}

/// The result of measuring calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The functions in the order of their first mention.
    pub functions: Vec<FunctionCalls>,
    /// The longest calls, longest first.
    pub slowest: Vec<SlowCall>,
    /// Start of the measurement, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// End of the measurement, CLOCK_MONOTONIC ns.
    pub end_ns: u64,
    /// Start of the measurement, Unix time in ns.
    pub start_unix_ns: u64,
    /// Whether lengths were measured, not only counts.
    pub timed: bool,
    /// The measurement's domain.
    pub domain: Domain,
    /// Losses by cause.
    pub losses: Vec<Loss>,
    /// Probe overhead of the target, ns: predicted cost times number of calls.
    pub probe_ns: u64,
    /// Reason why the measurement ended early, if it did.
    pub stopped: Option<String>,
}

impl Calls {
    /// Length of the measurement, ns.
    pub fn window_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_no_gaps_and_are_narrow() {
        let mut end = 0;
        for at in 0..OCTAVES * FINE {
            let mut lengths = Lengths::default();
            lengths.add_part(at / FINE, at % FINE, 1);
            let (from, to, n) = lengths.parts().next().unwrap();
            assert_eq!((from, n), (end, 1));
            assert_eq!(place(from), (at / FINE, at % FINE));
            assert_eq!(place(to - 1), (at / FINE, at % FINE));
            if from >= 64 {
                assert!((to - from) as f64 / from as f64 <= 1.0 / 64.0);
            }
            end = to;
        }
        assert_eq!(place(u64::MAX), (OCTAVES - 1, FINE - 1));
    }

    #[test]
    fn quantiles_are_within_one_per_cent() {
        let mut lengths = Lengths::default();
        for us in 1..=10_000u64 {
            lengths.add(us * 1000, 1);
        }
        for q in [0.1, 0.5, 0.9, 0.99, 0.999] {
            let off = (lengths.quantile(q).unwrap() as f64 / (q * 1e7) - 1.0).abs();
            assert!(off <= 0.008, "{q}: {off}");
        }
        assert_eq!(Lengths::default().quantile(0.5), None);
    }

    #[test]
    fn omission_is_corrected_as_hdrhistogram_does() {
        let mut lengths = Lengths::default();
        lengths.add(1_000, 10);
        lengths.add(10_000, 1);
        let corrected = lengths.corrected(1_000);
        // A call of 10 µs implies further calls of 9, 8, … 1 µs.
        assert_eq!(corrected.count(), 11 + 9);
        assert_eq!(lengths.corrected(0), lengths);
    }

    #[test]
    fn bands_between_quantiles() {
        let mut calls = FunctionCalls {
            bands: vec![Band::default(); OCTAVES * COARSE],
            ..FunctionCalls::default()
        };
        let mut put = |at: usize, count: u64, disk: u64| {
            calls.bands[at].count = count;
            calls.bands[at].wall = count * 10;
            calls.bands[at].books.blocked[BlockReason::Disk as usize] = disk;
        };
        put(10, 980, 0);
        put(100, 20, 8);
        assert_eq!(calls.between(0.25, 0.75).count, 500);
        let slow = calls.between(0.99, 1.0);
        assert_eq!((slow.count, slow.books.parts()), (10, vec![("disk", 4)]));
        let slow = calls.between(0.97, 1.0);
        assert_eq!((slow.count, slow.books.parts()), (30, vec![("disk", 8)]));
        assert_eq!(calls.total().count, 1000);
    }
}
