//! Each cause by its rule, and threads at rest.

use super::super::Exclusion;
use super::*;

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
        // A thread that computes now and then, beside one that ticks.
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
        // A thread that gets nowhere, among many that sleep.
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
        let applied: Vec<_> = ladder.tried.iter().filter(|f| f.spoke).collect();
        assert_eq!(applied.len(), 1, "one rule speaks");
        assert!(v.share <= 1.0 && !v.cause.ends_with('.'), "{}", v.cause);
    }
}

#[test]
fn parked_threads_are_left_out() {
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
    let excluded: Vec<_> = (ladder.excluded.iter())
        .map(|a| (a.exclusion, a.reason, &*a.function, a.ns))
        .collect();
    let each = |function| (Exclusion::Parked, Some("lock"), function, 100 * TENTH);
    assert_eq!(excluded, [each("program::f1"), each("program::f2")]);
}

#[test]
fn an_unseen_thread_is_not_said_to_rest() {
    let mut rec = recording(&[(0, 0, 0, BlockReason::Poll, 0)]);
    let ledger = &mut rec.contexts[0].ledger;
    (ledger.unknown[0], ledger.wall_ns) = (100 * TENTH, 100 * TENTH);
    let ladder = climb(&rec);
    assert_eq!(ladder.verdict.rule, "unseen", "{}", ladder.verdict.cause);
    assert_eq!(ladder.bottleneck.parked_threads, 0);
}

#[test]
fn a_thread_with_data_to_send_or_at_a_disk_is_not_parked() {
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
fn a_thread_that_polls_for_a_child_or_a_disk_does_not_rest() {
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
fn a_thread_with_next_to_nothing_to_do_is_not_held_up_by_others_on_the_cpus() {
    let busy = recording(&[(10, 30, 0, BlockReason::Timer, 60)]);
    assert_eq!(climb(&busy).verdict.rule, "cpu-shortage");
    // An equal share of its time, and 3 % of the window.
    let idle = recording(&[(1, 3, 0, BlockReason::Timer, 0)]);
    let v = climb(&idle).verdict;
    assert!(!v.bottleneck, "{}: {}", v.rule, v.cause);
    // Nor are threads of which each is late now and then, though all together are for 8 % of the window.
    let mut pool = recording(&[(0, 2, 0, BlockReason::Timer, 0); 4]);
    let v = climb(&pool).verdict;
    assert!(!v.bottleneck, "{}: {}", v.rule, v.cause);
    // One that hardly ever gets a CPU is.
    pool = recording(&[(0, 80, 0, BlockReason::Timer, 10)]);
    assert_eq!(climb(&pool).verdict.rule, "cpu-shortage");
}

#[test]
fn a_process_that_asks_for_work_and_is_asked_for_nothing_has_no_bottleneck() {
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
    let hint = |v: &Verdict| v.more.iter().any(|m| m.contains("it has none to do"));
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
    // A process with callers passes their requests on.
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
fn a_process_with_unseen_busy_threads_is_not_called_idle() {
    let mut rec = recording(&[(0, 0, 0, BlockReason::Poll, 100)]);
    rec.domain.backend = "proc".into();
    assert_eq!(climb(&rec).verdict.rule, "idle");
    rec.processes = vec![Process {
        pid: 1,
        unattributed_on_cpu_ns: 5 * TENTH,
        user: None,
        ..Process::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("brief", false), "{}", v.cause);
    // Next to nothing.
    rec.processes[0].unattributed_on_cpu_ns = TENTH / 10;
    assert_eq!(climb(&rec).verdict.rule, "idle");
}
