//! Chains of waits: who ended each charged wait, what that one did in it, and so on.
//!
//! The kernel programs send, with each wait that is charged to a stack, its waker and the waker's
//! last changes of state. From these the wait is divided among what its waker did meanwhile; where
//! the waker itself was blocked in a wait that was charged too, that part is divided again. A part
//! carries its share of the sample's weight, so that the parts of a wait sum to it and no time is
//! counted twice.
//!
//! A wait for an interpreter's lock is divided first among those who had the lock in it (`gil.rs`): who
//! waits for it is mostly woken by its own time limit.
//!
//! While a thread waits for a lock it may pass through several hands: whoever lets another waiter in had it until then. So
//! such a wait is cut at these moments, and where another wait began of which the lock's owner is known, and each
//! piece given to who had the lock at its end (`chains/lock_handoff.rs`).
//!
//! A wait that is not over at the end was ended by nobody. Where its lock itself says who has it
//! (`lock_owner.rs`), the wait is given to that one, from when a waiter was last seen to be let in. So is one that
//! ended by a time limit of its own, to who had the lock when it began.
//!
//! This is done some ticks after the wait, when the stacks of its chain have been read, so that
//! nothing has to be kept for longer. What ends a chain: an interrupt, a thread that is not
//! measured, a circle, [`MOST_HOPS`], waits too short to have been charged, and forgetting
//! ([`MOST_KEPT`]).

use std::{cell::Cell, collections::VecDeque, rc::Rc};

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, StackEnd};

use super::{
    chains::wake::Wake,
    gil::Holders,
    lock_owner::OwnerEvidence,
    sample_key::{SampleKey, UserPart},
    wait_tree::{ActorKey, Follow, Node, WaitTree},
};
use crate::{
    event::{
        self, Resolve, SAMPLE_DEFERRED, SAMPLE_NO_USER, STEPS, SampleEvent, Step, WakeEvent, state,
    },
    places::Interrupts,
};

mod follow;
mod lock_handoff;
mod wake;

use lock_handoff::{HolderEvidence, LockHandoffs};

/// Wakers that are followed from one wait.
pub const MOST_HOPS: usize = 8;
/// Waits and on-CPU samples that are remembered.
const MOST_KEPT: usize = 200_000;
/// Waits that are remembered until their locks' owners have done something.
const MOST_POSTPONED: usize = 20_000;
/// How long after its end a wait is followed, ns: the stacks of its chain are known by then.
const DELAY: u64 = 100_000_000;

/// Who had a lock, and by what that is known; `None`: a runtime tells.
type Owned = (ActorKey, Option<OwnerEvidence>);

/// A charged wait.
#[derive(Clone)]
struct Block {
    pid: u32,
    begin: u64,
    end: u64,
    ns: u64,
    count: u64,
    kernel: u64,
    user: UserPart,
    detail: u8,
    resource: u64,
    /// Who had the lock when the wait began, where a runtime or the lock tells.
    owner: Option<Owned>,
    /// `None`: it is not over.
    wake: Option<Rc<Wake>>,
    /// Who has the lock then, and by what that is known.
    has: Option<(ActorKey, OwnerEvidence)>,
}

/// A sample on a CPU.
struct OnCpu {
    at: u64,
    /// The time that it stands for.
    ns: u64,
    kernel: u64,
    user: UserPart,
}

/// What one thread did, as far as it was sampled.
#[derive(Default)]
struct Past {
    blocks: VecDeque<Block>,
    on_cpu: VecDeque<OnCpu>,
    /// Waits for a CPU: begin, end, weight, which part of runnable time.
    queued: VecDeque<(u64, u64, u64, u8)>,
}

/// All chains so far.
#[derive(Default)]
pub struct Chains {
    /// Ends of waits whose sample has not come yet, by sleeper and begin.
    wakes: FxHashMap<(u64, u64), Rc<Wake>>,
    tickets: FxHashMap<u64, Vec<Rc<Wake>>>,
    past: FxHashMap<u64, Past>,
    kept: usize,
    pending: VecDeque<(u32, u64, Block)>,
    /// Those whose locks' owners are not known to have done anything since.
    postponed: VecDeque<(u32, u64, Block)>,
    /// Keys of the samples at the roots.
    roots: Vec<SampleKey>,
    root_ids: FxHashMap<SampleKey, u32>,
    /// What waits were divided into.
    pub parts: WaitTree,
    /// Who had the lock that a thread waited for from some time on.
    owners: FxHashMap<(u64, u64), Owned>,
    /// Who has the lock that a thread still waits for, by record and begin of the wait.
    has: FxHashMap<(u64, u64), (ActorKey, OwnerEvidence)>,
    /// Who had locks when.
    handed: LockHandoffs,
    /// Who had interpreters' locks.
    pub holders: Holders,
    interrupts: Interrupts,
    served: FxHashMap<u64, Option<&'static str>>,
}

