//! The books of one thread without eBPF: the scheduler's own counters, read now and then.
//!
//! Between two looks a thread computed for as long as `schedstat` says, waited for a CPU for as
//! long as it says, and the rest of the time it was blocked: of the three only the last is a
//! difference, and it is exact because the other two are. What it was blocked *for* is seen at the
//! looks only, so each slice's blocked time is divided among the reasons as they were seen.
//!
//! The counters lag for a thread that is computing or queueing right now (to the next tick, and to
//! its next turn). Time since the last look of such a thread is therefore held back until the
//! counters have moved on.

use wallscope_model::{BlockReason, LedgerSlice, Slices};
use wallscope_object::process::SchedStat;

/// What a look saw the thread do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// On a CPU, or waiting for one.
    Running,
    /// Blocked.
    Blocked(BlockReason),
}

const ON_CPU: u8 = 0;
const RUNNABLE: u8 = 1;
const BLOCKED: u8 = 2;
/// From here on: time for which a reason was seen.
const SEEN: u8 = 3;

/// Time of one kind in one slice.
#[derive(Clone, Copy, Debug)]
struct Entry {
    slice: u32,
    kind: u8,
    ns: u64,
}

/// See the top of this file. Times are ns on the recording's clock.
#[derive(Clone, Debug)]
pub struct Book {
    /// When the thread began to exist within the window.
    pub start_ns: u64,
    /// Time of the last look.
    pub seen_ns: u64,
    last: SchedStat,
    /// The end of the stretch that is not yet given to a state.
    pending: u64,
    /// Whether the counters stood still during all of `pending`.
    still: bool,
    /// What the counters said beyond the clock, to be taken from blocked time to come.
    debt: u64,
    entries: Vec<Entry>,
}

/// What a book says at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// On-CPU time.
    pub on_cpu: u64,
    /// Time waiting for a CPU.
    pub runnable: u64,
    /// Blocked time by reason.
    pub blocked: [u64; BlockReason::COUNT],
    /// The same by slice, `context` left at 0.
    pub slices: Vec<LedgerSlice>,
}

impl Book {
    /// Begins at `start_ns`, when the counters stood at `base`.
    pub fn new(start_ns: u64, base: SchedStat) -> Book {
        Book {
            start_ns,
            seen_ns: start_ns,
            last: base,
            pending: 0,
            still: true,
            debt: 0,
            entries: Vec::new(),
        }
    }

    /// Whether the thread has not run since the last look.
    pub fn unchanged(&self, books: SchedStat) -> bool {
        self.last == books
    }

    /// One look at `now`. `period`: for how long at most a sight of a thread stands that ran in
    /// between. Returns the time for which the sight counts as a sample.
    pub fn look(
        &mut self,
        now: u64,
        books: SchedStat,
        doing: Doing,
        period: u64,
        grid: Slices,
    ) -> u64 {
        let begin = self.seen_ns;
        let dt = now.saturating_sub(begin);
        let unchanged = self.unchanged(books);
        let on_cpu = books.on_cpu_ns.saturating_sub(self.last.on_cpu_ns);
        let runnable = books.run_delay_ns.saturating_sub(self.last.run_delay_ns);
        self.add(grid, begin, now, ON_CPU, on_cpu);
        self.add(grid, begin, now, RUNNABLE, runnable);
        let have = self.pending + dt;
        let taken = on_cpu + runnable + self.debt;
        self.debt = taken.saturating_sub(have);
        let mut rest = have.saturating_sub(taken);
        self.pending = match doing {
            Doing::Running if unchanged => rest,
            Doing::Running => rest.min(dt),
            Doing::Blocked(_) => 0,
        };
        self.still = doing == Doing::Running && unchanged && (self.still || self.pending == dt);
        rest -= self.pending;
        self.add(grid, begin, now, BLOCKED, rest);
        let weight = if unchanged { dt } else { dt.min(period) };
        if let Doing::Blocked(reason) = doing {
            self.add(grid, now - weight, now, SEEN + reason as u8, weight);
        }
        (self.last, self.seen_ns) = (books, now);
        weight
    }

    /// Gives `ns` to the slices that `begin..end` covers, by their shares of it.
    fn add(&mut self, grid: Slices, begin: u64, end: u64, kind: u8, ns: u64) {
        if ns == 0 {
            return;
        }
        for (slice, part) in spread(grid, begin, end, ns) {
            let recent = self.entries.len().saturating_sub(8);
            let known = self.entries[recent..]
                .iter_mut()
                .find(|e| e.slice == slice && e.kind == kind);
            match known {
                Some(e) => e.ns += part,
                None => self.entries.push(Entry {
                    slice,
                    kind,
                    ns: part,
                }),
            }
        }
    }

