//! Folded stacks: one line a stack, for flame graph scripts and for `grep`.
//!
//! Root first, `;` between frames, a space, an integer. The grammar is the contract's. Lines
//! of other tools are read too (`read`).

mod form;
mod lines;
mod names;
mod read;
mod write;

pub(super) use form::detect;
pub use lines::within_line;
pub(super) use read::read;
pub use write::{Options, TimeKind, push, reasons, write};
