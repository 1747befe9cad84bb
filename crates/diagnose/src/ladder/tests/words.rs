//! Words and figures of verdicts that readers took wrongly.

use wallscope_model::histogram::{Histogram, HistogramRow};
use wallscope_model::{CgroupFacts, Connections, DiskFacts, Limits};

use super::*;
use crate::evidence::Level;

/// `rec` with these facts of the host at its start and at its end.
fn hosted(rec: &mut Recording, first: HostFacts, last: HostFacts) {
    let (start, end) = (rec.window.start_ns, rec.window.end_ns);
    let at = |time_ns, facts| HostSample { time_ns, facts };
    rec.host = vec![at(start, first), at(end, last)];
}

/// A new stack with the program's function of `stack` alone.
fn without_its_call(rec: &mut Recording, stack: StackId) -> StackId {
    let own = rec.stacks[stack.0 as usize].frames[2];
    rec.stacks.push(Stack {
        frames: vec![own],
        end: StackEnd::Root,
    });
    StackId(rec.stacks.len() as u32 - 1)
}

#[test]
fn the_impact_counts_the_computing_of_the_calls_that_wait_and_says_so() {
    let mut rec = recording(&[(20, 0, 0, BlockReason::Disk, 75)]);
    let v = climb(&rec).verdict;
    assert_eq!(
        v.parts.impact,
        "a fix saves at most 100 % of 9.5 s of active time: 7.5 s in these waits and 2.0 s computing in the same calls"
    );
    // Computing elsewhere in the function is another matter.
    rec.samples[0].stack = without_its_call(&mut rec, StackId(0));
    let v = climb(&rec).verdict;
    assert_eq!(
        v.parts.impact,
        "an end of these waits saves at most 79 % of 9.5 s of active time"
    );
    // The computing of a verdict on computing is that of all functions.
    let rec = recording(&[(95, 0, 0, BlockReason::Lock, 5); 2]);
    assert_eq!(
        climb(&rec).verdict.parts.impact,
        "faster code saves at most 95 % of 20.0 s of active time (2 threads together): all that it computes"
    );
}

/// `threads` threads that hold a lock in turn, while the others wait for it.
fn in_turn(threads: usize, lock: BlockReason) -> Recording {
    let mut rec = recording(&vec![(50, 0, 0, lock, 50); threads]);
    rec.samples.iter_mut().for_each(|s| s.stack = StackId(0));
    for waiter in 0..threads {
        let wait = 2 * waiter + 1;
        ended_by(
            &mut rec,
            Actor::Context(ContextId(((waiter + 1) % threads) as u32)),
        );
        let hop = rec.hops.last_mut().expect("a hop");
        hop.above = Above::Sample(wait as u32);
        let mut held = hop.clone();
        held.above = Above::Hop(rec.hops.len() as u32 - 1);
        held.role = Role::OnCpu;
        held.stack = Some(StackId(0));
        rec.hops.push(held);
    }
    rec
}

#[test]
fn a_holder_is_not_among_the_threads_that_wait() {
    let cause = climb(&in_turn(3, BlockReason::Gil)).verdict.cause;
    assert!(
        cause.contains("while the others of 3 threads wait"),
        "{cause}"
    );
    let cause = climb(&in_turn(2, BlockReason::Gil)).verdict.cause;
    assert!(
        cause.contains("while the other of 2 threads waits"),
        "{cause}"
    );
}

#[test]
fn a_holder_is_known_where_most_of_the_waits_are_for_its_lock() {
    let mut rec = in_turn(4, BlockReason::Lock);
    rename(&mut rec, 0, FrameKind::Native, "___pthread_mutex_lock");
    let bare = without_its_call(&mut rec, StackId(0));
    rec.samples[7].stack = bare;
    let cause = climb(&rec).verdict.cause;
    assert!(cause.starts_with("The lock's holder computes"), "{cause}");
    // Waits at something else have no holder.
    rec.samples.iter_mut().for_each(|s| s.stack = bare);
    let cause = climb(&rec).verdict.cause;
    assert!(!cause.contains("holder"), "{cause}");
}

#[test]
fn a_disk_that_the_target_waits_for_is_not_called_fine() {
    let facts = |requests, busy_ms| HostFacts {
        disks: vec![DiskFacts {
            name: "vda".into(),
            writes: requests,
            busy_ms,
            ..DiskFacts::default()
        }],
        ..HostFacts::default()
    };
    let row = |blocked| {
        let mut rec = recording(&[(40, 0, 0, BlockReason::Disk, blocked)]);
        hosted(&mut rec, facts(0, 0), facts(30_000, 3_000));
        let host = climb(&rec).host;
        let disk = host.into_iter().find(|r| r.name == "disk vda");
        disk.expect("the disk has requests")
    };
    let waited = row(60);
    assert_eq!(waited.level, Level::Busy);
    let said = "this one waited 60 % of its active time for disks; ";
    assert!(waited.saturation.starts_with(said), "{}", waited.saturation);
    let other = row(2);
    assert_eq!(other.level, Level::Fine, "{}", other.saturation);
}

