//! Who is asked for what is waited for: a thread that rests before it answers is no feeder without work.
//!
//! By time alone the two look alike, as the one that answers rests most of the time in either case. But who is
//! asked waits in turn for something to do, and those who wait for it end these waits, as often as their own
//! are ended. Counted, however short those waits are.

use std::collections::{HashMap, HashSet};

use wallscope_model::{Actor, BlockReason, ContextId, Recording, StackId, State};

use super::news::is_for_news;

/// So many waits for something to do, for each wait of those who ask.
const IN_TURN: f64 = 0.5;
/// Of the waits at one stack, so much must one thread have ended.
const MOST: f64 = 0.5;

/// Where threads wait for something to do, who ends these waits, and how many they are.
pub(super) struct Turns {
    /// Intervals by stack, as far as they were sampled by stack.
    counts: HashMap<StackId, f64>,
    /// The stacks of a thread's waits for something to do, by who mostly ended them.
    brought: HashMap<(ContextId, ContextId), HashSet<StackId>>,
}

impl Turns {
    /// Of a recording; `below_sample`: the hops below each sample.
    pub fn new(recording: &Recording, below_sample: &HashMap<u32, Vec<u32>>) -> Turns {
        let mut counts: HashMap<StackId, f64> = HashMap::new();
        for row in &recording.shapes {
            if let Some(stack) = row.stack.filter(|_| row.state == State::Blocked) {
                *counts.entry(stack).or_default() += row.shape.count();
            }
        }
        let mut brought: HashMap<(ContextId, ContextId), HashSet<StackId>> = HashMap::new();
        for (i, hops) in below_sample {
            let s = &recording.samples[*i as usize];
            let news = s.reason.is_some_and(|reason| {
                reason == BlockReason::Poll || is_for_news(recording, s, reason)
            });
            if !news {
                continue;
            }
            let most = (hops.iter().map(|h| &recording.hops[*h as usize]))
                .max_by_key(|h| h.ns)
                .filter(|h| h.ns as f64 >= MOST * s.ns as f64);
            if let Some(Actor::Context(by)) = most.map(|h| &recording.actors[h.actor.0 as usize]) {
                brought.entry((s.context, *by)).or_default().insert(s.stack);
            }
        }
        Turns { counts, brought }
    }

    /// Whether `who` is asked by `waiters` for what ends their waits, `samples`.
    pub fn asked(
        &self,
        recording: &Recording,
        who: ContextId,
        waiters: &HashSet<ContextId>,
        samples: &[u32],
    ) -> bool {
        let asked = (self.brought.iter())
            .filter(|((to, by), _)| *to == who && waiters.contains(by))
            .flat_map(|(_, stacks)| stacks);
        let asked = self.count(asked);
        let own: HashSet<StackId> = (samples.iter())
            .map(|i| recording.samples[*i as usize].stack)
            .collect();
        asked > 0.0 && asked >= IN_TURN * self.count(&own)
    }

    fn count<'a>(&self, stacks: impl IntoIterator<Item = &'a StackId>) -> f64 {
        let counted = |s: &StackId| self.counts.get(s).copied().unwrap_or(0.0);
        stacks.into_iter().map(counted).sum()
    }
}
