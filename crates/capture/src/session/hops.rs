//! From chains and sums of the kernel to the recording's hops, lock waits and `resource` labels.

use rustc_hash::FxHashMap;
use wallscope_model::{
    Above, Actor, ActorId, BlockReason, ContextId, Hop, Label, LabelValue, LockWait, Part,
    Recording, Role, told_by,
};
use wallscope_observe::LockWaits;

use super::{
    address_scope::AddressScope,
    build::Stacks,
    estimator::Estimator,
    lock_owner::OwnerEvidence,
    naming::CodeNames,
    sample_key::{SampleKey, UserPart},
    wait_tree::{ActorKey, Node},
};

/// Puts hops and lock waits into `recording`. `samples`: where each key's sample stands in it.
pub fn assemble(
    recording: &mut Recording,
    stacks: &mut Stacks,
    samples: &FxHashMap<SampleKey, u32>,
    estimator: &mut Estimator,
    names: &dyn CodeNames,
) {
    let (roots, nodes) = estimator.chains.take(&estimator.kernel);
    for part in nodes.iter().map(|node| &node.part) {
        estimator.uses(part.kernel, part.user, part.resource);
    }
    let accounts = &estimator.accounts;
    let mut actors: FxHashMap<ActorKey, ActorId> = FxHashMap::default();
    let mut places: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let above = match node.parent {
            Some(parent) => places[parent as usize].map(Above::Hop),
            None => roots
                .get(node.root as usize)
                .map(|key| key.moved_late(accounts.record(key.id)).unwrap_or(*key))
                .and_then(|key| samples.get(&key))
                .map(|s| Above::Sample(*s)),
        };
        let Some(above) = above else {
            places.push(None);
            continue;
        };
        places.push(Some(recording.hops.len() as u32));
        let actor = *actors.entry(node.part.actor.clone()).or_insert_with(|| {
            recording.actors.push(actor(&node.part.actor, estimator));
            ActorId((recording.actors.len() - 1) as u32)
        });
        let hop = hop(node, above, actor, stacks, estimator, names);
        recording.hops.push(hop);
    }
    let locks = std::mem::take(&mut estimator.facts.locks).into_values();
    let mut locks: Vec<(u32, LockWaits)> = locks
        .filter_map(|l| Some((estimator.accounts.index(l.record)?, l)))
        .collect();
    locks.sort_by_key(|(context, l)| (*context, l.address, l.call));
    let wait = |(context, l): (u32, LockWaits)| LockWait {
        context: ContextId(context),
        labels: stacks.labels.id(Some(l.name), None, None),
        address: l.address,
        total_ns: l.total_ns,
        longest_ns: l.longest_ns,
        count: l.count,
    };
    recording.locks = locks.into_iter().map(wait).collect();
}

fn actor(key: &ActorKey, estimator: &Estimator) -> Actor {
    match key {
        ActorKey::Record(id) => match estimator.accounts.index(*id) {
            Some(index) => Actor::Context(ContextId(index)),
            None => Actor::Unknown,
        },
        ActorKey::Stranger(pid, tid, name) => Actor::Stranger {
            pid: *pid,
            tid: *tid,
            name: name.clone(),
        },
        ActorKey::Interrupt(served) => Actor::Interrupt((*served).into()),
    }
}

fn hop(
    node: &Node,
    above: Above,
    actor: ActorId,
    stacks: &mut Stacks,
    estimator: &Estimator,
    names: &dyn CodeNames,
) -> Hop {
    let p = &node.part;
    let nothing = p.kernel == 0 && matches!(p.user, UserPart::Missing(_));
    let pid = match &p.actor {
        ActorKey::Record(id) => estimator
            .accounts
            .index(*id)
            .map(|i| estimator.accounts.pid(i)),
        ActorKey::Stranger(pid, ..) => Some(*pid),
        _ => Some(0),
    };
    let stack = pid
        .filter(|_| !nothing)
        .map(|pid| stacks.stack(p.kernel, p.user, AddressScope::last(pid), estimator, names));
    let blocked = p.role == Role::Blocked;
    let reason = BlockReason::ALL
        .get(p.detail as usize)
        .copied()
        .filter(|_| blocked);
    let parts = [Part::Woken, Part::Preempted, Part::Throttled];
    let told = OwnerEvidence::name(p.detail).filter(|_| p.role == Role::Held);
    let labels = match told {
        Some(told) => Some(stacks.labels.set(vec![Label {
            key: told_by::KEY.into(),
            value: LabelValue::Text(told.into()),
        }])),
        None => stacks.labels(reason, p.kernel, p.resource, [None, None], estimator),
    };
    Hop {
        above,
        role: p.role,
        actor,
        stack,
        reason,
        part: parts
            .get(p.detail as usize)
            .copied()
            .filter(|_| p.role == Role::Runnable),
        labels,
        count: node.count,
        ns: node.ns,
    }
}
