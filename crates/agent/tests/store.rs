//! The store of windows: caps, versions, and sums that are exact to the nanosecond.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use wallscope_agent::store::{
    self, Caps, DROPPED, Store, StoreError, TimeRange, WindowKey, undelivered,
};
use wallscope_model::{Ledger, Recording};
use wallscope_synthetic::windows::{LENGTH_NS, START_UNIX_NS, window};

const DAY: Caps = Caps {
    bytes: 1 << 30,
    age: Duration::from_secs(86_400),
};
const START_MS: i64 = (START_UNIX_NS / 1_000_000) as i64;

fn key(boot: &str, sequence: u64) -> WindowKey {
    WindowKey {
        host: "web-3".to_string(),
        boot: boot.to_string(),
        epoch: 1,
        sequence,
    }
}

fn seconds(from: i64, until: i64) -> TimeRange {
    TimeRange {
        from_ms: START_MS + from * 1000,
        until_ms: START_MS + until * 1000,
    }
}

/// The sum of the ledgers of each thread of each service.
fn ledgers(recordings: &[Recording]) -> BTreeMap<(String, u32), Ledger> {
    let mut sums: BTreeMap<(String, u32), Ledger> = BTreeMap::new();
    for rec in recordings {
        for (i, c) in rec.contexts.iter().enumerate() {
            let id = wallscope_model::ContextId(i as u32);
            let service = rec.context_label(id, "service").unwrap_or("").to_string();
            sums.entry((service, c.tid))
                .and_modify(|sum| sum.add(&c.ledger))
                .or_insert(c.ledger.clone());
        }
    }
    sums
}

/// Time of samples by function and by second of the wall clock, ns.
fn samples(recordings: &[Recording]) -> BTreeMap<(String, u64), u64> {
    let mut sums = BTreeMap::new();
    for rec in recordings {
        let offset = rec.window.start_unix_ns - rec.window.start_ns;
        for s in &rec.samples {
            let frame = rec.stacks[s.stack.0 as usize].frames[0];
            let line = rec.frames[frame.0 as usize].lines[0];
            let function = &rec.functions[line.function.0 as usize].name;
            for v in &s.slices {
                let at = rec.slices.start_ns + u64::from(v.slice) * rec.slices.width_ns + offset;
                *sums
                    .entry((function.to_string(), at / 1_000_000_000))
                    .or_default() += v.ns;
            }
            let sliced: u64 = s.slices.iter().map(|v| v.ns).sum();
            assert_eq!(sliced, s.ns);
        }
    }
    sums
}

#[test]
fn an_hour_of_windows_sums_to_the_nanosecond() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), DAY, &[]).unwrap();
    let windows: Vec<Recording> = (0..360).map(window).collect();
    for (i, w) in windows.iter().enumerate() {
        store.add(w.clone(), key("b", i as u64)).unwrap();
    }
    let started = Instant::now();
    let merged = store::merged(dir.path(), seconds(0, 3600)).unwrap();
    println!("360 windows merged in {:?}", started.elapsed());
    assert_eq!(merged.windows, 360);
    let rec = merged.recording;
    assert_eq!(ledgers(std::slice::from_ref(&rec)), ledgers(&windows));
    assert_eq!(samples(std::slice::from_ref(&rec)), samples(&windows));
    // Six threads that lived all the time, and one of each batch process.
    assert_eq!(rec.contexts.len(), 6 + 360);
    assert_eq!(rec.contexts[0].ledger.wall_ns, 360 * LENGTH_NS);
    assert_eq!(rec.window.length_ns(), 360 * LENGTH_NS);
    assert_eq!(
        (rec.slices.count, rec.stacks.len(), rec.functions.len()),
        (3600, 2, 2)
    );
    assert_eq!(rec.cost.own_cpu_ns, 360 * 23_000_000);
    let lost: u64 = rec.losses.iter().map(|l| l.count).sum();
    assert_eq!(lost, (0..360).map(|i| i % 3).sum::<u64>());
    assert!(rec.contexts.iter().all(|c| c.ledger.residue_ns() == 0));
    // Intervals of a thread are one histogram.
    let counted: f64 = rec.histograms.iter().map(|r| r.histogram.count()).sum();
    assert_eq!((rec.histograms.len(), counted), (366, 360.0 * 65.0));
}

