//! Calls of single functions: how many, how long each, and what their time went on.
//!
//! Lengths are counted in a log-linear histogram (as Tene's HdrHistogram): octaves of [`FINE`] equal
//! parts, so that the middle of a part is within 0.8 % of every length in it. Beside it, for parts of
//! [`COARSE`] to an octave, stand the sums of the calls' own ledgers, so that calls of some length
//! can be asked what they waited for. The kernel programs count by the same divisions.

use crate::{BlockReason, Domain, Ledger, Loss, Runnable};

/// Parts of an octave, for lengths.
pub const FINE: usize = 64;
/// Parts of an octave, for ledgers.
pub const COARSE: usize = 8;
/// Octaves; the first holds what is shorter than [`FINE`] ns, the last everything above 73 minutes.
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

/// Octave and fine part of a length.
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

/// How many calls there were of each length.
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
    /// Adds `count` calls to a part of an octave; indices out of range are those of the last.
    pub fn add_part(&mut self, octave: usize, part: usize, count: u64) {
        let at = octave.min(OCTAVES - 1) * FINE + part.min(FINE - 1);
        self.counts[at] += count;
    }

    /// Adds `count` calls of `ns`.
    pub fn add(&mut self, ns: u64, count: u64) {
        let (octave, part) = place(ns);
        self.add_part(octave, part, count);
    }

    /// Adds another's calls.
    pub fn merge(&mut self, other: &Lengths) {
        for (a, b) in self.counts.iter_mut().zip(&other.counts) {
            *a += b;
        }
    }

    /// What has come since `earlier`, an older state of the same counts.
    pub fn since(&self, earlier: &Lengths) -> Lengths {
        let pairs = self.counts.iter().zip(&earlier.counts);
        Lengths {
            counts: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
        }
    }

    /// How many calls.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Occupied parts in ascending order: the first length, the first behind, and how many calls.
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

    /// The length, ns, that a share `q` of the calls does not exceed: the middle of its part, within
    /// 0.8 % of the truth. `None` without calls.
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

    /// The same counts as they would be had each call that was longer than `interval` delayed the
    /// ones that were due meanwhile (coordinated omission): for each, the waits of those are added, at
    /// `length − interval`, `length − 2 · interval` and so on, as HdrHistogram does.
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

/// Where the time of some calls went, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallBooks {
    /// On a CPU.
    pub on_cpu: u64,
    /// Waiting for one.
    pub runnable: Runnable,
    /// Blocked, by `BlockReason as usize`.
    pub blocked: [u64; BlockReason::COUNT],
}

impl CallBooks {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.on_cpu + self.runnable.total() + self.blocked.iter().sum::<u64>()
    }

    /// Adds another's.
    pub fn add(&mut self, other: &CallBooks) {
        self.on_cpu += other.on_cpu;
        self.runnable.woken += other.runnable.woken;
        self.runnable.preempted += other.runnable.preempted;
        self.runnable.throttled += other.runnable.throttled;
        for (a, b) in self.blocked.iter_mut().zip(other.blocked) {
            *a += b;
        }
    }

    /// Its parts that are not nothing, by the contract's names, the largest first.
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

    /// As a ledger of `wall` ns.
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

/// Calls of about the same length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Band {
    /// How many.
    pub count: u64,
    /// Sum of their lengths, ns.
    pub wall: u64,
    /// Where that went.
    pub books: CallBooks,
}

impl Band {
    /// A share of it, as calls of about the same length are alike.
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

    /// Adds other calls.
    pub fn add(&mut self, other: &Band) {
        self.count += other.count;
        self.wall += other.wall;
        self.books.add(&other.books);
    }
}

/// How calls were counted and how they ended. `entered` is all; the others are parts of it, but for
/// `begun`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Calls.
    pub entered: u64,
    /// Of which the end was seen: these have lengths.
    pub ended: u64,
    /// Of those, ended by a tail call that could not be followed: the length goes up to it.
    pub by_tail_call: u64,
    /// Of those, left by an exception: the length goes up to where it was caught.
    pub by_exception: u64,
    /// Left without a return: by an exception or `longjmp`, or with their thread.
    pub left: u64,
    /// Too deep in other calls to be timed.
    pub deep: u64,
    /// Returns of calls that began before the first look.
    pub begun: u64,
}

impl Tally {
    /// Calls without an end yet.
    pub fn open(&self) -> u64 {
        self.entered
            .saturating_sub(self.ended + self.left + self.deep)
    }
}

/// What a stretch of time saw of one function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CallSlice {
    /// Begin, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Calls that began in it.
    pub entered: u64,
    /// Lengths of those that ended in it.
    pub lengths: Lengths,
}

/// One function's calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FunctionCalls {
    /// Its name.
    pub name: String,
    /// File name of its module; empty for events of the kernel.
    pub module: String,
    /// How it was probed, in words.
    pub probes: String,
    /// Counts.
    pub tally: Tally,
    /// Lengths of the calls that ended, without what the probes cost.
    pub lengths: Lengths,
    /// The longest call, ns.
    pub longest: u64,
    /// All lengths, ns.
    pub wall: u64,
    /// Ledgers by length, `OCTAVES × COARSE`; empty where only counted.
    pub bands: Vec<Band>,
    /// What was taken off each length for the probes' own time, ns.
    pub subtracted: u64,
    /// Over time.
    pub slices: Vec<CallSlice>,
}

impl FunctionCalls {
    /// All calls that ended, as one band.
    pub fn total(&self) -> Band {
        let mut sum = Band::default();
        self.bands.iter().for_each(|b| sum.add(b));
        sum
    }

    /// The calls between two quantiles; of a band that is cut (12.5 % of length) the share that lies
    /// between.
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

/// A single call that was long.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowCall {
    /// Index of its function.
    pub function: usize,
    /// Begin, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// Length, ns.
    pub length: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The thread's name.
    pub thread: String,
    /// Where its time went.
    pub books: CallBooks,
}

/// One call among all, where each is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Index of its function.
    pub function: usize,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Begin, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Length without what the probes cost, ns.
    pub length: u64,
    /// Where its time went.
    pub books: CallBooks,
}

/// What was measured of all asked functions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calls {
    /// The functions in the order of their first mention.
    pub functions: Vec<FunctionCalls>,
    /// The longest calls of all, the longest first.
    pub slowest: Vec<SlowCall>,
    /// Begin of measuring, CLOCK_MONOTONIC ns.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Begin, Unix time in ns.
    pub start_unix_ns: u64,
    /// Lengths were measured, not only counts.
    pub timed: bool,
    /// What was measured and how.
    pub domain: Domain,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// What the probes cost the target, by their predicted cost each and the calls counted, ns.
    pub probe_ns: u64,
    /// Why it ended before its time, if it did.
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
        // 10 µs stands for further calls of 9, 8, … 1 µs.
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
