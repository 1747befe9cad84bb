//! Records, lines and stacks of all workers → one recording.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::{
    ContextId, EventSource, Frame, FrameId, FrameKind, Limit, Line, ModuleKind, Part, StackEnd,
    StackId, State, Unit,
};

use super::super::import::{About, Amount, Called, Import, SampleTime};
use super::super::perf_event::{Meaning, base, is_tracepoint};
use super::super::switches::Switches;
use super::super::{Read, ReadError, UNTOLD};
use super::frame;
use super::worker::{Parsed, Record};

/// A line of a stack, as the recording knows it.
#[derive(Clone, Copy)]
enum Known {
    Frame(FrameId),
    /// Inlined into the frame of the next line.
    Inlined(Line),
    Nothing,
}

/// The recording's numbers for a worker's.
#[derive(Default)]
struct Lane {
    names: Vec<u32>,
    lines: Vec<Known>,
    stacks: Vec<(StackId, bool)>,
}

/// An event of the file.
struct Event {
    name: Arc<str>,
    meaning: Meaning,
    /// Its samples in the text, and the sum of their periods.
    seen: u64,
    sum: u64,
    /// Samples without a period.
    unweighed: u64,
    /// Whether its samples are in the recording.
    used: bool,
    /// The period of all its samples, if it is one.
    period: Option<u64>,
}

impl Event {
    /// The event of a first record.
    fn new(name: &Arc<str>, r: &Record) -> Event {
        let meaning = match Meaning::of(name) {
            // A tick of a clock of unknown length is a count.
            m if m.is_length() && r.period.is_none() => Meaning::Count,
            m => m,
        };
        Event {
            name: name.clone(),
            meaning,
            seen: 0,
            sum: 0,
            unweighed: 0,
            used: false,
            period: r.period,
        }
    }

    /// Counts a record.
    fn see(&mut self, r: &Record) {
        self.seen += 1;
        self.sum = self.sum.saturating_add(r.period.unwrap_or(1));
        self.unweighed += u64::from(r.period.is_none());
        if self.period != r.period {
            self.period = None;
        }
    }
}

impl Event {
    /// Its name, samples and sum, in words.
    fn summary(&self) -> String {
        let name = match &*self.name {
            "" => "events without a name",
            name => name,
        };
        format!("{name} ({} samples, {} in all)", self.seen, self.sum)
    }
}

/// Whether the requested name means this event, without PMU and modifiers.
fn is_meant(event: &str, asked: &str) -> bool {
    !asked.contains(['/', ':']) && base(event) == asked
}

/// Makes the recording.
pub(super) struct Assembler {
    to: Import,
    lanes: Vec<Lane>,
    names: Vec<Arc<str>>,
    name_ids: FxHashMap<Arc<str>, u32>,
    /// Events by the number of their name.
    events: Vec<Option<Event>>,
    /// Whether values are time; known from the first record on.
    timed: Option<bool>,
    asked: Option<String>,
    contexts: FxHashMap<(u32, u32, u32), ContextId>,
    switches: Switches,
    last: u64,
    junk: u64,
    untimed_switches: u64,
    warnings: Vec<String>,
}

impl Assembler {
    pub(super) fn new(lanes: usize, memory: u64, asked: Option<String>) -> Assembler {
        Assembler {
            to: Import::new(memory),
            lanes: (0..lanes).map(|_| Lane::default()).collect(),
            names: Vec::new(),
            name_ids: FxHashMap::default(),
            events: Vec::new(),
            timed: None,
            asked,
            contexts: FxHashMap::default(),
            switches: Switches::default(),
            last: 0,
            junk: 0,
            untimed_switches: 0,
            warnings: Vec::new(),
        }
    }

    /// Makes values times if none were requested, because the first records have times.
    pub(super) fn expect_times(&mut self) {
        if self.asked.is_none() {
            self.timed = Some(true);
        }
    }

    /// The compressed data of the file ends in the middle.
    pub(super) fn note_cut(&mut self) {
        let text = "its compressed data ends in the middle: the part before is used";
        self.warnings.push(text.into());
    }

