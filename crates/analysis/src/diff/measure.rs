//! Time of one run by function, state and block of time.
//!
//! A function's time in a state is its share of the state's samples times the state's exact total.
//! In a block, this is `(x − p·y) + p·T`. The first term is the sampling deviation from the function's
//! share; the second is the function's share of the exactly counted time. The two terms vary
//! independently, so the estimate of the error keeps them apart.

use rustc_hash::FxHashMap;
use wallscope_model::compare::{Estimate, estimate};
use wallscope_model::contention::Contention;
use wallscope_model::stats::MAX_BLOCKS;
use wallscope_model::{Column, Recording, Sample, State, View};

use super::functions::{Names, StackFunctions};
use super::holders::{self, Holder};
use super::options::{Normal, Options};
use crate::view::{Analysis, Idle};

/// The states that are compared. Unknown is one of them, since most files of other tools have no states.
pub const STATES: [State; 4] = [
    State::OnCpu,
    State::Runnable,
    State::Blocked,
    State::Unknown,
];

/// A value for each of [`STATES`].
type ByState<T> = [T; STATES.len()];

/// Values by block of time.
pub(super) type Blocks = Vec<f64>;

/// One run.
pub(super) struct Run {
    /// Time by function and state, one value a block, sampled and scaled.
    pub(super) functions: FxHashMap<(u32, usize), Blocks>,
    /// Blocked time by reason and runnable time by part, one value a block, sampled and scaled.
    pub(super) reasons: FxHashMap<(&'static str, usize), Blocks>,
    /// Time by function and reason, ns.
    pub(super) why: FxHashMap<(u32, &'static str), f64>,
    /// Time that a function waited for locks, by holder, ns.
    pub(super) held: FxHashMap<(u32, Holder), f64>,
    /// Sampled time of each state by block.
    sampled: ByState<Blocks>,
    /// Time of each state by block, as counted.
    counted: ByState<Blocks>,
    /// Whether a state is known from samples alone: then its total has their error.
    only_sampled: ByState<bool>,
    /// Time in which threads waited for a CPU, as counted.
    contention: Blocks,
    /// Samples behind each state (Kish's number where they weigh differently).
    pub(super) samples: ByState<f64>,
    /// Number of waits by function and state, where it is known. A wait shows its stack once, however
    /// long it is.
    waits: FxHashMap<(u32, usize), f64>,
    /// Divisor of the values, by block.
    normal: Blocks,
    /// Whether `normal` is all time itself.
    shares: bool,
    /// Idle time of the view that was left out, ns.
    pub(super) hidden_idle_ns: u64,
    /// Length, s.
    pub(super) seconds: f64,
}

/// Runs of the base and of the new side.
pub(super) type Sides = (Vec<Run>, Vec<Run>);

/// Division of a recording's slices into blocks of time.
#[derive(Clone, Copy)]
struct Division {
    slices: usize,
    blocks: usize,
}

impl Division {
    fn of(rec: &Recording) -> Division {
        let slices = rec.slices.count as usize;
        Division {
            slices,
            blocks: slices.clamp(1, MAX_BLOCKS),
        }
    }

    fn block_of(self, slice: u32) -> usize {
        (slice as usize * self.blocks / self.slices.max(1)).min(self.blocks - 1)
    }

    fn zero(self) -> Blocks {
        vec![0.0; self.blocks]
    }
}

/// A sample while it is added to a run.
struct Piece<'a> {
    sample: &'a Sample,
    /// Its index in the recording.
    index: usize,
    /// Index of its state in [`STATES`].
    state: usize,
    /// Its scaled time, ns.
    ns: u64,
    /// Its scaled time by block.
    values: Vec<(usize, f64)>,
}

impl Run {
    /// Measures a recording.
    pub(super) fn of(
        rec: &Recording,
        names: &mut Names,
        options: &Options,
        requests: Option<f64>,
    ) -> Run {
        let analysis = Analysis::new(rec, options.idle);
        let division = Division::of(rec);
        let mut run = Run::empty(&analysis, division, options);
        let mut functions = StackFunctions::new(rec, names, options.metric);
        let squares = run.add_samples(&analysis, options.view, &mut functions);
        run.count_waits(rec, &functions);
        for (n, (sampled, squares)) in run.samples.iter_mut().zip(run.sampled.iter().zip(squares)) {
            let all: f64 = sampled.iter().sum();
            if squares > 0.0 {
                *n = all * all / squares;
            }
        }
        let ledger = by_block(rec, division);
        run.count_time(&ledger, idle_left_out(rec, options.idle));
        run.contention.clone_from(&ledger[1]);
        let divisor = Divisor {
            normal: options.normal,
            requests,
        };
        run.normal = divisor.by_block(rec, &run, &ledger);
        run
    }

