//! Who ended the waits that are selected, and what those did meanwhile.
//!
//! Hops hang below samples, whose time a selection divides and joins: each copy of a hop gets the part of its time
//! that its sample's time got. Whoever ended a wait stays as they were seen, whatever was selected: a selection says
//! whose time it is, and not who is to blame for it.

use rustc_hash::FxHashMap;
use wallscope_model::{
    Above, Actor, ActorId, BlockReason, Hop, LabelsId, Part, Recording, Role, StackId, State,
};

use super::{Selection, stacks::Stacks};

/// A part of an old sample's time in a new one.
#[derive(Clone, Copy)]
pub(super) struct Went {
    /// The new sample's index.
    pub to: u32,
    /// How much of its time, ns.
    pub ns: u64,
}

/// Where a copy of a hop hangs: below what, and how much it has of how much.
#[derive(Clone, Copy)]
struct Copied {
    place: Above,
    part: u64,
    of: u64,
}

/// What makes two hops below the same the same.
type Like = (
    (bool, u32),
    Role,
    ActorId,
    Option<StackId>,
    Option<BlockReason>,
    Option<Part>,
    Option<LabelsId>,
);

/// The hops below the selected samples; `went`: by old sample.
pub(super) fn hops(rec: &Recording, went: &[Vec<Went>], stacks: &mut Stacks<'_>) -> Vec<Hop> {
    let mut out: Vec<Hop> = Vec::new();
    let mut places: FxHashMap<Like, u32> = FxHashMap::default();
    // By old hop: its copies.
    let mut copies: Vec<Vec<Copied>> = Vec::with_capacity(rec.hops.len());
    for hop in &rec.hops {
        let below: Vec<Copied> = match hop.above {
            Above::Sample(old) => {
                let of = rec.samples[old as usize].ns;
                let copied = |w: &Went| Copied {
                    place: Above::Sample(w.to),
                    part: w.ns,
                    of,
                };
                went[old as usize].iter().map(copied).collect()
            }
            Above::Hop(old) => copies[old as usize].clone(),
        };
        let stack = match below.is_empty() {
            true => None,
            false => hop.stack.map(|s| stacks.kept(rec, s)),
        };
        let mut own = Vec::with_capacity(below.len());
        for b in below {
            let of = u128::from(b.of.max(1));
            let share = |n: u64| u128::from(n) * u128::from(b.part);
            let fits = |n: u128| n.min(u128::from(u64::MAX)) as u64;
            let (ns, count) = (
                fits(share(hop.ns) / of),
                fits(share(hop.count).div_ceil(of)),
            );
            if ns == 0 {
                continue;
            }
            let above = match b.place {
                Above::Sample(i) => (false, i),
                Above::Hop(i) => (true, i),
            };
            let like = (
                above, hop.role, hop.actor, stack, hop.reason, hop.part, hop.labels,
            );
            let at = *places.entry(like).or_insert_with(|| {
                out.push(Hop {
                    above: b.place,
                    stack,
                    count: 0,
                    ns: 0,
                    ..hop.clone()
                });
                (out.len() - 1) as u32
            });
            let new = &mut out[at as usize];
            new.ns = new.ns.saturating_add(ns);
            new.count = new.count.saturating_add(count);
            own.push(Copied {
                place: Above::Hop(at),
                ..b
            });
        }
        copies.push(own);
    }
    out
}

/// Whether waits by lock, which are exact, are known of what is selected by itself.
pub(super) fn knows_locks(selection: &Selection) -> bool {
    !selection.is_estimated()
        && selection.time.is_none()
        && selection.reasons.is_empty()
        && (selection.states.is_empty() || selection.states.contains(&State::Blocked))
}

/// Those whose time is not selected are in it by name only.
pub(super) fn leave_out(rec: &mut Recording, wanted: &[bool]) {
    let contexts = &rec.contexts;
    for actor in &mut rec.actors {
        if let Actor::Context(c) = actor
            && wanted.get(c.0 as usize) != Some(&true)
        {
            let context = &contexts[c.0 as usize];
            *actor = Actor::Stranger {
                pid: context.pid,
                tid: context.tid,
                name: context.name.clone(),
            };
        }
    }
}
