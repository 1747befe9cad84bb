use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::{Ledger, LedgerSlice, Process, SliceValue, Slices, StackId};

fn context(tid: u32, name: &str, ledger: Ledger) -> Context {
    Context {
        pid: 1,
        tid,
        name: Arc::from(name),
        start_ns: 0,
        end_ns: 0,
        ledger,
    }
}

fn sample(context: u32, stack: u32, state: State, count: u64, ns: u64) -> Sample {
    Sample {
        context: ContextId(context),
        stack: StackId(stack),
        state,
        reason: None,
        part: None,
        idle: false,
        cpu: None,
        labels: None,
        count,
        ns,
        slices: vec![SliceValue {
            slice: stack % 4,
            count,
            ns,
        }],
    }
}

fn on_cpu(ns: u64) -> Ledger {
    let mut l = Ledger::default();
    l.on_cpu.user = ns;
    l
}

fn by_sample(s: &Scaled, sample: u32) -> u64 {
    s.pieces
        .iter()
        .filter(|p| p.sample == sample)
        .map(|p| p.ns)
        .sum()
}

#[test]
fn what_may_not_be_sampled_has_no_sample() {
    let stack = |end| crate::Stack {
        frames: Vec::new(),
        end,
    };
    let rec = Recording {
        contexts: vec![context(1, "a", on_cpu(1_000))],
        samples: vec![
            sample(0, 0, State::OnCpu, 20, 200),
            sample(0, 1, State::OnCpu, 0, 300),
        ],
        stacks: vec![stack(StackEnd::Root), stack(StackEnd::NotSampled)],
        ..Recording::default()
    };
    let s = scale(&rec);
    assert_eq!((by_sample(&s, 0), by_sample(&s, 1)), (400, 0));
    let rest = Unsampled {
        context: ContextId(0),
        state: State::OnCpu,
        reason: None,
        ns: 600,
    };
    assert_eq!(s.unsampled, [rest]);
}

#[test]
fn threads_with_many_samples_of_a_short_time_are_sparse() {
    // For an eighth of the time a stack was taken for each ns, then one for 56,000.
    let mut waits = Ledger::default();
    waits.blocked[BlockReason::Timer as usize] = 8_000;
    let early = (0..8).map(|n| sample(n, n, State::Blocked, 1_000, 1_000));
    let late = sample(3, 8, State::Blocked, 1, 56_000);
    let mut rec = Recording {
        contexts: (0..8)
            .map(|tid| context(tid, "turns", waits.clone()))
            .collect(),
        samples: early.chain([late]).collect(),
        ..Recording::default()
    };
    rec.domain.backend = "ebpf".into();
    assert_eq!(by_sample(&scale(&rec), 8), 56_000);
}

#[test]
fn one_factor_for_a_context_and_state() {
    let rec = Recording {
        contexts: vec![context(1, "a", on_cpu(1_000))],
        samples: vec![
            sample(0, 0, State::OnCpu, 20, 200),
            sample(0, 1, State::OnCpu, 60, 600),
        ],
        ..Recording::default()
    };
    let s = scale(&rec);
    assert_eq!((by_sample(&s, 0), by_sample(&s, 1)), (250, 750));
    assert_eq!(s.factors.len(), 1);
    assert_eq!(
        (s.factors[0].exact_ns, s.factors[0].sampled_ns),
        (1000, 800)
    );
    assert!(s.unsampled.is_empty());
}

#[test]
fn reasons_are_exact_and_a_reason_without_samples_stands_alone() {
    let mut l = Ledger::default();
    l.blocked[BlockReason::Lock as usize] = 9_000;
    l.blocked[BlockReason::Disk as usize] = 500;
    let mut lock = sample(0, 0, State::Blocked, 10, 10_000);
    lock.reason = Some(BlockReason::Lock);
    let rec = Recording {
        contexts: vec![context(1, "a", l)],
        samples: vec![lock],
        ..Recording::default()
    };
    let s = scale(&rec);
    assert_eq!(by_sample(&s, 0), 9_000);
    assert_eq!(
        s.unsampled,
        [Unsampled {
            context: ContextId(0),
            state: State::Blocked,
            reason: Some("disk"),
            ns: 500
        }]
    );
}

#[test]
fn samples_whose_reason_the_ledger_lacks_make_the_state_one_group() {
    let mut l = Ledger::default();
    l.blocked[BlockReason::Other as usize] = 9_000;
    let mut lock = sample(0, 0, State::Blocked, 10, 10_000);
    lock.reason = Some(BlockReason::Lock);
    let plain = sample(0, 1, State::Blocked, 20, 20_000);
    let rec = Recording {
        contexts: vec![context(1, "a", l)],
        samples: vec![lock, plain],
        ..Recording::default()
    };
    let s = scale(&rec);
    assert_eq!((by_sample(&s, 0), by_sample(&s, 1)), (3_000, 6_000));
}

#[test]
fn time_the_ledger_does_not_have_is_left_out_and_counted() {
    let rec = Recording {
        contexts: vec![context(1, "a", on_cpu(10))],
        samples: vec![sample(0, 0, State::Runnable, 1, 77)],
        ..Recording::default()
    };
    let s = scale(&rec);
    assert!(s.pieces.is_empty());
    assert_eq!(s.unplaced_ns, 77);
    assert_eq!(s.unsampled.len(), 1);
}

