//! A part of a recording, as a recording: filters by thread, process, state, reason, label, time and
//! stack, and changes of what stacks show. Every verb applies the selection first, so a filter means the
//! same in all of them.
//!
//! **Exactness.** Whole threads, states and reasons are cut out of the ledger and stay exact. Stacks
//! and labels are sampled, so what they select is an estimate: samples are scaled to the *whole*
//! ledger first, and the selection's ledger becomes the sum of what is left. (Scaling afterwards
//! would give the time of all stacks to those that stayed.) The domain says which it is. A window of
//! time is exact to the slice: its ends are moved to the ends of slices.
//!
//! **Stacks.** `focus`, `ignore`, `hide` and `show_from` mean what they mean in pprof: regular
//! expressions, found anywhere in a function's name, its source file or its module's path. `ignore` wins
//! over `focus`. A stack is dropped if `hide` leaves none of its frames. `show_from` cuts callers above
//! the match nearest to the root and drops stacks without a match.
//!
//! What it does not do: it keeps no switch counts, audit or repair of partly selected threads, since
//! they are not known for the part. Requests are kept for all processes that are left, whichever of their
//! threads, states or stacks are selected. A selection of time loses the wakers: they are not kept by time.

mod chains;
mod compact;
mod ledger;
mod stacks;
mod threads;

use std::fmt;
use std::ops::Range;

use regex::Regex;
use rustc_hash::FxHashMap;
use wallscope_model::histogram::HistogramRow;
use wallscope_model::scale::{self, NOT_SAMPLED, Scaled};
use wallscope_model::{
    BlockReason, ContextId, Label, LockWait, Part, Peer, PeerStack, Recording, Sample, SliceValue,
    StackId, State,
};

use chains::Went;
use stacks::Stacks;

/// What to select; the default selects everything. Conditions of different kinds must all hold, of
/// one kind any.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Threads with one of these names.
    pub threads: Vec<String>,
    /// Processes with one of these names or ids.
    pub processes: Vec<String>,
    /// Threads with one of these values of the label `service`; exact.
    pub services: Vec<String>,
    /// These states.
    pub states: Vec<State>,
    /// These block reasons, parts, or causes of not being seen, by the contract's names.
    pub reasons: Vec<&'static str>,
    /// These labels beyond the contract's own, as key and value in words; of one key any.
    pub labels: Vec<(String, String)>,
    /// From and to, ns after the recording's start.
    pub time: Option<Range<u64>>,
    /// Stacks with a function of such a name.
    pub function: Option<Regex>,
    /// Stacks with code of a module with such a path.
    pub module: Option<Regex>,
    /// Stacks with such a frame.
    pub focus: Option<Regex>,
    /// Not stacks with such a frame.
    pub ignore: Option<Regex>,
    /// Leave out such frames.
    pub hide: Option<Regex>,
    /// Leave out callers above such a frame.
    pub show_from: Option<Regex>,
    /// Show a function that calls itself once.
    pub collapse_recursion: bool,
}

/// A selected recording.
#[derive(Debug)]
pub struct Selected {
    /// What was selected.
    pub recording: Recording,
    /// Conditions that nothing in the recording meets, by name: probably misspelt.
    pub unmet: Vec<&'static str>,
}

