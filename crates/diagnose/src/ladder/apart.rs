//! What shares of active wall time leave out: time without a request in flight, waits for want of work,
//! threads that stand in one place or only tick. It is no part of any verdict; whoever doubts that it is
//! rest can see what it consists of.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wallscope_model::scale::{NOT_SAMPLED, Scaled};
use wallscope_model::{ContextId, Recording, State};

use super::places::{Place, place};
use super::threads::Threads;
use super::waits::Waits;

/// Why time is set apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// Nobody waited for the thread: no request was in flight.
    Idle,
    /// The thread waited for work that others were to give it.
    NoWork,
    /// All of the time of a thread that stood in one place.
    Parked,
    /// All of the time of a thread that only ticks.
    Ticks,
}

impl Why {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Why::Idle => "idle",
            Why::NoWork => "no-work",
            Why::Parked => "parked",
            Why::Ticks => "ticks",
        }
    }
}

/// A part of the time that is set apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Why.
    pub why: Why,
    /// The state.
    pub state: State,
    /// Block reason or part by the contract's name.
    pub reason: Option<&'static str>,
    /// The program's own function; `[not sampled]` where no stack says.
    pub function: Arc<str>,
    /// The file that function lies in, empty where unknown.
    pub module: Arc<str>,
    /// Scaled time, ns.
    pub ns: u64,
    /// How many threads spent it.
    pub threads: usize,
}

type Key = (Why, State, Option<&'static str>, Arc<str>, Arc<str>);

/// All that is set apart, largest first.
pub(super) fn apart(
    recording: &Recording,
    scaled: &Scaled,
    waits: &Waits,
    threads: &Threads,
) -> Vec<Apart> {
    let whole_thread = |context: ContextId| match threads.only_ticks(context) {
        _ if threads.counts(context) => None,
        true => Some(Why::Ticks),
        false => Some(Why::Parked),
    };
    let mut sums: HashMap<Key, (u64, HashSet<ContextId>)> = HashMap::new();
    let mut add = |key: Key, context: ContextId, ns: u64| {
        let sum = sums.entry(key).or_default();
        sum.0 += ns;
        sum.1.insert(context);
    };
    let mut places: HashMap<u32, Place> = HashMap::new();
    for piece in &scaled.pieces {
        let sample = &recording.samples[piece.sample as usize];
        let part = || match sample.idle {
            true => Some(Why::Idle),
            false => waits.starved[piece.sample as usize].then_some(Why::NoWork),
        };
        let Some(why) = whole_thread(piece.context).or_else(part) else {
            continue;
        };
        let stack = sample.stack.0;
        let place = places
            .entry(stack)
            .or_insert_with(|| place(recording, &recording.stacks[stack as usize]));
        let (function, module) = (place.function.clone(), place.module.clone());
        let key = (why, sample.state, sample.reason_name(), function, module);
        add(key, piece.context, piece.ns);
    }
    for rest in &scaled.unsampled {
        if let Some(why) = whole_thread(rest.context) {
            let key = (why, rest.state, rest.reason, NOT_SAMPLED.into(), "".into());
            add(key, rest.context, rest.ns);
        }
    }
    let rows = sums.into_iter().filter(|(_, (ns, _))| *ns > 0);
    let mut rows: Vec<Apart> = rows
        .map(|((why, state, reason, function, module), (ns, of))| Apart {
            why,
            state,
            reason,
            function,
            module,
            ns,
            threads: of.len(),
        })
        .collect();
    let order = |r: &Apart| (r.why, r.state as u8, r.reason);
    rows.sort_by(|a, b| {
        (b.ns.cmp(&a.ns))
            .then_with(|| order(a).cmp(&order(b)))
            .then_with(|| (&a.function, &a.module).cmp(&(&b.function, &b.module)))
    });
    rows
}
