//! The Firefox Profiler's processed profiles (Firefox's own, samply's and others') ↔ recording.
//!
//! Read are samples with their stacks. Where the file says how much CPU time passed since a
//! thread's last sample, that much is on-CPU and the rest of the time between is not known;
//! otherwise a sample stands for the sampling interval in a state that is not known. Written are
//! all states, each a category, by thread and over time; where single intervals were kept, each as a
//! marker.

use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile as fx;
use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;
use wallscope_model::{
    FrameId, FrameKind, Limit, Recording, StackEnd, StackId, State, Unit, View, Window,
};

use super::import::{About, Import, Kind};
use super::intervals::{Intervals, What};
use super::source::Source;
use super::written::{Rows, left_out};
use super::{Options, Read, ReadError, WriteOptions, json};

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    meta: Meta,
    #[serde(default)]
    threads: Vec<Thread>,
    /// Newer files have the tables of all threads in one place.
    #[serde(default)]
    shared: Option<Tables>,
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
    line: Vec<Option<u32>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FuncTable {
    name: Vec<u32>,
    file_name: Vec<Option<u32>>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
}

impl Tables {
    fn string(&self, index: u32) -> &str {
        let list = if self.string_array.is_empty() {
            &self.string_table
        } else {
            &self.string_array
        };
        list.get(index as usize).map_or("", |s| s.as_str())
    }
}

/// Whether it is a processed profile.
pub(super) fn detect(head: &[u8]) -> bool {
    let processed = json::has(head, "\"preprocessedProfileVersion\"");
    json::start(head) == Some(b'{') && processed
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
pub(super) fn read(source: &mut Source, _: &mut Options) -> Result<Read, ReadError> {
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
            let stack = stack_of(*stack, tables, stacks, &mut to)?;
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
    t: &Tables,
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
        frames.push(to.named(kind, None, name, file, line)?);
        at = t.stack_table.prefix.get(i).copied().flatten();
    }
    let id = to.stack(&frames, StackEnd::Root)?;
    known.insert(stack, id);
    Ok(id)
}

/// A sample to be written.
struct Moment {
    slice: u32,
    path: u32,
    state: State,
    value: u64,
}

/// An interval of a timeline. Its name and category tell everything.
struct Stretch {
    name: fx::StringHandle,
    category: fx::CategoryHandle,
}

impl fx::StaticSchemaMarker for Stretch {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "state";
    const DESCRIPTION: Option<&'static str> =
        Some("What the thread did, as counted at each switch");
    const FIELDS: &'static [fx::StaticSchemaMarkerField] = &[];

    fn name(&self, _: &mut fx::Profile) -> fx::StringHandle {
        self.name
    }

