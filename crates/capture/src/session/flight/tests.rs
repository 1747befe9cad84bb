//! A flight recorder from turns to the lanes of a recording.

use wallscope_model::{Context, ContextId, Recording, State};
use zerocopy::{FromZeros, IntoBytes};

use std::time::Duration;

use super::writer::FlightWriter;
use super::*;
use crate::event::{Dump, Turn, state};
use crate::session::accounts::Accounts;

const SECOND: u64 = 1_000_000_000;

fn limits(seconds: u64, bytes: u64) -> FlightLimits {
    FlightLimits {
        length: Duration::from_secs(seconds),
        bytes,
    }
}

/// Two threads of one process that have lived since second 1.
fn accounts(now: u64) -> Accounts {
    let mut accounts = Accounts::new(SECOND, SECOND);
    for id in [1, 2] {
        let mut d = Dump::new_zeroed();
        (d.id, d.pid, d.tid) = (id, 10, 10 + id as u32);
        (d.birth, d.now, d.since) = (SECOND, now, now);
        d.state = state::BLOCKED;
        accounts.dump(&d);
    }
    accounts
}

fn turn(time: u64, id: u32, lengths: [u64; 3]) -> Turn {
    let mut t = Turn::new_zeroed();
    [t.stretch, t.block, t.waited] = lengths;
    (t.time, t.id, t.waker) = (time, id, 3 - id);
    t
}

/// A recording with both threads, up to `end_ns`.
fn recording(end_ns: u64) -> Recording {
    let context = |tid| Context {
        pid: 10,
        tid,
        name: "worker".into(),
        start_ns: SECOND,
        end_ns,
        ledger: Default::default(),
    };
    let mut recording = Recording {
        contexts: vec![context(12), context(11)],
        ..Recording::default()
    };
    (recording.window.start_ns, recording.window.end_ns) = (SECOND, end_ns);
    recording
}

#[test]
fn turns_become_lanes_of_the_threads_of_a_recording() {
    let recorder = FlightRecorder::new(limits(120, 64 << 20));
    let mut writer = FlightWriter::new(recorder.clone(), SECOND);
    let turns = [
        turn(SECOND + 100, 1, [50, 40, 10]),
        turn(SECOND + 90, 2, [30, 20, 5]),
        turn(2 * SECOND + 7, 1, [7, SECOND - 100, 0]),
    ];
    for t in &turns[..2] {
        assert_eq!(writer.take(t.as_bytes()), Some(()));
    }
    writer.end_chunk(SECOND + 500, &accounts(SECOND + 500));
    writer.take(turns[2].as_bytes());
    assert_eq!(writer.take(&[0; 12]), None);
    let end = 3 * SECOND;
    writer.end_chunk(end, &accounts(end));
    writer.note_open(end, &accounts(2 * SECOND + 7));
    let snapshot = FlightSnapshot::decode(&recorder.snapshot().encode()).unwrap();
    assert_eq!(snapshot, recorder.snapshot());
    let of_last = snapshot.chunks[1].threads.iter();
    let records: Vec<u32> = of_last.map(|known| known.record).collect();
    assert_eq!(records, [1, 2], "wakers are known by their thread too");

    let mut all = recording(end);
    let flown = snapshot.put_into(&mut all, FlightMemory::Unlimited);
    assert_eq!(flown.covered_ns, 2 * SECOND);
    assert_eq!(flown.thresholds, [(0, 2 * SECOND)]);
    let timeline = all.timeline.unwrap();
    let seen = |context: u32| -> Vec<_> {
        let lane = timeline.lane(ContextId(context)).unwrap();
        let intervals = lane.intervals.iter();
        intervals
            .map(|i| (i.start_ns - SECOND, i.ns, i.state))
            .collect()
    };
    use State::{Blocked, OnCpu, Runnable};
    let first = [
        (0, 50, OnCpu),
        (50, 40, Blocked),
        (90, 10, Runnable),
        (100, 7, OnCpu),
        (107, SECOND - 100, Blocked),
        (SECOND + 7, SECOND - 7, Blocked),
    ];
    assert_eq!(seen(1), first);
    assert_eq!(seen(0).len(), 4);
    let waker = timeline.lane(ContextId(1)).unwrap().intervals[1].waker;
    assert_eq!(waker, Some(ContextId(0)));
    assert!(
        all.domain.notes[0].contains("all for 2.0 s"),
        "{:?}",
        all.domain.notes
    );
}

