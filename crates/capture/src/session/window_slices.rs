//! Time slices of a snapshot: the part of the grid of the session that the snapshot covers.
//!
//! All snapshots of a session share one grid, so that slices of merged windows keep their place on the clock. The
//! first and the last slice of a snapshot may stand for a part of their width.

use std::ops::Range;

use rustc_hash::FxHashMap;
use wallscope_model::{Context, LedgerSlice, LedgerSlices, SliceValue, Slices, Window};

use super::accounts::settled;
use crate::slices;

/// The slices of `grid` that `window` covers.
pub fn grid(grid: Slices, window: &Window) -> Slices {
    let width_ns = grid.width_ns.max(1);
    let first = window.start_ns.saturating_sub(grid.start_ns) / width_ns;
    let end = (window.end_ns.saturating_sub(grid.start_ns)).div_ceil(width_ns);
    Slices {
        start_ns: grid.start_ns + first * width_ns,
        width_ns,
        count: u32::try_from(end.saturating_sub(first).max(1)).unwrap_or(u32::MAX),
    }
}

/// The slice of `own` for slice `slice` of the session's grid.
fn moved(slice: u32, (grid, own): (Slices, Slices)) -> u32 {
    let first = (own.start_ns - grid.start_ns) / own.width_ns;
    let slice = u64::from(slice).saturating_sub(first);
    slice.min(u64::from(own.count) - 1) as u32
}

/// The session's `rows` as rows of a snapshot. `places`: the contexts of the snapshot by thread; `grids`: the slices
/// of the session and of the snapshot.
pub fn rows(
    rows: &LedgerSlices,
    places: &FxHashMap<u32, u32>,
    contexts: &[Context],
    grids: (Slices, Slices),
) -> LedgerSlices {
    let row = |row: LedgerSlice| {
        let context = *places.get(&row.context)?;
        let slice = moved(row.slice, grids);
        Some(LedgerSlice {
            context,
            slice,
            ..row
        })
    };
    let own: LedgerSlices = rows.iter().filter_map(row).collect();
    let own = own.sorted(|context, slice| (context, slice));
    settled(&own, contexts, grids.1)
}

/// Brings the values of a sample to the slices of a snapshot. A wait that began before the snapshot has values before
/// its first slice: the slices inside get them, each as much as its own share.
pub fn values(values: &mut Vec<SliceValue>, grids: (Slices, Slices)) {
    let first = (grids.1.start_ns - grids.0.start_ns) / grids.1.width_ns;
    let is_before = |v: &SliceValue| u64::from(v.slice) < first;
    let (mut before, mut inside) = (0, 0);
    for v in values.iter() {
        *(if is_before(v) {
            &mut before
        } else {
            &mut inside
        }) += v.ns;
    }
    if before > 0 && inside > 0 {
        values.retain(|v| !is_before(v));
        let share = |upto: u64| {
            let all = u128::from(before) * u128::from(upto);
            (all / u128::from(inside)) as u64
        };
        let mut upto = 0;
        for v in values.iter_mut() {
            let own = v.ns;
            v.ns += share(upto + own) - share(upto);
            upto += own;
        }
    }
    for v in values.iter_mut() {
        v.slice = moved(v.slice, grids);
    }
    SliceValue::merge(values);
}

/// The values, on the session's `grid`, of a wait that lasts through `covered`.
pub fn of_wait(grid: Slices, covered: Range<u64>) -> Vec<SliceValue> {
    let ns = covered.end.saturating_sub(covered.start);
    let value = |(slice, ns)| SliceValue {
        slice,
        count: 0,
        ns,
    };
    let mut values: Vec<SliceValue> = (slices::spread(grid, covered.start, covered.end, ns))
        .map(value)
        .collect();
    if let Some(last) = values.last_mut() {
        last.count = 1;
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRID: Slices = Slices {
        start_ns: 1_000,
        width_ns: 100,
        count: 0,
    };

    fn window(start_ns: u64, end_ns: u64) -> Window {
        Window {
            start_ns,
            end_ns,
            ..Window::default()
        }
    }

    #[test]
    fn a_look_has_the_slices_that_it_touches() {
        let own = grid(GRID, &window(1_250, 1_510));
        assert_eq!((own.start_ns, own.count), (1_200, 4));
        let own = grid(GRID, &window(1_300, 1_500));
        assert_eq!((own.start_ns, own.count), (1_300, 2));
    }

    #[test]
    fn values_before_a_look_go_to_its_own_slices() {
        let own = grid(GRID, &window(1_250, 1_500));
        let mut all = of_wait(GRID, 1_000..1_450);
        assert_eq!(all.len(), 5);
        values(&mut all, (GRID, own));
        let seen: Vec<_> = all.iter().map(|v| (v.slice, v.ns, v.count)).collect();
        assert_eq!(seen, [(0, 180, 0), (1, 180, 0), (2, 90, 1)]);
        // It ended before, and its stack came late.
        let mut late = of_wait(GRID, 1_000..1_100);
        values(&mut late, (GRID, own));
        assert_eq!((late.len(), late[0].slice, late[0].ns), (1, 0, 100));
    }

    #[test]
    fn rows_of_a_look_sum_to_its_ledgers() {
        let row = |context, slice, on_cpu_ns| LedgerSlice {
            context,
            slice,
            on_cpu_ns,
            ..LedgerSlice::default()
        };
        let session: LedgerSlices = [row(7, 2, 40), row(3, 3, 90), row(7, 3, 100), row(9, 3, 5)]
            .into_iter()
            .collect();
        let places = FxHashMap::from_iter([(7, 0), (3, 1)]);
        let mut contexts = [7, 3].map(|tid| Context {
            pid: 1,
            tid,
            name: "worker".into(),
            start_ns: 1_250,
            end_ns: 1_500,
            ledger: Default::default(),
        });
        contexts[0].ledger.on_cpu.user = 150;
        contexts[1].ledger.on_cpu.user = 60;
        let own = grid(GRID, &window(1_250, 1_500));
        let rows = rows(&session, &places, &contexts, (GRID, own));
        let seen: Vec<_> = rows
            .iter()
            .map(|r| (r.context, r.slice, r.on_cpu_ns))
            .collect();
        assert_eq!(seen, [(0, 0, 40), (0, 1, 110), (1, 1, 60)]);
    }
}
