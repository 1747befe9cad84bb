//! Registers and stack memory → frames.
//!
//! `native` turns the unwind information of programs and libraries into tables that the kernel
//! programs of `bpf/unwind.h` follow, and runs the same steps in user space. Needed because most
//! programs are built without frame pointers. A stack is whole only if the code at its end says
//! that it has no caller; every other stack says why it ended (`wallscope_model::StackEnd`).
//!
//! Not done here: deciding when to unwind, following processes, naming frames.

pub mod native;
