//! Wakers of a cause's waits, and their activity while others waited.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wallscope_analysis::view::interrupt_words;
use wallscope_model::{Actor, BlockReason, ContextId, Hop, Recording, Role};

use super::waits::Waits;
use crate::frames::{CodeSites, Side, functions_on};
use crate::thresholds::{OUTSIDER_WAITS, ROOT_OF_WAITS};
use crate::wake_chain::{actor, thread_of};
use crate::words;

/// Wakers of some waits. All shares are of the waits' time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wakers {
    /// Threads with the function in which they ended the waits, largest share first.
    pub threads: Vec<(String, Arc<str>, f64)>,
    /// Activities at the ends of the wakers' chains while others waited, largest share first.
    pub activities: Vec<(Activity, f64)>,
    /// Share ended by threads that wait for the same themselves.
    pub by_waiters: f64,
    /// Share for which the lock was held by threads that hardly wait for it themselves.
    pub by_outsiders: f64,
    /// Share ended by measured threads.
    pub by_measured: f64,
}

/// Name of the interrupt that ends waits with a time limit.
const TIMER: &str = "a timer interrupt";

/// Activities of threads that do not wait for others.
const COMPUTES: &str = "computes";
const QUEUES: &str = "waits for a CPU";

/// Activity of a thread while others waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Activity {
    /// The thread's name.
    pub thread: String,
    /// `computes`, `waits for a CPU`, `sleeps`, or `waits for REASON`.
    pub verb: String,
    /// The program's function in which it did so; empty where no stack says.
    pub function: Arc<str>,
    /// The thread's process, if it is not the waker's: the waker waited for it.
    pub elsewhere: Option<u32>,
}

/// A wait of wakers.
pub(crate) struct OwnWait<'w> {
    /// The waiting thread, if there was only one.
    pub thread: Option<&'w str>,
    /// The verb of the activity.
    pub verb: &'w str,
    /// The program's function; empty where no stack says.
    pub function: &'w str,
}

impl Activity {
    /// Whether the thread waited itself.
    fn is_blocked(&self) -> bool {
        self.verb != COMPUTES && self.verb != QUEUES
    }
}

impl Wakers {
    /// Wakers of the waits of `samples`.
    pub fn new(recording: &Recording, waits: &Waits, sites: &CodeSites, samples: &[u32]) -> Wakers {
        let waiters: HashSet<ContextId> = (samples.iter())
            .map(|i| recording.samples[*i as usize].context)
            .collect();
        let mut sums = Sums {
            recording,
            waits,
            sites,
            threads: HashMap::new(),
            activities: HashMap::new(),
            by_waiters: 0.0,
            by_measured: 0.0,
            held: HashMap::new(),
            waited: HashMap::new(),
        };
        for i in samples {
            let waiter = recording.samples[*i as usize].context;
            *sums.waited.entry(waiter).or_default() += waits.sample_ns[*i as usize] as f64;
            for hop in waits.chains.of_sample(*i) {
                sums.add(*i, *hop, &waiters);
            }
        }
        let whole: u64 = samples.iter().map(|i| waits.sample_ns[*i as usize]).sum();
        sums.shares(whole)
    }

    /// Share of the waits that their own time limit ended.
    pub fn timed_out(&self) -> f64 {
        let by_timer = self.threads.iter().filter(|(name, ..)| name == TIMER);
        by_timer.map(|(.., share)| share).sum()
    }

    /// The wakers' own wait during most of these waits, in any of the wakers.
    pub fn own_wait(&self) -> Option<OwnWait<'_>> {
        let mut sums: HashMap<(&str, &str), (f64, HashSet<&str>)> = HashMap::new();
        for (at, share) in self.activities.iter().filter(|(at, _)| at.is_blocked()) {
            let (sum, threads) = sums.entry((&at.verb, &at.function)).or_default();
            *sum += share;
            threads.insert(&at.thread);
        }
        let mut waits = sums.into_iter();
        let ((verb, function), (_, threads)) =
            waits.find(|(_, (share, _))| *share > ROOT_OF_WAITS)?;
        let thread = match threads.len() {
            1 => threads.into_iter().next(),
            _ => None,
        };
        Some(OwnWait {
            thread,
            verb,
            function,
        })
    }

    /// The main waker with its function, in words.
    pub fn main(&self) -> Option<String> {
        let (thread, function, _) = self.threads.first()?;
        Some(format!("{thread}{}", in_function(function)))
    }
}

/// ` in FUNCTION`; empty where none is known.
pub(crate) fn in_function(function: &str) -> String {
    match function {
        "" => String::new(),
        function => format!(" in {}", words::function(function)),
    }
}

/// Times in the making, ns on the samples' scale.
struct Sums<'a> {
    recording: &'a Recording,
    waits: &'a Waits,
    sites: &'a CodeSites,
    threads: HashMap<(String, Arc<str>), f64>,
    activities: HashMap<Activity, f64>,
    by_waiters: f64,
    by_measured: f64,
    /// Time of waits for which a measured thread held the lock, by holder; then the time that each thread waited.
    held: HashMap<ContextId, f64>,
    waited: HashMap<ContextId, f64>,
}

/// A sample's chain while it is followed.
#[derive(Clone, Copy)]
struct Chain {
    sample: u32,
    /// Process of the thread that ended the wait.
    waker_pid: Option<u32>,
}

