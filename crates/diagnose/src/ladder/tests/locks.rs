//! Locks, and waits that only look like one.

use super::*;

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
    for (sample, thread) in waits {
        let other = ContextId(1 - thread.0);
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
    // Waits that ran out, each while the other had the lock, may have been at different times.
    let mut then = rec.clone();
    let set = then.label_sets.last_mut().expect("it was just added");
    set[0].value = wallscope_model::LabelValue::Text(wallscope_model::told_by::MUTEX_THEN.into());
    let other = climb(&then).verdict;
    assert!(!other.cause.contains("deadlock"), "{}", other.cause);
    let told = v.more.iter().any(|m| m.contains("waits for a lock that"));
    assert!(told, "{:?}", v.more);
    // With one owner alone there is no cycle.
    rec.hops.truncate(1);
    assert_ne!(climb(&rec).verdict.rule, "stuck");
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
        polls: 100,
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
    assert!(
        v.more
            .iter()
            .any(|m| m.contains("0.9 other goroutines on average wait in program::f0 for a timer"))
    );
    // Another task is in a system call: it may hold the lock, and one that sleeps hardly does.
    let mut calls = rec.clone();
    let other = calls.samples[2].stack;
    calls.tasks.push(TaskGroup {
        name: "runtime.main".into(),
        seen: 1,
        times: vec![TaskTime {
            stack: Some(other),
            ..wait(0, "syscall", 90)
        }],
        ..calls.tasks[0].clone()
    });
    let more = climb(&calls).verdict.more;
    let said = "0.9 other goroutines on average wait in program::f1 for";
    assert!(more.iter().any(|m| m.contains(said)), "{more:?}");
    // So is sending to a slow receiver, and not waiting for a sender.
    let sends = &mut rec.tasks[0].times[0];
    (sends.reason, sends.detail) = ("channel".into(), "chan send".into());
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.reason), ("tasks-lock", Some("channel")));
    // The receiver began in another function, and sleeps.
    let mut elsewhere = rec.clone();
    let sleeps = elsewhere.tasks[0].times.remove(1);
    elsewhere.tasks[0].times.truncate(1);
    elsewhere.tasks.push(TaskGroup {
        name: "runtime.main".into(),
        seen: 1,
        times: vec![sleeps],
        ..elsewhere.tasks[0].clone()
    });
    let v = climb(&elsewhere).verdict;
    assert_eq!(v.rule, "tasks-lock");
    let told = |what: &str| v.more.iter().any(|m| m.contains(what));
    assert!(
        told("goroutines sleep meanwhile in program::f0"),
        "{:?}",
        v.more
    );
    // A little computing is no other finding, though it is all of the time that is not idle.
    let mut computes = rec.clone();
    for context in &mut computes.contexts {
        context.ledger = Ledger::default();
    }
    let ledger = &mut computes.contexts[0].ledger;
    (ledger.on_cpu.user, ledger.wall_ns) = (TENTH, TENTH);
    assert_eq!(climb(&computes).verdict.rule, "tasks-lock");
    rec.tasks[0].times[0].detail = "chan receive".into();
    assert_ne!(climb(&rec).verdict.rule, "tasks-lock");
    // Unless it handles a request: its caller waits.
    let std = rec.frames[rec.stacks[0].frames[1].0 as usize].lines[0].function;
    let was = std::mem::replace(
        &mut rec.functions[std.0 as usize].name,
        "net/http.serverHandler.ServeHTTP".into(),
    );
    assert_ne!(climb(&rec).verdict.rule, "tasks-lock", "news");
    rec.peers = vec![Peer {
        pid: 1,
        requests: 100,
        in_flight_ns: 350 * TENTH,
        ..Peer::default()
    }];
    rec.tasks.push(TaskGroup {
        pid: 1,
        kind: "goroutine".into(),
        name: "main.resizer".into(),
        seen: 1,
        polls: 100,
        times: vec![TaskTime {
            state: State::OnCpu,
            ..wait(0, "", 100)
        }],
    });
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.reason), ("tasks-lock", Some("channel")));
    assert!(v.cause.contains("a sender on their channel"), "{}", v.cause);
    let told = |what: &str| v.more.iter().any(|m| m.contains(what));
    assert!(told("timer") && told("main.resizer run"), "{:?}", v.more);
    rec.functions[std.0 as usize].name = was;
    rec.peers.clear();
    rec.tasks.pop();
    rec.tasks[0].times[0].reason = "mutex".into();
    assert_eq!(climb(&rec).verdict.rule, "tasks-lock");
    // One that seldom waits is no cause.
    rec.tasks[0].times[0].ns = 40 * TENTH;
    assert_ne!(climb(&rec).verdict.rule, "tasks-lock");
}

