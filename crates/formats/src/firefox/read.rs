//! A processed profile → recording.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde_json::Value;
use wallscope_model::{
    ContextId, Frame, FrameId, FrameKind, Limit, StackEnd, StackId, State, Unit, Window,
};

use super::super::import::{About, Amount, Called, Import, SampleTime};
use super::super::source::Source;
use super::super::{Options, Read, ReadError, json};
use super::tables::{File, NEWEST, ProfileThread, Samples, ThreadTables, unknown_columns};

/// The unit of samples with an unknown interval.
const SAMPLES: &str = "samples";

/// The values of a thread's samples.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weights {
    /// Numbers of samples, each of them an interval.
    Samples,
    /// Milliseconds.
    Time,
    Bytes,
    /// A type that no known version has.
    Unknown,
}

impl Weights {
    fn of(samples: &Samples) -> Weights {
        match samples.weight_type.as_deref() {
            None | Some("samples") => Weights::Samples,
            Some("tracing-ms") => Weights::Time,
            Some("bytes") => Weights::Bytes,
            Some(_) => Weights::Unknown,
        }
    }

    /// Whether they can be read as values of `unit`.
    fn are(self, unit: &Unit, interval: Option<u64>) -> bool {
        match self {
            Weights::Samples => match unit {
                Unit::Nanoseconds => interval.is_some(),
                Unit::Count(_) => true,
                Unit::Bytes => false,
            },
            Weights::Time => *unit == Unit::Nanoseconds,
            Weights::Bytes => *unit == Unit::Bytes,
            Weights::Unknown => false,
        }
    }
}

