//! Roots of waits: the activity that explains them, in words, with its share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use wallscope_analysis::blame::{Blame, NotFollowed, Root, RootActor};
use wallscope_analysis::view::interrupt_words;
use wallscope_model::{Actor, BlockReason, ContextId, Recording, StackId, State};

use crate::frames::{CodeSites, Side, functions_on, passes};
use crate::knowledge::SLEEPS;
use crate::lock_wait::takes_a_lock;
use crate::words::{self, is_address};

/// Activity that explains a part of some waits. Threads with names that differ only in a number are one actor.
#[derive(Clone, Debug, PartialEq)]
pub struct RootShare {
    /// The thread or device; of several threads the one with most time.
    pub actor: String,
    /// Number of threads.
    pub threads: usize,
    /// Whether each of these threads is a process.
    pub processes: bool,
    /// Processes of these threads, by id, where they are not measured.
    pub strangers: Vec<u32>,
    /// Whether these threads hold a lock in turn: all of them wait for it themselves.
    pub holds: bool,
    /// Whether each wait is an end of its own: a disk, a timer.
    pub own: bool,
    /// State of that activity; [`State::Unknown`]: it is not known.
    pub state: State,
    /// For blocked time: the block reason.
    pub reason: Option<BlockReason>,
    /// The activity as a verb: `sleeps`.
    pub deed: &'static str,
    /// The program's function with most of it; empty: none is known.
    pub function: Arc<str>,
    /// The function that it called there.
    pub through: Arc<str>,
    /// Cause for which the chain was not followed further.
    pub open: Option<NotFollowed>,
    /// Share of the waits.
    pub share: f64,
}

impl RootShare {
    /// The activity in words: `back sleeps in sleep_ns`.
    pub fn words(&self) -> String {
        if self.own {
            return self.own_words();
        }
        let subject = self.subject();
        match self.open {
            Some(_) if !self.strangers.is_empty() => {
                let are = match self.strangers.len() {
                    1 => "is",
                    _ => "are",
                };
                format!("{subject}, which {are} not in this recording")
            }
            Some(NotFollowed::TimedOut) if !self.deed.is_empty() => {
                format!(
                    "{subject} {}{} until its own time limit",
                    self.deed,
                    self.place()
                )
            }
            Some(cause) if self.deed.is_empty() => {
                format!("{subject} (not followed: {})", cause.words())
            }
            Some(cause) => format!(
                "{subject} {}{} (not followed: {})",
                self.deed,
                self.place(),
                cause.words()
            ),
            None => format!("{subject} {}{}", self.deed, self.place()),
        }
    }

    /// Whether an activity, a device or a process is known.
    pub fn is_known(&self) -> bool {
        self.open.is_none() || !self.deed.is_empty() || !self.strangers.is_empty()
    }

    /// Whether a thread of that name is of this root.
    pub fn is_of(&self, thread: &str) -> bool {
        match self.threads {
            2.. => family(thread) == family(&self.actor),
            _ => thread == self.actor,
        }
    }

    /// The subject of the activity.
    pub fn subject(&self) -> String {
        match (&self.strangers[..], self.threads) {
            ([], _) => {}
            ([pid], 0 | 1) => return format!("{} (pid {pid})", self.actor),
            ([pid], n) => return format!("{} (pid {pid}, {n} threads)", self.actor),
            (pids, _) => return format!("{} ({} processes)", self.actor, pids.len()),
        }
        match self.threads {
            2.. if self.holds => "the lock's holder".into(),
            n @ 2.. if self.processes => format!("{} ({n} processes)", self.actor),
            n @ 2.. => format!("{} ({n} threads)", self.actor),
            _ => self.actor.clone(),
        }
    }

    /// ` in FUNCTION (CALLEE)`; empty where none is known.
    pub fn place(&self) -> String {
        let told = self.reason == Some(BlockReason::Disk) && self.through != self.function;
        match (&*self.function, told) {
            // The place at which a thread lost its CPU, and an address, tell a reader nothing.
            _ if self.state == State::Runnable => String::new(),
            (function, _) if function.is_empty() || is_address(function) => String::new(),
            (function, true) => format!(
                " in {} ({})",
                words::function(function),
                words::function(&self.through)
            ),
            (function, false) => format!(" in {}", words::function(function)),
        }
    }

