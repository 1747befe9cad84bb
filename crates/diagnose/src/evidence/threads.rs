//! Selection of the threads that a verdict is about: those that work. Parked threads, which stay in one place all the
//! time, and threads that only tick are left out.

use wallscope_model::scale::Scaled;
use wallscope_model::{BlockReason, ContextId, Ledger, Recording, State};

use super::requests::{Requests, Upstream};
use super::waits::{Waits, may_rest};
use crate::frames::{Side, functions_on};
use crate::knowledge::takes_work;
use crate::labels::resource;
use crate::lock_wait::takes_a_lock;
use crate::thresholds::{
    HELD_UP_RUNNABLE, MIN_WORK, NO_WORK_PART, SETTLED_PART, TICK_CPU, TICK_REST,
};
use crate::wait_direction::{resolves_name, sends_or_connects};

/// Activity of a thread in the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ThreadKind {
    /// It came to one place where it waits, or was there all the time.
    Parked,
    /// It came to a lock, or was there all the time, and never got it.
    Stuck,
    /// It slept or polled, and did next to nothing between.
    Ticking,
    /// Anything else.
    Working,
}

/// All threads by their activity.
pub(crate) struct Threads {
    kinds: Vec<ThreadKind>,
    /// Whether ticking threads are all there is to judge.
    ticking_counts: bool,
    /// Time of waits for want of work, by thread, ns.
    pub starved_ns: Vec<u64>,
    /// Time in which each thread's requests were in flight while it was blocked, ns.
    pub awaited_ns: Vec<u64>,
}

/// Times of one thread, ns, idle waits left out.
#[derive(Clone, Copy, Default)]
struct Times {
    /// It rested.
    rest: u64,
    /// It waited for want of work.
    starved: u64,
    /// Its requests were in flight.
    awaited: u64,
    /// It waited for a lock.
    at_locks: u64,
    /// It waited where no thread rests: with data to send, or for an answer while callers wait.
    held_up: u64,
}

impl Threads {
    /// Sorts the threads of a recording.
    pub fn new(
        recording: &Recording,
        scaled: &Scaled,
        waits: &Waits,
        requests: &Requests,
    ) -> Threads {
        let times = times(recording, scaled, waits, requests);
        let settled = settled(recording);
        let contexts = || recording.contexts.iter().zip(&times);
        let kinds: Vec<ThreadKind> = contexts()
            .zip(settled)
            .map(|((context, times), settled)| kind(&context.ledger, times, settled))
            .collect();
        let work: u64 = (contexts().zip(&kinds))
            .filter(|(_, kind)| matches!(kind, ThreadKind::Working | ThreadKind::Stuck))
            .map(|((context, times), _)| {
                let l = &context.ledger;
                l.wall_ns.saturating_sub(l.idle_ns + times.starved)
            })
            .sum();
        Threads {
            kinds,
            ticking_counts: (work as f64) < MIN_WORK * recording.window.length_ns() as f64,
            starved_ns: times.iter().map(|t| t.starved).collect(),
            awaited_ns: times.iter().map(|t| t.awaited).collect(),
        }
    }

    /// Whether a thread's time counts.
    pub fn counts(&self, context: ContextId) -> bool {
        match self.kinds[context.0 as usize] {
            ThreadKind::Parked => false,
            ThreadKind::Ticking => self.ticking_counts,
            ThreadKind::Working | ThreadKind::Stuck => true,
        }
    }

    /// Whether a thread was at a lock all the time, or came there and never left.
    pub fn stuck(&self, context: ContextId) -> bool {
        self.kinds[context.0 as usize] == ThreadKind::Stuck
    }

    /// Whether a thread is left out because it only ticks.
    pub fn only_ticks(&self, context: ContextId) -> bool {
        self.kinds[context.0 as usize] == ThreadKind::Ticking && !self.ticking_counts
    }
}

fn times(recording: &Recording, scaled: &Scaled, waits: &Waits, requests: &Requests) -> Vec<Times> {
    let mut times = vec![Times::default(); recording.contexts.len()];
    let callers_wait = requests.unanswered(recording.window.length_ns());
    let upstream = requests.upstream.as_ref();
    for piece in &scaled.pieces {
        let i = piece.sample as usize;
        let sample = &recording.samples[i];
        if sample.idle {
            continue;
        }
        let sum = &mut times[piece.context.0 as usize];
        if takes_a_lock(recording, sample) {
            sum.at_locks += piece.ns;
        }
        let for_answer = || callers_wait && awaits_answer(recording, waits, i, upstream);
        let of_name = resolves_name(recording, sample);
        if of_name || sends_or_connects(recording, sample) || for_answer() {
            sum.held_up += piece.ns;
        }
        if waits.starved[i] {
            sum.starved += piece.ns;
        } else if waits.rests(recording, piece.sample) {
            sum.rest += piece.ns;
        } else if waits.in_flight[i] {
            sum.awaited += piece.ns;
        }
    }
    for rest in &scaled.unsampled {
        let reason = rest.reason.and_then(BlockReason::from_name);
        if rest.state == State::Blocked && may_rest(reason) {
            times[rest.context.0 as usize].rest += rest.ns;
        }
    }
    times
}

