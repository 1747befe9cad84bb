//! Ways to measure, by what the host allows. Each has a folder; `perf` runs within the poller of `proc`.

pub mod ebpf;
pub(crate) mod perf;
mod perf_event;
pub(crate) mod proc;
mod ring;

/// A way to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// Kernel programs at scheduler hooks.
    Ebpf,
    /// Perf events of own processes, and looking at `/proc`.
    Perf,
    /// Looking at `/proc`, with nobody's permission but the owner's.
    Proc,
}
