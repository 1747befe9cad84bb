//! Every recording is read back equal, and other tools read it right.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use wallscope_formats::{Bounds, Options, ReadError, folded, open, pprof, read};
use wallscope_model::scale::{NOT_SAMPLED, scale};
use wallscope_model::*;
use wallscope_synthetic::{self as synthetic, any::random};

fn bytes(rec: &Recording) -> Vec<u8> {
    pprof::write(rec, &scale(rec), Vec::new()).unwrap()
}

fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut out)
        .unwrap();
    out
}

fn read_back(bytes: &[u8]) -> Recording {
    let read = read(bytes, Bounds::default()).unwrap();
    assert_eq!(read.warnings, [""; 0]);
    read.recording
}

#[test]
fn the_synthetic_recording_comes_back_equal() {
    let rec = synthetic::recording(4);
    assert_eq!(read_back(&bytes(&rec)), rec);
}

#[test]
fn a_small_file_holds_the_whole_recording() {
    let rec = synthetic::recording(4);
    let small = pprof::write_small(&rec, &scale(&rec), Vec::new()).unwrap();
    assert!(small.len() < bytes(&rec).len());
    assert_eq!(read_back(&small), rec);
}

#[test]
fn an_empty_recording_comes_back_equal() {
    let rec = Recording::default();
    assert_eq!(read_back(&bytes(&rec)), rec);
}

#[test]
fn uncompressed_files_are_read_too() {
    let rec = synthetic::recording(1);
    assert_eq!(read_back(&gunzip(&bytes(&rec))), rec);
}

proptest! {
    #[test]
    fn every_recording_comes_back_equal(seed in any::<u64>()) {
        let rec = random(seed);
        prop_assert_eq!(read_back(&bytes(&rec)), rec);
    }

    /// Damage anywhere gives an error or another recording, never a panic.
    #[test]
    fn damaged_files_do_no_harm(seed in any::<u64>(), flips in prop::collection::vec(any::<(u32, u8)>(), 1..20)) {
        let mut raw = gunzip(&bytes(&random(seed)));
        for (at, with) in flips {
            let at = at as usize % raw.len();
            raw[at] ^= with;
        }
        read_and_write(&raw);
    }

    #[test]
    fn noise_does_no_harm(noise in prop::collection::vec(any::<u8>(), 0..400)) {
        read_and_write(&noise);
        let mut gz = vec![0x1f, 0x8b, 8];
        gz.extend(noise);
        read_and_write(&gz);
    }
}

/// Reads and, where that works, writes.
fn read_and_write(bytes: &[u8]) {
    let Ok(read) = read(bytes, Bounds::default()) else {
        return;
    };
    let rec = read.recording;
    folded::write(&rec, &folded::Options::default(), std::io::sink()).unwrap();
    pprof::write(&rec, &scale(&rec), std::io::sink()).unwrap();
}

#[test]
fn a_file_cut_anywhere_is_an_error_or_says_so() {
    let whole = bytes(&synthetic::recording(1));
    let mut partly = 0;
    for len in 0..whole.len() {
        match read(&whole[..len], Bounds::default()) {
            Ok(read) => {
                assert!(read.cut);
                assert!(
                    read.warnings
                        .iter()
                        .any(|w| w.contains("ends in the middle"))
                );
                partly += 1;
            }
            Err(_) => assert!(partly < 10, "{len} of {}", whole.len()),
        }
    }
    // Names come last: without the last of them all else is there.
    assert!(partly > 0);
    assert_eq!(read(&[], Bounds::default()), Err(ReadError::Empty));
    assert_eq!(
        read(&whole[..whole.len() / 2], Bounds::default()),
        Err(ReadError::Truncated)
    );
}

#[test]
fn what_is_no_profile_is_told_by_its_start() {
    let e = read(b"#!/bin/sh\necho", Bounds::default()).unwrap_err();
    assert!(e.to_string().contains("#!/bin/sh\\necho"), "{e}");
}

