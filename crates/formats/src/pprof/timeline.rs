//! The timeline ↔ its columns.

use wallscope_model::{BlockReason, ContextId, Interval, Lane, Part, Recording, State, Timeline};

use super::super::ReadError;
use super::checks::{below, damaged, index, same};
use super::extension as ext;
use super::names::Names;

pub(super) fn to_message(rec: &Recording) -> Option<ext::Timeline> {
    let t = rec.timeline.as_ref()?;
    let mut out = ext::Timeline {
        limit_bytes: t.limit_bytes,
        dropped: t.dropped,
        lost: t.lost,
        ..ext::Timeline::default()
    };
    for lane in &t.lanes {
        let context = rec.contexts.get(lane.context.0 as usize);
        let mut end = context.map_or(0, |c| c.start_ns);
        out.context.push(lane.context.0);
        out.intervals.push(lane.intervals.len() as u32);
        for i in &lane.intervals {
            out.gap.push(i.start_ns.saturating_sub(end));
            out.length.push(i.ns);
            let detail = match i.state {
                State::Blocked => i.reason.map_or(0, |r| 1 + index(BlockReason::ALL, &r)),
                _ => i.part.map_or(0, |p| 1 + index(Part::ALL, &p)),
            };
            out.kind.push(index(State::ALL, &i.state) + 4 * detail);
            if i.state == State::Blocked {
                out.waker.push(i.waker.map_or(0, |c| 1 + c.0));
                let mark = u32::from(i.idle) | u32::from(i.request) << 1;
                out.mark.push(mark);
            }
            end = i.end_ns();
        }
    }
    if out.mark.iter().all(|m| *m == 0) {
        out.mark.clear();
    }
    Some(out)
}

pub(super) fn from_message(
    m: ext::Timeline,
    names: &Names,
    rec: &Recording,
) -> Result<Timeline, ReadError> {
    let n = m.gap.len();
    same(&m.intervals, m.context.len(), "the sizes of lanes")?;
    same(&m.length, n, "the lengths of intervals")?;
    same(&m.kind, n, "the kinds of intervals")?;
    let short = || damaged("the list of intervals is too short");
    let mut wakers = m.waker.iter();
    if !m.mark.is_empty() {
        same(&m.mark, m.waker.len(), "the marks of intervals")?;
    }
    let mut marks = m.mark.iter();
    let mut lanes: Vec<Lane> = Vec::with_capacity(m.context.len());
    let mut from = 0usize;
    for (context, size) in m.context.iter().zip(&m.intervals) {
        let context = ContextId(below(*context, rec.contexts.len(), "context")?);
        if lanes.last().is_some_and(|l| l.context >= context) {
            return Err(damaged("the lanes of its timeline are not in order"));
        }
        let to = from.saturating_add(*size as usize);
        if to > n {
            return Err(short());
        }
        let mut at = rec.contexts[context.0 as usize].start_ns;
        let mut intervals = Vec::with_capacity(to - from);
        for i in from..to {
            let state = names.state(m.kind[i] % 4);
            let detail = (m.kind[i] / 4).checked_sub(1);
            let blocked = state == State::Blocked;
            let waker = match blocked {
                true => *wakers.next().ok_or_else(short)?,
                false => 0,
            };
            let mark = match blocked {
                true => marks.next().copied().unwrap_or(0),
                false => 0,
            };
            let start_ns = at.saturating_add(m.gap[i]);
            intervals.push(Interval {
                start_ns,
                ns: m.length[i],
                state,
                reason: detail.filter(|_| blocked).map(|r| names.reason(r)),
                part: detail.filter(|_| !blocked).and_then(|p| names.part(p)),
                waker: match waker.checked_sub(1) {
                    Some(c) => Some(ContextId(below(c, rec.contexts.len(), "context")?)),
                    None => None,
                },
                idle: mark & 1 != 0,
                request: mark & 2 != 0,
            });
            at = start_ns.saturating_add(m.length[i]);
        }
        from = to;
        lanes.push(Lane { context, intervals });
    }
    Ok(Timeline {
        lanes,
        limit_bytes: m.limit_bytes,
        dropped: m.dropped,
        lost: m.lost,
    })
}
