//! Measuring: the only crate with privilege.
//!
//! ```text
//! backend/ebpf/   the kernel programs: loading, attaching, reading (C in bpf/)
//! session/        one recording from start to file: who is measured, threads and their books,
//!                 samples and stacks, processes and their mappings, cost
//! counter/        how often something happened: perf events as counters
//! probes/         calls of single functions: where probes may stand, counts, lengths, ledgers
//! probe.rs        what this host allows, found by trying
//! survey.rs       what would be seen of a running process, found in the same way
//! target.rs       what to measure; starting a command and holding it until measuring is live
//! ```
//!
//! The result is a [`wallscope_model::Recording`] whose frames have addresses but no names yet, and
//! the open files that a symboliser needs to name them.

pub mod backend;
pub mod counter;
pub mod host_capabilities;
pub mod session;
pub mod survey;
pub mod target;
pub mod uprobes;

mod ahead;
mod clock;
mod cpus;
mod error;
mod event;
mod period_jitter;
mod places;
mod slices;
mod syscalls;

pub use error::Error;
