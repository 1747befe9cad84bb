use std::collections::BTreeMap;

use wallscope_formats::{Format, WriteOptions, folded};
use wallscope_model::{
    BlockReason, ContextId, Interval, Lane, Part, Recording, State, Timeline, View,
};

use crate::support::{ends, fold, read};
use wallscope_synthetic as synthetic;

fn write(rec: &Recording, format: &str, view: View) -> (Vec<u8>, Vec<String>) {
    let options = WriteOptions {
        view,
        folded: folded::Options {
            view,
            ..folded::Options::default()
        },
        ..WriteOptions::default()
    };
    let mut out = Vec::new();
    let format = Format::named(format).unwrap();
    let lost = format.write(rec, &options, &mut out).unwrap();
    (out, lost)
}

/// The folded lines of a view.
fn folded_of(rec: &Recording, view: View) -> BTreeMap<String, u64> {
    let (bytes, _) = write(rec, "folded", view);
    crate::support::lines(&String::from_utf8(bytes).unwrap())
}

#[test]
fn speedscope_keeps_stacks_and_threads_of_each_view() {
    let rec = synthetic::recording(3);
    for view in [View::Wall, View::OnCpu, View::OffCpu] {
        let (bytes, lost) = write(&rec, "speedscope", view);
        assert!(lost.iter().any(|l| l.contains("states")), "{lost:?}");
        let back = read(&bytes).recording;
        // Inlined functions and cut roots are frames there, called as they are here.
        let plain = |sums: BTreeMap<String, u64>| -> BTreeMap<String, u64> {
            let mut out = BTreeMap::new();
            for (k, v) in sums {
                *out.entry(k.replace("_[i]", "")).or_default() += v;
            }
            out
        };
        assert_eq!(plain(fold(&back)), plain(folded_of(&rec, view)));
        let with_time = |r: &Recording| r.contexts.iter().filter(|c| c.ledger.wall_ns > 0).count();
        assert!(with_time(&back) >= 3);
    }
}

#[test]
fn otlp_keeps_states_reasons_threads_and_counts() {
    let rec = synthetic::recording(3);
    let (bytes, lost) = write(&rec, "otlp", View::Wall);
    assert!(lost.iter().any(|l| l.contains("ledger")), "{lost:?}");
    let back = read(&bytes).recording;
    assert_eq!(back.contexts.len(), rec.contexts.len());
    for c in &rec.contexts {
        let same = back.contexts.iter().find(|d| d.tid == c.tid).unwrap();
        assert_eq!((&same.name, same.pid), (&c.name, c.pid));
        assert_eq!(same.ledger.blocked, c.ledger.blocked);
        assert_eq!(same.ledger.on_cpu.total(), c.ledger.on_cpu.total());
        assert_eq!(same.ledger.runnable.total(), c.ledger.runnable.total());
    }
    let count = |r: &Recording| r.samples.iter().map(|s| s.count).sum::<u64>();
    assert_eq!(count(&back), count(&rec));
    let paths = |r: &Recording| r.modules.iter().map(|m| m.path.clone()).max();
    assert_eq!(paths(&back), paths(&rec));
}

#[test]
fn callgrind_keeps_own_and_total_times_of_functions() {
    let rec = synthetic::recording(2);
    let (bytes, _) = write(&rec, "callgrind", View::OffCpu);
    let back = read(&bytes).recording;
    assert!(back.domain.unit.is_time());
    let expected: u64 = folded_of(&rec, View::OffCpu).values().sum();
    assert_eq!(fold(&back).values().sum::<u64>(), expected);
    let (own, _) = ends(&back);
    let (direct, _) = crate::support::ends_of(&folded_of(&rec, View::OffCpu));
    // Suffixes of the kernel's functions are part of their names there.
    for (name, value) in direct {
        let found: u64 = (own.iter())
            .filter(|(n, _)| n.trim_end_matches("_[k]") == name.trim_end_matches("_[k]"))
            .map(|(_, v)| *v)
            .sum();
        assert_eq!(found, value, "{name}");
    }
}

#[test]
fn perfetto_holds_every_sample_in_its_slice() {
    let rec = synthetic::recording(1);
    let (bytes, lost) = write(&rec, "perfetto", View::OnCpu);
    assert!(lost.iter().any(|l| l.contains("slice")), "{lost:?}");
    // Packets (field 1), and in them perf samples (field 66: key 0x92 0x04).
    let mut rest = &bytes[..];
    let mut samples = 0;
    while !rest.is_empty() {
        assert_eq!(rest[0], 0x0a);
        let (mut len, mut at, mut shift) = (0usize, 1, 0);
        loop {
            len |= usize::from(rest[at] & 0x7f) << shift;
            at += 1;
            shift += 7;
            if rest[at - 1] < 0x80 {
                break;
            }
        }
        let packet = &rest[at..at + len];
        samples += u64::from(packet.windows(2).any(|w| w == [0x92, 0x04]));
        rest = &rest[at + len..];
    }
    let expected: u64 = (rec.samples.iter())
        .filter(|s| View::OnCpu.includes(s.state))
        .map(|s| s.count)
        .sum();
    assert!(
        samples >= expected && samples < expected + 40,
        "{samples} {expected}"
    );
}

