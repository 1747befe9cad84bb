//! A recording as the page wants it: few words of JSON, the rest as columns.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use wallscope_model::{
    BlockReason, ContextId, Label, LedgerSlice, LedgerSlices, ModuleKind, Recording, Sample,
    SliceValue, State, scale,
};

use super::columns::Columns;
use super::entries::{Entries, Entry};
use super::options::PageOptions;
use super::rows::{IDLE, PageRow, TreeColumns, all_reasons, put_tree, tag_of};
use super::trie::Builder;

/// Above this many source lines along all stacks, only those of the leaves are kept.
const MAX_STACK_LINES: usize = 1_500_000;

/// Ledger slices by context, for spreading time that has no slices of its own.
struct SliceIndex {
    of_context: FxHashMap<u32, Vec<LedgerSlice>>,
}

impl SliceIndex {
    fn of(recording: &Recording) -> Self {
        let mut of_context: FxHashMap<u32, Vec<LedgerSlice>> = FxHashMap::default();
        for row in recording.ledger_slices.iter() {
            of_context.entry(row.context).or_default().push(row);
        }
        SliceIndex { of_context }
    }

    /// The exact time of a context in a state by slice. Time without samples of its own is divided
    /// in this proportion.
    fn shape(&self, context: ContextId, state: State, reason: Option<&str>) -> Vec<SliceValue> {
        let reason = reason.and_then(BlockReason::from_name);
        let rows = self.of_context.get(&context.0);
        rows.into_iter()
            .flatten()
            .map(|row| SliceValue {
                slice: row.slice,
                count: 0,
                ns: match reason {
                    Some(r) if state == State::Blocked => row.blocked[r as usize],
                    _ => row.state_ns(state),
                },
            })
            .filter(|v| v.ns > 0)
            .collect()
    }
}

/// Divides `total` over `shape` in proportion, to the nanosecond.
fn spread(total: u64, shape: &[SliceValue]) -> Vec<SliceValue> {
    let sum: u128 = shape.iter().map(|v| u128::from(v.ns)).sum();
    if sum == 0 {
        return Vec::new();
    }
    let mut before = 0u128;
    let mut given = 0u64;
    shape
        .iter()
        .filter_map(|v| {
            before += u128::from(v.ns);
            let upto = (u128::from(total) * before / sum) as u64;
            let ns = upto - given;
            given = upto;
            (ns > 0 || v.count > 0).then_some(SliceValue { ns, ..*v })
        })
        .collect()
}

/// The page's data: `[u32 LE length of the JSON][JSON][columns]`, uncompressed.
pub(super) fn payload(recording: &Recording, title: &str, options: &PageOptions<'_>) -> Vec<u8> {
    let mut columns = Columns::default();
    let mut entries = Entries::of(recording);
    let scaled = scale::scale(recording);
    let rows = put_rows(&mut columns, recording, &scaled, &mut entries);
    super::lengths::put(&mut columns, recording, &rows);
    let waits = super::waits::put(&mut columns, recording, &rows, &mut entries);
    drop(rows);
    let tasks = super::tasks::put(&mut columns, recording, &mut entries);
    super::timeline::put(&mut columns, recording);
    put_entries(&mut columns, &entries);
    put_ledger_slices(&mut columns, &recording.ledger_slices);
    put_labels(&mut columns, &recording.label_sets);
    columns.put_strings("module.path", recording.modules.iter().map(|m| &*m.path));
    columns.put_strings(
        "module.build",
        recording.modules.iter().map(|m| &*m.build_id),
    );
    columns.put(
        "module.kind",
        recording.modules.iter().map(|m| match m.kind {
            ModuleKind::Elf => 0,
            ModuleKind::Kernel => 1,
            ModuleKind::Vdso => 2,
            ModuleKind::Jit => 3,
            ModuleKind::Source => 4,
        }),
    );
    let (index, bytes) = columns.finish();
    let mut head = super::meta::meta(recording, &scaled);
    head["title"] = title.into();
    head["choices"] = options
        .verdict
        .map_or(Value::Null, |v| json!(super::verdict::choices(v)));
    head["idle"] = options.idle.name().into();
    head["waits"] = waits;
    head["tasks"] = tasks;
    head["columns"] = index;
    head["reasons"] = all_reasons().into();
    let head = Value::to_string(&head).into_bytes();
    let mut out = Vec::with_capacity(4 + head.len() + bytes.len());
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&head);
    out.extend_from_slice(&bytes);
    out
}

