//! The mean signed error of each tier's estimated rows. Single rows may each be within their limit and all err
//! to one side; the mean shows it.
//!
//! The shares of a program often sum to a constant, so that their errors cancel. A second row therefore takes of
//! each group only the function with the largest true share, which a method that evens shares out understates.

use std::collections::BTreeMap;

use wallscope_testkit::Scorecard;
use wallscope_testkit::score::{Estimate, chance};

use super::promise::Experiment;

/// Fraction of the mean promise that the mean error may reach, beside its sampling error.
const ALLOWED: f64 = 0.25;

/// The rows on bias, as an experiment of their own.
pub fn experiment(experiments: &[Experiment]) -> Experiment {
    let mut by_tier: BTreeMap<&str, Vec<Vec<&Estimate>>> = BTreeMap::new();
    for experiment in experiments {
        for group in experiment.outcome.iter().flat_map(groups) {
            by_tier.entry(&group[0].tier).or_default().push(group);
        }
    }
    let mut card = Scorecard::default();
    for (tier, groups) in by_tier {
        let all: Vec<&Estimate> = groups.iter().flatten().copied().collect();
        row(&mut card, format!("{tier}: bias, mean of all rows"), &all);
        let by_share = |a: &&&Estimate, b: &&&Estimate| a.truth.total_cmp(&b.truth);
        let largest = groups.iter().filter_map(|g| g.iter().max_by(by_share));
        let largest: Vec<&Estimate> = largest.copied().collect();
        let what = format!("{tier}: bias, mean of the largest shares");
        row(&mut card, what, &largest);
    }
    Experiment {
        name: "bias",
        about: "mean signed error over all estimated rows of a tier",
        outcome: Ok(card),
        disturbances: Vec::new(),
    }
}

/// Estimated rows of one card that belong together: those that follow each other and have one view and promise.
fn groups(card: &Scorecard) -> Vec<Vec<&Estimate>> {
    let mut groups: Vec<Vec<&Estimate>> = Vec::new();
    let mut last = None;
    for row in &card.rows {
        let Some(estimate) = &row.estimate else {
            last = None;
            continue;
        };
        // The row's name without the function's.
        let view = row.what.split(' ').take_while(|word| !word.contains('_'));
        let view: Vec<&str> = view.collect();
        if last.as_ref() == Some(&view) {
            groups.last_mut().expect("one was begun").push(estimate);
        } else {
            groups.push(vec![estimate]);
        }
        last = Some(view);
    }
    groups
}

/// Adds the row on the mean error of `rows`. Their errors are taken to be independent.
fn row(card: &mut Scorecard, what: String, rows: &[&Estimate]) {
    let n = rows.len() as f64;
    let sum = |f: &dyn Fn(&Estimate) -> f64| rows.iter().map(|r| f(r)).sum::<f64>();
    let squares = sum(&|r| (r.chance / chance::QUANTILE).powi(2));
    card.estimate(
        format!("{what} ({})", rows.len()),
        Estimate {
            truth: 0.0,
            measured: sum(&Estimate::error) / n,
            promise: ALLOWED * sum(&|r| r.promise) / n,
            chance: chance::QUANTILE * squares.sqrt() / n,
            tier: rows[0].tier.clone(),
            ..Estimate::default()
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(errors: &[(f64, f64)]) -> Scorecard {
        let mut card = Scorecard::default();
        for (index, (truth, error)) in errors.iter().enumerate() {
            card.estimate(
                format!("wall f_{index}"),
                Estimate {
                    truth: *truth,
                    measured: truth + error,
                    promise: 1.0,
                    chance: 0.5,
                    tier: "ebpf".into(),
                    ..Estimate::default()
                },
            );
        }
        card
    }

    fn biases(cards: Vec<Scorecard>) -> Scorecard {
        let made = |outcome| Experiment {
            name: "x",
            about: "",
            outcome: Ok(outcome),
            disturbances: Vec::new(),
        };
        let made: Vec<Experiment> = cards.into_iter().map(made).collect();
        experiment(&made).outcome.expect("rows are made")
    }

    #[test]
    fn errors_to_both_sides_are_no_bias_and_errors_to_one_side_are() {
        let both = (0..40).map(|i| card(&[(50.0, if i % 2 == 0 { 0.9 } else { -0.9 })]));
        assert!(biases(both.collect()).passed());
        let one = biases((0..40).map(|_| card(&[(50.0, 0.7)])).collect());
        assert_eq!(one.failures(), 2, "{one}");
    }

    #[test]
    fn shares_that_are_evened_out_are_found_by_the_largest() {
        let even = |_| card(&[(70.0, -0.8), (30.0, 0.8)]);
        let card = biases((0..40).map(even).collect());
        let failed: Vec<_> = card.failed().rows.iter().map(|r| r.what.clone()).collect();
        assert_eq!(failed, ["ebpf: bias, mean of the largest shares (40)"]);
    }
}
