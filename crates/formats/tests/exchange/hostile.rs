//! Damage of every reader's files: an error or a recording, never a panic, a hang, or more memory
//! than the reader was given.
//!
//! The smoke is a fixed number of rounds from a fixed seed. `WALLSCOPE_FUZZ_SECONDS=600` gives each
//! reader so many seconds of CPU time, with another seed each time; `WALLSCOPE_FUZZ_READER=jfr` takes one
//! of them. Only then are time and memory judged: other tests share the process of the smoke. An
//! input that does harm is kept, and its path is in the failure.

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use wallscope_formats::{Bounds, Format, Options, WriteOptions, open};

use crate::big_endian;
use crate::support::plain;
use wallscope_synthetic::{self as synthetic, Random};

/// What a reader is given.
const BOUNDS: Bounds = Bounds {
    decompressed: 64 << 20,
    memory: 256 << 20,
};

/// The most that the process may come to hold while it reads one input, KiB: the bounds, room for
/// growing tables to be held twice, and the corpus.
const MAX_KIB: u64 = (2 * (64 + 256) + 128) << 10;

/// Longest that one input may take, CPU time.
const MAX_CPU_TIME: Duration = Duration::from_secs(20);

/// Rounds of the smoke.
const ROUNDS: u64 = 40;

/// Files of one format, uncompressed.
struct Corpus {
    format: &'static str,
    files: Vec<Vec<u8>>,
}

/// Files of every format that is read: made by the tools themselves, or by the writers.
fn corpora() -> Vec<Corpus> {
    let fixtures: [(&str, &[u8]); 29] = [
        ("bpf-text", include_bytes!("../fixtures/bpftrace.txt")),
        ("callgrind", include_bytes!("../fixtures/callgrind.out")),
        ("perf.data", include_bytes!("../fixtures/clock.perf.data.gz")),
        ("perf.data", include_bytes!("../fixtures/whole.perf.data.gz")),
        ("perf.data", include_bytes!("../fixtures/packed.perf.data")),
        ("perf.data", include_bytes!("../fixtures/grouped.perf.data.gz")),
        ("jfr", include_bytes!("../fixtures/flight.jfr.gz")),
        ("jfr", include_bytes!("../fixtures/wall.jfr.gz")),
        ("jfr", include_bytes!("../fixtures/cpu-time.jfr.gz")),
        ("pprof", include_bytes!("../fixtures/go-cpu.pprof.gz")),
        ("pprof", include_bytes!("../fixtures/go-heap.pprof.gz")),
        ("gprof", include_bytes!("../fixtures/gprof.txt")),
        ("cpuprofile", include_bytes!("../fixtures/node.cpuprofile")),
        (
            "perf-script",
            include_bytes!("../fixtures/perf-script-clock.txt"),
        ),
        (
            "perf-script",
            include_bytes!("../fixtures/perf-script-switches.txt"),
        ),
        (
            "perf-script",
            b"w  12 1.5: 100 cpu-clock:\n   401136 leaf+0x1 (/w)\n   401236 main (/w)\n\n   99 x:\n 1 a\n",
        ),
        ("pstats", include_bytes!("../fixtures/profile.pstats")),
        ("callgrind", include_bytes!("../fixtures/quotes.callgrind")),
        ("cpuprofile", include_bytes!("../fixtures/negative.cpuprofile")),
        (
            "cpuprofile",
            br#"{"head":{"functionName":"(root)","id":1,"hitCount":0,"children":[{"functionName":"f","url":"a.js",
"lineNumber":3,"id":2,"hitCount":4,"children":[]}]},"startTime":1.5,"endTime":1.6,"samples":[2,1,2],
"timestamps":[1500010,1500005,1500900]}"#,
        ),
        ("chrome-trace", include_bytes!("../fixtures/devtools.json")),
        (
            "chrome-trace",
            br#"{"traceEvents":[],"samples":[{"ts":1,"pid":1,"tid":2,"sf":3,"weight":1.5},{"sf":"4"}],
"stackFrames":{"3":{"name":"a","parent":4},"4":{"name":"b"}}}"#,
        ),
        ("folded", include_bytes!("../fixtures/bad-line.folded")),
        ("folded", b"main;a 1.5\nmain;b 2.25e-3\nmain;c\t7\n"),
        ("firefox", include_bytes!("../fixtures/firefox-v53.json")),
        ("firefox", include_bytes!("../fixtures/firefox-v70.json")),
        ("otlp", include_bytes!("../fixtures/otlp-by-index.otlp")),
        (
            "chrome-trace",
            br#"[{"ph":"X","name":"a","pid":1,"tid":2,"ts":1,"dur":5},{"ph":"B","name":"b","ts":2}]"#,
        ),
        (
            "chrome-trace",
            br#"{"traceEvents":[{"ph":"B","name":"a","cat":"c","pid":1,"tid":2,"ts":1.5},
{"ph":"B","name":"b","pid":1,"tid":2,"ts":2,"args":{"x":[1,2]}},{"ph":"E","pid":1,"tid":2,"ts":7},
{"ph":"E","pid":1,"tid":2,"ts":9},{"ph":"M","name":"thread_name","pid":1,"tid":2,"args":{"name":"t"}}]}"#,
        ),
    ];
    let mut files: Vec<(&'static str, Vec<u8>)> = (fixtures.iter())
        .map(|(format, bytes)| (*format, plain(bytes)))
        .collect();
    let whole = plain(include_bytes!("../fixtures/whole.perf.data.gz"));
    files.push(("perf.data", big_endian::turned(&whole)));
    let rec = synthetic::recording(1);
    for format in Format::read() {
        let mut out = Vec::new();
        if format
            .write(&rec, &WriteOptions::default(), &mut out)
            .is_ok()
        {
            files.push((format.name, plain(&out)));
        }
    }
    Format::read()
        .map(|f| Corpus {
            format: f.name,
            files: (files.iter())
                .filter(|(format, _)| *format == f.name)
                .map(|(_, bytes)| bytes.clone())
                .collect(),
        })
        .collect()
}

