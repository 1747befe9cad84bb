//! Shares of named functions, by view, against the functions' own measurements.

use std::collections::{BTreeMap, BTreeSet};

use super::chance::{self, Part};
use super::{Estimate, Row, Scorecard, figure};
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

/// A function's true time in a view, ns.
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

/// Promised error of shares of blocked, runnable and wall time, percentage points.
pub const OFF_CPU: f64 = 1.0;
/// Promised error of shares of on-CPU time, percentage points.
pub const ON_CPU: f64 = 2.0;
/// Promised error of shares in programs of managed languages, percentage points.
pub const MANAGED: f64 = 1.5;

/// One run as its program and as wallscope tell it.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The recording's report.
    pub report: &'a Report,
    /// The program's own account.
    pub truth: &'a Truth,
    /// Stacks of the recording's wall view.
    pub lines: &'a [Line],
}

/// States of a view, by the names of the views of one state each.
fn states_of(view: &str) -> &[&str] {
    match view {
        "on-cpu" => &["on-cpu"],
        "off-cpu" => &["off-cpu"],
        "runq" => &["runq"],
        _ => &["on-cpu", "off-cpu", "runq"],
    }
}

impl Evidence<'_> {
    /// Samples that the recording has in `ns` of the time of `view`, a view of one state.
    pub fn samples(&self, view: &str, ns: f64) -> f64 {
        let total = self.report.views.get(view).copied().unwrap_or_default();
        let sampled = total.total_ns.saturating_sub(total.not_sampled_ns) as f64;
        ns * total.samples as f64 / sampled.max(1.0)
    }

    /// Rows: each function's share of its threads' time in `view`, within `promise` percentage points, the
    /// sampling error of this recording and the time that the host took. A function that several threads
    /// measured is summed over them; the whole is the time of all threads that called any of the program's measured functions.
    pub fn shares(&self, view: &str, promise: f64) -> Scorecard {
        let mut card = Scorecard::default();
        let callers = self.callers();
        let ours = |line: &Line| callers.contains(line.thread.as_str());
        let whole = time_in(self.lines, view, ours) as f64;
        let stolen = self.stolen_from(view, &callers);
        for (name, ns) in expected(self.truth, view) {
            let measured = time_in(self.lines, view, |line| ours(line) && line.contains(name));
            // Nothing in nothing is a right answer; anything in nothing is not a number, and fails.
            let percent = |ns: u64| match ns {
                0 => 0.0,
                ns => ns as f64 * 100.0 / whole,
            };
            let estimate = Estimate {
                truth: percent(ns),
                measured: percent(measured),
                promise,
                chance: chance::points(&self.parts(name, view, &ours)),
                stolen: percent(stolen),
                tier: self.report.domain.backend.clone(),
            };
            card.estimate(format!("{view} {name}"), estimate);
        }
        card
    }

    /// Row: of the on-CPU time of the threads that `ours` picks, the share with a frame that `is_named` accepts is at
    /// least `promise` percent, less the sampling error.
    pub fn named(
        &self,
        what: &str,
        promise: f64,
        ours: impl Fn(&Line) -> bool,
        is_named: impl Fn(&Line) -> bool,
    ) -> Scorecard {
        let mut card = Scorecard::default();
        let all = time_in(self.lines, "on-cpu", &ours) as f64;
        let named = time_in(self.lines, "on-cpu", |l| ours(l) && is_named(l)) as f64;
        let chance = chance::binomial(promise / 100.0, self.samples("on-cpu", all));
        card.push(Row {
            what: what.into(),
            truth: "".into(),
            measured: figure(100.0 * named / all, "%"),
            limit: format!("≥ {} − {}", figure(promise, "%"), figure(chance, "%")),
            pass: 100.0 * named / all >= promise - chance,
            ..Row::default()
        });
        card
    }

    /// Rows of [`Evidence::shares`] for a program in a managed language: wall and on-CPU time.
    pub fn managed_shares(&self) -> Scorecard {
        let mut card = self.shares("wall", MANAGED);
        card.rows.extend(self.shares("on-cpu", MANAGED).rows);
        card
    }

    /// Names of the threads that called any measured function.
    fn callers(&self) -> BTreeSet<&str> {
        let mut callers = BTreeSet::new();
        for function in &self.truth.functions {
            let called = |tid: u32| function.tid == 0 || function.tid == tid;
            let threads = self.truth.threads.iter().filter(|t| called(t.tid));
            callers.extend(threads.map(|t| t.name.as_str()));
        }
        callers
    }

    /// Time that the host took from the threads that `ours` names, ns, where it moves between states: the kernel's
    /// clock of a thread leaves it out, so the program calls it waiting, and the ledger on-CPU.
    fn stolen_from(&self, view: &str, ours: &BTreeSet<&str>) -> u64 {
        if !matches!(view, "on-cpu" | "off-cpu") {
            return 0;
        }
        let threads = self.report.threads.iter();
        let own = threads.filter(|t| ours.contains(t.name.as_str()));
        own.filter_map(|t| t.on_cpu.get("stolen")).sum()
    }

    /// Switches of the threads that called any measured function: all, and voluntary ones.
    fn switches(&self, ours: &BTreeSet<&str>) -> (f64, f64) {
        let threads = self.report.threads.iter();
        threads.filter(|t| ours.contains(t.name.as_str())).fold(
            (0.0, 0.0),
            |(all, voluntary), t| {
                let own = t.voluntary_switches as f64;
                (all + own + t.involuntary_switches as f64, voluntary + own)
            },
        )
    }

    /// Number of stretches in a state that function `name` has, and that everything else has; `None` where
    /// the state is not sampled at a regular distance, or the program does not count calls.
    fn stretches(&self, name: &str, state: &str) -> Option<(f64, f64)> {
        let tier = self.report.domain.backend.as_str();
        let regular = tier == "ebpf" || (tier == "perf" && state == "on-cpu");
        if !regular || self.truth.functions.iter().any(|f| f.calls == 0) {
            return None;
        }
        let (all, voluntary) = self.switches(&self.callers());
        let calls = |own: bool| -> f64 {
            let functions = self.truth.functions.iter();
            let of = functions.filter(|f| own == (f.name == name));
            of.filter(|f| expected_ns(f, state) > 0)
                .map(|f| f.calls as f64)
                .sum()
        };
        // A switch within a call divides its stretch; a call may wait several times. It is not known which.
        let hidden = match state {
            "off-cpu" => (voluntary - calls(true) - calls(false)).max(0.0),
            _ => all,
        };
        // Beside the functions there is the time between them.
        let between = calls(true) + calls(false) + hidden;
        Some((calls(true) + hidden, calls(false) + hidden + between))
    }

    /// The states of `view` for function `name`, as the sampling error needs them.
    fn parts(&self, name: &str, view: &str, ours: &impl Fn(&Line) -> bool) -> Vec<Part> {
        let states = states_of(view).iter();
        let part = |state: &&str| {
            let whole = time_in(self.lines, state, ours) as f64;
            let own = expected(self.truth, state).get(name).copied().unwrap_or(0) as f64;
            let own = own.min(whole);
            let stretches = self.stretches(name, state);
            Part {
                period_ns: 1.0 / self.samples(state, 1.0),
                own_ns: own,
                own_stretches: stretches.map(|s| s.0),
                other_ns: whole - own,
                other_stretches: stretches.map(|s| s.1),
            }
        };
        let finite = |part: &Part| part.period_ns.is_finite();
        states.map(part).filter(finite).collect()
    }
}

