//! Two sides compared: what became dearer or cheaper, in which state, and whether that is real.
//!
//! [`compare`] gives a [`Comparison`] as plain data: the whole by state and reason, and functions.
//! Each is measured in each run by block of time (`measure`), and judged by
//! `wallscope_model::compare`. A function is *one* finding whatever states it changed in: time that
//! it computed and now waits is a move, not a gain and a loss. The presentations only lay it out:
//! [`text`], [`json`], [`markdown`], [`junit`], [`folded`], [`pprof`], [`page`]; [`Condition`] is
//! what a script fails on.
//!
//! What it does not do: it does not judge single stacks (the page shows them), and it does not
//! know why something changed.

mod condition;
mod folded;
mod holders;
mod json;
mod junit;
mod markdown;
mod measure;
mod page;
mod pprof;
mod requests;
mod stacks;
mod text;
mod units;

use rustc_hash::FxHashMap;
use wallscope_model::compare::{Difference, Effort, Estimate, Prior, adjust, effort};
use wallscope_model::merge::MergeError;
use wallscope_model::{FrameKind, Recording, State, View, merge};

use crate::text::units::count;
use crate::view::{FunctionName, Idle};
use measure::{Blocks, Names, Run, STATES, states_of};

pub use condition::{Condition, Outcome, Verdict};
pub use folded::write as write_folded;
pub use holders::HeldBy;
pub use json::render as json;
pub use junit::render as junit;
pub use markdown::render as markdown;
pub use page::write as write_page;
pub use pprof::write as write_pprof;
pub use requests::served;
pub use text::{Shown, render as text};
pub use units::Unit;

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

/// Whom a stack's time is given to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// The innermost function of the program: what happens in the kernel, the C library and the
    /// language's runtime counts for who called it. Each nanosecond counts once.
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
    /// Whom time is given to.
    pub metric: Metric,
    /// Requests of each base run, for [`Normal::Request`].
    pub base_requests: Vec<f64>,
    /// Requests of each new run.
    pub new_requests: Vec<f64>,
    /// Whether these were counted while recording ([`served`]), and not by the user.
    pub requests_served: bool,
    /// The false discovery rate: which share of the reported functions may be none.
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
    /// Of one that waits longer for a lock: who holds it most of that time.
    pub held_by: Option<HeldBy>,
}

/// The result.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// How it was made.
    pub options: Options,
    /// Runs of the base and of the new side.
    pub runs: (usize, usize),
    /// Their mean lengths, s.
    pub seconds: (f64, f64),
    /// The whole: all, then states, each followed by its reasons.
    pub whole: Vec<WholeRow>,
    /// Functions: what changed first, by size of the change.
    pub functions: Vec<FunctionRow>,
    /// How much more runs differ than sampling explains.
    pub prior: Prior,
    /// Sentences on what limits the comparison.
    pub notes: Vec<String>,
}

/// Functions with fewer samples than this on both sides together cannot be judged, whatever the
/// difference; leaving them out costs nothing and spares the others (Bourgon et al., PNAS 107,
/// 2010: the criterion does not look at the difference).
const FEWEST_SAMPLES: f64 = 8.0;

/// Compares recordings.
///
/// # Errors
/// [`MergeError`] where a side has none, or they measured differently: such figures have no
/// difference.
pub fn compare(
    base: &[Recording],
    new: &[Recording],
    options: &Options,
) -> Result<Comparison, MergeError> {
    let first = base.first().ok_or(MergeError::Nothing)?;
    if new.is_empty() {
        return Err(MergeError::Nothing);
    }
    for other in base.iter().chain(new) {
        merge::compatible(&first.domain, &other.domain)?;
    }
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
    let (functions, prior) = functions(&names, &sides, &states, options);
    let mean = |runs: &[Run]| runs.iter().map(|r| r.seconds).sum::<f64>() / runs.len() as f64;
    let mut notes = Vec::new();
    if base.len() + new.len() == 2 {
        notes.push(
            "one run a side: how much runs differ is judged from blocks within them; record several \
             runs of each to know"
                .to_string(),
        );
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
        whole: whole(&sides, options),
        functions,
        prior,
        runs: (base.len(), new.len()),
        seconds: (mean(&sides.0), mean(&sides.1)),
        options: options.clone(),
        notes,
    })
}

type Sides = (Vec<Run>, Vec<Run>);

/// Estimates of the base and of the new runs.
type Both = [Vec<Estimate>; 2];

