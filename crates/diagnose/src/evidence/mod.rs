//! Evidence: everything that rules judge by, read once from a recording.
//!
//! [`Evidence`] answers questions by name: blocked time for a reason, time with requests in flight,
//! wakers. Its parts stand in one file each, lowest first: [`waits`], [`starvation`], [`threads`],
//! [`active`], [`causes`]; beside them the host, requests, tasks and sums over all threads.

mod active;
mod bottleneck;
mod causes;
mod excluded_time;
mod host;
pub(crate) mod host_facts;
mod own_traffic;
mod requests;
mod roots;
mod starvation;
pub(crate) mod tasks;
mod threads;
mod totals;
mod waits;
mod wakers;
mod work;

use std::collections::{HashMap, HashSet};

use wallscope_analysis::blame::Blame;
use wallscope_model::histogram::Histogram;
use wallscope_model::scale::{Scaled, scale};
use wallscope_model::stats::smallest_share;
use wallscope_model::{BlockReason, ContextId, Recording, Sample, State};

pub use bottleneck::{Bottleneck, Reading};
pub use causes::Cause;
pub(crate) use causes::{largest, main_resource};
pub use excluded_time::{ExcludedTime, Exclusion};
pub use host::{Level, Resource};
pub use requests::{Requests, Upstream};
pub use roots::RootShare;
pub(crate) use totals::{Totals, ledger};
pub(crate) use wakers::{Wakers, in_function};
pub(crate) use work::{Work, WorkKind};

use crate::delays::Delay;
use crate::frames::{CodeSites, Side, functions};
use crate::lock_wait::own_lock;
use crate::thresholds::{ANSWER_PART, BRIEF_CPUS, MIN_REQUESTS};
use crate::wait_direction::{awaits_result, is_local_conversation, may_be_consumer};
use active::Active;
use roots::Roots;
use threads::Threads;
use waits::{Waits, awaits_one_peer};

/// Everything that rules judge by.
pub(crate) struct Evidence<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Times of the threads that work.
    pub bottleneck: Bottleneck,
    /// Sums over all threads.
    pub totals: Totals,
    /// Resources of the host, worst first.
    pub host: Vec<Resource>,
    /// Causes of active time, largest first.
    pub causes: Vec<Cause>,
    /// Time that shares of active time leave out, largest first.
    pub excluded: Vec<ExcludedTime>,
    /// Requests over connections that were followed.
    pub requests: Requests,
    /// Kinds of CPU time beyond the program's own code.
    pub work: Work,
    /// Smallest share of active time that this recording can tell from noise.
    pub resolves: f64,
    blame: Blame,
    waits: Waits,
    sites: CodeSites,
}

/// Reasons of waits that another thread, process or device has to end. If two have equal time, the first counts.
pub(crate) const ENDED_BY_OTHERS: [BlockReason; 11] = [
    BlockReason::Lock,
    BlockReason::Gil,
    BlockReason::KernelLock,
    BlockReason::Disk,
    BlockReason::Network,
    BlockReason::Pipe,
    BlockReason::Child,
    BlockReason::PageFault,
    BlockReason::Memory,
    BlockReason::Gc,
    BlockReason::Stopped,
];

/// Polls with a request in flight, by the side that waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Polls {
    /// The process awaits answers of others, or polls one connected peer alone.
    ForAnswers,
    /// Others await answers of the process, and it made no request itself.
    WhileOwing,
}

/// The item with most time; the first of equal ones, `none` with no time if there is none.
fn longest<T>(items: impl IntoIterator<Item = (T, u64)>, none: T) -> (T, u64) {
    let most = |a: (T, u64), b: (T, u64)| if b.1 > a.1 { b } else { a };
    items.into_iter().fold((none, 0), most)
}

