//! Stacks: frames, their modules and functions, and the end of each stack.

use std::sync::Arc;

/// Index into [`crate::Recording::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);
/// Index into [`crate::Recording::stacks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);
/// Index into [`crate::Recording::modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModuleId(pub u32);
/// Index into [`crate::Recording::functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionId(pub u32);

/// Kind of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModuleKind {
    /// An executable or shared object.
    Elf,
    /// The kernel and its modules.
    Kernel,
    /// The vDSO.
    Vdso,
    /// Run-time code (anonymous executable memory); one module a process.
    Jit,
    /// A source file that a runtime runs without compiling it to machine code; `[java]` for all
    /// Java methods, which come from class files, and `[javascript]` for all V8 functions.
    Source,
}

/// A file (or pseudo file) that code was mapped from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its kind.
    pub kind: ModuleKind,
    /// Path as the target saw it; `[kernel]`, `[vdso]` or `[jit]` for modules without a file.
    pub path: Arc<str>,
    /// GNU build id in lower-case hex; empty if there is none.
    pub build_id: Arc<str>,
    /// For [`ModuleKind::Jit`]: the process that the code belongs to. Otherwise 0.
    pub pid: u32,
}

impl Module {
    /// The last component of the path, by which the module is known.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Kind of a frame's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Native user code.
    Native,
    /// Kernel code; `_[k]` in folded output.
    Kernel,
    /// Run-time code, named by a perf map or not at all; `_[j]`.
    Jit,
    /// A Python function, read from its interpreter.
    Python,
    /// A PHP function, read from its engine; also one written in C.
    Php,
    /// A Ruby method or block, read from its interpreter; also a method written in C.
    Ruby,
    /// A Java method, interpreted or compiled, read from its VM.
    Java,
    /// A JavaScript function, interpreted or compiled, read from V8's heap.
    JavaScript,
}

impl FrameKind {
    /// Whether the frame is a function of a managed language, read from its runtime.
    pub fn is_managed(self) -> bool {
        match self {
            FrameKind::Native | FrameKind::Kernel | FrameKind::Jit => false,
            FrameKind::Python
            | FrameKind::Php
            | FrameKind::Ruby
            | FrameKind::Java
            | FrameKind::JavaScript => true,
        }
    }

    /// Suffix of the frame's function in folded output.
    pub fn suffix(self) -> &'static str {
        match self {
            FrameKind::Kernel => "_[k]",
            FrameKind::Jit => "_[j]",
            _ => "",
        }
    }

    /// Suffix in folded output of a function that was inlined into the frame's.
    pub fn inlined_suffix(self) -> &'static str {
        match self {
            FrameKind::Native => "_[i]",
            _ => self.suffix(),
        }
    }
}

/// A function, as named by symbols or debug information.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    /// Demangled name.
    pub name: Arc<str>,
    /// The name in the symbol table (may be mangled).
    pub system_name: Arc<str>,
    /// Source file; empty: unknown.
    pub file: Arc<str>,
    /// Line of its declaration; 0: unknown.
    pub start_line: u32,
}

impl Function {
    /// Whether it has no name and is called after its start: `module+0x1f3a`.
    pub fn is_unnamed(&self) -> bool {
        let hex = |t: &str| !t.is_empty() && t.bytes().all(|b| b.is_ascii_hexdigit());
        self.system_name.is_empty()
            && (self.name.rsplit_once("+0x")).is_some_and(|(m, at)| !m.is_empty() && hex(at))
    }
}

/// A function at one line of the source. By inlining, one address may have several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Line {
    /// The function.
    pub function: FunctionId,
    /// Source line; 0: unknown.
    pub line: u32,
}

/// A code address, as a stack refers to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Kind of its code.
    pub kind: FrameKind,
    /// The file that contains it, if known.
    pub module: Option<ModuleId>,
    /// For [`ModuleKind::Elf`] and [`ModuleKind::Vdso`]: the offset in the file. For
    /// [`ModuleKind::Source`]: the line. Otherwise, or without a module: the virtual address. An
    /// unnamed Python frame has that of its code object, an unnamed Java frame that of its code or
    /// method.
    ///
    /// A return address is stored *minus one*, so that it lies within the call instruction. The
    /// innermost frame and one that a signal interrupted have their exact address.
    pub address: u64,
    /// Functions at this address, innermost (inlined) first. Empty: not resolved.
    pub lines: Vec<Line>,
}

/// Reason why the user part of a stack ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEnd {
    /// It reached the thread's entry point.
    Root,
    /// There is no user part: a kernel thread, or a context without an address space.
    KernelOnly,
    /// It has more frames than the unwinder follows.
    MaxFrames,
    /// A return address lies in no mapping known at that time.
    NoMapping,
    /// The mapping was too new: its unwind table was not loaded yet.
    TableNotLoaded,
    /// The code has no unwind information at that address.
    NoUnwindInfo,
    /// The unwind information uses a rule that cannot be followed.
    BadRule,
    /// The stack memory could not be read (paged out, or not mapped).
    Unreadable,
    /// The frame lies outside the part of the stack that was saved at switch-out.
    WindowEnd,
    /// The frame made no progress (corrupt or hostile stack).
    NoProgress,
    /// The address space was gone (exit or exec) before the stack could be read.
    Gone,
    /// The stack was lost on the way to user space.
    Lost,
    /// There is no stack: the time is known, but may not be sampled. It is shown as time without
    /// any sample ([`crate::scale::NOT_SAMPLED`]).
    NotSampled,
}

impl StackEnd {
    /// Every value.
    pub const ALL: &'static [StackEnd] = &[
        StackEnd::Root,
        StackEnd::KernelOnly,
        StackEnd::MaxFrames,
        StackEnd::NoMapping,
        StackEnd::TableNotLoaded,
        StackEnd::NoUnwindInfo,
        StackEnd::BadRule,
        StackEnd::Unreadable,
        StackEnd::WindowEnd,
        StackEnd::NoProgress,
        StackEnd::Gone,
        StackEnd::Lost,
        StackEnd::NotSampled,
    ];

    /// Whether nothing is missing from the stack.
    pub fn is_whole(self) -> bool {
        matches!(
            self,
            StackEnd::Root | StackEnd::KernelOnly | StackEnd::NotSampled
        )
    }

    /// The name after `truncated:` in folded output, and in losses.
    pub fn name(self) -> &'static str {
        match self {
            StackEnd::Root => "root",
            StackEnd::KernelOnly => "kernel_only",
            StackEnd::MaxFrames => "max_frames",
            StackEnd::NoMapping => "no_mapping",
            StackEnd::TableNotLoaded => "table_not_loaded",
            StackEnd::NoUnwindInfo => "no_unwind_info",
            StackEnd::BadRule => "bad_rule",
            StackEnd::Unreadable => "unreadable",
            StackEnd::WindowEnd => "window_end",
            StackEnd::NoProgress => "no_progress",
            StackEnd::Gone => "gone",
            StackEnd::Lost => "lost",
            StackEnd::NotSampled => "not_sampled",
        }
    }

    /// The value named `name`.
    pub fn from_name(name: &str) -> Option<StackEnd> {
        StackEnd::ALL.iter().copied().find(|e| e.name() == name)
    }
}

/// A call stack, kernel and user part joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    /// Frames, leaf (innermost) first: kernel frames, then user frames.
    pub frames: Vec<FrameId>,
    /// Reason why the user part ended.
    pub end: StackEnd,
}
