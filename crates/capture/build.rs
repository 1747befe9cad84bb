//! Compiles the kernel programs with clang and generates their skeleton.

use std::{env, ffi::OsStr, path::PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("set by cargo"));
    let out =
        PathBuf::from(env::var_os("OUT_DIR").expect("set by cargo")).join("wallscope.skel.rs");
    let sources = manifest.join("src/bpf");
    SkeletonBuilder::new()
        .source(sources.join("wallscope.bpf.c"))
        .clang_args([
            OsStr::new("-mcpu=v3"),
            OsStr::new("-Wall"),
            OsStr::new("-Werror"),
        ])
        .build_and_generate(&out)
        .expect("the kernel programs must compile (is clang installed?)");
    println!("cargo:rerun-if-changed={}", sources.display());
    println!(
        "cargo:rerun-if-changed={}",
        manifest.join("../unwind/bpf").display()
    );
}
