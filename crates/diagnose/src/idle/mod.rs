//! Idle waits: blocked intervals during which no request of their context is in flight.
//!
//! [`judge_wait`] asks a table of named rules about one wait; [`mark`] judges a recording and keeps how
//! much time each rule judged.

mod mark;
mod overturn;
mod rules;

pub use crate::labels::{REQUEST_AWAITED, REQUEST_KEY, REQUEST_OWED};
pub use mark::mark;
pub use rules::{IdleRule, RULES, Wait, judge_wait};

#[cfg(test)]
mod tests;
