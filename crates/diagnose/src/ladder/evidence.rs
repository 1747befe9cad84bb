//! What the rules of the verdict judge by: sums over causes and waits, asked for by name.

use std::collections::{HashMap, HashSet};

use wallscope_model::shape::Shape;
use wallscope_model::{BlockReason, ContextId, FrameKind, Recording, Sample, State};

use super::causes::Cause;
use super::delays::Delay;
use super::enders::Enders;
use super::news::{awaits_result, converses, may_be_for_news};
use super::places::functions;
use super::waits::{Waits, awaits_one_peer, own_lock};
use super::work::Work;
use super::{Bottleneck, Requests, Resource};

/// So few requests say nothing of how they are answered.
pub(super) const FEW: u64 = 3;

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
        let delayed: u64 = Delay::ALL.map(|d| self.delayed(d)).iter().sum();
        let polled = self.polled_for_answers() + self.handed_owed() + self.held();
        work + slept + polled + self.own_locks() + delayed
    }

    /// Polling for a lock that a server has made itself, with no request in flight that is known, ns.
    fn own_locks(&self) -> u64 {
        let poll = Some(BlockReason::Poll.name());
        let samples = self.causes.iter().filter(|c| c.reason == poll);
        let samples: Vec<u32> = (samples.flat_map(|c| c.samples.iter().copied()))
            .filter(|i| !self.waits.in_flight[*i as usize])
            .filter(|i| own_lock(self.recording, &self.recording.samples[*i as usize]).is_some())
            .collect();
        self.time(&samples)
    }

    /// Of the blocked time for `reason`, that of the thread with most of it, ns.
    pub fn most_of_one_thread(&self, reason: BlockReason) -> u64 {
        let mut sums: HashMap<ContextId, u64> = HashMap::new();
        let of_it = |c: &&Cause| c.state == State::Blocked && c.reason == Some(reason.name());
        for i in self.causes.iter().filter(of_it).flat_map(|c| &c.samples) {
            let who = self.recording.samples[*i as usize].context;
            *sums.entry(who).or_default() += self.waits.sample_ns[*i as usize];
        }
        sums.into_values().max().unwrap_or(0)
    }

    /// The causes' waits that are a delay of this kind.
    pub fn delayed_samples(&self, delay: Delay) -> Vec<u32> {
        let all = self.causes.iter().flat_map(|c| &c.samples).copied();
        all.filter(|i| self.waits.delays[*i as usize] == Some(delay))
            .collect()
    }

    /// Their time, ns.
    pub fn delayed(&self, delay: Delay) -> u64 {
        self.time(&self.delayed_samples(delay))
    }

    /// The kind of delay with most time.
    pub fn main_delay(&self) -> (Delay, u64) {
        Delay::ALL
            .map(|d| (d, self.delayed(d)))
            .into_iter()
            .fold((Delay::Child, 0), |a, b| if b.1 > a.1 { b } else { a })
    }

    /// The cause with most of that delay.
    pub fn main_delayed(&self, delay: Delay) -> Option<&'a Cause> {
        let ns = |c: &&Cause| {
            let of_it = c.samples.iter().copied();
            let of_it: Vec<u32> = of_it
                .filter(|i| self.waits.delays[*i as usize] == Some(delay))
                .collect();
            self.time(&of_it)
        };
        self.causes.iter().max_by_key(ns)
    }

    /// Blocked time at pipes and local sockets that own children ended, ns.
    pub fn piped_from_children(&self) -> u64 {
        let pipe = Some(BlockReason::Pipe.name());
        let pipes = self.causes.iter().filter(|c| c.reason == pipe);
        pipes
            .map(|c| (self.waits).ended_by_children(self.recording, &c.samples))
            .map(|ended| self.time(&ended))
            .sum()
    }

    /// Blocked time for `reason` in which nothing was in flight, and somebody who is not measured brought
    /// what was waited for, ns.
    pub fn brought(&self, reason: BlockReason) -> u64 {
        let name = Some(reason.name());
        let causes = self.causes.iter().filter(|c| c.reason == name);
        let samples: Vec<u32> = (causes.flat_map(|c| c.samples.iter().copied()))
            .filter(|i| !self.waits.in_flight[*i as usize])
            .filter(|i| {
                let sample = &self.recording.samples[*i as usize];
                may_be_for_news(self.recording, sample, reason)
                    && !converses(self.recording, sample)
            })
            .collect();
        self.time(&(self.waits).ended_by_strangers(self.recording, &samples))
    }

    /// Blocked time of which nothing is known but that it was, ns.
    pub fn unnamed(&self) -> u64 {
        let other = Some(BlockReason::Other.name());
        let nothing = |c: &&Cause| c.reason == other && c.function.starts_with('[');
        self.causes.iter().filter(nothing).map(|c| c.ns).sum()
    }

    /// How much threads computed that lived too briefly to be seen, where that is most of what was computed, and
    /// not next to nothing; ns.
    pub fn mostly_unseen(&self) -> Option<u64> {
        let unseen = self.recording.processes.iter();
        let unseen: u64 = unseen.map(|p| p.unattributed_on_cpu_ns).sum();
        let seen = self.bottleneck.ledger.state_ns(State::OnCpu);
        (unseen > seen && self.bottleneck.load(unseen) >= 0.01).then_some(unseen)
    }

    /// Blocked time at futures, ns.
    pub fn awaited_results(&self) -> u64 {
        let lock = Some(BlockReason::Lock.name());
        let causes = self.causes.iter().filter(|c| c.reason == lock);
        let samples: Vec<u32> = (causes.flat_map(|c| c.samples.iter().copied()))
            .filter(|i| awaits_result(self.recording, &self.recording.samples[*i as usize]))
            .collect();
        self.time(&samples)
    }

    /// Whether children ended most of a cause's waits.
    pub fn mostly_of_child(&self, cause: &Cause) -> bool {
        let ended = (self.waits).ended_by_children(self.recording, &cause.samples);
        self.time(&ended) * 2 > self.time(&cause.samples)
    }

    fn time(&self, samples: &[u32]) -> u64 {
        samples
            .iter()
            .map(|i| self.waits.sample_ns[*i as usize])
            .sum()
    }

    /// Polling for answers that are awaited from others, or on one connected peer alone, ns.
    pub fn polled_for_answers(&self) -> u64 {
        self.time(&self.polls(false))
    }

    /// Polling with requests in flight, whoever asked, or on one connected peer alone, ns.
    pub fn polled_in_flight(&self) -> u64 {
        self.polled_for_answers() + self.time(&self.polls(true))
    }

    /// Of that, what other threads of the recording ended by a signal, an event or a pipe, ns.
    pub fn handed(&self) -> u64 {
        self.handed_of_awaited() + self.handed_owed()
    }

    /// The part of it in which answers of others were awaited, ns.
    pub fn handed_of_awaited(&self) -> u64 {
        self.waits.handed_ns(self.recording, &self.polls(false))
    }

    /// The part of it in which nobody was asked, but others asked, ns.
    pub fn handed_owed(&self) -> u64 {
        self.waits.handed_ns(self.recording, &self.polls(true))
    }

    /// Polling while others await answers that it gives in the end, and it asked nobody, without what its own
    /// threads ended, ns.
    pub fn held(&self) -> u64 {
        // Who never answers serves by a stream, or lets his callers wait for news.
        let mean = self.requests.at_most_ns().unwrap_or(u64::MAX);
        if self.requests.asked < FEW || mean > self.bottleneck.window_ns / 4 {
            return 0;
        }
        (self.time(&self.polls(true))).saturating_sub(self.handed_owed())
    }

    /// The samples of such polls: `owed`, with requests of others in flight alone, or for answers.
    pub fn polls(&self, owed: bool) -> Vec<u32> {
        (self.causes.iter())
            .filter(|c| c.reason == Some(BlockReason::Poll.name()))
            .flat_map(|c| c.samples.iter().copied())
            .filter(|i| {
                let s = &self.recording.samples[*i as usize];
                let only_owed = self.waits.owed[*i as usize];
                let waits = self.waits.in_flight[*i as usize] || awaits_one_peer(self.recording, s);
                waits && only_owed == owed && self.waits.delays[*i as usize].is_none()
            })
            .collect()
    }

    /// Blocked time with requests in flight, of reasons that `which` chooses, ns; without delays.
    pub fn in_flight(&self, which: impl Fn(BlockReason) -> bool) -> u64 {
        let all = self.causes.iter().filter(|c| c.state == State::Blocked);
        let samples: HashSet<u32> = all.flat_map(|c| c.samples.iter().copied()).collect();
        let fits = |i: &&u32| {
            let s = &self.recording.samples[**i as usize];
            let plain = self.waits.delays[**i as usize].is_none();
            plain && self.waits.in_flight[**i as usize] && s.reason.is_some_and(&which)
        };
        (samples.iter().filter(fits))
            .map(|i| self.waits.sample_ns[*i as usize])
            .sum()
    }

    /// Waits for children that are measured themselves, ns.
    pub fn relayed(&self) -> u64 {
        let parents: HashSet<u32> = self.recording.processes.iter().map(|p| p.parent).collect();
        let child = Some(BlockReason::Child.name());
        let blocked = self.causes.iter().filter(|c| c.state == State::Blocked);
        let samples = blocked.flat_map(|c| c.samples.iter().map(move |i| (c, *i)));
        samples
            .filter(|(c, i)| {
                let s = &self.recording.samples[*i as usize];
                let waits = c.reason == child
                    && parents.contains(&self.recording.contexts[s.context.0 as usize].pid);
                waits || self.waits.delays[*i as usize] == Some(Delay::Child)
            })
            .map(|(_, i)| self.waits.sample_ns[i as usize])
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

    /// Whether most of a cause's time is of samples that `fits` holds for.
    pub fn mostly(&self, cause: &Cause, fits: impl Fn(&Recording, &Sample) -> bool) -> bool {
        let fits = |i: &u32| fits(self.recording, &self.recording.samples[*i as usize]);
        let fitting: Vec<u32> = cause.samples.iter().copied().filter(fits).collect();
        self.time(&fitting) * 2 > self.time(&cause.samples)
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