#[test]
fn a_quota_is_named_with_its_cgroup_its_size_and_its_use() {
    let facts = |periods| HostFacts {
        cgroup: Some(CgroupFacts {
            path: "/api.slice".into(),
            quota_us: Some(50_000),
            period_us: Some(100_000),
            nr_periods: Some(periods),
            nr_throttled: Some(periods),
            ..CgroupFacts::default()
        }),
        ..HostFacts::default()
    };
    let mut rec = recording(&[(48, 0, 50, BlockReason::Timer, 2)]);
    hosted(&mut rec, facts(0), facts(100));
    let v = climb(&rec).verdict;
    assert_eq!(
        v.cause,
        "The CPU quota of its cgroup /api.slice (it uses 0.48 of 0.50 CPUs) holds ready threads back"
    );
}

#[test]
fn connections_of_the_target_s_own_port_are_its_callers() {
    let facts = || HostFacts {
        connections: ["port 8080", "10.0.0.2:5432"]
            .map(|peer| Connections {
                peer: peer.into(),
                state: "established".into(),
                count: 2,
                ..Connections::default()
            })
            .to_vec(),
        ..HostFacts::default()
    };
    let mut rec = recording(&[(40, 0, 0, BlockReason::Poll, 60)]);
    hosted(&mut rec, facts(), facts());
    let names: Vec<String> = climb(&rec).host.into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["callers at port 8080", "peer 10.0.0.2:5432"]);
}

#[test]
fn a_program_that_moves_data_between_short_sleeps_limits_itself() {
    let facts = |written| HostFacts {
        limits: vec![Limits {
            pid: 1,
            read_bytes: Some(0),
            written_bytes: Some(written),
            ..Limits::default()
        }],
        ..HostFacts::default()
    };
    let judged = |idle_for, sleep_ns, written| {
        let mut rec = recording(&[(1, 0, 0, BlockReason::Timer, 99)]);
        rec.window.end_ns += idle_for * TENTH;
        let mut histogram = Histogram::new(5);
        histogram.add(sleep_ns, 90.0);
        let blocked = rec.samples.iter().find(|s| s.state == State::Blocked);
        rec.histograms.push(HistogramRow {
            context: None,
            stack: blocked.map(|s| s.stack),
            state: State::Blocked,
            reason: Some(BlockReason::Timer),
            part: None,
            histogram,
        });
        hosted(&mut rec, facts(0), facts(written));
        let v = climb(&rec).verdict;
        assert!(!v.bottleneck, "{}", v.cause);
        (v.rule, v.parts.root)
    };
    let root = |sleep_ns, written| {
        let (rule, root) = judged(0, sleep_ns, written);
        assert_eq!(rule, "sleeping");
        root
    };
    let told = root(110_000_000, 30 << 20).expect("it writes between its sleeps");
    assert!(
        told.contains("writes 3.0 MiB/s") && told.contains("a rate limit"),
        "{told}"
    );
    assert_eq!(root(5_000_000_000, 30 << 20), None, "seldom");
    assert_eq!(root(110_000_000, 0), None, "it moves nothing");
    // Also where it hardly computes.
    let (rule, root) = judged(200, 110_000_000, 90 << 20);
    assert!(rule == "idle" && root == Some(told), "{rule} {root:?}");
}

#[test]
fn a_longer_wait_for_a_disk_comes_before_a_shortage_of_cpus() {
    let told = |woken, disk| {
        let mut rec = recording(&[(5, woken, 0, BlockReason::Disk, disk)]);
        super::cpu::used(&mut rec, 10, "0-1");
        climb(&rec).verdict
    };
    let v = told(40, 55);
    assert_eq!(v.reason, Some("disk"), "{}", v.cause);
    assert_eq!(told(55, 40).rule, "cpu-shortage");
    // So does one for a thread that sleeps itself; the reader of a pipe may wait for a CPU, too.
    let mut rec = recording(&[
        (5, 30, 0, BlockReason::Pipe, 65),
        (5, 30, 0, BlockReason::Timer, 65),
    ]);
    rename(&mut rec, 0, FrameKind::Kernel, "pipe_write");
    super::cpu::used(&mut rec, 10, "0-1");
    assert_eq!(climb(&rec).verdict.rule, "cpu-shortage");
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    rec.hops[0].above = Above::Sample(2);
    rec.hops[0].ns = rec.samples[2].ns;
    let stack = rec.samples[5].stack;
    super::impact::waited_itself(&mut rec, BlockReason::Timer, stack);
    let v = climb(&rec).verdict;
    assert_eq!(v.reason, Some("pipe"), "{}", v.cause);
}

