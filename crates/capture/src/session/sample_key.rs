//! What samples are added up by, and what they add up to.

use wallscope_model::{SliceValue, StackEnd, shape::Shape};

/// The user part of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum User {
    /// The stack with this hash.
    Hash(u64),
    /// None, and this is why.
    Missing(StackEnd),
}

/// Samples that are added up: same thread, stack, state, detail, CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Id of the thread's record.
    pub id: u64,
    /// How many programs its process had run before, as far as was seen.
    pub former: u32,
    /// Hash of what was waited for, 0: not known.
    pub resource: u64,
    /// Hash of the kernel stack, 0: none.
    pub kernel: u64,
    /// User stack.
    pub user: User,
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

/// What they add up to.
#[derive(Clone, Debug, Default)]
pub struct Sum {
    /// Periods.
    pub count: u64,
    /// Weight, ns.
    pub ns: u64,
    /// The same by slice.
    pub slices: Vec<SliceValue>,
    /// How long the intervals were that the samples fell into.
    pub lengths: Shape,
}
