//! Recordings that no program ever was, for properties that hold of all.

use wallscope_model::histogram::{Histogram, HistogramRow};
use wallscope_model::*;

use crate::Random;

mod draw;
mod host;

use draw::{BIG, Draw};

/// Any recording at all, as long as its indices are right and its sums do not overflow.
pub fn random(seed: u64) -> Recording {
    let d = &mut Draw(Random(seed));
    let mut rec = Recording {
        window: Window {
            start_ns: d.big(),
            end_ns: d.big(),
            clock: d.text(),
            start_unix_ns: d.big(),
        },
        slices: Slices {
            start_ns: d.big(),
            width_ns: d.big(),
            count: 1 + d.small(30),
        },
        domain: domain(d),
        ..Recording::default()
    };
    code(d, &mut rec);
    rec.contexts = d.some(5, context);
    rec.processes = d.list(4, process);
    rec.label_sets = d.list(4, label_set);
    rec.samples = d.list(30, |d| sample(d, &rec));
    rec.events = (0..d.n(3)).map(|i| event(d, &rec, i)).collect();
    rec.actors = actors(d, &rec);
    let hops = if rec.samples.is_empty() { 0 } else { d.n(20) };
    rec.hops = (0..hops).map(|i| hop(d, &rec, i)).collect();
    rec.locks = d.list(5, |d| lock_wait(d, &rec));
    for row in d.list(10, |d| ledger_slice(d, &rec)) {
        rec.ledger_slices.push(row);
    }
    rec.host = d.list(3, host::sample);
    rec.peers = d.list(3, |d| peer(d, &rec));
    rec.pauses = (0..d.n(3)).map(|i| pauses(d, i)).collect();
    rec.histograms = d.list(4, |d| histogram(d, &rec));
    rec.timeline = (d.n(3) > 0).then(|| timeline(d, &rec));
    rec.losses = d.list(3, |d| Loss {
        cause: d.text(),
        count: d.big(),
    });
    rec.cost = Cost {
        bpf_ns: d.big(),
        displaced_ns: d.big(),
        own_cpu_ns: d.big(),
        rss_bytes: d.big(),
        kernel_bytes: d.big(),
        target_stopped_ns: d.big(),
    };
    rec
}

fn domain(d: &mut Draw) -> Domain {
    Domain {
        tool: d.text(),
        backend: d.text(),
        backend_reason: d.text(),
        privilege: d.text(),
        kernel: d.text(),
        cpus: d.small(300),
        target: d.text(),
        events: d.list(3, |d| EventSource {
            what: d.text(),
            event: d.text(),
            rate: d.text(),
        }),
        columns: d.list(4, |d| Column {
            state: d.pick(State::ALL),
            exact: d.coin(),
            how: d.text(),
        }),
        limits: d.list(3, |d| Limit {
            what: d.text(),
            remedy: d.text(),
        }),
        notes: d.list(3, Draw::text),
        unit: match d.n(4) {
            0 => Unit::Bytes,
            1 => Unit::Count("cycles".to_string()),
            _ => Unit::Nanoseconds,
        },
    }
}

/// Modules, functions, frames and stacks.
fn code(d: &mut Draw, rec: &mut Recording) {
    rec.modules = d.list(4, |d| Module {
        kind: d.pick(&[
            ModuleKind::Elf,
            ModuleKind::Kernel,
            ModuleKind::Vdso,
            ModuleKind::Jit,
        ]),
        path: d.name(),
        build_id: d.name(),
        pid: d.small(1000),
    });
    rec.functions = d.list(6, |d| Function {
        name: d.name(),
        system_name: d.name(),
        file: d.name(),
        start_line: d.small(1 << 32),
    });
    rec.frames = d.list(12, |d| frame(d, rec));
    rec.stacks = d.some(8, |d| {
        let frames = if rec.frames.is_empty() { 0 } else { d.n(9) };
        Stack {
            frames: (0..frames).map(|_| FrameId(d.index(&rec.frames))).collect(),
            end: d.pick(StackEnd::ALL),
        }
    });
}

