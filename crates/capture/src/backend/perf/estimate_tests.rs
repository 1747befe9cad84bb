//! Observations of switches, samples and polls in, a recording out.

use wallscope_model::Recording;
use wallscope_observe::{
    AccountBegin, Begin, CountedEvent, CounterHeir, EventHits, EventStack, FirstState, HitsOfEnded,
    Mark, Observation, PolledStack, PolledThread, PreemptedStackTaken, ProbedCall, SchedCounters,
    ThreadPoll,
};

use super::*;
use crate::session::answers::Answers;

const MS: u64 = 1_000_000;
const LEFT: SwitchStep = SwitchStep::Out { preempted: false };
const PREEMPTED: SwitchStep = SwitchStep::Out { preempted: true };

fn counters(on_cpu_ns: u64, run_delay_ns: u64, timeslices: u64) -> SchedCounters {
    SchedCounters {
        on_cpu_ns,
        run_delay_ns,
        timeslices,
    }
}

/// Two threads with recorded switches from 0 on, the first in this state, and three stacks.
fn estimator(state: FirstState) -> PollEstimator {
    let mut e = PollEstimator::new(&Begin {
        slice_ns: 50 * MS,
        ..Begin::default()
    });
    e.observe(&Observation::SwitchRecording(SwitchRecording {
        samples_kernel: true,
        tick_ns: 0,
    }));
    for (thread, state) in (0u32..).zip([state, FirstState::Blocked]) {
        e.observe(&Observation::PolledThread(PolledThread {
            pid: 7,
            tid: 7 + thread,
            name: "worker".into(),
            begin: AccountBegin::default(),
        }));
        e.observe(&Observation::RecordsBegin(RecordsBegin {
            thread,
            time: 0,
            counters: counters(0, 0, 0),
            state,
            by_counters: false,
            unrecorded_ns: 0,
        }));
    }
    for number in 0..3 {
        e.observe(&Observation::PolledStack(PolledStack {
            number,
            pid: 7,
            code: 0,
            end: StackEnd::Root,
            native: vec![1 << 48 | u64::from(number), 1 << 48 | 77],
            managed: Vec::new(),
            resource: None,
        }));
    }
    e
}

fn switch(e: &mut PollEstimator, time: u64, step: SwitchStep) {
    let thread = 0;
    e.observe(&Observation::Switch(Switch { thread, time, step }));
}

fn read(e: &mut PollEstimator, time: u64, counters: SchedCounters) {
    e.observe(&Observation::CounterReading(CounterReading {
        thread: 0,
        time,
        counters,
        last: false,
    }));
    e.observe(&Observation::Mark(Mark::Drained { time }));
}

fn finish(mut e: PollEstimator, time: u64) -> Recording {
    e.observe(&Observation::Mark(Mark::End { time }));
    let answers = Answers::default();
    e.finish(answers.names()).recording
}

fn malformed(r: &Recording) -> u64 {
    let all = r.losses.iter().filter(|l| &*l.cause == "malformed event");
    all.map(|l| l.count).sum()
}

/// A poll of a wait that begins at 0, with stack 1.
fn probe() -> WaitProbe {
    WaitProbe {
        thread: 0,
        at: 100,
        spacing_ns: 10 * MS,
        late_ns: 0,
        call: ProbedCall {
            until: 110,
            reason: BlockReason::Lock,
            sp: 0x100,
        },
        until: 140,
        reason: BlockReason::Lock,
        copied: 125,
        called: false,
        stack: 1,
        whole: true,
        seen: WaitSeen::default(),
    }
}

/// A wait of 1 ms that a poll saw, made `late_ns` late, of a thread with so many polls in time.
fn seen(late_ns: u64, in_time: u32) -> u64 {
    let mut e = estimator(FirstState::Blocked);
    e.accounts[0].wait.in_time = in_time;
    e.observe(&Observation::WaitProbe(WaitProbe { late_ns, ..probe() }));
    switch(&mut e, MS, SwitchStep::In);
    e.accounts[0].book.seen().map(|(.., ns)| ns).sum()
}

#[test]
fn a_poll_before_a_wait_did_not_meet_it() {
    let wait = PendingWait {
        probe: Some(ProbedWait {
            poll: probe(),
            ended_by: None,
            left: false,
        }),
        ..PendingWait::default()
    };
    assert!(wait.is_probed(100) && !wait.is_probed(101));
}

