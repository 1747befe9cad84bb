//! Functions by view: self, total, and how sure each is.

use std::sync::Arc;

use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::stats::{self, Interval, MAX_BLOCKS};
use wallscope_model::{FrameKind, State, View};

use super::{Analysis, FunctionName};
use wallscope_model::name;

/// A time with its 95 % interval, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value {
    /// The estimate.
    pub ns: u64,
    /// Lower end.
    pub low_ns: u64,
    /// Upper end.
    pub high_ns: u64,
}

/// A function in one view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ViewValue {
    /// Time in which it was the innermost function.
    pub own: Value,
    /// Time in which it was anywhere on the stack; recursion counts once.
    pub total: Value,
    /// Time of the stacks that it names ([`wallscope_model::attribution`]).
    pub place: Value,
}

/// A function in every view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRow {
    /// The function.
    pub function: FunctionName,
    /// Its values, indexed by position in [`View::ALL`].
    pub views: [ViewValue; View::COUNT],
}

impl FunctionRow {
    /// Its values in `view`.
    pub fn view(&self, view: View) -> &ViewValue {
        &self.views[view as usize]
    }
}

const STATES: usize = State::COUNT;
/// Self, total, place.
const METRICS: usize = 3;

/// Sampled time of something, by state and block.
struct Blocks {
    values: Vec<f64>,
    blocks: usize,
}

impl Blocks {
    fn new(rows: usize, blocks: usize) -> Blocks {
        Blocks {
            values: vec![0.0; rows * blocks],
            blocks,
        }
    }

    fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.blocks..][..self.blocks]
    }

    fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.blocks..][..self.blocks]
    }

    fn add(&mut self, row: usize, values: &[f64]) {
        for (a, b) in self.row_mut(row).iter_mut().zip(values) {
            *a += b;
        }
    }
}

/// Sampled time by stack and state.
struct Grouped {
    /// Stack and state of each row.
    keys: Vec<(u32, State)>,
    ns: Vec<u64>,
    blocks: Blocks,
    /// All of a state, by block.
    whole: Blocks,
    /// Samples behind each state, counted by Kish where their weights differ.
    samples: [f64; STATES],
    /// Sampled time of each state.
    sampled: [u64; STATES],
}

