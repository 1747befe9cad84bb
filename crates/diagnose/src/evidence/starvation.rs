//! Waits for want of work.
//!
//! [`crate::idle`] judges each wait by itself. Here waits at one place are judged together, by their wakers and by
//! the wakers' activity meanwhile. A thread that waits for another one to bring work is starved if the bringer had no
//! work either. The bringer then slept or was idle. It never waits at the same place, or else the two share a
//! resource. The waiters ask it for nothing, or else its rest is a delay.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wallscope_model::{Actor, BlockReason, ContextId, Peer, Recording, Role, Sample};

use super::waits::Waits;
use crate::delays::Children;
use crate::frames::{code_site, scripts};
use crate::request_reply::RequestReply;
use crate::thresholds::{
    CONSUMERS_AT_WORK, DIALOGUE_PART, OTHERS_AT_WORK, RESTFUL_PART, SELDOM_NS, STARVED_PART,
};
use crate::wait_direction::{
    is_consumer, may_wait_in_vain, takes_from_endless_queue, takes_from_queue,
};
use crate::wake_chain::{actor, is_timer, mostly_ended_by, thread_of};

/// The program's own function with its file.
type OwnFunction = (Arc<str>, Arc<str>);

/// Marks the waits of a recording that are for want of work.
pub(crate) fn mark_starved(recording: &Recording, waits: &mut Waits) {
    let wakers_known = !recording.hops.is_empty();
    if !wakers_known {
        mark_endless_queues(recording, waits);
    }
    let mut groups = consumers(recording, waits);
    if !wakers_known {
        mark_queue_consumers(recording, waits);
        mark_quiet_scripts(recording, waits);
    }
    // A bringer may wait for want of work itself, as the second thread of a pipeline does.
    while !groups.is_empty() {
        let bringers = Suppliers::new(recording, waits);
        let is_starved = |samples: &mut Vec<u32>| {
            let whole = waits.time(samples) as f64;
            bringers.want_of_work(waits, samples) >= STARVED_PART * whole
        };
        let starved: Vec<Vec<u32>> = groups.extract_if(.., is_starved).collect();
        if starved.is_empty() {
            return;
        }
        starved.iter().for_each(|samples| mark(waits, samples));
    }
}

fn mark(waits: &mut Waits, samples: &[u32]) {
    for i in samples {
        waits.starved[*i as usize] = true;
    }
}

/// Threads of some samples.
fn threads_of(recording: &Recording, samples: &[u32]) -> HashSet<ContextId> {
    let samples = samples.iter().map(|i| &recording.samples[*i as usize]);
    samples.map(|s| s.context).collect()
}

fn place(recording: &Recording, sample: &Sample) -> OwnFunction {
    let site = code_site(recording, sample.stack);
    (site.function, site.module)
}

/// Marks waits of consumers of unbounded queues. Without wakers, the thread that fills such a queue is taken to be
/// one of the process, and its ledger shows its activity meanwhile.
fn mark_endless_queues(recording: &Recording, waits: &mut Waits) {
    for (i, s) in recording.samples.iter().enumerate() {
        if !s.idle && !waits.in_flight[i] && takes_from_endless_queue(recording, s) {
            waits.starved[i] = true;
        }
    }
}

/// Waits with known wakers that may be for want of work, by place and reason.
fn consumers(recording: &Recording, waits: &Waits) -> Vec<Vec<u32>> {
    let children = Children::new(recording);
    let mut groups: HashMap<(OwnFunction, BlockReason), Vec<u32>> = HashMap::new();
    for (i, s) in recording.samples.iter().enumerate() {
        let Some(reason) = s.reason.filter(|_| !s.idle && !waits.in_flight[i]) else {
            continue;
        };
        let hops = waits.chains.of_sample(i as u32);
        if hops.is_empty() {
            continue;
        }
        let consumes = is_consumer(recording, s) || in_vain(recording, s, hops);
        // A thread that started a process to do something does not wait for want of work.
        if consumes && !children.end(recording, s, hops) {
            let group = groups.entry((place(recording, s), reason)).or_default();
            group.push(i as u32);
        }
    }
    groups.into_values().collect()
}

/// Whether only time limits end a wait for something that no thread is known to hold.
fn in_vain(recording: &Recording, sample: &Sample, hops: &[u32]) -> bool {
    let given = |hop: &u32| {
        let h = &recording.hops[*hop as usize];
        matches!(
            actor(recording, h),
            Actor::Context(_) | Actor::Stranger { .. }
        )
    };
    may_wait_in_vain(recording, sample)
        && !hops.iter().any(given)
        && mostly_ended_by(recording, sample, hops, is_timer)
}

