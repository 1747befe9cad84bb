//! Tasks that a runtime schedules itself: goroutines, virtual threads, asyncio tasks. Tasks that wait for each other
//! block no thread, so the threads' ledgers do not show these waits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use wallscope_analysis::view::is_idle_task;
use wallscope_model::{Recording, StackId, State, TaskGroup, TaskTime};

use crate::frames::{CodeSite, Side, code_site, passes};
use crate::knowledge::{GO_ANSWERS, GO_HANDLERS, GO_POOLS};
use crate::words;

/// Something that other tasks hold back. A wait for it is never for want of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HeldBack {
    /// A lock.
    Lock,
    /// A receiver for the task's data.
    Receiver,
    /// One of a pool's connections.
    Pool,
    /// A sender, while a caller waits for the task's own answer.
    Sender,
}

impl HeldBack {
    fn of(recording: &Recording, time: &TaskTime) -> Option<HeldBack> {
        match (&*time.reason, &*time.detail) {
            ("mutex" | "lock", _) => Some(HeldBack::Lock),
            ("pool", _) => Some(HeldBack::Pool),
            ("channel", "chan send") => Some(HeldBack::Receiver),
            ("select" | "channel", _) => {
                let stack = time.stack?;
                let known = |table| {
                    passes(recording, stack, Side::User, table)
                        || passes(recording, stack, Side::Kernel, table)
                };
                match known(GO_POOLS) {
                    true => Some(HeldBack::Pool),
                    false => known(GO_HANDLERS).then_some(HeldBack::Sender),
                }
            }
            _ => None,
        }
    }

    /// Its name among reasons.
    pub fn reason(self) -> &'static str {
        match self {
            HeldBack::Lock => "lock",
            HeldBack::Receiver | HeldBack::Sender => "channel",
            HeldBack::Pool => "pool",
        }
    }

    /// The target of the wait in words.
    pub fn words(self) -> &'static str {
        match self {
            HeldBack::Lock => "a lock",
            HeldBack::Receiver => {
                "a receiver of their channel (it is slower, or the channel limits how many may run)"
            }
            HeldBack::Pool => "a connection from a pool",
            HeldBack::Sender => {
                "a sender on their channel while callers wait for an answer (a result, or a free place in a pool)"
            }
        }
    }
}

/// Time of tasks that began with one function, in the program's own functions, ns.
#[derive(Default)]
pub(crate) struct Tasks<'a> {
    /// `goroutine`, `virtual thread`, `task`.
    pub kind: &'a str,
    /// The function that they began with.
    pub began: &'a str,
    /// Number of polls of the runtime's list of tasks.
    pub polls: u64,
    /// Time in which they ran, were ready to run, or waited in a function of the program, ns.
    pub active: u64,
    /// Waits by function and reason, ns.
    waits: HashMap<(Arc<str>, Arc<str>), u64>,
    /// Waits for something held back, ns.
    held: HashMap<(Arc<str>, HeldBack), u64>,
}

