//! Recordings → data: views, selections, comparisons.
//!
//! * [`blame`]: each wait charged to the activity of the thread that ended it.
//! * [`view`]: rows of a report: the ledger, functions with intervals, hottest stacks, waits, locks.
//! * [`select`]: a part of a recording, as a recording; its time still adds up.
//! * [`diff`]: two sides compared, and whether a difference is real.
//! * [`queueing`]: arrivals and service times to waits, as pure mathematics.
//! * [`queues`]: the queues of a recording, and what-if.
//! * [`inflation`]: an instrumented profile beside a sampled one of the same program.
//!
//! Samples are scaled to the ledger by `wallscope_model::scale`, so every view sums to the ledger.
//! Nothing here reads files, lays out text, prints, or inspects the machine.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod blame;
pub mod diff;
pub mod inflation;
pub mod queueing;
pub mod queues;
pub mod select;
pub mod view;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
