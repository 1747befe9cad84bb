//! Names on a stack: the program's own function, the function that it called, scripts, kernel functions.
//!
//! [`wallscope_model::attribution`] decides which function of a stack is the program's own. An inlined function
//! counts for the function that contains it, if that one is the program's, because only that one can be probed.

use std::sync::Arc;

use wallscope_model::attribution::{self, Candidates, CodeOrigin};
use wallscope_model::{Frame, FrameKind, Function, Recording, StackId};

use crate::knowledge::{C_LIBRARY_FILES, Known, knows};

/// The place in a program that names a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeSite {
    /// The program's own function; `[…]` where the stack is empty.
    pub function: Arc<str>,
    /// File that the function lies in, empty where unknown.
    pub module: Arc<str>,
    /// Function that it called there; itself, where the callee has no name.
    pub callee: Arc<str>,
    /// Whether the function is the program's own, not one of a library or the language.
    pub own: bool,
}

/// Side of the boundary between a program and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Kernel functions.
    Kernel,
    /// Functions of the process.
    User,
}

impl Side {
    /// The side that a frame of this kind lies on.
    pub fn of(kind: FrameKind) -> Side {
        match kind {
            FrameKind::Kernel => Side::Kernel,
            _ => Side::User,
        }
    }
}

/// Frames of a stack, innermost first.
pub(crate) fn frames(recording: &Recording, stack: StackId) -> impl Iterator<Item = &Frame> {
    let ids = recording.stacks[stack.0 as usize].frames.iter();
    ids.map(|id| &recording.frames[id.0 as usize])
}

/// Indexes of all named functions of a stack, innermost first, with the side that they lie on.
pub(crate) fn function_indexes(
    recording: &Recording,
    stack: StackId,
) -> impl Iterator<Item = (Side, usize)> {
    frames(recording, stack).flat_map(|frame| {
        let lines = frame.lines.iter();
        lines.map(move |line| (Side::of(frame.kind), line.function.0 as usize))
    })
}

/// All named functions of a stack, innermost first, with the side that they lie on.
pub(crate) fn functions(
    recording: &Recording,
    stack: StackId,
) -> impl Iterator<Item = (Side, &Arc<str>)> {
    function_indexes(recording, stack)
        .map(|(side, function)| (side, &recording.functions[function].name))
}

/// Named functions of a stack on one side, innermost first.
pub(crate) fn functions_on(
    recording: &Recording,
    stack: StackId,
    side: Side,
) -> impl Iterator<Item = &str> {
    functions(recording, stack)
        .filter(move |(of, _)| *of == side)
        .map(|(_, name)| &**name)
}

/// Whether `table` knows a function of a stack on one side.
pub(crate) fn passes(
    recording: &Recording,
    stack: StackId,
    side: Side,
    table: &'static [Known],
) -> bool {
    functions_on(recording, stack, side).any(|name| knows(table, name))
}

/// Functions of Python scripts on a stack, innermost first.
pub(crate) fn scripts(recording: &Recording, stack: StackId) -> impl Iterator<Item = &Function> {
    frames(recording, stack)
        .filter(|frame| frame.kind == FrameKind::Python)
        .flat_map(|frame| frame.lines.iter())
        .map(|line| &recording.functions[line.function.0 as usize])
}

/// A script's function as the tables of [`crate::knowledge`] have it: `get (queue.py)`, without its
/// class and the folder of the language's library.
pub(crate) fn script_name(function: &Function) -> String {
    let name = function.name.rsplit('.').next().unwrap_or(&function.name);
    let library = function.file.split_once("/python3").map(|(_, rest)| rest);
    let file = match library.and_then(|rest| rest.split_once('/')) {
        Some((_, file)) => file,
        None => function.file.rsplit('/').next().unwrap_or(&function.file),
    };
    format!("{name} ({file})")
}

/// Whether a script's function belongs to Python's own library.
pub(crate) fn in_python_library(function: &Function) -> bool {
    function.file.contains("/python3")
}

