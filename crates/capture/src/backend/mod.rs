//! Ways to measure, by what the host allows. Each is a folder of its own.

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
