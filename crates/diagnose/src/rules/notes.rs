//! Notes beside the sentence at the end of a recording: findings too small for a verdict, or about
//! time that is in no thread's ledger.

use crate::evidence::Evidence;
use crate::evidence::tasks::{ANSWER, TaskWaits};
use crate::thresholds::{CAUSE_SHARE, PEER_NOTE, SPIN_NOTE, TASKS_WAITING, UNATTRIBUTED_NOTE};
use crate::words;

/// A named note.
pub(crate) struct Note {
    /// Its name. A rule of that name is about the same subject.
    pub name: &'static str,
    /// The note in words, where it applies.
    pub says: fn(&Evidence<'_>) -> Option<String>,
}

/// Every note, in the order of output.
pub(crate) const NOTES: &[Note] = &[
    Note {
        name: "unattributed",
        says: unattributed,
    },
    Note {
        name: "peer",
        says: peer,
    },
    Note {
        name: "tasks",
        says: tasks,
    },
    Note {
        name: "spinning",
        says: spinning,
    },
];

fn unattributed(e: &Evidence<'_>) -> Option<String> {
    let ns = e.totals.unattributed_ns;
    (e.totals.share(ns) >= UNATTRIBUTED_NOTE).then(|| {
        format!(
            "threads that lived too short to be seen computed for {} more",
            words::time(ns)
        )
    })
}

fn peer(e: &Evidence<'_>) -> Option<String> {
    let (name, share) = e.totals.peer.as_ref()?;
    (*share >= PEER_NOTE)
        .then(|| format!("{} of request time waits for {name}", words::share(*share)))
}

fn tasks(e: &Evidence<'_>) -> Option<String> {
    let t = TaskWaits::new(e.recording)?;
    let place = match &*t.function {
        "" => String::new(),
        function => format!(", most in {function}"),
    };
    let reason = match &*t.reason {
        "lock" | "mutex" => "locks",
        "timer" => "timers",
        "network" => "the network",
        "channel" => "channels",
        "select" => "one of several channels",
        ANSWER => "answers to their HTTP requests",
        other => other,
    };
    (t.at_once >= TASKS_WAITING && t.share >= CAUSE_SHARE).then(|| {
        format!(
            "of the time of {}s ({:.1} of them on average) {} is waiting for {reason}{place}",
            t.kind,
            t.at_once,
            words::share(t.share)
        )
    })
}

fn spinning(e: &Evidence<'_>) -> Option<String> {
    let (ns, function) = e.totals.spinning.as_ref()?;
    let share = *ns as f64 / e.totals.on_cpu_ns().max(1) as f64;
    (share >= SPIN_NOTE).then(|| {
        format!(
            "suspected: {} of the on-CPU time ({}) is in functions that spin or yield, most in {function}",
            words::share(share),
            words::time(*ns)
        )
    })
}
