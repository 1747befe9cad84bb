//! Which threads the verdict is about: those that work. Set apart are threads that stand in one
//! place all the time, and threads that only tick.

use std::sync::Arc;

use wallscope_model::scale::Scaled;
use wallscope_model::{BlockReason, ContextId, FrameKind, Ledger, Recording, State};

use super::news::is_let_in;
use super::places::functions;
use super::rules_ask::takes_work;
use super::waits::{Waits, may_rest, resource, takes_a_lock};
use super::{Requests, Upstream};

/// A thread of whose time, waits for a CPU left out, this much is idle or rest, and which used a CPU
/// less than [`TICK`] of it, only ticks.
const REST: f64 = 0.95;
/// What a tick may cost: 20 ms of each second, a fifth of the least that a person notices (Nielsen's
/// 0.1 s).
const TICK: f64 = 0.02;
/// Who waits for a CPU so much of the time is held up, whatever it does then.
const READY: f64 = 0.25;
/// Threads that work less than this share of the window all together do not stand for the process.
const LEAST: f64 = 0.02;

/// What a thread did in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It came to one place where it waits, or stood there all the time.
    Parked,
    /// The same, but the place is a lock that nobody gave it.
    Stuck,
    /// It slept or waited for events, and did next to nothing between.
    Ticking,
    /// Anything else.
    Working,
}

/// All threads by what they did.
pub(super) struct Threads {
    kinds: Vec<Kind>,
    /// Whether those that tick are all there is to judge.
    ticking_counts: bool,
    /// Time of waits for want of work, by thread, ns.
    pub starved_ns: Vec<u64>,
    /// Time in which each thread's requests were in flight while it was blocked, ns.
    pub awaited_ns: Vec<u64>,
}

impl Threads {
    pub fn new(recording: &Recording, scaled: &Scaled, waits: &Waits) -> Threads {
        let count = recording.contexts.len();
        let mut rest = vec![0u64; count];
        let mut starved_ns = vec![0u64; count];
        let mut awaited_ns = vec![0u64; count];
        let mut at_locks = vec![0u64; count];
        let mut held_up = vec![0u64; count];
        let window = recording.window.length_ns();
        let requests = Requests::new(recording);
        let callers_wait = requests.unanswered(window);
        let upstream = requests.upstream.as_ref();
        for piece in &scaled.pieces {
            let (i, who) = (piece.sample as usize, piece.context.0 as usize);
            let s = &recording.samples[i];
            if s.idle {
                continue;
            }
            if takes_a_lock(recording, s) {
                at_locks[who] += piece.ns;
            }
            if is_let_in(recording, s)
                || (callers_wait && awaits_an_answer(recording, waits, i, upstream))
            {
                held_up[who] += piece.ns;
            }
            if waits.starved[i] {
                starved_ns[who] += piece.ns;
            } else if waits.rests(recording, piece.sample) {
                rest[who] += piece.ns;
            } else if waits.in_flight[i] {
                awaited_ns[who] += piece.ns;
            }
        }
        for u in &scaled.unsampled {
            let reason = u.reason.and_then(BlockReason::from_name);
            if u.state == State::Blocked && may_rest(reason) {
                rest[u.context.0 as usize] += u.ns;
            }
        }
        let settled = settled(recording);
        let kinds: Vec<Kind> = (recording.contexts.iter().enumerate())
            .map(|(i, c)| {
                let l = &c.ledger;
                let at_rest = rest[i] + starved_ns[i] + l.idle_ns;
                // Where others use the CPUs, who only ticks waits for one each time.
                let ready = l.state_ns(State::Runnable);
                let open = l.wall_ns.saturating_sub(ready);
                // A request that is not answered all the time is no parking.
                let stuck = awaited_ns[i] > l.wall_ns / 2;
                // Nor is it to stand where nobody rests, or with something that nobody takes.
                let held_up = held_up[i] + cannot_rest(l).saturating_sub(l.idle_ns) > l.wall_ns / 2;
                if !held_up && (parked(l) || (settled[i] && !stuck)) {
                    // Who stands at a lock has come for it, and not to rest.
                    match at_locks[i] > l.wall_ns / 2 {
                        true => Kind::Stuck,
                        false => Kind::Parked,
                    }
                } else if rest[i] + starved_ns[i] > 0
                    && at_rest as f64 >= REST * open as f64
                    && (l.state_ns(State::OnCpu) as f64) < TICK * l.wall_ns as f64
                    && (ready as f64) < READY * l.wall_ns as f64
                {
                    Kind::Ticking
                } else {
                    Kind::Working
                }
            })
            .collect();
        let works: u64 = (recording.contexts.iter().enumerate())
            .filter(|(i, _)| matches!(kinds[*i], Kind::Working | Kind::Stuck))
            .map(|(i, c)| {
                c.ledger
                    .wall_ns
                    .saturating_sub(c.ledger.idle_ns + starved_ns[i])
            })
            .sum();
        Threads {
            kinds,
            ticking_counts: (works as f64) < LEAST * window as f64,
            starved_ns,
            awaited_ns,
        }
    }

