//! Folded stacks: one line a stack, for flame graph scripts and for `grep`.
//!
//! Root first, `;` between frames, a space, an integer. The grammar is the contract's; what other
//! tools write is read as well, as far as their lines say more (`read`).

mod lines;
mod read;
mod write;

pub(super) use read::{detect, read};
pub use write::{Options, push, reasons, write};
