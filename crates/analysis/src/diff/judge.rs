//! Functions that changed: one test for each function that the data distinguish, with a bound on false discoveries.

use rustc_hash::FxHashMap;
use wallscope_model::State;
use wallscope_model::compare::{Difference, Estimate, Prior, adjust, compare};

use super::comparison::{FunctionRow, InState};
use super::functions::Names;
use super::holders::{self, Holder};
use super::measure::{Blocks, Run, STATES, Sides};
use super::options::Options;

/// Functions with fewer samples than this on both sides together (waits: with fewer waits) cannot be judged, whatever
/// the difference; leaving them out costs nothing and spares the others (Bourgon et al., PNAS 107, 2010: the
/// criterion does not depend on the difference).
const MIN_SAMPLES: f64 = 8.0;

/// With fewer samples than this in a run, the error of independent samples is mostly the addition for chance (one
/// success, one failure). The spread between runs then says nothing about their usual spread.
const TELLING_SAMPLES: f64 = 5.0;

/// The estimates of one function, base and new: in each state, and in all.
struct Measured {
    states: Vec<[Vec<Estimate>; 2]>,
    all: [Vec<Estimate>; 2],
    samples: Vec<f64>,
}

impl Measured {
    /// The states in which there are enough samples to judge the function.
    fn tests(&self) -> Vec<usize> {
        let enough = |s: &usize| self.samples[*s] >= MIN_SAMPLES;
        (0..self.states.len()).filter(enough).collect()
    }
}

fn measured(function: u32, sides: &Sides, states: &[usize]) -> Measured {
    let of = |states: &[usize]| -> [Vec<Estimate>; 2] {
        [&sides.0, &sides.1].map(|side| {
            side.iter()
                .map(|r| {
                    let parts: Vec<Option<&Blocks>> = (states.iter())
                        .map(|s| r.functions.get(&(function, *s)))
                        .collect();
                    r.part(states, &parts)
                })
                .collect()
        })
    };
    let samples = |state: usize| -> f64 {
        let runs = sides.0.iter().chain(&sides.1);
        runs.map(|r| r.samples_of(function, state)).sum()
    };
    Measured {
        states: states.iter().map(|s| of(&[*s])).collect(),
        all: of(states),
        samples: states.iter().map(|s| samples(*s)).collect(),
    }
}

/// Functions that the data distinguish, and for each function its index among these. A thread's outermost functions
/// are on all its stacks: however many they are, they are one test.
fn distinct(measured: &[Measured]) -> (Vec<&Measured>, Vec<usize>) {
    let mut known: FxHashMap<Vec<u64>, usize> = FxHashMap::default();
    let mut all = Vec::new();
    let of = (measured.iter())
        .map(|m| {
            let estimates = m.states.iter().flatten().flatten();
            let key = estimates.flat_map(|e| [e.value, e.sampling, e.blocks].map(f64::to_bits));
            *known.entry(key.collect()).or_insert_with(|| {
                all.push(m);
                all.len() - 1
            })
        })
        .collect();
    (all, of)
}

/// How much runs usually differ.
struct Priors {
    over_all: Prior,
    /// By state. Computing is sampled by the clock; long waits are not sampled at all. The spread between runs beyond
    /// their sampling error therefore differs by state, and one state's says little about another's.
    by_state: Vec<Prior>,
}

impl Priors {
    fn of(sides: &Sides, states: &[usize], distinct: &[&Measured]) -> Priors {
        let runs = (sides.0.len() + sides.1.len()) as f64;
        let prior = |of: &[usize]| {
            let of_states: Vec<usize> = of.iter().map(|s| states[*s]).collect();
            let whole = |side: &[Run]| -> Vec<Estimate> {
                side.iter().map(|r| r.whole(&of_states)).collect()
            };
            let told = |(m, s): &(&Measured, usize)| {
                of.contains(s) && (runs <= 2.0 || m.samples[*s] >= TELLING_SAMPLES * runs)
            };
            let mut quantities: Vec<(&Measured, usize)> = Vec::new();
            for m in distinct {
                let tests = m.tests().into_iter().map(|s| (*m, s));
                quantities.extend(tests.filter(told));
            }
            let estimates =
                (quantities.iter()).map(|(m, s)| (&m.states[*s][0][..], &m.states[*s][1][..]));
            Prior::of([&whole(&sides.0), &whole(&sides.1)], estimates)
        };
        let every: Vec<usize> = (0..states.len()).collect();
        let over_all = prior(&every);
        let by_state = (every.iter())
            .map(|state| Prior {
                elasticity: over_all.elasticity,
                ..prior(&[*state])
            })
            .collect();
        Priors { over_all, by_state }
    }

    /// The difference of a function in a state.
    fn compare(&self, m: &Measured, state: usize) -> Difference {
        let [base, new] = &m.states[state];
        compare(base, new, self.by_state[state])
    }
}

/// Functions of both sides, judged.
pub(super) struct Judged {
    /// Every function, largest change first.
    pub(super) functions: Vec<FunctionRow>,
    /// How much runs usually differ, over all states.
    pub(super) prior: Prior,
    /// The usual spread between runs in each state with samples.
    pub(super) priors: Vec<(State, Prior)>,
}

