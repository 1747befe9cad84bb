//! Ledgers by time slice.
//!
//! A recording of ten thousand threads has as many rows in every slice, and nearly all of those
//! threads are in one state for the whole slice. So rows are stored without zeros, one number for a
//! thread that slept, and returned complete.

use crate::{BlockReason, Sample, State};

/// A context's ledger within one slice (without audit and repair), by state and block reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerSlice {
    /// Index of the context.
    pub context: u32,
    /// Index of the slice.
    pub slice: u32,
    /// On-CPU time, ns.
    pub on_cpu_ns: u64,
    /// Runnable time, ns.
    pub runnable_ns: u64,
    /// Blocked time by reason, ns.
    pub blocked: [u64; BlockReason::COUNT],
}

impl LedgerSlice {
    /// Time in `state` within the slice, ns.
    pub fn state_ns(&self, state: State) -> u64 {
        match state {
            State::OnCpu => self.on_cpu_ns,
            State::Runnable => self.runnable_ns,
            State::Blocked => self.blocked.iter().sum(),
            State::Unknown => 0,
        }
    }

    /// Adds `ns` of time in `state`; blocked time without a reason counts as another reason. A
    /// slice has no unseen time.
    pub fn add(&mut self, state: State, reason: Option<BlockReason>, ns: u64) {
        match state {
            State::OnCpu => self.on_cpu_ns += ns,
            State::Runnable => self.runnable_ns += ns,
            State::Blocked => self.blocked[reason.unwrap_or(BlockReason::Other) as usize] += ns,
            State::Unknown => {}
        }
    }
}

/// Number of cells of a row: on-CPU, runnable, and blocked by each reason.
const PLACES: usize = 2 + BlockReason::COUNT;
const _: () = assert!(PLACES <= 16, "the places of a row are bits of an u16");

impl LedgerSlice {
    fn places(&self) -> [u64; PLACES] {
        let mut places = [0; PLACES];
        (places[0], places[1]) = (self.on_cpu_ns, self.runnable_ns);
        places[2..].copy_from_slice(&self.blocked);
        places
    }

    fn place_mut(&mut self, i: usize) -> &mut u64 {
        match i {
            0 => &mut self.on_cpu_ns,
            1 => &mut self.runnable_ns,
            i => &mut self.blocked[i - 2],
        }
    }

    fn key(&self) -> (u32, u32) {
        (self.context, self.slice)
    }
}

/// The position of a row's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SliceRow {
    context: u32,
    slice: u32,
    /// Index of its first number.
    first: u32,
    /// Bit i: cell i has time, and a number.
    places: u16,
}

/// The rows of a recording. Rows without time are not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerSlices {
    rows: Vec<SliceRow>,
    ns: Vec<u64>,
}

impl LedgerSlices {
    /// Appends a row.
    ///
    /// # Panics
    /// Beyond 2³² numbers, which is more memory than a recording may take.
    pub fn push(&mut self, row: LedgerSlice) {
        let first = u32::try_from(self.ns.len()).expect("fewer than 2^32 numbers");
        let mut places = 0;
        for (i, ns) in row.places().into_iter().enumerate() {
            if ns > 0 {
                places |= 1 << i;
                self.ns.push(ns);
            }
        }
        if places != 0 {
            self.rows.push(SliceRow {
                context: row.context,
                slice: row.slice,
                first,
                places,
            });
        }
    }

    /// Adds to the last row if it has the same context and slice, else appends.
    pub fn add(&mut self, mut row: LedgerSlice) {
        if let Some(last) = self.rows.last().copied()
            && (last.context, last.slice) == row.key()
        {
            let last_row = self.whole(&last);
            for (i, ns) in last_row.places().into_iter().enumerate() {
                *row.place_mut(i) += ns;
            }
            self.rows.pop();
            self.ns.truncate(last.first as usize);
        }
        self.push(row);
    }

