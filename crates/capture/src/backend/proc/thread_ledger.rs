//! One thread's time by slice and kind, from [`super::counters`] or from the switch records of perf events, summed
//! at the end.
//!
//! Only polls see block reasons, so each slice's blocked time is divided among the reasons as they were seen. If
//! switches are recorded, time off the CPU is exact, and run-queue latency after the wake-up is taken out of it. The
//! reasons seen in waits of one length then stand for all waits of that length, as do their stacks
//! ([`crate::backend::perf::wait_strata`]).

use std::collections::BTreeMap;

use wallscope_model::{BlockReason, LedgerSlice, Slices};

use super::{
    spans::Spans,
    time_kind::{ANY, TimeKind},
};
use crate::{backend::perf::wait_strata::WaitStrata, slices::spread};

/// Time of one kind in one slice.
#[derive(Clone, Copy, Debug)]
struct Entry {
    slice: u32,
    kind: TimeKind,
    ns: u64,
}

/// Time of one thread by slice and kind. Times are ns on the recording's clock.
#[derive(Clone, Debug)]
pub struct ThreadLedger {
    /// When the thread began to exist within the window.
    pub start_ns: u64,
    /// Up to when its time is booked.
    pub seen_ns: u64,
    /// The single intervals, where they are kept.
    pub spans: Option<Spans>,
    entries: Vec<Entry>,
}

/// A thread's ledger with the slices into which time is booked now.
#[derive(Debug)]
pub struct SlicedLedger<'a> {
    /// The ledger.
    pub ledger: &'a mut ThreadLedger,
    /// The slices.
    pub grid: Slices,
}

/// Sums of a ledger at the end, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// On-CPU time.
    pub on_cpu: u64,
    /// Run-queue latency after wake-ups and the birth; if causes are not known, all run-queue latency.
    pub woken: u64,
    /// Run-queue latency after preemptions.
    pub preempted: u64,
    /// Blocked time by reason.
    pub blocked: [u64; BlockReason::COUNT],
    /// Time of which nothing is known.
    pub unknown: u64,
    /// These sums by slice, `context` left at 0.
    pub slices: Vec<LedgerSlice>,
}

impl ThreadLedger {
    /// Begins at `start_ns`.
    pub fn new(start_ns: u64) -> ThreadLedger {
        ThreadLedger {
            start_ns,
            seen_ns: start_ns,
            spans: None,
            entries: Vec::new(),
        }
    }

