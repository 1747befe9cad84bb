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
//! This is done some ticks after the wait, when the stacks of its chain have been read, so that
//! nothing has to be kept for longer. What ends a chain: an interrupt, a thread that is not
//! measured, a circle, [`MOST_HOPS`], waits too short to have been charged, and forgetting
//! ([`MOST_KEPT`]).

use std::{cell::Cell, collections::VecDeque, rc::Rc, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, Role, StackEnd};

use super::{
    gil::Holders,
    parts::{Follow, Node, Part, Parts, Who},
    samples::{Key, User},
};
use crate::{
    event::{
        self, Resolve, SAMPLE_DEFERRED, SAMPLE_NO_USER, STEPS, SampleEvent, Step, WakeEvent, state,
    },
    places::Interrupts,
};

/// Wakers that are followed from one wait.
pub const MOST_HOPS: usize = 8;
/// Waits and on-CPU samples that are remembered.
const MOST_KEPT: usize = 200_000;
/// How long after its end a wait is followed, ns: the stacks of its chain are known by then.
const DELAY: u64 = 100_000_000;

/// The end of a wait.
struct Wake {
    time: u64,
    waker: u64,
    pid: u32,
    tid: u32,
    name: Arc<str>,
    kernel: u64,
    user: Cell<User>,
    /// The waker's changes of state, oldest first, from the last before the wait on.
    steps: Box<[Step]>,
}

/// A charged wait.
#[derive(Clone)]
struct Block {
    pid: u32,
    begin: u64,
    end: u64,
    ns: u64,
    count: u64,
    kernel: u64,
    user: User,
    detail: u8,
    resource: u64,
    /// Who had the lock when the wait began, where a runtime tells.
    owner: Option<u64>,
    wake: Rc<Wake>,
}

