//! Evidence → verdict: the likely cause of a recording's wall time, and the rule that names it.
//!
//! Pure: no I/O, no clock. From the lowest floor up:
//!
//! - [`knowledge`]: function names that rules know, as data; [`thresholds`]: every number that a
//!   judgement turns on;
//! - `frames`, `labels`, `wake_chain`: questions to a recording's stacks, labels and wake-ups;
//! - `lock_wait`, `wait_direction`, `delays`, `request_reply`: the meaning of a single wait;
//! - [`lock_names`], [`idle`], [`collections`]: judgements that a recording keeps: names of locks, idle
//!   waits, garbage collection on a CPU;
//! - `evidence`: everything that rules judge by, read once;
//! - `rules`: one table of rules over it, and one engine;
//! - [`ladder`] and [`finding`]: the verdict in full, and in one sentence.
//!
//! Nothing here guesses the purpose of a program.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod collections;
mod delays;
mod evidence;
mod frames;
pub mod idle;
pub mod knowledge;
mod labels;
pub mod ladder;
pub mod lock_names;
mod lock_wait;
mod request_reply;
mod rules;
mod sentence;
mod stalls;
pub mod thresholds;
mod wait_direction;
mod wake_chain;
mod words;

pub use frames::recorded_name;
pub use sentence::{Finding, finding};

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
