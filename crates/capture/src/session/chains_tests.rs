//! Tests of waits with known wakers: their parts, and that these sum to the wait.

use wallscope_model::{BlockReason, Role};
use zerocopy::FromZeros;

use super::{super::wait_tree::ActorKey, *};
use crate::event::{Hold, HoldsEvent};

const MS: u64 = 1_000_000;

fn wake(id: u64, begin: u64, time: u64, waker: u64, steps: &[(u64, u8, u32)]) -> WakeEvent {
    let mut e = WakeEvent::new_zeroed();
    (e.id, e.begin, e.time, e.waker) = (id, begin, time, waker);
    e.flags = SAMPLE_NO_USER;
    e.steps = steps.len() as u32;
    for (slot, (time, state, waker)) in e.step.iter_mut().zip(steps) {
        (slot.time, slot.state, slot.waker) = (*time, *state, *waker);
    }
    e
}

fn sample(chains: &mut Chains, id: u64, begin: u64, end: u64, kind: u8) {
    let mut s = SampleEvent::new_zeroed();
    (s.id, s.begin, s.end, s.state) = (id, begin, end, kind);
    (s.ns, s.count) = (end - begin, 1);
    chains.sample(key(id, kind), &s);
}

fn key(id: u64, kind: u8) -> SampleKey {
    SampleKey {
        id,
        former: 0,
        resource: 0,
        kernel: id,
        user: UserPart::Hash(id),
        code: 0,
        state: kind,
        detail: 0,
        user_mode: false,
        cpu: None,
        in_flight: false,
        awaits: false,
        talks: false,
    }
}

/// Children never exceed their parents; returns the sum of all ends below roots.
fn ends(nodes: &[Node]) -> u64 {
    let mut inside = vec![0; nodes.len()];
    for n in nodes {
        if let Some(p) = n.parent {
            inside[p as usize] += n.ns;
        }
    }
    let left = nodes.iter().zip(inside).map(|(n, inside)| {
        assert!(inside <= n.ns, "children hold more than their parent");
        n.ns - inside
    });
    left.sum()
}

fn find(nodes: &[Node], role: Role, actor: u64) -> Vec<&Node> {
    nodes
        .iter()
        .filter(|n| n.part.role == role && n.part.actor == ActorKey::Record(actor))
        .collect()
}

#[test]
fn two_hops_are_followed_and_sum_to_the_wait() {
    let mut c = Chains::default();
    // 3 sleeps and computes, then wakes 2, which wakes 1 after computing for 1 ms.
    let of_3 = [
        (0, state::BLOCKED, 0),
        (16 * MS, state::RUNNABLE, 0),
        (17 * MS, state::ON_CPU, 0),
    ];
    c.wake(&wake(2, 10 * MS, 18 * MS, 3, &of_3));
    sample(&mut c, 2, 10 * MS, 18 * MS, state::BLOCKED);
    let of_2 = [
        (9 * MS, state::ON_CPU, 0),
        (10 * MS, state::BLOCKED, 0),
        (18 * MS, state::RUNNABLE, 3),
        (19 * MS, state::ON_CPU, 0),
    ];
    c.wake(&wake(1, 12 * MS, 20 * MS, 2, &of_2));
    sample(&mut c, 1, 12 * MS, 20 * MS, state::BLOCKED);
    sample(&mut c, 2, 19 * MS, 19 * MS + 1, state::ON_CPU);
    let (roots, nodes) = c.take(&FxHashMap::default());
    assert_eq!(roots.len(), 2);
    assert_eq!(ends(&nodes), 8 * MS + 8 * MS);
    let of_root = |n: &&&Node| roots[n.root as usize].id == 1;
    let blocked = find(&nodes, Role::Blocked, 2);
    let blocked = blocked.iter().find(of_root).unwrap();
    assert_eq!((blocked.ns, blocked.part.kernel), (6 * MS, 2));
    let slept = find(&nodes, Role::Blocked, 3);
    assert_eq!(slept.iter().find(of_root).unwrap().ns, 4 * MS);
    let placed = find(&nodes, Role::OnCpu, 2);
    let sum: u64 = placed.iter().filter(of_root).map(|n| n.ns).sum();
    assert_eq!(sum, MS);
    // All of it where its one sample says.
    assert!(placed.iter().any(|n| n.part.kernel == 2 && n.ns == MS));
}

