//! Files, functions, addresses, stacks and labels: equal ones become one.

use std::collections::HashMap;
use std::hash::Hash;

use crate::{
    Frame, FrameId, Function, FunctionId, Label, LabelsId, Line, Module, ModuleId, Recording,
    Stack, StackId,
};

/// The index of the merged recording's values.
#[derive(Default)]
pub(super) struct Code {
    modules: HashMap<Module, u32>,
    functions: HashMap<Function, u32>,
    frames: HashMap<Frame, u32>,
    stacks: HashMap<Stack, u32>,
    label_sets: HashMap<Vec<Label>, u32>,
}

/// Numbers of one recording's stacks and labels in the merged one.
pub(super) struct CodeMap {
    stacks: Vec<u32>,
    label_sets: Vec<u32>,
}

impl CodeMap {
    pub(super) fn stack(&self, id: StackId) -> StackId {
        StackId(self.stacks[id.0 as usize])
    }

    pub(super) fn labels(&self, id: Option<LabelsId>) -> Option<LabelsId> {
        id.map(|l| LabelsId(self.label_sets[l.0 as usize]))
    }
}

/// The number of `value` in `list`, where it is added if it is new.
pub(super) fn place<T: Clone + Eq + Hash>(
    list: &mut Vec<T>,
    index: &mut HashMap<T, u32>,
    value: T,
) -> u32 {
    let next = list.len() as u32;
    *index.entry(value).or_insert_with_key(|v| {
        list.push(v.clone());
        next
    })
}

impl Code {
    /// Adds the code and labels of `rec`.
    pub(super) fn add(&mut self, out: &mut Recording, rec: &Recording) -> CodeMap {
        let modules: Vec<u32> = (rec.modules.iter().cloned())
            .map(|m| place(&mut out.modules, &mut self.modules, m))
            .collect();
        let functions: Vec<u32> = (rec.functions.iter().cloned())
            .map(|f| place(&mut out.functions, &mut self.functions, f))
            .collect();
        let line = |l: &Line| Line {
            function: FunctionId(functions[l.function.0 as usize]),
            line: l.line,
        };
        let frames: Vec<u32> = (rec.frames.iter())
            .map(|f| Frame {
                kind: f.kind,
                module: f.module.map(|m| ModuleId(modules[m.0 as usize])),
                address: f.address,
                lines: f.lines.iter().map(line).collect(),
            })
            .map(|f| place(&mut out.frames, &mut self.frames, f))
            .collect();
        let frame = |f: &FrameId| FrameId(frames[f.0 as usize]);
        let stacks = (rec.stacks.iter())
            .map(|s| Stack {
                frames: s.frames.iter().map(frame).collect(),
                end: s.end,
            })
            .map(|s| place(&mut out.stacks, &mut self.stacks, s))
            .collect();
        let label_sets = (rec.label_sets.iter().cloned())
            .map(|set| place(&mut out.label_sets, &mut self.label_sets, set))
            .collect();
        CodeMap { stacks, label_sets }
    }
}