fn frame(d: &mut Draw, rec: &Recording) -> Frame {
    let lines = if rec.functions.is_empty() { 0 } else { d.n(3) };
    let module = (!rec.modules.is_empty() && d.n(3) > 0).then(|| ModuleId(d.index(&rec.modules)));
    Frame {
        kind: d.pick(&[FrameKind::Native, FrameKind::Kernel, FrameKind::Jit]),
        module,
        address: if d.coin() { d.n(u64::MAX) } else { d.n(4096) },
        lines: (0..lines)
            .map(|_| Line {
                function: FunctionId(d.index(&rec.functions)),
                line: d.small(1 << 32),
            })
            .collect(),
    }
}

fn context(d: &mut Draw) -> Context {
    let mut ledger = Ledger {
        wall_ns: d.big(),
        repaired_ns: d.big(),
        idle_ns: d.big(),
        voluntary_switches: d.big(),
        involuntary_switches: d.big(),
        audit: Audit {
            on_cpu_ns: d.big(),
            run_delay_ns: d.big(),
            switches: d.big(),
            valid: d.coin(),
        },
        on_cpu: OnCpu {
            user: d.big(),
            kernel: d.big(),
            irq: d.big(),
            stolen: d.big(),
        },
        runnable: Runnable {
            woken: d.big(),
            preempted: d.big(),
            throttled: d.big(),
        },
        ..Ledger::default()
    };
    (ledger.blocked.iter_mut()).for_each(|b| *b = d.n(3) * d.big());
    (ledger.unknown.iter_mut()).for_each(|b| *b = d.n(2) * d.big());
    Context {
        pid: d.id(),
        tid: d.id(),
        name: d.name(),
        start_ns: d.big(),
        end_ns: d.big(),
        ledger,
    }
}

fn process(d: &mut Draw) -> Process {
    Process {
        pid: d.id(),
        parent: d.id(),
        name: d.name(),
        exe: d.name(),
        cmdline: d.name(),
        unattributed_on_cpu_ns: d.big(),
        folded_threads: d.big(),
        user: d.maybe(|d| FileUser {
            uid: d.small(1 << 31),
            gid: d.small(1 << 31),
        }),
    }
}

fn label_set(d: &mut Draw) -> Vec<Label> {
    let text = LabelValue::Text(d.name());
    let number = LabelValue::Number(d.big() as i64 - (BIG / 2) as i64, d.name());
    let mut set = Vec::new();
    for value in [text, number] {
        let key = d.name();
        set.push(Label { key, value });
    }
    set.truncate(d.n(3) as usize);
    set
}

fn sample(d: &mut Draw, rec: &Recording) -> Sample {
    let slices = d.list(4, |d| SliceValue {
        slice: d.small(u64::from(rec.slices.count)),
        count: d.n(1000),
        ns: d.big(),
    });
    Sample {
        context: d.context(rec),
        stack: d.stack(rec),
        state: d.pick(State::ALL),
        reason: d.reason(),
        part: d.part(),
        idle: d.coin(),
        cpu: d.maybe(|d| d.small(1 << 32)),
        labels: d.labels(rec),
        count: d.n(1000),
        ns: d.big(),
        slices,
    }
}

fn event(d: &mut Draw, rec: &Recording, number: u64) -> EventHits {
    EventHits {
        name: format!("event-{number}"),
        counted: d.coin(),
        hits: d.list(4, |d| (d.context(rec), d.big())),
        samples: (rec.samples.iter())
            .take(d.n(5) as usize)
            .cloned()
            .collect(),
    }
}

fn actors(d: &mut Draw, rec: &Recording) -> Vec<Actor> {
    vec![
        Actor::Unknown,
        Actor::Context(d.context(rec)),
        Actor::Interrupt(d.name()),
        Actor::Stranger {
            pid: d.id(),
            tid: 1 + d.id(),
            name: d.name(),
        },
    ]
}

