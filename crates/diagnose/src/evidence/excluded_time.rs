//! Time that shares of active time leave out: idle waits, waits for want of work, parked and
//! ticking threads. It is no part of any verdict; a doubting reader can see its parts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{ContextId, State};

use super::active::Active;

/// Reason for which time is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Exclusion {
    /// No request of the thread was in flight.
    Idle,
    /// The thread waited for work that others were to give it.
    NoWork,
    /// All of the time of a thread that stayed in one place.
    Parked,
    /// All of the time of a thread that only ticks.
    Ticks,
}

impl Exclusion {
    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Exclusion::Idle => "idle",
            Exclusion::NoWork => "no-work",
            Exclusion::Parked => "parked",
            Exclusion::Ticks => "ticks",
        }
    }
}

/// A part of the time that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExcludedTime {
    /// Reason for leaving it out.
    pub exclusion: Exclusion,
    /// The state.
    pub state: State,
    /// Block reason or part by the contract's name.
    pub reason: Option<&'static str>,
    /// The program's own function; `[not sampled]` where no stack says.
    pub function: Arc<str>,
    /// File that the function lies in, empty where unknown.
    pub module: Arc<str>,
    /// Scaled time, ns.
    pub ns: u64,
    /// Number of threads that spent it.
    pub threads: usize,
}

type Key = (Exclusion, State, Option<&'static str>, Arc<str>, Arc<str>);

/// Time by key, ns, and the threads that spent it.
#[derive(Default)]
struct Sums(HashMap<Key, (u64, HashSet<ContextId>)>);

impl Sums {
    fn add(&mut self, key: Key, thread: ContextId, ns: u64) {
        let (sum, threads) = self.0.entry(key).or_default();
        *sum += ns;
        threads.insert(thread);
    }

    fn rows(self) -> impl Iterator<Item = ExcludedTime> {
        let present = self.0.into_iter().filter(|(_, (ns, _))| *ns > 0);
        present.map(
            |((exclusion, state, reason, function, module), (ns, threads))| ExcludedTime {
                exclusion,
                state,
                reason,
                function,
                module,
                ns,
                threads: threads.len(),
            },
        )
    }
}

/// All time that is left out, largest first.
pub(crate) fn excluded_time(active: Active<'_>) -> Vec<ExcludedTime> {
    let recording = active.recording;
    let mut sums = Sums::default();
    for piece in &active.scaled.pieces {
        let sample = &recording.samples[piece.sample as usize];
        let part = || match sample.idle {
            true => Some(Exclusion::Idle),
            false => active.waits.starved[piece.sample as usize].then_some(Exclusion::NoWork),
        };
        let Some(exclusion) = whole_thread(active, piece.context).or_else(part) else {
            continue;
        };
        let site = active.sites.of(sample.stack);
        let (function, module) = (site.function.clone(), site.module.clone());
        let key = (
            exclusion,
            sample.state,
            sample.reason_name(),
            function,
            module,
        );
        sums.add(key, piece.context, piece.ns);
    }
    for rest in &active.scaled.unsampled {
        if let Some(exclusion) = whole_thread(active, rest.context) {
            let function = NOT_SAMPLED.into();
            let key = (exclusion, rest.state, rest.reason, function, "".into());
            sums.add(key, rest.context, rest.ns);
        }
    }
    let mut rows: Vec<ExcludedTime> = sums.rows().collect();
    let order = |r: &ExcludedTime| {
        let names = (r.function.clone(), r.module.clone());
        (r.exclusion, r.state as u8, r.reason, names)
    };
    rows.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| order(a).cmp(&order(b))));
    rows
}

/// Reason for leaving out all of a thread's time; `None`: the thread works.
fn whole_thread(active: Active<'_>, thread: ContextId) -> Option<Exclusion> {
    match active.threads.only_ticks(thread) {
        _ if active.threads.counts(thread) => None,
        true => Some(Exclusion::Ticks),
        false => Some(Exclusion::Parked),
    }
}
