//! Parses files that describe code, and maps files safely into memory.
//!
//! * [`elf`]: an ELF file's identity (build id, debug link), its segments, sections and symbols;
//!   [`plt`]: the names of its procedure linkage stubs; [`gopclntab`]: a Go program's table of its
//!   own functions.
//! * [`kallsyms`], [`perf_map`], [`jitdump`]: names of kernel code and of code made at run time.
//! * [`mapped`]: a file mapped into memory, safe against truncation by its owner.
//!
//! Every parser takes bytes or text. Malformed input is an error, `None`, or a counted and skipped
//! line, never a panic: the files belong to the profiled programs and are untrusted.
//!
//! Not done here: DWARF and unwind tables, choosing between several names of one address, ELF notes
//! other than the build id, core files.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod elf;
pub mod gopclntab;
pub mod jitdump;
pub mod kallsyms;
pub mod mapped;
pub mod perf_map;
pub mod plt;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
