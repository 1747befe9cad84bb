//! From chains and sums of the kernel to the recording's hops, lock waits and `resource` labels.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{
    Above, Actor, ActorId, BlockReason, ContextId, Hop, Label, LabelValue, LabelsId, LockWait,
    Part, Recording, Role, told_by,
};

use super::{
    build::Stacks,
    estimator::Estimator,
    naming::{CodeNames, Whose},
    owners::Told,
    parts::{Node, Who},
    samples::{Key, User},
};
use crate::places;

/// The key of the label that says what a thread waited for.
pub const RESOURCE: &str = "resource";
/// The key of the label that says which program it was, of processes that have run several.
pub const PROGRAM: &str = "program";
/// The key of the label that names the coroutine with which the task began that a thread was running.
pub const TASK: &str = "task";

/// Sets of labels.
#[derive(Default)]
pub struct Labels {
    /// The sets.
    pub sets: Vec<Vec<Label>>,
    ids: FxHashMap<[Option<Arc<str>>; 3], LabelsId>,
}

impl Labels {
    /// The set of exactly these labels.
    pub fn set(&mut self, labels: Vec<Label>) -> LabelsId {
        let known = self.sets.iter().position(|s| *s == labels);
        let index = known.unwrap_or_else(|| {
            self.sets.push(labels);
            self.sets.len() - 1
        });
        LabelsId(index as u32)
    }

    /// The set of this resource, this program and this task, if there is any of them.
    pub fn id(
        &mut self,
        resource: Option<Arc<str>>,
        program: Option<Arc<str>>,
        task: Option<Arc<str>>,
    ) -> Option<LabelsId> {
        let sets = &mut self.sets;
        let values = [resource, program, task];
        values.iter().any(Option::is_some).then(|| {
            *self.ids.entry(values).or_insert_with_key(|values| {
                let label = |(key, value): (&str, &Option<Arc<str>>)| {
                    Some(Label {
                        key: key.into(),
                        value: LabelValue::Text(value.clone()?),
                    })
                };
                let keys = [RESOURCE, PROGRAM, TASK].into_iter();
                sets.push(keys.zip(values).filter_map(label).collect());
                LabelsId((sets.len() - 1) as u32)
            })
        })
    }
}

/// The function of the kernel in which each kernel stack waits, by the stack's hash.
pub fn kernel_functions(kernel: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
    const DEEP: usize = 4;
    let all: Vec<(u64, u64)> = kernel
        .iter()
        .flat_map(|(hash, pcs)| pcs.iter().take(DEEP).map(|pc| (*hash, *pc)))
        .collect();
    let wanted: Vec<u64> = all.iter().map(|(_, pc)| *pc).collect();
    let mut functions = FxHashMap::default();
    for ((hash, _), name) in all.into_iter().zip(places::names(&wanted)) {
        // What waits is the caller of a lock, not the lock's own code.
        if let Some(name) = name.filter(|n| !places::only_sleeps(n)) {
            functions.entry(hash).or_insert_with(|| name.into());
        }
    }
    functions
}

/// Functions of the kernel that themselves wait for the lock of a process's address space, and for no
/// other, whatever they then do under it.
const ADDRESS_SPACE: [&str; 14] = [
    "__access_remote_vm",
    "__do_sys_brk",
    "__do_sys_mremap",
    "__mm_populate",
    "__vm_munmap",
    "__x64_sys_brk",
    "do_mlock",
    "do_mprotect_pkey",
    "do_user_addr_fault",
    "gup_fast_fallback",
    "lock_mm_and_find_vma",
    "madvise_lock",
    "vm_mmap_pgoff",
    "__x64_sys_mremap",
];

/// What a wait was for, in words.
pub fn resource(
    reason: Option<BlockReason>,
    function: Option<&Arc<str>>,
    named: Option<&Arc<str>>,
) -> Option<Arc<str>> {
    // One lock, whichever call it is met in.
    let address_space = |f: &Arc<str>| {
        let plain = f.split('.').next().unwrap_or(f);
        ADDRESS_SPACE.contains(&plain)
    };
    let prefix = match reason? {
        BlockReason::KernelLock if function.is_some_and(address_space) => {
            return Some("kernel lock of a process's address space (mmap_lock)".into());
        }
        BlockReason::KernelLock => "kernel lock in",
        BlockReason::Memory => "memory in",
        BlockReason::Other => "kernel:",
        _ => return named.cloned(),
    };
    match (function, named) {
        (Some(f), Some(n)) => Some(format!("{prefix} {f} ({n})").into()),
        (Some(f), None) => Some(format!("{prefix} {f}").into()),
        (None, n) => n.cloned(),
    }
}

