//! The hottest stacks of a view.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::histogram::Histogram;
use wallscope_model::{ContextId, Stack, StackEnd, StackId, State, View};

use super::histograms::stack_histograms;
use super::{Analysis, FunctionName};

/// A frame of a stack, ready to be shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// The function.
    pub function: FunctionName,
    /// Source line, 0 where unknown.
    pub line: u32,
    /// Whether it is inlined into its caller.
    pub inlined: bool,
}

/// A stack with the time spent in it, for one state and reason.
#[derive(Clone, Debug, PartialEq)]
pub struct StackRow {
    /// The stack of the recording.
    pub stack: StackId,
    /// The state.
    pub state: State,
    /// Block reason or part, by the contract's name.
    pub reason: Option<&'static str>,
    /// Scaled time, ns.
    pub ns: u64,
    /// Samples.
    pub count: u64,
    /// Number of threads.
    pub threads: u32,
    /// The name of the thread with most of it.
    pub thread: Arc<str>,
    /// Frames, leaf first.
    pub frames: Vec<StackFrame>,
    /// Its end.
    pub end: StackEnd,
    /// Lengths of the single intervals, estimated from the samples, if they are known.
    pub histogram: Option<Histogram>,
}

#[derive(Default)]
struct Sum {
    ns: u64,
    count: u64,
    contexts: HashMap<ContextId, u64>,
}

impl Analysis<'_> {
    /// The `most` stacks of `view` with most time, most first.
    pub fn stacks(&self, view: View, most: usize) -> Vec<StackRow> {
        let rec = self.recording;
        // Equal stacks that were recorded apart are one.
        let mut same: HashMap<&Stack, StackId> = HashMap::new();
        let mut sums: HashMap<(StackId, State, Option<&'static str>), Sum> = HashMap::new();
        let mut last = None;
        for p in self.pieces() {
            let s = &rec.samples[p.sample as usize];
            if !view.includes(s.state) {
                continue;
            }
            let stack = *same
                .entry(&rec.stacks[s.stack.0 as usize])
                .or_insert(s.stack);
            let sum = sums.entry((stack, s.state, s.reason_name())).or_default();
            sum.ns += p.ns;
            *sum.contexts.entry(p.context).or_default() += p.ns;
            if last != Some(p.sample) {
                sum.count += s.count;
                last = Some(p.sample);
            }
        }
        let mut order: Vec<_> = sums.into_iter().collect();
        order.sort_by(|(ka, a), (kb, b)| b.ns.cmp(&a.ns).then_with(|| ka.cmp(kb)));
        order.truncate(most);
        let mut histograms = stack_histograms(rec);
        order
            .into_iter()
            .map(|((id, state, reason), sum)| {
                let stack = &rec.stacks[id.0 as usize];
                let top = sum
                    .contexts
                    .iter()
                    .max_by_key(|(c, ns)| (**ns, std::cmp::Reverse(**c)));
                let thread = top.map(|(c, _)| rec.contexts[c.0 as usize].name.clone());
                StackRow {
                    stack: id,
                    state,
                    reason,
                    ns: sum.ns,
                    count: sum.count,
                    threads: sum.contexts.len() as u32,
                    thread: thread.unwrap_or_else(|| Arc::from("")),
                    frames: self.frames(stack),
                    end: stack.end,
                    histogram: histograms.remove(&(stack, state, reason)),
                }
            })
            .collect()
    }

    /// The frames of a stack, leaf first; inlined functions are frames of their own.
    pub(crate) fn frames(&self, stack: &Stack) -> Vec<StackFrame> {
        stack
            .frames
            .iter()
            .flat_map(|f| self.code.calls(*f))
            .map(|c| StackFrame {
                function: self.code.functions[c.function as usize].clone(),
                line: c.line,
                inlined: c.inlined,
            })
            .collect()
    }
}

impl StackFrame {
    /// The contract's suffix of the frame in folded output.
    pub fn suffix(&self) -> &'static str {
        match self.inlined {
            true => self.function.kind.inlined_suffix(),
            false => self.function.kind.suffix(),
        }
    }
}
