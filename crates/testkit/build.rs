//! Builds the truth programs (C and C++) with the system's compiler: optimised and without frame
//! pointers, whatever the profile of the Rust side, because that is how the programs that people
//! profile are built.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const C_FILES: &[&str] = &[
    "truth",
    "main",
    "moved",
    "compute",
    "waits",
    "reasons",
    "reclaim",
    "userfault",
    "uring",
    "chain",
    "hands",
    "held",
    "queues",
    "sched",
    "lives",
    "odd",
    "lengths",
    "plugins",
    "events",
    "idle",
    "calls",
    "jit",
    "trouble",
    "trouble_computing",
    "trouble_waiting",
    "trouble_holding",
    "trouble_healthy",
    "trouble_serving",
];
const CXX_FILES: &[&str] = &["odd_throw", "calls_throw", "convoy_object"];
const FLAGS: &[&str] = &[
    "-O2",
    "-fomit-frame-pointer",
    "-g",
    "-Wall",
    "-Wextra",
    "-pthread",
];

const BARE: &[&str] = &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];

fn compiler(variable: &str, otherwise: &str) -> String {
    println!("cargo:rerun-if-env-changed={variable}");
    env::var(variable).unwrap_or_else(|_| otherwise.to_string())
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => panic!("{program} {}: {status}", arguments.join(" ")),
        Err(error) => panic!(
            "{program} could not be started ({error}); install a C and a C++ compiler: apt-get install gcc g++"
        ),
    }
}

fn main() {
    println!("cargo:rerun-if-changed=programs");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    let cc = compiler("CC", "cc");
    let cxx = compiler("CXX", "c++");
    let text = |path: &Path| path.to_str().expect("the path is UTF-8").to_string();

    let mut objects = Vec::new();
    for name in C_FILES {
        let object = text(&out.join(format!("{name}.o")));
        let source = format!("programs/{name}.c");
        let arguments = [
            FLAGS,
            &["-std=gnu17", "-c", source.as_str(), "-o", object.as_str()],
        ]
        .concat();
        run(&cc, &arguments);
        objects.push(object);
    }
    for name in CXX_FILES {
        let object = text(&out.join(format!("{name}.o")));
        let source = format!("programs/{name}.cc");
        let own = ["-std=c++17", "-c", source.as_str(), "-o", object.as_str()];
        run(&cxx, &[FLAGS, &own].concat());
        objects.push(object);
    }

    let binary = text(&out.join("wallscope-truth"));
    // -rdynamic: the programs name their own frames. Lazy binding: PLT entries do their full work.
    let mut link = vec!["-pthread", "-rdynamic", "-Wl,-z,lazy", "-o", &binary];
    link.extend(objects.iter().map(String::as_str));
    link.push("-ldl");
    run(&cxx, &link);

    // The programs once more without unwind tables: only instructions tell how frames are left.
    let bare = text(&out.join("wallscope-bare"));
    let mut arguments: Vec<&str> = FLAGS.iter().chain(BARE).copied().collect();
    let sources: Vec<String> = (C_FILES.iter().map(|n| format!("programs/{n}.c"))).collect();
    arguments.extend(["-std=gnu17", "-r", "-o"]);
    let joined = text(&out.join("bare.o"));
    arguments.push(&joined);
    arguments.extend(sources.iter().map(String::as_str));
    run(&cc, &arguments);
    let mut link = vec!["-pthread", "-rdynamic", "-o", &bare, &joined];
    link.extend(objects[C_FILES.len()..].iter().map(String::as_str));
    link.push("-ldl");
    run(&cxx, &link);

    let library = |name: &str, source: &str, more: &[&str]| {
        let library = text(&out.join(format!("libwallscope-{name}.so")));
        let shared = ["-std=gnu17", "-shared", "-fPIC", source, "-o", &library];
        run(&cc, &[FLAGS, more, &shared].concat());
    };
    library("odd", "programs/odd_library.c", &[]);
    library("plugin_one", "programs/plugin.c", &["-DPLUGIN=plugin_one"]);
    library(
        "plugin_other",
        "programs/plugin.c",
        &["-DPLUGIN=plugin_other"],
    );

    let plain = text(&out.join("wallscope-plain"));
    let source = ["-std=gnu17", "programs/plain.c", "-o", &plain];
    run(&cc, &[FLAGS, &source].concat());

    println!("cargo:rustc-env=WALLSCOPE_PLAIN_PROGRAM={plain}");
    println!("cargo:rustc-env=WALLSCOPE_TRUTH_PROGRAM={binary}");
    println!("cargo:rustc-env=WALLSCOPE_BARE_PROGRAM={bare}");
}
