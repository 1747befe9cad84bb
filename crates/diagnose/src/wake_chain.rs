//! Chains of wake-ups: the hops below each sample and below each hop.

use std::collections::HashMap;

use wallscope_model::{Above, Actor, ContextId, Hop, Recording, Sample};

use crate::thresholds::MOSTLY_ENDED;

/// Hops of a recording, by the sample or hop that they hang below. Indices are those of
/// [`Recording::samples`] and [`Recording::hops`].
#[derive(Clone, Debug, Default)]
pub(crate) struct WakeChains {
    below_sample: HashMap<u32, Vec<u32>>,
    below_hop: Vec<Vec<u32>>,
}

impl WakeChains {
    /// Sorts the hops of a recording.
    pub fn new(recording: &Recording) -> WakeChains {
        let mut chains = WakeChains {
            below_sample: HashMap::new(),
            below_hop: vec![Vec::new(); recording.hops.len()],
        };
        for (i, hop) in recording.hops.iter().enumerate() {
            match hop.above {
                Above::Sample(s) => chains.below_sample.entry(s).or_default().push(i as u32),
                Above::Hop(h) => chains.below_hop[h as usize].push(i as u32),
            }
        }
        chains
    }

    /// Hops that ended a sample's waits; empty: none is known.
    pub fn of_sample(&self, sample: u32) -> &[u32] {
        self.below_sample.get(&sample).map_or(&[], Vec::as_slice)
    }

    /// Samples with wakers, and their hops.
    pub fn samples(&self) -> impl Iterator<Item = (u32, &[u32])> {
        (self.below_sample.iter()).map(|(sample, hops)| (*sample, hops.as_slice()))
    }

    /// Hops below a hop: its actor's activity meanwhile.
    pub fn of_hop(&self, hop: u32) -> &[u32] {
        &self.below_hop[hop as usize]
    }
}

/// The actor of a hop.
pub(crate) fn actor<'r>(recording: &'r Recording, hop: &Hop) -> &'r Actor {
    &recording.actors[hop.actor.0 as usize]
}

/// The measured thread that acts in a hop, if one does.
pub(crate) fn thread_of(recording: &Recording, hop: &Hop) -> Option<ContextId> {
    match actor(recording, hop) {
        Actor::Context(thread) => Some(*thread),
        _ => None,
    }
}

/// Whether actors that `fits` accepts ended most of a sample's waits, of which `hops` are the wakers.
pub(crate) fn mostly_ended_by(
    recording: &Recording,
    sample: &Sample,
    hops: &[u32],
    fits: impl Fn(&Actor) -> bool,
) -> bool {
    let hops = hops.iter().map(|hop| &recording.hops[*hop as usize]);
    let fitting = hops.filter(|hop| fits(actor(recording, hop)));
    let ns: u64 = fitting.map(|hop| hop.ns).sum();
    ns > 0 && ns as f64 >= MOSTLY_ENDED * sample.ns as f64
}

/// Whether an actor is the timer's interrupt: a time limit ended the wait.
pub(crate) fn is_timer(actor: &Actor) -> bool {
    matches!(actor, Actor::Interrupt(served) if &**served == "timer")
}