#[test]
fn a_pool_is_known_by_a_function_of_the_program_that_was_inlined() {
    let mut rec = super::roots::woken_by_strangers("Shop::handle");
    assert!(!climb(&rec).verdict.cause.contains("pool"));
    rec.functions.push(Function {
        name: "Shop::getConnection".into(),
        system_name: "Shop::getConnection".into(),
        file: "".into(),
        start_line: 0,
    });
    let function = FunctionId(rec.functions.len() as u32 - 1);
    let own = rec.stacks[0].frames[2].0 as usize;
    rec.frames[own].lines.insert(0, Line { function, line: 1 });
    let cause = climb(&rec).verdict.cause;
    assert!(cause.contains("an exhausted pool"), "{cause}");
}

/// 30 goroutines that wait for one of several channels.
fn goroutines_in_select() -> TaskGroup {
    TaskGroup {
        pid: 1,
        kind: "goroutine".into(),
        name: "main.page.func1".into(),
        seen: 10,
        polls: 100,
        times: vec![TaskTime {
            state: State::Blocked,
            reason: "select".into(),
            detail: "".into(),
            stack: Some(StackId(0)),
            labels: None,
            count: 100,
            ns: 3000 * TENTH,
        }],
    }
}

#[test]
fn a_goroutine_that_awaits_an_http_answer_by_a_channel_is_said_to() {
    let mut rec = recording(&[(5, 0, 0, BlockReason::Poll, 95)]);
    rec.tasks.push(goroutines_in_select());
    let said = |rec: &Recording| {
        let also = crate::sentence::finding(rec).also;
        let told = also.into_iter().find(|(name, _)| *name == "tasks");
        told.map(|(_, says)| says).unwrap_or_default()
    };
    let told = said(&rec);
    assert!(
        told.contains("waiting for one of several channels"),
        "{told}"
    );
    rename(
        &mut rec,
        1,
        FrameKind::Native,
        "net/http.(*persistConn).roundTrip",
    );
    let told = said(&rec);
    assert!(
        told.contains("waiting for answers to their HTTP requests"),
        "{told}"
    );
}

#[test]
fn the_tasks_that_await_answers_are_told_in_the_place_of_their_threads() {
    let mut rec = recording(&[(2, 0, 0, BlockReason::Network, 98)]);
    rec.peers = vec![Peer {
        pid: 1,
        asks: true,
        address: "10.0.0.2:80".into(),
        requests: 100,
        in_flight_ns: 98 * TENTH,
        ..Peer::default()
    }];
    rename(
        &mut rec,
        1,
        FrameKind::Native,
        "net/http.(*persistConn).roundTrip",
    );
    let threads = climb(&rec).verdict;
    assert_eq!(threads.rule, "upstream", "{}", threads.cause);
    assert!(
        threads.cause.starts_with("Thread t0 waits in "),
        "{}",
        threads.cause
    );
    rec.tasks.push(goroutines_in_select());
    let cause = climb(&rec).verdict.cause;
    let said = "30.0 goroutines on average wait in program::f0 for the answers of 10.0.0.2:80";
    assert!(cause.starts_with(said), "{cause}");
}

#[test]
fn a_server_that_syncs_each_commit_is_told_its_setting_and_the_file_in_one_pair_of_brackets() {
    let mut rec = recording(&[(5, 0, 0, BlockReason::Disk, 95)]);
    rename(&mut rec, 0, FrameKind::Native, "fdatasync");
    rec.label_sets.push(vec![Label {
        key: "resource".into(),
        value: LabelValue::Text("fdatasync /srv/a.aof".into()),
    }]);
    rec.samples[1].labels = Some(LabelsId(0));
    let v = climb(&rec).verdict;
    let said = "for writes to reach the disk (fsync; /srv/a.aof)";
    assert!(v.cause.ends_with(said), "{}", v.cause);
    let advice = v.parts.advice.unwrap_or_default();
    assert!(advice.starts_with("make fewer disk requests"), "{advice}");
    rename(&mut rec, 2, FrameKind::Native, "flushAppendOnlyFile");
    let advice = climb(&rec).verdict.parts.advice.unwrap_or_default();
    assert!(advice.contains("appendfsync to everysec"), "{advice}");
}

#[test]
fn a_peer_that_never_answers_is_told_though_the_process_rests() {
    let mut rec = recording(&[(0, 0, 0, BlockReason::Poll, 100)]);
    rec.peers = vec![Peer {
        pid: 1,
        asks: true,
        address: "10.0.0.2:22".into(),
        requests: 1,
        in_flight_ns: 180 * TENTH,
        ..Peer::default()
    }];
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.bottleneck), ("idle", false), "{}", v.cause);
    let root = v.parts.root.unwrap_or_default();
    assert!(
        root.starts_with("a request to 10.0.0.2:22 got no answer"),
        "{root}"
    );
    assert_eq!(
        v.parts.advice.as_deref(),
        Some("if it hangs, look at 10.0.0.2:22")
    );
    // One that answers is none.
    rec.peers[0].requests = 30;
    assert_eq!(climb(&rec).verdict.parts.root, None);
}
