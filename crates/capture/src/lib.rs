//! Measuring: the only crate with privilege.
//!
//! ```text
//! backend/               collectors: ebpf/ (kernel programs in C in bpf/), perf/, proc/
//! session/               one recording from start to file: targets, threads and their ledgers, samples and
//!                        stacks, processes and their mappings, cost
//! counter/               how often something happened: perf events as counters
//! uprobes/               calls of single functions: where probes may stand, counts, lengths, ledgers
//! host_capabilities.rs   privileges and features of this host, found by trying
//! survey.rs              the parts of a running process that a recording would see
//! target.rs              the target; starting a command and holding it until measuring is live
//! clock.rs, slices.rs    stamps, and the grid of time slices
//! ```
//!
//! The result is a [`wallscope_model::Recording`] with addresses of frames but no names yet, and the
//! open files that a symboliser needs to name them.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod backend;
pub mod counter;
pub mod host_capabilities;
pub mod session;
pub mod survey;
pub mod target;
pub mod uprobes;

mod clock;
mod cpus;
mod error;
mod event;
mod open_files;
mod period_jitter;
mod places;
mod priority;
mod slices;
mod syscalls;

pub use error::Error;
