//! A pprof file of another tool → a recording that says no more than the file does.
//!
//! One column of time is used: the default one, else the last whose unit is a time. Its name tells
//! the state (`cpu` is on-CPU, `delay` blocked; anything else is not known). Labels `pid`, `tid`,
//! `thread`, `process` make contexts, `state` and `reason` are believed, all others are kept as they
//! are. The ledger is the sum of the samples: the file has no other.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::{
    BlockReason, Column, Context, ContextId, Domain, Frame, FrameId, FrameKind, Function,
    FunctionId, Label, LabelValue, LabelsId, Ledger, Limit, Line, Module, ModuleId, ModuleKind,
    Part, Process, Recording, Sample, Slices, Stack, StackEnd, StackId, State, UnknownCause,
    Window,
};

use super::super::ReadError;
use super::super::wire::Fields;
use super::field;
use super::read::{Tables, damaged};
use super::restore::check_sums;

/// The column that is used.
struct Chosen {
    index: usize,
    /// The column that counts samples, if there is one.
    count: Option<usize>,
    /// Nanoseconds in its unit.
    unit: u64,
    /// Its state, where no label tells.
    state: State,
    name: String,
}

/// Reads what the profile's own tables say.
pub(super) fn recording(t: &Tables) -> Result<Recording, ReadError> {
    let chosen = choose(t)?;
    let mut rec = Recording {
        domain: domain(t, &chosen),
        window: Window {
            start_ns: 0,
            end_ns: t.duration_nanos,
            clock: "CLOCK_REALTIME".to_string(),
            start_unix_ns: t.time_nanos,
        },
        slices: Slices::default(),
        ..Recording::default()
    };
    let mut code = Code::new(t, &mut rec);
    let mut samples = Samples::default();
    for bytes in &t.samples {
        samples.add(bytes, t, &chosen, &mut code, &mut rec)?;
    }
    rec.samples = samples.list;
    check_sums(&rec)?;
    account(&mut rec);
    check_sums(&rec)?;
    Ok(rec)
}

fn choose(t: &Tables) -> Result<Chosen, ReadError> {
    let types: Vec<(String, String)> = t
        .sample_types
        .iter()
        .take(64)
        .map(|(name, unit)| (t.string(*name).into_owned(), t.string(*unit).into_owned()))
        .collect();
    let timed: Vec<(usize, u64)> = types
        .iter()
        .enumerate()
        .filter_map(|(i, (_, unit))| Some((i, nanoseconds(unit)?)))
        .collect();
    let default = t.string(t.default_sample_type);
    let Some(&(index, unit)) = timed
        .iter()
        .find(|(i, _)| types[*i].0 == default)
        .or(timed.last())
    else {
        let names: Vec<_> = types.iter().map(|(n, u)| format!("{n}/{u}")).collect();
        return Err(ReadError::NoTime {
            values: if names.is_empty() {
                "none".to_string()
            } else {
                names.join(", ")
            },
        });
    };
    let name = types[index].0.clone();
    let state = match name.as_str() {
        "cpu" | "on_cpu" | "on-cpu" | "task-clock" | "cpu-clock" => State::OnCpu,
        "delay" | "blocked" | "block" | "off_cpu" | "off-cpu" => State::Blocked,
        "runnable" => State::Runnable,
        _ => State::Unknown,
    };
    Ok(Chosen {
        index,
        count: types.iter().position(|(_, unit)| unit == "count"),
        unit,
        state,
        name,
    })
}

fn nanoseconds(unit: &str) -> Option<u64> {
    match unit {
        "nanoseconds" | "nanosecond" | "ns" => Some(1),
        "microseconds" | "microsecond" | "us" | "µs" => Some(1_000),
        "milliseconds" | "millisecond" | "ms" => Some(1_000_000),
        "seconds" | "second" | "s" => Some(1_000_000_000),
        _ => None,
    }
}

fn domain(t: &Tables, chosen: &Chosen) -> Domain {
    let notes = t
        .comments
        .iter()
        .take(100)
        .map(|c| t.string(*c).into_owned());
    Domain {
        tool: String::new(),
        backend: "import".to_string(),
        backend_reason: "the file was written by another tool, or by a newer wallscope".to_string(),
        columns: State::ALL
            .iter()
            .map(|state| Column {
                state: *state,
                exact: false,
                how: format!("samples of the file's column \"{}\"", chosen.name),
            })
            .collect(),
        limits: vec![Limit {
            what: "only what the file's samples say: no ledger, no time slices, no losses, and \
                   whether stacks are whole is not known"
                .to_string(),
            remedy: "record with wallscope".to_string(),
        }],
        notes: notes.collect(),
        ..Domain::default()
    }
}

/// The file's code, and where its ids lead.
struct Code {
    locations: HashMap<u64, FrameId>,
    /// Frames that stand for a stack's missing root.
    ends: HashMap<FrameId, StackEnd>,
}

