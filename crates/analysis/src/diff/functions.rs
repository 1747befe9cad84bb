//! Functions by number, and those to which the time of a stack is attributed.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::attribution::{self, Candidates};
use wallscope_model::{Frame, FrameKind, Line, Recording, name};

use super::options::Metric;
use crate::view::FunctionName;

/// Functions by number; a number means one function in all runs.
#[derive(Default)]
pub(super) struct Names {
    pub(super) all: Vec<FunctionName>,
    ids: FxHashMap<FunctionName, u32>,
}

impl Names {
    pub(super) fn id(&mut self, name: FunctionName) -> u32 {
        if let Some(id) = self.ids.get(&name) {
            return *id;
        }
        let id = self.all.len() as u32;
        self.all.push(name.clone());
        self.ids.insert(name, id);
        id
    }

    /// The functions of a frame, innermost first. A function without a name is named by its module, since
    /// addresses differ from build to build.
    pub(super) fn of_frame(&mut self, rec: &Recording, frame: &Frame) -> Vec<u32> {
        let module = frame.module.map(|m| &rec.modules[m.0 as usize]);
        let module: Arc<str> = Arc::from(module.map_or("", |m| m.name()));
        let name = |name: Arc<str>| FunctionName {
            name,
            module: module.clone(),
            kind: frame.kind,
        };
        let function = |l: &Line| &rec.functions[l.function.0 as usize];
        if frame.lines.iter().all(|l| function(l).is_unnamed()) {
            let nameless = match (frame.kind, &*module) {
                (FrameKind::Jit, _) | (_, "") => Arc::from("[no name]"),
                (_, module) => Arc::from(format!("[{module}, no name]")),
            };
            return vec![self.id(name(nameless))];
        }
        (frame.lines.iter())
            .map(|l| self.id(name(function(l).name.clone())))
            .collect()
    }

    fn mark(&mut self, text: String) -> u32 {
        self.id(FunctionName {
            name: Arc::from(text),
            module: Arc::from(""),
            kind: FrameKind::Native,
        })
    }
}

/// Functions to which the time of a recording's stacks is attributed.
pub(super) struct StackFunctions<'a> {
    rec: &'a Recording,
    names: &'a mut Names,
    metric: Metric,
    /// The functions of each frame, innermost first.
    frames: Vec<Vec<u32>>,
    /// The functions of each stack that was asked for.
    stacks: Vec<Option<Vec<u32>>>,
}

impl<'a> StackFunctions<'a> {
    pub(super) fn new(rec: &'a Recording, names: &'a mut Names, metric: Metric) -> Self {
        let frames = rec.frames.iter().map(|f| names.of_frame(rec, f)).collect();
        StackFunctions {
            rec,
            names,
            metric,
            frames,
            stacks: vec![None; rec.stacks.len()],
        }
    }

    /// The functions to which a stack's time is attributed.
    pub(super) fn of_stack(&mut self, stack: usize) -> &[u32] {
        if self.stacks[stack].is_none() {
            self.stacks[stack] = Some(self.attributed(stack));
        }
        self.known(stack)
    }

    /// The functions of a stack that was asked for before; else none.
    pub(super) fn known(&self, stack: usize) -> &[u32] {
        let known = self.stacks.get(stack).and_then(Option::as_deref);
        known.unwrap_or_default()
    }

    fn attributed(&mut self, stack: usize) -> Vec<u32> {
        let (rec, frames) = (self.rec, &self.frames);
        let stack = &rec.stacks[stack];
        let calls = || stack.frames.iter().flat_map(|f| &frames[f.0 as usize]);
        let Some(leaf) = calls().next() else {
            return vec![self.names.mark(name::no_frames(stack.end))];
        };
        match self.metric {
            Metric::Own => vec![*leaf],
            Metric::Total => {
                let mut all: Vec<u32> = calls().copied().collect();
                all.sort_unstable();
                all.dedup();
                all
            }
            Metric::Program => {
                let names = &self.names.all;
                let frame = |i: usize| &rec.frames[stack.frames[i].0 as usize];
                let at = attribution::attributed(rec, stack, Candidates::All, |(i, line)| {
                    attribution::origin(rec, frame(i), line)
                });
                let chosen =
                    at.map(|(i, line)| frames[stack.frames[i].0 as usize][line.unwrap_or(0)]);
                let kernel = |f: &u32| names[*f as usize].kind == FrameKind::Kernel;
                let works = || calls().find(|f| !name::is_scheduler(&names[**f as usize].name));
                let chosen = chosen.filter(|f| !kernel(f));
                vec![chosen.unwrap_or(*works().unwrap_or(leaf))]
            }
        }
    }
}
