//! Interface of a recording session: its options, its observer and its result.

use std::{fs::File, sync::Arc, time::Duration};

use wallscope_model::{Recording, WaitSeen, call_filter::Moment};
use wallscope_observe::{LogFile, LogWriter, Purpose, Spool};
use wallscope_symbolize::Sources;

use super::events::{Control, Signals};
use super::{
    deferred_unwind,
    files::FileLimits,
    flight::{self, FlightRecorder},
    method::Method,
    timeline,
};
use crate::{
    counter::EventSpec,
    target::{CommandEnd, Held, Target},
};

/// The program as logs name it.
const TOOL: &str = concat!("wallscope ", env!("CARGO_PKG_VERSION"));

/// What to record and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to measure.
    pub target: Target,
    /// How to measure.
    pub method: Method,
    /// Flight recorder that keeps the single intervals of the last minutes, for a session in windows; `None`: they
    /// are not kept. Only the ebpf backend fills it.
    pub flight: Option<FlightRecorder>,
    /// Events at which stacks are taken too.
    pub events: Vec<EventSpec>,
    /// File for a command's output; the command then has no input. `None`: it has our input and output.
    pub command_output: Option<Arc<File>>,
    /// Whether each sample's moment is wanted (see [`Captured::moments`]).
    pub moments: bool,
    /// Whether stacks are wanted, or ledgers alone.
    pub stacks: bool,
    /// The log of observations.
    pub log: Option<Log>,
    /// Interval between the observer's [`Snapshot`]s; `None`: there are none. The recording at the end lacks
    /// the samples and times that a snapshot has shown.
    pub snapshot_every: Option<Duration>,
    /// Whether snapshots are windows. Windows begin at multiples of `snapshot_every` of the wall clock. They hold
    /// their domain, losses, host and the run time of the kernel programs. By the ebpf backend only.
    pub windows: bool,
}

impl Options {
    /// `target` is measured by `method`, and nothing else is asked for.
    pub fn new(target: Target, method: Method) -> Options {
        Options {
            target,
            method,
            flight: None,
            events: Vec::new(),
            command_output: None,
            moments: false,
            stacks: true,
            log: None,
            snapshot_every: None,
            windows: false,
        }
    }

    /// Size of the kernel's ring of turns, bytes; `None`: the kernel programs send no turns.
    pub(super) fn turn_ring(&self) -> Option<u32> {
        match (self.method.timeline, &self.flight) {
            (true, _) => Some(timeline::KERNEL_RING),
            (false, Some(_)) => Some(flight::KERNEL_RING),
            (false, None) => None,
        }
    }

    /// Most copied stacks that are kept to be unwound.
    pub(super) fn most_copies(&self) -> usize {
        match self.windows {
            true => deferred_unwind::MAX_COPIES_IN_WINDOW,
            false => deferred_unwind::MAX_COPIES,
        }
    }

    /// Bounds of the data that is kept of files.
    pub(super) fn file_limits(&self) -> FileLimits {
        match self.windows {
            true => FileLimits::WINDOWS,
            false => FileLimits::RECORDING,
        }
    }

    /// Begins the log of observations, if the options ask for one. Also returns the reason for a spool that could not
    /// be made.
    pub(crate) fn begin_log(&self) -> (Option<LogWriter>, Option<String>) {
        match &self.log {
            None => (None, None),
            Some(Log::Kept(file)) => {
                let log = LogWriter::begin(file.clone(), TOOL, LogFile::BOUND);
                (Some(log), None)
            }
            Some(Log::Spool(spool)) => match spool.create() {
                Ok(file) => (Some(LogWriter::begin(file, TOOL, spool.bound())), None),
                Err(e) => (
                    None,
                    Some(format!("there is no spool: it cannot be made: {e}")),
                ),
            },
        }
    }
}

/// A log of observations, and the reason for it.
#[derive(Clone, Debug)]
pub enum Log {
    /// Log that the user keeps (see [`crate::session::replay`]).
    Kept(LogFile),
    /// Log from which the recording can be made if this process does not end in order (see
    /// [`crate::session::recover`]). A spool that cannot be made does not stop the recording: the domain states it.
    Spool(Spool),
}

/// Returns the log if the user keeps it. A spool is flushed and dropped: its names are complete, and nothing is
/// measured from here on that could be lost.
pub(crate) fn kept(log: Option<LogWriter>) -> Option<LogWriter> {
    let mut log = log?;
    match log.purpose() {
        Purpose::Kept => Some(log),
        Purpose::Spool => {
            log.flush();
            None
        }
    }
}

/// Observer of a running session.
pub trait Observer {
    /// Measuring is live: from now on nothing is missed.
    fn live(&mut self, facts: &Live);
    /// Some time has passed.
    fn progress(&mut self, progress: &Progress);
    /// Hands over the time since the last snapshot (see [`Options::snapshot_every`]).
    fn snapshot(&mut self, snapshot: Snapshot) {
        let _ = snapshot;
    }
    /// The window has just ended; the recording is assembled next.
    fn over(&mut self) {}
}

/// The state of things when measuring went live.
#[derive(Clone, Debug)]
pub struct Live {
    /// The target in words.
    pub target: String,
    /// Threads found.
    pub threads: usize,
    /// The on-CPU event in words.
    pub event: String,
    /// On-CPU samples a second.
    pub hz: u32,
    /// The contract's name of the backend.
    pub backend: &'static str,
    /// The processes that were found; a command's is held, and has not begun.
    pub pids: Vec<u32>,
    /// Ends the session from elsewhere.
    pub control: Control,
}

/// Progress of a running session.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start.
    pub elapsed: Duration,
    /// Threads alive.
    pub threads: usize,
    /// Distinct stacks so far.
    pub stacks: usize,
}

/// Why measuring stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The duration was over.
    Duration,
    /// The target ended.
    TargetEnded,
    /// A signal asked for it.
    Signal,
}

impl Stop {
    /// Waits for the end of a command that has ended, or is to end with the measurement.
    pub(crate) fn finish(self, held: &mut Held) -> Option<CommandEnd> {
        match self {
            Stop::TargetEnded => held.wait(),
            Stop::Duration | Stop::Signal => held.end(),
        }
    }
}

/// The result of measuring.
pub struct Captured {
    /// The recording; frames have no names yet.
    pub recording: Recording,
    /// Bytes and names that a symboliser needs, by module.
    pub sources: Sources,
    /// Connections seen in the waits of each sample, by the index of the sample; empty: none were seen.
    pub seen: Vec<WaitSeen>,
    /// When each sample was taken, where that is wanted; by the ebpf backend only.
    pub moments: Vec<Moment>,
    /// Why it stopped.
    pub stop: Stop,
    /// End of the command, if the target is one.
    pub command_end: Option<CommandEnd>,
    /// The log of observations: the symboliser's names are still to be appended.
    pub log: Option<LogWriter>,
    /// Holds back the signals that end a recording. Keep it until the recording is safe: a second Ctrl-C must lose
    /// nothing.
    pub signals: Signals,
}

/// What was measured since the last snapshot.
pub struct Snapshot {
    /// Time since the start.
    pub elapsed: Duration,
    /// Time and samples that were added, of the threads that existed at any time since the last snapshot.
    pub recording: Recording,
    /// Bytes and names that a symboliser needs for its frames.
    pub sources: Sources,
    /// Connections seen in the waits of each sample, by the index of the sample; empty: none were seen.
    pub seen: Vec<WaitSeen>,
}