#[test]
fn slices_become_wider_beyond_an_hour() {
    let windows: Vec<Recording> = (0..400).map(window).collect();
    let mut merger = wallscope_model::merge::Merger::windows();
    windows.iter().for_each(|w| merger.add(w).unwrap());
    let rec = merger.finish().unwrap();
    assert_eq!(
        (rec.slices.count, rec.slices.width_ns),
        (2000, 2_000_000_000)
    );
    let total = |r: &Recording| r.ledger_slices.iter().map(|s| s.on_cpu_ns).sum::<u64>();
    assert_eq!(total(&rec), windows.iter().map(total).sum::<u64>());
    assert!(
        rec.samples
            .iter()
            .all(|s| s.slices.is_sorted_by(|a, b| a.slice < b.slice))
    );
}

#[test]
fn a_gap_keeps_threads_apart_and_slices_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), DAY, &[]).unwrap();
    for i in [0, 1, 4] {
        store.add(window(i), key("b", i)).unwrap();
    }
    let rec = store::merged(dir.path(), seconds(0, 60)).unwrap().recording;
    let of_thread = rec.contexts.iter().filter(|c| c.tid == 100);
    let lengths: Vec<u64> = of_thread.map(|c| c.ledger.wall_ns / LENGTH_NS).collect();
    assert_eq!(lengths, [2, 1]);
    let slices: Vec<u32> = rec.ledger_slices.iter().map(|r| r.slice).collect();
    assert!(slices.contains(&40) && !slices.contains(&20));
    let told = |n: &String| n == "20.000 s in 1 gaps between its windows are in no window";
    assert!(rec.domain.notes.iter().any(told), "{:?}", rec.domain.notes);
}

#[test]
fn windows_of_two_boots_merge() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), DAY, &[]).unwrap();
    store.add(window(0), key("a", 0)).unwrap();
    let mut later = window(1);
    let back = later.window.start_ns - 77;
    later.window.start_ns -= back;
    later.window.end_ns -= back;
    later.slices.start_ns -= back;
    for c in &mut later.contexts {
        (c.start_ns, c.end_ns) = (c.start_ns - back, c.end_ns - back);
    }
    store.add(later, key("b", 0)).unwrap();
    let rec = store::merged(dir.path(), seconds(0, 60)).unwrap().recording;
    assert_eq!(ledgers(&[rec]), ledgers(&[window(0), window(1)]));
}

#[test]
fn ranges_choose_whole_windows() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), DAY, &[]).unwrap();
    for i in 0..6 {
        store.add(window(i), key("b", i)).unwrap();
    }
    for (range, expected) in [
        (seconds(10, 20), 1),
        (seconds(9, 20), 2),
        (seconds(19, 21), 2),
        (seconds(-100, 100), 6),
    ] {
        assert_eq!(store::merged(dir.path(), range).unwrap().windows, expected);
    }
    let outside = store::merged(dir.path(), seconds(60, 90));
    assert!(matches!(outside, Err(StoreError::OutsideRange { .. })));
}

