//! Trace events with CPU profiles inside them, and with samples beside them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wallscope_model::Unit;

use super::v8::Profile;
use super::{SEEDS, Sums, gzip, read_as, sums};
use wallscope_synthetic::Random;

/// A span of a thread, µs, with its depth in the nesting.
struct Span {
    name: String,
    from: i64,
    to: i64,
}

/// Spans that nest, from `start` to about `end`.
fn spans(random: &mut Random, start: i64, end: i64) -> Vec<Span> {
    fn fill(random: &mut Random, (from, to): (i64, i64), depth: u32, out: &mut Vec<Span>) {
        let mut at = from;
        while depth < 4 && to - at > 3 {
            at += random.below((to - at) as u64 / 2 + 1) as i64;
            let length = 1 + random.below((to - at).max(1) as u64) as i64;
            if random.below(4) == 0 || at + length > to {
                break;
            }
            let name = format!("span{}", out.len());
            out.push(Span {
                name,
                from: at,
                to: at + length,
            });
            fill(random, (at, at + length), depth + 1, out);
            at += length;
        }
    }
    let mut out = Vec::new();
    fill(random, (start, end), 0, &mut out);
    out
}

/// Events of a thread: complete ones, or begin and end.
fn events(spans: &[Span], random: &mut Random, (pid, tid): (u32, u32)) -> Vec<Value> {
    let mut out = Vec::new();
    for s in spans {
        if random.below(2) == 0 {
            out.push(
                json!({"ph": "X", "name": s.name, "cat": "c", "pid": pid, "tid": tid,
                "ts": s.from, "dur": s.to - s.from}),
            );
        } else {
            // One in two parts nests with those in one part only by its times.
            out.push(json!({"ph": "X", "name": s.name, "pid": pid, "tid": tid,
                "ts": s.from.to_string(), "dur": (s.to - s.from).to_string()}));
        }
    }
    out
}

/// The events of a CPU profile, in chunks from another thread.
fn profile_events(
    p: &Profile,
    random: &mut Random,
    id: &str,
    (pid, tid): (u32, u32),
) -> Vec<Value> {
    let begin = json!({"ph": "P", "name": "Profile", "cat": "disabled-by-default-v8.cpu_profiler",
        "id": id, "pid": pid, "tid": tid, "ts": p.start, "args": {"data": {"startTime": p.start}}});
    let mut out = vec![begin];
    let (mut nodes, ids, deltas) = (p.nodes(true), p.ids(), p.deltas());
    let mut at = 0;
    while at < ids.len() {
        let to = (at + 1 + random.below(10) as usize).min(ids.len());
        // All nodes come with the first chunk.
        out.push(json!({"ph": "P", "name": "ProfileChunk", "id": id, "pid": pid, "tid": 900, "ts": p.end,
            "args": {"data": {"cpuProfile": {"nodes": std::mem::take(&mut nodes), "samples": ids[at..to]},
                "timeDeltas": deltas[at..to], "lines": vec![0; to - at]}}}));
        at = to;
    }
    out.push(
        json!({"ph": "P", "name": "ProfileChunk", "id": id, "pid": pid, "tid": 900, "ts": p.end,
        "args": {"data": {"endTime": p.end}}}),
    );
    out
}

/// Sums by asking at each µs which spans are open and which sample lasts.
fn by_time(spans: &[Span], profile: Option<&Profile>, with_spans: bool) -> BTreeMap<String, u64> {
    let mut out = Sums::default();
    let mut order: Vec<(usize, i64)> = profile.map_or(Vec::new(), |p| p.samples.clone());
    order.sort_by_key(|(_, at)| *at);
    let first = spans
        .iter()
        .map(|s| s.from)
        .chain(order.first().map(|o| o.1))
        .min();
    let last = spans
        .iter()
        .map(|s| s.to)
        .chain(profile.map(|p| p.end))
        .max();
    let (Some(first), Some(last)) = (first, last) else {
        return out.0;
    };
    for t in first..last {
        let open = spans
            .iter()
            .filter(|s| with_spans && s.from <= t && t < s.to);
        let mut frames: Vec<String> = open.map(|s| s.name.clone()).collect();
        let sample = order.iter().rev().find(|(_, at)| *at <= t);
        if let Some(((node, _), p)) = sample.zip(profile).filter(|(_, p)| t < p.end) {
            frames.push(p.tree.folded(*node, "_[j]"));
        }
        if !frames.is_empty() {
            out.add(frames.join(";"), 1000);
        }
    }
    out.0
}

