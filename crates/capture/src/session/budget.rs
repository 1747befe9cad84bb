//! Limit of the total cost of measuring (`--max-total-overhead`), and the steps that keep it.
//!
//! [`Budget::check`] is a function from the clock and two counters to the next step. It reads nothing from the
//! machine. [`GivenUp`] lists the parts that a recording gives up, in their order.
//!
//! A step down needs one stretch of [`STRETCH`] above the limit. A step up needs [`CALM`] in which the cost would
//! have stayed below [`ROOM`] of the limit with that step taken back. Its additional cost is estimated from the step
//! down, which saved so much at so many switches a second. A step up that does not hold doubles the time to the next
//! one.

use wallscope_model::{Domain, Limit, State};

use crate::backend::ebpf::GivenUp;

/// Shortest time over which a cost is judged, ns: a time slice of a second may end a little early.
const STRETCH: u64 = 900_000_000;
/// Time with room in the budget until a step is taken back, ns.
const CALM: u64 = 10_000_000_000;
/// Longest such time, after steps up that did not hold, ns.
const MAX_CALM: u64 = 320_000_000_000;
/// A step up that is taken back within so many of these times did not hold.
const HELD: u64 = 3;
/// Part of the limit that a step up may fill by its estimated cost. The rest is the hysteresis.
const ROOM: f64 = 0.8;

/// The counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// When, ns on any clock.
    pub time: u64,
    /// CPU time that measuring has taken so far, kernel programs and own, ns.
    pub cost_ns: u64,
    /// Switches of the machine so far.
    pub switches: u64,
}

/// A step, as it was taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// When.
    pub time: u64,
    /// Step in force from then on.
    pub given_up: GivenUp,
    /// The cost before it, as a share of one CPU.
    pub cost: f64,
}

/// Saving by a step down.
#[derive(Clone, Copy, Debug, Default)]
struct Saved {
    /// Share of one CPU.
    cost: f64,
    /// Switches a second then.
    switches: f64,
}

/// State of the budget.
#[derive(Debug)]
pub struct Budget {
    /// Share of one CPU.
    limit: f64,
    given_up: GivenUp,
    last: Reading,
    /// Saving by each step, by its number.
    saved: [Saved; GivenUp::ALL.len()],
    /// Cost and switches a second before the last step down, until the first stretch after it is judged.
    before: Option<Saved>,
    /// Since when there is room for a step up.
    calm_since: Option<u64>,
    calm: u64,
    /// When the last step up was taken, if none down was since.
    went_up: Option<u64>,
    /// All steps that were taken.
    taken: Vec<Taken>,
}

impl Budget {
    /// A budget of `limit` (share of one CPU), from `start` on.
    pub fn new(limit: f64, start: Reading) -> Budget {
        Budget {
            limit,
            given_up: GivenUp::Nothing,
            last: start,
            saved: Default::default(),
            before: None,
            calm_since: None,
            calm: CALM,
            went_up: None,
            taken: Vec::new(),
        }
    }

    /// Step in force now.
    pub fn given_up(&self) -> GivenUp {
        self.given_up
    }

    /// Judges the stretch since the last one. Returns the parts to give up from now on, if they change.
    pub fn check(&mut self, now: Reading) -> Option<GivenUp> {
        let ns = now.time.saturating_sub(self.last.time);
        if ns < STRETCH {
            return None;
        }
        let share = |grown: u64| grown as f64 / ns as f64;
        let cost = share(now.cost_ns.saturating_sub(self.last.cost_ns));
        let switches = 1e9 * share(now.switches.saturating_sub(self.last.switches));
        self.last = now;
        if let Some(before) = self.before.take() {
            let cost = (before.cost - cost).max(0.0);
            self.saved[self.given_up as usize] = Saved { cost, ..before };
        }
        if cost > self.limit {
            self.calm_since = None;
            let next = self.given_up.next()?;
            self.before = Some(Saved { cost, switches });
            self.falls_back(now.time);
            return Some(self.take(next, now.time, cost));
        }
        let back = self.given_up.before()?;
        let with_it = cost + self.would_cost(switches);
        if with_it > ROOM * self.limit {
            self.calm_since = None;
            return None;
        }
        let since = *self.calm_since.get_or_insert(now.time - ns);
        if now.time - since < self.calm {
            return None;
        }
        self.calm_since = None;
        self.went_up = Some(now.time);
        Some(self.take(back, now.time, cost))
    }