/// Judges every function.
pub(super) fn functions(
    names: &Names,
    sides: &Sides,
    states: &[usize],
    options: &Options,
) -> Judged {
    let ids = ids(sides, states);
    let measured: Vec<Measured> = ids.iter().map(|f| measured(*f, sides, states)).collect();
    let (distinct, of_distinct) = distinct(&measured);
    let priors = Priors::of(sides, states, &distinct);
    let why = reasons_by_function(sides);
    let mut rows: Vec<FunctionRow> = Vec::new();
    let mut p: Vec<Option<f64>> = vec![None; distinct.len()];
    for ((id, m), test) in ids.iter().zip(&measured).zip(&of_distinct) {
        let tests = m.tests();
        let least = (tests.iter())
            .map(|s| priors.compare(m, *s).p)
            .fold(1.0, f64::min);
        if !tests.is_empty() {
            p[*test].get_or_insert((least * tests.len() as f64).min(1.0));
        }
        let mut in_states = in_states(m, states, &priors, options.fdr);
        for s in in_states.iter_mut().filter(|s| s.state != State::OnCpu) {
            let most = |why| most_changed(why, s.difference.delta);
            s.reason = why.get(id).and_then(most);
        }
        rows.push(FunctionRow {
            function: names.all[*id as usize].clone(),
            all: compare(&m.all[0], &m.all[1], priors.over_all),
            states: in_states,
            samples: m.samples.iter().sum(),
            q: (!tests.is_empty()).then_some(1.0),
            changed: false,
            held_by: None,
        });
    }
    let mut adjusted = adjust(&p.iter().flatten().copied().collect::<Vec<_>>()).into_iter();
    let q: Vec<Option<f64>> = p.iter().map(|p| p.and_then(|_| adjusted.next())).collect();
    for (row, test) in rows.iter_mut().zip(&of_distinct) {
        row.q = row.q.and(q[*test]);
        row.changed = row.q.is_some_and(|q| q <= options.fdr);
    }
    name_holders(&mut rows, &ids, sides);
    most_changed_first(&mut rows);
    let by_state = (states.iter().enumerate())
        .filter(|(s, _)| measured.iter().any(|m| m.samples[*s] > 0.0))
        .map(|(s, state)| (STATES[*state], priors.by_state[s]))
        .collect();
    Judged {
        functions: rows,
        prior: priors.over_all,
        priors: by_state,
    }
}

/// Functions with time in these states, by number.
fn ids(sides: &Sides, states: &[usize]) -> Vec<u32> {
    let mut ids: Vec<u32> = (sides.0.iter().chain(&sides.1))
        .flat_map(|r| r.functions.keys())
        .filter(|(_, state)| states.contains(state))
        .map(|(f, _)| *f)
        .collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// A function in each state in which it has samples; reasons are not set.
fn in_states(m: &Measured, states: &[usize], priors: &Priors, fdr: f64) -> Vec<InState> {
    let tests = m.tests();
    (0..states.len())
        .filter(|s| m.samples[*s] > 0.0)
        .map(|s| {
            let difference = priors.compare(m, s);
            InState {
                state: STATES[states[s]],
                difference,
                // Bonferroni within the function.
                changed: tests.contains(&s) && difference.p * tests.len() as f64 <= fdr,
                reason: None,
            }
        })
        .collect()
}

/// Sets the holder of each changed function. A function that did not change has no changed state.
fn name_holders(rows: &mut [FunctionRow], ids: &[u32], sides: &Sides) {
    let held = waiting_by_holder(sides);
    for (row, id) in rows.iter_mut().zip(ids) {
        if !row.changed {
            row.states.iter_mut().for_each(|s| s.changed = false);
            continue;
        }
        let waits = |s: &&InState| s.changed && s.state == State::Blocked;
        let longer = row.states.iter().find(waits).map(|s| s.difference.delta);
        row.held_by = longer.and_then(|delta| holders::most(held.get(id)?, delta));
    }
}

fn most_changed_first(rows: &mut [FunctionRow]) {
    rows.sort_by(|a, b| {
        let size = |r: &FunctionRow| {
            let each = r.states.iter().map(|s| s.difference.delta.abs());
            each.fold(0.0, f64::max)
        };
        (b.changed.cmp(&a.changed))
            .then_with(|| size(b).total_cmp(&size(a)))
            .then_with(|| a.function.name.cmp(&b.function.name))
    });
}

type ReasonChanges = FxHashMap<&'static str, f64>;

/// By function, how much each reason's time changed, in the comparison's unit.
fn reasons_by_function(sides: &Sides) -> FxHashMap<u32, ReasonChanges> {
    let mut all: FxHashMap<u32, ReasonChanges> = FxHashMap::default();
    for (side, sign) in [(&sides.0, -1.0), (&sides.1, 1.0)] {
        for run in side {
            for ((function, reason), ns) in &run.why {
                let why = all.entry(*function).or_default();
                *why.entry(reason).or_default() += sign * ns * run.scale() / side.len() as f64;
            }
        }
    }
    all
}

/// The reason that changed most in the direction of `delta`.
fn most_changed(why: &ReasonChanges, delta: f64) -> Option<&'static str> {
    let waits = |reason: &str| wallscope_model::BlockReason::from_name(reason).is_some();
    let most = (why.iter())
        .filter(|(reason, _)| waits(reason))
        .max_by(|a, b| {
            let size = |ns: &f64| ns * delta.signum();
            size(a.1).total_cmp(&size(b.1)).then_with(|| b.0.cmp(a.0))
        });
    most.map(|(reason, _)| *reason)
}

/// By waiting function: the change of its lock waiting by holder, in the comparison's unit.
fn waiting_by_holder(sides: &Sides) -> FxHashMap<u32, FxHashMap<Holder, f64>> {
    let mut all: FxHashMap<u32, FxHashMap<Holder, f64>> = FxHashMap::default();
    for (side, sign) in [(&sides.0, -1.0), (&sides.1, 1.0)] {
        for run in side {
            for ((function, holder), ns) in &run.held {
                let of = all.entry(*function).or_default();
                *of.entry(holder.clone()).or_default() +=
                    sign * ns * run.scale() / side.len() as f64;
            }
        }
    }
    all
}
