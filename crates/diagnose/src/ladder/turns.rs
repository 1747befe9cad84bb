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
        // By stack, whatever was in flight: who ends a few of its waits and others most of them is not who it
        // waits for, as a loop's own workers are that tell it when they are done.
        let mut ended: HashMap<(ContextId, StackId), (u64, HashMap<ContextId, u64>)> =
            HashMap::new();
        for (i, hops) in below_sample {
            let s = &recording.samples[*i as usize];
            let news = s.reason.is_some_and(|reason| {
                reason == BlockReason::Poll || is_for_news(recording, s, reason)
            });
            if !news {
                continue;
            }
            let (all, by_whom) = ended.entry((s.context, s.stack)).or_default();
            *all += s.ns;
            for h in hops.iter().map(|h| &recording.hops[*h as usize]) {
                if let Actor::Context(by) = &recording.actors[h.actor.0 as usize] {
                    *by_whom.entry(*by).or_default() += h.ns;
                }
            }
        }
        let mut brought: HashMap<(ContextId, ContextId), HashSet<StackId>> = HashMap::new();
        for ((to, stack), (all, by_whom)) in ended {
            let most = by_whom.into_iter().max_by_key(|(by, ns)| (*ns, by.0));
            if let Some((by, _)) = most.filter(|(_, ns)| *ns as f64 >= MOST * all as f64) {
                brought.entry((to, by)).or_default().insert(stack);
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
