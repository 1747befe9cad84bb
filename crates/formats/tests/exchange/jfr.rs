//! Flight recordings of every recorder: files with known sums made here, and files of the recorders.

use std::collections::BTreeMap;

use wallscope_formats::ReadError;
use wallscope_model::{Recording, State, Unit};

use crate::jfr_writer::{ChunkWriter, FUNCTIONS};
use crate::support::{fold, plain, read, read_value, try_read};
use wallscope_synthetic::Random;

/// async-profiler 4.5, `event=wall` with its default interval.
const WALL: &[u8] = include_bytes!("../fixtures/wall.jfr.gz");
/// JDK 17's recording, then async-profiler's of another run in the same file.
const JDK_THEN_WALL: &[u8] = include_bytes!("../fixtures/jdk-then-wall.jfr.gz");
/// JDK 25 with `jdk.CPUTimeSample` at 20 ms beside `jdk.ExecutionSample`.
const CPU_TIME: &[u8] = include_bytes!("../fixtures/cpu-time.jfr.gz");

const MS: u64 = 1_000_000;

/// Time of all threads in a state.
fn state(recording: &Recording, state: State) -> u64 {
    let contexts = recording.contexts.iter();
    contexts.map(|c| c.ledger.state_ns(state)).sum()
}

fn total(recording: &Recording) -> u64 {
    recording.contexts.iter().map(|c| c.ledger.wall_ns).sum()
}

/// `jfr print` has 2052 samples in 344 events. async-profiler's documented default is 50 ms, and its
/// own setting says 0.
#[test]
fn wall_clock_samples_have_the_documented_interval() {
    let rec = read(WALL).recording;
    assert_eq!(total(&rec), 2052 * 50 * MS);
    let threads = rec
        .contexts
        .iter()
        .filter(|c| c.ledger.wall_ns > 5_500 * MS);
    assert_eq!(threads.count(), 17);
    assert!((5_900 * MS..6_300 * MS).contains(&(rec.window.end_ns - rec.window.start_ns)));
    assert!(rec.contexts.iter().any(|c| &*c.name == "sleeper-0"));
}

/// `jfr summary` has 85 execution samples, at 10 ms, and two sleeps of 3 s; then come 2052 wall-clock
/// samples.
#[test]
fn recordings_of_two_recorders_in_one_file_are_both_read() {
    let whole = read(JDK_THEN_WALL);
    assert_eq!(whole.warnings, [""; 0]);
    let rec = whole.recording;
    assert_eq!(state(&rec, State::OnCpu), 85 * 10 * MS);
    let wall = read_value(JDK_THEN_WALL, "wall").unwrap().recording;
    assert_eq!(total(&wall), 2052 * 50 * MS);
    let slept = total(&rec) - total(&wall) - 85 * 10 * MS;
    assert!(slept.abs_diff(6_000 * MS) < 5 * MS, "{slept}");
    let cpu = read_value(JDK_THEN_WALL, "cpu").unwrap().recording;
    assert_eq!(total(&cpu), 85 * 10 * MS);
}

/// `jfr print` has 26 samples of 20 ms; the 71 execution samples are of the same time.
#[test]
fn samples_by_cpu_time_have_their_own_period() {
    let read = read(CPU_TIME);
    assert_eq!(state(&read.recording, State::OnCpu), 26 * 20 * MS);
    let left = read
        .warnings
        .iter()
        .find(|w| w.contains("other samples"))
        .unwrap();
    assert!(left.contains("jdk.ExecutionSample (71)"), "{left}");
}

/// `jfr configure allocation-profiling=maximum` records both kinds of events.
#[test]
fn allocations_that_two_kinds_of_events_count_are_read_once() {
    let file = |buffers: &[u64]| {
        let mut w = ChunkWriter::new(&mut Random(3), 1_000_000 * MS);
        for bytes in [500, 1500] {
            w.event("jdk.ObjectAllocationSample", 1, 0, &[("weight", bytes)]);
        }
        for bytes in buffers {
            w.event(
                "jdk.ObjectAllocationInNewTLAB",
                2,
                0,
                &[("tlabSize", *bytes)],
            );
        }
        read_value(&w.finish(), "allocation").unwrap()
    };
    let sampled = file(&[]);
    assert_eq!(fold(&sampled.recording)["main_[j];run_[j];leaf_[j]"], 2000);
    assert_eq!(sampled.warnings, [""; 0]);
    let both = file(&[2048]);
    assert_eq!(
        fold(&both.recording),
        [("main_[j];run_[j]".to_string(), 2048)].into()
    );
    let left =
        "left out, as other events count the same allocations: jdk.ObjectAllocationSample (2)";
    assert_eq!(both.warnings, [left]);
}

#[test]
fn unknown_versions_are_refused() {
    let whole = plain(WALL);
    for (major, minor) in [(0u8, 9u8), (1, 0), (2, 2), (3, 0)] {
        let mut file = whole.clone();
        (file[5], file[7]) = (major, minor);
        let error = try_read(&file).unwrap_err();
        assert!(matches!(error, ReadError::UnknownLayout { .. }), "{error}");
        assert!(
            error.to_string().contains(&format!("{major}.{minor}")),
            "{error}"
        );
    }
}