fn kind(ledger: &Ledger, times: &Times, settled: bool) -> ThreadKind {
    let most = |ns: u64| ns > ledger.wall_ns / 2;
    let wall = ledger.wall_ns as f64;
    let at_rest = times.rest + times.starved + ledger.idle_ns;
    // Where others use the CPUs, a ticking thread waits for one each time.
    let runnable = ledger.state_ns(State::Runnable);
    let open = ledger.wall_ns.saturating_sub(runnable);
    // A thread with an unanswered request in flight most of the time is not parked.
    let awaits = most(times.awaited);
    // Nor is a thread that waits where no thread rests, or with data that no reader takes.
    let held_up = most(times.held_up + cannot_rest(ledger).saturating_sub(ledger.idle_ns));
    if !held_up && (parked(ledger) || (settled && !awaits)) {
        return match most(times.at_locks) {
            true => ThreadKind::Stuck,
            false => ThreadKind::Parked,
        };
    }
    let ticks = times.rest + times.starved > 0
        && at_rest as f64 >= TICK_REST * open as f64
        && (ledger.state_ns(State::OnCpu) as f64) < TICK_CPU * wall
        && (runnable as f64) < HELD_UP_RUNNABLE * wall;
    match ticks {
        true => ThreadKind::Ticking,
        false => ThreadKind::Working,
    }
}

/// Whether a thread waits for the answer to a request, other than a request for work. Callers without an answer wait
/// for it all the while, so the thread is not parked. A request that was sent before the window is known by its
/// connection.
fn awaits_answer(
    recording: &Recording,
    waits: &Waits,
    i: usize,
    upstream: Option<&Upstream>,
) -> bool {
    let sample = &recording.samples[i];
    if sample.reason != Some(BlockReason::Network) || sample.idle {
        return false;
    }
    let of_upstream = || {
        let at = resource(recording, sample)?;
        let peer = at.strip_prefix("peer ")?.split(' ').next()?;
        Some(upstream?.name.ends_with(peer))
    };
    ((waits.in_flight[i] && !waits.owed[i]) || of_upstream() == Some(true))
        && !functions_on(recording, sample.stack, Side::User).any(takes_work)
}

/// Whether a thread did nothing in the window but start: it reached one place where it waits, or was there all the
/// time.
fn parked(ledger: &Ledger) -> bool {
    // Nothing is known of a thread that was not seen.
    if ledger.unknown_ns() > ledger.wall_ns / 2 {
        return false;
    }
    let on_cpu = ledger.state_ns(State::OnCpu);
    if on_cpu == 0 && ledger.state_ns(State::Runnable) == 0 {
        return true;
    }
    // Zero switches mean something only if switches are counted.
    let counted = ledger.audit.valid || ledger.voluntary_switches > 0;
    let once = counted && ledger.voluntary_switches <= 1;
    once && hardly_worked(ledger) && ledger.blocked_ns() > ledger.wall_ns / 2
}

fn hardly_worked(ledger: &Ledger) -> bool {
    ledger.state_ns(State::OnCpu) < ledger.wall_ns / NO_WORK_PART
}

/// Blocked time for reasons for which no thread rests, ns.
fn cannot_rest(ledger: &Ledger) -> u64 {
    use BlockReason::{Disk, KernelLock, Memory, PageFault};
    let reasons = [Disk, KernelLock, Memory, PageFault];
    reasons.iter().map(|r| ledger.blocked[*r as usize]).sum()
}

/// Threads that worked at most in the first part of the window, and then waited in a way in which a thread may wait
/// for work. They have reached the place where they park.
fn settled(recording: &Recording) -> Vec<bool> {
    let slices = recording.slices.count;
    let first_late = slices.div_ceil(SETTLED_PART);
    let mut settled: Vec<bool> = (recording.contexts.iter())
        .map(|c| {
            let waited = (c.ledger.blocked_ns()).saturating_sub(cannot_rest(&c.ledger));
            slices >= 2 * SETTLED_PART && hardly_worked(&c.ledger) && waited > c.ledger.wall_ns / 2
        })
        .collect();
    let late = recording.ledger_slices.iter();
    for row in late.filter(|row| row.slice >= first_late) {
        if row.on_cpu_ns + row.runnable_ns > 0 {
            settled[row.context as usize] = false;
        }
    }
    settled
}
