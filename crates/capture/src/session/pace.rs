//! Keeps the cost of stacks below the limit by taking fewer of them.
//!
//! The ledger itself cannot be slowed down: its hooks run at every switch, and their cost is
//! only reported. The samplers can, each by itself: off-CPU stacks by a longer period, on-CPU
//! stacks by a lower rate. Both keep their estimates unbiased, as each sample carries the period in
//! force, and the change is said in the domain.

use std::time::Duration;

use super::Options;
use crate::backend::ebpf::{Programs, RunTime, timer::Timer};

/// Longest period of off-CPU stacks at the start. With a longer one, most threads would have no stack in a short
/// recording.
const MAX_FIRST_PERIOD: Duration = Duration::from_secs(8);
/// Longest period, in a recording that has lasted for so long.
const MAX_PERIOD: Duration = Duration::from_secs(64);
/// Lowest rate of on-CPU stacks, Hz.
const MIN_HZ: u32 = 9;
/// Longest time between two checks, ns. Early on a check follows when the time since the start has doubled.
const CHECK_EVERY_NS: u64 = 1_000_000_000;
/// Time between two checks in the first second, ns.
const CHECK_EARLY_NS: u64 = 100_000_000;
/// Such a check changes rates where stacks cost more than this many times the limit: thousands of threads may wake at
/// once. Less may be the cost of the start itself.
const FAR_TOO_DEAR: f64 = 8.0;
/// A sampler becomes faster again where it costs less than this part, 1 in 8, of its half of the limit.
const CHEAP_DIVISOR: f64 = 8.0;
/// A longer period has helped if stacks cost less than this part of their cost before.
const MAX_COST_IF_HELPED: f64 = 0.7;
/// Factor on a period that must grow, so that the next check does not make it grow again.
const PERIOD_MARGIN: f64 = 1.1;
/// Longest step of the period: the new one is at most this many times the one that the step starts from.
const MAX_STEP: f64 = 64.0;
/// Changes of rates that the domain lists one by one.
const MAX_NOTES: u32 = 16;

/// The rates in force.
pub struct Pace {
    /// Share of one CPU that measuring may take.
    limit: f64,
    /// The rates of the options: Hz, and off-CPU time a stack.
    requested: (u32, Duration),
    /// Changes so far.
    changes: u32,
    /// Cost of off-CPU stacks (share of one CPU) before the last check, if that made their period longer.
    cost_before: Option<f64>,
    /// On-CPU samples a second.
    pub hz: u32,
    /// Off-CPU time a stack.
    pub period: Duration,
    last: RunTime,
    last_window: u64,
    /// Time of the last early check, ns of the recording.
    early_ns: u64,
    /// When the distance between on-CPU samples was changed last, ns of the recording.
    varied_ns: u64,
}

impl Pace {
    /// Begins with the rates of the options.
    pub fn new(options: &Options) -> Pace {
        Pace {
            limit: options.method.max_overhead / 100.0,
            requested: (options.method.hz, options.method.off_cpu_period),
            changes: 0,
            cost_before: None,
            hz: options.method.hz,
            period: options.method.off_cpu_period,
            last: RunTime::default(),
            last_window: 0,
            early_ns: 0,
            varied_ns: 0,
        }
    }

    /// Whether the rates have changed since the start.
    pub fn has_changed(&self) -> bool {
        self.changes > 0
    }

    /// Changes the distance between on-CPU samples, if it has been the same for a while.
    pub fn vary(&mut self, programs: &mut Programs, timer: &mut Timer, window_ns: u64) {
        if window_ns.saturating_sub(self.varied_ns) < timer.steady_ns() {
            return;
        }
        self.varied_ns = window_ns;
        programs.set_cpu_period(timer.vary());
    }

    /// Takes the samplers' cost since the last check, and changes their rates by it. Returns a note for the domain.
    /// Early on it checks at each call, then about once a second: a check has a cost too.
    pub fn check(
        &mut self,
        programs: &mut Programs,
        timer: &mut Timer,
        window_ns: u64,
    ) -> Option<String> {
        if window_ns.saturating_sub(self.last_window) < self.last_window.min(CHECK_EVERY_NS) {
            return None;
        }
        let now = programs.run_time();
        let costs = self.since_last(&now, window_ns);
        (self.last, self.last_window) = (now, window_ns);
        self.change(costs, programs, timer)
    }

    /// [`Pace::check`] in the first second, for samplers that cost far too much.
    pub fn check_early(
        &mut self,
        programs: &mut Programs,
        timer: &mut Timer,
        window_ns: u64,
    ) -> Option<String> {
        if window_ns >= CHECK_EVERY_NS || window_ns < self.early_ns + CHECK_EARLY_NS {
            return None;
        }
        self.early_ns = window_ns;
        let now = programs.run_time();
        let costs = self.since_last(&now, window_ns);
        if costs.waits.cost + costs.on_cpu < self.limit * FAR_TOO_DEAR {
            return None;
        }
        (self.last, self.last_window) = (now, window_ns);
        self.change(costs, programs, timer)
    }

