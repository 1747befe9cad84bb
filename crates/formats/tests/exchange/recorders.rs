use wallscope_model::{BlockReason, State, Unit};

use crate::support::{ends, fold, read, read_value};

const JFR: &[u8] = include_bytes!("../fixtures/flight.jfr.gz");
const NODE: &str = include_str!("../fixtures/node.cpuprofile");

/// `jfr print`: 43 execution samples, 42 of them in `J.leaf`; 12 sleeps of 439.9 ms in all.
#[test]
fn events_are_those_of_jfr_print() {
    let rec = read(JFR).recording;
    let sum = |state| {
        rec.contexts
            .iter()
            .map(|c| c.ledger.state_ns(state))
            .sum::<u64>()
    };
    // The recording's settings say 10 ms.
    assert_eq!(sum(State::OnCpu), 43 * 10_000_000);
    let slept = sum(State::Blocked);
    assert!(slept.abs_diff(439_900_000) < 1_000_000, "{slept}");
    let timer: u64 = (rec.contexts.iter())
        .map(|c| c.ledger.blocked[BlockReason::Timer as usize])
        .sum();
    assert_eq!(timer, slept);
    assert_eq!(ends(&rec).0["J.leaf_[j]"], 42 * 10_000_000);
    assert!(rec.contexts.iter().any(|c| &*c.name == "locker"));
    assert!(rec.slices.count > 10);
}

#[test]
fn allocations_and_single_events_of_jfr_are_read_where_asked_for() {
    let rec = read_value(JFR, "allocation").unwrap().recording;
    assert_eq!(rec.domain.unit, Unit::Bytes);
    let n: u64 = rec.samples.iter().map(|s| s.count).sum();
    assert_eq!(n, 90);
    let rec = read_value(JFR, "jdk.ExecutionSample").unwrap().recording;
    assert_eq!(fold(&rec).values().sum::<u64>(), 43);
    let e = read_value(JFR, "jdk.NoSuchEvent").unwrap_err().to_string();
    assert!(e.contains("jdk.ThreadSleep (12)"), "{e}");
}

#[test]
fn samples_of_v8_are_those_of_its_hit_counts() {
    let rec = read_value(NODE.as_bytes(), "samples").unwrap().recording;
    let v: serde_json::Value = serde_json::from_str(NODE).unwrap();
    let hits = |name: &str| -> u64 {
        let nodes = v["nodes"].as_array().unwrap().iter();
        let own = nodes.filter(|n| n["callFrame"]["functionName"] == name);
        own.map(|n| n["hitCount"].as_u64().unwrap_or(0)).sum()
    };
    let (own, _) = ends(&rec);
    assert!(hits("leaf") > 100);
    assert_eq!(own["leaf_[j]"], hits("leaf"));
    let timed = read(NODE.as_bytes()).recording;
    // From the first sample to the end.
    let deltas = v["timeDeltas"].as_array().unwrap();
    let length = v["endTime"].as_u64().unwrap() - v["startTime"].as_u64().unwrap();
    let expected = (length - deltas[0].as_u64().unwrap()) * 1000;
    assert_eq!(fold(&timed).values().sum::<u64>(), expected);
}

#[test]
fn trace_events_nest_by_time() {
    let text = r#"{"traceEvents":[
        {"ph":"M","name":"thread_name","pid":1,"tid":7,"args":{"name":"main"}},
        {"ph":"X","name":"outer","pid":1,"tid":7,"ts":100,"dur":50},
        {"ph":"X","name":"inner","pid":1,"tid":7,"ts":110,"dur":20},
        {"ph":"B","name":"b","pid":1,"tid":8,"ts":100},
        {"ph":"B","name":"c","pid":1,"tid":8,"ts":"101.5"},
        {"ph":"E","pid":1,"tid":8,"ts":104},
        {"ph":"E","pid":1,"tid":8,"ts":110},
        {"ph":"i","name":"moment","pid":1,"tid":8,"ts":105}
    ]}"#;
    let rec = read(text.as_bytes()).recording;
    let sums = fold(&rec);
    assert_eq!(sums["outer"], 30_000);
    assert_eq!(sums["outer;inner"], 20_000);
    assert_eq!(sums["b"], 7_500);
    assert_eq!(sums["b;c"], 2_500);
    assert_eq!(&*rec.contexts[0].name, "main");
    // Cut in the middle, whole records are there.
    let cut = crate::support::read(&text.as_bytes()[..text.find("\"B\",\"name\":\"c\"").unwrap()]);
    assert_eq!(fold(&cut.recording)["outer;inner"], 20_000);
    assert!(
        cut.warnings
            .iter()
            .any(|w| w.contains("ends in the middle"))
    );
}

#[test]
fn trace_events_in_any_order_of_any_id_are_those_of_their_thread() {
    let text = r#"[
        {"ph":"E","pid":1,"tid":1,"ts":100},
        {"ph":"B","name":"inner","pid":1,"tid":1,"ts":10},
        {"ph":"B","name":"outer","pid":1,"tid":1,"ts":0},
        {"ph":"E","pid":1,"tid":1,"ts":30},
        {"ph":"X","name":"a","pid":1,"tid":140000000000001,"ts":0,"dur":5},
        {"ph":"X","name":null,"pid":1,"tid":144294967296001,"ts":0,"dur":6},
        {"ph":"X","name":"b","pid":1,"tid":-1,"ts":0,"dur":100},
        {"ph":"X","name":"c","pid":1,"tid":-1,"ts":50,"dur":100}
    ]"#;
    let read = read(text.as_bytes());
    let sums = fold(&read.recording);
    assert_eq!(sums["outer"], 80_000, "{sums:?}");
    assert_eq!(sums["outer;inner"], 20_000);
    assert_eq!(sums["[no name]"], 6_000);
    assert_eq!(read.recording.contexts.len(), 4, "no two are taken for one");
    // What overlaps without nesting cannot be on one stack whole.
    assert_eq!((sums["b"], sums["b;c"]), (50_000, 50_000));
    assert!(read.warnings.iter().any(|w| w.contains("sticks out")));
}

#[test]
fn functions_without_names_of_the_firefox_profiler_are_told_apart_by_their_lib() {
    let text = r#"{"meta":{"preprocessedProfileVersion":49,"interval":1},
        "libs":[{"name":"prog","path":"/nowhere/prog"},{"name":"libfoo.so","path":"/nowhere/libfoo.so"}],
        "threads":[{"name":"main","pid":"7","tid":"7",
            "samples":{"length":3,"stack":[0,1,2],"time":[0,1,2]},
            "stackTable":{"length":3,"prefix":[null,0,0],"frame":[0,1,2]},
            "frameTable":{"length":3,"address":[4660,4660,-1],"func":[0,1,2],"line":[null,null,null]},
            "funcTable":{"length":3,"name":[0,0,1],"resource":[0,1,-1],"fileName":[null,null,null]},
            "resourceTable":{"length":2,"lib":[0,1],"name":[0,0]},
            "stringArray":["0x1234","script"]}]}"#;
    let sums = fold(&read(text.as_bytes()).recording);
    let expected = [
        "prog+0x1234",
        "prog+0x1234;libfoo.so+0x1234",
        "prog+0x1234;script",
    ];
    assert_eq!(sums.keys().collect::<Vec<_>>(), expected);
}
