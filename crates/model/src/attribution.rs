//! Attribution: the function that names the time of a stack.
//!
//! The innermost frames of a blocked stack are always the same few functions of the C library, and
//! often of a runtime's locks. A person can act on the program's own innermost function: the first
//! one towards the root that is neither kernel, system library, language runtime nor a library
//! built from source. If a script runs, only its functions count. If the stack has no function of
//! the program, the choice is the innermost one of its libraries, then of its language, then an
//! address in it, then any frame.

use crate::{Frame, FrameKind, ModuleKind, Recording, Stack};

/// Origin of a function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CodeOrigin {
    /// The program itself.
    Program,
    /// A library that was built into the program or installed beside it.
    Library,
    /// The language or its runtime, or a replacement for the language's locks, in the program's or
    /// the runtime's file.
    Language,
    /// The program or its libraries, but without a name: only the address is known.
    Unnamed,
    /// The system, or a mere path into the kernel.
    System,
    /// The kernel.
    Kernel,
}

/// Folders of system libraries.
const SYSTEM_FOLDERS: [&str; 4] = ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/"];

/// Prefixes of names of the languages' standard libraries and of replacements for their locks,
/// after leading `<` and `&`.
const STANDARD_LIBRARY_PREFIXES: [&str; 13] = [
    "std::",
    "core::",
    "alloc::",
    "__gnu_cxx::",
    "__cxxabiv1::",
    "__rust_",
    "__libc_",
    "_start",
    "hashbrown::",
    "__gthread_",
    "parking_lot",
    "lock_api::",
    "crossbeam",
];

/// Go's packages, which have no domain in their path; subpackages may follow.
const GO_PACKAGES: [&str; 22] = [
    "runtime",
    "sync",
    "internal",
    "net",
    "os",
    "io",
    "bufio",
    "time",
    "syscall",
    "database/sql",
    "crypto",
    "encoding",
    "compress",
    "reflect",
    "context",
    "strings",
    "bytes",
    "fmt",
    "sort",
    "log",
    "math",
    "strconv",
];

/// Executors and reactors that are built into programs: they wait on behalf of others.
const LIBRARY_PREFIXES: [&str; 15] = [
    "tokio::",
    "rayon",
    "futures",
    "async_std::",
    "mio::",
    "smol::",
    "boost::",
    "absl::",
    "folly::",
    "tbb::",
    "oneapi::",
    "uv_",
    "uv__",
    // Each wait of a PostgreSQL process goes through these.
    "WaitEventSetWait",
    "WaitLatch",
];

/// Parts of source paths from elsewhere: inlined library functions have the program's module.
const SOURCE_PATHS: [(&str, CodeOrigin); 9] = [
    ("/rustc/", CodeOrigin::Language),
    ("/usr/include/", CodeOrigin::Language),
    ("/usr/lib/", CodeOrigin::Language),
    ("/usr/local/go/src/", CodeOrigin::Language),
    ("/usr/local/lib/", CodeOrigin::Library),
    ("/.cargo/registry/", CodeOrigin::Library),
    ("/.cargo/git/", CodeOrigin::Library),
    ("/go/pkg/mod/", CodeOrigin::Library),
    ("/node_modules/", CodeOrigin::Library),
];

