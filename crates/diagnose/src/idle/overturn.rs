//! Idle verdicts that waits of one recording, taken together, overturn.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wallscope_model::{BlockReason, ContextId, Hop, Peer, Recording, Role, StackId};

use super::rules::{AT_ROOT, NOTHING_IN_FLIGHT};
use crate::delays;
use crate::frames::code_site;
use crate::labels::{RESOURCE_KEY, text_label};
use crate::thresholds::{SHARED_PART, UNANSWERED_SHARE};
use crate::wake_chain::{WakeChains, thread_of};

/// Verdict on a sample: idle or not, and the rule that gave it; `None`: it is no wait.
pub(super) type Judged = Option<(bool, &'static str)>;

/// Overturns verdicts that do not hold.
pub(super) fn overturn(recording: &Recording, verdicts: &mut [Judged]) {
    let chains = WakeChains::new(recording);
    overturn_shared(recording, &chains, verdicts);
    overturn_delays(recording, &chains, verdicts);
    overturn_unanswered(recording, verdicts);
}

/// Overturns waits at a thread's root for something that the waiters hold in turn: they are no
/// waits for work.
fn overturn_shared(recording: &Recording, chains: &WakeChains, verdicts: &mut [Judged]) {
    let mut places: HashMap<Arc<str>, Vec<u32>> = HashMap::new();
    for (i, verdict) in verdicts.iter().enumerate() {
        if *verdict == Some((true, AT_ROOT)) {
            let function = code_site(recording, recording.samples[i].stack).function;
            places.entry(function).or_default().push(i as u32);
        }
    }
    for samples in places.into_values() {
        if shared_part(recording, chains, &samples) >= SHARED_PART {
            for i in samples {
                verdicts[i as usize] = Some((false, "shared with its holders"));
            }
        }
    }
}

/// A thread may poll for a child or a disk while its connections are at rest.
fn overturn_delays(recording: &Recording, chains: &WakeChains, verdicts: &mut [Judged]) {
    let delays = delays::of_samples(recording, chains);
    for (verdict, delay) in verdicts.iter_mut().zip(delays) {
        if delay.is_some() && *verdict == Some((true, NOTHING_IN_FLIGHT)) {
            *verdict = Some((false, "for a child or a disk"));
        }
    }
}

/// Overturns waits for answers to requests from before the recording, which were seen with nothing
/// in flight. If all requests to a peer were open for the whole window, waits at that peer are for
/// its answers.
fn overturn_unanswered(recording: &Recording, verdicts: &mut [Judged]) {
    let window = recording.window.length_ns() as f64;
    let open = |p: &&Peer| {
        let whole = UNANSWERED_SHARE * window * p.requests as f64;
        p.asks && p.requests > 0 && p.in_flight_ns as f64 >= whole
    };
    let awaited: Vec<(u32, &str)> = (recording.peers.iter().filter(open))
        .map(|p| (p.pid, &*p.address))
        .collect();
    if awaited.is_empty() {
        return;
    }
    for (verdict, s) in verdicts.iter_mut().zip(&recording.samples) {
        if *verdict != Some((true, NOTHING_IN_FLIGHT)) || s.reason != Some(BlockReason::Network) {
            continue;
        }
        let at = text_label(recording, s.labels, RESOURCE_KEY);
        let peer = at.as_deref().and_then(|at| at.strip_prefix("peer "));
        let peer = peer.and_then(|p| p.split(' ').next());
        let pid = recording.contexts[s.context.0 as usize].pid;
        if peer.is_some_and(|peer| awaited.contains(&(pid, peer))) {
            *verdict = Some((false, "an answer that never came"));
        }
    }
}

/// Part of the waits at one place during which other waiters of that place did something else. If
/// it is large, they wait for something that they share, and not for work.
pub(super) fn shared_part(recording: &Recording, chains: &WakeChains, samples: &[u32]) -> f64 {
    let Some(first) = samples.first() else {
        return 0.0;
    };
    let function = |stack: StackId| code_site(recording, stack).function;
    let place = Shared {
        waiters: (samples.iter())
            .map(|i| recording.samples[*i as usize].context)
            .collect(),
        own: function(recording.samples[*first as usize].stack),
        recording,
        chains,
    };
    let all: u64 = (samples.iter())
        .map(|i| recording.samples[*i as usize].ns)
        .sum();
    let held: u64 = samples.iter().map(|i| place.held_ns(*i)).sum();
    held as f64 / all.max(1) as f64
}

/// A place, and the threads that wait there.
struct Shared<'a> {
    waiters: HashSet<ContextId>,
    /// The program's function that waits.
    own: Arc<str>,
    recording: &'a Recording,
    chains: &'a WakeChains,
}

impl Shared<'_> {
    /// Time of a sample's waits during which fellow waiters were busy, ns.
    fn held_ns(&self, sample: u32) -> u64 {
        let mut held = 0;
        // Chains are only a few hops deep as recorded.
        let mut open: Vec<u32> = self.chains.of_sample(sample).to_vec();
        while let Some(hop) = open.pop() {
            let h = &self.recording.hops[hop as usize];
            let fellow = thread_of(self.recording, h).is_some_and(|t| self.waiters.contains(&t));
            // A bringer's own wait for others is not held back here.
            if !fellow {
                continue;
            }
            let below = self.chains.of_hop(hop);
            open.extend(below);
            if self.is_busy(h) {
                let next = below.iter().flat_map(|woke| self.chains.of_hop(*woke));
                let inside: u64 = next.map(|n| self.recording.hops[*n as usize].ns).sum();
                held += h.ns.saturating_sub(inside);
            }
        }
        held
    }

    /// Whether a fellow waiter does something else. One that queues at the same place does not have
    /// the thing. Other activity in the same function may use the thing that is waited for:
    /// compilers make one function of several.
    fn is_busy(&self, hop: &Hop) -> bool {
        let elsewhere = |stack| code_site(self.recording, stack).function != self.own;
        match hop.role {
            Role::OnCpu | Role::Runnable => hop.stack.is_none_or(elsewhere),
            Role::Blocked => {
                hop.reason != Some(BlockReason::Lock) || hop.stack.is_none_or(elsewhere)
            }
            _ => false,
        }
    }
}
