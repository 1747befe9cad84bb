//! The result of a comparison: differences of the whole and of functions, with their words.

use wallscope_model::compare::{Difference, Effort, Prior, effort};
use wallscope_model::{FrameKind, State};

use super::holders::HeldBy;
use super::options::Options;
use super::units::{self, Unit};
use crate::view::FunctionName;

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
    /// Its name.
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
    /// Unit of the measurement: time, bytes, or counted things.
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
    /// Limits of the comparison, a sentence each.
    pub notes: Vec<String>,
}

impl FunctionRow {
    /// The change in words; empty: none is certain.
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

    /// Meaning of its values, in words.
    pub fn about(&self) -> String {
        units::about(self.options.normal, &self.measured)
    }

    /// Name of the whole: the view, or the counted things if values are no times.
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

    /// Data needed to find a change of `share` of the base's time, for each judged function; those that need most
    /// first.
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
