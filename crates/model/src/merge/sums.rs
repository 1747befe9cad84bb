//! Everything of a recording beside its threads: equal rows are added up.

use std::collections::HashMap;
use std::sync::Arc;

use super::code::{CodeMap, place};
use super::threads::ThreadMap;
use crate::histogram::HistogramRow;
use crate::{
    Above, Actor, ActorId, BlockReason, ContextId, Cost, EventHits, Hop, Interval, Lane, LockWait,
    Part, PauseGroup, Peer, PeerStack, Process, Recording, Sample, StackId, State, TaskGroup,
    TaskTime, Timeline,
};

type HistogramKey = (
    Option<ContextId>,
    Option<StackId>,
    State,
    Option<BlockReason>,
    Option<Part>,
);

/// The index of the merged recording's rows.
#[derive(Default)]
pub(super) struct Sums {
    actors: HashMap<Actor, u32>,
    processes: HashMap<(u32, Arc<str>), u32>,
    histograms: HashMap<HistogramKey, u32>,
}

impl Sums {
    /// Adds everything of `rec` beside its threads.
    pub(super) fn add(
        &mut self,
        out: &mut Recording,
        rec: &Recording,
        code: &CodeMap,
        map: &ThreadMap,
    ) {
        for p in &rec.processes {
            self.process(&mut out.processes, p);
        }
        for row in &rec.histograms {
            let row = HistogramRow {
                context: row.context.map(|c| map.context(c)),
                stack: row.stack.map(|s| code.stack(s)),
                ..row.clone()
            };
            self.histogram(&mut out.histograms, row);
        }
        self.hops(out, rec, code, map);
        out.locks.extend(rec.locks.iter().map(|l| LockWait {
            context: map.context(l.context),
            labels: code.labels(l.labels),
            ..*l
        }));
        events(out, rec, code, map);
        for p in &rec.peers {
            peer(&mut out.peers, p, code, map);
        }
        for g in &rec.pauses {
            pauses(&mut out.pauses, g);
        }
        for g in &rec.tasks {
            tasks(&mut out.tasks, g, code);
        }
        timeline(&mut out.timeline, rec.timeline.as_ref(), map);
        out.host.extend(rec.host.iter().cloned());
        for l in &rec.losses {
            match out.losses.iter_mut().find(|m| m.cause == l.cause) {
                Some(m) => m.count += l.count,
                None => out.losses.push(l.clone()),
            }
        }
        out.cost = cost(&out.cost, &rec.cost);
    }

    fn process(&mut self, out: &mut Vec<Process>, p: &Process) {
        let next = out.len() as u32;
        let number = *(self.processes.entry((p.pid, p.exe.clone()))).or_insert(next);
        match out.get_mut(number as usize) {
            Some(q) => {
                q.unattributed_on_cpu_ns += p.unattributed_on_cpu_ns;
                q.folded_threads += p.folded_threads;
            }
            None => out.push(p.clone()),
        }
    }

    /// Adds a histogram; those of contexts that stay apart do too.
    fn histogram(&mut self, out: &mut Vec<HistogramRow>, row: HistogramRow) {
        let next = out.len() as u32;
        let key = (row.context, row.stack, row.state, row.reason, row.part);
        let number = *self.histograms.entry(key).or_insert(next);
        match out.get_mut(number as usize) {
            Some(old) => old.histogram.merge(&row.histogram),
            None => out.push(row),
        }
    }

    fn hops(&mut self, out: &mut Recording, rec: &Recording, code: &CodeMap, map: &ThreadMap) {
        let actors: Vec<u32> = (rec.actors.iter())
            .map(|a| match a {
                Actor::Context(c) => Actor::Context(map.context(*c)),
                other => other.clone(),
            })
            .map(|a| place(&mut out.actors, &mut self.actors, a))
            .collect();
        let before = out.hops.len() as u32;
        out.hops.extend(rec.hops.iter().map(|h| Hop {
            above: match h.above {
                Above::Sample(s) => Above::Sample(map.sample(s)),
                Above::Hop(h) => Above::Hop(h + before),
            },
            actor: ActorId(actors[h.actor.0 as usize]),
            stack: h.stack.map(|s| code.stack(s)),
            labels: code.labels(h.labels),
            ..h.clone()
        }));
    }
}

