//! What if a function took a fraction of its time?
//!
//! With single intervals the recorded dependencies are replayed ([`super::replay`]). The function's share
//! of a thread's work comes from samples: of the work while others wait for the thread from the
//! samples of their waits, of the other work from the thread's own samples. Its work is its time on a
//! CPU, and its waits that no recorded thread ended (a sleep, a disk). Without single intervals there
//! are only bounds.

use std::collections::HashMap;

use wallscope_model::stats::{Interval as Share, share_interval};
use wallscope_model::{
    Above, Actor, ContextId, Interval, Recording, Role, Sample, Stack, State, Timeline,
};

use crate::queueing::Estimate;
use crate::view::Analysis;

use super::replay;

/// A function that becomes faster.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// Its name, as views show it.
    pub function: String,
    /// How many times as fast it becomes; more than 1.
    pub speedup: f64,
}

/// The change of some threads' time.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Thread name, or empty for all threads together.
    pub thread: String,
    /// Threads of this name.
    pub threads: usize,
    /// Recorded time that is not idle, s.
    pub before: f64,
    /// Relative change of the time of the same work: −0.31 is 31 % less. A bound has no value of its
    /// own: the middle of its ends.
    pub change: Estimate,
}

/// The answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The question.
    pub question: Question,
    /// Whether changes are only bounds, as there are no single intervals.
    pub bound: bool,
    /// All threads together.
    pub total: Change,
    /// By thread name, longest time first.
    pub threads: Vec<Change>,
    /// The samples that have the function.
    pub samples: u64,
    /// Whether the threads' time is that of requests: the processes were asked.
    pub requests: bool,
    /// Assumptions, in words.
    pub assumptions: Vec<&'static str>,
}

/// Time of one kind in which a function was, by block of time.
#[derive(Clone, Debug, Default)]
struct Sampled {
    part: Vec<f64>,
    whole: Vec<f64>,
    count: f64,
}

impl Sampled {
    fn add(&mut self, slices: &[(u32, f64)], count: u64, inside: bool) {
        for (slice, ns) in slices {
            let slice = *slice as usize;
            if self.whole.len() <= slice {
                self.whole.resize(slice + 1, 0.0);
                self.part.resize(slice + 1, 0.0);
            }
            self.whole[slice] += ns;
            self.part[slice] += if inside { *ns } else { 0.0 };
        }
        self.count += count as f64;
    }

    /// The share and its interval.
    fn share(&self) -> Option<(f64, Share)> {
        let whole: f64 = self.whole.iter().sum();
        let part: f64 = self.part.iter().sum();
        (whole > 0.0).then(|| {
            (
                part / whole,
                share_interval(&self.part, &self.whole, self.count),
            )
        })
    }
}

/// Answers `question`.
///
/// # Errors
/// The recording holds no sample with the function.
pub fn what_if(analysis: &Analysis<'_>, question: &Question) -> Result<Answer, String> {
    let rec = analysis.recording;
    let has = stacks_with(analysis, &question.function);
    let samples: u64 = rec
        .samples
        .iter()
        .filter(|s| has[s.stack.0 as usize])
        .map(|s| s.count)
        .sum();
    if samples == 0 {
        return Err(format!("no sample has the function {}", question.function));
    }
    let (mut answer, by_thread) = match &rec.timeline {
        Some(timeline) if !timeline.is_empty() => {
            let work = Work::new(rec, &has);
            (
                replayed_answer(question),
                work.replayed(timeline, question.speedup),
            )
        }
        _ => (
            bound_answer(question),
            bounds(analysis, &has, question.speedup),
        ),
    };
    let mut groups: HashMap<String, Change> = HashMap::new();
    let takes_part = |(context, _): &(ContextId, Parts)| takes_part(rec, *context);
    for (context, parts) in by_thread.into_iter().filter(takes_part) {
        let name = rec.contexts[context.0 as usize].name.to_string();
        merge(
            groups.entry(name.clone()).or_insert_with(|| empty(name)),
            &parts,
        );
        merge(&mut answer.total, &parts);
    }
    answer.threads = groups
        .into_values()
        .map(finished)
        .filter(|c| c.before > 0.0)
        .collect();
    (answer.threads).sort_by(|a, b| {
        b.before
            .total_cmp(&a.before)
            .then_with(|| a.thread.cmp(&b.thread))
    });
    answer.total = finished(answer.total);
    answer.samples = samples;
    answer.requests = super::cpu::is_asked(rec);
    Ok(answer)
}

