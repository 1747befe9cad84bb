//! Formats that are recognised and not read: each with its name and the step that converts it.
//!
//! A file in one of these formats must not reach a reader that takes it for another format, and the message
//! "unknown format" would not help the user.

use super::{ReadError, json};

/// A format without a reader.
struct Refused {
    what: &'static str,
    convert: &'static str,
    detect: fn(&[u8]) -> bool,
}

const LEGACY: &str = "pprof -proto BINARY FILE > out.pb.gz (go tool pprof does too)";
const SIMPLEPERF: &str = "python3 pprof_proto_generator.py -i perf.data (in the NDK's simpleperf folder), \
     and read its pprof.profile";

/// Every such format.
const REFUSED: &[Refused] = &[
    Refused {
        what: "a CPU profile in gperftools' legacy binary form",
        convert: LEGACY,
        detect: legacy_cpu,
    },
    Refused {
        what: "a heap profile in gperftools' legacy text form",
        convert: LEGACY,
        detect: |h| h.starts_with(b"heap profile: ") || h.starts_with(b"--- heapz "),
    },
    Refused {
        what: "a contention profile in pprof's legacy text form",
        convert: LEGACY,
        detect: |h| {
            [&b"--- contentionz "[..], b"--- mutex:", b"--- contention:"]
                .iter()
                .any(|s| h.starts_with(s))
        },
    },
    Refused {
        what: "a thread profile in gperftools' legacy text form",
        convert: LEGACY,
        detect: |h| h.starts_with(b"--- threadz "),
    },
    Refused {
        what: "a count profile in pprof's legacy text form",
        convert: LEGACY,
        detect: legacy_count,
    },
    Refused {
        what: "a profile in gperftools' legacy form with symbols (pprof --raw)",
        convert: LEGACY,
        detect: |h| h.starts_with(b"--- symbol\n") || h.starts_with(b"--- symbol\r\n"),
    },
    Refused {
        what: "simpleperf's report in Protocol Buffers (report-sample --protobuf)",
        convert: SIMPLEPERF,
        detect: |h| h.starts_with(b"SIMPLEPERF"),
    },
    Refused {
        what: "simpleperf's report as text (report-sample)",
        convert: SIMPLEPERF,
        detect: |h| {
            let h = h.trim_ascii_start();
            h.starts_with(b"sample:") && has(h, b"event_type:") && has(h, b"vaddr_in_file:")
        },
    },
    Refused {
        what: "gprof's raw counts (gmon.out)",
        convert: "gprof BINARY gmon.out > gprof.txt",
        detect: |h| h.starts_with(b"gmon\x01\0\0\0") || h.starts_with(b"gmon\0\0\0\x01"),
    },
    Refused {
        what: "gprof's text in BSD's form",
        convert: "GNU gprof without -T: gprof BINARY gmon.out > gprof.txt",
        detect: |h| has(h, b"granularity: each sample hit covers") && !has(h, b"Flat profile:"),
    },
    Refused {
        what: "Gecko's unprocessed profile",
        convert: "open it in profiler.firefox.com and save it there",
        detect: gecko,
    },
    Refused {
        what: "the Firefox Profiler's binary form (.jslb)",
        convert: "open it in profiler.firefox.com and save it as JSON",
        detect: |h| h.starts_with(b"\xdc\xdfJSLB"),
    },
    Refused {
        what: "OpenTelemetry's profiles as JSON",
        convert: "save them as Protocol Buffers (the collector's file exporter: format: proto)",
        detect: |h| json_object(h) && json::has_key(h, "resourceProfiles"),
    },
    Refused {
        what: "a V8 heap snapshot",
        convert: "a sampled heap profile (.heapprofile) holds stacks: node --heap-prof",
        detect: |h| {
            json_object(h) && json::has_key(h, "snapshot") && json::has_key(h, "node_fields")
        },
    },
    Refused {
        what: "V8's log (node --prof)",
        convert: "record again with node --cpu-prof",
        detect: |h| h.starts_with(b"v8-version,"),
    },
    Refused {
        what: "a DHAT profile",
        convert: "open it in profiler.firefox.com and save it there",
        detect: |h| json_object(h) && json::has_key(h, "dhatFileVersion"),
    },
    Refused {
        what: "bpftrace's output as JSON",
        convert: "run bpftrace without -f json",
        detect: |h| json_object(h) && json::has_key(h, "type") && has(h, b"\"attached_probes\""),
    },
    Refused {
        what: "austin's binary form (MOJO)",
        convert: "mojo2austin FILE out.austin",
        detect: |h| h.starts_with(b"MOJ"),
    },
    Refused {
        what: "a .NET event trace (nettrace)",
        convert: "dotnet-trace convert --format Speedscope FILE",
        detect: |h| h.starts_with(b"Nettrace"),
    },
    Refused {
        what: "an Android method trace",
        convert: "open it in profiler.firefox.com and save it there",
        detect: |h| h.starts_with(b"SLOW") || h.starts_with(b"*version\n"),
    },
];

/// Refuses by name a file of a format that has no reader.
///
/// # Errors
/// [`ReadError::NotRead`].
pub(super) fn check(head: &[u8]) -> Result<(), ReadError> {
    match REFUSED.iter().find(|r| (r.detect)(head)) {
        Some(r) => Err(ReadError::NotRead {
            what: r.what,
            convert: r.convert,
        }),
        None => Ok(()),
    }
}

fn has(head: &[u8], text: &[u8]) -> bool {
    memchr::memmem::find(head, text).is_some()
}

fn json_object(head: &[u8]) -> bool {
    json::start(head) == Some(b'{')
}

/// Five words: 0, 3, the format's version (0 for native code, 1 for Java), the period in µs, 0.
/// Words have four or eight bytes, in either order.
fn legacy_cpu(head: &[u8]) -> bool {
    let words = |size: usize, big: bool| -> Option<Vec<u64>> {
        let word = |bytes: &[u8]| {
            let of = |n: u64, b: &u8| n << 8 | u64::from(*b);
            if big {
                bytes.iter().fold(0, of)
            } else {
                bytes.iter().rev().fold(0, of)
            }
        };
        Some(head.get(..5 * size)?.chunks(size).map(word).collect())
    };
    let is_header = |w: Vec<u64>| w[0] == 0 && w[1] == 3 && w[2] < 2 && w[3] > 0 && w[4] == 0;
    [4, 8].iter().any(|size| {
        [false, true]
            .iter()
            .any(|big| words(*size, *big).is_some_and(is_header))
    })
}

/// `goroutine profile: total 7` and stacks as addresses after `@`.
fn legacy_count(head: &[u8]) -> bool {
    let mut lines = head.split(|c| *c == b'\n');
    let first = lines.find(|l| !l.trim_ascii().is_empty() && !l.starts_with(b"#"));
    first.is_some_and(|l| {
        let at = memchr::memmem::find(l, b" profile: total ");
        at.is_some_and(|at| at > 0 && !l[..at].contains(&b' '))
    })
}

/// Gecko's own files have tables of rows with a schema, processed ones have columns.
fn gecko(head: &[u8]) -> bool {
    json_object(head)
        && !json::has_key(head, "preprocessedProfileVersion")
        && json::has_key(head, "meta")
        && json::has_key(head, "threads")
        && json::has_key(head, "schema")
        && json::has_key(head, "samples")
}
