//! Shares of named functions, by view, against what the functions measured about themselves.

use std::collections::{BTreeMap, BTreeSet};

use super::Scorecard;
use crate::folded::Line;
use crate::report::Report;
use crate::truth::{FunctionTruth, Truth};

/// Whether time in `state` belongs to `view`.
pub fn in_view(view: &str, state: &str) -> bool {
    match view {
        "on-cpu" => state == "on_cpu",
        "off-cpu" => state == "blocked",
        "runq" => state == "runnable",
        _ => true,
    }
}

/// What a function's time in a view should be, ns.
pub fn expected_ns(function: &FunctionTruth, view: &str) -> u64 {
    match view {
        "on-cpu" => function.on_cpu_ns,
        "off-cpu" => function.blocked_ns(),
        "runq" => function.run_delay_ns,
        _ => function.wall_ns,
    }
}

/// A view's time in stacks with `function` on them, ns, over all lines that `keep` admits.
fn time_in(lines: &[Line], view: &str, keep: impl Fn(&Line) -> bool) -> u64 {
    let kept = lines
        .iter()
        .filter(|line| in_view(view, &line.state) && keep(line));
    kept.map(|line| line.ns).sum()
}

/// How near a share must come.
#[derive(Clone, Copy, Debug)]
pub struct Nearness {
    /// Percentage points that are promised.
    pub points: f64,
    /// Samples a second of the view's time: where there are so few that chance alone (two and a
    /// half standard deviations) goes further than the promise, that is the limit. 0: not by chance.
    pub hz: u32,
}

impl Nearness {
    /// Promised of blocked, runnable and wall time, a stack for each ms of it.
    pub const OFF_CPU: Nearness = Nearness {
        points: 1.0,
        hz: 1000,
    };
    /// Promised of on-CPU time at 499 Hz.
    pub const ON_CPU: Nearness = Nearness {
        points: 2.0,
        hz: 499,
    };

    /// The limit for a share of `percent` of `whole_ns`, in percentage points.
    fn limit(self, percent: f64, whole_ns: f64) -> f64 {
        if self.hz == 0 {
            return self.points;
        }
        let samples = whole_ns / 1e9 * f64::from(self.hz);
        let deviation = (percent * (100.0 - percent) / samples).sqrt();
        self.points.max(2.5 * deviation)
    }
}

/// Rows: each function's share of its threads' time in `view`. A function that several threads
/// measured is summed over them; the whole is the time of all threads that called any of the
/// program's measured functions.
pub fn functions(truth: &Truth, lines: &[Line], view: &str, nearness: Nearness) -> Scorecard {
    rows(truth, lines, view, |_| nearness)
}

/// The same of programs in managed languages, of wall and on-CPU time: a stack for each ms off the CPU, `hz`
/// samples a second on it, whichever view they are looked at in.
pub fn managed(truth: &Truth, lines: &[Line], hz: u32) -> Scorecard {
    let points = 1.5;
    let wall = |on_cpu: f64| Nearness {
        points,
        hz: (1000.0 + on_cpu * (f64::from(hz) - 1000.0)) as u32,
    };
    let mut card = rows(truth, lines, "wall", wall);
    let on_cpu = rows(truth, lines, "on-cpu", |_| Nearness { points, hz });
    card.rows.extend(on_cpu.rows);
    card
}

/// `nearness`: by what part of its wall time a function was on the CPU, 0 to 1.
fn rows(
    truth: &Truth,
    lines: &[Line],
    view: &str,
    nearness: impl Fn(f64) -> Nearness,
) -> Scorecard {
    let mut card = Scorecard::default();
    // In the view, on the CPU, and in all.
    let mut expected: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let mut callers = BTreeSet::new();
    for function in &truth.functions {
        let sums = expected.entry(&function.name).or_default();
        for (sum, view) in sums.iter_mut().zip([view, "on-cpu", "wall"]) {
            *sum += expected_ns(function, view);
        }
        let called = |tid: u32| function.tid == 0 || function.tid == tid;
        callers.extend(
            truth
                .threads
                .iter()
                .filter(|t| called(t.tid))
                .map(|t| t.name.as_str()),
        );
    }
    let ours = |line: &Line| callers.contains(line.thread.as_str());
    let whole = time_in(lines, view, ours) as f64;
    for (name, [ns, on_cpu, all]) in expected {
        let measured = time_in(lines, view, |line| ours(line) && line.contains(name)) as f64;
        // Nothing in nothing is a right answer; anything in nothing is not a number, and fails.
        let percent = |ns: f64| if ns == 0.0 { 0.0 } else { ns * 100.0 / whole };
        card.near(
            format!("{view} {name}"),
            percent(ns as f64),
            percent(measured),
            nearness(on_cpu as f64 / all.max(1) as f64).limit(percent(ns as f64), whole),
            "%",
        );
    }
    card
}

