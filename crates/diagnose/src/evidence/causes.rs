//! Active wall time by cause: a state, a reason, and the program's own function that led there.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use wallscope_model::scale::{NOT_SAMPLED, Piece};
use wallscope_model::stats::{Interval, MAX_BLOCKS, share_interval};
use wallscope_model::{BlockReason, Recording, Sample, State};

use super::active::Active;
use super::bottleneck::Bottleneck;
use super::roots::RootShare;
use crate::frames::{CodeSite, code_site};
use crate::labels::resource;

/// A part of the active time.
#[derive(Clone, Debug)]
pub struct Cause {
    /// The state.
    pub state: State,
    /// Block reason or part by the contract's name.
    pub reason: Option<&'static str>,
    /// The program's own function; `[not sampled]` where no stack says.
    pub function: Arc<str>,
    /// File that the function lies in, empty where unknown.
    pub module: Arc<str>,
    /// The function that it called there: how it waited.
    pub through: Arc<str>,
    /// The lock, file or peer that it waited for half of the time or more, where the recording
    /// names it.
    pub resource: Option<Arc<str>>,
    /// Scaled time, ns.
    pub ns: u64,
    /// Its share of active time.
    pub share: f64,
    /// 95 % interval of that share.
    pub interval: Interval,
    /// Number of threads that spent it.
    pub threads: usize,
    /// Name of the thread that spent most.
    pub thread: Arc<str>,
    /// Indices of the samples that it sums up.
    pub samples: Vec<u32>,
    /// For blocked time: the roots of its waits, largest share first.
    pub because: Vec<RootShare>,
}

impl Cause {
    /// Whether it is blocked time for `reason`.
    pub fn is_wait_for(&self, reason: BlockReason) -> bool {
        self.state == State::Blocked && self.reason == Some(reason.name())
    }

    /// Whether a function is known, and not a marker such as `[not sampled]`.
    pub fn has_function(&self) -> bool {
        !self.function.starts_with('[')
    }

    /// State and reason in words: `blocked (lock)`.
    pub fn what(&self) -> String {
        match self.reason {
            Some(reason) => format!("{} ({reason})", self.state.name()),
            None => self.state.name().to_string(),
        }
    }
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
    /// Scaled time by block of the recording, ns.
    blocks: Vec<f64>,
    samples: u64,
    threads: HashMap<u32, u64>,
    through: HashMap<Arc<str>, u64>,
    resources: HashMap<Arc<str>, u64>,
    of: Vec<u32>,
}

/// Sums in the making.
struct Sums<'a> {
    recording: &'a Recording,
    sums: HashMap<Key, Sum>,
    /// All causes' scaled time by block, ns.
    whole: Vec<f64>,
    samples: u64,
}

/// All causes of the time of working threads, largest first.
pub(crate) fn causes(active: Active<'_>, bottleneck: &Bottleneck) -> Vec<Cause> {
    let Active {
        recording, scaled, ..
    } = active;
    let mut sums = Sums {
        recording,
        sums: HashMap::new(),
        whole: vec![0.0; (recording.slices.count.max(1) as usize).min(MAX_BLOCKS)],
        samples: 0,
    };
    for piece in &scaled.pieces {
        if active.counts(piece) {
            let sample = &recording.samples[piece.sample as usize];
            sums.add(piece, sample, active.sites.of(sample.stack));
        }
    }
    let unsampled = scaled.unsampled.iter();
    for rest in unsampled.filter(|rest| active.threads.counts(rest.context)) {
        let key = Key {
            state: rest.state,
            reason: rest.reason,
            function: NOT_SAMPLED.into(),
            module: "".into(),
        };
        let sum = sums.sum(key);
        sum.ns += rest.ns;
        *sum.threads.entry(rest.context.0).or_default() += rest.ns;
    }
    let Sums {
        sums,
        whole,
        samples,
        ..
    } = sums;
    let whole = Whole {
        blocks: whole,
        samples,
    };
    let mut out: Vec<Cause> = (sums.into_iter().filter(|(_, sum)| sum.ns > 0))
        .map(|(key, sum)| cause(recording, bottleneck, &whole, (key, sum)))
        .collect();
    let order = |c: &Cause| (c.function.clone(), c.reason, c.state as u8);
    out.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| order(a).cmp(&order(b))));
    out
}

