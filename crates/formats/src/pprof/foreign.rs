//! A pprof file of another tool → a recording that claims no more than the file does.
//!
//! One column is used: the requested one; otherwise the default one or the last, among those with a unit of
//! time if there are any. Counts of samples with a known period can be read in the period's unit:
//! `--value cpu` for samples every 10 ms. The name of a column gives the state (`cpu` is on-CPU, `delay`
//! blocked; any other name: unknown). Labels `pid`, `tid`, `thread`, `process` make contexts, `state` and
//! `reason` are taken over, all other labels are kept as they are. Profiles of memory and of counts are read
//! too; their values are no time, and the domain names their unit. Addresses become offsets in their files,
//! so functions without a name can be looked up on this machine.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::{
    BlockReason, ContextId, EventSource, Frame, FrameId, FrameKind, FunctionId, Label, LabelValue,
    LabelsId, Limit, Line, ModuleId, ModuleKind, Part, StackEnd, State, Unit, Window,
};

use super::super::import::{About, Amount, Import, SampleTime};
use super::super::wire::Fields;
use super::super::{Bounds, Options, Read, ReadError, Unnamed};
use super::checks::damaged;
use super::chosen::Chosen;
use super::field;
use super::prune::Prune;
use super::tables::{Mapping, Tables};

/// Reads the profile's own tables.
pub(super) fn read(
    t: &Tables,
    options: &Options,
    bounds: Bounds,
    mut warnings: Vec<String>,
) -> Result<Read, ReadError> {
    t.check_strings()?;
    let chosen = Chosen::of(t, options.value.as_deref())?;
    let mut to = Import::new(bounds.memory);
    to.window(Window {
        start_ns: 0,
        end_ns: t.duration_nanos.min(1 << 61),
        clock: "CLOCK_REALTIME".to_string(),
        start_unix_ns: t.time_nanos,
    });
    let prune = Prune::of(t, &mut warnings);
    let code = Code::new(t, &prune, &mut to)?;
    let unnamed = code.unnamed.then(Unnamed::default);
    let mut reader = Reader {
        t,
        chosen: &chosen,
        code,
        keys: FxHashMap::default(),
        contexts: FxHashMap::default(),
        sets: FxHashMap::default(),
        locations: Vec::new(),
        frames: Vec::new(),
        values: Vec::new(),
    };
    for bytes in &t.samples {
        reader.sample(bytes, &mut to)?;
    }
    Ok(Read {
        recording: to.finish(about(t, &chosen)),
        warnings,
        unnamed,
        cut: t.cut,
    })
}

fn about(t: &Tables, chosen: &Chosen) -> About {
    let mut notes: Vec<String> = t
        .comments
        .iter()
        .take(100)
        .map(|c| t.string(*c).into_owned())
        .collect();
    if !chosen.others.is_empty() {
        notes.push(format!(
            "the file also holds {}: choose with --value NAME",
            chosen.others.join(", ")
        ));
    }
    let mut limits = vec![Limit {
        what: "whether stacks are whole is not known".to_string(),
        remedy: String::new(),
    }];
    if chosen.name == "delay" {
        limits.push(Limit {
            what: "time of goroutines, not of threads: it does not add to that of threads"
                .to_string(),
            remedy: String::new(),
        });
    }
    let mut events = Vec::new();
    let sampled = t.string(t.period.of.0);
    let counts = chosen.name == "samples" && !chosen.unit.is_time();
    if t.period.value > 0 && (sampled == chosen.name || counts) {
        events.push(EventSource {
            what: "stacks".to_string(),
            event: sampled.into_owned(),
            rate: format!("every {} {}", t.period.value, t.string(t.period.of.1)),
        });
    }
    About {
        format: "another tool's pprof".to_string(),
        values: format!("samples of the file's column \"{}\"", chosen.name),
        unit: chosen.unit.clone(),
        limits,
        notes,
        events,
        ..About::default()
    }
}