/// Why nothing can be selected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SelectError {
    /// A window of time was asked of a recording that does not keep time.
    #[error("it does not say when its time was spent, so no part of it can be selected by time")]
    NoSlices,
    /// The window lies outside.
    #[error("it lasts {seconds:.3} s, and the time asked for lies outside")]
    OutsideTime {
        /// The recording's length, s.
        seconds: f64,
    },
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        let mut list = |key: &str, values: Vec<&str>| {
            if !values.is_empty() {
                words.push(format!("{key} {}", values.join(" or ")));
            }
        };
        list("thread", self.threads.iter().map(|s| s.as_str()).collect());
        let processes = self.processes.iter().map(|s| s.as_str()).collect();
        list("process", processes);
        list(
            "service",
            self.services.iter().map(|s| s.as_str()).collect(),
        );
        list("state", self.states.iter().map(|s| s.name()).collect());
        list("reason", self.reasons.clone());
        let labels: Vec<String> = (self.labels.iter())
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        list("label", labels.iter().map(|s| s.as_str()).collect());
        for (key, pattern) in self.patterns() {
            list(key, pattern.iter().map(|r| r.as_str()).collect());
        }
        if let Some(t) = &self.time {
            let second = |ns: u64| ns as f64 / 1e9;
            words.push(format!("time {}..{} s", second(t.start), second(t.end)));
        }
        if self.collapse_recursion {
            words.push("recursion collapsed".to_string());
        }
        f.write_str(&words.join(", "))
    }
}

