//! Registers and memory → frames.
//!
//! `native` turns the unwind information of programs and libraries into tables that the kernel
//! programs of `bpf/unwind.h` follow, and runs the same steps in user space. Needed because most
//! programs are built without frame pointers. A stack is whole only if the code at its end says
//! that it has no caller; every other stack says why it ended (`wallscope_model::StackEnd`).
//!
//! `runtime` knows the runtimes of managed languages: what a native stack shows as the calls of an
//! interpreter, they tell as the functions of the program that it runs.
//!
//! Not done here: deciding when to unwind, following processes, naming native frames.

pub mod native;
pub mod runtime;
