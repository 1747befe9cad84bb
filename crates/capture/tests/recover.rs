//! Logs that end early, that are damaged, and that lie.

use std::{fs, io::Cursor, path::Path, sync::OnceLock};

use proptest::prelude::*;
use wallscope_capture::session::{
    recover::{self, Extent},
    replay,
};
use wallscope_model::Recording;
use wallscope_observe::{Header, LogFile, LogReader, LogWriter, MAX_PAYLOAD, Mark, Observation};

/// The log of the truth program `convoy` (`crates/cli/tests/fixtures/README.md`), as it was while it grew:
/// a frame each 100 observations.
fn spool() -> Vec<u8> {
    static SPOOL: OnceLock<Vec<u8>> = OnceLock::new();
    SPOOL.get_or_init(|| spool_of("convoy.log")).clone()
}

/// The spools of the tiers without eBPF: polls, and switches beside them.
fn spools_of_polls() -> &'static [Vec<u8>; 2] {
    static SPOOLS: OnceLock<[Vec<u8>; 2]> = OnceLock::new();
    SPOOLS.get_or_init(|| ["convoy-polls.log", "convoy-switches.log"].map(spool_of))
}

fn spool_of(fixture: &str) -> Vec<u8> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/fixtures");
    let fixture = fixtures.join(fixture);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("spool");
    let mut writer = LogWriter::begin(LogFile::create(&path).unwrap(), "wallscope", LogFile::BOUND);
    let mut reader = LogReader::open(&fixture).unwrap();
    let mut n = 0;
    while let Some(observation) = reader.next() {
        writer.append(&observation);
        n += 1;
        if n % 100 == 0 {
            writer.flush();
        }
    }
    writer.flush();
    fs::read(&path).unwrap()
}

/// Where the frames of a log end, the header's end first.
fn ends(log: &[u8]) -> Vec<usize> {
    let header = log.windows(2).position(|w| w == b"\n\n").unwrap() + 2;
    let mut ends = vec![header];
    let mut at = header;
    while let Some(length) = log.get(at..at + 4) {
        at += 12 + u32::from_le_bytes(length.try_into().unwrap()) as usize;
        ends.push(at);
    }
    ends
}

/// The recording of a log, if there can be one.
fn recovered(log: &[u8]) -> Option<Recording> {
    let reader = || LogReader::new(Cursor::new(log)).ok();
    match recover::extent(&mut reader()?).ok()? {
        Extent::Whole => Some(replay::replay(&mut reader()?).ok()?.recording),
        Extent::Early(early) => {
            let recovered = recover::recover(&mut reader()?, &early, "").ok()?;
            Some(recovered.recording)
        }
    }
}

/// Holds that a recording's parts add up.
fn adds_up(recording: &Recording) {
    for c in &recording.contexts {
        assert_eq!(c.ledger.residue_ns(), 0, "{c:?}");
        assert!(c.end_ns <= recording.window.end_ns.max(c.start_ns), "{c:?}");
    }
    let walls: u64 = recording.contexts.iter().map(|c| c.ledger.wall_ns).sum();
    let slices: u64 = (recording.ledger_slices.iter())
        .map(|s| s.on_cpu_ns + s.runnable_ns + s.blocked.iter().sum::<u64>())
        .sum();
    let unknown: u64 = (recording.contexts.iter())
        .map(|c| c.ledger.unknown.iter().sum::<u64>())
        .sum();
    assert_eq!(slices + unknown, walls);
}

/// Recovers from `spool` up to the end of each frame, and holds each recording to `check`, beside the whole one.
/// Returns that.
fn recovered_at_each_frame(spool: &[u8], check: impl Fn(&Recording, &Recording)) -> Recording {
    let (mut found, mut last) = (0, 0);
    let ends = ends(spool);
    let whole = recovered(spool).unwrap();
    assert!(whole.contexts.len() >= 4 && !whole.samples.is_empty());
    for end in &ends {
        let Some(recording) = recovered(&spool[..*end]) else {
            assert_eq!(found, 0, "a longer spool gives a recording too");
            continue;
        };
        found += 1;
        adds_up(&recording);
        let length = recording.window.length_ns();
        assert!(length >= last, "a longer spool has more");
        last = length;
        check(&recording, &whole);
    }
    assert!(found > ends.len() / 2, "{found} of {}", ends.len());
    assert_eq!(whole.window.length_ns(), last);
    whole
}