/// A thousand threads of 1 ms, a tenth of them sampled at 10 ms. Two functions in the ratio 7:3
/// keep that ratio, nothing is lost, and each thread still sums to its own ledger.
#[test]
fn short_threads_are_estimated_together() {
    let contexts: Vec<_> = (0..1000)
        .map(|i| context(i, &format!("req-{i}"), on_cpu(1_000_000 + u64::from(i))))
        .collect();
    let samples = (0..100)
        .map(|i| sample(i * 10, u32::from(i % 10 >= 7), State::OnCpu, 1, 10_000_000))
        .collect();
    let rec = Recording {
        contexts,
        samples,
        ..Recording::default()
    };
    let s = scale(&rec);
    assert!(s.unsampled.is_empty());
    let mut functions = [0u64; 2];
    let mut contexts = vec![0u64; 1000];
    for p in &s.pieces {
        functions[rec.samples[p.sample as usize].stack.0 as usize] += p.ns;
        contexts[p.context.0 as usize] += p.ns;
    }
    let total: u64 = functions.iter().sum();
    assert!((functions[0] as f64 / total as f64 - 0.7).abs() < 1e-6);
    for (c, got) in rec.contexts.iter().zip(contexts) {
        assert_eq!(got, c.ledger.on_cpu.total());
    }
    assert!(s.borrowed_ns > 800_000_000);
    assert!(s.pieces.len() < 1200, "linear: {}", s.pieces.len());
}

#[test]
fn a_wait_that_was_seen_whole_borrows_nothing() {
    let polls = |ns| {
        let mut l = Ledger::default();
        l.blocked[BlockReason::Poll as usize] = ns;
        l
    };
    // The first thread waits once, all the time; its sibling's samples show more waiting than it
    // had.
    let mut samples = vec![
        sample(0, 0, State::Blocked, 1, 3_990_000_000),
        sample(1, 1, State::Blocked, 10, 1_500_000_000),
    ];
    for s in &mut samples {
        s.reason = Some(BlockReason::Poll);
    }
    let rec = Recording {
        contexts: vec![
            context(1, "a", polls(4_000_000_000)),
            context(2, "a", polls(1_000_000_000)),
        ],
        samples,
        ..Recording::default()
    };
    let s = scale(&rec);
    assert_eq!(s.borrowed_ns, 0);
    assert_eq!(
        (by_sample(&s, 0), by_sample(&s, 1)),
        (4_000_000_000, 1_000_000_000)
    );
}

/// Polls measure the few waits that they meet from end to end: all siblings wait where these do.
#[test]
fn brief_threads_that_no_poll_met_wait_where_their_siblings_do() {
    let timer = |ns: u64| {
        let mut l = Ledger::default();
        l.blocked[BlockReason::Timer as usize] = ns;
        l
    };
    let wait = |of, stack, ns| Sample {
        reason: Some(BlockReason::Timer),
        ..sample(of, stack, State::Blocked, 1, ns)
    };
    let recording = |stays: u64| Recording {
        window: crate::Window {
            end_ns: 10_000,
            ..crate::Window::default()
        },
        contexts: [300, 100, 600, 500]
            .map(|ns| Context {
                end_ns: stays,
                ..context(ns as u32, "w", timer(ns))
            })
            .into(),
        samples: vec![wait(0, 0, 300), wait(1, 1, 100)],
        ..Recording::default()
    };
    let s = scale(&recording(700));
    assert_eq!((by_sample(&s, 0), by_sample(&s, 1)), (300 + 825, 100 + 275));
    assert_eq!((s.unsampled.len(), s.borrowed_ns), (0, 1100));
    let s = scale(&recording(7_000));
    assert_eq!((by_sample(&s, 0), by_sample(&s, 1)), (300, 100));
    assert_eq!(
        s.unsampled.len(),
        2,
        "threads that stay are no siblings of that kind"
    );
}

#[test]
fn a_program_does_not_borrow_from_another() {
    let mut other = context(2, "a", on_cpu(1_000));
    other.pid = 2;
    let process = |pid, exe: &str| Process {
        pid,
        exe: Arc::from(exe),
        ..Process::default()
    };
    let rec = Recording {
        contexts: vec![context(1, "a", on_cpu(1_000)), other],
        processes: vec![process(1, "/bin/x"), process(2, "/bin/y")],
        samples: vec![sample(0, 0, State::OnCpu, 1, 10_000)],
        ..Recording::default()
    };
    let s = scale(&rec);
    assert_eq!(s.borrowed_ns, 0);
    assert_eq!(s.unsampled.len(), 1);
    assert_eq!(s.unsampled[0].context, ContextId(1));
}

