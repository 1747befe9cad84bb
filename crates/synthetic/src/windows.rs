//! A made-up run of an agent: consecutive windows of one machine, with services.
//!
//! Each window is a recording by itself. Its ledgers close, its slices sum to its ledgers, and equal
//! numbers give equal windows. Three services run: `checkout` (four threads, always), `payments` (two
//! threads, always), and `batch` (a new process in each window, for half of it).

use std::sync::Arc;

use wallscope_model::histogram::{FINE, Histogram, HistogramRow};
use wallscope_model::*;

use crate::Random;

/// Length of a window, ns.
pub const LENGTH_NS: u64 = 10_000_000_000;
/// Start of window 0 on the monotonic clock, ns.
pub const START_NS: u64 = 5_000_000_000_000;
/// Start of window 0 on the wall clock, ns since the epoch: 2026-11-27 14:00:00 UTC.
pub const START_UNIX_NS: u64 = 1_795_788_000_000_000_000;
/// Slices of a window.
const SLICES: u32 = 10;
/// The services, with their pids and number of threads.
const SERVICES: [(&str, u32, u32); 2] = [("checkout", 100, 4), ("payments", 200, 2)];
/// Pid of the `batch` process of window 0; the later ones follow.
const BATCH_PID: u32 = 1000;

struct Builder {
    rec: Recording,
    random: Random,
}

/// Window number `sequence` of the run.
pub fn window(sequence: u64) -> Recording {
    let start_ns = START_NS + sequence * LENGTH_NS;
    let mut b = Builder {
        rec: Recording {
            domain: domain(),
            window: Window {
                start_ns,
                end_ns: start_ns + LENGTH_NS,
                clock: "CLOCK_MONOTONIC".to_string(),
                start_unix_ns: START_UNIX_NS + sequence * LENGTH_NS,
            },
            slices: Slices {
                start_ns,
                width_ns: LENGTH_NS / u64::from(SLICES),
                count: SLICES,
            },
            ..Recording::default()
        },
        random: Random(sequence),
    };
    b.code(sequence);
    for (service, pid, threads) in SERVICES {
        b.process(service, pid);
        for tid in pid..pid + threads {
            b.thread(pid, tid, 0..SLICES);
        }
    }
    let batch = BATCH_PID + sequence as u32;
    b.process("batch", batch);
    b.thread(batch, batch, 2..7);
    b.rec.losses.push(Loss {
        cause: "ring full".to_string(),
        count: sequence % 3,
    });
    b.rec.cost = Cost {
        bpf_ns: 11_000_000 + sequence,
        displaced_ns: 3_000_000 + sequence,
        own_cpu_ns: 23_000_000,
        rss_bytes: 40 << 20,
        kernel_bytes: 9 << 20,
        target_stopped_ns: 0,
    };
    b.rec
}

fn domain() -> Domain {
    let column = |state| Column {
        state,
        exact: true,
        how: "each switch".to_string(),
    };
    Domain {
        tool: "wallscope 0.1.0".to_string(),
        backend: "ebpf".to_string(),
        backend_reason: "eBPF is allowed here".to_string(),
        privilege: "root".to_string(),
        kernel: "6.18.5 x86_64".to_string(),
        cpus: 4,
        target: "the whole machine".to_string(),
        columns: [State::OnCpu, State::Runnable, State::Blocked]
            .map(column)
            .to_vec(),
        ..Domain::default()
    }
}

impl Builder {
    /// One module with two functions, in an order that differs between windows.
    fn code(&mut self, sequence: u64) {
        let rec = &mut self.rec;
        rec.modules.push(Module {
            kind: ModuleKind::Elf,
            path: Arc::from("/usr/bin/service"),
            build_id: Arc::from("abcd"),
            pid: 0,
        });
        let names = match sequence % 2 {
            0 => ["compute", "wait_for_reply"],
            _ => ["wait_for_reply", "compute"],
        };
        for (i, name) in names.into_iter().enumerate() {
            rec.functions.push(Function {
                name: Arc::from(name),
                system_name: Arc::from(name),
                file: Arc::from("service.c"),
                start_line: 1,
            });
            rec.frames.push(Frame {
                kind: FrameKind::Native,
                module: Some(ModuleId(0)),
                address: name.len() as u64,
                lines: vec![Line {
                    function: FunctionId(i as u32),
                    line: 7,
                }],
            });
            rec.stacks.push(Stack {
                frames: vec![FrameId(i as u32)],
                end: StackEnd::Root,
            });
        }
    }

