//! Chrome's trace events (`chrome://tracing`, DevTools, Perfetto's JSON, many tools' `--trace`) →
//! recording.
//!
//! Known are the array form and the object form, and in them:
//! - events with a length: complete (`X`), or begin and end (`B`, `E`), nested by time on each thread
//!   (`spans`). An end with a name ends the innermost event of that name. The own time of an event is the
//!   time that no inner event covers. They come from instrumentation: times are exact, but only instrumented
//!   code appears;
//! - V8's CPU profiles (`cpu_profile`). Their stacks lie within the events that are open at the
//!   time, so that no time counts twice;
//! - `samples` with `stackFrames` (`samples`): counts, in a file without events.
//!
//! If a file holds several of these, `--value` chooses: `events`, `cpu-profile`, `samples`. All other
//! kinds of events have no length on a thread: they are counted and left out.

mod cpu_profile;
mod event;
mod joined;
mod names;
mod samples;
mod spans;

use std::collections::{BTreeMap, BTreeSet};

use wallscope_model::{FrameKind, Limit, Unit};

use super::import::{About, Called, Import};
use super::source::Source;
use super::v8;
use super::{Options, Read, ReadError, json};
use cpu_profile::{CpuProfile, CpuProfiles};
use event::{Event, Ids, Trace};
use joined::{Joined, sampled};
use names::{NO_NAME, Names};
use spans::ThreadEvents;

/// Whether they are trace events.
pub(super) fn detect(head: &[u8]) -> bool {
    match json::start(head) {
        Some(b'{') => {
            json::has_key(head, "traceEvents")
                || json::has_key(head, "stackFrames") && json::has_key(head, "samples")
        }
        Some(b'[') => json::has_key(head, "ph") && json::has_key(head, "ts"),
        _ => false,
    }
}

/// Events that were left out, by cause.
#[derive(Default)]
struct LeftOut {
    /// Events of other kinds.
    others: u64,
    /// Events without a time.
    untimed: u64,
    /// Complete events without a length.
    endless: u64,
    /// Ends without a beginning, and beginnings without an end.
    unpaired: u64,
    unended: u64,
    /// Events that end after the one around them.
    clipped: u64,
    /// CPU profiles of a thread for a time that another profile covers.
    profiles: u64,
}

impl LeftOut {
    fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        let mut say = |n: u64, text: &str| {
            if n > 0 {
                out.push(format!("{n} {text}"));
            }
        };
        say(self.untimed, "events have no time, and were left out");
        say(
            self.endless,
            "complete events have no length (dur), and were left out",
        );
        say(
            self.clipped,
            "events end after the event around them on their thread (asynchronous work?): the part \
             that sticks out was left out",
        );
        say(
            self.unpaired,
            "ends have no beginning of their name, and were left out",
        );
        say(
            self.unended,
            "beginnings have no end: they were ended with the file",
        );
        say(
            self.profiles,
            "CPU profiles were left out: another one samples their thread at the time",
        );
        out
    }
}

/// Parts of a file that `--value` chooses from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Events with the stacks of CPU profiles within them.
    Joined,
    Events,
    CpuProfile,
    Samples,
}

/// The contents of a file.
struct Contents {
    trace: Trace,
    ids: Ids,
    names: Names,
    threads: BTreeMap<(u32, u32), ThreadEvents>,
    profiles: Vec<CpuProfile>,
    /// The end of the last event, ns.
    last: u64,
    left_out: LeftOut,
}

