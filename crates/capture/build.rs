//! Compiles the kernel programs with clang and generates their skeleton.

use std::{env, ffi::OsStr, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

/// The kernel programs: those of recordings, and those of single functions' calls.
const OBJECTS: &[&str] = &["wallscope", "latency"];

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo"));
    let sources = manifest.join("src/bpf");
    // The walker's headers, which the crate `wallscope-unwind` ships.
    let walker = PathBuf::from(env::var_os("DEP_WALLSCOPE_UNWIND_INCLUDE").expect("set by unwind"));
    for object in OBJECTS {
        SkeletonBuilder::new()
            .source(sources.join(format!("{object}.bpf.c")))
            .clang_args([
                OsStr::new("-mcpu=v3"),
                OsStr::new("-Wall"),
                OsStr::new("-Werror"),
                OsStr::new("-I"),
                walker.as_os_str(),
            ])
            .build_and_generate(out.join(format!("{object}.skel.rs")))
            .expect("the kernel programs must compile (is clang installed?)");
    }
    println!("cargo:rerun-if-changed={}", sources.display());
    println!("cargo:rerun-if-changed={}", walker.display());
}
