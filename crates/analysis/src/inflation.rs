//! Inflation of functions by instrumentation: the shares of an instrumented profile beside those of a sampled profile
//! of the same program.
//!
//! Instrumentation counts calls exactly and adds its own cost to each, so short functions with many calls seem
//! costlier than they are. Both profiles are divided over the functions that both know: time in code that only one of
//! them sees (a built-in, the kernel) is its caller's. The sampled share has an interval by `wallscope_model::stats`,
//! and so has the ratio; the instrumented one has no error.
//!
//! Limits: it cannot tell inflation from a difference between the two runs, and it does not correct the instrumented
//! times.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::stats::{Interval, MAX_BLOCKS, share_interval};
use wallscope_model::{FrameKind, Recording, StackId, View};

use crate::view::{Analysis, Idle};

/// A function as both profiles know it: its name (for Python the last part), and its file's.
type Key = (Arc<str>, Arc<str>);

/// A function that both profiles have.
#[derive(Clone, Debug, PartialEq)]
pub struct InflationRow {
    /// Its name.
    pub name: Arc<str>,
    /// Calls, exact.
    pub calls: u64,
    /// Instrumented time spent in it, ns, with code below it that only that profile sees.
    pub own: u64,
    /// `own` as a share of all time, 0..=1.
    pub instrumented: f64,
    /// Its share when sampled.
    pub sampled: f64,
    /// 95 % interval of `sampled`.
    pub interval: Interval,
}

impl InflationRow {
    /// Ratio of its instrumented share to its share without instrumentation, lowest and highest; infinite where it
    /// was never sampled.
    pub fn inflation(&self) -> (f64, f64) {
        let by = |share: f64| match share > 0.0 {
            true => self.instrumented / share,
            false => f64::INFINITY,
        };
        (by(self.interval.high), by(self.interval.low))
    }

    /// Whether the two shares differ beyond the error of sampling.
    pub fn differs(&self) -> bool {
        let (low, high) = self.inflation();
        low > 1.0 || high < 1.0
    }
}

/// Whether a profile says of itself that it comes from instrumentation.
pub fn is_instrumented(rec: &Recording) -> bool {
    let says = |l: &wallscope_model::Limit| l.what.starts_with("instrumented");
    rec.domain.limits.iter().any(says)
}

/// The view of a sampled profile that corresponds to an instrumented one: Python's profilers measure by the clock on
/// the wall, gprof's by CPU time.
pub fn view_of(instrumented: &Recording) -> View {
    let python = |f: &wallscope_model::Frame| f.kind == FrameKind::Python;
    match instrumented.frames.iter().any(python) {
        true => View::Wall,
        false => View::OnCpu,
    }
}

/// The keys of each frame's functions, innermost first.
fn keys(rec: &Recording) -> Vec<Vec<Key>> {
    let key = |kind: FrameKind, l: &wallscope_model::Line| {
        let f = &rec.functions[l.function.0 as usize];
        if kind != FrameKind::Python {
            return (f.name.clone(), Arc::from(""));
        }
        // `Class.method` of one is `method` of the other; `<lambda>` and the like have no dots.
        let name = f.name.rsplit('.').next().unwrap_or(&f.name);
        let file = f.file.rsplit('/').next().unwrap_or(&f.file);
        (Arc::from(name), Arc::from(file))
    };
    (rec.frames.iter())
        .map(|f| f.lines.iter().map(|l| key(f.kind, l)).collect())
        .collect()
}

/// The innermost function of a stack that is one of `known`.
fn innermost<'k>(
    rec: &Recording,
    stack: StackId,
    keys: &'k [Vec<Key>],
    known: &FxHashSet<Key>,
) -> Option<&'k Key> {
    let frames = &rec.stacks[stack.0 as usize].frames;
    let mut calls = frames.iter().flat_map(|f| &keys[f.0 as usize]);
    calls.find(|key| known.contains(*key))
}

/// The functions of both, most instrumented time first.
pub fn rows(instrumented: &Recording, sampled: &Recording, view: View) -> Vec<InflationRow> {
    let (theirs, ours) = (keys(instrumented), keys(sampled));
    let of = |keys: &[Vec<Key>]| -> FxHashSet<Key> { keys.iter().flatten().cloned().collect() };
    let known: FxHashSet<Key> = of(&theirs).intersection(&of(&ours)).cloned().collect();

    let mut own: FxHashMap<&Key, (u64, u64)> = FxHashMap::default();
    for s in &instrumented.samples {
        let Some(key) = innermost(instrumented, s.stack, &theirs, &known) else {
            continue;
        };
        let to = own.entry(key).or_default();
        to.0 += s.ns;
        // Calls are the innermost function's own.
        let leaf = instrumented.stacks[s.stack.0 as usize].frames.first();
        if leaf.is_some_and(|f| theirs[f.0 as usize].first() == Some(key)) {
            to.1 += s.count;
        }
    }

    let analysis = Analysis::new(sampled, Idle::Show);
    let slices = sampled.slices.count as usize;
    let blocks = slices.clamp(1, MAX_BLOCKS);
    let mut parts: FxHashMap<&Key, Vec<f64>> = FxHashMap::default();
    let mut whole = vec![0.0; blocks];
    let mut samples = 0.0;
    for p in analysis.pieces() {
        let s = &sampled.samples[p.sample as usize];
        if !view.includes(s.state) {
            continue;
        }
        let Some(key) = innermost(sampled, s.stack, &ours, &known) else {
            continue;
        };
        let factor = p.ns as f64 / s.ns.max(1) as f64;
        samples += s.count as f64 * factor.min(1.0);
        let part = parts.entry(key).or_insert_with(|| vec![0.0; blocks]);
        let mut add = |block: usize, ns: f64| {
            part[block] += ns;
            whole[block] += ns;
        };
        if s.slices.is_empty() {
            add(0, p.ns as f64);
        }
        for v in &s.slices {
            add(
                v.slice as usize * blocks / slices.max(1),
                v.ns as f64 * factor,
            );
        }
    }
    let all_own: u64 = own.values().map(|(ns, _)| ns).sum();
    let all_sampled: f64 = whole.iter().sum();
    let none = vec![0.0; blocks];
    let met: FxHashSet<&Key> = own.keys().chain(parts.keys()).copied().collect();
    let mut rows: Vec<InflationRow> = met
        .into_iter()
        .map(|key| {
            let (ns, calls) = own.get(key).copied().unwrap_or_default();
            let part = parts.get(key).unwrap_or(&none);
            InflationRow {
                name: key.0.clone(),
                calls,
                own: ns,
                instrumented: ns as f64 / all_own.max(1) as f64,
                sampled: part.iter().sum::<f64>() / all_sampled.max(1.0),
                interval: share_interval(part, &whole, samples),
            }
        })
        .collect();
    rows.sort_by(|a, b| b.own.cmp(&a.own).then_with(|| a.name.cmp(&b.name)));
    rows
}
