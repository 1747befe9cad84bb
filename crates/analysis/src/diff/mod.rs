//! Compares two sides: functions that became costlier or cheaper, in which state, and whether that is real.
//!
//! [`compare`] gives a [`Comparison`] as plain data: the whole by state and reason, and functions. Each is measured
//! in each run by block of time (`measure`), and judged by `wallscope_model::compare`. A function is *one* finding
//! whatever states it changed in: time that it computed and now waits is a move, not a gain and a loss. [`Stacks`]
//! holds the stacks of both sides. [`Condition`] decides whether a script fails. Presentations are in the crate for
//! rendering.
//!
//! Limits: it does not judge single stacks (the page shows them), and it does not know the reason for a change.

mod comparison;
mod condition;
mod functions;
mod holders;
mod judge;
mod measure;
mod options;
mod requests;
mod stacks;
mod units;

use wallscope_model::compare::{Difference, Estimate, adjust};
use wallscope_model::merge::MergeError;
use wallscope_model::{Recording, State, merge};

use functions::Names;
use measure::{Run, Sides, states_of};
use wallscope_model::UNTOLD;
use wallscope_model::units::{count, ns};

pub use comparison::{Comparison, FunctionRow, InState, WholeRow};
pub use condition::{Condition, Outcome, Verdict};
pub use holders::HeldBy;
pub use measure::STATES;
pub use options::{Metric, Normal, Options};
pub use requests::served;
pub use stacks::{FrameName, Stacks, Times};
pub use units::{Unit, relative};

/// Reason why recordings cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CompareError {
    /// A side has no recording, or the recordings measured in different ways.
    #[error(transparent)]
    Domains(#[from] MergeError),
    /// Values per on-CPU second were asked for, and a side has no on-CPU time.
    #[error("a side has no on-CPU time to divide by; use --per total, second or raw")]
    NoCpuTime,
}

/// Compares recordings. If the length of one is unknown, values are per run instead of per second, and a
/// note says so.
///
/// ```
/// use wallscope_analysis::diff::{Options, compare};
///
/// let runs = [wallscope_synthetic::recording(4), wallscope_synthetic::recording(4)];
/// let comparison = compare(&runs, &runs, &Options::default())?;
/// assert_eq!(comparison.changed().count(), 0);
/// # Ok::<(), wallscope_analysis::diff::CompareError>(())
/// ```
///
/// # Errors
/// [`CompareError`].
pub fn compare(
    base: &[Recording],
    new: &[Recording],
    options: &Options,
) -> Result<Comparison, CompareError> {
    let first = base.first().ok_or(MergeError::Nothing)?;
    if new.is_empty() {
        return Err(MergeError::Nothing.into());
    }
    for other in base.iter().chain(new) {
        merge::compatible(&first.domain, &other.domain)?;
    }
    let mut notes = Vec::new();
    let mut options = options.clone();
    let no_length = |r: &Recording| r.window.end_ns <= r.window.start_ns;
    if options.normal == Normal::Second && base.iter().chain(new).any(no_length) {
        options.normal = Normal::Raw;
        notes.push(
            "not every file says how long it was recorded, so values are those of a run: runs of unlike \
             length differ by that alone (--per total compares shares)"
                .to_string(),
        );
    }
    let options = &options;
    let mut names = Names::default();
    let mut measure = |side: &[Recording], requests: &[f64]| -> Vec<Run> {
        let requests = |i: usize| requests.get(i).or(requests.last()).copied();
        (side.iter().enumerate())
            .map(|(i, rec)| Run::of(rec, &mut names, options, requests(i)))
            .collect()
    };
    let sides = (
        measure(base, &options.base_requests),
        measure(new, &options.new_requests),
    );
    let states = states_of(options.view);
    let judged = judge::functions(&names, &sides, &states, options);
    if first.domain.unit.name() == UNTOLD {
        notes.push(
            "what the numbers count is not in the files: each is taken for so many samples; where they are \
             none, say what they are, as in --value nanoseconds"
                .to_string(),
        );
    }
    let no_cpu = |r: &Run| options.normal == Normal::CpuSecond && r.scale() <= 0.0;
    if sides.0.iter().chain(&sides.1).any(no_cpu) {
        return Err(CompareError::NoCpuTime);
    }
    let idle = |runs: &[Run]| runs.iter().map(|r| r.hidden_idle_ns).sum::<u64>();
    let hidden_idle_ns = (idle(&sides.0), idle(&sides.1));
    let mean = |runs: &[Run]| runs.iter().map(|r| r.seconds).sum::<f64>() / runs.len() as f64;
    notes.extend(notes_on_runs((base, new), options, hidden_idle_ns));
    Ok(Comparison {
        whole: whole(&sides, options, first.domain.is_import()),
        functions: judged.functions,
        prior: judged.prior,
        priors: judged.priors,
        runs: (base.len(), new.len()),
        hidden_idle_ns,
        seconds: (mean(&sides.0), mean(&sides.1)),
        options: options.clone(),
        measured: first.domain.unit.clone(),
        notes,
    })
}

