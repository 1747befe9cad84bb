//! A processed profile → recording.

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use wallscope_model::{Frame, FrameId, FrameKind, Limit, StackEnd, StackId, State, Unit, Window};

use super::super::import::{About, Import, Kind};
use super::super::source::Source;
use super::super::{Options, Read, ReadError, json};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    meta: Meta,
    #[serde(default)]
    libs: Vec<Lib>,
    #[serde(default)]
    threads: Vec<Thread>,
    /// Newer files have the tables of all threads in one place.
    #[serde(default)]
    shared: Option<Tables>,
}

/// A file that code came from.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Lib {
    name: String,
    path: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    /// ms.
    interval: f64,
    /// ms since the epoch.
    start_time: f64,
    product: String,
    sample_units: Option<SampleUnits>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SampleUnits {
    #[serde(rename = "threadCPUDelta")]
    cpu: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    #[serde(default)]
    name: String,
    #[serde(default)]
    process_name: Option<String>,
    #[serde(default)]
    pid: Value,
    #[serde(default)]
    tid: Value,
    #[serde(default)]
    samples: Samples,
    #[serde(flatten)]
    tables: Tables,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Samples {
    stack: Vec<Option<u32>>,
    time: Vec<f64>,
    time_deltas: Vec<f64>,
    weight: Option<Vec<Option<f64>>>,
    weight_type: Option<String>,
    #[serde(rename = "threadCPUDelta")]
    cpu: Option<Vec<Option<f64>>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Tables {
    stack_table: StackTable,
    frame_table: FrameTable,
    func_table: FuncTable,
    resource_table: ResourceTable,
    string_array: Vec<String>,
    string_table: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StackTable {
    prefix: Vec<Option<u32>>,
    frame: Vec<u32>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct FrameTable {
    func: Vec<u32>,
    /// In the lib, from its first byte in memory; -1: none.
    address: Vec<Option<i64>>,
    line: Vec<Option<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FuncTable {
    name: Vec<u32>,
    file_name: Vec<Option<u32>>,
    /// -1: none.
    resource: Vec<Option<i64>>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceTable {
    lib: Vec<Option<i64>>,
}

impl Tables {
    /// The lib that a function lies in.
    fn lib<'l>(&self, func: usize, libs: &'l [Lib]) -> Option<&'l Lib> {
        let at =
            |list: &[Option<i64>], i: usize| usize::try_from(list.get(i).copied().flatten()?).ok();
        let resource = at(&self.func_table.resource, func)?;
        libs.get(at(&self.resource_table.lib, resource)?)
    }

    fn string(&self, index: u32) -> &str {
        let list = if self.string_array.is_empty() {
            &self.string_table
        } else {
            &self.string_array
        };
        list.get(index as usize).map_or("", |s| s.as_str())
    }
}

fn id(value: &Value) -> u32 {
    match value {
        Value::Number(n) => n.as_u64().unwrap_or(0) as u32,
        // Some number threads `123.1`.
        Value::String(s) => s
            .split('.')
            .next()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0),
        _ => 0,
    }
}

/// Reads a processed profile.
pub(in super::super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let (file, warnings): (File, _) = json::parse(source)?;
    let mut to = Import::new(memory);
    let cpu_unit = match file.meta.sample_units.as_ref().map(|u| u.cpu.as_str()) {
        Some("ns") => Some(1.0),
        Some("µs" | "us") => Some(1e3),
        // Cycles of a clock that varies are no time.
        _ => None,
    };
    let interval = json::whole(file.meta.interval, 1e6).max(1);
    let mut shared = FxHashMap::default();
    let mut others = 0;
    for thread in &file.threads {
        let samples = &thread.samples;
        if samples.weight_type.as_deref() == Some("bytes") {
            others += 1;
            continue;
        }
        let process = thread.process_name.as_deref().unwrap_or_default();
        let context = to.thread(id(&thread.pid), id(&thread.tid), &thread.name, process)?;
        let mut own = FxHashMap::default();
        let (tables, stacks) = match &file.shared {
            Some(tables) => (tables, &mut shared),
            None => (&thread.tables, &mut own),
        };
        let mut time = 0.0;
        let mut last: Option<u64> = None;
        for (i, stack) in samples.stack.iter().enumerate() {
            time = match samples.time.get(i) {
                Some(t) => *t,
                None => {
                    time + samples
                        .time_deltas
                        .get(i)
                        .copied()
                        .unwrap_or(file.meta.interval)
                }
            };
            let at = json::whole(time.max(0.0), 1e6);
            let gap = last.map_or(interval, |l| at.saturating_sub(l));
            last = Some(at);
            let Some(stack) = stack else { continue };
            let stack = stack_of(*stack, (tables, &file.libs), stacks, &mut to)?;
            let weight = samples
                .weight
                .as_ref()
                .and_then(|w| w.get(i).copied().flatten());
            let weight = weight.unwrap_or(1.0).max(0.0);
            let cpu = samples
                .cpu
                .as_ref()
                .and_then(|c| c.get(i).copied().flatten());
            let unknown = Kind::of(State::Unknown);
            if samples.weight_type.as_deref() == Some("tracing-ms") {
                let value = json::whole(weight, 1e6);
                to.sample(context, stack, unknown, None, (1, value), Some(at))?;
                continue;
            }
            let count = json::whole(weight, 1.0);
            match (cpu, cpu_unit) {
                (Some(delta), Some(unit)) => {
                    let on = json::whole(delta.max(0.0), unit);
                    let rest = gap.max(interval.saturating_mul(count)).saturating_sub(on);
                    if on > 0 {
                        let kind = Kind::of(State::OnCpu);
                        to.sample(context, stack, kind, None, (count, on), Some(at))?;
                    }
                    if rest > 0 {
                        let count = if on > 0 { 0 } else { count };
                        to.sample(context, stack, unknown, None, (count, rest), Some(at))?;
                    }
                }
                _ => {
                    let value = interval.saturating_mul(count);
                    to.sample(context, stack, unknown, None, (count, value), Some(at))?;
                }
            }
        }
    }
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    to.window(Window {
        clock: "the profile's own clock".to_string(),
        start_unix_ns: json::whole(file.meta.start_time, 1e6),
        ..Window::default()
    });
    let mut notes = Vec::new();
    if others > 0 {
        notes.push(format!(
            "{others} threads hold allocations, which were left out"
        ));
    }
    let about = About {
        tool: file.meta.product,
        format: "the Firefox Profiler's".to_string(),
        values: "samples, with the CPU time between them where the file has it".to_string(),
        unit: Unit::Nanoseconds,
        limits: vec![Limit {
            what: "what a thread did when it was not on a CPU is not in the file".to_string(),
            remedy: String::new(),
        }],
        notes,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

fn stack_of(
    stack: u32,
    (t, libs): (&Tables, &[Lib]),
    known: &mut FxHashMap<u32, StackId>,
    to: &mut Import,
) -> Result<StackId, ReadError> {
    if let Some(id) = known.get(&stack) {
        return Ok(*id);
    }
    let mut frames: Vec<FrameId> = Vec::new();
    let mut at = Some(stack);
    while let Some(i) = at.map(|i| i as usize) {
        // No path is longer than the table.
        if frames.len() > t.stack_table.frame.len() {
            return Err(ReadError::Damaged {
                what: format!("stack {stack} is its own caller"),
            });
        }
        let Some(frame) = t.stack_table.frame.get(i).map(|f| *f as usize) else {
            break;
        };
        let func = t
            .frame_table
            .func
            .get(frame)
            .map_or(usize::MAX, |f| *f as usize);
        let name = t
            .func_table
            .name
            .get(func)
            .map_or("[unknown]", |n| t.string(*n));
        let file = t.func_table.file_name.get(func).copied().flatten();
        let file = file.map_or("", |f| t.string(f));
        let line = t
            .frame_table
            .line
            .get(frame)
            .copied()
            .flatten()
            .unwrap_or(0);
        let kind = match t.func_table.is_js.get(func) {
            Some(true) => FrameKind::Jit,
            _ => FrameKind::Native,
        };
        let (name, kind) = match name.strip_suffix("_[k]") {
            Some(name) => (name, FrameKind::Kernel),
            None => (name, kind),
        };
        let module = match t.lib(func, libs) {
            Some(lib) if !lib.path.is_empty() || !lib.name.is_empty() => {
                let path = if lib.path.is_empty() {
                    &lib.name
                } else {
                    &lib.path
                };
                Some(to.module(Import::module_kind(path), path, "", 0)?)
            }
            _ => None,
        };
        // Where names were not looked up yet, functions are called by their addresses.
        let address = t.frame_table.address.get(frame).copied().flatten();
        let address = address.and_then(|a| u64::try_from(a).ok());
        frames.push(match (module, address) {
            (Some(_), Some(address)) if name == format!("0x{address:x}") => to.frame(Frame {
                kind,
                module,
                address,
                lines: Vec::new(),
            })?,
            _ => to.named(kind, module, name, file, line)?,
        });
        at = t.stack_table.prefix.get(i).copied().flatten();
    }
    let id = to.stack(&frames, StackEnd::Root)?;
    known.insert(stack, id);
    Ok(id)
}