    /// A run without time.
    fn empty(analysis: &Analysis<'_>, division: Division, options: &Options) -> Run {
        let rec = analysis.recording;
        let zero = || division.zero();
        Run {
            functions: FxHashMap::default(),
            reasons: FxHashMap::default(),
            why: FxHashMap::default(),
            held: FxHashMap::default(),
            sampled: STATES.map(|_| zero()),
            counted: STATES.map(|_| zero()),
            only_sampled: STATES.map(|state| {
                let exact = |c: &Column| c.state == state && c.exact;
                rec.domain.is_import() && !rec.domain.columns.iter().any(exact)
            }),
            samples: [0.0; STATES.len()],
            waits: FxHashMap::default(),
            contention: zero(),
            normal: zero(),
            shares: options.normal == Normal::Total,
            hidden_idle_ns: analysis.total(options.view).hidden_idle_ns,
            seconds: rec.window.length_ns() as f64 / 1e9,
        }
    }

    /// Adds the samples of a view. Gives the sum of squares of each state's sample weights.
    fn add_samples(
        &mut self,
        analysis: &Analysis<'_>,
        view: View,
        functions: &mut StackFunctions<'_>,
    ) -> ByState<f64> {
        let rec = analysis.recording;
        let division = Division::of(rec);
        let waits = (!rec.hops.is_empty()).then(|| analysis.waits());
        let mut squares = [0.0; STATES.len()];
        let mut pieces = analysis.pieces().peekable();
        while let Some(p) = pieces.next() {
            let mut ns = p.ns;
            while let Some(more) = pieces.next_if(|q| q.sample == p.sample) {
                ns += more.ns;
            }
            let s = &rec.samples[p.sample as usize];
            let Some(state) = STATES.iter().position(|known| *known == s.state) else {
                continue;
            };
            if !view.includes(s.state) {
                continue;
            }
            squares[state] += (ns as f64).powi(2) / s.count.max(1) as f64;
            let factor = ns as f64 / s.ns.max(1) as f64;
            let mut values: Vec<(usize, f64)> = (s.slices.iter())
                .map(|v| (division.block_of(v.slice), v.ns as f64 * factor))
                .collect();
            if values.is_empty() {
                values.push((0, ns as f64));
            }
            let piece = Piece {
                sample: s,
                index: p.sample as usize,
                state,
                ns,
                values,
            };
            let functions = functions.of_stack(s.stack.0 as usize);
            self.add(&piece, functions, division);
            if let Some(waits) = waits.as_ref().filter(|_| holders::is_held(s.reason)) {
                for (holder, ns) in holders::of_sample(analysis, waits, piece.index) {
                    for f in functions {
                        *self.held.entry((*f, holder.clone())).or_default() += ns;
                    }
                }
            }
        }
        squares
    }