    /// Whether a thread's time counts.
    pub fn counts(&self, context: ContextId) -> bool {
        match self.kinds[context.0 as usize] {
            Kind::Parked => false,
            Kind::Ticking => self.ticking_counts,
            Kind::Working | Kind::Stuck => true,
        }
    }

    /// Whether a thread stood at a lock all the time, or came there and never left.
    pub fn stuck(&self, context: ContextId) -> bool {
        self.kinds[context.0 as usize] == Kind::Stuck
    }

    /// Whether a thread is set apart because it only ticks.
    pub fn only_ticks(&self, context: ContextId) -> bool {
        self.kinds[context.0 as usize] == Kind::Ticking && !self.ticking_counts
    }
}

/// Whether a thread reads the answer to a request, other than for work. Where callers get no answer all the while,
/// that is what they wait for, and no parking. Whose request it was that was sent before the window, its connection
/// tells.
fn awaits_an_answer(
    recording: &Recording,
    waits: &Waits,
    i: usize,
    upstream: Option<&Upstream>,
) -> bool {
    let s = &recording.samples[i];
    if s.reason != Some(BlockReason::Network) || s.idle {
        return false;
    }
    let of_upstream = || {
        let at = resource(recording, s)?;
        let peer = at.strip_prefix("peer ")?.split(' ').next()?;
        Some(upstream?.name.ends_with(peer))
    };
    let for_work =
        |(kind, name): (FrameKind, &Arc<str>)| kind != FrameKind::Kernel && takes_work(name);
    ((waits.in_flight[i] && !waits.owed[i]) || of_upstream() == Some(true))
        && !functions(recording, s.stack).any(for_work)
}

/// Whether a thread did nothing in the window but begin: it came to one place where it waits, or
/// stood there all the time, and never left it to do anything.
fn parked(ledger: &Ledger) -> bool {
    // Of who was not seen nobody knows.
    if ledger.unknown_ns() > ledger.wall_ns / 2 {
        return false;
    }
    let on_cpu = ledger.state_ns(State::OnCpu);
    if on_cpu == 0 && ledger.state_ns(State::Runnable) == 0 {
        return true;
    }
    // None at all says something only where they are counted.
    let counted = ledger.audit.valid || ledger.voluntary_switches > 0;
    let once = counted && ledger.voluntary_switches <= 1;
    once && on_cpu < ledger.wall_ns / 100 && ledger.blocked_ns() > ledger.wall_ns / 2
}

/// Time blocked where no thread goes to rest, ns.
fn cannot_rest(ledger: &Ledger) -> u64 {
    use BlockReason::{Disk, KernelLock, Memory, PageFault};
    let reasons = [Disk, KernelLock, Memory, PageFault];
    reasons.iter().map(|r| ledger.blocked[*r as usize]).sum()
}

/// A thread that did nothing after this part of the window has parked.
const SETTLED: u32 = 4;

/// Threads that did something in the first quarter of the window at most, and then waited in a way
/// in which one may wait for work: they have come to where they park.
fn settled(recording: &Recording) -> Vec<bool> {
    let first_late = recording.slices.count.div_ceil(SETTLED);
    let mut early: Vec<bool> = (recording.contexts.iter())
        .map(|c| {
            let l = &c.ledger;
            let waited = l.blocked_ns().saturating_sub(cannot_rest(l));
            recording.slices.count >= 2 * SETTLED
                && l.state_ns(State::OnCpu) < l.wall_ns / 100
                && waited > l.wall_ns / 2
        })
        .collect();
    for row in recording
        .ledger_slices
        .iter()
        .filter(|r| r.slice >= first_late)
    {
        if row.on_cpu_ns + row.runnable_ns > 0 {
            early[row.context as usize] = false;
        }
    }
    early
}