#[test]
fn rows_that_other_transactions_have_locked_are_told_by_their_wakers() {
    let mut rec = recording(&[
        (2, 0, 0, BlockReason::Lock, 98),
        (40, 0, 0, BlockReason::Timer, 60),
    ]);
    rename(
        &mut rec,
        1,
        FrameKind::Native,
        "handler::ha_index_read_map(unsigned char*)",
    );
    let own = rec.frames[rec.stacks[1].frames[2].0 as usize].lines[0].function;
    rec.stacks[1].frames.remove(1);
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    rec.hops[0].stack = Some(StackId(1));
    let told = |rec: &Recording| {
        let v = climb(rec).verdict;
        assert_eq!(v.reason, Some("lock"), "{}", v.cause);
        v.more.iter().any(|m| m.contains("INNODB STATUS"))
    };
    assert!(!told(&rec));
    rec.functions[own.0 as usize].name = "ha_commit_trans(THD*, bool)".into();
    assert!(told(&rec), "{:?}", climb(&rec).verdict.more);
}

#[test]
fn a_waker_of_another_process_is_named_with_its_pid() {
    let mut rec = recording(&[
        (2, 0, 0, BlockReason::Lock, 98),
        (2, 0, 0, BlockReason::Pipe, 98),
        (2, 0, 0, BlockReason::Timer, 98),
    ]);
    (rec.contexts[2].pid, rec.contexts[2].name) = (7, "reader".into());
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    rec.actors.push(Actor::Context(ContextId(2)));
    let sleeps = Hop {
        above: Above::Hop(0),
        role: Role::Blocked,
        actor: ActorId(1),
        reason: Some(BlockReason::Timer),
        ..rec.hops[0].clone()
    };
    rec.hops.push(sleeps);
    let told = |rec: &Recording, what: &str| {
        let v = climb(rec).verdict;
        assert_eq!(v.reason, Some("lock"), "{}", v.cause);
        assert!(v.more.iter().any(|m| m.contains(what)), "{:?}", v.more);
    };
    told(
        &rec,
        "the thread that ends them waits for reader (pid 7), which sleeps",
    );
    rec.contexts[2].pid = 1;
    told(&rec, "the thread that ends them sleeps");
}

#[test]
fn a_thread_in_a_runtime_of_openmp_waits_for_its_fellows() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Lock, 98)]);
    let told = |rec: &Recording| climb(rec).verdict.cause.contains("OpenMP");
    assert!(!told(&rec));
    // Without names, and called by the program's own main function.
    rec.modules[1].path = "/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0".into();
    let inner = rec.stacks[0].frames[0].0 as usize;
    rec.frames[inner].lines.clear();
    assert!(told(&rec), "{}", climb(&rec).verdict.cause);
    // Not a wait of a loop that runs in it.
    rec.stacks[0].frames.swap(0, 2);
    assert!(!told(&rec));
}

#[test]
fn without_wakers_the_wait_beside_the_lock_is_told() {
    let mut rec = recording(&[
        (1, 0, 0, BlockReason::Lock, 99),
        (1, 0, 0, BlockReason::Lock, 99),
        (1, 0, 0, BlockReason::Disk, 99),
    ]);
    let told = |rec: &Recording| {
        let v = climb(rec).verdict;
        assert_eq!(v.reason, Some("lock"), "{}", v.cause);
        v.more
            .iter()
            .any(|m| m.contains("they also wait for the disk"))
    };
    assert!(!told(&rec));
    for sample in &mut rec.samples {
        sample.stack = StackId(0);
    }
    assert!(told(&rec), "{:?}", climb(&rec).verdict.more);
    // A known waker is better than that.
    ended_by(&mut rec, Actor::Context(ContextId(2)));
    assert!(!told(&rec));
}

