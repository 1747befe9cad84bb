//! Known weaknesses: rows that wallscope does not keep within their limit yet, with the present error beside the
//! promise.
//!
//! A row in this table holds if its error stays within the present one. The row says so, so that every report
//! of a test or of `verify` shows promise and weakness side by side. A limit here may only shrink; a weakness
//! that is mended leaves the table.

use crate::Scorecard;

/// One known weakness.
#[derive(Clone, Copy, Debug)]
pub struct Weakness {
    /// Experiment.
    pub experiment: &'static str,
    /// Begin of the row's question ([`crate::Row::question`]).
    pub row: &'static str,
    /// Present largest error, in the unit of the row, beside sampling.
    pub present: f64,
    /// Reason, as far as it is known, and the measurement.
    pub why: &'static str,
}

/// All known weaknesses.
pub const ALL: &[Weakness] = &[];

/// Lets rows of `experiment` hold that fail by no more than a known weakness, and marks them.
pub fn allow(experiment: &str, card: &mut Scorecard) {
    allow_by(ALL, experiment, card);
}

fn allow_by(all: &[Weakness], experiment: &str, card: &mut Scorecard) {
    for row in card.rows.iter_mut().filter(|row| !row.pass) {
        let question = row.question();
        let fits = |w: &&Weakness| w.experiment == experiment && question.starts_with(w.row);
        let (Some(weakness), Some(estimate)) = (all.iter().find(fits), &row.estimate) else {
            continue;
        };
        row.pass = estimate.error().abs() <= weakness.present + estimate.chance + estimate.stolen;
        row.limit = format!("known: {} (promise {})", weakness.present, row.limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks;
    use crate::score::Estimate;

    const SOME: &[Weakness] = &[Weakness {
        experiment: "mix",
        row: "wall f",
        present: 3.0,
        why: "",
    }];

    fn card(measured: f64) -> Scorecard {
        let mut card = Scorecard::default();
        let estimate = Estimate {
            truth: 50.0,
            measured,
            promise: 1.0,
            chance: 0.5,
            tier: "ebpf".into(),
            ..Estimate::default()
        };
        card.estimate("wall f (3.8)", estimate);
        card
    }

    #[test]
    fn a_known_weakness_holds_up_to_its_present_error_and_shows_the_promise() {
        let mut bad = card(53.4);
        assert!(!bad.passed());
        allow_by(SOME, "mix", &mut bad);
        assert!(bad.passed());
        assert!(bad.to_string().contains("known: 3 (promise ± 1"), "{bad}");
        let mut worse = card(53.6);
        allow_by(SOME, "mix", &mut worse);
        assert!(!worse.passed());
    }

    #[test]
    fn other_rows_and_experiments_are_not_excused() {
        let mut other = card(53.4);
        allow_by(SOME, "convoy", &mut other);
        assert!(!other.passed());
        let mut good = card(50.2);
        allow_by(SOME, "mix", &mut good);
        assert!(!good.to_string().contains("known"));
    }

    #[test]
    fn every_weakness_is_of_an_experiment_that_exists() {
        for weakness in ALL {
            assert!(checks::by_name(weakness.experiment).is_some());
            assert!(!weakness.row.is_empty() && !weakness.why.is_empty());
        }
    }
}
