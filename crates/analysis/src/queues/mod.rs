//! The queues of a recording: contended locks, servers, pools, CPUs and disks, with arrivals, service,
//! waits, and the waits under more load.
//!
//! One file a kind reads the recording: [`lock`], [`server`], [`cpu`], [`disk`]. Each says what it could
//! not determine. [`what_if`] asks how long the threads' work takes if one function is faster,
//! [`scaling`] how throughput grows over several recordings.
//!
//! The mathematics is in [`crate::queueing`]. Times here are seconds.

mod blocks;
mod cpu;
mod disk;
mod lock;
mod replay;
pub mod scaling;
mod server;
pub mod what_if;

use std::sync::Arc;

use wallscope_model::Recording;

use crate::queueing::predict::{Open, Prediction};
use crate::queueing::{Discipline, Estimate, Moments, bootstrap};
use crate::view::Analysis;

/// Kind of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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

impl Kind {
    /// The name in files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Lock => "lock",
            Kind::Pool => "pool",
            Kind::Server => "server",
            Kind::Cpu => "cpu",
            Kind::Disk => "disk",
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
    pub kind: Kind,
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
    pub kind: Kind,
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
    fn push(&mut self, result: Result<Queue, Absent>) {
        match result {
            Ok(queue) => self.rows.push(queue),
            Err(absent) => self.absent.push(absent),
        }
    }
}

/// Finds the queues of a recording.
pub fn queues(analysis: &Analysis<'_>) -> Queues {
    let mut found = Queues::default();
    if !analysis.recording.domain.unit.is_time() {
        return found;
    }
    lock::queues(analysis, &mut found);
    server::queues(analysis.recording, &mut found);
    cpu::queues(analysis.recording, &mut found);
    disk::queues(analysis.recording, &mut found);
    (found.rows).sort_by(|a, b| a.headroom.value.total_cmp(&b.headroom.value));
    found
}

/// What is known of a queue before anything is computed.
struct Known {
    kind: Kind,
    name: Arc<str>,
    system: System,
    because: String,
    servers: u32,
    discipline: Discipline,
    /// Servers that are busy with other work.
    others: f64,
    /// Sums by block of time, not empty.
    blocks: Vec<Moments>,
    /// Whether the blocks' waits were measured.
    waits_known: bool,
    /// Whether the blocks' squares of service times were measured.
    variation_known: bool,
    notes: Vec<String>,
}

impl Known {
    fn open(&self) -> Open {
        Open {
            servers: self.servers,
            discipline: self.discipline,
            others: self.others,
        }
    }

    /// The queue with everything that follows from the blocks, and this prediction.
    fn queue(self, prediction: Option<Prediction>) -> Queue {
        let servers = f64::from(self.servers);
        let of = |statistic: &dyn Fn(&Moments) -> f64| bootstrap::of(&self.blocks, statistic);
        let others = self.others;
        let system = self.system;
        // Signed, so not on the scale of logarithms: by the load that fills the servers.
        let full = of(&|m| match system {
            System::Open => (servers - others).max(0.0) / (m.service / m.span),
            System::Closed(n) => {
                let elsewhere = (n * m.span / m.jobs - m.mean_wait()).max(m.mean_service());
                (servers - others).max(0.0) * elsewhere / m.mean_service() / n
            }
        });
        Queue {
            arrival_rate: of(&Moments::arrival_rate),
            service: of(&Moments::mean_service),
            variation: (self.variation_known).then(|| of(&Moments::service_variation)),
            utilisation: of(&|m| m.utilisation(self.servers) + others / servers),
            wait: (self.waits_known).then(|| of(&Moments::mean_wait)),
            others: others / servers,
            headroom: Estimate {
                value: full.value - 1.0,
                low: full.low - 1.0,
                high: full.high - 1.0,
            },
            prediction,
            kind: self.kind,
            name: self.name,
            system,
            because: self.because,
            servers: self.servers,
            notes: self.notes,
        }
    }
}

/// Length of the recording, s.
fn window(recording: &Recording) -> f64 {
    recording.window.length_ns() as f64 / 1e9
}

/// Nanoseconds as seconds.
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;