impl Analysis<'_> {
    /// Every function that was seen, most wall time of its own first; exact time without any
    /// sample is the row `[not sampled]`.
    pub fn functions(&self) -> Vec<FunctionRow> {
        let grouped = self.group();
        let mut names = self.code.functions.clone();
        // Stacks without frames are named by how they ended.
        let mut endings: Vec<(Arc<str>, u32)> = Vec::new();
        for (stack, _) in &grouped.keys {
            let stack = &self.recording.stacks[*stack as usize];
            if stack.frames.is_empty() {
                let name: Arc<str> = Arc::from(name::no_frames(stack.end));
                if !endings.iter().any(|(n, _)| *n == name) {
                    endings.push((name.clone(), names.len() as u32));
                    names.push(bracketed(name));
                }
            }
        }
        let sums = self.sum(&grouped, names.len(), &endings);
        let mut rows: Vec<FunctionRow> = names
            .into_iter()
            .enumerate()
            .filter(|(i, _)| {
                sums.ns[i * STATES * METRICS..][..STATES * METRICS]
                    .iter()
                    .any(|ns| *ns > 0)
            })
            .map(|(i, function)| FunctionRow {
                function,
                views: std::array::from_fn(|v| {
                    let value = |metric| grouped.value(&sums, i, metric, View::ALL[v]);
                    ViewValue {
                        own: value(0),
                        total: value(1),
                        place: value(2),
                    }
                }),
            })
            .collect();
        rows.extend(self.not_sampled());
        rows.sort_by(|a, b| {
            let key = |r: &FunctionRow| (r.view(View::Wall).own.ns, r.view(View::Wall).total.ns);
            key(b)
                .cmp(&key(a))
                .then_with(|| a.function.name.cmp(&b.function.name))
                .then_with(|| a.function.module.cmp(&b.function.module))
        });
        rows
    }

    fn not_sampled(&self) -> Option<FunctionRow> {
        let mut row = FunctionRow {
            function: bracketed(Arc::from(NOT_SAMPLED)),
            views: Default::default(),
        };
        for u in self.unsampled() {
            for view in View::ALL {
                if view.includes(u.state) {
                    let v = &mut row.views[*view as usize];
                    for value in [&mut v.own, &mut v.total, &mut v.place] {
                        value.ns += u.ns;
                        value.low_ns += u.ns;
                        value.high_ns += u.ns;
                    }
                }
            }
        }
        (row.view(View::Wall).own.ns > 0).then_some(row)
    }

    fn group(&self) -> Grouped {
        let rec = self.recording;
        let slices = rec.slices.count as usize;
        let blocks = slices.clamp(1, MAX_BLOCKS);
        let mut rows = vec![u32::MAX; rec.stacks.len() * STATES];
        let mut keys = Vec::new();
        for p in self.pieces() {
            let s = &rec.samples[p.sample as usize];
            let row = &mut rows[s.stack.0 as usize * STATES + s.state as usize];
            if *row == u32::MAX {
                *row = keys.len() as u32;
                keys.push((s.stack.0, s.state));
            }
        }
        let mut g = Grouped {
            ns: vec![0; keys.len()],
            blocks: Blocks::new(keys.len(), blocks),
            whole: Blocks::new(STATES, blocks),
            samples: [0.0; STATES],
            sampled: [0; STATES],
            keys,
        };
        let mut squares = [0.0; STATES];
        let mut pieces = self.pieces().peekable();
        while let Some(p) = pieces.next() {
            let mut ns = p.ns;
            while let Some(more) = pieces.next_if(|q| q.sample == p.sample) {
                ns += more.ns;
            }
            let s = &rec.samples[p.sample as usize];
            let state = s.state as usize;
            let row = rows[s.stack.0 as usize * STATES + state] as usize;
            g.ns[row] += ns;
            g.sampled[state] += ns;
            squares[state] += (ns as f64).powi(2) / s.count.max(1) as f64;
            let factor = ns as f64 / s.ns.max(1) as f64;
            let mut add = |block: usize, value: f64| {
                g.blocks.row_mut(row)[block] += value;
                g.whole.row_mut(state)[block] += value;
            };
            if s.slices.is_empty() {
                add(0, ns as f64);
            }
            for v in &s.slices {
                let block = (v.slice as usize * blocks / slices.max(1)).min(blocks - 1);
                add(block, v.ns as f64 * factor);
            }
        }
        for ((samples, sampled), squares) in g.samples.iter_mut().zip(g.sampled).zip(squares) {
            if squares > 0.0 {
                *samples = (sampled as f64).powi(2) / squares;
            }
        }
        g
    }

    fn sum(&self, g: &Grouped, functions: usize, endings: &[(Arc<str>, u32)]) -> Sums {
        let rows = functions * STATES * METRICS;
        let mut sums = Sums {
            ns: vec![0; rows],
            blocks: Blocks::new(rows, g.blocks.blocks),
        };
        // The last row in which a function was met: recursion counts once.
        let mut met = vec![u32::MAX; functions];
        for (row, (stack, state)) in g.keys.iter().enumerate() {
            let stack = &self.recording.stacks[*stack as usize];
            let mut add = |function: u32, metric: usize| {
                let to = (function as usize * STATES + *state as usize) * METRICS + metric;
                sums.ns[to] += g.ns[row];
                sums.blocks.add(to, g.blocks.row(row));
            };
            let calls = || stack.frames.iter().flat_map(|f| self.code.calls(*f));
            let Some(leaf) = calls().next() else {
                let name = name::no_frames(stack.end);
                if let Some((_, f)) = endings.iter().find(|(n, _)| **n == *name) {
                    (0..METRICS).for_each(|metric| add(*f, metric));
                }
                continue;
            };
            add(leaf.function, 0);
            if let Some(function) = self.code.place(self.recording, stack) {
                add(function, 2);
            }
            for call in calls() {
                let met = &mut met[call.function as usize];
                if *met != row as u32 {
                    *met = row as u32;
                    add(call.function, 1);
                }
            }
        }
        sums
    }
}

/// Sampled time by function, state and metric.
struct Sums {
    ns: Vec<u64>,
    blocks: Blocks,
}

impl Grouped {
    fn value(&self, sums: &Sums, function: usize, metric: usize, view: View) -> Value {
        let mut states = Vec::with_capacity(STATES);
        let (mut ns, mut sampled) = (0, 0);
        for (i, state) in State::ALL.iter().enumerate() {
            if !view.includes(*state) || self.sampled[i] == 0 {
                continue;
            }
            let row = (function * STATES + i) * METRICS + metric;
            ns += sums.ns[row];
            sampled += self.sampled[i];
            states.push((i, row));
        }
        if ns == 0 {
            return Value::default();
        }
        let parts: Vec<(f64, f64, Interval)> = states
            .iter()
            .map(|(i, row)| {
                let whole = self.sampled[*i] as f64;
                let interval = stats::share_interval(
                    sums.blocks.row(*row),
                    self.whole.row(*i),
                    self.samples[*i],
                );
                (
                    whole / sampled as f64,
                    sums.ns[*row] as f64 / whole,
                    interval,
                )
            })
            .collect();
        let interval = stats::join(&parts);
        let time = |share: f64| (share * sampled as f64).round() as u64;
        Value {
            ns,
            low_ns: time(interval.low).min(ns),
            high_ns: time(interval.high).clamp(ns, sampled),
        }
    }
}

/// A row that is no function of the program.
fn bracketed(name: Arc<str>) -> FunctionName {
    FunctionName {
        name,
        module: Arc::from(""),
        kind: FrameKind::Native,
    }
}
