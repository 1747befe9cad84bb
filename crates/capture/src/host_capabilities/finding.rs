//! The outcome of one attempt, and what hangs on it.

/// What something is needed for.
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
    /// The name that `--backend` takes; `extra` for what no backend depends on.
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
    /// What it is.
    pub what: &'static str,
    /// What it is needed for.
    pub tier: Tier,
    /// Whether it was allowed; otherwise what the kernel said.
    pub outcome: Result<(), String>,
    /// What is lost without it.
    pub lost: &'static str,
    /// What would allow it.
    pub remedy: &'static str,
}
