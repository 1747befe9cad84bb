//! Chains of the selected waits: their wakers and holders, and the activity of those threads meanwhile.
//!
//! Hops hang below samples. A selection divides and joins the time of samples: each copy of a hop gets the
//! same share of time as its sample. Wakers and holders stay as recorded, whatever is selected. A selection
//! restricts the waiting threads; it does not restrict the threads that they waited for.

use rustc_hash::FxHashMap;
use wallscope_model::{
    Above, Actor, ActorId, BlockReason, Hop, LabelsId, Part, Recording, Role, StackId, State,
};

use super::selection::Selection;
use super::stacks::Stacks;

/// A part of an old sample's time in a new one.
#[derive(Clone, Copy)]
pub(super) struct MovedTime {
    /// The new sample's index.
    pub to: u32,
    /// How much of its time, ns.
    pub ns: u64,
}

/// A copy of a hop: its parent, and the share `part / of` of the old hop's time.
#[derive(Clone, Copy)]
struct Copied {
    place: Above,
    part: u64,
    of: u64,
}

/// Key of a hop: two hops with one key are joined.
type HopKey = (
    (bool, u32),
    Role,
    ActorId,
    Option<StackId>,
    Option<BlockReason>,
    Option<Part>,
    Option<LabelsId>,
);

/// The hops below the selected samples; `went`: by old sample.
pub(super) fn hops(rec: &Recording, went: &[Vec<MovedTime>], stacks: &mut Stacks<'_>) -> Vec<Hop> {
    let mut out: Vec<Hop> = Vec::new();
    let mut places: FxHashMap<HopKey, u32> = FxHashMap::default();
    // By old hop: its copies.
    let mut copies: Vec<Vec<Copied>> = Vec::with_capacity(rec.hops.len());
    for hop in &rec.hops {
        let below: Vec<Copied> = match hop.above {
            Above::Sample(old) => {
                let of = rec.samples[old as usize].ns;
                let copied = |w: &MovedTime| Copied {
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

/// Whether the exact waits by lock are known for the selection alone.
pub(super) fn knows_locks(selection: &Selection) -> bool {
    !selection.is_estimated()
        && selection.time.is_none()
        && selection.reasons.is_empty()
        && (selection.states.is_empty() || selection.states.contains(&State::Blocked))
}

/// Turns actors without selected time into strangers: only their names stay.
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
