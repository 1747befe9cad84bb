//! The stacks of both sides together, each with its time on either.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::scale::NOT_SAMPLED;
use wallscope_model::{FrameKind, Recording, State};

use super::comparison::Comparison;
use super::functions::Names;
use super::measure::STATES;
use super::options::Normal;
use crate::view::Analysis;
use wallscope_model::name;

/// A frame as the stacks of a comparison show it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FrameName {
    /// The function.
    pub name: Arc<str>,
    /// The module's last path component; empty where there is none.
    pub module: Arc<str>,
    /// The kind of code.
    pub kind: FrameKind,
    /// Whether it is inlined into the next one towards the root.
    pub inlined: bool,
}

impl FrameName {
    /// The contract's suffix in folded output.
    pub fn suffix(&self) -> &'static str {
        match self.inlined {
            true => self.kind.inlined_suffix(),
            false => self.kind.suffix(),
        }
    }
}

/// Time by state, base then new, in the comparison's unit (shares in parts per billion).
pub type Times = [[f64; STATES.len()]; 2];

/// The stacks of both sides.
pub struct Stacks {
    /// Frames by number.
    pub frames: Vec<FrameName>,
    /// Times by path; a path is numbers of frames, root first.
    pub paths: FxHashMap<Vec<u32>, Times>,
}

impl Stacks {
    /// Joins the recordings that `comparison` was made from. Each run weighs the same.
    pub fn of(comparison: &Comparison, base: &[Recording], new: &[Recording]) -> Stacks {
        let mut join = Join {
            names: Names::default(),
            frames: Vec::new(),
            ids: FxHashMap::default(),
            paths: FxHashMap::default(),
        };
        let o = &comparison.options;
        let sides = [(base, &o.base_requests), (new, &o.new_requests)];
        for (side, (recordings, requests)) in sides.into_iter().enumerate() {
            for (i, rec) in recordings.iter().enumerate() {
                let requests = requests.get(i).or(requests.last()).copied();
                let unit = unit(comparison, rec, requests) / recordings.len() as f64;
                join.add(comparison, rec, side, unit);
            }
        }
        Stacks {
            frames: join.frames,
            paths: join.paths,
        }
    }
}

/// One nanosecond of a recording in the comparison's unit.
fn unit(comparison: &Comparison, rec: &Recording, requests: Option<f64>) -> f64 {
    let o = &comparison.options;
    let seconds = rec.window.length_ns() as f64 / 1e9;
    let sum = |states: &[State]| -> f64 {
        let of = |c: &wallscope_model::Context| {
            states.iter().map(|s| c.ledger.state_ns(*s)).sum::<u64>()
        };
        rec.contexts.iter().map(of).sum::<u64>() as f64
    };
    let of = match o.normal {
        Normal::Second => seconds,
        Normal::Raw => 1.0,
        Normal::Request => requests.unwrap_or(1.0),
        Normal::CpuSecond => sum(&[State::OnCpu]) / 1e9,
        Normal::Total => {
            let shown = Analysis::new(rec, o.idle).total(o.view).shown_ns();
            shown as f64 / 1e9
        }
    };
    if of > 0.0 { 1.0 / of } else { 0.0 }
}

struct Join {
    names: Names,
    frames: Vec<FrameName>,
    ids: FxHashMap<FrameName, u32>,
    paths: FxHashMap<Vec<u32>, Times>,
}

impl Join {
    fn id(&mut self, frame: FrameName) -> u32 {
        let next = self.frames.len() as u32;
        let frames = &mut self.frames;
        *self.ids.entry(frame).or_insert_with_key(|f| {
            frames.push(f.clone());
            next
        })
    }

    fn mark(&mut self, text: &str) -> u32 {
        self.id(FrameName {
            name: Arc::from(text),
            module: Arc::from(""),
            kind: FrameKind::Native,
            inlined: false,
        })
    }

    fn add(&mut self, comparison: &Comparison, rec: &Recording, side: usize, unit: f64) {
        let o = &comparison.options;
        let analysis = Analysis::new(rec, o.idle);
        // Calls of each frame, innermost first.
        let frames: Vec<Vec<u32>> = (rec.frames.iter())
            .map(|frame| {
                let names = self.names.of_frame(rec, frame);
                let last = names.len() - 1;
                (names.into_iter().enumerate())
                    .map(|(i, n)| {
                        let n = &self.names.all[n as usize];
                        let frame = FrameName {
                            name: n.name.clone(),
                            module: n.module.clone(),
                            kind: n.kind,
                            inlined: i < last,
                        };
                        self.id(frame)
                    })
                    .collect()
            })
            .collect();
        let mut times = vec![[0u64; STATES.len()]; rec.stacks.len()];
        for p in analysis.pieces() {
            let s = &rec.samples[p.sample as usize];
            if let Some(state) = shown(o.view, s.state) {
                times[s.stack.0 as usize][state] += p.ns;
            }
        }
        for (stack, times) in rec.stacks.iter().zip(times) {
            if times == [0; STATES.len()] {
                continue;
            }
            let mut path = Vec::new();
            if stack.frames.is_empty() {
                path.push(self.mark(&name::no_frames(stack.end)));
            } else if !stack.end.is_whole() {
                path.push(self.mark(&name::truncated(stack.end)));
            }
            let calls = stack.frames.iter().rev();
            path.extend(calls.flat_map(|f| frames[f.0 as usize].iter().rev()));
            self.put(path, side, times, unit);
        }
        let mut rest = [0; STATES.len()];
        for u in analysis.unsampled() {
            if let Some(state) = shown(o.view, u.state) {
                rest[state] += u.ns;
            }
        }
        if rest != [0; STATES.len()] {
            let mark = self.mark(NOT_SAMPLED);
            self.put(vec![mark], side, rest, unit);
        }
    }

    fn put(&mut self, path: Vec<u32>, side: usize, times: [u64; STATES.len()], unit: f64) {
        let sums = self.paths.entry(path).or_default();
        for (sum, ns) in sums[side].iter_mut().zip(times) {
            *sum += ns as f64 * unit;
        }
    }
}

fn shown(view: wallscope_model::View, state: State) -> Option<usize> {
    let state = STATES.iter().position(|s| *s == state)?;
    view.includes(STATES[state]).then_some(state)
}
