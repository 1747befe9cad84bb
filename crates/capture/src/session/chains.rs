//! Chains of waits: the waker of each charged wait, the waker's activities in it, and so on.
//!
//! The kernel programs send the waker of each charged wait, and the waker's last changes of state. The wait
//! is divided among the waker's activities meanwhile. If the waker was itself blocked in a charged wait, that
//! part is divided again. A part carries its share of the sample's weight. So the parts of a wait sum to it,
//! and no time is counted twice.
//!
//! A wait for an interpreter's lock is first divided among the holders of the lock in it (`gil.rs`): such a
//! waiter is mostly woken by its own time limit.
//!
//! A lock may have several holders while a thread waits for it. A thread that hands a lock off held it until then. So
//! the wait is divided at each hand-off, and at the begin of another thread's wait if the lock's owner is known then.
//! Each piece goes to the holder at its end (`chains/lock_handoff.rs`).
//!
//! A wait that is not over at the end has no waker. If its lock names the owner (`lock_owner.rs`), the wait
//! goes to that owner, from the last hand-off on. A wait that ended by its own time limit goes to the lock's
//! owner when it began.
//!
//! A wait is followed some ticks after its end, when the stacks of its chain have been read. So nothing has
//! to be kept for longer. A chain ends at an interrupt, a thread that is not measured, a cycle, [`MAX_HOPS`]
//! or a wait too short to have been charged. It also ends where a wait was forgotten ([`MAX_KEPT`]).

use std::{cell::Cell, collections::VecDeque, rc::Rc};

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, StackEnd};

