//! Where in the program a stack stands: the program's own function, and how it came into the kernel.
//!
//! The innermost frame of a blocked stack is always the same few functions of libc. What a person
//! can act on is the innermost frame of the program itself: the first one towards the root that is
//! neither kernel nor a system library nor the language's standard library; where a script runs, the
//! script's. Inlined functions count for the function they were inlined into.

use std::sync::Arc;

use wallscope_model::{Frame, FrameKind, Function, ModuleKind, Recording, Stack, StackId};

/// Folders of system libraries.
const SYSTEM: [&str; 4] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];
/// How names of the languages' standard libraries begin, after `<` and `&` are passed over.
const STANDARD: [&str; 9] = [
    "std::",
    "core::",
    "alloc::",
    "__gnu_cxx::",
    "__cxxabiv1::",
    "__rust_",
    "__libc_",
    "_start",
    "hashbrown::",
];

/// System calls and the C library's ways to them: in a statically linked program they lie in the
/// program's own file.
const WAYS_TO_THE_KERNEL: [&str; 10] = [
    "__syscall",
    "syscall",
    "__futex",
    "futex",
    "pthread_",
    "__pthread_",
    "__GI_",
    "__lll_",
    "__internal_syscall",
    "__timedwait",
];
const CALLS: [&str; 30] = [
    "read",
    "write",
    "pread",
    "pwrite",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendto",
    "sendmsg",
    "accept",
    "accept4",
    "connect",
    "poll",
    "ppoll",
    "select",
    "epoll_wait",
    "epoll_pwait",
    "nanosleep",
    "clock_nanosleep",
    "usleep",
    "sleep",
    "fsync",
    "fdatasync",
    "wait4",
    "waitpid",
];

/// Where a stack stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The program's own function.
    pub function: Arc<str>,
    /// The file that it lies in, empty where unknown.
    pub module: Arc<str>,
    /// The innermost user function.
    pub through: Arc<str>,
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

/// The program's own function of a stack, and the innermost user function.
pub(crate) fn place(recording: &Recording, stack: &Stack) -> Place {
    let frames = || {
        stack
            .frames
            .iter()
            .map(|id| &recording.frames[id.0 as usize])
    };
    let user = || frames().filter(|f| f.kind != FrameKind::Kernel);
    let innermost = user().next().or_else(|| frames().next());
    let scripts = || {
        user().filter(|f| {
            matches!(
                f.kind,
                FrameKind::Python | FrameKind::Java | FrameKind::JavaScript
            )
        })
    };
    // No library below it: the program holds its own ways to the kernel.
    let alone = innermost.is_some_and(|f| f.kind != FrameKind::Kernel && in_program(recording, f));
    let own = scripts()
        .find(|f| is_own(recording, f))
        .or_else(|| scripts().next())
        .or_else(|| {
            user().find(|f| is_own(recording, f) && !(alone && leads_to_kernel(recording, f)))
        })
        .or(innermost);
    let nothing = || Arc::from(format!("[{}]", stack.end.name()));
    Place {
        function: own.map_or_else(nothing, |f| name(recording, f)),
        module: own.and_then(|f| f.module).map_or_else(
            || "".into(),
            |m| recording.modules[m.0 as usize].name().into(),
        ),
        through: innermost.map_or_else(nothing, |f| name(recording, f)),
    }
}

/// The function that a frame's code was compiled for; those inlined into it count for it.
fn name(recording: &Recording, frame: &Frame) -> Arc<str> {
    if let Some(line) = frame.lines.last() {
        return recording.functions[line.function.0 as usize].name.clone();
    }
    match frame.module.map(|m| &recording.modules[m.0 as usize]) {
        Some(module) => format!("{}+0x{:x}", module.name(), frame.address).into(),
        None => format!("[0x{:x}]", frame.address).into(),
    }
}

/// Whether a frame's code is no system library's.
fn in_program(recording: &Recording, frame: &Frame) -> bool {
    let Some(module) = frame.module.map(|m| &recording.modules[m.0 as usize]) else {
        return frame.kind == FrameKind::Jit;
    };
    match module.kind {
        ModuleKind::Jit => true,
        ModuleKind::Source if frame.kind == FrameKind::Java => {
            !is_java_standard(&name(recording, frame))
        }
        // What Node.js brings along.
        ModuleKind::Source if frame.kind == FrameKind::JavaScript => {
            !(frame.lines.iter()).all(|l| {
                recording.functions[l.function.0 as usize]
                    .file
                    .starts_with("node:")
            })
        }
        ModuleKind::Source => !is_python_standard(&module.path),
        ModuleKind::Elf => {
            !(module.name().contains(".so") && SYSTEM.iter().any(|s| module.path.starts_with(s)))
        }
        ModuleKind::Kernel | ModuleKind::Vdso => false,
    }
}

fn leads_to_kernel(recording: &Recording, frame: &Frame) -> bool {
    frame.lines.last().is_some_and(|line| {
        let name = &*recording.functions[line.function.0 as usize].name;
        let bare = name.trim_start_matches("__libc_").trim_start_matches('_');
        WAYS_TO_THE_KERNEL.iter().any(|w| name.starts_with(w)) || CALLS.contains(&bare)
    })
}

fn is_own(recording: &Recording, frame: &Frame) -> bool {
    if !in_program(recording, frame) {
        return false;
    }
    if matches!(
        frame.kind,
        FrameKind::Python | FrameKind::Java | FrameKind::JavaScript
    ) || frame.module.is_none()
    {
        return true;
    }
    match frame.lines.last() {
        Some(line) => !is_standard(&recording.functions[line.function.0 as usize].name),
        None => true,
    }
}

/// Python's own library, by where it lies; packages that were installed are the program's.
fn is_python_standard(path: &str) -> bool {
    let installed = path.contains("/site-packages/") || path.contains("/dist-packages/");
    path.starts_with('<') || (path.contains("/lib/python3") && !installed)
}

/// The classes that come with every Java.
fn is_java_standard(method: &str) -> bool {
    const PACKAGES: [&str; 5] = ["java.", "javax.", "jdk.", "sun.", "com.sun."];
    PACKAGES.iter().any(|p| method.starts_with(p))
}

fn is_standard(function: &str) -> bool {
    let bare = function.trim_start_matches(['<', '&', '(', '*']);
    STANDARD.iter().any(|s| bare.starts_with(s))
}
