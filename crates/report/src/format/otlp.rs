//! OpenTelemetry's profiles (OTLP, `v1development`: the format may still change) ↔ recording.
//!
//! Protocol Buffers, as collectors exchange and store them. Everything that is alpha about it is in
//! this module. A profile there has one type of values; several of one unit are read together.

use std::io::{self, Write};

use rustc_hash::FxHashMap;
use wallscope_model::{
    BlockReason, ContextId, Frame, FrameId, FrameKind, FunctionId, Label, LabelValue, Limit, Line,
    Part, Recording, StackEnd, StackId, State, Unit, View, Window,
};

use super::import::{About, Import, Kind};
use super::pprof::columns;
use super::source::Source;
use super::wire::{Fields, Malformed, Value, Writer};
use super::written::{Rows, left_out};
use super::{Options, Read, ReadError, WriteOptions};

/// Field numbers of the messages.
mod field {
    pub const DICTIONARY: u32 = 2;
    pub const RESOURCE_PROFILES: u32 = 1;
    pub const SCOPE_PROFILES: u32 = 2;
    pub const PROFILES: u32 = 2;
    pub mod dictionary {
        pub const MAPPING: u32 = 1;
        pub const LOCATION: u32 = 2;
        pub const FUNCTION: u32 = 3;
        pub const LINK: u32 = 4;
        pub const STRING: u32 = 5;
        pub const ATTRIBUTE: u32 = 6;
        pub const STACK: u32 = 7;
    }
    pub mod profile {
        pub const SAMPLE_TYPE: u32 = 1;
        pub const SAMPLES: u32 = 2;
        pub const TIME: u32 = 3;
        pub const DURATION: u32 = 4;
    }
    pub mod sample {
        pub const STACK: u32 = 1;
        pub const ATTRIBUTES: u32 = 2;
        pub const VALUES: u32 = 4;
        pub const TIMES: u32 = 5;
    }
}

/// Whether it is OTLP: after resources a dictionary whose strings begin with an empty one. Such a
/// file has no field that tells it from others at once, so every field is looked at.
pub(super) fn detect(head: &[u8]) -> bool {
    if !head.iter().any(|b| *b < 9) {
        return false;
    }
    let mut seen = 0;
    for item in Fields::new(head) {
        let Ok((number, value)) = item else { break };
        let Value::Bytes(bytes) = value else {
            return false;
        };
        let plausible = match number {
            field::RESOURCE_PROFILES => {
                Fields::new(bytes).all(|f| matches!(f, Ok((1..=3 | 1000, Value::Bytes(_)))))
            }
            field::DICTIONARY => {
                Fields::new(bytes).all(|f| matches!(f, Ok((1..=7, Value::Bytes(_)))))
            }
            _ => false,
        };
        if !plausible {
            return false;
        }
        seen += 1;
    }
    // Resources larger than the head: their own beginning has to do.
    seen > 0 || nested(head)
}

/// Whether the head begins with a resource whose profiles do not fit into it.
fn nested(head: &[u8]) -> bool {
    let mut rest = head;
    let mut key = |number: u32| -> bool {
        let Some((first, after)) = rest.split_first() else {
            return false;
        };
        if u32::from(*first) != number << 3 | 2 {
            return false;
        }
        let len = after
            .iter()
            .position(|b| b & 0x80 == 0)
            .unwrap_or(after.len());
        rest = after.get(len + 1..).unwrap_or_default();
        true
    };
    (key(1) || key(2)) && (key(1) || key(2))
}

fn damaged(what: &str) -> ReadError {
    ReadError::Damaged {
        what: what.to_string(),
    }
}

/// A profile, nothing copied.
#[derive(Default)]
struct Profile<'a> {
    name: u64,
    unit: u64,
    samples: Vec<&'a [u8]>,
    time: u64,
    duration: u64,
}

#[derive(Default)]
struct Tables<'a> {
    strings: Vec<&'a [u8]>,
    mappings: Vec<&'a [u8]>,
    locations: Vec<&'a [u8]>,
    functions: Vec<&'a [u8]>,
    attributes: Vec<&'a [u8]>,
    stacks: Vec<&'a [u8]>,
    profiles: Vec<Profile<'a>>,
}

