//! Files, functions, addresses, stacks and labels: equal ones become one.
//!
//! Windows of one recorder share names, too: an address without a name in one window has the name that another window
//! has for it.

use std::collections::HashMap;
use std::hash::Hash;

use crate::{
    Frame, FrameId, FrameKind, Function, FunctionId, Label, LabelsId, Line, Module, ModuleId,
    ModuleKind, Recording, Stack, StackId,
};

/// The index of the merged recording's values.
#[derive(Default)]
pub(super) struct Code {
    modules: HashMap<Module, u32>,
    functions: HashMap<Function, u32>,
    frames: HashMap<Frame, u32>,
    /// Frames by the place of their code; `None`: names are not shared.
    places: Option<HashMap<CodePlace, u32>>,
    stacks: HashMap<Stack, u32>,
    label_sets: HashMap<Vec<Label>, u32>,
}

/// A place that holds the same code in all windows: a file with a build id (`None`: the kernel) and an address.
type CodePlace = (FrameKind, Option<ModuleId>, u64);

/// The place of a frame's code. Code made at run time, and files that may have been replaced, have none.
fn code_place(frame: &Frame, modules: &[Module]) -> Option<CodePlace> {
    let module = match frame.kind {
        FrameKind::Kernel => None,
        FrameKind::Native => {
            let id = frame.module?;
            let module = &modules[id.0 as usize];
            if module.kind != ModuleKind::Elf || module.build_id.is_empty() {
                return None;
            }
            Some(id)
        }
        _ => return None,
    };
    Some((frame.kind, module, frame.address))
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
    /// Code of windows of one recorder: they share names.
    pub(super) fn of_windows() -> Code {
        Code {
            places: Some(HashMap::new()),
            ..Code::default()
        }
    }

    /// The number of `frame`. One without names is the frame of its place that has some, whichever comes first.
    fn frame(&mut self, out: &mut Recording, frame: Frame) -> u32 {
        let place_of = code_place(&frame, &out.modules);
        let Some((places, code)) = self.places.as_mut().zip(place_of) else {
            return place(&mut out.frames, &mut self.frames, frame);
        };
        if let Some(known) = places.get(&code) {
            let at = &mut out.frames[*known as usize];
            if frame.lines.is_empty() {
                return *known;
            }
            if at.lines.is_empty() {
                self.frames.insert(frame.clone(), *known);
                *at = frame;
                return *known;
            }
        }
        let number = place(&mut out.frames, &mut self.frames, frame);
        places.entry(code).or_insert(number);
        number
    }

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
            .map(|f| self.frame(out, f))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::{Merger, merge};

    /// A recording with one stack of one frame, in `module`; `name`: of its function.
    fn recording(module: &Module, name: Option<&str>) -> Recording {
        let function = |name: &str| Function {
            name: name.into(),
            system_name: name.into(),
            file: "".into(),
            start_line: 0,
        };
        let line = Line {
            function: FunctionId(0),
            line: 7,
        };
        Recording {
            modules: vec![module.clone()],
            functions: name.map(function).into_iter().collect(),
            frames: vec![Frame {
                kind: FrameKind::Native,
                module: Some(ModuleId(0)),
                address: 0x1234,
                lines: name.map(|_| line).into_iter().collect(),
            }],
            stacks: vec![Stack {
                frames: vec![FrameId(0)],
                end: crate::StackEnd::Root,
            }],
            ..Recording::default()
        }
    }

    fn module(kind: ModuleKind, build_id: &str) -> Module {
        Module {
            kind,
            path: "/bin/program".into(),
            build_id: build_id.into(),
            pid: 0,
        }
    }

    /// Names of the frames of the merged windows, and the number of their stacks.
    fn merged(module: &Module, names: &[Option<&str>]) -> (Vec<String>, usize) {
        let mut merger = Merger::windows();
        for name in names {
            merger.add(&recording(module, *name)).unwrap();
        }
        of(&merger.finish().unwrap())
    }

    fn of(recording: &Recording) -> (Vec<String>, usize) {
        let name = |f: &Frame| match f.lines.first() {
            Some(line) => recording.functions[line.function.0 as usize]
                .name
                .to_string(),
            None => String::new(),
        };
        let names = recording.frames.iter().map(name).collect();
        (names, recording.stacks.len())
    }

    #[test]
    fn a_window_without_names_has_those_of_another() {
        let program = module(ModuleKind::Elf, "ab12");
        let named = (vec!["work".to_string()], 1);
        assert_eq!(merged(&program, &[None, Some("work"), None]), named);
        assert_eq!(merged(&program, &[Some("work"), None]), named);
    }

    #[test]
    fn names_of_other_code_are_not_shared() {
        let apart = (vec![String::new(), "work".to_string()], 2);
        // The file may have been replaced, and code made at run time changes.
        for module in [module(ModuleKind::Elf, ""), module(ModuleKind::Jit, "ab12")] {
            assert_eq!(merged(&module, &[None, Some("work")]), apart);
        }
        // Recordings of two machines.
        let program = module(ModuleKind::Elf, "ab12");
        let two = [None, Some("work")].map(|name| recording(&program, name));
        assert_eq!(of(&merge(&two).unwrap()), apart);
    }
}