#[test]
fn a_wait_for_the_gil_is_divided_among_those_who_had_it() {
    let mut c = Chains::default();
    let mut held = HoldsEvent::new_zeroed();
    (held.pid, held.changes) = (5, 2);
    held.hold[0] = Hold { since: 0, id: 2 };
    held.hold[1] = Hold {
        since: 6 * MS,
        id: 3,
    };
    c.holders.take(&held);
    // 2 computes, 3 sleeps for a while.
    sample(&mut c, 2, 3 * MS, 3 * MS + 1, state::ON_CPU);
    c.wake(&wake(3, 7 * MS, 9 * MS, 0, &[]));
    sample(&mut c, 3, 7 * MS, 9 * MS, state::BLOCKED);
    // 1 is woken by its time limit.
    c.wake(&wake(1, 2 * MS, 10 * MS, 0, &[]));
    let mut s = SampleEvent::new_zeroed();
    (s.id, s.pid, s.begin, s.end) = (1, 5, 2 * MS, 10 * MS);
    (s.state, s.ns, s.count) = (state::BLOCKED, 8 * MS, 8);
    let key = SampleKey {
        detail: BlockReason::Gil as u8,
        ..key(1, state::BLOCKED)
    };
    c.sample(key, &s);
    let (roots, nodes) = c.take(&FxHashMap::default());
    let of_root = |n: &&Node| roots[n.root as usize].id == 1;
    let of = |role, actor| -> u64 {
        let found = find(&nodes, role, actor);
        found.into_iter().filter(of_root).map(|n| n.ns).sum()
    };
    assert_eq!(of(Role::Held, 2), 4 * MS);
    assert_eq!(of(Role::Held, 3), 4 * MS);
    assert_eq!(of(Role::OnCpu, 2), 4 * MS);
    assert_eq!(of(Role::Blocked, 3), 2 * MS);
    assert_eq!(of(Role::OnCpu, 3), 2 * MS);
    assert_eq!(ends(&nodes), 8 * MS + 2 * MS);
}

#[test]
fn a_circle_ends_where_it_closes() {
    let mut c = Chains::default();
    let of_2 = [
        (0, state::BLOCKED, 0),
        (15 * MS, state::RUNNABLE, 1),
        (16 * MS, state::ON_CPU, 0),
    ];
    let of_1 = [(0, state::ON_CPU, 0)];
    c.wake(&wake(2, 0, 15 * MS, 1, &of_1));
    sample(&mut c, 2, 0, 15 * MS, state::BLOCKED);
    c.wake(&wake(1, 10 * MS, 20 * MS, 2, &of_2));
    sample(&mut c, 1, 10 * MS, 20 * MS, state::BLOCKED);
    let (_, nodes) = c.take(&FxHashMap::default());
    let circles: Vec<_> = nodes
        .iter()
        .filter(|n| n.part.role == Role::Circle)
        .collect();
    assert_eq!(circles.len(), 1);
    assert_eq!(circles[0].ns, 5 * MS);
    assert_eq!(ends(&nodes), 25 * MS);
}

#[test]
fn what_is_older_than_the_changes_that_are_remembered_comes_from_samples() {
    let mut c = Chains::default();
    let timer = wake(2, 10 * MS, 14 * MS, 0, &[]);
    c.wake(&timer);
    sample(&mut c, 2, 4 * MS, 8 * MS, state::RUNNABLE);
    sample(&mut c, 2, 8 * MS, 9 * MS, state::ON_CPU);
    sample(&mut c, 2, 10 * MS, 14 * MS, state::BLOCKED);
    let of_2 = [(16 * MS, state::ON_CPU, 0)];
    c.wake(&wake(1, 0, 20 * MS, 2, &of_2));
    sample(&mut c, 1, 0, 20 * MS, state::BLOCKED);
    let (_, nodes) = c.take(&FxHashMap::default());
    let of = |role| -> u64 { find(&nodes, role, 2).iter().map(|n| n.ns).sum() };
    assert_eq!(of(Role::Blocked), 4 * MS);
    assert_eq!(of(Role::Runnable), 4 * MS);
    assert_eq!(of(Role::OnCpu), 4 * MS + MS);
    assert_eq!(of(Role::Cut), 7 * MS);
}