use super::{
    chains::wake::Wake,
    gil::Holders,
    lock_owner::OwnerEvidence,
    sample_key::{Moves, SampleKey, UserPart},
    wait_tree::{ActorKey, Node, WaitTree},
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
pub const MAX_HOPS: usize = 8;
/// Waits and on-CPU samples that are remembered.
const MAX_KEPT: usize = 200_000;
/// The number for a session in windows: some 3 MiB.
const KEPT_IN_WINDOWS: usize = 20_000;
/// Waits that are kept until activity of the lock's owner after the wait is known.
const MAX_POSTPONED: usize = 20_000;
/// Number of new roots and parts at which equal ones are merged.
const FOLD_PARTS: usize = 8192;
/// Delay from the end of a wait to following it, ns: the stacks of its chain are known by then.
const DELAY: u64 = 100_000_000;

/// Owner of a lock, and the evidence for it; `None`: a runtime names the owner.
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
    /// Owner of the lock when the wait began, if a runtime or the lock names it.
    owner: Option<Owned>,
    /// `None`: it is not over.
    wake: Option<Rc<Wake>>,
    /// Owner of the lock at the end of the recording, and the evidence for it.
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

/// Activity of one thread, as far as it was sampled.
#[derive(Default)]
struct SampledActivity {
    blocks: VecDeque<Block>,
    on_cpu: VecDeque<OnCpu>,
    /// Waits for a CPU: begin, end, weight, which part of runnable time.
    queued: VecDeque<(u64, u64, u64, u8)>,
}

impl SampledActivity {
    fn len(&self) -> usize {
        self.blocks.len() + self.on_cpu.len() + self.queued.len()
    }
}

/// Waits and on-CPU samples that are remembered.
#[derive(Default)]
struct Kept {
    now: usize,
    limit: usize,
}

/// Samples at the roots of chains.
#[derive(Default)]
struct Roots {
    keys: Vec<SampleKey>,
    ids: FxHashMap<SampleKey, u32>,
}

/// Waits of ended threads, which become those of their groups.
#[derive(Default)]
struct Fold {
    /// Threads that became part of groups last.
    ended: Vec<u64>,
    /// Moves that are still to be made.
    moves: Moves,
    /// Roots and parts that were left when waits were moved last.
    left: usize,
}

/// All chains so far.
#[derive(Default)]
pub struct Chains {
    /// Ends of waits that have no sample yet, by sleeper and begin.
    wakes: FxHashMap<(u64, u64), Rc<Wake>>,
    tickets: FxHashMap<u64, Vec<Rc<Wake>>>,
    past: FxHashMap<u64, SampledActivity>,
    kept: Kept,
    pending: VecDeque<(u32, u64, Block)>,
    /// Waits for which no activity of the lock's owner after the wait is known yet.
    postponed: VecDeque<(u32, u64, Block)>,
    roots: Roots,
    /// Parts of the waits.
    pub parts: WaitTree,
    /// Owner of the lock when a wait began, by record and begin of the wait.
    owners: FxHashMap<(u64, u64), Owned>,
    /// Owner of the lock that a thread still waits for, by record and begin of the wait.
    has: FxHashMap<(u64, u64), (ActorKey, OwnerEvidence)>,
    /// Known holders of locks, by time.
    handed: LockHandoffs,
    /// Holders of interpreters' locks.
    pub holders: Holders,
    fold: Fold,
    interrupts: Interrupts,
    served: FxHashMap<u64, Option<&'static str>>,
}

impl Chains {
    /// An empty set; `interrupts` recognises interrupts by their code.
    pub fn new(interrupts: Interrupts) -> Chains {
        Chains {
            interrupts,
            kept: Kept {
                now: 0,
                limit: MAX_KEPT,
            },
            ..Chains::default()
        }
    }

    /// Remembers less: a session in windows looks back less far than a recording.
    pub fn remember_for_windows(&mut self) {
        self.kept.limit = KEPT_IN_WINDOWS;
    }

    /// Notes the end of a wait.
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

    /// Notes that `resource` names several locks of a kind, not one.
    pub fn is_a_kind(&mut self, resource: u64) {
        self.handed.leave_out(resource);
    }

    /// Notes that `resource` is another process's name for `lock`.
    pub fn is_same(&mut self, resource: u64, lock: u64) {
        self.handed.is_same(resource, lock);
    }

    /// Notes that `owner` had the lock when the thread with record `id` began to wait at `begin`. `told` is
    /// the evidence; `None`: a runtime names the owner.
    pub fn owned(&mut self, id: u64, begin: u64, owner: ActorKey, told: Option<OwnerEvidence>) {
        if self.owners.len() >= MAX_KEPT {
            self.owners.clear();
        }
        self.owners.insert((id, begin), (owner, told));
    }

    /// Notes, at the end of the recording, the owner of the lock that the thread with record `id` has waited
    /// for since `begin`.
    pub fn has_lock(&mut self, id: u64, begin: u64, actor: ActorKey, told: OwnerEvidence) {
        self.has.insert((id, begin), (actor, told));
    }

    /// Adds a wait that is not over at the end.
    pub fn still(&mut self, key: SampleKey, s: &SampleEvent) {
        let has = self.has.remove(&(s.id, s.begin));
        self.block(key, s, None, has);
        self.kept.now += 1;
    }

    /// Adds a wait with a known stack.
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
        if let (Some((actor, None)), true) = (&block.owner, block.detail == BlockReason::Lock as u8)
        {
            self.handed.add(
                block.resource,
                block.begin,
                HolderEvidence::Owner(actor.clone()),
            );
        }
        let past = &mut self.past.entry(s.id).or_default().blocks;
        let at = past.partition_point(|b| b.begin <= block.begin);
        past.insert(at, block.clone());
        let next = self.roots.keys.len() as u32;
        let root = *self.roots.ids.entry(key).or_insert_with_key(|key| {
            self.roots.keys.push(*key);
            next
        });
        self.pending.push_back((root, s.id, block));
    }

    /// Sets the stack of the wakers that have this ticket.
    pub fn resolve(&mut self, r: &Resolve) {
        for wake in self.tickets.remove(&r.ticket).unwrap_or_default() {
            if r.ustack != 0 {
                wake.user.set(UserPart::Hash(r.ustack));
            }
        }
    }

    /// Adds a sample with a known stack.
    pub fn sample(&mut self, key: SampleKey, s: &SampleEvent) {
        match key.state {
            state::BLOCKED => {
                // The end of this wait was lost, so it has no parts.
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
        self.kept.now += 1;
    }

    /// Follows the waits that ended long enough ago. `kernel`: kernel stacks by hash.
    pub fn settle(&mut self, now: u64, kernel: &FxHashMap<u64, Box<[u64]>>) {
        self.follow_until(now, kernel);
        if self.kept.now > self.kept.limit {
            self.forget();
        }
        // Drops tickets and waits for which no sample came.
        self.wakes
            .retain(|_, w| w.time.saturating_add(50 * DELAY) > now);
        self.tickets
            .retain(|_, w| w.iter().any(|w| w.time.saturating_add(50 * DELAY) > now));
    }

    fn follow_until(&mut self, now: u64, kernel: &FxHashMap<u64, Box<[u64]>>) {
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
            let room = self.postponed.len() < MAX_POSTPONED;
            if now != u64::MAX && room && self.owner_is_behind(&block, kernel) {
                self.postponed.push_back((root, id, block));
            } else {
                self.begin(root, id, &block, kernel);
            }
        }
    }

    /// Whether `block` ended by its time limit and no activity of the lock's owner after it is known yet. The
    /// owner may still be in a wait of its own, which is known only at its end.
    fn owner_is_behind(&mut self, block: &Block, kernel: &FxHashMap<u64, Box<[u64]>>) -> bool {
        let (Some((ActorKey::Record(owner), _)), Some(wake)) = (&block.owner, &block.wake) else {
            return false;
        };
        if self.interrupt(wake.kernel, kernel).is_none() {
            return false;
        }
        !self.has_done_since(*owner, block.end)
    }

    /// Whether any activity of thread `id` at or after `time` is known.
    fn has_done_since(&self, id: u64, time: u64) -> bool {
        self.past.get(&id).is_some_and(|past| {
            let blocked = past.blocks.back().is_some_and(|b| b.end >= time);
            blocked || past.on_cpu.back().is_some_and(|s| s.at >= time)
        })
    }

    /// Follows the remaining waits and returns the parts since the last call, parents before children.
    pub fn take(&mut self, kernel: &FxHashMap<u64, Box<[u64]>>) -> (Vec<SampleKey>, Vec<Node>) {
        self.follow_until(u64::MAX, kernel);
        if !self.fold.moves.records.is_empty() || !self.fold.moves.resources.is_empty() {
            self.move_all();
        }
        self.parts.place_computing();
        self.roots.ids.clear();
        self.fold.left = 0;
        (std::mem::take(&mut self.roots.keys), self.parts.take())
    }

    /// Moves waits to groups of ended threads, once there are many.
    pub fn fold(&mut self, moves: Moves) {
        // The waits that these threads ended have been followed since.
        for id in std::mem::take(&mut self.fold.ended) {
            if let Some(past) = self.past.remove(&id) {
                self.kept.now = self.kept.now.saturating_sub(past.len());
            }
        }
        self.fold.ended.extend(moves.records.keys());
        self.fold.moves.records.extend(moves.records);
        self.fold.moves.resources.extend(moves.resources);
        if self.roots.keys.len() + self.parts.len() >= 2 * self.fold.left + FOLD_PARTS {
            self.move_all();
        }
    }

    fn move_all(&mut self) {
        let moves = std::mem::take(&mut self.fold.moves);
        self.roots.ids.clear();
        let mut to = Vec::with_capacity(self.roots.keys.len());
        for key in std::mem::take(&mut self.roots.keys) {
            let key = moves.key(&key).unwrap_or(key);
            let next = self.roots.keys.len() as u32;
            to.push(*self.roots.ids.entry(key).or_insert_with(|| {
                self.roots.keys.push(key);
                next
            }));
        }
        let waiting = self.pending.iter_mut().chain(&mut self.postponed);
        waiting.for_each(|(root, ..)| *root = to[*root as usize]);
        self.parts.fold(&to, &moves);
        self.fold.left = self.roots.keys.len() + self.parts.len();
    }

    /// Forgets the older half of each thread's activities.
    fn forget(&mut self) {
        self.kept.now = 0;
        self.past.retain(|_, past| {
            past.blocks.drain(..past.blocks.len().div_ceil(2));
            past.on_cpu.drain(..past.on_cpu.len().div_ceil(2));
            past.queued.drain(..past.queued.len().div_ceil(2));
            let left = past.len();
            self.kept.now += left;
            left > 0
        });
        self.handed.forget();
    }

    /// Returns the device or timer that the interrupt served, if a wake-up with this kernel stack came from an
    /// interrupt.
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