#[test]
fn memory_is_bounded_before_it_is_taken() {
    let small = Bounds {
        decompressed: 1 << 20,
        memory: 1 << 20,
    };
    // One sample (field 2) of three compressed megabytes of zeros.
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    gz.write_all(&[0x32, 0, 0x12, 0x80, 0x80, 0xc0, 0x01])
        .unwrap();
    gz.write_all(&vec![0; 3 << 20]).unwrap();
    let e = read(&gz.finish().unwrap(), small).unwrap_err();
    assert!(matches!(e, ReadError::TooLarge { .. }), "{e}");
    // Very many empty samples (field 2), then empty contexts (field 9) in the extension.
    let samples = [&[0x32, 0][..], &[0x12, 0].repeat(100_000)].concat();
    let e = read(&samples, small).unwrap_err();
    assert!(matches!(e, ReadError::TooLarge { .. }), "{e}");
    let contexts = [&[0x08, 1][..], &[0x4a, 0].repeat(100_000)].concat();
    let mut raw = vec![0x32, 0, 0xc2, 0x3e];
    let mut len = contexts.len();
    while len >= 0x80 {
        raw.push(len as u8 | 0x80);
        len >>= 7;
    }
    raw.push(len as u8);
    raw.extend(contexts);
    let e = read(&raw, small).unwrap_err();
    assert!(matches!(e, ReadError::TooLarge { .. }), "{e}");
}

/// The file's fields apart from the extension, and the extension's bytes.
fn apart(raw: &[u8]) -> (Vec<u8>, Vec<u8>) {
    fn varint(b: &mut &[u8]) -> u64 {
        let (mut v, mut shift) = (0, 0);
        loop {
            let byte = b[0];
            *b = &b[1..];
            v |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return v;
            }
        }
    }
    let (mut rest, mut others, mut own) = (raw, Vec::new(), Vec::new());
    while !rest.is_empty() {
        let before = rest;
        let key = varint(&mut rest);
        let n = varint(&mut rest) as usize;
        if key & 7 == 2 {
            let (value, after) = rest.split_at(n);
            rest = after;
            if key >> 3 == 1000 {
                own = value.to_vec();
                continue;
            }
        }
        others.extend(&before[..before.len() - rest.len()]);
    }
    (others, own)
}

#[test]
fn an_unknown_version_is_told_and_the_rest_is_read() {
    let rec = synthetic::recording(2);
    let (mut raw, _) = apart(&gunzip(&bytes(&rec)));
    // Field 1000, four bytes: version 9, and a field nobody knows.
    raw.extend([0xc2, 0x3e, 4, 0x08, 9, 0x18, 1]);
    let read = read(&raw, Bounds::default()).unwrap();
    assert_eq!(read.warnings.len(), 1);
    assert!(
        read.warnings[0].contains("version 9"),
        "{}",
        read.warnings[0]
    );
    let got = read.recording;
    assert_eq!(got.domain.backend, "import");
    // Threads, states and reasons are as they were; only the residue is gone.
    assert_eq!(got.contexts.len(), rec.contexts.len());
    for c in &rec.contexts {
        let same = got.contexts.iter().find(|d| d.tid == c.tid).unwrap();
        assert_eq!(same.name, c.name);
        for state in State::ALL {
            assert_eq!(same.ledger.state_ns(*state), c.ledger.state_ns(*state));
        }
        assert_eq!(same.ledger.blocked, c.ledger.blocked);
    }
    assert!(got.stacks.iter().any(|s| s.end == StackEnd::WindowEnd));
    let cut = |r: &Recording| r.functions.iter().any(|f| f.name.contains("[truncated:"));
    assert!(cut(&got) && !cut(&rec));
}

