//! What waits are: for somebody who works, for nothing but time, or for want of work.
//!
//! [`crate::idle`] judges each wait by itself. Here they are judged together, by who ended them and
//! what that one did meanwhile. A condition that is waited for until somebody brings work is idle
//! where the bringer had none either: it slept or was idle itself, it never waits at the same place
//! (who does, shares a resource with the others), and it is not asked for anything by those who
//! wait (that would be a dialogue, and its rest a delay).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wallscope_model::place::parks;
use wallscope_model::scale::Scaled;
use wallscope_model::{
    Above, Actor, BlockReason, ContextId, FrameKind, LabelValue, LabelsId, Peer, Recording, Role,
    Sample, State,
};

use super::delays::{self, Children, Delay};
use super::news::{
    is_for_news, may_be_in_vain, takes_from_endless_queue, takes_from_queue, takes_rubys_lock,
};
use super::places::{functions, passes, place, scripts};
use super::turns::Turns;
use crate::idle::{OWED, REQUEST};
use crate::parking;

/// Of the time of waits at one place, so much must be known to be for want of work.
const STARVED: f64 = 0.7;
/// Of a thread's waits for one reason, so much is rest where they count as rest.
const RESTFUL: f64 = 0.8;
/// Of a bringer's own waits, so much ended by those who wait for it makes a dialogue.
const DIALOGUE: f64 = 0.2;

/// Every wait of a recording, with who ended it.
pub(super) struct Waits {
    /// Scaled time of each sample, ns.
    pub sample_ns: Vec<u64>,
    /// Whether a request of the thread was in flight, by sample.
    pub in_flight: Vec<bool>,
    /// Whether it was only owed: asked by others, and nobody was asked by it.
    pub owed: Vec<bool>,
    /// Whether it is a wait for want of work, by sample; idle ones are not among them.
    pub starved: Vec<bool>,
    /// What a wait is for that looks like rest and is none, by sample.
    pub delays: Vec<Option<Delay>>,
    pub below_sample: HashMap<u32, Vec<u32>>,
    pub below: Vec<Vec<u32>>,
}

/// Reasons of which a wait may well be chosen: it ends with time, or with any event.
pub(super) fn may_rest(reason: Option<BlockReason>) -> bool {
    use BlockReason::{Other, Poll, Timer};
    matches!(reason, Some(Timer | Poll | Other))
}

/// Whether a wait is for one connected peer: polling just that one is how answers are awaited
/// with a time limit.
pub(super) fn awaits_one_peer(recording: &Recording, sample: &Sample) -> bool {
    sample.reason == Some(BlockReason::Poll)
        && !sample.idle
        && (resource(recording, sample)
            .is_some_and(|r| r.starts_with("peer ") || r.starts_with(UDP_ANSWERS))
            || passes(recording, sample.stack, false, RESOLVERS))
}

/// How recordings name the socket of one who sends datagrams and waits for what comes back.
const UDP_ANSWERS: &str = "answers to UDP ";

/// How functions are called that ask for the address of a name.
pub(super) const RESOLVERS: &[&str] = &[
    "getaddrinfo",
    "gethostbyname",
    "gethostbyaddr",
    "getnameinfo",
    "__res_",
    "res_nsend",
    "res_nquery",
    "res_send",
    "res_query",
    "ares_",
    "net.(*Resolver)",
    "java.net.InetAddress",
];

/// The resource that a wait was for, where the recording names it, and it is no word of the waiting
/// thread's own.
pub(super) fn resource(recording: &Recording, sample: &Sample) -> Option<Arc<str>> {
    let name = text_label(recording, sample.labels, "resource")?;
    let own = sample.reason == Some(BlockReason::Lock)
        && parks(recording, &recording.stacks[sample.stack.0 as usize]);
    (!own).then_some(name)
}

/// The text that `key` has in a set of labels.
pub(crate) fn text_label(
    recording: &Recording,
    labels: Option<LabelsId>,
    key: &str,
) -> Option<Arc<str>> {
    let set = recording.label_sets.get(labels?.0 as usize)?;
    match &set.iter().find(|l| &*l.key == key)?.value {
        LabelValue::Text(text) => Some(text.clone()),
        LabelValue::Number(..) => None,
    }
}

