//! Unwinds stacks: registers and memory → frames.
//!
//! `native` turns the unwind information of programs and libraries into tables. The kernel programs
//! of `bpf/unwind.h` follow these tables, and user space runs the same steps. Most programs are
//! built without frame pointers, so tables are needed. A stack is complete only if the code at its
//! end says that it has no caller. Every other stack carries the reason why it ended
//! (`wallscope_model::StackEnd`).
//!
//! `runtime` knows the runtimes of managed languages. It replaces interpreter calls in a native
//! stack by the functions that the interpreter runs.
//!
//! An unwind needs a table of each mapped file, registers, and a way to read memory:
//!
//! ```
//! # #[cfg(target_arch = "x86_64")]
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::fs::File;
//! use std::os::unix::fs::FileExt;
//! use wallscope_unwind::native::{
//!     End, FileKey, MappingSpec, MemoryTables, Registers, Source, StackStart, TableStore, Unwinder,
//! };
//!
//! // The program's own files with code.
//! let pid = std::process::id();
//! let mut files = Vec::new();
//! for mapping in wallscope_procfs::maps::read(pid)? {
//!     if mapping.execute && mapping.is_file() {
//!         let file = File::open(&mapping.path)?;
//!         files.push((mapping, FileKey::of_file(&file)?, file));
//!     }
//! }
//! let mappings: Vec<_> = files
//!     .iter()
//!     .map(|(mapping, key, file)| MappingSpec {
//!         start: mapping.start,
//!         end: mapping.end,
//!         pgoff: mapping.offset,
//!         source: Source::File { key, file: Some(file) },
//!     })
//!     .collect();
//! let mut store = TableStore::new(MemoryTables::new(), 64 << 20)?;
//! store.set_process(pid, &mappings)?;
//!
//! let mut registers = Registers::default();
//! let (rbp, rsp) = (6, 7); // by DWARF number
//! // SAFETY: copies three registers.
//! unsafe {
//!     std::arch::asm!(
//!         "lea {}, [rip]", "mov {}, rbp", "mov {}, rsp",
//!         out(reg) registers.ip, out(reg) registers.general[rbp], out(reg) registers.general[rsp],
//!     );
//! }
//! let memory = File::open("/proc/self/mem")?;
//! let read = |address, to: &mut [u8]| memory.read_at(to, address).unwrap_or(0);
//! let start = StackStart::new(pid, &registers).at_most(100);
//! let stack = Unwinder::new().unwind(store.sink(), start, read);
//! assert_eq!(stack.end, End::Root); // the thread's entry point: no caller is missing
//! assert!(stack.frames.len() > 3);
//! # Ok(())
//! # }
//! # #[cfg(not(target_arch = "x86_64"))]
//! # fn main() {}
//! ```
//!
//! With the feature `bpf` the same tables go into the maps of kernel programs that include
//! `bpf/unwind.h`. The build script of such a crate finds the header by `DEP_WALLSCOPE_UNWIND_INCLUDE`.
//!
//! This crate does not decide when to unwind, follow processes or name native frames.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod native;
pub mod runtime;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
