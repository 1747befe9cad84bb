//! Chrome's trace events (`chrome://tracing`, Perfetto's JSON, many tools' `--trace`) → recording.
//!
//! Complete events (`X`) and pairs of begin and end (`B`, `E`) nest by time on each thread; the
//! time of an event that no inner one covers is its own. They are instrumented: exact, and only
//! what was instrumented is there. Other kinds of events have no length on a thread.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use wallscope_model::{ContextId, FrameId, FrameKind, Limit, StackEnd, State, Unit};

use super::import::{About, Import, Kind};
use super::source::Source;
use super::{Options, Read, ReadError, json};

#[derive(Deserialize)]
#[serde(untagged)]
enum File {
    Plain(Vec<Event>),
    Object(Object),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    trace_events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    name: String,
    #[serde(default, deserialize_with = "number")]
    ts: f64,
    #[serde(default, deserialize_with = "number")]
    dur: f64,
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    args: Value,
}

/// Some write times as texts.
fn number<'de, D: Deserializer<'de>>(d: D) -> Result<f64, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::Number(n) => n.as_f64().unwrap_or(0.0),
        Value::String(s) => s.parse().unwrap_or(0.0),
        _ => 0.0,
    })
}

/// Whether they are trace events.
pub(super) fn detect(head: &[u8]) -> bool {
    match json::start(head) {
        Some(b'{') => json::has(head, "\"traceEvents\""),
        Some(b'[') => json::has(head, "\"ph\"") && json::has(head, "\"ts\""),
        _ => false,
    }
}

/// An event with its length.
struct Span {
    start: u64,
    end: u64,
    frame: FrameId,
}

#[derive(Default)]
struct Thread {
    spans: Vec<Span>,
    /// Places of events that began and did not end yet.
    open: Vec<usize>,
}

/// Ids are numbers or texts.
fn id(value: &Value, texts: &mut FxHashMap<String, u32>) -> u32 {
    match value {
        Value::Number(n) => n.as_u64().unwrap_or(0) as u32,
        Value::String(s) => match s.parse() {
            Ok(n) => n,
            // Only to tell them apart: names come from elsewhere.
            Err(_) => {
                let next = u32::MAX - texts.len() as u32;
                *texts.entry(s.clone()).or_insert(next)
            }
        },
        _ => 0,
    }
}

/// Reads trace events.
pub(super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let (file, mut warnings): (File, _) = json::parse(source)?;
    let events = match file {
        File::Plain(events) => events,
        File::Object(o) => o.trace_events,
    };
    let mut to = Import::new(memory);
    let mut texts = FxHashMap::default();
    let mut threads: BTreeMap<(u32, u32), Thread> = BTreeMap::new();
    let mut names: FxHashMap<(u32, Option<u32>), String> = FxHashMap::default();
    let (mut others, mut unpaired, mut last) = (0u64, 0u64, 0u64);
    for e in &events {
        let (pid, tid) = (id(&e.pid, &mut texts), id(&e.tid, &mut texts));
        let start = json::whole(e.ts, 1e3);
        let end = json::whole(e.ts + e.dur.max(0.0), 1e3);
        let mut span = |end: u64, to: &mut Import| -> Result<usize, ReadError> {
            let frame = to.named(FrameKind::Native, None, &e.name, "", 0)?;
            let spans = &mut threads.entry((pid, tid)).or_default().spans;
            spans.push(Span { start, end, frame });
            Ok(spans.len() - 1)
        };
        match e.ph.as_str() {
            "X" => {
                span(end, &mut to)?;
                last = last.max(end);
            }
            "B" => {
                let at = span(u64::MAX, &mut to)?;
                last = last.max(start);
                threads.entry((pid, tid)).or_default().open.push(at);
            }
            "E" => {
                let thread = threads.entry((pid, tid)).or_default();
                last = last.max(start);
                match thread.open.pop() {
                    Some(at) => thread.spans[at].end = start,
                    None => unpaired += 1,
                }
            }
            "M" => {
                let name = e.args.get("name").and_then(Value::as_str);
                match (e.name.as_str(), name) {
                    ("process_name", Some(n)) => names.insert((pid, None), n.to_string()),
                    ("thread_name", Some(n)) => names.insert((pid, Some(tid)), n.to_string()),
                    _ => None,
                };
            }
            _ => others += 1,
        }
    }
    let mut unended = 0u64;
    for ((pid, tid), mut thread) in threads {
        unended += thread.open.len() as u64;
        let of = |key| names.get(&key).map_or("", |n| n.as_str());
        let context = to.context(pid, tid, of((pid, Some(tid))), of((pid, None)))?;
        for s in thread.spans.iter_mut().filter(|s| s.end == u64::MAX) {
            s.end = last.max(s.start);
        }
        nest(&mut thread.spans, context, &mut to)?;
    }
    if unpaired + unended > 0 {
        warnings.push(format!(
            "{unpaired} ends without a beginning were left out, and {unended} beginnings without an \
             end were ended with the file"
        ));
    }
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let mut notes = Vec::new();
    if others > 0 {
        notes.push(format!(
            "{others} events of other kinds (instants, counters, flows, asynchronous ones) have no \
             time on a thread, and were left out"
        ));
    }
    let about = About {
        format: "Chrome's trace events".to_string(),
        values: "events of instrumented code".to_string(),
        unit: Unit::Nanoseconds,
        exact: true,
        limits: vec![Limit {
            what:
                "only code that was instrumented; what a thread did otherwise, and whether it was \
                   on a CPU, is not in the file"
                    .to_string(),
            remedy: String::new(),
        }],
        notes,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

/// Gives each stretch of time to the stack of events that cover it.
fn nest(spans: &mut [Span], context: ContextId, to: &mut Import) -> Result<(), ReadError> {
    spans.sort_by_key(|s| (s.start, std::cmp::Reverse(s.end)));
    let mut open: Vec<(u64, FrameId)> = Vec::new();
    let mut at = 0;
    let add = |open: &[(u64, FrameId)], from: u64, end: u64, to: &mut Import| {
        if open.is_empty() || end <= from {
            return Ok(());
        }
        let frames: Vec<FrameId> = open.iter().rev().map(|(_, f)| *f).collect();
        let stack = to.stack(&frames, StackEnd::Root)?;
        let kind = Kind::of(State::Unknown);
        to.sample(context, stack, kind, None, (1, end - from), Some(from))
    };
    for s in spans.iter() {
        while let Some((end, _)) = open.last().copied().filter(|(end, _)| *end <= s.start) {
            add(&open, at, end, to)?;
            at = at.max(end);
            open.pop();
        }
        add(&open, at, s.start, to)?;
        at = at.max(s.start);
        // What outlasts the event around it is ended with it.
        let end = open.last().map_or(s.end, |(outer, _)| s.end.min(*outer));
        open.push((end, s.frame));
    }
    while let Some((end, _)) = open.last().copied() {
        add(&open, at, end, to)?;
        at = at.max(end);
        open.pop();
    }
    Ok(())
}
