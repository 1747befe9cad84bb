//! The single intervals of a timeline for other tools' formats: with names, and not more than such
//! a tool can open.

use std::collections::BTreeMap;

use wallscope_model::{ContextId, Interval, Recording, State};

/// Maximum intervals that are written; the shortest are left out.
const MAX_INTERVALS: usize = 2_000_000;

/// State, reason and idleness of an interval, ordered.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IntervalKind {
    state: State,
    reason: Option<&'static str>,
    request: bool,
    idle: bool,
}

impl IntervalKind {
    /// The state, reason and idleness of `interval`.
    pub fn of(i: &Interval) -> IntervalKind {
        IntervalKind {
            state: i.state,
            reason: i.reason_name(),
            request: i.request,
            idle: i.idle,
        }
    }

    /// Its name: `on CPU`, `runnable (woken)`, `blocked (lock)`, `blocked (poll), idle`.
    pub fn title(self) -> String {
        let mut title = match self.state {
            State::OnCpu => "on CPU".to_string(),
            state => state.name().to_string(),
        };
        if let Some(reason) = self.reason {
            title.push_str(&format!(" ({reason})"));
        }
        if self.idle {
            title.push_str(", idle");
        }
        if self.request {
            title.push_str(", request in flight");
        }
        title
    }
}

/// The intervals that are written.
pub(super) struct Intervals<'r> {
    recording: &'r Recording,
    /// Minimum length of an interval that is written, ns.
    shortest: u64,
    /// Number of intervals that are not written.
    pub left_out: usize,
}

impl<'r> Intervals<'r> {
    /// The intervals of `recording`, if it has any.
    pub fn of(recording: &'r Recording) -> Option<Intervals<'r>> {
        let timeline = recording.timeline.as_ref().filter(|t| !t.is_empty())?;
        let mut shortest = 0;
        let mut left_out = 0;
        if timeline.len() > MAX_INTERVALS {
            let all = timeline.lanes.iter().flat_map(|l| &l.intervals);
            let mut lengths: Vec<u64> = all.map(|i| i.ns).collect();
            let at = lengths.len() - MAX_INTERVALS;
            shortest = *lengths.select_nth_unstable(at).1;
            left_out = lengths.iter().filter(|ns| **ns < shortest).count();
        }
        Some(Intervals {
            recording,
            shortest,
            left_out,
        })
    }

    /// The intervals of one context, in the order of time.
    pub fn of_context(&self, context: ContextId) -> impl Iterator<Item = &'r Interval> {
        let timeline = self.recording.timeline.as_ref();
        let lane = timeline.and_then(|t| t.lane(context));
        let shortest = self.shortest;
        lane.into_iter()
            .flat_map(|l| &l.intervals)
            .filter(move |i| i.ns >= shortest)
    }

    /// A number from 0 for each state, reason and idleness of the intervals.
    pub fn kinds(&self) -> BTreeMap<IntervalKind, u64> {
        let timeline = self.recording.timeline.iter();
        let all = timeline.flat_map(|t| &t.lanes).flat_map(|l| &l.intervals);
        let mut kinds: BTreeMap<IntervalKind, u64> =
            all.map(|i| (IntervalKind::of(i), 0)).collect();
        for (n, kind) in (0..).zip(kinds.values_mut()) {
            *kind = n;
        }
        kinds
    }

    /// A note about intervals that are not written.
    pub fn note(&self) -> Option<String> {
        (self.left_out > 0).then(|| {
            format!(
                "{} intervals shorter than {} ns were left out of {}",
                self.left_out,
                self.shortest,
                self.recording.timeline.as_ref().map_or(0, |t| t.len())
            )
        })
    }
}