    /// Adds the records of one piece.
    pub(super) fn add(&mut self, lane: usize, parsed: &Parsed) -> Result<(), ReadError> {
        self.junk += parsed.junk;
        if parsed.anew {
            self.lanes[lane] = Lane::default();
        }
        for name in &parsed.names {
            let name = self.to.text(&String::from_utf8_lossy(name))?;
            let next = self.names.len() as u32;
            let id = *self.name_ids.entry(name.clone()).or_insert(next);
            if id == next {
                self.names.push(name);
                self.events.push(None);
            }
            self.lanes[lane].names.push(id);
        }
        for text in &parsed.lines {
            let known = self.line(text)?;
            self.lanes[lane].lines.push(known);
        }
        let mut rest = &parsed.stacks[..];
        let mut frames = Vec::new();
        for length in &parsed.lengths {
            let (lines, after) = rest.split_at((*length as usize).min(rest.len()));
            rest = after;
            let stack = self.stack(lane, lines, &mut frames)?;
            self.lanes[lane].stacks.push(stack);
        }
        for record in &parsed.records {
            self.record(lane, record)?;
        }
        Ok(())
    }

    fn line(&mut self, text: &[u8]) -> Result<Known, ReadError> {
        let Some(f) = frame::parse(text) else {
            return Ok(Known::Nothing);
        };
        let symbol = f.symbol.map(String::from_utf8_lossy);
        if f.inlined {
            let function = self
                .to
                .function(symbol.as_deref().unwrap_or("[unknown]"), "", "", 0)?;
            return Ok(Known::Inlined(Line { function, line: 0 }));
        }
        let path = String::from_utf8_lossy(f.module);
        let (module, kind) = place(&mut self.to, &path, f.address.unwrap_or(0))?;
        let frame = match symbol {
            Some(name) => self.to.named(
                kind,
                Called {
                    module,
                    name: &name,
                    ..Called::default()
                },
            )?,
            None => {
                let frame = Frame {
                    kind,
                    module,
                    address: f.address.unwrap_or(0),
                    lines: Vec::new(),
                };
                unnamed(&mut self.to, frame, &path)?
            }
        };
        Ok(Known::Frame(frame))
    }

    fn stack(
        &mut self,
        lane: usize,
        lines: &[u32],
        frames: &mut Vec<FrameId>,
    ) -> Result<(StackId, bool), ReadError> {
        frames.clear();
        let mut inlined: Vec<Line> = Vec::new();
        for n in lines {
            match self.lanes[lane].lines.get(*n as usize) {
                Some(Known::Frame(f)) if inlined.is_empty() => frames.push(*f),
                Some(Known::Frame(f)) => {
                    // They came innermost first.
                    inlined.reverse();
                    frames.push(self.to.inlined(*f, &inlined)?);
                    inlined.clear();
                }
                Some(Known::Inlined(l)) => inlined.push(*l),
                _ => {}
            }
        }
        let kernel = frames
            .first()
            .is_some_and(|f| self.to.kind(*f) == FrameKind::Kernel);
        Ok((self.to.stack(frames, StackEnd::Root)?, kernel))
    }

