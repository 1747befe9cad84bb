//! Waits that the kernel books as rest, a sleep or a poll, and that are none: somebody or something has to
//! end them, or lets them come to nothing.

use std::collections::HashMap;

use wallscope_model::{Actor, BlockReason, FrameKind, Recording, Sample};

use super::LASTING;
use super::places::{functions, scripts};
use super::waits::hops;
use crate::idle::script_name;

/// What such a wait is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delay {
    /// A child that it started meanwhile: it polls for what that writes, or for its end.
    Child,
    /// A disk, by calls that do not block.
    Disk,
    /// A lock that it tries to get again and again.
    Tries,
}

impl Delay {
    /// All of them.
    pub const ALL: [Delay; 3] = [Delay::Child, Delay::Disk, Delay::Tries];

    /// What was looked at, in words.
    pub fn name(self) -> &'static str {
        match self {
            Delay::Child => "polled for own children",
            Delay::Disk => "polled for a disk",
            Delay::Tries => "slept between tries to get a lock",
        }
    }
}

/// Functions that sleep between their tries to get a lock; of scripts with their file. A name ending in
/// `*` is a prefix.
const TRIES: &[&str] = &[
    // SQLite's busy handler: the library sleeps for nothing else, unless it is asked to.
    "sqlite3_step",
    "sqlite3_exec",
    "sqlite3_prepare*",
    "sqlite3_wal_checkpoint*",
    "sqlite3_backup_step",
    "sqlite3_blob_open",
    "sqlite3_close*",
    // PostgreSQL's spinlocks.
    "s_lock",
    "perform_spin_delay",
    // git's lock files.
    "hold_lock_file_for_update_timeout*",
    // Python's libraries for lock files.
    "acquire (site-packages/filelock/_api.py)",
    "acquire (site-packages/portalocker/utils.py)",
    "acquire (site-packages/fasteners/process_lock.py)",
];
/// A sleep that was asked for as such.
const ASKED: &str = "sqlite3_sleep";

/// Of a wait's time, so much must have been ended so.
const MOST: f64 = 0.5;
/// Threads of the kernel that do what was asked of io_uring where it would block.
const IO_URING_WORKERS: &str = "iou-wrk";

/// What each sample's wait is for, where it looks like rest and is none.
pub(crate) fn of_samples(recording: &Recording) -> Vec<Option<Delay>> {
    let (below_sample, _) = hops(recording);
    let children = Children::new(recording);
    let delay = |(i, s): (usize, &Sample)| {
        let ended = below_sample.get(&(i as u32)).map_or(&[][..], Vec::as_slice);
        match s.reason? {
            BlockReason::Timer => tries(recording, s).then_some(Delay::Tries),
            BlockReason::Poll if children.end(recording, s, ended) => Some(Delay::Child),
            BlockReason::Poll if recording.hops.is_empty() && communicates(recording, s) => {
                Some(Delay::Child)
            }
            BlockReason::Poll if disk_ends(recording, s, ended) => Some(Delay::Disk),
            _ => None,
        }
    };
    recording.samples.iter().enumerate().map(delay).collect()
}

/// Who is whose child.
pub(super) struct Children {
    parents: HashMap<u32, u32>,
    /// A thread that was there for so long, ns, was not started for one thing only.
    lasting_ns: f64,
}

/// How many parents up a child is looked for: process ids are used again, and no circle is followed.
const MOST_GENERATIONS: usize = 8;

impl Children {
    pub fn new(recording: &Recording) -> Children {
        let window = recording.window.length_ns();
        Children {
            parents: (recording.processes.iter().map(|p| (p.pid, p.parent))).collect(),
            lasting_ns: LASTING * window as f64,
        }
    }

    /// Whether children that came into being in the recording to do something, or theirs, ended most of a
    /// sample's waits, of which `ended` are the hops.
    pub fn end(&self, recording: &Recording, sample: &Sample, ended: &[u32]) -> bool {
        let own = recording.contexts[sample.context.0 as usize].pid;
        mostly_ended_by(recording, sample, ended, |actor| {
            let Actor::Context(who) = actor else {
                return false;
            };
            let who = &recording.contexts[who.0 as usize];
            let fresh = who.start_ns > recording.window.start_ns
                && (who.ledger.wall_ns as f64) < self.lasting_ns;
            fresh && self.descends(who.pid, own)
        })
    }

    fn descends(&self, mut pid: u32, from: u32) -> bool {
        for _ in 0..MOST_GENERATIONS {
            match self.parents.get(&pid) {
                Some(parent) if *parent == from => return true,
                Some(parent) => pid = *parent,
                None => return false,
            }
        }
        false
    }
}

fn disk_ends(recording: &Recording, sample: &Sample, ended: &[u32]) -> bool {
    mostly_ended_by(recording, sample, ended, |actor| match actor {
        Actor::Interrupt(served) => &**served == "disk",
        Actor::Context(who) => recording.contexts[who.0 as usize]
            .name
            .starts_with(IO_URING_WORKERS),
        Actor::Stranger { name, .. } => name.starts_with(IO_URING_WORKERS),
        Actor::Unknown => false,
    })
}

pub(super) fn mostly_ended_by(
    recording: &Recording,
    sample: &Sample,
    ended: &[u32],
    fits: impl Fn(&Actor) -> bool,
) -> bool {
    let hops = ended.iter().map(|hop| &recording.hops[*hop as usize]);
    let fitting = hops.filter(|h| fits(&recording.actors[h.actor.0 as usize]));
    let ns: u64 = fitting.map(|h| h.ns).sum();
    ns > 0 && ns as f64 >= MOST * sample.ns as f64
}

/// Whether a script waits for what a process says that it has started, by its library's function: for where nobody knows
/// who ends waits.
fn communicates(recording: &Recording, sample: &Sample) -> bool {
    let mut all = scripts(recording, sample.stack);
    all.any(|f| script_name(f) == "_communicate (subprocess.py)")
}

fn tries(recording: &Recording, sample: &Sample) -> bool {
    let is = |name: &str| {
        TRIES.iter().any(|t| match t.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == *t,
        })
    };
    let native = || {
        let all = functions(recording, sample.stack);
        all.filter(|(kind, _)| *kind != FrameKind::Kernel)
            .map(|(_, name)| &**name)
    };
    let tried = native().any(is) && !native().any(|name| name == ASKED);
    tried || scripts(recording, sample.stack).any(|f| is(&script_name(f)))
}