/// A hop below a sample, or below one of the `before` hops that come first.
fn hop(d: &mut Draw, rec: &Recording, before: u64) -> Hop {
    Hop {
        above: if before == 0 || d.coin() {
            Above::Sample(d.index(&rec.samples))
        } else {
            Above::Hop(d.small(before))
        },
        role: d.pick(&Role::ALL),
        actor: ActorId(d.index(&rec.actors)),
        stack: d.maybe(|d| d.stack(rec)),
        reason: d.reason(),
        part: d.part(),
        labels: d.labels(rec),
        count: d.n(1000),
        ns: d.big(),
    }
}

fn lock_wait(d: &mut Draw, rec: &Recording) -> LockWait {
    LockWait {
        context: d.context(rec),
        labels: d.labels(rec),
        address: d.n(u64::MAX),
        total_ns: d.big(),
        longest_ns: d.big(),
        count: d.n(1000),
    }
}

fn ledger_slice(d: &mut Draw, rec: &Recording) -> LedgerSlice {
    let mut row = LedgerSlice {
        context: d.index(&rec.contexts),
        slice: d.small(u64::from(rec.slices.count)),
        on_cpu_ns: d.big(),
        runnable_ns: d.big(),
        ..LedgerSlice::default()
    };
    (row.blocked.iter_mut()).for_each(|b| *b = d.n(2) * d.big());
    row
}

fn peer(d: &mut Draw, rec: &Recording) -> Peer {
    Peer {
        pid: d.id(),
        asks: d.coin(),
        address: d.name(),
        peer_pid: d.id(),
        peer_name: d.name(),
        connections: d.small(1 << 32),
        requests: d.big(),
        requests_at_least: d.coin(),
        in_flight_ns: d.big(),
        stacks: d.list(3, |d| PeerStack {
            context: d.context(rec),
            stack: d.stack(rec),
            requests: d.big(),
            ns: d.big(),
        }),
    }
}

/// Pauses of a process of its own: no two groups have one process.
fn pauses(d: &mut Draw, group: u64) -> PauseGroup {
    let mut pauses = PauseGroup {
        pid: (group << 20 | d.n(1 << 20)) as u32,
        operation: d.name(),
        kind: d.name(),
        cause: d.name(),
        ..PauseGroup::default()
    };
    for _ in 0..d.n(50) {
        pauses.add(Pause {
            start_ns: d.big(),
            length_ns: d.big(),
        });
    }
    pauses
}

fn histogram(d: &mut Draw, rec: &Recording) -> HistogramRow {
    let mut histogram = Histogram::new(d.small(6));
    for _ in 0..d.n(6) {
        histogram.add(d.big(), d.n(1000) as f64 + 0.125);
    }
    HistogramRow {
        context: d.maybe(|d| d.context(rec)),
        stack: d.maybe(|d| d.stack(rec)),
        state: d.pick(State::ALL),
        reason: d.reason(),
        part: d.part(),
        histogram,
    }
}

fn timeline(d: &mut Draw, rec: &Recording) -> Timeline {
    let mut lanes = Vec::new();
    for (context, c) in (0u32..).map(ContextId).zip(&rec.contexts) {
        let mut at = c.start_ns;
        let intervals = d.list(6, |d| {
            let interval = interval(d, rec, at);
            at = interval.start_ns + interval.ns;
            interval
        });
        if !intervals.is_empty() {
            lanes.push(Lane { context, intervals });
        }
    }
    Timeline {
        lanes,
        limit_bytes: d.big(),
        dropped: d.big(),
        lost: d.big(),
    }
}

/// An interval that begins at `at` or later.
fn interval(d: &mut Draw, rec: &Recording, at: u64) -> Interval {
    let state = d.pick(State::ALL);
    let blocked = state == State::Blocked;
    Interval {
        start_ns: at + d.n(3) * d.big(),
        ns: d.big(),
        state,
        reason: d.reason().filter(|_| blocked),
        part: d.part().filter(|_| !blocked),
        waker: d.maybe(|d| d.context(rec)).filter(|_| blocked),
        request: blocked && d.n(2) > 0,
        idle: blocked && d.n(2) > 0,
    }
}
