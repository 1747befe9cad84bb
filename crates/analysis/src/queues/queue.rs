//! Queues of a recording, as data.

use std::sync::Arc;

use crate::queueing::Estimate;
use crate::queueing::predict::Prediction;

/// Kind of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueueKind {
    /// A lock.
    Lock,
    /// Threads that share their work, or units that threads take and give back.
    Pool,
    /// A thread that serves alone.
    Server,
    /// The CPUs that the threads may run on.
    Cpu,
    /// A block device.
    Disk,
}

impl QueueKind {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            QueueKind::Lock => "lock",
            QueueKind::Pool => "pool",
            QueueKind::Server => "server",
            QueueKind::Cpu => "cpu",
            QueueKind::Disk => "disk",
        }
    }
}

/// Whether arrivals depend on the queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum System {
    /// Arrivals come from outside, however long the queue is.
    Open,
    /// So many customers go round; one that waits brings no other.
    Closed(f64),
}

/// A queue, as far as the recording tells.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Its kind.
    pub kind: QueueKind,
    /// Its name.
    pub name: Arc<str>,
    /// Open or closed.
    pub system: System,
    /// Reason for open or closed, in words.
    pub because: String,
    /// Number of servers.
    pub servers: u32,
    /// Arrivals a second.
    pub arrival_rate: Estimate,
    /// Mean service time, s.
    pub service: Estimate,
    /// Squared coefficient of variation of service times, if known.
    pub variation: Option<Estimate>,
    /// Share of the time for which the servers are busy, with all work.
    pub utilisation: Estimate,
    /// The part of it that is other work, which does not grow with the load.
    pub others: f64,
    /// Measured mean wait before service, s, if known.
    pub wait: Option<Estimate>,
    /// Growth of the load at which the servers are full: 0.2 is 20 % more. Negative: they are.
    pub headroom: Estimate,
    /// Waits by model, if there was enough to predict from.
    pub prediction: Option<Prediction>,
    /// Assumptions, and facts that the recording does not tell.
    pub notes: Vec<String>,
}

/// A resource that was waited for, of which too little is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Its kind.
    pub kind: QueueKind,
    /// Its name; empty for all of the kind.
    pub name: Arc<str>,
    /// What is missing, and how to record it.
    pub reason: String,
}

/// The queues of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queues {
    /// Queues, least headroom first.
    pub rows: Vec<Queue>,
    /// Resources of which too little is known.
    pub absent: Vec<Absent>,
}

impl Queues {
    /// Adds a result.
    pub(super) fn push(&mut self, result: Result<Queue, Absent>) {
        match result {
            Ok(queue) => self.rows.push(queue),
            Err(absent) => self.absent.push(absent),
        }
    }
}