    /// Closes the books.
    pub fn finish(mut self, grid: Slices) -> Totals {
        // Standing in line to the very end: its turn never came, so no counter tells.
        let kind = if self.still { RUNNABLE } else { BLOCKED };
        let (begin, end) = (self.seen_ns.saturating_sub(self.pending), self.seen_ns);
        self.add(grid, begin, end, kind, self.pending);
        self.entries.sort_unstable_by_key(|e| e.slice);
        let mut seen = [0u64; BlockReason::COUNT];
        for e in &self.entries {
            if let Some(i) = e.kind.checked_sub(SEEN) {
                seen[i as usize] += e.ns;
            }
        }
        let mut totals = Totals::default();
        for group in self.entries.chunk_by(|a, b| a.slice == b.slice) {
            let mut row = LedgerSlice {
                slice: group[0].slice,
                ..LedgerSlice::default()
            };
            let (mut blocked, mut here) = (0, [0u64; BlockReason::COUNT]);
            for e in group {
                match e.kind {
                    ON_CPU => row.on_cpu_ns += e.ns,
                    RUNNABLE => row.runnable_ns += e.ns,
                    BLOCKED => blocked += e.ns,
                    kind => here[(kind - SEEN) as usize] += e.ns,
                }
            }
            let by = if here.iter().any(|ns| *ns > 0) {
                &here
            } else {
                &seen
            };
            row.blocked = divide(blocked, by);
            totals.on_cpu += row.on_cpu_ns;
            totals.runnable += row.runnable_ns;
            for (sum, ns) in totals.blocked.iter_mut().zip(row.blocked) {
                *sum += ns;
            }
            totals.slices.push(row);
        }
        totals
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

/// `ns` by the slices that `begin..end` covers: (slice, ns).
pub fn spread(grid: Slices, begin: u64, end: u64, ns: u64) -> Vec<(u32, u64)> {
    let width = grid.width_ns.max(1);
    let begin = begin.max(grid.start_ns);
    let end = end.max(begin + 1);
    let slice_of = |time: u64| ((time - grid.start_ns) / width) as u32;
    let (first, last) = (slice_of(begin), slice_of(end - 1));
    let mut given = 0;
    (first..=last)
        .map(|slice| {
            let edge = grid.start_ns + u64::from(slice + 1) * width;
            let covered = edge.min(end) - begin;
            let upto = (u128::from(ns) * u128::from(covered) / u128::from(end - begin)) as u64;
            let part = upto - given;
            given = upto;
            (slice, part)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const GRID: Slices = Slices {
        start_ns: 0,
        width_ns: 50 * MS,
        count: 0,
    };

    fn books(on_cpu_ms: u64, run_delay_ms: u64, timeslices: u64) -> SchedStat {
        SchedStat {
            on_cpu_ns: on_cpu_ms * MS,
            run_delay_ns: run_delay_ms * MS,
            timeslices,
        }
    }

    fn sum(t: &Totals) -> u64 {
        t.on_cpu + t.runnable + t.blocked.iter().sum::<u64>()
    }

    #[test]
    fn the_rest_is_blocked_by_the_reason_that_was_seen() {
        let mut b = Book::new(0, books(5, 0, 1));
        let lock = Doing::Blocked(BlockReason::Lock);
        assert_eq!(b.look(10 * MS, books(7, 1, 3), lock, 4 * MS, GRID), 4 * MS);
        // It has not run: the sight stands for the whole stretch.
        assert_eq!(b.look(90 * MS, books(7, 1, 3), lock, 4 * MS, GRID), 80 * MS);
        let t = b.finish(GRID);
        assert_eq!((t.on_cpu, t.runnable), (2 * MS, MS));
        assert_eq!(t.blocked[BlockReason::Lock as usize], 87 * MS);
        assert_eq!(t.slices.len(), 2);
        assert_eq!(t.slices[1].blocked[BlockReason::Lock as usize], 40 * MS);
    }

    #[test]
    fn a_thread_in_line_is_not_taken_for_blocked() {
        let mut b = Book::new(0, books(0, 0, 1));
        for look in 1..=3 {
            b.look(
                look * 10 * MS,
                books(0, 0, 1),
                Doing::Running,
                10 * MS,
                GRID,
            );
        }
        // Its turn has come: the counter now says how long it stood there.
        b.look(40 * MS, books(5, 35, 2), Doing::Running, 10 * MS, GRID);
        let t = b.finish(GRID);
        assert_eq!((t.on_cpu, t.runnable, sum(&t)), (5 * MS, 35 * MS, 40 * MS));
    }

    #[test]
    fn in_line_to_the_end_is_runnable() {
        let mut b = Book::new(0, books(0, 0, 1));
        b.look(10 * MS, books(10, 0, 1), Doing::Running, 10 * MS, GRID);
        b.look(20 * MS, books(10, 0, 1), Doing::Running, 10 * MS, GRID);
        b.look(30 * MS, books(10, 0, 1), Doing::Running, 10 * MS, GRID);
        let t = b.finish(GRID);
        assert_eq!((t.on_cpu, t.runnable, sum(&t)), (10 * MS, 20 * MS, 30 * MS));
    }

    #[test]
    fn counters_ahead_of_the_clock_are_paid_back() {
        let mut b = Book::new(0, books(0, 0, 1));
        b.look(10 * MS, books(12, 0, 1), Doing::Running, 10 * MS, GRID);
        b.look(
            20 * MS,
            books(12, 0, 2),
            Doing::Blocked(BlockReason::Pipe),
            10 * MS,
            GRID,
        );
        let t = b.finish(GRID);
        assert_eq!(t.blocked[BlockReason::Pipe as usize], 8 * MS);
        assert_eq!(sum(&t), 20 * MS);
    }

    #[test]
    fn slices_add_up_to_the_totals() {
        let mut b = Book::new(3 * MS, books(0, 0, 1));
        for look in 1..40u64 {
            let reason = if look % 3 == 0 {
                BlockReason::Disk
            } else {
                BlockReason::Timer
            };
            let seen = if look % 4 == 0 {
                Doing::Running
            } else {
                Doing::Blocked(reason)
            };
            b.look(
                3 * MS + look * 7 * MS,
                books(look * 2, look, look),
                seen,
                7 * MS,
                GRID,
            );
        }
        let t = b.finish(GRID);
        let on: u64 = t.slices.iter().map(|s| s.on_cpu_ns).sum();
        let blocked: u64 = t.slices.iter().flat_map(|s| s.blocked).sum();
        assert_eq!((on, blocked), (t.on_cpu, t.blocked.iter().sum()));
        assert_eq!(sum(&t), 39 * 7 * MS);
    }
}
