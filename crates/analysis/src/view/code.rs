//! Names of frames: functions numbered once, inlined ones like any other.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::attribution::{self, Candidates, CodeOrigin};
use wallscope_model::{FrameId, FrameKind, Recording, Stack};

use wallscope_model::name;

/// A function as views know it: equal names in the same file are the same function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FunctionName {
    /// Demangled name, `module+0x…` or a name in brackets.
    pub name: Arc<str>,
    /// The module's last path component; empty where there is none.
    pub module: Arc<str>,
    /// Kind of its code.
    pub kind: FrameKind,
}

/// One function of a frame.
#[derive(Clone, Copy)]
pub(super) struct Call {
    /// Index into [`Code::functions`].
    pub function: u32,
    /// Source line, 0 where unknown.
    pub line: u32,
    /// Whether it is inlined into the next one.
    pub inlined: bool,
    /// Origin of its code.
    pub origin: CodeOrigin,
}

/// The functions of a recording, and those of each frame.
pub(super) struct Code {
    pub functions: Vec<FunctionName>,
    calls: Vec<Call>,
    /// Where each frame's calls end in `calls`.
    ends: Vec<u32>,
    ids: HashMap<FunctionName, u32>,
}

impl Code {
    pub(super) fn new(rec: &Recording) -> Code {
        let mut code = Code {
            functions: Vec::new(),
            calls: Vec::new(),
            ends: Vec::with_capacity(rec.frames.len()),
            ids: HashMap::new(),
        };
        let none: Arc<str> = Arc::from("");
        let modules: Vec<Arc<str>> = rec.modules.iter().map(|m| Arc::from(m.name())).collect();
        for frame in &rec.frames {
            let module = frame.module.map_or(&none, |m| &modules[m.0 as usize]);
            if frame.lines.is_empty() {
                let function = code.id(FunctionName {
                    name: Arc::from(name::address(rec, frame)),
                    module: module.clone(),
                    kind: frame.kind,
                });
                code.calls.push(Call {
                    function,
                    line: 0,
                    inlined: false,
                    origin: attribution::origin(rec, frame, None),
                });
            }
            for (i, line) in frame.lines.iter().enumerate() {
                let function = code.id(FunctionName {
                    name: rec.functions[line.function.0 as usize].name.clone(),
                    module: module.clone(),
                    kind: frame.kind,
                });
                code.calls.push(Call {
                    function,
                    line: line.line,
                    inlined: i + 1 < frame.lines.len(),
                    origin: attribution::origin(rec, frame, Some(i)),
                });
            }
            code.ends.push(code.calls.len() as u32);
        }
        code
    }

    fn id(&mut self, name: FunctionName) -> u32 {
        if let Some(id) = self.ids.get(&name) {
            return *id;
        }
        let id = self.functions.len() as u32;
        self.functions.push(name.clone());
        self.ids.insert(name, id);
        id
    }

    /// The functions of a frame, innermost first.
    pub(super) fn calls(&self, frame: FrameId) -> &[Call] {
        let i = frame.0 as usize;
        let from = if i == 0 { 0 } else { self.ends[i - 1] };
        &self.calls[from as usize..self.ends[i] as usize]
    }

    /// The function that names a stack ([`attribution::attributed`]); for kernel stacks, the innermost one that does
    /// more than give up the CPU.
    pub(super) fn place(&self, rec: &Recording, stack: &Stack) -> Option<u32> {
        let call = |(i, line): attribution::At| self.calls(stack.frames[i])[line.unwrap_or(0)];
        let chosen = call(attribution::attributed(
            rec,
            stack,
            Candidates::All,
            |at| call(at).origin,
        )?);
        if chosen.origin < CodeOrigin::Kernel {
            return Some(chosen.function);
        }
        let mut calls = stack.frames.iter().flat_map(|f| self.calls(*f));
        let works = |c: &&Call| !name::is_scheduler(&self.functions[c.function as usize].name);
        Some(calls.find(works).map_or(chosen.function, |c| c.function))
    }

    /// The function that [`Code::place`]'s function called to wait ([`attribution::called`]).
    pub(super) fn through(&self, rec: &Recording, stack: &Stack) -> Option<u32> {
        let call = |(i, line): attribution::At| self.calls(stack.frames[i])[line.unwrap_or(0)];
        let at = attribution::attributed(rec, stack, Candidates::All, |at| call(at).origin)?;
        Some(call(attribution::called(rec, stack, at)?).function)
    }
}