/// Each function's true time in `view`, ns.
fn expected<'t>(truth: &'t Truth, view: &str) -> BTreeMap<&'t str, u64> {
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for function in &truth.functions {
        *expected.entry(&function.name).or_default() += expected_ns(function, view);
    }
    expected
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

/// Number of functions with a printed interval that holds the truth, and number of all: `(held, cases)`. A
/// function without an interval counts as a case that does not hold.
pub fn covered(report: &Report, truth: &Truth, view: &str) -> (usize, usize) {
    let expected = expected(truth, view);
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

    fn shares(run: &(Report, Truth, Vec<Line>), view: &str, promise: f64) -> Scorecard {
        let (report, truth, lines) = run;
        Evidence {
            report,
            truth,
            lines,
        }
        .shares(view, promise)
    }

    #[test]
    fn true_shares_pass_in_every_view() {
        let run = canned::mix();
        for view in ["wall", "on-cpu", "off-cpu", "runq"] {
            let card = shares(&run, view, 0.01);
            assert!(card.passed(), "{card}");
            assert_eq!(card.rows.len(), 2);
        }
        let (report, truth, lines) = run;
        let card = sums(&report, &lines, &truth);
        assert!(card.passed(), "{card}");
        assert_eq!(covered(&report, &truth, "on-cpu"), (2, 2));
    }

    #[test]
    fn a_share_that_went_to_another_function_fails() {
        let mut run = canned::mix();
        let taken = run.2.iter_mut().find(|line| line.contains("compute"));
        taken.unwrap().frames.last_mut().unwrap().name = "rest".into();
        for view in ["wall", "on-cpu"] {
            assert!(!shares(&run, view, ON_CPU).passed());
        }
        assert!(
            !sums(&run.0, &run.2, &run.1).passed(),
            "the report disagrees with the stacks"
        );
    }

    #[test]
    fn time_that_the_host_took_may_be_in_either_state() {
        let mut run = canned::mix();
        let ours = run.0.threads.iter_mut().find(|t| t.tid == 2).unwrap();
        ours.on_cpu.insert("stolen".into(), ours.wall_ns / 50);
        let stolen = |view: &str| {
            shares(&run, view, 1.0).rows[0]
                .estimate
                .clone()
                .unwrap()
                .stolen
        };
        assert!(stolen("on-cpu") > 2.0 && stolen("off-cpu") > 2.0);
        assert_eq!(stolen("wall"), 0.0, "in the wall time it is either way");
    }

    #[test]
    fn the_limit_widens_with_fewer_samples_and_states_both_parts() {
        let estimate = |samples: u64, view: &str| {
            let mut run = canned::mix();
            run.0.views.get_mut(view).unwrap().samples = samples;
            shares(&run, view, 1.0).rows[0].estimate.clone().unwrap()
        };
        let often = estimate(1_000, "runq");
        assert_eq!(often.limit(), 1.0 + often.chance);
        assert!(estimate(100, "runq").chance > 2.0 * often.chance);
        // All of the computing is one function's: which stack a sample shows is certain.
        assert_eq!(estimate(100, "on-cpu").chance, 0.0);
    }

    #[test]
    fn a_lower_tier_is_not_taken_to_sample_waits_regularly() {
        let chance = |tier: &str| {
            let mut run = canned::mix();
            run.0.domain.backend = tier.into();
            let views = run.0.views.values_mut();
            views.for_each(|view| view.samples = 100_000);
            let card = shares(&run, "runq", 1.0);
            card.rows[0].estimate.clone().unwrap().chance
        };
        assert!(chance("ebpf") < chance("perf"));
        assert_eq!(chance("perf"), chance("proc"));
    }

    #[test]
    fn time_that_no_stack_carries_fails() {
        let mut run = canned::mix();
        run.2[0].ns -= 1_000;
        let card = sums(&run.0, &run.2, &run.1);
        assert!(!card.passed(), "{card}");
        run.2.clear();
        assert!(!shares(&run, "on-cpu", ON_CPU).passed());
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
