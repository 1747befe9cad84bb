//! A trace file as it is written: events, and beside them samples with their stacks.

use std::collections::HashMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::super::source::Source;
use super::super::{ReadError, json};

/// The object form.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Trace {
    #[serde(default)]
    pub trace_events: Vec<Event>,
    #[serde(default)]
    pub samples: Vec<Sample>,
    #[serde(default)]
    pub stack_frames: HashMap<String, StackFrame>,
}

/// An event of any kind.
#[derive(Deserialize)]
pub(super) struct Event {
    #[serde(default, deserialize_with = "text")]
    pub ph: String,
    #[serde(default, deserialize_with = "text")]
    pub name: String,
    /// µs.
    #[serde(default, deserialize_with = "number")]
    pub ts: Option<f64>,
    /// µs.
    #[serde(default, deserialize_with = "number")]
    pub dur: Option<f64>,
    #[serde(default)]
    pub pid: Value,
    #[serde(default)]
    pub tid: Value,
    #[serde(default)]
    pub id: Value,
    /// An id that holds within the process.
    #[serde(default)]
    pub id2: Value,
    #[serde(default)]
    pub args: Value,
}

/// An entry of `samples`.
#[derive(Deserialize)]
pub(super) struct Sample {
    #[serde(default, deserialize_with = "number")]
    pub ts: Option<f64>,
    #[serde(default)]
    pub pid: Value,
    #[serde(default)]
    pub tid: Value,
    /// The innermost frame, a key of `stackFrames`.
    #[serde(default)]
    pub sf: Value,
    #[serde(default, deserialize_with = "number")]
    pub weight: Option<f64>,
}

/// An entry of `stackFrames`.
#[derive(Deserialize)]
pub(super) struct StackFrame {
    #[serde(default, deserialize_with = "text")]
    pub name: String,
    #[serde(default)]
    pub parent: Value,
}

/// Some writers give numbers as texts. `None`: absent, or no number.
fn number<'de, D: Deserializer<'de>>(d: D) -> Result<Option<f64>, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::Number(n) => n.as_f64(),
        Value::String(s) => s.parse().ok().filter(|v: &f64| v.is_finite()),
        _ => None,
    })
}

/// Some writers give `null` or a number instead of a name.
fn text<'de, D: Deserializer<'de>>(d: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(d)? {
        Value::String(s) => s,
        Value::Null => String::new(),
        other => other.to_string(),
    })
}

/// An id as a text; `None` where there is none.
pub(super) fn key(value: &Value) -> Option<String> {
    match value {
        Value::Number(n) => Some(n.to_string()),
        Value::String(s) => Some(s.clone()),
        Value::Object(o) => o.get("local").or(o.get("global")).and_then(key),
        _ => None,
    }
}

impl Event {
    /// The id of the thing that the event is about.
    pub(super) fn key(&self) -> Option<String> {
        key(&self.id).or_else(|| key(&self.id2))
    }
}

/// Numbers of processes and threads.
#[derive(Default)]
pub(super) struct Ids {
    others: FxHashMap<String, u32>,
}

impl Ids {
    /// Returns the number of an id. Ids are numbers or texts of any size: one that is no number of 32 bits gets a
    /// number that only distinguishes it from the others.
    pub(super) fn number(&mut self, value: &Value) -> u32 {
        let Some(text) = key(value) else { return 0 };
        text.parse().unwrap_or_else(|_| {
            let next = u32::MAX - self.others.len() as u32;
            *self.others.entry(text).or_insert(next)
        })
    }
}

/// Parses either form of a file.
pub(super) fn parse(source: &mut Source) -> Result<(Trace, Vec<String>), ReadError> {
    match json::start(source.head()) {
        Some(b'{') => json::parse(source),
        _ => {
            let (trace_events, warnings) = json::parse(source)?;
            let trace = Trace {
                trace_events,
                samples: Vec::new(),
                stack_frames: HashMap::new(),
            };
            Ok((trace, warnings))
        }
    }
}