impl<'a> Evidence<'a> {
    /// Reads a recording.
    pub fn new(recording: &'a Recording) -> Evidence<'a> {
        let scaled: Scaled = scale(recording);
        let mut waits = Waits::new(recording, &scaled);
        starvation::mark_starved(recording, &mut waits);
        let requests = Requests::new(recording);
        let threads = Threads::new(recording, &scaled, &waits, &requests);
        let bottleneck = Bottleneck::new(recording, &threads);
        let sites = CodeSites::new(recording);
        let active = Active {
            sites: &sites,
            recording,
            scaled: &scaled,
            waits: &waits,
            threads: &threads,
        };
        let mut blame = Blame::new(recording, &scaled);
        roots::tell_sleeps(recording, &mut blame);
        let mut causes = causes::causes(active, &bottleneck);
        let roots = Roots {
            recording,
            blame: &blame,
            sites: &sites,
        };
        for cause in causes.iter_mut().filter(|c| c.state == State::Blocked) {
            cause.because = roots.of(&cause.samples);
        }
        let excluded = excluded_time::excluded_time(active);
        let work = Work::new(active);
        let samples: u64 = recording.samples.iter().map(|s| s.count).sum();
        Evidence {
            totals: Totals::new(recording, &scaled),
            host: host::resources(recording, &bottleneck),
            resolves: smallest_share(samples as f64),
            recording,
            bottleneck,
            causes,
            excluded,
            requests,
            work,
            blame,
            waits,
            sites,
        }
    }

    /// `ns` as a share of active time.
    pub fn share(&self, ns: u64) -> f64 {
        self.bottleneck.share(ns)
    }

    /// Whether connections were followed, so that waits without a request in flight are known.
    pub fn follows_requests(&self) -> bool {
        self.recording.domain.backend == "ebpf"
    }

    /// A resource of the host by its name.
    pub fn host(&self, name: &str) -> Option<&Resource> {
        self.host.iter().find(|r| r.name == name)
    }

    /// A sample of the recording.
    pub fn sample(&self, i: u32) -> &'a Sample {
        &self.recording.samples[i as usize]
    }

    /// Scaled time of a sample, ns.
    pub fn sample_ns(&self, i: u32) -> u64 {
        self.waits.sample_ns[i as usize]
    }

    /// Whether a sample's wait is for want of work.
    pub fn is_starved(&self, i: u32) -> bool {
        self.waits.starved[i as usize]
    }

    /// Scaled time of samples, ns.
    pub fn time(&self, samples: &[u32]) -> u64 {
        self.waits.time(samples)
    }

    /// Blocked samples for `reason` that were not idle.
    pub fn blocked_samples(&self, reason: BlockReason) -> impl Iterator<Item = u32> {
        let causes = self.causes.iter().filter(move |c| c.is_wait_for(reason));
        causes.flat_map(|c| c.samples.iter().copied())
    }

    /// Blocked time for `reason` that was not idle, ns.
    pub fn blocked(&self, reason: BlockReason) -> u64 {
        let causes = self.causes.iter().filter(|c| c.is_wait_for(reason));
        causes.map(|c| c.ns).sum()
    }

    /// The reason with most time among those that others have to end.
    pub fn main_wait(&self) -> (BlockReason, u64) {
        let waits = ENDED_BY_OTHERS.iter().map(|r| (*r, self.blocked(*r)));
        longest(waits, ENDED_BY_OTHERS[0])
    }

    /// All waits that others have to end, and those with requests in flight, ns.
    pub fn pending(&self) -> u64 {
        let named: u64 = ENDED_BY_OTHERS.iter().map(|r| self.blocked(*r)).sum();
        let slept = self.in_flight(|r| !ENDED_BY_OTHERS.contains(&r) && r != BlockReason::Poll);
        let delayed: u64 = Delay::ALL.map(|d| self.delayed(d)).iter().sum();
        let polled = self.polled_for_answers() + self.handed_while_owing() + self.held();
        named + slept + polled + self.own_locks() + delayed
    }

    /// Polling for a server's own lock, with no known request in flight, ns.
    fn own_locks(&self) -> u64 {
        let polls = self.blocked_samples(BlockReason::Poll);
        let samples: Vec<u32> = polls
            .filter(|i| !self.waits.in_flight[*i as usize])
            .filter(|i| own_lock(self.recording, self.sample(*i)).is_some())
            .collect();
        self.time(&samples)
    }