/// Sums by folded stack, by state.
#[derive(Default)]
struct Expected {
    sums: BTreeMap<String, u64>,
    states: BTreeMap<State, u64>,
}

impl Expected {
    fn add(&mut self, stack: u64, state: State, ns: u64) {
        let names: Vec<String> = (FUNCTIONS[stack as usize - 1..].iter().rev())
            .map(|f| format!("{f}_[j]"))
            .collect();
        *self.sums.entry(names.join(";")).or_default() += ns;
        *self.states.entry(state).or_default() += ns;
    }
}

/// Writes a chunk of one recorder, drawn at random.
fn chunk(random: &mut Random, start_ns: u64, expected: &mut Expected) -> Vec<u8> {
    let mut w = ChunkWriter::new(random, start_ns);
    let own = [0, 5 * MS, 13 * MS][random.below(3) as usize];
    let or = |default: u64| if own == 0 { default } else { own };
    let async_profiler = |w: &mut ChunkWriter, event: &str| {
        w.setting("", "cstack", "vm");
        w.setting("", "event", event);
        w.setting("jdk.ExecutionSample", "interval", &own.to_string());
    };
    let recorder = random.below(6);
    match recorder {
        0 => w.setting(
            "jdk.ExecutionSample",
            "period",
            &format!("{} ms", or(20 * MS) / MS),
        ),
        1 => async_profiler(
            &mut w,
            ["cpu", "ctimer", "itimer"][random.below(3) as usize],
        ),
        2 | 3 => async_profiler(&mut w, "wall"),
        4 => {
            async_profiler(&mut w, "cpu");
            w.setting("jdk.ExecutionSample", "wall", "0");
        }
        _ => {
            w.setting("datadog.ExecutionSample", "interval", &own.to_string());
            w.setting("datadog.MethodSample", "interval", &own.to_string());
        }
    }
    let wall_state = |state: u64| match state {
        2 | 3 => State::Blocked,
        _ => State::Unknown,
    };
    for _ in 0..30 {
        let stack = 1 + random.below(3);
        let n = 1 + random.below(9);
        let asleep = 1 + random.below(2);
        match (recorder, random.below(3)) {
            (0, 0) => {
                let length = w.ticks(n * 100 * MS);
                w.event("jdk.ThreadPark", stack, 0, &[("duration", length)]);
                expected.add(stack, State::Blocked, n * 100 * MS);
            }
            (0, 1) => {
                w.event("jdk.ThreadSleep", stack, 0, &[("duration", n * 3)]);
                expected.add(stack, State::Blocked, n * 3);
            }
            (0, _) => {
                w.event("jdk.ExecutionSample", stack, 1, &[]);
                expected.add(stack, State::OnCpu, or(20 * MS));
            }
            (1, _) => {
                w.event("jdk.ExecutionSample", stack, 0, &[]);
                expected.add(stack, State::OnCpu, or(10 * MS));
            }
            (2, _) => {
                let span = w.ticks((n - 1) * or(50 * MS));
                let values = [("samples", n), ("timeSpan", span)];
                w.event("profiler.WallClockSample", stack, asleep, &values);
                expected.add(stack, wall_state(asleep), n * or(50 * MS));
            }
            (3, _) => {
                w.event("jdk.ExecutionSample", stack, asleep, &[]);
                expected.add(stack, wall_state(asleep), or(50 * MS));
            }
            (4, 0) => {
                w.event("jdk.ExecutionSample", stack, 0, &[]);
                expected.add(stack, State::OnCpu, or(10 * MS));
            }
            (4, 1) => {
                w.event("jdk.ExecutionSample", stack, asleep, &[]);
                expected.add(stack, wall_state(asleep), 50 * MS);
            }
            (4, _) => {
                w.event("profiler.WallClockSample", stack, 2, &[("samples", n)]);
                expected.add(stack, State::Blocked, n * 50 * MS);
            }
            (_, 0) => {
                w.event("datadog.MethodSample", stack, 3, &[("weight", n)]);
                expected.add(stack, State::Blocked, n * or(50 * MS));
            }
            _ => {
                w.event("datadog.ExecutionSample", stack, 1, &[("weight", 1)]);
                expected.add(stack, State::OnCpu, or(10 * MS));
            }
        }
    }
    w.finish()
}

