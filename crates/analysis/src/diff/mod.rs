//! Two sides compared: what became dearer or cheaper, in which state, and whether that is real.
//!
//! [`compare`] gives a [`Comparison`] as plain data: the whole by state and reason, and functions.
//! Each is measured in each run by block of time (`measure`), and judged by
//! `wallscope_model::compare`. A function is *one* finding whatever states it changed in: time that
//! it computed and now waits is a move, not a gain and a loss. [`Stacks`] holds the stacks of both
//! sides; [`Condition`] is what a script fails on. Presentations lie in the crate for rendering.
//!
//! What it does not do: it does not judge single stacks (the page shows them), and it does not
//! know why something changed.

mod condition;
mod holders;
mod judge;
mod measure;
mod requests;
mod stacks;
mod units;

use wallscope_model::compare::{Difference, Effort, Estimate, Prior, adjust, effort};
use wallscope_model::merge::MergeError;
use wallscope_model::{FrameKind, Recording, State, View, merge};

use crate::view::{FunctionName, Idle};
use measure::{Names, Run, states_of};
use wallscope_model::UNTOLD;
use wallscope_model::units::{count, ns};

pub use condition::{Condition, Outcome, Verdict};
pub use holders::HeldBy;
pub use measure::STATES;
pub use requests::served;
pub use stacks::{FrameName, Stacks, Times};
pub use units::{Unit, relative};

/// What values are divided by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Normal {
    /// Seconds of recording.
    #[default]
    Second,
    /// Seconds of on-CPU time.
    CpuSecond,
    /// All time of the view: values are shares.
    Total,
    /// Requests, by [`Options::base_requests`] and [`Options::new_requests`].
    Request,
    /// Nothing: time of a run.
    Raw,
}

/// Attribution of a stack's time to functions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The innermost function of the program. Time in the kernel, the C library and the language's
    /// runtime counts for the program's function that called them. Each nanosecond counts once.
    #[default]
    Program,
    /// The innermost function, whatever it is. Each nanosecond counts once.
    Own,
    /// Every function on the stack; recursion counts once.
    Total,
}

/// How to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which time.
    pub view: View,
    /// What to do with idle time.
    pub idle: Idle,
    /// What values are divided by.
    pub normal: Normal,
    /// Attribution of time to functions.
    pub metric: Metric,
    /// Requests of each base run, for [`Normal::Request`].
    pub base_requests: Vec<f64>,
    /// Requests of each new run.
    pub new_requests: Vec<f64>,
    /// Whether these were counted while recording ([`served`]), and not by the user.
    pub requests_served: bool,
    /// The false discovery rate: the accepted share of reported functions that did not change.
    pub fdr: f64,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            view: View::Wall,
            idle: Idle::default(),
            normal: Normal::default(),
            metric: Metric::default(),
            base_requests: Vec::new(),
            new_requests: Vec::new(),
            requests_served: false,
            fdr: 0.01,
        }
    }
}

/// A part of the whole: a state, or a reason of one.
#[derive(Clone, Debug, PartialEq)]
pub struct WholeRow {
    /// The state; `None`: all states of the view.
    pub state: Option<State>,
    /// Block reason or part.
    pub reason: Option<&'static str>,
    /// The difference.
    pub difference: Difference,
    /// Adjusted p-value.
    pub q: f64,
}

/// A function in one state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct InState {
    /// The state.
    pub state: State,
    /// The difference.
    pub difference: Difference,
    /// Whether it is real by itself, given that the function changed.
    pub changed: bool,
    /// The reason that changed most, of waits.
    pub reason: Option<&'static str>,
}

/// A function.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionRow {
    /// Which.
    pub function: FunctionName,
    /// All compared states together.
    pub all: Difference,
    /// Each compared state in which it has time.
    pub states: Vec<InState>,
    /// Samples on both sides.
    pub samples: f64,
    /// The smallest false discovery rate at which it is reported; `None`: too few samples to be
    /// judged.
    pub q: Option<f64>,
    /// Whether it is reported.
    pub changed: bool,
    /// The thread and function that hold the locks for most of the additional waiting; `None` if the
    /// function does not wait longer for locks.
    pub held_by: Option<HeldBy>,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Comparison {
    /// The options in effect: those asked for, except where the recordings do not allow them (see the
    /// notes).
    pub options: Options,
    /// What was measured: time, bytes, or things counted.
    pub measured: wallscope_model::Unit,
    /// Runs of the base and of the new side.
    pub runs: (usize, usize),
    /// Idle time of all of the base and of the new runs that was left out, ns.
    pub hidden_idle_ns: (u64, u64),
    /// Their mean lengths, s.
    pub seconds: (f64, f64),
    /// The whole: all, then states, each followed by its reasons.
    pub whole: Vec<WholeRow>,
    /// Functions: changed ones first, by size of the change.
    pub functions: Vec<FunctionRow>,
    /// How much more runs differ than sampling explains, over all states.
    pub prior: Prior,
    /// [`Comparison::prior`] for each state alone; the state's tests use it.
    pub priors: Vec<(State, Prior)>,
    /// Sentences on what limits the comparison.
    pub notes: Vec<String>,
}