#[test]
fn a_spool_gives_a_recording_wherever_a_frame_ends() {
    let spool = spool();
    let frames = ends(&spool).len();
    assert!(frames > 20, "{frames} frames");
    let whole = recovered_at_each_frame(&spool, |_, _| ());
    assert!(whole.contexts.iter().map(|c| c.ledger.wall_ns).sum::<u64>() > 4_000_000_000);
}

#[test]
fn a_spool_of_polls_gives_a_recording_wherever_a_frame_ends() {
    for spool in spools_of_polls() {
        recovered_at_each_frame(spool, |recording, whole| {
            let length = recording.window.length_ns();
            for c in recording.contexts.iter().filter(|_| length > 0) {
                // All threads of this program live. A recording that ends in order has its last poll before its end.
                let missing = recording.window.end_ns - c.end_ns;
                let is_over = length == whole.window.length_ns();
                let most = if is_over { 20_000_000 } else { 0 };
                assert!(missing <= most, "{missing} ns: {c:?} of {length} ns");
            }
        });
    }
}

#[test]
fn shares_of_a_spool_of_polls_that_was_cut_are_those_of_the_whole() {
    for spool in spools_of_polls() {
        let ends = ends(spool);
        let parts = |log: &[u8]| {
            let recording = recovered(log).unwrap();
            let sum = |of: &dyn Fn(&wallscope_model::Ledger) -> u64| {
                recording
                    .contexts
                    .iter()
                    .map(|c| of(&c.ledger))
                    .sum::<u64>() as f64
            };
            let wall = sum(&|l| l.wall_ns);
            let on_cpu = sum(&|l| l.on_cpu.total()) / wall;
            let lock = sum(&|l| l.blocked[wallscope_model::BlockReason::Lock as usize]) / wall;
            let unknown = sum(&|l| l.unknown.iter().sum()) / wall;
            (on_cpu, lock, unknown)
        };
        let whole = parts(spool);
        let most = parts(&spool[..ends[ends.len() * 3 / 4]]);
        assert!(whole.1 > 0.2 && whole.0 > 0.005, "{whole:?}");
        assert!((whole.0 - most.0).abs() < 0.01, "{whole:?} {most:?}");
        assert!((whole.1 - most.1).abs() < 0.15, "{whole:?} {most:?}");
        assert!(most.2 < 0.02, "{most:?}");
    }
}

#[test]
fn a_spool_is_read_up_to_where_it_was_cut() {
    let spool = spool();
    let ends = ends(&spool);
    for pair in ends.windows(2).step_by(ends.len() / 8) {
        let cut = (pair[0] + pair[1]) / 2;
        let lengths = [&spool[..pair[0]], &spool[..cut]]
            .map(|log| recovered(log).map(|r| r.window.length_ns()));
        assert_eq!(lengths[0], lengths[1]);
    }
}

/// Frames as they are written: length, checksum, number, payload.
fn framed(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut log = Header::new("wallscope").text().into_bytes();
    for (number, payload) in (0u32..).zip(payloads) {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&number.to_le_bytes());
        crc.update(payload);
        log.extend((payload.len() as u32).to_le_bytes());
        log.extend(crc.finalize().to_le_bytes());
        log.extend(number.to_le_bytes());
        log.extend(payload);
    }
    log
}

/// The payloads of a log.
fn payloads(log: &[u8]) -> Vec<Vec<u8>> {
    let ends = ends(log);
    ends.windows(2)
        .map(|w| log[w[0] + 12..w[1]].to_vec())
        .collect()
}