#[test]
fn a_thread_that_sleeps_between_tries_to_get_a_lock_does_not_rest() {
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
    // Seen in two polls; a shared lock may be held by several processes at once.
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
    let said = "/data/app.db was locked by writer (pid 7, not measured) in 2 of 3 polls";
    assert!(v.more.iter().any(|m| m.starts_with(said)), "{:?}", v.more);
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
    // Where others let it go on now and then, and wakers are unknown.
    let mut rec = recording(&[(2, 0, 0, BlockReason::Poll, 98)]);
    rec.domain.backend = "proc".into();
    assert!(climb(&rec).verdict.cause.contains("waits for events"));
    rename(&mut rec, 0, FrameKind::Native, "ProcSleep");
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("events", true), "{}", v.cause);
    assert!(v.cause.contains("a PostgreSQL lock"), "{}", v.cause);
    // One of several that callers ask, by itself.
    let mut asked = rec.clone();
    asked.domain.backend = "ebpf".into();
    asked.label_sets = vec![vec![Label {
        key: "request".into(),
        value: LabelValue::Text("owed".into()),
    }]];
    asked.samples[1].labels = Some(LabelsId(0));
    asked.peers = vec![Peer {
        pid: 1,
        requests: 100,
        in_flight_ns: 98 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&asked).verdict;
    assert_eq!(v.rule, "held", "{}", v.cause);
    assert!(v.cause.contains("a PostgreSQL lock"), "{}", v.cause);
    assert!(v.more.iter().any(|m| m.contains("pg_blocking_pids")));
    let v = climb(&rec).verdict;
    assert!(v.more.iter().any(|m| m.contains("pg_blocking_pids")));
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
    // An endless queue's own function tells it where wakers are unknown.
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
    // Another process gave it: it was held before.
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
fn a_thread_that_waits_for_a_ruby_mutex_does_not_wait_for_work() {
    use BlockReason::{Lock, Timer};
    let mut rec = recording(&[(1, 0, 0, Lock, 99), (1, 0, 0, Timer, 99)]);
    rename(&mut rec, 0, FrameKind::Native, "pthread_cond_wait");
    rename(&mut rec, 1, FrameKind::Ruby, "Thread::Mutex#synchronize");
    // Ended by the thread that sleeps.
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

/// Threads of one pool: they wait at a condition, and one of them, which polls meanwhile, ends these waits.
fn led(reason: BlockReason) -> Recording {
    let mut rec = recording(&[
        (2, 0, 0, BlockReason::Lock, 98),
        (2, 0, 0, BlockReason::Lock, 40),
        (1, 0, 0, reason, 40),
    ]);
    rec.domain.backend = "ebpf".into();
    rename(&mut rec, 0, FrameKind::Native, "pthread_cond_wait");
    // The second and the third are one thread, that waits at the same place as the first.
    for s in &mut rec.samples {
        if s.context == ContextId(2) {
            s.context = ContextId(1);
        } else if s.reason == Some(BlockReason::Lock) {
            s.stack = StackId(0);
        }
    }
    let other = rec.contexts.remove(2).ledger;
    let own = &mut rec.contexts[1].ledger;
    own.on_cpu.user += other.on_cpu.user;
    own.blocked[reason as usize] += other.blocked[reason as usize];
    own.wall_ns += other.wall_ns;
    rec.actors = vec![Actor::Context(ContextId(0)), Actor::Context(ContextId(1))];
    let waits: Vec<u32> = (0..rec.samples.len() as u32)
        .filter(|i| rec.samples[*i as usize].reason == Some(BlockReason::Lock))
        .collect();
    for i in waits {
        let ns = rec.samples[i as usize].ns;
        let by = ActorId(u32::from(rec.samples[i as usize].context == ContextId(0)));
        // Only the second polls: the first thread's activity is unknown.
        let (above, below) = (rec.hops.len() as u32, by == ActorId(1));
        let hop = |above, role, reason| Hop {
            above,
            role,
            actor: by,
            stack: None,
            reason,
            part: None,
            labels: None,
            count: 10,
            ns,
        };
        rec.hops.push(hop(Above::Sample(i), Role::Woke, None));
        if below {
            rec.hops
                .push(hop(Above::Hop(above), Role::Blocked, Some(reason)));
        }
    }
    rec
}

#[test]
fn threads_that_wait_for_the_one_that_polls_for_all_have_no_work() {
    let v = climb(&led(BlockReason::Poll)).verdict;
    assert!(!v.bottleneck, "{}: {}", v.rule, v.cause);
    // A thread that sleeps meanwhile may well have the thing that the others want.
    let v = climb(&led(BlockReason::Timer)).verdict;
    assert_eq!(
        (v.bottleneck, v.reason),
        (true, Some("lock")),
        "{}",
        v.cause
    );
}

/// The first stack's functions are a script's: the program's own, and one of Python's library below it.
fn script(rec: &mut Recording, own: &str, library: (&str, &str)) {
    for (depth, name, file) in [
        (2, own, "/srv/app/app.py".to_string()),
        (1, library.0, format!("/usr/lib/python3.11/{}", library.1)),
    ] {
        rename(rec, depth, FrameKind::Python, name);
        let frame = rec.stacks[0].frames[depth].0 as usize;
        let function = rec.frames[frame].lines[0].function;
        rec.functions[function.0 as usize].file = file.into();
    }
}

#[test]
fn without_wakers_consumers_that_hardly_work_have_no_work() {
    let with = |on_cpu, own| {
        let mut rec = recording(&[(on_cpu, 0, 0, BlockReason::Lock, 100 - on_cpu); 2]);
        for sample in &mut rec.samples {
            sample.stack = StackId(0);
        }
        script(&mut rec, own, ("Queue.get", "queue.py"));
        climb(&rec).verdict
    };
    let v = with(2, "consume");
    assert!(!v.bottleneck, "{}", v.cause);
    // Things that are lent: the borrowers work, or the function's name says so.
    for (on_cpu, own) in [(40, "consume"), (2, "borrow_connection")] {
        let v = with(on_cpu, own);
        assert_eq!(
            (v.bottleneck, v.reason),
            (true, Some("lock")),
            "{}",
            v.cause
        );
    }
}

#[test]
fn without_wakers_a_consumer_is_starved_while_all_others_rest() {
    use BlockReason::{Disk, Lock, Timer};
    let with = |others: (u64, BlockReason), asked| {
        let (on_cpu, reason) = others;
        let mut rec = recording(&[(2, 0, 0, Lock, 98), (on_cpu, 0, 0, reason, 100 - on_cpu)]);
        rec.domain.backend = "proc".into();
        script(&mut rec, "work", ("Event.wait", "threading.py"));
        rec.peers.extend(asked);
        climb(&rec).verdict
    };
    let v = with((1, Timer), None);
    assert!(!v.bottleneck, "{}", v.cause);
    // One of them works, or waits for others, or the process is asked for something: the wait may be for that.
    let caller = Peer {
        pid: 1,
        requests: 20,
        in_flight_ns: 50 * TENTH,
        ..Peer::default()
    };
    for (others, asked) in [
        ((40, Timer), None),
        ((1, Disk), None),
        ((1, Timer), Some(caller)),
    ] {
        let v = with(others, asked);
        assert_eq!(
            (v.bottleneck, v.state),
            (true, Some(State::Blocked)),
            "{}",
            v.cause
        );
    }
    // They wake twenty times a second and more: another thread may be slow to answer each time.
    let mut rec = recording(&[(2, 0, 0, Lock, 98), (1, 0, 0, Timer, 99)]);
    script(&mut rec, "work", ("Event.wait", "threading.py"));
    rec.contexts[0].ledger.voluntary_switches = 300;
    assert!(climb(&rec).verdict.bottleneck);
    // No other thread could bring any.
    let mut rec = recording(&[(2, 0, 0, Lock, 98)]);
    script(&mut rec, "work", ("Event.wait", "threading.py"));
    assert!(climb(&rec).verdict.bottleneck);
}

#[test]
fn without_wakers_a_script_that_listens_to_its_child_is_not_idle() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Poll, 98)]);
    rec.domain.backend = "proc".into();
    script(&mut rec, "convert", ("Popen._communicate", "subprocess.py"));
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.reason),
        ("delayed", Some("child")),
        "{}",
        v.cause
    );
}

