//! Tests attribution for stacks of several languages.

use std::sync::Arc;

use super::*;
use crate::{FrameId, Function, FunctionId, Line, Module, ModuleId, StackEnd};

/// A frame: its kind, its module, and its functions with their files, innermost first.
type Spec<'a> = (FrameKind, &'a str, &'a [(&'a str, &'a str)]);

/// The name that a stack gets; frames are given leaf first.
fn named(inlined: bool, frames: &[Spec<'_>]) -> String {
    let mut rec = Recording::default();
    let mut ids = Vec::new();
    for (kind, module, lines) in frames {
        let id = ModuleId(rec.modules.len() as u32);
        rec.modules.push(Module {
            kind: match kind {
                FrameKind::Kernel => ModuleKind::Kernel,
                FrameKind::Native => ModuleKind::Elf,
                _ => ModuleKind::Source,
            },
            path: Arc::from(*module),
            build_id: Arc::from(""),
            pid: 0,
        });
        let lines = lines.iter().map(|(name, file)| {
            let function = FunctionId(rec.functions.len() as u32);
            rec.functions.push(Function {
                name: Arc::from(*name),
                system_name: Arc::from(""),
                file: Arc::from(*file),
                start_line: 0,
            });
            Line { function, line: 1 }
        });
        let lines = lines.collect();
        ids.push(FrameId(rec.frames.len() as u32));
        rec.frames.push(Frame {
            kind: *kind,
            module: Some(id),
            address: 0,
            lines,
        });
    }
    let stack = Stack {
        frames: ids,
        end: StackEnd::Root,
    };
    let frame = |i: usize| &rec.frames[stack.frames[i].0 as usize];
    let at = place(&rec, &stack, inlined, |(i, l)| whose(&rec, frame(i), l));
    let (i, line) = at.expect("it has frames");
    line.map_or("?".into(), |l| {
        rec.functions[frame(i).lines[l].function.0 as usize]
            .name
            .to_string()
    })
}

const LIBC: &str = "/usr/lib/x86_64-linux-gnu/libc.so.6";
use FrameKind::{Java, JavaScript, Kernel, Native, Python};

#[test]
fn waits_are_the_programs_and_not_those_of_its_locks() {
    let stack: [Spec<'_>; 6] = [
        (Kernel, "[kernel]", &[("futex_wait", "")]),
        (Native, LIBC, &[("syscall", "")]),
        (
            Native,
            "/srv/shop",
            &[
                (
                    "parking_lot_core::parking_lot::park",
                    "/root/.cargo/registry/src/p/lib.rs",
                ),
                ("parking_lot::raw_mutex::RawMutex::lock_slow", ""),
            ],
        ),
        (
            Native,
            "/srv/shop",
            &[
                ("lock_api::mutex::Mutex<R,T>::lock", ""),
                ("shop::cache_get", "src/main.rs"),
                ("shop::handle", "src/main.rs"),
            ],
        ),
        (
            Native,
            "/srv/shop",
            &[("<F as core::ops::FnOnce>::call_once", "")],
        ),
        (Native, LIBC, &[("start_thread", "")]),
    ];
    assert_eq!(named(true, &stack), "shop::cache_get");
    assert_eq!(named(false, &stack), "shop::handle");
}

#[test]
fn without_own_code_a_librarys_is_named_then_the_languages_and_then_any() {
    let idle: [Spec<'_>; 4] = [
        (Native, LIBC, &[("epoll_wait", "")]),
        (Native, "/srv/shop", &[("parking_lot::condvar::wait", "")]),
        (Native, "/srv/shop", &[("tokio::runtime::park", "")]),
        (Native, "/srv/shop", &[("std::thread::spawn", "")]),
    ];
    assert_eq!(named(true, &idle), "tokio::runtime::park");
    let thread: [Spec<'_>; 2] = [idle[0], idle[3]];
    assert_eq!(named(true, &thread), "std::thread::spawn");
    assert_eq!(named(true, &idle[..1]), "epoll_wait");
    let kernel: [Spec<'_>; 1] = [(Kernel, "[kernel]", &[("kswapd", "")])];
    assert_eq!(named(true, &kernel), "kswapd");
}

#[test]
fn programs_without_libraries_hold_their_own_ways_to_the_kernel() {
    let still: [Spec<'_>; 3] = [
        (Native, "/srv/tool", &[("__syscall_cp_asm", "")]),
        (Native, "/srv/tool", &[("read", "")]),
        (Native, "/srv/tool", &[("load_index", "")]),
    ];
    assert_eq!(named(true, &still), "load_index");
    // Called through the C library, a function of that name is the program's own.
    let own: [Spec<'_>; 2] = [
        (Native, LIBC, &[("recv", "")]),
        (Native, "/srv/tool", &[("read", "")]),
    ];
    assert_eq!(named(true, &own), "read");
}

#[test]
fn ways_to_the_kernel_in_static_programs_are_known_whatever_the_c_library() {
    // musl, and glibc as compilers split it.
    for way in [
        &["sccp", "__timedwait_cp", "__pthread_mutex_timedlock"][..],
        &["sccp", "semop"],
        &["semtimedop"],
        &["__new_sem_wait_slow64.constprop.0"],
        &["__pthread_mutex_clocklock_common", "mtx_timedlock"],
        &["sccp", "flock"],
    ] {
        let lines: Vec<[(&str, &str); 1]> = way.iter().map(|name| [(*name, "")]).collect();
        let mut stack: Vec<Spec<'_>> = vec![(Kernel, "[kernel]", &[("schedule", "")])];
        stack.extend(lines.iter().map(|l| (Native, "/srv/shop", &l[..])));
        stack.push((Native, "/srv/shop", &[("shop_take_order", "shop.c")]));
        assert_eq!(named(true, &stack), "shop_take_order", "{way:?}");
    }
    // If the C library is another file, these may be the program's own functions.
    let own: [Spec<'_>; 2] = [
        (Native, LIBC, &[("__libc_read", "")]),
        (Native, "/srv/shop", &[("lockfile", "shop.c")]),
    ];
    assert_eq!(named(true, &own), "lockfile");
}

#[test]
fn a_name_is_worth_more_than_an_address() {
    let stack: [Spec<'_>; 4] = [
        (Native, LIBC, &[("fdatasync", "")]),
        (Native, "/srv/database", &[]),
        (Native, "/srv/database", &[("flush_log", "")]),
        (Native, "/srv/database", &[("main", "")]),
    ];
    assert_eq!(named(true, &stack), "flush_log");
    assert_eq!(named(true, &stack[..2]), "?");
}

#[test]
fn languages_own_packages_are_passed_over() {
    let go: [Spec<'_>; 4] = [
        (Native, "/srv/node_exporter", &[("runtime.gopark", "")]),
        (
            Native,
            "/srv/node_exporter",
            &[("internal/poll.(*FD).Read", "")],
        ),
        (
            Native,
            "/srv/node_exporter",
            &[("net/http.(*conn).serve", "")],
        ),
        (Native, "/srv/node_exporter", &[("main.scrape", "")]),
    ];
    assert_eq!(named(true, &go), "main.scrape");
    let c: [Spec<'_>; 1] = [(Native, "/srv/tool", &[("net.part.0", "")])];
    assert_eq!(named(true, &c), "net.part.0");
    let python: [Spec<'_>; 3] = [
        (
            Python,
            "/usr/lib/python3.11/socket.py",
            &[("recv_into", "")],
        ),
        (
            Python,
            "/srv/venv/lib/python3.11/site-packages/db/api.py",
            &[("query", "")],
        ),
        (Python, "/srv/shop/views.py", &[("index", "")]),
    ];
    assert_eq!(named(true, &python), "index");
    assert_eq!(named(true, &python[..2]), "query");
    let java: [Spec<'_>; 2] = [
        (
            Java,
            "[java]",
            &[("java.util.concurrent.locks.LockSupport.park", "")],
        ),
        (Java, "[java]", &[("shop.Cache.get", "")]),
    ];
    assert_eq!(named(true, &java), "shop.Cache.get");
    let carrier: [Spec<'_>; 2] = [
        (Java, "[java]", &[("java.util.TimerThread.mainLoop", "")]),
        (Java, "[java]", &[("StubRoutines (initialstubs)", "")]),
    ];
    assert_eq!(named(true, &carrier), "java.util.TimerThread.mainLoop");
    let node: [Spec<'_>; 3] = [
        (JavaScript, "[javascript]", &[("readFileSync", "node:fs")]),
        (
            JavaScript,
            "[javascript]",
            &[("parse", "/srv/node_modules/y/index.js")],
        ),
        (JavaScript, "[javascript]", &[("load", "/srv/shop/app.js")]),
    ];
    assert_eq!(named(true, &node), "load");
}

#[test]
fn a_vms_own_functions_are_not_the_programs() {
    let stack: [Spec<'_>; 2] = [
        (Native, "/usr/bin/python3.11", &[("take_gil", "")]),
        (Python, "/srv/job.py", &[("work", "")]),
    ];
    assert_eq!(named(true, &stack), "work");
    let tool: [Spec<'_>; 1] = [(Native, "/srv/pythonic", &[("main", "")])];
    assert_eq!(whose_first(&tool), Whose::Program);
    let vm: [Spec<'_>; 1] = [(Native, "/usr/bin/node", &[("uv_run", "")])];
    assert_eq!(whose_first(&vm), Whose::Language);
}

fn whose_first(frames: &[Spec<'_>]) -> Whose {
    let (kind, module, lines) = frames[0];
    let mut rec = Recording::default();
    rec.modules.push(Module {
        kind: ModuleKind::Elf,
        path: Arc::from(module),
        build_id: Arc::from(""),
        pid: 0,
    });
    rec.functions.push(Function {
        name: Arc::from(lines[0].0),
        system_name: Arc::from(""),
        file: Arc::from(""),
        start_line: 0,
    });
    let frame = Frame {
        kind,
        module: Some(ModuleId(0)),
        address: 0,
        lines: vec![Line {
            function: FunctionId(0),
            line: 1,
        }],
    };
    whose(&rec, &frame, Some(0))
}

#[test]
fn templates_of_the_language_are_told_by_their_names_and_not_by_their_results() {
    let inside = |name| {
        let stack: [Spec<'_>; 3] = [
            (Native, LIBC, &[("syscall", "")]),
            (Native, "/srv/shop", &[(name, "")]),
            (Native, "/srv/shop", &[("take(Stock*)", "")]),
        ];
        named(true, &stack)
    };
    for name in [
        "void std::__detail::__platform_wait<int>(int const*, int)",
        "std::vector<int, std::allocator<int> > std::move<Shelf (&)(int)>(int)",
        "bool std::operator< <char>(char, char)",
    ] {
        assert_eq!(inside(name), "take(Stock*)");
    }
    for name in [
        "std::vector<int> shop::all<int>(std::string const&)",
        "void (anonymous namespace)::restock<int>(int)",
        "shop::Shelf::operator std::string() const",
        "shop::Shelf::operator()(std::string const&) const",
    ] {
        assert_eq!(inside(name), name);
    }
}