impl Chains {
    /// None yet; `interrupts` tells interrupts by their code.
    pub fn new(interrupts: Interrupts) -> Chains {
        Chains {
            interrupts,
            ..Chains::default()
        }
    }

    /// A wait has ended.
    pub fn wake(&mut self, e: &WakeEvent) {
        let count = e.steps as usize;
        let first = count.saturating_sub(STEPS);
        let mut steps: Vec<Step> = (first..count).map(|n| e.step[n % STEPS]).collect();
        let before = steps.partition_point(|s| s.time <= e.begin);
        steps.drain(..before.saturating_sub(1));
        let user = if e.flags & (SAMPLE_NO_USER | SAMPLE_DEFERRED) == 0 && e.ustack != 0 {
            UserPart::Hash(e.ustack)
        } else if e.flags & SAMPLE_NO_USER != 0 {
            UserPart::Missing(StackEnd::KernelOnly)
        } else {
            UserPart::Missing(StackEnd::Gone)
        };
        let wake = Rc::new(Wake {
            time: e.time,
            waker: e.waker,
            pid: e.pid,
            tid: e.tid,
            name: event::text(&e.comm).into(),
            kernel: e.kstack,
            user: Cell::new(user),
            steps: steps.into(),
        });
        if e.flags & SAMPLE_DEFERRED != 0 {
            self.tickets.entry(e.ustack).or_default().push(wake.clone());
        }
        self.wakes.insert((e.id, e.begin), wake);
    }

    /// What is called `resource` is not one lock but several of a kind.
    pub fn is_a_kind(&mut self, resource: u64) {
        self.handed.leave_out(resource);
    }

    /// `resource` is what another process calls `lock`.
    pub fn is_same(&mut self, resource: u64, lock: u64) {
        self.handed.is_same(resource, lock);
    }

    /// When the thread with record `id` began to wait at `begin`, `owner` had the lock; `told`: by what that is
    /// known, where not from a runtime.
    pub fn owned(&mut self, id: u64, begin: u64, owner: ActorKey, told: Option<OwnerEvidence>) {
        if self.owners.len() >= MOST_KEPT {
            self.owners.clear();
        }
        self.owners.insert((id, begin), (owner, told));
    }

    /// At the end the thread with record `id`, which has waited since `begin`, waits for a lock that `who` has.
    pub fn has_lock(&mut self, id: u64, begin: u64, who: ActorKey, told: OwnerEvidence) {
        self.has.insert((id, begin), (who, told));
    }

    /// A wait that is not over at the end.
    pub fn still(&mut self, key: SampleKey, s: &SampleEvent) {
        let has = self.has.remove(&(s.id, s.begin));
        self.block(key, s, None, has);
        self.kept += 1;
    }

    /// A wait of which the stack is known.
    fn block(
        &mut self,
        key: SampleKey,
        s: &SampleEvent,
        wake: Option<Rc<Wake>>,
        has: Option<(ActorKey, OwnerEvidence)>,
    ) {
        let block = Block {
            pid: s.pid,
            begin: s.begin,
            // A log may claim another order.
            end: s.end.max(s.begin),
            ns: s.ns,
            count: u64::from(s.count),
            kernel: key.kernel,
            user: key.user,
            detail: key.detail,
            resource: key.resource,
            owner: self.owners.remove(&(s.id, s.begin)),
            wake,
            has,
        };
        if let (Some((who, None)), true) = (&block.owner, block.detail == BlockReason::Lock as u8) {
            self.handed.add(
                block.resource,
                block.begin,
                HolderEvidence::Owner(who.clone()),
            );
        }
        let past = &mut self.past.entry(s.id).or_default().blocks;
        let at = past.partition_point(|b| b.begin <= block.begin);
        past.insert(at, block.clone());
        let next = self.roots.len() as u32;
        let root = *self.root_ids.entry(key).or_insert_with_key(|key| {
            self.roots.push(*key);
            next
        });
        self.pending.push_back((root, s.id, block));
    }

    /// A ticket's stack is known.
    pub fn resolve(&mut self, r: &Resolve) {
        for wake in self.tickets.remove(&r.ticket).unwrap_or_default() {
            if r.ustack != 0 {
                wake.user.set(UserPart::Hash(r.ustack));
            }
        }
    }

