//! Threads that are asked and answer. A thread that rests before it answers is no bringer without
//! work.
//!
//! Time alone does not distinguish the two: the answering thread rests most of the time in both
//! cases. An asked thread, however, waits for something to do, and the askers end those waits as
//! often as it ends theirs. Waits are therefore counted, however short they are.

use std::collections::{HashMap, HashSet};

use wallscope_model::{BlockReason, ContextId, Recording, StackId, State};

use crate::thresholds::{ASKED_BY_ONE, ASKED_IN_TURN};
use crate::wait_direction::is_consumer;
use crate::wake_chain::{WakeChains, thread_of};

/// A thread that waits for something to do, and the thread that mostly ends these waits.
type Pair = (ContextId, ContextId);

/// Stacks at which threads wait for something to do, the threads that end these waits, and the
/// number of the waits.
pub(crate) struct RequestReply {
    /// Intervals by stack, as far as they were sampled by stack.
    counts: HashMap<StackId, f64>,
    /// Stacks of a thread's waits for something to do, by the thread that mostly ends them.
    brought: HashMap<Pair, HashSet<StackId>>,
}

/// Time of the waits at one stack, ns: in all, and by the thread that ended them.
#[derive(Default)]
struct Ended {
    all_ns: u64,
    by_ns: HashMap<ContextId, u64>,
}

impl RequestReply {
    /// Reads the waits for something to do of a recording.
    pub fn new(recording: &Recording, chains: &WakeChains) -> RequestReply {
        let mut counts: HashMap<StackId, f64> = HashMap::new();
        for row in &recording.histograms {
            if let Some(stack) = row.stack.filter(|_| row.state == State::Blocked) {
                *counts.entry(stack).or_default() += row.histogram.count();
            }
        }
        let mut brought: HashMap<Pair, HashSet<StackId>> = HashMap::new();
        for ((to, stack), ended) in ended_by_stack(recording, chains) {
            let main = ended.by_ns.into_iter().max_by_key(|(by, ns)| (*ns, by.0));
            let enough = ASKED_BY_ONE * ended.all_ns as f64;
            if let Some((by, _)) = main.filter(|(_, ns)| *ns as f64 >= enough) {
                brought.entry((to, by)).or_default().insert(stack);
            }
        }
        RequestReply { counts, brought }
    }

    /// Whether `waiters` ask `thread` for the thing that ends their waits, `samples`.
    pub fn asks(
        &self,
        recording: &Recording,
        thread: ContextId,
        waiters: &HashSet<ContextId>,
        samples: &[u32],
    ) -> bool {
        let asked = (self.brought.iter())
            .filter(|((to, by), _)| *to == thread && waiters.contains(by))
            .flat_map(|(_, stacks)| stacks);
        let asked = self.count(asked);
        let own: HashSet<StackId> = (samples.iter())
            .map(|i| recording.samples[*i as usize].stack)
            .collect();
        asked > 0.0 && asked >= ASKED_IN_TURN * self.count(&own)
    }

    fn count<'a>(&self, stacks: impl IntoIterator<Item = &'a StackId>) -> f64 {
        let counted = |s: &StackId| self.counts.get(s).copied().unwrap_or(0.0);
        stacks.into_iter().map(counted).sum()
    }
}

/// Waits for something to do by thread and stack, whether or not a request was in flight. A loop's
/// workers end a few of its waits when they are done, and others end most: the loop does not wait
/// for its workers.
fn ended_by_stack(
    recording: &Recording,
    chains: &WakeChains,
) -> HashMap<(ContextId, StackId), Ended> {
    let mut ended: HashMap<(ContextId, StackId), Ended> = HashMap::new();
    for (i, hops) in chains.samples() {
        let sample = &recording.samples[i as usize];
        if sample.reason != Some(BlockReason::Poll) && !is_consumer(recording, sample) {
            continue;
        }
        let sum = ended.entry((sample.context, sample.stack)).or_default();
        sum.all_ns += sample.ns;
        for hop in hops.iter().map(|hop| &recording.hops[*hop as usize]) {
            if let Some(by) = thread_of(recording, hop) {
                *sum.by_ns.entry(by).or_default() += hop.ns;
            }
        }
    }
    ended
}
