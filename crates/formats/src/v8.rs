//! V8's `.cpuprofile` (`node --cpu-prof`, Chrome DevTools) → recording.
//!
//! A sample's value is the time to the next one, as DevTools shows it. V8 samples its thread
//! whatever it does, so the state is not known, but for `(idle)`: there it waits for work.

use rustc_hash::FxHashMap;
use serde::Deserialize;
use wallscope_model::{FrameId, FrameKind, Limit, StackEnd, StackId, State, Unit, Window};

use super::import::{About, Import, Kind};
use super::source::Source;
use super::{Options, Read, ReadError, json};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    nodes: Vec<Node>,
    #[serde(default)]
    start_time: f64,
    #[serde(default)]
    end_time: f64,
    #[serde(default)]
    samples: Vec<i64>,
    #[serde(default)]
    time_deltas: Vec<f64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    id: i64,
    #[serde(default)]
    call_frame: CallFrame,
    #[serde(default)]
    hit_count: u64,
    #[serde(default)]
    children: Vec<i64>,
    parent: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct CallFrame {
    function_name: String,
    url: String,
    /// From 0.
    line_number: i64,
}

/// Whether it is V8's.
pub(super) fn detect(head: &[u8]) -> bool {
    json::start(head) == Some(b'{')
        && ["\"nodes\"", "\"callFrame\""]
            .iter()
            .all(|k| json::has(head, k))
}

/// Reads a `.cpuprofile`.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let (file, warnings): (File, _) = json::parse(source)?;
    let mut to = Import::new(memory);
    let mut parents: FxHashMap<i64, i64> = FxHashMap::default();
    let mut frames: FxHashMap<i64, (FrameId, bool)> = FxHashMap::default();
    for n in &file.nodes {
        for child in &n.children {
            parents.insert(*child, n.id);
        }
        if let Some(parent) = n.parent {
            parents.insert(n.id, parent);
        }
        let f = &n.call_frame;
        let name = match f.function_name.as_str() {
            "" => "(anonymous)",
            name => name,
        };
        let line = u32::try_from(f.line_number + 1).unwrap_or(0);
        let kind = if f.url.is_empty() {
            FrameKind::Native
        } else {
            FrameKind::Jit
        };
        let frame = to.named(kind, None, name, &f.url, line)?;
        frames.insert(n.id, (frame, name == "(idle)"));
    }
    let context = to.thread(0, 0, "", "")?;
    let mut stacks: FxHashMap<i64, (StackId, bool)> = FxHashMap::default();
    let mut stack_of = |id: i64, to: &mut Import| -> Result<(StackId, bool), ReadError> {
        if let Some(known) = stacks.get(&id) {
            return Ok(*known);
        }
        let mut path = Vec::new();
        let mut at = Some(id);
        // A cycle would go on for ever: no path is longer than there are nodes.
        while let Some((n, (frame, _))) = at.and_then(|n| Some((n, frames.get(&n)?))) {
            if path.len() > frames.len() {
                return Err(ReadError::Damaged {
                    what: format!("node {id} is its own caller"),
                });
            }
            path.push(*frame);
            at = parents.get(&n).copied();
        }
        if path.len() > 1 {
            // All are called by (root), which is no function.
            path.pop();
        }
        let idle = frames.get(&id).is_some_and(|(_, idle)| *idle);
        let stack = (to.stack(&path, StackEnd::Root)?, idle);
        stacks.insert(id, stack);
        Ok(stack)
    };
    let counted = options.value.as_deref() == Some("samples") || file.time_deltas.is_empty();
    let kind = |idle: bool| Kind {
        idle,
        ..Kind::of(if idle { State::Blocked } else { State::Unknown })
    };
    if file.samples.is_empty() {
        for n in file.nodes.iter().filter(|n| n.hit_count > 0) {
            let (stack, idle) = stack_of(n.id, &mut to)?;
            to.sample(
                context,
                stack,
                kind(idle),
                None,
                (n.hit_count, n.hit_count),
                None,
            )?;
        }
    }
    let mut at = file.start_time;
    for (i, node) in file.samples.iter().enumerate() {
        at += file.time_deltas.get(i).copied().unwrap_or(0.0).max(0.0);
        let next = file
            .time_deltas
            .get(i + 1)
            .map_or(file.end_time, |d| at + d.max(0.0));
        let from = json::whole(at, 1e3);
        let value = json::whole(next, 1e3).saturating_sub(from);
        let (stack, idle) = stack_of(*node, &mut to)?;
        let (value, time) = if counted {
            (1, None)
        } else {
            (value, Some(from))
        };
        to.sample(context, stack, kind(idle), None, (1, value), time)?;
    }
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    to.window(Window {
        start_ns: json::whole(file.start_time, 1e3),
        end_ns: json::whole(file.end_time, 1e3),
        clock: "V8's monotonic clock".to_string(),
        start_unix_ns: 0,
    });
    let about = About {
        tool: "V8".to_string(),
        format: "V8's .cpuprofile".to_string(),
        values: "samples, each with the time to the next one".to_string(),
        unit: if counted {
            Unit::Count("samples".to_string())
        } else {
            Unit::Nanoseconds
        },
        limits: vec![Limit {
            what: "whether JavaScript was computing or waiting within native code is not known: \
                   only (idle) is told"
                .to_string(),
            remedy: String::new(),
        }],
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}
