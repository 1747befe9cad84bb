use std::sync::Arc;

use wallscope_model::{
    Above, Actor, ActorId, BlockReason, Context, ContextId, FileLock, Frame, FrameId, FrameKind,
    Function, FunctionId, Hop, HostFacts, HostSample, Label, LabelValue, LabelsId, Ledger, Line,
    Module, ModuleId, ModuleKind, Peer, Process, Recording, Role, Sample, SliceValue, Slices,
    Stack, StackEnd, StackId, State, TaskGroup, TaskTime, WaitSeen, Window,
};

use super::{Reading, climb};

const TENTH: u64 = 100_000_000;

/// A recording of 10 s on two CPUs. Each thread: (on-CPU, woken, throttled, reason, blocked) in
/// tenths of a second; each of its states has samples in `program::<thread>` called through libc.
fn recording(threads: &[(u64, u64, u64, BlockReason, u64)]) -> Recording {
    let mut rec = Recording {
        window: Window {
            start_ns: 0,
            end_ns: 100 * TENTH,
            ..Window::default()
        },
        slices: Slices {
            start_ns: 0,
            width_ns: 5 * TENTH,
            count: 20,
        },
        ..Recording::default()
    };
    rec.domain.cpus = 2;
    rec.modules = ["/srv/app/program", "/usr/lib/x86_64-linux-gnu/libc.so.6"]
        .map(|path| Module {
            kind: ModuleKind::Elf,
            path: path.into(),
            build_id: "".into(),
            pid: 0,
        })
        .to_vec();
    let function = |rec: &mut Recording, name: String, module: u32| {
        rec.functions.push(Function {
            name: Arc::from(name.as_str()),
            system_name: Arc::from(name.as_str()),
            file: "".into(),
            start_line: 0,
        });
        rec.frames.push(Frame {
            kind: FrameKind::Native,
            module: Some(ModuleId(module)),
            address: rec.frames.len() as u64,
            lines: vec![Line {
                function: FunctionId(rec.functions.len() as u32 - 1),
                line: 1,
            }],
        });
        FrameId(rec.frames.len() as u32 - 1)
    };
    let libc = function(&mut rec, "wait_in_libc".into(), 1);
    let std = function(&mut rec, "<std::sync::Mutex<T>>::lock".into(), 0);
    for (i, (on_cpu, woken, throttled, reason, blocked)) in threads.iter().enumerate() {
        let own = function(&mut rec, format!("program::f{i}"), 0);
        rec.stacks.push(Stack {
            frames: vec![libc, std, own],
            end: StackEnd::Root,
        });
        let mut l = Ledger::default();
        l.on_cpu.user = on_cpu * TENTH;
        l.runnable.woken = woken * TENTH;
        l.runnable.throttled = throttled * TENTH;
        l.blocked[*reason as usize] = blocked * TENTH;
        l.wall_ns = (on_cpu + woken + throttled + blocked) * TENTH;
        rec.contexts.push(Context {
            pid: 1,
            tid: i as u32,
            name: Arc::from(format!("t{i}").as_str()),
            start_ns: 0,
            end_ns: 100 * TENTH,
            ledger: l,
        });
        let parts = [
            (State::OnCpu, None, on_cpu),
            (State::Runnable, None, &(woken + throttled)),
            (State::Blocked, Some(*reason), blocked),
        ];
        for (state, reason, tenths) in parts.into_iter().filter(|(.., t)| **t > 0) {
            rec.samples.push(Sample {
                context: ContextId(i as u32),
                stack: StackId(rec.stacks.len() as u32 - 1),
                state,
                reason,
                part: None,
                idle: false,
                cpu: None,
                labels: None,
                count: tenths * 10,
                ns: tenths * TENTH,
                slices: (0..20)
                    .map(|slice| SliceValue {
                        slice,
                        count: tenths * 10 / 20,
                        ns: tenths * TENTH / 20,
                    })
                    .collect(),
            });
        }
    }
    rec
}

