//! Scales sampled stacks to the ledger's exact totals.
//!
//! Totals are counted, stacks are sampled. The sampled time of each group is multiplied by one
//! factor, so that it sums to the ledger's count for that group, to the nanosecond.
//!
//! **Groups.** A group is one context in one state. Blocked time is divided further by reason, and
//! runnable time by part, because the ledger is exact about these too, and a finer group removes
//! more sampling error. If the samples of a state have a reason that is missing in its ledger (or
//! none), the whole state of that context is one group. One factor serves the whole recording, not
//! each slice: a ratio is biased by about 1/n, so few large groups are better than many small ones.
//! For a range of time, [`scale_slices`] uses the ledger of that range.
//!
//! **Short threads.** A thread that ran for 1 ms of a 10 ms sampling period was probably not
//! sampled; if it was, the sample shows ten times too much. Scaled alone, the unlucky threads would
//! give their time to `[not sampled]`, and the lucky ones would shrink. A program of many short
//! threads would lose its functions. Groups with less exact time than [`SPARSE_PERIODS`] periods (a
//! criterion that does not depend on the luck of sampling) are therefore estimated by one factor,
//! together with the corresponding groups of threads of the same program and name. Each context keeps its exact
//! total, and takes missing samples from its siblings ([`Scaled::borrowed_ns`] says how much). There is one
//! exception: if the samples of a wait cover all of its time, it is scaled alone. A process that only waits for its
//! workers must not seem to wait where they do. If no pooled group of a wait has a sample, the groups take those of
//! such siblings, provided that all of them live for less than half of the window. A poll measures each wait that it
//! meets, so the few threads that it meets represent all.
//!
//! **The rest.** Exact time without any sample becomes [`Unsampled`], shown as the one frame `[not
//! sampled]`. So does a group's placeholder for time that may not be sampled
//! ([`StackEnd::NotSampled`]). Sampled time without time in the ledger is left out and summed in
//! [`Scaled::unplaced_ns`].

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::{
    BlockReason, Context, ContextId, Part, Recording, Sample, StackEnd, State, UnknownCause,
};

/// A group's samples cover its time if they differ from it by at most one part in this many.
const SEEN_WHOLE: u64 = 50;

/// The name of the frame for exact time without any sample.
pub const NOT_SAMPLED: &str = "[not sampled]";

/// Groups with less exact time than this many sampling periods are estimated together with their
/// siblings.
pub const SPARSE_PERIODS: u64 = 8;

/// A part of a sample's scaled time, attributed to one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index into [`Recording::samples`].
    pub sample: u32,
    /// The context that spent the time; it differs from the sample's own if the time was taken from
    /// a sibling.
    pub context: ContextId,
    /// Scaled time, ns.
    pub ns: u64,
}

/// Exact time without a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsampled {
    /// The context that spent the time.
    pub context: ContextId,
    /// The state.
    pub state: State,
    /// Block reason, part, or unknown cause, by the contract's name.
    pub reason: Option<&'static str>,
    /// The time, ns.
    pub ns: u64,
}

/// The factor of a group's sampled time: `exact_ns / sampled_ns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Factor {
    /// The context.
    pub context: ContextId,
    /// The state.
    pub state: State,
    /// Block reason or part by name; `None`: the whole state.
    pub reason: Option<&'static str>,
    /// The ledger's time of the group, ns; with its siblings if they are estimated together.
    pub exact_ns: u64,
    /// The group's sampled time, ns; with its siblings if they are estimated together.
    pub sampled_ns: u64,
}

/// A recording's samples, scaled to its ledgers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scaled {
    /// Scaled time, ordered by sample; a sample may have several pieces, or none.
    pub pieces: Vec<Piece>,
    /// Exact time without samples.
    pub unsampled: Vec<Unsampled>,
    /// The factor of each group that has samples.
    pub factors: Vec<Factor>,
    /// Time shown by the stacks of a sibling thread, ns.
    pub borrowed_ns: u64,
    /// Sampled time in groups without time in the ledger, ns, unscaled.
    pub unplaced_ns: u64,
}

/// Scales all samples of `recording` to the ledgers of its contexts.
///
/// For every context and state, the pieces and the unsampled time sum to the ledger exactly.
/// The crate's documentation has an example.
pub fn scale(recording: &Recording) -> Scaled {
    let exact: Vec<Exact> = recording.contexts.iter().map(Exact::of_ledger).collect();
    run(recording, &exact, |s| (s.count, s.ns))
}