/// System calls and the C library's wrappers: a statically linked program has them in its own file.
const SYSTEM_CALL_PREFIXES: [&str; 10] = [
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
const SYSTEM_CALLS: [&str; 119] = [
    "accept",
    "accept4",
    "brk",
    "call_once",
    "clock_nanosleep",
    "clone",
    "clone3",
    "close",
    "cnd_timedwait",
    "cnd_timedwait64",
    "cnd_wait",
    "connect",
    "copy_file_range",
    "creat",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_wait",
    "eventfd_read",
    "eventfd_write",
    "fallocate",
    "fcntl",
    "fcntl64",
    "fdatasync",
    "flock",
    "fork",
    "fsync",
    "ftruncate",
    "getdents64",
    "io_getevents",
    "ioctl",
    "lockf",
    "madvise",
    "mlock",
    "mmap",
    "mmap64",
    "mprotect",
    "mq_receive",
    "mq_send",
    "mq_timedreceive",
    "mq_timedreceive_time64",
    "mq_timedsend",
    "mq_timedsend_time64",
    "mremap",
    "msgrcv",
    "msgsnd",
    "msync",
    "mtx_lock",
    "mtx_timedlock",
    "mtx_timedlock64",
    "munmap",
    "nanosleep",
    "new_sem_clockwait64",
    "new_sem_timedwait64",
    "new_sem_wait",
    "new_sem_wait_slow",
    "new_sem_wait_slow64",
    "open",
    "open64",
    "openat",
    "openat64",
    "pause",
    "poll",
    "posix_fallocate",
    "posix_spawn",
    "posix_spawnp",
    "ppoll",
    "pread",
    "pread64",
    "preadv",
    "preadv2",
    "pselect",
    "pwrite",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readv",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sched_yield",
    "select",
    "sem_clockwait",
    "sem_timedwait",
    "sem_wait",
    "semop",
    "semtimedop",
    "semtimedop64",
    "send",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "shutdown",
    "sigsuspend",
    "sigtimedwait",
    "sigwait",
    "sigwaitinfo",
    "sleep",
    "splice",
    "sync",
    "sync_file_range",
    "syncfs",
    "system",
    "tee",
    "thrd_join",
    "thrd_sleep",
    "truncate",
    "usleep",
    "vfork",
    "vmsplice",
    "wait",
    "wait3",
    "wait4",
    "waitid",
    "waitpid",
    "write",
    "writev",
];
/// Functions through which musl enters the kernel.
const MUSL_SYSTEM_CALLS: [&str; 6] = [
    "sccp",
    "__cp_end",
    "__lock",
    "__lockfile",
    "__tl_lock",
    "__vm_wait",
];

/// A function of a stack: the frame's position, and the function's position in the frame's lines;
/// `None`: the frame has no name.
pub type At = (usize, Option<usize>);

/// Functions that can name a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidates {
    /// All functions; an inlined function counts by itself.
    All,
    /// Only functions with an address, which can be probed: an inlined function counts as the
    /// function that contains it.
    Addressable,
}

/// Returns the function that names a stack; `None` if it has no frames. `origin` gives the origin
/// of a frame's function, as [`origin`] does.
pub fn attributed(
    recording: &Recording,
    stack: &Stack,
    candidates: Candidates,
    mut origin: impl FnMut(At) -> CodeOrigin,
) -> Option<At> {
    let frame = |i: usize| &recording.frames[stack.frames[i].0 as usize];
    let calls = |i: usize| {
        let lines = frame(i).lines.len();
        let from = match candidates {
            Candidates::All => 0,
            Candidates::Addressable => lines.saturating_sub(1),
        };
        let named = (from..lines).map(move |line| (i, Some(line)));
        named.chain((lines == 0).then_some((i, None)))
    };
    let all = 0..stack.frames.len();
    let script = |i: &usize| frame(*i).kind.is_managed();
    let scripts = all.clone().any(|i| script(&i));
    // Without a library below it, the program contains its own paths into the kernel.
    let innermost = all.clone().find(|i| frame(*i).kind != FrameKind::Kernel);
    let alone = innermost.is_some_and(|i| in_program(recording, frame(i)));
    let mut best: Option<(CodeOrigin, At)> = None;
    for i in all.clone().filter(|i| !scripts || script(i)) {
        for at in calls(i) {
            let mut is = origin(at);
            if alone && is < CodeOrigin::System && leads_to_kernel(recording, frame(i), at.1) {
                is = CodeOrigin::System;
            }
            if is == CodeOrigin::Program {
                return Some(at);
            }
            if is < CodeOrigin::Kernel && best.is_none_or(|(known, _)| is < known) {
                best = Some((is, at));
            }
        }
    }
    let first = || all.clone().flat_map(calls).next();
    best.map(|(_, at)| at).or_else(first)
}

/// Returns the function that the one at `at` called on this stack, if it has a name and is not the
/// kernel's. For a wait at a lock it is the library's function, such as `pthread_rwlock_rdlock`,
/// which tells the kind of lock.
pub fn called(recording: &Recording, stack: &Stack, (frame, line): At) -> Option<At> {
    if let Some(line) = line.and_then(|line| line.checked_sub(1)) {
        return Some((frame, Some(line)));
    }
    let inner = frame.checked_sub(1)?;
    let callee = &recording.frames[stack.frames[inner].0 as usize];
    let outermost = callee.lines.len().checked_sub(1)?;
    let name = &recording.functions[callee.lines[outermost].function.0 as usize];
    (callee.kind != FrameKind::Kernel && !name.is_unnamed()).then_some((inner, Some(outermost)))
}

