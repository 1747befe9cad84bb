//! Uses of CPUs, and shortage of them.

use super::*;

/// The first thread computes in a function that is not the program's own.
fn computes_in(rec: &mut Recording, kind: FrameKind, name: &str) {
    rec.functions.push(Function {
        name: name.into(),
        system_name: name.into(),
        file: "".into(),
        start_line: 0,
    });
    rec.frames.push(Frame {
        kind,
        module: None,
        address: rec.frames.len() as u64,
        lines: vec![Line {
            function: FunctionId(rec.functions.len() as u32 - 1),
            line: 1,
        }],
    });
    let mut stack = rec.stacks[rec.samples[0].stack.0 as usize].clone();
    stack.frames.insert(0, FrameId(rec.frames.len() as u32 - 1));
    rec.stacks.push(stack);
    rec.samples[0].stack = StackId(rec.stacks.len() as u32 - 1);
}

/// Both CPUs were used for `seconds` of the window, by a process that may use `cpus`.
pub(super) fn used(rec: &mut Recording, seconds: u64, cpus: &str) {
    let sample = |time_ns, busy| HostSample {
        time_ns,
        facts: HostFacts {
            cpu_busy_ns: vec![busy; 2],
            limits: vec![wallscope_model::Limits {
                cpus: cpus.into(),
                ..wallscope_model::Limits::default()
            }],
            ..HostFacts::default()
        },
    };
    let (start, end) = (rec.window.start_ns, rec.window.end_ns);
    rec.host = vec![sample(start, 0), sample(end, seconds * 10 * TENTH)];
}

#[test]
fn a_quota_that_binds_is_told_by_the_cgroup_s_own_counters() {
    // Ready half of the time; whether for the quota is not known without kernel programs.
    let mut rec = recording(&[(10, 50, 0, BlockReason::Lock, 40); 4]);
    rec.domain.backend = "proc".into();
    let sample = |time_ns, periods, throttled| HostSample {
        time_ns,
        facts: HostFacts {
            cgroup: Some(wallscope_model::CgroupFacts {
                quota_us: Some(40_000),
                period_us: Some(100_000),
                nr_periods: Some(periods),
                nr_throttled: Some(throttled),
                ..wallscope_model::CgroupFacts::default()
            }),
            ..HostFacts::default()
        },
    };
    let (start, end) = (rec.window.start_ns, rec.window.end_ns);
    rec.host = vec![sample(start, 0, 0), sample(end, 100, 90)];
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.reason),
        ("quota", Some("throttled")),
        "{}",
        v.cause
    );
    assert!(
        v.more.iter().any(|m| m.contains("not told apart")),
        "{:?}",
        v.more
    );
    rec.host[1] = sample(end, 100, 5);
    assert_ne!(climb(&rec).verdict.rule, "quota");
    // With kernel programs it is known that it was not for the quota.
    rec.host[1] = sample(end, 100, 90);
    rec.domain.backend = "ebpf".into();
    assert_ne!(climb(&rec).verdict.rule, "quota");
}

#[test]
fn a_limit_that_a_process_lowered_below_its_use_is_not_met() {
    let mut rec = recording(&[(90, 0, 0, BlockReason::Disk, 10)]);
    let sample = |time_ns, limit| HostSample {
        time_ns,
        facts: HostFacts {
            limits: vec![wallscope_model::Limits {
                pid: 1,
                threads: Some(2),
                nproc_soft: Some(limit),
                ..wallscope_model::Limits::default()
            }],
            ..HostFacts::default()
        },
    };
    let (start, end) = (rec.window.start_ns, rec.window.end_ns);
    for (limit, is_listed) in [(0, false), (1, false), (2, true), (100, false)] {
        rec.host = vec![sample(start, limit), sample(end, limit)];
        let host = climb(&rec).host;
        let listed = host.iter().any(|r| r.name == "threads (pid 1)");
        assert_eq!(listed, is_listed, "limit {limit}");
    }
}

