//! The clocks that recordings are stamped with.

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

/// `CLOCK_MONOTONIC` now, ns: the recording's clock.
pub(crate) fn now() -> u64 {
    ns(clock_gettime(ClockId::Monotonic))
}

/// `CLOCK_REALTIME` now, ns since 1970.
pub(crate) fn unix_now() -> u64 {
    ns(clock_gettime(ClockId::Realtime))
}

/// Readings of both clocks for [`unix_at`].
const READINGS: u32 = 8;

/// `CLOCK_REALTIME` at `time` on the recording's clock, ns since 1970. The thread may be preempted between its readings
/// of the two clocks, so the closest pair counts.
pub(crate) fn unix_at(time: u64) -> u64 {
    let reading = |_| {
        let (before, unix, after) = (now(), unix_now(), now());
        (after - before, before, unix)
    };
    let closest = (0..READINGS).map(reading).min();
    closest.map_or(0, |(_, at, unix)| {
        unix.saturating_sub(at.saturating_sub(time))
    })
}

/// Period of the kernel's timer tick, ns. The scheduler updates the counter of a running thread at least that often.
pub(crate) fn tick_ns() -> u64 {
    ns(clock_getres(ClockId::MonotonicCoarse))
}

fn ns(t: Timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_name_one_moment() {
        let (before, time) = (unix_now(), now());
        let at = unix_at(time);
        assert!((before..=unix_now()).contains(&at));
        // A second earlier on one clock is a second earlier on the other.
        let earlier = unix_at(time - 1_000_000_000);
        assert!(
            at.abs_diff(earlier + 1_000_000_000) < 50_000_000,
            "{at} {earlier}"
        );
    }
}
