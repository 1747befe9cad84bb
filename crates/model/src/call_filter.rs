//! The part of a recording within some calls of a function, to compare slow calls with others.
//!
//! Calls were timed one by one, with a ledger each; stacks were sampled in the same window. A
//! sample belongs to a call if its time lies within the call, in the same thread. The calls'
//! ledgers, added up by thread, become the ledgers of the result, so stacks sum to them as in any
//! recording.

use std::collections::{BTreeMap, HashMap};

use crate::calls::CallBooks;
use crate::{
    Context, ContextId, LedgerSlice, LedgerSlices, Recording, Sample, SliceValue, calls::Call,
};

/// Time of a sample before it was added to equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Index into [`Recording::samples`].
    pub sample: u32,
    /// Start of the interval that it fell into, ns on the recording's clock; equal to the end for
    /// on-CPU samples.
    pub begin_ns: u64,
    /// End of that interval, ns on the recording's clock.
    pub end_ns: u64,
    /// Its weight, ns.
    pub ns: u64,
    /// Samples in it.
    pub count: u64,
}

/// The calls that are in no other call of their thread: of a recursion, the first.
pub fn outermost(mut calls: Vec<Call>) -> Vec<Call> {
    calls.sort_by_key(|c| (c.pid, c.tid, c.start_ns, std::cmp::Reverse(c.end_ns)));
    let mut last: Option<(u32, u32, u64)> = None;
    calls.retain(|c| match last {
        Some((pid, tid, end)) if (pid, tid) == (c.pid, c.tid) && c.start_ns < end => false,
        _ => {
            last = Some((c.pid, c.tid, c.end_ns));
            true
        }
    });
    calls
}

/// The contexts of a part of a recording, each with its calls.
#[derive(Default)]
struct CallContexts<'c> {
    contexts: Vec<Context>,
    /// Index into `calls`, by the recording's context.
    kept: HashMap<u32, usize>,
    /// Each context's calls, by their start.
    calls: Vec<(ContextId, Vec<&'c Call>)>,
    /// Ledgers of the calls by slice of their end, and context.
    slices: BTreeMap<(u32, u32), CallBooks>,
}

impl<'c> CallContexts<'c> {
    fn of(recording: &Recording, calls: &[&'c Call]) -> Self {
        let mut by_thread: HashMap<(u32, u32), Vec<&Call>> = HashMap::new();
        for call in calls {
            by_thread
                .entry((call.pid, call.tid))
                .or_default()
                .push(call);
        }
        let mut all = CallContexts::default();
        for (old, context) in (0u32..).zip(&recording.contexts) {
            // A thread id may have been reused: only calls in the context's lifetime are its own.
            let Some(mut calls) = by_thread.get(&(context.pid, context.tid)).cloned() else {
                continue;
            };
            calls.retain(|c| c.end_ns > context.start_ns && c.start_ns < context.end_ns);
            calls.sort_by_key(|c| c.start_ns);
            if calls.is_empty() {
                continue;
            }
            let id = ContextId(all.contexts.len() as u32);
            let mut books = CallBooks::default();
            for call in &calls {
                books.add(&call.books);
                let slice = (recording.slice_of(call.end_ns), id.0);
                all.slices.entry(slice).or_default().add(&call.books);
            }
            all.contexts.push(Context {
                ledger: books.ledger(books.total()),
                ..context.clone()
            });
            all.kept.insert(old, all.calls.len());
            all.calls.push((id, calls));
        }
        all
    }

    /// The context of the call that the recording's `context` was in at `at`.
    fn at(&self, context: ContextId, at: u64) -> Option<ContextId> {
        let (id, calls) = &self.calls[*self.kept.get(&context.0)?];
        let before = calls.partition_point(|c| c.start_ns <= at);
        (before > 0 && calls[before - 1].end_ns >= at).then_some(*id)
    }

    fn ledger_slices(&self) -> LedgerSlices {
        let mut all = LedgerSlices::default();
        for ((slice, context), books) in &self.slices {
            all.push(LedgerSlice {
                context: *context,
                slice: *slice,
                on_cpu_ns: books.on_cpu,
                runnable_ns: books.runnable.total(),
                blocked: books.blocked,
            });
        }
        all
    }
}

impl Recording {
    /// Returns the part of the recording within `calls`, no two of which overlap in one thread.
    pub fn restricted_to(&self, moments: &[Moment], calls: &[&Call]) -> Recording {
        let contexts = CallContexts::of(self, calls);
        let samples = self.samples_within(moments, &contexts);
        Recording {
            domain: self.domain.clone(),
            window: self.window.clone(),
            processes: self.processes.clone(),
            modules: self.modules.clone(),
            functions: self.functions.clone(),
            frames: self.frames.clone(),
            stacks: self.stacks.clone(),
            label_sets: self.label_sets.clone(),
            samples,
            slices: self.slices,
            ledger_slices: match self.slices.count {
                0 => LedgerSlices::default(),
                _ => contexts.ledger_slices(),
            },
            contexts: contexts.contexts,
            host: self.host.clone(),
            losses: self.losses.clone(),
            cost: self.cost.clone(),
            ..Recording::default()
        }
    }

