//! speedscope's JSON ↔ recording.
//!
//! Known is the format of `https://www.speedscope.app/file-format-schema.json`, which has no versions:
//! profiles of type `sampled` (stacks with weights) and `evented` (frames that open and close).
//! Profiles of another type are left out. Each profile of a file is a thread.
//!
//! A sample without a weight has an unknown one. If a profile has no weights at all, it is read as counts of
//! samples; otherwise a sample without a weight is left out. Weights of things that are counted may have
//! decimals; they are multiplied then, and a note of the reader says so.
//!
//! The writer makes sampled profiles of one view, one for each thread. Samples follow each other without gaps,
//! as weights in this format do.

use std::io::{self, Write};
use wallscope_model::printable::escape_json;

use serde::{Deserialize, Serialize};
use wallscope_model::{ContextId, FrameId, FrameKind, Limit, Recording, StackEnd, State, Unit};

use super::export_model::{Rows, left_out};
use super::import::{About, Amount, Called, Decimal, Import, SampleTime, Scale};
use super::source::Source;
use super::{Options, Read, ReadError, UNTOLD, WriteOptions, json};

/// Maximum by which a time may be before the preceding time, because writers round, ns.
const ROUNDING_NS: u64 = 1_000;

const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct File {
    #[serde(rename = "$schema", default)]
    schema: String,
    #[serde(default)]
    shared: Shared,
    #[serde(default)]
    profiles: Vec<Profile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default)]
    exporter: Option<String>,
}

#[derive(Default, Deserialize, Serialize)]
struct Shared {
    #[serde(default)]
    frames: Vec<Frame>,
}

#[derive(Deserialize, Serialize)]
struct Frame {
    #[serde(default)]
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    line: Option<f64>,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct Profile {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    unit: String,
    start_value: f64,
    end_value: f64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    samples: Vec<Vec<u32>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    weights: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<Event>,
}

#[derive(Deserialize, Serialize)]
struct Event {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    frame: u32,
    #[serde(default)]
    at: f64,
}

/// Whether it is speedscope's.
pub(super) fn detect(head: &[u8]) -> bool {
    let own = || {
        json::has(head, "speedscope.app/file-format-schema")
            || ["shared", "frames", "profiles"]
                .iter()
                .all(|k| json::has_key(head, k))
    };
    json::start(head) == Some(b'{') && !json::has_key(head, "preprocessedProfileVersion") && own()
}

/// The two types of profiles.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Sampled,
    Evented,
}

/// The form of a profile, and the unit of its values; `None` for a type that is unknown.
fn form(p: &Profile) -> Option<(Form, Unit, f64)> {
    let (unit, factor) = json::unit(&p.unit);
    match p.kind.as_str() {
        "evented" => Some((Form::Evented, unit, factor)),
        // A profile without weights has only samples.
        "sampled" if p.weights.is_empty() && !p.samples.is_empty() => {
            Some((Form::Sampled, Unit::Count("samples".to_string()), 1.0))
        }
        "sampled" => Some((Form::Sampled, unit, factor)),
        _ => None,
    }
}

