//! Events → samples.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use wallscope_model::{
    BlockReason, ContextId, EventSource, FrameKind, Limit, StackEnd, StackId, State, Unit,
};

use super::super::import::{About, Import, Kind};
use super::super::{Read, ReadError};
use super::chunk::{Chunk, Type, Value};

/// What is read of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    /// Time: samples and waiting.
    Time,
    /// Bytes allocated.
    Allocation,
    /// One kind of event, counted.
    Event(String),
}

/// Events of waiting, and for what.
const WAITS: &[(&str, BlockReason)] = &[
    ("jdk.JavaMonitorEnter", BlockReason::Lock),
    ("jdk.JavaMonitorWait", BlockReason::Lock),
    ("jdk.ThreadPark", BlockReason::Lock),
    ("jdk.ThreadSleep", BlockReason::Timer),
    ("jdk.FileRead", BlockReason::Disk),
    ("jdk.FileWrite", BlockReason::Disk),
    ("jdk.FileForce", BlockReason::Disk),
    ("jdk.SocketRead", BlockReason::Network),
    ("jdk.SocketWrite", BlockReason::Network),
];

/// Events of allocation, and the field with their weight.
const ALLOCATIONS: &[(&str, &str)] = &[
    ("jdk.ObjectAllocationSample", "weight"),
    ("jdk.ObjectAllocationInNewTLAB", "tlabSize"),
    ("jdk.ObjectAllocationOutsideTLAB", "allocationSize"),
];

const EXECUTION: &str = "jdk.ExecutionSample";
const WALL: &str = "profiler.WallClockSample";

/// Collects samples from chunk to chunk.
pub(super) struct Samples {
    to: Import,
    choice: Choice,
    /// Events by name: how many there were.
    seen: BTreeMap<String, u64>,
    /// The period of execution samples, ns, once the file has said it.
    period: Option<u64>,
    /// Execution samples before the period was known.
    early: Vec<(ContextId, StackId, Kind, Option<u64>)>,
    wall: Option<bool>,
    damaged: u64,
}

impl Samples {
    pub(super) fn new(memory: u64, asked: Option<String>) -> Samples {
        Samples {
            to: Import::new(memory),
            choice: match asked.as_deref() {
                None | Some("time") => Choice::Time,
                Some("allocation") => Choice::Allocation,
                Some(name) => Choice::Event(name.to_string()),
            },
            seen: BTreeMap::new(),
            period: None,
            early: Vec::new(),
            wall: None,
            damaged: 0,
        }
    }

    /// Reads the events of a chunk.
    pub(super) fn chunk(&mut self, chunk: &Chunk) -> Result<(), ReadError> {
        let mut reader = InChunk {
            chunk,
            stacks: FxHashMap::default(),
            threads: FxHashMap::default(),
        };
        self.settings(chunk);
        let ids: FxHashMap<u64, &Type> = chunk.types.iter().map(|(id, t)| (*id, t)).collect();
        let has_wall = chunk
            .events()
            .any(|(k, _)| ids.get(&k).is_some_and(|t| t.name == WALL));
        let wall = *self.wall.get_or_insert(has_wall);
        for (kind, bytes) in chunk.events() {
            let Some(t) = ids.get(&kind).filter(|_| kind > 1) else {
                continue;
            };
            match self.seen.get_mut(&t.name) {
                Some(n) => *n += 1,
                None => {
                    self.seen.insert(t.name.clone(), 1);
                }
            }
            if !self.wants(&t.name, wall) {
                continue;
            }
            let Some(fields) = chunk.event(kind, bytes) else {
                self.damaged += 1;
                continue;
            };
            self.event(&mut reader, t, &fields, wall)?;
        }
        Ok(())
    }

    fn wants(&self, name: &str, wall: bool) -> bool {
        match &self.choice {
            Choice::Time if wall => name == WALL,
            Choice::Time => name == EXECUTION || WAITS.iter().any(|(n, _)| *n == name),
            Choice::Allocation => ALLOCATIONS.iter().any(|(n, _)| *n == name),
            Choice::Event(asked) => name == asked,
        }
    }

    /// The sampling period, as the settings in the file say it.
    fn settings(&mut self, chunk: &Chunk) {
        let Some((setting, t)) = chunk
            .types
            .iter()
            .find(|(_, t)| t.name == "jdk.ActiveSetting")
        else {
            return;
        };
        for (_, bytes) in chunk.events().filter(|(k, _)| k == setting) {
            let Some(fields) = chunk.event(*setting, bytes) else {
                continue;
            };
            let field = |name: &str| t.field(name).and_then(|i| fields.get(i));
            let words = |name: &str| field(name).map_or("", |v| chunk.words(v));
            let of = match field("id") {
                Some(Value::Number(id)) => chunk.types.get(&(*id as u64)),
                _ => None,
            };
            let of = of.map_or("", |t| t.name.as_str());
            match words("name") {
                "period" if of == EXECUTION => self.period = self.period.or(length(words("value"))),
                // async-profiler's, in ns.
                "interval" if of == EXECUTION || of == WALL => {
                    let interval = words("value").parse().ok().filter(|n| *n > 0);
                    self.period = interval.or(self.period);
                }
                _ => {}
            }
        }
    }

