//! The sentence at the end of a recording, over made-up recordings.

use std::sync::Arc;

use wallscope_model::{
    BlockReason, CgroupFacts, Context, HostSample, Ledger, Listener, Peer, Process, Recording,
    UnknownCause, Window,
};

use super::finding;

/// A recording of 10 s. Each thread: (on-CPU, woken, throttled, reason, blocked) in tenths of a
/// second.
fn recording(threads: &[(u64, u64, u64, BlockReason, u64)]) -> Recording {
    const TENTH: u64 = 100_000_000;
    let mut rec = Recording {
        window: Window {
            start_ns: 0,
            end_ns: 100 * TENTH,
            ..Window::default()
        },
        ..Recording::default()
    };
    for (i, (on_cpu, woken, throttled, reason, blocked)) in threads.iter().enumerate() {
        let mut l = Ledger::default();
        l.on_cpu.user = on_cpu * TENTH;
        l.runnable.woken = woken * TENTH;
        l.runnable.throttled = throttled * TENTH;
        l.blocked[*reason as usize] = blocked * TENTH;
        l.wall_ns = (on_cpu + woken + throttled + blocked) * TENTH;
        rec.contexts.push(Context {
            pid: 1,
            tid: i as u32,
            name: Arc::from("t"),
            start_ns: 0,
            end_ns: 100 * TENTH,
            ledger: l,
        });
    }
    rec
}

#[test]
fn each_case_is_told_by_its_rule() {
    let lock = BlockReason::Lock;
    let cases = [
        (vec![], "empty"),
        (vec![(95, 1, 0, lock, 4)], "computing"),
        (vec![(10, 5, 0, lock, 85)], "waiting"),
        (vec![(20, 70, 0, lock, 10); 4], "cpu-shortage"),
        (vec![(30, 5, 60, lock, 5)], "quota"),
        (
            vec![
                (90, 0, 0, lock, 10),
                (0, 0, 0, lock, 100),
                (0, 0, 0, lock, 100),
            ],
            "computing",
        ),
        (vec![(40, 20, 0, lock, 40)], "waiting"),
        (
            vec![(20, 0, 0, lock, 10), (0, 0, 0, BlockReason::Poll, 100)],
            "computing",
        ),
    ];
    for (threads, rule) in cases {
        let f = finding(&recording(&threads));
        assert_eq!(f.rule, rule, "{}", f.sentence);
        assert!(
            f.sentence.ends_with('.') && !f.sentence.contains(".."),
            "{}",
            f.sentence
        );
    }
}

#[test]
fn the_sentence_says_which_part_faster_code_cannot_reduce() {
    let f = finding(&recording(&[(10, 5, 0, BlockReason::Lock, 85)]));
    assert_eq!(
        f.sentence,
        "85 % of 10.0 s of active time (one thread) was blocked on locks, 10 % was computing and 5 % waited for a \
         CPU. It waits for a lock. Faster code cannot reduce the 85 % spent waiting."
    );
}

#[test]
fn idle_time_is_not_held_against_the_program() {
    let mut rec = recording(&[(10, 0, 0, BlockReason::Poll, 90)]);
    rec.contexts[0].ledger.idle_ns = 8_500_000_000;
    let f = finding(&rec);
    assert_eq!(f.rule, "computing", "{}", f.sentence);
    assert!(
        f.sentence.contains("; 8.5 s idle or parked left out"),
        "{}",
        f.sentence
    );
}

#[test]
fn waiting_for_events_may_be_waiting_for_work() {
    let f = finding(&recording(&[(1, 0, 0, BlockReason::Poll, 99)]));
    assert!(
        f.sentence.contains("may be waiting for work"),
        "{}",
        f.sentence
    );
}

#[test]
fn a_quota_is_named() {
    let mut rec = recording(&[(30, 5, 60, BlockReason::Lock, 5)]);
    let mut host = HostSample::default();
    host.facts.cgroup = Some(CgroupFacts {
        quota_us: Some(50_000),
        period_us: Some(100_000),
        ..CgroupFacts::default()
    });
    rec.host.push(host);
    assert!(finding(&rec).sentence.contains("(0.5 CPUs)"));
}

