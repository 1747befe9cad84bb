//! Execution contexts that a runtime schedules itself: goroutines, asyncio's tasks, virtual threads. Their time has a
//! clock and a ledger of its own and is never added to that of threads: one that waits is no blocked
//! thread, and one that runs is on a thread that has its own account of having had a CPU.
//!
//! They are looked at now and then; each look stands for the time from half-way since the one before
//! to half-way to the next. So their figures are sampled, and say how often.

use std::sync::Arc;

use crate::{LabelsId, StackId, State};

/// Tasks of one process that began with the same function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskGroup {
    /// Its process.
    pub pid: u32,
    /// What they are: `goroutine`, `asyncio task`, `virtual thread`.
    pub kind: Arc<str>,
    /// The function they began with.
    pub name: Arc<str>,
    /// How many different ones were seen.
    pub seen: u64,
    /// Times that the process was looked at.
    pub looks: u64,
    /// Where their time went; all of it together is their wall time, as far as it was seen.
    pub times: Vec<TaskTime>,
}

/// A part of the time of a group of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTime {
    /// [`State::OnCpu`]: it ran on a thread; [`State::Runnable`]: it waited for the runtime to run
    /// it; [`State::Blocked`]: it waited for something else.
    pub state: State,
    /// For blocked time, what for: `channel`, `mutex`, `select`, `network`, `timer`, `gc`,
    /// `syscall`…; of asyncio's `timer`, `network`, `task`, `thread`, `lock`, `event`, `queue`… `runtime`,
    /// `parked`: nothing to do. Empty otherwise.
    pub reason: Arc<str>,
    /// The runtime's own word for it: `chan receive`. Empty where it has none.
    pub detail: Arc<str>,
    /// Where, if it did not run.
    pub stack: Option<StackId>,
    /// Labels that the program gave it.
    pub labels: Option<LabelsId>,
    /// How often one was seen so.
    pub count: u64,
    /// Time, ns.
    pub ns: u64,
}

impl TaskGroup {
    /// Time of all its tasks together, ns.
    pub fn wall_ns(&self) -> u64 {
        self.times.iter().map(|t| t.ns).sum()
    }

    /// The same in `state`, ns.
    pub fn state_ns(&self, state: State) -> u64 {
        let of = self.times.iter().filter(|t| t.state == state);
        of.map(|t| t.ns).sum()
    }
}
