//! Inputs after complaints that users of other tools published: each once gave a wrong profile in
//! silence.

use serde_json::json;
use wallscope_formats::ReadError;
use wallscope_model::{State, merge};

use crate::other_pprof::{bytes, number};
use crate::support::{fold, read, read_value, try_read};

fn refusal(bytes: &[u8]) -> String {
    match try_read(bytes) {
        Ok(read) => panic!("read as {:?}", fold(&read.recording)),
        Err(e) => e.to_string(),
    }
}

/// `perf script -F comm,tid,period,event,ip,sym`: names of threads end in numbers.
#[test]
fn numbers_in_names_of_threads_are_neither_ids_nor_periods() {
    let text = "\
worker 3  1234     250000 cycles:
\t          401136 leaf (/tmp/w)
\t          401200 main (/tmp/w)

worker 4  1235     250000 cycles:
\t          401136 leaf (/tmp/w)
\t          401200 main (/tmp/w)

";
    let rec = read(text.as_bytes()).recording;
    assert_eq!(fold(&rec)["main;leaf"], 500_000);
    let threads: Vec<(&str, u32)> = rec.contexts.iter().map(|c| (&*c.name, c.tid)).collect();
    assert_eq!(threads, [("worker 3", 1234), ("worker 4", 1235)]);
}

/// `perf script` with `-F +addr`, `-F +weight` and `-F +uregs`.
#[test]
fn fields_beside_a_frame_are_no_part_of_it() {
    let text = "\
            spin 24570 29549.252125:       1000 cpu-clock:                0     55d844454145 leaf (/tmp/spin)
            spin 24570 29549.279220:       2000 cpu-clock:     7ffd12345678               13     55d84445414f leaf (/tmp/spin)
            spin 24570 29549.292265:       4000 cpu-clock:     55d844454145 leaf (/tmp/spin)  ABI:2    AX:0x1
";
    let sums = fold(&read(text.as_bytes()).recording);
    assert_eq!(sums, [("leaf".to_string(), 7000)].into());
    let text = "\
spin 24611 29552.303243:       1000 cpu-clock:
\t            1145 leaf (/tmp/spin)
\t           2724a main (/tmp/spin)
 ABI:2    AX:0x289    BX:0x6b09bc98

spin 24611 29552.312259:       2000 cpu-clock:
\t            1145 leaf (/tmp/spin)
\t           2724a main (/tmp/spin)
 0x401136/0x401140/P/-/-/0  0x401150/0x401160/P/-/-/0

";
    let read = read(text.as_bytes());
    assert_eq!(
        fold(&read.recording),
        [("main;leaf".to_string(), 3000)].into()
    );
    assert_eq!(read.warnings, [""; 0]);
    // Without an event, an address of decimal digits is no period.
    let text = "            spin 24570 29549.252125:           401136 leaf (/tmp/spin)\n";
    let header =
        "            spin 24570 29549.252125:       1000 cpu-clock:           401136 leaf\n";
    let sums = fold(&crate::support::read([header, text].concat().as_bytes()).recording);
    assert_eq!(sums["leaf"], 1000);
}

/// Two maps of bpftrace count different things: samples, and nanoseconds off the CPU.
#[test]
fn maps_of_bpftrace_are_not_added_up() {
    let text =
        "@on[\n    spin+10\n    main+20\n]: 40\n@off[\n    wait+10\n    main+20\n]: 900000000\n";
    let e = refusal(text.as_bytes());
    assert!(e.contains("@on, @off"), "{e}");
    let on = read_value(text.as_bytes(), "@on").unwrap().recording;
    assert_eq!(fold(&on), [("main;spin".to_string(), 40)].into());
    let off = read_value(text.as_bytes(), "@off").unwrap().recording;
    assert_eq!(fold(&off), [("main;wait".to_string(), 900_000_000)].into());
    assert!(matches!(
        read_value(text.as_bytes(), "@none"),
        Err(ReadError::NoSuchValue { .. })
    ));
    // A map that is printed again may still hold its earlier values.
    let twice = "@[\n    spin+10\n]: 40\n\n@[\n    spin+10\n]: 90\n";
    let read = read(twice.as_bytes());
    assert_eq!(fold(&read.recording)["spin"], 130);
    assert!(read.warnings[0].contains("cleared"), "{:?}", read.warnings);
}