#[test]
fn a_memory_limit_that_is_met_is_told_where_the_kernel_computes() {
    let mut rec = recording(&[(90, 0, 0, BlockReason::Disk, 10)]);
    let l = &mut rec.contexts[0].ledger.on_cpu;
    (l.kernel, l.user) = (l.user, 0);
    let sample = |time_ns, used, hits| HostSample {
        time_ns,
        facts: HostFacts {
            cgroup: Some(wallscope_model::CgroupFacts {
                memory_bytes: Some(used),
                memory_limit_bytes: Some(20 << 20),
                memory_limit_hits: Some(hits),
                ..wallscope_model::CgroupFacts::default()
            }),
            ..HostFacts::default()
        },
    };
    let (start, end) = (rec.window.start_ns, rec.window.end_ns);
    let told = |rec: &Recording| {
        let v = climb(rec).verdict;
        assert_eq!(v.rule, "computing", "{}", v.cause);
        v.more.iter().any(|m| m.contains("at its memory limit"))
    };
    rec.host = vec![sample(start, 20 << 20, 0), sample(end, 20 << 20, 500_000)];
    assert!(told(&rec));
    rec.host = vec![sample(start, 9 << 20, 0), sample(end, 9 << 20, 0)];
    assert!(!told(&rec));
}

#[test]
fn work_of_the_kernel_is_told_by_its_functions() {
    use BlockReason::{Lock, Timer};
    let cases = [
        ("asm_exc_page_fault", "page-faults", Timer),
        ("try_to_free_pages", "reclaim", Timer),
        ("native_queued_spin_lock_slowpath", "spinning", Lock),
    ];
    for (function, rule, reason) in cases {
        let mut rec = recording(&[(40, 0, 0, reason, 60)]);
        let before = climb(&rec).verdict.rule;
        computes_in(&mut rec, FrameKind::Kernel, function);
        let v = climb(&rec).verdict;
        assert_ne!(before, rule);
        assert_eq!((v.rule, v.bottleneck), (rule, true), "{}", v.cause);
        assert_eq!(v.function.as_deref(), Some("program::f0"), "{}", v.cause);
        // A tenth of it is no cause.
        let mut little = recording(&[(4, 0, 0, reason, 96)]);
        computes_in(&mut little, FrameKind::Kernel, function);
        assert_ne!(climb(&little).verdict.rule, rule);
    }
}

#[test]
fn pages_that_come_from_a_disk_are_awaited_and_not_handled() {
    let mut rec = recording(&[(30, 0, 0, BlockReason::PageFault, 70)]);
    computes_in(&mut rec, FrameKind::Kernel, "handle_mm_fault");
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.reason),
        ("waiting", Some("page_fault")),
        "{}",
        v.cause
    );
}

#[test]
fn threads_that_are_started_all_the_time_are_told_where_that_is_most_of_the_computing() {
    let mut rec = recording(&[(60, 0, 0, BlockReason::Child, 40)]);
    computes_in(&mut rec, FrameKind::Kernel, "kernel_clone");
    let stays = climb(&rec).verdict.rule;
    assert_ne!(stays, "churn");
    for i in 0..300 {
        let mut born = rec.contexts[0].clone();
        (born.tid, born.ledger) = (100 + i, Ledger::default());
        born.start_ns = 20 * TENTH;
        born.end_ns = born.start_ns + 1_000;
        rec.contexts.push(born);
    }
    let v = climb(&rec).verdict;
    assert_eq!(v.rule, "churn", "{}", v.cause);
    assert!(
        v.cause.contains("starts 30 threads a second"),
        "{}",
        v.cause
    );
    // More CPUs would start more threads.
    let mut queued = rec.clone();
    let ledger = &mut queued.contexts[0].ledger;
    ledger.runnable.woken = std::mem::take(&mut ledger.blocked[BlockReason::Child as usize]);
    queued.samples[1].state = State::Runnable;
    (queued.samples[1].reason, queued.samples[1].part) = (None, Some(wallscope_model::Part::Woken));
    used(&mut queued, 3, "0-1");
    assert_eq!(climb(&queued).verdict.rule, "churn");
    queued.functions[rec.functions.len() - 1].name = "vfs_read".into();
    assert_eq!(climb(&queued).verdict.rule, "cpu-shortage");
    // Processes: the programs tell more than the function that their beginnings are spent in.
    let mut shell = rec.clone();
    let process = |pid, parent, name: &str| Process {
        pid,
        parent,
        name: name.into(),
        ..Process::default()
    };
    shell.processes.push(process(10, 0, "sh"));
    let children = (1_000..1_300).map(|pid| process(pid, 10, "date"));
    shell.processes.extend(children);
    let cause = climb(&shell).verdict.cause;
    let expected = "starts 30 processes a second, mostly date by sh: ";
    assert!(cause.contains(expected), "{cause}");
    // Most of them are in a group.
    let pid = 1 << 30;
    let mut storm = shell.clone();
    let mut group = storm.contexts[1].clone();
    group.pid = pid;
    storm.contexts.push(group);
    storm.processes.push(Process {
        folded_threads: 2_700,
        ..process(pid, 0, "date")
    });
    let cause = climb(&storm).verdict.cause;
    assert!(
        cause.contains("starts 300 processes a second, mostly date by sh: "),
        "{cause}"
    );
    // A server that starts as many and does other things is none.
    let other = rec.functions.len() - 1;
    rec.functions[other].name = "vfs_read".into();
    assert_eq!(climb(&rec).verdict.rule, stays);
}

