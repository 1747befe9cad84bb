//! Stacks as they were seen, and the time they stand for.

use rustc_hash::FxHashMap;
use wallscope_model::{
    BlockReason, ContextId, Part, Sample, SliceValue, Slices, Stack, StackEnd, StackId, State,
};
use wallscope_unwind::native::{FrameWord, TableSink};

use super::book::spread;
use crate::session::{build::Stacks, processes::Processes};

/// A stack: whose, which frames, which managed ones (two words each), how it ended.
type Seen = (u32, Box<[FrameWord]>, Box<[u64]>, StackEnd);
/// What tells stacks apart: process where it matters, words of both kinds of frames, end.
type StackKey = (u32, Box<[u64]>, Box<[u64]>, StackEnd);
/// Thread, stack, state, reason, part.
type Key = (u32, u32, State, Option<BlockReason>, Option<Part>);

/// What one stack in one state adds up to.
#[derive(Default)]
struct Sum {
    count: u64,
    ns: u64,
    slices: Vec<SliceValue>,
}

/// All of it.
#[derive(Default)]
pub struct Samples {
    stacks: Vec<Seen>,
    ids: FxHashMap<StackKey, u32>,
    sums: FxHashMap<Key, Sum>,
}

/// One look at one thread.
pub struct Look {
    /// Index of the thread.
    pub thread: u32,
    /// Index of the stack.
    pub stack: u32,
    /// What it did.
    pub state: State,
    /// For blocked time.
    pub reason: Option<BlockReason>,
    /// For other time.
    pub part: Option<Part>,
    /// The stretch that the look stands for, ns on the recording's clock.
    pub begin: u64,
    /// Its end.
    pub end: u64,
}

impl Samples {
    /// The index of a stack of native frames.
    pub fn stack(&mut self, pid: u32, frames: Vec<FrameWord>, end: StackEnd) -> u32 {
        self.mixed(pid, frames, Box::default(), end)
    }

    /// The index of a stack with managed frames.
    pub fn mixed(
        &mut self,
        pid: u32,
        frames: Vec<FrameWord>,
        managed: Box<[u64]>,
        end: StackEnd,
    ) -> u32 {
        // Addresses outside all files mean something in their own process only.
        let own = !managed.is_empty() || frames.is_empty() || frames.iter().any(|w| w.file() == 0);
        let words: Box<[u64]> = frames.iter().map(|w| w.0).collect();
        let stacks = &mut self.stacks;
        *self
            .ids
            .entry((if own { pid } else { 0 }, words, managed.clone(), end))
            .or_insert_with(|| {
                stacks.push((pid, frames.into(), managed, end));
                (stacks.len() - 1) as u32
            })
    }

    /// How many there are.
    pub fn distinct(&self) -> usize {
        self.stacks.len()
    }

    /// Adds one look.
    pub fn add(&mut self, grid: Slices, l: &Look) {
        let sum = self
            .sums
            .entry((l.thread, l.stack, l.state, l.reason, l.part))
            .or_default();
        let ns = l.end.saturating_sub(l.begin);
        sum.count += 1;
        sum.ns += ns;
        for (slice, ns) in spread(grid, l.begin, l.end, ns) {
            match sum.slices.last_mut() {
                Some(v) if v.slice == slice => v.ns += ns,
                _ => sum.slices.push(SliceValue {
                    slice,
                    count: 0,
                    ns,
                }),
            }
        }
        if let Some(v) = sum.slices.last_mut() {
            v.count += 1;
        }
    }

    /// Gives a thread's computing a part that could not be sampled: for each `of` of its sampled
    /// time another `share`, spread over time as the sampled part is.
    pub fn unsampled_part(&mut self, thread: u32, stack: u32, share: u64, of: u64) {
        let part = |n: u64| (u128::from(n) * u128::from(share) / u128::from(of.max(1))) as u64;
        let mut slices = std::collections::BTreeMap::<u32, u64>::new();
        for ((_, _, state, _, _), sum) in self.sums.iter().filter(|(key, _)| key.0 == thread) {
            if *state == State::OnCpu {
                for v in &sum.slices {
                    *slices.entry(v.slice).or_default() += part(v.ns);
                }
            }
        }
        let ns = slices.values().sum();
        if ns == 0 {
            return;
        }
        let slices = slices
            .into_iter()
            .map(|(slice, ns)| SliceValue {
                slice,
                count: 0,
                ns,
            })
            .collect();
        let key = (thread, stack, State::OnCpu, None, Some(Part::Kernel));
        self.sums.insert(
            key,
            Sum {
                count: 0,
                ns,
                slices,
            },
        );
    }

    /// The samples, with their stacks in `stacks`. Looks at incomplete stacks are counted there.
    pub fn finish<S: TableSink>(
        self,
        stacks: &mut Stacks,
        processes: &Processes<S>,
    ) -> Vec<Sample> {
        let ids: Vec<StackId> = self
            .stacks
            .iter()
            .map(|(pid, words, managed, end)| {
                stacks.user_stack(words, managed, *end, *pid, processes)
            })
            .collect();
        let mut all: Vec<_> = self.sums.into_iter().collect();
        all.sort_by_key(|(key, _)| *key);
        all.into_iter()
            .map(|((thread, stack, state, reason, part), sum)| {
                let stack = ids[stack as usize];
                let Stack { end, .. } = stacks.stacks[stack.0 as usize];
                if !end.is_whole() {
                    *stacks.truncated.entry(end).or_default() += sum.count;
                }
                Sample {
                    context: ContextId(thread),
                    stack,
                    state,
                    reason,
                    part,
                    idle: false,
                    cpu: None,
                    labels: None,
                    count: sum.count,
                    ns: sum.ns,
                    slices: sum.slices,
                }
            })
            .collect()
    }
}
