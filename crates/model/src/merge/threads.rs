//! Contexts, and the samples and slices that belong to them.

use std::collections::HashMap;

use super::code::CodeMap;
use crate::{
    BlockReason, Context, ContextId, LabelsId, LedgerSlice, LedgerSlices, Part, Recording, Sample,
    SliceValue, Slices, StackId, State,
};

/// Most slices of merged windows; beyond, slices become wider. An hour by seconds fits.
pub const MAX_SLICES: u32 = 3_600;

/// Longest distance of adjacent windows, ns. A thread id cannot come round again within it: that takes
/// tens of thousands of forks.
pub(super) const MAX_GAP_NS: u64 = 100_000_000;

/// Numbers of one recording's contexts and samples in the merged one.
pub(super) struct ThreadMap {
    contexts: Vec<u32>,
    samples: Vec<u32>,
    /// The first slice; `None`: slices are dropped.
    slice: Option<u32>,
}

impl ThreadMap {
    pub(super) fn slices(&self, values: &[SliceValue]) -> Vec<SliceValue> {
        moved(values, self.slice)
    }

    pub(super) fn context(&self, id: ContextId) -> ContextId {
        ContextId(self.contexts[id.0 as usize])
    }

    pub(super) fn sample(&self, index: u32) -> u32 {
        self.samples[index as usize]
    }
}

/// A sample without its time.
type SampleKey = (
    ContextId,
    StackId,
    (State, Option<BlockReason>, Option<Part>, bool),
    Option<u32>,
    Option<LabelsId>,
);

fn key(s: &Sample) -> SampleKey {
    let state = (s.state, s.reason, s.part, s.idle);
    (s.context, s.stack, state, s.cpu, s.labels)
}

/// The index of threads that are joined.
#[derive(Default)]
struct Joined {
    /// By pid and tid: contexts that existed at the end of the last window.
    alive: HashMap<(u32, u32), u32>,
    /// End of the last window, ns.
    end_ns: u64,
    samples: HashMap<SampleKey, u32>,
}

/// The threads of a merged recording.
pub(super) struct Threads {
    joined: Option<Joined>,
}

impl Threads {
    /// Every context of every recording is one of its own.
    pub(super) fn apart() -> Threads {
        Threads { joined: None }
    }

    /// A thread that lived across the border of two windows is one context.
    pub(super) fn joined() -> Threads {
        Threads {
            joined: Some(Joined::default()),
        }
    }

    pub(super) fn are_joined(&self) -> bool {
        self.joined.is_some()
    }

    /// Adds the contexts and samples of `rec`, with its slices from `slice` on.
    pub(super) fn add(
        &mut self,
        out: &mut Recording,
        rec: &Recording,
        code: &CodeMap,
        slice: Option<u32>,
    ) -> ThreadMap {
        let contexts = self.contexts(out, rec, code);
        let sample = |s: &Sample| Sample {
            context: ContextId(contexts[s.context.0 as usize]),
            stack: code.stack(s.stack),
            labels: code.labels(s.labels),
            slices: moved(&s.slices, slice),
            ..s.clone()
        };
        let samples = (rec.samples.iter())
            .map(|s| self.sample(out, sample(s)))
            .collect();
        if let Some(first) = slice {
            let row = |r: LedgerSlice| LedgerSlice {
                context: contexts[r.context as usize],
                slice: r.slice + first,
                ..r
            };
            out.ledger_slices.extend(rec.ledger_slices.iter().map(row));
        }
        ThreadMap {
            contexts,
            samples,
            slice,
        }
    }

    fn contexts(&mut self, out: &mut Recording, rec: &Recording, code: &CodeMap) -> Vec<u32> {
        let mut alive = HashMap::new();
        let numbers = (rec.contexts.iter().enumerate())
            .map(|(i, c)| {
                let labels = code.labels(rec.context_labels.get(i).copied().flatten());
                let earlier = self.earlier(rec, c).filter(|n| {
                    let own = out.context_labels.get(*n as usize).copied().flatten();
                    own == labels
                });
                let number = match earlier {
                    Some(n) => {
                        let joined = &mut out.contexts[n as usize];
                        joined.ledger.add(&c.ledger);
                        (joined.end_ns, joined.name) = (c.end_ns, c.name.clone());
                        n
                    }
                    None => {
                        out.contexts.push(c.clone());
                        out.contexts.len() as u32 - 1
                    }
                };
                if labels.is_some() {
                    out.context_labels.resize(out.contexts.len(), None);
                    out.context_labels[number as usize] = labels;
                }
                if c.end_ns >= rec.window.end_ns {
                    alive.insert((c.pid, c.tid), number);
                }
                number
            })
            .collect();
        if let Some(joined) = &mut self.joined {
            (joined.alive, joined.end_ns) = (alive, rec.window.end_ns);
        }
        if !out.context_labels.is_empty() {
            out.context_labels.resize(out.contexts.len(), None);
        }
        numbers
    }

    /// The context of the earlier windows that `c` continues.
    fn earlier(&self, rec: &Recording, c: &Context) -> Option<u32> {
        let joined = self.joined.as_ref()?;
        let adjacent = rec.window.start_ns.checked_sub(joined.end_ns)? <= MAX_GAP_NS;
        let from_start = c.start_ns <= rec.window.start_ns;
        let number = joined.alive.get(&(c.pid, c.tid)).copied();
        number.filter(|_| adjacent && from_start)
    }

    fn sample(&mut self, out: &mut Recording, sample: Sample) -> u32 {
        let next = out.samples.len() as u32;
        if let Some(joined) = &mut self.joined {
            let number = *joined.samples.entry(key(&sample)).or_insert(next);
            if let Some(old) = out.samples.get_mut(number as usize) {
                old.count += sample.count;
                old.ns += sample.ns;
                old.slices.extend(sample.slices);
                return number;
            }
        }
        out.samples.push(sample);
        next
    }

    /// Brings samples and ledgers to the slices of the merged recording.
    pub(super) fn finish(self, out: &mut Recording, slices: Slices) {
        let of_events = out.events.iter_mut().flat_map(|e| &mut e.samples);
        let samples = out.samples.iter_mut().chain(of_events);
        if slices.count == 0 {
            out.ledger_slices = LedgerSlices::default();
            samples.for_each(|s| s.slices.clear());
            return;
        }
        out.slices = slices;
        if self.joined.is_none() {
            return;
        }
        let factor = slices.count.div_ceil(MAX_SLICES).max(1);
        out.slices.width_ns *= u64::from(factor);
        out.slices.count = slices.count.div_ceil(factor);
        let rows = std::mem::take(&mut out.ledger_slices);
        out.ledger_slices = rows.sorted(|context, slice| (context, slice / factor));
        for s in samples {
            s.slices = widened(std::mem::take(&mut s.slices), factor);
        }
    }
}

fn moved(values: &[SliceValue], first: Option<u32>) -> Vec<SliceValue> {
    let Some(first) = first else {
        return Vec::new();
    };
    let value = |v: &SliceValue| SliceValue {
        slice: v.slice + first,
        ..*v
    };
    values.iter().map(value).collect()
}

/// Values by slices that are `factor` times as wide, in ascending order.
fn widened(mut values: Vec<SliceValue>, factor: u32) -> Vec<SliceValue> {
    values.iter_mut().for_each(|v| v.slice /= factor);
    SliceValue::merge(&mut values);
    values
}
