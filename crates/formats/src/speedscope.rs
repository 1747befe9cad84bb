//! speedscope's JSON ↔ recording.
//!
//! Both kinds of its profiles are read: sampled ones, and those of events that open and close
//! frames. Each profile of a file is a thread. Written are sampled profiles, one a thread, of one
//! view; samples lie one after the other, because that is what weights are there.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use wallscope_model::{FrameId, FrameKind, Limit, Recording, StackEnd, State, Unit};

use super::import::{About, Import, Kind};
use super::source::Source;
use super::written::{Rows, left_out};
use super::{Options, Read, ReadError, UNTOLD, WriteOptions, json};

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
            || ["\"shared\"", "\"frames\""]
                .iter()
                .all(|k| json::has(head, k))
    };
    json::start(head) == Some(b'{') && own()
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
        frames.push(to.named(FrameKind::Native, None, &f.name, path, line)?);
    }
    // Values of one unit add; a file may hold several.
    let units: Vec<_> = file.profiles.iter().map(|p| json::unit(&p.unit)).collect();
    let chosen = match options.value.as_deref() {
        Some(asked) => units.iter().position(|(u, _)| u.name() == asked),
        None => units.iter().position(|(u, _)| u.is_time()).or(Some(0)),
    };
    let Some((unit, _)) = chosen.and_then(|i| units.get(i)).cloned() else {
        if units.is_empty() {
            return Err(ReadError::NoValues);
        }
        let have: Vec<_> = units.iter().map(|(u, _)| u.name()).collect();
        return Err(ReadError::NoSuchValue {
            asked: options.value.clone().unwrap_or_default(),
            have: have.join(", "),
        });
    };
    let mut exact = true;
    let mut others = 0;
    for (profile, (own, factor)) in file.profiles.iter().zip(&units) {
        if *own != unit {
            others += 1;
            continue;
        }
        let context = to.thread(0, 0, &profile.name, "")?;
        let mut reader = Reader {
            to: &mut to,
            frames: &frames,
            context,
            factor: *factor,
            timed: unit.is_time(),
            samples: unit.name() == UNTOLD,
            stack: Vec::new(),
        };
        if profile.events.is_empty() {
            exact = false;
            reader.sampled(profile)?;
        } else {
            reader.evented(profile)?;
        }
    }
    if others > 0 {
        warnings.push(format!(
            "{others} of its profiles are in another unit than {}, and were left out: choose with \
             --value UNIT",
            unit.name()
        ));
    }
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
        unit,
        exact,
        limits: vec![Limit {
            what: "which state a thread was in, and its process, is not in such a file".to_string(),
            remedy: String::new(),
        }],
        notes: file.name.into_iter().collect(),
        ..About::default()
    };
    Ok(Read::named(to.finish(about), warnings))
}

struct Reader<'a> {
    to: &'a mut Import,
    frames: &'a [FrameId],
    context: wallscope_model::ContextId,
    factor: f64,
    timed: bool,
    /// Whether weights are numbers of samples, as far as the file tells.
    samples: bool,
    stack: Vec<FrameId>,
}

impl Reader<'_> {
    fn frame(&self, index: u32) -> Result<FrameId, ReadError> {
        self.frames
            .get(index as usize)
            .copied()
            .ok_or_else(|| ReadError::Damaged {
                what: format!("it refers to frame {index} of {}", self.frames.len()),
            })
    }

    fn add(&mut self, from: u64, value: u64) -> Result<(), ReadError> {
        // Leaf first.
        let frames: Vec<FrameId> = self.stack.iter().rev().copied().collect();
        let stack = self.to.stack(&frames, StackEnd::Root)?;
        let time = self.timed.then_some(from);
        let kind = Kind::of(State::Unknown);
        let count = if self.samples { value } else { 1 };
        self.to
            .sample(self.context, stack, kind, None, (count, value), time)
    }

    fn sampled(&mut self, p: &Profile) -> Result<(), ReadError> {
        let mut at = p.start_value;
        for (i, sample) in p.samples.iter().enumerate() {
            self.stack.clear();
            for f in sample {
                let f = self.frame(*f)?;
                self.stack.push(f);
            }
            // Ends are rounded, not lengths: so they add up.
            let from = json::whole(at, self.factor);
            at += p.weights.get(i).copied().unwrap_or(1.0).max(0.0);
            let value = json::whole(at, self.factor).saturating_sub(from);
            if value > 0 {
                self.add(from, value)?;
            }
        }
        Ok(())
    }

    fn evented(&mut self, p: &Profile) -> Result<(), ReadError> {
        let mut last = json::whole(p.start_value, self.factor);
        for e in &p.events {
            // What goes back in time happened no earlier than what stands before it.
            let at = json::whole(e.at, self.factor).max(last);
            if at > last && !self.stack.is_empty() {
                self.add(last, at - last)?;
            }
            last = at;
            let frame = self.frame(e.frame)?;
            match e.kind.as_str() {
                "O" => self.stack.push(frame),
                _ => {
                    // It should be the innermost one; others are taken out where they are.
                    if let Some(i) = self.stack.iter().rposition(|f| *f == frame) {
                        self.stack.remove(i);
                    }
                }
            }
        }
        let end = json::whole(p.end_value, self.factor);
        if end > last && !self.stack.is_empty() {
            self.add(last, end - last)?;
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
    serde_json::to_writer(&mut *out, &file)?;
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
