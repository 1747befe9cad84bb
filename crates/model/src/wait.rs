//! Why a context waited: who ended its waits, what that one did meanwhile, and exact waits by lock.
//!
//! Hops hang below samples of blocked time. Under each such sample stand the wakers that ended its
//! waits; under a waker, what it did while the other waited; under its own waits, their wakers, and
//! so on. Each hop's time is a part of its parent's, no time is in two children, and what a parent
//! has beyond its children was followed no further. Times are *unscaled*, like [`crate::Sample::ns`].

use std::sync::Arc;

use crate::{BlockReason, ContextId, LabelsId, Part, StackId};

/// Index into [`crate::Recording::actors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorId(pub u32);

/// Who did something.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A context of this recording.
    Context(ContextId),
    /// A thread that was not measured, or whose time was not selected.
    Stranger {
        /// Process id.
        pid: u32,
        /// Thread id.
        tid: u32,
        /// Thread name.
        name: Arc<str>,
    },
    /// An interrupt, by what it served: `timer`, `disk`, `network`, or empty.
    Interrupt(Arc<str>),
    /// Not known.
    Unknown,
}

/// What a hop stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It ended the wait above; its stack is the one that did.
    Woke,
    /// It was on a CPU meanwhile.
    OnCpu,
    /// It waited for a CPU meanwhile.
    Runnable,
    /// It was blocked itself meanwhile.
    Blocked,
    /// It is waited for further up: who waits for whom has become a circle.
    Circle,
    /// Longer ago than is remembered, or deeper than is followed.
    Cut,
    /// It had the lock that the one above waited for.
    Held,
}

impl Role {
    /// All, in the order of their numbers in files.
    pub const ALL: [Role; 7] = [
        Role::Woke,
        Role::OnCpu,
        Role::Runnable,
        Role::Blocked,
        Role::Circle,
        Role::Cut,
        Role::Held,
    ];

    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Role::Woke => "woke",
            Role::Held => "held",
            Role::OnCpu => "on_cpu",
            Role::Runnable => "runnable",
            Role::Blocked => "blocked",
            Role::Circle => "circle",
            Role::Cut => "cut",
        }
    }
}

/// By what it is known who has a lock that nobody was seen to let go: the value of a label of the hop.
pub mod told_by {
    /// The label's key.
    pub const KEY: &str = "told_by";
    /// A mutex of the C library's keeps its owner's id.
    pub const MUTEX: &str = "mutex";
    /// A read-write lock of the C library's keeps its writer's id.
    pub const RWLOCK: &str = "read-write lock";
    /// A futex that the kernel itself takes and gives (`FUTEX_LOCK_PI`) is its owner's id.
    pub const FUTEX: &str = "futex";
    /// The VM's record of a Java monitor.
    pub const MONITOR: &str = "monitor";
    /// How the values end of what the lock said when the wait began; the others are of the end of the recording.
    pub const THEN: &str = " (when the wait began)";
    /// A mutex, then.
    pub const MUTEX_THEN: &str = "mutex (when the wait began)";
    /// A read-write lock, then.
    pub const RWLOCK_THEN: &str = "read-write lock (when the wait began)";
    /// A futex of the kernel's, then.
    pub const FUTEX_THEN: &str = "futex (when the wait began)";
}

/// What a hop hangs below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Above {
    /// A sample of blocked time, by its index.
    Sample(u32),
    /// Another hop, by its index, which is lower.
    Hop(u32),
}

/// A part of somebody's wait, and who spent it how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Whose part it is.
    pub above: Above,
    /// What it stands for.
    pub role: Role,
    /// Who.
    pub actor: ActorId,
    /// Where in the code, where known.
    pub stack: Option<StackId>,
    /// For [`Role::Blocked`]: for what.
    pub reason: Option<BlockReason>,
    /// For [`Role::Runnable`]: which part.
    pub part: Option<Part>,
    /// Further labels (`resource`); for [`Role::Held`], where not what happened tells that, by what it is
    /// known ([`told_by`]).
    pub labels: Option<LabelsId>,
    /// Samples.
    pub count: u64,
    /// Time, ns, unscaled.
    pub ns: u64,
}

/// All waits of one context for one lock; exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Who waited.
    pub context: ContextId,
    /// Labels; `resource` names the lock as samples do.
    pub labels: Option<LabelsId>,
    /// The lock's address in the process; for file locks the inode, for semaphores their id.
    pub address: u64,
    /// Time in all, ns.
    pub total_ns: u64,
    /// The longest wait, ns.
    pub longest_ns: u64,
    /// How many waits; a lock may need several to be had.
    pub count: u64,
}