#[test]
fn each_case_is_told_by_its_rule_and_names_the_programs_own_function() {
    use BlockReason::{Disk, Lock, Network, Poll, Timer};
    let cases = [
        (vec![], "empty", None),
        (vec![(0, 0, 0, Poll, 100); 3], "idle", None),
        (
            vec![(0, 0, 0, Timer, 100), (0, 0, 0, Poll, 100)],
            "idle",
            None,
        ),
        (vec![(30, 5, 60, Lock, 5)], "quota", None),
        (
            vec![(50, 45, 0, Lock, 5); 4],
            "cpu-shortage",
            Some("program::f0"),
        ),
        (vec![(90, 1, 0, Lock, 9)], "computing", Some("program::f0")),
        (
            vec![(10, 2, 0, Lock, 88), (30, 2, 0, Timer, 68)],
            "waiting",
            Some("program::f0"),
        ),
        (
            vec![(5, 0, 0, Network, 95)],
            "upstream",
            Some("program::f0"),
        ),
        // More CPUs would not end the waits for a lock, which are longer.
        (
            vec![(27, 32, 0, BlockReason::KernelLock, 41); 6],
            "waiting",
            Some("program::f0"),
        ),
        // Computes now and then, and somebody ticks beside it.
        (
            vec![(0, 0, 0, Timer, 100), (20, 0, 0, Lock, 0)],
            "healthy",
            None,
        ),
        (
            vec![(20, 0, 0, Disk, 60), (2, 0, 0, Poll, 98)],
            "waiting",
            Some("program::f0"),
        ),
        // One that gets nowhere, among many that sleep.
        (
            [vec![(5, 0, 0, Timer, 95); 5], vec![(2, 0, 0, Lock, 98)]].concat(),
            "waiting",
            Some("program::f5"),
        ),
        (vec![(5, 0, 0, Timer, 95)], "sleeping", Some("program::f0")),
        (vec![(5, 0, 0, Poll, 95)], "events", Some("program::f0")),
    ];
    for (threads, rule, function) in cases {
        let ladder = climb(&recording(&threads));
        let v = &ladder.verdict;
        assert_eq!(v.rule, rule, "{}", v.cause);
        assert_eq!(v.function.as_deref(), function, "{}", v.cause);
        let applied: Vec<_> = ladder.fired.iter().filter(|f| f.spoke).collect();
        assert_eq!(applied.len(), 1, "one rule speaks");
        assert!(v.share <= 1.0 && !v.cause.ends_with('.'), "{}", v.cause);
    }
}

#[test]
fn parked_threads_are_set_apart() {
    let ladder = climb(&recording(&[
        (60, 0, 0, BlockReason::Lock, 40),
        (0, 0, 0, BlockReason::Lock, 100),
        (0, 0, 0, BlockReason::Lock, 100),
    ]));
    let b = &ladder.bottleneck;
    assert_eq!((b.active_threads, b.parked_threads), (1, 2));
    assert_eq!(b.active_ns(), 100 * TENTH);
    assert_eq!(b.reading(), Reading::CpuFirst);
    assert_eq!(ladder.verdict.rule, "computing");
}

#[test]
fn who_stands_with_something_to_give_or_at_a_disk_is_not_parked() {
    let mut rec = recording(&[
        (2, 0, 0, BlockReason::Timer, 98),
        (0, 0, 0, BlockReason::Pipe, 100),
    ]);
    assert_eq!(climb(&rec).bottleneck.parked_threads, 1);
    let libc = rec.stacks[1].frames[0];
    rec.frames[libc.0 as usize].kind = FrameKind::Kernel;
    let function = rec.frames[libc.0 as usize].lines[0].function;
    rec.functions[function.0 as usize].name = "anon_pipe_write".into();
    let ladder = climb(&rec);
    assert_eq!(ladder.bottleneck.parked_threads, 0);
    let v = &ladder.verdict;
    assert_eq!(
        (v.bottleneck, v.reason),
        (true, Some("pipe")),
        "{}",
        v.cause
    );
    let rec = recording(&[(0, 0, 0, BlockReason::Disk, 100)]);
    assert_eq!(climb(&rec).bottleneck.parked_threads, 0);
}

#[test]
fn a_thread_that_never_gets_a_lock_is_stuck_and_not_parked() {
    let mut rec = recording(&[
        (2, 0, 0, BlockReason::Timer, 98),
        (0, 0, 0, BlockReason::Lock, 100),
    ]);
    assert_eq!(climb(&rec).bottleneck.parked_threads, 1);
    let libc = rec.stacks[1].frames[0];
    let function = rec.frames[libc.0 as usize].lines[0].function;
    rec.functions[function.0 as usize].name = "pthread_mutex_lock".into();
    let ladder = climb(&rec);
    assert_eq!(ladder.bottleneck.stuck, [ContextId(1)]);
    let v = &ladder.verdict;
    assert_eq!((v.rule, v.reason), ("stuck", Some("lock")), "{}", v.cause);
    assert_eq!(v.function.as_deref(), Some("program::f1"));
    // A recording too short to say so.
    rec.window.end_ns = 5 * TENTH;
    assert_ne!(climb(&rec).verdict.rule, "stuck");
}

