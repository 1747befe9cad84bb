//! Facts that a recorder logs as they come, and how far it has got.

use crate::session::early_names::EarlyNames;

/// Facts that a log has got so far.
#[derive(Default)]
pub(super) struct LoggedFacts {
    /// Names that were asked for.
    pub names: EarlyNames,
    /// Number of stacks with names that were asked for.
    pub named: usize,
    /// When cumulative figures are due, ns; 0: nothing has been logged yet.
    pub figures_due_ns: u64,
}
