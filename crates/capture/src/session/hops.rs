//! From chains and sums of the kernel to the recording's hops, lock waits and `resource` labels.

use rustc_hash::FxHashMap;
use wallscope_model::{
    Above, Actor, ActorId, BlockReason, ContextId, Hop, Label, LabelValue, LockWait, Part,
    Recording, Role, told_by,
};
use wallscope_observe::LockWaits;

use super::{
    accounts::Accounts,
    address_scope::AddressScope,
    build::{Observed, Stacks, WaitedFor},
    estimator::Estimator,
    lock_owner::OwnerEvidence,
    sample_key::{SampleKey, UserPart},
    wait_tree::{ActorKey, Node},
};

/// Chains that were followed to their ends.
pub struct Followed<'a> {
    /// Keys of the samples at their roots.
    pub roots: Vec<SampleKey>,
    /// Parts, parents before children.
    pub nodes: Vec<Node>,
    /// Index in the recording of the sample of each key.
    pub samples: &'a FxHashMap<SampleKey, u32>,
}

/// Puts hops into `recording`.
pub fn assemble(
    recording: &mut Recording,
    stacks: &mut Stacks,
    followed: &Followed<'_>,
    observed: Observed<'_>,
) {
    let estimator = observed.estimator;
    let accounts = &estimator.accounts;
    let mut actors: FxHashMap<ActorKey, ActorId> = FxHashMap::default();
    let mut places: Vec<Option<u32>> = Vec::with_capacity(followed.nodes.len());
    for node in &followed.nodes {
        let above = match node.parent {
            Some(parent) => places[parent as usize].map(Above::Hop),
            None => (followed.roots)
                .get(node.root as usize)
                .map(|key| key.moved_late(accounts.record(key.id)).unwrap_or(*key))
                .and_then(|key| followed.samples.get(&key))
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
        let hop = hop(node, (above, actor), stacks, observed);
        recording.hops.push(hop);
    }
}

/// Exact waits for locks, in the recording's order.
pub fn lock_waits(
    locks: impl Iterator<Item = LockWaits>,
    accounts: &Accounts,
    stacks: &mut Stacks,
) -> Vec<LockWait> {
    let mut locks: Vec<(u32, LockWaits)> = locks
        .filter_map(|l| Some((accounts.index(l.record)?, l)))
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
    locks.into_iter().map(wait).collect()
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
    (above, actor): (Above, ActorId),
    stacks: &mut Stacks,
    observed: Observed<'_>,
) -> Hop {
    let estimator = observed.estimator;
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
        .map(|pid| stacks.stack(p.kernel, p.user, AddressScope::last(pid), observed));
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
        None => {
            let wait = WaitedFor {
                reason,
                kernel: p.kernel,
                resource: p.resource,
            };
            stacks.labels(wait, [None, None], estimator)
        }
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
