//! The timeline: the single intervals that the ledgers sum up, if a recording keeps them.
//!
//! A lane holds one context's intervals in the order of time. A gap between two of them is unknown
//! time: intervals that were not seen, or that were dropped to stay within the memory bound. Times
//! counted at switches are kept unchanged. The ledger may have been corrected from the kernel's
//! counters since, and states by how much ([`crate::Ledger::repaired_ns`]).

use crate::{BlockReason, ContextId, Part, State};

/// One interval of a context in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Start, ns on the recording's clock.
    pub start_ns: u64,
    /// Length, ns.
    pub ns: u64,
    /// The state; never [`State::Unknown`], which is a gap.
    pub state: State,
    /// For blocked time: the reason, if known.
    pub reason: Option<BlockReason>,
    /// For other states: the part, if known.
    pub part: Option<Part>,
    /// For blocked time: the waker, if it is a context of the recording.
    pub waker: Option<ContextId>,
    /// For blocked time: whether a request of its thread was in flight when it began, if
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

/// The intervals of one context, in the order of time, without overlaps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// The context.
    pub context: ContextId,
    /// The intervals.
    pub intervals: Vec<Interval>,
}

/// All lanes, and the losses in them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Lanes, by context in ascending order; contexts without an interval have none.
    pub lanes: Vec<Lane>,
    /// Memory limit, bytes; 0: no limit.
    pub limit_bytes: u64,
    /// Intervals that were dropped to keep the limit: the oldest.
    pub dropped: u64,
    /// Turns on a CPU without any data; each leaves a gap of up to three intervals.
    pub lost: u64,
}

impl Timeline {
    /// Number of intervals in all lanes.
    pub fn len(&self) -> usize {
        self.lanes.iter().map(|l| l.intervals.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The lane of a context, if it has one.
    pub fn lane(&self, context: ContextId) -> Option<&Lane> {
        let at = self.lanes.binary_search_by_key(&context, |l| l.context);
        self.lanes.get(at.ok()?)
    }
}
