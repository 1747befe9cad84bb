//! What samples are added up by, and what they add up to.

use rustc_hash::FxHashMap;
use wallscope_model::{SliceValue, StackEnd, histogram::Histogram};

/// The user part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UserPart {
    /// The stack with this hash.
    Hash(u64),
    /// None, and this is why.
    Missing(StackEnd),
}

/// Samples that are added up: same thread, stack, state, detail, CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleKey {
    /// Id of the thread's record.
    pub id: u64,
    /// How many programs its process had run before, as far as was seen.
    pub former: u32,
    /// Hash of what was waited for, 0: not known.
    pub resource: u64,
    /// Hash of the kernel stack, 0: none.
    pub kernel: u64,
    /// User stack.
    pub user: UserPart,
    /// If code made at run time is in it, the version of what its addresses mean (see `jit.rs`).
    pub code: u64,
    /// One of [`state`](crate::event::state).
    pub state: u8,
    /// Part or reason.
    pub detail: u8,
    /// For on-CPU samples: whether the CPU was in user mode.
    pub user_mode: bool,
    /// For on-CPU samples: the CPU.
    pub cpu: Option<u16>,
    /// For blocked ones: a request of the thread was in flight as it began to wait.
    pub in_flight: bool,
    /// One that it awaits itself.
    pub awaits: bool,
    /// For blocked ones: the thread had talked on stream sockets.
    pub talks: bool,
}

/// Where sums go that belong to groups of ended threads from now on.
#[derive(Default)]
pub struct Moves {
    /// Records of groups, by those of their threads.
    pub records: FxHashMap<u64, u64>,
    /// Hashes of what was waited for, by the old ones.
    pub resources: FxHashMap<u64, u64>,
}

impl SampleKey {
    /// The key to which samples move that came after their thread became part of the group with this record;
    /// `None`: it is their own.
    pub fn moved_late(&self, record: u64) -> Option<SampleKey> {
        (record != self.id).then_some(SampleKey {
            id: record,
            former: 0,
            code: 0,
            ..*self
        })
    }
}

impl Moves {
    /// The key to which these samples move; `None`: they stay. A group has no former programs, and code made at
    /// run time has no names in it.
    pub fn key(&self, key: &SampleKey) -> Option<SampleKey> {
        let resource = self.resources.get(&key.resource).copied();
        let moved = SampleKey {
            resource: resource.unwrap_or(key.resource),
            ..*key
        };
        match self.records.get(&key.id) {
            Some(record) => moved.moved_late(*record),
            None => resource.map(|_| moved),
        }
    }
}

/// What they add up to.
#[derive(Clone, Debug, Default)]
pub struct SampleSum {
    /// Periods.
    pub count: u64,
    /// Weight, ns.
    pub ns: u64,
    /// Periods and weight by slice.
    pub slices: Vec<SliceValue>,
    /// How long the intervals were that the samples fell into.
    pub lengths: Histogram,
}

/// Puts sums into the order in which a recording has its samples: by thread, state, detail and kernel stack, then by
/// the rest of the key, so that no two are in an order of chance.
pub fn sort(sums: &mut [(SampleKey, SampleSum)]) {
    sums.sort_unstable_by_key(|(key, _)| (key.id, key.state, key.detail, key.kernel, *key));
}
