//! Recordings that no program ever was, for what must hold of all.

use std::sync::Arc;

use wallscope_model::histogram::{Histogram, HistogramRow};
use wallscope_model::*;

use crate::Random;

/// Any recording at all, as long as its indices are right and its sums do not overflow.
pub fn random(seed: u64) -> Recording {
    let mut r = Random(seed);
    let mut n = |below: u64| r.below(below);
    let words = [
        "",
        "a",
        "naïve;\nname",
        "operator new(unsigned long)",
        "[kernel]",
        "x y ",
    ];
    macro_rules! word {
        () => {
            words[n(words.len() as u64) as usize]
        };
    }
    macro_rules! pick {
        ($all:expr) => {
            $all[n($all.len() as u64) as usize]
        };
    }
    macro_rules! maybe {
        ($value:expr) => {
            if n(2) == 0 { None } else { Some($value) }
        };
    }
    const BIG: u64 = 1 << 40;
    let mut rec = Recording {
        window: Window {
            start_ns: n(BIG),
            end_ns: n(BIG),
            clock: word!().to_string(),
            start_unix_ns: n(BIG),
        },
        slices: Slices {
            start_ns: n(BIG),
            width_ns: n(BIG),
            count: 1 + n(30) as u32,
        },
        ..Recording::default()
    };
    rec.domain = Domain {
        tool: word!().to_string(),
        backend: word!().to_string(),
        backend_reason: word!().to_string(),
        privilege: word!().to_string(),
        kernel: word!().to_string(),
        cpus: n(300) as u32,
        target: word!().to_string(),
        events: (0..n(3))
            .map(|_| EventSource {
                what: word!().to_string(),
                event: word!().to_string(),
                rate: word!().to_string(),
            })
            .collect(),
        columns: (0..n(4))
            .map(|_| Column {
                state: pick!(State::ALL),
                exact: n(2) == 0,
                how: word!().to_string(),
            })
            .collect(),
        limits: (0..n(3))
            .map(|_| Limit {
                what: word!().to_string(),
                remedy: word!().to_string(),
            })
            .collect(),
        notes: (0..n(3)).map(|_| word!().to_string()).collect(),
        unit: match n(4) {
            0 => Unit::Bytes,
            1 => Unit::Count("cycles".to_string()),
            _ => Unit::Nanoseconds,
        },
    };
    for _ in 0..n(4) {
        let kind = pick!([
            ModuleKind::Elf,
            ModuleKind::Kernel,
            ModuleKind::Vdso,
            ModuleKind::Jit
        ]);
        rec.modules.push(Module {
            kind,
            path: Arc::from(word!()),
            build_id: Arc::from(word!()),
            pid: n(1000) as u32,
        });
    }
    for _ in 0..n(6) {
        rec.functions.push(Function {
            name: Arc::from(word!()),
            system_name: Arc::from(word!()),
            file: Arc::from(word!()),
            start_line: n(1 << 32) as u32,
        });
    }
    for _ in 0..n(12) {
        let lines = if rec.functions.is_empty() { 0 } else { n(3) };
        let module = (!rec.modules.is_empty() && n(3) > 0)
            .then(|| ModuleId(n(rec.modules.len() as u64) as u32));
        rec.frames.push(Frame {
            kind: pick!([FrameKind::Native, FrameKind::Kernel, FrameKind::Jit]),
            module,
            address: if n(2) == 0 { n(u64::MAX) } else { n(4096) },
            lines: (0..lines)
                .map(|_| Line {
                    function: FunctionId(n(rec.functions.len() as u64) as u32),
                    line: n(1 << 32) as u32,
                })
                .collect(),
        });
    }
    for _ in 0..1 + n(8) {
        let frames = if rec.frames.is_empty() { 0 } else { n(9) };
        rec.stacks.push(Stack {
            frames: (0..frames)
                .map(|_| FrameId(n(rec.frames.len() as u64) as u32))
                .collect(),
            end: pick!(StackEnd::ALL),
        });
    }
    for _ in 0..1 + n(5) {
        let mut l = Ledger {
            wall_ns: n(BIG),
            repaired_ns: n(BIG),
            idle_ns: n(BIG),
            voluntary_switches: n(BIG),
            involuntary_switches: n(BIG),
            audit: Audit {
                on_cpu_ns: n(BIG),
                run_delay_ns: n(BIG),
                switches: n(BIG),
                valid: n(2) == 0,
            },
            ..Ledger::default()
        };
        l.on_cpu = OnCpu {
            user: n(BIG),
            kernel: n(BIG),
            irq: n(BIG),
            stolen: n(BIG),
        };
        l.runnable = Runnable {
            woken: n(BIG),
            preempted: n(BIG),
            throttled: n(BIG),
        };
        l.blocked.iter_mut().for_each(|b| *b = n(3) * n(BIG));
        l.unknown.iter_mut().for_each(|b| *b = n(2) * n(BIG));
        rec.contexts.push(Context {
            pid: n(1 << 22) as u32,
            tid: n(1 << 22) as u32,
            name: Arc::from(word!()),
            start_ns: n(BIG),
            end_ns: n(BIG),
            ledger: l,
        });
    }
    for _ in 0..n(4) {
        rec.processes.push(Process {
            pid: n(1 << 22) as u32,
            parent: n(1 << 22) as u32,
            name: Arc::from(word!()),
            exe: Arc::from(word!()),
            cmdline: Arc::from(word!()),
            unattributed_on_cpu_ns: n(BIG),
            user: (n(2) == 1).then(|| FileUser {
                uid: n(1 << 31) as u32,
                gid: n(1 << 31) as u32,
            }),
        });
    }
    for _ in 0..n(4) {
        let label = |key: &str, value| Label {
            key: Arc::from(key),
            value,
        };
        let text = LabelValue::Text(Arc::from(word!()));
        let number = LabelValue::Number(n(BIG) as i64 - (BIG / 2) as i64, Arc::from(word!()));
        let mut set = vec![label(word!(), text), label(word!(), number)];
        set.truncate(n(3) as usize);
        rec.label_sets.push(set);
    }
    for _ in 0..n(30) {
        let slices: Vec<SliceValue> = (0..n(4))
            .map(|_| SliceValue {
                slice: n(u64::from(rec.slices.count)) as u32,
                count: n(1000),
                ns: n(BIG),
            })
            .collect();
        rec.samples.push(Sample {
            context: ContextId(n(rec.contexts.len() as u64) as u32),
            stack: StackId(n(rec.stacks.len() as u64) as u32),
            state: pick!(State::ALL),
            reason: maybe!(pick!(BlockReason::ALL)),
            part: maybe!(pick!(Part::ALL)),
            idle: n(2) == 0,
            cpu: maybe!(n(1 << 32) as u32),
            labels: (!rec.label_sets.is_empty() && n(2) == 0)
                .then(|| LabelsId(n(rec.label_sets.len() as u64) as u32)),
            count: n(1000),
            ns: n(BIG),
            slices,
        });
    }
    for event in 0..n(3) {
        let contexts = rec.contexts.len() as u64;
        rec.events.push(EventHits {
            name: format!("event-{event}"),
            counted: n(2) == 0,
            hits: (0..n(4))
                .map(|_| (ContextId(n(contexts) as u32), n(BIG)))
                .collect(),
            samples: rec.samples.iter().take(n(5) as usize).cloned().collect(),
        });
    }
    rec.actors = vec![
        Actor::Unknown,
        Actor::Context(ContextId(n(rec.contexts.len() as u64) as u32)),
        Actor::Interrupt(Arc::from(word!())),
        Actor::Stranger {
            pid: n(1 << 22) as u32,
            tid: 1 + n(1 << 22) as u32,
            name: Arc::from(word!()),
        },
    ];
    let (samples, sets) = (rec.samples.len() as u64, rec.label_sets.len() as u64);
    for hop in 0..if samples > 0 { n(20) } else { 0 } {
        rec.hops.push(Hop {
            above: if hop == 0 || n(2) == 0 {
                Above::Sample(n(samples) as u32)
            } else {
                Above::Hop(n(hop) as u32)
            },
            role: pick!(Role::ALL),
            actor: ActorId(n(4) as u32),
            stack: maybe!(StackId(n(rec.stacks.len() as u64) as u32)),
            reason: maybe!(pick!(BlockReason::ALL)),
            part: maybe!(pick!(Part::ALL)),
            labels: (sets > 0 && n(2) == 0).then(|| LabelsId(n(sets) as u32)),
            count: n(1000),
            ns: n(BIG),
        });
    }
    for _ in 0..n(5) {
        rec.locks.push(LockWait {
            context: ContextId(n(rec.contexts.len() as u64) as u32),
            labels: (sets > 0 && n(2) == 0).then(|| LabelsId(n(sets) as u32)),
            address: n(u64::MAX),
            total_ns: n(BIG),
            longest_ns: n(BIG),
            count: n(1000),
        });
    }
    for _ in 0..n(10) {
        let mut row = LedgerSlice {
            context: n(rec.contexts.len() as u64) as u32,
            slice: n(u64::from(rec.slices.count)) as u32,
            on_cpu_ns: n(BIG),
            runnable_ns: n(BIG),
            ..LedgerSlice::default()
        };
        row.blocked.iter_mut().for_each(|b| *b = n(2) * n(BIG));
        rec.ledger_slices.push(row);
    }
    for _ in 0..n(3) {
        let mut facts = HostFacts {
            load: maybe!([0.5, n(100) as f64, 1.25]),
            runnable_tasks: maybe!(n(3)),
            cpu_ns: maybe!([0, 1, 2, 3, 4, 5, n(BIG), 7]),
            context_switches: maybe!(n(BIG)),
            psi_memory: maybe!(Pressure {
                some_avg10: n(100) as f64,
                some_total_us: n(BIG),
                full_avg10: 0.0,
                full_total_us: n(BIG),
            }),
            memory: maybe!([n(BIG), 0, 0, 1]),
            major_faults: maybe!(0),
            net: maybe!(NetFacts {
                tcp_in_use: n(BIG),
                ..NetFacts::default()
            }),
            cgroup: maybe!(CgroupFacts {
                path: word!().to_string(),
                quota_us: maybe!(n(9)),
                memory_limit_bytes: maybe!(0),
                memory_limit_hits: maybe!(n(BIG)),
                tasks: maybe!(0),
                tasks_limit: maybe!(n(9)),
                ..CgroupFacts::default()
            }),
            cpu_busy_ns: (0..n(3)).map(|_| n(BIG)).collect(),
            ..HostFacts::default()
        };
        for _ in 0..n(3) {
            facts.disks.push(DiskFacts {
                name: word!().to_string(),
                reads: n(BIG),
                busy_ms: n(BIG),
                ..DiskFacts::default()
            });
            facts.limits.push(Limits {
                pid: n(BIG) as u32,
                threads: maybe!(0),
                cpus: word!().to_string(),
                read_bytes: maybe!(n(BIG)),
                resident_bytes: maybe!(0),
                ..Limits::default()
            });
            facts.listeners.push(Listener {
                address: word!().to_string(),
                queued: n(BIG) as u32,
                room: n(9) as u32,
            });
            facts.connections.push(Connections {
                peer: word!().to_string(),
                state: word!().to_string(),
                count: n(BIG) as u32,
                silent_ms: n(BIG),
                unread_bytes: n(BIG),
                unsent_bytes: n(9),
                retransmits: n(BIG),
                held_back: n(9) as u32,
            });
            facts.neighbours.push(Neighbour {
                pid: n(BIG) as u32,
                name: word!().to_string(),
                cpu_ns: n(BIG),
                cpu: n(9) as u32,
                nice: n(40) as i32 - 20,
                policy: n(7) as u32,
            });
            facts.file_locks.push(FileLock {
                pid: n(BIG) as u32,
                name: word!().to_string(),
                path: word!().to_string(),
                exclusive: n(2) == 1,
            });
        }
        rec.host.push(HostSample {
            time_ns: n(BIG),
            facts,
        });
    }
    for _ in 0..n(3) {
        rec.peers.push(Peer {
            pid: n(1 << 22) as u32,
            asks: n(2) == 0,
            address: Arc::from(word!()),
            peer_pid: n(1 << 22) as u32,
            peer_name: Arc::from(word!()),
            connections: n(1 << 32) as u32,
            requests: n(BIG),
            requests_at_least: n(2) == 0,
            in_flight_ns: n(BIG),
            stacks: (0..n(3))
                .map(|_| PeerStack {
                    context: ContextId(n(rec.contexts.len() as u64) as u32),
                    stack: StackId(n(rec.stacks.len() as u64) as u32),
                    requests: n(BIG),
                    ns: n(BIG),
                })
                .collect(),
        });
    }
    for group in 0..n(3) {
        // No two groups of one process.
        let mut pauses = PauseGroup {
            pid: (group << 20 | n(1 << 20)) as u32,
            operation: Arc::from(word!()),
            kind: Arc::from(word!()),
            cause: Arc::from(word!()),
            ..PauseGroup::default()
        };
        for _ in 0..n(50) {
            pauses.add(Pause {
                start_ns: n(BIG),
                length_ns: n(BIG),
            });
        }
        rec.pauses.push(pauses);
    }
    for _ in 0..n(4) {
        let mut shape = Histogram::new(n(6) as u32);
        for _ in 0..n(6) {
            shape.add(n(BIG), n(1000) as f64 + 0.125);
        }
        rec.shapes.push(HistogramRow {
            context: maybe!(ContextId(n(rec.contexts.len() as u64) as u32)),
            stack: maybe!(StackId(n(rec.stacks.len() as u64) as u32)),
            state: pick!(State::ALL),
            reason: maybe!(pick!(BlockReason::ALL)),
            part: maybe!(pick!(Part::ALL)),
            shape,
        });
    }
    if n(3) > 0 {
        let contexts = rec.contexts.len() as u64;
        let mut lanes = Vec::new();
        for (i, c) in rec.contexts.iter().enumerate() {
            let mut at = c.start_ns;
            let mut intervals = Vec::new();
            for _ in 0..n(6) {
                let state = pick!(State::ALL);
                let blocked = state == State::Blocked;
                let start_ns = at + n(3) * n(BIG);
                let ns = n(BIG);
                at = start_ns + ns;
                intervals.push(Interval {
                    start_ns,
                    ns,
                    state,
                    reason: maybe!(pick!(BlockReason::ALL)).filter(|_| blocked),
                    part: maybe!(pick!(Part::ALL)).filter(|_| !blocked),
                    waker: maybe!(ContextId(n(contexts) as u32)).filter(|_| blocked),
                    request: blocked && n(2) > 0,
                    idle: blocked && n(2) > 0,
                });
            }
            if !intervals.is_empty() {
                lanes.push(Lane {
                    context: ContextId(i as u32),
                    intervals,
                });
            }
        }
        rec.timeline = Some(Timeline {
            lanes,
            limit_bytes: n(BIG),
            dropped: n(BIG),
            lost: n(BIG),
        });
    }
    for _ in 0..n(3) {
        rec.losses.push(Loss {
            cause: word!().to_string(),
            count: n(BIG),
        });
    }
    rec.cost = Cost {
        bpf_ns: n(BIG),
        own_cpu_ns: n(BIG),
        rss_bytes: n(BIG),
        kernel_bytes: n(BIG),
        target_stopped_ns: n(BIG),
    };
    rec
}
