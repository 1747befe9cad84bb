//! The recorded intervals with some of them made shorter: each thread does the same work again, and each
//! wait that a thread ended ends when that thread gets to the same place.
//!
//! Intervals are taken in the order of their recorded ends. An interval of work begins where its
//! thread's last one ended, and has its length times its factor. A wait with a known waker ends when
//! the waker's new time reaches the old end; if the waker is there first, the wait vanishes. All else
//! (timers, disks, peers outside, the wait for a CPU) keeps its length.

use wallscope_model::{ContextId, Interval, Lane, State, Timeline};

/// New times of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Replayed {
    /// Recorded time that is not idle, ns.
    pub before: f64,
    /// New time of that work that is not idle, ns.
    pub after: f64,
}

/// Position of a thread in its lane.
struct Cursor<'a> {
    intervals: &'a [Interval],
    /// The recorded moment up to which it was taken, ns.
    end: u64,
    /// The new time of that moment, ns.
    new_end: f64,
    sums: Replayed,
}

/// The length of an interval relative to the recorded one, by lane and index.
pub(super) type Factor<'f> = &'f dyn Fn(usize, usize) -> f64;

/// Replays `timeline`. Factors are for intervals that no recorded thread ended.
pub(super) fn replay(timeline: &Timeline, factor: Factor<'_>) -> Vec<(ContextId, Replayed)> {
    let lanes = &timeline.lanes;
    let mut cursors: Vec<Cursor<'_>> = lanes.iter().map(Cursor::new).collect();
    let mut order: Vec<(u64, u64, u32, u32)> = Vec::with_capacity(timeline.len());
    for (lane, l) in (0u32..).zip(lanes) {
        for (at, i) in (0u32..).zip(&l.intervals) {
            order.push((i.end_ns(), i.start_ns, lane, at));
        }
    }
    order.sort_unstable();
    for (end, _, lane, at) in order {
        let (lane, at) = (lane as usize, at as usize);
        let i = &lanes[lane].intervals[at];
        let waker = i.waker.filter(|_| i.state == State::Blocked);
        let woken = waker
            .and_then(|w| lanes.binary_search_by_key(&w, |l| l.context).ok())
            .filter(|waker| *waker != lane)
            .map(|waker| cursors[waker].map(end, &|at| factor(waker, at)));
        cursors[lane].take(i, woken, factor(lane, at));
    }
    let contexts = lanes.iter().map(|l| l.context);
    contexts.zip(cursors.into_iter().map(|c| c.sums)).collect()
}

impl<'a> Cursor<'a> {
    fn new(lane: &'a Lane) -> Cursor<'a> {
        let start = lane.intervals.first().map_or(0, |i| i.start_ns);
        Cursor {
            intervals: &lane.intervals,
            end: start,
            new_end: start as f64,
            sums: Replayed::default(),
        }
    }

    /// The new time of the recorded moment `at`, which lies in the next interval or before it.
    fn map(&self, at: u64, factor: &dyn Fn(usize) -> f64) -> f64 {
        let next = self.intervals.partition_point(|i| i.end_ns() < at);
        let start = self.intervals.get(next).map_or(at, |i| i.start_ns);
        let begin = start.clamp(self.end, at.max(self.end));
        let gap = begin - self.end;
        let work = at.saturating_sub(begin);
        let factor = if work > 0 { factor(next) } else { 1.0 };
        self.new_end + gap as f64 + work as f64 * factor
    }

    /// Moves on over an interval: a wait that ends at `woken`, or work with a factor. A gap before it
    /// keeps its length.
    fn take(&mut self, i: &Interval, woken: Option<f64>, factor: f64) {
        let new_start = self.new_end + i.start_ns.saturating_sub(self.end) as f64;
        let new_end = match woken {
            Some(at) => at.max(new_start),
            None => new_start + i.ns as f64 * factor,
        };
        if !i.idle {
            self.sums.before += i.ns as f64;
            self.sums.after += new_end - new_start;
        }
        self.end = i.end_ns();
        self.new_end = new_end;
    }
}

/// Divides the work of each thread where waits that it ended begin and end, so that work under a lock and other work
/// can have factors of their own. Returns the new timeline, and, for each lane, whether an interval lies within such
/// a wait.
pub(super) fn cut_at_waits(timeline: &Timeline) -> (Timeline, Vec<Vec<bool>>) {
    let mut ended: std::collections::HashMap<ContextId, Vec<(u64, u64)>> = Default::default();
    for lane in &timeline.lanes {
        for i in lane
            .intervals
            .iter()
            .filter(|i| i.state == State::Blocked && !i.idle)
        {
            if let Some(waker) = i.waker.filter(|w| *w != lane.context) {
                ended
                    .entry(waker)
                    .or_default()
                    .push((i.start_ns, i.end_ns()));
            }
        }
    }
    let mut out = timeline.clone();
    let mut within = Vec::with_capacity(out.lanes.len());
    for lane in &mut out.lanes {
        let waits = union(ended.remove(&lane.context).unwrap_or_default());
        let mut intervals = Vec::with_capacity(lane.intervals.len());
        let mut marks = Vec::with_capacity(lane.intervals.len());
        for i in &lane.intervals {
            cut(i, &waits, &mut |part, inside| {
                intervals.push(part);
                marks.push(inside);
            });
        }
        lane.intervals = intervals;
        within.push(marks);
    }
    (out, within)
}

/// Overlapping ranges joined, in ascending order.
fn union(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match out.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => out.push((start, end)),
        }
    }
    out
}