    fn process(&mut self, service: &str, pid: u32) {
        self.rec.processes.push(Process {
            pid,
            parent: 1,
            name: Arc::from(service),
            exe: Arc::from(format!("/usr/bin/{service}")),
            unattributed_on_cpu_ns: 17,
            ..Process::default()
        });
        self.rec.label_sets.push(vec![Label {
            key: Arc::from("service"),
            value: LabelValue::Text(Arc::from(service)),
        }]);
    }

    /// The stack of the function `name`.
    fn stack(&self, name: &str) -> StackId {
        let found = self.rec.functions.iter().position(|f| &*f.name == name);
        StackId(found.unwrap_or(0) as u32)
    }

    /// A thread that exists in `slices`, of the process that was added last.
    fn thread(&mut self, pid: u32, tid: u32, slices: std::ops::Range<u32>) {
        let context = ContextId(self.rec.contexts.len() as u32);
        let grid = self.rec.slices;
        let at = |slice: u32| grid.start_ns + u64::from(slice) * grid.width_ns;
        let mut ledger = Ledger {
            wall_ns: at(slices.end) - at(slices.start),
            voluntary_switches: self.random.below(5_000),
            ..Ledger::default()
        };
        ledger.audit.valid = true;
        let mut stacked = [Vec::new(), Vec::new()];
        let mut run_queue = Histogram::new(FINE);
        for slice in slices.clone() {
            let on_cpu = self.random.below(grid.width_ns / 2);
            let woken = self.random.below(grid.width_ns / 4);
            let blocked = grid.width_ns - on_cpu - woken;
            let reason = [BlockReason::Network, BlockReason::Disk][self.random.below(2) as usize];
            ledger.on_cpu.user += on_cpu;
            ledger.runnable.woken += woken;
            ledger.blocked[reason as usize] += blocked;
            let mut row = LedgerSlice {
                context: context.0,
                slice,
                on_cpu_ns: on_cpu,
                runnable_ns: woken,
                ..LedgerSlice::default()
            };
            row.add(State::Blocked, Some(reason), blocked);
            self.rec.ledger_slices.push(row);
            run_queue.add(woken, 1.0);
            for (values, ns) in stacked.iter_mut().zip([on_cpu, blocked]) {
                values.push(SliceValue {
                    slice,
                    count: 3,
                    ns,
                });
            }
        }
        let [on_cpu, blocked] = stacked;
        self.sample(context, State::OnCpu, "compute", on_cpu);
        self.sample(context, State::Blocked, "wait_for_reply", blocked);
        self.rec.histograms.push(HistogramRow {
            context: Some(context),
            stack: None,
            state: State::Runnable,
            reason: None,
            part: None,
            histogram: run_queue,
        });
        self.rec.contexts.push(Context {
            pid,
            tid,
            name: Arc::from(format!("worker-{tid}")),
            start_ns: at(slices.start),
            end_ns: at(slices.end),
            ledger,
        });
        let labels = self.rec.label_sets.len() as u32 - 1;
        self.rec.context_labels.push(Some(LabelsId(labels)));
    }

    fn sample(&mut self, context: ContextId, state: State, name: &str, slices: Vec<SliceValue>) {
        self.rec.samples.push(Sample {
            context,
            stack: self.stack(name),
            state,
            reason: None,
            part: None,
            idle: false,
            cpu: None,
            labels: None,
            count: slices.iter().map(|v| v.count).sum(),
            ns: slices.iter().map(|v| v.ns).sum(),
            slices,
        });
    }
}
