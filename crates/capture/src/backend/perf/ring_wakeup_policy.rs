//! Whether samples are taken from their rings at once, or when the next look is due anyway.
//!
//! Waking up costs more than a sample itself. At once is needed where a running thread keeps something
//! elsewhere than on the part of its stack that was copied: the frames of an interpreter, callers further
//! down, names that a collector moves. Programs that have nothing of that can wait.

use std::time::Duration;

use super::thread_events::ThreadEvents;
use crate::session::events::Events;

/// For so long after something had to be read at once that is expected again, ns.
const EXPECTED: u64 = 1_000_000_000;
/// Rings that may be left alone no longer than this wake us themselves when they are half full.
const SHORTEST: Duration = Duration::from_millis(2);

/// What was needed lately.
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

    /// Before a wait from `now` until `due` at most: whether samples of `clock` end it. Returns after how
    /// long it has to end to keep the rings from overflowing, where that is sooner.
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
                // One that cannot be changed wakes us as before.
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
