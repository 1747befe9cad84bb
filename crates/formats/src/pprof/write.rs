//! Recording → gzip-compressed pprof.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::write::GzEncoder;
use wallscope_model::domain_text;
use wallscope_model::name;
use wallscope_model::scale::{NOT_SAMPLED, Scaled, scale};
use wallscope_model::{Context, ContextId, Label, LabelValue, Recording, StackEnd, State, Unit};

use super::super::wire::Writer;
use super::field;
use super::{SAMPLE_TYPES, convert};

/// Writes `recording`, its samples scaled as in `scaled`, as pprof.
pub(super) fn encode<W: Write>(
    recording: &Recording,
    scaled: &Scaled,
    out: GzEncoder<W>,
) -> io::Result<W> {
    let mut to = Stream {
        out,
        buffer: Writer::default(),
    };
    let mut strings = Strings::default();
    strings.id("");

    let own = match &recording.domain.unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Count(_) => "count",
    };
    for (name, unit) in SAMPLE_TYPES {
        let unit = if unit == "nanoseconds" { own } else { unit };
        to.message(field::profile::SAMPLE_TYPE, |w| {
            value_type(w, &mut strings, name, unit)
        })?;
    }
    for event in &recording.events {
        to.message(field::profile::SAMPLE_TYPE, |w| {
            value_type(w, &mut strings, &event.name, "count")
        })?;
    }
    let mut extra = Extra::new(recording);
    let mut columns = Columns {
        events: recording.events.len(),
        event: None,
    };
    let mut tables = Tables {
        strings: &mut strings,
        extra: &mut extra,
    };
    samples((recording, scaled), columns, &mut tables, &mut to)?;
    for (i, event) in recording.events.iter().enumerate() {
        if let Some(hits) = recording.of_event(&event.name) {
            let scaled = scale(&hits);
            columns.event = Some(i);
            samples((&hits, &scaled), columns, &mut tables, &mut to)?;
        }
    }
    mappings(recording, &mut strings, &mut to)?;
    locations(recording, &mut strings, &mut extra, &mut to)?;

    let w = &recording.window;
    to.number(field::profile::TIME_NANOS, w.start_unix_ns)?;
    let duration = w.end_ns.saturating_sub(w.start_ns);
    to.number(field::profile::DURATION_NANOS, duration)?;
    let on_cpu = |s: &&wallscope_model::Sample| s.state == State::OnCpu && s.count > 0;
    if let Some(s) = recording.samples.iter().find(on_cpu) {
        to.message(field::profile::PERIOD_TYPE, |w| {
            value_type(w, &mut strings, "on_cpu", own)
        })?;
        to.number(field::profile::PERIOD, s.ns / s.count)?;
    }
    for line in comments(recording, scaled) {
        to.number(field::profile::COMMENT, strings.id(&line))?;
    }
    to.number(field::profile::DEFAULT_SAMPLE_TYPE, strings.id("wall"))?;
    let extension = convert::to_bytes(recording, scaled);
    to.bytes(field::profile::RECORDING, &extension)?;
    for s in &strings.list {
        to.bytes(field::profile::STRING, s.as_bytes())?;
    }
    to.finish()
}

/// Fields on their way to the compressor.
struct Stream<W: Write> {
    out: GzEncoder<W>,
    buffer: Writer,
}

const CHUNK: usize = 256 * 1024;