impl Waits {
    pub fn new(recording: &Recording, scaled: &Scaled) -> Waits {
        let mut sample_ns = vec![0; recording.samples.len()];
        for piece in &scaled.pieces {
            sample_ns[piece.sample as usize] += piece.ns;
        }
        let (below_sample, below) = hops(recording);
        let requests: Vec<Option<Arc<str>>> = (recording.samples.iter())
            .map(|s| text_label(recording, s.labels, REQUEST.0))
            .collect();
        let in_flight = requests.iter().map(Option::is_some).collect();
        let owed = (requests.iter())
            .map(|r| r.as_deref() == Some(OWED))
            .collect();
        let mut waits = Waits {
            starved: vec![false; sample_ns.len()],
            delays: delays::of_samples(recording),
            sample_ns,
            in_flight,
            owed,
            below_sample,
            below,
        };
        waits.find_starved(recording);
        waits
    }

    /// A hop's time on the scale of its sample, ns.
    pub fn scaled(&self, recording: &Recording, sample: u32, ns: u64) -> f64 {
        let whole = recording.samples[sample as usize].ns.max(1);
        ns as f64 * self.sample_ns[sample as usize] as f64 / whole as f64
    }

    /// Whether a sample's wait is rest: time or events end it, and no request waits for it.
    pub fn rests(&self, recording: &Recording, sample: u32) -> bool {
        let s = &recording.samples[sample as usize];
        let chosen = s.state == State::Blocked && may_rest(s.reason);
        let waits = self.in_flight[sample as usize] || self.delays[sample as usize].is_some();
        chosen && !waits && !awaits_one_peer(recording, s)
    }

    fn find_starved(&mut self, recording: &Recording) {
        type Group = (Arc<str>, Arc<str>, BlockReason);
        let mut groups: HashMap<Group, Vec<u32>> = HashMap::new();
        let children = Children::new(recording);
        // Where nobody knows who ended waits: who fills such a queue is a thread of the process, whose own time
        // tells what it does meanwhile.
        let unknown = recording.hops.is_empty();
        for (i, s) in recording.samples.iter().enumerate() {
            if unknown && !s.idle && !self.in_flight[i] && takes_from_endless_queue(recording, s) {
                self.starved[i] = true;
            }
            let Some(reason) = s.reason.filter(|_| !s.idle && !self.in_flight[i]) else {
                continue;
            };
            let ended = self.below_sample.get(&(i as u32));
            // Who started a process to do something does not wait for want of work.
            if let Some(hops) = ended
                && (is_for_news(recording, s, reason) || self.in_vain(recording, i as u32, hops))
                && !children.end(recording, s, hops)
            {
                let place = place(recording, &recording.stacks[s.stack.0 as usize]);
                let group = (place.function, place.module, reason);
                groups.entry(group).or_default().push(i as u32);
            }
        }
        if unknown {
            self.find_consumers(recording);
            self.find_quiet(recording);
        }
        if groups.is_empty() {
            return;
        }
        let restful = self.restful(recording);
        let ended_by = self.ended_by(recording);
        let turns = Turns::new(recording, &self.below_sample);
        for samples in groups.into_values() {
            let waiters: HashSet<ContextId> = (samples.iter())
                .map(|i| recording.samples[*i as usize].context)
                .collect();
            let asks = |who: ContextId| {
                let Some(by) = ended_by.get(&who) else {
                    return false;
                };
                let all: f64 = by.values().sum();
                let ours: f64 = waiters.iter().filter_map(|w| by.get(&Some(*w))).sum();
                ours >= DIALOGUE * all.max(1.0) || turns.asked(recording, who, &waiters, &samples)
            };
            let leads = |who: ContextId, reason: BlockReason| {
                waiters.contains(&who) && reason == BlockReason::Poll
            };
            let whole: u64 = samples.iter().map(|i| self.sample_ns[*i as usize]).sum();
            let mut want = 0.0;
            for i in &samples {
                for hop in &self.below_sample[i] {
                    let h = &recording.hops[*hop as usize];
                    match &recording.actors[h.actor.0 as usize] {
                        // Nobody came: the time that it had set itself was over.
                        Actor::Interrupt(served) if &**served == "timer" => {
                            want += self.scaled(recording, *i, h.ns);
                        }
                        Actor::Context(who) => {
                            // Threads may take turns at polling for all of them, and wait at a condition
                            // otherwise: who polls for what may come has nothing that the others want.
                            let one_of_them = waiters.contains(who) || asks(*who);
                            let rest = self.below[*hop as usize].iter().filter(|b| {
                                let b = &recording.hops[**b as usize];
                                let reason = b.reason.unwrap_or(BlockReason::Other);
                                b.role == Role::Blocked
                                    && (!one_of_them || leads(*who, reason))
                                    && restful.contains(&(*who, reason))
                            });
                            let rest: u64 = rest.map(|b| recording.hops[*b as usize].ns).sum();
                            want += self.scaled(recording, *i, rest);
                        }
                        _ => {}
                    }
                }
            }
            if want >= STARVED * whole as f64 {
                for i in samples {
                    self.starved[i as usize] = true;
                }
            }
        }
    }