#[test]
fn a_short_wait_stands_for_those_that_no_poll_met() {
    let ns = seen(0, 1);
    assert!((9_900_000..=10_200_000).contains(&ns), "{ns}");
}

#[test]
fn late_polls_tell_no_reason_where_others_are_enough() {
    assert_eq!(seen(500_000, ENOUGH), 0);
    assert!(seen(500_000, ENOUGH - 1) > 0);
}

#[test]
fn the_time_of_all_waits_goes_to_the_stack_of_the_one_that_was_seen() {
    let mut e = estimator(FirstState::Blocked);
    e.observe(&Observation::WaitProbe(probe()));
    switch(&mut e, 20 * MS, SwitchStep::In);
    switch(&mut e, 30 * MS, LEFT);
    switch(&mut e, 50 * MS, SwitchStep::In);
    read(&mut e, 60 * MS, counters(20 * MS, 0, 2));
    let r = finish(e, 60 * MS);
    let ledger = &r.contexts[0].ledger;
    assert_eq!(ledger.blocked[BlockReason::Lock as usize], 40 * MS);
    assert_eq!((ledger.on_cpu.total(), ledger.wall_ns), (20 * MS, 60 * MS));
    assert_eq!((ledger.voluntary_switches, malformed(&r)), (1, 0));
    let blocked = r.samples.iter().filter(|s| s.state == State::Blocked);
    assert_eq!(blocked.map(|s| s.ns).sum::<u64>(), 40 * MS);
}

#[test]
fn a_wait_that_was_over_before_its_stack_was_copied_has_its_innermost_frame() {
    let mut e = estimator(FirstState::Blocked);
    e.observe(&Observation::WaitProbe(WaitProbe {
        copied: 2 * MS,
        ..probe()
    }));
    switch(&mut e, MS, SwitchStep::In);
    assert_eq!((e.switches.glimpsed, e.samples.distinct()), (1, 4));
    let alone = e.samples.polled(3);
    assert_eq!((alone.frames.len(), alone.end), (1, StackEnd::Lost));
    // A wait that was over before its call was read tells nothing.
    let mut e = estimator(FirstState::Blocked);
    e.observe(&Observation::WaitProbe(probe()));
    switch(&mut e, 105, SwitchStep::In);
    assert_eq!((e.switches.raced, e.samples.rows()), (1, 0));
}

#[test]
fn what_ended_a_wait_tells_its_reason() {
    let mut e = estimator(FirstState::Blocked);
    e.observe(&Observation::WaitProbe(probe()));
    let (thread, reason) = (0, BlockReason::Network);
    e.observe(&Observation::ProbedReason(ProbedReason { thread, reason }));
    switch(&mut e, MS, SwitchStep::In);
    let reasons: Vec<_> = (e.accounts[0].book.seen().map(|(reason, ..)| reason)).collect();
    assert_eq!(reasons, [BlockReason::Network]);
}

#[test]
fn waiting_for_a_cpu_goes_to_where_a_preempted_thread_stands() {
    let mut e = estimator(FirstState::OnCpu);
    e.observe(&Observation::PreemptedStack(PreemptedStack {
        thread: 0,
        stack: 2,
        taken: PreemptedStackTaken::AtSwitch(1),
    }));
    switch(&mut e, 10 * MS, PREEMPTED);
    switch(&mut e, 15 * MS, SwitchStep::In);
    // The stack of this preemption is not known.
    switch(&mut e, 20 * MS, PREEMPTED);
    switch(&mut e, 21 * MS, SwitchStep::In);
    let r = finish(e, 21 * MS);
    assert_eq!(r.contexts[0].ledger.runnable.preempted, 6 * MS);
    let preempted = r.samples.iter().filter(|s| s.part == Some(Part::Preempted));
    assert_eq!(preempted.map(|s| s.ns).sum::<u64>(), 6 * MS);
}

#[test]
fn a_poll_of_a_woken_thread_counts_for_its_wait_alone() {
    let mut e = estimator(FirstState::Blocked);
    let poll = QueuedPoll {
        thread: 0,
        begin: 0,
        at: 200,
        read: 210,
        stack: Some(2),
        ns: 5,
        late: false,
    };
    e.observe(&Observation::WaitProbe(probe()));
    e.observe(&Observation::QueuedPoll(poll));
    switch(&mut e, MS, SwitchStep::In);
    assert!(!e.accounts[0].wait.is_queued(0));
    // The stack of the probe, which was whole, and not the one that was looked for.
    let lengths = e.samples.wakeup_latency.relative();
    assert!((lengths.of(1) - 1.0).abs() < 1e-9 && (lengths.of(2) - 1.0).abs() < 1e-9);
}