/// Reads a processed profile.
pub(in super::super) fn read(
    source: &mut Source,
    options: &mut Options,
) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let (file, mut warnings): (File, _) = json::parse_bytes(&bytes, source)?;
    warnings.extend(version_warning(&file, &bytes, source.cut())?);
    let interval = file.meta.interval.filter(|ms| *ms > 0.0);
    let interval = interval.map(|ms| json::whole(ms, 1e6)).filter(|ns| *ns > 0);
    let unit = choose(&file, interval, options.value.as_deref())?;
    let mut reader = Reader {
        file: &file,
        unit: &unit,
        interval,
        cut: source.cut(),
        to: Import::new(memory),
        shared: FxHashMap::default(),
        left_out: LeftOut::default(),
    };
    for thread in &file.threads {
        reader.thread(thread)?;
    }
    let Reader {
        mut to, left_out, ..
    } = reader;
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    to.window(Window {
        clock: "the profile's own clock".to_string(),
        start_unix_ns: json::whole(file.meta.start_time, 1e6),
        ..Window::default()
    });
    warnings.extend(left_out.warnings());
    let values = match &unit {
        Unit::Nanoseconds => "samples, with the CPU time between them where the file has it",
        Unit::Bytes => "weights of samples, bytes",
        Unit::Count(_) => "samples: the file does not say how long one stands for",
    };
    let about = About {
        tool: file.meta.product.clone(),
        format: "the Firefox Profiler's".to_string(),
        values: values.to_string(),
        unit,
        limits: vec![Limit {
            what: "what a thread did when it was not on a CPU is not in the file".to_string(),
            remedy: String::new(),
        }],
        notes: left_out.notes(),
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

/// A warning about a newer version. Its tables are read only if they have no unknown column.
fn version_warning(file: &File, bytes: &[u8], cut: bool) -> Result<Option<String>, ReadError> {
    let version = file.meta.preprocessed_profile_version.unwrap_or(0);
    if version <= NEWEST {
        return Ok(None);
    }
    let newer = format!(
        "it has version {version} of the Firefox Profiler's format, and {NEWEST} is the newest known"
    );
    if cut {
        return Err(ReadError::UnknownLayout { what: newer });
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|e| ReadError::Damaged {
        what: e.to_string(),
    })?;
    let columns: Vec<String> = unknown_columns(&value).into_iter().collect();
    if !columns.is_empty() {
        return Err(ReadError::UnknownLayout {
            what: format!("{newer}; its columns {} are unknown", columns.join(", ")),
        });
    }
    Ok(Some(format!(
        "{newer}: its tables have no unknown column, and are read as those of version {NEWEST}"
    )))
}

/// The unit that is read: the requested one, else time if the file has any.
fn choose(file: &File, interval: Option<u64>, asked: Option<&str>) -> Result<Unit, ReadError> {
    let units = [
        Unit::Nanoseconds,
        Unit::Count(SAMPLES.to_string()),
        Unit::Bytes,
    ];
    let full = || file.threads.iter().filter(|t| !t.samples.stack.is_empty());
    let holds = |unit: &Unit| full().any(|t| Weights::of(&t.samples).are(unit, interval));
    let have: Vec<&Unit> = units.iter().filter(|u| holds(u)).collect();
    if have.is_empty() {
        let unknown: BTreeSet<&str> = full()
            .filter(|t| Weights::of(&t.samples) == Weights::Unknown)
            .filter_map(|t| t.samples.weight_type.as_deref())
            .collect();
        if unknown.is_empty() {
            return Err(ReadError::NoValues);
        }
        let names: Vec<&str> = unknown.into_iter().collect();
        return Err(ReadError::UnknownLayout {
            what: format!(
                "the weights of its samples are \"{}\"",
                names.join("\", \"")
            ),
        });
    }
    let found = match asked {
        None => have.first(),
        Some(asked) => have.iter().find(|u| u.name() == asked),
    };
    found.map(|u| (*u).clone()).ok_or_else(|| {
        let names: Vec<&str> = have.iter().map(|u| u.name()).collect();
        ReadError::NoSuchValue {
            asked: asked.unwrap_or_default().to_string(),
            have: names.join(", "),
        }
    })
}

/// Numbers of parts that were left out, by cause.
#[derive(Default)]
struct LeftOut {
    /// Threads with values of another unit, and with an unknown one.
    other_units: u64,
    unknown_weights: u64,
    /// Samples without a stack, and without a weight where others have one.
    stackless: u64,
    weightless: u64,
    /// Threads that hold tables of allocations.
    allocations: u64,
}

impl LeftOut {
    fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut say = |n: u64, text: &str| {
            if n > 0 {
                out.push(format!("{n} {text}, and were left out"));
            }
        };
        say(
            self.other_units,
            "threads have values of another unit (--value chooses)",
        );
        say(
            self.unknown_weights,
            "threads have weights of a type that is unknown",
        );
        say(self.weightless, "samples have no weight");
        out
    }

    fn notes(&self) -> Vec<String> {
        let mut out = Vec::new();
        if self.stackless > 0 {
            out.push(format!(
                "{} samples have no stack, and were left out",
                self.stackless
            ));
        }
        if self.allocations > 0 {
            out.push(format!(
                "{} threads also hold allocations, which were left out",
                self.allocations
            ));
        }
        out
    }
}

struct Reader<'f> {
    file: &'f File,
    unit: &'f Unit,
    /// Interval between samples, ns, if the file has it.
    interval: Option<u64>,
    cut: bool,
    to: Import,
    /// Stacks of the tables that all threads share.
    shared: FxHashMap<usize, StackId>,
    left_out: LeftOut,
}

/// A sample's value.
struct Weighed {
    count: u64,
    /// Value in the file's unit; the length of an interval if the unit is time.
    value: u64,
}