    /// The ledger, to book into these slices.
    pub fn sliced(&mut self, grid: Slices) -> SlicedLedger<'_> {
        SlicedLedger { ledger: self, grid }
    }

    /// Gives `ns` to one slice.
    pub fn put(&mut self, slice: u32, kind: TimeKind, ns: u64) {
        if ns == 0 {
            return;
        }
        let recent = self.entries.len().saturating_sub(8);
        let known = self.entries[recent..]
            .iter_mut()
            .find(|e| e.slice == slice && e.kind == kind);
        match known {
            Some(e) => e.ns += ns,
            None => self.entries.push(Entry { slice, kind, ns }),
        }
    }

    /// Rows by slice and kind.
    pub fn rows(&self) -> usize {
        self.entries.len()
    }

    /// The slices are twice as wide from here on.
    pub fn coarsen(&mut self) {
        for mut e in std::mem::take(&mut self.entries) {
            e.slice /= 2;
            self.put(e.slice, e.kind, e.ns);
        }
    }

    /// Block reasons as they were seen: reason, class of the wait by length, weight.
    pub fn seen(&self) -> impl Iterator<Item = (BlockReason, u8, u64)> {
        self.entries.iter().filter_map(|e| match e.kind {
            TimeKind::Seen(reason, class) => Some((reason, class, e.ns)),
            _ => None,
        })
    }

    /// Has its blocked time divided like that of similar threads.
    pub fn impute(&mut self, weights: &[u64; BlockReason::COUNT]) {
        let Some(slice) = self.entries.first().map(|e| e.slice) else {
            return;
        };
        for (reason, ns) in BlockReason::ALL.iter().zip(weights) {
            self.put(slice, TimeKind::Seen(*reason, ANY), *ns);
        }
    }

    /// Sums up the ledger. `waits`: the lengths of all waits, if they are recorded.
    pub fn finish(mut self, waits: &WaitStrata) -> Totals {
        self.weigh(waits);
        self.entries.sort_by_key(|e| e.slice);
        let mut seen = [0u64; BlockReason::COUNT];
        for (reason, _, ns) in self.seen() {
            seen[reason as usize] += ns;
        }
        let mut totals = Totals::default();
        for group in self.entries.chunk_by(|a, b| a.slice == b.slice) {
            let mut row = LedgerSlice {
                slice: group[0].slice,
                ..LedgerSlice::default()
            };
            let (mut blocked, mut woken, mut put_off) = (0, 0, 0);
            let mut here = [0u64; BlockReason::COUNT];
            for e in group {
                match e.kind {
                    TimeKind::OnCpu => row.on_cpu_ns += e.ns,
                    TimeKind::Queued | TimeKind::Woken => woken += e.ns,
                    TimeKind::PutOff => put_off += e.ns,
                    TimeKind::Blocked | TimeKind::Off => blocked += e.ns,
                    TimeKind::Unknown => totals.unknown += e.ns,
                    TimeKind::Seen(reason, _) => here[reason as usize] += e.ns,
                }
            }
            row.runnable_ns = woken + put_off;
            let by = if here.iter().any(|ns| *ns > 0) {
                &here
            } else {
                &seen
            };
            row.blocked = divide(blocked, by);
            totals.on_cpu += row.on_cpu_ns;
            totals.woken += woken;
            totals.preempted += put_off;
            for (sum, ns) in totals.blocked.iter_mut().zip(row.blocked) {
                *sum += ns;
            }
            totals.slices.push(row);
        }
        totals
    }

    /// Scales the reasons that were seen in waits of a class to the time of all waits of that class.
    fn weigh(&mut self, waits: &WaitStrata) {
        let mut seen: BTreeMap<u8, u64> = BTreeMap::new();
        for (_, class, ns) in self.seen().filter(|(_, class, _)| *class != ANY) {
            *seen.entry(class).or_default() += ns;
        }
        let classes: Vec<u8> = seen.keys().copied().collect();
        let waits = waits.among(&classes);
        for e in &mut self.entries {
            if let TimeKind::Seen(_, class) = e.kind
                && let Some(of) = seen.get(&class)
            {
                let all = u128::from(waits.of(class).ns);
                e.ns = (u128::from(e.ns) * all / u128::from((*of).max(1))) as u64;
            }
        }
    }
}

impl SlicedLedger<'_> {
    /// Gives `ns` to the slices that `begin..end` covers, by their shares of it.
    pub fn add(&mut self, begin: u64, end: u64, kind: TimeKind, ns: u64) {
        if let Some(spans) = &mut self.ledger.spans {
            spans.note(begin, end, kind);
        }
        for (slice, part) in spread(self.grid, begin, end, ns) {
            self.ledger.put(slice, kind, part);
        }
    }

    /// Moves up to `ns` of the time of kind `from` to kind `to`, the latest first, but nothing from
    /// before the slice of time `since`. Returns the time moved, ns.
    pub fn shift(&mut self, since: u64, from: TimeKind, to: TimeKind, ns: u64) -> u64 {
        let Slices {
            start_ns, width_ns, ..
        } = self.grid;
        let first = (since.saturating_sub(start_ns) / width_ns.max(1)) as u32;
        let (mut left, mut moved) = (ns, Vec::new());
        for e in self.ledger.entries.iter_mut().rev() {
            if e.slice.saturating_add(1) < first || left == 0 {
                break;
            }
            if e.kind == from && e.slice >= first {
                let part = e.ns.min(left);
                e.ns -= part;
                left -= part;
                moved.push((e.slice, part));
            }
        }
        for (slice, part) in moved.into_iter().rev() {
            self.ledger.put(slice, to, part);
        }
        ns - left
    }
}