    /// Waits for what is put into a queue, where nobody knows who ended them. What lies in it may be lent: then those who
    /// have it do something with it as long as others wait. Where all of them together hardly do anything, it is work.
    fn find_consumers(&mut self, recording: &Recording) {
        const AT_WORK: f64 = 0.5;
        type Place = (Arc<str>, Arc<str>);
        let mut groups: HashMap<Place, Vec<u32>> = HashMap::new();
        for (i, s) in recording.samples.iter().enumerate() {
            if !s.idle && !self.in_flight[i] && takes_from_queue(recording, s) {
                let place = place(recording, &recording.stacks[s.stack.0 as usize]);
                let group = groups.entry((place.function, place.module)).or_default();
                group.push(i as u32);
            }
        }
        let window = recording.window.length_ns();
        for samples in groups.into_values() {
            let waiters: HashSet<ContextId> = (samples.iter())
                .map(|i| recording.samples[*i as usize].context)
                .collect();
            let theirs = (recording.samples.iter().zip(&self.sample_ns))
                .filter(|(s, _)| waiters.contains(&s.context) && !s.idle);
            let all: u64 = theirs.map(|(_, ns)| ns).sum();
            let waits: u64 = samples.iter().map(|i| self.sample_ns[*i as usize]).sum();
            if (all.saturating_sub(waits) as f64) < AT_WORK * window as f64 {
                for i in samples {
                    self.starved[i as usize] = true;
                }
            }
        }
    }

    /// Waits of a script's threads for news at events and conditions, where nobody knows who ended them. Whoever brings
    /// the news is another thread of the process, and as long as all of those rest there is none. Not where others ask
    /// the process for something, which may be what is waited for; nor where the threads wake often: somebody may take
    /// his time over each answer.
    fn find_quiet(&mut self, recording: &Recording) {
        const AT_WORK: f64 = 0.5;
        const OTHERS_AT_WORK: f64 = 0.2;
        const SELDOM_NS: u64 = 50_000_000;
        type Place = (Arc<str>, Arc<str>);
        let is_asked = |p: &Peer| !p.asks && (p.requests > 0 || p.in_flight_ns > 0);
        if recording.peers.iter().any(is_asked) {
            return;
        }
        let mut groups: HashMap<Place, Vec<u32>> = HashMap::new();
        for (i, s) in recording.samples.iter().enumerate() {
            let open = !s.idle && !self.in_flight[i] && !self.starved[i];
            if open
                && s.reason == Some(BlockReason::Lock)
                && scripts(recording, s.stack).next().is_some()
                && is_for_news(recording, s, BlockReason::Lock)
            {
                let place = place(recording, &recording.stacks[s.stack.0 as usize]);
                let group = groups.entry((place.function, place.module)).or_default();
                group.push(i as u32);
            }
        }
        let window = recording.window.length_ns() as f64;
        for samples in groups.into_values() {
            let waiters: HashSet<ContextId> = (samples.iter())
                .map(|i| recording.samples[*i as usize].context)
                .collect();
            let pid = |c: &ContextId| recording.contexts[c.0 as usize].pid;
            let pids: HashSet<u32> = waiters.iter().map(pid).collect();
            let (mut own, mut others, mut any) = (0, 0, false);
            for (i, s) in recording.samples.iter().enumerate() {
                let rests = s.idle || self.starved[i] || self.rests(recording, i as u32);
                if waiters.contains(&s.context) {
                    own += if rests { 0 } else { self.sample_ns[i] };
                } else if pids.contains(&pid(&s.context)) {
                    any = true;
                    others += if rests { 0 } else { self.sample_ns[i] };
                }
            }
            let waits: u64 = samples.iter().map(|i| self.sample_ns[*i as usize]).sum();
            let own = own.saturating_sub(waits) as f64;
            let ledger = |c: &ContextId| &recording.contexts[c.0 as usize].ledger;
            let wakes: u64 = waiters.iter().map(|c| ledger(c).voluntary_switches).sum();
            let seldom = wakes.saturating_mul(SELDOM_NS) <= waits;
            if any && seldom && own < AT_WORK * window && (others as f64) < OTHERS_AT_WORK * window
            {
                for i in samples {
                    self.starved[i as usize] = true;
                }
            }
        }
    }

