//! Histograms of the lengths of single intervals, as columns: over all threads, by thread, and by row.

use rustc_hash::FxHashMap;
use wallscope_model::Recording;
use wallscope_model::histogram::HistogramRow;

use super::columns::Columns;
use super::rows::{PageRow, tag_of};

/// Parts of an interval in which counts are kept: counts of stacks are estimates, with fractions.
const PARTS: f64 = 1000.0;

/// Puts the histograms, if there are any. Columns of each: its owner (0: all threads; 1 + 2 * context;
/// 2 + 2 * row), tag, bits of sub-division, longest interval, and buckets with their counts.
pub(super) fn put(columns: &mut Columns, recording: &Recording, rows: &[PageRow]) {
    if recording.histograms.is_empty() {
        return;
    }
    let tag = |r: &HistogramRow| {
        let part = r.part.map(|p| p.name());
        tag_of(r.state, r.reason.map(|r| r.name()).or(part))
    };
    // Intervals carry no idle flag, so the tag is compared without it.
    let mut places: FxHashMap<(u32, u32, u8), u64> = FxHashMap::default();
    for (i, row) in (0u64..).zip(rows) {
        if let Some(stack) = row.stack {
            places
                .entry((row.context, stack, row.tag & 127))
                .or_insert(i);
        }
    }
    let owner = |r: &HistogramRow| match (r.context, r.stack) {
        (None, None) => Some(0),
        (Some(c), None) => Some(1 + 2 * u64::from(c.0)),
        (Some(c), Some(s)) => places.get(&(c.0, s.0, tag(r))).map(|i| 2 + 2 * i),
        (None, Some(_)) => None,
    };
    let shown: Vec<(u64, &HistogramRow)> = (recording.histograms.iter())
        .filter_map(|r| Some((owner(r)?, r)))
        .collect();
    columns.put("shape.of", shown.iter().map(|(of, _)| *of));
    columns.put("shape.tag", shown.iter().map(|(_, r)| u64::from(tag(r))));
    let bits = shown.iter().map(|(_, r)| u64::from(r.histogram.bits));
    columns.put("shape.bits", bits);
    columns.put("shape.max", shown.iter().map(|(_, r)| r.histogram.max_ns));
    let sizes = shown.iter().map(|(_, r)| r.histogram.counts.len() as u64);
    columns.put("shape.size", sizes);
    let counts = || shown.iter().flat_map(|(_, r)| &r.histogram.counts);
    columns.put(
        "shape.bucket",
        counts().map(|(bucket, _)| u64::from(*bucket)),
    );
    let parts = counts().map(|(_, n)| (n * PARTS).round() as u64);
    columns.put("shape.count", parts);
}