    /// Blocked time for `reason` of the thread with most of it, ns.
    pub fn most_of_one_thread(&self, reason: BlockReason) -> u64 {
        let mut sums: HashMap<ContextId, u64> = HashMap::new();
        for i in self.blocked_samples(reason) {
            *sums.entry(self.sample(i).context).or_default() += self.sample_ns(i);
        }
        sums.into_values().max().unwrap_or(0)
    }

    /// Samples of a cause that are a delay of this kind.
    fn delayed_of(&self, cause: &Cause, delay: Delay) -> Vec<u32> {
        let is_delay = |i: &u32| self.waits.delays[*i as usize] == Some(delay);
        cause.samples.iter().copied().filter(is_delay).collect()
    }

    /// All samples that are a delay of this kind.
    pub fn delayed_samples(&self, delay: Delay) -> Vec<u32> {
        let causes = self.causes.iter();
        causes.flat_map(|c| self.delayed_of(c, delay)).collect()
    }

    /// Time of all samples that are a delay of this kind, ns.
    pub fn delayed(&self, delay: Delay) -> u64 {
        self.time(&self.delayed_samples(delay))
    }

    /// Whether most of a cause is a delay of this kind.
    pub fn mostly_delayed(&self, cause: &Cause, delay: Delay) -> bool {
        self.time(&self.delayed_of(cause, delay)) * 2 > cause.ns
    }

    /// The kind of delay with most time.
    pub fn main_delay(&self) -> (Delay, u64) {
        longest(Delay::ALL.map(|d| (d, self.delayed(d))), Delay::Child)
    }

    /// The cause with most time in a delay of this kind.
    pub fn main_delayed(&self, delay: Delay) -> Option<&Cause> {
        let ns = |c: &&Cause| self.time(&self.delayed_of(c, delay));
        self.causes.iter().max_by_key(ns)
    }

    /// Blocked time at pipes and local sockets that the process's own children ended, ns.
    pub fn piped_from_children(&self) -> u64 {
        let pipe = Some(BlockReason::Pipe.name());
        let pipes = self.causes.iter().filter(|c| c.reason == pipe);
        pipes
            .map(|c| self.waits.ended_by_children(self.recording, &c.samples))
            .map(|ended| self.time(&ended))
            .sum()
    }

    /// Blocked time for `reason` with no request in flight, during which an unmeasured process
    /// brought the thing that was waited for, ns.
    pub fn brought(&self, reason: BlockReason) -> u64 {
        let samples: Vec<u32> = (self.blocked_samples(reason))
            .filter(|i| !self.waits.in_flight[*i as usize])
            .filter(|i| {
                let sample = self.sample(*i);
                may_be_consumer(self.recording, sample)
                    && !is_local_conversation(self.recording, sample)
            })
            .collect();
        self.time(&self.waits.ended_by_strangers(self.recording, &samples))
    }

    /// Blocked time for which neither a reason nor a function is known, ns.
    pub fn unnamed(&self) -> u64 {
        let other = Some(BlockReason::Other.name());
        let causes = self.causes.iter();
        let unnamed = causes.filter(|c| c.reason == other && !c.has_function());
        unnamed.map(|c| c.ns).sum()
    }

    /// On-CPU time, ns, of threads that lived too briefly to be seen; `None` unless it is most of the computing and
    /// not negligible.
    pub fn mostly_unseen(&self) -> Option<u64> {
        let unseen = self.totals.unattributed_ns;
        let most = unseen > self.bottleneck.on_cpu_ns();
        (most && self.bottleneck.load(unseen) >= BRIEF_CPUS).then_some(unseen)
    }

    /// Blocked time at futures, ns.
    pub fn awaited_results(&self) -> u64 {
        let samples: Vec<u32> = (self.blocked_samples(BlockReason::Lock))
            .filter(|i| awaits_result(self.recording, self.sample(*i)))
            .collect();
        self.time(&samples)
    }