    fn record(&mut self, lane: usize, r: &Record) -> Result<(), ReadError> {
        let lane = &self.lanes[lane];
        let (Some(comm), Some(event)) = (
            lane.names.get(r.comm as usize).copied(),
            lane.names.get(r.event as usize).copied(),
        ) else {
            return Ok(());
        };
        let (stack, kernel) = lane
            .stacks
            .get(r.stack as usize)
            .copied()
            .ok_or_else(|| ReadError::damaged("a record without its stack"))?;
        let e = self.events[event as usize]
            .get_or_insert_with(|| Event::new(&self.names[event as usize], r));
        e.see(r);
        let first = self.timed.is_none();
        let time = match &self.asked {
            Some(_) => false,
            None => e.meaning != Meaning::Count,
        };
        let timed = *self.timed.get_or_insert(time);
        e.used = match self.asked.as_deref() {
            Some("samples") => true,
            Some(asked) => *e.name == *asked || is_meant(&e.name, asked),
            None if timed => e.meaning != Meaning::Count,
            None => e.used || first,
        };
        if !e.used {
            return Ok(());
        }
        let key = (r.pid, r.tid, comm);
        let context = match self.contexts.get(&key) {
            Some(id) => *id,
            None => {
                let name = self.names[comm as usize].clone();
                let id = self.to.context(r.pid, r.tid, &name, "")?;
                self.contexts.insert(key, id);
                id
            }
        };
        if timed && e.meaning == Meaning::Switch {
            let (Some(s), Some(time)) = (r.switch, r.time) else {
                self.untimed_switches += 1;
                return Ok(());
            };
            self.last = self.last.max(time);
            // The stack belongs to the thread that leaves its CPU.
            if s.prev == r.tid {
                self.switches.leaves(s.prev, time, (context, stack), s.left);
            }
            return self.switches.gets(s.next, time, &mut self.to);
        }
        let on_cpu = e.meaning == Meaning::Clock || !is_tracepoint(&e.name);
        let value = match self.asked.as_deref() {
            Some("samples") => 1,
            _ => r.period.unwrap_or(1),
        };
        let state = match e.meaning {
            Meaning::OffCpu => State::Blocked,
            _ if on_cpu => State::OnCpu,
            _ => State::Unknown,
        };
        let part = if kernel { Part::Kernel } else { Part::User };
        let kind = SampleTime {
            part: (state == State::OnCpu).then_some(part),
            ..SampleTime::of(state)
        };
        self.last = self.last.max(r.time.unwrap_or(0));
        self.to.sample(
            context,
            stack,
            kind,
            Amount::new((1, value), r.time).on(r.cpu),
        )
    }

    pub(super) fn finish(mut self) -> Result<Read, ReadError> {
        let mut warnings = std::mem::take(&mut self.warnings);
        if self.junk > 0 {
            warnings.push(format!(
                "{} lines are neither a record nor a frame, and were left out",
                self.junk
            ));
        }
        if self.untimed_switches > 0 {
            warnings.push(format!(
                "{} switches have no time or no fields, and were left out",
                self.untimed_switches
            ));
        }
        let disorder = self.switches.disorder;
        if disorder > 0 {
            warnings.push(format!(
                "{disorder} switches go back in time, and were left out: is the file sorted?"
            ));
        }
        std::mem::take(&mut self.switches).end(self.last, &mut self.to)?;
        if self.to.is_empty() {
            let have: Vec<_> = self.events.iter().flatten().map(|e| &*e.name).collect();
            return Err(match self.asked {
                Some(asked) if !have.is_empty() => ReadError::NoSuchValue {
                    asked,
                    have: format!("samples, {}", have.join(", ")),
                },
                _ => ReadError::NoValues,
            });
        }
        warnings.extend(self.event_warnings());
        let about = self.about();
        Ok(Read::named(self.to.finish(about), warnings))
    }

    /// The events that are read.
    fn used(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().flatten().filter(|e| e.used)
    }

    /// Whether every sample counts one, whatever its event.
    fn counts_samples(&self) -> bool {
        self.asked.as_deref() == Some("samples")
    }

    fn unit(&self) -> Unit {
        let samples = || Unit::Count("samples".to_string());
        let first = self.used().next();
        match first {
            _ if self.timed == Some(true) => Unit::Nanoseconds,
            _ if self.counts_samples() => samples(),
            // Periods of an event without a name count something unknown.
            Some(e) if e.name.is_empty() && e.unweighed < e.seen => Unit::Count(UNTOLD.to_string()),
            Some(e) if e.meaning.is_length() => Unit::Nanoseconds,
            // A sample without a period counts as one sample, not as a number of events.
            Some(e) if !e.name.is_empty() && e.unweighed < e.seen => {
                let asked = self.asked.as_deref().filter(|_| self.used().count() > 1);
                Unit::Count(asked.unwrap_or(&e.name).to_string())
            }
            _ => samples(),
        }
    }

