//! Promises are judged by the worst row, and a promise without a row does not hold.

use wallscope_testkit::Scorecard;
use wallscope_testkit::score::{Estimate, Row, within};
use xtask::bench::Measured;
use xtask::verify::promise::{Experiment, PROMISES, number};

fn experiment(name: &'static str, fill: impl FnOnce(&mut Scorecard)) -> Experiment {
    let mut card = Scorecard::default();
    fill(&mut card);
    Experiment {
        name,
        about: "",
        outcome: Ok(card),
        disturbances: Vec::new(),
    }
}

fn holds(what: &str, experiments: &[Experiment]) -> (bool, String) {
    let promise = PROMISES.iter().find(|p| p.what.starts_with(what)).unwrap();
    let judged = promise.judge(experiments, &Measured::default());
    (judged.pass, judged.measured)
}

#[test]
fn the_worst_row_decides() {
    let good = experiment("good", |card| {
        card.at_most("residue, worst thread (a 1)", 3.0, 100.0, "ppm");
    });
    let bad = experiment("bad", |card| {
        card.at_most("residue, worst thread (b 2)", 130.0, 100.0, "ppm");
    });
    assert!(holds("residue", std::slice::from_ref(&good)).0);
    let (pass, told) = holds("residue", &[good, bad]);
    assert!(
        !pass && told.contains("130") && told.contains("in bad"),
        "{told}"
    );
}

#[test]
fn a_share_is_judged_by_its_distance_whatever_the_row_allowed() {
    let shares = |measured| {
        [experiment("mix", |card| {
            card.near("wall f", 50.0, measured, within(5.0, "%"));
        })]
    };
    assert!(holds("share of a named function, wall", &shares(50.9)).0);
    assert!(!holds("share of a named function, wall", &shares(51.2)).0);
    assert!(!holds("share of a named function, wall", &shares(48.8)).0);
}

#[test]
fn an_estimated_share_may_err_by_the_promise_and_its_sampling_error() {
    let shares = |measured, stolen| {
        [experiment("mix", |card| {
            let estimate = Estimate {
                stolen,
                truth: 50.0,
                measured,
                promise: 1.0,
                chance: 0.5,
                tier: "ebpf".into(),
            };
            card.estimate("wall f", estimate);
        })]
    };
    let what = "share of a named function, wall";
    let (pass, told) = holds(what, &shares(51.4, 0.0));
    assert!(
        pass && told.contains("of which 0.50 may be chance"),
        "{told}"
    );
    assert!(!holds(what, &shares(51.6, 0.0)).0);
    assert!(!holds(what, &shares(48.4, 0.0)).0);
    let (pass, told) = holds(what, &shares(51.6, 0.2));
    assert!(
        pass && told.contains("0.20 time that the host took"),
        "{told}"
    );
}

#[test]
fn coverage_and_bias_are_held_to_the_limit_of_their_row() {
    let cover = |percent| {
        [experiment("cover", |card| {
            card.at_least("intervals that hold the truth, of 320", percent, 85.0, "%");
        })]
    };
    assert!(holds("printed intervals", &cover(91.0)).0);
    let (pass, told) = holds("printed intervals", &cover(84.0));
    assert!(!pass && told.contains("own limit ≥ 85"), "{told}");
}

#[test]
fn a_row_without_a_truth_is_held_to_its_own_limit() {
    let shares = |off: f64, under: f64| {
        [experiment("node", |card| {
            card.near(
                "node on-cpu jsHeavy (as it is)",
                75.0,
                75.0 + off,
                within(5.0, "%"),
            );
            card.at_least("node on-cpu under turn (as it is)", under, 90.0, "%");
        })]
    };
    let what = "share of a function, on-CPU, JavaScript";
    let (pass, told) = holds(what, &shares(1.2, 96.4));
    assert!(
        pass && told.contains("1.20 off") && told.contains("worst of 2"),
        "{told}"
    );
    assert!(!holds(what, &shares(1.6, 96.4)).0);
    let (pass, told) = holds(what, &shares(1.2, 80.0));
    assert!(!pass && told.contains("80.00%, own limit ≥ 90"), "{told}");
}

#[test]
fn a_lower_limit_and_a_zero_are_held() {
    let roots = |percent| {
        [experiment("odd", |card| {
            card.at_least("stacks that reach the root, on_cpu", percent, 99.9, "%");
        })]
    };
    assert!(holds("stacks that reach the root, on-CPU", &roots(99.95)).0);
    assert!(!holds("stacks that reach the root, on-CPU", &roots(99.8)).0);
    let wrong = |lines: u32| {
        [experiment("odd", |card| {
            let measured = format!("{lines} lines, 0 µs");
            card.push(Row {
                what: "wrong but complete stacks".into(),
                truth: "0".into(),
                measured,
                limit: "0".into(),
                pass: lines == 0,
                ..Row::default()
            });
        })]
    };
    assert!(holds("wrong but complete", &wrong(0)).0);
    assert!(!holds("wrong but complete", &wrong(1)).0);
}

#[test]
fn what_was_not_measured_does_not_hold() {
    for promise in PROMISES {
        let judged = promise.judge(&[], &Measured::default());
        assert!(!judged.pass, "{}", judged.what);
    }
    let not_made = Experiment {
        name: "x",
        about: "",
        outcome: Err("no".into()),
        disturbances: Vec::new(),
    };
    assert!(!holds("every row", &[not_made]).0);
}

#[test]
fn numbers_are_found_in_cells() {
    assert_eq!(number("≤ 100.5 ppm"), Some(100.5));
    assert_eq!(number("-0.25%"), Some(-0.25));
    assert_eq!(number("none"), None);
}
