//! Wait trees: the wakers of a context's waits, their own time meanwhile, and exact waits by lock.
//!
//! Hops are below samples of blocked time. Below a sample are the wakers that ended its waits.
//! Below a waker is its own time while the other waited; below its own waits are their wakers, and
//! so on. Each hop's time is a part of its parent's, and no time is in two children. A parent's
//! time beyond its children was not followed further. Times are *unscaled*, like
//! [`crate::Sample::ns`].

use std::sync::Arc;

use crate::{BlockReason, ContextId, LabelsId, Part, StackId};

/// Index into [`crate::Recording::actors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ActorId(pub u32);

/// Actor of a hop: the waker or holder.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Actor {
    /// A context of this recording.
    Context(ContextId),
    /// A thread that was not measured, or is outside the selection.
    Stranger {
        /// Process id.
        pid: u32,
        /// Thread id.
        tid: u32,
        /// Thread name.
        name: Arc<str>,
    },
    /// An interrupt, by its purpose: `timer`, `disk`, `network`, or empty.
    Interrupt(Arc<str>),
    /// Unknown.
    Unknown,
}

/// Role of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The actor ended the wait above; the stack is the waker's.
    Woke,
    /// The actor was on a CPU meanwhile.
    OnCpu,
    /// The actor waited for a CPU meanwhile.
    Runnable,
    /// The actor was blocked itself meanwhile.
    Blocked,
    /// The actor is waited for further up: a cycle of waits.
    Circle,
    /// The time is too long ago, or the wait is too deep to be followed.
    Cut,
    /// The actor held the lock that the wait above was for.
    Held,
}

impl Role {
    /// All roles, in the order of their numbers in files.
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

/// Values of a label of a hop: the evidence for the holder of a lock that was not seen to be
/// released.
pub mod told_by {
    /// The label's key.
    pub const KEY: &str = "told_by";
    /// A mutex of the C library, which stores its owner's id.
    pub const MUTEX: &str = "mutex";
    /// A read-write lock of the C library, which stores its writer's id.
    pub const RWLOCK: &str = "read-write lock";
    /// A futex that the kernel itself assigns (`FUTEX_LOCK_PI`), which is its owner's id.
    pub const FUTEX: &str = "futex";
    /// The VM's record of a Java monitor.
    pub const MONITOR: &str = "monitor";
    /// Suffix of the values that were read when the wait began; others were read at the end of the
    /// recording.
    pub const THEN: &str = " (when the wait began)";
    /// A mutex, read when the wait began.
    pub const MUTEX_THEN: &str = "mutex (when the wait began)";
    /// A read-write lock, read when the wait began.
    pub const RWLOCK_THEN: &str = "read-write lock (when the wait began)";
    /// A futex of the kernel, read when the wait began.
    pub const FUTEX_THEN: &str = "futex (when the wait began)";
}

/// Parent of a hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Above {
    /// A sample of blocked time, by its index.
    Sample(u32),
    /// Another hop, by its index, which is lower.
    Hop(u32),
}

/// A part of a wait, with its actor and the actor's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Its parent.
    pub above: Above,
    /// Its role.
    pub role: Role,
    /// The actor.
    pub actor: ActorId,
    /// The actor's stack, if known.
    pub stack: Option<StackId>,
    /// For [`Role::Blocked`]: the block reason.
    pub reason: Option<BlockReason>,
    /// For [`Role::Runnable`]: the part.
    pub part: Option<Part>,
    /// Further labels (`resource`). For [`Role::Held`] without a seen release: the evidence
    /// ([`told_by`]).
    pub labels: Option<LabelsId>,
    /// Number of samples.
    pub count: u64,
    /// Time, ns, unscaled.
    pub ns: u64,
}

/// All waits of one context for one lock; exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// The waiter.
    pub context: ContextId,
    /// Labels; `resource` names the lock as in samples.
    pub labels: Option<LabelsId>,
    /// The lock's address in the process; for file locks the inode, for semaphores their id.
    pub address: u64,
    /// Total time, ns.
    pub total_ns: u64,
    /// The longest wait, ns.
    pub longest_ns: u64,
    /// Number of waits; taking a lock once may need several.
    pub count: u64,
}