    /// Returns the cost of taking the last step back, at so many switches a second.
    fn would_cost(&self, switches: f64) -> f64 {
        let saved = self.saved[self.given_up as usize];
        if saved.switches > 0.0 {
            saved.cost * switches / saved.switches
        } else {
            saved.cost
        }
    }

    /// Waits longer for the next step up if the last one did not hold.
    fn falls_back(&mut self, now: u64) {
        let Some(went_up) = self.went_up.take() else {
            return;
        };
        self.calm = match now - went_up < HELD * self.calm {
            true => (2 * self.calm).min(MAX_CALM),
            false => CALM,
        };
    }

    fn take(&mut self, given_up: GivenUp, time: u64, cost: f64) -> GivenUp {
        self.given_up = given_up;
        self.taken.push(Taken {
            time,
            given_up,
            cost,
        });
        given_up
    }

    /// Adds to the domain the parts that were given up, and the columns that are not exact for it.
    pub fn describe(&self, domain: &mut Domain, start: u64) {
        domain.limits.extend(self.limits(start));
        let most = self.most();
        for column in &mut domain.columns {
            let only_partly = match column.state {
                State::Blocked => most >= GivenUp::FewReasons,
                State::OnCpu | State::Runnable => most >= GivenUp::Hooks,
                State::Unknown => false,
            };
            if only_partly {
                column.exact = false;
                column.how.push_str(
                    "; in part by the kernel's counters, or without a reason: see the limits",
                );
            }
        }
    }

    /// The most that was ever given up.
    pub fn most(&self) -> GivenUp {
        let all = self.taken.iter().map(|t| t.given_up);
        all.max().unwrap_or_default()
    }

    /// Stretches of time with something given up: step, begin, end; `None`: it goes on.
    fn stretches(&self) -> Vec<(GivenUp, u64, Option<u64>)> {
        let mut all = Vec::new();
        for step in GivenUp::ALL.into_iter().skip(1) {
            let mut since = None;
            for t in &self.taken {
                match since {
                    None if t.given_up >= step => since = Some(t.time),
                    Some(begin) if t.given_up < step => {
                        all.push((step, begin, Some(t.time)));
                        since = None;
                    }
                    _ => {}
                }
            }
            all.extend(since.map(|begin| (step, begin, None)));
        }
        all
    }

    /// Limits for the domain: each stretch with its columns, in seconds since `start`.
    pub fn limits(&self, start: u64) -> Vec<Limit> {
        let seconds = |time: u64| time.saturating_sub(start) as f64 / 1e9;
        let cost = |begin: u64| {
            let taken = self.taken.iter().find(|t| t.time == begin);
            taken.map_or(0.0, |t| 100.0 * t.cost)
        };
        let stretch = |(step, begin, end): (GivenUp, u64, Option<u64>)| Limit {
            what: format!(
                "{} given up from {:.1} s to {} (measuring took {:.1} % of a CPU, --max-total-overhead allows {:.1} %): \
                 not exact: {}",
                step.name(),
                seconds(begin),
                end.map_or("the end".into(), |end| format!("{:.1} s", seconds(end))),
                cost(begin),
                100.0 * self.limit,
                step.inexact()
            ),
            remedy: "a higher --max-total-overhead, or fewer processes".into(),
        };
        self.stretches().into_iter().map(stretch).collect()
    }
}

#[cfg(test)]
#[path = "budget_tests.rs"]
mod tests;
