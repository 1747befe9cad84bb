//! News for a service manager: ready, alive, reloading, stopping, as `sd_notify(3)` says.
//!
//! Nothing is sent without `NOTIFY_SOCKET`. A manager that does not listen is no fault of the agent, so errors
//! are ignored.

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The service manager.
#[derive(Debug)]
pub(super) struct Supervisor {
    /// Distance between two signs of life; `None`: the manager expects none.
    every: Option<Duration>,
    /// The last sign.
    last: Instant,
}

impl Supervisor {
    /// Tells the manager that the agent measures.
    pub(super) fn ready() -> Supervisor {
        tell(&[NotifyState::Ready]);
        Supervisor {
            // Half of the limit, as sd_watchdog_enabled(3) advises.
            every: sd_notify::watchdog_enabled().map(|limit| limit / 2),
            last: Instant::now(),
        }
    }

    /// Gives a sign of life when it is due and `is_alive`.
    pub(super) fn alive(&mut self, is_alive: impl FnOnce() -> bool) {
        let is_due = self.every.is_some_and(|every| self.last.elapsed() >= every);
        if is_due && is_alive() {
            self.last = Instant::now();
            tell(&[NotifyState::Watchdog]);
        }
    }

    /// Tells the manager that the configuration is read again.
    pub(super) fn reloading(&self) {
        let now = NotifyState::monotonic_usec_now().ok();
        let states: Vec<_> = [NotifyState::Reloading].into_iter().chain(now).collect();
        tell(&states);
    }

    /// Tells the manager that the configuration was read.
    pub(super) fn reloaded(&self) {
        tell(&[NotifyState::Ready]);
    }

    /// Tells the manager that the agent ends.
    pub(super) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }
}

fn tell(states: &[NotifyState]) {
    let _ = sd_notify::notify(states);
}
