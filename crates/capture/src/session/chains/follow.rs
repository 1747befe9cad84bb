//! Attribution of a wait: to its waker or the lock's holder, then to that thread's activities in it, and so on
//! down the chain. [`Chains`] remembers wakers and holders; this module keeps no state.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, Role, StackEnd};

use super::{
    super::{
        lock_owner::OwnerEvidence,
        wait_tree::{ActorKey, Follow, Part},
    },
    Block, Chains, MAX_HOPS,
    lock_handoff::HolderEvidence,
    wake::Wake,
};
use crate::{event::state, session::sample_key::UserPart};

/// A chain while it is followed.
struct Walk<'a> {
    /// Kernel stacks by hash.
    kernel: &'a FxHashMap<u64, Box<[u64]>>,
    /// Records of the threads from the waiter to the one that is followed.
    path: Vec<u64>,
}

/// A wait of a thread in a chain.
struct Wait {
    begin: u64,
    /// Number of its block reason.
    reason: u8,
    /// Record of the thread that ended it; 0: not known.
    woken_by: u64,
}

impl Chains {
    /// Follows a wait of the thread with record `id` from its beginning. `kernel`: kernel stacks by hash.
    pub(super) fn begin(
        &mut self,
        root: u32,
        id: u64,
        block: &Block,
        kernel: &FxHashMap<u64, Box<[u64]>>,
    ) {
        let follow = Follow {
            root,
            above: None,
            from: block.begin,
            to: block.end,
            ns: block.ns,
            count: block.count,
        };
        let path = vec![id];
        self.ended(follow, block, &mut Walk { kernel, path });
    }

