use super::*;

const SECOND: u64 = 1_000_000_000;

/// A machine on a simulated clock: the cost of each part of measuring at its switches.
struct Machine {
    now: Reading,
    /// Switches a second.
    switches: u64,
    /// Cost of a switch with each step given up, ns.
    a_switch: [u64; 5],
}

impl Machine {
    fn new(switches: u64) -> Machine {
        Machine {
            now: Reading::default(),
            switches,
            a_switch: [1000, 700, 400, 200, 0],
        }
    }

    /// Half a second of measuring, as a recording's ticks.
    fn runs(&mut self, given_up: GivenUp) {
        self.now.time += SECOND / 2;
        self.now.switches += self.switches / 2;
        self.now.cost_ns += self.switches / 2 * self.a_switch[given_up as usize];
    }

    fn runs_for(&mut self, budget: &mut Budget, seconds: u64) -> Vec<(u64, GivenUp)> {
        let mut taken = Vec::new();
        for _ in 0..2 * seconds {
            self.runs(budget.given_up());
            let step = budget.check(self.now);
            taken.extend(step.map(|step| (self.now.time / SECOND, step)));
        }
        taken
    }
}

#[test]
fn a_cost_within_the_limit_changes_nothing() {
    let (mut machine, mut budget) = (Machine::new(9_000), Budget::new(0.01, Reading::default()));
    assert_eq!(machine.runs_for(&mut budget, 600), []);
    assert!(budget.limits(0).is_empty());
}

#[test]
fn steps_go_in_their_order_until_the_cost_is_within_the_limit() {
    let (mut machine, mut budget) = (Machine::new(20_000), Budget::new(0.01, Reading::default()));
    // 2 %, 1.4 %, 0.8 %: two steps do.
    let taken = machine.runs_for(&mut budget, 120);
    assert_eq!(taken, [(1, GivenUp::Requests), (2, GivenUp::Stacks)]);
}

#[test]
fn nothing_but_the_kernel_s_counters_is_left_at_last() {
    let (mut machine, mut budget) = (
        Machine::new(1_000_000),
        Budget::new(0.01, Reading::default()),
    );
    let taken = machine.runs_for(&mut budget, 10);
    let steps: Vec<GivenUp> = taken.iter().map(|(_, step)| *step).collect();
    assert_eq!(steps, GivenUp::ALL[1..]);
    assert_eq!(budget.most(), GivenUp::Hooks);
}

#[test]
fn steps_are_taken_back_one_by_one_when_the_load_is_gone() {
    let (mut machine, mut budget) = (Machine::new(100_000), Budget::new(0.01, Reading::default()));
    machine.runs_for(&mut budget, 20);
    assert_eq!(budget.given_up(), GivenUp::Hooks);
    machine.switches = 1_000;
    let taken = machine.runs_for(&mut budget, 60);
    let steps: Vec<GivenUp> = taken.iter().map(|(_, step)| *step).collect();
    let back: Vec<GivenUp> = GivenUp::ALL[..4].iter().rev().copied().collect();
    assert_eq!(steps, back);
    let times: Vec<u64> = taken.iter().map(|(time, _)| *time).collect();
    assert!(times.windows(2).all(|t| t[1] - t[0] >= CALM / SECOND));
    assert_eq!(machine.runs_for(&mut budget, 600), []);
}

#[test]
fn a_load_that_stays_is_not_tried_again_and_again() {
    let (mut machine, mut budget) = (Machine::new(20_000), Budget::new(0.01, Reading::default()));
    machine.runs_for(&mut budget, 10);
    // With stacks it would be 1.4 %, which is known.
    assert_eq!(machine.runs_for(&mut budget, 3600), []);
}

#[test]
fn a_load_that_comes_and_goes_is_tried_ever_more_rarely() {
    let (mut machine, mut budget) = (Machine::new(20_000), Budget::new(0.01, Reading::default()));
    let mut taken = 0;
    for n in 0..240 {
        machine.switches = if n % 2 == 0 { 20_000 } else { 1_000 };
        taken += machine.runs_for(&mut budget, 15).len();
    }
    // One hour. Each quarter of a minute has the other load.
    assert!(taken <= 40, "{taken} steps");
}

#[test]
fn the_domain_names_each_step_its_time_and_its_columns() {
    let (mut machine, mut budget) = (Machine::new(100_000), Budget::new(0.05, Reading::default()));
    machine.runs_for(&mut budget, 5);
    machine.switches = 100;
    machine.runs_for(&mut budget, 60);
    let limits = budget.limits(0);
    let words: Vec<&str> = limits.iter().map(|l| &*l.what).collect();
    assert_eq!(words.len(), 2, "{words:?}");
    assert!(
        words[0].starts_with("request tracking given up from 1.0 s to 25"),
        "{}",
        words[0]
    );
    assert!(
        words[1].starts_with("stacks and wakers given up from 2.0 s to 15"),
        "{}",
        words[1]
    );
    assert!(words.iter().all(|w| w.contains("not exact")));
}
