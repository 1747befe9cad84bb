//! The single intervals as columns, lane by lane: gap before, length, tag, and the waker of a wait.

use wallscope_model::{Interval, Recording, State};

use super::columns::Columns;
use super::rows::tag_of;

/// Puts the intervals, if there are any.
pub(super) fn put(columns: &mut Columns, recording: &Recording) {
    let Some(timeline) = recording.timeline.as_ref().filter(|t| !t.is_empty()) else {
        return;
    };
    let lanes = &timeline.lanes;
    columns.put("lane.context", lanes.iter().map(|l| u64::from(l.context.0)));
    columns.put("lane.size", lanes.iter().map(|l| l.intervals.len() as u64));
    let all = || lanes.iter().flat_map(|l| &l.intervals);
    let gaps = lanes.iter().flat_map(|l| {
        // The first interval's gap counts from the begin of the window.
        let mut end = recording.window.start_ns;
        l.intervals.iter().map(move |i| {
            let gap = i.start_ns.saturating_sub(end);
            end = i.end_ns();
            gap
        })
    });
    columns.put("lane.gap", gaps);
    columns.put("lane.length", all().map(|i| i.ns));
    let tag = |i: &Interval| u64::from(tag_of(i.state, i.reason_name()));
    columns.put("lane.tag", all().map(tag));
    let blocked = all().filter(|i| i.state == State::Blocked);
    columns.put(
        "lane.waker",
        blocked.map(|i| i.waker.map_or(0, |c| 1 + u64::from(c.0))),
    );
}