    fn category(&self, _: &mut fx::Profile) -> fx::CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> fx::StringHandle {
        self.name
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// Writes all states.
pub(super) fn write(
    rec: &Recording,
    _: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, View::Wall);
    let start = Duration::from_nanos(rec.window.start_unix_ns);
    let reference = fx::ReferenceTimestamp::from_duration_since_unix_epoch(start);
    let interval = fx::SamplingInterval::from_millis(1);
    let mut profile = fx::Profile::new("wallscope", reference, interval);
    profile.set_symbolicated(true);
    let colours = [
        ("on-CPU", fx::CategoryColor::Yellow),
        ("runnable", fx::CategoryColor::Red),
        ("blocked", fx::CategoryColor::Purple),
        ("unknown", fx::CategoryColor::Gray),
    ];
    let categories = colours.map(|(name, colour)| profile.add_category(name, colour));
    let names: Vec<fx::StringHandle> = (rows.functions())
        .map(|f| profile.intern_string(&format!("{}{}", f.name, f.suffix)))
        .collect();
    let time = |ns: u64| {
        let since = ns.saturating_sub(rec.window.start_ns);
        fx::Timestamp::from_nanos_since_reference(since)
    };
    let length = rec.window.end_ns.saturating_sub(rec.window.start_ns);
    let intervals = Intervals::of(rec);
    let kinds = intervals.as_ref().map(Intervals::kinds).unwrap_or_default();
    let titles: Vec<fx::StringHandle> = (kinds.keys())
        .map(|what| profile.intern_string(&what.title()))
        .collect();
    let mut processes: FxHashMap<u32, fx::ProcessHandle> = FxHashMap::default();
    for (who, rows) in rows.by_context() {
        let c = who.context;
        let process = *processes
            .entry(c.pid)
            .or_insert_with(|| profile.add_process(&who.process, c.pid, time(rec.window.start_ns)));
        // A main thread would be called after Firefox's.
        let thread = profile.add_thread(process, c.tid, time(c.start_ns), false);
        profile.set_thread_name(thread, &who.title());
        profile.set_thread_end_time(thread, time(c.end_ns));
        profile.set_thread_samples_weight_type(thread, fx::WeightType::TracingMs);
        for i in intervals.iter().flat_map(|i| i.of_context(who.id)) {
            let kind = kinds.get(&What::of(i)).copied().unwrap_or(0);
            let marker = Stretch {
                name: titles[kind as usize],
                category: categories[i.state as usize],
            };
            let timing = fx::MarkerTiming::Interval(time(i.start_ns), time(i.end_ns()));
            profile.add_marker(thread, timing, marker);
        }
        let mut moments = Vec::new();
        let mut paths: FxHashMap<u32, &[super::written::Step]> = FxHashMap::default();
        for r in &rows {
            paths.insert(r.path_id, r.path);
            let slices = r.sample.and_then(|s| rec.samples.get(s as usize));
            let slices = slices.map_or(&[][..], |s| &s.slices);
            let sum: u128 = slices.iter().map(|v| u128::from(v.ns)).sum();
            let moment = |slice: u32, value: u64| Moment {
                slice,
                path: r.path_id,
                state: r.state,
                value,
            };
            if sum == 0 {
                moments.push(moment(0, r.value));
                continue;
            }
            // In proportion to what was sampled in each slice, to the nanosecond in all.
            let (mut before, mut given) = (0u128, 0u64);
            for v in slices {
                before += u128::from(v.ns);
                let upto = (u128::from(r.value) * before / sum) as u64;
                moments.push(moment(v.slice, upto - given));
                given = upto;
            }
        }
        moments.sort_by_key(|m| m.slice);
        let mut stacks: FxHashMap<(u32, State), Option<fx::StackHandle>> = FxHashMap::default();
        let mut carried = 0u64;
        for slice in moments.chunk_by(|a, b| a.slice == b.slice) {
            let (from, width) = match rec.slices.width_ns {
                0 => (rec.window.start_ns, length),
                width => (
                    rec.slices.start_ns + u64::from(slice[0].slice) * width,
                    width,
                ),
            };
            let all: u128 = slice.iter().map(|m| u128::from(m.value)).sum();
            let mut before = 0u128;
            for m in slice {
                let stack = *stacks.entry((m.path, m.state)).or_insert_with(|| {
                    let category = categories[m.state as usize];
                    let steps = paths.get(&m.path).copied().unwrap_or_default();
                    let frames = steps.iter().map(|s| fx::FrameInfo {
                        frame: fx::Frame::Label(names[s.function as usize]),
                        category_pair: category.into(),
                        flags: fx::FrameFlags::empty(),
                    });
                    profile.intern_stack_frames(thread, frames)
                });
                let at = from + (u128::from(width) * before / all.max(1)) as u64;
                before += u128::from(m.value);
                let cpu = match m.state {
                    State::OnCpu => fx::CpuDelta::from_nanos(m.value),
                    _ => fx::CpuDelta::ZERO,
                };
                // Weights are whole milliseconds: what is over goes on to the next.
                carried += m.value;
                let weight = i32::try_from(carried / 1_000_000).unwrap_or(i32::MAX);
                carried -= weight as u64 * 1_000_000;
                profile.add_sample(thread, time(at), stack, cpu, weight);
            }
        }
    }
    serde_json::to_writer(&mut *out, &profile)?;
    out.flush()?;
    let mut lost = left_out(
        rec,
        &[
            match intervals {
                Some(_) => "reasons of samples (the markers have them) and who ended waits",
                None => "reasons",
            },
            "the order of stacks within a time slice",
            "files, lines and addresses",
            "times below 1 ms (carried over to the next sample)",
        ],
    );
    lost.extend(intervals.and_then(|i| i.note()));
    Ok(lost)
}