#[test]
fn strangers_are_ends() {
    let mut c = Chains::default();
    sample(&mut c, 1, 0, 5 * MS, state::BLOCKED);
    let mut e = wake(2, 0, 5 * MS, 0, &[]);
    e.comm[..4].copy_from_slice(b"cron");
    (e.pid, e.tid) = (7, 8);
    c.wake(&e);
    sample(&mut c, 2, 0, 5 * MS, state::BLOCKED);
    let (_, nodes) = c.take(&FxHashMap::default());
    // Nothing is known of the first wait, so it has no parts.
    assert_eq!(nodes.len(), 1);
    let cron = ActorKey::Stranger(7, 8, "cron".into());
    assert!(nodes.iter().any(|n| n.part.actor == cron && n.ns == 5 * MS));
}

/// Thread `id` has waited for lock `resource` since `begin`, up to the end at 100 ms.
fn still(chains: &mut Chains, id: u64, begin: u64, resource: u64) {
    let mut s = SampleEvent::new_zeroed();
    (s.id, s.begin, s.end, s.state) = (id, begin, 100 * MS, state::BLOCKED);
    (s.ns, s.count) = ((100 * MS - begin) / MS * MS, 1);
    let key = SampleKey {
        resource,
        detail: BlockReason::Lock as u8,
        ..key(id, state::BLOCKED)
    };
    chains.still(key, &s);
}

#[test]
fn locks_that_nobody_gives_up_are_their_owners_and_a_circle_is_told() {
    let mut c = Chains::default();
    for (id, begin, resource, owner) in [(1, 0, 71, 2), (2, 10, 72, 1), (3, 5, 72, 1)] {
        c.has_lock(id, begin, ActorKey::Record(owner), OwnerEvidence::Mutex);
        still(&mut c, id, begin, resource);
    }
    // A lock that names no owner is given none.
    still(&mut c, 4, 0, 73);
    let (roots, nodes) = c.take(&FxHashMap::default());
    assert_eq!(roots.len(), 4);
    let of = |root: u64, role, actor| -> u64 {
        let all = find(&nodes, role, actor).into_iter();
        let own = all.filter(|n| roots[n.root as usize].id == root);
        own.map(|n| n.ns).sum()
    };
    // A wait is charged in whole periods, and its parts sum to that.
    let whole = [100 * MS, 99 * MS, 99 * MS];
    for (id, owner, ns) in [(1, 2, whole[0]), (2, 1, whole[1])] {
        assert_eq!(of(id, Role::Held, owner), ns);
        assert_eq!(of(id, Role::Blocked, owner), ns);
        assert_eq!(of(id, Role::Circle, id), ns);
        assert_eq!(of(id, Role::OnCpu, owner), 0, "nobody computes");
    }
    // Thread 3 waits behind the cycle, so its chain shows the cycle close.
    assert_eq!(of(3, Role::Held, 1), 2 * whole[2]);
    assert_eq!(of(3, Role::Held, 2), whole[2]);
    assert!(!nodes.iter().any(|n| roots[n.root as usize].id == 4));
    let told = |n: &&Node| n.part.role == Role::Held && n.part.detail == OwnerEvidence::Mutex as u8;
    assert_eq!(nodes.iter().filter(told).count(), 7);
}

#[test]
fn who_has_a_lock_at_the_end_has_had_it_since_somebody_was_let_in_last() {
    let mut c = Chains::default();
    // Thread 2 waited for the lock too, and got it after 40 ms.
    c.wake(&wake(2, 0, 40 * MS, 5, &[(0, state::ON_CPU, 0)]));
    let mut s = SampleEvent::new_zeroed();
    (s.id, s.end, s.ns, s.state, s.count) = (2, 40 * MS, 40 * MS, state::BLOCKED, 1);
    let lock = SampleKey {
        resource: 71,
        detail: BlockReason::Lock as u8,
        ..key(2, state::BLOCKED)
    };
    c.sample(lock, &s);
    c.has_lock(1, 0, ActorKey::Record(2), OwnerEvidence::Mutex);
    still(&mut c, 1, 0, 71);
    let (roots, nodes) = c.take(&FxHashMap::default());
    let held = find(&nodes, Role::Held, 2);
    let held = held
        .iter()
        .find(|n| roots[n.root as usize].id == 1)
        .unwrap();
    assert_eq!(held.ns, 60 * MS);
}