/// File name of the C library, if a frame lies in it.
///
/// Without debug symbols, the library's internal functions are named by address
/// (`libc.so.6+0x8c840`).
pub(crate) fn in_c_library<'r>(recording: &'r Recording, frame: &Frame) -> Option<&'r str> {
    let module = &recording.modules[frame.module?.0 as usize];
    let file = module.path.rsplit('/').next().unwrap_or_default();
    knows(C_LIBRARY_FILES, file).then_some(file)
}

/// The program's own function of a stack, and the function that it called.
pub(crate) fn code_site(recording: &Recording, id: StackId) -> CodeSite {
    let stack = &recording.stacks[id.0 as usize];
    let frame = |i: usize| &recording.frames[stack.frames[i].0 as usize];
    let origin = |(i, line): attribution::At| attribution::origin(recording, frame(i), line);
    let find = |candidates| attribution::attributed(recording, stack, candidates, origin);
    let is_own = |at: &attribution::At| origin(*at) == CodeOrigin::Program;
    // A function with an address if there is one, else one that was inlined into a library's.
    let site = find(Candidates::Addressable)
        .filter(is_own)
        .or_else(|| find(Candidates::All).filter(is_own))
        .or_else(|| find(Candidates::Addressable));
    let nothing = || Arc::from(format!("[{}]", stack.end.name()));
    let named = |at: Option<attribution::At>| {
        at.map_or_else(nothing, |(i, line)| name(recording, frame(i), line))
    };
    let module = site.and_then(|(i, _)| frame(i).module);
    CodeSite {
        own: site.is_some_and(|at| is_own(&at)),
        function: named(site),
        module: module.map_or_else(
            || "".into(),
            |m| recording.modules[m.0 as usize].name().into(),
        ),
        callee: named(
            site.and_then(|at| attribution::called(recording, stack, at))
                .or(site),
        ),
    }
}

/// The code sites of all stacks of a recording.
pub(crate) struct CodeSites(Vec<CodeSite>);

impl CodeSites {
    /// Finds all of them.
    pub fn new(recording: &Recording) -> CodeSites {
        let stacks = 0..recording.stacks.len() as u32;
        CodeSites(stacks.map(|i| code_site(recording, StackId(i))).collect())
    }

    /// That of a stack.
    pub fn of(&self, stack: StackId) -> &CodeSite {
        &self.0[stack.0 as usize]
    }
}

/// Names that many functions of a script have.
const NAMELESS: &[&str] = &["(anonymous)", "<lambda>", "<module>"];

/// A function's name, with file and line where the name alone tells nothing.
fn with_place(function: &Function, line: u32) -> Arc<str> {
    let last = function.name.rsplit('.').next().unwrap_or_default();
    if function.file.is_empty() || !NAMELESS.contains(&last) {
        return function.name.clone();
    }
    let file = function.file.rsplit('/').next().unwrap_or(&function.file);
    let line = match function.start_line {
        0 => line,
        start => start,
    };
    format!("{} ({file}:{line})", function.name).into()
}

/// A function's name as the recording has it: the name in a verdict, without the place.
pub fn recorded_name(function: &str) -> &str {
    let of_place = |name: &&&str| function.contains(&format!("{name} ("));
    match NAMELESS.iter().find(of_place) {
        Some(_) => function
            .rsplit_once(" (")
            .map_or(function, |(name, _)| name),
        None => function,
    }
}

/// The function at `line` of a frame, named by its address where it has no name.
fn name(recording: &Recording, frame: &Frame, line: Option<usize>) -> Arc<str> {
    if let Some(line) = line {
        let function = &recording.functions[frame.lines[line].function.0 as usize];
        return with_place(function, frame.lines[line].line);
    }
    match frame.module.map(|m| &recording.modules[m.0 as usize]) {
        Some(module) => format!("{}+0x{:x}", module.name(), frame.address).into(),
        None => format!("[0x{:x}]", frame.address).into(),
    }
}
