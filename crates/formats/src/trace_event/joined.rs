//! Events and the samples of CPU profiles on one timeline: no time counts twice.

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, StackEnd, StackId};

use super::super::import::{Amount, Import};
use super::super::{ReadError, json, v8};
use super::cpu_profile::CpuProfile;
use super::spans::Nested;

/// A sample of a CPU profile, ns.
pub(super) struct Sampled {
    from: u64,
    to: u64,
    /// Its profile by place, and the node.
    node: (usize, i64),
}

/// The samples of a thread's profiles, one after the other.
pub(super) fn sampled(profiles: &[CpuProfile], warnings: &mut Vec<String>) -> Vec<Sampled> {
    let mut out = Vec::new();
    for (place, p) in profiles.iter().enumerate() {
        warnings.extend(v8::unended(&p.times));
        if p.times.untimed > 0 {
            warnings.push(format!(
                "{} samples of a CPU profile have no time, and were left out",
                p.times.untimed
            ));
        }
        out.extend(p.times.samples.iter().map(|s| {
            let from = json::whole(s.start, 1e3);
            Sampled {
                from,
                to: s.end.map_or(from, |end| json::whole(end, 1e3)),
                node: (place, s.node),
            }
        }));
    }
    out
}

/// A stack by its innermost event and its node.
type StackKey = (Option<u32>, Option<(usize, i64)>);

/// A thread's events and samples, both in the order of time.
pub(super) struct Joined<'a> {
    context: ContextId,
    nested: &'a Nested,
    profiles: &'a [CpuProfile],
    sampled: &'a [Sampled],
    /// Stacks, and whether the thread is idle.
    stacks: FxHashMap<StackKey, (StackId, bool)>,
    /// Stacks with a caller that is not in the trace.
    broken: u64,
}

impl<'a> Joined<'a> {
    pub(super) fn new(
        context: ContextId,
        nested: &'a Nested,
        profiles: &'a [CpuProfile],
        sampled: &'a [Sampled],
    ) -> Joined<'a> {
        Joined {
            context,
            nested,
            profiles,
            sampled,
            stacks: FxHashMap::default(),
            broken: 0,
        }
    }

    /// Stacks with a caller that is not in the trace.
    pub(super) fn broken(&self) -> u64 {
        self.broken
    }

    /// Adds each piece of time, with the open events and the sampled stack inside them.
    pub(super) fn give(&mut self, to: &mut Import) -> Result<(), ReadError> {
        let (pieces, sampled) = (&self.nested.pieces, self.sampled);
        let (mut p, mut s) = (0, 0);
        let mut at = 0;
        loop {
            while pieces.get(p).is_some_and(|piece| piece.to <= at) {
                p += 1;
            }
            while sampled.get(s).is_some_and(|x| x.to <= at || x.to == x.from) {
                s += 1;
            }
            let starts = [
                pieces.get(p).map(|x| x.from.max(at)),
                sampled.get(s).map(|x| x.from.max(at)),
            ];
            let Some(from) = starts.into_iter().flatten().min() else {
                return Ok(());
            };
            let piece = pieces.get(p);
            let sample = sampled.get(s);
            // The next time at which either begins or ends.
            let edges = [
                piece.map(|x| if x.from > from { x.from } else { x.to }),
                sample.map(|x| if x.from > from { x.from } else { x.to }),
            ];
            let Some(end) = edges.into_iter().flatten().min() else {
                return Ok(());
            };
            let span = piece.filter(|x| x.from <= from).map(|x| x.span);
            let node = sample.filter(|x| x.from <= from).map(|x| x.node);
            self.add((from, end), (span, node), to)?;
            at = end;
        }
    }

    fn add(
        &mut self,
        (from, end): (u64, u64),
        key: StackKey,
        to: &mut Import,
    ) -> Result<(), ReadError> {
        if key == (None, None) || end <= from {
            return Ok(());
        }
        let (stack, idle) = match self.stacks.get(&key) {
            Some(known) => *known,
            None => {
                let new = self.stack(key, to)?;
                self.stacks.insert(key, new);
                new
            }
        };
        let value = (1, end - from);
        let kind = if idle { v8::IDLE } else { v8::NOT_IDLE };
        to.sample(self.context, stack, kind, Amount::new(value, Some(from)))
    }

    fn stack(
        &mut self,
        (span, node): StackKey,
        to: &mut Import,
    ) -> Result<(StackId, bool), ReadError> {
        let (mut frames, mut end, mut idle) = (Vec::new(), StackEnd::Root, false);
        if let Some((place, node)) = node {
            let stack = self.profiles[place].tree.stack(node)?;
            self.broken += u64::from(stack.broken);
            end = v8::end(&stack);
            // Inside an event the thread does that event's work, even if V8 reports itself idle.
            idle = stack.idle && span.is_none();
            frames = stack.frames;
        }
        if let Some(span) = span {
            self.nested.frames(span, &mut frames);
        }
        Ok((to.stack(&frames, end)?, idle))
    }
}