/// Runs a tool of another project; `None`, with a line said, where it is not installed.
fn tool(name: &str, args: &[&str], input: &[u8]) -> Option<String> {
    let child = Command::new(name)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(c) => c,
        Err(_) => {
            println!(
                "skipped: {name} is not installed, so what it reads of the file is not checked"
            );
            return None;
        }
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let out = child.wait_with_output().unwrap();
    let _ = writer.join().unwrap();
    assert!(
        out.status.success(),
        "{name}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    Some(String::from_utf8(out.stdout).unwrap())
}

#[test]
fn go_tool_pprof_opens_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rec.pb.gz");
    let mut rec = synthetic::recording(4);
    let label = |key: &str, value| Label {
        key: Arc::from(key),
        value,
    };
    let labels = vec![
        label("endpoint", LabelValue::Text(Arc::from("/cart"))),
        label("request", LabelValue::Number(512, Arc::from("bytes"))),
    ];
    rec.label_sets.push(labels.clone());
    let labelled = rec.samples.len() / 3;
    for s in &mut rec.samples[..labelled] {
        s.labels = Some(LabelsId(0));
    }
    std::fs::write(&path, bytes(&rec)).unwrap();
    let path = path.to_str().unwrap();
    let Some(top) = tool("go", &["tool", "pprof", "-top", path], &[]) else {
        return;
    };
    assert!(
        top.contains("Type: wall") && top.contains("File: orders-service"),
        "{top}"
    );
    assert!(top.contains("_M_next() (inline)"), "{top}");
    assert!(top.contains("libcodec.so.2+0x"), "{top}");
    assert!(
        top.contains("target: pid 4711"),
        "the domain is a comment: {top}"
    );
    let focus = [
        "tool",
        "pprof",
        "-sample_index=blocked",
        "-tagfocus=reason=lock",
        "-tags",
        path,
    ];
    let tags = tool("go", &focus, &[]).unwrap();
    assert!(
        tags.contains("worker-3") && !tags.contains("disk"),
        "{tags}"
    );

    let tags = tool("go", &["tool", "pprof", "-tags", path], &[]).unwrap();
    assert!(tags.contains("/cart") && tags.contains("512B"), "{tags}");

    // Go's own writer drops the extension: a foreign file, read as one.
    let foreign = dir.path().join("foreign.pb.gz");
    let output = format!("-output={}", foreign.display());
    tool("go", &["tool", "pprof", "-proto", &output, path], &[]).unwrap();
    let read = read(&std::fs::read(&foreign).unwrap(), Bounds::default()).unwrap();
    assert_eq!(read.recording.domain.backend, "import");
    let total: u64 = read
        .recording
        .contexts
        .iter()
        .map(|c| c.ledger.wall_ns)
        .sum();
    let states = |l: &Ledger| State::ALL.iter().map(|s| l.state_ns(*s)).sum::<u64>();
    let known: u64 = rec.contexts.iter().map(|c| states(&c.ledger)).sum();
    assert_eq!(total, known);
    assert_eq!(read.recording.label_sets, [labels]);
    let with = |r: &Recording| -> u64 {
        let own = r.samples.iter().filter(|s| s.labels.is_some());
        own.map(|s| s.count).sum()
    };
    assert_eq!(with(&read.recording), with(&rec));
    let names: Vec<_> = read.recording.functions.iter().map(|f| &*f.name).collect();
    assert!(names.contains(&NOT_SAMPLED), "{names:?}");
}