    fn own_words(&self) -> String {
        match (self.open, self.reason) {
            (Some(cause), _) => format!("not followed: {}", cause.words()),
            (None, Some(BlockReason::Disk)) => "the disk".into(),
            (None, Some(BlockReason::Timer)) => "its own timer".into(),
            (None, Some(BlockReason::PageFault)) => "the read of the page".into(),
            (None, Some(BlockReason::Memory)) => "the kernel's search for free memory".into(),
            (None, _) => "the wait itself".into(),
        }
    }
}

/// Changes roots to sleeps if their stacks show a sleep, and the kernel saw a wait for a lock or for events that ran
/// into its time limit.
pub(crate) fn tell_sleeps(recording: &Recording, blame: &mut Blame) {
    let timed_out = |root: &&mut Root| root.open == Some(NotFollowed::TimedOut);
    for root in blame.roots.iter_mut().filter(timed_out) {
        let sleeps = |stack| passes(recording, stack, Side::User, SLEEPS);
        if root.stack.is_some_and(sleeps) {
            (root.reason, root.open) = (Some(BlockReason::Timer), None);
        }
    }
}

/// Roots that are one in words.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    family: String,
    deed: &'static str,
    own: bool,
    open: Option<NotFollowed>,
}

#[derive(Default)]
struct Sum {
    ns: u64,
    state: Option<(State, Option<BlockReason>)>,
    actors: HashMap<String, u64>,
    threads: HashSet<RootActor>,
    strangers: BTreeSet<u32>,
    stacks: HashMap<StackId, u64>,
}

/// Roots of waits.
pub(crate) struct Roots<'a> {
    /// The recording.
    pub recording: &'a Recording,
    /// Its blame.
    pub blame: &'a Blame,
    /// The code sites of its stacks.
    pub sites: &'a CodeSites,
}