/// Returns the origin of a frame's function, the one at `line` of its lines.
pub fn origin(recording: &Recording, frame: &Frame, line: Option<usize>) -> CodeOrigin {
    if frame.kind == FrameKind::Kernel {
        return CodeOrigin::Kernel;
    }
    let function = line.map(|l| &recording.functions[frame.lines[l].function.0 as usize]);
    let (name, file) = function.map_or(("", ""), |f| (&*f.name, &*f.file));
    match frame.kind {
        FrameKind::Python => {
            let path = (frame.module).map_or("", |m| &*recording.modules[m.0 as usize].path);
            return of_python(if path.is_empty() { file } else { path });
        }
        FrameKind::Php if file.starts_with("php:") => return CodeOrigin::Language,
        // The folder in which PHP's package manager installs libraries.
        FrameKind::Php if file.contains("/vendor/") => return CodeOrigin::Library,
        FrameKind::Php => return CodeOrigin::Program,
        FrameKind::Ruby => return of_ruby(file),
        FrameKind::Java if is_java_standard(name) || is_of_vm(name) => return CodeOrigin::Language,
        FrameKind::JavaScript if file.starts_with("node:") => return CodeOrigin::Language,
        FrameKind::JavaScript if file.contains("/node_modules/") => return CodeOrigin::Library,
        FrameKind::Java | FrameKind::JavaScript => return CodeOrigin::Program,
        _ => {}
    }
    if !in_program(recording, frame) {
        return CodeOrigin::System;
    }
    if function.is_none_or(|f| f.is_unnamed()) {
        return CodeOrigin::Unnamed;
    }
    let bare = bare(name);
    if of_standard_library(name)
        || GO_PACKAGES
            .iter()
            .any(|package| in_go_package(bare, package))
        || name.ends_with(" Runtime1 stub")
    {
        return CodeOrigin::Language;
    }
    let module = (frame.module).map_or("", |m| recording.modules[m.0 as usize].name());
    if is_vm(module) {
        return CodeOrigin::Language;
    }
    if LIBRARY_PREFIXES.iter().any(|l| bare.starts_with(l)) {
        return CodeOrigin::Library;
    }
    let source = SOURCE_PATHS.iter().find(|(part, _)| file.contains(part));
    source.map_or(CodeOrigin::Program, |(_, origin)| *origin)
}

/// Whether a function with this name belongs to the standard library of C++ or Rust, or to a
/// replacement for its locks.
pub fn of_standard_library(name: &str) -> bool {
    let bare = bare(name);
    STANDARD_LIBRARY_PREFIXES
        .iter()
        .any(|s| bare.starts_with(s))
}

/// A function's name without return type, parameters and template arguments.
pub fn plain(name: &str) -> &str {
    let bare = bare(name);
    &bare[..bare.find(['<', '(']).unwrap_or(bare.len())]
}

/// A function's name from its outermost namespace on.
fn bare(name: &str) -> &str {
    without_return_type(name).trim_start_matches(['<', '&', '(', '*'])
}

/// Whether a waiting thread with this stack sleeps on a word of its own, which does not identify
/// its lock. Locks of parking_lot, and channels and parking of Rust's standard library, keep their
/// queues elsewhere.
pub fn parks(recording: &Recording, stack: &Stack) -> bool {
    let frames = stack.frames.iter().map(|f| &recording.frames[f.0 as usize]);
    frames.flat_map(|f| &f.lines).any(|line| {
        let name = recording.functions[line.function.0 as usize]
            .name
            .trim_start_matches('<');
        name.starts_with("parking_lot")
            || (name.starts_with("std::") && name.contains("::thread_parking::"))
            || name.starts_with("std::thread::park")
    })
}

/// Prefix of the names of condition variables that were waited for by a lock's word: they have no
/// holder.
pub const CONDITION: &str = "condition ";
/// Prefix of the names of words that the kernel clears at a thread's end, on which joining threads
/// wait.
pub const END_OF_THREAD: &str = "end of a thread ";

/// Whether a frame's code is outside system libraries.
fn in_program(recording: &Recording, frame: &Frame) -> bool {
    // Profiles of other tools may lack modules.
    let Some(module) = frame.module.map(|m| &recording.modules[m.0 as usize]) else {
        return true;
    };
    match module.kind {
        ModuleKind::Jit | ModuleKind::Source => true,
        ModuleKind::Elf => {
            !(module.name().contains(".so")
                && SYSTEM_FOLDERS.iter().any(|s| module.path.starts_with(s)))
        }
        ModuleKind::Kernel | ModuleKind::Vdso => false,
    }
}

