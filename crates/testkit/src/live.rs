//! Live tests: treatment of an attempt that fails, and of a test that cannot run.
//!
//! A test that fails has failed. Only if other programs measurably disturbed it (`disturbance`) it is made
//! once more; then the second attempt alone counts, in all of its rows, and the report gives the figures of
//! both. A test that cannot run prints one line that begins with `skipped`; with `WALLSCOPE_REQUIRE_LIVE` set
//! it fails.

use std::fmt;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use rustix::fs::{FlockOperation, flock};

use crate::disturbance::{Disturbance, Meter, wait_for_calm};
use crate::{Error, Scorecard, Tool};

/// Result of one attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Everything held; the report.
    Held(String),
    /// Something did not hold, or the attempt broke off; the report.
    Failed(String),
    /// This machine lacks something that the test needs.
    CannotRun(String),
}

impl From<Result<String, Error>> for Outcome {
    fn from(result: Result<String, Error>) -> Outcome {
        match result {
            Ok(report) => Outcome::Held(report),
            Err(Error::CannotRunHere(why)) => Outcome::CannotRun(why),
            Err(error) => Outcome::Failed(error.to_string()),
        }
    }
}

impl From<Result<Scorecard, Error>> for Outcome {
    fn from(result: Result<Scorecard, Error>) -> Outcome {
        match result {
            Ok(card) if card.passed() => Outcome::Held(card.to_string()),
            Ok(card) => Outcome::Failed(format!(
                "{} of {} rows do not hold\n{}",
                card.failures(),
                card.rows.len(),
                card.failed()
            )),
            Err(error) => Outcome::from(Err::<String, _>(error)),
        }
    }
}

/// The attempts of one test.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The attempt that counts.
    pub outcome: Outcome,
    /// Disturbance of the attempt that counts.
    pub disturbance: Disturbance,
    /// Failure and disturbance of the first attempt, if it does not count.
    pub void: Option<(String, Disturbance)>,
}

/// Judges one test by at most two attempts. `measure` makes an attempt and measures its disturbance; `wait`
/// passes the time between two attempts.
fn judge_by(measure: impl Fn() -> (Outcome, Disturbance), wait: impl FnOnce()) -> Judged {
    let (outcome, disturbance) = measure();
    match outcome {
        Outcome::Failed(why) if disturbance.is_telling() => {
            wait();
            let (outcome, again) = measure();
            Judged {
                outcome,
                disturbance: again,
                void: Some((why, disturbance)),
            }
        }
        outcome => Judged {
            outcome,
            disturbance,
            void: None,
        },
    }
}

/// Judges one test: a first attempt, and a second one if the first failed under a measured disturbance.
pub fn judge(name: &str, attempt: impl Fn() -> Outcome) -> Judged {
    judge_by(
        || {
            let meter = Meter::start();
            (attempt(), meter.read())
        },
        || println!("disturbed {name}: {}", wait_for_calm()),
    )
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((why, disturbance)) = &self.void {
            writeln!(
                f,
                "the first attempt does not count: {disturbance}; it failed: {why}"
            )?;
        }
        match &self.outcome {
            Outcome::Held(report) => write!(f, "{report}"),
            Outcome::Failed(why) if self.void.is_some() => {
                write!(f, "failed again ({}): {why}", self.disturbance)
            }
            Outcome::Failed(why) => write!(
                f,
                "failed, and no disturbance was measured ({}): {why}",
                self.disturbance
            ),
            Outcome::CannotRun(why) => write!(f, "cannot run here: {why}"),
        }
    }
}

/// Returns whether a live test that cannot run is a failure (`WALLSCOPE_REQUIRE_LIVE`).
pub fn is_required() -> bool {
    std::env::var_os("WALLSCOPE_REQUIRE_LIVE").is_some_and(|value| value != "0")
}

/// Reports a test that cannot run.
///
/// # Panics
/// `WALLSCOPE_REQUIRE_LIVE` is set.
pub fn cannot_run(name: &str, why: &str) {
    assert!(!is_required(), "{name} cannot run, and has to: {why}");
    eprintln!("skipped {name}: {why}");
}

/// Makes a test by its name and reports it.
///
/// # Panics
/// The test failed, or it cannot run and `WALLSCOPE_REQUIRE_LIVE` is set.
pub fn test(name: &str, attempt: impl Fn() -> Outcome) {
    if let Outcome::CannotRun(why) = report(name, attempt) {
        cannot_run(name, &why);
    }
}

/// Makes a test of a place that a host may lack (an unprivileged user with perf events, namespaces), while no
/// other test measures. It is skipped there, whatever `WALLSCOPE_REQUIRE_LIVE` says.
///
/// # Panics
/// The test failed.
pub fn test_where_offered(name: &str, attempt: impl Fn() -> Outcome) {
    let _alone = alone();
    if let Outcome::CannotRun(why) = report(name, attempt) {
        eprintln!("skipped {name}: {why}");
    }
}

