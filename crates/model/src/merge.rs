//! Merges several recordings into one: their threads side by side, their code shared.
//!
//! Contexts stay separate, even with equal pid and tid: each has its own window and ledger, and
//! each ledger balances by itself. Equal files, functions, addresses and stacks become one. If all
//! recordings have slices of one length, their slices follow one another; otherwise slices are
//! dropped. Host facts keep the given order.
//!
//! Recordings with different methods (another backend, or exact in one and estimated in another)
//! measure different domains. Counts of two domains never add: this is an error.

use std::collections::HashMap;
use std::hash::Hash;

use crate::shape::ShapeRow;
use crate::{
    Above, Actor, ActorId, Column, ContextId, Cost, Domain, EventHits, Frame, FrameId, FunctionId,
    Hop, Interval, Label, LabelsId, Lane, LedgerSlice, Line, LockWait, ModuleId, Peer, PeerStack,
    Recording, Sample, SliceValue, Slices, Stack, StackId, TaskGroup, TaskTime, Timeline, Window,
};

/// Reason why recordings cannot be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MergeError {
    /// There are none.
    Nothing,
    /// They have different domains.
    Domains {
        /// The difference, in words.
        what: String,
    },
}

impl std::fmt::Display for MergeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MergeError::Nothing => f.write_str("there is nothing to merge"),
            MergeError::Domains { what } => {
                write!(
                    f,
                    "they measure different things, which do not add ({what})"
                )
            }
        }
    }
}

impl std::error::Error for MergeError {}

/// Merges `recordings` in the given order.
///
/// # Errors
/// [`MergeError`] if there are none, or their domains differ.
pub fn merge(recordings: &[Recording]) -> Result<Recording, MergeError> {
    let first = recordings.first().ok_or(MergeError::Nothing)?;
    for other in &recordings[1..] {
        compatible(&first.domain, &other.domain)?;
    }
    let mut into = Into {
        out: Recording {
            domain: domain(recordings),
            window: window(recordings),
            slices: slices(recordings),
            ..Recording::default()
        },
        ..Into::default()
    };
    for rec in recordings {
        into.add(rec);
    }
    Ok(into.out)
}

/// Checks whether figures of two domains can be added or subtracted.
///
/// # Errors
/// [`MergeError::Domains`] with the difference.
pub fn compatible(a: &Domain, b: &Domain) -> Result<(), MergeError> {
    let differ = |what: String| Err(MergeError::Domains { what });
    if a.backend != b.backend {
        return differ(format!("backend {} and {}", a.backend, b.backend));
    }
    if a.unit != b.unit {
        return differ(format!("{} and {}", a.unit.name(), b.unit.name()));
    }
    let exact = |d: &Domain| -> Vec<_> { d.columns.iter().map(|c| (c.state, c.exact)).collect() };
    if exact(a) != exact(b) {
        return differ("a state is counted in one and estimated in another".to_string());
    }
    Ok(())
}

const MERGED: &str = "merged from ";

/// The merged domain: values that all share, else the value of each.
fn domain(recordings: &[Recording]) -> Domain {
    fn each(recordings: &[Recording], of: impl Fn(&Domain) -> &str) -> String {
        let mut values: Vec<&str> = Vec::new();
        for v in recordings.iter().flat_map(|r| of(&r.domain).split("; ")) {
            if !v.is_empty() && !values.contains(&v) {
                values.push(v);
            }
        }
        values.join("; ")
    }
    fn all<T: Clone + PartialEq>(recordings: &[Recording], of: impl Fn(&Domain) -> &[T]) -> Vec<T> {
        let mut values = Vec::new();
        for v in recordings.iter().flat_map(|r| of(&r.domain)) {
            if !values.contains(v) {
                values.push(v.clone());
            }
        }
        values
    }
    let mut columns: Vec<Column> = recordings[0].domain.columns.clone();
    for c in &mut columns {
        c.how = each(recordings, |d| {
            let same = d.columns.iter().find(|o| o.state == c.state);
            same.map_or("", |o| &o.how)
        });
    }
    // A merge of merges is a merge of all.
    let of = |note: &str| {
        note.strip_prefix(MERGED)?
            .strip_suffix(" recordings")?
            .parse()
            .ok()
    };
    let merged = |d: &Domain| d.notes.iter().find_map(|n| of(n)).unwrap_or(1u64);
    let count: u64 = recordings.iter().map(|r| merged(&r.domain)).sum();
    let mut notes = vec![format!("{MERGED}{count} recordings")];
    notes.extend(
        all(recordings, |d| &d.notes)
            .into_iter()
            .filter(|n| of(n).is_none()),
    );
    Domain {
        tool: each(recordings, |d| &d.tool),
        backend: each(recordings, |d| &d.backend),
        backend_reason: each(recordings, |d| &d.backend_reason),
        privilege: each(recordings, |d| &d.privilege),
        kernel: each(recordings, |d| &d.kernel),
        cpus: recordings.iter().map(|r| r.domain.cpus).max().unwrap_or(0),
        target: each(recordings, |d| &d.target),
        events: all(recordings, |d| &d.events),
        columns,
        limits: all(recordings, |d| &d.limits),
        notes,
        unit: recordings[0].domain.unit.clone(),
    }
}

