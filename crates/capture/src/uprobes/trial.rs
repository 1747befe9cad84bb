//! A short trial of probes that are in place: the rate of calls, and their cost.

use std::time::Duration;

use super::{
    abi::{Met, Site},
    calibrate::Costs,
    options::Options,
    plan::{Plan, Planned},
    programs::Programs,
};
use crate::{Error, clock::now};

/// Interval between the readings of a trial, and their number.
const TRIAL_STEP: Duration = Duration::from_millis(4);
const TRIAL_STEPS: u32 = 12;
/// Calls a second that may be reported one by one until it is known which are long.
const MAX_REPORTED: f64 = 10_000.0;

/// Result of a trial.
pub(super) struct Trial {
    /// Calls a second.
    pub rate: f64,
    /// Their cost, ns a second.
    pub cost: f64,
}

impl Trial {
    /// Watches the probes for a short while. Ends at once where they cost far more than `options` allow.
    pub(super) fn run(programs: &Programs, costs: &Costs, options: &Options) -> Trial {
        let mut trial = Trial {
            rate: 0.0,
            cost: 0.0,
        };
        let (start_ns, before) = (now(), programs.met());
        for step in 0..TRIAL_STEPS {
            std::thread::sleep(TRIAL_STEP);
            let met = programs.met();
            let ns = now() - start_ns;
            let seconds = ns as f64 / 1e9;
            let calls = begun(&met) - begun(&before);
            trial = Trial {
                rate: calls as f64 / seconds,
                cost: costs.spent(&before, &met, ns) as f64 / seconds,
            };
            // A few calls in the first milliseconds are no rate.
            if trial.cost > 4.0 * options.limit_ns() && calls > 500 && step > 0 {
                break;
            }
        }
        trial
    }

    /// Whether calls are so few that they may be reported one by one until it is known which are long.
    pub(super) fn is_quiet(&self) -> bool {
        self.rate < MAX_REPORTED
    }

    /// Why the probes must not stay, if so.
    pub(super) fn refusal(&self, options: &Options, plan: &Plan, costs: &Costs) -> Option<Error> {
        if self.cost > options.limit_ns() {
            return Some(self.too_dear(options, plan, costs));
        }
        (options.each && !self.is_quiet()).then(|| Error::Refused {
            what: "each call".into(),
            why: format!(
                "{:.0} calls a second came in a short trial, and at most {MAX_REPORTED:.0} can \
                 be followed one by one",
                self.rate
            ),
            instead: "follow a function that calls it, or leave --slow out".into(),
        })
    }

    fn too_dear(&self, options: &Options, plan: &Plan, costs: &Costs) -> Error {
        let Trial { rate, cost } = *self;
        let what = match &plan.functions[..] {
            [one] => one.name.clone(),
            many => format!("{} functions", many.len()),
        };
        // Hooks of system calls have no cost of their own that could be foretold.
        let of = |f: &Planned| costs.of(&f.kinds);
        let each = match plan.functions.iter().map(of).max().unwrap_or(0) {
            0 => format!("{:.1} µs", cost / rate.max(1.0) / 1e3),
            ns => format!("up to {:.1} µs", ns as f64 / 1e3),
        };
        Error::Refused {
            what,
            why: format!(
                "a short trial counted {rate:.0} calls a second, already slowed by the probes, which at {each} a call \
                 is {} of one CPU, more than the {} % allowed",
                percent(cost / 1e9),
                options.max_overhead
            ),
            instead: format!(
                "--max-overhead {} allows it{}",
                (cost / 1e7 * 1.5).ceil().max(1.0),
                if options.timed {
                    "; `wallscope count` costs less than half; a function that calls it is called less often"
                } else {
                    "; a function that calls it is called less often"
                }
            ),
        }
    }
}

/// Calls that have begun, on all CPUs.
fn begun(met: &[Met]) -> u64 {
    let begins = [Site::Entry, Site::SteppedEntry, Site::Begin];
    let of_cpu = |met: &Met| {
        begins
            .map(|k| met.kind[k as usize].count)
            .iter()
            .sum::<u64>()
    };
    met.iter().map(of_cpu).sum()
}

/// A share in words.
pub(super) fn percent(share: f64) -> String {
    if share < 0.0995 {
        format!("{:.1} %", share * 100.0)
    } else {
        format!("{:.0} %", share * 100.0)
    }
}