/// libbpf's offcputime numbers its frames, bcc's quotes them under Python 3, and both say in a line of
/// their own that they could not read a stack.
#[test]
fn frames_of_every_tool_of_bcc_have_the_function_as_their_name() {
    let text = "
    #0  0xffffffc01018b7e8 __arm64_sys_clock_nanosleep+0x0
    #1  0xffffffc01009a93c el0_svc_handler+0x34
    --
    #4  0x0000007fa0bffd14 clock_nanosleep+0x94 (/usr/lib/libc-2.31.so+0x9ed14)
    #5  0x0000007fa0c0530c main+0x2c (/usr/bin/app+0xa430c)
    -                sleeper (138757)
        1

    xas_load
    filemap_map_pages
    --
failed to get syms
    -                PmLogCtl (138757)
        7

    b'schedule+0x12'
    b'main+0x9 [a.out]'
    -                b'worker' (123)
        500

    b'schedule+0x12'
    b'main+0x99 [a.out]'
    -                b'worker' (123)
        20
";
    let rec = read(text.as_bytes()).recording;
    let expected = [
        (
            "main;clock_nanosleep;el0_svc_handler_[k];__arm64_sys_clock_nanosleep_[k]",
            1,
        ),
        ("[truncated:lost];filemap_map_pages_[k];xas_load_[k]", 7),
        ("main;schedule", 520),
    ];
    assert_eq!(
        fold(&rec),
        expected.map(|(stack, n)| (stack.to_string(), n)).into()
    );
    assert!(rec.contexts.iter().any(|c| &*c.name == "worker"));
    let folded =
        "a.out;main+0x9 [a.out];f+0x16 [a.out] 10\na.out;main+0x9 [a.out];f+0x36 [a.out] 30\n";
    let sums = fold(&read(folded.as_bytes()).recording);
    assert_eq!(sums, [("a.out;main;f".to_string(), 40)].into());
}

/// An end ends the event of its name, wherever other ends stand.
#[test]
fn ends_of_trace_events_go_to_the_event_of_their_name() {
    let trace = |list: &[(&str, &str, u64)]| {
        let events = list
            .iter()
            .map(|(ph, name, ts)| json!({"ph": ph, "name": name, "ts": ts, "pid": 1, "tid": 1}));
        json!({"traceEvents": events.collect::<Vec<_>>()}).to_string()
    };
    let crossed = trace(&[
        ("B", "outer", 0),
        ("B", "inner", 10),
        ("E", "outer", 20),
        ("E", "inner", 100),
    ]);
    let read_trace = |text: &str| {
        let read = read(text.as_bytes());
        (fold(&read.recording), read.warnings.join("; "))
    };
    let (sums, warnings) = read_trace(&crossed);
    let expected = [("outer", 10_000), ("outer;inner", 10_000)];
    assert_eq!(sums, expected.map(|(s, n)| (s.to_string(), n)).into());
    assert!(warnings.contains("1 events end after"), "{warnings}");
    let stray = trace(&[
        ("B", "alpha", 0),
        ("B", "beta", 1),
        ("E", "gamma", 2),
        ("E", "beta", 9),
        ("E", "alpha", 10),
    ]);
    let (sums, warnings) = read_trace(&stray);
    let expected = [("alpha", 2_000), ("alpha;beta", 8_000)];
    assert_eq!(sums, expected.map(|(s, n)| (s.to_string(), n)).into());
    assert!(warnings.contains("1 ends have no beginning"), "{warnings}");
    // A writer that calls all ends by another name names none.
    let end = trace(&[
        ("B", "a", 0),
        ("B", "b", 1),
        ("E", "end", 3),
        ("E", "end", 9),
    ]);
    let (sums, warnings) = read_trace(&end);
    let expected = [("a", 7_000), ("a;b", 2_000)];
    assert_eq!(sums, expected.map(|(s, n)| (s.to_string(), n)).into());
    assert_eq!(warnings, "");
}

/// `ping` and `pong` call each other: gprof gives no times to these calls.
#[test]
fn functions_in_a_cycle_of_gprof_stay_below_their_caller() {
    let text = "\
Flat profile:

Each sample counts as 0.01 seconds.
  %   cumulative   self              self     total
 time   seconds   seconds    calls  ms/call  ms/call  name
 50.00      1.00     1.00        4   250.00   250.00  ping
 45.00      1.90     0.90        4   225.00   225.00  pong
  5.00      2.00     0.10                             main


\t\t\tCall graph


index % time    self  children    called     name
                                                 <spontaneous>
[1]    100.0    0.10    1.90                 main [1]
                1.90    0.00       1/1           ping <cycle 1> [3]
-----------------------------------------------
                1.90    0.00       1/1           main [1]
[2]     95.0    1.90    0.00       1+7       <cycle 1 as a whole> [2]
                1.00    0.00       4             ping <cycle 1> [3]
                0.90    0.00       4             pong <cycle 1> [4]
-----------------------------------------------
                                   3             pong <cycle 1> [4]
                1.90    0.00       1/1           main [1]
[3]     50.0    1.00    0.00       4         ping <cycle 1> [3]
                                   4             pong <cycle 1> [4]
-----------------------------------------------
                                   4             ping <cycle 1> [3]
[4]     45.0    0.90    0.00       4         pong <cycle 1> [4]
                                   3             ping <cycle 1> [3]
-----------------------------------------------

Index by function name
";
    let sums = fold(&read(text.as_bytes()).recording);
    let expected = [
        ("main", 100_000_000),
        ("main;<cycle 1 as a whole>;ping", 1_000_000_000),
        ("main;<cycle 1 as a whole>;pong", 900_000_000),
    ];
    assert_eq!(sums, expected.map(|(s, n)| (s.to_string(), n)).into());
}