#[test]
fn a_wait_for_a_lock_that_ran_out_is_given_to_who_had_it_when_it_began() {
    const TIMER: u64 = 0xffff_ffff_8100_0000;
    let names = "ffffffff81000000 T sysvec_apic_timer_interrupt\nffffffff81000100 T other\n";
    let kernel: FxHashMap<u64, Box<[u64]>> = [(77, Box::from([TIMER + 8]))].into_iter().collect();
    // In the first case the wait ends by its time limit while the owner, 2, waits for a disk. In the second,
    // 3 hands the lock off.
    for (stack, holder) in [(77, 2), (0, 3)] {
        let mut c = Chains::new(Interrupts::parse(names));
        let mut e = wake(1, 0, 20 * MS, 3, &[(0, state::ON_CPU, 0)]);
        e.kstack = stack;
        c.wake(&e);
        c.owned(1, 0, ActorKey::Record(2), Some(OwnerEvidence::MutexThen));
        let mut s = SampleEvent::new_zeroed();
        (s.id, s.end, s.ns, s.state, s.count) = (1, 20 * MS, 20 * MS, state::BLOCKED, 1);
        let lock = SampleKey {
            resource: 71,
            detail: BlockReason::Lock as u8,
            ..key(1, state::BLOCKED)
        };
        c.sample(lock, &s);
        // The wait of thread 2 is reported only when it is over.
        c.settle(200 * MS, &kernel);
        c.wake(&wake(2, 0, 300 * MS, 9, &[(0, state::ON_CPU, 0)]));
        sample(&mut c, 2, 0, 300 * MS, state::BLOCKED);
        let (roots, nodes) = c.take(&kernel);
        let of_1 = |role, actor| -> u64 {
            let all = find(&nodes, role, actor).into_iter();
            let own = all.filter(|n| roots[n.root as usize].id == 1);
            own.map(|n| n.ns).sum()
        };
        let held = if holder == 2 { 20 * MS } else { 0 };
        assert_eq!(of_1(Role::Held, 2), held);
        assert_eq!(of_1(Role::Blocked, 2), held);
        assert_eq!(of_1(Role::Woke, 3), 20 * MS - held);
    }
}

#[test]
fn of_an_owner_that_did_nothing_since_it_is_not_said_that_it_computes() {
    const TIMER: u64 = 0xffff_ffff_8100_0000;
    let names = "ffffffff81000000 T sysvec_apic_timer_interrupt\nffffffff81000100 T other\n";
    let kernel: FxHashMap<u64, Box<[u64]>> = [(77, Box::from([TIMER + 8]))].into_iter().collect();
    let mut c = Chains::new(Interrupts::parse(names));
    let mut e = wake(1, 0, 20 * MS, 3, &[(0, state::ON_CPU, 0)]);
    e.kstack = 77;
    c.wake(&e);
    c.owned(1, 0, ActorKey::Record(2), Some(OwnerEvidence::MutexThen));
    sample(&mut c, 1, 0, 20 * MS, state::BLOCKED);
    let (_, nodes) = c.take(&kernel);
    assert_eq!(find(&nodes, Role::Held, 2)[0].ns, 20 * MS);
    assert!(find(&nodes, Role::OnCpu, 2).is_empty());
    assert_eq!(find(&nodes, Role::Cut, 2)[0].ns, 20 * MS);
}

#[test]
fn a_sleep_was_not_ended_by_whom_its_interrupt_met() {
    for (detail, waker) in [(BlockReason::Timer, None), (BlockReason::Pipe, Some(9))] {
        let mut c = Chains::default();
        // 2 waited up to 6 ms, which was not charged to a stack; at its end 9 ran.
        let of_2 = [
            (0, state::BLOCKED, 0),
            (6 * MS, state::RUNNABLE, 9),
            (7 * MS, state::ON_CPU, 0),
        ];
        let mut e = wake(1, 0, 8 * MS, 2, &of_2);
        e.step[0].detail = detail as u8;
        c.wake(&e);
        sample(&mut c, 1, 0, 8 * MS, state::BLOCKED);
        let (_, nodes) = c.take(&FxHashMap::default());
        assert_eq!(find(&nodes, Role::Blocked, 2)[0].ns, 6 * MS);
        let ended = find(&nodes, Role::Woke, 9);
        assert_eq!(ended.first().map(|_| 9), waker, "{detail:?}");
    }
}

