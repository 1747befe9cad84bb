//! Keys by which samples are added up, and their sums.

use rustc_hash::FxHashMap;
use wallscope_model::{SliceValue, StackEnd, histogram::Histogram};

/// The user part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum UserPart {
    /// The stack with this hash.
    Hash(u64),
    /// No stack, for this reason.
    Missing(StackEnd),
}

/// Samples that are added up: same thread, stack, state, detail, CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleKey {
    /// Id of the thread's record.
    pub id: u64,
    /// Number of programs that its process had run before, as far as was seen.
    pub former: u32,
    /// Hash of the resource that the thread waited for, 0: not known.
    pub resource: u64,
    /// Hash of the kernel stack, 0: none.
    pub kernel: u64,
    /// User stack.
    pub user: UserPart,
    /// Version of the meaning of its addresses, if code made at run time is in it (see `jit.rs`).
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
    /// For blocked samples: the thread itself awaits the answer to that request.
    pub awaits: bool,
    /// For blocked ones: the thread had talked on stream sockets.
    pub talks: bool,
}

/// Moves of sums to groups of ended threads.
#[derive(Default)]
pub struct Moves {
    /// Records of groups, by those of their threads.
    pub records: FxHashMap<u64, u64>,
    /// Hashes of resources, by the old ones.
    pub resources: FxHashMap<u64, u64>,
}

impl SampleKey {
    /// Key of samples that came after their thread became part of the group with this record; `None`: they keep their
    /// own.
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

/// Sum of the samples with one key.
#[derive(Clone, Debug, Default)]
pub struct SampleSum {
    /// Periods.
    pub count: u64,
    /// Weight, ns.
    pub ns: u64,
    /// Periods and weight by slice.
    pub slices: Vec<SliceValue>,
    /// Lengths of the intervals that the samples fell into.
    pub lengths: Histogram,
}

/// Puts sums into the order in which a recording has its samples: by thread, state, detail and kernel stack, then by
/// the rest of the key. So the order is never random.
pub fn sort(sums: &mut [(SampleKey, SampleSum)]) {
    sums.sort_unstable_by_key(|(key, _)| (key.id, key.state, key.detail, key.kernel, *key));
}