#[test]
fn a_full_store_drops_the_oldest_and_the_next_window_tells() {
    let dir = tempfile::tempdir().unwrap();
    let targets = ["server".to_string()];
    let mut store = Store::open(dir.path(), DAY, &targets).unwrap();
    let size = store.add(window(0), key("b", 0)).unwrap().bytes;
    drop(store);
    let caps = Caps {
        bytes: size * 4,
        ..DAY
    };
    let mut store = Store::open(dir.path(), caps, &targets).unwrap();
    for i in 1..20 {
        let pending = store.outboxes()[0].1.pending().unwrap();
        // Every second window is delivered.
        for w in pending.iter().filter(|w| w.name.key.sequence % 2 == 0) {
            store.outboxes()[0].1.remove(&w.name.file_name()).unwrap();
        }
        store.add(window(i), key("b", i)).unwrap();
        assert!(store.bytes() <= caps.bytes);
    }
    let kept: Vec<u64> = store.windows().map(|w| w.name.key.sequence).collect();
    assert_eq!(kept.last(), Some(&19));
    let mut told: BTreeMap<String, u64> = store.untold().clone();
    for stored in store.windows() {
        let bytes = fs::read(&stored.path).unwrap();
        let read = wallscope_formats::read(&bytes, Default::default()).unwrap();
        for l in read.recording.losses {
            *told.entry(l.cause).or_default() += l.count;
        }
    }
    // The kept windows tell of those that went since the first of them was written.
    assert!(told[DROPPED] >= kept.len() as u64 - 1, "{told:?}");
    assert!(told[&undelivered("server")] >= 1, "{told:?}");
    assert!(told[&undelivered("server")] < told[DROPPED], "{told:?}");
    let links = store.outboxes()[0].1.pending().unwrap();
    assert!(links.iter().all(|l| kept.contains(&l.name.key.sequence)));
}

#[test]
fn losses_are_told_after_a_crash() {
    let dir = tempfile::tempdir().unwrap();
    let caps = Caps { bytes: 1, ..DAY };
    let mut store = Store::open(dir.path(), caps, &[]).unwrap();
    store.add(window(0), key("b", 0)).unwrap();
    let before: u64 = window(1).losses.iter().map(|l| l.count).sum();
    // The second one replaces the first, and the process ends at once.
    let second = store.add(window(1), key("b", 1)).unwrap();
    drop(store);
    fs::write(dir.path().join(".new-20261127"), b"half a window").unwrap();
    let mut store = Store::open(dir.path(), caps, &[]).unwrap();
    assert!(!dir.path().join(".new-20261127").exists());
    let third = store.add(window(2), key("b", 2)).unwrap();
    let told = |path: &Path| -> u64 {
        let Ok(bytes) = fs::read(path) else { return 0 };
        let read = wallscope_formats::read(&bytes, Default::default()).unwrap();
        let of = |l: &&wallscope_model::Loss| l.cause == DROPPED;
        read.recording
            .losses
            .iter()
            .filter(of)
            .map(|l| l.count)
            .sum()
    };
    assert_eq!(before, 1);
    assert_eq!(
        told(&second.path) + told(&third.path),
        2 - u64::from(!second.path.exists())
    );
}

#[test]
fn old_windows_go_by_age_without_a_word() {
    let dir = tempfile::tempdir().unwrap();
    let caps = Caps {
        age: Duration::from_secs(30),
        ..DAY
    };
    let mut store = Store::open(dir.path(), caps, &[]).unwrap();
    for i in 0..10 {
        store.add(window(i), key("b", i)).unwrap();
    }
    assert_eq!(store.windows().len(), 4);
    assert!(store.untold().is_empty());
}

#[test]
fn a_newer_layout_is_refused_and_other_directories_too() {
    let dir = tempfile::tempdir().unwrap();
    assert!(matches!(
        store::list(dir.path()),
        Err(StoreError::NoStore { .. })
    ));
    fs::write(dir.path().join("FORMAT"), "wallscope-store 2\n").unwrap();
    let refused = store::list(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("update wallscope"), "{refused}");
    assert!(Store::open(dir.path(), DAY, &[]).is_err());
}

/// A directory as version 1 of the layout wrote it: it must stay readable.
#[test]
fn directories_of_version_1_are_read() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/store-1");
    if std::env::var_os("WALLSCOPE_MAKE_STORE_1").is_some() {
        let mut store = Store::open(&dir, DAY, &["server".to_string()]).unwrap();
        for i in 0..3 {
            store.add(window(i), key("b", i)).unwrap();
        }
    }
    let rec = store::merged(&dir, seconds(0, 30)).unwrap().recording;
    assert_eq!(rec.contexts[0].ledger.wall_ns, 3 * LENGTH_NS);
    assert_eq!(ledgers(&[rec]), ledgers(&[window(0), window(1), window(2)]));
}
