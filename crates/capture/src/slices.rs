//! The grid of time slices: how wide slices are, and how a weight is divided among those that an interval covers.

use std::time::Duration;

use wallscope_model::Slices;

/// Most slices before two become one: each slice costs a wake-up of its own.
const MAX_SLICES: u32 = 12;
/// Widest slice that slices are joined to for their number, ns.
const MAX_WIDTH_NS: u64 = 1_000_000_000;
/// Widest slice that slices are joined to for their cost, ns.
const MAX_COSTLY_WIDTH_NS: u64 = 8_000_000_000;
/// Ledgers reported a second above which slices are joined for their cost. One takes some 5 µs (10,000 threads that
/// wake once a second, Linux 6.18 in a virtual machine), so that slices cost up to 1 % of one CPU.
const MAX_REPORTS: u64 = 2_000;
/// Width of the slices of a session in windows, ns.
pub(crate) const WINDOW_WIDTH_NS: u64 = MAX_WIDTH_NS;
/// Narrowest slice of a recording of known length, ns.
const MIN_WIDTH_NS: u64 = 50_000_000;

/// Width of the first slices, ns: a tenth of the recording, or half a second where its length is not known yet. Slices
/// of a second end when the host is sampled as well, and cost no wake-up of their own.
pub(crate) fn first_width_ns(duration: Option<Duration>) -> u64 {
    match duration {
        Some(d) => (d.as_nanos() as u64 / 10).clamp(MIN_WIDTH_NS, MAX_WIDTH_NS),
        None => MAX_WIDTH_NS / 2,
    }
}

/// Whether there are so many slices at `now` that two should become one. `reports`: ledgers that threads reported at
/// the end of the last slice.
pub(crate) fn is_too_fine(grid: &Slices, now: u64, reports: u64) -> bool {
    let slices = now.saturating_sub(grid.start_ns) / grid.width_ns.max(1);
    let cheap_width_ns = reports * 1_000_000_000 / MAX_REPORTS;
    let widest = cheap_width_ns.clamp(MAX_WIDTH_NS, MAX_COSTLY_WIDTH_NS);
    slices >= u64::from(MAX_SLICES) && grid.width_ns < widest
}

/// Time from one tick of the clock to the next where slices are `width_ns` wide, ns: wide slices have several ticks.
pub(crate) fn tick_ns(width_ns: u64) -> u64 {
    width_ns.min(MAX_WIDTH_NS)
}

/// Whether `now` is in another slice than `before`.
pub(crate) fn ends_slice(grid: &Slices, before: u64, now: u64) -> bool {
    let slice = |time: u64| time.saturating_sub(grid.start_ns) / grid.width_ns.max(1);
    slice(before) != slice(now)
}

/// `ns` by the slices that `begin..end` covers: (slice, ns).
pub fn spread(grid: Slices, begin: u64, end: u64, ns: u64) -> impl Iterator<Item = (u32, u64)> {
    let width = grid.width_ns.max(1);
    let begin = begin.max(grid.start_ns);
    let end = end.max(begin + 1);
    let slice_of = |time: u64| ((time - grid.start_ns) / width) as u32;
    let (first, last) = (slice_of(begin), slice_of(end - 1));
    let mut given = 0;
    (first..=last).map(move |slice| {
        let edge = grid.start_ns + u64::from(slice + 1) * width;
        let covered = edge.min(end) - begin;
        let upto = (u128::from(ns) * u128::from(covered) / u128::from(end - begin)) as u64;
        let part = upto - given;
        given = upto;
        (slice, part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_widen_by_their_number_and_by_the_ledgers_reported() {
        let second = 1_000_000_000;
        let grid = |width_ns| Slices {
            start_ns: 0,
            width_ns,
            count: 0,
        };
        assert!(!is_too_fine(&grid(second / 2), 5 * second, 0));
        assert!(is_too_fine(&grid(second / 2), 6 * second, 0));
        assert!(!is_too_fine(&grid(second), 60 * second, 2_000));
        assert!(is_too_fine(&grid(second), 12 * second, 2_001));
        assert!(
            !is_too_fine(&grid(second), 11 * second, 10_000),
            "twelve slices first"
        );
        assert!(is_too_fine(&grid(4 * second), 48 * second, 10_000));
        assert!(
            !is_too_fine(&grid(8 * second), 96 * second, 100_000),
            "no wider"
        );
        assert!(ends_slice(&grid(8 * second), 7 * second, 8 * second));
        assert!(!ends_slice(&grid(8 * second), 8 * second, 15 * second));
    }
}