fn leads_to_kernel(recording: &Recording, frame: &Frame, line: Option<usize>) -> bool {
    line.is_some_and(|line| {
        let name = &*recording.functions[frame.lines[line].function.0 as usize].name;
        let bare = name.trim_start_matches("__libc_").trim_start_matches('_');
        // Without a compiler's suffix (`.constprop.0`). A Go name has a package before the dot, and
        // no package has such a name.
        let whole = bare.split('.').next().unwrap_or(bare);
        SYSTEM_CALL_PREFIXES.iter().any(|w| name.starts_with(w))
            || SYSTEM_CALLS.contains(&whole)
            || MUSL_SYSTEM_CALLS.contains(&name)
    })
}

/// A name without the return type with which names of C++ function templates begin: `void
/// std::__detail::__platform_wait<int>(int const*, int)`.
fn without_return_type(name: &str) -> &str {
    let (mut depth, mut start) = (0u32, 0);
    for (i, c) in name.char_indices() {
        match c {
            // The parameters begin here, unless it is an anonymous namespace.
            '(' if depth == 0 && !name[i..].starts_with("(anonymous namespace)") => break,
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => {
                if name[start..i].ends_with("operator") {
                    break;
                }
                start = i + 1;
            }
            _ => {}
        }
    }
    &name[start..]
}

/// Whether a module runs managed code, or only leads from it to C.
fn is_vm(module: &str) -> bool {
    const LIBRARIES: [&str; 5] = [
        "libjvm.so",
        "libpython",
        "libnode.so",
        "_ctypes.",
        "libffi.so",
    ];
    let version = module.strip_prefix("python");
    let python = version.is_some_and(|v| v.chars().all(|c| c.is_ascii_digit() || c == '.'));
    python
        || ["node", "nodejs", "java"].contains(&module)
        || LIBRARIES.iter().any(|l| module.starts_with(l))
}

/// The origin of Python code, by its path.
fn of_python(path: &str) -> CodeOrigin {
    if path.contains("/site-packages/") || path.contains("/dist-packages/") {
        CodeOrigin::Library
    } else if path.starts_with('<') || path.contains("/lib/python3") {
        CodeOrigin::Language
    } else {
        CodeOrigin::Program
    }
}

/// The origin of Ruby code, by its path. Methods written in C, and those compiled into the
/// interpreter, have no file.
fn of_ruby(path: &str) -> CodeOrigin {
    const PACKAGES: [&str; 4] = [
        "/gems/",
        "/vendor_ruby/",
        "/site_ruby/",
        "/rubygems-integration/",
    ];
    if path.starts_with("<internal:") || path.starts_with("ruby:") {
        CodeOrigin::Language
    } else if PACKAGES.iter().any(|p| path.contains(p)) {
        CodeOrigin::Library
    } else if path.contains("/lib/ruby/") {
        CodeOrigin::Language
    } else {
        CodeOrigin::Program
    }
}

/// Whether a method belongs to the classes of every Java installation.
fn is_java_standard(method: &str) -> bool {
    const PACKAGES: [&str; 5] = ["java.", "javax.", "jdk.", "sun.", "com.sun."];
    PACKAGES.iter().any(|p| method.starts_with(p))
}

/// Whether a name is that of VM code: methods have a class and a dot before their name.
fn is_of_vm(name: &str) -> bool {
    name.split(' ')
        .next()
        .is_none_or(|word| !word.contains('.'))
}

/// Whether `name` is in Go's `package` or one below it: `net.(*conn).Read`, `net/http.Serve`. C
/// names with a compiler's suffix look similar.
fn in_go_package(name: &str, package: &str) -> bool {
    const APPENDED: [&str; 6] = ["part.", "constprop.", "isra.", "cold", "llvm.", "lto_priv"];
    match name.strip_prefix(package) {
        Some(rest) if rest.starts_with('/') => rest.contains('.'),
        Some(rest) => rest
            .strip_prefix('.')
            .is_some_and(|rest| !APPENDED.iter().any(|a| rest.starts_with(a))),
        None => false,
    }
}

#[cfg(test)]
#[path = "attribution_tests.rs"]
mod tests;