/// Reads trace events.
pub(super) fn read(source: &mut Source, options: &mut Options) -> Result<Read, ReadError> {
    let mut to = Import::new(source.bounds().memory);
    let (trace, mut warnings) = event::parse(source)?;
    let mut contents = Contents::of(trace, &mut to, &mut warnings)?;
    let part = contents.choose(options.value.as_deref())?;
    let mut notes: Vec<String> = contents.note(part).into_iter().collect();
    let mut unit = Unit::Nanoseconds;
    if part == Part::Samples {
        let given = samples::give(&contents.trace, &mut contents.ids, &contents.names, &mut to)?;
        unit = given.unit;
        notes.extend(given.scale.note());
        warnings.extend(given.warnings);
    } else {
        contents.give(part, &mut to, &mut warnings)?;
        warnings.extend(contents.left_out.warnings());
    }
    if to.is_empty() {
        return Err(ReadError::NoValues);
    }
    if contents.left_out.others > 0 {
        notes.push(format!(
            "{} events of other kinds (instants, counters, flows, asynchronous ones) have no time \
             on a thread, and were left out",
            contents.left_out.others
        ));
    }
    let about = about(part, unit, notes);
    Ok(Read::named(to.finish(about), warnings))
}

fn about(part: Part, unit: Unit, notes: Vec<String>) -> About {
    let instrumented = Limit {
        what:
            "only code that was instrumented; other work of a thread, and whether it was on a CPU, \
               is not in the file"
                .to_string(),
        remedy: String::new(),
    };
    let sampled = Limit {
        what: "which state a thread was in, and how long, is not in the file".to_string(),
        remedy: String::new(),
    };
    let (values, limits) = match part {
        Part::Joined => (
            "events of instrumented code, and within them V8's samples, each with the time to the \
             next one",
            vec![instrumented, v8::cpu_limit()],
        ),
        Part::Events => ("events of instrumented code", vec![instrumented]),
        Part::CpuProfile => (
            "V8's samples, each with the time to the next one",
            vec![v8::cpu_limit()],
        ),
        Part::Samples => ("samples by weight", vec![sampled]),
    };
    About {
        format: "Chrome's trace events".to_string(),
        values: values.to_string(),
        unit,
        exact: part == Part::Events,
        limits,
        notes,
        ..About::default()
    }
}

impl Contents {
    fn of(
        mut trace: Trace,
        to: &mut Import,
        warnings: &mut Vec<String>,
    ) -> Result<Contents, ReadError> {
        let mut c = Contents {
            ids: Ids::default(),
            names: Names::default(),
            threads: BTreeMap::new(),
            profiles: Vec::new(),
            last: 0,
            left_out: LeftOut::default(),
            trace: Trace {
                trace_events: Vec::new(),
                samples: std::mem::take(&mut trace.samples),
                stack_frames: std::mem::take(&mut trace.stack_frames),
            },
        };
        let mut profiles = CpuProfiles::default();
        for mut e in trace.trace_events {
            if cpu_profile::is_part(&e) {
                profiles.add(&mut e, &mut c.ids);
            } else {
                c.event(&e, to)?;
            }
        }
        c.profiles = profiles.finish(to, warnings)?;
        Ok(c)
    }

    fn event(&mut self, e: &Event, to: &mut Import) -> Result<(), ReadError> {
        let of = (self.ids.number(&e.pid), self.ids.number(&e.tid));
        if !matches!(e.ph.as_str(), "X" | "B" | "E") {
            match e.ph.as_str() {
                "M" => self.names.add(e, of),
                _ => self.left_out.others += 1,
            }
            return Ok(());
        }
        let Some(start) = e.ts.map(|ts| json::whole(ts, 1e3)) else {
            self.left_out.untimed += 1;
            return Ok(());
        };
        self.last = self.last.max(start);
        let name = if e.name.is_empty() { NO_NAME } else { &e.name };
        match e.ph.as_str() {
            "E" => {
                let frame = match e.name.as_str() {
                    "" => None,
                    name => Some(to.named(FrameKind::Native, Called::name(name))?),
                };
                self.threads.entry(of).or_default().end(start, frame);
            }
            "B" => {
                let frame = to.named(FrameKind::Native, Called::name(name))?;
                self.threads.entry(of).or_default().begin(start, frame);
            }
            _ => {
                let Some(dur) = e.dur.filter(|d| *d >= 0.0) else {
                    self.left_out.endless += 1;
                    return Ok(());
                };
                let frame = to.named(FrameKind::Native, Called::name(name))?;
                let end = start + json::whole(dur, 1e3);
                self.last = self.last.max(end);
                let thread = self.threads.entry(of).or_default();
                thread.complete((start, end), frame);
            }
        }
        Ok(())
    }