/// Adds the stacks with time to a tree, each once. Returns each stack's node and the line of its leaf, and
/// how many lines the stacks have.
fn put_stacks(
    builder: &mut Builder,
    recording: &Recording,
    scaled: &scale::Scaled,
    entries: &mut Entries,
) -> (Vec<(u32, u32)>, usize) {
    let mut path = Vec::new();
    let mut ids = Vec::new();
    let mut weight = vec![0u64; recording.stacks.len()];
    for piece in &scaled.pieces {
        let stack = sample_of(recording, piece.sample).map(|s| s.stack.0 as usize);
        if let Some(w) = stack.and_then(|s| weight.get_mut(s)) {
            *w += piece.ns;
        }
    }
    let mut stack_lines = 0usize;
    let leaves: Vec<(u32, u32)> = (0..recording.stacks.len())
        .map(|stack| {
            if weight[stack] == 0 {
                return (0, 0);
            }
            entries.path(recording, stack as u32, &mut path);
            ids.clear();
            ids.extend(path.iter().map(|(entry, _)| *entry));
            stack_lines += path.len();
            let line = path.last().map_or(0, |(_, line)| *line);
            (builder.add(&ids, weight[stack]), line)
        })
        .collect();
    (leaves, stack_lines)
}

fn put_rows(
    columns: &mut Columns,
    recording: &Recording,
    scaled: &scale::Scaled,
    entries: &mut Entries,
) -> Vec<PageRow> {
    let shapes = SliceIndex::of(recording);
    let mut builder = Builder::new();
    let (leaves, stack_lines) = put_stacks(&mut builder, recording, scaled, entries);
    let mut rows = Vec::with_capacity(scaled.pieces.len() + scaled.unsampled.len());
    for piece in &scaled.pieces {
        let Some(sample) = sample_of(recording, piece.sample) else {
            continue;
        };
        let reason = sample.reason_name();
        let own = piece.context == sample.context;
        let slices = if own {
            spread(piece.ns, &sample.slices)
        } else {
            spread(piece.ns, &shapes.shape(piece.context, sample.state, reason))
        };
        let (node, leaf_line) = leaves
            .get(sample.stack.0 as usize)
            .copied()
            .unwrap_or((0, 0));
        rows.push(PageRow {
            node,
            leaf_line,
            sample: own.then_some(piece.sample),
            stack: Some(sample.stack.0),
            context: piece.context.0,
            labels: sample.labels.map_or(0, |l| l.0 + 1),
            tag: tag_of(sample.state, reason) | if sample.idle { IDLE } else { 0 },
            count: if own { sample.count } else { 0 },
            ns: piece.ns,
            slices,
        });
    }
    let mark = entries.mark(scale::NOT_SAMPLED.to_owned());
    for rest in scaled.unsampled.iter().copied().chain(places(recording)) {
        rows.push(PageRow {
            node: builder.add(&[mark], rest.ns),
            leaf_line: 0,
            sample: None,
            stack: None,
            context: rest.context.0,
            labels: 0,
            tag: tag_of(rest.state, rest.reason),
            count: 0,
            ns: rest.ns,
            slices: spread(
                rest.ns,
                &shapes.shape(rest.context, rest.state, rest.reason),
            ),
        });
    }

    let format = TreeColumns::new("", recording);
    put_tree(columns, format, builder, &mut rows);
    if stack_lines > MAX_STACK_LINES {
        columns.put("row.line", rows.iter().map(|r| u64::from(r.leaf_line)));
    } else {
        put_lines(columns, recording, entries, &rows);
    }
    rows
}

/// For each group of exact time a row of none `[not sampled]`: within a part of the recording a
/// group may lack samples that has some in the whole, and its time needs a place.
fn places(recording: &Recording) -> impl Iterator<Item = scale::Unsampled> {
    recording
        .contexts
        .iter()
        .enumerate()
        .flat_map(|(i, context)| {
            let l = &context.ledger;
            let whole = [State::OnCpu, State::Runnable].map(|s| (s, None, l.state_ns(s)));
            let blocked = BlockReason::ALL.iter().map(|r| {
                let ns = l.blocked[*r as usize];
                (State::Blocked, Some(r.name()), ns)
            });
            let groups: Vec<_> = whole.into_iter().chain(blocked).collect();
            groups
                .into_iter()
                .filter(|(_, _, ns)| *ns > 0)
                .map(move |(state, reason, _)| scale::Unsampled {
                    context: ContextId(i as u32),
                    state,
                    reason,
                    ns: 0,
                })
        })
}