#[test]
fn locks_that_waiters_give_each_other_make_the_program_serial() {
    let mut rec = recording(&[(60, 0, 0, BlockReason::Lock, 40); 2]);
    assert_eq!(climb(&rec).verdict.rule, "computing");
    rec.domain.backend = "ebpf".into();
    rec.actors = vec![Actor::Context(ContextId(0)), Actor::Context(ContextId(1))];
    for i in 0..rec.samples.len() as u32 {
        let s = &rec.samples[i as usize];
        if s.reason == Some(BlockReason::Lock) {
            rec.hops.push(Hop {
                above: Above::Sample(i),
                role: Role::Woke,
                actor: ActorId(1 - s.context.0),
                stack: None,
                reason: None,
                part: None,
                labels: None,
                count: s.count,
                ns: s.ns,
            });
        }
    }
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.reason), ("serial", Some("lock")), "{}", v.cause);
}

#[test]
fn unseen_time_leaves_nothing_firm_to_say() {
    let mut rec = recording(&[(30, 0, 0, BlockReason::Lock, 50)]);
    assert_ne!(climb(&rec).verdict.rule, "unseen");
    rec.contexts[0].ledger.unknown[0] = 20 * TENTH;
    rec.contexts[0].ledger.wall_ns += 20 * TENTH;
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.state),
        ("unseen", Some(State::Unknown)),
        "{}",
        v.cause
    );
    assert!((v.share - 0.2).abs() < 1e-9);
}

#[test]
fn a_shortage_of_cpus_is_blamed_on_the_process_that_used_them() {
    let told = |own: u64, seconds, cpus| {
        let mut rec = recording(&[(own, 60, 0, BlockReason::Timer, 40 - own); 2]);
        used(&mut rec, seconds, cpus);
        let v = climb(&rec).verdict;
        assert_eq!(v.rule, "cpu-shortage", "{}", v.cause);
        (v.outside, v.cause)
    };
    // Itself a fifth of both CPUs.
    let (outside, cause) = told(20, 10, "0-1");
    assert!(
        outside && cause.starts_with("Programs outside this process use the CPUs"),
        "{cause}"
    );
    let (outside, cause) = told(30, 4, "0-1");
    assert!(!outside && cause.contains("come in bursts"), "{cause}");
    // No burst makes each thread wait for longer than the CPUs are busy.
    let (outside, cause) = told(20, 2, "0-1");
    let said = "Ready threads are kept from running though CPUs are free";
    assert!(!outside && cause == said, "{cause}");
    // Three fifths of the only one that it may use.
    let (outside, cause) = told(30, 8, "0");
    assert!(!outside && cause.contains("the 1 of 2 CPUs"), "{cause}");
}

#[test]
fn a_collector_that_fills_the_cpus_comes_before_their_shortage() {
    let mut rec = recording(&[(50, 50, 0, BlockReason::Timer, 0); 4]);
    used(&mut rec, 10, "0-1");
    assert_eq!(climb(&rec).verdict.rule, "cpu-shortage");
    for function in &mut rec.functions {
        if function.name.starts_with("program::f") {
            function.name = "v8::internal::ConcurrentMarking::RunMajor(v8::JobDelegate*)".into();
        }
    }
    let v = climb(&rec).verdict;
    let said = "(v8::internal::ConcurrentMarking::RunMajor)";
    assert!(
        v.rule == "computing" && v.cause.ends_with(said),
        "{}: {}",
        v.rule,
        v.cause
    );
}

