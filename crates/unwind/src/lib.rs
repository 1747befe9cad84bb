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
//! This crate does not decide when to unwind, follow processes or name native frames.

pub mod native;
pub mod runtime;
