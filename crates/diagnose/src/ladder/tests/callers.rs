//! Callers, upstreams, and callers without an answer.

use super::*;

#[test]
fn a_process_fed_by_an_unmeasured_one_has_no_bottleneck_of_its_own() {
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
    // Data that it writes and no reader takes is not brought.
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
fn a_process_that_only_owes_answers_and_polls_does_not_wait_for_answers() {
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
    // Subscribers that get no news: nothing is wrong.
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
    // If its tasks sleep, the verdict says so.
    let wait = |reason: &str, tenths| TaskTime {
        state: State::Blocked,
        reason: reason.into(),
        detail: "".into(),
        stack: Some(StackId(0)),
        labels: None,
        count: 10,
        ns: tenths * TENTH,
    };
    rec.tasks.push(TaskGroup {
        pid: 1,
        kind: "asyncio task".into(),
        name: "writer".into(),
        seen: 1,
        polls: 100,
        times: vec![wait("timer", 10), wait("queue", 90)],
    });
    let told = |rec: &Recording| {
        let v = climb(rec).verdict;
        assert_eq!(v.rule, "held", "{}", v.cause);
        v.more
            .iter()
            .any(|m| m.contains("asyncio tasks sleep meanwhile in program::f0 (0.9 of"))
    };
    assert!(!told(&rec));
    rec.tasks[0].times[0].ns = 90 * TENTH;
    assert!(told(&rec), "{:?}", climb(&rec).verdict.more);
}

#[test]
fn a_server_s_processes_come_before_its_own_wait_for_callers() {
    use BlockReason::Poll;
    // The parent's polls are ended by a child that ends; that of its children by each other.
    let children = [(2, 0, 0, Poll, 40); 3];
    let mut rec = recording(&[&[(1, 0, 0, Poll, 80)], &children[..]].concat());
    // An event ends them.
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
    // With short requests the parent's waits are longer. They are for its children, unless these answer others.
    for (context, sample) in [(1, 3), (2, 5), (3, 7)] {
        let ledger = &mut rec.contexts[context].ledger;
        ledger.blocked[Poll as usize] /= 2;
        ledger.wall_ns -= ledger.blocked[Poll as usize];
        rec.samples[sample].ns /= 2;
        rec.hops[context].ns /= 2;
    }
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.reason),
        ("delayed", Some("child")),
        "{}",
        v.cause
    );
    rec.peers = [2, 3, 4]
        .map(|pid| Peer {
            pid,
            requests: 1,
            ..Peer::default()
        })
        .to_vec();
    let v = climb(&rec).verdict;
    assert_ne!(v.rule, "delayed", "{}", v.cause);
}

#[test]
fn without_kernel_programs_a_process_that_answers_at_once_and_asks_nobody_is_healthy() {
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
    // A process that asks others may well wait for these.
    rec.peers.push(Peer {
        pid: 1,
        asks: true,
        requests: 20,
        in_flight_ns: 60 * TENTH,
        ..Peer::default()
    });
    assert!(climb(&rec).verdict.bottleneck);
    // Not where it awaited them, and owed answers, a small part of the time that it polled only.
    rec.peers[1].in_flight_ns = 10 * TENTH;
    rec.peers[0].in_flight_ns = 12 * TENTH;
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("healthy", false), "{}", v.cause);
}

#[test]
fn a_file_system_that_a_process_serves_is_no_disk() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Disk, 98)]);
    assert!(climb(&rec).verdict.cause.contains("the disk"));
    rename(&mut rec, 0, FrameKind::Kernel, "__fuse_simple_request");
    let cause = climb(&rec).verdict.cause;
    assert!(cause.contains("FUSE"), "{cause}");
    rename(&mut rec, 0, FrameKind::Kernel, "nfs_wait_bit_killable");
    let cause = climb(&rec).verdict.cause;
    assert!(cause.contains("over the network"), "{cause}");
}

#[test]
fn a_process_that_answers_at_once_and_hardly_polls_for_others_is_healthy() {
    // Of two tenths and a half that were not idle.
    let mut rec = recording(&[(1, 0, 0, BlockReason::Poll, 2)]);
    rec.domain.backend = "proc".into();
    assert_eq!(climb(&rec).verdict.rule, "events");
    let peer = |asks| Peer {
        pid: 1,
        asks,
        requests: 200,
        in_flight_ns: 3 * TENTH,
        ..Peer::default()
    };
    rec.peers = vec![peer(false), peer(true)];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("healthy", false), "{}", v.cause);
}

#[test]
fn a_peer_without_a_connection_is_outside_unless_it_is_measured() {
    let mut rec = recording(&[
        (2, 0, 0, BlockReason::Network, 98),
        (2, 0, 0, BlockReason::Timer, 98),
    ]);
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.outside), ("upstream", true), "{}", v.cause);
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.outside), ("upstream", false), "{}", v.cause);
    assert!(
        v.more.iter().any(|m| m.contains("ended by t1")),
        "{:?}",
        v.more
    );
}

