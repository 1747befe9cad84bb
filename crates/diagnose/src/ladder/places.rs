//! The program's own function of a stack ([`wallscope_model::place`]), and what it called to wait.
//! Inlined functions count for the function they were inlined into where that is the program's, as it can
//! be probed.

use std::sync::Arc;

use wallscope_model::place::{self, Whose};
use wallscope_model::{Frame, FrameKind, Function, Recording, Stack, StackId};

/// Where a stack stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The program's own function.
    pub function: Arc<str>,
    /// The file that it lies in, empty where unknown.
    pub module: Arc<str>,
    /// What it called there; itself, where that is nothing with a name.
    pub through: Arc<str>,
    /// Whether the function is the program's own, not one of a library or the language.
    pub own: bool,
}

/// All functions of a stack, innermost first, with the kind of their frames.
pub(super) fn functions(
    recording: &Recording,
    stack: StackId,
) -> impl Iterator<Item = (FrameKind, &Arc<str>)> {
    let frames = &recording.stacks[stack.0 as usize].frames;
    frames.iter().flat_map(|id| {
        let frame = &recording.frames[id.0 as usize];
        let named = frame.lines.iter();
        named.map(|l| (frame.kind, &recording.functions[l.function.0 as usize].name))
    })
}

/// The functions of scripts on a stack, innermost first.
pub(super) fn scripts(recording: &Recording, stack: StackId) -> impl Iterator<Item = &Function> {
    let frames = &recording.stacks[stack.0 as usize].frames;
    (frames.iter().map(|id| &recording.frames[id.0 as usize]))
        .filter(|f| f.kind == FrameKind::Python)
        .flat_map(|f| f.lines.iter())
        .map(|l| &recording.functions[l.function.0 as usize])
}

/// Whether a function whose name begins with one of `names` is on the stack.
pub(super) fn passes(recording: &Recording, stack: StackId, kernel: bool, names: &[&str]) -> bool {
    functions(recording, stack)
        .filter(|(kind, _)| (*kind == FrameKind::Kernel) == kernel)
        .any(|(_, name)| names.iter().any(|n| name.starts_with(n)))
}

/// The program's own function of a stack, and what it called.
pub(crate) fn place(recording: &Recording, stack: &Stack) -> Place {
    let frame = |i: usize| &recording.frames[stack.frames[i].0 as usize];
    let whose = |(i, line): place::At| place::whose(recording, frame(i), line);
    let find = |inlined| place::place(recording, stack, inlined, whose);
    // One with an address if it can be, else one that was inlined into a library's.
    let own = find(false)
        .filter(|at| whose(*at) == Whose::Program)
        .or_else(|| find(true).filter(|at| whose(*at) == Whose::Program))
        .or_else(|| find(false));
    let nothing = || Arc::from(format!("[{}]", stack.end.name()));
    Place {
        own: own.is_some_and(|at| whose(at) == Whose::Program),
        function: own.map_or_else(nothing, |(i, line)| name(recording, frame(i), line)),
        module: own.and_then(|(i, _)| frame(i).module).map_or_else(
            || "".into(),
            |m| recording.modules[m.0 as usize].name().into(),
        ),
        through: (own
            .and_then(|at| place::called(recording, stack, at))
            .or(own))
        .map_or_else(nothing, |(i, line)| name(recording, frame(i), line)),
    }
}

/// The function at `line` of a frame, by its address where it has no name.
fn name(recording: &Recording, frame: &Frame, line: Option<usize>) -> Arc<str> {
    if let Some(line) = line {
        return recording.functions[frame.lines[line].function.0 as usize]
            .name
            .clone();
    }
    match frame.module.map(|m| &recording.modules[m.0 as usize]) {
        Some(module) => format!("{}+0x{:x}", module.name(), frame.address).into(),
        None => format!("[0x{:x}]", frame.address).into(),
    }
}