impl Sums<'_> {
    fn sum(&mut self, key: Key) -> &mut Sum {
        let sum = self.sums.entry(key).or_default();
        sum.blocks.resize(self.whole.len(), 0.0);
        sum
    }

    fn add(&mut self, piece: &Piece, sample: &Sample, site: &CodeSite) {
        let recording = self.recording;
        let (slices, blocks) = (recording.slices.count.max(1) as usize, self.whole.len());
        let per_ns = piece.ns as f64 / sample.ns.max(1) as f64;
        self.samples += sample.count;
        for v in &sample.slices {
            let block = (v.slice as usize).min(slices - 1) * blocks / slices;
            self.whole[block] += v.ns as f64 * per_ns;
        }
        let sum = self.sum(Key {
            state: sample.state,
            reason: sample.reason_name(),
            function: site.function.clone(),
            module: site.module.clone(),
        });
        sum.ns += piece.ns;
        sum.samples += sample.count;
        if sum.of.last() != Some(&piece.sample) {
            sum.of.push(piece.sample);
        }
        *sum.threads.entry(piece.context.0).or_default() += piece.ns;
        *sum.through.entry(site.callee.clone()).or_default() += piece.ns;
        if let Some(resource) = resource(recording, sample) {
            *sum.resources.entry(resource).or_default() += piece.ns;
        }
        for v in &sample.slices {
            let block = (v.slice as usize).min(slices - 1) * blocks / slices;
            sum.blocks[block] += v.ns as f64 * per_ns;
        }
    }
}

/// All causes together.
struct Whole {
    /// Scaled time by block, ns.
    blocks: Vec<f64>,
    samples: u64,
}

fn cause(
    recording: &Recording,
    bottleneck: &Bottleneck,
    whole: &Whole,
    (key, sum): (Key, Sum),
) -> Cause {
    let share = bottleneck.share(sum.ns);
    let thread = main(&sum.threads).map(|id| recording.contexts[id as usize].name.clone());
    Cause {
        through: main(&sum.through).unwrap_or_else(|| "".into()),
        resource: main_resource(&sum.resources, sum.ns),
        thread: thread.unwrap_or_else(|| "".into()),
        threads: sum.threads.len(),
        interval: interval(&sum, whole, share),
        samples: sum.of,
        because: Vec::new(),
        state: key.state,
        reason: key.reason,
        function: key.function,
        module: key.module,
        ns: sum.ns,
        share,
    }
}

/// The 95 % interval of a share, laid around the share of scaled time.
fn interval(sum: &Sum, whole: &Whole, share: f64) -> Interval {
    if sum.samples == 0 {
        return Interval {
            low: share,
            high: share,
        };
    }
    let seen = share_interval(&sum.blocks, &whole.blocks, whole.samples as f64);
    let all: f64 = whole.blocks.iter().sum();
    let estimate = sum.blocks.iter().sum::<f64>() / all.max(1.0);
    Interval {
        low: (share - (estimate - seen.low)).clamp(0.0, share),
        high: (share + (seen.high - estimate)).clamp(share, 1.0),
    }
}

/// The key with most time; of equal ones the first in order.
fn main<K: Clone + Ord + Hash>(of: &HashMap<K, u64>) -> Option<K> {
    of.iter()
        .max_by_key(|(key, ns)| (**ns, std::cmp::Reverse((*key).clone())))
        .map(|(key, _)| key.clone())
}

/// The resource that takes half of a cause's waiting time or more. A smaller one is one of many alike, such as each
/// waiter's own word, and would mislead.
pub(crate) fn main_resource(of: &HashMap<Arc<str>, u64>, ns: u64) -> Option<Arc<str>> {
    main(of).filter(|name| of[name] * 2 >= ns)
}

/// On-CPU samples in the calls that contain most of `waits` by `time`. Empty if the program's function calls no other
/// function there.
pub(crate) fn computing_in_calls(
    recording: &Recording,
    causes: &[Cause],
    waits: &[u32],
    time: impl Fn(&[u32]) -> u64,
) -> Vec<u32> {
    let site = |i: u32| code_site(recording, recording.samples[i as usize].stack);
    let mut calls: BTreeMap<(Arc<str>, Arc<str>), Vec<u32>> = BTreeMap::new();
    for i in waits {
        let site = site(*i);
        let of_call = calls.entry((site.function, site.callee)).or_default();
        of_call.push(*i);
    }
    let main = calls.into_iter().max_by_key(|(_, waits)| time(waits));
    let Some(((function, callee), _)) = main.filter(|((function, callee), _)| function != callee)
    else {
        return Vec::new();
    };
    let running = causes
        .iter()
        .filter(|c| c.state == State::OnCpu && c.function == function);
    let samples = running.flat_map(|c| c.samples.iter().copied());
    samples.filter(|i| site(*i).callee == callee).collect()
}

/// The largest cause of `state` with a known function; of blocked ones, for `reason`.
pub(crate) fn largest(
    causes: &[Cause],
    state: State,
    reason: Option<BlockReason>,
) -> Option<&Cause> {
    causes.iter().find(|c| {
        c.state == state && reason.is_none_or(|r| c.reason == Some(r.name())) && c.has_function()
    })
}