/// Reads a file of speedscope.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let memory = source.bounds().memory;
    let (file, mut warnings): (File, _) = json::parse(source)?;
    let mut to = Import::new(memory);
    let mut frames = Vec::with_capacity(file.shared.frames.len());
    for f in &file.shared.frames {
        let line = f.line.unwrap_or(0.0) as u32;
        let path = f.file.as_deref().unwrap_or_default();
        frames.push(to.named(
            FrameKind::Native,
            Called {
                name: &f.name,
                file: path,
                line,
                ..Called::default()
            },
        )?);
    }
    let unit = choose(&file, options.value.as_deref())?;
    let mut reader = Reader {
        to,
        frames: &frames,
        unit: &unit,
        factor: 1.0,
        scale: Scale::WHOLE,
        exact: true,
        left_out: LeftOut::default(),
        stack: Vec::new(),
    };
    for profile in &file.profiles {
        reader.profile(profile)?;
    }
    let Reader {
        to,
        scale,
        exact,
        left_out,
        ..
    } = reader;
    warnings.extend(left_out.warnings(&unit));
    warnings.extend(scale.note());
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    let about = About {
        tool: file.exporter.unwrap_or_default(),
        format: "speedscope's".to_string(),
        values: if exact {
            "frames opened and closed"
        } else {
            "weights of samples"
        }
        .to_string(),
        exact,
        limits: vec![Limit {
            what: "which state a thread was in, and its process, is not in such a file".to_string(),
            remedy: String::new(),
        }],
        notes: file.name.into_iter().chain(scale.note()).collect(),
        unit,
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

/// The unit that is read, because only values of one unit can be added: the requested one, else time, else the first.
fn choose(file: &File, asked: Option<&str>) -> Result<Unit, ReadError> {
    let known: Vec<Unit> = (file.profiles.iter())
        .filter_map(|p| form(p).map(|(_, unit, _)| unit))
        .collect();
    if known.is_empty() {
        return Err(match file.profiles.first() {
            None => ReadError::NoValues,
            Some(p) => ReadError::UnknownLayout {
                what: format!(
                    "its profiles are of type \"{}\" (sampled and evented are known)",
                    p.kind
                ),
            },
        });
    }
    let found = match asked {
        Some(asked) => known.iter().find(|u| u.name() == asked),
        None => known.iter().find(|u| u.is_time()).or(known.first()),
    };
    found.cloned().ok_or_else(|| {
        let have: Vec<_> = known.iter().map(Unit::name).collect();
        ReadError::NoSuchValue {
            asked: asked.unwrap_or_default().to_string(),
            have: have.join(", "),
        }
    })
}

/// Parts that were left out, by cause.
#[derive(Default)]
struct LeftOut {
    other_units: u64,
    unknown_types: u64,
    weightless: u64,
    /// Closing events without an open frame, and those of a frame that is not the innermost.
    unopened: u64,
    unbalanced: u64,
}

impl LeftOut {
    fn warnings(&self, unit: &Unit) -> Vec<String> {
        let mut out = Vec::new();
        let mut say = |n: u64, text: String| {
            if n > 0 {
                out.push(format!("{n} {text}"));
            }
        };
        say(
            self.other_units,
            format!(
                "of its profiles are in another unit than {}, and were left out: choose with --value \
                 UNIT",
                unit.name()
            ),
        );
        say(
            self.unknown_types,
            "of its profiles are of an unknown type, and were left out".to_string(),
        );
        say(
            self.weightless,
            "samples have no weight, and were left out".to_string(),
        );
        say(
            self.unopened,
            "frames are closed that were not open: left out".to_string(),
        );
        say(
            self.unbalanced,
            "frames are closed while others are open within them, which stay open: their stacks may \
             be wrong"
                .to_string(),
        );
        out
    }
}

struct Reader<'a> {
    to: Import,
    frames: &'a [FrameId],
    /// The unit that is read.
    unit: &'a Unit,
    /// Number of these units that a value of 1 is.
    factor: f64,
    scale: Scale,
    /// Whether all profiles so far were of events.
    exact: bool,
    left_out: LeftOut,
    /// Root first.
    stack: Vec<FrameId>,
}

