//! V8's `.cpuprofile` (`node --cpu-prof`, Chrome DevTools) and `.heapprofile` → recording.
//!
//! Layouts known: `nodes` with `samples` and `timeDeltas` (µs; the inspector protocol since 2016);
//! the older tree under `head` with `samples` and `timestamps` (µs, its `startTime` in seconds);
//! either with counts of samples alone; the sampling heap profile (`head` with `selfSize`). CPU profiles
//! inside DevTools traces are read by [`super::trace_event`], with the tree and the times of this module.
//!
//! A sample lasts until the next one, as DevTools shows it (`times`). Samples without times are
//! counts. V8 samples its thread in every state, so the state is unknown; only `(idle)` means that
//! the thread waits for work.

mod flatten;
mod times;
mod tree;

use rustc_hash::FxHashMap;
use serde::Deserialize;
use wallscope_model::{ContextId, Limit, StackEnd, StackId, State, Unit, Window};

use super::import::{About, Amount, Import, SampleTime};
use super::source::Source;
use super::{Options, Read, ReadError, json};

pub(super) use times::Times;
pub(super) use tree::{CallTree, Node, TreeStack};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(default)]
    nodes: Vec<Node>,
    /// µs.
    start_time: Option<f64>,
    end_time: Option<f64>,
    #[serde(default)]
    samples: Vec<i64>,
    time_deltas: Option<Vec<f64>>,
}

/// The inspector's answer to `Profiler.stop`, whole or its result alone.
#[derive(Deserialize)]
struct Answer {
    result: Option<Stopped>,
    profile: Option<File>,
}

#[derive(Deserialize)]
struct Stopped {
    profile: Option<File>,
}

impl Answer {
    fn profile(self) -> Option<File> {
        self.result.and_then(|r| r.profile).or(self.profile)
    }
}

/// A file with a tree under `head`, without the tree.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadFile {
    /// s.
    start_time: Option<f64>,
    end_time: Option<f64>,
    /// Ids of nodes; objects in a heap profile.
    #[serde(default)]
    samples: Vec<serde_json::Value>,
    /// µs.
    timestamps: Option<Vec<f64>>,
}

impl HeadFile {
    /// The nodes of the samples.
    fn nodes(&self) -> Result<Vec<i64>, ReadError> {
        let nodes = self.samples.iter().map(serde_json::Value::as_i64);
        let nodes: Option<Vec<i64>> = nodes.collect();
        nodes.ok_or_else(|| ReadError::Damaged {
            what: "a sample is no number of a node".to_string(),
        })
    }
}

/// A node under `head`: of a CPU profile, or of a heap profile.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HeadNode {
    id: Option<i64>,
    function_name: Option<String>,
    url: Option<String>,
    /// Line of the function, counted from 1.
    line_number: Option<i64>,
    call_frame: Option<tree::CallFrame>,
    hit_count: Option<u64>,
    /// Bytes.
    self_size: Option<f64>,
}

/// Whether it is V8's.
pub(super) fn detect(head: &[u8]) -> bool {
    let all = |keys: &[&str]| keys.iter().all(|k| json::has_key(head, k));
    json::start(head) == Some(b'{')
        // DevTools traces hold profiles too.
        && !json::has_key(head, "traceEvents")
        && (all(&["nodes", "callFrame"])
            || all(&["head", "functionName", "children"])
            || all(&["head", "callFrame", "selfSize"]))
}

