//! Hold time, cool-down and count of a trigger.

use std::time::Duration;

use super::measure::Reading;
use crate::config::TriggerLimits;

/// A day, ms.
const DAY_MS: u64 = 86_400_000;

/// Decision of a trigger at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The condition is not met.
    Quiet,
    /// The condition is met, but not for long enough yet.
    Holding,
    /// The trigger would fire, but the last snap is too recent.
    CoolingDown,
    /// The trigger would fire, but the number of snaps of the last day is reached.
    Spent,
    /// The trigger fires, for this reason.
    Fires(String),
}

/// The state of a trigger.
#[derive(Clone, Debug)]
pub struct Machine {
    hold: Duration,
    limits: TriggerLimits,
    /// Since when the condition is met, ms.
    since_ms: Option<u64>,
    /// Time of the last decision, ms.
    last_ms: u64,
    /// Times of the snaps of the last day, ms.
    fired_ms: Vec<u64>,
}

impl Machine {
    /// A trigger that has not fired.
    pub fn new(hold: Duration, limits: TriggerLimits) -> Machine {
        Machine {
            hold,
            limits,
            since_ms: None,
            last_ms: 0,
            fired_ms: Vec::new(),
        }
    }

    /// Decides at `now_ms`, for a condition that was read over the last `length_ms`; no reading: the
    /// condition is not known, which is not met. The clock never goes back.
    pub fn step(&mut self, now_ms: u64, length_ms: u64, reading: Option<&Reading>) -> Outcome {
        let start = now_ms.saturating_sub(length_ms);
        // Nothing is known of the time between windows.
        if start > self.last_ms.saturating_add(length_ms) {
            self.since_ms = None;
        }
        self.last_ms = now_ms;
        let Some(reading) = reading.filter(|r| r.is_met) else {
            self.since_ms = None;
            return Outcome::Quiet;
        };
        let held = now_ms - *self.since_ms.get_or_insert(start);
        if u128::from(held) < self.hold.as_millis() {
            return Outcome::Holding;
        }
        let text = format!("{}, for {} s", reading.text, held / 1000);
        self.fire(now_ms, text)
    }

    /// Decides about an alert from elsewhere.
    pub fn alert(&mut self, now_ms: u64, text: &str) -> Outcome {
        self.fire(now_ms, text.to_string())
    }

    fn fire(&mut self, now_ms: u64, text: String) -> Outcome {
        self.fired_ms.retain(|t| now_ms.saturating_sub(*t) < DAY_MS);
        let ago = self.fired_ms.last().map(|t| now_ms.saturating_sub(*t));
        if ago.is_some_and(|ago| u128::from(ago) < self.limits.cool_down.0.as_millis()) {
            return Outcome::CoolingDown;
        }
        if self.fired_ms.len() >= self.limits.max_per_day as usize {
            return Outcome::Spent;
        }
        self.fired_ms.push(now_ms);
        Outcome::Fires(text)
    }
}