/// pprof of one column, with a function for each name, in the field `name_field`.
fn pprof(column: [&str; 2], names: &[&str], name_field: u64, more: &[Vec<u8>]) -> Vec<u8> {
    let mut out = bytes(1, &[number(1, 1), number(2, 2)].concat());
    for (i, name) in (1u64..).zip(names) {
        let text = if name.is_empty() { 0 } else { i + 2 };
        out.extend(bytes(5, &[number(1, i), number(name_field, text)].concat()));
        let line = bytes(4, &number(1, i));
        out.extend(bytes(
            4,
            &[number(1, i), number(3, 0x40 * i), line].concat(),
        ));
        out.extend(bytes(
            2,
            &[bytes(1, &[i as u8]), bytes(2, &[10 * i as u8])].concat(),
        ));
    }
    out.extend(more.concat());
    for s in ["", column[0], column[1]].iter().chain(names) {
        out.extend(bytes(6, s.as_bytes()));
    }
    out
}

/// Functions without a human-readable name are known by the system's, else by their address.
#[test]
fn functions_of_pprof_without_a_name_stay_apart() {
    let column = ["cpu", "nanoseconds"];
    let file = pprof(column, &["leaf", "other", ""], 3, &[]);
    let sums = fold(&read(&file).recording);
    let expected = [("leaf", 10), ("other", 20), ("[0xc0]", 30)];
    assert_eq!(sums, expected.map(|(s, n)| (s.to_string(), n)).into());
}

/// Ten samples of 10 ms are no ten samples of 1 ms.
#[test]
fn samples_of_unlike_periods_do_not_add() {
    let file = |period: u64| {
        let more = [
            bytes(11, &[number(1, 4), number(2, 5)].concat()),
            number(12, period),
        ];
        let names = ["leaf", "cpu", "nanoseconds"];
        pprof(["samples", "count"], &names, 2, &more)
    };
    let [a, b, c] = [10_000_000, 10_000_000, 1_000_000].map(|p| read(&file(p)).recording);
    let rate = &a.domain.events[0].rate;
    assert_eq!(rate, "every 10000000 nanoseconds");
    let both = merge::merge(&[a.clone(), b]).unwrap();
    assert_eq!(fold(&both)["leaf"], 20);
    let e = merge::merge(&[a, c]).unwrap_err().to_string();
    assert!(e.contains("every 1000000 nanoseconds"), "{e}");
    let [a, c] = [10_000_000, 1_000_000].map(|p| read_value(&file(p), "cpu").unwrap().recording);
    assert!(a.domain.unit.is_time());
    let both = merge::merge(&[a, c]).unwrap();
    assert_eq!(fold(&both)["leaf"], 10 * 10_000_000 + 10 * 1_000_000);
    assert!(both.samples.iter().all(|s| s.state == State::OnCpu));
    assert_eq!(both.samples.iter().map(|s| s.count).sum::<u64>(), 2 * 60);
    let e = read_value(&file(1), "wall").unwrap_err().to_string();
    assert!(e.contains("samples, cpu"), "{e}");
}