#[test]
fn threads_that_have_each_others_locks_are_in_a_deadlock_though_they_wake_now_and_then() {
    let mut rec = recording(&[
        (1, 0, 0, BlockReason::Lock, 99),
        (1, 0, 0, BlockReason::Lock, 99),
    ]);
    assert_ne!(climb(&rec).verdict.rule, "stuck");
    rec.label_sets.push(vec![wallscope_model::Label {
        key: "told_by".into(),
        value: wallscope_model::LabelValue::Text("monitor".into()),
    }]);
    let labels = Some(wallscope_model::LabelsId(rec.label_sets.len() as u32 - 1));
    let waits: Vec<(u32, ContextId)> = (0..)
        .zip(&rec.samples)
        .filter(|(_, s)| s.state == State::Blocked)
        .map(|(i, s)| (i, s.context))
        .collect();
    for (sample, who) in waits {
        let other = ContextId(1 - who.0);
        rec.actors.push(Actor::Context(other));
        rec.hops.push(Hop {
            above: Above::Sample(sample),
            role: Role::Held,
            actor: ActorId(rec.actors.len() as u32 - 1),
            stack: None,
            reason: None,
            part: None,
            labels,
            count: 1,
            ns: rec.samples[sample as usize].ns,
        });
    }
    let v = climb(&rec).verdict;
    assert_eq!(v.rule, "stuck", "{}", v.cause);
    assert!(v.cause.ends_with("it is a deadlock"), "{}", v.cause);
    let told = v.more.iter().any(|m| m.contains("waits for a lock that"));
    assert!(told, "{:?}", v.more);
    // Of one alone it is known who holds it up, and no more.
    rec.hops.truncate(1);
    assert_ne!(climb(&rec).verdict.rule, "stuck");
}

#[test]
fn causes_sum_to_the_active_time_and_have_intervals_around_their_shares() {
    let ladder = climb(&recording(&[
        (40, 10, 0, BlockReason::Lock, 50),
        (10, 0, 0, BlockReason::Disk, 90),
    ]));
    let sum: u64 = ladder.causes.iter().map(|c| c.ns).sum();
    assert_eq!(sum, ladder.bottleneck.active_ns());
    for c in &ladder.causes {
        assert!(
            c.interval.low <= c.share && c.share <= c.interval.high,
            "{c:?}"
        );
        assert_eq!(&*c.through, "<std::sync::Mutex<T>>::lock");
        assert!(c.function.starts_with("program::"), "{}", c.function);
    }
}

#[test]
fn tasks_that_wait_for_a_lock_are_told_though_no_thread_does() {
    // Two threads that poll next to always: to them it looks healthy.
    let mut rec = recording(&[(5, 0, 0, BlockReason::Poll, 95); 2]);
    let wait = |stack, reason: &str, tenths: u64| TaskTime {
        state: State::Blocked,
        reason: reason.into(),
        detail: "".into(),
        stack: Some(StackId(stack)),
        labels: None,
        count: tenths,
        ns: tenths * TENTH,
    };
    // Idle connections wait in no function of the program.
    rec.stacks.push(Stack {
        frames: rec.stacks[0].frames[..2].to_vec(),
        end: StackEnd::Root,
    });
    let connection = rec.stacks.len() as u32 - 1;
    rec.tasks.push(TaskGroup {
        pid: 1,
        kind: "goroutine".into(),
        name: "net/http.(*conn).serve".into(),
        seen: 40,
        looks: 100,
        times: vec![
            wait(0, "mutex", 250),
            wait(0, "timer", 90),
            wait(1, "network", 300),
            wait(connection, "network", 9000),
        ],
    });
    let v = climb(&rec).verdict;
    assert_eq!(v.rule, "tasks-lock");
    assert_eq!(v.function.as_deref(), Some("program::f0"));
    assert!((v.share - 250.0 / 640.0).abs() < 1e-9, "{}", v.share);
    assert!(v.more.iter().any(|m| m.contains("timer, 0.9 of them")));
    // So is sending to somebody slow, and not to wait for what is sent.
    let sends = &mut rec.tasks[0].times[0];
    (sends.reason, sends.detail) = ("channel".into(), "chan send".into());
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.reason), ("tasks-lock", Some("channel")));
    rec.tasks[0].times[0].detail = "chan receive".into();
    assert_ne!(climb(&rec).verdict.rule, "tasks-lock");
    rec.tasks[0].times[0].reason = "mutex".into();
    assert_eq!(climb(&rec).verdict.rule, "tasks-lock");
    // One that seldom waits is no cause.
    rec.tasks[0].times[0].ns = 40 * TENTH;
    assert_ne!(climb(&rec).verdict.rule, "tasks-lock");
}