    fn since_last(&self, now: &RunTime, window_ns: u64) -> Costs {
        let share = |ns: u64| ns as f64 / window_ns.saturating_sub(self.last_window).max(1) as f64;
        let charges = now.charges - self.last.charges;
        let taking = now.taken_ns - self.last.taken_ns;
        let mean_ns = (now.charged_ns - self.last.charged_ns) / charges.max(1);
        Costs {
            waits: OffCpu {
                period: self.period,
                mean: Duration::from_nanos(mean_ns),
                cost: share(now.later_ns - self.last.later_ns + taking),
                cost_before: self.cost_before,
                max_period: max_period(Duration::from_nanos(window_ns)),
            },
            on_cpu: share(now.timer_ns - self.last.timer_ns),
        }
    }

    /// Changes the rates by `costs`. Returns a note for the domain.
    fn change(
        &mut self,
        costs: Costs,
        programs: &mut Programs,
        timer: &mut Timer,
    ) -> Option<String> {
        let Costs { waits, on_cpu } = costs;
        let off_cpu = waits.cost;
        let (hz, period) = slower(self.limit, (self.hz, on_cpu), waits);
        let (hz, period) = match (hz, period) == (self.hz, self.period) {
            true => faster(self.requested, self.limit, (hz, on_cpu), (period, off_cpu)),
            false => (hz, period),
        };
        self.cost_before = (period > self.period).then_some(off_cpu);
        if (hz, period) == (self.hz, self.period) {
            return None;
        }
        (self.hz, self.period) = (hz, period);
        self.changes += 1;
        programs.set_period(period);
        programs.set_cpu_period(timer.set_rate(hz));
        (self.changes <= MAX_NOTES).then(|| format!(
            "at {:.1} s stacks cost {:.1} % of a CPU (limit: {:.1} %): from then on {hz} Hz, {} ms of off-CPU time a stack",
            self.last_window as f64 / 1e9,
            (off_cpu + on_cpu) * 100.0,
            self.limit * 100.0,
            period.as_nanos() as f64 / 1e6,
        ))
    }
}

/// Off-CPU stacks since the last check.
#[derive(Clone, Copy, Debug)]
struct OffCpu {
    period: Duration,
    /// Mean time that was charged at a switch: the length of waits that are longer than the period.
    mean: Duration,
    /// Share of one CPU.
    cost: f64,
    /// The cost before the last check, if that check made the period longer.
    cost_before: Option<f64>,
    /// Longest period now.
    max_period: Duration,
}

/// Cost of both samplers since the last check.
struct Costs {
    waits: OffCpu,
    /// Share of one CPU of on-CPU stacks.
    on_cpu: f64,
}

/// Longest period in a recording that has lasted for `elapsed`: it doubles, so that few changes are needed.
fn max_period(elapsed: Duration) -> Duration {
    let doubled = std::iter::successors(Some(MAX_FIRST_PERIOD), |period| Some(*period * 2));
    let allowed = doubled.take_while(|period| *period <= elapsed.min(MAX_PERIOD));
    allowed.last().unwrap_or(MAX_FIRST_PERIOD)
}

/// The rates that bring the cost of both samplers (shares of a CPU) within the limit. Each may have the part of it
/// that the other one leaves, and half of it always: some 200 stacks a second with cold caches, enough to tell 1 % of
/// the time.
fn slower(limit: f64, (hz, on_cpu): (u32, f64), waits: OffCpu) -> (u32, Duration) {
    let left_by = |other: f64| (limit - other).max(limit / 2.0);
    let mut rates = (hz, waits.period);
    let too_dear = waits.cost / left_by(on_cpu);
    if too_dear > 1.0 {
        // Each wait longer than the period has a stack. Where a longer period did not help, only one beyond their
        // length makes stacks fewer.
        let did_not_help = |before| waits.cost > before * MAX_COST_IF_HELPED;
        let from = match waits.cost_before.is_some_and(did_not_help) {
            true => waits.mean.max(waits.period),
            false => waits.period,
        };
        let longer = whole_ms(from.mul_f64((too_dear * PERIOD_MARGIN).min(MAX_STEP)));
        rates.1 = longer.min(waits.max_period.max(waits.period));
    }
    if on_cpu > left_by(waits.cost) {
        rates.0 = ((f64::from(hz) * left_by(waits.cost) / on_cpu) as u32).max(MIN_HZ.min(hz));
    }
    rates
}

fn whole_ms(period: Duration) -> Duration {
    Duration::from_millis(period.as_micros().div_ceil(1000) as u64)
}