    /// Whether nothing but its time limit ends a wait for what nobody is known to have.
    fn in_vain(&self, recording: &Recording, sample: u32, hops: &[u32]) -> bool {
        let s = &recording.samples[sample as usize];
        let timer = |a: &Actor| matches!(a, Actor::Interrupt(served) if &**served == "timer");
        let given = |hop: &u32| {
            let h = &recording.hops[*hop as usize];
            matches!(
                &recording.actors[h.actor.0 as usize],
                Actor::Context(_) | Actor::Stranger { .. }
            )
        };
        may_be_in_vain(recording, s)
            && !hops.iter().any(given)
            && delays::mostly_ended_by(recording, s, hops, timer)
    }

    /// For which reasons which threads' waits are idle or rest.
    fn restful(&self, recording: &Recording) -> HashSet<(ContextId, BlockReason)> {
        let mut sums: HashMap<(ContextId, BlockReason), (u64, u64)> = HashMap::new();
        for (i, s) in recording.samples.iter().enumerate() {
            let Some(reason) = s.reason else { continue };
            let sum = sums.entry((s.context, reason)).or_default();
            sum.0 += self.sample_ns[i];
            if s.idle || self.rests(recording, i as u32) {
                sum.1 += self.sample_ns[i];
            }
        }
        let all = sums.into_iter();
        all.filter(|(_, (all, rest))| *rest as f64 >= RESTFUL * (*all).max(1) as f64)
            .map(|(key, _)| key)
            .collect()
    }

    /// Who ended each thread's waits, and how much of them; `None`: somebody who is not measured.
    fn ended_by(
        &self,
        recording: &Recording,
    ) -> HashMap<ContextId, HashMap<Option<ContextId>, f64>> {
        let mut out: HashMap<ContextId, HashMap<Option<ContextId>, f64>> = HashMap::new();
        for (sample, hops) in &self.below_sample {
            let who = recording.samples[*sample as usize].context;
            for hop in hops {
                let h = &recording.hops[*hop as usize];
                let by = match &recording.actors[h.actor.0 as usize] {
                    Actor::Context(c) => Some(*c),
                    _ => None,
                };
                *out.entry(who).or_default().entry(by).or_default() +=
                    self.scaled(recording, *sample, h.ns);
            }
        }
        out
    }
}