#[test]
fn a_shortage_of_cpus_claims_no_more_than_the_figures_of_the_host_tell() {
    let mut rec = recording(&[(10, 60, 0, BlockReason::Timer, 30); 2]);
    let v = climb(&rec).verdict;
    let said = "Ready threads wait for a CPU, though they keep only 0.20 of 2 CPUs busy";
    assert_eq!(
        (v.rule, v.outside, &*v.cause),
        ("cpu-shortage", false, said)
    );
    // Files of early versions tell the use of all CPUs together.
    let sample = |time_ns, user, idle| HostSample {
        time_ns,
        facts: HostFacts {
            cpu_ns: Some([user, 0, 0, idle, 0, 0, 0, 0]),
            ..HostFacts::default()
        },
    };
    let (start, end) = (rec.window.start_ns, rec.window.end_ns);
    rec.host = vec![sample(start, 0, 0), sample(end, 190 * TENTH, 10 * TENTH)];
    let v = climb(&rec).verdict;
    assert!(
        v.outside
            && v.cause
                .starts_with("Programs outside this process use the CPUs"),
        "{}",
        v.cause
    );
    let figures = v.parts.evidence.join("; ");
    let said = "other programs use 85 % of the 2 CPUs that it may use, this process 10 %";
    assert!(figures.contains(said), "{figures}");
    // Where it fills the CPUs itself, it has too many threads.
    let rec = recording(&[(40, 60, 0, BlockReason::Timer, 0); 5]);
    let v = climb(&rec).verdict;
    assert!(
        v.cause.contains("more busy threads than CPUs"),
        "{}",
        v.cause
    );
}

#[test]
fn the_collection_of_garbage_is_told_as_part_of_computing() {
    let mut rec = recording(&[(80, 0, 0, BlockReason::Lock, 20)]);
    let told = |rec: &Recording| {
        let v = climb(rec).verdict;
        assert_eq!(v.rule, "computing", "{}", v.cause);
        v.cause.contains("garbage collection")
    };
    assert!(!told(&rec));
    computes_in(&mut rec, FrameKind::Native, "G1FullCollector::collect");
    assert!(told(&rec));
}

#[test]
fn the_function_that_all_computing_passes_through_is_told_beside_the_hottest_one() {
    let mut rec = recording(&[
        (30, 0, 0, BlockReason::Lock, 5),
        (60, 0, 0, BlockReason::Lock, 5),
    ]);
    let caller = rec.stacks[0].frames[2];
    rec.stacks[1].frames.push(caller);
    let v = climb(&rec).verdict;
    assert_eq!(v.rule, "computing", "{}", v.cause);
    assert!(v.cause.contains("program::f1"), "{}", v.cause);
    let root = v.parts.root.unwrap_or_default();
    assert!(
        root.contains("100 % of the computing is in program::f0 and"),
        "{root}"
    );
    let advice = v.parts.advice.unwrap_or_default();
    assert!(advice.starts_with("make program::f0 faster"), "{advice}");
}

#[test]
fn a_function_of_a_script_without_a_name_is_told_by_its_place() {
    let mut rec = recording(&[(90, 0, 0, BlockReason::Network, 10)]);
    rename(&mut rec, 2, FrameKind::JavaScript, "(anonymous)");
    let function = rec.frames[rec.stacks[0].frames[2].0 as usize].lines[0].function;
    let function = &mut rec.functions[function.0 as usize];
    (function.file, function.start_line) = ("/srv/app/server.js".into(), 12);
    let v = climb(&rec).verdict;
    assert_eq!(v.function.as_deref(), Some("(anonymous) (server.js:12)"));
    assert!(v.cause.contains("server.js:12"), "{}", v.cause);
    assert_eq!(
        crate::recorded_name("(anonymous) (server.js:12)"),
        "(anonymous)"
    );
    assert_eq!(
        crate::recorded_name("C.run.<lambda> (a.py:3)"),
        "C.run.<lambda>"
    );
    assert_eq!(crate::recorded_name("f(int) const"), "f(int) const");
}

#[test]
fn the_process_that_computes_alone_is_named() {
    let mut rec = recording(&[
        (100, 0, 0, BlockReason::Network, 0),
        (0, 0, 0, BlockReason::Child, 0),
    ]);
    let process = |pid| Process {
        pid,
        ..Process::default()
    };
    rec.processes = vec![process(1)];
    assert!(!climb(&rec).verdict.cause.contains("alone"));
    rec.processes.push(process(2));
    let v = climb(&rec).verdict;
    assert!(
        v.cause.contains("CPU-bound: t0 (pid 1) computes alone"),
        "{}",
        v.cause
    );
    let advice = v.parts.advice.unwrap_or_default();
    assert!(advice.contains("divide the work of t0"), "{advice}");
}