/// Threads that end the waits of others, and how they wait themselves.
struct Suppliers<'r> {
    recording: &'r Recording,
    /// Threads with the reasons for which their waits are idle, rest, or are for want of work.
    restful: HashSet<(ContextId, BlockReason)>,
    /// Threads with the reasons for which their waits are for want of work.
    starved: HashSet<(ContextId, BlockReason)>,
    /// Wakers of each thread's waits with their time, ns; `None`: unmeasured ones.
    ended_by: HashMap<ContextId, HashMap<Option<ContextId>, f64>>,
    requests: RequestReply,
}

impl<'r> Suppliers<'r> {
    fn new(recording: &'r Recording, waits: &Waits) -> Suppliers<'r> {
        let rests = |i: usize| {
            recording.samples[i].idle || waits.rests(recording, i as u32) || waits.starved[i]
        };
        Suppliers {
            recording,
            restful: mostly(recording, waits, rests),
            starved: mostly(recording, waits, |i| waits.starved[i]),
            ended_by: ended_by(recording, waits),
            requests: RequestReply::new(recording, &waits.chains),
        }
    }

    /// Time of waits at one place during which their bringers had nothing to bring, ns.
    fn want_of_work(&self, waits: &Waits, samples: &[u32]) -> f64 {
        let waiters = threads_of(self.recording, samples);
        let mut want = 0.0;
        for i in samples {
            for hop in waits.chains.of_sample(*i) {
                let h = &self.recording.hops[*hop as usize];
                let ns = match actor(self.recording, h) {
                    // Nothing came: the thread's own time limit was over.
                    actor if is_timer(actor) => h.ns,
                    Actor::Context(thread) => {
                        let one_of_them =
                            waiters.contains(thread) || self.is_asked(*thread, &waiters, samples);
                        let role = match (one_of_them, waiters.contains(thread)) {
                            (false, _) => SupplierRole::Other,
                            (true, true) => SupplierRole::Waiter,
                            (true, false) => SupplierRole::Asked,
                        };
                        self.rest_below(waits, *hop, *thread, role)
                    }
                    _ => 0,
                };
                want += waits.scaled(self.recording, *i, ns);
            }
        }
        want
    }

    /// Time in which the actor of a hop rested, ns.
    ///
    /// The threads of a pool may take turns: one polls for all, and the others wait at a condition. The polling
    /// thread holds nothing that the others want.
    fn rest_below(&self, waits: &Waits, hop: u32, thread: ContextId, role: SupplierRole) -> u64 {
        let below = waits.chains.of_hop(hop).iter();
        let below = below.map(|b| &self.recording.hops[*b as usize]);
        let rests = below.filter(|b| {
            let reason = b.reason.unwrap_or(BlockReason::Other);
            let counts = match role {
                SupplierRole::Other => true,
                SupplierRole::Waiter => reason == BlockReason::Poll,
                // Only an asked thread brings its waiters' work. Its rest counts if it waits for want of work itself.
                SupplierRole::Asked => self.starved.contains(&(thread, reason)),
            };
            b.role == Role::Blocked && counts && self.restful.contains(&(thread, reason))
        });
        rests.map(|b| b.ns).sum()
    }

    /// Whether the waiters ask a thread for the thing that ends their waits.
    fn is_asked(&self, thread: ContextId, waiters: &HashSet<ContextId>, samples: &[u32]) -> bool {
        let Some(by) = self.ended_by.get(&thread) else {
            return false;
        };
        let all: f64 = by.values().sum();
        let ours: f64 = waiters.iter().filter_map(|w| by.get(&Some(*w))).sum();
        let dialogue = ours >= DIALOGUE_PART * all.max(1.0);
        let recording = self.recording;
        dialogue || self.requests.asks(recording, thread, waiters, samples)
    }
}

/// A bringer as seen by the waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SupplierRole {
    /// It waits at the same place itself.
    Waiter,
    /// The waiters ask it.
    Asked,
    /// Neither.
    Other,
}

/// Threads and reasons for which samples that `chosen` accepts have most of the waiting time.
fn mostly(
    recording: &Recording,
    waits: &Waits,
    chosen: impl Fn(usize) -> bool,
) -> HashSet<(ContextId, BlockReason)> {
    let mut sums: HashMap<(ContextId, BlockReason), (u64, u64)> = HashMap::new();
    for (i, s) in recording.samples.iter().enumerate() {
        let Some(reason) = s.reason else { continue };
        let (all, part) = sums.entry((s.context, reason)).or_default();
        *all += waits.sample_ns[i];
        if chosen(i) {
            *part += waits.sample_ns[i];
        }
    }
    let is_most = |(all, part): (u64, u64)| part as f64 >= RESTFUL_PART * all.max(1) as f64;
    let most = sums.into_iter().filter(|(_, sum)| is_most(*sum));
    most.map(|(key, _)| key).collect()
}