/// Judges a test and reports it, but for a test that cannot run.
///
/// # Panics
/// The test failed.
fn report(name: &str, attempt: impl Fn() -> Outcome) -> Outcome {
    let begun = Instant::now();
    let judged = judge(name, attempt);
    let seconds = begun.elapsed().as_secs_f64();
    println!("took {seconds:.1} s: {name}");
    if let Some((_, disturbance)) = &judged.void {
        eprintln!("disturbed {name}: made again, as {disturbance}");
    }
    match &judged.outcome {
        Outcome::Held(_) => println!("{name}: {judged}"),
        Outcome::CannotRun(_) => {}
        Outcome::Failed(_) => panic!("{name}: {judged}"),
    }
    judged.outcome
}

/// Makes a test as [`test`] does, while no other test of this kind runs: two at once would measure each other.
///
/// # Panics
/// As [`test`].
pub fn test_alone(name: &str, attempt: impl Fn() -> Outcome) {
    let _alone = alone();
    test(name, attempt);
}

/// Waits for the lock of tests that measure; it is free again when the file is dropped.
fn alone() -> File {
    let path = std::env::temp_dir().join("wallscope-live-tests.lock");
    let file = File::create(&path).expect("a lock file can be made");
    flock(&file, FlockOperation::LockExclusive).expect("the lock can be waited for");
    file
}

/// Makes a test by a `body` that asserts, while no other test measures.
///
/// # Panics
/// As [`test`].
pub fn asserted(name: &str, body: impl Fn()) {
    test_alone(name, || outcome_of(&body));
}

/// Runs a body that asserts; a failed assertion is a failure with its words.
fn outcome_of(body: &impl Fn()) -> Outcome {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(()) => Outcome::Held("held".into()),
        Err(why) => Outcome::Failed(match why.downcast::<String>() {
            Ok(why) => *why,
            Err(why) => why.downcast_ref::<&str>().unwrap_or(&"").to_string(),
        }),
    }
}

/// Makes a test of the real binary that measures nothing which other tests could disturb.
///
/// # Panics
/// As [`test`].
pub fn with_tool(name: &str, attempt: impl Fn(&Tool) -> Result<(), Error>) {
    test(name, || {
        let held = |()| "held".to_string();
        Tool::find()
            .and_then(|tool| attempt(&tool).map(held))
            .into()
    });
}

/// Makes a test of the real binary while no other test measures.
///
/// # Panics
/// As [`test`].
pub fn with_tool_alone(name: &str, attempt: impl Fn(&Tool) -> Result<(), Error>) {
    let _alone = alone();
    with_tool(name, attempt);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const DISTURBED: Disturbance = Disturbance {
        stolen: 0.05,
        others: 0.0,
        delay: std::time::Duration::ZERO,
    };

    fn judged(attempts: &[(bool, bool)]) -> (Judged, usize) {
        let made = Cell::new(0);
        let judged = judge_by(
            || {
                let (holds, disturbed) = attempts[made.get()];
                made.set(made.get() + 1);
                let outcome = match holds {
                    true => Outcome::Held("a".into()),
                    false => Outcome::Failed("b".into()),
                };
                let calm = Disturbance::default();
                (outcome, if disturbed { DISTURBED } else { calm })
            },
            || {},
        );
        (judged, made.get())
    }

    #[test]
    fn a_failure_without_a_disturbance_is_final() {
        let (judged, made) = judged(&[(false, false), (true, false)]);
        assert_eq!((judged.outcome, made), (Outcome::Failed("b".into()), 1));
    }

    #[test]
    fn a_disturbed_failure_has_one_more_attempt_which_alone_counts() {
        let (held, made) = judged(&[(false, true), (true, true)]);
        assert_eq!((&held.outcome, made), (&Outcome::Held("a".into()), 2));
        assert!(held.to_string().contains("host took 5.0 %"), "{held}");
        let (failed, made) = judged(&[(false, true), (false, true), (true, false)]);
        assert_eq!((&failed.outcome, made), (&Outcome::Failed("b".into()), 2));
        assert!(failed.to_string().contains("failed again"), "{failed}");
    }

    #[test]
    fn what_holds_is_not_made_again() {
        let (judged, made) = judged(&[(true, true)]);
        assert_eq!((judged.void, made), (None, 1));
    }

    #[test]
    fn an_assertion_that_fails_is_a_failure_with_its_words() {
        let (small, large) = (1, 2);
        let failed = outcome_of(&|| assert!(small > large, "{small} is not more"));
        assert_eq!(failed, Outcome::Failed("1 is not more".into()));
        assert!(matches!(outcome_of(&|| ()), Outcome::Held(_)));
    }

    #[test]
    fn a_card_without_rows_fails() {
        let outcome = Outcome::from(Ok::<_, Error>(Scorecard::default()));
        assert!(matches!(outcome, Outcome::Failed(_)));
    }
}