/// The file's code by its ids.
struct Code {
    locations: FxHashMap<u64, FrameId>,
    /// Frames that mark a stack's missing root.
    ends: FxHashMap<FrameId, StackEnd>,
    /// Locations at which stacks are pruned, and whether the location itself is dropped too.
    pruned: FxHashMap<u64, bool>,
    /// Whether the file has addresses in files without a name.
    unnamed: bool,
}

/// Offset in the file of an address in the process.
fn in_file(address: u64, m: &Mapping) -> u64 {
    match address.checked_sub(m.start) {
        Some(at) if address < m.limit => at.saturating_add(m.offset),
        _ => address,
    }
}

/// The functions of a file.
#[derive(Default)]
struct Functions {
    /// Functions with a name, by their number in the file.
    ids: FxHashMap<u64, FunctionId>,
    /// Numbers of those without.
    nameless: FxHashSet<u64>,
    /// Functions that mark the end of a truncated stack.
    ends: FxHashMap<FunctionId, StackEnd>,
}

impl Functions {
    fn new(t: &Tables, to: &mut Import) -> Result<Functions, ReadError> {
        let mut functions = Functions::default();
        for f in &t.functions {
            let (name, system) = (t.string(f.name), t.string(f.system_name));
            // Some writers give only the system name. A function without any name is known by its address.
            let name = if name.is_empty() {
                system.clone()
            } else {
                name
            };
            if name.is_empty() {
                functions.nameless.insert(f.id);
                continue;
            }
            let start_line = u32::try_from(f.start_line).unwrap_or(0);
            let file = t.string(f.file);
            let id = to.function(&name, &system, &file, start_line)?;
            functions.ids.insert(f.id, id);
            if let Some(end) = truncated(&name) {
                functions.ends.insert(id, end);
            }
        }
        Ok(functions)
    }
}

impl Code {
    fn new(t: &Tables, prune: &Prune, to: &mut Import) -> Result<Code, ReadError> {
        let mut modules: FxHashMap<u64, (ModuleId, ModuleKind, Mapping)> = FxHashMap::default();
        for m in &t.mappings {
            let path = t.string(m.file);
            if path.is_empty() {
                continue;
            }
            let kind = Import::module_kind(&path);
            let id = to.module(kind, &path, &t.string(m.build_id), 0)?;
            modules.insert(m.id, (id, kind, *m));
        }
        let Functions {
            ids: functions,
            nameless,
            ends: missing,
        } = Functions::new(t, to)?;
        let mut code = Code {
            locations: FxHashMap::default(),
            ends: FxHashMap::default(),
            pruned: FxHashMap::default(),
            unnamed: false,
        };
        for l in &t.locations {
            let module = modules.get(&l.mapping).copied();
            let cut = prune.location(&l.lines);
            if let Some(cut) = cut {
                code.pruned.insert(l.id, cut == l.lines.len());
            }
            // A location that is dropped as a whole stays in a stack if it is the root, where nothing is pruned.
            let from = cut.filter(|n| *n < l.lines.len()).unwrap_or(0);
            let mut lines = Vec::with_capacity(l.lines.len() - from);
            for (function, line) in &l.lines[from..] {
                match functions.get(function) {
                    Some(function) => lines.push(Line {
                        function: *function,
                        line: u32::try_from(*line).unwrap_or(0),
                    }),
                    // 0 is no function.
                    None if *function == 0 || t.cut || nameless.contains(function) => {}
                    None => {
                        return Err(damaged("a location refers to a function that is not there"));
                    }
                }
            }
            let elf = matches!(module, Some((_, ModuleKind::Elf, _)));
            code.unnamed |= elf && lines.is_empty();
            let end = match lines[..] {
                [line] => missing.get(&line.function).copied(),
                _ => None,
            };
            let id = to.frame(Frame {
                kind: match module {
                    Some((_, ModuleKind::Kernel, _)) => FrameKind::Kernel,
                    Some((_, ModuleKind::Jit, _)) => FrameKind::Jit,
                    _ => FrameKind::Native,
                },
                module: module.map(|(id, ..)| id),
                address: match module {
                    Some((_, ModuleKind::Elf, m)) => in_file(l.address, &m),
                    _ => l.address,
                },
                lines,
            })?;
            if let Some(end) = end {
                code.ends.insert(id, end);
            }
            code.locations.insert(l.id, id);
        }
        Ok(code)
    }
}