    /// Attributes `at`, which is `block` or a part of it, to the threads that it depended on.
    fn ended(&mut self, at: Follow, block: &Block, walk: &mut Walk<'_>) {
        let Some(wake) = &block.wake else {
            return self.still_held(at, block, walk);
        };
        if block.detail != BlockReason::Gil as u8 {
            // A wake-up by the waiter's own time limit says nothing about the lock's holder.
            let by_itself =
                block.owner.is_some() && self.interrupt(wake.kernel, walk.kernel).is_some();
            let itself = |actor: &ActorKey| matches!(actor, ActorKey::Record(id) if walk.path.last() == Some(id));
            return match &block.owner {
                Some((owner, told)) if by_itself && !itself(owner) => {
                    self.held(at, owner, *told, walk);
                }
                _ if by_itself || block.detail != BlockReason::Lock as u8 => {
                    self.follow(at, wake, walk);
                }
                _ => self.let_in(at, block, walk),
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
            match s.holder {
                // The waiter cannot be the holder: it held the lock before, and no thread has taken it since.
                Some(holder) if walk.path.last() != Some(&holder) => {
                    self.held(part, &ActorKey::Record(holder), None, walk);
                }
                _ => self.follow(part, wake, walk),
            }
        }
    }

    /// Charges `at`, a wait that is not over or a part of it, to the lock's owner, from the last hand-off on:
    /// no other thread got the lock after that.
    fn still_held(&mut self, at: Follow, block: &Block, walk: &mut Walk<'_>) {
        let Some((actor, told)) = &block.has else {
            return;
        };
        let from = self.handed.last(block.resource).clamp(at.from, at.to);
        let length = u128::from((at.to - at.from).max(1));
        let since = Follow {
            from,
            ns: (u128::from(at.ns) * u128::from(at.to - from) / length) as u64,
            ..at
        };
        if since.ns > 0 {
            self.held(since, actor, Some(*told), walk);
        }
    }

    /// Divides `at`, a wait that ended by a hand-off or a part of it, at the lock's earlier hand-offs.
    fn let_in(&mut self, at: Follow, block: &Block, walk: &mut Walk<'_>) {
        let Some(last) = &block.wake else { return };
        for (piece, by) in self.handed.pieces(at, block.resource, last.time) {
            // Neither the waiter nor an interrupt can be the holder.
            let waits = |id: u64| walk.path.last() == Some(&id);
            match by {
                Some(HolderEvidence::Wake(wake))
                    if !waits(wake.waker) && self.interrupt(wake.kernel, walk.kernel).is_none() =>
                {
                    self.follow(piece, &wake, walk);
                }
                Some(HolderEvidence::Owner(actor)) if !matches!(actor, ActorKey::Record(id) if waits(id)) =>
                {
                    self.held(piece, &actor, None, walk);
                }
                _ => self.follow(piece, last, walk),
            }
        }
    }

    /// Charges all of `at` to the holder of the lock. `told` is the evidence; `None`: a hand-off or a runtime
    /// showed the holder.
    fn held(
        &mut self,
        at: Follow,
        actor: &ActorKey,
        told: Option<OwnerEvidence>,
        walk: &mut Walk<'_>,
    ) {
        let part = Part {
            detail: told.map_or(0, |told| told as u8),
            ..Part::of(Role::Held, actor)
        };
        let Some(id) = self.parts.add(&at, part, at.ns, at.count) else {
            return;
        };
        let ActorKey::Record(holder) = *actor else {
            return;
        };
        let (from, to) = match told {
            Some(_) => self.still_there(&at, holder),
            None => (at.from, at.to),
        };
        let below = Follow {
            above: Some(id),
            count: 0,
            from,
            to,
            ..at
        };
        if !self.may_go_on(&below, holder, walk) {
            return;
        }
        walk.path.push(holder);
        let blocked = self.earlier(&below, holder, walk);
        let rest = self.queued(&below, holder, at.ns - blocked);
        // The holder may be in a wait that is not over: then its activity is not known yet.
        let known =
            !told.is_some_and(OwnerEvidence::was_then) || self.has_done_since(holder, at.to);
        let left = match known {
            true => 0,
            false => self.computed(&below, holder, rest),
        };
        if known && rest > 0 {
            self.computing(&Follow { ns: rest, ..below }, holder);
        } else if left > 0 {
            self.parts.add(&below, Part::of(Role::Cut, actor), left, 0);
        }
        walk.path.pop();
    }

    /// Trims the edges off `at` if `holder` waits throughout it. Threads are read one after the other at the
    /// start and the end, so their waits do not begin and end together.
    fn still_there(&self, at: &Follow, holder: u64) -> (u64, u64) {
        const EDGES: u64 = 1_000;
        let blocks = self.past.get(&holder).map(|past| &past.blocks);
        let open = blocks.and_then(|b| b.iter().rev().find(|b| b.wake.is_none()));
        let (from, to) = open.map_or((at.from, at.to), |b| {
            (at.from.max(b.begin), at.to.min(b.end))
        });
        let whole = at.to - at.from;
        match whole.saturating_sub(to.saturating_sub(from)) <= whole / EDGES {
            true => (from, to),
            false => (at.from, at.to),
        }
    }

    /// Whether to follow `waker` below `at`. If not, a part there states the reason.
    fn may_go_on(&mut self, at: &Follow, waker: u64, walk: &Walk<'_>) -> bool {
        let role = match () {
            () if walk.path.contains(&waker) => Role::Circle,
            () if walk.path.len() >= MAX_HOPS => Role::Cut,
            () => return true,
        };
        self.parts.add(at, Part::of_record(role, waker), at.ns, 0);
        false
    }

    /// Charges the run-queue latency that samples of `id` show in `at`, at most `ns`. Returns the rest of
    /// `ns`.
    fn queued(&mut self, at: &Follow, id: u64, ns: u64) -> u64 {
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
                ..Part::of_record(Role::Runnable, id)
            };
            if part > 0 && self.parts.add(at, runnable, part, 0).is_some() {
                left -= part;
            }
        }
        left
    }

    fn follow(&mut self, at: Follow, wake: &Rc<Wake>, walk: &mut Walk<'_>) {
        let actor = match self.interrupt(wake.kernel, walk.kernel) {
            Some(served) => ActorKey::Interrupt(served),
            None if wake.waker == 0 => ActorKey::Stranger(wake.pid, wake.tid, wake.name.clone()),
            None => ActorKey::Record(wake.waker),
        };
        let own = matches!(actor, ActorKey::Record(_));
        let part = Part {
            kernel: wake.kernel,
            user: if own {
                wake.user.get()
            } else {
                UserPart::Missing(StackEnd::KernelOnly)
            },
            ..Part::of(Role::Woke, &actor)
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
        if !self.may_go_on(&below, wake.waker, walk) {
            return;
        }
        walk.path.push(wake.waker);
        self.meanwhile(below, wake, walk);
        walk.path.pop();
    }

    /// Divides `at` among the waker's states in it.
    fn meanwhile(&mut self, at: Follow, wake: &Rc<Wake>, walk: &mut Walk<'_>) {
        let length = at.to.saturating_sub(at.from).max(1);
        let upto = |time: u64| {
            let passed = time.clamp(at.from, at.to) - at.from;
            (u128::from(at.ns) * u128::from(passed.min(length)) / u128::from(length)) as u64
        };
        let waker = wake.waker;
        let known = wake.steps.first().map_or(at.to, |s| s.time);
        if known > at.from {
            let before = Follow {
                to: known,
                ns: upto(known),
                count: 0,
                ..at
            };
            let blocked = self.earlier(&before, waker, walk);
            let rest = self.queued(&before, waker, before.ns - blocked);
            let rest = self.computed(&before, waker, rest);
            if rest > 0 {
                self.parts
                    .add(&at, Part::of_record(Role::Cut, waker), rest, 0);
            }
        }
        for (i, step) in wake.steps.iter().enumerate() {
            // In the last stretch the waker woke the sleeper.
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
                state::ON_CPU => self.computing(&part, waker),
                state::RUNNABLE => {
                    let runnable = Part {
                        detail: step.detail,
                        ..Part::of_record(Role::Runnable, waker)
                    };
                    self.parts.add(&at, runnable, ns, 0);
                }
                state::BLOCKED => {
                    let wait = Wait {
                        begin: step.time,
                        reason: step.detail,
                        woken_by: next.map_or(0, |n| u64::from(n.waker)),
                    };
                    self.blocked(part, waker, wait, walk);
                }
                _ => {
                    self.parts
                        .add(&at, Part::of_record(Role::Cut, waker), ns, 0);
                }
            }
        }
    }

    /// Charges the on-CPU time that samples of `id` show in `at`, at most `ns`. Returns the rest of `ns`.
    fn computed(&mut self, at: &Follow, id: u64, ns: u64) -> u64 {
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
            self.computing(&Follow { ns: part, ..*at }, id);
        }
        ns - part
    }

    /// Charges `at` as on-CPU time of the waker. The on-CPU samples in `at` are only counted here. The time
    /// is divided among their stacks at the end, when there are enough samples.
    fn computing(&mut self, at: &Follow, waker: u64) {
        self.parts
            .add(at, Part::of_record(Role::OnCpu, waker), at.ns, 0);
        let seen: Vec<(u64, UserPart)> = self.past.get(&waker).map_or(Vec::new(), |past| {
            let from = past.on_cpu.partition_point(|s| s.at < at.from);
            past.on_cpu
                .iter()
                .skip(from)
                .take_while(|s| s.at < at.to)
                .map(|s| (s.kernel, s.user))
                .collect()
        });
        // A wait that stands for more time than its length gives its samples more weight, too.
        let hits = (at.ns * 16 / (at.to - at.from).max(1)).max(1);
        for (kernel, user) in seen {
            let part = Part {
                kernel,
                user,
                ..Part::of_record(Role::OnCpu, waker)
            };
            if let Some(id) = self.parts.add(at, part, 0, 0) {
                self.parts.hit(id, hits);
            }
        }
    }

    /// Charges `at` as blocked time of the waker. If that wait was charged to a stack, its own waker is known
    /// and followed.
    fn blocked(&mut self, at: Follow, id: u64, wait: Wait, walk: &mut Walk<'_>) {
        let charged = self.past.get(&id).and_then(|past| {
            let i = past.blocks.partition_point(|b| b.begin < wait.begin);
            past.blocks
                .get(i)
                .filter(|b| b.begin == wait.begin)
                .cloned()
        });
        let part = match &charged {
            Some(b) => Part {
                kernel: b.kernel,
                user: b.user,
                detail: wait.reason,
                resource: b.resource,
                ..Part::of_record(Role::Blocked, id)
            },
            None => Part {
                detail: wait.reason,
                ..Part::of_record(Role::Blocked, id)
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
            Some(block) => self.ended(below, &block, walk),
            // For a wait ended by an interrupt we know only which thread was interrupted.
            None if wait.woken_by != 0 && !ends_by_interrupt(wait.reason) => {
                let woke =
                    self.parts
                        .add(&below, Part::of_record(Role::Woke, wait.woken_by), at.ns, 0);
                if let (Some(above), true) = (woke, wait.reason == BlockReason::Lock as u8) {
                    let above = Some(above);
                    self.let_go(&Follow { above, ..below }, wait.woken_by, walk);
                }
            }
            None => {}
        }
    }

    /// Divides `at`, a lock wait too short to be charged to a stack, among the activities that samples of its waker
    /// `id` show in it.
    fn let_go(&mut self, at: &Follow, id: u64, walk: &mut Walk<'_>) {
        // A cycle here is no deadlock: the threads take the lock in turn.
        if walk.path.contains(&id) || walk.path.len() >= MAX_HOPS {
            return;
        }
        walk.path.push(id);
        let blocked = self.earlier(at, id, walk);
        let rest = self.queued(at, id, at.ns - blocked);
        self.computed(at, id, rest);
        walk.path.pop();
    }

    /// Charges the waits of `id` in `at`, as far as its samples show them. Returns the time charged.
    fn earlier(&mut self, at: &Follow, id: u64, walk: &mut Walk<'_>) -> u64 {
        let blocks: Vec<Block> = self.past.get(&id).map_or(Vec::new(), |past| {
            past.blocks
                .iter()
                .filter(|b| b.begin < at.to && b.end > at.from)
                .cloned()
                .collect()
        });
        let gap = at.to - at.from;
        // A wait counts with its charged time, scaled to the part of it that lies in the gap.
        let weight = |b: &Block| {
            let inside = b.end.min(at.to) - b.begin.max(at.from);
            if b.wake.is_none() {
                return inside; // charged in whole periods
            }
            let whole = (b.end - b.begin).max(1);
            (u128::from(b.ns) * u128::from(inside) / u128::from(whole)) as u64
        };
        let sum: u64 = blocks.iter().map(weight).sum();
        let scale = sum.max(gap).max(1);
        let mut given = 0;
        for b in &blocks {
            let part = (u128::from(at.ns) * u128::from(weight(b)) / u128::from(scale)) as u64;
            given += part;
            let inner = Follow {
                from: b.begin.max(at.from),
                to: b.end.min(at.to),
                ns: part,
                count: 0,
                ..*at
            };
            let wait = Wait {
                begin: b.begin,
                reason: b.detail,
                woken_by: 0,
            };
            if part > 0 {
                self.blocked(inner, id, wait, walk);
            }
        }
        given
    }
}

/// Whether waits for this reason end by an interrupt.
fn ends_by_interrupt(reason: u8) -> bool {
    use BlockReason::{Disk, PageFault, Timer};
    [Timer, Disk, PageFault].iter().any(|r| *r as u8 == reason)
}
