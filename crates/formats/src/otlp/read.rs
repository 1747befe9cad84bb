//! OTLP → recording.

use rustc_hash::FxHashMap;
use wallscope_model::{
    ContextId, Frame, FrameId, FrameKind, FunctionId, Label, Limit, Line, ModuleId, ModuleKind,
    StackEnd, StackId, Unit, Window,
};

use super::super::import::{About, Amount, Import};
use super::super::pprof::columns;
use super::super::source::Source;
use super::super::wire::{Fields, Malformed};
use super::super::{Options, Read, ReadError};
use super::attributes::{AttributeList, any_by_index};
use super::choice::Choice;
use super::layout::{self, AttributeTable, Layout, SampleFields};
use super::sample::{Identity, Sample};
use super::tables::Tables;
use super::{damaged, field};

/// A profile, nothing copied.
#[derive(Default)]
struct Profile<'a> {
    name: u64,
    unit: u64,
    samples: Vec<&'a [u8]>,
    time: u64,
    duration: u64,
    attributes: Vec<u64>,
    /// Its resource, by place.
    resource: usize,
}

/// The layout of the file.
fn layout_of(t: &Tables) -> Result<Layout, ReadError> {
    let profiles: Vec<&[u8]> = t.profiles.iter().map(|(bytes, _)| *bytes).collect();
    let whole = t.strings.first().is_some_and(|s| s.is_empty());
    if !whole {
        return Err(if t.cut {
            ReadError::Truncated
        } else {
            layout::without_dictionary(&t.top, &profiles)
        });
    }
    let table = AttributeTable {
        length: t.attributes.len() as u64,
        by_index: any_by_index(&t.attributes)?,
    };
    layout::of_profiles(&profiles, Some(table))
}

impl<'a> Profile<'a> {
    fn new((bytes, resource): (&'a [u8], usize), layout: Layout) -> Result<Profile<'a>, Malformed> {
        use field::profile as f;
        let mut p = Profile {
            resource,
            ..Profile::default()
        };
        for item in Fields::new(bytes) {
            match item? {
                (f::SAMPLE_TYPE, v) => {
                    [p.name, p.unit] = numbers(v.bytes())?;
                }
                (f::SAMPLES, v) => p.samples.push(v.bytes()),
                (f::TIME, v) => p.time = v.number(),
                (f::DURATION, v) => p.duration = v.number(),
                (n, v) if Some(n) == layout.profile_attributes() => v.numbers(&mut p.attributes)?,
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

/// A profile with the meaning of its values.
struct Typed<'a> {
    profile: Profile<'a>,
    name: String,
    unit: Unit,
    factor: u64,
}

/// Reads OTLP.
pub(crate) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let bytes = source.bytes()?;
    let mut t = Tables::default();
    for item in Fields::new(&bytes) {
        let added = item.and_then(|(number, value)| t.add(number, value.bytes()));
        if added.is_err() {
            source.set_cut();
            break;
        }
    }
    t.cut = source.cut();
    let layout = layout_of(&t)?;
    let profiles = typed(&t, layout)?;
    let asked = options.value.as_deref();
    let values: Vec<(&str, &Unit)> = (profiles.iter()).map(|p| (&*p.name, &p.unit)).collect();
    let choice = Choice::of(&values, asked)?;
    let mut to = Import::new(memory);
    let mut reader = Reader::new(&t, layout.sample(), &mut to)?;
    let (mut used, mut others) = (Vec::new(), Vec::new());
    for p in &profiles {
        let wanted = choice.is_read(&p.name, &p.unit);
        let list = if wanted { &mut used } else { &mut others };
        if !list.contains(&p.name) {
            list.push(p.name.clone());
        }
        if wanted {
            reader.profile(p, &t, &mut to)?;
        }
    }
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let mut warnings = Vec::new();
    if t.cut {
        warnings.push("the file ends in the middle: what came before is used".to_string());
    }
    let mut notes = Vec::new();
    if !others.is_empty() {
        notes.push(format!(
            "the file also holds {}: choose with --value NAME",
            others.join(", ")
        ));
    }
    if reader.attributes.left_out > 0 {
        notes.push(format!(
            "{} attributes are lists, maps or empty, and were left out",
            reader.attributes.left_out
        ));
    }
    if layout == Layout::V1_8 {
        notes.push("attributes of whole profiles are not read from this layout".to_string());
    }
    let about = About {
        format: match layout {
            Layout::V1_8 => "OpenTelemetry's profiles (OTLP 1.8 or 1.9, alpha)",
            Layout::V1_10 => "OpenTelemetry's profiles (OTLP 1.10 or later, alpha)",
        }
        .to_string(),
        values: format!("samples of {}", used.join(", ")),
        unit: choice.unit,
        limits: vec![Limit {
            what: "whether stacks are whole is not known".to_string(),
            remedy: String::new(),
        }],
        notes,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

fn typed<'a>(t: &Tables<'a>, layout: Layout) -> Result<Vec<Typed<'a>>, ReadError> {
    let mut out = Vec::with_capacity(t.profiles.len());
    for bytes in &t.profiles {
        let profile = Profile::new(*bytes, layout)?;
        let name = t.string(profile.name)?;
        let (unit, factor) = columns::unit(&name, &t.string(profile.unit)?);
        out.push(Typed {
            profile,
            name,
            unit,
            factor,
        });
    }
    Ok(out)
}

struct Reader {
    fields: SampleFields,
    attributes: AttributeList,
    stacks: Vec<StackId>,
    contexts: FxHashMap<(u32, u32, String, String), ContextId>,
}

impl Reader {
    fn new(t: &Tables, fields: SampleFields, to: &mut Import) -> Result<Reader, ReadError> {
        let attributes = AttributeList::of(t, to)?;
        let mut functions: Vec<Option<FunctionId>> = Vec::with_capacity(t.functions.len());
        for bytes in &t.functions {
            let [name, system, file, line] = numbers(bytes)?;
            let line = u32::try_from(line).unwrap_or(0);
            let (name, system) = (t.string(name)?, t.string(system)?);
            // The human-readable name may be missing; the first function of a table is none.
            let shown = if name.is_empty() { &system } else { &name };
            functions.push(match shown.as_str() {
                "" => None,
                shown => Some(to.function(shown, &system, &t.string(file)?, line)?),
            });
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
                        for a in attributes.get(&indices) {
                            let a = a?;
                            if a.key.starts_with("process.executable.build_id") {
                                build_id = a.value.to_string();
                            }
                        }
                    }
                    _ => {}
                }
            }
            let path = t.string(file)?;
            modules.push(match path.as_str() {
                "" => None,
                path => {
                    let kind = Import::module_kind(path);
                    Some((to.module(kind, path, &build_id, 0)?, kind))
                }
            });
        }
        let tables = LocationTables {
            modules,
            functions,
            attributes: &attributes,
        };
        let mut frames: Vec<FrameId> = Vec::with_capacity(t.locations.len());
        for bytes in &t.locations {
            frames.push(tables.frame(bytes, to)?);
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
            fields,
            attributes,
            stacks,
            contexts: FxHashMap::default(),
        })
    }

