//! Delays: waits that the kernel counts as a sleep or a poll, though a child process, a disk or a lock's holder has
//! to end them.

use std::collections::{HashMap, HashSet};

use wallscope_model::{Actor, BlockReason, Recording, Sample};

use crate::frames::{Side, functions_on, script_name, scripts};
use crate::knowledge::{ASKED_SLEEPS, IO_URING_WORKER, LOCK_RETRIES, SCRIPT_CHILD_READS, knows};
use crate::thresholds::LASTING;
use crate::wake_chain::{WakeChains, mostly_ended_by};

/// The target of such a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// A child that the process started meanwhile: it polls for the child's output or end.
    Child,
    /// A disk: the thread makes its requests by calls that do not block.
    Disk,
    /// A lock that the thread tries to get again and again.
    Tries,
}

impl Delay {
    /// All of them.
    pub const ALL: [Delay; 3] = [Delay::Child, Delay::Disk, Delay::Tries];

    /// The delay in words.
    pub fn name(self) -> &'static str {
        match self {
            Delay::Child => "polled for own children",
            Delay::Disk => "polled for a disk",
            Delay::Tries => "slept between tries to get a lock",
        }
    }
}

/// The kind of delay of each sample's wait, by sample; `None`: the wait is no delay.
pub(crate) fn of_samples(recording: &Recording, chains: &WakeChains) -> Vec<Option<Delay>> {
    let children = Children::new(recording);
    let delay = |(i, sample): (usize, &Sample)| {
        let hops = chains.of_sample(i as u32);
        match sample.reason? {
            BlockReason::Timer => tries(recording, sample).then_some(Delay::Tries),
            BlockReason::Poll if children.end(recording, sample, hops) => Some(Delay::Child),
            BlockReason::Poll if recording.hops.is_empty() && reads_child(recording, sample) => {
                Some(Delay::Child)
            }
            BlockReason::Poll if disk_ends(recording, sample, hops) => Some(Delay::Disk),
            _ => None,
        }
    };
    recording.samples.iter().enumerate().map(delay).collect()
}

/// Parents of the recorded processes.
pub(crate) struct Children {
    parents: HashMap<u32, u32>,
    /// Processes that answered callers, with the process of each caller; 0: unknown.
    callers: HashSet<(u32, u32)>,
    /// Lifetime, ns, above which a thread was not started for one task only.
    lasting_ns: f64,
}

/// Maximum generations in the search for an ancestor. Process ids are reused, so parents may form a cycle; this limit
/// ends it.
const MAX_GENERATIONS: usize = 16;

impl Children {
    /// Reads the parents of a recording's processes.
    pub fn new(recording: &Recording) -> Children {
        let processes = recording.processes.iter();
        let answers = recording.peers.iter().filter(|p| !p.asks && p.requests > 0);
        Children {
            parents: processes.map(|p| (p.pid, p.parent)).collect(),
            callers: answers.map(|p| (p.pid, p.peer_pid)).collect(),
            lasting_ns: LASTING * recording.window.length_ns() as f64,
        }
    }

    /// Whether short-lived descendants that were started during the recording ended most of a sample's waits; `hops`
    /// are its wakers. Descendants that answered callers other than their ancestor do not count: a server that starts
    /// a process for each connection waits for connections.
    pub fn end(&self, recording: &Recording, sample: &Sample, hops: &[u32]) -> bool {
        let own = recording.contexts[sample.context.0 as usize].pid;
        mostly_ended_by(recording, sample, hops, |actor| {
            let Actor::Context(thread) = actor else {
                return false;
            };
            let thread = &recording.contexts[thread.0 as usize];
            let fresh = thread.start_ns > recording.window.start_ns
                && (thread.ledger.wall_ns as f64) < self.lasting_ns;
            fresh && self.descends(thread.pid, own) && !self.serves_others(thread.pid, own)
        })
    }

    fn serves_others(&self, pid: u32, own: u32) -> bool {
        let mut callers = self.callers.iter();
        callers.any(|(server, caller)| *server == pid && *caller != own)
    }

    fn descends(&self, mut pid: u32, from: u32) -> bool {
        for _ in 0..MAX_GENERATIONS {
            match self.parents.get(&pid) {
                Some(parent) if *parent == from => return true,
                Some(parent) => pid = *parent,
                None => return false,
            }
        }
        false
    }
}

/// Whether a disk's interrupt or a worker of io_uring ended most of a sample's waits.
fn disk_ends(recording: &Recording, sample: &Sample, hops: &[u32]) -> bool {
    mostly_ended_by(recording, sample, hops, |actor| match actor {
        Actor::Interrupt(served) => &**served == "disk",
        Actor::Context(thread) => {
            let name = &recording.contexts[thread.0 as usize].name;
            knows(IO_URING_WORKER, name)
        }
        Actor::Stranger { name, .. } => knows(IO_URING_WORKER, name),
        Actor::Unknown => false,
    })
}

/// Whether a script reads the output of a process that it started, by its library's function. Used if wakers are
/// unknown.
fn reads_child(recording: &Recording, sample: &Sample) -> bool {
    scripts(recording, sample.stack).any(|f| knows(SCRIPT_CHILD_READS, &script_name(f)))
}

/// Whether a thread sleeps between its tries to get a lock.
fn tries(recording: &Recording, sample: &Sample) -> bool {
    let user = || functions_on(recording, sample.stack, Side::User);
    let native = user().any(|name| knows(LOCK_RETRIES, name))
        && !user().any(|name| knows(ASKED_SLEEPS, name));
    native || scripts(recording, sample.stack).any(|f| knows(LOCK_RETRIES, &script_name(f)))
}