#[test]
fn every_recorder_gives_the_sums_that_were_written() {
    for seed in 0..200 {
        let mut random = Random(seed * 104_729 + 5);
        let mut expected = Expected::default();
        let mut file = Vec::new();
        let chunks = 1 + random.below(4);
        for i in 0..chunks {
            let start = 1_700_000_000_000_000_000 + i * 60_000 * MS;
            file.extend(chunk(&mut random, start, &mut expected));
        }
        let read = read(&file);
        let rec = &read.recording;
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (line, n) in fold(rec) {
            *sums.entry(line).or_default() += n;
        }
        assert_eq!(sums, expected.sums, "seed {seed}: {:?}", read.warnings);
        for (s, ns) in &expected.states {
            assert_eq!(state(rec, *s), *ns, "seed {seed}, {s:?}");
        }
        assert_eq!(
            rec.window.end_ns - rec.window.start_ns,
            chunks * 60_000 * MS,
            "seed {seed}"
        );
    }
}

/// A chunk without a period, alone and before one with a period.
#[test]
fn samples_of_unknown_weight_are_no_time() {
    let mut random = Random(1);
    let unknown = |random: &mut Random, start| {
        let mut w = ChunkWriter::new(random, start);
        (0..3).for_each(|_| w.event("jdk.ExecutionSample", 1, 1, &[]));
        w.finish()
    };
    let alone = unknown(&mut random, 0);
    let first = read(&alone);
    assert_eq!(
        first.recording.domain.unit,
        Unit::Count("samples".to_string())
    );
    assert_eq!(fold(&first.recording).values().sum::<u64>(), 3);
    assert!(
        first.warnings[0].contains("counted"),
        "{:?}",
        first.warnings
    );
    let mut both = alone;
    let mut w = ChunkWriter::new(&mut random, 60_000 * MS);
    w.setting("jdk.ExecutionSample", "period", "10 ms");
    w.event("jdk.ExecutionSample", 2, 1, &[]);
    both.extend(w.finish());
    let second = read(&both);
    assert_eq!(total(&second.recording), 10 * MS);
    assert!(
        second.warnings[0].contains("jdk.ExecutionSample (3)"),
        "{:?}",
        second.warnings
    );
}

/// async-profiler's interval of `event=cycles` is a number of cycles.
#[test]
fn samples_of_other_events_are_counted_in_those() {
    let mut random = Random(2);
    let mut w = ChunkWriter::new(&mut random, 0);
    w.setting("", "cstack", "vm");
    w.setting("", "event", "cycles");
    w.setting("jdk.ExecutionSample", "interval", "0");
    (0..3).for_each(|_| w.event("jdk.ExecutionSample", 1, 0, &[]));
    let rec = read(&w.finish()).recording;
    assert_eq!(rec.domain.unit, Unit::Count("cycles".to_string()));
    assert_eq!(fold(&rec).values().sum::<u64>(), 3_000_000);
}

/// CPU and wall-clock samples of one chunk are both read, and the reader says so.
#[test]
fn cpu_and_wall_samples_of_one_chunk_are_both_kept() {
    let mut random = Random(4);
    let mut w = ChunkWriter::new(&mut random, 0);
    w.setting("", "cstack", "vm");
    w.setting("", "event", "ctimer");
    w.setting("jdk.ExecutionSample", "interval", "4000000");
    w.setting("jdk.ExecutionSample", "wall", "30000000");
    w.event("jdk.ExecutionSample", 1, 0, &[]);
    w.event("profiler.WallClockSample", 1, 2, &[("samples", 3)]);
    let wait = w.ticks(900 * MS);
    w.event("jdk.ThreadPark", 1, 0, &[("duration", wait)]);
    let file = w.finish();
    let both = read(&file);
    assert_eq!(state(&both.recording, State::OnCpu), 4 * MS);
    assert_eq!(state(&both.recording, State::Blocked), 90 * MS);
    let said = |text: &str| both.warnings.iter().any(|w| w.contains(text));
    assert!(
        said("jdk.ThreadPark (1)") && said("both are read"),
        "{:?}",
        both.warnings
    );
    assert_eq!(total(&read_value(&file, "cpu").unwrap().recording), 4 * MS);
    assert_eq!(
        total(&read_value(&file, "wall").unwrap().recording),
        90 * MS
    );
}

/// A wait of 2 s lies in all slices that it covers, and the window covers it.
#[test]
fn a_long_wait_is_spread_over_its_time() {
    let mut random = Random(3);
    let mut w = ChunkWriter::new(&mut random, 1_000_000_000_000);
    w.duration_ns = 0;
    let length = w.ticks(2_000 * MS);
    w.event("jdk.ThreadPark", 1, 0, &[("duration", length)]);
    w.event("jdk.Compilation", 1, 0, &[("duration", length)]);
    let read = read(&w.finish());
    let rec = read.recording;
    assert_eq!(total(&rec), 2_000 * MS);
    assert_eq!(rec.window.end_ns - rec.window.start_ns, 2_000 * MS);
    let most = rec.samples[0].slices.iter().map(|v| v.ns).max().unwrap();
    assert!(
        rec.samples[0].slices.len() >= 100 && most <= 40 * MS,
        "{most}"
    );
    let named = rec
        .domain
        .notes
        .iter()
        .any(|n| n.contains("jdk.Compilation (1)"));
    assert!(named, "{:?}", rec.domain.notes);
}