#[test]
fn lost_records_are_replaced_by_the_counters() {
    let mut e = estimator(FirstState::OnCpu);
    switch(&mut e, 10 * MS, LEFT);
    e.observe(&Observation::Mark(Mark::RecordsLost { time: 11 * MS }));
    read(&mut e, 40 * MS, counters(25 * MS, 0, 3));
    let r = finish(e, 40 * MS);
    let ledger = &r.contexts[0].ledger;
    assert_eq!(ledger.on_cpu.total(), 25 * MS);
    assert_eq!((ledger.repaired_ns, ledger.wall_ns), (15 * MS, 40 * MS));
}

#[test]
fn a_reading_waits_for_the_records_up_to_its_moment() {
    let mut e = estimator(FirstState::OnCpu);
    e.observe(&Observation::CounterReading(CounterReading {
        thread: 0,
        time: 20 * MS,
        counters: counters(10 * MS, 0, 0),
        last: false,
    }));
    e.observe(&Observation::Mark(Mark::Drained { time: 5 * MS }));
    assert_eq!(e.accounts[0].book.seen_ns, 0);
    switch(&mut e, 10 * MS, LEFT);
    let time = 21 * MS;
    e.observe(&Observation::Mark(Mark::Drained { time }));
    assert_eq!(e.accounts[0].book.seen_ns, 20 * MS);
    assert!(e.switches.unsettled.is_empty());
    let ledger = &finish(e, 21 * MS).contexts[0].ledger;
    assert_eq!((ledger.on_cpu.total(), ledger.repaired_ns), (10 * MS, 0));
}

#[test]
fn between_the_turns_of_a_thread_its_counters_tell() {
    let mut e = estimator(FirstState::OnCpu);
    switch(&mut e, 10 * MS, LEFT);
    e.observe(&Observation::CounterReading(CounterReading {
        thread: 0,
        time: 20 * MS,
        counters: counters(10 * MS, 0, 1),
        last: true,
    }));
    let closed = RecordsEnd {
        thread: 0,
        cause: RecordsEndCause::Closed,
    };
    e.observe(&Observation::RecordsEnd(closed));
    // The wait that went on then counts up to there.
    assert_eq!(e.accounts[0].waits.of(class(10 * MS)).count, 1);
    e.observe(&Observation::ThreadPoll(ThreadPoll {
        thread: 0,
        time: 40 * MS,
        counters: counters(15 * MS, 2 * MS, 4),
        left_out: 0,
        saw: None,
    }));
    e.observe(&Observation::RecordsBegin(RecordsBegin {
        thread: 0,
        time: 50 * MS,
        counters: counters(16 * MS, 2 * MS, 5),
        state: FirstState::Unknown,
        by_counters: true,
        unrecorded_ns: 30 * MS,
    }));
    switch(&mut e, 55 * MS, SwitchStep::In);
    read(&mut e, 60 * MS, counters(21 * MS, 2 * MS, 6));
    let r = finish(e, 60 * MS);
    let ledger = &r.contexts[0].ledger;
    assert_eq!((ledger.on_cpu.total(), ledger.wall_ns), (21 * MS, 60 * MS));
    assert_eq!(ledger.runnable.woken, 2 * MS);
    assert!(
        !ledger.audit.valid,
        "its records are no witness of all of it"
    );
    assert_eq!(malformed(&r), 0);
}

#[test]
fn a_thread_without_further_records_goes_on_by_its_counters() {
    let mut e = estimator(FirstState::OnCpu);
    e.observe(&Observation::CounterReading(CounterReading {
        thread: 0,
        time: 20 * MS,
        counters: counters(5 * MS, 0, 3),
        last: true,
    }));
    e.observe(&Observation::RecordsEnd(RecordsEnd {
        thread: 0,
        cause: RecordsEndCause::Stopped,
    }));
    assert!(e.accounts[0].course.is_none());
    let ledger = &finish(e, 20 * MS).contexts[0].ledger;
    assert_eq!((ledger.on_cpu.total(), ledger.wall_ns), (5 * MS, 20 * MS));
}

