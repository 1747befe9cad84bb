//! Roots: the activity at the end of a chain of waits, or the cause for which the chain stops.

use std::collections::HashMap;

use wallscope_model::{ActorId, BlockReason, ContextId, LabelsId, Part, StackId, State};

/// Thread or device at the end of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RootActor {
    /// A measured thread; the waiter itself where its wait is an end of its own.
    Context(ContextId),
    /// An unmeasured thread, an interrupt, or an unknown waker.
    Actor(ActorId),
}

/// Cause for which a chain of waits ends before an activity is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NotFollowed {
    /// No record says which thread ended the wait.
    WakerNotSeen,
    /// The waker, or the peer behind a network interrupt, is not measured.
    NotMeasured,
    /// The waker's own intervals were too short to be sampled.
    TooShort,
    /// The chain is longer, or the activity older, than the recorder remembers.
    TooDeep,
    /// The thread is waited for further up the chain.
    Circle,
    /// The wait's own time limit ended it: no thread did.
    TimedOut,
    /// The timeline has no interval for this time.
    Gap,
}

impl NotFollowed {
    /// All causes.
    pub const ALL: [NotFollowed; 7] = [
        NotFollowed::WakerNotSeen,
        NotFollowed::NotMeasured,
        NotFollowed::TooShort,
        NotFollowed::TooDeep,
        NotFollowed::Circle,
        NotFollowed::TimedOut,
        NotFollowed::Gap,
    ];

    /// The name within `[not followed: …]` and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            NotFollowed::WakerNotSeen => "waker_not_seen",
            NotFollowed::NotMeasured => "not_measured",
            NotFollowed::TooShort => "too_short",
            NotFollowed::TooDeep => "too_deep",
            NotFollowed::Circle => "circle",
            NotFollowed::TimedOut => "timed_out",
            NotFollowed::Gap => "gap",
        }
    }

    /// The cause in words.
    pub fn words(self) -> &'static str {
        match self {
            NotFollowed::WakerNotSeen => "the waker was not seen",
            NotFollowed::NotMeasured => "the waker is not measured",
            NotFollowed::TooShort => "the waker's own intervals were too short to be sampled",
            NotFollowed::TooDeep => "the chain is longer or older than is remembered",
            NotFollowed::Circle => "the threads wait for each other in a circle",
            NotFollowed::TimedOut => "the wait's own time limit ended it",
            NotFollowed::Gap => "the timeline has a gap there",
        }
    }

    /// The frame in place of the missing hops.
    pub fn frame(self) -> String {
        format!("[not followed: {}]", self.name())
    }
}

/// Activity at the end of a chain of waits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Root {
    /// The thread or device.
    pub actor: RootActor,
    /// Its state; [`State::Unknown`]: its activity is not known.
    pub state: State,
    /// For blocked time: the block reason.
    pub reason: Option<BlockReason>,
    /// For runnable time: the part.
    pub part: Option<Part>,
    /// Its stack, if known.
    pub stack: Option<StackId>,
    /// Labels of that activity (`resource`).
    pub labels: Option<LabelsId>,
    /// Cause for which the chain was not followed beyond this activity; `None`: it is the end.
    pub open: Option<NotFollowed>,
}

impl Root {
    /// The activity in words, as a verb; empty: it is not known.
    pub fn deed(&self) -> &'static str {
        match (self.state, self.part) {
            (State::OnCpu, _) => "computes",
            (State::Runnable, Some(Part::Throttled)) => "is held back by its CPU quota",
            (State::Runnable, _) => "waits for a CPU",
            (State::Blocked, _) => waits(self.reason),
            (State::Unknown, _) => "",
        }
    }

    /// Whether the activity of `waiter` itself is the end: a disk, a timer.
    pub fn is_own(&self, waiter: ContextId) -> bool {
        self.actor == RootActor::Context(waiter)
    }
}

/// A wait in words, as a verb.
fn waits(reason: Option<BlockReason>) -> &'static str {
    match reason.unwrap_or(BlockReason::Other) {
        BlockReason::Lock => "waits for a lock",
        BlockReason::Gil => "waits for the interpreter's lock",
        BlockReason::Disk => "waits for the disk",
        BlockReason::Network => "waits for the network",
        BlockReason::Pipe => "waits at a pipe or local socket",
        BlockReason::Timer => "sleeps",
        BlockReason::Poll => "waits for events",
        BlockReason::Child => "waits for a child process",
        BlockReason::PageFault => "waits for a page",
        BlockReason::Memory => "waits for memory to be freed",
        BlockReason::KernelLock => "waits for a lock in the kernel",
        BlockReason::Gc => "waits for a garbage collection",
        BlockReason::Stopped => "is stopped",
        BlockReason::Other => "is blocked",
    }
}

/// Roots, each kept once.
#[derive(Default)]
pub(super) struct Roots {
    pub all: Vec<Root>,
    by_root: HashMap<Root, u32>,
}

impl Roots {
    /// The index of a root.
    pub fn id(&mut self, root: Root) -> u32 {
        let next = self.all.len() as u32;
        *self.by_root.entry(root).or_insert_with_key(|root| {
            self.all.push(root.clone());
            next
        })
    }
}

/// Divides `ns` in proportion to `weights`, so that the parts sum to it exactly.
pub(super) fn divided(ns: u64, weights: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let whole: u128 = weights.iter().map(|(_, w)| u128::from(*w)).sum();
    let (mut seen, mut given) = (0u128, 0u64);
    let mut out = Vec::with_capacity(weights.len());
    for (root, weight) in weights {
        seen += u128::from(*weight);
        let upto = (u128::from(ns) * seen / whole.max(1)) as u64;
        out.push((*root, upto - given));
        given = upto;
    }
    out
}
