//! Stacks taken at events (page faults, system calls, cache misses…), beside those taken by the
//! clock.

use crate::{ContextId, Sample};

/// One event: its count by thread, and its stacks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventHits {
    /// The event's name, as requested: `page-faults`, `syscalls:sys_enter_write`.
    pub name: String,
    /// Whether `hits` were counted one by one; otherwise they are sums of sampling periods.
    pub counted: bool,
    /// Number of events by thread; threads without one are left out.
    pub hits: Vec<(ContextId, u64)>,
    /// Stacks. `ns` and the slices' values are the number of events that a stack represents,
    /// unscaled. The state is [`State::OnCpu`]; the part is that at the event.
    pub samples: Vec<Sample>,
}

impl EventHits {
    /// Events of all threads.
    pub fn total(&self) -> u64 {
        self.hits.iter().map(|(_, n)| n).sum()
    }
}
