//! Ways to measure, by the rights that the host gives. Each has a folder; `perf` runs within the poller of `proc`.

pub mod ebpf;
pub(crate) mod perf;
mod perf_event;
pub(crate) mod proc;
mod ring;

/// A way to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Backend {
    /// Kernel programs: exact totals, all stacks; needs root, or CAP_BPF and CAP_PERFMON
    Ebpf,
    /// Perf events of own processes: stacks of running threads too; needs perf_event_paranoid 2
    Perf,
    /// Polls of /proc: exact on-CPU and run-queue times, stacks of waiting threads; for
    /// ordinary users
    Proc,
}
