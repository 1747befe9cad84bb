//! The outcome of one attempt, and its consequences.

/// The backend that needs something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The eBPF backend.
    Ebpf,
    /// Perf events of an ordinary user.
    Perf,
    /// `/proc` and reading of memory.
    Proc,
    /// No backend depends on it.
    Extra,
}

impl Tier {
    /// The value of `--backend`; `extra` if no backend depends on it.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Ebpf => "ebpf",
            Tier::Perf => "perf",
            Tier::Proc => "proc",
            Tier::Extra => "extra",
        }
    }
}

/// One thing that was tried.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Short stable name, for scripts.
    pub id: &'static str,
    /// Description.
    pub what: &'static str,
    /// The backend that needs it.
    pub tier: Tier,
    /// Success, or the kernel's error.
    pub outcome: Result<(), String>,
    /// The loss without it.
    pub lost: &'static str,
    /// Remedy.
    pub remedy: &'static str,
}
