//! Holders of the locks that functions wait for longer than before.
//!
//! The hops below a sampled wait name its wakers. The function that released the lock is taken as its holder.
//! `wallscope why` shows the holder's activity meanwhile, and its own waits.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{Actor, BlockReason};

use crate::view::{Analysis, Waits};

/// A function of a thread that held a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    function: Arc<str>,
    thread: Arc<str>,
}

/// The holder of the locks that a function waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldBy {
    /// The function that released the lock.
    pub function: Arc<str>,
    /// The holder's thread name.
    pub thread: Arc<str>,
    /// Its share of the function's additional lock waiting, 0..=1.
    pub share: f64,
}

/// Whether a wait is for a lock, so that it has a holder.
pub(super) fn is_held(reason: Option<BlockReason>) -> bool {
    reason.is_some_and(|r| r.facts().is_lock)
}

/// Wakers of one sample's waits, each with the length of the waits that it ended, ns.
pub(super) fn of_sample(a: &Analysis, waits: &Waits, sample: usize) -> Vec<(Holder, f64)> {
    let rec = a.recording;
    let ended = |hop: &u32| {
        let h = &rec.hops[*hop as usize];
        let thread = match &rec.actors[h.actor.0 as usize] {
            Actor::Context(c) => rec.contexts[c.0 as usize].name.clone(),
            Actor::Stranger { pid, name, .. } if *pid != 0 => name.clone(),
            _ => return None,
        };
        let function = h.stack.and_then(|s| a.place(s))?.into();
        Some((Holder { function, thread }, waits.ns[*hop as usize] as f64))
    };
    (waits.below_sample[sample].iter())
        .filter_map(ended)
        .collect()
}

/// The holder with most of the additional waiting; `delta`: all additional waiting.
pub(super) fn most(of: &FxHashMap<Holder, f64>, delta: f64) -> Option<HeldBy> {
    let (holder, ns) = of.iter().max_by(|a, b| {
        let name = |h: &Holder| (h.function.clone(), h.thread.clone());
        (a.1.total_cmp(b.1)).then_with(|| name(b.0).cmp(&name(a.0)))
    })?;
    (*ns > 0.0 && delta > 0.0).then(|| HeldBy {
        function: holder.function.clone(),
        thread: holder.thread.clone(),
        share: (ns / delta).min(1.0),
    })
}