impl Code {
    /// Drops the frames that the file marks for it: from the first such location below a kept caller on.
    fn prune(&self, leaf_first: &mut Vec<u64>) {
        if self.pruned.is_empty() {
            return;
        }
        let kept = |id: &u64| !self.pruned.contains_key(id);
        let Some(user) = leaf_first.iter().rposition(kept) else {
            return;
        };
        if let Some(at) = leaf_first[..user].iter().rposition(|id| !kept(id)) {
            let goes = self.pruned[&leaf_first[at]];
            leaf_first.drain(..at + usize::from(goes));
        }
    }
}

/// The end of a stack with a frame of this name as its root.
fn truncated(name: &str) -> Option<StackEnd> {
    let cause = name.strip_prefix("[truncated:")?.strip_suffix(']')?;
    StackEnd::from_name(cause)
}

/// A label's key: one with a known meaning, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Pid,
    Tid,
    Thread,
    Process,
    State,
    Reason,
    Idle,
    Cpu,
    Other,
    /// A label without a name.
    None,
}

fn key_of(name: &str) -> Key {
    match name {
        "pid" | "process_id" => Key::Pid,
        "tid" | "thread_id" | "thread id" => Key::Tid,
        "thread" | "thread_name" | "thread name" => Key::Thread,
        "process" | "process_name" => Key::Process,
        "state" => Key::State,
        "reason" => Key::Reason,
        "idle" => Key::Idle,
        "cpu" => Key::Cpu,
        "" => Key::None,
        _ => Key::Other,
    }
}

/// A label as the file has it: key, text, number, unit.
type RawLabel = (u64, u64, u64, u64);

/// A sample's labels: those with a known meaning, and all others.
#[derive(Default)]
struct Labels {
    pid: u32,
    tid: u32,
    thread: u64,
    process: u64,
    cpu: Option<u32>,
    state: Option<State>,
    reason: Option<BlockReason>,
    part: Option<Part>,
    idle: bool,
    /// All others: key, text, number, unit.
    further: Vec<RawLabel>,
}

struct Reader<'t, 'f> {
    t: &'t Tables<'f>,
    chosen: &'t Chosen,
    code: Code,
    keys: FxHashMap<u64, Key>,
    contexts: FxHashMap<(u32, u32, u64, u64), ContextId>,
    sets: FxHashMap<Vec<RawLabel>, Option<LabelsId>>,
    locations: Vec<u64>,
    frames: Vec<FrameId>,
    values: Vec<u64>,
}

impl Reader<'_, '_> {
    fn label(&mut self, bytes: &[u8], labels: &mut Labels) -> Result<(), ReadError> {
        let (mut id, mut text, mut num, mut unit) = (0, 0, 0, 0);
        for item in Fields::new(bytes) {
            match item? {
                (field::label::KEY, v) => id = v.number(),
                (field::label::STR, v) => text = v.number(),
                (field::label::NUM, v) => num = v.number(),
                (field::label::UNIT, v) => unit = v.number(),
                _ => {}
            }
        }
        let t = self.t;
        [id, text, unit].iter().try_for_each(|s| t.has_string(*s))?;
        let key = *self.keys.entry(id).or_insert_with(|| key_of(&t.string(id)));
        let small = || u32::try_from(num).unwrap_or(0);
        match key {
            // Some writers give ids as texts.
            Key::Pid if num == 0 => labels.pid = t.string(text).parse().unwrap_or(0),
            Key::Tid if num == 0 => labels.tid = t.string(text).parse().unwrap_or(0),
            Key::Pid => labels.pid = small(),
            Key::Tid => labels.tid = small(),
            Key::Thread => labels.thread = text,
            Key::Process => labels.process = text,
            Key::Cpu if text == 0 => labels.cpu = Some(small()),
            Key::State => labels.state = State::from_name(&t.string(text)),
            Key::Reason => {
                let name = t.string(text);
                labels.reason = BlockReason::from_name(&name);
                labels.part = Part::from_name(&name);
            }
            Key::Idle => labels.idle = t.string(text) == "true",
            Key::None => {}
            Key::Cpu | Key::Other => labels.further.push((id, text, num, unit)),
        }
        Ok(())
    }