fn window(recordings: &[Recording]) -> Window {
    let start = recordings.iter().map(|r| r.window.start_ns).min();
    let end = recordings.iter().map(|r| r.window.end_ns).max();
    let unix = recordings.iter().map(|r| r.window.start_unix_ns).min();
    Window {
        start_ns: start.unwrap_or(0),
        end_ns: end.unwrap_or(0),
        clock: recordings[0].window.clock.clone(),
        start_unix_ns: unix.unwrap_or(0),
    }
}

fn slices(recordings: &[Recording]) -> Slices {
    let width = recordings[0].slices.width_ns;
    let same = |r: &Recording| r.slices.width_ns == width && r.slices.count > 0;
    let count = recordings
        .iter()
        .try_fold(0u32, |sum, r| sum.checked_add(r.slices.count));
    match count {
        Some(count) if width > 0 && recordings.iter().all(same) => Slices {
            start_ns: recordings[0].slices.start_ns,
            width_ns: width,
            count,
        },
        _ => Slices::default(),
    }
}

/// Adds peers: equal pairs of process and peer become one.
fn peers(out: &mut Vec<Peer>, more: &[Peer], contexts: u32, stacks: &[u32]) {
    for p in more {
        let moved = p.stacks.iter().map(|s| PeerStack {
            context: ContextId(s.context.0 + contexts),
            stack: StackId(stacks[s.stack.0 as usize]),
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
}

/// Adds histograms: those over all threads become one, those of a thread stay separate.
fn shapes(out: &mut Vec<ShapeRow>, more: &[ShapeRow], contexts: u32, stacks: &[u32]) {
    for row in more {
        let row = ShapeRow {
            context: row.context.map(|c| ContextId(c.0 + contexts)),
            stack: row.stack.map(|s| StackId(stacks[s.0 as usize])),
            ..row.clone()
        };
        let same = |o: &&mut ShapeRow| {
            row.context.is_none()
                && (o.context, o.stack, o.state, o.reason, o.part)
                    == (None, row.stack, row.state, row.reason, row.part)
        };
        match out.iter_mut().find(same) {
            Some(old) => old.shape.merge(&row.shape),
            None => out.push(row),
        }
    }
}

/// Adds lanes; contexts stay separate.
fn timeline(out: &mut Option<Timeline>, more: Option<&Timeline>, contexts: u32) {
    let Some(more) = more else { return };
    let out = out.get_or_insert_default();
    let context = |c: ContextId| ContextId(c.0 + contexts);
    out.lanes.extend(more.lanes.iter().map(|l| {
        Lane {
            context: context(l.context),
            intervals: (l.intervals.iter())
                .map(|i| Interval {
                    waker: i.waker.map(context),
                    ..*i
                })
                .collect(),
        }
    }));
    out.limit_bytes += more.limit_bytes;
    out.dropped += more.dropped;
    out.lost += more.lost;
}

/// The merged recording, and the index of equal values in it.
#[derive(Default)]
struct Into {
    out: Recording,
    modules: HashMap<crate::Module, u32>,
    functions: HashMap<crate::Function, u32>,
    frames: HashMap<Frame, u32>,
    stacks: HashMap<Stack, u32>,
    label_sets: HashMap<Vec<Label>, u32>,
    actors: HashMap<Actor, u32>,
    /// Number of slices of the recordings before this one.
    slices: u32,
}

fn place<T: Clone + Eq + Hash>(list: &mut Vec<T>, index: &mut HashMap<T, u32>, value: T) -> u32 {
    let next = list.len() as u32;
    *index.entry(value).or_insert_with_key(|v| {
        list.push(v.clone());
        next
    })
}

impl Into {
    fn add(&mut self, rec: &Recording) {
        let out = &mut self.out;
        let contexts = out.contexts.len() as u32;
        out.contexts.extend(rec.contexts.iter().cloned());
        for p in &rec.processes {
            match out
                .processes
                .iter_mut()
                .find(|q| q.pid == p.pid && q.exe == p.exe)
            {
                Some(q) => q.unattributed_on_cpu_ns += p.unattributed_on_cpu_ns,
                None => out.processes.push(p.clone()),
            }
        }
        let modules: Vec<u32> = (rec.modules.iter().cloned())
            .map(|m| place(&mut out.modules, &mut self.modules, m))
            .collect();
        let functions: Vec<u32> = (rec.functions.iter().cloned())
            .map(|f| place(&mut out.functions, &mut self.functions, f))
            .collect();
        let frames: Vec<u32> = (rec.frames.iter())
            .map(|f| Frame {
                kind: f.kind,
                module: f.module.map(|m| ModuleId(modules[m.0 as usize])),
                address: f.address,
                lines: (f.lines.iter())
                    .map(|l| Line {
                        function: FunctionId(functions[l.function.0 as usize]),
                        line: l.line,
                    })
                    .collect(),
            })
            .map(|f| place(&mut out.frames, &mut self.frames, f))
            .collect();
        let stacks: Vec<u32> = (rec.stacks.iter())
            .map(|s| Stack {
                frames: s
                    .frames
                    .iter()
                    .map(|f| FrameId(frames[f.0 as usize]))
                    .collect(),
                end: s.end,
            })
            .map(|s| place(&mut out.stacks, &mut self.stacks, s))
            .collect();
        let label_sets: Vec<u32> = (rec.label_sets.iter().cloned())
            .map(|set| place(&mut out.label_sets, &mut self.label_sets, set))
            .collect();
        let samples_before = out.samples.len() as u32;
        let before = self.slices;
        let sliced = out.slices.count > 0;
        let values = |s: &Sample| -> Vec<SliceValue> {
            let moved = |v: &SliceValue| SliceValue {
                slice: v.slice + before,
                ..*v
            };
            s.slices.iter().filter(|_| sliced).map(moved).collect()
        };
        let context = |c: ContextId| ContextId(c.0 + contexts);
        let sample = |s: &Sample| Sample {
            context: context(s.context),
            stack: StackId(stacks[s.stack.0 as usize]),
            labels: s.labels.map(|l| LabelsId(label_sets[l.0 as usize])),
            slices: values(s),
            ..s.clone()
        };
        out.samples.extend(rec.samples.iter().map(sample));
        for event in &rec.events {
            let hits = event.hits.iter().map(|(c, n)| (context(*c), *n));
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
        let set = |l: Option<LabelsId>| l.map(|l| LabelsId(label_sets[l.0 as usize]));
        let actors: Vec<u32> = (rec.actors.iter())
            .map(|a| match a {
                Actor::Context(c) => Actor::Context(context(*c)),
                other => other.clone(),
            })
            .map(|a| place(&mut out.actors, &mut self.actors, a))
            .collect();
        let hops_before = out.hops.len() as u32;
        out.hops.extend(rec.hops.iter().map(|h| Hop {
            above: match h.above {
                Above::Sample(s) => Above::Sample(s + samples_before),
                Above::Hop(h) => Above::Hop(h + hops_before),
            },
            actor: ActorId(actors[h.actor.0 as usize]),
            stack: h.stack.map(|s| StackId(stacks[s.0 as usize])),
            labels: set(h.labels),
            ..h.clone()
        }));
        out.locks.extend(rec.locks.iter().map(|l| LockWait {
            context: context(l.context),
            labels: set(l.labels),
            ..*l
        }));
        if sliced {
            let moved = |r: LedgerSlice| LedgerSlice {
                context: r.context + contexts,
                slice: r.slice + before,
                ..r
            };
            out.ledger_slices
                .extend(rec.ledger_slices.iter().map(moved));
            self.slices += rec.slices.count;
        }
        peers(&mut out.peers, &rec.peers, contexts, &stacks);
        shapes(&mut out.shapes, &rec.shapes, contexts, &stacks);
        for g in &rec.tasks {
            let times = g.times.iter().map(|t| TaskTime {
                stack: t.stack.map(|s| StackId(stacks[s.0 as usize])),
                labels: set(t.labels),
                ..t.clone()
            });
            let same = |h: &&mut TaskGroup| (h.pid, &h.kind, &h.name) == (g.pid, &g.kind, &g.name);
            match out.tasks.iter_mut().find(same) {
                Some(h) => {
                    h.seen += g.seen;
                    h.looks += g.looks;
                    h.times.extend(times);
                }
                None => out.tasks.push(TaskGroup {
                    times: times.collect(),
                    ..g.clone()
                }),
            }
        }
        timeline(&mut out.timeline, rec.timeline.as_ref(), contexts);
        out.host.extend(rec.host.iter().cloned());
        for l in &rec.losses {
            match out.losses.iter_mut().find(|m| m.cause == l.cause) {
                Some(m) => m.count += l.count,
                None => out.losses.push(l.clone()),
            }
        }
        out.cost = Cost {
            bpf_ns: out.cost.bpf_ns + rec.cost.bpf_ns,
            own_cpu_ns: out.cost.own_cpu_ns + rec.cost.own_cpu_ns,
            rss_bytes: out.cost.rss_bytes.max(rec.cost.rss_bytes),
            kernel_bytes: out.cost.kernel_bytes.max(rec.cost.kernel_bytes),
            target_stopped_ns: out.cost.target_stopped_ns + rec.cost.target_stopped_ns,
        };
    }
}