/// Wakers of each thread's waits with their time, ns; `None`: unmeasured ones.
fn ended_by(
    recording: &Recording,
    waits: &Waits,
) -> HashMap<ContextId, HashMap<Option<ContextId>, f64>> {
    let mut out: HashMap<ContextId, HashMap<Option<ContextId>, f64>> = HashMap::new();
    for (sample, hops) in waits.chains.samples() {
        let own = recording.samples[sample as usize].context;
        for hop in hops {
            let h = &recording.hops[*hop as usize];
            let by = out.entry(own).or_default();
            *by.entry(thread_of(recording, h)).or_default() +=
                waits.scaled(recording, sample, h.ns);
        }
    }
    out
}

/// Samples that `fits` accepts, by place.
fn by_place(recording: &Recording, fits: impl Fn(usize, &Sample) -> bool) -> Vec<Vec<u32>> {
    let mut groups: HashMap<OwnFunction, Vec<u32>> = HashMap::new();
    for (i, s) in recording.samples.iter().enumerate() {
        if fits(i, s) {
            groups
                .entry(place(recording, s))
                .or_default()
                .push(i as u32);
        }
    }
    groups.into_values().collect()
}

/// Marks waits for the next entry of a queue, where wakers are unknown. The queue may hold resources that are lent:
/// then the borrowers work while others wait. If all consumers together hardly do anything, the queue holds work.
fn mark_queue_consumers(recording: &Recording, waits: &mut Waits) {
    let groups = by_place(recording, |i, s| {
        !s.idle && !waits.in_flight[i] && takes_from_queue(recording, s)
    });
    let window = recording.window.length_ns();
    for samples in groups {
        let waiters = threads_of(recording, &samples);
        let theirs = (recording.samples.iter().zip(&waits.sample_ns))
            .filter(|(s, _)| waiters.contains(&s.context) && !s.idle);
        let all: u64 = theirs.map(|(_, ns)| ns).sum();
        let work = all.saturating_sub(waits.time(&samples));
        if (work as f64) < CONSUMERS_AT_WORK * window as f64 {
            mark(waits, &samples);
        }
    }
}

/// Marks waits of a script's threads at events and conditions, where wakers are unknown. The bringer is another
/// thread of the process. While all of those rest, there is no work.
///
/// Two cases are left out. If others ask the process for something, its threads may wait for that. If its threads
/// wake often, another thread may be slow to answer each time.
fn mark_quiet_scripts(recording: &Recording, waits: &mut Waits) {
    let is_asked = |p: &Peer| !p.asks && (p.requests > 0 || p.in_flight_ns > 0);
    if recording.peers.iter().any(is_asked) {
        return;
    }
    let groups = by_place(recording, |i, s| {
        let open = !s.idle && !waits.in_flight[i] && !waits.starved[i];
        open && s.reason == Some(BlockReason::Lock)
            && scripts(recording, s.stack).next().is_some()
            && is_consumer(recording, s)
    });
    for samples in groups {
        if is_quiet(recording, waits, &samples) {
            mark(waits, &samples);
        }
    }
}

/// Whether the threads of `samples` wake seldom, and they and the other threads of their processes
/// hardly work.
fn is_quiet(recording: &Recording, waits: &Waits, samples: &[u32]) -> bool {
    let waiters = threads_of(recording, samples);
    let pid = |c: &ContextId| recording.contexts[c.0 as usize].pid;
    let pids: HashSet<u32> = waiters.iter().map(pid).collect();
    let (mut own, mut others, mut any_other) = (0, 0, false);
    for (i, s) in recording.samples.iter().enumerate() {
        let rests = s.idle || waits.starved[i] || waits.rests(recording, i as u32);
        let work = if rests { 0 } else { waits.sample_ns[i] };
        if waiters.contains(&s.context) {
            own += work;
        } else if pids.contains(&pid(&s.context)) {
            any_other = true;
            others += work;
        }
    }
    let window = recording.window.length_ns() as f64;
    let waited = waits.time(samples);
    let ledger = |c: &ContextId| &recording.contexts[c.0 as usize].ledger;
    let wakes: u64 = waiters.iter().map(|c| ledger(c).voluntary_switches).sum();
    let seldom = wakes.saturating_mul(SELDOM_NS) <= waited;
    any_other
        && seldom
        && (own.saturating_sub(waited) as f64) < CONSUMERS_AT_WORK * window
        && (others as f64) < OTHERS_AT_WORK * window
}
