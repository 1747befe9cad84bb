//! Ring-buffer wake-up policy: samples wake us at once, or wait for the next poll.
//!
//! A wake-up costs more than a sample itself. It is needed if a running thread keeps data outside of the copied
//! part of its stack: the frames of an interpreter, callers further down, names that a collector moves. Samples of
//! programs without such data can wait.

use std::time::Duration;

use super::thread_events::ThreadEvents;
use crate::session::events::Events;

/// Time for which urgent reads are expected after the last one, ns.
const EXPECTED: u64 = 1_000_000_000;
/// Rings that may be left alone no longer than this wake us themselves when they are half full.
const SHORTEST: Duration = Duration::from_millis(2);

/// The last urgent read, and whether samples wake us.
#[derive(Debug)]
pub struct RingWakeupPolicy {
    until_ns: u64,
    listening: bool,
}

impl Default for RingWakeupPolicy {
    fn default() -> RingWakeupPolicy {
        RingWakeupPolicy {
            until_ns: 0,
            listening: true,
        }
    }
}

impl RingWakeupPolicy {
    /// At `now` something was to be read at once.
    pub fn needed(&mut self, now: u64) {
        self.until_ns = now + EXPECTED;
    }

    /// Whether at `now` something may have to be read at once.
    pub fn is_needed(&self, now: u64) -> bool {
        now < self.until_ns
    }

    /// Decides, before a wait from `now` until `due` at most, whether samples of `clock` end the wait. Returns the
    /// time after which the wait has to end to keep the rings from overflowing, if that is sooner.
    pub fn before(
        &mut self,
        events: &Events,
        clock: &ThreadEvents,
        now: u64,
        due: u64,
    ) -> Option<Duration> {
        let listen = self.is_needed(now) || clock.rest() < SHORTEST;
        if listen != self.listening {
            for fd in clock.descriptors() {
                // A ring that cannot be changed wakes us as before.
                let _ = match listen {
                    true => events.listen(fd),
                    false => events.ignore(fd),
                };
            }
            self.listening = listen;
        }
        let rest = (!listen).then(|| clock.rest())?;
        (now + (rest.as_nanos() as u64) < due).then_some(rest)
    }
}