#[test]
fn a_quota_that_ran_out_is_named_where_its_time_is_not_told_apart() {
    let mut rec = recording(&[(3, 90, 0, BlockReason::Lock, 7)]);
    for (time_ns, periods) in [(0, 10), (1_000_000_000, 20)] {
        let mut host = HostSample {
            time_ns,
            ..HostSample::default()
        };
        host.facts.cgroup = Some(CgroupFacts {
            quota_us: Some(6_000),
            period_us: Some(100_000),
            nr_periods: Some(periods),
            nr_throttled: Some(periods - 3),
            ..CgroupFacts::default()
        });
        rec.host.push(host);
    }
    let f = finding(&rec);
    assert_eq!(f.rule, "quota");
    let said = "Its CPU quota (0.06 CPUs) cost up to 90 %";
    assert!(f.sentence.contains(said), "{}", f.sentence);
    // A quota that runs out once in ten periods does not hold them back.
    rec.host[0].facts.cgroup.as_mut().unwrap().nr_throttled = Some(16);
    assert_eq!(finding(&rec).rule, "cpu-shortage");
}

#[test]
fn unseen_time_leaves_nothing_else_to_say_but_notes() {
    let mut rec = recording(&[(10, 0, 0, BlockReason::Disk, 80)]);
    rec.contexts[0].ledger.unknown[UnknownCause::LostEvents as usize] = 1_000_000_000;
    rec.contexts[0].ledger.wall_ns += 1_000_000_000;
    rec.processes.push(Process {
        unattributed_on_cpu_ns: 1_000_000_000,
        user: None,
        ..Process::default()
    });
    let f = finding(&rec);
    assert_eq!(f.rule, "unseen");
    let also: Vec<_> = f.also.iter().map(|(name, _)| *name).collect();
    assert_eq!(also, ["unattributed"]);
}

#[test]
fn waits_may_be_for_threads_too_short_to_be_seen() {
    let mut rec = recording(&[(1, 0, 0, BlockReason::Child, 98)]);
    rec.processes.push(Process {
        unattributed_on_cpu_ns: 1_000_000_000,
        user: None,
        ..Process::default()
    });
    let f = finding(&rec);
    assert_eq!(f.rule, "waiting");
    assert!(f.sentence.contains("computed for 1.0 s"), "{}", f.sentence);
}

#[test]
fn a_verdict_beyond_the_sums_is_a_suspicion_and_shows_its_evidence() {
    let sums = finding(&recording(&[(95, 1, 0, BlockReason::Lock, 4)]));
    assert_eq!((sums.rule, sums.assumes), ("computing", None));
    let f = finding(&recording(&[(10, 5, 0, BlockReason::Lock, 85)]));
    assert!(f.assumes.is_some_and(|a| a.contains("which thread waits")));
    assert!(f.when.contains("others have to end"));
    let evidence: Vec<(&str, &str)> = f.evidence.iter().map(|(k, v)| (*k, &**v)).collect();
    assert_eq!(
        evidence,
        [
            ("active time", "10.0 s"),
            ("computing", "1.0 s, 10 %"),
            ("waiting for a CPU", "500 ms, 5 %"),
            ("blocked", "8.5 s, 85 %"),
            ("blocked most on", "locks for 8.5 s, 85 %"),
            ("CPUs kept busy", "0.10"),
            (
                "the rule's own figures",
                "most on locks: 85 %; of one thread: 0 % of the window"
            ),
        ]
    );
}

#[test]
fn the_peer_that_requests_wait_for_is_noted() {
    let mut rec = recording(&[(5, 0, 0, BlockReason::Poll, 95)]);
    let peer = |asks, address: &str, tenths: u64| Peer {
        pid: 1,
        asks,
        address: address.into(),
        in_flight_ns: tenths * 100_000_000,
        ..Peer::default()
    };
    rec.peers = vec![
        peer(false, "port 8080", 50),
        peer(true, "127.0.0.1:5432", 20),
        peer(true, "unix socket without a name", 40),
    ];
    let told = |rec: &Recording| {
        let also = finding(rec).also;
        let peer = also.into_iter().find(|(name, _)| *name == "peer");
        peer.map(|(_, says)| says)
    };
    assert_eq!(
        told(&rec).as_deref(),
        Some("40 % of request time waits for 127.0.0.1:5432")
    );
    // Five answers awaited at once.
    rec.peers[1].in_flight_ns = 10 * rec.peers[0].in_flight_ns;
    assert_eq!(
        told(&rec).as_deref(),
        Some("100 % of request time waits for 127.0.0.1:5432")
    );
    rec.peers.remove(1);
    assert_eq!(told(&rec), None, "a socket without a name");
}

