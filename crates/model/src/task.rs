//! Tasks that a runtime schedules itself: goroutines, asyncio tasks, virtual threads.
//!
//! Their time has a clock and a ledger of its own and is never added to that of threads. A waiting
//! task is no blocked thread, and a running one is on a thread that has its own ledger.
//!
//! They are read in snapshots. Each snapshot represents the time from half-way since the last one
//! to half-way to the next. So their figures are sampled, and state the number of snapshots.

use std::sync::Arc;

use crate::{LabelsId, StackId, State};

/// Tasks of one process that began with the same function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskGroup {
    /// Its process.
    pub pid: u32,
    /// Kind of the tasks: `goroutine`, `asyncio task`, `virtual thread`.
    pub kind: Arc<str>,
    /// Their start function.
    pub name: Arc<str>,
    /// Number of different tasks seen.
    pub seen: u64,
    /// Number of snapshots of the process.
    pub polls: u64,
    /// Their time by state and reason; it sums to their wall time, as far as it was seen.
    pub times: Vec<TaskTime>,
}

/// A part of the time of a group of tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskTime {
    /// [`State::OnCpu`]: running on a thread; [`State::Runnable`]: waiting to be run by the
    /// runtime; [`State::Blocked`]: waiting for something else.
    pub state: State,
    /// For blocked time, the reason: `channel`, `mutex`, `select`, `network`, `timer`, `gc`,
    /// `syscall`…; for asyncio `timer`, `network`, `task`, `thread`, `lock`, `event`, `queue`…;
    /// `runtime`, `parked`: nothing to do. Empty otherwise.
    pub reason: Arc<str>,
    /// The runtime's own word for it: `chan receive`. Empty if it has none.
    pub detail: Arc<str>,
    /// The stack, if the task did not run.
    pub stack: Option<StackId>,
    /// Labels that the program gave it.
    pub labels: Option<LabelsId>,
    /// Number of observations.
    pub count: u64,
    /// Time, ns.
    pub ns: u64,
}

impl TaskGroup {
    /// Time of all its tasks together, ns.
    pub fn wall_ns(&self) -> u64 {
        self.times.iter().map(|t| t.ns).sum()
    }

    /// Time of all its tasks in `state`, ns.
    pub fn state_ns(&self, state: State) -> u64 {
        let of = self.times.iter().filter(|t| t.state == state);
        of.map(|t| t.ns).sum()
    }
}
