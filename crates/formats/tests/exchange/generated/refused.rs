//! Formats that are refused by name, with the step that converts them.

use wallscope_formats::ReadError;

use super::refusal;

fn words(words: [u64; 5], size: usize, big: bool) -> Vec<u8> {
    let word = |w: &u64| match big {
        true => w.to_be_bytes()[8 - size..].to_vec(),
        false => w.to_le_bytes()[..size].to_vec(),
    };
    [
        words.iter().flat_map(word).collect::<Vec<u8>>(),
        vec![1; 40],
    ]
    .concat()
}

#[test]
fn each_format_without_a_reader_is_refused_by_name() {
    let mut cases: Vec<(Vec<u8>, &str, &str)> = Vec::new();
    for size in [4, 8] {
        for big in [false, true] {
            for java in [0, 1] {
                let file = words([0, 3, java, 10_000, 0], size, big);
                cases.push((file, "gperftools", "pprof -proto"));
            }
        }
    }
    cases.push((
        b"\xdc\xdfJSLB\x01\0".to_vec(),
        ".jslb",
        "profiler.firefox.com",
    ));
    let texts = [
        (
            "heap profile:    144:  8498176 [   144:  8498176] @ heapz_v2/524288\n",
            "heap profile",
            "pprof -proto",
        ),
        (
            "--- heapz 1 ---\nformat = java\nresolution = bytes\n",
            "heap profile",
            "pprof -proto",
        ),
        (
            "--- contentionz 1 ---\ncycles/second = 3201000000\n",
            "contention profile",
            "pprof -proto",
        ),
        (
            "--- threadz 1 ---\n\n--- Thread 7f79 (name: main/1) stack: ---\n",
            "thread profile",
            "pprof -proto",
        ),
        (
            "goroutine profile: total 7\n1 @ 0x44cb3 0x45045\n",
            "count profile",
            "pprof -proto",
        ),
        (
            "--- symbol\nbinary=/opt/app\n0x1 main\n---\n",
            "with symbols",
            "pprof -proto",
        ),
        (
            "SIMPLEPERF\u{1}\0",
            "simpleperf",
            "pprof_proto_generator.py",
        ),
        (
            "sample:\n  event_type: cpu-clock\n  time: 7\n  vaddr_in_file: 40\n",
            "simpleperf",
            "pprof_proto_generator.py",
        ),
        ("gmon\u{1}\0\0\0", "gmon.out", "gprof BINARY"),
        (
            "granularity: each sample hit covers 4 byte(s) for 0.14% of 7.14 seconds\n",
            "BSD",
            "gprof",
        ),
        (
            r#"{"meta":{"version":29,"interval":1},"libs":[],"threads":[{"name":"G","samples":{"schema":{"stack":0},"data":[]}}]}"#,
            "Gecko",
            "profiler.firefox.com",
        ),
        (
            r#"{"resourceProfiles":[{"scopeProfiles":[]}]}"#,
            "JSON",
            "Protocol Buffers",
        ),
        (
            r#"{"snapshot":{"meta":{"node_fields":["type"]}}}"#,
            "heap snapshot",
            "heap-prof",
        ),
        ("v8-version,11,3,244,8,1,0\n", "node --prof", "--cpu-prof"),
    ];
    cases.extend(texts.map(|(text, name, step)| (text.as_bytes().to_vec(), name, step)));
    for (bytes, name, step) in cases {
        for bytes in [super::gzip(&bytes), bytes] {
            match refusal(&bytes) {
                ReadError::NotRead { what, convert } => {
                    assert!(what.contains(name), "{what}: {name}");
                    assert!(convert.contains(step), "{convert}: {step}");
                }
                other => panic!("{name}: {other}"),
            }
        }
    }
}
