//! Another tool's samples → a recording that claims no more than they do.
//!
//! A reader passes its file's samples one by one. Here equal parts are joined and times are sorted into
//! slices. The ledger of each thread is the sum of its samples, because the file has no other total. Time
//! without a state in the file is unknown, with the cause [`UnknownCause::NotInSource`]. Memory is counted
//! as it is taken, and bounded.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{
    BlockReason, Context, ContextId, Frame, FrameId, FrameKind, Function, FunctionId, Label,
    LabelsId, Ledger, Limit, Line, Module, ModuleId, ModuleKind, Part, Process, Recording, Sample,
    SliceValue, Stack, StackEnd, StackId, State, Unit,
};

use super::ReadError;

mod decimal;
mod finish;
mod index;
mod number;

pub(super) use decimal::{Decimal, Scale};
use index::{Index, hash};
pub(super) use number::{number, seconds};

/// Maximum frames of a stack, from the leaf; deeper stacks are truncated.
const MAX_FRAMES: usize = 1 << 16;
/// Maximum sum of values: 73 years of nanoseconds, and far from an overflow.
const MAX_TOTAL: u64 = 1 << 61;

/// State, reason and labels of a sample's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampleTime {
    pub state: State,
    pub reason: Option<BlockReason>,
    pub part: Option<Part>,
    pub idle: bool,
    /// Labels beyond the contract's own.
    pub labels: Option<LabelsId>,
}

impl SampleTime {
    /// A kind of time of which only the state is known.
    pub(super) const fn of(state: State) -> SampleTime {
        SampleTime {
            state,
            reason: None,
            part: None,
            idle: false,
            labels: None,
        }
    }

    fn number(self) -> u32 {
        let reason = self.reason.map_or(0, |r| r as u32 + 1);
        let part = self.part.map_or(0, |p| p as u32 + 1);
        self.state as u32 | reason << 2 | part << 8 | u32::from(self.idle) << 14
    }
}

/// Samples of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Amount {
    /// Their number.
    pub count: u64,
    /// Their value in all.
    pub value: u64,
    /// Their time, where it is known, ns.
    pub time: Option<u64>,
    /// Their CPU, where it is known.
    pub cpu: Option<u32>,
}

impl Amount {
    /// Samples on an unknown CPU.
    pub(super) const fn new((count, value): (u64, u64), time: Option<u64>) -> Amount {
        Amount {
            count,
            value,
            time,
            cpu: None,
        }
    }

    /// These samples on a CPU.
    pub(super) const fn on(self, cpu: Option<u32>) -> Amount {
        Amount { cpu, ..self }
    }
}

/// A function by its name, and a line in it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Called<'a> {
    pub module: Option<ModuleId>,
    pub name: &'a str,
    /// Source file, empty where unknown.
    pub file: &'a str,
    /// Line, 0 where unknown.
    pub line: u32,
}

impl<'a> Called<'a> {
    /// A function of which only the name is known.
    pub(super) fn name(name: &'a str) -> Called<'a> {
        Called {
            name,
            ..Called::default()
        }
    }
}

/// A file's own description, in words, for the domain.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// The tool that wrote it, empty where unknown.
    pub tool: String,
    /// The format's name for people: `perf script text`.
    pub format: String,
    /// Its values, in words.
    pub values: String,
    /// Their unit.
    pub unit: Unit,
    /// Whether values of states are counted exactly (by instrumentation), not sampled.
    pub exact: bool,
    /// Limits of the file.
    pub limits: Vec<Limit>,
    /// Anything else.
    pub notes: Vec<String>,
    /// Events and rates, where known.
    pub events: Vec<wallscope_model::EventSource>,
}

/// The parts in which samples that are added up are equal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SampleKey {
    context: u32,
    stack: u32,
    kind: u32,
    cpu: u32,
    labels: Option<LabelsId>,
}

/// Index of samples. Most stacks of a file have one sample, which is found by the stack's number; only further
/// samples of a stack are looked up by their key.
#[derive(Default)]
struct Samples {
    /// The first sample of each stack, and its place.
    first: Vec<Option<(SampleKey, u32)>>,
    further: FxHashMap<SampleKey, u32>,
}

