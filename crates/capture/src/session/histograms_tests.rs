//! Tests of histograms of interval lengths: classes, threads, open intervals.

use zerocopy::FromZeros;

use super::*;
use crate::event::Dump;

/// A `struct ws_histogram_event` of record `id`. `turn`: the closed stretch and block of the turn under way, and the
/// block's reason. `buckets`: index and count.
fn record(id: u64, max: [u64; 3], turn: (u64, u64, u32), buckets: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = vec![0; 8];
    for word in [id, max[0], max[1], max[2], turn.0, turn.1] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend((buckets.len() as u32).to_ne_bytes());
    bytes.extend(turn.2.to_ne_bytes());
    for (index, count) in buckets {
        bytes.extend(index.to_ne_bytes());
        bytes.extend(count.to_ne_bytes());
    }
    bytes
}

/// Threads with these records, each blocked for a disk since as many ns as its id; thread 0 is on a CPU for 50.
fn threads(ids: &[u64]) -> Accounts {
    let mut accounts = Accounts::new(0, 100);
    for id in ids {
        let mut d = Dump::new_zeroed();
        (d.id, d.now, d.since) = (*id, 1000, 1000 - id);
        (d.state, d.detail) = (state::BLOCKED, BlockReason::Disk as u8);
        if *id == 0 {
            (d.state, d.since) = (state::ON_CPU, 950);
        }
        accounts.dump(&d);
    }
    accounts
}

fn histogram(bits: u32, lengths: &[u64]) -> Histogram {
    let mut h = Histogram::new(bits);
    lengths.iter().for_each(|ns| h.add(*ns, 1.0));
    h
}

#[test]
fn each_class_has_its_state_part_and_reason() {
    let mut histograms = Histograms::default();
    let disk = 4 + BlockReason::Disk as u32;
    let last = CLASSES as u32 - 1;
    let class = |class: u32| ObservedHistogram {
        class,
        longest_ns: 100 + u64::from(class),
        counts: vec![0, 2, 0, 1],
    };
    for c in [0, 1, 2, 3, disk, last] {
        // The later histogram of a class replaces the earlier one.
        histograms.class(&ObservedHistogram {
            counts: vec![9],
            ..class(c)
        });
        assert_eq!(histograms.class(&class(c)), Some(()));
    }
    assert_eq!(histograms.class(&class(last + 1)), None);
    let rows = histograms.finish(&Accounts::new(0, 100));
    let got: Vec<_> = (rows.iter())
        .map(|r| (r.state, r.part, r.reason, r.histogram.max_ns))
        .collect();
    let reasons = BlockReason::ALL;
    let expected = [
        (State::OnCpu, None, None, 100),
        (State::Runnable, Some(Part::Woken), None, 101),
        (State::Runnable, Some(Part::Preempted), None, 102),
        (State::Runnable, Some(Part::Throttled), None, 103),
        (
            State::Blocked,
            None,
            Some(BlockReason::Disk),
            100 + u64::from(disk),
        ),
        (
            State::Blocked,
            None,
            reasons.last().copied(),
            100 + u64::from(last),
        ),
    ];
    assert_eq!(got, expected);
    for row in rows {
        assert_eq!(
            (row.histogram.bits, row.context, row.stack),
            (FINE, None, None)
        );
        assert_eq!(row.histogram.counts, [(1, 2.0), (3, 1.0)]);
    }
}

#[test]
fn a_threads_histograms_hold_the_turn_under_way() {
    let mut histograms = Histograms::default();
    let buckets = [(1, 2), (COARSE_BUCKETS + 3, 4), (2 * COARSE_BUCKETS + 5, 6)];
    let disk = BlockReason::Disk as u32;
    let bytes = record(9, [70, 80, 90], (40_000, 50_000, disk), &buckets);
    assert_eq!(histograms.own(&bytes), Some(()));
    let own = &histograms.own[&9];
    let mut on_cpu = histogram(COARSE, &[40_000]);
    on_cpu.add_bucket(1, 2.0);
    assert_eq!(own[0], on_cpu);
    assert_eq!(
        (own[1].max_ns, own[1].counts.as_slice()),
        (80, &[(3, 4.0)][..])
    );
    let mut blocked = histogram(COARSE, &[50_000]);
    blocked.add_bucket(5, 6.0);
    assert_eq!(own[2], blocked);
    // Those intervals are in the classes too, which hold all threads.
    let rows = histograms.finish(&Accounts::new(0, 100));
    let got: Vec<_> = rows
        .iter()
        .map(|r| (r.state, r.reason, r.histogram.clone()))
        .collect();
    let on_cpu = (State::OnCpu, None, histogram(FINE, &[40_000]));
    let blocked = histogram(FINE, &[50_000]);
    let blocked = (State::Blocked, Some(BlockReason::Disk), blocked);
    assert_eq!(got, [on_cpu, blocked]);
}