/// Sample 1 of `rec` was ended by `actor`.
fn ended_by(rec: &mut Recording, actor: Actor) {
    rec.actors.push(actor);
    rec.hops.push(Hop {
        above: Above::Sample(1),
        role: Role::Woke,
        actor: ActorId(rec.actors.len() as u32 - 1),
        stack: None,
        reason: None,
        part: None,
        labels: None,
        count: rec.samples[1].count,
        ns: rec.samples[1].ns,
    });
}

#[test]
fn who_polls_for_a_child_or_a_disk_does_not_rest() {
    use BlockReason::{Poll, Timer};
    let mut rec = recording(&[(2, 0, 0, Poll, 98), (3, 0, 0, Timer, 40)]);
    rec.processes = [(1, 0), (2, 1)]
        .map(|(pid, parent)| Process {
            pid,
            parent,
            ..Process::default()
        })
        .to_vec();
    (rec.contexts[1].pid, rec.contexts[1].start_ns) = (2, 10 * TENTH);
    rec.domain.backend = "ebpf".into();
    let (mut child, mut disk) = (rec.clone(), rec);
    assert!(!climb(&child).verdict.bottleneck);
    ended_by(&mut child, Actor::Context(ContextId(1)));
    let v = climb(&child).verdict;
    assert_eq!(
        (v.rule, v.reason),
        ("delayed", Some("child")),
        "{}",
        v.cause
    );
    assert_eq!(v.function.as_deref(), Some("program::f0"));
    ended_by(&mut disk, Actor::Interrupt("disk".into()));
    let v = climb(&disk).verdict;
    assert_eq!((v.rule, v.reason), ("delayed", Some("disk")), "{}", v.cause);
    // A worker that was there before is no child that was started to do something.
    child.contexts[1].start_ns = 0;
    assert!(!climb(&child).verdict.bottleneck);
}

#[test]
fn who_sleeps_between_tries_to_get_a_lock_does_not_rest() {
    let mut rec = recording(&[(5, 0, 0, BlockReason::Timer, 95)]);
    assert_eq!(climb(&rec).verdict.rule, "sleeping");
    let libc = rec.frames[rec.stacks[0].frames[0].0 as usize].lines[0].function;
    rec.functions[libc.0 as usize].name = "sqlite3_step".into();
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.reason),
        ("delayed", Some("timer")),
        "{}",
        v.cause
    );
    assert!(v.bottleneck && v.function.as_deref() == Some("program::f0"));
    assert!(v.more.iter().any(|m| m.contains("lslocks")), "{:?}", v.more);
    // Seen at two looks; the other may be held by several at once.
    let lock = |pid, exclusive| FileLock {
        pid,
        name: "writer".into(),
        path: "/data/app.db".into(),
        exclusive,
    };
    rec.host = (0..3)
        .map(|i| HostSample {
            time_ns: i * 1_000_000_000,
            facts: HostFacts {
                file_locks: match i {
                    0 => vec![lock(9, false)],
                    _ => vec![lock(7, true), lock(7, true)],
                },
                ..HostFacts::default()
            },
        })
        .collect();
    let v = climb(&rec).verdict;
    assert_eq!(v.holder.as_deref(), Some("writer (pid 7, not measured)"));
    let said = "At 2 looks /data/app.db was locked by writer (pid 7, not measured)";
    assert!(v.more.iter().any(|m| m.starts_with(said)), "{:?}", v.more);
}