impl<W: Write> Stream<W> {
    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Writer)) -> io::Result<()> {
        let mut inner = Writer::default();
        fill(&mut inner);
        self.bytes(field, &inner.bytes)
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) -> io::Result<()> {
        self.buffer.bytes(field, bytes);
        self.flush(CHUNK)
    }

    fn number(&mut self, field: u32, value: u64) -> io::Result<()> {
        self.buffer.number(field, value);
        Ok(())
    }

    fn flush(&mut self, above: usize) -> io::Result<()> {
        if self.buffer.bytes.len() > above {
            self.out.write_all(&self.buffer.bytes)?;
            self.buffer.bytes.clear();
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<W> {
        self.flush(0)?;
        self.out.finish()
    }
}

/// The string table.
#[derive(Default)]
struct Strings {
    ids: HashMap<String, u64>,
    list: Vec<String>,
}

impl Strings {
    fn id(&mut self, s: &str) -> u64 {
        if let Some(id) = self.ids.get(s) {
            return *id;
        }
        let id = self.list.len() as u64;
        self.ids.insert(s.to_string(), id);
        self.list.push(s.to_string());
        id
    }
}

/// Functions and locations that only other readers need: they follow the recording's own.
struct Extra {
    functions: Vec<String>,
    function_ids: HashMap<String, u64>,
    first_function: u64,
    /// Locations without code, by their function.
    locations: Vec<u64>,
    first_location: u64,
    location_ids: HashMap<u64, u64>,
}

impl Extra {
    fn new(rec: &Recording) -> Extra {
        Extra {
            functions: Vec::new(),
            function_ids: HashMap::new(),
            first_function: rec.functions.len() as u64 + 1,
            locations: Vec::new(),
            first_location: rec.frames.len() as u64 + 1,
            location_ids: HashMap::new(),
        }
    }

    fn function(&mut self, name: &str) -> u64 {
        if let Some(id) = self.function_ids.get(name) {
            return *id;
        }
        let id = self.first_function + self.functions.len() as u64;
        self.functions.push(name.to_string());
        self.function_ids.insert(name.to_string(), id);
        id
    }

    fn location(&mut self, name: &str) -> u64 {
        let function = self.function(name);
        let next = self.first_location + self.locations.len() as u64;
        let id = *self.location_ids.entry(function).or_insert(next);
        if id == next {
            self.locations.push(function);
        }
        id
    }
}

fn value_type(w: &mut Writer, strings: &mut Strings, name: &str, unit: &str) {
    w.number(field::value_type::TYPE, strings.id(name));
    w.number(field::value_type::UNIT, strings.id(unit));
}

/// The meaning of a sample's values: time, or numbers of an event.
#[derive(Clone, Copy)]
struct Columns {
    /// Events of the recording. Their columns follow those of time.
    events: usize,
    /// The event of the written samples; `None`: samples of time.
    event: Option<usize>,
}

impl Columns {
    /// Puts the values of a sample, in the order of [`SAMPLE_TYPES`] and then of the events.
    fn put(self, w: &mut Writer, state: State, count: u64, value: u64) {
        let of = |s: State| if state == s { value } else { 0 };
        let times = match self.event {
            Some(_) => [0; SAMPLE_TYPES.len()],
            None => [
                count,
                of(State::OnCpu),
                of(State::Runnable),
                of(State::Blocked),
                value,
            ],
        };
        let hits = (0..self.events).map(|i| if self.event == Some(i) { value } else { 0 });
        w.packed(field::sample::VALUE, times.into_iter().chain(hits));
    }
}

/// Tables that samples refer to.
struct Tables<'a> {
    strings: &'a mut Strings,
    extra: &'a mut Extra,
}

/// The samples of `rec`, with the values of `columns`.
fn samples<W: Write>(
    (rec, scaled): (&Recording, &Scaled),
    columns: Columns,
    tables: &mut Tables<'_>,
    to: &mut Stream<W>,
) -> io::Result<()> {
    let Tables { strings, extra } = tables;
    let keys = Keys::new(strings);
    let mut end = |end: &StackEnd| {
        let seen = !end.is_whole() && rec.stacks.iter().any(|s| s.end == *end);
        seen.then(|| extra.location(&name::truncated(*end)))
    };
    let ends: Vec<Option<u64>> = StackEnd::ALL.iter().map(&mut end).collect();
    let further: Vec<Vec<u8>> = (rec.label_sets.iter())
        .map(|set| keys.further(set, strings))
        .collect();
    let contexts = context_labels(rec, &keys, &further, strings);
    let none = Vec::new();
    let labels = |context: ContextId| contexts.get(context.0 as usize).unwrap_or(&none);
    let mut message = Writer::default();
    let mut last = None;
    for piece in &scaled.pieces {
        let s = &rec.samples[piece.sample as usize];
        let stack = &rec.stacks[s.stack.0 as usize];
        let root = StackEnd::ALL
            .iter()
            .position(|e| *e == stack.end)
            .and_then(|i| ends[i]);
        // A sample with several pieces is counted once.
        let count = match last == Some(piece.sample) {
            true => 0,
            false => s.count,
        };
        last = Some(piece.sample);
        message.bytes.clear();
        let frames = stack.frames.iter().map(|f| u64::from(f.0) + 1);
        message.packed(field::sample::LOCATION, frames.chain(root));
        columns.put(&mut message, s.state, count, piece.ns);
        message.bytes.extend_from_slice(labels(piece.context));
        if columns.event.is_none() {
            keys.text(&mut message, keys.state, strings.id(s.state.name()));
        }
        if let Some(reason) = s.reason_name() {
            keys.text(&mut message, keys.reason, strings.id(reason));
        }
        if s.idle {
            keys.text(&mut message, keys.idle, strings.id("true"));
        }
        if let Some(cpu) = s.cpu {
            keys.numeric(&mut message, keys.cpu, u64::from(cpu));
        }
        if let Some(set) = s.labels.and_then(|l| further.get(l.0 as usize)) {
            message.bytes.extend_from_slice(set);
        }
        to.bytes(field::profile::SAMPLE, &message.bytes)?;
    }
    for u in &scaled.unsampled {
        message.bytes.clear();
        let location = extra.location(NOT_SAMPLED);
        message.packed(field::sample::LOCATION, std::iter::once(location));
        columns.put(&mut message, u.state, 0, u.ns);
        message.bytes.extend_from_slice(labels(u.context));
        if columns.event.is_none() {
            keys.text(&mut message, keys.state, strings.id(u.state.name()));
            if let Some(reason) = u.reason {
                keys.text(&mut message, keys.reason, strings.id(reason));
            }
        }
        to.bytes(field::profile::SAMPLE, &message.bytes)?;
    }
    Ok(())
}

