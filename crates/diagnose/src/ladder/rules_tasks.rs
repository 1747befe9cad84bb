//! Rules about tasks that a runtime schedules itself: goroutines, virtual threads and their like. Where they wait for each
//! other no thread is blocked, so the threads' ledgers say nothing of it.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::{State, TaskGroup, TaskTime};

use super::evidence::Evidence;
use super::places::{functions, place};
use super::rules_cpu;
use super::verdict::{Found, Verdict, found};
use crate::words;

/// Share of the tasks' active time, and tasks that wait at any time.
const SHARE: f64 = 0.20;
const WAITING: f64 = 1.0;
/// By so much looks at tasks may exceed the time for which their callers were owed answers, where connections are
/// followed, and where they are looked at now and then.
const OWED: [f64; 2] = [1.25, 3.0];

/// What a task waits for that others hold back: nobody waits so for want of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Held {
    /// A lock.
    Lock,
    /// Somebody to take what it sends.
    Taker,
    /// One of a pool's connections.
    Pool,
    /// Whoever sends to it, while a caller waits for its own answer.
    Giver,
}

/// Functions below which Go's servers handle a request. Who waits there holds up a caller.
const HANDLERS: [&str; 5] = [
    "net/http.serverHandler.ServeHTTP",
    "net/http.HandlerFunc.ServeHTTP",
    "google.golang.org/grpc.(*Server).processUnaryRPC",
    "net/rpc.(*service).call",
    "github.com/valyala/fasthttp.(*Server).serveConn",
];

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
                let stack = time.stack?;
                let passes = |known: &[&str]| {
                    let mut all = functions(e.recording, stack);
                    all.any(|(_, name)| known.iter().any(|k| name.contains(k)))
                };
                if passes(&POOLS) {
                    return Some(Held::Pool);
                }
                passes(&HANDLERS).then_some(Held::Giver)
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
            Held::Giver => (
                "channel",
                "what others are to give them over channels while callers wait for an answer (a result, or a \
                 free place in a pool)",
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

    /// What else they wait for, most of all, and where.
    fn elsewhere(&self) -> Option<(&Arc<str>, &str, u64)> {
        let (function, what, _) = self.place()?;
        let held = (self.held.iter())
            .filter(|((f, w), _)| (f, *w) != (function, what))
            .map(|((f, w), ns)| (f, w.told().0, *ns));
        let waits = (self.waits.iter()).map(|((f, reason), ns)| (f, &**reason, *ns));
        held.chain(waits)
            .max_by_key(|(f, reason, ns)| (*ns, std::cmp::Reverse(((*f).clone(), *reason))))
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

/// How long tasks that began with one function waited for what others hold back, at most, ns. Who is to give
/// something may himself wait for a CPU.
pub(super) fn held_ns(e: &Evidence<'_>) -> u64 {
    let groups = e.recording.tasks.iter().map(|group| Tasks::of(e, group));
    let held = |tasks: &Tasks<'_>| -> u64 {
        let kept = tasks
            .held
            .iter()
            .filter(|((_, what), _)| *what != Held::Giver);
        kept.map(|(_, ns)| ns).sum()
    };
    groups.map(|tasks| held(&tasks)).max().unwrap_or(0)
}

/// Others that run, or are ready to, most of their time: they may well be who is waited for.
fn who_runs(e: &Evidence<'_>, began: &str) -> Option<String> {
    const MOST_OF_IT: f64 = 0.5;
    let busy = |g: &&TaskGroup| {
        let runs = g.state_ns(State::OnCpu) + g.state_ns(State::Runnable);
        &*g.name != began && runs as f64 >= MOST_OF_IT * g.wall_ns().max(1) as f64
    };
    let runs = |g: &&TaskGroup| g.state_ns(State::OnCpu) + g.state_ns(State::Runnable);
    let most = e.recording.tasks.iter().filter(busy).max_by_key(runs)?;
    let window = e.recording.window.length_ns();
    (runs(&most) as f64 >= SHARE * window as f64).then(|| {
        format!(
            "Meanwhile those that began with {} run, or are ready to, {} of their time",
            most.name,
            words::share(runs(&most) as f64 / most.wall_ns().max(1) as f64)
        )
    })
}

/// Where tasks sleep by the clock, most of them first: while callers wait for a loop that polls, these may be what they
/// wait for.
pub(super) fn asleep(e: &Evidence<'_>) -> Option<String> {
    const NAMED: usize = 3;
    let window = e.recording.window.length_ns();
    let mut sums: HashMap<Arc<str>, u64> = HashMap::new();
    for time in e.recording.tasks.iter().flat_map(|group| &group.times) {
        let Some(stack) = time.stack.filter(|_| time.state == State::Blocked) else {
            continue;
        };
        let place = place(e.recording, &e.recording.stacks[stack.0 as usize]);
        if &*time.reason == "timer" && place.own {
            *sums.entry(place.function).or_default() += time.ns;
        }
    }
    let mut most: Vec<(Arc<str>, u64)> = sums.into_iter().collect();
    most.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let named: Vec<String> = (most.iter())
        .map(|(function, ns)| (function, *ns as f64 / window.max(1) as f64))
        .filter(|(_, at_once)| *at_once >= SHARE)
        .take(NAMED)
        .map(|(function, at_once)| format!("{function} ({at_once:.1} of them at any time)"))
        .collect();
    let kind = &e.recording.tasks.first()?.kind;
    (!named.is_empty()).then(|| format!("Its {kind}s sleep meanwhile in {}", words::list(&named)))
}

pub(super) fn held(e: &Evidence<'_>) -> Found {
    let most = most(e);
    let window = e.recording.window.length_ns();
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
    // Where who takes or gives it computes, that is what there is to tell.
    let computes = || rules_cpu::computing(e).verdict.is_some();
    // Who wants to be told of news (streams of events) waits in such places too, but not for a first answer.
    let followed = e.recording.domain.backend == "ebpf";
    let most_owed = OWED[usize::from(!followed)] * e.requests.owed_ns as f64;
    let owed = || waited as f64 <= most_owed;
    let applies = share >= SHARE
        && at_once(waited) >= WAITING
        && place.is_some_and(|(_, what, _)| match what {
            Held::Lock | Held::Pool => true,
            Held::Taker => !computes(),
            Held::Giver => owed() && !computes(),
        });
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
        let inside = most.inside(function);
        let elsewhere = (most.elsewhere())
            .filter(|(_, _, ns)| inside.is_none() && at_once(*ns) >= SHARE)
            .map(|(f, reason, ns)| {
                format!(
                    "Beside that they wait for: {reason}, in {f}, {:.1} of them at any time",
                    at_once(ns)
                )
            });
        v.with(inside.map(|(reason, ns)| {
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
        .with(elsewhere)
        .with(who_runs(e, most.began))
    })
}