    /// Whether children ended most of a cause's waits.
    pub fn mostly_of_child(&self, cause: &Cause) -> bool {
        let ended = self.waits.ended_by_children(self.recording, &cause.samples);
        self.time(&ended) * 2 > self.time(&cause.samples)
    }

    /// Polling for answers of others, or on one connected peer alone, ns.
    pub fn polled_for_answers(&self) -> u64 {
        self.time(&self.polls(Polls::ForAnswers))
    }

    /// Polling with requests in flight in either direction, or on one connected peer alone, ns.
    pub fn polled_in_flight(&self) -> u64 {
        self.polled_for_answers() + self.time(&self.polls(Polls::WhileOwing))
    }

    /// Part of `polled_in_flight` that other threads of the recording ended by a signal, an event or a pipe, ns.
    pub fn handed(&self) -> u64 {
        self.handed_of_answers() + self.handed_while_owing()
    }

    /// Part of `handed` in which answers of others were awaited, ns.
    pub fn handed_of_answers(&self) -> u64 {
        let polls = self.polls(Polls::ForAnswers);
        self.waits.handed_ns(self.recording, &polls)
    }

    /// Part of `handed` in which the process only owed answers, ns.
    pub fn handed_while_owing(&self) -> u64 {
        let polls = self.polls(Polls::WhileOwing);
        self.waits.handed_ns(self.recording, &polls)
    }

    /// Polling while others await answers that the process gives in the end, without the part that
    /// its own threads ended, ns.
    pub fn held(&self) -> u64 {
        if !self.answers() {
            return 0;
        }
        let polled = self.time(&self.polls(Polls::WhileOwing));
        polled.saturating_sub(self.handed_while_owing())
    }

    /// Whether the process was seen to answer. A process that never answers serves a stream, or lets
    /// its callers wait for news.
    pub fn answers(&self) -> bool {
        let mean = self.requests.at_most_ns().unwrap_or(u64::MAX);
        self.requests.asked >= MIN_REQUESTS && mean <= self.bottleneck.window_ns / ANSWER_PART
    }

    /// Samples of polls with a request in flight.
    pub fn polls(&self, which: Polls) -> Vec<u32> {
        let poll = Some(BlockReason::Poll.name());
        let causes = self.causes.iter().filter(|c| c.reason == poll);
        causes
            .flat_map(|c| c.samples.iter().copied())
            .filter(|i| {
                let in_flight = self.waits.in_flight[*i as usize]
                    || awaits_one_peer(self.recording, self.sample(*i));
                let owing = self.waits.owed[*i as usize];
                in_flight
                    && owing == (which == Polls::WhileOwing)
                    && self.waits.delays[*i as usize].is_none()
            })
            .collect()
    }

    /// Blocked time with requests in flight, of reasons that `which` chooses, without delays, ns.
    pub fn in_flight(&self, which: impl Fn(BlockReason) -> bool) -> u64 {
        let all = self.causes.iter().filter(|c| c.state == State::Blocked);
        let samples: HashSet<u32> = all.flat_map(|c| c.samples.iter().copied()).collect();
        let fits = |i: &&u32| {
            let plain = self.waits.delays[**i as usize].is_none();
            let reason = self.sample(**i).reason;
            plain && self.waits.in_flight[**i as usize] && reason.is_some_and(&which)
        };
        let fitting = samples.iter().filter(fits);
        fitting.map(|i| self.sample_ns(*i)).sum()
    }

    /// Waits for children that are measured themselves, ns.
    pub fn relayed(&self) -> u64 {
        let parents: HashSet<u32> = self.recording.processes.iter().map(|p| p.parent).collect();
        let child = Some(BlockReason::Child.name());
        let blocked = self.causes.iter().filter(|c| c.state == State::Blocked);
        let samples = blocked.flat_map(|c| c.samples.iter().map(move |i| (c, *i)));
        samples
            .filter(|(c, i)| {
                let thread = &self.recording.contexts[self.sample(*i).context.0 as usize];
                (c.reason == child && parents.contains(&thread.pid))
                    || self.waits.delays[*i as usize] == Some(Delay::Child)
            })
            .map(|(_, i)| self.sample_ns(i))
            .sum()
    }