    fn sample(&mut self, bytes: &[u8], to: &mut Import) -> Result<(), ReadError> {
        self.locations.clear();
        self.values.clear();
        let mut labels = Labels::default();
        for item in Fields::new(bytes) {
            match item? {
                (field::sample::LOCATION, v) => v.numbers(&mut self.locations)?,
                (field::sample::VALUE, v) => v.numbers(&mut self.values)?,
                (field::sample::LABEL, v) => self.label(v.bytes(), &mut labels)?,
                _ => {}
            }
        }
        let Some(&value) = self.values.get(self.chosen.index) else {
            return Err(damaged(
                "a sample has fewer values than the file has columns",
            ));
        };
        // Differences of profiles have negative values, which are no durations.
        let value = u64::try_from(value as i64)
            .map_err(|_| damaged("a sample has a negative value: is it a difference of profiles?"))?
            .saturating_mul(self.chosen.factor);
        if value == 0 {
            return Ok(());
        }
        let count = self.chosen.count.and_then(|i| self.values.get(i)).copied();
        let count = match (&self.chosen.unit, count) {
            (_, Some(n)) => n.min(1 << 40),
            (Unit::Count(_), None) => value,
            (_, None) => 1,
        };
        self.frames.clear();
        self.code.prune(&mut self.locations);
        for id in &self.locations {
            let frame = self
                .code
                .locations
                .get(id)
                .ok_or_else(|| damaged("a sample refers to a location that is not there"))?;
            self.frames.push(*frame);
        }
        let end = self.frames.last().and_then(|f| self.code.ends.get(f));
        let end = end.copied().inspect(|_| {
            self.frames.pop();
        });
        let stack = to.stack(&self.frames, end.unwrap_or(StackEnd::Root))?;
        let key = (labels.pid, labels.tid, labels.thread, labels.process);
        let context = match self.contexts.get(&key) {
            Some(id) => *id,
            None => {
                let thread: Arc<str> = to.text(&self.t.string(labels.thread))?;
                let process = self.t.string(labels.process);
                let id = to.context(labels.pid, labels.tid, &thread, &process)?;
                self.contexts.insert(key, id);
                id
            }
        };
        let kind = SampleTime {
            state: labels.state.unwrap_or(self.chosen.state),
            reason: labels.reason,
            part: labels.part,
            idle: labels.idle,
            labels: self.further(labels.further, to)?,
        };
        to.sample(
            context,
            stack,
            kind,
            Amount::new((count, value), None).on(labels.cpu),
        )
    }
    fn further(
        &mut self,
        set: Vec<RawLabel>,
        to: &mut Import,
    ) -> Result<Option<LabelsId>, ReadError> {
        if set.is_empty() {
            return Ok(None);
        }
        if let Some(id) = self.sets.get(&set) {
            return Ok(*id);
        }
        let mut labels = Vec::with_capacity(set.len());
        for &(key, text, number, unit) in &set {
            labels.push(Label {
                key: to.text(&self.t.string(key))?,
                value: match text {
                    0 => LabelValue::Number(number as i64, to.text(&self.t.string(unit))?),
                    text => LabelValue::Text(to.text(&self.t.string(text))?),
                },
            });
        }
        let id = to.labels(labels)?;
        self.sets.insert(set, id);
        Ok(id)
    }
}
