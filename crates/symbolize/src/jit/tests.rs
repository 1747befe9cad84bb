use std::fs::File;
use std::io::Write;

use super::*;

const MS: u64 = 1_000_000;
const NONE: std::iter::Empty<(u64, u32, &[u8])> = std::iter::empty();

fn code(start: u64, size: u64, name: &[u8], time: u64) -> NewCode<'_> {
    NewCode {
        start,
        size,
        name,
        time,
    }
}

fn name(history: &CodeHistory, address: u64, version: u64) -> String {
    history
        .at(address, version)
        .map_or("-".into(), |p| p.name.to_string())
}

/// A file that is written while it is followed.
fn growing() -> (tempfile::NamedTempFile, File) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let read = File::open(file.path()).unwrap();
    (file, read)
}

fn now(ms: u64) -> ClockReading {
    let real = std::time::SystemTime::now();
    let real = real.duration_since(std::time::UNIX_EPOCH).unwrap();
    ClockReading {
        monotonic: ms * MS,
        // In a test, data is written at the time of its reading.
        real: real.as_nanos() as u64,
    }
}

#[test]
fn an_address_is_named_as_of_its_version() {
    let mut history = CodeHistory::new(100);
    history.enter(code(0x1000, 0x100, b"first", 0), NONE);
    history.enter(code(0x1040, 0x10, b"inner", 50), NONE);
    history.enter(code(0x1040, 0x10, b"third", 200 * MS), NONE);
    history.enter(code(0x2000, 0x10, b"other", 201 * MS), NONE);
    history.enter(code(0x1000, 0x20, b"fourth", 300 * MS), NONE);
    // New code at a new address changes nothing, and neither does code from before the recording.
    assert_eq!(history.changes(), [200 * MS, 300 * MS]);
    let at = |address| [0, 200 * MS, 300 * MS].map(|v| name(&history, address, v));
    assert_eq!(at(0x1044), ["inner", "third", "third"]);
    assert_eq!(at(0x1010), ["first", "first", "fourth"]);
    assert_eq!(at(0x1050), ["first"; 3]);
    assert_eq!(at(0x1030), ["first"; 3]);
    // A late name is better than none.
    assert_eq!(at(0x2000), ["other"; 3]);
    assert_eq!(at(0x1100), ["-"; 3]);
}

#[test]
fn changes_close_to_each_other_are_one_after_them() {
    let mut history = CodeHistory::new(0);
    for i in 0..4 {
        history.enter(code(0x1000 + 0x10 * i, 0x10, b"a", 0), NONE);
    }
    for i in 0..4 {
        history.enter(code(0x1000 + 0x10 * i, 0x10, b"b", 100 * MS + i), NONE);
    }
    assert_eq!(
        history.changes(),
        [100 * MS, 100 * MS + MIN_CHANGE_DISTANCE]
    );
    let names: Vec<String> = (0..4)
        .map(|i| name(&history, 0x1000 + 0x10 * i, 100 * MS + MIN_CHANGE_DISTANCE))
        .collect();
    assert_eq!(names, ["b"; 4]);
    // A late report is sorted in by its time.
    history.enter(code(0x1000, 0x10, b"c", 50 * MS), NONE);
    assert_eq!(history.changes()[0], 50 * MS);
}

#[test]
fn a_map_is_followed_as_it_grows() {
    let (mut file, read) = growing();
    write!(file, "1000 100 one\nnonsense\n0x2000 0x10 tw").unwrap();
    let mut history = CodeHistory::new(1);
    let mut map = PerfMap::new(read);
    assert!(!map.follow(&mut history, now(10), usize::MAX).unwrap());
    assert_eq!((name(&history, 0x1001, 0), map.junk), ("one".into(), 1));
    assert_eq!(name(&history, 0x2001, 0), "-");
    write!(file, "o\n1000 100 next\n").unwrap();
    assert!(!map.follow(&mut history, now(60), usize::MAX).unwrap());
    assert_eq!(name(&history, 0x2001, 0), "two");
    assert_eq!(name(&history, 0x1001, 0), "one");
    let change = history.changes()[0];
    assert!((10 * MS..=60 * MS).contains(&change), "{change}");
    assert_eq!(name(&history, 0x1001, change), "next");
    // Started anew, as by a new program.
    file.as_file().set_len(0).unwrap();
    map.follow(&mut history, now(70), usize::MAX).unwrap();
    let mut again = file.reopen().unwrap();
    again.write_all(b"3000 10 anew").unwrap();
    map.follow(&mut history, now(80), usize::MAX).unwrap();
    assert_eq!(name(&history, 0x3000, 0), "-");
    map.finish(&mut history);
    assert_eq!(name(&history, 0x3000, 0), "anew");
}

#[test]
fn a_line_without_end_is_cut_and_the_next_one_read() {
    let (mut file, read) = growing();
    write!(file, "1000 10 {}\n2000 10 y\n", "z".repeat(1 << 20)).unwrap();
    let mut history = CodeHistory::new(0);
    let mut map = PerfMap::new(read);
    while map.follow(&mut history, now(1), 1000).unwrap() {}
    let long = history.at(0x1000, 0).unwrap().name.len();
    assert!((8 << 10..16 << 10).contains(&long), "{long}");
    assert_eq!(name(&history, 0x2000, 0), "y");
    assert_eq!(map.junk, 0);
}