    /// Warnings about events that were added up, have no periods, or were not read.
    fn event_warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let counted = self.counts_samples();
        let parts: Vec<String> = self.used().map(Event::summary).collect();
        if let Some(asked) = self
            .asked
            .as_deref()
            .filter(|_| parts.len() > 1 && !counted)
        {
            warnings.push(format!("{asked} is the sum of {}", parts.join(" and ")));
        }
        let of_events = self.used().all(|e| e.meaning != Meaning::Switch);
        let unweighed: u64 = self.used().map(|e| e.unweighed).sum();
        if unweighed > 0 && !counted && of_events {
            warnings.push(format!(
                "{unweighed} samples have no period, and count as one each: perf script -F +period \
                 prints it"
            ));
        }
        let others: Vec<&Event> = (self.events.iter().flatten()).filter(|e| !e.used).collect();
        if others.is_empty() {
            return warnings;
        }
        let list: Vec<String> = (others.iter())
            .map(|e| format!("{} ({} samples)", e.name, e.seen))
            .collect();
        let mut text = format!(
            "the file also holds {}: choose with --value EVENT, or count all with --value samples",
            list.join(", ")
        );
        let read = self.used().next().map(|e| base(&e.name));
        if let Some(name) = read.filter(|n| others.iter().any(|e| base(&e.name) == *n)) {
            text.push_str(&format!("; --value {name} adds them up"));
        }
        warnings.push(text);
        warnings
    }

    fn about(&self) -> About {
        let mut limits = vec![Limit {
            what: "whether stacks are whole, and how many records perf lost, is not in its text"
                .to_string(),
            remedy: "give wallscope the perf.data itself".to_string(),
        }];
        if self.used().any(|e| e.meaning.is_off_cpu()) {
            limits.push(Limit {
                what:
                    "blocked time includes the wait for a CPU after it, and why it was blocked is \
                       not known"
                        .to_string(),
                remedy: "record with wallscope".to_string(),
            });
        }
        let source = |e: &Event| EventSource {
            what: match e.meaning {
                m if m.is_off_cpu() => "time off the CPU",
                _ => "stacks",
            }
            .to_string(),
            event: e.name.to_string(),
            rate: match e.period {
                Some(p) => format!("every {p}"),
                None => "periods as the file has them".to_string(),
            },
        };
        let names: Vec<&str> = self.used().map(|e| &*e.name).collect();
        About {
            tool: "perf".to_string(),
            format: "perf script's text".to_string(),
            values: format!("samples of {}", names.join(", ")),
            unit: self.unit(),
            limits,
            events: self.used().map(source).collect(),
            ..About::default()
        }
    }
}

/// The module of a frame and the kind of its code.
pub(in super::super) fn place(
    to: &mut Import,
    path: &str,
    address: u64,
) -> Result<(Option<wallscope_model::ModuleId>, FrameKind), ReadError> {
    if path.is_empty() {
        let kernel = address >= 0xffff_8000_0000_0000;
        let kind = if kernel {
            FrameKind::Kernel
        } else {
            FrameKind::Native
        };
        return Ok((None, kind));
    }
    let kind = match path {
        "[heap]" | "[stack]" | "[vsyscall]" => ModuleKind::Elf,
        p if p.starts_with("[JIT]") || p.contains("/jitted-") => ModuleKind::Jit,
        p => Import::module_kind(p),
    };
    let id = to.module(kind, path, "", 0)?;
    let frames = match kind {
        ModuleKind::Kernel => FrameKind::Kernel,
        ModuleKind::Jit => FrameKind::Jit,
        ModuleKind::Elf | ModuleKind::Vdso | ModuleKind::Source => FrameKind::Native,
    };
    Ok((Some(id), frames))
}

/// A frame without a name. If its address is one in the process and not an offset in the file, the frame
/// is named by the file alone.
fn unnamed(to: &mut Import, frame: Frame, path: &str) -> Result<FrameId, ReadError> {
    let Frame {
        kind,
        module,
        address,
        ..
    } = frame;
    if module.is_some() && address >= 1 << 32 {
        let name = path.rsplit('/').next().unwrap_or(path);
        let name = format!("[{}]", name.trim_matches(['[', ']']));
        return to.named(
            kind,
            Called {
                module,
                name: &name,
                ..Called::default()
            },
        );
    }
    to.frame(frame)
}