impl<'a> Tasks<'a> {
    /// The tasks of `recording` that wait most for something held back.
    pub fn most_held_back(recording: &'a Recording) -> Tasks<'a> {
        let groups = recording.tasks.iter();
        let tasks = groups.map(|group| Tasks::of(recording, group));
        tasks.max_by_key(Tasks::held_ns).unwrap_or_default()
    }

    fn of(recording: &Recording, group: &'a TaskGroup) -> Tasks<'a> {
        let mut tasks = Tasks {
            kind: &group.kind,
            began: &group.name,
            polls: group.polls,
            ..Tasks::default()
        };
        for time in &group.times {
            if time.state != State::Blocked {
                tasks.active += time.ns;
                continue;
            }
            // Connections without a request wait in no function of the program.
            let Some(site) = site(recording, time.stack).filter(|site| site.own) else {
                continue;
            };
            tasks.active += time.ns;
            let sum = match HeldBack::of(recording, time) {
                Some(what) => tasks.held.entry((site.function, what)).or_default(),
                None => {
                    let key = (site.function, time.reason.clone());
                    tasks.waits.entry(key).or_default()
                }
            };
            *sum += time.ns;
        }
        tasks
    }

    /// Time waited for something held back, ns.
    pub fn held_ns(&self) -> u64 {
        self.held.values().sum()
    }

    /// Time waited for a lock, a pool or a receiver, ns. A sender may itself wait for a CPU.
    fn kept_ns(&self) -> u64 {
        let kept = self.held.iter();
        let kept = kept.filter(|((_, what), _)| *what != HeldBack::Sender);
        kept.map(|(_, ns)| ns).sum()
    }

    /// The function with most of the time waited for something held back, the thing held back, and the time, ns.
    pub fn place(&self) -> Option<(&Arc<str>, HeldBack, u64)> {
        let most = self
            .held
            .iter()
            .max_by_key(|((function, _), ns)| (**ns, std::cmp::Reverse(function.clone())));
        most.map(|((function, what), ns)| (function, *what, *ns))
    }

    /// All waits, with the names of their reasons.
    fn all_waits(&self) -> impl Iterator<Item = (&Arc<str>, &str, u64)> {
        let held = self.held.iter();
        let held = held.map(|((f, what), ns)| (f, what.reason(), *ns));
        let waits = self.waits.iter();
        held.chain(waits.map(|((f, reason), ns)| (f, &**reason, *ns)))
    }

    /// The wait for anything else with most time, with its function.
    pub fn elsewhere(&self) -> Option<(&Arc<str>, &str, u64)> {
        let (function, what, _) = self.place()?;
        let held = (self.held.iter())
            .filter(|((f, w), _)| (f, *w) != (function, what))
            .map(|((f, w), ns)| (f, w.reason(), *ns));
        let waits = (self.waits.iter()).map(|((f, reason), ns)| (f, &**reason, *ns));
        held.chain(waits)
            .max_by_key(|(f, reason, ns)| (*ns, std::cmp::Reverse(((*f).clone(), *reason))))
    }

    /// The wait for anything else in `function` with most time.
    pub fn inside(&self, function: &Arc<str>) -> Option<(&str, u64)> {
        let most = self.place().map(|(_, what, _)| what.reason());
        self.all_waits()
            .filter(|(f, reason, _)| *f == function && Some(*reason) != most)
            .map(|(_, reason, ns)| (reason, ns))
            .max_by_key(|(reason, ns)| (*ns, std::cmp::Reverse(*reason)))
    }
}

/// Reason of a task while its thread is in a system call.
pub(crate) const SYSTEM_CALL: &str = "syscall";
/// Reason of a task that sleeps by the clock.
pub(crate) const SLEEP: &str = "timer";

/// The program's own function of a task's stack.
fn site(recording: &Recording, stack: Option<StackId>) -> Option<CodeSite> {
    stack.map(|stack| code_site(recording, stack))
}

/// Longest time that tasks which began with one function waited for a lock, a pool or a receiver,
/// ns.
pub(crate) fn kept_ns(recording: &Recording) -> u64 {
    let groups = recording.tasks.iter();
    let kept = groups.map(|group| Tasks::of(recording, group).kept_ns());
    kept.max().unwrap_or(0)
}

/// Time that tasks waited for `reason` in the program's functions, longest first, ns.
pub(crate) fn waited_for(recording: &Recording, reason: &str) -> Vec<(Arc<str>, u64)> {
    let mut sums: HashMap<Arc<str>, u64> = HashMap::new();
    for time in recording.tasks.iter().flat_map(|group| &group.times) {
        if time.state != State::Blocked || &*time.reason != reason {
            continue;
        }
        if let Some(site) = site(recording, time.stack).filter(|site| site.own) {
            *sums.entry(site.function).or_default() += time.ns;
        }
    }
    let mut sums: Vec<(Arc<str>, u64)> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sums
}

/// Tasks that are ready to run and are not run: their loop, or the threads that carry them, do something else.
#[derive(Default)]
pub(crate) struct ReadyTasks {
    /// `asyncio task`.
    pub kind: Arc<str>,
    /// Number of them at any time.
    pub at_once: f64,
    /// Share of their time, waits for work left out.
    pub share: f64,
}

impl ReadyTasks {
    /// The ready tasks of the kind that has most of them.
    pub fn new(recording: &Recording) -> ReadyTasks {
        let mut kinds: BTreeMap<&Arc<str>, (u64, u64)> = BTreeMap::new();
        for group in &recording.tasks {
            let (ready, all) = kinds.entry(&group.kind).or_default();
            *ready += group.state_ns(State::Runnable);
            let own = (group.times.iter()).filter(|t| !is_idle_task(&group.name, &t.reason));
            *all += own.map(|t| t.ns).sum::<u64>();
        }
        let most = kinds.into_iter().max_by_key(|(_, (ready, _))| *ready);
        most.map_or_else(ReadyTasks::default, |(kind, (ready, all))| ReadyTasks {
            kind: Arc::clone(kind),
            at_once: ready as f64 / recording.window.length_ns().max(1) as f64,
            share: ready as f64 / all.max(1) as f64,
        })
    }

    /// The figures in words; `None`: no task was ready.
    pub fn words(&self) -> Option<String> {
        (self.share > 0.0).then(|| {
            format!(
                "{}s are ready to run {} of their time ({:.1} of them on average)",
                self.kind,
                words::share(self.share),
                self.at_once
            )
        })
    }
}

/// The main wait of the tasks of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TaskWaits {
    /// `virtual thread`.
    pub kind: Arc<str>,
    /// Number of tasks that have something to do, or wait for it, at any time.
    pub at_once: f64,
    /// The reason that they wait for most.
    pub reason: Arc<str>,
    /// Share of their time in that wait.
    pub share: f64,
    /// The program's function in which most of that is; empty: none is known.
    pub function: Arc<str>,
}

/// Reason of tasks that wait for the answer to a request by a channel.
pub(crate) const ANSWER: &str = "answer";

/// Time of one wait, ns: in all, and by function.
type Places = (u64, BTreeMap<Arc<str>, u64>);

impl TaskWaits {
    /// The main wait of the kind of task with most time.
    pub fn new(recording: &Recording) -> Option<TaskWaits> {
        let busy = |group: &TaskGroup, time: &TaskTime| !is_idle_task(&group.name, &time.reason);
        let mut kinds: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for group in &recording.tasks {
            let own = group.times.iter().filter(|time| busy(group, time));
            *kinds.entry(&group.kind).or_default() += own.map(|t| t.ns).sum::<u64>();
        }
        let (kind, all) = kinds.into_iter().max_by_key(|(_, ns)| *ns)?;
        let mut reasons: BTreeMap<&str, Places> = BTreeMap::new();
        let groups = recording.tasks.iter().filter(|g| g.kind == *kind);
        let times = groups.flat_map(|g| g.times.iter().filter(move |time| busy(g, time)));
        for time in times.filter(|t| t.state == State::Blocked) {
            let known = time
                .stack
                .filter(|s| (s.0 as usize) < recording.stacks.len());
            let answer = known.is_some_and(|s| passes(recording, s, Side::User, GO_ANSWERS));
            let reason = match answer {
                true => ANSWER,
                false => &*time.reason,
            };
            let (ns, places) = reasons.entry(reason).or_default();
            *ns += time.ns;
            if let Some(site) = site(recording, known) {
                *places.entry(site.function).or_default() += time.ns;
            }
        }
        let (reason, (ns, places)) = reasons.into_iter().max_by_key(|(_, (ns, _))| *ns)?;
        let function = places.into_iter().max_by_key(|(_, ns)| *ns);
        Some(TaskWaits {
            kind: Arc::clone(kind),
            at_once: all as f64 / recording.window.length_ns().max(1) as f64,
            reason: reason.into(),
            share: ns as f64 / all.max(1) as f64,
            function: function.map_or_else(|| "".into(), |(f, _)| f),
        })
    }
}