#[test]
fn a_turn_without_closed_intervals_adds_none() {
    let mut histograms = Histograms::default();
    assert_eq!(
        histograms.own(&record(9, [70, 80, 90], (0, 0, 0), &[])),
        Some(())
    );
    assert!(histograms.pending.is_empty());
    assert!(histograms.own[&9].iter().all(|h| h.counts.is_empty()));
    assert!(histograms.finish(&threads(&[])).is_empty());
    // The shortest are intervals like others.
    let mut histograms = Histograms::default();
    histograms.own(&record(9, [0; 3], (1, 1, 2), &[]));
    let shortest = [(state::ON_CPU, 0, 1), (state::BLOCKED, 2, 1)];
    assert_eq!(histograms.pending, shortest);
}

#[test]
fn malformed_records_are_refused() {
    let mut histograms = Histograms::default();
    let good = record(9, [0; 3], (0, 0, 0), &[(3 * COARSE_BUCKETS - 1, 1)]);
    assert_eq!(histograms.own(&good[..60]), None);
    let beyond = record(9, [0; 3], (0, 0, 0), &[(3 * COARSE_BUCKETS, 1)]);
    assert_eq!(histograms.own(&beyond), None);
    assert!(histograms.own.is_empty());
    // Buckets behind the stated number are another record's.
    let mut more = good.clone();
    more.extend([0xff; 8]);
    assert_eq!(histograms.own(&more), Some(()));
}

#[test]
fn open_intervals_count_once_for_all_threads_and_for_their_own() {
    let mut histograms = Histograms::default();
    // Known in another order than the threads are, and one that is no thread.
    for id in [700, 300, 5] {
        histograms.own(&record(id, [0; 3], (0, 0, 0), &[(id as u32 % 100 + 1, 1)]));
    }
    let rows = histograms.finish(&threads(&[300, 0, 700]));
    let got: Vec<_> = rows
        .iter()
        .map(|r| (r.context.map(|c| c.0), r.state))
        .collect();
    let expected = [
        (None, State::OnCpu),
        (None, State::Blocked),
        (Some(0), State::OnCpu),
        (Some(0), State::Blocked),
        (Some(1), State::OnCpu),
        (Some(2), State::OnCpu),
        (Some(2), State::Blocked),
    ];
    assert_eq!(got, expected);
    assert_eq!(rows[0].histogram, histogram(FINE, &[50]));
    assert_eq!(rows[1].histogram, histogram(FINE, &[300, 700]));
    assert_eq!(rows[3].histogram, histogram(COARSE, &[300]));
    assert_eq!(rows[4].histogram, histogram(COARSE, &[50]));
    assert!(
        rows.iter()
            .all(|r| r.histogram.bits == [COARSE, FINE][usize::from(r.context.is_none())])
    );
}

#[test]
fn states_parts_and_reasons_that_are_not_known_are_in_no_class() {
    assert_eq!(class_of(state::ON_CPU, 9), Some(0));
    assert_eq!(class_of(state::RUNNABLE, 2), Some(3));
    assert_eq!(class_of(state::RUNNABLE, 3), None);
    let reasons = BlockReason::COUNT as u8;
    assert_eq!(class_of(state::BLOCKED, reasons - 1), Some(CLASSES - 1));
    assert_eq!(class_of(state::BLOCKED, reasons), None);
    assert_eq!(class_of(0, 0), None);
}