impl Samples {
    /// The place of the sample with this key, or `next` where it is new.
    fn place(&mut self, key: SampleKey, next: u32) -> u32 {
        let stack = key.stack as usize;
        if self.first.len() <= stack {
            self.first.resize(stack + 1, None);
        }
        match &mut self.first[stack] {
            Some((known, at)) if *known == key => *at,
            Some(_) => *self.further.entry(key).or_insert(next),
            none => none.insert((key, next)).1,
        }
    }
}

/// The slices of a recording in the making, and the times in it, ns.
struct TimeGrid {
    /// Time of slice `ORIGIN`, once a time is known, and the width.
    slices: Option<(u64, u64)>,
    /// Numbers of the first slice with time and of the last.
    range: (i64, i64),
    /// The first time and the last.
    times: Option<(u64, u64)>,
}

/// Memory that a recording in the making takes, and may take, bytes.
struct MemoryUse {
    used: u64,
    limit: u64,
}

/// A recording in the making.
pub(super) struct Import {
    rec: Recording,
    texts: FxHashMap<Arc<str>, ()>,
    modules: FxHashMap<Module, ModuleId>,
    functions: Index,
    frames: Index,
    stacks: Index,
    contexts: FxHashMap<(u32, u32, Arc<str>), ContextId>,
    processes: FxHashMap<u32, usize>,
    label_sets: FxHashMap<Vec<Label>, LabelsId>,
    samples: Samples,
    time: TimeGrid,
    total: u64,
    memory: MemoryUse,
    /// Number of stacks that were truncated at [`MAX_FRAMES`].
    cut: u64,
}

impl Import {
    /// Begins; more memory than `limit` bytes is refused.
    pub(super) fn new(limit: u64) -> Import {
        Import {
            rec: Recording::default(),
            texts: FxHashMap::default(),
            modules: FxHashMap::default(),
            functions: Index::default(),
            frames: Index::default(),
            stacks: Index::default(),
            contexts: FxHashMap::default(),
            processes: FxHashMap::default(),
            label_sets: FxHashMap::default(),
            samples: Samples::default(),
            time: TimeGrid {
                slices: None,
                range: (i64::MAX, i64::MIN),
                times: None,
            },
            total: 0,
            memory: MemoryUse { used: 0, limit },
            cut: 0,
        }
    }

