//! Compiles the kernel programs' state machines for user space: native frames and interpreter
//! frames.

fn main() {
    for file in [
        "go_core.h",
        "hotspot_abi.h",
        "hotspot_core.h",
        "signal_core.h",
        "unwind_abi.h",
        "unwind_core.h",
        "unwind_step.h",
        "unwind_host.c",
        "python_abi.h",
        "python_core.h",
        "python_step.h",
        "ruby_core.h",
        "python_host.c",
        "v8_core.h",
    ] {
        println!("cargo:rerun-if-changed=bpf/{file}");
    }
    // For build scripts of other crates, with kernel programs that include `unwind.h`.
    let crate_folder = std::env::var("CARGO_MANIFEST_DIR").expect("set by cargo");
    println!("cargo:include={crate_folder}/bpf");
    // For the programs of tests/live.rs; a machine may lack the headers.
    let headers = std::env::var("DEP_BPF_INCLUDE").unwrap_or_default();
    println!("cargo:rustc-env=WALLSCOPE_BPF_HEADERS={headers}");
    cc::Build::new()
        .file("bpf/unwind_host.c")
        .file("bpf/python_host.c")
        .opt_level(2)
        .warnings(true)
        .compile("wallscope_unwind_host");
}