#[test]
fn the_firefox_profiler_gets_every_thread_and_the_cpu_time_of_each() {
    let rec = synthetic::recording(3);
    let (bytes, lost) = write(&rec, "firefox", View::Wall);
    assert!(lost.iter().any(|l| l.contains("reasons")), "{lost:?}");
    let v: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let threads = v["threads"].as_array().unwrap();
    assert_eq!(threads.len(), rec.contexts.len());
    // Its weights are milliseconds of wall time, its CPU deltas the time on a CPU.
    let sum = |column: &serde_json::Value| -> f64 {
        column
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|v| v.as_f64())
            .sum()
    };
    for c in &rec.contexts {
        let name = format!("{} (tid {})", c.name, c.tid);
        let thread = threads.iter().find(|t| t["name"] == *name);
        let samples = &thread.unwrap_or_else(|| panic!("{name}"))["samples"];
        let known: u64 = wallscope_model::State::ALL
            .iter()
            .map(|s| c.ledger.state_ns(*s))
            .sum();
        let weights = sum(&samples["weight"]);
        assert!(
            (weights - known as f64 / 1e6).abs() <= 1.0,
            "{name}: {weights}"
        );
    }
    let back = read(&bytes);
    assert!(back.recording.contexts.iter().any(|c| c.ledger.wall_ns > 0));
}

/// A recording with single intervals: 1 ms on a CPU, 2 ms blocked, 0.5 ms runnable, ten times, in each
/// of two threads.
fn with_timeline() -> Recording {
    let mut rec = synthetic::recording(3);
    let lanes = [0u32, 2].map(|c| {
        let mut at = rec.contexts[c as usize].start_ns;
        let mut intervals = Vec::new();
        for _ in 0..10 {
            for (state, ns, reason, part) in [
                (State::OnCpu, 1_000_000, None, None),
                (State::Blocked, 2_000_000, Some(BlockReason::Lock), None),
                (State::Runnable, 500_000, None, Some(Part::Woken)),
            ] {
                intervals.push(Interval {
                    start_ns: at,
                    ns,
                    state,
                    reason,
                    part,
                    waker: None,
                    request: false,
                    // Every other wait.
                    idle: state == State::Blocked && (at / 1_000_000).is_multiple_of(2),
                });
                at += ns;
            }
        }
        Lane {
            context: ContextId(c),
            intervals,
        }
    });
    rec.timeline = Some(Timeline {
        lanes: lanes.into(),
        ..Timeline::default()
    });
    rec
}

/// The fields of a protobuf message: number, value, bytes.
fn fields(mut rest: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn number(rest: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = rest[0];
            *rest = &rest[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut out = Vec::new();
    while !rest.is_empty() {
        let key = number(&mut rest);
        let value = number(&mut rest);
        let mut bytes = &rest[..0];
        if key & 7 == 2 {
            (bytes, rest) = rest.split_at(value as usize);
        }
        out.push((key >> 3, value, bytes));
    }
    out
}

#[test]
fn perfetto_gets_each_interval_as_a_slice_of_its_thread() {
    let (bytes, _) = write(&with_timeline(), "perfetto", View::Wall);
    let (mut begun, mut ended, mut time) = (0, 0, 0i64);
    let mut names = BTreeMap::new();
    for (_, _, packet) in fields(&bytes) {
        let packet = fields(packet);
        let value = |of: &[(u64, u64, &[u8])], field| {
            of.iter().find(|(n, ..)| *n == field).map(|(_, v, _)| *v)
        };
        for (_, _, interned) in packet.iter().filter(|(n, ..)| *n == 12) {
            for (_, _, name) in fields(interned).iter().filter(|(n, ..)| *n == 2) {
                let name = fields(name);
                let text = String::from_utf8(name[1].2.to_vec()).unwrap();
                names.insert(name[0].1, text);
            }
        }
        let Some((_, _, event)) = packet.iter().find(|(n, ..)| *n == 11) else {
            continue;
        };
        let event = fields(event);
        // The tracks are those of threads: of contexts 0 and 2.
        assert!([2, 6].contains(&value(&event, 11).unwrap()));
        let at = value(&packet, 8).unwrap() as i64;
        if value(&event, 9) == Some(1) {
            begun += 1;
            time -= at;
            assert!(names.contains_key(&value(&event, 10).unwrap()));
        } else {
            ended += 1;
            time += at;
        }
    }
    assert_eq!((begun, ended, time), (60, 60, 2 * 35_000_000));
    let names: Vec<&str> = names.values().map(String::as_str).collect();
    let blocked = ["blocked (lock)", "blocked (lock), idle"];
    assert_eq!(names[..2], ["on CPU", "runnable (woken)"]);
    assert_eq!(names[2..], blocked);
}

#[test]
fn the_firefox_profiler_gets_each_interval_as_a_marker() {
    let (bytes, _) = write(&with_timeline(), "firefox", View::Wall);
    let v: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    let (mut count, mut time) = (0, 0.0);
    for thread in v["threads"].as_array().unwrap() {
        let markers = &thread["markers"];
        let column = |name: &str| markers[name].as_array().unwrap().clone();
        let (starts, ends) = (column("startTime"), column("endTime"));
        count += starts.len();
        for (start, end) in starts.iter().zip(ends) {
            time += end.as_f64().unwrap() - start.as_f64().unwrap();
        }
    }
    assert_eq!(count, 60);
    assert!((time - 70.0).abs() < 0.01, "{time} ms");
}