#[test]
fn memory_of_a_history_is_bounded() {
    let (mut file, read) = growing();
    for i in 0..20_000u64 {
        // Overlapping entries, each with a name of its own.
        let line = format!("{:x} 4000000 name {i} {}\n", 0x1000 + i, "n".repeat(4000));
        file.write_all(line.as_bytes()).unwrap();
    }
    let mut history = CodeHistory::new(0);
    PerfMap::new(read)
        .follow(&mut history, now(1), usize::MAX)
        .unwrap();
    assert!(
        history.bytes < MAX_HISTORY_BYTES + (1 << 20),
        "{}",
        history.bytes
    );
    assert!(history.refused > 0);
}

/// Builder of a jitdump.
struct Maker {
    file: tempfile::NamedTempFile,
}

impl Maker {
    fn new() -> (Maker, JitDump) {
        let (mut file, read) = growing();
        let mut header = [0u8; 40];
        header[..4].copy_from_slice(&0x4a69_5444u32.to_ne_bytes());
        header[4..8].copy_from_slice(&1u32.to_ne_bytes());
        header[8..12].copy_from_slice(&40u32.to_ne_bytes());
        file.write_all(&header).unwrap();
        (Maker { file }, JitDump::new(read))
    }

    fn record(&mut self, kind: u32, time: u64, body: &[u8]) {
        let mut bytes = Vec::new();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend((16 + body.len() as u32).to_ne_bytes());
        bytes.extend(time.to_ne_bytes());
        bytes.extend(body);
        self.file.write_all(&bytes).unwrap();
    }

    fn load(&mut self, address: u64, size: u64, name: &str, time: u64) {
        let words = [7, address, address, size, 1];
        let mut body: Vec<u8> = words.iter().flat_map(|w: &u64| w.to_ne_bytes()).collect();
        body.extend(name.as_bytes());
        body.push(0);
        body.resize(body.len() + size as usize, 0xcc);
        self.record(0, time, &body);
    }

    fn lines(&mut self, address: u64, lines: &[(u64, u32, &str)]) {
        let mut body = Vec::new();
        body.extend(address.to_ne_bytes());
        body.extend((lines.len() as u64).to_ne_bytes());
        for (at, line, file) in lines {
            body.extend(at.to_ne_bytes());
            body.extend(line.to_ne_bytes());
            body.extend(0u32.to_ne_bytes());
            body.extend(file.as_bytes());
            body.push(0);
        }
        self.record(2, 1, &body);
    }

    fn moved(&mut self, from: u64, to: u64, size: u64, time: u64) {
        let words = [7, to, from, to, size, 1];
        let body: Vec<u8> = words.iter().flat_map(|w: &u64| w.to_ne_bytes()).collect();
        self.record(1, time, &body);
    }
}

#[test]
fn a_dump_tells_code_lines_moves_and_times() {
    let (mut maker, mut dump) = Maker::new();
    let mut history = CodeHistory::new(0);
    let lines = [(0x1000, 3, "a.x"), (0x1010, 4, "a.x"), (0x9000, 9, "b.x")];
    maker.lines(0x1000, &lines);
    maker.load(0x1000, 0x20, "first", 10 * MS);
    // Code longer than one read.
    maker.load(0x8_0000, 300 << 10, "large", 20 * MS);
    assert!(!dump.follow(&mut history, now(30), 100).unwrap());
    maker.load(0x1000, 0x20, "second", 35 * MS);
    maker.moved(0x8_0000, 0x20_0000, 300 << 10, 36 * MS);
    // A time of another clock.
    maker.load(0x3000, 0x10, "later", u64::MAX);
    maker.record(4, 1, &[0; 24]);
    maker.record(4, 1, &[1; 24]);
    assert!(!dump.follow(&mut history, now(40), 100).unwrap());
    assert_eq!((dump.problem.as_deref(), dump.unwinding), (None, 1));
    assert_eq!(history.changes(), [35 * MS]);
    let at = history.at(0x1018, 0).unwrap();
    assert_eq!((&*at.name, &*at.file, at.line), ("first", "a.x", 4));
    let at = history.at(0x1018, 35 * MS).unwrap();
    assert_eq!((&*at.name, &*at.file, at.line), ("second", "", 0));
    assert_eq!(name(&history, 0x20_0010, 0), "large");
    assert_eq!(name(&history, 0x3000, 0), "later");
}

/// Following ends within its bounds, for any content at any offset.
#[test]
fn damaged_dumps_end() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chance = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..300 {
        let (mut maker, _) = Maker::new();
        for i in 0..6 {
            maker.lines(0x1000 * i, &[(0x1000 * i, 1, "file")]);
            maker.load(0x1000 * i, 0x20, "name", i);
            maker.moved(0x1000 * i, 0x1000 * i + 8, 0x20, i);
        }
        let mut bytes = std::fs::read(maker.file.path()).unwrap();
        for _ in 0..1 + chance() % 12 {
            let at = chance() as usize % bytes.len();
            bytes[at] = chance() as u8;
        }
        bytes.truncate(chance() as usize % bytes.len() + 1);
        let damaged = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(damaged.path(), &bytes).unwrap();
        let mut history = CodeHistory::new(0);
        let mut dump = JitDump::new(File::open(damaged.path()).unwrap());
        let mut turns = 0;
        while dump.follow(&mut history, now(100), 2).unwrap() {
            turns += 1;
            assert!(turns < 100);
        }
        let _ = history.at(0x1008, 0);
    }
}