/// Rows: the stacks of each view sum to the ledger, and the report's function totals to the
/// stacks.
pub fn sums(report: &Report, lines: &[Line], truth: &Truth) -> Scorecard {
    let mut card = Scorecard::default();
    for (state, total) in [
        (
            "on_cpu",
            report.threads.iter().map(|t| t.on_cpu_ns).sum::<u64>(),
        ),
        (
            "runnable",
            report.threads.iter().map(|t| t.runnable_ns).sum(),
        ),
        ("blocked", report.threads.iter().map(|t| t.blocked_ns).sum()),
    ] {
        let stacks: u64 = lines
            .iter()
            .filter(|l| l.state == state)
            .map(|l| l.ns)
            .sum();
        let off = stacks as f64 - total as f64;
        // A nanosecond of rounding for each line at most.
        card.at_most(
            format!("stacks against ledger, {state}"),
            off.abs(),
            lines.len() as f64,
            "ns",
        );
    }
    let names: BTreeSet<&str> = truth.functions.iter().map(|f| f.name.as_str()).collect();
    let mut worst = (0.0, String::new());
    for name in &names {
        let stacks = time_in(lines, "wall", |line| line.contains(name)) as f64;
        let told = report
            .function(name, "wall")
            .map_or(0.0, |times| times.total_ns as f64);
        if (stacks - told).abs() > worst.0 {
            worst = ((stacks - told).abs(), format!(" ({name})"));
        }
    }
    card.at_most(
        format!("function totals against stacks{}", worst.1),
        worst.0,
        lines.len() as f64,
        "ns",
    );
    card
}

/// How often the printed interval of a function's total holds the truth: `(held, cases)`. A
/// function without an interval counts as a case that does not hold.
pub fn covered(report: &Report, truth: &Truth, view: &str) -> (usize, usize) {
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for function in &truth.functions {
        *expected.entry(&function.name).or_default() += expected_ns(function, view);
    }
    let holds = |(name, ns): (&&str, &u64)| {
        let times = report.function(name, view);
        times.is_some_and(|times| times.low_ns <= *ns && *ns <= times.high_ns)
    };
    let held = expected.iter().filter(|case| holds(*case)).count();
    (held, expected.len())
}

#[cfg(test)]
mod tests {
    use super::super::canned;
    use super::*;

    #[test]
    fn true_shares_pass_in_every_view() {
        let (report, truth, lines) = canned::mix();
        for view in ["wall", "on-cpu", "off-cpu", "runq"] {
            let card = functions(
                &truth,
                &lines,
                view,
                Nearness {
                    points: 0.01,
                    hz: 0,
                },
            );
            assert!(card.passed(), "{card}");
            assert_eq!(card.rows.len(), 2);
        }
        let card = sums(&report, &lines, &truth);
        assert!(card.passed(), "{card}");
        assert_eq!(covered(&report, &truth, "on-cpu"), (2, 2));
    }

    #[test]
    fn a_share_that_went_to_another_function_fails() {
        let (report, truth, mut lines) = canned::mix();
        let taken = lines
            .iter_mut()
            .find(|line| line.contains("compute"))
            .unwrap();
        taken.frames.last_mut().unwrap().name = "rest".into();
        for view in ["wall", "on-cpu"] {
            assert!(!functions(&truth, &lines, view, Nearness::ON_CPU).passed());
        }
        assert!(
            !sums(&report, &lines, &truth).passed(),
            "the report disagrees with the stacks"
        );
    }

    #[test]
    fn chance_widens_the_limit_only_where_samples_are_few() {
        let few = Nearness::ON_CPU.limit(50.0, 1e9);
        assert!((5.5..5.7).contains(&few), "499 samples: {few}");
        assert_eq!(Nearness::ON_CPU.limit(50.0, 100e9), 2.0);
        assert_eq!(Nearness { points: 1.0, hz: 0 }.limit(50.0, 1e6), 1.0);
    }

    #[test]
    fn computing_has_as_few_samples_in_all_of_the_time() {
        let (_, truth, lines) = canned::mix();
        let limit = |card: &Scorecard, what: &str| {
            let row = card.rows.iter().find(|row| row.what == what);
            let text = &row.unwrap().limit;
            text.trim_matches(['±', ' ', '%']).parse::<f64>().unwrap()
        };
        let card = managed(&truth, &lines, 99);
        let often = functions(
            &truth,
            &lines,
            "wall",
            Nearness {
                points: 1.5,
                hz: 1000,
            },
        );
        // One computes for 600 of 660 ms, the other waits.
        let (computing, waiting) = ("wall compute", "wall pause");
        assert!(limit(&card, computing) > 2.0 * limit(&often, computing));
        assert!(limit(&card, waiting) < 1.01 * limit(&often, waiting));
    }

    #[test]
    fn time_that_no_stack_carries_fails() {
        let (report, truth, mut lines) = canned::mix();
        lines[0].ns -= 1_000;
        let card = sums(&report, &lines, &truth);
        assert!(!card.passed(), "{card}");
        lines.clear();
        assert!(!functions(&truth, &lines, "on-cpu", Nearness::ON_CPU).passed());
    }

    #[test]
    fn an_interval_beside_the_truth_does_not_hold() {
        let (mut report, truth, _) = canned::mix();
        let times = report.functions[0].views.get_mut("on-cpu").unwrap();
        times.low_ns = times.total_ns + 1;
        times.high_ns = times.total_ns + 2;
        assert_eq!(covered(&report, &truth, "on-cpu"), (1, 2));
        report.functions.remove(0);
        assert_eq!(covered(&report, &truth, "on-cpu"), (1, 2));
    }
}