#[test]
fn who_is_fed_by_somebody_unmeasured_has_no_bottleneck_of_its_own() {
    use BlockReason::{Lock, Pipe};
    let stranger = || Actor::Stranger {
        pid: 7,
        tid: 7,
        name: "feeder".into(),
    };
    // A message each now and then.
    let mut rec = recording(&[(2, 0, 0, Pipe, 98)]);
    assert_eq!(climb(&rec).verdict.rule, "waiting");
    ended_by(&mut rec, stranger());
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("input", false), "{}", v.cause);
    assert!(v.outside && v.more.iter().any(|m| m.contains("feeder")));
    // What it writes and nobody takes is not brought.
    let name = |rec: &mut Recording, kind, name: &str| {
        let libc = rec.stacks[0].frames[0].0 as usize;
        rec.frames[libc].kind = kind;
        let function = rec.frames[libc].lines[0].function;
        rec.functions[function.0 as usize].name = name.into();
    };
    name(&mut rec, FrameKind::Kernel, "pipe_write");
    assert!(climb(&rec).verdict.bottleneck);
    // Nor is it where an answer is as likely.
    name(&mut rec, FrameKind::Kernel, "unix_stream_read_generic");
    assert!(climb(&rec).verdict.bottleneck);
    // A condition in shared memory, and a lock there.
    let mut rec = recording(&[(2, 0, 0, Lock, 98)]);
    ended_by(&mut rec, stranger());
    assert!(climb(&rec).verdict.bottleneck);
    name(&mut rec, FrameKind::Native, "pthread_cond_wait");
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("input", false), "{}", v.cause);
    assert!(v.confidence.contains("suspected"));
    // With a caller that waits meanwhile it is in the way of that one.
    rec.label_sets.push(vec![Label {
        key: "request".into(),
        value: LabelValue::Text("in flight".into()),
    }]);
    rec.samples[1].labels = Some(LabelsId(0));
    assert!(climb(&rec).verdict.bottleneck);
}

#[test]
fn who_has_next_to_nothing_to_do_is_not_held_up_by_others_on_the_cpus() {
    let busy = recording(&[(10, 30, 0, BlockReason::Timer, 60)]);
    assert_eq!(climb(&busy).verdict.rule, "cpu-shortage");
    // The same share of its time, and 3 % of the window.
    let idle = recording(&[(1, 3, 0, BlockReason::Timer, 0)]);
    let v = climb(&idle).verdict;
    assert!(!v.bottleneck, "{}: {}", v.rule, v.cause);
}

#[test]
fn who_only_owes_answers_and_polls_does_not_wait_for_answers() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Poll, 98)]);
    let label = |rec: &mut Recording, value: &str| {
        rec.label_sets = vec![vec![Label {
            key: "request".into(),
            value: LabelValue::Text(value.into()),
        }]];
        rec.samples[1].labels = Some(LabelsId(0));
    };
    label(&mut rec, "in flight");
    assert_eq!(climb(&rec).verdict.rule, "upstream");
    // Subscribers that are told nothing: nothing is wrong.
    rec.domain.backend = "ebpf".into();
    label(&mut rec, "owed");
    assert!(!climb(&rec).verdict.bottleneck);
    // Callers that are answered, but late.
    rec.peers = vec![Peer {
        pid: 1,
        requests: 100,
        in_flight_ns: 98 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.outside), ("held", false), "{}", v.cause);
    assert_eq!(v.reason, Some("poll"));
}

#[test]
fn a_plain_semaphore_that_strangers_give_is_work_unless_it_is_called_a_lock() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Lock, 98)]);
    ended_by(
        &mut rec,
        Actor::Stranger {
            pid: 7,
            tid: 7,
            name: "feeder".into(),
        },
    );
    let name = |rec: &mut Recording, frame: usize, name: &str| {
        let frame = rec.stacks[0].frames[frame].0 as usize;
        let function = rec.frames[frame].lines[0].function;
        rec.functions[function.0 as usize].name = name.into();
    };
    name(&mut rec, 0, "semop");
    name(&mut rec, 1, "next_order");
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("input", false), "{}", v.cause);
    name(&mut rec, 1, "ledger_lock");
    assert!(climb(&rec).verdict.bottleneck);
}

#[test]
fn a_server_that_stands_at_a_lock_of_its_own_making_is_stuck() {
    let mut rec = recording(&[(0, 0, 0, BlockReason::Poll, 100)]);
    assert_eq!(climb(&rec).verdict.rule, "idle");
    let libc = rec.frames[rec.stacks[0].frames[0].0 as usize].lines[0].function;
    rec.functions[libc.0 as usize].name = "ProcSleep".into();
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("stuck", true), "{}", v.cause);
    assert!(v.more.iter().any(|m| m.contains("pg_blocking_pids")));
}