#[test]
fn the_main_wait_of_tasks_is_noted() {
    use wallscope_model::{State, TaskGroup, TaskTime};
    let time = |state, reason: &str, ns| TaskTime {
        state,
        reason: reason.into(),
        detail: "".into(),
        stack: None,
        labels: None,
        count: 1,
        ns,
    };
    let mut rec = recording(&[(10, 5, 0, BlockReason::Lock, 85)]);
    rec.tasks.push(TaskGroup {
        kind: "virtual thread".into(),
        times: vec![
            time(State::OnCpu, "", 5_000_000_000),
            time(State::Blocked, "lock", 30_000_000_000),
            time(State::Blocked, "network", 5_000_000_000),
            // Nothing to do: of no weight.
            time(State::Blocked, "runtime", 900_000_000_000),
        ],
        ..TaskGroup::default()
    });
    let also = finding(&rec).also;
    let told = also.iter().find(|(name, _)| *name == "tasks");
    assert_eq!(
        told.map(|(_, says)| says.as_str()),
        Some("of the time of virtual threads (4.0 of them on average) 75 % is waiting for locks")
    );
    rec.tasks[0].times.truncate(1);
    assert!(finding(&rec).also.iter().all(|(name, _)| *name != "tasks"));
}

#[test]
fn all_shares_of_a_sentence_are_of_active_time() {
    let f = finding(&recording(&[
        (90, 0, 0, BlockReason::Lock, 10),
        (0, 0, 0, BlockReason::Lock, 100),
        (0, 0, 0, BlockReason::Lock, 100),
    ]));
    let said = "90 % of 10.0 s of active time (1 of 3 threads; 20.0 s idle or parked left out) was computing and \
                10 % was blocked on locks. ";
    assert!(f.sentence.starts_with(said), "{}", f.sentence);
    let said =
        ". Faster code saves at most the 90 % spent computing, and none of the 10 % spent waiting.";
    assert!(f.sentence.ends_with(said), "{}", f.sentence);
    let figures = f.evidence.iter().find(|(name, _)| *name == "computing");
    assert_eq!(figures.map(|(_, says)| &**says), Some("9.0 s, 90 %"));
    let impact = f.verdict.expect("a verdict").parts.impact;
    assert!(
        impact.starts_with("faster code saves at most 90 % of 10.0 s of active time"),
        "{impact}"
    );
}

#[test]
fn threads_that_did_nothing_have_no_shares() {
    let f = finding(&recording(&[(0, 0, 0, BlockReason::Lock, 100); 2]));
    let said = "No thread did anything in 20.0 s of wall time (2 threads). ";
    assert!(f.sentence.starts_with(said), "{}", f.sentence);
}

#[test]
fn rest_is_no_bottleneck_but_is_told() {
    let f = finding(&recording(&[(5, 0, 0, BlockReason::Timer, 95)]));
    assert_eq!((f.rule, f.assumes.is_some()), ("sleeping", true));
    let said = "Faster code cannot reduce the 95 % spent waiting, which may be for work.";
    assert!(f.sentence.ends_with(said), "{}", f.sentence);
    let f = finding(&recording(&[(0, 0, 0, BlockReason::Poll, 100); 3]));
    assert_eq!(f.rule, "idle");
    assert!(
        f.sentence.contains("No bottleneck was found"),
        "{}",
        f.sentence
    );
}

#[test]
fn a_full_accept_queue_is_a_bottleneck_of_a_process_at_rest() {
    let mut rec = recording(&[(0, 0, 0, BlockReason::Poll, 100)]);
    let listener = Listener {
        address: "0.0.0.0:80".into(),
        queued: 5,
        room: 5,
    };
    let mut host = HostSample::default();
    host.facts.listeners.push(listener);
    rec.host.push(host);
    let f = finding(&rec);
    assert_eq!(f.rule, "accept-queue", "{}", f.sentence);
    assert!(f.when.contains("accept queue"), "{}", f.when);
    let said = "Its accept queue at 0.0.0.0:80 was full (5 waiting, room for 5)";
    assert!(f.sentence.contains(said), "{}", f.sentence);
}

#[test]
fn findings_beside_the_verdict_are_bottlenecks() {
    // Both computing and a lock make a cause; sleeping would be a rest.
    let f = finding(&recording(&[
        (60, 0, 0, BlockReason::Lock, 40),
        (10, 0, 0, BlockReason::Timer, 0),
    ]));
    assert_eq!(f.rule, "computing", "{}", f.sentence);
    let also: Vec<_> = f.also.iter().map(|(name, _)| *name).collect();
    assert_eq!(also, ["waiting"]);
    assert!(
        f.also[0].1.starts_with("it waits for a lock"),
        "{:?}",
        f.also
    );
}
