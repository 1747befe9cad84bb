//! Rung 2: active wall time by cause, a cause being a state, a reason, and the program's own
//! function that led there ([`super::places`]).

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::scale::{NOT_SAMPLED, Scaled};
use wallscope_model::stats::{Interval, MAX_BLOCKS, share_interval};
use wallscope_model::{BlockReason, Recording, State};

use super::Bottleneck;
use super::places::{Place, place};
use super::threads::Threads;
use super::waits::{Waits, resource};

/// Where a part of the active wall time went.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The state.
    pub state: State,
    /// Block reason or part by the contract's name.
    pub reason: Option<&'static str>,
    /// The program's own function; `[not sampled]` where no stack says.
    pub function: Arc<str>,
    /// The file that function lies in, empty where unknown.
    pub module: Arc<str>,
    /// The innermost user function: how it waited.
    pub through: Arc<str>,
    /// What was waited for, half of the time or more, where the recording names it: a lock, a file, a
    /// peer.
    pub resource: Option<Arc<str>>,
    /// Scaled time, ns.
    pub ns: u64,
    /// Its share of active wall time.
    pub share: f64,
    /// 95 % interval of that share.
    pub interval: Interval,
    /// How many threads spent it.
    pub threads: usize,
    /// The one that spent most.
    pub thread: Arc<str>,
    /// The samples that it sums up, by their index.
    pub samples: Vec<u32>,
}

#[derive(PartialEq, Eq, Hash, Clone)]
struct Key {
    state: State,
    reason: Option<&'static str>,
    function: Arc<str>,
    module: Arc<str>,
}

#[derive(Default)]
struct Sum {
    ns: u64,
    /// Samples by block of the recording, scaled time.
    blocks: Vec<f64>,
    samples: u64,
    threads: HashMap<u32, u64>,
    through: HashMap<Arc<str>, u64>,
    resources: HashMap<Arc<str>, u64>,
    of: Vec<u32>,
}

/// All causes of the time of working threads, largest first.
pub(super) fn causes(
    recording: &Recording,
    scaled: &Scaled,
    waits: &Waits,
    threads: &Threads,
    bottleneck: &Bottleneck,
) -> Vec<Cause> {
    let places: Vec<Place> = recording
        .stacks
        .iter()
        .map(|s| place(recording, s))
        .collect();
    let slices = recording.slices.count.max(1) as usize;
    let blocks = slices.min(MAX_BLOCKS);
    let mut sums: HashMap<Key, Sum> = HashMap::new();
    let mut whole = vec![0.0; blocks];
    let mut samples = 0;
    for piece in &scaled.pieces {
        let sample = &recording.samples[piece.sample as usize];
        let set_apart = sample.idle || waits.starved[piece.sample as usize];
        if set_apart || !threads.counts(piece.context) {
            continue;
        }
        let place = &places[sample.stack.0 as usize];
        let sum = sums
            .entry(Key {
                state: sample.state,
                reason: sample.reason_name(),
                function: place.function.clone(),
                module: place.module.clone(),
            })
            .or_default();
        sum.blocks.resize(blocks, 0.0);
        sum.ns += piece.ns;
        sum.samples += sample.count;
        samples += sample.count;
        if sum.of.last() != Some(&piece.sample) {
            sum.of.push(piece.sample);
        }
        *sum.threads.entry(piece.context.0).or_default() += piece.ns;
        *sum.through.entry(place.through.clone()).or_default() += piece.ns;
        if let Some(resource) = resource(recording, sample) {
            *sum.resources.entry(resource).or_default() += piece.ns;
        }
        let per_ns = piece.ns as f64 / sample.ns.max(1) as f64;
        for v in &sample.slices {
            let block = (v.slice as usize).min(slices - 1) * blocks / slices;
            sum.blocks[block] += v.ns as f64 * per_ns;
            whole[block] += v.ns as f64 * per_ns;
        }
    }
    for rest in &scaled.unsampled {
        if threads.counts(rest.context) {
            let sum = sums
                .entry(Key {
                    state: rest.state,
                    reason: rest.reason,
                    function: NOT_SAMPLED.into(),
                    module: "".into(),
                })
                .or_default();
            sum.blocks.resize(blocks, 0.0);
            sum.ns += rest.ns;
            *sum.threads.entry(rest.context.0).or_default() += rest.ns;
        }
    }
    let mut out: Vec<Cause> = sums
        .into_iter()
        .filter(|(_, sum)| sum.ns > 0)
        .map(|(key, sum)| {
            let share = bottleneck.share(sum.ns);
            let seen = share_interval(&sum.blocks, &whole, samples as f64);
            let estimate = sum.blocks.iter().sum::<f64>() / whole.iter().sum::<f64>().max(1.0);
            Cause {
                through: most(&sum.through).unwrap_or_else(|| "".into()),
                resource: main_resource(&sum.resources, sum.ns),
                thread: sum
                    .threads
                    .iter()
                    .max_by_key(|(id, ns)| (**ns, std::cmp::Reverse(**id)))
                    .map_or_else(
                        || "".into(),
                        |(id, _)| recording.contexts[*id as usize].name.clone(),
                    ),
                threads: sum.threads.len(),
                interval: if sum.samples == 0 {
                    Interval {
                        low: share,
                        high: share,
                    }
                } else {
                    Interval {
                        low: (share - (estimate - seen.low)).clamp(0.0, share),
                        high: (share + (seen.high - estimate)).clamp(share, 1.0),
                    }
                },
                samples: sum.of,
                state: key.state,
                reason: key.reason,
                function: key.function,
                module: key.module,
                ns: sum.ns,
                share,
            }
        })
        .collect();
    out.sort_by(|a, b| {
        (b.ns, &a.function, a.reason, a.state as u8).cmp(&(
            a.ns,
            &b.function,
            b.reason,
            b.state as u8,
        ))
    });
    out
}

fn most(of: &HashMap<Arc<str>, u64>) -> Option<Arc<str>> {
    of.iter()
        .max_by_key(|(name, ns)| (**ns, std::cmp::Reverse((*name).clone())))
        .map(|(name, _)| name.clone())
}

/// What most of a cause's time was waited for; one of many alike (a waiter's own word each, say) would
/// mislead.
pub(super) fn main_resource(of: &HashMap<Arc<str>, u64>, ns: u64) -> Option<Arc<str>> {
    most(of).filter(|name| of[name] * 2 >= ns)
}

/// The largest cause among those of `state` and, for blocked ones, `reason`.
pub(super) fn largest(
    causes: &[Cause],
    state: State,
    reason: Option<BlockReason>,
) -> Option<&Cause> {
    causes.iter().find(|c| {
        c.state == state
            && reason.is_none_or(|r| c.reason == Some(r.name()))
            && !c.function.starts_with('[')
    })
}