impl Roots<'_> {
    /// Roots of the waits of `samples`, largest share first.
    pub fn of(&self, samples: &[u32]) -> Vec<RootShare> {
        let waiters: HashSet<ContextId> = (samples.iter())
            .map(|i| self.recording.samples[*i as usize].context)
            .collect();
        let ns = |i: &u32| self.recording.samples[*i as usize].ns;
        let for_lock: u64 = (samples.iter().filter(|i| self.is_for_lock(**i)))
            .map(ns)
            .sum();
        let holders = match for_lock * 2 > samples.iter().map(ns).sum() {
            true => waiters,
            false => HashSet::new(),
        };
        let mut sums: HashMap<Key, Sum> = HashMap::new();
        let mut whole = 0;
        for i in samples {
            let waiter = self.recording.samples[*i as usize].context;
            for part in self.blame.of_sample(*i) {
                whole += part.ns;
                let root = self.blame.root(part);
                let own = root.is_own(waiter) && root.state == State::Blocked;
                let name = self.name(root.actor);
                let key = Key {
                    family: match own {
                        true => String::new(),
                        false => family(&name),
                    },
                    deed: root.deed(),
                    own,
                    open: root.open,
                };
                let sum = sums.entry(key).or_default();
                sum.strangers.extend(self.stranger(root.actor));
                sum.add(root, name, part.ns);
            }
        }
        let mut out: Vec<RootShare> = (sums.into_iter())
            .map(|(key, sum)| self.share(key, sum, &holders, whole))
            .collect();
        out.sort_by(|a, b| {
            let names = || (&a.actor, a.deed, a.open).cmp(&(&b.actor, b.deed, b.open));
            b.share.total_cmp(&a.share).then_with(names)
        });
        out
    }

    /// Waits among `others` that have this root, too.
    pub fn with_root(&self, root: &RootShare, others: impl Iterator<Item = u32>) -> Vec<u32> {
        let most = |sample: &u32| {
            let parts = self.blame.of_sample(*sample);
            let whole: u64 = parts.iter().map(|part| part.ns).sum();
            let same = parts
                .iter()
                .filter(|part| self.is(root, self.blame.root(part)));
            same.map(|part| part.ns).sum::<u64>() * 2 > whole
        };
        others.filter(most).collect()
    }

    /// Whether an activity belongs to a root. Unmeasured roots are compared by process, others by thread and
    /// function.
    fn is(&self, root: &RootShare, activity: &Root) -> bool {
        // All waiters for a disk have one root.
        if root.own {
            return (root.state, root.reason, root.open)
                == (activity.state, activity.reason, activity.open);
        }
        if !root.strangers.is_empty() {
            let process = self.stranger(activity.actor);
            return process.is_some_and(|pid| root.strangers.contains(&pid));
        }
        let stacks = activity.stack.map(|stack| (stack, 1)).into_iter();
        let (function, _) = self.main_function(&stacks.collect());
        root.is_of(&self.name(activity.actor))
            && (root.deed, root.open) == (activity.deed(), activity.open)
            && root.function == function
    }

    /// Whether a wait is for a lock that a thread holds, and not at a condition.
    pub fn is_for_lock(&self, sample: u32) -> bool {
        use BlockReason::{Gil, KernelLock};
        let sample = &self.recording.samples[sample as usize];
        matches!(sample.reason, Some(Gil | KernelLock)) || takes_a_lock(self.recording, sample)
    }

    fn share(&self, key: Key, sum: Sum, holders: &HashSet<ContextId>, whole: u64) -> RootShare {
        let (function, through) = self.main_function(&sum.stacks);
        let holds =
            |actor: &RootActor| matches!(actor, RootActor::Context(c) if holders.contains(c));
        let (state, reason) = sum.state.unwrap_or((State::Unknown, None));
        let actor = sum.actors.into_iter();
        let actor = actor.max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        RootShare {
            actor: actor.map_or_else(String::new, |(name, _)| name),
            threads: sum.threads.len(),
            processes: self.are_processes(&sum.threads),
            strangers: sum.strangers.into_iter().collect(),
            holds: sum.threads.iter().all(holds),
            own: key.own,
            state,
            reason,
            deed: key.deed,
            function,
            through,
            open: key.open,
            share: sum.ns as f64 / whole.max(1) as f64,
        }
    }

    /// Whether each of `threads` is measured and is the only thread of its process that was seen.
    fn are_processes(&self, threads: &HashSet<RootActor>) -> bool {
        let pid = |actor: &RootActor| match actor {
            RootActor::Context(context) => Some(self.recording.contexts[context.0 as usize].pid),
            RootActor::Actor(_) => None,
        };
        let pids: Option<HashSet<u32>> = threads.iter().map(pid).collect();
        pids.is_some_and(|pids| {
            let all = self.recording.contexts.iter();
            let of_them = all.filter(|c| pids.contains(&c.pid)).count();
            (pids.len(), of_them) == (threads.len(), threads.len())
        })
    }

    /// The program's function with most time on some stacks, and the function that it called.
    fn main_function(&self, stacks: &HashMap<StackId, u64>) -> (Arc<str>, Arc<str>) {
        let mut sums: HashMap<(Arc<str>, Arc<str>), u64> = HashMap::new();
        for (stack, ns) in stacks {
            let mut user = functions_on(self.recording, *stack, Side::User);
            if user.next().is_some() {
                let site = self.sites.of(*stack);
                let key = (site.function.clone(), site.callee.clone());
                *sums.entry(key).or_default() += ns;
            }
        }
        let main = sums.into_iter();
        let main = main.max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.cmp(&a.0)));
        main.map_or_else(|| ("".into(), "".into()), |(site, _)| site)
    }

    /// Process of an actor that is not measured.
    fn stranger(&self, actor: RootActor) -> Option<u32> {
        let RootActor::Actor(id) = actor else {
            return None;
        };
        match &self.recording.actors[id.0 as usize] {
            Actor::Stranger { pid, .. } => Some(*pid).filter(|pid| *pid > 0),
            _ => None,
        }
    }

    fn name(&self, actor: RootActor) -> String {
        let id = match actor {
            RootActor::Context(thread) => {
                return self.recording.contexts[thread.0 as usize].name.to_string();
            }
            RootActor::Actor(id) => id,
        };
        match &self.recording.actors[id.0 as usize] {
            Actor::Context(thread) => self.recording.contexts[thread.0 as usize].name.to_string(),
            Actor::Stranger { pid: 0, .. } => "an idle CPU".into(),
            Actor::Stranger { name, .. } => name.to_string(),
            Actor::Interrupt(served) => interrupt_words(served),
            Actor::Unknown => "an unknown thread".into(),
        }
    }
}

impl Sum {
    fn add(&mut self, root: &Root, name: String, ns: u64) {
        self.ns += ns;
        self.state = Some((root.state, root.reason));
        *self.actors.entry(name).or_default() += ns;
        self.threads.insert(root.actor);
        if let Some(stack) = root.stack {
            *self.stacks.entry(stack).or_default() += ns;
        }
    }
}

/// A thread's name without its numbers: `worker-3` and `worker-12` are of one family.
fn family(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}