/// Hits of an event are a value of their own, for readers of the extension and of the pprof part alone.
#[test]
fn an_event_is_a_value_of_its_own() {
    let mut rec = synthetic::recording(2);
    let hit = |stack: u32, hits: u64| Sample {
        stack: StackId(stack),
        count: 2,
        ns: hits,
        slices: Vec::new(),
        ..rec.samples[0].clone()
    };
    let samples = vec![hit(0, 300), hit(1, 100)];
    rec.events = vec![
        EventHits {
            name: "context-switches".into(),
            counted: true,
            hits: vec![(ContextId(1), 7)],
            samples: Vec::new(),
        },
        EventHits {
            name: "page-faults".into(),
            counted: true,
            // A third of the hits have no stack.
            hits: vec![(rec.samples[0].context, 600)],
            samples,
        },
    ];
    let file = bytes(&rec);
    assert_eq!(read_back(&file), rec);
    let by = |value: &str, file: &[u8]| {
        let options = Options {
            value: Some(value.to_string()),
            ..Options::default()
        };
        open(file, options).map(|read| read.recording)
    };
    let faults = by("page-faults", &file).unwrap();
    assert_eq!(faults.domain.unit, Unit::Count("page-faults".into()));
    let shares = |rec: &Recording| -> Vec<u64> { scale(rec).pieces.iter().map(|p| p.ns).collect() };
    assert_eq!(shares(&faults), [450, 150], "scaled to what was counted");
    assert_eq!(by("wall", &file).unwrap(), rec);
    let switches = by("context-switches", &file).unwrap();
    assert_eq!(
        scale(&switches).unsampled.iter().map(|u| u.ns).sum::<u64>(),
        7
    );
    let none = by("nothing", &file).unwrap_err().to_string();
    assert!(
        none.contains("wall, context-switches, page-faults"),
        "{none}"
    );

    // A reader of the pprof part alone sees equal totals.
    let (others, _) = apart(&gunzip(&file));
    let read = by("page-faults", &others).unwrap();
    assert_eq!(read.samples.iter().map(|s| s.ns).sum::<u64>(), 600);
    let wall = by("wall", &others).unwrap();
    let scaled = scale(&rec);
    let all: u64 = scaled.pieces.iter().map(|p| p.ns).sum();
    let all = all + scaled.unsampled.iter().map(|u| u.ns).sum::<u64>();
    assert_eq!(wall.samples.iter().map(|s| s.ns).sum::<u64>(), all);

    let both = merge::merge(&[rec.clone(), rec.clone()]).unwrap();
    assert_eq!(both.events[1].total(), 1200);
    assert_eq!(read_back(&bytes(&both)), both);
}

/// The schema in the repository describes every field that is written.
#[test]
fn the_schema_decodes_the_extension() {
    let (_, own) = apart(&gunzip(&bytes(&random(11))));
    let schema = concat!(env!("CARGO_MANIFEST_DIR"), "/schema");
    let args = [
        &format!("--proto_path={schema}"),
        "--decode=wallscope.v1.Recording",
        "wallscope.proto",
    ];
    let Some(text) = tool("protoc", &args, &own) else {
        return;
    };
    for line in text.lines() {
        let unknown = line.trim_start().starts_with(|c: char| c.is_ascii_digit());
        assert!(!unknown, "a field the schema does not have: {line}");
    }
    for field in [
        "version: 1",
        "blocked_mask:",
        "slice_ns:",
        "module_kinds:",
        "start_unix_ns:",
        "label_sets {",
        "hops {",
        "locks {",
    ] {
        assert!(text.contains(field), "{field} is missing in:\n{text}");
    }
}

#[test]
fn a_profile_of_memory_is_no_time_and_says_so() {
    // sample_type {type: 1, unit: 2}; strings "", "inuse_space", "bytes"; a sample of 4096.
    let mut raw = vec![0x0a, 4, 0x08, 1, 0x10, 2, 0x12, 4, 0x12, 2, 0x80, 0x20];
    raw.extend([0x32, 0, 0x32, 11]);
    raw.extend(b"inuse_space");
    raw.extend([0x32, 5]);
    raw.extend(b"bytes");
    let rec = read(&raw, Bounds::default()).unwrap().recording;
    assert_eq!(rec.domain.unit, Unit::Bytes);
    assert_eq!(rec.contexts[0].ledger.unknown_ns(), 4096);
    let lines = wallscope_model::domain_text::domain_lines(&rec).join("\n");
    assert!(lines.contains("unit: bytes: no time"), "{lines}");
    let back = read_back(&bytes(&rec));
    assert_eq!(back, rec);
}