/// Whether a wait is for a lock that somebody has to give up, and not at a condition or semaphore, where
/// one may well stand for want of work.
pub(super) fn takes_a_lock(recording: &Recording, sample: &Sample) -> bool {
    const LOCKS: [&str; 15] = [
        "mutex_lock",
        "lll_lock_wait",
        "futex_lock_pi",
        "rwlock_rdlock",
        "rwlock_wrlock",
        // Rust's standard library, and parking_lot.
        "lock_contended",
        "read_contended",
        "write_contended",
        "::lock_slow",
        "lock_exclusive_slow",
        "lock_shared_slow",
        // Java's monitors; CPython's locks, where the program's own function takes them.
        "ObjectMonitor::enter",
        "lock_PyThread_acquire",
        "rlock_acquire",
        "_enter_buffered_busy",
    ];
    if sample.idle {
        return false;
    }
    if sample.reason != Some(BlockReason::Lock) {
        return own_lock(recording, sample).is_some();
    }
    if takes_rubys_lock(recording, sample) {
        return true;
    }
    let for_others = scripts(recording, sample.stack)
        .next()
        .is_some_and(|f| f.file.contains("/python3"));
    !for_others
        && functions(recording, sample.stack).any(|(kind, name)| {
            kind != FrameKind::Kernel && LOCKS.iter().any(|lock| name.contains(lock))
        })
}

/// What is said of a wait for a lock that a server has made of other calls, and keeps books of: which of
/// its threads holds it, only itself knows.
pub(super) fn own_lock(recording: &Recording, sample: &Sample) -> Option<&'static str> {
    if sample.reason != Some(BlockReason::Poll) {
        return None;
    }
    let mut all = functions(recording, sample.stack).filter(|(kind, _)| *kind != FrameKind::Kernel);
    all.find_map(|(_, name)| parking::own_lock(name))
}

impl Waits {
    /// Of `samples`, those that children ended which the waiting process had started.
    pub fn ended_by_children(&self, recording: &Recording, samples: &[u32]) -> Vec<u32> {
        let children = Children::new(recording);
        let ended = |i: &u32| {
            let hops = self.below_sample.get(i);
            let sample = &recording.samples[*i as usize];
            hops.is_some_and(|hops| children.end(recording, sample, hops))
        };
        samples.iter().copied().filter(ended).collect()
    }

    /// Of `samples`, those that were ended by somebody who is not measured.
    pub fn ended_by_strangers(&self, recording: &Recording, samples: &[u32]) -> Vec<u32> {
        let ended = |i: &u32| {
            let sample = &recording.samples[*i as usize];
            self.below_sample.get(i).is_some_and(|hops| {
                delays::mostly_ended_by(recording, sample, hops, |actor| {
                    matches!(actor, Actor::Stranger { .. })
                })
            })
        };
        samples.iter().copied().filter(ended).collect()
    }

    /// Of the waits of `samples`, the time that other threads of the recording ended by a signal, an
    /// event or a pipe, and not by what they sent over a connection, ns.
    pub fn handed_ns(&self, recording: &Recording, samples: &[u32]) -> u64 {
        const OVER_A_CONNECTION: &[&str] = &["sock_def_", "tcp_", "unix_", "udp_"];
        let mut sum = 0.0;
        for i in samples {
            let own = recording.samples[*i as usize].context;
            for hop in self.below_sample.get(i).into_iter().flatten() {
                let h = &recording.hops[*hop as usize];
                let fellow = matches!(&recording.actors[h.actor.0 as usize],
                    Actor::Context(c) if *c != own);
                let Some(stack) = h.stack.filter(|_| fellow) else {
                    continue;
                };
                let mut kernel = functions(recording, stack)
                    .filter(|(kind, _)| *kind == FrameKind::Kernel)
                    .map(|(_, name)| name)
                    .peekable();
                if kernel.peek().is_some()
                    && !kernel.any(|n| OVER_A_CONNECTION.iter().any(|c| n.starts_with(c)))
                {
                    sum += self.scaled(recording, *i, h.ns);
                }
            }
        }
        sum as u64
    }
}

/// Hops by the sample, and by the hop, that they hang below.
pub(super) fn hops(recording: &Recording) -> (HashMap<u32, Vec<u32>>, Vec<Vec<u32>>) {
    let mut below_sample: HashMap<u32, Vec<u32>> = HashMap::new();
    let mut below = vec![Vec::new(); recording.hops.len()];
    for (i, hop) in recording.hops.iter().enumerate() {
        match hop.above {
            Above::Sample(s) => below_sample.entry(s).or_default().push(i as u32),
            Above::Hop(h) => below[h as usize].push(i as u32),
        }
    }
    (below_sample, below)
}