/// Notes for the reader on the runs of both sides.
fn notes_on_runs(
    (base, new): (&[Recording], &[Recording]),
    options: &Options,
    hidden_idle_ns: (u64, u64),
) -> Vec<String> {
    let mut notes = Vec::new();
    if hidden_idle_ns != (0, 0) {
        notes.push(format!(
            "idle time is left out: {} of the base, {} of the new runs (--idle show)",
            ns(hidden_idle_ns.0),
            ns(hidden_idle_ns.1)
        ));
    }
    if base.len() + new.len() == 2 {
        let blocks = [&base[0], &new[0]].iter().all(|r| r.slices.count > 0);
        let judged = if blocks {
            "is judged from blocks within them"
        } else {
            "is not known, for the files have no times"
        };
        notes.push(format!(
            "one run a side: how much runs differ {judged}; record several runs of each to know"
        ));
    }
    if options.normal == Normal::Request && options.requests_served {
        let all = |side: &[f64]| count(side.iter().sum::<f64>() as u64);
        notes.push(format!(
            "requests are those that the recorded processes were seen to be asked over sockets: {} in \
             the base, {} in the new runs",
            all(&options.base_requests),
            all(&options.new_requests)
        ));
    }
    notes
}

/// Estimates of the base and of the new runs.
type Both = [Vec<Estimate>; 2];

fn whole(sides: &Sides, options: &Options, imported: bool) -> Vec<WholeRow> {
    let mut rows: Vec<(Option<State>, Option<&'static str>, Both)> = Vec::new();
    let of = |f: &dyn Fn(&Run) -> Estimate| {
        [
            sides.0.iter().map(f).collect(),
            sides.1.iter().map(f).collect(),
        ]
    };
    let shown: Vec<usize> = (0..STATES.len())
        .filter(|s| options.view.includes(STATES[*s]))
        .collect();
    rows.push((None, None, of(&|r| r.whole(&shown))));
    for s in &shown {
        let runs = || sides.0.iter().chain(&sides.1);
        // A row of unknown time is shown only if there is some. Most files of other tools have no states:
        // all their time is unknown, and a row beside the total would repeat it.
        let none = |s: &usize| runs().all(|r| r.sampled_ns(*s) <= 0.0);
        let unknown = STATES[*s] == State::Unknown;
        let all = unknown && shown.iter().all(|o| o == s || none(o));
        if all || (imported || unknown) && none(s) {
            continue;
        }
        rows.push((Some(STATES[*s]), None, of(&|r| r.whole(&[*s]))));
        let mut reasons: Vec<&'static str> = runs()
            .flat_map(|r| r.reasons.keys())
            .filter(|(_, state)| state == s)
            .map(|(reason, _)| *reason)
            .collect();
        reasons.sort_unstable();
        reasons.dedup();
        for reason in reasons {
            let part = |r: &Run| r.part(&[*s], &[r.reasons.get(&(reason, *s))]);
            rows.push((Some(STATES[*s]), Some(reason), of(&part)));
        }
    }
    let differences: Vec<Difference> = (rows.iter())
        // Exact totals have no sampling error to compare the runs' spread with.
        .map(|(.., [b, n])| wallscope_model::compare::compare_spread(b, n))
        .collect();
    let q = adjust(&differences.iter().map(|d| d.p).collect::<Vec<_>>());
    (rows.into_iter().zip(differences).zip(q))
        .map(|(((state, reason, _), difference), q)| WholeRow {
            state,
            reason,
            difference,
            q,
        })
        .collect()
}

/// A state in words, of the thread that is in it.
pub fn doing(state: State) -> &'static str {
    match state {
        State::OnCpu => "computing",
        State::Runnable => "waiting for a CPU",
        State::Blocked => "blocked",
        State::Unknown => "in a state not known",
    }
}
