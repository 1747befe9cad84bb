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

/// Period of the kernel's timer tick, ns: the scheduler's counter of a running thread moves at least so often.
pub(crate) fn tick_ns() -> u64 {
    ns(clock_getres(ClockId::MonotonicCoarse))
}

fn ns(t: Timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
