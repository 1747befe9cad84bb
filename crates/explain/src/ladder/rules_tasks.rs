//! Rules about tasks that a runtime schedules itself: goroutines and their like. Where they wait for a
//! lock no thread is blocked, so the threads' ledgers say nothing of it.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::{State, TaskGroup};

use super::evidence::Evidence;
use super::places::place;
use super::verdict::{Found, Verdict, found};
use crate::words;

/// What waits for locks are called: goroutines', tasks' of asyncio.
const LOCKS: [&str; 2] = ["mutex", "lock"];
/// Share of the tasks' active time, and tasks that wait at any time.
const SHARE: f64 = 0.20;
const WAITING: f64 = 1.0;

/// Time of tasks that began with one function, in the program's own functions, ns.
#[derive(Default)]
struct Tasks<'a> {
    kind: &'a str,
    began: &'a str,
    looks: u64,
    /// In which they ran, or could have, or waited in a function of the program.
    active: u64,
    /// Waits by function and what for.
    waits: HashMap<(Arc<str>, Arc<str>), u64>,
}

impl Tasks<'_> {
    fn of<'a>(e: &Evidence<'_>, group: &'a TaskGroup) -> Tasks<'a> {
        let mut tasks = Tasks {
            kind: &group.kind,
            began: &group.name,
            looks: group.looks,
            ..Tasks::default()
        };
        for time in &group.times {
            if time.state != State::Blocked {
                tasks.active += time.ns;
                continue;
            }
            let Some(stack) = time.stack else { continue };
            let place = place(e.recording, &e.recording.stacks[stack.0 as usize]);
            // Connections without a request wait in no function of the program.
            if place.own {
                tasks.active += time.ns;
                let key = (place.function, time.reason.clone());
                *tasks.waits.entry(key).or_default() += time.ns;
            }
        }
        tasks
    }

    /// Time waited for locks.
    fn locked(&self) -> u64 {
        let locks = self
            .waits
            .iter()
            .filter(|((_, reason), _)| LOCKS.contains(&&**reason));
        locks.map(|(_, ns)| ns).sum()
    }

    /// The function in which most of it was.
    fn place(&self) -> Option<(&Arc<str>, u64)> {
        let locks = self
            .waits
            .iter()
            .filter(|((_, reason), _)| LOCKS.contains(&&**reason));
        let most = locks.max_by_key(|(key, ns)| (**ns, std::cmp::Reverse(key.0.clone())));
        most.map(|((function, _), ns)| (function, *ns))
    }

    /// What else they wait for in `function`, most of all.
    fn inside(&self, function: &Arc<str>) -> Option<(&str, u64)> {
        (self.waits.iter())
            .filter(|((f, reason), _)| f == function && !LOCKS.contains(&&**reason))
            .map(|((_, reason), ns)| (&**reason, *ns))
            .max_by_key(|(reason, ns)| (*ns, std::cmp::Reverse(*reason)))
    }
}

pub(super) fn lock(e: &Evidence<'_>) -> Found {
    let groups = e.recording.tasks.iter().map(|group| Tasks::of(e, group));
    let most = groups
        .max_by_key(|tasks| tasks.locked())
        .unwrap_or_default();
    let window = e
        .recording
        .window
        .end_ns
        .saturating_sub(e.recording.window.start_ns);
    let at_once = |ns: u64| ns as f64 / window.max(1) as f64;
    let waited = most.locked();
    let share = waited as f64 / most.active.max(1) as f64;
    let looked_at = format!(
        "those that wait most for locks: {:.1} at any time, {} of what they do in the program's functions",
        at_once(waited),
        words::share(share)
    );
    let place = most.place();
    let applies = share >= SHARE && at_once(waited) >= WAITING && place.is_some();
    found(looked_at, applies, || {
        let (function, ns) = place.expect("it was just asked for");
        let kind = most.kind;
        let mut v = Verdict::new(format!(
            "Of its {kind}s, those that began with {} wait for locks {} of what they do in the program's \
             functions, {:.1} of them at any time; most of it in {function} ({} of these waits)",
            most.began,
            words::share(share),
            at_once(waited),
            words::share(ns as f64 / waited.max(1) as f64)
        ));
        v.state = Some(State::Blocked);
        v.reason = Some("lock");
        v.function = Some(function.to_string());
        v.share = share;
        v.whole = format!("the time of these {kind}s in the program's functions");
        v.confidence = format!(
            "sampled: {} looks at the runtime's list of {kind}s",
            most.looks
        );
        v.bound = format!(
            "at most {} of {}, if nothing else takes its place",
            words::share(share),
            v.whole
        );
        v.with(most.inside(function).map(|(reason, ns)| {
            format!(
                "In {function} they also wait for: {reason}, {:.1} of them at any time; if the lock is held \
                 across that, it is what the others wait for",
                at_once(ns)
            )
        }))
    })
}