impl Selection {
    fn patterns(&self) -> [(&'static str, &Option<Regex>); 6] {
        [
            ("function", &self.function),
            ("module", &self.module),
            ("focus", &self.focus),
            ("ignore", &self.ignore),
            ("hide", &self.hide),
            ("show-from", &self.show_from),
        ]
    }

    /// Whether everything is selected and nothing changed.
    pub fn is_everything(&self) -> bool {
        self.to_string().is_empty()
    }

    /// Whether only stacks can tell what is selected.
    fn by_stack(&self) -> bool {
        // Hiding frames also drops stacks: those without a frame left.
        self.patterns().iter().any(|(_, p)| p.is_some())
    }

    /// Whether what is selected is known from samples only.
    fn is_estimated(&self) -> bool {
        let by_sample = self.by_stack() || !self.labels.is_empty();
        by_sample || (self.time.is_some() && !self.reasons.is_empty())
    }

    /// Whether only some of a thread's time is selected.
    fn is_partial(&self) -> bool {
        self.is_estimated()
            || self.time.is_some()
            || !self.states.is_empty()
            || !self.reasons.is_empty()
    }

    fn wants_state(&self, state: State, reason: Option<&str>) -> bool {
        (self.states.is_empty() || self.states.contains(&state))
            && (self.reasons.is_empty() || reason.is_some_and(|r| self.reasons.contains(&r)))
    }

    /// Which sets of labels are wanted; the last entry stands for having none.
    fn label_sets(&self, rec: &Recording) -> Vec<bool> {
        let meets = |set: &[Label]| {
            self.labels.iter().all(|(key, _)| {
                let any = |l: &Label| {
                    let is = |(k, v): &(String, String)| {
                        k == key && **k == *l.key && *v == l.value.to_string()
                    };
                    self.labels.iter().any(is)
                };
                set.iter().any(any)
            })
        };
        let sets = rec.label_sets.iter().map(|set| meets(set));
        sets.chain([self.labels.is_empty()]).collect()
    }

    /// The part of `rec` that is selected; all of it, untouched, where everything is.
    ///
    /// # Errors
    /// [`SelectError`] where a window of time cannot be cut out.
    pub fn apply(&self, rec: Recording) -> Result<Selected, SelectError> {
        if self.is_everything() {
            return Ok(Selected {
                recording: rec,
                unmet: Vec::new(),
            });
        }
        let slices = self.slices(&rec)?;
        let scaled = match &slices {
            Some(range) => scale::scale_slices(&rec, range.clone()),
            None => scale::scale(&rec),
        };
        let wanted = threads::wanted(&self.threads, &self.processes, &self.services, &rec);
        let mut unmet = Vec::new();
        if !wanted.is_empty() && !wanted.contains(&true) {
            unmet.push(threads::unmet(&self.threads, &self.processes));
        }
        let labelled = self.label_sets(&rec);
        if !labelled.contains(&true) {
            unmet.push("label");
        }
        let mut stacks = Stacks::new(self, &rec);
        unmet.extend(stacks.unmet());
        let wants = Wants {
            contexts: &wanted,
            label_sets: &labelled,
            slices: slices.as_ref(),
        };
        let (samples, went) = self.samples(&rec, &scaled, &wants, &mut stacks);
        let keeps_unsampled = |u: &scale::Unsampled| {
            wanted.get(u.context.0 as usize) == Some(&true)
                && self.wants_state(u.state, u.reason)
                && self.labels.is_empty()
                && stacks.keeps_frame_called(NOT_SAMPLED)
        };
        let unsampled: Vec<_> = (scaled.unsampled.iter().copied())
            .filter(keeps_unsampled)
            .collect();

        let lengths = self.shapes(&rec, &wanted, &mut stacks);
        let senders = senders(&rec, &wanted, &mut stacks);
        let hops = match self.time {
            Some(_) => Vec::new(),
            None => chains::hops(&rec, &went, &mut stacks),
        };

        let mut out = rec;
        stacks.put_into(&mut out);
        if lengths.len() < out.shapes.len() {
            let note = "lengths of intervals are kept of whole threads, states and reasons only";
            out.domain.notes.push(note.into());
        }
        out.shapes = lengths;
        for (peer, senders) in out.peers.iter_mut().zip(senders) {
            peer.stacks = senders;
        }
        if self.time.is_some() && !out.peers.is_empty() {
            let note =
                "requests are not kept in a selection of time: they were counted over all of it";
            out.domain.notes.push(note.into());
            out.peers.clear();
        }
        if self.time.is_some() && !out.pauses.is_empty() {
            let note =
                "pauses are not kept in a selection of time: they were counted over all of it";
            out.domain.notes.push(note.into());
            out.pauses.clear();
        }
        ledger::cut(self, &mut out, &samples, &unsampled, slices.as_ref());
        out.samples = samples;
        if let Some(range) = slices {
            cut_time(&mut out, range);
        }
        if self.time.is_some() && !out.hops.is_empty() {
            let note =
                "who ended waits is not kept in a selection of time: it is known of all of it only";
            out.domain.notes.push(note.into());
        }
        if chains::knows_locks(self) {
            let is_wanted = |l: &LockWait| wanted.get(l.context.0 as usize) == Some(&true);
            out.locks.retain(is_wanted);
        } else if !out.locks.is_empty() {
            let note = "exact waits by lock are kept of whole threads only";
            out.domain.notes.push(note.into());
            out.locks.clear();
        }
        if out.timeline.is_some() {
            let note = "the timeline is not kept in a selection";
            out.domain.notes.push(note.into());
        }
        if !out.tasks.is_empty() {
            let note =
                "tasks of runtimes are not kept in a selection: they have a clock of their own";
            out.domain.notes.push(note.into());
            out.tasks.clear();
        }
        if !out.events.is_empty() {
            let note = "stacks at events are not kept in a selection of time: choose the event with \
                        --value, and it is selected";
            out.domain.notes.push(note.into());
            out.events.clear();
        }
        (out.hops, out.timeline) = (hops, None);
        chains::leave_out(&mut out, &wanted);
        compact::compact(&mut out, &wanted);
        out.domain.notes.push(format!(
            "selected: {self}; what is not selected is left out of every figure, wall included"
        ));
        if self.is_estimated() {
            for column in &mut out.domain.columns {
                column.exact = false;
                column.how = format!("of its samples, what was selected: {}", column.how);
            }
        }
        Ok(Selected {
            recording: out,
            unmet,
        })
    }

    /// Histograms of the selected intervals, as far as they were counted for the selection alone.
    fn shapes(
        &self,
        rec: &Recording,
        wanted: &[bool],
        stacks: &mut Stacks<'_>,
    ) -> Vec<HistogramRow> {
        if self.is_estimated() || self.time.is_some() {
            return Vec::new();
        }
        let all = !wanted.contains(&false);
        let whose = |row: &&HistogramRow| match row.context {
            Some(c) => wanted.get(c.0 as usize) == Some(&true),
            None => all,
        };
        let what = |row: &&HistogramRow| {
            let reason = row.reason.map(BlockReason::name);
            self.wants_state(row.state, reason.or(row.part.map(Part::name)))
        };
        let rows = rec.shapes.iter().filter(whose).filter(what);
        rows.filter_map(|row| {
            let stack = match row.stack {
                Some(stack) => Some(stacks.changed(rec, stack)?),
                None => None,
            };
            Some(HistogramRow {
                stack,
                ..row.clone()
            })
        })
        .collect()
    }

    /// The slices of the window of time, if one is asked for.
    fn slices(&self, rec: &Recording) -> Result<Option<Range<u32>>, SelectError> {
        let Some(time) = &self.time else {
            return Ok(None);
        };
        let s = rec.slices;
        if s.width_ns == 0 || s.count == 0 {
            return Err(SelectError::NoSlices);
        }
        let at = |ns: u64| (rec.window.start_ns + ns).saturating_sub(s.start_ns);
        let from = (at(time.start) / s.width_ns).min(u64::from(s.count)) as u32;
        let to = at(time.end)
            .div_ceil(s.width_ns)
            .min(u64::from(s.count))
            .max(u64::from(from)) as u32;
        if from == to {
            let length = rec.window.length_ns();
            return Err(SelectError::OutsideTime {
                seconds: length as f64 / 1e9,
            });
        }
        Ok(Some(from..to))
    }

    /// The selected samples, their time scaled; those that came to look the same are one. And where the time of
    /// each old one is.
    fn samples(
        &self,
        rec: &Recording,
        scaled: &Scaled,
        wants: &Wants<'_>,
        stacks: &mut Stacks<'_>,
    ) -> (Vec<Sample>, Vec<Vec<Went>>) {
        let mut went: Vec<Vec<Went>> = vec![Vec::new(); rec.samples.len()];
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
                // A sample's count goes with its time, and in the end sums to what it was.
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
                went[first.sample as usize].push(Went { to, ns: p.ns });
            }
        }
        (out, went)
    }
}