/// Labels that depend on the context alone, ready to append. `further`: those of each set of labels.
fn context_labels(
    rec: &Recording,
    keys: &Keys,
    further: &[Vec<u8>],
    strings: &mut Strings,
) -> Vec<Vec<u8>> {
    let processes: HashMap<u32, &str> = rec.processes.iter().map(|p| (p.pid, &*p.name)).collect();
    let contexts = rec.contexts.iter().enumerate();
    let labels = contexts.map(|(i, c)| {
        let process = processes.get(&c.pid).unwrap_or(&"");
        let mut own = keys.context(c, process, strings);
        let set = rec.context_labels.get(i).copied().flatten();
        own.extend(set.iter().flat_map(|l| &further[l.0 as usize]));
        own
    });
    labels.collect()
}

/// String ids of the label keys.
struct Keys {
    thread: u64,
    tid: u64,
    process: u64,
    pid: u64,
    state: u64,
    reason: u64,
    idle: u64,
    cpu: u64,
}

impl Keys {
    fn new(strings: &mut Strings) -> Keys {
        Keys {
            thread: strings.id("thread"),
            tid: strings.id("tid"),
            process: strings.id("process"),
            pid: strings.id("pid"),
            state: strings.id("state"),
            reason: strings.id("reason"),
            idle: strings.id("idle"),
            cpu: strings.id("cpu"),
        }
    }

    fn context(&self, c: &Context, process: &str, strings: &mut Strings) -> Vec<u8> {
        let mut w = Writer::default();
        self.text(&mut w, self.thread, strings.id(&c.name));
        self.numeric(&mut w, self.tid, u64::from(c.tid));
        self.text(&mut w, self.process, strings.id(process));
        self.numeric(&mut w, self.pid, u64::from(c.pid));
        w.bytes
    }

    /// Labels beyond the contract's own.
    fn further(&self, set: &[Label], strings: &mut Strings) -> Vec<u8> {
        let mut w = Writer::default();
        for Label { key, value } in set {
            let mut label = Writer::default();
            label.number(field::label::KEY, strings.id(key));
            match value {
                LabelValue::Text(text) => label.number(field::label::STR, strings.id(text)),
                LabelValue::Number(number, unit) => {
                    label.number(field::label::NUM, *number as u64);
                    label.number(field::label::UNIT, strings.id(unit));
                }
            }
            w.bytes(field::sample::LABEL, &label.bytes);
        }
        w.bytes
    }

    /// A string label; none if the string is empty.
    fn text(&self, w: &mut Writer, key: u64, value: u64) {
        if value == 0 {
            return;
        }
        let mut label = Writer::default();
        label.number(field::label::KEY, key);
        label.number(field::label::STR, value);
        w.bytes(field::sample::LABEL, &label.bytes);
    }

