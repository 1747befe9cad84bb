//! Who ended the waits of a cause, and what they did meanwhile; whether those who wait hold each other up.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wallscope_model::{Actor, BlockReason, ContextId, FrameKind, Hop, Recording, Role, StackId};

use super::places::{functions, place};
use super::waits::{Waits, hops};

/// Who ended the waits of a cause, and what they did meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Enders {
    /// Threads with the function in which they ended the waits, most first: share of the waits.
    pub who: Vec<(String, Arc<str>, f64)>,
    /// What the enders did in the end while others waited, most first: share of the waits.
    pub did: Vec<(Deed, f64)>,
    /// Share of the waits ended by threads that wait for the same themselves.
    pub by_waiters: f64,
    /// Share of the waits ended by threads that are measured.
    pub by_measured: f64,
}

impl Enders {
    /// The share of the waits that the time limit ended which they had.
    pub fn timed_out(&self) -> f64 {
        let by_timer = self.who.iter().filter(|(who, ..)| who == TIMER);
        by_timer.map(|(.., share)| share).sum()
    }
}

/// How [`name_of`] calls the interrupt that ends waits with a time limit.
const TIMER: &str = "the timer's interrupt";

/// What somebody did while others waited.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deed {
    /// Who: a thread's name.
    pub who: String,
    /// What: `computes`, `waits for a CPU`, or `waits (REASON)`.
    pub what: String,
    /// In which function of the program; empty where no stack says.
    pub function: Arc<str>,
    /// The process, where it is another than that of who ended the wait: whom that one waited for in turn.
    pub elsewhere: Option<u32>,
}

impl Waits {
    /// Looks into the waits of `samples`.
    pub fn enders(&self, recording: &Recording, samples: &[u32]) -> Enders {
        let waiters: HashSet<ContextId> = (samples.iter())
            .map(|i| recording.samples[*i as usize].context)
            .collect();
        let whole: u64 = samples.iter().map(|i| self.sample_ns[*i as usize]).sum();
        let mut who: HashMap<(String, Arc<str>), f64> = HashMap::new();
        let mut did: HashMap<Deed, f64> = HashMap::new();
        let (mut by_waiters, mut by_measured) = (0.0, 0.0);
        for i in samples {
            for hop in self.below_sample.get(i).into_iter().flatten() {
                let h = &recording.hops[*hop as usize];
                let ns = self.scaled(recording, *i, h.ns);
                *who.entry((name_of(recording, h), function_of(recording, h)))
                    .or_default() += ns;
                if let Actor::Context(c) = &recording.actors[h.actor.0 as usize] {
                    by_measured += ns;
                    if waiters.contains(c) {
                        by_waiters += ns;
                    }
                }
                let home = process_of(recording, h);
                for below in &self.below[*hop as usize] {
                    self.follow(recording, *i, *below, home, &mut did);
                }
            }
        }
        let share = |ns: f64| ns / whole.max(1) as f64;
        let mut who: Vec<_> = (who.into_iter())
            .map(|((who, function), ns)| (who, function, share(ns)))
            .collect();
        who.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| a.0.cmp(&b.0)));
        let mut did: Vec<_> = did.into_iter().map(|(d, ns)| (d, share(ns))).collect();
        did.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.who.cmp(&b.0.who)));
        Enders {
            who,
            did,
            by_waiters: share(by_waiters),
            by_measured: share(by_measured),
        }
    }

    /// Adds what `hop` comes to in the end. Chains are a few hops deep by their making.
    /// `home`: the process of who ended the wait.
    fn follow(
        &self,
        recording: &Recording,
        sample: u32,
        hop: u32,
        home: Option<u32>,
        did: &mut HashMap<Deed, f64>,
    ) {
        let h = &recording.hops[hop as usize];
        let mut own = h.ns;
        for woke in &self.below[hop as usize] {
            for next in &self.below[*woke as usize] {
                own = own.saturating_sub(recording.hops[*next as usize].ns);
                self.follow(recording, sample, *next, home, did);
            }
        }
        let what = match h.role {
            Role::OnCpu => "computes".to_string(),
            Role::Runnable => "waits for a CPU".to_string(),
            Role::Blocked => {
                let reason = h.reason.unwrap_or(BlockReason::Other);
                match reason {
                    BlockReason::Timer => "sleeps".to_string(),
                    reason => format!("waits for {}", crate::words::reason(reason)),
                }
            }
            Role::Woke | Role::Held | Role::Circle | Role::Cut => return,
        };
        let deed = Deed {
            who: name_of(recording, h),
            what,
            function: function_of(recording, h),
            elsewhere: process_of(recording, h).filter(|pid| home.is_some_and(|h| h != *pid)),
        };
        *did.entry(deed).or_default() += self.scaled(recording, sample, own);
    }
}

