//! A made-up run in which everything is right: one second of one thread that computes, sleeps, and
//! waits for a CPU. The scorer's tests spoil it one thing at a time.

use std::collections::BTreeMap;

use crate::folded::{Line, parse};
use crate::report::{Cost, Domain, Function, FunctionTimes, Report, Thread, ViewTotal, Window};
use crate::truth::{ChainTruth, FrameTruth, FunctionTruth, ThreadTruth, Truth};

const MS: u64 = 1_000_000;

fn thread(tid: u32, name: &str, [on_cpu, runnable, blocked]: [u64; 3]) -> Thread {
    Thread {
        pid: 1,
        tid,
        name: name.into(),
        wall_ns: on_cpu + runnable + blocked,
        on_cpu_ns: on_cpu,
        runnable_ns: runnable,
        blocked_ns: blocked,
        on_cpu: BTreeMap::from([("user".into(), on_cpu)]),
        runnable: BTreeMap::from([("woken".into(), runnable)]),
        blocked: BTreeMap::from([("timer".into(), blocked)]),
        voluntary_switches: 100,
        involuntary_switches: 10,
        ..Thread::default()
    }
}

fn function(name: &str, [on_cpu, runnable, blocked]: [u64; 3]) -> Function {
    let times = |ns: u64| FunctionTimes {
        self_ns: 0,
        total_ns: ns,
        low_ns: ns - ns / 10,
        high_ns: ns + ns / 10,
    };
    let views = [
        ("wall", on_cpu + runnable + blocked),
        ("on-cpu", on_cpu),
        ("runq", runnable),
        ("off-cpu", blocked),
    ];
    Function {
        name: name.into(),
        views: views.map(|(view, ns)| (view.to_string(), times(ns))).into(),
    }
}

fn function_truth(name: &str, [on_cpu, runnable, blocked]: [u64; 3]) -> FunctionTruth {
    FunctionTruth {
        pid: 1,
        tid: 2,
        name: name.into(),
        reason: String::new(),
        calls: 1,
        wall_ns: on_cpu + runnable + blocked,
        on_cpu_ns: on_cpu,
        run_delay_ns: runnable,
    }
}

/// A view of so many milliseconds with a sample for each.
fn view_total(ms: u64) -> ViewTotal {
    ViewTotal {
        total_ns: ms * MS,
        not_sampled_ns: 0,
        samples: ms,
    }
}

/// Report, truth and stacks that agree.
pub(crate) fn mix() -> (Report, Truth, Vec<Line>) {
    let work = [600 * MS, 100 * MS, 300 * MS];
    let compute = [600 * MS, 60 * MS, 0];
    let pause = [0, 40 * MS, 300 * MS];
    let report = Report {
        schema: "wallscope.report/1".into(),
        domain: Domain {
            backend: "ebpf".into(),
            notes: Vec::new(),
        },
        views: [("on-cpu", 600), ("runq", 100), ("off-cpu", 1_300)]
            .map(|(view, ms)| (view.to_string(), view_total(ms)))
            .into(),
        window: Window {
            start_ns: 5_000 * MS,
            end_ns: 6_000 * MS,
            clock: "CLOCK_MONOTONIC".into(),
        },
        threads: vec![
            thread(1, "main", [0, 0, 1_000 * MS]),
            thread(2, "mix", work),
        ],
        functions: vec![function("compute", compute), function("pause", pause)],
        shapes: Vec::new(),
        stacks: Vec::new(),
        peers: Vec::new(),
        losses: Vec::new(),
        cost: Cost {
            bpf_ns: 1,
            displaced_ns: 0,
            own_cpu_ns: 1,
            rss_bytes: 1,
            kernel_bytes: 1,
        },
    };
    let truth = Truth {
        program: "canned".into(),
        executable: "canned".into(),
        pid: 1,
        released_ns: 5_000 * MS,
        ended_ns: 6_000 * MS,
        threads: vec![ThreadTruth {
            pid: 1,
            tid: 2,
            name: "mix".into(),
            start_ns: 4_000 * MS,
            end_ns: 6_001 * MS,
            work_wall_ns: 1_000 * MS,
            on_cpu_ns: work[0],
            run_delay_ns: work[1],
            voluntary_switches: 100,
            involuntary_switches: 10,
            operations: 1,
            finished: true,
        }],
        functions: vec![
            function_truth("compute", compute),
            function_truth("pause", pause),
        ],
        chains: vec![chain()],
        extra: BTreeMap::new(),
        piece_ends: Vec::new(),
    };
    (report, truth, stacks())
}

/// The stacks of [`mix`].
pub(crate) fn stacks() -> Vec<Line> {
    parse(
        "mix;libc.so.6+0x1098ec;libc.so.6+0x891f5;worker_main;run;compute;on_cpu 600000000\n\
         mix;libc.so.6+0x1098ec;libc.so.6+0x891f5;worker_main;run;compute;runnable 60000000\n\
         mix;libc.so.6+0x1098ec;libc.so.6+0x891f5;worker_main;run;pause;nanosleep;do_sleep_[k];blocked 300000000\n\
         mix;libc.so.6+0x1098ec;libc.so.6+0x891f5;worker_main;run;pause;runnable 40000000\n\
         main;_start;main;poll;blocked 1000000000\n",
    )
    .unwrap()
}

/// The stack of `pause` in [`mix`], as the program would tell it.
pub(crate) fn chain() -> ChainTruth {
    let frame = |name: &str, module: &str, offset: u64| FrameTruth {
        name: name.into(),
        module: module.into(),
        offset,
    };
    ChainTruth {
        pid: 1,
        tid: 2,
        leaf: "pause".into(),
        state: "blocked".into(),
        frames: vec![
            frame("pause", "canned", 0x1200),
            frame("", "canned", 0x1300),
            frame("worker_main", "canned", 0x1400),
            frame("", "libc.so.6", 0x891f5),
            frame("", "libc.so.6", 0x1098ec),
        ],
    }
}