    /// Adds a sample to the time of its functions, of its reason and of its state.
    fn add(&mut self, piece: &Piece<'_>, functions: &[u32], division: Division) {
        let (s, state, values) = (piece.sample, piece.state, &piece.values);
        let zero = || division.zero();
        let reason = s.reason_name();
        for f in functions {
            let row = self.functions.entry((*f, state)).or_insert_with(zero);
            values.iter().for_each(|(b, v)| row[*b] += v);
            if let Some(reason) = reason {
                *self.why.entry((*f, reason)).or_default() += piece.ns as f64;
            }
        }
        if let Some(reason) = reason.filter(|_| s.state != State::OnCpu) {
            let row = self.reasons.entry((reason, state)).or_insert_with(zero);
            values.iter().for_each(|(b, v)| row[*b] += v);
        }
        values
            .iter()
            .for_each(|(b, v)| self.sampled[state][*b] += v);
    }

    /// Counts the waits of each function by the histograms of its stacks.
    fn count_waits(&mut self, rec: &Recording, functions: &StackFunctions<'_>) {
        for row in &rec.histograms {
            let state = STATES.iter().position(|known| *known == row.state);
            let (Some(stack), Some(state)) = (row.stack, state) else {
                continue;
            };
            for f in functions.known(stack.0 as usize) {
                *self.waits.entry((*f, state)).or_default() += row.histogram.count();
            }
        }
    }

    /// Sets the counted time of each state by block. Slices include idle time, so they cannot be used for a state
    /// without its idle time.
    fn count_time(&mut self, ledger: &ByState<Blocks>, idle_left_out: ByState<bool>) {
        for (i, ledger) in ledger.iter().enumerate() {
            let all: f64 = ledger.iter().sum();
            let sampled: f64 = self.sampled[i].iter().sum();
            self.counted[i] = if all > 0.0 && sampled > 0.0 && !idle_left_out[i] {
                ledger.iter().map(|ns| ns * sampled / all).collect()
            } else {
                self.sampled[i].clone()
            };
        }
    }

    /// The total of some states, and its error. A total has a sampling error only if it is known from
    /// samples alone: then their number is random as any count is (Poisson's variance).
    pub(super) fn whole(&self, states: &[usize]) -> Estimate {
        let x: Blocks = (0..self.normal.len())
            .map(|b| states.iter().map(|s| self.counted[*s][b]).sum())
            .collect();
        let normal: f64 = self.normal.iter().sum();
        let of_samples = states.iter().filter(|s| self.only_sampled[**s]);
        let floor: f64 = of_samples
            .map(|s| self.sampled_ns(*s).powi(2) / self.samples[*s].max(1.0))
            .sum();
        // A total divided by itself is 1 and has no error.
        let share_of_itself = x.iter().zip(&self.normal).all(|(x, n)| x == n);
        let floor = if share_of_itself { 0.0 } else { floor };
        estimate(
            &x,
            &self.normal,
            floor / (normal * normal).max(f64::MIN_POSITIVE),
        )
    }

    /// A part of one state or several: `parts` has its time by block for each of `states`.
    pub(super) fn part(&self, states: &[usize], parts: &[Option<&Blocks>]) -> Estimate {
        let mut x = vec![0.0; self.normal.len()];
        let mut floor = 0.0;
        for (state, part) in states.iter().zip(parts) {
            let (y, counted) = (&self.sampled[*state], &self.counted[*state]);
            let whole: f64 = y.iter().sum();
            if whole <= 0.0 {
                continue;
            }
            let own: f64 = part.map_or(0.0, |p| p.iter().sum());
            let share = own / whole;
            for (b, x) in x.iter_mut().enumerate() {
                let sampled = part.map_or(0.0, |p| p[b]);
                *x += (sampled - share * y[b]) + share * counted[b];
            }
            // One success and one failure are added (Agresti and Caffo, The American Statistician 54,
            // 2000): a function without samples may still have time.
            let n = self.samples[*state].max(1.0);
            let p = (share * n + 1.0) / (n + 2.0);
            // If the total is known from samples alone, it is random too.
            let of_all = self.only_sampled[*state] && !self.shares;
            let variance = if of_all { p } else { p * (1.0 - p) };
            floor += variance / (n + 2.0) * whole * whole;
        }
        let normal: f64 = self.normal.iter().sum();
        let floor = floor / (normal * normal).max(f64::MIN_POSITIVE);
        Estimate {
            contention: Contention::of(&x, &self.contention, &self.normal),
            ..estimate(&x, &self.normal, floor)
        }
    }

