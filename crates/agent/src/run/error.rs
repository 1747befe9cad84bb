//! Errors of an agent.

use std::io;
use std::path::PathBuf;

use super::source::SourceError;
use crate::config::ConfigError;
use crate::http::ClientError;
use crate::store::StoreError;

/// Why an agent cannot start, or ends.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Another agent runs in this directory.
    #[error(
        "another agent runs here (process {pid}, lock '{}'): end it first",
        path.display()
    )]
    Running {
        /// The lock.
        path: PathBuf,
        /// Its process id.
        pid: String,
    },
    /// Another agent measures this host.
    #[error("another agent measures this host ({0}): end it first")]
    RunningOnHost(String),
    /// The lock cannot be made.
    #[error("cannot lock '{}': {source}", path.display())]
    Lock {
        /// The lock.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A target cannot be used.
    #[error("target {name}: {source}")]
    Target {
        /// Its name.
        name: String,
        /// The reason.
        source: ClientError,
    },
    /// The source ended.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A socket, a thread or a signal handler cannot be made.
    #[error("cannot {doing}: {source}")]
    System {
        /// The attempt.
        doing: String,
        /// The system's error.
        source: io::Error,
    },
}
