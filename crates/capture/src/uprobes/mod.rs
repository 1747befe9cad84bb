//! Calls of single functions: their number (`count`), their lengths, and their time by state and reason
//! (`latency`).
//!
//! ```text
//! spec.rs       the user's specifications
//! modules.rs    the files with code that the target runs
//! find.rs       names -> addresses; usdt.rs: static probes
//! code.rs       addresses -> instructions that probes may stand at
//! function_code.rs  a found function's code, and its ways out over tail calls
//! plan.rs       which probe stands where, and why: probe safety
//! calibrate.rs  cost of probes on this machine
//! programs.rs   the kernel programs (bpf/latency.bpf.c): loading, attaching, reading
//! items.rs      specifications -> plan
//! run.rs        the order of things
//! trial.rs      how often the probes are met, before they stay
//! slowest.rs    calls reported one by one; result.rs: all that was counted
//! steps.rs      counts over time
//! ```
//!
//! Nothing is placed before its cost is known. The cost of each probe is measured on a child of ours, and
//! the rate of calls in a short trial. Probes that would cost more than is allowed are removed
//! again before they have cost much.

mod abi;
mod calibrate;
mod code;
mod find;
mod function_code;
mod items;
mod modules;
mod options;
mod plan;
mod programs;
mod result;
mod run;
mod slowest;
pub mod spec;
mod steps;
mod trial;
mod usdt;

pub use crate::uprobes::options::Options;
pub use run::{Announced, Measured, Watcher, measure};
