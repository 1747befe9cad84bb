//! Samples of a recording.

use crate::{BlockReason, ContextId, LabelsId, Part, StackId, State};

/// A part of a sample's time, by slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceValue {
    /// Index of the slice (see [`Slices`]).
    pub slice: u32,
    /// Samples in it.
    pub count: u64,
    /// Estimated time in it, ns, before scaling.
    pub ns: u64,
}

impl SliceValue {
    /// Sorts `values` by slice, and adds up those of one slice.
    pub fn merge(values: &mut Vec<SliceValue>) {
        values.sort_by_key(|v| v.slice);
        values.dedup_by(|next, kept| {
            let same = next.slice == kept.slice;
            if same {
                kept.count += next.count;
                kept.ns += next.ns;
            }
            same
        });
    }
}

/// Samples of one stack in one state of one context, added up.
///
/// `ns` is `samples × period`, *unscaled*. [`crate::scale`] scales it to the ledger's exact total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The context that spent the time.
    pub context: ContextId,
    /// The stack that spent it.
    pub stack: StackId,
    /// The state.
    pub state: State,
    /// For [`State::Blocked`]: the block reason.
    pub reason: Option<BlockReason>,
    /// For other states: the part, if known.
    pub part: Option<Part>,
    /// Whether the time was idle.
    pub idle: bool,
    /// The CPU, for on-CPU samples if known.
    pub cpu: Option<u32>,
    /// Further labels, if any.
    pub labels: Option<LabelsId>,
    /// Number of samples.
    pub count: u64,
    /// Estimated time, ns, before scaling.
    pub ns: u64,
    /// Count and time by slice; they sum to `count` and `ns`.
    pub slices: Vec<SliceValue>,
}

impl Sample {
    /// The contract's `reason` label: a block reason, or the part of another state.
    pub fn reason_name(&self) -> Option<&'static str> {
        self.reason
            .map(BlockReason::name)
            .or(self.part.map(Part::name))
    }
}