#[test]
fn callers_that_wait_longer_than_the_upstream_takes_queue_here() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Network, 98)]);
    let peer = |asks, in_flight| Peer {
        pid: 1,
        asks,
        address: "10.0.0.2:80".into(),
        requests: 100,
        in_flight_ns: in_flight * TENTH,
        ..Peer::default()
    };
    let told = |rec: &Recording, what: &str| {
        let v = climb(rec).verdict;
        assert_eq!(v.rule, "upstream", "{}", v.cause);
        v.more.iter().any(|m| m.contains(what))
    };
    rec.peers = vec![peer(true, 98), peer(false, 390)];
    assert!(told(&rec, "4.0 times as long") && told(&rec, "100 requests to it took"));
    let verdict = climb(&rec).verdict;
    let queue = ", while its own callers queue here for a turn";
    assert!(verdict.cause.ends_with(queue), "{}", verdict.cause);
    let parts = verdict.parts;
    let advice = parts.advice.unwrap_or_default();
    assert!(advice.contains("more connections or threads"), "{advice}");
    let evidence = parts.evidence.join("; ");
    assert!(evidence.contains("4.0 times as long"), "{evidence}");
    rec.peers[1].in_flight_ns = 110 * TENTH;
    assert!(!told(&rec, "times as long"));
    rec.peers[0].connections = 201;
    assert!(!told(&rec, "requests to it took"));
    rec.peers[0].connections = 1;
    // A fact about few of them is not said of all.
    rec.peers[0].in_flight_ns = 9 * TENTH;
    assert!(!told(&rec, "requests to it took"));
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
    assert!(v.function.is_some());
    assert!(v.more.iter().any(|m| m.contains("13.0 s")), "{:?}", v.more);
    // A thread that reads there may wait for work, so the verdict names only the waiter.
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
fn data_that_is_not_taken_is_told_without_the_kernel_s_functions() {
    use BlockReason::{Network, Pipe};
    let told = |reason, call: &str| {
        let mut rec = recording(&[(2, 0, 0, reason, 98)]);
        rename(&mut rec, 0, FrameKind::Native, call);
        let v = climb(&rec).verdict;
        (v.rule, v.outside, v.cause)
    };
    let (rule, outside, cause) = told(Network, "__GI___send");
    assert_eq!((rule, outside), ("waiting", false), "{cause}");
    assert!(cause.contains("reads too slowly"), "{cause}");
    let (rule, _, cause) = told(Network, "__libc_recv");
    assert_eq!(rule, "upstream", "{cause}");
    let (_, _, cause) = told(Network, "__GI___connect");
    assert!(cause.contains("connections to be made"), "{cause}");
    let (_, _, cause) = told(Pipe, "mq_timedsend");
    assert!(cause.contains("message queue that it fills"), "{cause}");
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
    assert!(v.function.is_some());
    // A request from before the window is no thread's own: the connection tells that there is one.
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
fn a_thread_that_awaited_an_answer_before_the_window_and_never_got_it_is_not_idle() {
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
    // Most requests there were answered.
    rec.peers[0].requests = 50;
    crate::idle::mark(&mut rec, &seen);
    assert!(rec.samples[0].idle);
}

#[test]
fn without_kernel_programs_a_sleep_counts_against_a_process_that_owes_answers_as_long() {
    let mut rec = recording(&[(1, 0, 0, BlockReason::Timer, 90); 2]);
    rec.domain.backend = "perf".into();
    assert_eq!(climb(&rec).verdict.rule, "sleeping");
    rec.peers = vec![Peer {
        pid: 1,
        requests: 800,
        in_flight_ns: 500 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.rule, v.bottleneck),
        ("sleep-in-request", true),
        "{}",
        v.cause
    );
    assert!(v.confidence.contains("suspected"), "{}", v.confidence);
    // A thread that sleeps beside, and answers at once.
    rec.peers[0].in_flight_ns = TENTH;
    assert!(!climb(&rec).verdict.bottleneck);
}

#[test]
fn many_short_requests_for_each_request_of_a_caller_are_told() {
    let mut rec = recording(&[(1, 0, 0, BlockReason::Network, 90)]);
    let asks = |requests| Peer {
        pid: 1,
        asks: true,
        address: "10.0.0.2:5432".into(),
        connections: 1,
        requests,
        in_flight_ns: 80 * TENTH,
        ..Peer::default()
    };
    let is_asked = |requests| Peer {
        pid: 1,
        requests,
        in_flight_ns: 85 * TENTH,
        ..Peer::default()
    };
    let told = |rec: &Recording| {
        let v = climb(rec).verdict;
        assert_eq!(v.rule, "upstream", "{}", v.cause);
        let advice = v.parts.advice.unwrap_or_default();
        let said = v.parts.evidence.join("; ");
        (
            advice.contains("at once"),
            said.contains("30 of these for each"),
        )
    };
    rec.peers = vec![asks(3000), is_asked(100)];
    assert_eq!(told(&rec), (true, true));
    // Few for each; long ones; callers of another process.
    rec.peers = vec![asks(3000), is_asked(1000)];
    assert_eq!(told(&rec), (false, false));
    rec.peers = vec![asks(120), is_asked(4)];
    assert_eq!(told(&rec), (false, false));
    rec.peers = vec![
        asks(3000),
        Peer {
            pid: 2,
            ..is_asked(100)
        },
    ];
    assert_eq!(told(&rec), (false, false));
}
