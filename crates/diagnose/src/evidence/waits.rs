//! Every wait of a recording: its time, its requests, its wakers, and whether it is rest.

use wallscope_model::scale::Scaled;
use wallscope_model::{Actor, BlockReason, Recording, Sample, State};

use crate::delays::{self, Children, Delay};
use crate::frames::{Side, functions_on};
use crate::knowledge::{WAKE_BY_CONNECTION, knows};
use crate::labels::{REQUEST_KEY, REQUEST_OWED, resource, text_label};
use crate::wait_direction::resolves_name;
use crate::wake_chain::{WakeChains, mostly_ended_by, thread_of};

/// Every wait of a recording, by the index of its sample.
pub(crate) struct Waits {
    /// Scaled time of each sample, ns.
    pub sample_ns: Vec<u64>,
    /// Whether a request of the thread was in flight.
    pub in_flight: Vec<bool>,
    /// Whether the thread only owed an answer: it was asked, and made no request itself.
    pub owed: Vec<bool>,
    /// Whether the thread waits for want of work. Idle waits are not among them.
    pub starved: Vec<bool>,
    /// The target of a wait that looks like rest and is none.
    pub delays: Vec<Option<Delay>>,
    /// Wakers.
    pub chains: WakeChains,
}

/// Whether a thread may have chosen a wait for this reason: time or any event ends it.
pub(crate) fn may_rest(reason: Option<BlockReason>) -> bool {
    use BlockReason::{Other, Poll, Timer};
    matches!(reason, Some(Timer | Poll | Other))
}

/// Prefix of the names of sockets that send datagrams and wait for replies.
const UDP_ANSWERS: &str = "answers to UDP ";

/// Whether a thread polls one connected peer alone. Programs wait so for an answer with a time
/// limit.
pub(crate) fn awaits_one_peer(recording: &Recording, sample: &Sample) -> bool {
    let is_peer = |name: &str| name.starts_with("peer ") || name.starts_with(UDP_ANSWERS);
    sample.reason == Some(BlockReason::Poll)
        && !sample.idle
        && (resource(recording, sample).is_some_and(|name| is_peer(&name))
            || resolves_name(recording, sample))
}

impl Waits {
    /// Reads the waits of a recording. Nothing is called starved yet.
    pub fn new(recording: &Recording, scaled: &Scaled) -> Waits {
        let mut sample_ns = vec![0; recording.samples.len()];
        for piece in &scaled.pieces {
            sample_ns[piece.sample as usize] += piece.ns;
        }
        let chains = WakeChains::new(recording);
        let requests: Vec<_> = (recording.samples.iter())
            .map(|s| text_label(recording, s.labels, REQUEST_KEY))
            .collect();
        Waits {
            starved: vec![false; sample_ns.len()],
            delays: delays::of_samples(recording, &chains),
            sample_ns,
            in_flight: requests.iter().map(Option::is_some).collect(),
            owed: (requests.iter())
                .map(|r| r.as_deref() == Some(REQUEST_OWED))
                .collect(),
            chains,
        }
    }

    /// A hop's time on the scale of its sample, ns.
    pub fn scaled(&self, recording: &Recording, sample: u32, ns: u64) -> f64 {
        let whole = recording.samples[sample as usize].ns.max(1);
        ns as f64 * self.sample_ns[sample as usize] as f64 / whole as f64
    }

    /// Time of samples, ns.
    pub fn time(&self, samples: &[u32]) -> u64 {
        let times = samples.iter().map(|i| self.sample_ns[*i as usize]);
        times.sum()
    }

    /// Whether a sample's wait is rest: time or events end it, and no request waits for it.
    pub fn rests(&self, recording: &Recording, sample: u32) -> bool {
        let s = &recording.samples[sample as usize];
        let chosen = s.state == State::Blocked && may_rest(s.reason);
        let waits = self.in_flight[sample as usize] || self.delays[sample as usize].is_some();
        chosen && !waits && !awaits_one_peer(recording, s)
    }

    /// Samples among `samples` that children of the waiting process ended.
    pub fn ended_by_children(&self, recording: &Recording, samples: &[u32]) -> Vec<u32> {
        let children = Children::new(recording);
        let ended = |i: &u32| {
            let sample = &recording.samples[*i as usize];
            children.end(recording, sample, self.chains.of_sample(*i))
        };
        samples.iter().copied().filter(ended).collect()
    }

    /// Samples among `samples` that an unmeasured process ended.
    pub fn ended_by_strangers(&self, recording: &Recording, samples: &[u32]) -> Vec<u32> {
        let ended = |i: &u32| {
            let sample = &recording.samples[*i as usize];
            mostly_ended_by(recording, sample, self.chains.of_sample(*i), |actor| {
                matches!(actor, Actor::Stranger { .. })
            })
        };
        samples.iter().copied().filter(ended).collect()
    }

    /// Time of the waits of `samples` that other threads of the recording ended by a signal, an
    /// event or a pipe, and not by data on a connection, ns.
    pub fn handed_ns(&self, recording: &Recording, samples: &[u32]) -> u64 {
        let mut sum = 0.0;
        for i in samples {
            let own = recording.samples[*i as usize].context;
            for hop in self.chains.of_sample(*i) {
                let h = &recording.hops[*hop as usize];
                let fellow = thread_of(recording, h).is_some_and(|thread| thread != own);
                let Some(stack) = h.stack.filter(|_| fellow) else {
                    continue;
                };
                let mut kernel = functions_on(recording, stack, Side::Kernel).peekable();
                if kernel.peek().is_some() && !kernel.any(|n| knows(WAKE_BY_CONNECTION, n)) {
                    sum += self.scaled(recording, *i, h.ns);
                }
            }
        }
        sum as u64
    }
}