/// Scales the samples of the given slices to the ledgers of the same slices.
///
/// For every context and state, the pieces and the unsampled time sum to the slices' ledgers
/// exactly.
pub fn scale_slices(recording: &Recording, slices: Range<u32>) -> Scaled {
    let mut exact = vec![Exact::default(); recording.contexts.len()];
    for row in recording.ledger_slices.iter() {
        if !slices.contains(&row.slice) {
            continue;
        }
        let Some(e) = exact.get_mut(row.context as usize) else {
            continue;
        };
        e.on_cpu += row.on_cpu_ns;
        e.runnable_whole += row.runnable_ns;
        for (a, b) in e.blocked.iter_mut().zip(row.blocked) {
            *a += b;
        }
    }
    run(recording, &exact, |s| {
        s.slices
            .iter()
            .filter(|v| slices.contains(&v.slice))
            .fold((0, 0), |(c, n), v| (c + v.count, n + v.ns))
    })
}

/// The exact time of one context.
#[derive(Clone, Default)]
struct Exact {
    on_cpu: u64,
    /// Runnable time with unknown parts.
    runnable_whole: u64,
    runnable: [u64; 3],
    blocked: [u64; BlockReason::COUNT],
    unknown: [u64; UnknownCause::COUNT],
}

const RUNNABLE_PARTS: [Part; 3] = [Part::Woken, Part::Preempted, Part::Throttled];

impl Exact {
    fn of_ledger(context: &Context) -> Exact {
        let l = &context.ledger;
        Exact {
            on_cpu: l.on_cpu.total(),
            runnable_whole: 0,
            runnable: [l.runnable.woken, l.runnable.preempted, l.runnable.throttled],
            blocked: l.blocked,
            unknown: l.unknown,
        }
    }

    /// The classes of `state` that have time; class 0 is the undivided state.
    fn classes(&self, state: State) -> Vec<(u8, u64)> {
        let divided = |values: &[u64]| -> Vec<(u8, u64)> {
            (1u8..)
                .zip(values.iter().copied())
                .filter(|(_, ns)| *ns > 0)
                .collect()
        };
        let whole = |ns: u64| if ns > 0 { vec![(0, ns)] } else { Vec::new() };
        match state {
            State::OnCpu => whole(self.on_cpu),
            State::Runnable if self.runnable_whole > 0 => whole(self.runnable_whole),
            State::Runnable => divided(&self.runnable),
            State::Blocked => divided(&self.blocked),
            State::Unknown => divided(&self.unknown),
        }
    }
}

/// The class of a sample within its state; 0: unknown.
fn class_of(sample: &Sample) -> u8 {
    match sample.state {
        State::Blocked => sample.reason.map_or(0, |r| r as u8 + 1),
        State::Runnable => sample
            .part
            .and_then(|p| (1u8..).zip(RUNNABLE_PARTS).find(|(_, q)| *q == p))
            .map_or(0, |(i, _)| i),
        State::OnCpu | State::Unknown => 0,
    }
}

fn class_name(state: State, class: u8) -> Option<&'static str> {
    let i = usize::from(class).checked_sub(1)?;
    match state {
        State::Blocked => BlockReason::ALL.get(i).map(|r| r.name()),
        State::Runnable => RUNNABLE_PARTS.get(i).map(|p| p.name()),
        State::Unknown => UnknownCause::ALL.get(i).map(|c| c.name()),
        State::OnCpu => None,
    }
}

/// A sample, reduced to the values that scaling needs.
#[derive(Clone, Copy)]
struct Weight {
    sample: u32,
    class: u8,
    count: u64,
    ns: u64,
}

/// One context in one state and class.
struct Group {
    context: ContextId,
    state: State,
    class: u8,
    exact: u64,
    /// Its samples: a range of the ordered weights.
    weights: Range<usize>,
    sampled: u64,
}

impl Group {
    /// Whether its samples cover all of its time, as for waits that are measured from end to end.
    /// Siblings then add nothing, and may wait elsewhere.
    fn is_seen_whole(&self) -> bool {
        self.state != State::OnCpu && self.sampled.abs_diff(self.exact) <= self.exact / SEEN_WHOLE
    }
}

/// The samples of the first `contexts` contexts, ordered by context, state and class.
fn ordered(
    rec: &Recording,
    contexts: usize,
    value: impl Fn(&Sample) -> (u64, u64),
) -> Vec<(u32, State, Weight)> {
    let mut order: Vec<(u32, State, Weight)> = Vec::with_capacity(rec.samples.len());
    for (i, s) in rec.samples.iter().enumerate() {
        let (count, ns) = value(s);
        if ns == 0 || s.context.0 as usize >= contexts {
            continue;
        }
        let weight = Weight {
            sample: i as u32,
            class: class_of(s),
            count,
            ns,
        };
        order.push((s.context.0, s.state, weight));
    }
    order.sort_unstable_by_key(|(c, s, w)| (*c, *s, w.class, w.sample));
    order
}