/// Observations of a log, with those records changed that `change` changes.
fn with_records(log: &[u8], change: &mut dyn FnMut(&mut [u8])) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut writer = LogWriter::begin(LogFile::create(&path).unwrap(), "wallscope", LogFile::BOUND);
    let mut reader = LogReader::new(log).unwrap();
    while let Some(observation) = reader.next() {
        let mut changed = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            change(&mut bytes);
            bytes
        };
        match observation {
            Observation::Event(b) => writer.append(&Observation::Event(&changed(b))),
            Observation::Turn(b) => writer.append(&Observation::Turn(&changed(b))),
            Observation::Books(b) => writer.append(&Observation::Books(&changed(b))),
            Observation::LastBooks(b) => writer.append(&Observation::LastBooks(&changed(b))),
            Observation::Socket(b) => writer.append(&Observation::Socket(&changed(b))),
            other => writer.append(&other),
        }
    }
    writer.flush();
    fs::read(&path).unwrap()
}

/// Largest recording that a log of a second may give, in parts of all kinds.
fn is_bounded(recording: &Recording, bytes: usize) {
    let parts = recording.samples.len()
        + recording.contexts.len()
        + recording.stacks.len()
        + recording.hops.len()
        + recording.ledger_slices.len();
    assert!(parts < 40_000_000 + 100 * bytes, "{parts} parts");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    #[test]
    fn damage_does_no_harm(flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..4), cut in any::<prop::sample::Index>()) {
        let mut log = spool();
        for (at, bit) in flips {
            let at = at.index(log.len());
            log[at] ^= 1 << bit;
        }
        let end = cut.index(log.len());
        for log in [&log[..], &log[..end]] {
            if let Some(recording) = recovered(log) {
                adds_up(&recording);
            }
        }
    }

    #[test]
    fn damage_of_polls_does_no_harm(which in 0..2usize, flips in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut all = payloads(&spools_of_polls()[which]);
        for (frame, at, byte) in flips {
            let frame = frame.index(all.len());
            let payload = &mut all[frame];
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        let log = framed(&all);
        if let Some(recording) = recovered(&log) {
            is_bounded(&recording, log.len());
        }
    }

    #[test]
    fn payloads_that_lie_do_no_harm(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let mut all = payloads(&spool());
        for (frame, at, byte) in changes {
            let frame = frame.index(all.len());
            let payload = &mut all[frame];
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        let log = framed(&all);
        if let Some(recording) = recovered(&log) {
            is_bounded(&recording, log.len());
        }
    }

    #[test]
    fn records_that_lie_do_no_harm(seed: u64, rate in 2..400u64, large: bool) {
        let mut state = seed | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let log = with_records(&spool(), &mut |bytes| {
            if random() % rate != 0 {
                return;
            }
            let words = bytes.len() / 8;
            if words > 1 {
                let at = 8 * (1 + random() as usize % (words - 1));
                let value = if large { random() } else { random() % (1 << 50) };
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        });
        if let Some(recording) = recovered(&log) {
            is_bounded(&recording, log.len());
        }
    }
}

/// Cases of each property; `WALLSCOPE_FUZZ_CASES` sets another number.
fn cases() -> u32 {
    let asked = std::env::var("WALLSCOPE_FUZZ_CASES").ok();
    asked.and_then(|n| n.parse().ok()).unwrap_or(8)
}

#[test]
fn time_that_leaps_hour_by_hour_takes_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let mut writer = LogWriter::begin(LogFile::create(&path).unwrap(), "wallscope", LogFile::BOUND);
    let spool = spool();
    let mut reader = LogReader::new(&spool[..]).unwrap();
    let mut latest = 0;
    while let Some(observation) = reader.next() {
        if let Observation::Mark(Mark::End { .. }) = observation {
            break;
        }
        if let Observation::Mark(Mark::Tick { time }) = observation {
            latest = time;
        }
        writer.append(&observation);
    }
    for hour in 1..2000 {
        let time = latest + hour * 3_500_000_000_000;
        writer.append(&Observation::Mark(Mark::Tick { time }));
    }
    writer.flush();
    let log = fs::read(&path).unwrap();
    assert!(log.len() < 4 * MAX_PAYLOAD);
    let recording = recovered(&log).unwrap();
    adds_up(&recording);
    assert!(recording.ledger_slices.len() < 5_000_000);
}
