//! The timeline: the single intervals that the ledgers sum up, where a recording keeps them.
//!
//! A lane holds one context's intervals in the order of time. Where nothing is known (intervals that
//! were dropped to stay within the memory bound, or that were not seen) there is a gap between two of
//! them. What was counted at the switches is kept as it was; the ledger may have been corrected from
//! the kernel's counters since, and says by how much ([`crate::Ledger::repaired_ns`]).

use crate::{BlockReason, ContextId, Part, State};

/// One stretch of a context's time in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Begin, ns on the recording's clock.
    pub start_ns: u64,
    /// Length, ns.
    pub ns: u64,
    /// The state; never [`State::Unknown`], of which there are gaps.
    pub state: State,
    /// For blocked time: what for, where known.
    pub reason: Option<BlockReason>,
    /// For the other states: which part, where known.
    pub part: Option<Part>,
    /// For blocked time: the context that ended it, where it is one of the recording's.
    pub waker: Option<ContextId>,
    /// For blocked time: whether a request of its thread was in flight when it began, where
    /// connections are followed.
    pub request: bool,
    /// For blocked time: whether it was idle.
    pub idle: bool,
}

impl Interval {
    /// End, ns on the recording's clock.
    pub fn end_ns(&self) -> u64 {
        self.start_ns.saturating_add(self.ns)
    }

    /// The contract's `reason` label: a block reason, or the part of another state.
    pub fn reason_name(&self) -> Option<&'static str> {
        let part = self.part.map(Part::name);
        self.reason.map(BlockReason::name).or(part)
    }
}

/// The intervals of one context, in the order of time; none overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Whose they are.
    pub context: ContextId,
    /// The intervals.
    pub intervals: Vec<Interval>,
}

/// All lanes, and what is missing in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Lanes, by context in ascending order; contexts without an interval have none.
    pub lanes: Vec<Lane>,
    /// The memory that it was allowed, bytes; 0: not bounded.
    pub limit_bytes: u64,
    /// Intervals that were dropped to stay within it: the oldest.
    pub dropped: u64,
    /// Turns on a CPU of which nothing arrived; each leaves a gap of up to three intervals.
    pub lost: u64,
}

impl Timeline {
    /// Intervals in all lanes.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|l| l.intervals.len()).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lane of a context, if it has one.
    pub fn lane(&self, context: ContextId) -> Option<&Lane> {
        let at = self.lanes.binary_search_by_key(&context, |l| l.context);
        self.lanes.get(at.ok()?)
    }
}