fn run(rec: &Recording, exact: &[Exact], value: impl Fn(&Sample) -> (u64, u64)) -> Scaled {
    let mut out = Scaled::default();
    let order = ordered(rec, exact.len(), value);
    let weights: Vec<Weight> = order.iter().map(|(_, _, w)| *w).collect();

    let mut division = Division {
        weights: &weights,
        groups: Vec::new(),
        unplaced_ns: 0,
    };
    let mut at = 0;
    for (c, e) in exact.iter().enumerate() {
        for state in State::ALL.iter().copied() {
            let from = at;
            while at < order.len() && order[at].0 == c as u32 && order[at].1 == state {
                at += 1;
            }
            division.divide(ContextId(c as u32), state, &e.classes(state), from..at);
        }
    }
    let groups = division.groups;
    out.unplaced_ns += division.unplaced_ns;

    let periods = mean_periods(rec, &groups, &weights);
    let siblings = Siblings::new(rec);
    let mut pools: BTreeMap<(u32, State, u8), Vec<Group>> = BTreeMap::new();
    let mut whole: BTreeMap<(u32, State, u8), Vec<Weight>> = BTreeMap::new();
    let half = rec.window.end_ns.saturating_sub(rec.window.start_ns) / 2;
    for g in groups {
        let period = periods[g.state as usize];
        let context = &rec.contexts[g.context.0 as usize];
        let is_brief =
            g.state == State::Blocked && context.end_ns.saturating_sub(context.start_ns) < half;
        let key = (siblings.of[g.context.0 as usize], g.state, g.class);
        let is_sparse = g.exact < period.saturating_mul(SPARSE_PERIODS) && !g.is_seen_whole();
        if is_sparse || (g.sampled == 0 && is_brief) {
            pools.entry(key).or_default().push(g);
            continue;
        }
        if g.sampled > 0 && is_brief {
            let own = &weights[g.weights.clone()];
            whole.entry(key).or_default().extend(own);
        }
        pool(&[g], &[], &weights, &mut out);
    }
    for (key, groups) in &pools {
        let has_samples = groups.iter().any(|g| g.sampled > 0);
        let others = whole.get(key).filter(|_| !has_samples);
        pool(
            groups,
            others.map_or(&[], Vec::as_slice),
            &weights,
            &mut out,
        );
    }
    withdraw(rec, &mut out);
    out.pieces.sort_unstable_by_key(|p| (p.sample, p.context));
    out.unsampled
        .sort_unstable_by_key(|u| (u.context, u.state, u.reason));
    out.factors
        .sort_unstable_by_key(|f| (f.context, f.state, f.reason));
    out
}

/// Mean period by state, ns, which decides whether a group is sparse. With kernel programs it is the mean over time,
/// not over samples: if the period grew, most samples are of the short time before. Without kernel programs, a sample
/// counts polls, not periods.
fn mean_periods(rec: &Recording, groups: &[Group], weights: &[Weight]) -> [u64; State::COUNT] {
    let counts_periods = rec.domain.backend == "ebpf";
    let mut seen = [(0u128, 0u128); State::COUNT];
    for g in groups.iter().filter(|g| !g.is_seen_whole()) {
        let (sum, of) = &mut seen[g.state as usize];
        for w in &weights[g.weights.clone()] {
            let (ns, count) = (u128::from(w.ns), u128::from(w.count));
            match counts_periods {
                true => (*sum, *of) = (*sum + ns * ns.checked_div(count).unwrap_or(0), *of + ns),
                false => (*sum, *of) = (*sum + ns, *of + count),
            }
        }
    }
    seen.map(|(sum, of)| sum.checked_div(of).unwrap_or(0) as u64)
}

/// Converts the pieces of placeholder stacks to unsampled time.
fn withdraw(rec: &Recording, out: &mut Scaled) {
    if !rec.stacks.iter().any(|s| s.end == StackEnd::NotSampled) {
        return;
    }
    let unsampled = &mut out.unsampled;
    out.pieces.retain(|p| {
        let s = &rec.samples[p.sample as usize];
        let stack = rec.stacks.get(s.stack.0 as usize);
        if stack.is_none_or(|stack| stack.end != StackEnd::NotSampled) {
            return true;
        }
        unsampled.push(Unsampled {
            context: p.context,
            state: s.state,
            reason: class_name(s.state, class_of(s)),
            ns: p.ns,
        });
        false
    });
}