    fn profile(&mut self, p: &Typed, t: &Tables, to: &mut Import) -> Result<(), ReadError> {
        to.window(Window {
            start_ns: 0,
            end_ns: p.profile.duration.min(1 << 61),
            clock: "CLOCK_REALTIME".to_string(),
            start_unix_ns: p.profile.time,
        });
        let resource = t.resources.get(p.profile.resource).copied();
        let resource = resource.unwrap_or_default();
        let mut given = Identity::of(columns::state(&p.name, &p.unit));
        for a in self.attributes.resource(resource, t, to)? {
            given.add(&a);
        }
        for a in self.attributes.get(&p.profile.attributes) {
            given.add(a?);
        }
        for sample in &p.profile.samples {
            self.sample(sample, &given, p, to)?;
        }
        Ok(())
    }

    fn sample(
        &mut self,
        bytes: &[u8],
        given: &Identity,
        p: &Typed,
        to: &mut Import,
    ) -> Result<(), ReadError> {
        let s = Sample::of(bytes, self.fields)?;
        let stack = usize::try_from(s.stack).ok();
        let stack = stack.and_then(|i| self.stacks.get(i)).copied();
        let stack = stack.ok_or_else(|| damaged("a sample refers to a stack that is not there"))?;
        let mut of = given.clone();
        for a in self.attributes.get(&s.attributes) {
            of.add(a?);
        }
        let mut kind = of.kind;
        let mut labels = Vec::with_capacity(of.labels.len());
        for a in of.labels {
            labels.push(Label {
                key: to.text(&a.key)?,
                value: a.value,
            });
        }
        kind.labels = to.labels(labels)?;
        let context = match self.contexts.get(&of.thread) {
            Some(id) => *id,
            None => {
                let (pid, tid, name, process) = &of.thread;
                let id = to.context(*pid, *tid, name, process)?;
                self.contexts.insert(of.thread, id);
                id
            }
        };
        for (i, value) in s.values.iter().enumerate() {
            let value = u64::try_from(*value as i64).map_err(|_| damaged("a negative value"))?;
            let value = value.saturating_mul(p.factor);
            if value == 0 {
                continue;
            }
            let count = match (of.count, &p.unit) {
                (Some(n), _) => n,
                (None, Unit::Count(_)) => value,
                (None, _) => 1,
            };
            let time = s.times.get(i).copied();
            to.sample(
                context,
                stack,
                kind,
                Amount::new((count, value), time).on(of.cpu),
            )?;
        }
        Ok(())
    }
}

/// Tables that locations refer to.
struct LocationTables<'a> {
    modules: Vec<Option<(ModuleId, ModuleKind)>>,
    functions: Vec<Option<FunctionId>>,
    attributes: &'a AttributeList,
}

impl LocationTables<'_> {
    /// The frame of a location.
    fn frame(&self, bytes: &[u8], to: &mut Import) -> Result<FrameId, ReadError> {
        let (mut module, mut address, mut lines, mut kind) = (None, 0, Vec::new(), None);
        for item in Fields::new(bytes) {
            match item? {
                (1, v) => module = self.modules.get(v.number() as usize).copied().flatten(),
                (2, v) => address = v.number(),
                (3, v) => {
                    let [function, line] = numbers(v.bytes())?;
                    let function =
                        self.functions
                            .get(function as usize)
                            .copied()
                            .ok_or_else(|| {
                                damaged("a location refers to a function that is not there")
                            })?;
                    lines.extend(function.map(|function| Line {
                        function,
                        line: u32::try_from(line).unwrap_or(0),
                    }));
                }
                (4, v) => {
                    let mut indices = Vec::new();
                    v.numbers(&mut indices)?;
                    for a in self.attributes.get(&indices) {
                        let a = a?;
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
}