    /// Roots of the waits of `samples`, largest share first.
    pub fn roots(&self, samples: &[u32]) -> Vec<RootShare> {
        self.all_roots().of(samples)
    }

    /// Active waits beside `samples` that have the same root.
    pub fn other_waits_for(&self, root: &RootShare, samples: &[u32]) -> Vec<u32> {
        let known: HashSet<u32> = samples.iter().copied().collect();
        let blocked = self.causes.iter().filter(|c| c.state == State::Blocked);
        let others = blocked.flat_map(|c| c.samples.iter().copied());
        let others = others.filter(|i| !known.contains(i));
        self.all_roots().with_root(root, others)
    }

    /// Active time that the threads of a root computed in its function, ns.
    pub fn computed_by(&self, root: &RootShare) -> u64 {
        let running = self.causes.iter().filter(|c| c.state == State::OnCpu);
        let there = running.filter(|c| c.function == root.function);
        let samples = there.flat_map(|c| c.samples.iter().copied());
        let threads = &self.recording.contexts;
        let of_root = |i: &u32| root.is_of(&threads[self.sample(*i).context.0 as usize].name);
        self.time(&samples.filter(of_root).collect::<Vec<u32>>())
    }

    /// On-CPU time, ns, in the calls that contain most of the waits `samples`. Fewer calls save this time, too.
    pub fn computed_in_calls(&self, samples: &[u32]) -> u64 {
        let time = |samples: &[u32]| self.time(samples);
        time(&causes::computing_in_calls(
            self.recording,
            &self.causes,
            samples,
            time,
        ))
    }

    /// Whether most of the time of `samples` is spent waiting for locks that threads hold.
    pub fn mostly_for_locks(&self, samples: &[u32]) -> bool {
        let roots = self.all_roots();
        let of_locks = samples.iter().copied().filter(|i| roots.is_for_lock(*i));
        self.time(&of_locks.collect::<Vec<u32>>()) * 2 > self.time(samples)
    }

    fn all_roots(&self) -> Roots<'_> {
        Roots {
            recording: self.recording,
            blame: &self.blame,
            sites: &self.sites,
        }
    }

    /// Wakers of samples.
    pub fn wakers_of(&self, samples: &[u32]) -> Wakers {
        Wakers::new(self.recording, &self.waits, &self.sites, samples)
    }

    /// Wakers of all waits for `reason`.
    pub fn wakers(&self, reason: BlockReason) -> Wakers {
        let samples: Vec<u32> = self.blocked_samples(reason).collect();
        self.wakers_of(&samples)
    }

    /// Lengths of the single waits of a cause, where they were sampled by stack.
    pub fn lengths(&self, cause: &Cause) -> Option<Histogram> {
        let samples = cause.samples.iter();
        let stacks: HashSet<_> = samples.map(|i| self.sample(*i).stack).collect();
        let mut rows = (self.recording.histograms.iter())
            .filter(|r| r.state == cause.state && r.stack.is_some_and(|s| stacks.contains(&s)));
        let mut lengths = rows.next()?.histogram.clone();
        rows.for_each(|r| lengths.merge(&r.histogram));
        (lengths.count() > 0.0).then_some(lengths)
    }

    /// Whether `fits` holds for most of a cause's time.
    pub fn mostly(&self, cause: &Cause, fits: impl Fn(&Recording, &Sample) -> bool) -> bool {
        let fits = |i: &u32| fits(self.recording, self.sample(*i));
        let fitting: Vec<u32> = cause.samples.iter().copied().filter(fits).collect();
        self.time(&fitting) * 2 > self.time(&cause.samples)
    }

    /// Whether a function that `known` recognises is on the stacks of most of a cause.
    pub fn mostly_passes(&self, cause: &Cause, known: impl Fn(Side, &str) -> bool) -> bool {
        self.mostly(cause, |recording, sample| {
            functions(recording, sample.stack).any(|(side, name)| known(side, name))
        })
    }
}