/// A thread with fewer switches waits all the time, for example for the end of the program.
const MIN_SWITCHES: u64 = 4;
/// A thread with a single wait of this share of its life waits all the time, too.
const ONE_WAIT: f64 = 0.5;

/// Whether a thread's time is part of the work that is asked about.
fn takes_part(rec: &Recording, context: ContextId) -> bool {
    let ledger = &rec.contexts[context.0 as usize].ledger;
    let lane = rec.timeline.as_ref().and_then(|t| t.lane(context));
    let waits = lane
        .into_iter()
        .flat_map(|l| &l.intervals)
        .filter(|i| i.state == State::Blocked);
    let longest = waits.map(|i| i.ns).max().unwrap_or(0);
    let switches = ledger.voluntary_switches + ledger.involuntary_switches;
    switches >= MIN_SWITCHES && (longest as f64) < ONE_WAIT * ledger.wall_ns as f64
}

/// Time before, and after by the low, middle and high estimate of the shares, s.
type Parts = (f64, [f64; 3]);

fn empty(thread: String) -> Change {
    Change {
        thread,
        threads: 0,
        before: 0.0,
        change: Estimate::exact(0.0),
    }
}

/// Adds times; they are turned into changes by [`finished`].
fn merge(change: &mut Change, (before, after): &Parts) {
    if *before > 0.0 {
        change.threads += 1;
        change.before += before;
        change.change.low += after[0];
        change.change.value += after[1];
        change.change.high += after[2];
    }
}

fn finished(mut change: Change) -> Change {
    let relative = |after: f64| after / change.before - 1.0;
    let ends = [change.change.low, change.change.high].map(relative);
    change.change = Estimate {
        value: relative(change.change.value),
        low: ends[0].min(ends[1]),
        high: ends[0].max(ends[1]),
    };
    change
}

fn replayed_answer(question: &Question) -> Answer {
    Answer {
        question: question.clone(),
        bound: false,
        total: empty(String::new()),
        threads: Vec::new(),
        samples: 0,
        requests: false,
        assumptions: vec![
            "the recorded dependencies stay: waiter and waker of each wait, and the order of hand-offs",
            "the wait for a CPU, timers, disks and peers outside the recording keep their lengths",
            "no new wait appears where threads now meet that did not meet before",
        ],
    }
}

fn bound_answer(question: &Question) -> Answer {
    Answer {
        bound: true,
        assumptions: vec![
            "at least: the function's own time shrinks, no wait does",
            "at most: waits in which the function ran for others vanish, too",
            "record --timeline replays the single intervals instead",
        ],
        ..replayed_answer(question)
    }
}

/// For each stack, whether it has the function.
fn stacks_with(analysis: &Analysis<'_>, function: &str) -> Vec<bool> {
    let with = |stack: &Stack| {
        let frames = analysis.frames(stack);
        frames.iter().any(|f| &*f.function.name == function)
    };
    analysis.recording.stacks.iter().map(with).collect()
}

/// Whether a sample is work of its own: on a CPU, or blocked without a recorded thread that ended it.
fn is_work(s: &Sample, woken: bool) -> bool {
    match s.state {
        State::OnCpu => true,
        State::Blocked => !s.idle && !woken,
        _ => false,
    }
}

/// For each sample, whether recorded threads ended its waits.
fn ended_by_threads(rec: &Recording) -> Vec<bool> {
    let mut woken = vec![false; rec.samples.len()];
    for hop in &rec.hops {
        if let Above::Sample(s) = hop.above
            && matches!(rec.actors[hop.actor.0 as usize], Actor::Context(_))
        {
            woken[s as usize] = true;
        }
    }
    woken
}