#[test]
fn who_asks_for_work_and_is_asked_for_nothing_has_no_bottleneck() {
    let mut rec = recording(&[(1, 0, 0, BlockReason::Network, 97)]);
    rec.domain.backend = "ebpf".into();
    rec.peers = vec![Peer {
        pid: 1,
        asks: true,
        address: "10.0.0.2:6379".into(),
        requests: 4,
        in_flight_ns: 97 * TENTH,
        ..Peer::default()
    }];
    // By its own name it may be anything: that is said, and no more.
    let hint = |v: &super::Verdict| v.more.iter().any(|m| m.contains("it has none to do"));
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("upstream", true), "{}", v.cause);
    assert!(hint(&v), "{:?}", v.more);
    let mut quick = rec.clone();
    quick.peers[0].requests = 1000;
    assert!(!hint(&climb(&quick).verdict));
    // By a function that takes work it is not.
    let own = rec.stacks[0].frames[2].0 as usize;
    let function = rec.frames[own].lines[0].function.0 as usize;
    rec.functions[function].name = "redis.commands.ListCommands.blpop".into();
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("fed", false), "{}", v.cause);
    assert!(v.cause.contains("10.0.0.2:6379"), "{}", v.cause);
    // Who is asked himself passes on what he is asked for.
    rec.peers.push(Peer {
        pid: 1,
        requests: 4,
        in_flight_ns: 90 * TENTH,
        ..Peer::default()
    });
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("upstream", true), "{}", v.cause);
    assert!(!hint(&v));
}

#[test]
fn a_script_that_waits_in_vain_is_idle_unless_its_function_says_that_it_locks() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Lock, 98)]);
    let own = rec.stacks[0].frames[2].0 as usize;
    rec.frames[own].kind = FrameKind::Python;
    let function = rec.frames[own].lines[0].function.0 as usize;
    rec.functions[function].file = "/srv/app/arbiter.py".into();
    rec.functions[function].name = "wait_for_signals".into();
    assert!(climb(&rec).verdict.bottleneck);
    // An endless queue's own function tells it where nobody knows who ends waits.
    let mut named = rec.clone();
    let libc = named.stacks[0].frames[0].0 as usize;
    let get = named.frames[libc].lines[0].function.0 as usize;
    named.functions[get].name = "_queue_SimpleQueue_get_impl".into();
    assert!(!climb(&named).verdict.bottleneck);
    named.functions[function].name = "borrow_connection".into();
    assert!(climb(&named).verdict.bottleneck);
    let mut given = rec.clone();
    ended_by(&mut rec, Actor::Interrupt("timer".into()));
    let v = climb(&rec).verdict;
    assert!(!v.bottleneck, "{}", v.cause);
    rec.functions[function].name = "take_lock".into();
    assert!(climb(&rec).verdict.bottleneck);
    // Somebody gave it: it was held before.
    given.actors.push(Actor::Stranger {
        pid: 7,
        tid: 7,
        name: "other".into(),
    });
    ended_by(&mut given, Actor::Interrupt("timer".into()));
    let half = given.hops[0].ns / 2;
    given.hops[0].ns -= half;
    given.hops.push(Hop {
        actor: ActorId(0),
        ns: half,
        ..given.hops[0].clone()
    });
    assert!(climb(&given).verdict.bottleneck);
}

#[test]
fn a_server_s_processes_come_before_its_own_wait_for_callers() {
    use BlockReason::Poll;
    // The parent's polls are ended by a child that ends; that of its children by each other.
    let children = [(2, 0, 0, Poll, 40); 3];
    let mut rec = recording(&[&[(1, 0, 0, Poll, 80)], &children[..]].concat());
    // What ends them is an event.
    let kernel = rec.stacks[0].frames[0].0 as usize;
    rec.frames.push(Frame {
        kind: FrameKind::Kernel,
        ..rec.frames[kernel].clone()
    });
    rec.stacks.push(Stack {
        frames: vec![FrameId(rec.frames.len() as u32 - 1)],
        end: StackEnd::Root,
    });
    let event = Some(StackId(rec.stacks.len() as u32 - 1));
    rec.domain.backend = "ebpf".into();
    rec.processes = [(1, 0), (2, 1), (3, 1), (4, 1)]
        .map(|(pid, parent)| Process {
            pid,
            parent,
            ..Process::default()
        })
        .to_vec();
    for (i, pid) in [(1, 2), (2, 3), (3, 4)] {
        (rec.contexts[i].pid, rec.contexts[i].start_ns) = (pid, 10 * TENTH);
    }
    rec.label_sets.push(vec![Label {
        key: "request".into(),
        value: LabelValue::Text("owed".into()),
    }]);
    for (sample, by) in [(1, 1), (3, 2), (5, 3), (7, 1)] {
        rec.actors.push(Actor::Context(ContextId(by)));
        rec.hops.push(Hop {
            above: Above::Sample(sample),
            role: Role::Woke,
            actor: ActorId(rec.actors.len() as u32 - 1),
            stack: event,
            reason: None,
            part: None,
            labels: None,
            count: rec.samples[sample as usize].count,
            ns: rec.samples[sample as usize].ns,
        });
        if sample > 1 {
            rec.samples[sample as usize].labels = Some(LabelsId(0));
        }
    }
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.reason),
        ("colleagues", Some("poll")),
        "{}",
        v.cause
    );
}