    /// Accounts for memory, bytes.
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), ReadError> {
        self.memory.used += bytes as u64;
        if self.memory.used > self.memory.limit {
            return Err(ReadError::TooLarge {
                what: "what it describes needs more memory",
                limit_mib: self.memory.limit >> 20,
            });
        }
        Ok(())
    }

    fn check_total(&self) -> Result<(), ReadError> {
        if self.total > MAX_TOTAL {
            return Err(ReadError::Damaged {
                what: "its values add up to more than a century".to_string(),
            });
        }
        Ok(())
    }

    /// A text, once.
    pub(super) fn text(&mut self, text: &str) -> Result<Arc<str>, ReadError> {
        if let Some((same, ())) = self.texts.get_key_value(text) {
            return Ok(same.clone());
        }
        self.take(text.len() + 64)?;
        let new: Arc<str> = Arc::from(text);
        self.texts.insert(new.clone(), ());
        Ok(new)
    }

    /// A file that code came from.
    pub(super) fn module(
        &mut self,
        kind: ModuleKind,
        path: &str,
        build_id: &str,
        pid: u32,
    ) -> Result<ModuleId, ReadError> {
        let module = Module {
            kind,
            path: self.text(path)?,
            build_id: self.text(build_id)?,
            pid: if kind == ModuleKind::Jit { pid } else { 0 },
        };
        if let Some(id) = self.modules.get(&module) {
            return Ok(*id);
        }
        self.take(256)?;
        let id = ModuleId(self.rec.modules.len() as u32);
        self.rec.modules.push(module.clone());
        self.modules.insert(module, id);
        Ok(id)
    }

    /// The kind of the module at a path.
    pub(super) fn module_kind(path: &str) -> ModuleKind {
        match path {
            "[vdso]" | "linux-vdso.so.1" => ModuleKind::Vdso,
            "[jit]" | "//anon" | "[anon]" => ModuleKind::Jit,
            // simpleperf's names of code that was made at run time, and of memory without a file.
            p if p.starts_with("[JIT ") || p.starts_with("[anon:") => ModuleKind::Jit,
            p if p.starts_with("[kernel") || p.starts_with("[guest.kernel") => ModuleKind::Kernel,
            p if p.starts_with("/tmp/perf-") && p.ends_with(".map") => ModuleKind::Jit,
            p if p.starts_with('[') && p.ends_with(']') => ModuleKind::Kernel,
            p if p.ends_with(".ko") || p.contains("/vmlinux") => ModuleKind::Kernel,
            _ => ModuleKind::Elf,
        }
    }

    /// A function.
    pub(super) fn function(
        &mut self,
        name: &str,
        system_name: &str,
        file: &str,
        start_line: u32,
    ) -> Result<FunctionId, ReadError> {
        let functions = &self.rec.functions;
        let next = functions.len() as u32;
        let (at, new) =
            self.functions
                .place(hash((name, system_name, file, start_line)), next, |at| {
                    let f = &functions[at as usize];
                    &*f.name == name
                        && &*f.system_name == system_name
                        && &*f.file == file
                        && f.start_line == start_line
                });
        if new {
            self.take(128)?;
            let function = Function {
                name: self.text(name)?,
                system_name: self.text(system_name)?,
                file: self.text(file)?,
                start_line,
            };
            self.rec.functions.push(function);
        }
        Ok(FunctionId(at))
    }

    /// A frame, equal ones once.
    pub(super) fn frame(&mut self, frame: Frame) -> Result<FrameId, ReadError> {
        let frames = &self.rec.frames;
        let next = frames.len() as u32;
        let (at, new) = self
            .frames
            .place(hash(&frame), next, |at| frames[at as usize] == frame);
        if new {
            self.take(128 + frame.lines.len() * 8)?;
            self.rec.frames.push(frame);
        }
        Ok(FrameId(at))
    }

    /// A frame of which only the function is known.
    pub(super) fn named(
        &mut self,
        kind: FrameKind,
        called: Called<'_>,
    ) -> Result<FrameId, ReadError> {
        let Called {
            module,
            name,
            file,
            line,
        } = called;
        let function = self.function(name, "", file, 0)?;
        self.frame(Frame {
            kind,
            module,
            address: 0,
            lines: vec![Line { function, line }],
        })
    }

    /// A frame's kind of code.
    pub(super) fn kind(&self, frame: FrameId) -> FrameKind {
        self.rec.frames[frame.0 as usize].kind
    }

    /// The frame as one of the kernel.
    pub(super) fn as_kernel(&mut self, frame: FrameId) -> Result<FrameId, ReadError> {
        let mut frame = self.rec.frames[frame.0 as usize].clone();
        frame.kind = FrameKind::Kernel;
        self.frame(frame)
    }

    /// `frame` with functions inlined into it, the outermost of them first.
    pub(super) fn inlined(&mut self, frame: FrameId, more: &[Line]) -> Result<FrameId, ReadError> {
        let mut frame = self.rec.frames[frame.0 as usize].clone();
        frame.lines.splice(0..0, more.iter().rev().copied());
        self.frame(frame)
    }

    /// A stack, leaf first.
    pub(super) fn stack(
        &mut self,
        frames: &[FrameId],
        end: StackEnd,
    ) -> Result<StackId, ReadError> {
        let (frames, end) = if frames.len() > MAX_FRAMES {
            self.cut += 1;
            (&frames[..MAX_FRAMES], StackEnd::MaxFrames)
        } else {
            (frames, end)
        };
        let stacks = &self.rec.stacks;
        let next = stacks.len() as u32;
        let (at, new) = self.stacks.place(hash((frames, end)), next, |at| {
            let s = &stacks[at as usize];
            s.frames == frames && s.end == end
        });
        if new {
            self.take(72 + frames.len() * 4)?;
            self.rec.stacks.push(Stack {
                frames: frames.to_vec(),
                end,
            });
        }
        Ok(StackId(at))
    }

    /// A thread; `process` is its process's name, empty where unknown.
    pub(super) fn context(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        process: &str,
    ) -> Result<ContextId, ReadError> {
        let name = self.text(name)?;
        let key = (pid, tid, name);
        if let Some(id) = self.contexts.get(&key) {
            return Ok(*id);
        }
        let id = self.thread(pid, tid, &key.2.clone(), process)?;
        self.contexts.insert(key, id);
        Ok(id)
    }

    /// A new thread, even if an earlier one has the same name.
    pub(super) fn thread(
        &mut self,
        pid: u32,
        tid: u32,
        name: &str,
        process: &str,
    ) -> Result<ContextId, ReadError> {
        self.take(1024)?;
        let name = self.text(name)?;
        let id = ContextId(self.rec.contexts.len() as u32);
        self.rec.contexts.push(Context {
            pid,
            tid,
            name,
            start_ns: 0,
            end_ns: 0,
            ledger: Ledger::default(),
        });
        let process = self.text(process)?;
        let next = self.rec.processes.len();
        let at = *self.processes.entry(pid).or_insert(next);
        if at == next {
            self.rec.processes.push(Process {
                pid,
                name: process,
                ..Process::default()
            });
        } else if self.rec.processes[at].name.is_empty() {
            self.rec.processes[at].name = process;
        }
        Ok(id)
    }

    /// A set of further labels; none if it is empty.
    pub(super) fn labels(&mut self, mut set: Vec<Label>) -> Result<Option<LabelsId>, ReadError> {
        if set.is_empty() {
            return Ok(None);
        }
        set.sort_unstable();
        if let Some(id) = self.label_sets.get(&set) {
            return Ok(Some(*id));
        }
        self.take(128 + 160 * set.len())?;
        let id = LabelsId(self.rec.label_sets.len() as u32);
        self.rec.label_sets.push(set.clone());
        self.label_sets.insert(set, id);
        Ok(Some(id))
    }

    /// Adds samples of one stack.
    pub(super) fn sample(
        &mut self,
        context: ContextId,
        stack: StackId,
        kind: SampleTime,
        amount: Amount,
    ) -> Result<(), ReadError> {
        let Amount {
            value, time, cpu, ..
        } = amount;
        let count = amount.count.min(MAX_TOTAL);
        self.total = self.total.saturating_add(value).saturating_add(count);
        self.check_total()?;
        let key = SampleKey {
            context: context.0,
            stack: stack.0,
            kind: kind.number(),
            cpu: cpu.map_or(0, |c| c.wrapping_add(1)),
            labels: kind.labels,
        };
        let next = self.rec.samples.len() as u32;
        let at = self.samples.place(key, next);
        if at == next {
            self.take(200)?;
            self.rec.samples.push(Sample {
                context,
                stack,
                state: kind.state,
                reason: kind.reason.filter(|_| kind.state == State::Blocked),
                part: kind.part.filter(|_| kind.state != State::Blocked),
                idle: kind.idle,
                cpu,
                labels: kind.labels,
                count: 0,
                ns: 0,
                slices: Vec::new(),
            });
        }
        let slice = time.map(|t| self.slice(t));
        let to = &mut self.rec.samples[at as usize];
        to.count += count;
        to.ns += value;
        let Some(slice) = slice else { return Ok(()) };
        let found = match to.slices.last() {
            Some(v) if v.slice == slice => Ok(to.slices.len() - 1),
            Some(v) if v.slice < slice => Err(to.slices.len()),
            _ => to.slices.binary_search_by_key(&slice, |v| v.slice),
        };
        match found {
            Ok(i) => {
                to.slices[i].count += count;
                to.slices[i].ns += value;
            }
            Err(i) => {
                let new = SliceValue {
                    slice,
                    count,
                    ns: value,
                };
                to.slices.insert(i, new);
                self.take(32)?;
            }
        }
        Ok(())
    }
}
