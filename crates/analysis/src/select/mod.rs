//! A part of a recording, as a recording: filters by thread, process, state, reason, label, time and
//! stack, and changes of the shown stacks. Every verb applies the selection first, so a filter means the
//! same in all of them.
//!
//! **Exactness.** Whole threads, states and reasons are taken from the ledger and stay exact. Stacks and labels are
//! sampled, so a selection by them is an estimate: samples are scaled to the *whole* ledger first, and the
//! selection's ledger becomes the sum of the selected samples. (Scaling afterwards would give the time of all stacks
//! to those that stayed.) The domain says which it is. A window of time is exact to the slice: its ends are moved to
//! the ends of slices.
//!
//! **Stacks.** `focus`, `ignore`, `hide` and `show_from` work as in pprof: regular expressions, found anywhere in a
//! function's name, its source file or its module's path. `ignore` wins over `focus`. A stack is dropped if `hide`
//! leaves none of its frames. `show_from` drops callers above the match nearest to the root and drops stacks without
//! a match.
//!
//! Limits: it keeps no switch counts, audit or repair of partly selected threads, since they are not known for the
//! part. Requests are kept for all processes that are left, whichever of their threads, states or stacks are
//! selected. A selection of time loses the wakers: they are not kept by time.

mod chains;
mod compact;
mod ledger;
mod samples;
mod selection;
mod stacks;
mod threads;

use std::ops::Range;

use wallscope_model::histogram::HistogramRow;
use wallscope_model::scale::{self, NOT_SAMPLED};
use wallscope_model::{BlockReason, LockWait, Part, Peer, PeerStack, Recording};

use samples::Wanted;
use stacks::Stacks;

pub use selection::Selection;

/// A selected recording.
#[derive(Debug)]
#[non_exhaustive]
pub struct Selected {
    /// The selected part.
    pub recording: Recording,
    /// Conditions that nothing in the recording meets, by name: probably misspelt.
    pub unmet: Vec<&'static str>,
}

/// Reason why nothing can be selected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
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

impl Selection {
    /// The part of `rec` that is selected; all of it, untouched, where everything is.
    ///
    /// ```
    /// use wallscope_analysis::select::Selection;
    /// use wallscope_model::State;
    ///
    /// let recording = wallscope_synthetic::recording(4);
    /// let blocked: u64 = recording.contexts.iter().map(|c| c.ledger.blocked_ns()).sum();
    /// let selection = Selection { states: vec![State::Blocked], ..Selection::default() };
    /// let selected = selection.apply(recording)?.recording;
    /// let wall: u64 = selected.contexts.iter().map(|c| c.ledger.wall_ns).sum();
    /// assert_eq!(wall, blocked);
    /// # Ok::<(), wallscope_analysis::select::SelectError>(())
    /// ```
    ///
    /// # Errors
    /// [`SelectError`] where a window of time cannot be selected.
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
        let wants = Wanted {
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

        let lengths = self.histograms(&rec, &wanted, &mut stacks);
        let senders = senders(&rec, &wanted, &mut stacks);
        let hops = match self.time {
            Some(_) => Vec::new(),
            None => chains::hops(&rec, &went, &mut stacks),
        };

        let mut out = rec;
        stacks.put_into(&mut out);
        put_lengths(&mut out, lengths);
        for (peer, senders) in out.peers.iter_mut().zip(senders) {
            peer.stacks = senders;
        }
        self.drop_counted(&mut out);
        let kept = ledger::Kept {
            samples: &samples,
            unsampled: &unsampled,
        };
        ledger::cut(self, &mut out, &kept, slices.as_ref());
        out.samples = samples;
        if let Some(range) = slices {
            cut_time(&mut out, range);
        }
        self.drop_unselectable(&mut out, &wanted);
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

    /// Drops requests and pauses where only a part of the time is selected.
    fn drop_counted(&self, out: &mut Recording) {
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
    }

    /// Drops figures that are not known for the selection alone, each with a note.
    fn drop_unselectable(&self, out: &mut Recording, wanted: &[bool]) {
        let notes = &mut out.domain.notes;
        if self.time.is_some() && !out.hops.is_empty() {
            let note =
                "who ended waits is not kept in a selection of time: it is known of all of it only";
            notes.push(note.into());
        }
        if chains::knows_locks(self) {
            let is_wanted = |l: &LockWait| wanted.get(l.context.0 as usize) == Some(&true);
            out.locks.retain(is_wanted);
        } else if !out.locks.is_empty() {
            let note = "exact waits by lock are kept of whole threads only";
            notes.push(note.into());
            out.locks.clear();
        }
        if out.timeline.is_some() {
            let note = "the timeline is not kept in a selection";
            notes.push(note.into());
        }
        if !out.tasks.is_empty() {
            let note =
                "tasks of runtimes are not kept in a selection: they have a clock of their own";
            notes.push(note.into());
            out.tasks.clear();
        }
        if !out.events.is_empty() {
            let note = "stacks at events are not kept in a selection of time: choose the event with \
                        --value, and it is selected";
            notes.push(note.into());
            out.events.clear();
        }
    }

    /// Histograms of the selected intervals, as far as they were counted for the selection alone.
    fn histograms(
        &self,
        rec: &Recording,
        wanted: &[bool],
        stacks: &mut Stacks<'_>,
    ) -> Vec<HistogramRow> {
        if self.is_estimated() || self.time.is_some() {
            return Vec::new();
        }
        let all = !wanted.contains(&false);
        let of_wanted = |row: &&HistogramRow| match row.context {
            Some(c) => wanted.get(c.0 as usize) == Some(&true),
            None => all,
        };
        let in_state = |row: &&HistogramRow| {
            let reason = row.reason.map(BlockReason::name);
            self.wants_state(row.state, reason.or(row.part.map(Part::name)))
        };
        let rows = rec.histograms.iter().filter(of_wanted).filter(in_state);
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
}

/// Replaces the histograms. A note says so where some are lost.
fn put_lengths(out: &mut Recording, lengths: Vec<HistogramRow>) {
    if lengths.len() < out.histograms.len() {
        let note = "lengths of intervals are kept of whole threads, states and reasons only";
        out.domain.notes.push(note.into());
    }
    out.histograms = lengths;
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