/// Reads a profile.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let nested = json::has_key(source.head(), "head") && !json::has_key(source.head(), "nodes");
    let mut profile = if nested {
        Profile::nested(source)?
    } else {
        Profile::flat(source)?
    };
    let counted = match options.value.as_deref() {
        Some("samples") => true,
        Some(asked) if asked != profile.unit().name() => {
            return Err(ReadError::NoSuchValue {
                asked: asked.to_string(),
                have: format!("{}, samples", profile.unit().name()),
            });
        }
        _ => false,
    };
    profile.give(counted)?;
    if profile.to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let unit = match counted {
        true => Unit::Count("samples".to_string()),
        false => profile.unit(),
    };
    profile.warn(source.cut(), &unit)?;
    let about = About {
        tool: "V8".to_string(),
        format: profile.format.to_string(),
        values: match &unit {
            Unit::Nanoseconds => "samples, each with the time to the next one",
            Unit::Bytes => "sampled allocations that are still in use",
            Unit::Count(_) => "samples",
        }
        .to_string(),
        limits: vec![limit(&unit)],
        unit,
        ..About::default()
    };
    profile.to.window(profile.window);
    Ok(Read::named(profile.to.finish(about), profile.warnings))
}

/// The limit of V8's samples.
fn limit(unit: &Unit) -> Limit {
    let what = match unit {
        Unit::Bytes => "memory that was freed before the end is not in the file",
        _ => {
            "whether JavaScript was computing or waiting within native code is not known: only \
             (idle) is told"
        }
    };
    Limit {
        what: what.to_string(),
        remedy: String::new(),
    }
}

/// Limits and the state of V8's CPU samples, for files that hold them beside other things.
pub(super) fn cpu_limit() -> Limit {
    limit(&Unit::Nanoseconds)
}

/// Kind of a sample of the idle program.
pub(super) const IDLE: SampleTime = SampleTime {
    idle: true,
    ..SampleTime::of(State::Blocked)
};

/// Kind of any other sample: V8 does not tell whether the thread ran.
pub(super) const NOT_IDLE: SampleTime = SampleTime::of(State::Unknown);

/// The stack of a sample and how it ended.
pub(super) fn end(stack: &TreeStack) -> StackEnd {
    if stack.broken {
        StackEnd::Lost
    } else {
        StackEnd::Root
    }
}

/// The values of a profile.
enum Values {
    Times(Times),
    /// Samples without times.
    Samples(Vec<i64>),
    /// A node and its number of samples.
    Hits(Vec<(i64, u64)>),
    /// A node and its bytes.
    Bytes(Vec<(i64, u64)>),
}

/// The stack of a node.
#[derive(Clone, Copy)]
struct NodeStack {
    id: StackId,
    idle: bool,
    broken: bool,
}

/// A profile in the making.
struct Profile {
    to: Import,
    context: ContextId,
    tree: CallTree,
    /// Stacks by their nodes.
    stacks: FxHashMap<i64, NodeStack>,
    values: Values,
    format: &'static str,
    window: Window,
    warnings: Vec<String>,
    /// Samples of nodes that are not in the tree.
    broken: u64,
}

impl Profile {
    fn new(memory: u64, format: &'static str) -> Result<Profile, ReadError> {
        let mut to = Import::new(memory);
        Ok(Profile {
            context: to.thread(0, 0, "", "")?,
            to,
            tree: CallTree::default(),
            stacks: FxHashMap::default(),
            values: Values::Samples(Vec::new()),
            format,
            window: Window::default(),
            warnings: Vec::new(),
            broken: 0,
        })
    }

    /// The list of nodes of the inspector protocol.
    fn flat(source: &mut Source) -> Result<Profile, ReadError> {
        let memory = source.bounds().memory;
        let bytes = source.bytes()?;
        let (mut file, warnings): (File, _) = json::parse_bytes(&bytes, source)?;
        if file.nodes.is_empty() {
            let (answer, _): (Answer, _) = json::parse_bytes(&bytes, source)?;
            file = answer.profile().unwrap_or(file);
        }
        let mut p = Profile::new(memory, "V8's .cpuprofile")?;
        p.warnings = warnings;
        for node in &file.nodes {
            p.tree.add(node, &mut p.to)?;
        }
        let start = file.start_time.unwrap_or(0.0);
        p.values = match file.time_deltas.filter(|d| !d.is_empty()) {
            _ if file.samples.is_empty() => {
                let hits = file.nodes.iter().map(|n| (n.id, n.hit_count));
                Values::Hits(hits.collect())
            }
            Some(deltas) => Values::Times(Times::from_deltas(
                &file.samples,
                &deltas,
                (start, file.end_time),
            )),
            None => Values::Samples(file.samples),
        };
        p.place(start, file.end_time);
        Ok(p)
    }