/// Numbers that readers stumble over.
const NUMBERS: [u64; 8] = [
    0,
    1,
    0x7f,
    0xffff,
    u32::MAX as u64,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
];

/// Numbers that readers of texts stumble over.
const WORDS: [&str; 8] = [
    "0",
    "-1",
    "4294967296",
    "18446744073709551615",
    "99999999999999999999999",
    "1e308",
    "nan",
    "0xffffffffffffffff",
];

/// Changes a file as hostile ones are: bits, numbers that are large, pieces left out, repeated, moved,
/// or taken from another file.
fn mutate(file: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut out = file.to_vec();
    for _ in 0..1 + random.below(8) {
        if out.is_empty() {
            return out;
        }
        let mut place = |len: usize| random.below(len as u64) as usize;
        let at = place(out.len());
        let end = (at + 1 + place(64)).min(out.len());
        match place(10) {
            0 => out[at] ^= 1 << place(8),
            1 => out[at] = place(256) as u8,
            2 => out[at] = 0xff,
            3 => out.truncate(at),
            4 => drop(out.drain(at..end)),
            5 => {
                let piece = out[at..end].to_vec();
                out.splice(at..at, piece);
            }
            6 => {
                let number = NUMBERS[place(NUMBERS.len())].to_le_bytes();
                let width = (1usize << place(4)).min(out.len() - at);
                out[at..at + width].copy_from_slice(&number[..width]);
            }
            7 => {
                let digits = |b: &u8| b.is_ascii_digit();
                if let Some(from) = out[at..].iter().position(digits) {
                    let from = at + from;
                    let length = out[from..].iter().take_while(|b| digits(b)).count();
                    let word = WORDS[place(WORDS.len())];
                    out.splice(from..from + length, word.bytes());
                }
            }
            8 => {
                let piece = out[at..end].to_vec();
                let to = place(out.len());
                let until = (to + piece.len()).min(out.len());
                out.splice(to..until, piece);
            }
            _ if !other.is_empty() => {
                let from = place(other.len());
                let until = (from + 1 + place(4096)).min(other.len());
                out.splice(at..end, other[from..until].iter().copied());
            }
            _ => {}
        }
    }
    out
}