/// The rates after a burst, when slowed samplers cost next to nothing: twice as fast, at most as requested.
fn faster(
    (requested_hz, requested_period): (u32, Duration),
    limit: f64,
    (hz, on_cpu): (u32, f64),
    (period, off_cpu): (Duration, f64),
) -> (u32, Duration) {
    let cheap = limit / 2.0 / CHEAP_DIVISOR;
    let mut rates = (hz, period);
    if off_cpu < cheap {
        rates.1 = (period / 2).max(requested_period).min(period);
    }
    if on_cpu < cheap {
        rates.0 = (hz * 2).min(requested_hz).max(hz);
    }
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// [`super::slower`] for waits no longer than the period.
    fn slower(limit: f64, on_cpu: (u32, f64), (period, cost): (Duration, f64)) -> (u32, Duration) {
        let waits = OffCpu {
            period,
            mean: period,
            cost,
            cost_before: None,
            max_period: MAX_FIRST_PERIOD,
        };
        super::slower(limit, on_cpu, waits)
    }

    #[test]
    fn long_waits_need_a_second_step() {
        let waits = OffCpu {
            period: MS,
            mean: 500 * MS,
            cost: 0.018,
            cost_before: Some(0.02),
            max_period: MAX_FIRST_PERIOD,
        };
        let rates = |waits| super::slower(0.01, (99, 0.0), waits);
        assert_eq!(rates(waits), (99, 990 * MS));
        let nearly = OffCpu {
            mean: 11_100_000 * Duration::from_nanos(1),
            cost: 0.016,
            ..waits
        };
        assert_eq!(rates(nearly), (99, 20 * MS), "no longer than it must be");
        // Among many short waits, which a longer period leaves out, long ones make the mean.
        for cost_before in [None, Some(0.1)] {
            let mixed = OffCpu {
                cost_before,
                ..waits
            };
            assert_eq!(rates(mixed), (99, 2 * MS));
        }
        let cheap = OffCpu {
            cost: 0.001,
            ..waits
        };
        assert_eq!(rates(cheap), (99, MS));
    }

    #[test]
    fn the_longest_period_doubles_with_the_age_of_a_recording() {
        let ages = [0, 8, 15, 16, 31, 40, 64, 100_000];
        let periods = ages.map(|s| max_period(Duration::from_secs(s)).as_secs());
        assert_eq!(periods, [8, 8, 8, 16, 16, 32, 64, 64]);
    }

    #[test]
    fn cheap_samplers_keep_their_rates() {
        assert_eq!(slower(0.01, (99, 0.001), (MS, 0.009)), (99, MS));
    }

    #[test]
    fn each_sampler_is_slowed_by_what_it_costs() {
        assert_eq!(slower(0.01, (99, 0.0), (MS, 0.15)), (99, 17 * MS));
        assert_eq!(slower(0.01, (990, 0.02), (MS, 0.0)), (495, MS));
        assert_eq!(
            slower(0.01, (99, 9.0), (MS, 9.0)),
            (9, 64 * MS),
            "and no further"
        );
    }

    #[test]
    fn half_of_the_limit_is_always_for_each_sampler() {
        // Both together cost no more than the limit.
        assert_eq!(slower(0.01, (100, 0.005), (MS, 0.005)), (100, MS));
        // Each is costly, and has half.
        assert_eq!(slower(0.01, (100, 0.01), (MS, 0.0101)), (50, 3 * MS));
        // One leaves 0.008 for the other.
        assert_eq!(slower(0.01, (100, 0.002), (MS, 0.016)), (100, 3 * MS));
        assert_eq!(slower(0.01, (100, 0.016), (MS, 0.002)), (50, MS));
        assert_eq!(slower(0.01, (100, 0.008), (MS, 0.002)), (100, MS));
    }

    #[test]
    fn after_a_burst_samplers_come_back_to_the_requested_rates() {
        let requested = (99, MS);
        let step = |rates: (u32, Duration), cost| {
            faster(requested, 0.01, (rates.0, cost), (rates.1, cost))
        };
        let steps = std::iter::successors(Some((20, 9 * MS)), |rates| Some(step(*rates, 0.0001)));
        let steps: Vec<_> = steps
            .take(5)
            .map(|(hz, period)| (hz, period.as_micros()))
            .collect();
        assert_eq!(
            steps,
            [(20, 9000), (40, 4500), (80, 2250), (99, 1125), (99, 1000)]
        );
        assert_eq!(step((99, MS), 0.0), requested);
        // Twice as fast, they would cost less than a quarter of their budget at most.
        assert_eq!(step((20, 9 * MS), 0.000_63), (20, 9 * MS));
    }

    #[test]
    fn rates_requested_beyond_the_bounds_are_kept() {
        let day = Duration::from_secs(86_400);
        assert_eq!(slower(0.01, (5, 0.5), (day, 0.5)), (5, day));
        let half = Duration::from_millis(500);
        assert_eq!(slower(0.01, (20, 0.02), (half, 0.5)), (9, 8000 * MS));
        let later = OffCpu {
            period: half,
            mean: half,
            cost: 0.5,
            cost_before: None,
            max_period: MAX_PERIOD,
        };
        let rates = super::slower(0.01, (20, 0.02), later);
        assert_eq!(
            rates,
            (9, 32_000 * MS),
            "in a recording that has lasted for long"
        );
    }
}
