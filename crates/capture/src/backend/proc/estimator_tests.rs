//! Observations of polls in, a recording out.

use wallscope_model::{BlockReason, Recording};
use wallscope_observe::{AccountBegin, PolledState, PolledThread, SchedCounters};

use super::*;
use crate::session::answers::Answers;

const MS: u64 = 1_000_000;

fn estimator() -> PollEstimator {
    let mut estimator = PollEstimator::new(&Begin {
        slice_ns: 50 * MS,
        ..Begin::default()
    });
    estimator.observe(&Observation::PolledThread(PolledThread {
        pid: 7,
        tid: 7,
        name: "worker".into(),
        begin: AccountBegin::default(),
    }));
    for number in 0..2 {
        estimator.observe(&Observation::PolledStack(PolledStack {
            number,
            pid: 7,
            code: 0,
            end: StackEnd::Root,
            native: vec![1 << 48 | u64::from(number)],
            managed: Vec::new(),
            resource: None,
        }));
    }
    estimator
}

fn poll(time_ms: u64, on_cpu_ms: u64, saw: Option<(BlockReason, u32)>) -> ThreadPoll {
    ThreadPoll {
        thread: 0,
        time: time_ms * MS,
        counters: SchedCounters {
            on_cpu_ns: on_cpu_ms * MS,
            run_delay_ns: 0,
            timeslices: on_cpu_ms,
        },
        left_out: 0,
        saw: saw.map(|(reason, stack)| PolledState {
            blocked: Some(reason),
            stack: Some(stack),
            begin: Some(StackBegin::Whole(0x100)),
            seen: WaitSeen::default(),
        }),
    }
}

fn finish(mut estimator: PollEstimator, end_ms: u64) -> Recording {
    let time = end_ms * MS;
    estimator.observe(&Observation::Mark(Mark::End { time }));
    let answers = Answers::default();
    estimator.finish(answers.names()).recording
}

#[test]
fn a_sleeper_keeps_what_was_seen_and_half_of_what_was_not() {
    let mut e = estimator();
    e.observe(&Observation::ThreadPoll(poll(
        10,
        2,
        Some((BlockReason::Lock, 0)),
    )));
    e.observe(&Observation::ThreadPoll(poll(20, 2, None)));
    // It has not run, was woken for another wait without a turn, and three polls were left out.
    let later = ThreadPoll {
        left_out: 3,
        ..poll(60, 2, Some((BlockReason::Disk, 1)))
    };
    e.observe(&Observation::ThreadPoll(later));
    let r = finish(e, 60);
    let ns = |reason| {
        let own = r.samples.iter().filter(|s| s.reason == Some(reason));
        own.map(|s| s.ns).sum::<u64>()
    };
    assert_eq!(
        (ns(BlockReason::Lock), ns(BlockReason::Disk)),
        (35 * MS, 25 * MS)
    );
    let ledger = &r.contexts[0].ledger;
    assert_eq!((ledger.on_cpu.total(), ledger.wall_ns), (2 * MS, 60 * MS));
}

#[test]
fn a_sleeper_that_is_gone_ended_in_the_middle_or_with_the_target() {
    for (with_target, end) in [(false, 30), (true, 50)] {
        let mut e = estimator();
        let last = poll(10, 0, Some((BlockReason::Timer, 0)));
        e.observe(&Observation::ThreadPoll(last));
        e.observe(&Observation::EndedThread(EndedThread {
            thread: 0,
            time: 50 * MS,
            counters: last.counters,
            with_target,
        }));
        let r = finish(e, 60);
        assert_eq!(r.contexts[0].end_ns, end * MS);
        assert_eq!(r.samples[0].ns, end * MS);
    }
}

#[test]
fn impossible_observations_are_counted_and_do_no_harm() {
    let mut e = estimator();
    e.observe(&Observation::ThreadPoll(poll(
        20,
        2,
        Some((BlockReason::Lock, 1)),
    )));
    let bad = [
        // Back in time, in the counters, of no thread, with no stack.
        poll(10, 3, None),
        poll(30, 1, None),
        ThreadPoll {
            thread: 9,
            ..poll(30, 3, None)
        },
        poll(30, 3, Some((BlockReason::Lock, 2))),
        poll(30, u64::MAX / MS, None),
    ];
    for poll in bad {
        e.observe(&Observation::ThreadPoll(poll));
    }
    let r = finish(e, 30);
    let malformed = r.losses.iter().find(|l| &*l.cause == "malformed event");
    assert_eq!(malformed.map(|l| l.count), Some(5));
    assert_eq!(r.contexts[0].end_ns, 20 * MS);
}

#[test]
fn a_stack_that_a_log_lacks_leaves_its_time_without_frames() {
    let mut e = estimator();
    e.observe(&Observation::PolledStack(PolledStack {
        number: 3,
        pid: 7,
        code: 0,
        end: StackEnd::Root,
        native: vec![1 << 48 | 3],
        managed: Vec::new(),
        resource: None,
    }));
    e.observe(&Observation::ThreadPoll(poll(
        10,
        0,
        Some((BlockReason::Lock, 2)),
    )));
    e.observe(&Observation::ThreadPoll(poll(
        30,
        1,
        Some((BlockReason::Lock, 3)),
    )));
    let r = finish(e, 30);
    let ends: Vec<_> = r
        .samples
        .iter()
        .map(|s| r.stacks[s.stack.0 as usize].end)
        .collect();
    assert_eq!(ends, [StackEnd::Lost, StackEnd::Root]);
}

#[test]
fn a_log_cannot_claim_more_rows_than_there_is_memory_for() {
    let mut e = estimator();
    let far = poll(1 << 33, 0, Some((BlockReason::Lock, 0)));
    e.observe(&Observation::ThreadPoll(far));
    let rows = e.accounts[0].book.rows() + e.samples.rows();
    assert!(rows as u64 <= 5 * MAX_ROWS, "{rows}");
    assert!(e.grid.width_ns > 50 * MS);
}

#[test]
fn the_estimator_never_reads_the_machine() {
    let files = [
        include_str!("account.rs"),
        include_str!("assemble.rs"),
        include_str!("counters.rs"),
        include_str!("estimator.rs"),
        include_str!("reason_imputation.rs"),
        include_str!("samples.rs"),
        include_str!("samples/caller_inference.rs"),
        include_str!("samples/weight.rs"),
        include_str!("samples/wakeup_latency.rs"),
        include_str!("spans.rs"),
        include_str!("stop_judgement.rs"),
        include_str!("thread_ledger.rs"),
        include_str!("unseen_children.rs"),
        include_str!("../perf/estimate.rs"),
        include_str!("../perf/event_sampling/division.rs"),
        include_str!("../perf/pending_wait.rs"),
        include_str!("../perf/recorded.rs"),
        include_str!("../perf/switch_timeline/mod.rs"),
        include_str!("../perf/switch_timeline/schedstat_reconcile.rs"),
        include_str!("../perf/switch_timeline/switch_record_latency.rs"),
        include_str!("../perf/wait_strata.rs"),
    ];
    for file in files {
        let (code, _) = file
            .split_once("#[cfg(test)]\nmod tests")
            .unwrap_or((file, ""));
        for name in [
            "std::fs",
            "std::time",
            "libc::",
            "rustix",
            "kernel_file",
            "clock::",
        ] {
            assert!(!code.contains(name), "{name} in {}", &code[..60]);
        }
    }
}