prop_compose! {
    fn ledger()(
        on_cpu in prop_oneof![Just(0u64), 1..1u64 << 50],
        woken in prop_oneof![Just(0u64), 1..1u64 << 40],
        throttled in prop_oneof![Just(0u64), 1..1u64 << 40],
        lock in prop_oneof![Just(0u64), 1..1u64 << 50],
        other in prop_oneof![Just(0u64), 1..1u64 << 30],
        unseen in prop_oneof![Just(0u64), 1..1u64 << 30],
    ) -> Ledger {
        let mut l = Ledger::default();
        l.on_cpu.user = on_cpu;
        l.runnable.woken = woken;
        l.runnable.throttled = throttled;
        l.blocked[BlockReason::Lock as usize] = lock;
        l.blocked[BlockReason::Other as usize] = other;
        l.unknown[UnknownCause::NoRecord as usize] = unseen;
        l
    }
}

prop_compose! {
    fn any_sample(contexts: u32)(
        c in 0..contexts, stack in 0..50u32, state in 0..3usize,
        reason in prop::option::of(prop::sample::select(
            vec![BlockReason::Lock, BlockReason::Other, BlockReason::Disk])),
        part in prop::option::of(prop::sample::select(
            vec![Part::Woken, Part::Throttled, Part::Preempted, Part::User])),
        count in 1..1000u64, period in 1..1u64 << 24,
    ) -> Sample {
        let mut s = sample(c, stack, State::ALL[state], count, count * period);
        if s.state == State::Blocked { s.reason = reason } else { s.part = part }
        s
    }
}

fn recording() -> impl Strategy<Value = Recording> {
    (1..12u32).prop_flat_map(|n| {
        let contexts = prop::collection::vec(ledger(), n as usize);
        let samples = prop::collection::vec(any_sample(n), 0..80);
        (contexts, samples).prop_map(|(ledgers, samples)| {
            let mut rec = Recording {
                slices: Slices {
                    start_ns: 0,
                    width_ns: 1,
                    count: 4,
                },
                samples,
                ..Recording::default()
            };
            for (i, l) in ledgers.into_iter().enumerate() {
                for slice in 0..4u32 {
                    let mut row = LedgerSlice {
                        context: i as u32,
                        slice,
                        on_cpu_ns: l.on_cpu.user / 4,
                        runnable_ns: l.runnable.total() / 4,
                        ..LedgerSlice::default()
                    };
                    row.blocked[BlockReason::Lock as usize] =
                        l.blocked[BlockReason::Lock as usize] / 4;
                    rec.ledger_slices.push(row);
                }
                rec.contexts
                    .push(context(i as u32, if i % 2 == 0 { "w" } else { "x" }, l));
            }
            rec
        })
    })
}

fn sums(rec: &Recording, s: &Scaled) -> Vec<[u64; State::COUNT]> {
    let mut sums = vec![[0u64; State::COUNT]; rec.contexts.len()];
    for p in &s.pieces {
        sums[p.context.0 as usize][rec.samples[p.sample as usize].state as usize] += p.ns;
    }
    for u in &s.unsampled {
        sums[u.context.0 as usize][u.state as usize] += u.ns;
    }
    sums
}

proptest! {
    #[test]
    fn every_context_and_state_sums_to_its_ledger(rec in recording()) {
        let s = scale(&rec);
        for (c, got) in rec.contexts.iter().zip(sums(&rec, &s)) {
            for state in State::ALL {
                prop_assert_eq!(got[*state as usize], c.ledger.state_ns(*state));
            }
        }
        prop_assert!(s.pieces.iter().all(|p| p.ns > 0));
        // Linear: a context adds at most one split.
        prop_assert!(s.pieces.len() <= rec.samples.len() * 2 + rec.contexts.len() * State::COUNT * 13);
    }

    #[test]
    fn every_slice_sums_to_its_own_ledger(rec in recording(), from in 0..4u32, len in 1..4u32) {
        let to = (from + len).min(4);
        let s = scale_slices(&rec, from..to);
        let got = sums(&rec, &s);
        for (i, got) in got.iter().enumerate() {
            for state in State::ALL {
                let want: u64 = rec.ledger_slices.iter()
                    .filter(|r| r.context == i as u32 && (from..to).contains(&r.slice))
                    .map(|r| r.state_ns(*state)).sum();
                prop_assert_eq!(got[*state as usize], want);
            }
        }
    }

    /// If no group is sparse and every sample's reason is in the ledger, a sample's scaled time is
    /// its own times its group's factor, to the nanosecond.
    #[test]
    fn scaling_is_proportional(exact in 1u64 << 40..1u64 << 50, counts in prop::collection::vec(1..1000u64, 1..40)) {
        let rec = Recording {
            contexts: vec![context(1, "a", on_cpu(exact))],
            samples: counts.iter().enumerate()
                .map(|(i, c)| sample(0, i as u32, State::OnCpu, *c, c * 10_000_000)).collect(),
            ..Recording::default()
        };
        let s = scale(&rec);
        let sampled: u64 = rec.samples.iter().map(|s| s.ns).sum();
        for (i, r) in rec.samples.iter().enumerate() {
            let want = u128::from(exact) * u128::from(r.ns) / u128::from(sampled);
            let got = u128::from(by_sample(&s, i as u32));
            prop_assert!(got.abs_diff(want) <= 1, "{} {}", got, want);
        }
    }
}
