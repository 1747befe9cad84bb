//! Calls of single functions: how many (`count`), how long each, and what that time went on
//! (`latency`).
//!
//! ```text
//! spec.rs       what the user asks for
//! modules.rs    the files with code that the target runs
//! find.rs       names -> addresses; usdt.rs: static probes
//! code.rs       addresses -> instructions that probes may stand at
//! function_code.rs  a found function's code, and its ways out over tail calls
//! plan.rs       which probe stands where, and why: probe safety
//! calibrate.rs  what probes cost here
//! programs.rs   the kernel programs (bpf/latency.bpf.c): loading, attaching, reading
//! items.rs      what was asked for, found and planned
//! run.rs        the order of things
//! trial.rs      how often the probes are met, before they stay
//! slowest.rs    calls told one by one; result.rs: all that was counted
//! steps.rs      counts over time
//! ```
//!
//! Nothing is placed before its cost is known: what each probe costs is measured on a child of ours,
//! how often it will be met in a short trial, and what would cost more than is allowed is taken out
//! again before it has cost much.

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
