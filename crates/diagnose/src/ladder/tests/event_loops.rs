//! Verdicts on calls that wait inside a step of an event loop.

use wallscope_model::LedgerSlices;

use super::*;

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

#[test]
fn a_call_that_waits_in_an_event_loop_s_step_leads_where_the_loop_has_other_work() {
    let mut rec = recording(&[(1, 0, 0, BlockReason::Network, 90)]);
    let rule = |rec: &Recording| climb(rec).verdict.rule;
    rename(&mut rec, 1, FrameKind::Native, "task_step_impl");
    assert_ne!(
        rule(&rec),
        "event-loop",
        "a single task, which nothing waits for"
    );
    let ready = |tenths| TaskGroup {
        pid: 1,
        kind: "asyncio task".into(),
        name: "handler".into(),
        seen: 5,
        polls: 100,
        times: vec![
            TaskTime {
                state: State::Runnable,
                reason: "".into(),
                detail: "".into(),
                stack: None,
                labels: None,
                count: 10,
                ns: tenths * TENTH,
            },
            TaskTime {
                state: State::Blocked,
                reason: "timer".into(),
                detail: "".into(),
                stack: None,
                labels: None,
                count: 10,
                ns: 200 * TENTH,
            },
        ],
    };
    rec.tasks = vec![ready(20)];
    assert_ne!(rule(&rec), "event-loop", "its tasks are seldom ready");
    rec.tasks = vec![ready(200)];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("event-loop", true), "{}", v.cause);
    assert!(v.function.is_some());
    let evidence = v.parts.evidence.join("; ");
    assert!(
        evidence.contains("asyncio tasks are ready to run 50 %"),
        "{evidence}"
    );
    let mut of_gil = recording(&[(1, 0, 0, BlockReason::Gil, 90)]);
    rename(&mut of_gil, 1, FrameKind::Native, "task_step_impl");
    of_gil.tasks = vec![ready(200)];
    assert_ne!(
        rule(&of_gil),
        "event-loop",
        "no call of the loop's makes it wait"
    );
    // Callers are other work, too; the loop's own wait is none of a step.
    rec.tasks.clear();
    rec.peers = vec![Peer {
        pid: 1,
        requests: 800,
        in_flight_ns: 90 * TENTH,
        ..Peer::default()
    }];
    assert_eq!(rule(&rec), "event-loop");
    rename(&mut rec, 1, FrameKind::Native, "select_epoll_poll_impl");
    assert_ne!(rule(&rec), "event-loop");
}

#[test]
fn a_wait_below_an_event_loop_is_a_step_s_but_for_the_poll_of_the_innermost_loop() {
    let rule = |reason, inner: &str, outer: &str| {
        let mut rec = recording(&[(1, 0, 0, reason, 90)]);
        rename(&mut rec, 1, FrameKind::Native, inner);
        rename(&mut rec, 2, FrameKind::Native, outer);
        rec.peers = vec![Peer {
            pid: 1,
            requests: 800,
            in_flight_ns: 90 * TENTH,
            ..Peer::default()
        }];
        climb(&rec).verdict.rule
    };
    let (disk, poll) = (BlockReason::Disk, BlockReason::Poll);
    assert_eq!(rule(disk, "flushAppendOnlyFile", "aeMain"), "event-loop");
    assert_ne!(rule(poll, "aeApiPoll", "aeMain"), "event-loop");
    let dispatch = "g_main_context_dispatch";
    assert_eq!(rule(poll, "charge", dispatch), "event-loop");
    assert_ne!(rule(poll, "g_main_loop_run", dispatch), "event-loop");
    assert_ne!(rule(disk, "write_file", "main"), "event-loop");
}

#[test]
fn a_loop_that_sleeps_in_its_steps_while_callers_wait_is_not_idle() {
    let mut rec = recording(&[(1, 0, 0, BlockReason::Timer, 99)]);
    rec.ledger_slices = LedgerSlices::of_samples(&rec.samples);
    rec.domain.backend = "proc".into();
    rename(&mut rec, 1, FrameKind::Native, "on_data");
    rename(&mut rec, 2, FrameKind::Native, "event_base_loop");
    let ledger = &mut rec.contexts[0].ledger;
    ledger.voluntary_switches = 1000;
    ledger.on_cpu.user = TENTH / 2;
    ledger.wall_ns -= TENTH / 2;
    assert_eq!(climb(&rec).verdict.rule, "idle");
    rec.peers = vec![Peer {
        pid: 1,
        requests: 130,
        in_flight_ns: 390 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("event-loop", true), "{}", v.cause);
    rename(&mut rec, 2, FrameKind::Native, "main");
    assert_eq!(climb(&rec).verdict.rule, "idle");
}