impl Reader<'_> {
    fn profile(&mut self, p: &Profile) -> Result<(), ReadError> {
        let Some((form, unit, factor)) = form(p) else {
            self.left_out.unknown_types += 1;
            return Ok(());
        };
        if unit != *self.unit {
            self.left_out.other_units += 1;
            return Ok(());
        }
        self.factor = factor;
        self.stack.clear();
        let context = self.to.thread(0, 0, &p.name, "")?;
        self.exact &= form == Form::Evented;
        match form {
            Form::Sampled => self.sampled(p, context),
            Form::Evented => self.evented(p, context),
        }
    }

    fn frame(&self, index: u32) -> Result<FrameId, ReadError> {
        self.frames
            .get(index as usize)
            .copied()
            .ok_or_else(|| ReadError::Damaged {
                what: format!("it refers to frame {index} of {}", self.frames.len()),
            })
    }

    fn add(&mut self, context: ContextId, from: u64, value: u64) -> Result<(), ReadError> {
        // Leaf first.
        let frames: Vec<FrameId> = self.stack.iter().rev().copied().collect();
        let stack = self.to.stack(&frames, StackEnd::Root)?;
        let time = self.unit.is_time().then_some(from);
        let kind = SampleTime::of(State::Unknown);
        let counts = [UNTOLD, "samples"].contains(&self.unit.name());
        let count = if counts {
            (value / self.scale.factor()).max(1)
        } else {
            1
        };
        self.to
            .sample(context, stack, kind, Amount::new((count, value), time))
    }

    fn sampled(&mut self, p: &Profile, context: ContextId) -> Result<(), ReadError> {
        let mut at = p.start_value;
        for (i, sample) in p.samples.iter().enumerate() {
            let weight = match p.weights.get(i) {
                _ if p.weights.is_empty() => 1.0,
                Some(weight) => *weight,
                None => {
                    self.left_out.weightless += 1;
                    continue;
                }
            };
            if weight < 0.0 {
                return Err(ReadError::Damaged {
                    what: "a sample has a negative weight: is it a comparison of profiles?"
                        .to_string(),
                });
            }
            // Ends are rounded instead of lengths, so that the lengths add up.
            let from = json::whole(at, self.factor);
            at += weight;
            let value = match (self.unit.is_time(), Decimal::of(weight)) {
                (false, Some(weight)) => self.scale.units(weight, &mut self.to)?,
                _ => json::whole(at, self.factor).saturating_sub(from),
            };
            if value > 0 {
                self.stack.clear();
                for f in sample {
                    let f = self.frame(*f)?;
                    self.stack.push(f);
                }
                self.add(context, from, value)?;
            }
        }
        Ok(())
    }

    fn evented(&mut self, p: &Profile, context: ContextId) -> Result<(), ReadError> {
        let mut last = json::whole(p.start_value, self.factor);
        for e in &p.events {
            let own = json::whole(e.at, self.factor);
            let rounding = if self.unit.is_time() { ROUNDING_NS } else { 0 };
            if own.saturating_add(rounding) < last {
                return Err(ReadError::Damaged {
                    what: format!(
                        "its events are not in the order of time: one at {} follows one at {} (in {})",
                        e.at,
                        last as f64 / self.factor,
                        p.unit
                    ),
                });
            }
            let at = own.max(last);
            if at > last && !self.stack.is_empty() {
                self.add(context, last, at - last)?;
            }
            last = at;
            let frame = self.frame(e.frame)?;
            match e.kind.as_str() {
                "O" => self.stack.push(frame),
                // It should be the innermost frame; any other open frame is removed from its place.
                "C" => match self.stack.iter().rposition(|f| *f == frame) {
                    Some(i) => {
                        self.left_out.unbalanced += u64::from(i + 1 < self.stack.len());
                        self.stack.remove(i);
                    }
                    None => self.left_out.unopened += 1,
                },
                other => {
                    return Err(ReadError::UnknownLayout {
                        what: format!("an event of type \"{other}\" (O and C are known)"),
                    });
                }
            }
        }
        let end = json::whole(p.end_value, self.factor);
        if end > last && !self.stack.is_empty() {
            self.add(context, last, end - last)?;
        }
        Ok(())
    }
}

/// Writes one view.
pub(super) fn write(
    rec: &Recording,
    options: &WriteOptions,
    out: &mut dyn Write,
) -> io::Result<Vec<String>> {
    let rows = Rows::new(rec, options.view);
    let unit = match &rec.domain.unit {
        Unit::Nanoseconds => "nanoseconds",
        Unit::Bytes => "bytes",
        Unit::Count(_) => "none",
    };
    let frames = rows
        .functions()
        .map(|f| Frame {
            name: format!("{}{}", f.name, f.suffix),
            file: Some(f.file.to_string()).filter(|f| !f.is_empty()),
            line: Some(f64::from(f.line)).filter(|l| *l > 0.0),
        })
        .collect();
    let profiles = rows
        .by_context()
        .map(|(context, rows)| {
            let weights: Vec<f64> = rows.iter().map(|r| r.value as f64).collect();
            Profile {
                kind: "sampled".to_string(),
                name: context.title(),
                unit: unit.to_string(),
                start_value: 0.0,
                end_value: weights.iter().sum(),
                samples: rows.iter().map(|r| r.root_first.to_vec()).collect(),
                weights,
                events: Vec::new(),
            }
        })
        .collect();
    let file = File {
        schema: SCHEMA.to_string(),
        shared: Shared { frames },
        profiles,
        name: Some(rec.domain.target.clone()).filter(|t| !t.is_empty()),
        exporter: Some(concat!("wallscope ", env!("CARGO_PKG_VERSION")).to_string()),
    };
    out.write_all(escape_json(&serde_json::to_string(&file)?).as_bytes())?;
    out.flush()?;
    Ok(left_out(
        rec,
        &[
            "states and reasons",
            "time slices",
            "process and thread ids",
        ],
    ))
}
