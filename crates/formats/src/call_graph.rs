//! Functions and the calls between them → stacks.
//!
//! Profiles by instrumentation (callgrind, gprof, Python's) have each function's own cost and the
//! total cost of each call, but no whole stacks. Here the cost of a function is divided among the
//! stacks that lead to it, in proportion to the cost of the calls along each stack. Own costs come
//! out exactly. A path is followed until its share is below [`MIN_SHARE`]. Recursion ends a path, and
//! the cost stays at the function that closes the cycle.

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, FrameId, FrameKind, ModuleKind, StackEnd, State};

use super::ReadError;
use super::import::{Amount, Called, Import, SampleTime};

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub name: String,
    /// Path of its module, empty where unknown.
    pub module: String,
    /// Its source file, empty where unknown.
    pub file: String,
    /// The line it begins at, 0 where unknown.
    pub line: u32,
    /// Its kind of code. [`FrameKind::Native`] becomes the kernel's where the module is.
    pub kind: FrameKind,
}

#[derive(Default)]
struct Edge {
    calls: u64,
    cost: u64,
}

/// Functions, their own costs, and the calls between them.
#[derive(Default)]
pub(super) struct CallGraph {
    nodes: Vec<Node>,
    ids: FxHashMap<Node, u32>,
    own: Vec<u64>,
    calls_of: Vec<u64>,
    edges: FxHashMap<(u32, u32), Edge>,
    room: u64,
    limit: u64,
}

/// Minimum share of all cost for which a path is followed further.
const MIN_SHARE: f64 = 1e-6;
/// Maximum functions of a path.
const MAX_DEPTH: usize = 512;
/// Maximum stacks that are made.
const MAX_STACKS: usize = 200_000;

impl CallGraph {
    /// An empty graph that may take `memory` bytes.
    pub(super) fn new(memory: u64) -> CallGraph {
        CallGraph {
            room: memory,
            limit: memory,
            ..CallGraph::default()
        }
    }

    /// The function's number.
    pub(super) fn node(&mut self, node: Node) -> Result<u32, ReadError> {
        if let Some(id) = self.ids.get(&node) {
            return Ok(*id);
        }
        let size = 2 * (node.name.len() + node.file.len() + node.module.len()) + 512;
        self.room = self
            .room
            .checked_sub(size as u64)
            .ok_or(ReadError::TooLarge {
                what: "what it describes needs more memory",
                limit_mib: self.limit >> 20,
            })?;
        let id = self.nodes.len() as u32;
        self.ids.insert(node.clone(), id);
        self.nodes.push(node);
        self.own.push(0);
        self.calls_of.push(0);
        Ok(id)
    }

    /// Cost of the function itself.
    pub(super) fn own(&mut self, of: u32, cost: u64) {
        let to = &mut self.own[of as usize];
        *to = to.saturating_add(cost);
    }

    /// Adds the number of calls of a function, for files in which calls between pairs do not give it.
    pub(super) fn called(&mut self, of: u32, calls: u64) {
        self.calls_of[of as usize] = calls;
    }

    /// Calls from one function to another, and their cost in all.
    pub(super) fn call(&mut self, from: u32, to: u32, calls: u64, cost: u64) {
        let e = self.edges.entry((from, to)).or_default();
        e.calls = e.calls.saturating_add(calls);
        e.cost = e.cost.saturating_add(cost);
    }