#[test]
fn windows_that_end_after_a_recording_tell_its_last_intervals() {
    let recorder = FlightRecorder::new(limits(120, 64 << 20));
    let mut writer = FlightWriter::new(recorder.clone(), SECOND);
    writer.take(turn(SECOND + 100, 1, [60, 40, 0]).as_bytes());
    let end = 2 * SECOND;
    writer.end_chunk(end, &accounts(end));
    writer.note_open(end, &accounts(end));
    // The first thread wakes in the next window, and once more; the second one waits on.
    writer.take(turn(end + 50, 1, [30, SECOND - 80, 0]).as_bytes());
    writer.take(turn(end + 90, 1, [20, 20, 0]).as_bytes());
    writer.end_chunk(3 * SECOND, &accounts(3 * SECOND));
    writer.note_open(3 * SECOND, &accounts(SECOND));

    let mut first = recording(end);
    let part = recorder
        .snapshot()
        .put_into(&mut first, FlightMemory::Unlimited);
    assert_eq!(part.thresholds, [(0, SECOND)], "the recording's time alone");
    let timeline = first.timeline.unwrap();
    use State::{Blocked, OnCpu};
    let seen = |context| {
        let intervals = timeline.lane(ContextId(context)).unwrap().intervals.iter();
        intervals
            .map(|i| (i.start_ns - SECOND, i.ns, i.state))
            .collect::<Vec<_>>()
    };
    let woken_later = [
        (0, 60, OnCpu),
        (60, 40, Blocked),
        (100, 30, OnCpu),
        (130, SECOND - 130, Blocked),
    ];
    assert_eq!(seen(1), woken_later);
    assert_eq!(seen(0), [(0, SECOND, Blocked)]);
}

#[test]
fn the_ring_is_bounded_and_the_oldest_go_first() {
    let limits = limits(10, 400_000);
    let recorder = FlightRecorder::new(limits);
    let mut writer = FlightWriter::new(recorder.clone(), SECOND);
    for second in 1..60 {
        let start = second * SECOND;
        let n = if second % 3 == 0 { 20_000 } else { 100 };
        for i in 0..n {
            let lengths = [1_000 + i % 7, 5_000, 200];
            writer.take(turn(start + i * 10_000, 1 + i as u32 % 2, lengths).as_bytes());
        }
        writer.end_chunk(start + SECOND, &accounts(start + SECOND));
        assert!(recorder.bytes() <= limits.bytes / 4, "{}", recorder.bytes());
    }
    let chunks = recorder.snapshot().chunks;
    assert_eq!(chunks.last().unwrap().end_ns, 60 * SECOND);
    assert!(chunks.first().unwrap().start_ns >= 49 * SECOND);
    assert_eq!(
        recorder.bytes(),
        chunks.iter().map(|c| c.bytes()).sum::<u64>()
    );
    // If the limit of the recorder's memory holds for the intervals too, the oldest are dropped and counted.
    let mut small = recording(60 * SECOND);
    let mut snapshot = recorder.snapshot();
    snapshot.limits.bytes = 30_000;
    snapshot.put_into(&mut small, FlightMemory::Recorder);
    let timeline = small.timeline.unwrap();
    let most = 22_500 / size_of::<wallscope_model::Interval>() + 2;
    assert!(
        timeline.dropped > 0 && timeline.len() <= most,
        "{}",
        timeline.len()
    );
}

#[test]
fn five_thousand_turns_a_second_are_all_kept() {
    let recorder = FlightRecorder::new(limits(120, 64 << 20));
    let mut writer = FlightWriter::new(recorder.clone(), SECOND);
    for second in 1..130 {
        for i in 0..5_000 {
            let lengths = [i * 37 % 60_000, i * 1_009 % 4_000_000, i * 7 % 90_000];
            let t = turn(second * SECOND + i * 200_000, 1 + i as u32 % 2, lengths);
            writer.take(t.as_bytes());
        }
        let end = (second + 1) * SECOND;
        writer.end_chunk(end, &accounts(end));
    }
    let mut all = recording(130 * SECOND);
    let flown = recorder
        .snapshot()
        .put_into(&mut all, FlightMemory::Unlimited);
    assert!(flown.covered_ns >= 119 * SECOND, "{flown:?}");
    assert_eq!(flown.thresholds.len(), 1);
    assert_eq!(flown.thresholds[0].0, 0);
}

#[test]
fn damaged_bytes_are_refused() {
    let recorder = FlightRecorder::new(limits(10, 1 << 20));
    let mut writer = FlightWriter::new(recorder.clone(), SECOND);
    writer.take(turn(SECOND + 100, 1, [50, 40, 10]).as_bytes());
    writer.end_chunk(2 * SECOND, &accounts(2 * SECOND));
    let bytes = recorder.snapshot().encode();
    for n in 0..bytes.len() {
        assert!(FlightSnapshot::decode(&bytes[..n]).is_err(), "{n}");
    }
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0xff;
        if let Ok(snapshot) = FlightSnapshot::decode(&other) {
            let mut all = recording(2 * SECOND);
            snapshot.put_into(&mut all, FlightMemory::Unlimited);
        }
    }
}

#[test]
fn a_turn_is_read_as_it_was_put() {
    for kind in 0..=u8::MAX {
        let mut put = turn(1_000, 3, [50, 40, 10]);
        (put.reason, put.part, put.asking) = (kind % 0x1f, kind >> 5 & 3, kind >> 7);
        let mut bytes = Vec::new();
        super::coding::put_turn(&mut bytes, &put, 900);
        let read = super::coding::Reader(&bytes).turn(900).unwrap();
        assert_eq!(read.as_bytes(), put.as_bytes());
    }
}