#[test]
fn a_wait_for_a_lock_is_given_to_each_who_had_it_meanwhile() {
    let mut c = Chains::default();
    let lock = |c: &mut Chains, id, begin, end, waker, resource| {
        c.wake(&wake(id, begin, end, waker, &[(0, state::ON_CPU, 0)]));
        let mut s = SampleEvent::new_zeroed();
        (s.id, s.begin, s.end, s.state) = (id, begin, end, state::BLOCKED);
        (s.ns, s.count) = (end - begin, 1);
        let key = SampleKey {
            resource,
            detail: BlockReason::Lock as u8,
            ..key(id, state::BLOCKED)
        };
        c.sample(key, &s);
    };
    // 4 lets 2 in, 2 lets 3 in, and 5, which came in between, lets 1 in. Elsewhere 6 lets 7 in.
    lock(&mut c, 2, 2 * MS, 10 * MS, 4, 71);
    lock(&mut c, 7, 2 * MS, 11 * MS, 6, 72);
    lock(&mut c, 3, 2 * MS, 13 * MS, 2, 71);
    lock(&mut c, 1, 4 * MS, 20 * MS, 5, 71);
    // The runtime says that 13 had the lock when 12 began to wait.
    c.owned(12, 12 * MS, ActorKey::Record(13), None);
    lock(&mut c, 12, 12 * MS, 22 * MS, 5, 74);
    lock(&mut c, 14, 8 * MS, 18 * MS, 5, 74);
    // The first lock is 75 in another process. This is known before some of its waits and after others: 15
    // lets 16 in.
    lock(&mut c, 16, 11 * MS, 15 * MS, 15, 75);
    c.is_same(75, 71);
    lock(&mut c, 17, 16 * MS, 18 * MS, 16, 75);
    // One name may stand for many locks.
    c.is_a_kind(73);
    lock(&mut c, 8, 0, 10 * MS, 9, 73);
    lock(&mut c, 10, 0, 15 * MS, 11, 73);
    let (roots, nodes) = c.take(&FxHashMap::default());
    let of = |root: u64, actor| -> (u64, u64) {
        let all = find(&nodes, Role::Woke, actor).into_iter();
        let own = all.filter(|n| roots[n.root as usize].id == root && n.parent.is_none());
        own.fold((0, 0), |sum, n| (sum.0 + n.ns, sum.1 + n.count))
    };
    assert_eq!([of(1, 4), of(1, 2)], [(6 * MS, 0), (3 * MS, 0)]);
    assert_eq!(
        [of(1, 15), of(1, 16), of(1, 5)],
        [(2 * MS, 0), (3 * MS, 0), (2 * MS, 1)]
    );
    assert_eq!([of(16, 2), of(16, 15)], [(2 * MS, 0), (2 * MS, 1)]);
    assert_eq!(
        [of(2, 4), of(3, 4), of(3, 2)],
        [(8 * MS, 1), (8 * MS, 0), (3 * MS, 1)]
    );
    assert_eq!(
        [of(7, 6), of(10, 9), of(10, 11)],
        [(9 * MS, 1), (0, 0), (15 * MS, 1)]
    );
}

#[test]
fn beyond_the_bound_the_older_half_of_each_thread_is_forgotten() {
    let mut chains = Chains::new(Interrupts::default());
    chains.kept.limit = 5;
    for at in 1..=4 {
        sample(&mut chains, 1, at * MS, (at + 1) * MS, state::ON_CPU);
    }
    sample(&mut chains, 2, MS, 2 * MS, state::RUNNABLE);
    chains.settle(MS, &FxHashMap::default());
    assert_eq!(
        (chains.kept.now, chains.past.len()),
        (5, 2),
        "the bound itself is kept"
    );
    for at in 5..=6 {
        sample(&mut chains, 1, at * MS, (at + 1) * MS, state::ON_CPU);
    }
    chains.settle(MS, &FxHashMap::default());
    let left: Vec<u64> = chains.past[&1].on_cpu.iter().map(|s| s.at / MS).collect();
    assert_eq!(left, [5, 6, 7]);
    // The other thread had one sample, which is the older half of one.
    assert_eq!((chains.kept.now, chains.past.len()), (3, 1));
}

#[test]
fn a_thread_has_acted_since_if_it_waited_or_computed() {
    let mut chains = Chains::new(Interrupts::default());
    sample(&mut chains, 1, MS, 3 * MS, state::ON_CPU);
    chains.wake(&wake(2, MS, 3 * MS, 1, &[]));
    sample(&mut chains, 2, MS, 3 * MS, state::BLOCKED);
    for id in [1, 2] {
        let since = [3 * MS, 3 * MS + 1].map(|time| chains.has_done_since(id, time));
        assert_eq!(since, [true, false], "thread {id}");
    }
    assert!(!chains.has_done_since(3, 0));
}