/// Why recordings cannot be compared.
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
    let (functions, prior, priors) = judge::functions(&names, &sides, &states, options);
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
    if hidden_idle_ns != (0, 0) {
        notes.push(format!(
            "idle time is left out: {} of the base, {} of the new runs (--idle show)",
            ns(hidden_idle_ns.0),
            ns(hidden_idle_ns.1)
        ));
    }
    let mean = |runs: &[Run]| runs.iter().map(|r| r.seconds).sum::<f64>() / runs.len() as f64;
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
    Ok(Comparison {
        whole: whole(&sides, options, first.domain.is_import()),
        functions,
        prior,
        priors,
        runs: (base.len(), new.len()),
        hidden_idle_ns,
        seconds: (mean(&sides.0), mean(&sides.1)),
        options: options.clone(),
        measured: first.domain.unit.clone(),
        notes,
    })
}

type Sides = (Vec<Run>, Vec<Run>);

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

impl FunctionRow {
    /// What happened to it, in words; empty where nothing is certain.
    pub fn what(&self) -> String {
        if !self.changed {
            return match self.q {
                Some(_) => "noise".to_string(),
                None => "too few samples".to_string(),
            };
        }
        let on = |up: bool| {
            let is = |s: &&InState| s.changed && (s.difference.delta > 0.0) == up;
            self.states
                .iter()
                .filter(is)
                .max_by(|a, b| (a.difference.delta.abs()).total_cmp(&b.difference.delta.abs()))
        };
        let verb = |s: &InState| match s.state {
            State::OnCpu => "computes".to_string(),
            State::Runnable => "queues".to_string(),
            State::Unknown => "takes".to_string(),
            State::Blocked => match s.reason {
                Some(reason) => format!("waits ({})", reason.replace('_', " ")),
                None => "waits".to_string(),
            },
        };
        let appeared = self.all.base == 0.0;
        let vanished = self.all.new == 0.0;
        match (on(true), on(false)) {
            (Some(up), Some(down)) => format!("{} less, {} more", verb(down), verb(up)),
            (Some(up), None) if appeared => format!("new: {}", verb(up)),
            (Some(up), None) => format!("{} more", verb(up)),
            (None, Some(_)) if vanished => "gone".to_string(),
            (None, Some(down)) => format!("{} less", verb(down)),
            (None, None) => "changed".to_string(),
        }
    }

    /// Name, with the suffix of its kind.
    pub fn label(&self) -> String {
        let suffix = if self.function.kind == FrameKind::Kernel {
            "_[k]"
        } else {
            ""
        };
        format!("{}{suffix}", self.function.name)
    }
}

impl Comparison {
    /// The unit of its values.
    pub fn unit(&self) -> Unit {
        Unit::of(self.options.normal, &self.measured)
    }

    /// What its values are, in words.
    pub fn about(&self) -> String {
        units::about(self.options.normal, &self.measured)
    }

    /// What all of it is called: the view, or what is counted where it is no time.
    pub fn of_all(&self) -> &str {
        match &self.measured {
            measured if measured.is_time() => self.options.view.name(),
            measured => measured.name(),
        }
    }

    /// Whether there is anything in this view on either side.
    pub fn is_empty(&self) -> bool {
        let total = self.total();
        total.base == 0.0 && total.new == 0.0
    }

    /// All time of the view.
    pub fn total(&self) -> &Difference {
        &self.whole[0].difference
    }

    /// Functions that are reported.
    pub fn changed(&self) -> impl Iterator<Item = &FunctionRow> {
        self.functions.iter().filter(|r| r.changed)
    }

    /// The smallest share of the base's time by which every judged function could change and be
    /// found in four of five attempts.
    pub fn resolves(&self) -> f64 {
        let judged = self.functions.iter().filter(|r| r.q.is_some());
        let worst = judged.map(|r| r.all.resolvable()).fold(0.0, f64::max);
        worst / self.total().base.max(f64::MIN_POSITIVE)
    }

    /// What it takes to find a change of `share` of the base's time in each judged function: those
    /// that need most first.
    pub fn efforts(&self, share: f64) -> Vec<(&FunctionRow, Effort)> {
        let size = share * self.total().base;
        let mut all: Vec<(&FunctionRow, Effort)> = (self.functions.iter())
            .filter(|r| r.q.is_some())
            .map(|r| (r, effort(&r.all, size)))
            .collect();
        let need = |e: &Effort| match e {
            Effort::Enough => 0.0,
            Effort::Longer(times) => *times,
            Effort::MoreRuns(times) => 1e6 + times,
        };
        all.sort_by(|a, b| need(&b.1).total_cmp(&need(&a.1)));
        all
    }
}
