//! OTLP → recording.

use rustc_hash::FxHashMap;
use wallscope_model::{
    BlockReason, ContextId, Frame, FrameId, FrameKind, FunctionId, Label, LabelValue, Limit, Line,
    Part, StackEnd, StackId, State, Unit, Window,
};

use super::super::import::{About, Import, Kind};
use super::super::pprof::columns;
use super::super::source::Source;
use super::super::wire::{Fields, Malformed, Value};
use super::super::{Options, Read, ReadError};
use super::{damaged, field};

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
pub(crate) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
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