impl Sums<'_> {
    fn add(&mut self, sample: u32, hop: u32, waiters: &HashSet<ContextId>) {
        let h = &self.recording.hops[hop as usize];
        let ns = self.waits.scaled(self.recording, sample, h.ns);
        let key = (name_of(self.recording, h), self.function_of(h));
        *self.threads.entry(key).or_default() += ns;
        if let Some(thread) = thread_of(self.recording, h) {
            self.by_measured += ns;
            if waiters.contains(&thread) {
                self.by_waiters += ns;
            }
        }
        self.add_holder(sample, hop);
        let chain = Chain {
            sample,
            waker_pid: process_of(self.recording, h),
        };
        for below in self.waits.chains.of_hop(hop) {
            self.follow(chain, *below);
        }
    }

    /// Adds the holder behind a waker: the waker itself, except for the time in which it queued for a lock, too.
    /// Chains are only a few hops deep as recorded.
    fn add_holder(&mut self, sample: u32, waker: u32) {
        let (recording, waits) = (self.recording, self.waits);
        let h = &recording.hops[waker as usize];
        let mut own = h.ns;
        for activity in waits.chains.of_hop(waker) {
            let a = &recording.hops[*activity as usize];
            if a.role != Role::Blocked || !is_lock(a.reason) {
                continue;
            }
            for next in waits.chains.of_hop(*activity) {
                own = own.saturating_sub(recording.hops[*next as usize].ns);
                self.add_holder(sample, *next);
            }
        }
        if let Some(thread) = thread_of(recording, h) {
            *self.held.entry(thread).or_default() += waits.scaled(recording, sample, own);
        }
    }

    /// Adds the activities at the end of the chain from `hop` on. Chains are only a few hops deep as recorded.
    fn follow(&mut self, chain: Chain, hop: u32) {
        let (recording, waits) = (self.recording, self.waits);
        let h = &recording.hops[hop as usize];
        let mut own = h.ns;
        for woke in waits.chains.of_hop(hop) {
            for next in waits.chains.of_hop(*woke) {
                own = own.saturating_sub(recording.hops[*next as usize].ns);
                self.follow(chain, *next);
            }
        }
        let Some(verb) = verb(h) else { return };
        let elsewhere = process_of(recording, h)
            .filter(|pid| chain.waker_pid.is_some_and(|waker| waker != *pid));
        let activity = Activity {
            thread: name_of(recording, h),
            verb,
            function: self.function_of(h),
            elsewhere,
        };
        let ns = waits.scaled(recording, chain.sample, own);
        *self.activities.entry(activity).or_default() += ns;
    }

    /// The program's function of a hop; empty where the stack has none.
    fn function_of(&self, hop: &Hop) -> Arc<str> {
        let user = |stack: &_| functions_on(self.recording, *stack, Side::User);
        let stack = hop.stack.filter(|stack| user(stack).next().is_some());
        stack.map_or_else(|| "".into(), |stack| self.sites.of(stack).function.clone())
    }

    /// Time of the waits during which the lock was held by threads that hardly wait for it themselves, ns.
    fn by_outsiders(&self) -> f64 {
        let waited = |thread: &ContextId| self.waited.get(thread).copied().unwrap_or(0.0);
        let outside = |(thread, ns): &(&ContextId, &f64)| waited(thread) < OUTSIDER_WAITS * **ns;
        self.held.iter().filter(outside).map(|(_, ns)| ns).sum()
    }

    fn shares(self, whole: u64) -> Wakers {
        let by_outsiders = self.by_outsiders();
        let share = |ns: f64| ns / whole.max(1) as f64;
        let mut threads: Vec<_> = (self.threads.into_iter())
            .map(|((thread, function), ns)| (thread, function, share(ns)))
            .collect();
        threads.sort_by(|a, b| {
            let names = || (&a.0, &a.1).cmp(&(&b.0, &b.1));
            b.2.total_cmp(&a.2).then_with(names)
        });
        let mut activities: Vec<_> = (self.activities.into_iter())
            .map(|(activity, ns)| (activity, share(ns)))
            .collect();
        activities.sort_by(|a, b| {
            let names = || (&a.0.thread, &a.0.verb).cmp(&(&b.0.thread, &b.0.verb));
            b.1.total_cmp(&a.1).then_with(names)
        });
        Wakers {
            threads,
            activities,
            by_waiters: share(self.by_waiters),
            by_outsiders: share(by_outsiders),
            by_measured: share(self.by_measured),
        }
    }
}

fn is_lock(reason: Option<BlockReason>) -> bool {
    use BlockReason::{Gil, KernelLock, Lock};
    matches!(reason, Some(Gil | KernelLock | Lock))
}

/// Activity of a hop's actor, in words; `None`: the hop is no activity.
fn verb(hop: &Hop) -> Option<String> {
    match hop.role {
        Role::OnCpu => Some(COMPUTES.into()),
        Role::Runnable => Some(QUEUES.into()),
        Role::Blocked => match hop.reason.unwrap_or(BlockReason::Other) {
            BlockReason::Timer => Some("sleeps".into()),
            reason => Some(format!("waits for {}", words::reason(reason))),
        },
        Role::Woke | Role::Held | Role::Circle | Role::Cut => None,
    }
}

/// Process of a hop's actor, where it is measured.
fn process_of(recording: &Recording, hop: &Hop) -> Option<u32> {
    thread_of(recording, hop).map(|thread| recording.contexts[thread.0 as usize].pid)
}

fn name_of(recording: &Recording, hop: &Hop) -> String {
    match actor(recording, hop) {
        Actor::Context(thread) => recording.contexts[thread.0 as usize].name.to_string(),
        Actor::Stranger { pid, name, .. } => format!("{name} (pid {pid}, not measured)"),
        Actor::Interrupt(served) => interrupt_words(served),
        Actor::Unknown => "somebody unknown".into(),
    }
}
