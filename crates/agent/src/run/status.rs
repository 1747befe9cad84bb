//! What `agent status` shows.

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