    /// The samples with moments within the calls, in the recording's order.
    fn samples_within(&self, moments: &[Moment], contexts: &CallContexts<'_>) -> Vec<Sample> {
        let mut samples: BTreeMap<u32, Sample> = BTreeMap::new();
        for m in moments {
            let Some(sample) = self.samples.get(m.sample as usize) else {
                continue;
            };
            // A wait that ends in a call began in it: its middle decides.
            let at = m.begin_ns + m.end_ns.saturating_sub(m.begin_ns) / 2;
            let Some(context) = contexts.at(sample.context, at) else {
                continue;
            };
            let own = samples.entry(m.sample).or_insert_with(|| Sample {
                context,
                count: 0,
                ns: 0,
                // The call's caller waits for it.
                idle: false,
                slices: Vec::new(),
                ..sample.clone()
            });
            own.count += m.count;
            own.ns += m.ns;
            if self.slices.count > 0 {
                add_to_slice(&mut own.slices, self.slice_of(at), m);
            }
        }
        let mut samples: Vec<Sample> = samples.into_values().collect();
        for s in &mut samples {
            s.slices.sort_by_key(|v| v.slice);
        }
        samples
    }

    fn slice_of(&self, time: u64) -> u32 {
        let s = &self.slices;
        let slice = time.saturating_sub(s.start_ns) / s.width_ns.max(1);
        slice.min(u64::from(s.count.saturating_sub(1))) as u32
    }
}

fn add_to_slice(slices: &mut Vec<SliceValue>, slice: u32, m: &Moment) {
    match slices.iter_mut().find(|v| v.slice == slice) {
        Some(v) => {
            v.count += m.count;
            v.ns += m.ns;
        }
        None => slices.push(SliceValue {
            slice,
            count: m.count,
            ns: m.ns,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BlockReason, Slices, StackId, State};

    #[test]
    fn samples_go_where_their_middle_lies_and_ledgers_are_those_of_the_calls() {
        let sample = |state, reason| Sample {
            context: ContextId(0),
            stack: StackId(0),
            state,
            reason,
            part: None,
            idle: false,
            cpu: None,
            labels: None,
            count: 9,
            ns: 900,
            slices: Vec::new(),
        };
        let rec = Recording {
            contexts: vec![Context {
                pid: 1,
                tid: 2,
                name: "a".into(),
                start_ns: 0,
                end_ns: 1000,
                ledger: Default::default(),
            }],
            samples: vec![
                sample(State::OnCpu, None),
                sample(State::Blocked, Some(BlockReason::Lock)),
            ],
            slices: Slices {
                start_ns: 0,
                width_ns: 500,
                count: 2,
            },
            ..Recording::default()
        };
        let mut books = CallBooks {
            on_cpu: 40,
            ..CallBooks::default()
        };
        books.blocked[BlockReason::Lock as usize] = 160;
        let call = Call {
            function: 0,
            pid: 1,
            tid: 2,
            start_ns: 100,
            end_ns: 300,
            length: 200,
            books,
        };
        let moment = |sample, begin_ns, end_ns| Moment {
            sample,
            begin_ns,
            end_ns,
            ns: 100,
            count: 1,
        };
        let moments = [
            moment(0, 110, 110),
            moment(0, 99, 99),
            moment(1, 120, 290),
            moment(1, 400, 600),
        ];
        let part = rec.restricted_to(&moments, &[&call]);
        let counts: Vec<_> = part.samples.iter().map(|s| (s.count, s.ns)).collect();
        assert_eq!(counts, [(1, 100), (1, 100)]);
        let ledger = &part.contexts[0].ledger;
        assert_eq!((ledger.wall_ns, ledger.on_cpu.total()), (200, 40));
        assert_eq!(ledger.blocked[BlockReason::Lock as usize], 160);
        assert_eq!(ledger.residue_ns(), 0);
        assert_eq!(part.ledger_slices.iter().count(), 1);
        assert!(rec.restricted_to(&moments, &[]).samples.is_empty());

        let inner = Call {
            start_ns: 150,
            end_ns: 200,
            ..call
        };
        let next = Call {
            start_ns: 300,
            end_ns: 310,
            ..call
        };
        assert_eq!(outermost(vec![inner, next, call]), [call, next]);
    }
}
