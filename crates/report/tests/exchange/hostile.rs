//! Damage of every reader's files: an error or a recording, never a panic.

use std::io::Read as _;

use wallscope_report::format::{Bounds, Format, Options, WriteOptions, open};

use crate::synthetic::{self, Random};

/// One file of each kind, uncompressed.
fn corpus() -> Vec<Vec<u8>> {
    let fixtures: [&[u8]; 10] = [
        include_bytes!("../fixtures/bpftrace.txt"),
        include_bytes!("../fixtures/callgrind.out"),
        include_bytes!("../fixtures/clock.perf.data.gz"),
        include_bytes!("../fixtures/flight.jfr.gz"),
        include_bytes!("../fixtures/gprof.txt"),
        include_bytes!("../fixtures/node.cpuprofile"),
        include_bytes!("../fixtures/perf-script-clock.txt"),
        include_bytes!("../fixtures/perf-script-switches.txt"),
        include_bytes!("../fixtures/profile.pstats"),
        br#"[{"ph":"X","name":"a","pid":1,"tid":2,"ts":1,"dur":5},{"ph":"B","name":"b","ts":2}]"#,
    ];
    let mut files: Vec<Vec<u8>> = fixtures
        .iter()
        .map(|bytes| {
            let mut out = Vec::new();
            if bytes.starts_with(&[0x1f, 0x8b]) {
                flate2::read::GzDecoder::new(*bytes)
                    .read_to_end(&mut out)
                    .unwrap();
            } else {
                out.extend_from_slice(bytes);
            }
            out
        })
        .collect();
    let rec = synthetic::recording(1);
    let options = WriteOptions::default();
    for name in [
        "pprof",
        "folded",
        "speedscope",
        "otlp",
        "callgrind",
        "firefox",
    ] {
        let mut out = Vec::new();
        Format::named(name)
            .unwrap()
            .write(&rec, &options, &mut out)
            .unwrap();
        let mut plain = Vec::new();
        match name {
            "pprof" => {
                flate2::read::GzDecoder::new(&out[..])
                    .read_to_end(&mut plain)
                    .unwrap();
                files.push(plain);
            }
            _ => files.push(out),
        }
    }
    files
}

/// Changes a file as hostile ones are: bits, bytes that are large, pieces left out or repeated.
fn mutate(file: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = file.to_vec();
    for _ in 0..1 + random.below(8) {
        if out.is_empty() {
            return out;
        }
        let at = random.below(out.len() as u64) as usize;
        match random.below(6) {
            0 => out[at] ^= 1 << random.below(8),
            1 => out[at] = random.below(256) as u8,
            2 => out[at] = 0xff,
            3 => out.truncate(at),
            4 => {
                let end = (at + 1 + random.below(64) as usize).min(out.len());
                out.drain(at..end);
            }
            _ => {
                let end = (at + 1 + random.below(64) as usize).min(out.len());
                let piece = out[at..end].to_vec();
                out.splice(at..at, piece);
            }
        }
    }
    out
}

#[test]
fn damaged_files_of_every_kind_do_no_harm() {
    // WALLSCOPE_FUZZ_SECONDS=600 for long runs; the smoke is a fixed number of rounds.
    let seconds = std::env::var("WALLSCOPE_FUZZ_SECONDS")
        .ok()
        .and_then(|s| s.parse::<u64>().ok());
    let begun = std::time::Instant::now();
    let seed = seconds.map_or(7, |_| std::process::id().into());
    let mut random = Random(seed);
    let files = corpus();
    let bounds = Bounds {
        decompressed: 64 << 20,
        memory: 256 << 20,
    };
    let (mut read, mut refused) = (0u64, 0u64);
    let mut round = 0u64;
    loop {
        for file in &files {
            let bytes = mutate(file, &mut random);
            let options = Options {
                bounds,
                ..Options::default()
            };
            match open(&bytes[..], options) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
        round += 1;
        let over = match seconds {
            Some(s) => begun.elapsed().as_secs() >= s,
            None => round >= 40,
        };
        if over {
            break;
        }
    }
    println!("{read} read, {refused} refused, seed {seed}");
    assert!(
        read > 50,
        "most damage leaves something: {read} read, {refused} refused"
    );
    assert!(refused > 20, "{refused}");
}