/// Source lines along each row's stack, as differences from the row before.
fn put_lines(
    columns: &mut Columns,
    recording: &Recording,
    entries: &mut Entries,
    rows: &[PageRow],
) {
    let (mut alike, mut counts, mut rest) = (Vec::new(), Vec::new(), Vec::new());
    let mut last: Vec<(u32, u32)> = Vec::new();
    let mut path = Vec::new();
    for row in rows {
        match row.stack {
            Some(stack) => entries.path(recording, stack, &mut path),
            None => path.clear(),
        }
        let same = path.iter().zip(&last).take_while(|(a, b)| a == b).count();
        alike.push(same as u64);
        counts.push((path.len() - same) as u64);
        rest.extend(path[same..].iter().map(|(_, line)| u64::from(*line)));
        std::mem::swap(&mut last, &mut path);
    }
    columns.put("lines.alike", alike.into_iter());
    columns.put("lines.more", counts.into_iter());
    columns.put("lines.line", rest.into_iter());
}

fn sample_of(recording: &Recording, index: u32) -> Option<&Sample> {
    recording.samples.get(index as usize)
}

fn put_entries(columns: &mut Columns, entries: &Entries) {
    let all = &entries.all;
    columns.put_strings("entry.name", all.iter().map(|e| &*e.name));
    columns.put("entry.module", all.iter().map(|e| u64::from(e.module)));
    let kind = |e: &Entry| e.kind as u64 | u64::from(e.inlined) << 3;
    columns.put("entry.kind", all.iter().map(kind));
    columns.put("entry.line", all.iter().map(|e| u64::from(e.line)));
    let mut files: BTreeMap<&str, u64> = BTreeMap::new();
    for e in all {
        files.insert(&e.file, 0);
    }
    for (i, number) in files.values_mut().enumerate() {
        *number = i as u64;
    }
    columns.put("entry.file", all.iter().map(|e| files[&*e.file]));
    columns.put_strings("file", files.keys().copied());
}

/// Labels as `key=value`, and which of them each set has. Nothing where there are none.
fn put_labels(columns: &mut Columns, sets: &[Vec<Label>]) {
    if sets.is_empty() {
        return;
    }
    let mut places: BTreeMap<(&str, String), u64> = BTreeMap::new();
    for Label { key, value } in sets.iter().flatten() {
        places.insert((key, value.to_string()), 0);
    }
    for (i, place) in places.values_mut().enumerate() {
        *place = i as u64;
    }
    columns.put_strings("label.key", places.keys().map(|(key, _)| *key));
    columns.put_strings("label.value", places.keys().map(|(_, value)| &**value));
    columns.put("set.size", sets.iter().map(|set| set.len() as u64));
    let place = |label: &Label| places[&(&*label.key, label.value.to_string())];
    columns.put("set.label", sets.iter().flatten().map(place));
}

fn put_ledger_slices(columns: &mut Columns, slices: &LedgerSlices) {
    let rows = || slices.iter();
    columns.put_deltas("ledger.context", rows().map(|r| u64::from(r.context)));
    columns.put_deltas("ledger.slice", rows().map(|r| u64::from(r.slice)));
    columns.put("ledger.on_cpu", rows().map(|r| r.on_cpu_ns));
    columns.put("ledger.runnable", rows().map(|r| r.runnable_ns));
    // Most threads wait for few things: a mask of the reasons that have time, then their times.
    let mask = |r: LedgerSlice| {
        let present = r.blocked.iter().enumerate().filter(|(_, ns)| **ns > 0);
        present.fold(0u64, |mask, (i, _)| mask | 1 << i)
    };
    columns.put("ledger.reasons", rows().map(mask));
    columns.put(
        "ledger.blocked",
        rows().flat_map(|r| r.blocked.into_iter().filter(|ns| *ns > 0)),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreading_loses_nothing() {
        let shape: Vec<SliceValue> = [3, 0, 7, 11]
            .iter()
            .enumerate()
            .map(|(i, ns)| SliceValue {
                slice: i as u32,
                count: 0,
                ns: *ns,
            })
            .collect();
        let parts = spread(1_000_003, &shape);
        assert_eq!(parts.iter().map(|v| v.ns).sum::<u64>(), 1_000_003);
        assert_eq!(parts.iter().map(|v| v.slice).collect::<Vec<_>>(), [0, 2, 3]);
        assert!(spread(5, &[]).is_empty());
    }
}
