//! Rows of time, their tags, and trees of rows as columns.

use wallscope_model::{BlockReason, Part, Recording, SliceValue, State, UnknownCause};

use super::columns::Columns;
use super::trie::Builder;

/// One row of time: a stack in one state of one thread.
pub(super) struct PageRow {
    pub node: u32,
    pub leaf_line: u32,
    /// The sample that it is made of, if one.
    pub sample: Option<u32>,
    pub stack: Option<u32>,
    pub context: u32,
    /// Index into the recording's sets of labels plus one; 0: none.
    pub labels: u32,
    pub tag: u8,
    pub count: u64,
    pub ns: u64,
    pub slices: Vec<SliceValue>,
}

/// Bit of a tag: the time is idle.
pub(super) const IDLE: u8 = 1 << 7;

/// State and reason in one byte, beside [`IDLE`]. The reasons' names stand in the JSON.
pub(super) fn tag_of(state: State, reason: Option<&str>) -> u8 {
    let reason = reason.and_then(reason_number).map_or(0, |n| n as u8 + 1);
    state as u8 | reason << 2
}

/// A reason's place in [`all_reasons`].
fn reason_number(name: &str) -> Option<usize> {
    let block = BlockReason::from_name(name).map(|r| r as usize);
    let part = || Part::from_name(name).map(|p| BlockReason::COUNT + p as usize);
    let cause =
        || UnknownCause::from_name(name).map(|c| BlockReason::COUNT + Part::COUNT + c as usize);
    block.or_else(part).or_else(cause)
}

/// Names of reasons, parts and causes, in the order of their numbers in tags.
pub(super) fn all_reasons() -> Vec<&'static str> {
    let mut all: Vec<&str> = BlockReason::ALL.iter().map(|r| r.name()).collect();
    all.extend(Part::ALL.iter().map(|p| p.name()));
    all.extend(UnknownCause::ALL.iter().map(|c| c.name()));
    all
}

/// Columns of a tree.
#[derive(Clone, Copy)]
pub(super) struct TreeColumns {
    /// Begin of their names.
    prefix: &'static str,
    /// Whether rows have labels.
    labelled: bool,
}

impl TreeColumns {
    /// The columns that the rows of a recording need.
    pub(super) fn new(prefix: &'static str, recording: &Recording) -> Self {
        let labelled = !recording.label_sets.is_empty();
        TreeColumns { prefix, labelled }
    }
}

/// A tree with its rows, which are put into its order.
pub(super) fn put_tree(
    columns: &mut Columns,
    format: TreeColumns,
    builder: Builder,
    rows: &mut [PageRow],
) {
    let TreeColumns { prefix, labelled } = format;
    let trie = builder.finish();
    rows.sort_by_key(|r| (trie.left_at[r.node as usize], r.context, r.tag));
    let called = |name: &str| format!("{prefix}{name}");
    let mut put = |name: &str, values: &mut dyn Iterator<Item = u64>| {
        columns.put(&called(name), values);
    };
    put("node.pops", &mut trie.pops.iter().map(|v| u64::from(*v)));
    put("node.entry", &mut trie.entry.iter().map(|v| u64::from(*v)));
    put(
        "row.context",
        &mut rows.iter().map(|r| u64::from(r.context)),
    );
    if labelled {
        put("row.labels", &mut rows.iter().map(|r| u64::from(r.labels)));
    }
    put("row.tag", &mut rows.iter().map(|r| u64::from(r.tag)));
    put("row.count", &mut rows.iter().map(|r| r.count));
    put("row.ns", &mut rows.iter().map(|r| r.ns));
    put(
        "row.slices",
        &mut rows.iter().map(|r| r.slices.len() as u64),
    );
    // Within a row slices ascend: differences, the first from 0.
    let ascending = |r: &'_ PageRow| {
        let mut last = 0;
        let steps: Vec<u64> = r
            .slices
            .iter()
            .map(|v| {
                u64::from(
                    v.slice
                        .saturating_sub(std::mem::replace(&mut last, v.slice)),
                )
            })
            .collect();
        steps
    };
    put("slice.step", &mut rows.iter().flat_map(ascending));
    let values = || rows.iter().flat_map(|r| &r.slices);
    put("slice.ns", &mut values().map(|v| v.ns));
    put("slice.count", &mut values().map(|v| v.count));
    columns.put_deltas(
        &called("row.node"),
        rows.iter()
            .map(|r| u64::from(trie.renumbered[r.node as usize])),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_fit_a_byte_and_tell_all_apart() {
        let mut seen = std::collections::HashSet::new();
        assert!(all_reasons().len() < 31);
        for (i, name) in all_reasons().into_iter().enumerate() {
            assert_eq!(reason_number(name), Some(i));
        }
        for state in State::ALL {
            for idle in [0, IDLE] {
                assert!(seen.insert(tag_of(*state, None) | idle));
                for reason in all_reasons() {
                    assert!(seen.insert(tag_of(*state, Some(reason)) | idle));
                }
            }
        }
    }
}
