//! Idle waits: blocked intervals during which no request of their context is in flight.
//!
//! [`judge`] asks a table of named rules about one wait; [`mark`] judges a recording and keeps how
//! much time each rule judged.

mod mark;
mod overturn;
mod rules;

pub use crate::labels::{REQUEST_AWAITED, REQUEST_KEY, REQUEST_OWED};
pub use mark::mark;
pub use rules::{RULES, Rule, Wait, judge};

#[cfg(test)]
mod tests;