impl Reader<'_> {
    fn thread(&mut self, thread: &ProfileThread) -> Result<(), ReadError> {
        let allocations = [&thread.js_allocations, &thread.native_allocations];
        let holds = allocations.into_iter().flatten().any(|t| t.length > 0);
        self.left_out.allocations += u64::from(holds);
        let weights = Weights::of(&thread.samples);
        if !weights.are(self.unit, self.interval) {
            if !thread.samples.stack.is_empty() {
                match weights {
                    Weights::Unknown => self.left_out.unknown_weights += 1,
                    _ => self.left_out.other_units += 1,
                }
            }
            return Ok(());
        }
        let view = ThreadTables {
            cut: self.cut,
            ..ThreadTables::of(self.file, thread)
        };
        view.check()?;
        let process = thread.process_name.as_deref().unwrap_or_default();
        let (pid, tid) = (id(&thread.pid), id(&thread.tid));
        let context = self.to.thread(pid, tid, &thread.name, process)?;
        let mut own = FxHashMap::default();
        let mut known = match view.shared {
            true => std::mem::take(&mut self.shared),
            false => std::mem::take(&mut own),
        };
        self.samples(&thread.samples, context, &view, &mut known)?;
        if view.shared {
            self.shared = known;
        }
        Ok(())
    }

    fn samples(
        &mut self,
        samples: &Samples,
        context: ContextId,
        view: &ThreadTables,
        known: &mut FxHashMap<usize, StackId>,
    ) -> Result<(), ReadError> {
        let times = self.times(samples);
        let mut last: Option<u64> = None;
        for (i, stack) in samples.stack.iter().enumerate() {
            let at = times.get(i).copied();
            let gap = at.zip(last).map(|(at, last)| at.saturating_sub(last));
            // Times of some importers go backwards. Time before the latest one is already covered.
            last = last.max(at);
            let Some(stack) = stack else {
                self.left_out.stackless += 1;
                continue;
            };
            let Some(value) = self.value(samples, i)? else {
                self.left_out.weightless += 1;
                continue;
            };
            let stack = self.stack(*stack as usize, view, known)?;
            // CPU time counts from the sample before, which the first sample does not have.
            let on = self.on_cpu(samples, i).filter(|_| i > 0);
            self.give((context, stack), value, on.zip(gap), at)?;
        }
        Ok(())
    }

    /// Times of the samples, ns; none where the file has none that are times.
    fn times(&self, samples: &Samples) -> Vec<u64> {
        let units = self.file.meta.sample_units.as_ref();
        if units.is_some_and(|u| u.time == "bytes") {
            return Vec::new();
        }
        let ns = |ms: f64| json::whole(ms.max(0.0), 1e6);
        if !samples.time.is_empty() {
            return samples.time.iter().map(|t| ns(*t)).collect();
        }
        let mut at = 0.0;
        let sum = |delta: &f64| {
            at += delta;
            ns(at)
        };
        samples.time_deltas.iter().map(sum).collect()
    }

    /// The value of a sample; `None` if it has none but other samples do.
    fn value(&self, samples: &Samples, i: usize) -> Result<Option<Weighed>, ReadError> {
        let weights = samples.weight.as_ref().or(samples.duration.as_ref());
        let weight = match weights {
            Some(weights) => match weights.get(i).copied().flatten() {
                Some(weight) => weight,
                None => return Ok(None),
            },
            None => 1.0,
        };
        if weight < 0.0 {
            return Err(ReadError::Damaged {
                what: "a sample has a negative weight: is it a comparison of profiles?".to_string(),
            });
        }
        let count = json::whole(weight, 1.0);
        Ok(Some(match (Weights::of(samples), self.unit) {
            (Weights::Samples, Unit::Nanoseconds) => Weighed {
                count,
                value: json::whole(weight, self.interval.unwrap_or(0) as f64),
            },
            (Weights::Time, _) => Weighed {
                count: 1,
                value: json::whole(weight, 1e6),
            },
            (Weights::Bytes, _) => Weighed {
                count: 1,
                value: count,
            },
            _ => Weighed {
                count,
                value: count,
            },
        }))
    }

    /// CPU time since the sample before, ns, where the file has it and samples are intervals.
    fn on_cpu(&self, samples: &Samples, i: usize) -> Option<u64> {
        if Weights::of(samples) != Weights::Samples || !self.unit.is_time() {
            return None;
        }
        let unit = match self.file.meta.sample_units.as_ref()?.cpu.as_str() {
            "ns" => 1.0,
            "µs" | "us" => 1e3,
            // Cycles are not time: the frequency of the clock varies.
            _ => return None,
        };
        let delta = samples.cpu.as_ref()?.get(i).copied().flatten()?;
        Some(json::whole(delta.max(0.0), unit))
    }

    /// Adds a sample. `cpu` is the CPU time since the sample before, and the time since that sample.
    fn give(
        &mut self,
        (context, stack): (ContextId, StackId),
        v: Weighed,
        cpu: Option<(u64, u64)>,
        at: Option<u64>,
    ) -> Result<(), ReadError> {
        let to = &mut self.to;
        let unknown = SampleTime::of(State::Unknown);
        let Some((on, gap)) = cpu else {
            return to.sample(context, stack, unknown, Amount::new((v.count, v.value), at));
        };
        let rest = gap.max(v.value).saturating_sub(on);
        if on > 0 {
            let kind = SampleTime::of(State::OnCpu);
            to.sample(context, stack, kind, Amount::new((v.count, on), at))?;
        }
        if rest > 0 {
            let count = if on > 0 { 0 } else { v.count };
            to.sample(context, stack, unknown, Amount::new((count, rest), at))?;
        }
        Ok(())
    }

    fn stack(
        &mut self,
        stack: usize,
        view: &ThreadTables,
        known: &mut FxHashMap<usize, StackId>,
    ) -> Result<StackId, ReadError> {
        if let Some(id) = known.get(&stack) {
            return Ok(*id);
        }
        let mut frames: Vec<FrameId> = Vec::new();
        let mut at = Some(stack);
        let mut end = StackEnd::Root;
        while let Some(i) = at {
            // No path is longer than the table.
            if frames.len() > view.stacks.frame.len() {
                return Err(ReadError::Damaged {
                    what: format!("stack {stack} is its own caller"),
                });
            }
            let Some(frame) = view.entry(&view.stacks.frame, i, "stackTable")? else {
                end = StackEnd::Lost;
                break;
            };
            frames.push(self.frame(frame, view)?);
            at = view.caller(i)?;
        }
        let id = self.to.stack(&frames, end)?;
        known.insert(stack, id);
        Ok(id)
    }

    fn frame(&mut self, frame: usize, view: &ThreadTables) -> Result<FrameId, ReadError> {
        let to = &mut self.to;
        let func = view.entry(&view.frames.func, frame, "frameTable")?;
        let name = match func {
            Some(func) => view.entry(&view.funcs.name, func, "funcTable")?,
            None => None,
        };
        let (Some(func), Some(name)) = (func, name) else {
            return to.named(FrameKind::Native, Called::name("[name cut off]"));
        };
        let (name, file) = (view.string(name)?, view.file(func)?);
        let line = view.frames.line.get(frame).copied().flatten();
        let kind = match view.funcs.is_js.get(func) {
            Some(true) => FrameKind::Jit,
            _ => FrameKind::Native,
        };
        let (name, kind) = match name.strip_suffix("_[k]") {
            Some(name) => (name, FrameKind::Kernel),
            None => (name, kind),
        };
        let module = match view.lib(frame, func) {
            Some(path) => Some(to.module(Import::module_kind(&path), &path, "", 0)?),
            None => None,
        };
        // A file without resolved names has addresses as the names of functions.
        let address = view.frames.address.get(frame).copied().flatten();
        let address = address.and_then(|a| u64::try_from(a).ok());
        match (module, address) {
            (Some(_), Some(address)) if name == format!("0x{address:x}") => to.frame(Frame {
                kind,
                module,
                address,
                lines: Vec::new(),
            }),
            _ => to.named(
                kind,
                Called {
                    module,
                    name,
                    file,
                    line: line.unwrap_or(0),
                },
            ),
        }
    }
}

/// A number of a process or a thread; 0 where it has only a name.
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