/// For each hop, whether the wait that it belongs to is idle.
fn below_idle(rec: &Recording) -> Vec<bool> {
    let mut idle: Vec<bool> = Vec::with_capacity(rec.hops.len());
    for hop in &rec.hops {
        idle.push(match hop.above {
            Above::Sample(s) => rec.samples[s as usize].idle,
            // A parent has a lower index.
            Above::Hop(h) => idle.get(h as usize).copied().unwrap_or(false),
        });
    }
    idle
}

/// Shares of threads' work that a function has.
struct Work {
    /// By context and kind of work: of all of it.
    all: HashMap<(ContextId, Class), Sampled>,
    /// Of the work in waits that the thread ended.
    awaited: HashMap<(ContextId, Class), Sampled>,
}

/// Kind of work: on a CPU, or blocked for a reason by its number.
type Class = Option<u8>;

fn class_of(state: State, reason: Option<wallscope_model::BlockReason>) -> Class {
    match state {
        State::OnCpu => None,
        _ => Some(reason.map_or(u8::MAX, |r| r as u8)),
    }
}

impl Work {
    fn new(rec: &Recording, has: &[bool]) -> Work {
        let woken = ended_by_threads(rec);
        let mut work = Work {
            all: HashMap::new(),
            awaited: HashMap::new(),
        };
        for (at, s) in rec.samples.iter().enumerate() {
            if is_work(s, woken[at]) {
                let slices: Vec<(u32, f64)> =
                    s.slices.iter().map(|v| (v.slice, v.ns as f64)).collect();
                let sampled = work
                    .all
                    .entry((s.context, class_of(s.state, s.reason)))
                    .or_default();
                sampled.add(&slices, s.count, has[s.stack.0 as usize]);
            }
        }
        for (hop, _) in rec
            .hops
            .iter()
            .zip(below_idle(rec))
            .filter(|(_, idle)| !idle)
        {
            let state = match hop.role {
                Role::OnCpu => State::OnCpu,
                Role::Blocked => State::Blocked,
                _ => continue,
            };
            if let (Actor::Context(c), Some(stack)) = (&rec.actors[hop.actor.0 as usize], hop.stack)
            {
                let sampled = work
                    .awaited
                    .entry((*c, class_of(state, hop.reason)))
                    .or_default();
                sampled.add(&[(0, hop.ns as f64)], hop.count, has[stack.0 as usize]);
            }
        }
        work
    }

    /// The function's share of the work of an interval: the estimate moved by `sign` half-intervals of
    /// the thread's total share.
    fn shares(&self, lane: &Lane<'_>, sign: f64) -> HashMap<(Class, bool), f64> {
        let mut out = HashMap::new();
        for ((context, class), sampled) in &self.all {
            let Some((share, interval)) = sampled.share().filter(|_| *context == lane.context)
            else {
                continue;
            };
            let total = match sign {
                s if s < 0.0 => interval.low,
                s if s > 0.0 => interval.high,
                _ => share,
            };
            let (inside, outside) = lane.time.get(class).copied().unwrap_or_default();
            let awaited = self
                .awaited
                .get(&(*context, *class))
                .and_then(Sampled::share);
            // Parts weigh as their time; they are moved so that they sum to the total.
            let within = awaited
                .map_or(total, |(share, _)| share)
                .min(total * (inside + outside) / inside.max(1.0));
            let rest = (total * (inside + outside) - within * inside) / outside.max(1.0);
            out.insert((*class, true), if inside > 0.0 { within } else { total });
            out.insert(
                (*class, false),
                if outside > 0.0 {
                    rest.clamp(0.0, 1.0)
                } else {
                    total
                },
            );
        }
        out
    }

