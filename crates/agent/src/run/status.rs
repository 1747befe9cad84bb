//! The status that `agent status` shows.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// State of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Schema of this document: `wallscope.agent-status/1`.
    pub schema: String,
    /// Version of the agent.
    pub version: String,
    /// Start of the agent, ns since the epoch.
    pub epoch: u64,
    /// Windows since then.
    pub windows: u64,
    /// End of the last window, ns since the epoch; 0: there was none.
    pub last_window_unix_ns: u64,
    /// Directory of the store.
    pub store_dir: PathBuf,
    /// Its bytes.
    pub store_bytes: u64,
    /// Its windows.
    pub store_windows: u64,
    /// Windows that could not be written.
    pub failed_windows: u64,
    /// By target.
    pub targets: BTreeMap<String, TargetStatus>,
    /// The last error, of writing, of a reload or of a trigger.
    pub error: Option<String>,
    /// Control groups of its own, or why there are none.
    #[serde(default)]
    pub cgroup: String,
    /// Its memory at the end of the last window.
    #[serde(default)]
    pub memory: MemoryStatus,
}

/// Memory of an agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryStatus {
    /// Resident memory and kernel maps, bytes: the sum that `budget.max_memory` limits.
    pub used_bytes: u64,
    /// Bytes that the allocator has handed out; `None`: the C library does not report them.
    pub heap_bytes: Option<u64>,
    /// Bytes of the flight recorder's ring.
    pub flight_bytes: u64,
    /// `budget.max_memory`, bytes; 0: the agent's version does not report it.
    #[serde(default)]
    pub limit_bytes: u64,
    /// Step given up for memory; 0: none.
    pub step: u32,
    /// The step in words; empty: nothing is given up.
    #[serde(default)]
    pub given_up: String,
}

/// State of the delivery to one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetStatus {
    /// Windows that wait.
    pub pending: u64,
    /// Windows acknowledged.
    pub delivered: u64,
    /// Attempts that failed.
    pub failures: u64,
    /// Windows refused for good.
    pub refused: u64,
    /// Windows that may have counted twice.
    pub maybe_twice: u64,
    /// The last error, until a window is delivered.
    pub error: Option<String>,
}