/// The process of who acts in a hop, where that one is measured.
fn process_of(recording: &Recording, hop: &Hop) -> Option<u32> {
    match &recording.actors[hop.actor.0 as usize] {
        Actor::Context(c) => Some(recording.contexts[c.0 as usize].pid),
        _ => None,
    }
}

fn name_of(recording: &Recording, hop: &Hop) -> String {
    match &recording.actors[hop.actor.0 as usize] {
        Actor::Context(c) => recording.contexts[c.0 as usize].name.to_string(),
        Actor::Stranger { pid, name, .. } => format!("{name} (pid {pid}, not measured)"),
        Actor::Interrupt(served) if served.is_empty() => "an interrupt".into(),
        Actor::Interrupt(served) => format!("the {served}'s interrupt"),
        Actor::Unknown => "somebody unknown".into(),
    }
}

fn function_of(recording: &Recording, hop: &Hop) -> Arc<str> {
    let Some(stack) = hop.stack else {
        return "".into();
    };
    let in_user_space = functions(recording, stack).any(|(kind, _)| kind != FrameKind::Kernel);
    match in_user_space {
        true => place(recording, &recording.stacks[stack.0 as usize]).function,
        false => "".into(),
    }
}

/// Of waits of one place, the share in which threads that wait at the same place did something else
/// meanwhile: then it is a thing that they share, and not work, that they wait for.
pub(crate) fn held_by_fellows(recording: &Recording, samples: &[u32]) -> f64 {
    let (below_sample, below) = hops(recording);
    let waiters: HashSet<ContextId> = (samples.iter())
        .map(|i| recording.samples[*i as usize].context)
        .collect();
    let Some(first) = samples.first() else {
        return 0.0;
    };
    let at = |stack: StackId| place(recording, &recording.stacks[stack.0 as usize]).function;
    let own = at(recording.samples[*first as usize].stack);
    let (mut all, mut held) = (0u64, 0u64);
    for i in samples {
        all += recording.samples[*i as usize].ns;
        // Chains are a few hops deep by their making.
        let mut open: Vec<u32> = below_sample.get(i).cloned().unwrap_or_default();
        while let Some(hop) = open.pop() {
            let h = &recording.hops[hop as usize];
            let inside: u64 = (below[hop as usize].iter())
                .flat_map(|woke| &below[*woke as usize])
                .map(|next| recording.hops[*next as usize].ns)
                .sum();
            let fellow = matches!(&recording.actors[h.actor.0 as usize],
                Actor::Context(c) if waiters.contains(c));
            // What somebody else waited for before he came is not what is held back here.
            if !fellow {
                continue;
            }
            open.extend(&below[hop as usize]);
            // One that queues there too does not have it. What it does else in that function, it may do with
            // what is waited for: compilers make one function of several.
            let queues =
                h.reason == Some(BlockReason::Lock) && h.stack.is_some_and(|s| at(s) == own);
            let busy = match h.role {
                Role::OnCpu | Role::Runnable => h.stack.is_none_or(|s| at(s) != own),
                Role::Blocked => !queues,
                _ => false,
            };
            if busy {
                held += h.ns.saturating_sub(inside);
            }
        }
    }
    held as f64 / all.max(1) as f64
}