fn pauses(out: &mut Vec<PauseGroup>, group: &PauseGroup) {
    let key = |g: &PauseGroup| (g.pid, g.operation.clone(), g.kind.clone(), g.cause.clone());
    match out.iter_mut().find(|g| key(g) == key(group)) {
        Some(known) => known.merge(group),
        None => out.push(group.clone()),
    }
}

fn events(out: &mut Recording, rec: &Recording, code: &CodeMap, map: &ThreadMap) {
    let sample = |s: &Sample| Sample {
        context: map.context(s.context),
        stack: code.stack(s.stack),
        labels: code.labels(s.labels),
        slices: map.slices(&s.slices),
        ..s.clone()
    };
    for event in &rec.events {
        let hits = event.hits.iter().map(|(c, n)| (map.context(*c), *n));
        let samples = event.samples.iter().map(sample);
        match out.events.iter_mut().find(|e| e.name == event.name) {
            Some(e) => {
                e.counted &= event.counted;
                e.hits.extend(hits);
                e.samples.extend(samples);
            }
            None => out.events.push(EventHits {
                hits: hits.collect(),
                samples: samples.collect(),
                ..event.clone()
            }),
        }
    }
}

/// Adds a peer: equal pairs of process and peer become one.
fn peer(out: &mut Vec<Peer>, p: &Peer, code: &CodeMap, map: &ThreadMap) {
    let moved = p.stacks.iter().map(|s| PeerStack {
        context: map.context(s.context),
        stack: code.stack(s.stack),
        ..*s
    });
    let same = |q: &&mut Peer| (q.pid, q.asks, &q.address) == (p.pid, p.asks, &p.address);
    match out.iter_mut().find(same) {
        Some(q) => {
            q.connections += p.connections;
            q.requests += p.requests;
            q.requests_at_least |= p.requests_at_least;
            q.in_flight_ns += p.in_flight_ns;
            q.stacks.extend(moved);
        }
        None => out.push(Peer {
            stacks: moved.collect(),
            ..p.clone()
        }),
    }
}

fn tasks(out: &mut Vec<TaskGroup>, g: &TaskGroup, code: &CodeMap) {
    let times = g.times.iter().map(|t| TaskTime {
        stack: t.stack.map(|s| code.stack(s)),
        labels: code.labels(t.labels),
        ..t.clone()
    });
    let same = |h: &&mut TaskGroup| (h.pid, &h.kind, &h.name) == (g.pid, &g.kind, &g.name);
    match out.iter_mut().find(same) {
        Some(h) => {
            h.seen += g.seen;
            h.polls += g.polls;
            h.times.extend(times);
        }
        None => out.push(TaskGroup {
            times: times.collect(),
            ..g.clone()
        }),
    }
}

/// Adds lanes.
fn timeline(out: &mut Option<Timeline>, more: Option<&Timeline>, map: &ThreadMap) {
    let Some(more) = more else { return };
    let out = out.get_or_insert_default();
    let interval = |i: &Interval| Interval {
        waker: i.waker.map(|w| map.context(w)),
        ..*i
    };
    out.lanes.extend(more.lanes.iter().map(|l| Lane {
        context: map.context(l.context),
        intervals: l.intervals.iter().map(interval).collect(),
    }));
    out.limit_bytes += more.limit_bytes;
    out.dropped += more.dropped;
    out.lost += more.lost;
}

fn cost(a: &Cost, b: &Cost) -> Cost {
    Cost {
        bpf_ns: a.bpf_ns + b.bpf_ns,
        displaced_ns: a.displaced_ns + b.displaced_ns,
        own_cpu_ns: a.own_cpu_ns + b.own_cpu_ns,
        rss_bytes: a.rss_bytes.max(b.rss_bytes),
        kernel_bytes: a.kernel_bytes.max(b.kernel_bytes),
        target_stopped_ns: a.target_stopped_ns + b.target_stopped_ns,
    }
}
