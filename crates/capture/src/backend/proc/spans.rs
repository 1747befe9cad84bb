//! Single intervals of the switch records, for a timeline, within a memory bound.
//!
//! They are the intervals of the records, before these are dated back and before run-queue latency is taken out of
//! them. No record shows when a thread was woken, so a blocked interval reaches to the switch that ends it. Its block
//! reason is known if a poll fell into it.

use wallscope_model::{BlockReason, ContextId, Interval, Lane, Part, State, Timeline};

use super::time_kind::TimeKind;

/// One interval. Times are ns on the recording's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    begin: u64,
    end: u64,
    kind: TimeKind,
    reason: Option<BlockReason>,
}

/// The intervals of one thread, in the order of time.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    all: Vec<Span>,
    dropped: u64,
}

impl Spans {
    /// Adds an interval of `kind` from `begin` to `end`, or extends the last interval if it is of that kind and ends at
    /// `begin`.
    pub fn note(&mut self, begin: u64, end: u64, kind: TimeKind) {
        if let TimeKind::Seen(reason, _) = kind {
            let seen = self.all.iter_mut().rev().take(4);
            let open = seen.filter(|s| s.kind == TimeKind::Off && s.begin < end && s.end > begin);
            open.for_each(|s| s.reason = Some(reason));
            return;
        }
        if !matches!(
            kind,
            TimeKind::OnCpu | TimeKind::Queued | TimeKind::PutOff | TimeKind::Off
        ) || end <= begin
        {
            return;
        }
        match self.all.last_mut() {
            Some(last) if last.kind == kind && last.end == begin => last.end = end,
            _ => self.all.push(Span {
                begin,
                end,
                kind,
                reason: None,
            }),
        }
    }

    fn drop_before(&mut self, time: u64) {
        let n = self.all.partition_point(|s| s.end <= time);
        self.all.drain(..n);
        self.dropped += n as u64;
    }

    fn lane(&self, context: ContextId) -> Lane {
        let interval = |s: &Span| Interval {
            start_ns: s.begin,
            ns: s.end - s.begin,
            state: match s.kind {
                TimeKind::OnCpu => State::OnCpu,
                TimeKind::Off => State::Blocked,
                _ => State::Runnable,
            },
            reason: s.reason,
            part: match s.kind {
                TimeKind::Queued => Some(Part::Woken),
                TimeKind::PutOff => Some(Part::Preempted),
                _ => None,
            },
            waker: None,
            request: false,
            idle: false,
        };
        Lane {
            context,
            intervals: self.all.iter().map(interval).collect(),
        }
    }
}

/// Drops the oldest intervals of all threads until the rest fits into `limit_bytes`. `all`: the intervals of each
/// thread.
pub fn keep_within(all: &mut [&mut Spans], limit_bytes: u64) {
    let most = (limit_bytes / size_of::<Interval>() as u64) as usize;
    while all.iter().map(|s| s.all.len()).sum::<usize>() > most {
        let begin = all.iter().filter_map(|s| Some(s.all.first()?.end)).min();
        let end = all.iter().filter_map(|s| Some(s.all.last()?.end)).max();
        let (Some(begin), Some(end)) = (begin, end) else {
            return;
        };
        // At least the first interval is dropped each time.
        let time = begin + end.saturating_sub(begin) / 8;
        all.iter_mut().for_each(|s| s.drop_before(time));
    }
}

/// The timeline of threads, each with its place among the recording's contexts.
pub fn timeline<'s>(
    all: impl Iterator<Item = (ContextId, &'s Spans)>,
    limit_bytes: u64,
) -> Timeline {
    let mut timeline = Timeline {
        limit_bytes,
        ..Timeline::default()
    };
    for (context, spans) in all {
        timeline.dropped += spans.dropped;
        let lane = spans.lane(context);
        if !lane.intervals.is_empty() {
            timeline.lanes.push(lane);
        }
    }
    timeline
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::proc::time_kind::ANY;

    #[test]
    fn an_interval_goes_on_until_another_begins() {
        let mut s = Spans::default();
        s.note(10, 20, TimeKind::OnCpu);
        s.note(20, 30, TimeKind::Off);
        s.note(30, 45, TimeKind::Off);
        s.note(20, 45, TimeKind::Seen(BlockReason::Disk, ANY));
        s.note(45, 45, TimeKind::OnCpu);
        s.note(45, 50, TimeKind::PutOff);
        let lane = s.lane(ContextId(0));
        let seen: Vec<_> = (lane.intervals.iter())
            .map(|i| (i.start_ns, i.ns, i.reason_name()))
            .collect();
        assert_eq!(
            seen,
            [
                (10, 10, None),
                (20, 25, Some("disk")),
                (45, 5, Some("preempted"))
            ]
        );
    }

    #[test]
    fn the_oldest_of_all_threads_are_dropped() {
        let mut all: Vec<Spans> = (0..2u64)
            .map(|k| {
                let mut s = Spans::default();
                for i in 0..1000u64 {
                    let kind = if i % 2 == 0 {
                        TimeKind::OnCpu
                    } else {
                        TimeKind::Off
                    };
                    s.note(10 * i + k, 10 * i + 10 + k, kind);
                }
                s
            })
            .collect();
        let limit = 500 * size_of::<Interval>() as u64;
        keep_within(&mut all.iter_mut().collect::<Vec<_>>(), limit);
        let t = timeline((0..).map(ContextId).zip(&all), limit);
        assert!(t.len() <= 500 && t.len() > 300, "{}", t.len());
        assert_eq!(t.len() as u64 + t.dropped, 2000);
        assert!(
            t.lanes
                .iter()
                .all(|l| l.intervals.last().is_some_and(|i| i.end_ns() >= 10_000))
        );
    }
}