#[test]
fn without_kernel_programs_who_answers_at_once_and_asks_nobody_is_healthy() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Poll, 98)]);
    rec.domain.backend = "proc".into();
    assert_eq!(climb(&rec).verdict.rule, "events");
    rec.peers = vec![Peer {
        pid: 1,
        requests: 20,
        in_flight_ns: TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("healthy", false), "{}", v.cause);
    // Who asks others may well wait for these.
    rec.peers.push(Peer {
        pid: 1,
        asks: true,
        requests: 20,
        in_flight_ns: TENTH,
        ..Peer::default()
    });
    assert!(climb(&rec).verdict.bottleneck);
}

/// Calls the frame at `depth` of the first stack `name`, of `kind`.
fn rename(rec: &mut Recording, depth: usize, kind: FrameKind, name: &str) {
    let frame = rec.stacks[0].frames[depth].0 as usize;
    rec.frames[frame].kind = kind;
    let function = rec.frames[frame].lines[0].function;
    rec.functions[function.0 as usize].name = name.into();
}

#[test]
fn a_process_of_which_nothing_moves_while_callers_get_no_answer_hangs() {
    use BlockReason::{Pipe, Poll};
    let mut rec = recording(&[(0, 0, 0, Pipe, 100), (0, 0, 0, Poll, 100)]);
    rename(&mut rec, 0, FrameKind::Kernel, "wait_for_partner");
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("idle", false), "{}", v.cause);
    rec.peers = vec![Peer {
        pid: 1,
        requests: 4,
        in_flight_ns: 4 * 130 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("hung", true), "{}", v.cause);
    assert_eq!(v.function.as_deref(), Some("program::f0"));
    assert!(v.more.iter().any(|m| m.contains("13.0 s")), "{:?}", v.more);
    // One that reads there may wait for work, so that it is only said who waits.
    rename(&mut rec, 0, FrameKind::Kernel, "pipe_read");
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("idle", false), "{}", v.cause);
    assert!(
        v.more.iter().any(|m| m.contains("no answer")),
        "{:?}",
        v.more
    );
    // Callers that were answered.
    rename(&mut rec, 0, FrameKind::Kernel, "wait_for_partner");
    rec.peers[0].in_flight_ns = TENTH;
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("idle", false), "{}", v.cause);
}

#[test]
fn who_waits_for_a_mutex_of_ruby_does_not_wait_for_work() {
    use BlockReason::{Lock, Timer};
    let mut rec = recording(&[(1, 0, 0, Lock, 99), (1, 0, 0, Timer, 99)]);
    rename(&mut rec, 0, FrameKind::Native, "pthread_cond_wait");
    rename(&mut rec, 1, FrameKind::Ruby, "Thread::Mutex#synchronize");
    // Ended by the one that sleeps.
    rec.actors = vec![Actor::Context(ContextId(1))];
    let hop = |above, role, reason, ns| Hop {
        above,
        actor: ActorId(0),
        role,
        reason,
        stack: None,
        part: None,
        labels: None,
        count: 10,
        ns,
    };
    let waits = rec.samples.iter().position(|s| s.reason == Some(Lock));
    let waits = Above::Sample(waits.unwrap() as u32);
    rec.hops = vec![
        hop(waits, Role::Woke, None, 99 * TENTH),
        hop(Above::Hop(0), Role::Blocked, Some(Timer), 99 * TENTH),
    ];
    let v = climb(&rec).verdict;
    assert!(v.bottleneck, "{}: {}", v.rule, v.cause);
    assert_eq!(v.reason, Some("lock"), "{}", v.cause);
    // A queue's is for work.
    rename(&mut rec, 1, FrameKind::Ruby, "Thread::Queue#pop");
    let v = climb(&rec).verdict;
    assert!(!v.bottleneck, "{}: {}", v.rule, v.cause);
}