/// Opened and closed frames in another order than that of time have no stacks.
#[test]
fn events_of_speedscope_out_of_order_are_refused_and_unbalanced_ones_said() {
    let file = |events: &[(&str, u32, f64)]| {
        let events: Vec<_> = (events.iter())
            .map(|(kind, frame, at)| json!({"type": kind, "frame": frame, "at": at}))
            .collect();
        json!({"$schema": "https://www.speedscope.app/file-format-schema.json",
            "shared": {"frames": [{"name": "a"}, {"name": "b"}]},
            "profiles": [{"type": "evented", "name": "x", "unit": "microseconds",
                "startValue": 0, "endValue": 100, "events": events}]})
        .to_string()
    };
    let unsorted = [
        ("O", 0, 0.0),
        ("C", 0, 90.0),
        ("O", 1, 30.0),
        ("C", 1, 60.0),
    ];
    let e = refusal(file(&unsorted).as_bytes());
    assert!(
        e.contains("not in the order of time: one at 30 follows one at 90"),
        "{e}"
    );
    let rounded = [
        ("O", 0, 0.0),
        ("C", 0, 90.0004),
        ("O", 1, 90.0),
        ("C", 1, 95.0),
    ];
    let read_file = |events| read(file(events).as_bytes());
    assert_eq!(
        fold(&read_file(&rounded).recording).values().sum::<u64>(),
        95_000
    );
    let crossed = [
        ("O", 0, 0.0),
        ("O", 1, 10.0),
        ("C", 0, 20.0),
        ("C", 1, 50.0),
    ];
    let read = read_file(&crossed);
    let sums = fold(&read.recording);
    let expected = [("a", 10_000), ("a;b", 10_000), ("b", 30_000)];
    assert_eq!(sums, expected.map(|(s, n)| (s.to_string(), n)).into());
    assert!(
        read.warnings[0].starts_with("1 frames are closed while others"),
        "{:?}",
        read.warnings
    );
}

/// The inspector answers with a profile inside an object.
#[test]
fn answers_of_the_inspector_are_cpu_profiles() {
    let profile = json!({"nodes": [
            {"id": 1, "callFrame": {"functionName": "(root)"}, "children": [2]},
            {"id": 2, "callFrame": {"functionName": "f", "url": "a.js", "lineNumber": 1}}],
        "startTime": 0, "endTime": 3000, "samples": [2, 2], "timeDeltas": [1000, 1000]});
    let result = json!({ "profile": profile });
    for file in [json!({"id": 3, "result": result}), result, profile] {
        let rec = read(file.to_string().as_bytes()).recording;
        assert_eq!(fold(&rec)["f_[j]"], 2_000_000);
    }
}

/// simpleperf puts code that was made at run time into files of these names.
#[test]
fn code_made_at_run_time_is_not_the_kernels() {
    let text = "\
com.google.android.apps.maps    21452/21452 [007] 11371.483014: 201198 cpu-clock:
        ffffff9c807ad35c __schedule ([kernel.kallsyms])
              7b0da4f360 syscall (/apex/com.android.runtime/lib64/bionic/libc.so)
                9c51fd34 java.lang.String.hashCode ([JIT app cache])

";
    let sums = fold(&read(text.as_bytes()).recording);
    let stack = "java.lang.String.hashCode_[j];syscall;__schedule_[k]";
    assert_eq!(sums, [(stack.to_string(), 201_198)].into());
}

/// Importers merge the samples of several CPUs, and do not sort them: CPU time is counted once.
#[test]
fn times_that_go_back_in_a_firefox_profile_make_no_further_time() {
    let thread = json!({"name": "T", "processType": "default", "pid": "1", "tid": 1,
        "samples": {"length": 4, "stack": [0, 0, 1, 1], "time": [10, 20, 5, 30], "weight": null,
            "weightType": "samples", "threadCPUDelta": [0, 10_000_000, 5_000_000, 10_000_000]},
        "stackTable": {"length": 2, "prefix": [null, 0], "frame": [0, 1]},
        "frameTable": {"length": 2, "address": [-1, -1], "inlineDepth": [0, 0], "func": [0, 1],
            "nativeSymbol": [null, null], "line": [null, null]},
        "funcTable": {"length": 2, "name": [0, 1], "isJS": [false, false], "resource": [-1, -1],
            "fileName": [null, null], "lineNumber": [null, null]},
        "stringArray": ["a", "b"],
        "resourceTable": {"length": 0, "lib": [], "name": [], "host": [], "type": []},
        "nativeSymbols": {"length": 0, "address": [], "functionSize": [], "libIndex": [], "name": []},
        "markers": {"length": 0, "data": [], "name": [], "startTime": [], "endTime": [], "phase": []}});
    let file = json!({"meta": {"interval": 1, "startTime": 0, "product": "x",
            "preprocessedProfileVersion": 53,
            "sampleUnits": {"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"}},
        "libs": [], "threads": [thread]});
    let rec = read(file.to_string().as_bytes()).recording;
    let ledger = &rec.contexts[0].ledger;
    assert_eq!(ledger.on_cpu.user, 25_000_000);
    // The first sample has no gap, and stands for one interval.
    assert_eq!(ledger.wall_ns, 26_000_000);
}