    fn event(
        &mut self,
        reader: &mut InChunk,
        t: &Type,
        fields: &[Value],
        wall: bool,
    ) -> Result<(), ReadError> {
        let chunk = reader.chunk;
        let field = |name: &str| {
            t.field(name)
                .and_then(|i| fields.get(i))
                .unwrap_or(&Value::Null)
        };
        let number = |name: &str| match field(name) {
            Value::Number(n) => *n,
            _ => 0,
        };
        let thread = match field("sampledThread") {
            Value::Null => field("eventThread"),
            v => v,
        };
        let context = reader.thread(thread, &mut self.to)?;
        let stack = reader.stack(field("stackTrace"), &mut self.to)?;
        let time = Some(chunk.time(number("startTime"))).filter(|t| *t > 0);
        let state = chunk.words(field("state"));
        match &self.choice {
            Choice::Time if wall => {
                let kind = Kind::of(match state {
                    "STATE_SLEEPING" => State::Blocked,
                    _ => State::Unknown,
                });
                let n = number("samples").max(1) as u64;
                let period = self.period.unwrap_or(1);
                let value = period.saturating_mul(n);
                self.to.sample(context, stack, kind, None, (n, value), time)
            }
            Choice::Time if t.name == EXECUTION => {
                // async-profiler's wall-clock mode once wrote sleeping threads so.
                let kind = Kind::of(match state {
                    "STATE_SLEEPING" => State::Blocked,
                    _ => State::OnCpu,
                });
                match self.period {
                    Some(p) => self.to.sample(context, stack, kind, None, (1, p), time),
                    None => {
                        self.early.push((context, stack, kind, time));
                        Ok(())
                    }
                }
            }
            Choice::Time => {
                let reason = WAITS.iter().find(|(n, _)| *n == t.name).map(|(_, r)| *r);
                let kind = Kind {
                    reason,
                    ..Kind::of(State::Blocked)
                };
                let length = chunk.length(number("duration"));
                self.to
                    .sample(context, stack, kind, None, (1, length), time)
            }
            Choice::Allocation => {
                let weight = ALLOCATIONS.iter().find(|(n, _)| *n == t.name);
                let bytes = weight.map_or(0, |(_, field)| number(field)).max(0) as u64;
                let kind = Kind::of(State::Unknown);
                self.to.sample(context, stack, kind, None, (1, bytes), time)
            }
            Choice::Event(_) => {
                let kind = Kind::of(State::Unknown);
                self.to.sample(context, stack, kind, None, (1, 1), time)
            }
        }
    }

    /// The recording.
    pub(super) fn finish(mut self, mut warnings: Vec<String>) -> Result<Read, ReadError> {
        let unknown_period = self.period.is_none() && !self.early.is_empty();
        let other_time = !self.to.is_empty();
        let mut unit = match &self.choice {
            Choice::Time => Unit::Nanoseconds,
            Choice::Allocation => Unit::Bytes,
            Choice::Event(name) => Unit::Count(name.clone()),
        };
        if unknown_period && other_time {
            warnings.push(format!(
                "the period of its {} execution samples is not in the file, so they are no time and \
                 were left out: --value {EXECUTION} counts them",
                self.early.len()
            ));
        } else {
            for (context, stack, kind, time) in std::mem::take(&mut self.early) {
                let value = self.period.unwrap_or(1);
                self.to
                    .sample(context, stack, kind, None, (1, value), time)?;
            }
            if unknown_period {
                unit = Unit::Count("samples".to_string());
            }
        }
        if self.damaged > 0 {
            warnings.push(format!(
                "{} events are damaged, and were left out",
                self.damaged
            ));
        }
        let stacked: Vec<String> = self
            .seen
            .iter()
            .filter(|(name, _)| !matches!(name.as_str(), "jdk.ActiveSetting"))
            .map(|(name, n)| format!("{name} ({n})"))
            .collect();
        if self.to.is_empty() {
            return Err(match self.choice {
                Choice::Time => ReadError::NoValues,
                Choice::Allocation => ReadError::NoSuchValue {
                    asked: "allocation".to_string(),
                    have: stacked.join(", "),
                },
                Choice::Event(asked) => ReadError::NoSuchValue {
                    asked,
                    have: stacked.join(", "),
                },
            });
        }
        let mut limits = Vec::new();
        if self.choice == Choice::Time && self.wall != Some(true) {
            limits.push(Limit {
                what:
                    "waiting shorter than the recorder's threshold (10 or 20 ms by default) is not \
                       in the file, and native code is not sampled as computing"
                        .to_string(),
                remedy: "record with wallscope, or lower the thresholds".to_string(),
            });
            limits.push(Limit {
                what:
                    "the JDK samples at most a few threads at each tick: with many busy ones their \
                       time comes out too small"
                        .to_string(),
                remedy: "record with wallscope".to_string(),
            });
        }
        let mut notes = Vec::new();
        if self
            .seen
            .keys()
            .any(|n| ALLOCATIONS.iter().any(|(a, _)| a == n))
        {
            notes.push("the file holds allocations too: --value allocation".to_string());
        }
        let rate = self.period.map(|p| format!("every {} µs", p / 1000));
        let events = rate.map(|rate| EventSource {
            what: "stacks".to_string(),
            event: if self.wall == Some(true) {
                WALL
            } else {
                EXECUTION
            }
            .to_string(),
            rate,
        });
        let values = match &self.choice {
            Choice::Time if self.wall == Some(true) => "wall-clock samples".to_string(),
            Choice::Time => "execution samples, and lengths of waiting".to_string(),
            Choice::Allocation => "weights of allocations".to_string(),
            Choice::Event(name) => format!("events {name}"),
        };
        let about = About {
            tool: "Java Flight Recorder".to_string(),
            format: "a Java flight recording".to_string(),
            values,
            unit,
            limits,
            notes,
            events: events.into_iter().collect(),
            ..About::default()
        };
        Ok(Read::named(self.to.finish(about), warnings))
    }
}