#[test]
fn what_is_sent_and_not_taken_is_told_without_the_kernel_s_functions() {
    use BlockReason::{Network, Pipe};
    let told = |reason, call: &str| {
        let mut rec = recording(&[(2, 0, 0, reason, 98)]);
        rename(&mut rec, 0, FrameKind::Native, call);
        let v = climb(&rec).verdict;
        (v.rule, v.outside, v.cause)
    };
    let (rule, outside, cause) = told(Network, "__GI___send");
    assert_eq!((rule, outside), ("waiting", false), "{cause}");
    assert!(cause.contains("reads slower"), "{cause}");
    let (rule, _, cause) = told(Network, "__libc_recv");
    assert_eq!(rule, "upstream", "{cause}");
    let (_, _, cause) = told(Network, "__GI___connect");
    assert!(cause.contains("connections to be made"), "{cause}");
    let (_, _, cause) = told(Pipe, "mq_timedsend");
    assert!(cause.contains("queue of messages that it fills"), "{cause}");
}

#[test]
fn a_thread_that_never_gets_its_answer_while_callers_wait_is_not_parked() {
    let mut rec = recording(&[
        (0, 0, 0, BlockReason::Network, 100),
        (0, 0, 0, BlockReason::Poll, 100),
    ]);
    rec.label_sets.push(vec![Label {
        key: "request".into(),
        value: LabelValue::Text("in flight".into()),
    }]);
    rec.samples[0].labels = Some(LabelsId(0));
    assert_eq!(climb(&rec).verdict.rule, "idle");
    rec.peers = vec![Peer {
        pid: 1,
        requests: 1,
        in_flight_ns: 100 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("upstream", true), "{}", v.cause);
    assert_eq!(v.function.as_deref(), Some("program::f0"));
    // What was asked before the window is nobody's own request: the connection tells that it is one.
    rec.label_sets[0][0].value = LabelValue::Text("owed".into());
    rec.label_sets[0].push(Label {
        key: "resource".into(),
        value: LabelValue::Text("peer 10.0.0.2:5432 (fd 4)".into()),
    });
    assert_eq!(climb(&rec).verdict.rule, "idle");
    rec.peers.push(Peer {
        pid: 1,
        asks: true,
        address: "10.0.0.2:5432".into(),
        requests: 1,
        in_flight_ns: 100 * TENTH,
        ..Peer::default()
    });
    assert_eq!(climb(&rec).verdict.rule, "upstream");
}

#[test]
fn who_awaited_an_answer_before_the_window_and_never_got_it_is_not_idle() {
    let mut rec = recording(&[(0, 0, 0, BlockReason::Network, 100)]);
    rec.label_sets.push(vec![Label {
        key: "resource".into(),
        value: LabelValue::Text("peer 10.0.0.2:5432 (fd 4)".into()),
    }]);
    rec.samples[0].labels = Some(LabelsId(0));
    let seen = [WaitSeen {
        in_flight: Some(false),
        awaits: false,
        talks: true,
    }];
    crate::idle::mark(&mut rec, &seen);
    assert!(rec.samples[0].idle);
    rec.peers = vec![Peer {
        pid: 1,
        asks: true,
        address: "10.0.0.2:5432".into(),
        requests: 1,
        in_flight_ns: 130 * TENTH,
        ..Peer::default()
    }];
    crate::idle::mark(&mut rec, &seen);
    assert!(!rec.samples[0].idle);
    // Most of what was asked there was answered.
    rec.peers[0].requests = 50;
    crate::idle::mark(&mut rec, &seen);
    assert!(rec.samples[0].idle);
}

#[test]
fn a_sleep_in_an_event_loop_s_step_is_said_to_hold_it_up() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Timer, 98)]);
    let hint = |rec: &Recording| {
        let v = climb(rec).verdict;
        assert_eq!(v.rule, "sleeping", "{}", v.cause);
        v.more.iter().any(|m| m.contains("event loop"))
    };
    assert!(!hint(&rec));
    rename(&mut rec, 1, FrameKind::Native, "task_step_impl");
    assert!(hint(&rec));
}