/// Divides the contexts' time into groups.
struct Division<'w> {
    /// Samples, ordered by context, state and class.
    weights: &'w [Weight],
    groups: Vec<Group>,
    /// Samples of time that the ledgers have not, ns.
    unplaced_ns: u64,
}

impl Division<'_> {
    /// Divides one context's time in one state, by class. `range`: its samples.
    fn divide(
        &mut self,
        context: ContextId,
        state: State,
        classes: &[(u8, u64)],
        range: Range<usize>,
    ) {
        let weights = self.weights;
        let total: u64 = classes.iter().map(|(_, ns)| *ns).sum();
        let group = |class, exact, weights_of: Range<usize>| Group {
            context,
            state,
            class,
            exact,
            sampled: weights[weights_of.clone()].iter().map(|w| w.ns).sum(),
            weights: weights_of,
        };
        if total == 0 {
            self.unplaced_ns += group(0, 0, range).sampled;
            return;
        }
        let stray = weights[range.clone()]
            .iter()
            .any(|w| !classes.iter().any(|(class, _)| *class == w.class));
        if stray {
            self.groups.push(group(0, total, range));
            return;
        }
        let mut from = range.start;
        for &(class, exact) in classes {
            let mut to = from;
            while to < range.end && weights[to].class == class {
                to += 1;
            }
            self.groups.push(group(class, exact, from..to));
            from = to;
        }
    }
}

/// Scales groups together: one factor, with each context's total exact. `others`: samples of siblings, where the groups
/// have none.
fn pool(groups: &[Group], others: &[Weight], weights: &[Weight], out: &mut Scaled) {
    let exact: u64 = groups.iter().map(|g| g.exact).sum();
    let sampled = groups.iter().map(|g| g.sampled).sum::<u64>();
    let sampled = sampled + others.iter().map(|w| w.ns).sum::<u64>();
    if sampled == 0 {
        out.unsampled.extend(groups.iter().map(|g| Unsampled {
            context: g.context,
            state: g.state,
            reason: class_name(g.state, g.class),
            ns: g.exact,
        }));
        return;
    }
    // Cumulative rounding: the parts sum to `exact`, each within 1 ns of its true value.
    let mut sum = 0u64;
    let mut given = 0u64;
    let mut next = |ns: u64| {
        sum += ns;
        let upto = (u128::from(exact) * u128::from(sum) / u128::from(sampled)) as u64;
        let part = upto - given;
        given = upto;
        part
    };
    // Time above a context's own total, and time that other contexts lack.
    let mut excess: Vec<(u32, u64)> = Vec::new();
    let mut lack: Vec<(ContextId, u64)> = Vec::new();
    for g in groups {
        let mut room = g.exact;
        for w in &weights[g.weights.clone()] {
            let ns = next(w.ns);
            let own = ns.min(room);
            room -= own;
            if own > 0 {
                out.pieces.push(Piece {
                    sample: w.sample,
                    context: g.context,
                    ns: own,
                });
            }
            if ns > own {
                excess.push((w.sample, ns - own));
            }
        }
        if room > 0 {
            lack.push((g.context, room));
        }
        if g.sampled > 0 {
            out.factors.push(Factor {
                context: g.context,
                state: g.state,
                reason: class_name(g.state, g.class),
                exact_ns: exact,
                sampled_ns: sampled,
            });
        }
    }
    excess.extend(others.iter().map(|w| (w.sample, next(w.ns))));
    let mut excess = excess.into_iter();
    let mut have = excess.next();
    for (context, mut room) in lack {
        while room > 0 {
            let Some((sample, ns)) = &mut have else { break };
            let part = room.min(*ns);
            out.pieces.push(Piece {
                sample: *sample,
                context,
                ns: part,
            });
            out.borrowed_ns += part;
            room -= part;
            *ns -= part;
            if *ns == 0 {
                have = excess.next();
            }
        }
    }
}

/// Groups of contexts: threads of one program with one name, apart from digits.
struct Siblings {
    of: Vec<u32>,
}

impl Siblings {
    fn new(rec: &Recording) -> Siblings {
        let programs: HashMap<u32, &str> = rec
            .processes
            .iter()
            .map(|p| {
                let name = if p.exe.is_empty() { &p.name } else { &p.exe };
                (p.pid, &**name)
            })
            .collect();
        let mut ids: HashMap<(&str, String), u32> = HashMap::new();
        let of = rec
            .contexts
            .iter()
            .map(|c| {
                let program = programs.get(&c.pid).copied().unwrap_or("");
                let name = c.name.chars().filter(|c| !c.is_ascii_digit()).collect();
                let next = ids.len() as u32;
                *ids.entry((program, name)).or_insert(next)
            })
            .collect();
        Siblings { of }
    }
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