impl Code {
    fn new(t: &Tables, rec: &mut Recording) -> Code {
        let mut modules = HashMap::new();
        for m in &t.mappings {
            let path = t.string(m.file);
            if path.is_empty() {
                continue;
            }
            let kind = match &*path {
                p if p.starts_with("[kernel") => ModuleKind::Kernel,
                "[vdso]" | "linux-vdso.so.1" => ModuleKind::Vdso,
                "[jit]" => ModuleKind::Jit,
                _ => ModuleKind::Elf,
            };
            modules.insert(m.id, (ModuleId(rec.modules.len() as u32), kind));
            rec.modules.push(Module {
                kind,
                path: Arc::from(path),
                build_id: Arc::from(t.string(m.build_id)),
                pid: 0,
            });
        }
        let mut functions = HashMap::new();
        for f in &t.functions {
            functions.insert(f.id, FunctionId(rec.functions.len() as u32));
            rec.functions.push(Function {
                name: Arc::from(t.string(f.name)),
                system_name: Arc::from(t.string(f.system_name)),
                file: Arc::from(t.string(f.file)),
                start_line: u32::try_from(f.start_line).unwrap_or(0),
            });
        }
        let mut locations = HashMap::new();
        let mut ends = HashMap::new();
        for l in &t.locations {
            let module = modules.get(&l.mapping).copied();
            let lines: Vec<Line> = l
                .lines
                .iter()
                .filter_map(|(function, line)| {
                    Some(Line {
                        function: *functions.get(function)?,
                        line: u32::try_from(*line).unwrap_or(0),
                    })
                })
                .collect();
            let id = FrameId(rec.frames.len() as u32);
            if let [line] = lines[..] {
                let name = &rec.functions[line.function.0 as usize].name;
                let end = name
                    .strip_prefix("[truncated:")
                    .and_then(|rest| rest.strip_suffix(']'))
                    .and_then(StackEnd::from_name);
                if let Some(end) = end {
                    ends.insert(id, end);
                }
            }
            locations.insert(l.id, id);
            rec.frames.push(Frame {
                kind: match module {
                    Some((_, ModuleKind::Kernel)) => FrameKind::Kernel,
                    Some((_, ModuleKind::Jit)) => FrameKind::Jit,
                    _ => FrameKind::Native,
                },
                module: module.map(|(id, _)| id),
                address: l.address,
                lines,
            });
        }
        Code { locations, ends }
    }

    /// The stack of the given locations; without the frame that stands for its missing root.
    fn stack(&self, locations: &[u64]) -> Result<Stack, ReadError> {
        let mut frames = locations
            .iter()
            .map(|id| self.locations.get(id).copied())
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| damaged("a sample refers to a location that is not there"))?;
        let end = frames.last().and_then(|f| self.ends.get(f)).copied();
        if end.is_some() {
            frames.pop();
        }
        Ok(Stack {
            frames,
            end: end.unwrap_or(StackEnd::Root),
        })
    }
}

/// What a sample's labels say.
#[derive(Default)]
struct Labels {
    pid: u32,
    tid: u32,
    thread: u64,
    process: u64,
    state: Option<State>,
    reason: Option<BlockReason>,
    part: Option<Part>,
    idle: bool,
    cpu: Option<u32>,
    /// All others: key, text, number, unit.
    further: Vec<(u64, u64, u64, u64)>,
}

impl Labels {
    fn add(&mut self, bytes: &[u8], t: &Tables) -> Result<(), ReadError> {
        let (mut key, mut text, mut num, mut unit) = (0, 0, 0, 0);
        for item in Fields::new(bytes) {
            match item? {
                (field::label::KEY, v) => key = v.number(),
                (field::label::STR, v) => text = v.number(),
                (field::label::NUM, v) => num = v.number(),
                (field::label::UNIT, v) => unit = v.number(),
                _ => {}
            }
        }
        match &*t.string(key) {
            "pid" => self.pid = u32::try_from(num).unwrap_or(0),
            "tid" => self.tid = u32::try_from(num).unwrap_or(0),
            "thread" => self.thread = text,
            "process" => self.process = text,
            "state" => self.state = State::from_name(&t.string(text)),
            "reason" => {
                let name = t.string(text);
                self.reason = BlockReason::from_name(&name);
                self.part = Part::from_name(&name);
            }
            "idle" => self.idle = t.string(text) == "true",
            "cpu" => self.cpu = u32::try_from(num).ok(),
            "" => {}
            _ => self.further.push((key, text, num, unit)),
        }
        Ok(())
    }
}

/// What samples that are added up have alike.
type Key = (
    ContextId,
    StackId,
    State,
    Option<&'static str>,
    bool,
    Option<u32>,
    Option<LabelsId>,
);

/// Samples, equal ones added up.
#[derive(Default)]
struct Samples {
    list: Vec<Sample>,
    index: HashMap<Key, usize>,
    label_sets: HashMap<Vec<(u64, u64, u64, u64)>, LabelsId>,
    stacks: HashMap<Stack, StackId>,
    contexts: HashMap<(u32, u32, u64), ContextId>,
    processes: HashMap<u32, ()>,
    locations: Vec<u64>,
    values: Vec<u64>,
}