/// A sample on a CPU.
struct OnCpu {
    at: u64,
    /// The time that it stands for.
    ns: u64,
    kernel: u64,
    user: User,
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
    /// Keys of the samples at the roots.
    roots: Vec<Key>,
    root_ids: FxHashMap<Key, u32>,
    /// What waits were divided into.
    pub parts: Parts,
    /// Who had the lock that a thread waited for from some time on.
    owners: FxHashMap<(u64, u64), u64>,
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
            User::Hash(e.ustack)
        } else if e.flags & SAMPLE_NO_USER != 0 {
            User::Missing(StackEnd::KernelOnly)
        } else {
            User::Missing(StackEnd::Gone)
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

    /// When the thread with record `id` began to wait at `begin`, `owner` had the lock.
    pub fn owned(&mut self, id: u64, begin: u64, owner: u64) {
        if self.owners.len() >= MOST_KEPT {
            self.owners.clear();
        }
        self.owners.insert((id, begin), owner);
    }

    /// A ticket's stack is known.
    pub fn resolve(&mut self, r: &Resolve) {
        for wake in self.tickets.remove(&r.ticket).unwrap_or_default() {
            if r.ustack != 0 {
                wake.user.set(User::Hash(r.ustack));
            }
        }
    }

    /// A sample whose stack is known.
    pub fn sample(&mut self, key: Key, s: &SampleEvent) {
        match key.state {
            state::BLOCKED => {
                // Still waiting, or its end was lost: nothing hangs below such a wait.
                let Some(wake) = self.wakes.remove(&(s.id, s.begin)) else {
                    return;
                };
                let block = Block {
                    pid: s.pid,
                    begin: s.begin,
                    end: s.end,
                    ns: s.ns,
                    count: u64::from(s.count),
                    kernel: key.kernel,
                    user: key.user,
                    detail: key.detail,
                    resource: key.resource,
                    owner: self.owners.remove(&(s.id, s.begin)),
                    wake,
                };
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
            let follow = Follow {
                root,
                above: None,
                from: block.begin,
                to: block.end,
                ns: block.ns,
                count: block.count,
            };
            self.ended(follow, &block, kernel, &mut vec![id]);
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

    /// All parts, parents before children. What has not been followed yet is followed first.
    pub fn finish(&mut self, kernel: &FxHashMap<u64, Box<[u64]>>) -> (Vec<Key>, Vec<Node>) {
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

    /// What `block`, or the part of it that `at` is, was really spent on.
    fn ended(
        &mut self,
        at: Follow,
        block: &Block,
        kernel: &FxHashMap<u64, Box<[u64]>>,
        path: &mut Vec<u64>,
    ) {
        if block.detail != BlockReason::Gil as u8 {
            // Who is woken by its own time limit tells by that nothing of who had the lock.
            let by_itself =
                block.owner.is_some() && self.interrupt(block.wake.kernel, kernel).is_some();
            return match block.owner {
                Some(owner) if by_itself && path.last() != Some(&owner) => {
                    self.held(at, owner, kernel, path);
                }
                _ => self.follow(at, &block.wake, kernel, path),
            };
        }
        let length = at.to.saturating_sub(at.from).max(1);
        let upto = |time: u64| {
            (u128::from(at.ns) * u128::from(time - at.from) / u128::from(length)) as u64
        };
        for (i, s) in (0..).zip(self.holders.between(block.pid, at.from, at.to)) {
            let part = Follow {
                from: s.from,
                to: s.to,
                ns: upto(s.to) - upto(s.from),
                count: if i == 0 { at.count } else { 0 },
                ..at
            };
            match s.who {
                // Who waits cannot have it; it had it before, and nobody has taken it yet.
                Some(holder) if path.last() != Some(&holder) => {
                    self.held(part, holder, kernel, path);
                }
                _ => self.follow(part, &block.wake, kernel, path),
            }
        }
    }

    /// All through `at`, `holder` had the lock that is waited for.
    fn held(
        &mut self,
        at: Follow,
        holder: u64,
        kernel: &FxHashMap<u64, Box<[u64]>>,
        path: &mut Vec<u64>,
    ) {
        let who = Who::Record(holder);
        let Some(id) = self
            .parts
            .add(&at, Part::of(Role::Held, &who), at.ns, at.count)
        else {
            return;
        };
        let below = Follow {
            above: Some(id),
            count: 0,
            ..at
        };
        if !self.may_go_on(&below, holder, &who, path) {
            return;
        }
        path.push(holder);
        let blocked = self.earlier(&below, holder, &who, at.to, at.ns, kernel, path);
        let rest = self.queued(&below, holder, &who, at.ns - blocked);
        if rest > 0 {
            self.computing(&Follow { ns: rest, ..below }, holder, &who);
        }
        path.pop();
    }

    /// Whether to follow `waker` below `at`; if not, that is said there.
    fn may_go_on(&mut self, at: &Follow, waker: u64, who: &Who, path: &[u64]) -> bool {
        let role = match () {
            () if path.contains(&waker) => Role::Circle,
            () if path.len() >= MOST_HOPS => Role::Cut,
            () => return true,
        };
        self.parts.add(at, Part::of(role, who), at.ns, 0);
        false
    }

    /// Adds what of `at`, with `ns` to give away, its samples say that `id` waited for a CPU; returns
    /// what is left.
    fn queued(&mut self, at: &Follow, id: u64, who: &Who, ns: u64) -> u64 {
        let waits: Vec<(u64, u8)> = self.past.get(&id).map_or(Vec::new(), |past| {
            let inside = past.queued.iter().filter(|q| q.0 < at.to && q.1 > at.from);
            inside
                .map(|(begin, end, weight, part)| {
                    let inside = (*end).min(at.to) - (*begin).max(at.from);
                    let share = u128::from(*weight) * u128::from(inside);
                    ((share / u128::from((end - begin).max(1))) as u64, *part)
                })
                .collect()
        });
        let scale = u128::from((at.to - at.from).max(1));
        let mut left = ns;
        for (weight, detail) in waits {
            let part = (u128::from(at.ns) * u128::from(weight) / scale) as u64;
            let part = part.min(left);
            let runnable = Part {
                detail,
                ..Part::of(Role::Runnable, who)
            };
            if part > 0 && self.parts.add(at, runnable, part, 0).is_some() {
                left -= part;
            }
        }
        left
    }

    fn follow(
        &mut self,
        at: Follow,
        wake: &Rc<Wake>,
        kernel: &FxHashMap<u64, Box<[u64]>>,
        path: &mut Vec<u64>,
    ) {
        let who = match self.interrupt(wake.kernel, kernel) {
            Some(served) => Who::Interrupt(served),
            None if wake.waker == 0 => Who::Stranger(wake.pid, wake.tid, wake.name.clone()),
            None => Who::Record(wake.waker),
        };
        let own = matches!(who, Who::Record(_));
        let part = Part {
            kernel: wake.kernel,
            user: if own {
                wake.user.get()
            } else {
                User::Missing(StackEnd::KernelOnly)
            },
            ..Part::of(Role::Woke, &who)
        };
        let Some(id) = self.parts.add(&at, part, at.ns, at.count) else {
            return;
        };
        if !own {
            return;
        }
        let below = Follow {
            above: Some(id),
            ..at
        };
        if !self.may_go_on(&below, wake.waker, &who, path) {
            return;
        }
        path.push(wake.waker);
        self.meanwhile(below, wake, &who, kernel, path);
        path.pop();
    }

    /// Divides `at` among what the waker did in it.
    fn meanwhile(
        &mut self,
        at: Follow,
        wake: &Rc<Wake>,
        who: &Who,
        kernel: &FxHashMap<u64, Box<[u64]>>,
        path: &mut Vec<u64>,
    ) {
        let length = at.to.saturating_sub(at.from).max(1);
        let upto = |time: u64| {
            let passed = time.clamp(at.from, at.to) - at.from;
            (u128::from(at.ns) * u128::from(passed.min(length)) / u128::from(length)) as u64
        };
        let known = wake.steps.first().map_or(at.to, |s| s.time);
        if known > at.from {
            let ns = upto(known);
            let blocked = self.earlier(&at, wake.waker, who, known, ns, kernel, path);
            let before = Follow {
                to: known,
                ns,
                count: 0,
                ..at
            };
            let rest = self.queued(&before, wake.waker, who, ns - blocked);
            let rest = self.computed(&before, wake.waker, who, rest);
            if rest > 0 {
                self.parts.add(&at, Part::of(Role::Cut, who), rest, 0);
            }
        }
        for (i, step) in wake.steps.iter().enumerate() {
            // The last stretch is the one in which it woke the sleeper.
            let next = wake.steps.get(i + 1);
            let end = next.map_or(at.to, |n| n.time).min(at.to);
            let begin = step.time.max(at.from);
            let ns = upto(end).saturating_sub(upto(begin));
            if end <= begin || ns == 0 {
                continue;
            }
            let part = Follow {
                from: begin,
                to: end,
                ns,
                count: 0,
                ..at
            };
            match step.state {
                state::ON_CPU => self.computing(&part, wake.waker, who),
                state::RUNNABLE => {
                    let runnable = Part {
                        detail: step.detail,
                        ..Part::of(Role::Runnable, who)
                    };
                    self.parts.add(&at, runnable, ns, 0);
                }
                state::BLOCKED => {
                    let woken_by = next.map_or(0, |n| u64::from(n.waker));
                    self.blocked(part, wake.waker, who, step, woken_by, kernel, path);
                }
                _ => {
                    self.parts.add(&at, Part::of(Role::Cut, who), ns, 0);
                }
            }
        }
    }

    /// Adds what of `at`, with `ns` to give away, its samples say that `id` computed; returns what is
    /// left.
    fn computed(&mut self, at: &Follow, id: u64, who: &Who, ns: u64) -> u64 {
        let sampled: u64 = self.past.get(&id).map_or(0, |past| {
            let inside = past
                .on_cpu
                .iter()
                .filter(|s| (at.from..at.to).contains(&s.at));
            inside.map(|s| s.ns).sum()
        });
        let length = u128::from((at.to - at.from).max(1));
        let part = (u128::from(at.ns) * u128::from(sampled) / length) as u64;
        let part = part.min(ns);
        if part > 0 {
            self.computing(&Follow { ns: part, ..*at }, id, who);
        }
        ns - part
    }

    /// The waker was on a CPU. Where, the on-CPU samples that fell into such stretches tell: they are
    /// counted here, and the time is divided by them at the end, when there are enough.
    fn computing(&mut self, at: &Follow, waker: u64, who: &Who) {
        self.parts.add(at, Part::of(Role::OnCpu, who), at.ns, 0);
        let seen: Vec<(u64, User)> = self.past.get(&waker).map_or(Vec::new(), |past| {
            let from = past.on_cpu.partition_point(|s| s.at < at.from);
            past.on_cpu
                .iter()
                .skip(from)
                .take_while(|s| s.at < at.to)
                .map(|s| (s.kernel, s.user))
                .collect()
        });
        // A wait that stands for more time than its own makes its samples do so too.
        let hits = (at.ns * 16 / (at.to - at.from).max(1)).max(1);
        for (kernel, user) in seen {
            let part = Part {
                kernel,
                user,
                ..Part::of(Role::OnCpu, who)
            };
            if let Some(id) = self.parts.add(at, part, 0, 0) {
                self.parts.hit(id, hits);
            }
        }
    }

    /// The waker was blocked itself; if that was charged, who ended it is known too.
    #[allow(clippy::too_many_arguments)]
    fn blocked(
        &mut self,
        at: Follow,
        id: u64,
        who: &Who,
        step: &Step,
        woken_by: u64,
        kernel: &FxHashMap<u64, Box<[u64]>>,
        path: &mut Vec<u64>,
    ) {
        let charged = self.past.get(&id).and_then(|past| {
            let i = past.blocks.partition_point(|b| b.begin < step.time);
            past.blocks.get(i).filter(|b| b.begin == step.time).cloned()
        });
        let part = match &charged {
            Some(b) => Part {
                kernel: b.kernel,
                user: b.user,
                detail: step.detail,
                resource: b.resource,
                ..Part::of(Role::Blocked, who)
            },
            None => Part {
                detail: step.detail,
                ..Part::of(Role::Blocked, who)
            },
        };
        let Some(node) = self.parts.add(&at, part, at.ns, 0) else {
            return;
        };
        let below = Follow {
            above: Some(node),
            ..at
        };
        match charged {
            Some(block) => self.ended(below, &block, kernel, path),
            None if woken_by != 0 => {
                let who = Who::Record(woken_by);
                self.parts.add(&below, Part::of(Role::Woke, &who), at.ns, 0);
            }
            None => {}
        }
    }

    /// Where `id` was blocked up to `until`, of which `ns` are to be given away, as far as its samples
    /// tell; returns how much that was.
    #[allow(clippy::too_many_arguments)]
    fn earlier(
        &mut self,
        at: &Follow,
        id: u64,
        who: &Who,
        until: u64,
        ns: u64,
        kernel: &FxHashMap<u64, Box<[u64]>>,
        path: &mut Vec<u64>,
    ) -> u64 {
        let blocks: Vec<Block> = self.past.get(&id).map_or(Vec::new(), |past| {
            past.blocks
                .iter()
                .filter(|b| b.begin < until && b.end > at.from)
                .cloned()
                .collect()
        });
        let gap = until - at.from;
        // A wait stands for the time it was charged with, but no more than fits.
        let weight = |b: &Block| {
            let inside = b.end.min(until) - b.begin.max(at.from);
            let whole = (b.end - b.begin).max(1);
            (u128::from(b.ns) * u128::from(inside) / u128::from(whole)) as u64
        };
        let sum: u64 = blocks.iter().map(weight).sum();
        let scale = sum.max(gap).max(1);
        let mut given = 0;
        for b in &blocks {
            let part = (u128::from(ns) * u128::from(weight(b)) / u128::from(scale)) as u64;
            given += part;
            let inner = Follow {
                from: b.begin.max(at.from),
                to: b.end.min(until),
                ns: part,
                count: 0,
                ..*at
            };
            let step = Step {
                time: b.begin,
                waker: 0,
                state: state::BLOCKED,
                detail: b.detail,
                pad0: 0,
            };
            if part > 0 {
                self.blocked(inner, id, who, &step, 0, kernel, path);
            }
        }
        given
    }
}

#[cfg(test)]
#[path = "chains_tests.rs"]
mod tests;
