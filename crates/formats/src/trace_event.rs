//! Chrome's trace events (`chrome://tracing`, Perfetto's JSON, many tools' `--trace`) → recording.
//!
//! Complete events (`X`) and pairs of begin and end (`B`, `E`) nest by time on each thread; the
//! time of an event that no inner one covers is its own. Events may stand in any order. They are
//! instrumented: exact, and only what was instrumented is there. Other kinds of events have no length
//! on a thread.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use wallscope_model::{ContextId, FrameId, FrameKind, Limit, StackEnd, State, Unit};

use super::import::{About, Import, Kind};
use super::source::Source;
use super::{Options, Read, ReadError, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object {
    trace_events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default, deserialize_with = "text")]
    ph: String,
    #[serde(default, deserialize_with = "text")]
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

/// Some have no name and say so, or a number for one.
fn text<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::String(s) => s,
        Value::Null => String::new(),
        other => other.to_string(),
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
    /// When an event began, with what; `None`: when the last one that began ended.
    edges: Vec<(u64, Option<FrameId>)>,
}

impl Thread {
    /// Makes spans of beginnings and ends; what has no end ends at `last`. Returns how many ends had no
    /// beginning, and how many beginnings no end.
    fn pair(&mut self, last: u64) -> (u64, u64) {
        // In the order of time; of one moment, in the order of the file.
        self.edges.sort_by_key(|(at, _)| *at);
        let mut open: Vec<usize> = Vec::new();
        let mut unpaired = 0;
        for (at, frame) in std::mem::take(&mut self.edges) {
            match (frame, open.pop()) {
                (Some(frame), outer) => {
                    open.extend(outer);
                    open.push(self.spans.len());
                    self.spans.push(Span {
                        start: at,
                        end: last.max(at),
                        frame,
                    });
                }
                (None, Some(begun)) => self.spans[begun].end = at,
                (None, None) => unpaired += 1,
            }
        }
        (unpaired, open.len() as u64)
    }
}

/// Ids are numbers or texts, of any size: what is no number of 32 bits gets one, only to tell it from
/// the others.
fn id(value: &Value, others: &mut FxHashMap<String, u32>) -> u32 {
    let text = match value {
        Value::Number(n) => n.to_string(),
        Value::String(s) => s.clone(),
        _ => return 0,
    };
    text.parse().unwrap_or_else(|_| {
        let next = u32::MAX - others.len() as u32;
        *others.entry(text).or_insert(next)
    })
}

/// Reads trace events.
pub(super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let (events, mut warnings): (Vec<Event>, _) = match json::start(source.head()) {
        Some(b'{') => {
            let (object, warnings): (Object, _) = json::parse(source)?;
            (object.trace_events, warnings)
        }
        _ => json::parse(source)?,
    };
    let mut to = Import::new(memory);
    let mut texts = FxHashMap::default();
    let mut threads: BTreeMap<(u32, u32), Thread> = BTreeMap::new();
    let mut names: FxHashMap<(u32, Option<u32>), String> = FxHashMap::default();
    let (mut others, mut last) = (0u64, 0u64);
    for e in &events {
        let (pid, tid) = (id(&e.pid, &mut texts), id(&e.tid, &mut texts));
        let start = json::whole(e.ts, 1e3);
        let end = start + json::whole(e.dur, 1e3);
        let thread = threads.entry((pid, tid));
        let name = if e.name.is_empty() {
            "[no name]"
        } else {
            &e.name
        };
        match e.ph.as_str() {
            "X" => {
                let frame = to.named(FrameKind::Native, None, name, "", 0)?;
                thread.or_default().spans.push(Span { start, end, frame });
                last = last.max(end);
            }
            "B" => {
                let frame = to.named(FrameKind::Native, None, name, "", 0)?;
                thread.or_default().edges.push((start, Some(frame)));
                last = last.max(start);
            }
            "E" => {
                thread.or_default().edges.push((start, None));
                last = last.max(start);
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
    let (mut unpaired, mut unended, mut clipped) = (0u64, 0u64, 0u64);
    for ((pid, tid), mut thread) in threads {
        let (ends, beginnings) = thread.pair(last);
        unpaired += ends;
        unended += beginnings;
        let of = |key| names.get(&key).map_or("", |n| n.as_str());
        let context = to.context(pid, tid, of((pid, Some(tid))), of((pid, None)))?;
        clipped += nest(&mut thread.spans, context, &mut to)?;
    }
    if clipped > 0 {
        warnings.push(format!(
            "{clipped} events end after the event around them on their thread (asynchronous work?): what \
             sticks out was left out"
        ));
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

/// Events that stick out of the one around them by less, ns, do so because times were rounded.
const ROUNDING: u64 = 1000;

/// Gives each stretch of time to the stack of events that cover it. Returns how many events end after
/// the one around them.
fn nest(spans: &mut [Span], context: ContextId, to: &mut Import) -> Result<u64, ReadError> {
    let mut clipped = 0;
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
        clipped += u64::from(s.end - end > ROUNDING);
        open.push((end, s.frame));
    }
    while let Some((end, _)) = open.last().copied() {
        add(&open, at, end, to)?;
        at = at.max(end);
        open.pop();
    }
    Ok(clipped)
}