/// Puts hops and lock waits into `recording`. `samples`: where each key's sample stands in it.
pub fn assemble(
    recording: &mut Recording,
    stacks: &mut Stacks,
    samples: &FxHashMap<Key, u32>,
    estimator: &mut Estimator,
    names: &dyn CodeNames,
) {
    let (roots, nodes) = estimator.chains.finish(&estimator.kernel);
    let mut actors: FxHashMap<Who, ActorId> = FxHashMap::default();
    let mut places: Vec<Option<u32>> = Vec::with_capacity(nodes.len());
    for node in &nodes {
        let above = match node.parent {
            Some(parent) => places[parent as usize].map(Above::Hop),
            None => roots
                .get(node.root as usize)
                .and_then(|key| samples.get(key))
                .map(|s| Above::Sample(*s)),
        };
        let Some(above) = above else {
            places.push(None);
            continue;
        };
        places.push(Some(recording.hops.len() as u32));
        let actor = *actors.entry(node.part.who.clone()).or_insert_with(|| {
            recording.actors.push(actor(&node.part.who, estimator));
            ActorId((recording.actors.len() - 1) as u32)
        });
        let hop = hop(node, above, actor, stacks, estimator, names);
        recording.hops.push(hop);
    }
    recording.locks = std::mem::take(&mut estimator.facts.locks)
        .into_iter()
        .filter_map(|l| {
            let index = estimator.accounts.index(l.record)?;
            Some(LockWait {
                context: ContextId(index),
                labels: stacks.labels.id(Some(l.name), None, None),
                address: l.address,
                total_ns: l.total_ns,
                longest_ns: l.longest_ns,
                count: l.count,
            })
        })
        .collect();
    (recording.locks).sort_by_key(|l| (l.context, l.address, l.total_ns, l.longest_ns, l.count));
}

fn actor(who: &Who, estimator: &Estimator) -> Actor {
    match who {
        Who::Record(id) => match estimator.accounts.index(*id) {
            Some(index) => Actor::Context(ContextId(index)),
            None => Actor::Unknown,
        },
        Who::Stranger(pid, tid, name) => Actor::Stranger {
            pid: *pid,
            tid: *tid,
            name: name.clone(),
        },
        Who::Interrupt(served) => Actor::Interrupt((*served).into()),
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
    let nothing = p.kernel == 0 && matches!(p.user, User::Missing(_));
    let pid = match &p.who {
        Who::Record(id) => estimator
            .accounts
            .index(*id)
            .map(|i| estimator.accounts.pid(i)),
        Who::Stranger(pid, ..) => Some(*pid),
        _ => Some(0),
    };
    let stack = pid
        .filter(|_| !nothing)
        .map(|pid| stacks.stack(p.kernel, p.user, Whose::last(pid), estimator, names));
    let blocked = p.role == Role::Blocked;
    let reason = BlockReason::ALL
        .get(p.detail as usize)
        .copied()
        .filter(|_| blocked);
    let parts = [Part::Woken, Part::Preempted, Part::Throttled];
    let told = Told::name(p.detail).filter(|_| p.role == Role::Held);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lock_of_an_address_space_is_one_lock_in_whichever_call_it_is_met() {
        let named = |function: &str, call: &str| {
            let (function, call) = (Arc::from(function), Arc::from(call));
            resource(Some(BlockReason::KernelLock), Some(&function), Some(&call)).unwrap()
        };
        let lock = named("__vm_munmap", "munmap");
        assert_eq!(lock, named("vm_mmap_pgoff.isra.0", "mmap"));
        assert!(lock.contains("mmap_lock"));
        assert_eq!(
            &*named("ext4_buffered_write_iter", "pwrite64 /srv/log"),
            "kernel lock in ext4_buffered_write_iter (pwrite64 /srv/log)"
        );
    }
}