/// Gives the parts of `i` inside and outside of `waits`. Waits that a thread ended stay whole.
fn cut(i: &Interval, waits: &[(u64, u64)], part: &mut dyn FnMut(Interval, bool)) {
    if i.waker.is_some() {
        return part(*i, false);
    }
    let mut from = i.start_ns;
    let end = i.end_ns();
    let mut give = |start: u64, to: u64, inside: bool| {
        if to > start {
            let ns = to - start;
            part(
                Interval {
                    start_ns: start,
                    ns,
                    ..*i
                },
                inside,
            );
        }
    };
    let first = waits.partition_point(|(_, to)| *to <= from);
    for (start, to) in waits[first..].iter().take_while(|(start, _)| *start < end) {
        give(from, (*start).max(from), false);
        give((*start).max(from), (*to).min(end), true);
        from = (*to).min(end);
    }
    give(from, end, false);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(start_ns: u64, ns: u64) -> Interval {
        Interval {
            start_ns,
            ns,
            state: State::OnCpu,
            reason: None,
            part: None,
            waker: None,
            request: false,
            idle: false,
        }
    }

    fn wait(start_ns: u64, ns: u64, waker: Option<u32>) -> Interval {
        Interval {
            state: State::Blocked,
            waker: waker.map(ContextId),
            ..work(start_ns, ns)
        }
    }

    fn timeline(lanes: Vec<Vec<Interval>>) -> Timeline {
        let lanes = (0u32..).zip(lanes);
        Timeline {
            lanes: lanes
                .map(|(c, intervals)| Lane {
                    context: ContextId(c),
                    intervals,
                })
                .collect(),
            ..Timeline::default()
        }
    }

    #[test]
    fn a_wait_shrinks_with_the_work_that_it_waits_for() {
        // Thread 1 waits from 20 until thread 0 has worked 100, then works 50.
        let t = timeline(vec![
            vec![work(0, 150)],
            vec![work(0, 20), wait(20, 80, Some(0)), work(100, 50)],
        ]);
        let half = |lane: usize, _: usize| if lane == 0 { 0.5 } else { 1.0 };
        let out = replay(&t, &half);
        assert_eq!(
            out[0].1,
            Replayed {
                before: 150.0,
                after: 75.0
            }
        );
        assert_eq!(
            out[1].1,
            Replayed {
                before: 150.0,
                after: 100.0
            }
        );
        // So fast that thread 1 need not wait at all.
        let out = replay(&t, &|lane, _| if lane == 0 { 0.1 } else { 1.0 });
        assert_eq!(out[1].1.after, 70.0);
        // Nothing changes nothing.
        let out = replay(&t, &|_, _| 1.0);
        assert!(out.iter().all(|(_, r)| r.before == r.after));
    }

    #[test]
    fn waits_without_a_waker_and_gaps_keep_their_length() {
        let t = timeline(vec![vec![work(0, 10), wait(10, 30, None), work(60, 10)]]);
        let out = replay(&t, &|_, at| if at == 1 { 1.0 } else { 0.5 });
        assert_eq!(
            out[0].1,
            Replayed {
                before: 50.0,
                after: 40.0
            }
        );
    }

    #[test]
    fn chains_of_waits_shorten_through_all_of_them() {
        // 2 waits for 1, which waits for 0, which works.
        let t = timeline(vec![
            vec![work(0, 100), work(100, 20)],
            vec![wait(0, 100, Some(0)), work(100, 10), work(110, 10)],
            vec![wait(0, 110, Some(1)), work(110, 10)],
        ]);
        let out = replay(&t, &|lane, at| match (lane, at) {
            (0, 0) => 0.5,
            _ => 1.0,
        });
        assert_eq!(
            out[2].1,
            Replayed {
                before: 120.0,
                after: 70.0
            }
        );
    }

    #[test]
    fn work_is_cut_where_others_wait_for_it() {
        let t = timeline(vec![
            vec![work(0, 100)],
            vec![work(0, 40), wait(40, 30, Some(0)), work(70, 30)],
        ]);
        let (cut, within) = cut_at_waits(&t);
        let parts: Vec<(u64, u64)> = (cut.lanes[0].intervals.iter())
            .map(|i| (i.start_ns, i.ns))
            .collect();
        assert_eq!(parts, [(0, 40), (40, 30), (70, 30)]);
        assert_eq!(within[0], [false, true, false]);
        assert_eq!((cut.len(), within[1].len()), (6, 3));
    }
}
