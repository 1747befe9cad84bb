//! Drops data without a reference: a selection holds no names from outside of it.

use std::hash::Hash;

use rustc_hash::FxHashMap;
use wallscope_model::{
    Actor, ActorId, ContextId, FrameId, FunctionId, LabelsId, LedgerSlice, ModuleId, Recording,
};

/// New numbers for those of `used`, in their order; the list keeps only those.
fn keep<T>(list: &mut Vec<T>, used: impl Fn(u32) -> bool) -> FxHashMap<u32, u32> {
    let mut numbers = FxHashMap::default();
    let mut old = 0;
    list.retain(|_| {
        let kept = used(old);
        if kept {
            numbers.insert(old, numbers.len() as u32);
        }
        old += 1;
        kept
    });
    numbers
}

fn set<T: Eq + Hash>(items: impl Iterator<Item = T>) -> rustc_hash::FxHashSet<T> {
    items.collect()
}

/// Drops contexts that are not `wanted`, and whatever no context or sample needs.
pub(super) fn compact(rec: &mut Recording, wanted: &[bool]) {
    let contexts = keep(&mut rec.contexts, |i| wanted[i as usize]);
    let mut old = wanted.iter();
    rec.context_labels.retain(|_| old.next() == Some(&true));
    let pids = set(rec.contexts.iter().map(|c| c.pid));
    rec.processes.retain(|p| pids.contains(&p.pid));
    let rows = rec.ledger_slices.iter();
    rec.ledger_slices = rows
        .filter_map(|row| {
            let context = *contexts.get(&row.context)?;
            Some(LedgerSlice { context, ..row })
        })
        .collect();
    for s in &mut rec.samples {
        s.context = ContextId(contexts[&s.context.0]);
    }

    for row in &mut rec.histograms {
        row.context = row.context.map(|c| ContextId(contexts[&c.0]));
    }
    rec.peers.retain(|p| pids.contains(&p.pid));
    rec.pauses.retain(|g| pids.contains(&g.pid));
    for s in rec.peers.iter_mut().flat_map(|p| &mut p.stacks) {
        s.context = ContextId(contexts[&s.context.0]);
    }

    for l in &mut rec.locks {
        l.context = ContextId(contexts[&l.context.0]);
    }
    let actors = set(rec.hops.iter().map(|h| h.actor.0));
    let actors = keep(&mut rec.actors, |i| actors.contains(&i));
    for actor in &mut rec.actors {
        if let Actor::Context(c) = actor {
            *c = ContextId(contexts[&c.0]);
        }
    }
    for h in &mut rec.hops {
        h.actor = ActorId(actors[&h.actor.0]);
    }

    let labels = rec.samples.iter().map(|s| s.labels);
    let labels = labels.chain(rec.hops.iter().map(|h| h.labels));
    let labels = labels.chain(rec.locks.iter().map(|l| l.labels));
    let labels = labels.chain(rec.context_labels.iter().copied());
    let sets = set(labels.filter_map(|l| l.map(|l| l.0)));
    let sets = keep(&mut rec.label_sets, |i| sets.contains(&i));
    let labels = rec.samples.iter_mut().map(|s| &mut s.labels);
    let labels = labels.chain(rec.hops.iter_mut().map(|h| &mut h.labels));
    let labels = labels.chain(&mut rec.context_labels);
    for l in labels.chain(rec.locks.iter_mut().map(|l| &mut l.labels)) {
        *l = l.map(|l| LabelsId(sets[&l.0]));
    }

    let frames = set(rec.stacks.iter().flat_map(|s| s.frames.iter().map(|f| f.0)));
    let frames = keep(&mut rec.frames, |i| frames.contains(&i));
    for f in rec.stacks.iter_mut().flat_map(|s| &mut s.frames) {
        *f = FrameId(frames[&f.0]);
    }
    let functions = set(rec
        .frames
        .iter()
        .flat_map(|f| f.lines.iter().map(|l| l.function.0)));
    let functions = keep(&mut rec.functions, |i| functions.contains(&i));
    for l in rec.frames.iter_mut().flat_map(|f| &mut f.lines) {
        l.function = FunctionId(functions[&l.function.0]);
    }
    let modules = set(rec.frames.iter().filter_map(|f| f.module.map(|m| m.0)));
    let modules = keep(&mut rec.modules, |i| modules.contains(&i));
    for f in &mut rec.frames {
        f.module = f.module.map(|m| ModuleId(modules[&m.0]));
    }
}