    fn replayed(&self, timeline: &Timeline, speedup: f64) -> Vec<(ContextId, Parts)> {
        let (timeline, within) = replay::cut_at_waits(timeline);
        let lanes: Vec<Lane<'_>> = (timeline.lanes.iter().zip(&within))
            .map(|(lane, within)| Lane::new(lane.context, &lane.intervals, within))
            .collect();
        let run = |sign: f64| {
            let shares: Vec<_> = lanes.iter().map(|lane| self.shares(lane, sign)).collect();
            let factor = |lane: usize, at: usize| {
                let i = &lanes[lane].intervals[at];
                let key = (class_of(i.state, i.reason), lanes[lane].within[at]);
                match i.state {
                    State::OnCpu | State::Blocked if !i.idle => {
                        1.0 - shares[lane].get(&key).copied().unwrap_or(0.0) * (1.0 - 1.0 / speedup)
                    }
                    _ => 1.0,
                }
            };
            replay::replay(&timeline, &factor)
        };
        let [low, middle, high] = [1.0, 0.0, -1.0].map(run);
        let threads = middle.iter().zip(&low).zip(&high);
        threads
            .map(|((m, l), h)| {
                let seconds = |ns: f64| ns / 1e9;
                (
                    m.0,
                    (
                        seconds(m.1.before),
                        [l.1.after, m.1.after, h.1.after].map(seconds),
                    ),
                )
            })
            .collect()
    }
}

/// A lane, divided at waits, with the time of each kind of work in such waits and outside.
struct Lane<'a> {
    context: ContextId,
    intervals: &'a [Interval],
    within: &'a [bool],
    time: HashMap<Class, (f64, f64)>,
}

impl<'a> Lane<'a> {
    fn new(context: ContextId, intervals: &'a [Interval], within: &'a [bool]) -> Lane<'a> {
        let mut time: HashMap<Class, (f64, f64)> = HashMap::new();
        for (i, within) in intervals.iter().zip(within) {
            if i.waker.is_some() || i.idle || !matches!(i.state, State::OnCpu | State::Blocked) {
                continue;
            }
            let sum = time.entry(class_of(i.state, i.reason)).or_default();
            match within {
                true => sum.0 += i.ns as f64,
                false => sum.1 += i.ns as f64,
            }
        }
        Lane {
            context,
            intervals,
            within,
            time,
        }
    }
}

/// Without single intervals: the least and the most that the same work can change.
fn bounds(analysis: &Analysis<'_>, has: &[bool], speedup: f64) -> Vec<(ContextId, Parts)> {
    let rec = analysis.recording;
    let waits = analysis.waits();
    let woken = ended_by_threads(rec);
    let saved = 1.0 - 1.0 / speedup;
    // By context: active time, the function's own, waits in which it ran for others; ns.
    let mut sums: HashMap<ContextId, [f64; 3]> = HashMap::new();
    for (at, s) in rec.samples.iter().enumerate() {
        let ns = waits.sample_ns[at] as f64;
        let sum = sums.entry(s.context).or_default();
        if s.idle {
            continue;
        }
        sum[0] += ns;
        if is_work(s, woken[at]) {
            sum[1] += if has[s.stack.0 as usize] { ns } else { 0.0 };
        } else if s.state == State::Blocked
            && runs_below(rec, &waits.below_sample[at], &waits.below, has)
        {
            sum[2] += ns;
        }
    }
    for u in analysis.unsampled() {
        sums.entry(u.context).or_default()[0] += u.ns as f64;
    }
    sums.into_iter()
        .map(|(context, [active, own, waited])| {
            let least = own * saved;
            // Nothing gets faster by more than the function itself does.
            let most = (least + waited).min(active * saved);
            let after = [active - most, active - (least + most) / 2.0, active - least];
            (context, (active / 1e9, after.map(|ns| ns / 1e9)))
        })
        .collect()
}

/// Whether the function ran in the part of a wait that these hops follow.
fn runs_below(rec: &Recording, hops: &[u32], below: &[Vec<u32>], has: &[bool]) -> bool {
    let mut next: Vec<u32> = hops.to_vec();
    while let Some(hop) = next.pop() {
        let h = &rec.hops[hop as usize];
        if h.stack.is_some_and(|s| has[s.0 as usize]) && h.role != Role::Woke {
            return true;
        }
        next.extend(&below[hop as usize]);
    }
    false
}