    /// Samples of a function in a state; for waits, at most the number of waits.
    pub(super) fn samples_of(&self, function: u32, state: usize) -> f64 {
        let Some(own) = self.functions.get(&(function, state)) else {
            return 0.0;
        };
        let all = self.sampled_ns(state).max(1.0);
        let samples = self.samples[state] * own.iter().sum::<f64>() / all;
        match self.waits.get(&(function, state)) {
            Some(waits) if STATES[state] != State::OnCpu => samples.min(*waits),
            _ => samples,
        }
    }

    /// Sampled time of a state, ns.
    pub(super) fn sampled_ns(&self, state: usize) -> f64 {
        self.sampled[state].iter().sum()
    }

    /// Factor from a time of the run, ns, to the comparison's unit.
    pub(super) fn scale(&self) -> f64 {
        let normal: f64 = self.normal.iter().sum();
        if normal > 0.0 { 1.0 / normal } else { 0.0 }
    }
}

/// Time of each state by block, as the ledger's slices count it, ns.
fn by_block(rec: &Recording, division: Division) -> ByState<Blocks> {
    let mut ledger = STATES.map(|_| division.zero());
    for row in rec.ledger_slices.iter() {
        for (counted, state) in ledger.iter_mut().zip(STATES) {
            counted[division.block_of(row.slice)] += row.state_ns(state) as f64;
        }
    }
    ledger
}

/// Whether idle time of each state is left out.
fn idle_left_out(rec: &Recording, idle: Idle) -> ByState<bool> {
    let mut left_out = [false; STATES.len()];
    if idle != Idle::Show {
        for s in &rec.samples {
            if let Some(state) = STATES.iter().position(|known| *known == s.state) {
                left_out[state] |= s.idle;
            }
        }
    }
    left_out
}

/// Quantity that values are divided by.
struct Divisor {
    normal: Normal,
    /// Requests of the run, if they are known.
    requests: Option<f64>,
}

impl Divisor {
    /// The quantity by block of time.
    fn by_block(&self, rec: &Recording, run: &Run, ledger: &ByState<Blocks>) -> Blocks {
        let Division { slices, blocks } = Division::of(rec);
        let mut seconds = vec![0.0; blocks];
        if slices == 0 {
            seconds[0] = run.seconds.max(1e-9);
        }
        for slice in 0..slices {
            let from = rec.slices.start_ns + slice as u64 * rec.slices.width_ns;
            let to = (from + rec.slices.width_ns).min(rec.window.end_ns.max(from));
            seconds[(slice * blocks / slices).min(blocks - 1)] += (to - from) as f64 / 1e9;
        }
        let all: f64 = seconds.iter().sum::<f64>().max(1e-9);
        match self.normal {
            Normal::Second => seconds,
            Normal::Raw => seconds.iter().map(|s| s / all).collect(),
            Normal::Request => {
                let each = self.requests.unwrap_or(1.0) / all;
                seconds.iter().map(|s| s * each).collect()
            }
            Normal::CpuSecond => {
                let cpu: &Blocks = &ledger[0];
                let counted = cpu.iter().sum::<f64>() > 0.0;
                let cpu = if counted { cpu } else { &run.sampled[0] };
                cpu.iter().map(|ns| ns / 1e9).collect()
            }
            Normal::Total => (0..blocks)
                .map(|b| run.counted.iter().map(|c| c[b]).sum())
                .collect(),
        }
    }
}

/// The states in which a view compares functions. Run-queue latency is caused by the machine, not by the
/// function that happened to wait. It is therefore compared by function only in its own view, and as a
/// total in every view that includes it.
pub(super) fn states_of(view: View) -> Vec<usize> {
    match view {
        View::OnCpu => vec![0],
        View::RunQueue => vec![1],
        View::OffCpu => vec![2],
        View::Wall => vec![0, 2, 3],
    }
}
