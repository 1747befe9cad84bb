//! Rules about tasks that a runtime schedules itself: goroutines, virtual threads and their like. Where they wait for each
//! other no thread is blocked, so the threads' ledgers say nothing of it.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::{State, TaskGroup, TaskTime};

use super::CPU_FIRST;
use super::evidence::Evidence;
use super::places::{functions, place};
use super::verdict::{Found, Verdict, found};
use crate::words;

/// Share of the tasks' active time, and tasks that wait at any time.
const SHARE: f64 = 0.20;
const WAITING: f64 = 1.0;

/// What a task waits for that others hold back: nobody waits so for want of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    /// A lock.
    Lock,
    /// Somebody to take what it sends.
    Taker,
    /// One of a pool's connections.
    Pool,
}

impl Held {
    fn of(e: &Evidence<'_>, time: &TaskTime) -> Option<Held> {
        // Go's library waits for its connections by a channel as everybody does.
        const POOLS: [&str; 4] = [
            "database/sql.(*DB).conn",
            "net/http.(*Transport).getConn",
            "(*ConnPool).waitTurn",
            "github.com/jackc/puddle/",
        ];
        match (&*time.reason, &*time.detail) {
            ("mutex" | "lock", _) => Some(Held::Lock),
            ("pool", _) => Some(Held::Pool),
            ("channel", "chan send") => Some(Held::Taker),
            ("select" | "channel", _) => {
                let mut all = functions(e.recording, time.stack?);
                all.any(|(_, name)| POOLS.iter().any(|p| name.contains(p)))
                    .then_some(Held::Pool)
            }
            _ => None,
        }
    }

    /// Its name among reasons, and in words.
    fn told(self) -> (&'static str, &'static str) {
        match self {
            Held::Lock => ("lock", "locks"),
            Held::Taker => (
                "channel",
                "others to take what they send over channels (who receives is slower, or holds it as a \
                 limit on how many may run)",
            ),
            Held::Pool => (
                "pool",
                "a connection from a pool (for a free one, or a new one to be made)",
            ),
        }
    }
}

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
    /// Those of them for what others hold back.
    held: HashMap<(Arc<str>, Held), u64>,
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
            if !place.own {
                continue;
            }
            tasks.active += time.ns;
            match Held::of(e, time) {
                Some(what) => *tasks.held.entry((place.function, what)).or_default() += time.ns,
                None => {
                    let key = (place.function, time.reason.clone());
                    *tasks.waits.entry(key).or_default() += time.ns;
                }
            }
        }
        tasks
    }

    /// Time waited for what others hold back.
    fn held_ns(&self) -> u64 {
        self.held.values().sum()
    }

    /// The function in which most of it was, and for what.
    fn place(&self) -> Option<(&Arc<str>, Held, u64)> {
        let most = self
            .held
            .iter()
            .max_by_key(|((function, _), ns)| (**ns, std::cmp::Reverse(function.clone())));
        most.map(|((function, what), ns)| (function, *what, *ns))
    }

    /// What else they wait for in `function`, most of all.
    fn inside(&self, function: &Arc<str>) -> Option<(&str, u64)> {
        let held = self
            .held
            .iter()
            .map(|((f, what), ns)| (f, what.told().0, *ns));
        let waits = self
            .waits
            .iter()
            .map(|((f, reason), ns)| (f, &**reason, *ns));
        let most = self.place().map(|(_, what, _)| what.told().0);
        held.chain(waits)
            .filter(|(f, reason, _)| *f == function && Some(*reason) != most)
            .map(|(_, reason, ns)| (reason, ns))
            .max_by_key(|(reason, ns)| (*ns, std::cmp::Reverse(*reason)))
    }
}

/// Those that wait most for what others hold back.
fn most<'a>(e: &Evidence<'a>) -> Tasks<'a> {
    let groups = e.recording.tasks.iter().map(|group| Tasks::of(e, group));
    groups.max_by_key(Tasks::held_ns).unwrap_or_default()
}

/// How long tasks that began with one function waited for what others hold back, at most, ns.
pub(super) fn held_ns(e: &Evidence<'_>) -> u64 {
    most(e).held_ns()
}

pub(super) fn held(e: &Evidence<'_>) -> Found {
    let most = most(e);
    let window = e
        .recording
        .window
        .end_ns
        .saturating_sub(e.recording.window.start_ns);
    let at_once = |ns: u64| ns as f64 / window.max(1) as f64;
    let waited = most.held_ns();
    let share = waited as f64 / most.active.max(1) as f64;
    let looked_at = format!(
        "those that wait most for what others hold: {:.1} at any time, {} of what they do in the program's \
         functions",
        at_once(waited),
        words::share(share)
    );
    let place = most.place();
    // Where who takes it computes, that is what there is to tell.
    let computes = e.bottleneck.busy_cpus() >= CPU_FIRST;
    let applies = share >= SHARE
        && at_once(waited) >= WAITING
        && place.is_some_and(|(_, what, _)| what != Held::Taker || !computes);
    found(looked_at, applies, || {
        let (function, what, ns) = place.expect("it was just asked for");
        let (reason, what_for) = what.told();
        let kind = most.kind;
        let mut v = Verdict::new(format!(
            "Of its {kind}s, those that began with {} wait for {what_for} {} of what they do in the \
             program's functions, {:.1} of them at any time; most of it in {function} ({} of these waits)",
            most.began,
            words::share(share),
            at_once(waited),
            words::share(ns as f64 / waited.max(1) as f64)
        ));
        v.state = Some(State::Blocked);
        v.reason = Some(reason);
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
                "In {function} they also wait for: {reason}, {:.1} of them at any time{}",
                at_once(ns),
                if what == Held::Lock {
                    "; if the lock is held across that, it is what the others wait for"
                } else {
                    ""
                }
            )
        }))
    })
}
