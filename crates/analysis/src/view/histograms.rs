//! Histograms of the lengths of single intervals: by state and reason, by thread, by stack.

use std::collections::HashMap;

use wallscope_model::histogram::{Histogram, HistogramRow};
use wallscope_model::{ContextId, Recording, Stack, StackId, State};

/// The intervals of a state, or of a reason or part of it, over all threads.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramLine {
    /// The state.
    pub state: State,
    /// Block reason or part, by the contract's name; `None`: the whole state.
    pub reason: Option<&'static str>,
    /// The intervals, counted.
    pub histogram: Histogram,
}

fn reason_of(row: &HistogramRow) -> Option<&'static str> {
    (row.reason.map(|r| r.name())).or(row.part.map(|p| p.name()))
}

/// The intervals of all threads that were counted, by state, most often first.
pub fn histogram_lines(rec: &Recording) -> Vec<HistogramLine> {
    let mut lines: Vec<HistogramLine> = rec
        .histograms
        .iter()
        .filter(|r| r.context.is_none() && r.stack.is_none())
        .map(|r| HistogramLine {
            state: r.state,
            reason: reason_of(r),
            histogram: r.histogram.clone(),
        })
        .collect();
    lines.sort_by(|a, b| {
        let count = |l: &HistogramLine| l.histogram.count();
        (a.state.cmp(&b.state)).then_with(|| count(b).total_cmp(&count(a)))
    });
    lines
}

/// The intervals of each thread that were counted, by thread and state.
pub fn thread_histograms(rec: &Recording) -> HashMap<(ContextId, State), &Histogram> {
    rec.histograms
        .iter()
        .filter(|r| r.stack.is_none())
        .filter_map(|r| Some(((r.context?, r.state), &r.histogram)))
        .collect()
}

/// The intervals spent in one stack, in one state, for one reason.
type ByStack<'r> = HashMap<(&'r Stack, State, Option<&'static str>), Histogram>;

/// Estimates of the intervals by stack; equal stacks are one.
pub(super) fn stack_histograms(rec: &Recording) -> ByStack<'_> {
    let mut sums: ByStack<'_> = HashMap::new();
    for r in &rec.histograms {
        let Some(StackId(stack)) = r.stack else {
            continue;
        };
        let Some(stack) = rec.stacks.get(stack as usize) else {
            continue;
        };
        sums.entry((stack, r.state, reason_of(r)))
            .or_insert_with(|| Histogram::new(r.histogram.bits))
            .merge(&r.histogram);
    }
    sums
}