/// Compressed, and then perhaps damaged.
fn compressed(bytes: &[u8], random: &mut Random) -> Vec<u8> {
    let mut to = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    to.write_all(bytes).unwrap();
    let mut out = to.finish().unwrap();
    if random.below(2) == 0 {
        let at = random.below(out.len() as u64) as usize;
        out[at] ^= 1 << random.below(8);
    }
    out
}

/// CPU time of the process. A long run may get the CPU time that others leave.
fn cpu_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// The most memory that the process has held since it was last asked, KiB.
fn most_held() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|l| l.starts_with("VmHWM:"))?;
    let most = line.split_whitespace().nth(1)?.parse().ok()?;
    // What is reset is this process's own high-water mark.
    std::fs::write("/proc/self/clear_refs", "5").ok()?;
    Some(most)
}

/// What came of the inputs.
#[derive(Default)]
struct Tally {
    read: u64,
    refused: u64,
}

/// Reads one input; returns the harm that it did.
fn harm(bytes: &[u8], judged: bool, tally: &mut Tally) -> Option<String> {
    let begun = cpu_time();
    let options = Options {
        bounds: BOUNDS,
        ..Options::default()
    };
    match catch_unwind(AssertUnwindSafe(|| open(bytes, options).is_ok())) {
        Ok(true) => tally.read += 1,
        Ok(false) => tally.refused += 1,
        Err(_) => return Some("it panicked".to_string()),
    }
    if !judged {
        return None;
    }
    let took = cpu_time() - begun;
    if took > MAX_CPU_TIME {
        return Some(format!("it took {took:.1?}"));
    }
    let held = most_held().filter(|kib| *kib > MAX_KIB);
    held.map(|kib| format!("it took {} MiB", kib >> 10))
}

/// Keeps an input for a look at it.
fn keep(format: &str, bytes: &[u8]) -> PathBuf {
    let name = format!("wallscope-harmful-{format}-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn damaged_files_of_every_kind_do_no_harm() {
    let seconds = std::env::var("WALLSCOPE_FUZZ_SECONDS")
        .ok()
        .and_then(|s| s.parse::<u64>().ok());
    let only = std::env::var("WALLSCOPE_FUZZ_READER").ok();
    let (mut read, mut refused) = (0, 0);
    for corpus in corpora() {
        if only.as_ref().is_some_and(|name| *name != corpus.format) {
            continue;
        }
        assert!(
            !corpus.files.is_empty(),
            "no file of {} to damage",
            corpus.format
        );
        let seed = seconds.map_or(7, |_| u64::from(std::process::id()) << 8);
        let mut random = Random(seed);
        let mut tally = Tally::default();
        let begun = cpu_time();
        for round in 0u64.. {
            let over = match seconds {
                Some(s) => (cpu_time() - begun).as_secs() >= s,
                None => round >= ROUNDS,
            };
            if over {
                break;
            }
            for file in &corpus.files {
                let other = random.below(corpus.files.len() as u64) as usize;
                let mut bytes = mutate(file, &corpus.files[other], &mut random);
                if random.below(8) == 0 {
                    bytes = compressed(&bytes, &mut random);
                }
                if let Some(harm) = harm(&bytes, seconds.is_some(), &mut tally) {
                    panic!(
                        "{}: {harm}: {} (seed {seed}, round {round})",
                        corpus.format,
                        keep(corpus.format, &bytes).display()
                    );
                }
            }
        }
        println!(
            "{}: {} read, {} refused, in {:.0?} of CPU time, seed {seed}",
            corpus.format,
            tally.read,
            tally.refused,
            cpu_time() - begun
        );
        read += tally.read;
        refused += tally.refused;
    }
    assert!(
        read > 0,
        "nothing was read: is WALLSCOPE_FUZZ_READER right?"
    );
    assert!(
        only.is_some() || read > 50 && refused > 20,
        "most damage leaves something, some leaves nothing: {read} read, {refused} refused"
    );
}