impl<'a> Tables<'a> {
    fn add(&mut self, number: u32, bytes: &'a [u8]) -> Result<(), Malformed> {
        match number {
            field::RESOURCE_PROFILES => {
                for scope in Fields::new(bytes) {
                    let (field::SCOPE_PROFILES, scope) = scope? else {
                        continue;
                    };
                    for profile in Fields::new(scope.bytes()) {
                        if let (field::PROFILES, p) = profile? {
                            self.profiles.push(Profile::new(p.bytes())?);
                        }
                    }
                }
            }
            field::DICTIONARY => {
                for item in Fields::new(bytes) {
                    use field::dictionary as d;
                    let (number, value) = item?;
                    match number {
                        d::MAPPING => self.mappings.push(value.bytes()),
                        d::LOCATION => self.locations.push(value.bytes()),
                        d::FUNCTION => self.functions.push(value.bytes()),
                        d::STRING => self.strings.push(value.bytes()),
                        d::ATTRIBUTE => self.attributes.push(value.bytes()),
                        d::STACK => self.stacks.push(value.bytes()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn string(&self, index: u64) -> String {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        String::from_utf8_lossy(self.strings.get(at).copied().unwrap_or_default()).into_owned()
    }
}

impl<'a> Profile<'a> {
    fn new(bytes: &'a [u8]) -> Result<Profile<'a>, Malformed> {
        use field::profile as f;
        let mut p = Profile::default();
        for item in Fields::new(bytes) {
            match item? {
                (f::SAMPLE_TYPE, v) => {
                    [p.name, p.unit] = numbers(v.bytes())?;
                }
                (f::SAMPLES, v) => p.samples.push(v.bytes()),
                (f::TIME, v) => p.time = v.number(),
                (f::DURATION, v) => p.duration = v.number(),
                _ => {}
            }
        }
        Ok(p)
    }
}

/// The first fields of a message of numbers.
fn numbers<const N: usize>(bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let mut out = [0; N];
    for item in Fields::new(bytes) {
        let (number, value) = item?;
        if let Some(to) = (number as usize)
            .checked_sub(1)
            .and_then(|i| out.get_mut(i))
        {
            *to = value.number();
        }
    }
    Ok(out)
}

/// Reads OTLP.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let mut t = Tables::default();
    let mut cut = source.cut();
    for item in Fields::new(&bytes) {
        let added = item.and_then(|(number, value)| t.add(number, value.bytes()));
        if added.is_err() {
            cut = true;
            break;
        }
    }
    if !t.strings.first().is_some_and(|s| s.is_empty()) {
        return Err(if cut {
            ReadError::Truncated
        } else {
            damaged("its dictionary of strings is missing")
        });
    }
    let types: Vec<(String, Unit, u64)> = t
        .profiles
        .iter()
        .map(|p| {
            let name = t.string(p.name);
            let (unit, factor) = columns::unit(&name, &t.string(p.unit));
            (name, unit, factor)
        })
        .collect();
    let asked = options.value.as_deref();
    let first = match asked {
        Some(asked) => types.iter().position(|(n, ..)| n == asked),
        None => types.iter().position(|(_, u, _)| u.is_time()).or(Some(0)),
    };
    let Some((_, unit, _)) = first.and_then(|i| types.get(i)).cloned() else {
        let have: Vec<_> = types.iter().map(|(n, ..)| n.as_str()).collect();
        return Err(match asked {
            Some(asked) if !have.is_empty() => ReadError::NoSuchValue {
                asked: asked.to_string(),
                have: have.join(", "),
            },
            _ => ReadError::NoValues,
        });
    };
    let mut to = Import::new(memory);
    let mut reader = Reader::new(&t, &mut to)?;
    let (mut used, mut others) = (Vec::new(), Vec::new());
    for (p, (name, own, factor)) in t.profiles.iter().zip(&types) {
        let wanted = asked.map_or(*own == unit, |a| a == name);
        let list = if wanted { &mut used } else { &mut others };
        if !list.contains(name) {
            list.push(name.clone());
        }
        if !wanted {
            continue;
        }
        to.window(Window {
            start_ns: 0,
            end_ns: p.duration.min(1 << 61),
            clock: "CLOCK_REALTIME".to_string(),
            start_unix_ns: p.time,
        });
        let state = columns::state(name, own);
        for sample in &p.samples {
            reader.sample(sample, state, own, *factor, &mut to)?;
        }
    }
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let mut warnings = Vec::new();
    if cut {
        warnings.push("the file ends in the middle: what came before is used".to_string());
    }
    let mut notes = Vec::new();
    if !others.is_empty() {
        notes.push(format!(
            "the file also holds {}: choose with --value NAME",
            others.join(", ")
        ));
    }
    let about = About {
        format: "OpenTelemetry's profiles (OTLP, alpha)".to_string(),
        values: format!("samples of {}", used.join(", ")),
        unit,
        limits: vec![Limit {
            what: "whether stacks are whole is not known".to_string(),
            remedy: String::new(),
        }],
        notes,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

/// An attribute's key and value.
#[derive(Clone)]
struct Attribute {
    key: String,
    value: LabelValue,
}

struct Reader {
    attributes: Vec<Attribute>,
    stacks: Vec<StackId>,
    contexts: FxHashMap<(u32, u32, String, String), ContextId>,
}

impl Reader {
    fn new(t: &Tables, to: &mut Import) -> Result<Reader, ReadError> {
        let mut attributes = Vec::with_capacity(t.attributes.len());
        for bytes in &t.attributes {
            let (mut key, mut unit, mut any) = (0, 0, &b""[..]);
            for item in Fields::new(bytes) {
                match item? {
                    (1, v) => key = v.number(),
                    (2, v) => any = v.bytes(),
                    (3, v) => unit = v.number(),
                    _ => {}
                }
            }
            let mut value = LabelValue::Text(to.text("")?);
            for item in Fields::new(any) {
                value = match item? {
                    (1, v) => LabelValue::Text(to.text(&String::from_utf8_lossy(v.bytes()))?),
                    (2, v) => {
                        LabelValue::Text(to.text(if v.number() == 0 { "false" } else { "true" })?)
                    }
                    (3, v) => LabelValue::Number(v.number() as i64, to.text(&t.string(unit))?),
                    _ => continue,
                };
            }
            attributes.push(Attribute {
                key: t.string(key),
                value,
            });
        }
        let mut functions: Vec<FunctionId> = Vec::with_capacity(t.functions.len());
        for bytes in &t.functions {
            let [name, system, file, line] = numbers(bytes)?;
            let line = u32::try_from(line).unwrap_or(0);
            functions.push(to.function(
                &t.string(name),
                &t.string(system),
                &t.string(file),
                line,
            )?);
        }
        let mut modules = Vec::with_capacity(t.mappings.len());
        for bytes in &t.mappings {
            let (mut file, mut build_id) = (0, String::new());
            for item in Fields::new(bytes) {
                match item? {
                    (4, v) => file = v.number(),
                    (5, v) => {
                        let mut indices = Vec::new();
                        v.numbers(&mut indices)?;
                        for a in indices.iter().filter_map(|i| attributes.get(*i as usize)) {
                            if a.key.starts_with("process.executable.build_id") {
                                build_id = a.value.to_string();
                            }
                        }
                    }
                    _ => {}
                }
            }
            let path = t.string(file);
            modules.push(match path.as_str() {
                "" => None,
                path => {
                    let kind = Import::module_kind(path);
                    Some((to.module(kind, path, &build_id, 0)?, kind))
                }
            });
        }
        let mut frames: Vec<FrameId> = Vec::with_capacity(t.locations.len());
        for bytes in &t.locations {
            frames.push(location(bytes, &modules, &functions, &attributes, to)?);
        }
        let mut stacks = Vec::with_capacity(t.stacks.len());
        let mut indices = Vec::new();
        for bytes in &t.stacks {
            indices.clear();
            for item in Fields::new(bytes) {
                if let (1, v) = item? {
                    v.numbers(&mut indices)?;
                }
            }
            let own: Option<Vec<FrameId>> = indices
                .iter()
                .map(|i| frames.get(*i as usize).copied())
                .collect();
            let own =
                own.ok_or_else(|| damaged("a stack refers to a location that is not there"))?;
            stacks.push(to.stack(&own, StackEnd::Root)?);
        }
        Ok(Reader {
            attributes,
            stacks,
            contexts: FxHashMap::default(),
        })
    }

    fn sample(
        &mut self,
        bytes: &[u8],
        state: State,
        unit: &Unit,
        factor: u64,
        to: &mut Import,
    ) -> Result<(), ReadError> {
        use field::sample as f;
        let (mut stack, mut indices, mut values, mut times) =
            (0, Vec::new(), Vec::new(), Vec::new());
        for item in Fields::new(bytes) {
            match item? {
                (f::STACK, v) => stack = v.number(),
                (f::ATTRIBUTES, v) => v.numbers(&mut indices)?,
                (f::VALUES, v) => v.numbers(&mut values)?,
                (f::TIMES, Value::Bytes(b)) => {
                    let whole = b.chunks_exact(8);
                    times.extend(
                        whole.map(|c| u64::from_le_bytes(c.try_into().unwrap_or_default())),
                    );
                }
                (f::TIMES, v) => times.push(v.number()),
                _ => {}
            }
        }
        let stack = usize::try_from(stack)
            .ok()
            .and_then(|i| self.stacks.get(i))
            .copied();
        let stack = stack.ok_or_else(|| damaged("a sample refers to a stack that is not there"))?;
        let mut kind = Kind::of(state);
        let mut who = (0u32, 0u32, String::new(), String::new());
        let (mut further, mut count, mut cpu) = (Vec::new(), None, None);
        for a in indices
            .iter()
            .filter_map(|i| self.attributes.get(*i as usize))
        {
            let small = || match &a.value {
                LabelValue::Number(n, _) => u32::try_from(*n).unwrap_or(0),
                LabelValue::Text(t) => t.parse().unwrap_or(0),
            };
            match a.key.as_str() {
                "process.pid" => who.0 = small(),
                "thread.id" => who.1 = small(),
                "thread.name" => who.2 = a.value.to_string(),
                "process.executable.name" => who.3 = a.value.to_string(),
                "cpu.logical_number" => cpu = Some(small()),
                "wallscope.samples" => count = Some(u64::from(small())),
                "wallscope.reason" => {
                    let name = a.value.to_string();
                    kind.reason = BlockReason::from_name(&name);
                    kind.part = Part::from_name(&name);
                }
                "wallscope.idle" => kind.idle = true,
                key => further.push(Label {
                    key: to.text(key)?,
                    value: a.value.clone(),
                }),
            }
        }
        kind.labels = to.labels(further)?;
        let context = match self.contexts.get(&who) {
            Some(id) => *id,
            None => {
                let id = to.context(who.0, who.1, &who.2, &who.3)?;
                self.contexts.insert(who, id);
                id
            }
        };
        if values.is_empty() {
            // Moments without values are one each.
            values = vec![1; times.len()];
        }
        let n = values.len();
        for (i, value) in values.into_iter().enumerate() {
            let value = u64::try_from(value as i64).map_err(|_| damaged("a negative value"))?;
            let value = value.saturating_mul(factor);
            if value == 0 {
                continue;
            }
            let time = (n == times.len()).then(|| times[i]);
            let count = match (count, unit) {
                (Some(n), _) => n,
                (None, Unit::Count(_)) => value,
                (None, _) => 1,
            };
            to.sample(context, stack, kind, cpu, (count, value), time)?;
        }
        Ok(())
    }
}

fn location(
    bytes: &[u8],
    modules: &[Option<(wallscope_model::ModuleId, wallscope_model::ModuleKind)>],
    functions: &[FunctionId],
    attributes: &[Attribute],
    to: &mut Import,
) -> Result<FrameId, ReadError> {
    use wallscope_model::ModuleKind;
    let (mut module, mut address, mut lines, mut kind) = (None, 0, Vec::new(), None);
    for item in Fields::new(bytes) {
        match item? {
            (1, v) => module = modules.get(v.number() as usize).copied().flatten(),
            (2, v) => address = v.number(),
            (3, v) => {
                let [function, line] = numbers(v.bytes())?;
                let function = functions.get(function as usize).copied();
                lines.extend(function.map(|function| Line {
                    function,
                    line: u32::try_from(line).unwrap_or(0),
                }));
            }
            (4, v) => {
                let mut indices = Vec::new();
                v.numbers(&mut indices)?;
                for a in indices.iter().filter_map(|i| attributes.get(*i as usize)) {
                    if a.key == "profile.frame.type" {
                        kind = Some(a.value.to_string());
                    }
                }
            }
            _ => {}
        }
    }
    let kind = match (kind.as_deref(), module) {
        (Some("kernel"), _) | (None, Some((_, ModuleKind::Kernel))) => FrameKind::Kernel,
        (Some("native"), _) => FrameKind::Native,
        (Some("jit" | "jvm" | "v8js" | "beam" | "dotnet"), _)
        | (None, Some((_, ModuleKind::Jit))) => FrameKind::Jit,
        _ => FrameKind::Native,
    };
    to.frame(Frame {
        kind,
        module: module.map(|(id, _)| id),
        address,
        lines,
    })
}

/// Tables in the making; place 0 of each is the empty entry that the format asks for.
struct Dictionary {
    strings: FxHashMap<String, u64>,
    attributes: FxHashMap<(u64, String, bool), u64>,
    out: Writer,
}

impl Dictionary {
    fn string(&mut self, text: &str) -> u64 {
        if let Some(n) = self.strings.get(text) {
            return *n;
        }
        let n = self.strings.len() as u64;
        self.strings.insert(text.to_string(), n);
        self.out.bytes(field::dictionary::STRING, text.as_bytes());
        n
    }

    fn attribute(&mut self, key: &str, value: &str, number: bool) -> u64 {
        let key = self.string(key);
        let next = self.attributes.len() as u64 + 1;
        let n = *self
            .attributes
            .entry((key, value.to_string(), number))
            .or_insert(next);
        if n == next {
            let mut any = Writer::default();
            match value.parse::<u64>() {
                Ok(v) if number => {
                    // A zero has to be written: its field tells the type.
                    any.present(3, v);
                }
                _ => any.bytes(1, value.as_bytes()),
            }
            let mut w = Writer::default();
            w.number(1, key);
            w.bytes(2, &any.bytes);
            self.out.bytes(field::dictionary::ATTRIBUTE, &w.bytes);
        }
        n
    }
}

/// Writes all of the recording's time, a profile for each state.
pub(super) fn write(
    rec: &Recording,
    _: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, View::Wall);
    let mut d = Dictionary {
        strings: FxHashMap::default(),
        attributes: FxHashMap::default(),
        out: Writer::default(),
    };
    d.string("");
    use field::dictionary as f;
    for table in [
        f::MAPPING,
        f::LOCATION,
        f::FUNCTION,
        f::LINK,
        f::ATTRIBUTE,
        f::STACK,
    ] {
        d.out.bytes(table, &[]);
    }
    let mut modules: FxHashMap<&str, u64> = FxHashMap::default();
    let mut mapping_of = Vec::new();
    for info in rows.functions() {
        let next = modules.len() as u64 + 1;
        let n = match &*info.module {
            "" => 0,
            path => *modules.entry(path).or_insert(next),
        };
        if n == next {
            let known = rec.modules.iter().find(|m| m.path == info.module);
            let build_id = known.map_or("", |m| &m.build_id);
            let name = d.string(&info.module);
            let mut w = Writer::default();
            w.number(4, name);
            if !build_id.is_empty() {
                let a = d.attribute("process.executable.build_id.gnu", build_id, false);
                w.packed(5, std::iter::once(a));
            }
            d.out.bytes(f::MAPPING, &w.bytes);
        }
        mapping_of.push(n);
        let (name, file) = (d.string(&info.name), d.string(&info.file));
        let mut w = Writer::default();
        w.number(1, name);
        w.number(3, file);
        w.number(4, u64::from(info.line));
        d.out.bytes(f::FUNCTION, &w.bytes);
    }
    let kinds: Vec<u64> = ["native", "kernel", "jit"]
        .iter()
        .map(|k| d.attribute("profile.frame.type", k, false))
        .collect();
    let mut locations: FxHashMap<(u32, u32), u64> = FxHashMap::default();
    let functions: Vec<_> = rows.functions().collect();
    for path in rows.paths() {
        let mut stack = Vec::with_capacity(path.len());
        for step in path.iter().rev() {
            let next = locations.len() as u64 + 1;
            let n = *locations.entry((step.function, step.line)).or_insert(next);
            if n == next {
                let mut line = Writer::default();
                line.number(1, u64::from(step.function) + 1);
                line.number(2, u64::from(step.line));
                let mut w = Writer::default();
                w.number(1, mapping_of[step.function as usize]);
                w.bytes(3, &line.bytes);
                let kind = match functions[step.function as usize].suffix {
                    "_[k]" => kinds[1],
                    "_[j]" => kinds[2],
                    _ => kinds[0],
                };
                w.packed(4, std::iter::once(kind));
                d.out.bytes(f::LOCATION, &w.bytes);
            }
            stack.push(n);
        }
        let mut w = Writer::default();
        w.packed(1, stack.iter().copied());
        d.out.bytes(f::STACK, &w.bytes);
    }
    let mut profiles: Vec<Writer> = State::ALL.iter().map(|_| Writer::default()).collect();
    let mut has = [false; State::COUNT];
    for (who, rows) in rows.by_context() {
        let c = who.context;
        let mut own = vec![
            d.attribute("process.pid", &c.pid.to_string(), true),
            d.attribute("thread.id", &c.tid.to_string(), true),
        ];
        if !c.name.is_empty() {
            own.push(d.attribute("thread.name", &c.name, false));
        }
        if !who.process.is_empty() {
            own.push(d.attribute("process.executable.name", &who.process, false));
        }
        for r in rows {
            let mut attributes = own.clone();
            if let Some(reason) = r.reason {
                attributes.push(d.attribute("wallscope.reason", reason, false));
            }
            let sample = r.sample.and_then(|s| rec.samples.get(s as usize));
            if sample.is_some_and(|s| s.idle) {
                attributes.push(d.attribute("wallscope.idle", "true", false));
            }
            attributes.push(d.attribute("wallscope.samples", &r.count.to_string(), true));
            if let Some(cpu) = sample.and_then(|s| s.cpu) {
                attributes.push(d.attribute("cpu.logical_number", &cpu.to_string(), true));
            }
            let set = sample
                .and_then(|s| s.labels)
                .and_then(|l| rec.label_sets.get(l.0 as usize));
            for label in set.into_iter().flatten() {
                let number = matches!(label.value, LabelValue::Number(n, _) if n >= 0);
                let text = match &label.value {
                    LabelValue::Number(n, _) => n.to_string(),
                    LabelValue::Text(t) => t.to_string(),
                };
                attributes.push(d.attribute(&label.key, &text, number));
            }
            let mut w = Writer::default();
            w.number(field::sample::STACK, u64::from(r.path_id) + 1);
            w.packed(field::sample::ATTRIBUTES, attributes.iter().copied());
            w.packed(field::sample::VALUES, std::iter::once(r.value));
            profiles[r.state as usize].bytes(field::profile::SAMPLES, &w.bytes);
            has[r.state as usize] = true;
        }
    }
    let mut scope = Writer::default();
    let window = &rec.window;
    for (state, samples) in State::ALL.iter().zip(profiles) {
        if !has[*state as usize] {
            continue;
        }
        let (name, unit) = match &rec.domain.unit {
            Unit::Nanoseconds => (state.name().to_string(), "nanoseconds"),
            Unit::Bytes => ("bytes".to_string(), "bytes"),
            Unit::Count(name) => (name.clone(), "count"),
        };
        let mut kind = Writer::default();
        kind.number(1, d.string(&name));
        kind.number(2, d.string(unit));
        let mut p = Writer::default();
        p.bytes(field::profile::SAMPLE_TYPE, &kind.bytes);
        p.bytes.extend_from_slice(&samples.bytes);
        p.fixed(field::profile::TIME, window.start_unix_ns);
        p.number(
            field::profile::DURATION,
            window.end_ns.saturating_sub(window.start_ns),
        );
        scope.bytes(field::PROFILES, &p.bytes);
    }
    let mut resource = Writer::default();
    resource.bytes(field::SCOPE_PROFILES, &scope.bytes);
    let mut w = Writer::default();
    w.bytes(field::RESOURCE_PROFILES, &resource.bytes);
    out.write_all(&w.bytes)?;
    let mut w = Writer::default();
    w.bytes(field::DICTIONARY, &d.out.bytes);
    out.write_all(&w.bytes)?;
    out.flush()?;
    let mut lost = left_out(rec, &["time slices", "addresses"]);
    // Labels have a place here.
    lost.iter_mut().for_each(|l| *l = l.replace("; labels", ""));
    Ok(lost)
}
