//! `samples` with `stackFrames`: stacks that a sampler put beside the events.
//!
//! The format does not define the unit of a weight, only that a larger weight counts for more. So samples are
//! counts of weight and not time; a sample without a weight counts as one.

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, FrameId, FrameKind, StackEnd, StackId, State, Unit};

use super::super::import::{Amount, Called, Decimal, Import, SampleTime, Scale};
use super::super::{ReadError, json};
use super::event::{Ids, Trace, key};
use super::names::{NO_NAME, Names};

/// Unit and scale of the samples' values.
pub(super) struct Given {
    pub unit: Unit,
    pub scale: Scale,
    pub warnings: Vec<String>,
}

/// Gives all samples to the recording.
pub(super) fn give(
    trace: &Trace,
    ids: &mut Ids,
    names: &Names,
    to: &mut Import,
) -> Result<Given, ReadError> {
    let mut stacks = Stacks {
        trace,
        known: FxHashMap::default(),
    };
    let mut contexts: FxHashMap<(u32, u32), ContextId> = FxHashMap::default();
    let (mut scale, mut negative, mut weighted) = (Scale::WHOLE, 0u64, false);
    for s in &trace.samples {
        let Some(weight) = Decimal::of(s.weight.unwrap_or(1.0)) else {
            negative += 1;
            continue;
        };
        weighted |= s.weight.is_some_and(|w| w != 1.0);
        let stack = stacks.of(&key(&s.sf).unwrap_or_default(), to)?;
        let (pid, tid) = (ids.number(&s.pid), ids.number(&s.tid));
        let context = match contexts.get(&(pid, tid)) {
            Some(id) => *id,
            None => {
                let id = names.context((pid, tid), to)?;
                contexts.insert((pid, tid), id);
                id
            }
        };
        let value = scale.units(weight, to)?;
        let time = s.ts.map(|ts| json::whole(ts, 1e3));
        let kind = SampleTime::of(State::Unknown);
        to.sample(context, stack, kind, Amount::new((1, value), time))?;
    }
    let mut warnings = Vec::new();
    if negative > 0 {
        warnings.push(format!(
            "{negative} samples have a negative weight, and were left out"
        ));
    }
    warnings.extend(scale.note());
    let unit = if weighted { "weight" } else { "samples" };
    Ok(Given {
        unit: Unit::Count(unit.to_string()),
        scale,
        warnings,
    })
}

struct Stacks<'t> {
    trace: &'t Trace,
    known: FxHashMap<String, StackId>,
}

impl Stacks<'_> {
    fn of(&mut self, sf: &str, to: &mut Import) -> Result<StackId, ReadError> {
        if let Some(id) = self.known.get(sf) {
            return Ok(*id);
        }
        let damaged = |what: String| ReadError::Damaged { what };
        let mut frames: Vec<FrameId> = Vec::new();
        let mut at = Some(sf.to_string());
        while let Some(id) = at {
            let frame = self.trace.stack_frames.get(&id);
            let frame = frame.ok_or_else(|| {
                damaged(format!("a stack refers to frame {id}, which is not there"))
            })?;
            // No path is longer than the table.
            if frames.len() > self.trace.stack_frames.len() {
                return Err(damaged(format!("stack frame {sf} is its own caller")));
            }
            let name = if frame.name.is_empty() {
                NO_NAME
            } else {
                &frame.name
            };
            frames.push(to.named(FrameKind::Native, Called::name(name))?);
            at = key(&frame.parent);
        }
        let id = to.stack(&frames, StackEnd::Root)?;
        self.known.insert(sf.to_string(), id);
        Ok(id)
    }
}