/// Divides `ns` by `weights`, to the nanosecond; without any weight it is `other`.
fn divide(ns: u64, weights: &[u64; BlockReason::COUNT]) -> [u64; BlockReason::COUNT] {
    let all: u128 = weights.iter().map(|w| u128::from(*w)).sum();
    let mut parts = [0; BlockReason::COUNT];
    if all == 0 {
        parts[BlockReason::Other as usize] = ns;
        return parts;
    }
    let (mut sum, mut given) = (0u128, 0u64);
    for (part, weight) in parts.iter_mut().zip(weights) {
        sum += u128::from(*weight);
        let upto = (u128::from(ns) * sum / all) as u64;
        *part = upto - given;
        given = upto;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::perf::wait_strata::class;

    const GRID: Slices = Slices {
        start_ns: 0,
        width_ns: 50,
        count: 0,
    };

    #[test]
    fn reasons_divide_blocked_time_as_they_were_seen() {
        let mut b = ThreadLedger::new(0);
        b.sliced(GRID).add(0, 100, TimeKind::Blocked, 80);
        b.sliced(GRID)
            .add(0, 50, TimeKind::Seen(BlockReason::Lock, ANY), 3);
        b.sliced(GRID)
            .add(0, 50, TimeKind::Seen(BlockReason::Pipe, ANY), 1);
        let t = b.finish(&WaitStrata::default());
        assert_eq!(t.blocked[BlockReason::Lock as usize], 60);
        assert_eq!(t.blocked[BlockReason::Pipe as usize], 20);
        // No reason was seen in the second slice: it is divided like all slices together.
        assert_eq!(t.slices[1].blocked[BlockReason::Lock as usize], 30);
    }

    #[test]
    fn polled_waits_of_a_length_stand_for_all_waits_of_it() {
        let mut b = ThreadLedger::new(0);
        b.sliced(GRID).add(0, 50, TimeKind::Off, 50);
        let (short, long) = (class(20_000), class(5_000_000));
        // Polls saw the reason of one in ten short waits, and of all long waits.
        for (reason, class, ns) in [
            (BlockReason::Disk, short, 30),
            (BlockReason::Pipe, short, 10),
            (BlockReason::Lock, long, 600),
        ] {
            b.sliced(GRID).add(0, 50, TimeKind::Seen(reason, class), ns);
        }
        let mut waits = WaitStrata::default();
        (0..20).for_each(|_| waits.add(20_000));
        waits.add(4_600_000);
        let t = b.finish(&waits);
        let of = |reason| t.blocked[reason as usize];
        let parts = [BlockReason::Disk, BlockReason::Pipe, BlockReason::Lock].map(of);
        assert_eq!(parts, [3, 1, 46]);
    }

    #[test]
    fn wider_slices_hold_the_same_time() {
        let mut b = ThreadLedger::new(0);
        b.sliced(GRID).add(0, 200, TimeKind::Off, 200);
        b.sliced(GRID).add(60, 70, TimeKind::OnCpu, 10);
        b.coarsen();
        let wide = Slices {
            width_ns: 100,
            ..GRID
        };
        assert_eq!(
            b.sliced(wide)
                .shift(120, TimeKind::Off, TimeKind::Woken, 150),
            100
        );
        let t = b.finish(&WaitStrata::default());
        let rows: Vec<_> = t.slices.iter().map(|s| (s.slice, s.on_cpu_ns)).collect();
        assert_eq!(rows, [(0, 10), (1, 0)]);
        assert_eq!(
            (t.woken, t.blocked[BlockReason::Other as usize]),
            (100, 100)
        );
    }

    #[test]
    fn waiting_is_taken_out_of_the_latest_time_off() {
        let mut b = ThreadLedger::new(0);
        b.sliced(GRID).add(0, 100, TimeKind::Off, 100);
        assert_eq!(
            b.sliced(GRID).shift(0, TimeKind::Off, TimeKind::Woken, 70),
            70
        );
        assert_eq!(
            b.sliced(GRID).shift(60, TimeKind::Off, TimeKind::Woken, 70),
            0
        );
        let t = b.clone().finish(&WaitStrata::default());
        assert_eq!((t.woken, t.blocked[BlockReason::Other as usize]), (70, 30));
        assert_eq!((t.slices[0].runnable_ns, t.slices[1].runnable_ns), (20, 50));
        assert_eq!(
            b.sliced(GRID).shift(0, TimeKind::Off, TimeKind::Woken, 70),
            30
        );
    }
}