/// Where each peer's requests were sent, by threads and stacks that are left.
fn senders(rec: &Recording, wanted: &[bool], stacks: &mut Stacks<'_>) -> Vec<Vec<PeerStack>> {
    let mut left = |s: &PeerStack| {
        let stack = match wanted.get(s.context.0 as usize) {
            Some(true) => stacks.changed(rec, s.stack)?,
            _ => return None,
        };
        Some(PeerStack { stack, ..*s })
    };
    let mut of = |p: &Peer| p.stacks.iter().filter_map(&mut left).collect();
    rec.peers.iter().map(&mut of).collect()
}

/// What is wanted, by index.
struct Wants<'a> {
    contexts: &'a [bool],
    /// The last entry stands for samples without labels.
    label_sets: &'a [bool],
    slices: Option<&'a Range<u32>>,
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

/// Narrows the window, the slices and the host's facts to `range`.
fn cut_time(rec: &mut Recording, range: Range<u32>) {
    let s = &mut rec.slices;
    let from = s.start_ns + u64::from(range.start) * s.width_ns;
    let to = s.start_ns + u64::from(range.end) * s.width_ns;
    s.start_ns = from;
    s.count = range.end - range.start;
    let w = &mut rec.window;
    let skipped = from.saturating_sub(w.start_ns);
    if w.start_unix_ns > 0 {
        w.start_unix_ns += skipped;
    }
    w.start_ns = w.start_ns.max(from);
    w.end_ns = w.end_ns.min(to).max(w.start_ns);
    for sample in &mut rec.samples {
        for v in &mut sample.slices {
            v.slice -= range.start;
        }
    }
    let (start, end) = (w.start_ns, w.end_ns);
    rec.host.retain(|h| (start..=end).contains(&h.time_ns));
    for c in &mut rec.contexts {
        c.start_ns = c.start_ns.clamp(start, end);
        c.end_ns = c.end_ns.clamp(start, end);
    }
}
