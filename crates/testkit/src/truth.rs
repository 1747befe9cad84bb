//! What a truth program says about itself: the JSON line at its end.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole truth of one run.
#[derive(Clone, Debug, Deserialize)]
pub struct Truth {
    /// Which program.
    pub program: String,
    /// File name of its executable: the module of its own frames.
    pub executable: String,
    /// Its main process.
    pub pid: u32,
    /// When its work was released, ns on CLOCK_MONOTONIC.
    pub released_ns: u64,
    /// When its work was told to end, ns on CLOCK_MONOTONIC.
    pub ended_ns: u64,
    /// Its threads, those of its children too.
    pub threads: Vec<ThreadTruth>,
    /// Functions that it measured.
    pub functions: Vec<FunctionTruth>,
    /// Stacks at the deepest points.
    pub chains: Vec<ChainTruth>,
    /// Further figures by name.
    pub extra: BTreeMap<String, f64>,
    /// When pieces of work ended that are all alike, ns on CLOCK_MONOTONIC.
    #[serde(default)]
    pub piece_ends: Vec<u64>,
}

impl Truth {
    /// The figure `name`, or an error that says that the program does not tell it.
    pub fn extra(&self, name: &str) -> Result<f64, crate::Error> {
        self.extra
            .get(name)
            .copied()
            .ok_or_else(|| crate::Error::Protocol(format!("{} does not tell {name}", self.program)))
    }
}

/// One thread's truth; times in ns.
#[derive(Clone, Debug, Deserialize)]
pub struct ThreadTruth {
    /// Its process.
    pub pid: u32,
    /// Its id.
    pub tid: u32,
    /// Its name (at the end).
    pub name: String,
    /// First moment seen from inside, on CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// Last moment seen from inside, on CLOCK_MONOTONIC; 0: it outlives the truth.
    pub end_ns: u64,
    /// From the release to the end of its work.
    pub work_wall_ns: u64,
    /// The kernel's count of CPU time, between two moments at which it was blocked: before its
    /// release and after its work. (Of threads that end: over their work.)
    pub on_cpu_ns: u64,
    /// The kernel's count of waiting for a CPU over the same stretch.
    pub run_delay_ns: u64,
    /// Voluntary switches over the same stretch.
    pub voluntary_switches: u64,
    /// Involuntary switches over the same stretch.
    pub involuntary_switches: u64,
    /// Turns of its loop.
    pub operations: u64,
    /// Whether its work ended before the truth was told.
    pub finished: bool,
}

/// One named function's truth in one thread (`tid` 0: in all that called it); times in ns.
#[derive(Clone, Debug, Deserialize)]
pub struct FunctionTruth {
    /// Process.
    pub pid: u32,
    /// Thread; 0: any.
    pub tid: u32,
    /// Name, unique in the program.
    pub name: String,
    /// What it blocks for, by the contract's names; empty: it does not, or for several things.
    pub reason: String,
    /// Calls.
    pub calls: u64,
    /// Wall time in it.
    pub wall_ns: u64,
    /// CPU time in it.
    pub on_cpu_ns: u64,
    /// Waiting for a CPU in it.
    pub run_delay_ns: u64,
}

impl FunctionTruth {
    /// Time blocked in it: the rest of wall time.
    pub fn blocked_ns(&self) -> u64 {
        self.wall_ns
            .saturating_sub(self.on_cpu_ns + self.run_delay_ns)
    }
}

/// A stack as glibc's `backtrace()` told it at its deepest point.
#[derive(Clone, Debug, Deserialize)]
pub struct ChainTruth {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The function that asked: the innermost one.
    pub leaf: String,
    /// What it does there: `on_cpu` or `blocked`.
    pub state: String,
    /// Frames, innermost first; the last one is the root.
    pub frames: Vec<FrameTruth>,
}

/// One frame of a [`ChainTruth`].
#[derive(Clone, Debug, Default, Deserialize)]
pub struct FrameTruth {
    /// Name by the dynamic symbol table; empty where that does not tell.
    pub name: String,
    /// File name of the module.
    pub module: String,
    /// Return address minus the module's base.
    pub offset: u64,
}