/// A length as settings write it: `20 ms`.
fn length(text: &str) -> Option<u64> {
    let (n, unit) = text.trim().split_once(' ')?;
    let n: u64 = n.parse().ok()?;
    let factor = match unit.trim() {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    n.checked_mul(factor).filter(|n| *n > 0)
}

/// What was met before in a chunk: its constants' numbers mean other things in the next.
struct InChunk<'c, 'b> {
    chunk: &'c Chunk<'b>,
    stacks: FxHashMap<u64, StackId>,
    threads: FxHashMap<u64, ContextId>,
}

impl InChunk<'_, '_> {
    fn thread(&mut self, value: &Value, to: &mut Import) -> Result<ContextId, ReadError> {
        let key = match value {
            Value::Constant(_, id) => Some(*id),
            _ => None,
        };
        if let Some(id) = key.and_then(|k| self.threads.get(&k)) {
            return Ok(*id);
        }
        let part = |name: &str| self.chunk.part(value, "java.lang.Thread", name);
        let java = self.chunk.words(part("javaName"));
        let os = self.chunk.words(part("osName"));
        let tid = match part("osThreadId") {
            Value::Number(n) => u32::try_from(*n).unwrap_or(0),
            _ => 0,
        };
        let id = to.context(0, tid, if java.is_empty() { os } else { java }, "")?;
        if let Some(k) = key {
            self.threads.insert(k, id);
        }
        Ok(id)
    }

    fn stack(&mut self, value: &Value, to: &mut Import) -> Result<StackId, ReadError> {
        let key = match value {
            Value::Constant(_, id) => *id,
            _ => 0,
        };
        if let Some(id) = self.stacks.get(&key) {
            return Ok(*id);
        }
        let chunk = self.chunk;
        let mut frames = Vec::new();
        const FRAME: &str = "jdk.types.StackFrame";
        const METHOD: &str = "jdk.types.Method";
        if let Value::List(list) = chunk.part(value, "jdk.types.StackTrace", "frames") {
            for f in list {
                let method = chunk.part(f, FRAME, "method");
                let class = chunk.part(method, METHOD, "type");
                let class = chunk.words(chunk.part(class, "java.lang.Class", "name"));
                let name = chunk.words(chunk.part(method, METHOD, "name"));
                let line = match chunk.part(f, FRAME, "lineNumber") {
                    Value::Number(n) => u32::try_from(*n).unwrap_or(0),
                    _ => 0,
                };
                let kind = match chunk.words(chunk.part(f, FRAME, "type")) {
                    "Kernel" => FrameKind::Kernel,
                    "Native" | "C++" => FrameKind::Native,
                    _ => FrameKind::Jit,
                };
                let name = match (class, name) {
                    ("", "") => "[unknown]".to_string(),
                    ("", name) => name.to_string(),
                    (class, name) => format!("{}.{name}", class.replace('/', ".")),
                };
                frames.push(to.named(kind, None, &name, "", line)?);
            }
        }
        let cut = chunk.part(value, "jdk.types.StackTrace", "truncated") == &Value::Number(1);
        let end = if cut {
            StackEnd::MaxFrames
        } else {
            StackEnd::Root
        };
        let id = to.stack(&frames, end)?;
        self.stacks.insert(key, id);
        Ok(id)
    }
}
