//! What the rules of the verdict judge by: sums over causes and waits, asked for by name.

use std::collections::HashSet;

use wallscope_model::shape::Shape;
use wallscope_model::{BlockReason, FrameKind, Recording, State};

use super::causes::Cause;
use super::places::functions;
use super::waits::{Enders, Waits, awaits_one_peer};
use super::work::Work;
use super::{Bottleneck, Requests, Resource};

/// What rules judge by.
pub(super) struct Evidence<'a> {
    pub bottleneck: &'a Bottleneck,
    pub host: &'a [Resource],
    pub causes: &'a [Cause],
    pub waits: &'a Waits,
    pub work: &'a Work,
    pub requests: &'a Requests,
    pub recording: &'a Recording,
}

/// Waits that somebody else has to end, in the order in which equal ones are looked at.
pub(super) const WORK: [BlockReason; 10] = [
    BlockReason::Lock,
    BlockReason::Gil,
    BlockReason::KernelLock,
    BlockReason::Disk,
    BlockReason::Network,
    BlockReason::Pipe,
    BlockReason::Child,
    BlockReason::PageFault,
    BlockReason::Memory,
    BlockReason::Stopped,
];

impl<'a> Evidence<'a> {
    pub fn share(&self, ns: u64) -> f64 {
        self.bottleneck.share(ns)
    }

    /// Blocked time for `reason` that was not idle, ns.
    pub fn blocked(&self, reason: BlockReason) -> u64 {
        let of_it = |c: &&Cause| c.state == State::Blocked && c.reason == Some(reason.name());
        self.causes.iter().filter(of_it).map(|c| c.ns).sum()
    }

    /// The largest of the reasons that somebody else has to end.
    pub fn main_wait(&self) -> (BlockReason, u64) {
        WORK.iter()
            .map(|r| (*r, self.blocked(*r)))
            .fold((WORK[0], 0), |a, b| if b.1 > a.1 { b } else { a })
    }

    /// All waits that somebody else has to end, and those with requests in flight, ns.
    pub fn pending(&self) -> u64 {
        let work: u64 = WORK.iter().map(|r| self.blocked(*r)).sum();
        let slept = self.in_flight(|r| !WORK.contains(&r) && r != BlockReason::Poll);
        work + slept + self.polled_for_answers()
    }

    /// Polling with requests in flight, or on one connected peer alone, ns.
    pub fn polled_for_answers(&self) -> u64 {
        let samples = self.polls_for_answers();
        samples.map(|i| self.waits.sample_ns[i as usize]).sum()
    }

    /// Of that, what other threads of the recording ended by a signal, an event or a pipe, ns.
    pub fn handed(&self) -> u64 {
        let samples: Vec<u32> = self.polls_for_answers().collect();
        self.waits.handed_ns(self.recording, &samples)
    }

    fn polls_for_answers(&self) -> impl Iterator<Item = u32> + '_ {
        (self.causes.iter())
            .filter(|c| c.reason == Some(BlockReason::Poll.name()))
            .flat_map(|c| c.samples.iter().copied())
            .filter(|i| {
                let s = &self.recording.samples[*i as usize];
                self.waits.in_flight[*i as usize] || awaits_one_peer(self.recording, s)
            })
    }

    /// Blocked time with requests in flight, of reasons that `which` chooses, ns.
    pub fn in_flight(&self, which: impl Fn(BlockReason) -> bool) -> u64 {
        let all = self.causes.iter().filter(|c| c.state == State::Blocked);
        let samples: HashSet<u32> = all.flat_map(|c| c.samples.iter().copied()).collect();
        let fits = |i: &&u32| {
            let s = &self.recording.samples[**i as usize];
            self.waits.in_flight[**i as usize] && s.reason.is_some_and(&which)
        };
        (samples.iter().filter(fits))
            .map(|i| self.waits.sample_ns[*i as usize])
            .sum()
    }

    /// Waits for children that are measured themselves, ns.
    pub fn relayed(&self) -> u64 {
        let parents: HashSet<u32> = self.recording.processes.iter().map(|p| p.parent).collect();
        let child = Some(BlockReason::Child.name());
        (self.causes.iter())
            .filter(|c| c.state == State::Blocked && c.reason == child)
            .flat_map(|c| &c.samples)
            .filter(|i| {
                let s = &self.recording.samples[**i as usize];
                parents.contains(&self.recording.contexts[s.context.0 as usize].pid)
            })
            .map(|i| self.waits.sample_ns[*i as usize])
            .sum()
    }

    pub fn host(&self, name: &str) -> Option<&'a Resource> {
        self.host.iter().find(|r| r.name == name)
    }

    /// Who ended the waits of a cause and of the others of its kind.
    pub fn enders(&self, reason: BlockReason) -> Enders {
        let samples: Vec<u32> = (self.causes.iter())
            .filter(|c| c.state == State::Blocked && c.reason == Some(reason.name()))
            .flat_map(|c| c.samples.iter().copied())
            .collect();
        self.waits.enders(self.recording, &samples)
    }

    /// How long the single waits of a cause were, where they were sampled by stack.
    pub fn lengths(&self, cause: &Cause) -> Option<Shape> {
        let stacks: HashSet<_> = (cause.samples.iter())
            .map(|i| self.recording.samples[*i as usize].stack)
            .collect();
        let mut rows = (self.recording.shapes.iter())
            .filter(|r| r.state == cause.state && r.stack.is_some_and(|s| stacks.contains(&s)));
        let mut shape = rows.next()?.shape.clone();
        rows.for_each(|r| shape.merge(&r.shape));
        (shape.count() > 0.0).then_some(shape)
    }

    /// Whether a function that `known` recognises is on the stacks of most of a cause.
    pub fn mostly_passes(&self, cause: &Cause, known: impl Fn(FrameKind, &str) -> bool) -> bool {
        let ns = |i: &u32| self.waits.sample_ns[*i as usize];
        let all: u64 = cause.samples.iter().map(ns).sum();
        let fitting = cause.samples.iter().filter(|i| {
            let stack = self.recording.samples[**i as usize].stack;
            functions(self.recording, stack).any(|(kind, name)| known(kind, name))
        });
        fitting.map(ns).sum::<u64>() * 2 > all
    }
}
