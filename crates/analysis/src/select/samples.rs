//! Samples of a selection.

use std::ops::Range;

use rustc_hash::FxHashMap;
use wallscope_model::scale::Scaled;
use wallscope_model::{ContextId, Recording, Sample, SliceValue, StackId};

use super::chains::MovedTime;
use super::selection::Selection;
use super::stacks::Stacks;

/// Wanted contexts and sets of labels by index, and the wanted slices.
pub(super) struct Wanted<'a> {
    pub(super) contexts: &'a [bool],
    /// The last entry is for samples without labels.
    pub(super) label_sets: &'a [bool],
    pub(super) slices: Option<&'a Range<u32>>,
}

impl Selection {
    /// The selected samples, scaled; samples that became equal are one. Also returns, for each old
    /// sample, the new samples that hold its time.
    pub(super) fn samples(
        &self,
        rec: &Recording,
        scaled: &Scaled,
        wants: &Wanted<'_>,
        stacks: &mut Stacks<'_>,
    ) -> (Vec<Sample>, Vec<Vec<MovedTime>>) {
        let mut went: Vec<Vec<MovedTime>> = vec![Vec::new(); rec.samples.len()];
        let slices = wants.slices;
        let mut out: Vec<Sample> = Vec::new();
        let mut places: FxHashMap<(ContextId, StackId, u64), Vec<u32>> = FxHashMap::default();
        let mut pieces = scaled.pieces.iter().peekable();
        while let Some(first) = pieces.next() {
            let s = &rec.samples[first.sample as usize];
            let mut parts = vec![*first];
            while let Some(more) = pieces.next_if(|p| p.sample == first.sample) {
                parts.push(*more);
            }
            let set = s.labels.map_or(rec.label_sets.len(), |l| l.0 as usize);
            if !self.wants_state(s.state, s.reason_name()) || !wants.label_sets[set] {
                continue;
            }
            let Some(stack) = stacks.changed(rec, s.stack) else {
                continue;
            };
            let of_time: Vec<SliceValue> = (s.slices.iter().copied())
                .filter(|v| slices.is_none_or(|r| r.contains(&v.slice)))
                .collect();
            // A long wait is counted where it ends: its time says better how much of it is here.
            let count = match slices {
                Some(_) => {
                    let here: u64 = of_time.iter().map(|v| v.ns).sum();
                    (u128::from(s.count) * u128::from(here)).div_ceil(u128::from(s.ns.max(1)))
                        as u64
                }
                None => s.count,
            };
            let whole: u64 = parts.iter().map(|p| p.ns).sum();
            let mut upto = 0;
            for p in parts {
                // A sample's count goes with its time, and the parts sum to the old count.
                let share = |n: u64, ns: u64| {
                    (u128::from(n) * u128::from(ns) / u128::from(whole.max(1))) as u64
                };
                let counted = share(count, upto + p.ns) - share(count, upto);
                upto += p.ns;
                if wants.contexts.get(p.context.0 as usize) != Some(&true) || p.ns == 0 {
                    continue;
                }
                let sample = Sample {
                    context: p.context,
                    stack,
                    count: counted,
                    ns: p.ns,
                    slices: divided(p.ns, counted, &of_time),
                    ..s.clone()
                };
                let bucket = (p.context, stack, s.state as u64);
                let same = places.entry(bucket).or_default();
                let like = |i: &&u32| alike(&out[**i as usize], &sample);
                let to = match same.iter().find(like).copied() {
                    Some(i) => {
                        add(&mut out[i as usize], sample);
                        i
                    }
                    None => {
                        let new = out.len() as u32;
                        same.push(new);
                        out.push(sample);
                        new
                    }
                };
                went[first.sample as usize].push(MovedTime { to, ns: p.ns });
            }
        }
        (out, went)
    }
}

/// Whether two samples differ in nothing but their time.
fn alike(a: &Sample, b: &Sample) -> bool {
    let bare = |s: &Sample| Sample {
        count: 0,
        ns: 0,
        slices: Vec::new(),
        ..s.clone()
    };
    a.idle == b.idle && a.reason == b.reason && bare(a) == bare(b)
}

/// `ns` and `count` over slices in proportion to `shape`, to the nanosecond.
fn divided(ns: u64, count: u64, shape: &[SliceValue]) -> Vec<SliceValue> {
    let all: u128 = shape.iter().map(|v| u128::from(v.ns)).sum();
    let (mut before, mut given, mut counted) = (0u128, 0u64, 0u64);
    shape
        .iter()
        .filter(|v| v.ns > 0)
        .map(|v| {
            before += u128::from(v.ns);
            let upto = (u128::from(ns) * before / all) as u64;
            let upto_count = (u128::from(count) * before / all) as u64;
            let value = SliceValue {
                slice: v.slice,
                count: upto_count - counted,
                ns: upto - given,
            };
            (given, counted) = (upto, upto_count);
            value
        })
        .collect()
}

/// Adds the time of `b` to `a`.
fn add(a: &mut Sample, b: Sample) {
    a.count += b.count;
    a.ns += b.ns;
    for v in b.slices {
        match a.slices.binary_search_by_key(&v.slice, |w| w.slice) {
            Ok(i) => {
                a.slices[i].count += v.count;
                a.slices[i].ns += v.ns;
            }
            Err(i) => a.slices.insert(i, v),
        }
    }
}