    /// Gives the stacks to `to`; returns notes about them.
    pub(super) fn stacks(&self, to: &mut Import) -> Result<Vec<String>, ReadError> {
        let n = self.nodes.len();
        let context = to.thread(0, 0, "", "")?;
        let mut frames = Vec::with_capacity(n);
        for node in &self.nodes {
            let kind = Import::module_kind(&node.module);
            let module = match node.module.as_str() {
                "" => None,
                path => Some(to.module(kind, path, "", 0)?),
            };
            let kind = match (node.kind, kind) {
                (FrameKind::Native, ModuleKind::Kernel) if module.is_some() => FrameKind::Kernel,
                (own, _) => own,
            };
            frames.push(to.named(
                kind,
                Called {
                    module,
                    name: &node.name,
                    file: &node.file,
                    line: node.line,
                },
            )?);
        }
        let mut callees: Vec<Vec<(u32, u64)>> = vec![Vec::new(); n];
        let mut incoming = vec![0u64; n];
        let mut calls = self.calls_of.clone();
        for ((from, callee), e) in &self.edges {
            if from != callee {
                callees[*from as usize].push((*callee, e.cost));
                incoming[*callee as usize] = incoming[*callee as usize].saturating_add(e.cost);
            }
            if self.calls_of[*callee as usize] == 0 {
                let c = &mut calls[*callee as usize];
                *c = c.saturating_add(e.calls);
            }
        }
        for list in &mut callees {
            list.sort_unstable_by_key(|(to, cost)| (std::cmp::Reverse(*cost), *to));
        }
        let total: f64 = self.own.iter().map(|v| *v as f64).sum();
        let inclusive = |f: u32| -> f64 {
            let below: f64 = callees[f as usize].iter().map(|(_, c)| *c as f64).sum();
            self.own[f as usize] as f64 + below
        };
        let mut walk = Walk {
            graph: self,
            callees: &callees,
            frames: &frames,
            total,
            given: vec![0; n],
            deepest: vec![Vec::new(); n],
            context,
            calls: &calls,
            made: 0,
        };
        // Cost that no caller accounts for begins at the function itself.
        let mut roots: Vec<(u32, f64)> = (0..n as u32)
            .map(|f| (f, (inclusive(f) - incoming[f as usize] as f64).max(0.0)))
            .filter(|(_, cost)| *cost > total * MIN_SHARE)
            .collect();
        roots.sort_by(|a, b| b.1.total_cmp(&a.1));
        for (root, cost) in roots {
            let share = (cost / inclusive(root).max(1.0)).min(1.0);
            walk.from(root, share, to)?;
        }
        walk.rest(to)?;
        Ok(vec![format!(
            "{} functions, {} calls between pairs of them",
            n,
            self.edges.len()
        )])
    }
}

struct Walk<'a> {
    graph: &'a CallGraph,
    callees: &'a [Vec<(u32, u64)>],
    frames: &'a [FrameId],
    total: f64,
    /// Own cost that was given to stacks.
    given: Vec<u64>,
    /// The stack with most of a function's cost.
    deepest: Vec<Vec<u32>>,
    context: ContextId,
    calls: &'a [u64],
    made: usize,
}

impl Walk<'_> {
    /// Divides `share` of the cost under `root` among stacks.
    fn from(&mut self, root: u32, share: f64, to: &mut Import) -> Result<(), ReadError> {
        // An explicit stack: (function, share of its inclusive cost, depth).
        let mut work = vec![(root, share, 0usize)];
        let mut path: Vec<u32> = Vec::new();
        while let Some((f, share, depth)) = work.pop() {
            path.truncate(depth);
            path.push(f);
            let own = self.graph.own[f as usize];
            let value = (own as f64 * share).round() as u64;
            let value = value.min(own - self.given[f as usize]);
            if self.deepest[f as usize].is_empty() {
                self.deepest[f as usize] = path.clone();
            }
            if value > 0 {
                self.give(f, &path.clone(), value, to)?;
            }
            if depth + 1 >= MAX_DEPTH || self.made > MAX_STACKS {
                continue;
            }
            for (callee, cost) in self.callees[f as usize].iter().rev() {
                if path.contains(callee) || *cost as f64 * share < self.total * MIN_SHARE {
                    continue;
                }
                // The callee's own inclusive cost may differ from the sum over its callers.
                let whole: f64 = self.graph.own[*callee as usize] as f64
                    + self.callees[*callee as usize]
                        .iter()
                        .map(|(_, c)| *c as f64)
                        .sum::<f64>();
                let part = (*cost as f64 * share / whole.max(1.0)).min(1.0);
                work.push((*callee, part, depth + 1));
            }
        }
        Ok(())
    }

    fn give(&mut self, f: u32, path: &[u32], value: u64, to: &mut Import) -> Result<(), ReadError> {
        // The number of calls belongs to the function, and is counted with the first stack that gets its cost.
        let count = match self.given[f as usize] {
            0 => self.calls[f as usize].max(1),
            _ => 0,
        };
        self.given[f as usize] += value;
        self.made += 1;
        let frames: Vec<FrameId> = path
            .iter()
            .rev()
            .map(|n| self.frames[*n as usize])
            .collect();
        let stack = to.stack(&frames, StackEnd::Root)?;
        let kind = SampleTime::of(State::Unknown);
        to.sample(self.context, stack, kind, Amount::new((count, value), None))
    }

    /// Gives the remainder from rounding and short paths to the first path of each function.
    fn rest(&mut self, to: &mut Import) -> Result<(), ReadError> {
        for f in 0..self.graph.nodes.len() as u32 {
            let left = self.graph.own[f as usize] - self.given[f as usize];
            if left > 0 {
                let path = match self.deepest[f as usize].clone() {
                    path if path.is_empty() => vec![f],
                    path => path,
                };
                self.give(f, &path, left, to)?;
            }
        }
        Ok(())
    }
}
