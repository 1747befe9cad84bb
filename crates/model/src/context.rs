//! Threads of a recording.

use std::sync::Arc;

use crate::Ledger;

/// Index into [`Recording::contexts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContextId(pub u32);

/// A thread, with its ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// Process id, in the recorder's pid namespace.
    pub pid: u32,
    /// Thread id, in that namespace too.
    pub tid: u32,
    /// Thread name (`comm`), as last seen.
    pub name: Arc<str>,
    /// Start of its existence within the window, ns on the recording's clock.
    pub start_ns: u64,
    /// End of its existence within the window, ns on the recording's clock.
    pub end_ns: u64,
    /// Its time by state.
    pub ledger: Ledger,
}