#[test]
fn a_pool_s_results_are_no_news() {
    let mut rec = recording(&[
        (2, 0, 0, BlockReason::Lock, 98),
        (2, 0, 0, BlockReason::Timer, 98),
    ]);
    script(
        &mut rec,
        "collect",
        ("ApplyResult.wait", "multiprocessing/pool.py"),
    );
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    let sleeps = Hop {
        above: Above::Hop(0),
        role: Role::Blocked,
        reason: Some(BlockReason::Timer),
        ..rec.hops[0].clone()
    };
    rec.hops.push(sleeps);
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.bottleneck, v.reason),
        (true, Some("lock")),
        "{}",
        v.cause
    );
    assert!(v.cause.contains("results of other threads"), "{}", v.cause);
}

#[test]
fn a_future_is_no_full_queue_and_the_peer_that_is_asked_for_it_is_named() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Lock, 98)]);
    rename(
        &mut rec,
        0,
        FrameKind::Native,
        "jdk.internal.misc.Unsafe.park",
    );
    rename(
        &mut rec,
        1,
        FrameKind::Native,
        "java.util.concurrent.CompletableFuture.waitingGet",
    );
    rename(&mut rec, 2, FrameKind::Native, "Client.send");
    let v = climb(&rec).verdict;
    assert_eq!(v.rule, "waiting", "{}", v.cause);
    assert!(v.cause.contains("a future"), "{}", v.cause);
    rec.peers = vec![Peer {
        pid: 1,
        asks: true,
        address: "10.0.0.2:80".into(),
        requests: 20,
        in_flight_ns: 90 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.outside), ("upstream", true), "{}", v.cause);
    assert!(v.cause.contains("10.0.0.2:80"), "{}", v.cause);
    // Not where answers were awaited for a small part of that.
    rec.peers[0].in_flight_ns = 9 * TENTH;
    assert_eq!(climb(&rec).verdict.rule, "waiting");
}