    /// A sample whose stack is known.
    pub fn sample(&mut self, key: SampleKey, s: &SampleEvent) {
        match key.state {
            state::BLOCKED => {
                // Its end was lost: nothing hangs below such a wait.
                let Some(wake) = self.wakes.remove(&(s.id, s.begin)) else {
                    return;
                };
                if key.detail == BlockReason::Lock as u8 {
                    self.handed.add(
                        key.resource,
                        wake.time,
                        HolderEvidence::Wake(Rc::clone(&wake)),
                    );
                }
                self.block(key, s, Some(wake), None);
            }
            state::ON_CPU => {
                let past = self.past.entry(s.id).or_default();
                past.on_cpu.push_back(OnCpu {
                    at: s.end,
                    ns: s.ns,
                    kernel: key.kernel,
                    user: key.user,
                });
            }
            state::RUNNABLE => {
                let past = self.past.entry(s.id).or_default();
                past.queued.push_back((s.begin, s.end, s.ns, key.detail));
            }
            _ => return,
        }
        self.kept += 1;
    }

    /// Follows what ended long enough ago. `kernel`: kernel stacks by hash.
    pub fn settle(&mut self, now: u64, kernel: &FxHashMap<u64, Box<[u64]>>) {
        while self
            .pending
            .front()
            .is_some_and(|(.., b)| now == u64::MAX || b.end.saturating_add(DELAY) <= now)
        {
            let Some((root, id, block)) = self.pending.pop_front() else {
                break;
            };
            if now != u64::MAX && self.owner_is_behind(&block, kernel) {
                self.postponed.push_back((root, id, block));
            } else {
                self.begin(root, id, &block, kernel);
            }
        }
        for _ in 0..self.postponed.len() {
            let Some((root, id, block)) = self.postponed.pop_front() else {
                break;
            };
            let room = self.postponed.len() < MOST_POSTPONED;
            if now != u64::MAX && room && self.owner_is_behind(&block, kernel) {
                self.postponed.push_back((root, id, block));
            } else {
                self.begin(root, id, &block, kernel);
            }
        }
        if self.kept > MOST_KEPT {
            self.forget();
        }
        // Tickets and waits whose samples never came.
        self.wakes
            .retain(|_, w| w.time.saturating_add(50 * DELAY) > now);
        self.tickets
            .retain(|_, w| w.iter().any(|w| w.time.saturating_add(50 * DELAY) > now));
    }

    /// Follows a wait from its beginning.
    fn begin(&mut self, root: u32, id: u64, block: &Block, kernel: &FxHashMap<u64, Box<[u64]>>) {
        let follow = Follow {
            root,
            above: None,
            from: block.begin,
            to: block.end,
            ns: block.ns,
            count: block.count,
        };
        self.ended(follow, block, kernel, &mut vec![id]);
    }

    /// Whether `block`, which ran out, is over before what the owner of its lock did in it is told: that is not
    /// known to have done anything since, and may still be in a wait of its own.
    fn owner_is_behind(&mut self, block: &Block, kernel: &FxHashMap<u64, Box<[u64]>>) -> bool {
        let (Some((ActorKey::Record(owner), _)), Some(wake)) = (&block.owner, &block.wake) else {
            return false;
        };
        if self.interrupt(wake.kernel, kernel).is_none() {
            return false;
        }
        !self.has_done_since(*owner, block.end)
    }

    /// Whether anything is known of what thread `id` did at or after `time`.
    fn has_done_since(&self, id: u64, time: u64) -> bool {
        self.past.get(&id).is_some_and(|past| {
            let blocked = past.blocks.back().is_some_and(|b| b.end >= time);
            blocked || past.on_cpu.back().is_some_and(|s| s.at >= time)
        })
    }

    /// All parts, parents before children. What has not been followed yet is followed first.
    pub fn finish(&mut self, kernel: &FxHashMap<u64, Box<[u64]>>) -> (Vec<SampleKey>, Vec<Node>) {
        self.settle(u64::MAX, kernel);
        self.parts.place_computing();
        (std::mem::take(&mut self.roots), self.parts.take())
    }

    /// Halves what is remembered of each thread.
    fn forget(&mut self) {
        self.kept = 0;
        self.past.retain(|_, past| {
            past.blocks.drain(..past.blocks.len().div_ceil(2));
            past.on_cpu.drain(..past.on_cpu.len().div_ceil(2));
            past.queued.drain(..past.queued.len().div_ceil(2));
            let left = past.blocks.len() + past.on_cpu.len() + past.queued.len();
            self.kept += left;
            left > 0
        });
        self.handed.forget();
    }

    /// What the interrupt served in whose name a wake-up with this kernel stack came, if it was one.
    fn interrupt(
        &mut self,
        hash: u64,
        kernel: &FxHashMap<u64, Box<[u64]>>,
    ) -> Option<&'static str> {
        let interrupts = &self.interrupts;
        *self
            .served
            .entry(hash)
            .or_insert_with(|| interrupts.served(kernel.get(&hash)?))
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
