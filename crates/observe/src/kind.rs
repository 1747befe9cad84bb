//! Kinds of the kernel programs' records (`enum ws_kind` of `bpf/event.h`) that the log tells apart.
//!
//! The first word of a record is its kind. A first word below [`FIRST`] is the number of frames of a
//! user stack.

/// The first kind that is no user stack.
pub const FIRST: u32 = 0x10001;
/// Time charged to a stack.
pub const SAMPLE: u32 = 0x10003;
/// A kernel stack.
pub const KERNEL_STACK: u32 = 0x10004;
/// A copy of stack memory, which is never logged.
pub const MEMORY: u32 = 0x10006;
/// Managed frames of a stack.
pub const MANAGED_STACK: u32 = 0x10007;
/// The end of a wait.
pub const WAKE: u32 = 0x1000a;