#[test]
fn profiles_lie_within_the_events_of_their_thread() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let mut p = Profile::random(&mut random);
        // Short enough to be asked each µs.
        for (_, at) in &mut p.samples {
            *at = p.start + (*at - p.start) / 20;
        }
        p.end = p.start + (p.end - p.start) / 20;
        let own = spans(&mut random, p.start - 50, p.end + 50);
        let mut list = vec![
            json!({"ph": "M", "name": "thread_name", "pid": 5, "tid": 1, "ts": 0,
            "args": {"name": "CrRendererMain"}}),
        ];
        list.extend(events(&own, &mut random, (5, 1)));
        list.extend(profile_events(&p, &mut random, "0x1", (5, 1)));
        // Another process has a profile of the same id.
        let other = Profile::random(&mut random);
        list.extend(profile_events(&other, &mut random, "0x1", (6, 1)));
        let object = json!({"metadata": {"source": "DevTools"}, "traceEvents": list}).to_string();
        let array = Value::Array(list).to_string();
        for text in [object.as_bytes(), array.as_bytes()] {
            for bytes in [text.to_vec(), gzip(text)] {
                let read = read_as(&bytes, None).unwrap();
                let mut rec = read.recording.clone();
                assert_eq!(rec.contexts.len(), 2, "seed {seed}");
                assert_eq!(&*rec.contexts[0].name, "CrRendererMain");
                rec.samples.retain(|s| s.context.0 == 0);
                let found = total_by_stack(&rec);
                assert_eq!(found, by_time(&own, Some(&p), true), "seed {seed}");
            }
        }
        if !own.is_empty() {
            let read = read_as(array.as_bytes(), Some("events")).unwrap();
            assert_eq!(sums(&read), by_time(&own, None, true));
            assert!(read.recording.domain.columns.iter().all(|c| c.exact));
        }
        let read = read_as(array.as_bytes(), Some("cpu-profile")).unwrap();
        let mut rec = read.recording;
        rec.samples
            .retain(|s| rec.contexts[s.context.0 as usize].pid == 5);
        assert_eq!(total_by_stack(&rec), by_time(&own, Some(&p), false));
    }
}

/// Sums by stack of the samples alone, whatever the ledger says.
fn total_by_stack(rec: &wallscope_model::Recording) -> BTreeMap<String, u64> {
    let mut out = Sums::default();
    for s in &rec.samples {
        let frames = rec.stacks[s.stack.0 as usize].frames.iter().rev();
        let names: Vec<String> = frames
            .map(|f| {
                let f = &rec.frames[f.0 as usize];
                let name = &rec.functions[f.lines[0].function.0 as usize].name;
                match f.kind {
                    wallscope_model::FrameKind::Jit => format!("{name}_[j]"),
                    _ => name.to_string(),
                }
            })
            .collect();
        out.add(names.join(";"), s.ns);
    }
    out.0
}

#[test]
fn samples_with_stack_frames_are_counts_by_weight() {
    for seed in SEEDS {
        let mut random = Random(seed);
        let p = Profile::random(&mut random);
        let weighted = random.below(2) == 1;
        let mut expected = Sums::default();
        let samples: Vec<Value> = (p.samples.iter())
            .map(|(node, at)| {
                let weight = if weighted { 1 + random.below(5) } else { 1 };
                expected.add(p.tree.folded(*node, ""), weight);
                let mut s = json!({"cpu": 0, "tid": 7, "pid": 3, "ts": at, "name": "cycles:HG",
                    "sf": if seed % 2 == 0 { json!(node) } else { json!(node.to_string()) }});
                if weighted {
                    s["weight"] = if seed % 3 == 0 {
                        json!(weight.to_string())
                    } else {
                        json!(weight)
                    };
                }
                s
            })
            .collect();
        let mut frames = serde_json::Map::new();
        for (i, name) in p.tree.names.iter().enumerate() {
            let mut frame = json!({"category": "c", "name": name});
            if let Some(parent) = p.tree.parents[i] {
                frame["parent"] = if seed % 2 == 0 {
                    json!(parent)
                } else {
                    json!(parent.to_string())
                };
            }
            frames.insert(i.to_string(), frame);
        }
        let file = json!({"traceEvents": [], "samples": samples, "stackFrames": frames});
        let read = read_as(file.to_string().as_bytes(), None).unwrap();
        assert_eq!(sums(&read), expected.0, "seed {seed}");
        assert!(matches!(read.recording.domain.unit, Unit::Count(_)));
    }
}

#[test]
fn events_without_time_or_length_are_counted_and_orphans_are_said() {
    let text = r#"[
        {"ph":"X","name":"a","pid":1,"tid":1,"ts":0,"dur":5},
        {"ph":"X","name":"b","pid":1,"tid":1,"ts":1},
        {"ph":"X","name":"c","pid":1,"tid":1,"dur":3},
        {"ph":"P","name":"ProfileChunk","id":"0x7","pid":1,"tid":2,"ts":9,
         "args":{"data":{"cpuProfile":{"samples":[1]},"timeDeltas":[5]}}}
    ]"#;
    let read = read_as(text.as_bytes(), None).unwrap();
    assert_eq!(sums(&read), BTreeMap::from([("a".to_string(), 5000)]));
    for part in ["no length", "no time", "parts of CPU profiles"] {
        assert!(
            read.warnings.iter().any(|w| w.contains(part)),
            "{part}: {:?}",
            read.warnings
        );
    }
}

#[test]
fn the_fixture_of_devtools_holds_the_task_and_the_functions_within_it() {
    let bytes = include_bytes!("../../fixtures/devtools.json");
    let read = crate::support::read(bytes);
    let (own, total) = crate::support::ends_of(&sums(&read));
    assert_eq!(total["RunTask"], 5_000_000);
    assert_eq!(
        (own["alpha"], own["beta"], own["RunTask"]),
        (1_000_000, 2_000_000, 2_000_000)
    );
}
