//! Content of reports, as data: computed once from a recording, laid out elsewhere.
//!
//! An [`Analysis`] scales the samples to the ledger and knows the name of each frame. From it come
//! the ledger's rows ([`ledger_rows`]), the functions with their intervals
//! ([`Analysis::functions`]) and the hottest stacks ([`Analysis::stacks`]).

mod annotate;
mod audit;
mod blame;
mod calibrate;
mod code;
mod collections;
mod functions;
mod groups;
mod histograms;
mod ledger;
mod locks;
mod peers;
mod stacks;
mod tasks;
mod wait_line;
mod waits;
mod why;

use wallscope_model::scale::{self, Piece, Scaled, Unsampled};
use wallscope_model::{Recording, View};

pub use crate::blame::Waits;
pub use annotate::{Annotation, Spent};
pub use audit::{audit_lines, cost_lines};
pub use blame::{BlameRow, ExactBlameRow};
pub use calibrate::{Calibration, CalibrationRow};
pub use code::FunctionName;
pub use collections::CollectionRow;
pub use functions::{FunctionRow, Value, ViewValue};
pub use groups::{GroupRow, groups};
pub use histograms::{HistogramLine, histogram_lines, thread_histograms};
pub use ledger::{LedgerRow, ReasonRow, ledger_rows, process_rows, reason_rows, total_row};
pub use locks::{Holder, LockRow, Share};
pub use peers::PeerRow;
pub use stacks::{StackFrame, StackRow};
pub use tasks::{TaskRow, TaskWait, is_idle_task};
pub use wait_line::Line;
pub use waits::{RESOURCE, interrupt_words, queues};
pub use why::{Subject, WhyNode, WhyTree};

use code::Code;

/// Treatment of idle time in views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Idle {
    /// Treat it like any other time.
    Show,
    /// Leave it out, and say how much that was.
    #[default]
    Hide,
    /// Leave out everything else.
    Only,
}

impl Idle {
    /// As options and files call it.
    pub fn name(self) -> &'static str {
        match self {
            Idle::Show => "show",
            Idle::Hide => "hide",
            Idle::Only => "only",
        }
    }
}

/// A recording prepared for views.
pub struct Analysis<'r> {
    /// The recording.
    pub recording: &'r Recording,
    /// Its samples, scaled to its ledgers.
    pub scaled: Scaled,
    idle: Idle,
    code: Code,
}

/// Totals of a view, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewTotal {
    /// Time with stacks.
    pub sampled_ns: u64,
    /// Exact time without any sample.
    pub unsampled_ns: u64,
    /// Idle time that was left out.
    pub hidden_idle_ns: u64,
    /// Samples behind `sampled_ns`.
    pub samples: u64,
}

impl ViewTotal {
    /// Time that is shown, ns.
    pub fn shown_ns(&self) -> u64 {
        self.sampled_ns + self.unsampled_ns
    }
}

impl<'r> Analysis<'r> {
    /// Prepares `recording`; its idle time is treated as `idle` says.
    ///
    /// ```
    /// use wallscope_analysis::view::{Analysis, Idle};
    /// use wallscope_model::View;
    ///
    /// let recording = wallscope_synthetic::recording(4);
    /// let analysis = Analysis::new(&recording, Idle::Show);
    /// // Stacks and the time without stacks sum to the ledgers, to the nanosecond.
    /// let wall: u64 = recording.contexts.iter().map(|c| c.ledger.wall_ns).sum();
    /// let residue: i64 = recording.contexts.iter().map(|c| c.ledger.residue_ns()).sum();
    /// let shown = analysis.total(View::Wall).shown_ns();
    /// assert_eq!(shown as i64 + residue, wall as i64);
    /// let hottest = analysis.stacks(View::OffCpu, 3);
    /// assert!(hottest[0].ns >= hottest[1].ns);
    /// ```
    pub fn new(recording: &'r Recording, idle: Idle) -> Analysis<'r> {
        Analysis {
            recording,
            scaled: scale::scale(recording),
            idle,
            code: Code::new(recording),
        }
    }

    /// The totals of `view`.
    pub fn total(&self, view: View) -> ViewTotal {
        let mut total = ViewTotal::default();
        let mut last = None;
        for piece in &self.scaled.pieces {
            let s = &self.recording.samples[piece.sample as usize];
            if !view.includes(s.state) {
                continue;
            }
            if !self.shows(s.idle) {
                if s.idle {
                    total.hidden_idle_ns += piece.ns;
                }
                continue;
            }
            total.sampled_ns += piece.ns;
            if last != Some(piece.sample) {
                total.samples += s.count;
                last = Some(piece.sample);
            }
        }
        for u in self.unsampled() {
            if view.includes(u.state) {
                total.unsampled_ns += u.ns;
            }
        }
        total
    }

    fn shows(&self, idle: bool) -> bool {
        match self.idle {
            Idle::Show => true,
            Idle::Hide => !idle,
            Idle::Only => idle,
        }
    }

    /// The pieces that are shown.
    pub fn pieces(&self) -> impl Iterator<Item = &Piece> {
        self.scaled
            .pieces
            .iter()
            .filter(|p| self.shows(self.recording.samples[p.sample as usize].idle))
    }

    /// The exact time without samples that is shown.
    pub fn unsampled(&self) -> impl Iterator<Item = &Unsampled> {
        let shown = self.shows(false);
        self.scaled.unsampled.iter().filter(move |_| shown)
    }
}