impl Samples {
    fn add(
        &mut self,
        bytes: &[u8],
        t: &Tables,
        chosen: &Chosen,
        code: &mut Code,
        rec: &mut Recording,
    ) -> Result<(), ReadError> {
        self.locations.clear();
        self.values.clear();
        let mut labels = Labels::default();
        for item in Fields::new(bytes) {
            match item? {
                (field::sample::LOCATION, v) => v.numbers(&mut self.locations)?,
                (field::sample::VALUE, v) => v.numbers(&mut self.values)?,
                (field::sample::LABEL, v) => labels.add(v.bytes(), t)?,
                _ => {}
            }
        }
        let Some(&value) = self.values.get(chosen.index) else {
            return Err(damaged(
                "a sample has fewer values than the file has columns",
            ));
        };
        // Differences of profiles have negative values: a duration has none.
        let ns = u64::try_from(value as i64)
            .map_err(|_| damaged("a sample has a negative time: is it a difference of profiles?"))?
            .saturating_mul(chosen.unit);
        let count = chosen.count.and_then(|i| self.values.get(i)).copied();
        let count = count.unwrap_or(1).min(1 << 40);
        if ns == 0 {
            return Ok(());
        }
        let state = labels.state.unwrap_or(chosen.state);
        let stack = code.stack(&self.locations)?;
        let next = StackId(self.stacks.len() as u32);
        let stack = *self.stacks.entry(stack).or_insert_with_key(|s| {
            rec.stacks.push(s.clone());
            next
        });
        let context = self.context(&labels, t, rec);
        let further = self.further(std::mem::take(&mut labels.further), t, rec);
        let sample = Sample {
            context,
            stack,
            state,
            reason: labels.reason.filter(|_| state == State::Blocked),
            part: labels.part.filter(|_| state != State::Blocked),
            idle: labels.idle,
            cpu: labels.cpu,
            labels: further,
            count,
            ns,
            slices: Vec::new(),
        };
        let key = (
            context,
            stack,
            state,
            sample.reason_name(),
            sample.idle,
            sample.cpu,
            further,
        );
        match self.index.get(&key) {
            Some(i) => {
                let to = &mut self.list[*i];
                to.ns = to.ns.saturating_add(ns);
                to.count = to.count.saturating_add(count);
            }
            None => {
                self.index.insert(key, self.list.len());
                self.list.push(sample);
            }
        }
        Ok(())
    }

    fn further(
        &mut self,
        mut set: Vec<(u64, u64, u64, u64)>,
        t: &Tables,
        rec: &mut Recording,
    ) -> Option<LabelsId> {
        if set.is_empty() {
            return None;
        }
        set.sort_unstable();
        let next = LabelsId(rec.label_sets.len() as u32);
        let id = *self.label_sets.entry(set).or_insert_with_key(|set| {
            let label = |&(key, text, number, unit): &(u64, u64, u64, u64)| Label {
                key: Arc::from(t.string(key)),
                value: match text {
                    0 => LabelValue::Number(number as i64, Arc::from(t.string(unit))),
                    text => LabelValue::Text(Arc::from(t.string(text))),
                },
            };
            let mut labels: Vec<Label> = set.iter().map(label).collect();
            labels.sort_unstable();
            rec.label_sets.push(labels);
            next
        });
        Some(id)
    }

    fn context(&mut self, labels: &Labels, t: &Tables, rec: &mut Recording) -> ContextId {
        let key = (labels.pid, labels.tid, labels.thread);
        let next = ContextId(self.contexts.len() as u32);
        let id = *self.contexts.entry(key).or_insert(next);
        if id == next {
            rec.contexts.push(Context {
                pid: labels.pid,
                tid: labels.tid,
                name: Arc::from(t.string(labels.thread)),
                start_ns: 0,
                end_ns: t.duration_nanos,
                ledger: Ledger::default(),
            });
            if self.processes.insert(labels.pid, ()).is_none() {
                rec.processes.push(Process {
                    pid: labels.pid,
                    name: Arc::from(t.string(labels.process)),
                    ..Process::default()
                });
            }
        }
        id
    }
}

/// Makes each context's ledger from its samples.
fn account(rec: &mut Recording) {
    for s in &rec.samples {
        let l = &mut rec.contexts[s.context.0 as usize].ledger;
        l.wall_ns += s.ns;
        let to = match (s.state, s.part) {
            (State::OnCpu, Some(Part::Kernel)) => &mut l.on_cpu.kernel,
            (State::OnCpu, Some(Part::Irq)) => &mut l.on_cpu.irq,
            (State::OnCpu, Some(Part::Stolen)) => &mut l.on_cpu.stolen,
            (State::OnCpu, _) => &mut l.on_cpu.user,
            (State::Runnable, Some(Part::Preempted)) => &mut l.runnable.preempted,
            (State::Runnable, Some(Part::Throttled)) => &mut l.runnable.throttled,
            (State::Runnable, _) => &mut l.runnable.woken,
            (State::Blocked, _) => &mut l.blocked[s.reason.unwrap_or(BlockReason::Other) as usize],
            (State::Unknown, _) => &mut l.unknown[UnknownCause::NotInSource as usize],
        };
        *to += s.ns;
    }
}
