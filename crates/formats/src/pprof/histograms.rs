//! Histograms of interval lengths ↔ their columns.

use wallscope_model as model;
use wallscope_model::histogram::{BUCKETS, FINE, Histogram, HistogramRow};
use wallscope_model::{BlockReason, ContextId, Part, StackId, State};

use super::super::ReadError;
use super::checks::{below, damaged, index, same};
use super::extension as ext;
use super::names::Names;

/// Counts are stored in thousandths of an interval, because the counts of stacks are estimates.
const PARTS: f64 = 1000.0;

pub(super) fn to_message(rec: &model::Recording) -> Option<ext::Shapes> {
    if rec.histograms.is_empty() {
        return None;
    }
    let mut s = ext::Shapes::default();
    for r in &rec.histograms {
        s.context.push(r.context.map_or(0, |c| 1 + c.0));
        s.stack.push(r.stack.map_or(0, |v| 1 + v.0));
        s.state.push(index(State::ALL, &r.state));
        s.reason
            .push(r.reason.map_or(0, |v| 1 + index(BlockReason::ALL, &v)));
        s.part.push(r.part.map_or(0, |v| 1 + index(Part::ALL, &v)));
        s.bits.push(r.histogram.bits);
        s.max.push(r.histogram.max_ns);
        s.buckets.push(r.histogram.counts.len() as u32);
        for (bucket, count) in &r.histogram.counts {
            s.bucket.push(u32::from(*bucket));
            s.count.push((count * PARTS).round() as u64);
        }
    }
    Some(s)
}

pub(super) fn from_message(
    m: &ext::Shapes,
    names: &Names,
    rec: &model::Recording,
) -> Result<Vec<HistogramRow>, ReadError> {
    let n = m.context.len();
    same(&m.stack, n, "the stacks of histograms")?;
    same(&m.state, n, "the states of histograms")?;
    same(&m.reason, n, "the reasons of histograms")?;
    same(&m.part, n, "the parts of histograms")?;
    same(&m.bits, n, "the grain of histograms")?;
    same(&m.max, n, "the maxima of histograms")?;
    same(&m.buckets, n, "the buckets of histograms")?;
    same(&m.count, m.bucket.len(), "the counts of histograms")?;
    let optional =
        |v: u32, len: usize, what| v.checked_sub(1).map(|i| below(i, len, what)).transpose();
    let mut from = 0usize;
    let mut out = Vec::with_capacity(n);
    for i in 0..n {
        let to = from.saturating_add(m.buckets[i] as usize);
        if to > m.bucket.len() {
            return Err(damaged("the list of buckets of histograms is too short"));
        }
        let mut histogram = Histogram::new(m.bits[i]);
        histogram.max_ns = m.max[i];
        for k in from..to {
            let most = BUCKETS >> (FINE - histogram.bits);
            let bucket = below(m.bucket[k], most, "bucket")? as u16;
            histogram.add_bucket(bucket, m.count[k] as f64 / PARTS);
        }
        from = to;
        out.push(HistogramRow {
            context: optional(m.context[i], rec.contexts.len(), "thread")?.map(ContextId),
            stack: optional(m.stack[i], rec.stacks.len(), "stack")?.map(StackId),
            state: names.state(m.state[i]),
            reason: m.reason[i].checked_sub(1).map(|r| names.reason(r)),
            part: m.part[i].checked_sub(1).and_then(|p| names.part(p)),
            histogram,
        });
    }
    Ok(out)
}