    fn numeric(&self, w: &mut Writer, key: u64, value: u64) {
        let mut label = Writer::default();
        label.number(field::label::KEY, key);
        label.number(field::label::NUM, value);
        w.bytes(field::sample::LABEL, &label.bytes);
    }
}

fn mappings<W: Write>(
    rec: &Recording,
    strings: &mut Strings,
    to: &mut Stream<W>,
) -> io::Result<()> {
    let mut limits = vec![0u64; rec.modules.len()];
    let mut inlined = vec![false; rec.modules.len()];
    for f in &rec.frames {
        if let Some(m) = f.module {
            let m = m.0 as usize;
            limits[m] = limits[m].max(f.address.saturating_add(1));
            inlined[m] |= f.lines.len() > 1;
        }
    }
    // Readers take the first mapping for the program.
    let program = |path: &str| {
        rec.processes
            .iter()
            .any(|p| !p.exe.is_empty() && *p.exe == *path)
    };
    let mut order: Vec<_> = rec.modules.iter().enumerate().collect();
    order.sort_by_key(|(_, m)| !program(&m.path));
    for (i, m) in order {
        to.message(field::profile::MAPPING, |w| {
            w.number(field::mapping::ID, i as u64 + 1);
            // Addresses are offsets in the file, so the file is mapped at 0.
            w.number(field::mapping::START, 0);
            w.number(field::mapping::LIMIT, limits[i]);
            w.number(field::mapping::FILE, strings.id(&m.path));
            w.number(field::mapping::BUILD_ID, strings.id(&m.build_id));
            // All known names are in the profile: readers need not search for the file.
            w.number(field::mapping::HAS_FUNCTIONS, 1);
            w.number(field::mapping::HAS_FILENAMES, 1);
            w.number(field::mapping::HAS_LINE_NUMBERS, 1);
            w.number(field::mapping::HAS_INLINE_FRAMES, u64::from(inlined[i]));
        })?;
    }
    Ok(())
}

fn locations<W: Write>(
    rec: &Recording,
    strings: &mut Strings,
    extra: &mut Extra,
    to: &mut Stream<W>,
) -> io::Result<()> {
    let line = |w: &mut Writer, function: u64, line: u64| {
        let mut l = Writer::default();
        l.number(field::line::FUNCTION, function);
        l.number(field::line::LINE, line);
        w.bytes(field::location::LINE, &l.bytes);
    };
    for (i, f) in rec.frames.iter().enumerate() {
        let unresolved = f
            .lines
            .is_empty()
            .then(|| extra.function(&name::address(rec, f)));
        to.message(field::profile::LOCATION, |w| {
            w.number(field::location::ID, i as u64 + 1);
            w.number(
                field::location::MAPPING,
                f.module.map_or(0, |m| u64::from(m.0) + 1),
            );
            w.number(field::location::ADDRESS, f.address);
            for l in &f.lines {
                line(w, u64::from(l.function.0) + 1, u64::from(l.line));
            }
            if let Some(function) = unresolved {
                line(w, function, 0);
            }
        })?;
    }
    for (id, function) in (extra.first_location..).zip(&extra.locations) {
        to.message(field::profile::LOCATION, |w| {
            w.number(field::location::ID, id);
            line(w, *function, 0);
        })?;
    }
    for (i, f) in rec.functions.iter().enumerate() {
        to.message(field::profile::FUNCTION, |w| {
            w.number(field::function::ID, i as u64 + 1);
            w.number(field::function::NAME, strings.id(&f.name));
            w.number(field::function::SYSTEM_NAME, strings.id(&f.system_name));
            w.number(field::function::FILE, strings.id(&f.file));
            w.number(field::function::START_LINE, u64::from(f.start_line));
        })?;
    }
    for (id, function) in (extra.first_function..).zip(&extra.functions) {
        to.message(field::profile::FUNCTION, |w| {
            w.number(field::function::ID, id);
            w.number(field::function::NAME, strings.id(function));
            w.number(field::function::SYSTEM_NAME, strings.id(function));
        })?;
    }
    Ok(())
}

/// The domain in words, for readers that show comments.
fn comments(rec: &Recording, scaled: &Scaled) -> Vec<String> {
    let mut lines = domain_text::domain_lines(rec);
    lines.extend(domain_text::loss_lines(rec));
    lines.extend(domain_text::scaling_lines(scaled, &rec.domain.unit));
    lines
}