#[test]
fn threads_that_share_counters_divide_them_by_their_stacks() {
    let mut e = estimator(FirstState::OnCpu);
    let event = CountedEvent {
        name: "page-faults".into(),
        counted: true,
    };
    e.observe(&Observation::CountedEvent(event));
    for (thread, hits) in [(0, 30), (1, 10)] {
        e.observe(&Observation::EventStack(EventStack {
            event: 0,
            thread,
            stack: thread,
            time: 60 * MS,
            hits,
            user_mode: true,
        }));
    }
    e.observe(&Observation::EventHits(EventHits {
        event: 0,
        record: 0,
        hits: 100,
    }));
    let heir = CounterHeir { thread: 1, of: 0 };
    e.observe(&Observation::CounterHeir(heir));
    e.coarsen();
    let r = finish(e, 100 * MS);
    let hits: Vec<u64> = r.events[0].hits.iter().map(|(_, n)| *n).collect();
    assert_eq!(hits, [75, 25]);
    assert_eq!(r.slices.width_ns, 100 * MS);
    let slices: Vec<u32> = (r.events[0].samples.iter())
        .flat_map(|s| s.slices.iter().map(|v| v.slice))
        .collect();
    assert_eq!(slices, [0, 0], "they are as wide as those of the ledger");
}

#[test]
fn hits_of_an_ended_thread_are_the_kernels() {
    let mut e = estimator(FirstState::OnCpu);
    let event = CountedEvent {
        name: "page-faults".into(),
        counted: true,
    };
    e.observe(&Observation::CountedEvent(event));
    e.observe(&Observation::HitsOfEnded(HitsOfEnded {
        event: 0,
        thread: 1,
        hits: 60,
    }));
    e.observe(&Observation::EventHits(EventHits {
        event: 0,
        record: 0,
        hits: 100,
    }));
    let heir = CounterHeir { thread: 1, of: 0 };
    e.observe(&Observation::CounterHeir(heir));
    let r = finish(e, MS);
    let hits: Vec<u64> = r.events[0].hits.iter().map(|(_, n)| *n).collect();
    assert_eq!(hits, [40, 60]);
}

#[test]
fn what_cannot_be_is_counted_and_does_no_harm() {
    let mut e = estimator(FirstState::OnCpu);
    let sample = RunningSample {
        thread: 0,
        stack: 0,
        time: MS,
        ns: MS,
        user_mode: true,
    };
    let stack = PreemptedStack {
        thread: 9,
        stack: 0,
        taken: PreemptedStackTaken::AtSwitch(0),
    };
    let step = SwitchStep::In;
    let huge = 1 << 53;
    let mut bad = vec![
        Observation::RunningSample(RunningSample { stack: 3, ..sample }),
        Observation::RunningSample(RunningSample {
            thread: 2,
            ..sample
        }),
        Observation::PreemptedStack(stack),
        Observation::WaitProbe(WaitProbe {
            stack: 3,
            ..probe()
        }),
        Observation::Switch(Switch {
            thread: 2,
            time: MS,
            step,
        }),
        Observation::OpenWait(OpenWait {
            thread: 2,
            begin: 0,
        }),
        Observation::UnfollowedWait(UnfollowedWait { thread: 0 }),
        Observation::EventHits(EventHits {
            event: 0,
            record: 0,
            hits: 1,
        }),
    ];
    // In all more than there can be.
    let many = RunningSample { ns: huge, ..sample };
    bad.extend((0..9).map(|_| Observation::RunningSample(many)));
    bad.iter().for_each(|o| e.observe(o));
    for run_delay_ns in [0, u64::MAX, 0, u64::MAX] {
        read(&mut e, MS, counters(u64::MAX, run_delay_ns, u64::MAX));
        read(&mut e, 0, counters(0, 0, 0));
    }
    let r = finish(e, MS);
    assert_eq!(malformed(&r), 9);
}

#[test]
fn a_log_cannot_claim_more_rows_than_there_is_memory_for() {
    let mut e = estimator(FirstState::OnCpu);
    switch(&mut e, 1 << 53, LEFT);
    e.observe(&Observation::RunningSample(RunningSample {
        thread: 0,
        stack: 0,
        time: 1 << 53,
        ns: 1 << 53,
        user_mode: true,
    }));
    let rows = e.accounts[0].book.rows() + e.samples.rows();
    assert!(rows < 10_000_000, "{rows}");
}
