//! Parts of waits: a tree below each sample. The times of its parts sum to the sample's own.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{Role, StackEnd};

use super::sample_key::{Moves, UserPart};

/// Most parts that are told apart; the time of further ones stays with their parent.
const MAX_NODES: usize = 400_000;

/// Thread or interrupt that a part is charged to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ActorKey {
    /// The thread with this record.
    Record(u64),
    /// A thread that is not measured: process, thread, name.
    Stranger(u32, u32, Arc<str>),
    /// An interrupt, by the work that it did.
    Interrupt(&'static str),
}

/// Key of a part among those with one parent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// Role of the part in the wait.
    pub role: Role,
    /// Thread or interrupt that it is charged to.
    pub actor: ActorKey,
    /// Kernel stack, 0: none.
    pub kernel: u64,
    /// User stack.
    pub user: UserPart,
    /// Block reason, part of runnable time, or number of the evidence for a lock's holder (`OwnerEvidence`;
    /// 0: a hand-off or a runtime).
    pub detail: u8,
    /// Hash of the resource, 0: not known.
    pub resource: u64,
}

impl Part {
    /// A part with nothing else known.
    pub fn of(role: Role, actor: &ActorKey) -> Part {
        Part {
            role,
            actor: actor.clone(),
            kernel: 0,
            user: UserPart::Missing(StackEnd::Lost),
            detail: 0,
            resource: 0,
        }
    }

    /// A part that is charged to the thread with record `id`.
    pub fn of_record(role: Role, id: u64) -> Part {
        Part::of(role, &ActorKey::Record(id))
    }
}

/// A part of a wait.
pub struct Node {
    /// Index of the node above; `None`: it hangs below a sample.
    pub parent: Option<u32>,
    /// The sample at the root.
    pub root: u32,
    /// Key of the part.
    pub part: Part,
    /// Samples.
    pub count: u64,
    /// Time, ns.
    pub ns: u64,
    /// On-CPU samples in it, by the weight of their waits.
    hits: u64,
}

/// A stretch of a wait that is to be divided.
#[derive(Clone, Copy)]
pub struct Follow {
    /// The sample at the root.
    pub root: u32,
    /// The part that it belongs to.
    pub above: Option<u32>,
    /// Its begin, ns.
    pub from: u64,
    /// Its end, ns.
    pub to: u64,
    /// The time it stands for, ns.
    pub ns: u64,
    /// The samples it stands for.
    pub count: u64,
}

/// All parts so far.
#[derive(Default)]
pub struct WaitTree {
    nodes: Vec<Node>,
    ids: FxHashMap<(u32, Option<u32>, Part), u32>,
    /// Samples with parts that were not told apart for want of room.
    pub crowded: u64,
}

impl WaitTree {
    /// All of them, parents before children.
    pub fn take(&mut self) -> Vec<Node> {
        self.ids.clear();
        std::mem::take(&mut self.nodes)
    }

    /// Number of parts.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Moves parts below the roots `roots` (by their old number) and to groups of ended threads. Parts that are
    /// one then are added up.
    pub fn fold(&mut self, roots: &[u32], moves: &Moves) {
        self.ids.clear();
        let mut places: Vec<u32> = Vec::with_capacity(self.nodes.len());
        let nodes = std::mem::take(&mut self.nodes);
        for mut node in nodes {
            node.root = roots[node.root as usize];
            node.parent = node.parent.map(|parent| places[parent as usize]);
            if let ActorKey::Record(id) = &mut node.part.actor {
                *id = moves.records.get(id).copied().unwrap_or(*id);
            }
            let resource = &mut node.part.resource;
            *resource = moves.resources.get(resource).copied().unwrap_or(*resource);
            let next = self.nodes.len() as u32;
            let key = (node.root, node.parent, node.part.clone());
            let place = *self.ids.entry(key).or_insert(next);
            places.push(place);
            match self.nodes.get_mut(place as usize) {
                Some(into) => {
                    into.ns += node.ns;
                    into.count += node.count;
                    into.hits += node.hits;
                }
                None => self.nodes.push(node),
            }
        }
    }

    /// Adds `ns` to a part below `above`; returns its index, `None` where there is no room.
    pub fn add(&mut self, at: &Follow, part: Part, ns: u64, count: u64) -> Option<u32> {
        let key = (at.root, at.above, part);
        let id = match self.ids.get(&key) {
            Some(id) => *id,
            None if self.nodes.len() >= MAX_NODES => {
                self.crowded += 1;
                return None;
            }
            None => {
                let id = self.nodes.len() as u32;
                self.nodes.push(Node {
                    parent: at.above,
                    root: at.root,
                    part: key.2.clone(),
                    count: 0,
                    ns: 0,
                    hits: 0,
                });
                self.ids.insert(key, id);
                id
            }
        };
        let node = &mut self.nodes[id as usize];
        node.ns += ns;
        node.count += count;
        Some(id)
    }

    /// Counts on-CPU samples that fell into a part.
    pub fn hit(&mut self, id: u32, hits: u64) {
        self.nodes[id as usize].hits += hits;
    }

    /// Divides on-CPU time below each part among the stacks that were sampled there.
    pub fn place_computing(&mut self) {
        let mut sampled: FxHashMap<(u32, Option<u32>, ActorKey), Vec<u32>> = FxHashMap::default();
        for (id, node) in (0..).zip(&self.nodes) {
            if node.hits > 0 {
                let key = (node.root, node.parent, node.part.actor.clone());
                sampled.entry(key).or_default().push(id);
            }
        }
        for ((root, parent, actor), ids) in sampled {
            let all = (root, parent, Part::of(Role::OnCpu, &actor));
            let Some(whole) = self.ids.get(&all) else {
                continue;
            };
            let ns = std::mem::take(&mut self.nodes[*whole as usize].ns);
            let hits: u64 = ids.iter().map(|id| self.nodes[*id as usize].hits).sum();
            let mut upto = 0;
            let share = |n: u64| (u128::from(ns) * u128::from(n) / u128::from(hits)) as u64;
            for id in ids {
                let node = &mut self.nodes[id as usize];
                node.ns = share(upto + node.hits) - share(upto);
                upto += node.hits;
            }
        }
        self.nodes.iter_mut().for_each(|n| n.hits = 0);
    }
}

#[cfg(test)]
#[path = "wait_tree_tests.rs"]
mod tests;