    /// All rows, in the order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = LedgerSlice> + Clone {
        self.rows.iter().map(|row| self.whole(row))
    }

    /// Computes ledgers by slice from samples alone.
    pub fn of_samples(samples: &[Sample]) -> LedgerSlices {
        let mut out = LedgerSlices::default();
        for s in samples {
            for v in &s.slices {
                let mut row = LedgerSlice {
                    context: s.context.0,
                    slice: v.slice,
                    ..LedgerSlice::default()
                };
                row.add(s.state, s.reason, v.ns);
                out.push(row);
            }
        }
        out.sorted(|context, slice| (context, slice))
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sorts the rows by context and slice and merges equal ones, after moving each by `to`.
    pub fn sorted(mut self, to: impl Fn(u32, u32) -> (u32, u32)) -> LedgerSlices {
        for row in &mut self.rows {
            (row.context, row.slice) = to(row.context, row.slice);
        }
        self.rows.sort_unstable_by_key(|r| (r.context, r.slice));
        let mut out = LedgerSlices {
            rows: Vec::with_capacity(self.rows.len()),
            ns: Vec::with_capacity(self.ns.len()),
        };
        self.iter().for_each(|row| out.add(row));
        out
    }

    fn whole(&self, row: &SliceRow) -> LedgerSlice {
        let mut out = LedgerSlice {
            context: row.context,
            slice: row.slice,
            ..LedgerSlice::default()
        };
        let places = (0..PLACES).filter(|i| row.places >> i & 1 == 1);
        for (i, ns) in places.zip(&self.ns[row.first as usize..]) {
            *out.place_mut(i) = *ns;
        }
        out
    }
}

impl Extend<LedgerSlice> for LedgerSlices {
    fn extend<T: IntoIterator<Item = LedgerSlice>>(&mut self, rows: T) {
        rows.into_iter().for_each(|row| self.push(row));
    }
}

impl FromIterator<LedgerSlice> for LedgerSlices {
    fn from_iter<T: IntoIterator<Item = LedgerSlice>>(rows: T) -> LedgerSlices {
        let mut out = LedgerSlices::default();
        out.extend(rows);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(context: u32, slice: u32, on_cpu_ns: u64, disk: u64) -> LedgerSlice {
        let mut row = LedgerSlice {
            context,
            slice,
            on_cpu_ns,
            ..LedgerSlice::default()
        };
        row.add(State::Blocked, Some(BlockReason::Disk), disk);
        row
    }

    #[test]
    fn rows_come_back_whole_and_empty_ones_not() {
        let rows = [row(0, 0, 3, 4), row(1, 0, 0, 7), row(1, 2, 5, 0)];
        let mut kept: LedgerSlices = rows.into_iter().collect();
        kept.push(row(2, 0, 0, 0));
        assert_eq!(kept.iter().collect::<Vec<_>>(), rows);
        assert_eq!((kept.len(), kept.ns.len()), (3, 4));
    }

    #[test]
    fn sorting_joins_what_falls_together() {
        let rows = [row(1, 3, 1, 0), row(0, 5, 0, 9), row(1, 2, 2, 6)];
        let kept: LedgerSlices = rows.into_iter().collect();
        let halved = kept.sorted(|context, slice| (context, slice / 2));
        let want = [row(0, 2, 0, 9), row(1, 1, 3, 6)];
        assert_eq!(halved.iter().collect::<Vec<_>>(), want);
    }

    #[test]
    fn adding_goes_to_the_last_row_only() {
        let mut kept = LedgerSlices::default();
        [
            row(0, 0, 1, 0),
            row(0, 0, 2, 3),
            row(1, 0, 4, 0),
            row(0, 0, 5, 0),
        ]
        .into_iter()
        .for_each(|r| kept.add(r));
        let want = [row(0, 0, 3, 3), row(1, 0, 4, 0), row(0, 0, 5, 0)];
        assert_eq!(kept.iter().collect::<Vec<_>>(), want);
    }
}