fn whole(sides: &Sides, options: &Options) -> Vec<WholeRow> {
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
        rows.push((Some(STATES[*s]), None, of(&|r| r.whole(&[*s]))));
        let mut reasons: Vec<&'static str> = (sides.0.iter().chain(&sides.1))
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
        // Exact totals have no sampling error that the runs' spread could be set against.
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

/// The estimates of one function, base and new: in each state, and in all.
struct Measured {
    states: Vec<[Vec<Estimate>; 2]>,
    all: [Vec<Estimate>; 2],
    samples: Vec<f64>,
}

fn measured(function: u32, sides: &Sides, states: &[usize]) -> Measured {
    let of = |states: &[usize]| -> [Vec<Estimate>; 2] {
        [&sides.0, &sides.1].map(|side| {
            side.iter()
                .map(|r| {
                    let parts: Vec<Option<&Blocks>> = (states.iter())
                        .map(|s| r.functions.get(&(function, *s)))
                        .collect();
                    r.part(states, &parts)
                })
                .collect()
        })
    };
    let samples = |state: usize| -> f64 {
        let of = |r: &Run| {
            let own: f64 = r.functions.get(&(function, state))?.iter().sum();
            Some(r.samples[state] * own / r.sampled_ns(state).max(1.0))
        };
        sides.0.iter().chain(&sides.1).filter_map(of).sum()
    };
    Measured {
        states: states.iter().map(|s| of(&[*s])).collect(),
        all: of(states),
        samples: states.iter().map(|s| samples(*s)).collect(),
    }
}

fn functions(
    names: &Names,
    sides: &Sides,
    states: &[usize],
    options: &Options,
) -> (Vec<FunctionRow>, Prior) {
    let mut ids: Vec<u32> = (sides.0.iter().chain(&sides.1))
        .flat_map(|r| r.functions.keys())
        .filter(|(_, state)| states.contains(state))
        .map(|(f, _)| *f)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    let measured: Vec<Measured> = ids.iter().map(|f| measured(*f, sides, states)).collect();
    let enough = |m: &Measured, s: usize| m.samples[s] >= FEWEST_SAMPLES;
    let judged = || {
        measured
            .iter()
            .flat_map(|m| (0..states.len()).map(move |s| (m, s)))
            .filter(|(m, s)| enough(m, *s))
    };
    let prior = Prior::of(judged().map(|(m, s)| (&m.states[s][0][..], &m.states[s][1][..])));
    let judge = |[b, n]: &[Vec<Estimate>; 2]| wallscope_model::compare::compare(b, n, prior);
    let why = reasons_by_function(sides);
    let mut rows: Vec<FunctionRow> = Vec::new();
    let mut p = Vec::new();
    for (id, m) in ids.iter().zip(&measured) {
        let tests: Vec<usize> = (0..states.len()).filter(|s| enough(m, *s)).collect();
        let in_states: Vec<InState> = (0..states.len())
            .filter(|s| m.samples[*s] > 0.0)
            .map(|s| {
                let difference = judge(&m.states[s]);
                let state = STATES[states[s]];
                InState {
                    state,
                    difference,
                    // Bonferroni within the function.
                    changed: tests.contains(&s) && difference.p * tests.len() as f64 <= options.fdr,
                    reason: (state != State::OnCpu)
                        .then(|| why.get(id).and_then(|w| most(w, difference.delta)))
                        .flatten(),
                }
            })
            .collect();
        let least = tests
            .iter()
            .map(|s| judge(&m.states[*s]).p)
            .fold(1.0, f64::min);
        if !tests.is_empty() {
            p.push((least * tests.len() as f64).min(1.0));
        }
        rows.push(FunctionRow {
            function: names.all[*id as usize].clone(),
            all: judge(&m.all),
            states: in_states,
            samples: m.samples.iter().sum(),
            q: (!tests.is_empty()).then_some(1.0),
            changed: false,
            held_by: None,
        });
    }
    let judged = rows.iter_mut().filter(|r| r.q.is_some());
    for (row, q) in judged.zip(adjust(&p)) {
        row.q = Some(q);
        row.changed = q <= options.fdr;
    }
    let held = holders::by_function(sides);
    for (row, id) in rows.iter_mut().zip(&ids) {
        if !row.changed {
            row.states.iter_mut().for_each(|s| s.changed = false);
            continue;
        }
        let waits = |s: &&InState| s.changed && s.state == State::Blocked;
        let longer = row.states.iter().find(waits).map(|s| s.difference.delta);
        row.held_by = longer.and_then(|delta| holders::most(held.get(id)?, delta));
    }
    rows.sort_by(|a, b| {
        let size = |r: &FunctionRow| {
            let each = r.states.iter().map(|s| s.difference.delta.abs());
            each.fold(0.0, f64::max)
        };
        (b.changed.cmp(&a.changed))
            .then_with(|| size(b).total_cmp(&size(a)))
            .then_with(|| a.function.name.cmp(&b.function.name))
    });
    (rows, prior)
}

type Why = FxHashMap<&'static str, f64>;

/// By function, how much each reason's time changed, in the comparison's unit.
fn reasons_by_function(sides: &Sides) -> FxHashMap<u32, Why> {
    let mut all: FxHashMap<u32, Why> = FxHashMap::default();
    for (side, sign) in [(&sides.0, -1.0), (&sides.1, 1.0)] {
        for run in side {
            for ((function, reason), ns) in &run.why {
                let why = all.entry(*function).or_default();
                *why.entry(reason).or_default() += sign * ns * run.scale() / side.len() as f64;
            }
        }
    }
    all
}

/// The reason that changed most in the direction of `delta`.
fn most(why: &Why, delta: f64) -> Option<&'static str> {
    let waits = |reason: &str| wallscope_model::BlockReason::from_name(reason).is_some();
    let most = (why.iter())
        .filter(|(reason, _)| waits(reason))
        .max_by(|a, b| {
            let size = |ns: &f64| ns * delta.signum();
            size(a.1).total_cmp(&size(b.1)).then_with(|| b.0.cmp(a.0))
        });
    most.map(|(reason, _)| *reason)
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
            _ => match s.reason {
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
        Unit::of(self.options.normal)
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