    /// The tree under `head`.
    fn nested(source: &mut Source) -> Result<Profile, ReadError> {
        let memory = source.bounds().memory;
        let bytes = source.bytes()?;
        let (flat, cut) = match flatten::flatten(&bytes) {
            Some(flat) => (flat, false),
            None => {
                let flat = flatten::flatten(&json::close(&bytes)).ok_or(ReadError::Truncated)?;
                source.set_cut();
                (flat, true)
            }
        };
        let damaged = |e: serde_json::Error| ReadError::Damaged {
            what: e.to_string(),
        };
        let file: HeadFile = serde_json::from_slice(&flat.rest).map_err(damaged)?;
        let mut p = Profile::new(memory, "V8's .cpuprofile with a tree under head")?;
        if cut {
            p.warnings.push(json::CUT.to_string());
        }
        let (mut hits, mut sizes) = (Vec::new(), Vec::new());
        // Nodes of the oldest files have no ids: their place in the file tells them apart.
        let mut ids = Vec::with_capacity(flat.nodes.len());
        for (i, node) in flat.nodes.iter().enumerate() {
            let head: HeadNode = serde_json::from_slice(&node.json).map_err(damaged)?;
            let id = head.id.unwrap_or(-1 - i as i64);
            ids.push(id);
            p.head_node(&head, id)?;
            if let Some(parent) = node.parent {
                p.tree.call(ids[parent], id);
            }
            hits.extend(head.hit_count.map(|n| (id, n)));
            sizes.extend(head.self_size.map(|n| (id, json::whole(n, 1.0))));
        }
        if !sizes.is_empty() {
            p.format = "V8's .heapprofile";
            p.values = Values::Bytes(sizes);
            return Ok(p);
        }
        p.values = match file.timestamps.as_ref().filter(|t| !t.is_empty()) {
            _ if file.samples.is_empty() => Values::Hits(hits),
            Some(times) => {
                let (start, end) = head_window(&file.start_time, &file.end_time, times);
                p.place(start.unwrap_or(times[0]), end);
                Values::Times(Times::from_times(&file.nodes()?, times, end))
            }
            None => Values::Samples(file.nodes()?),
        };
        Ok(p)
    }

    fn head_node(&mut self, node: &HeadNode, id: i64) -> Result<(), ReadError> {
        let (name, url, line) = match &node.call_frame {
            // Line numbers count from 0 here.
            Some(f) => (&f.function_name, &f.url, f.line_number.map(|l| l + 1)),
            None => (&node.function_name, &node.url, node.line_number),
        };
        let line = line.and_then(|l| u32::try_from(l).ok()).unwrap_or(0);
        let url = url.as_deref().unwrap_or_default();
        self.tree
            .function(id, name.as_deref(), (url, line), &mut self.to)
    }

    /// The window, µs.
    fn place(&mut self, start: f64, end: Option<f64>) {
        let start_ns = json::whole(start, 1e3);
        self.window = Window {
            start_ns,
            end_ns: end.map_or(start_ns, |end| json::whole(end, 1e3)),
            clock: "V8's monotonic clock".to_string(),
            start_unix_ns: 0,
        };
    }

    fn unit(&self) -> Unit {
        match self.values {
            Values::Times(_) => Unit::Nanoseconds,
            Values::Bytes(_) => Unit::Bytes,
            Values::Samples(_) | Values::Hits(_) => Unit::Count("samples".to_string()),
        }
    }