    /// The names that `--value` takes for this file.
    fn have(&self) -> Vec<(&'static str, Part)> {
        let mut have = Vec::new();
        if !self.threads.is_empty() {
            have.push(("events", Part::Events));
        }
        if !self.profiles.is_empty() {
            have.push(("cpu-profile", Part::CpuProfile));
        }
        if !self.trace.samples.is_empty() {
            have.push(("samples", Part::Samples));
        }
        have
    }

    fn choose(&self, asked: Option<&str>) -> Result<Part, ReadError> {
        let have = self.have();
        let Some(asked) = asked else {
            return match (have.first(), have.get(1)) {
                (Some((_, Part::Events)), Some((_, Part::CpuProfile))) => Ok(Part::Joined),
                (Some((_, part)), _) => Ok(*part),
                (None, _) => Err(ReadError::NoValues),
            };
        };
        let found = have.iter().find(|(name, _)| *name == asked);
        found.map(|(_, part)| *part).ok_or_else(|| {
            let names: Vec<_> = have.iter().map(|(name, _)| *name).collect();
            ReadError::NoSuchValue {
                asked: asked.to_string(),
                have: names.join(", "),
            }
        })
    }

    /// A note about the parts other than `part`.
    fn note(&self, part: Part) -> Option<String> {
        let have = self.have();
        let others = have.iter().filter(|(_, own)| *own != part);
        let names: Vec<&str> = others.map(|(name, _)| *name).collect();
        let sentence = match part {
            Part::Joined => "V8's samples lie within the events: one of them alone is to be had",
            _ => "the file holds more than is read",
        };
        let choose = || format!("{sentence} with --value NAME ({})", names.join(", "));
        (!names.is_empty()).then(choose)
    }

    /// Gives the time of events, of CPU profiles, or of both to the recording.
    fn give(
        &mut self,
        part: Part,
        to: &mut Import,
        warnings: &mut Vec<String>,
    ) -> Result<(), ReadError> {
        let mut profiles: BTreeMap<(u32, u32), Vec<CpuProfile>> = BTreeMap::new();
        if part != Part::Events {
            for p in std::mem::take(&mut self.profiles) {
                profiles.entry((p.pid, p.tid)).or_default().push(p);
            }
        }
        let mut threads = std::mem::take(&mut self.threads);
        if part == Part::CpuProfile {
            threads.clear();
        }
        let mut broken = 0u64;
        let all: BTreeSet<(u32, u32)> = threads.keys().chain(profiles.keys()).copied().collect();
        for key in all {
            let nested = threads.remove(&key).unwrap_or_default().nest(self.last);
            self.left_out.unpaired += nested.unpaired;
            self.left_out.unended += nested.unended;
            self.left_out.clipped += nested.clipped;
            let own = self.apart(profiles.remove(&key).unwrap_or_default());
            let sampled = sampled(&own, warnings);
            let context = self.names.context(key, to)?;
            let mut thread = Joined::new(context, &nested, &own, &sampled);
            thread.give(to)?;
            broken += thread.broken();
        }
        if broken > 0 {
            warnings.push(format!(
                "{broken} stacks are of nodes that are not in the trace: their callers are missing"
            ));
        }
        Ok(())
    }

    /// The CPU profiles of a thread in the order of time, without those that another one covers.
    fn apart(&mut self, mut profiles: Vec<CpuProfile>) -> Vec<CpuProfile> {
        let first = |p: &CpuProfile| p.times.first().unwrap_or(f64::INFINITY);
        profiles.sort_by(|a, b| first(a).total_cmp(&first(b)));
        let mut until = f64::NEG_INFINITY;
        profiles.retain(|p| {
            let after = first(p) >= until;
            self.left_out.profiles += u64::from(!after);
            if after {
                until = p.times.last().unwrap_or(until);
            }
            after
        });
        profiles
    }
}
