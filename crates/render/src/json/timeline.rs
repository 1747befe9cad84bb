//! Sums of a timeline. The intervals themselves are exported by `export --format perfetto`.

use std::collections::BTreeMap;

use serde::Serialize;
use wallscope_model::{ContextId, Recording, State};

/// The timeline of all threads.
#[derive(Serialize)]
pub(super) struct Timeline {
    intervals: usize,
    dropped: u64,
    lost: u64,
    limit_bytes: u64,
}

/// The intervals of one thread, by state and by reason or part.
#[derive(Default, Serialize)]
pub(super) struct Lane {
    intervals: usize,
    on_cpu_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    /// Blocked time by reason.
    blocked: BTreeMap<&'static str, u64>,
    /// Blocked intervals by reason.
    blocks: BTreeMap<&'static str, u64>,
    /// Blocked time in intervals that are marked idle.
    idle_ns: u64,
    /// Blocked intervals that began with a request in flight.
    requests: u64,
    /// Blocked intervals with a known waker.
    woken: u64,
    /// Time of the thread that is in no interval.
    gaps_ns: u64,
}

pub(super) fn timeline(rec: &Recording) -> Option<Timeline> {
    rec.timeline.as_ref().map(|t| Timeline {
        intervals: t.len(),
        dropped: t.dropped,
        lost: t.lost,
        limit_bytes: t.limit_bytes,
    })
}

pub(super) fn lane(rec: &Recording, context: ContextId) -> Option<Lane> {
    let lane = rec.timeline.as_ref()?.lane(context)?;
    let life = &rec.contexts[context.0 as usize];
    let mut sums = Lane {
        intervals: lane.intervals.len(),
        ..Lane::default()
    };
    for i in &lane.intervals {
        match i.state {
            State::OnCpu => sums.on_cpu_ns += i.ns,
            State::Runnable => sums.runnable_ns += i.ns,
            State::Blocked => {
                let reason = i.reason_name().unwrap_or("other");
                sums.blocked_ns += i.ns;
                *sums.blocked.entry(reason).or_default() += i.ns;
                *sums.blocks.entry(reason).or_default() += 1;
                sums.woken += u64::from(i.waker.is_some());
                sums.requests += u64::from(i.request);
                if i.idle {
                    sums.idle_ns += i.ns;
                }
            }
            State::Unknown => {}
        }
    }
    let known = sums.on_cpu_ns + sums.runnable_ns + sums.blocked_ns;
    sums.gaps_ns = (life.end_ns.saturating_sub(life.start_ns)).saturating_sub(known);
    Some(sums)
}