    /// Gives all samples to the recording, as counts where `counted`.
    fn give(&mut self, counted: bool) -> Result<(), ReadError> {
        match std::mem::replace(&mut self.values, Values::Samples(Vec::new())) {
            Values::Times(mut times) => {
                // Times below zero are shifted: a recording has no such times.
                if let Some(first) = times.first().filter(|first| *first < 0.0) {
                    times.shift(-first);
                }
                for s in &times.samples {
                    let from = json::whole(s.start, 1e3);
                    let to = s.end.map_or(from, |end| json::whole(end, 1e3));
                    if counted {
                        self.sample(s.node, (1, 1), None)?;
                    } else {
                        self.sample(s.node, (1, to.saturating_sub(from)), Some(from))?;
                    }
                }
                self.values = Values::Times(times);
            }
            Values::Samples(nodes) => {
                for node in &nodes {
                    self.sample(*node, (1, 1), None)?;
                }
                self.values = Values::Samples(nodes);
            }
            Values::Hits(hits) => {
                for (node, n) in hits.iter().filter(|(_, n)| *n > 0) {
                    self.sample(*node, (*n, *n), None)?;
                }
                self.values = Values::Hits(hits);
            }
            Values::Bytes(sizes) => {
                for (node, bytes) in sizes.iter().filter(|(_, n)| *n > 0) {
                    let value = if counted { 1 } else { *bytes };
                    self.sample(*node, (1, value), None)?;
                }
                self.values = Values::Bytes(sizes);
            }
        }
        Ok(())
    }

    fn sample(&mut self, node: i64, value: (u64, u64), time: Option<u64>) -> Result<(), ReadError> {
        let stack = match self.stacks.get(&node) {
            Some(known) => *known,
            None => {
                let stack = self.tree.stack(node)?;
                let new = NodeStack {
                    id: self.to.stack(&stack.frames, end(&stack))?,
                    idle: stack.idle,
                    broken: stack.broken,
                };
                self.stacks.insert(node, new);
                new
            }
        };
        self.broken += u64::from(stack.broken);
        let kind = if stack.idle { IDLE } else { NOT_IDLE };
        self.to
            .sample(self.context, stack.id, kind, Amount::new(value, time))
    }

    /// Warns about missing parts. A whole file that refers to nodes it does not have is damaged.
    fn warn(&mut self, cut: bool, unit: &Unit) -> Result<(), ReadError> {
        if self.broken > 0 && !cut {
            return Err(ReadError::Damaged {
                what: format!("{} samples are of nodes that it does not hold", self.broken),
            });
        }
        if self.broken > 0 {
            let broken = self.broken;
            self.warnings
                .push(format!("{broken} samples are of nodes that were cut off"));
        }
        if let (Values::Times(times), Unit::Nanoseconds) = (&self.values, unit) {
            if let Some(warning) = unended(times) {
                self.warnings.push(warning);
            }
            if times.untimed > 0 {
                self.warnings.push(format!(
                    "{} samples have no time and were left out: --value samples counts all",
                    times.untimed
                ));
            }
        }
        Ok(())
    }
}

/// A warning about samples without a length in the file.
pub(super) fn unended(times: &Times) -> Option<String> {
    let open = times.without_length() - times.untimed;
    (open > 0).then(|| {
        format!("the length of {open} samples is not in the file (nothing follows them): it is taken as 0")
    })
}

/// Start and end of a file with a tree under `head`, µs. The file has them in seconds; some writers give µs.
/// They are used only if the samples' times lie between them.
fn head_window(
    start: &Option<f64>,
    end: &Option<f64>,
    times: &[f64],
) -> (Option<f64>, Option<f64>) {
    let first = times.iter().copied().fold(f64::INFINITY, f64::min);
    let last = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for unit in [1e6, 1.0] {
        let (start, end) = (start.map(|t| t * unit), end.map(|t| t * unit));
        // Seconds written with few digits may lose a microsecond.
        let fits = start.is_some_and(|t| t <= first + 1.0) && end.is_some_and(|t| t >= last - 1.0);
        // Seconds taken for microseconds never enclose a time of the same clock.
        if fits && end.is_some_and(|end| end - last < 1e9) {
            return (start, end.map(|end| end.max(last)));
        }
    }
    (None, None)
}
