//! Tests of the times with a known holder of a lock.

use std::cell::Cell;

use super::*;
use crate::session::sample_key::UserPart;
use wallscope_model::StackEnd;

const LOCK: u64 = 71;

/// A wait of 100 ns that stands for 1000 ns and five samples.
const WAIT: Follow = Follow {
    root: 3,
    above: Some(4),
    from: 1000,
    to: 1100,
    ns: 1000,
    count: 5,
};

fn owner(id: u64) -> HolderEvidence {
    HolderEvidence::Owner(ActorKey::Record(id))
}

fn wake(time: u64) -> HolderEvidence {
    HolderEvidence::Wake(Rc::new(Wake {
        time,
        waker: 9,
        pid: 0,
        tid: 0,
        name: "".into(),
        kernel: 0,
        user: Cell::new(UserPart::Missing(StackEnd::Gone)),
        steps: Box::default(),
    }))
}

/// Locks with owners known at these times; each owner's id is its place in the list, from 1 on.
fn known(times: &[u64]) -> LockHandoffs {
    let mut all = LockHandoffs::default();
    for (id, time) in (1..).zip(times) {
        all.add(LOCK, *time, owner(id));
    }
    all
}

/// From, to, weight, count and owner of each piece; owner 0: none.
fn pieces(all: &LockHandoffs, at: Follow, until: u64) -> Vec<(u64, u64, u64, u64, u64)> {
    let pieces = all.pieces(at, LOCK, until);
    let parts = pieces.iter().map(|(f, by)| {
        let who = match by {
            Some(HolderEvidence::Owner(ActorKey::Record(id))) => *id,
            _ => 0,
        };
        assert_eq!((f.root, f.above), (at.root, at.above));
        (f.from, f.to, f.ns, f.count, who)
    });
    parts.collect()
}

#[test]
fn a_wait_is_cut_where_a_holder_is_known() {
    let all = known(&[1000, 1030, 1060, 1150]);
    // The owner at its begin says nothing of the wait; the one after its end had the lock until then.
    assert_eq!(
        pieces(&all, WAIT, 1200),
        [
            (1000, 1030, 300, 0, 2),
            (1030, 1060, 300, 0, 3),
            (1060, 1100, 400, 5, 4)
        ]
    );
    // Owners that are known only from `until` on are another wait's.
    let rest = (1060, 1100, 400, 5, 0);
    let cut = [(1000, 1030, 300, 0, 2), (1030, 1060, 300, 0, 3), rest];
    assert_eq!(pieces(&all, WAIT, 1150), cut);
    let cut = [(1000, 1030, 300, 0, 2), (1030, 1100, 700, 5, 0)];
    assert_eq!(pieces(&all, WAIT, 1060), cut);
    assert_eq!(pieces(&all, WAIT, 1000), [(1000, 1100, 1000, 5, 0)]);
}

#[test]
fn nothing_follows_a_holder_that_is_known_at_the_end() {
    let all = known(&[1050, 1100, 1100]);
    let cut = [(1000, 1050, 500, 0, 1), (1050, 1100, 500, 5, 2)];
    assert_eq!(pieces(&all, WAIT, 1200), cut);
}

#[test]
fn pieces_sum_to_the_wait_however_little_it_stands_for() {
    let all = known(&[1010, 1020, 1030]);
    for ns in [0, 1, 7, 999] {
        let parts = pieces(&all, Follow { ns, ..WAIT }, 1200);
        assert_eq!(parts.iter().map(|p| p.2).sum::<u64>(), ns);
        assert_eq!(parts.iter().map(|p| p.3).sum::<u64>(), 5);
        let last = parts.len() - 1;
        assert!(parts[..last].iter().all(|p| p.2 > 0), "{parts:?}");
    }
    // A wait without a length stands for its weight all the same.
    let point = Follow { to: 1000, ..WAIT };
    assert_eq!(pieces(&all, point, 1200), [(1000, 1000, 1000, 5, 0)]);
}

#[test]
fn of_many_holders_the_last_ones_are_told_apart() {
    let times: Vec<u64> = (1001..=1300).collect();
    let all = known(&times);
    let at = Follow {
        to: 1300,
        ns: 300,
        ..WAIT
    };
    let parts = pieces(&all, at, 1301);
    assert_eq!(parts.len(), 256);
    assert_eq!(parts[0], (1000, 1045, 45, 0, 45));
    assert_eq!(parts[255], (1299, 1300, 1, 5, 300));
}

#[test]
fn holders_are_kept_in_order_and_the_oldest_are_forgotten() {
    let mut all = known(&[1060]);
    all.add(LOCK, 1030, owner(7));
    all.add(LOCK, 1060, owner(8));
    let cut = [(1000, 1030, 300, 0, 7), (1030, 1060, 300, 0, 1)];
    let parts = pieces(&all, WAIT, 1200);
    assert_eq!(parts[..2], cut);
    all.forget();
    assert_eq!(pieces(&all, WAIT, 1200)[0], (1000, 1060, 600, 0, 8));
    all.forget();
    assert!(all.known.is_empty());

    let times: Vec<u64> = (1..=4096).collect();
    let mut all = known(&times);
    assert_eq!(all.known[&LOCK].len(), 4096);
    all.add(LOCK, 5000, owner(1));
    let kept = &all.known[&LOCK];
    assert_eq!((kept.len(), kept[0].0, kept[4095].0), (4096, 2, 5000));
}

#[test]
fn only_a_hand_off_tells_since_when_a_lock_is_held() {
    let mut all = known(&[1000]);
    assert_eq!((all.last(LOCK), all.last(99)), (0, 0));
    all.add(LOCK, 1010, wake(1010));
    all.add(LOCK, 1020, wake(1020));
    all.add(LOCK, 1030, owner(1));
    assert_eq!(all.last(LOCK), 1020);
}

#[test]
fn a_lock_has_one_history_under_all_its_names() {
    let mut all = known(&[1030]);
    all.add(75, 1060, owner(5));
    all.is_same(75, LOCK);
    all.add(75, 1080, wake(1080));
    assert_eq!((all.last(75), all.last(LOCK)), (1080, 1080));
    let parts = pieces(&all, WAIT, 1200);
    let owners: Vec<_> = parts.iter().map(|p| (p.1, p.4)).collect();
    assert_eq!(owners, [(1030, 1), (1060, 5), (1080, 0), (1100, 0)]);
}

#[test]
fn names_of_several_locks_have_no_history() {
    let mut all = known(&[1030]);
    all.add(0, 1030, owner(1));
    all.leave_out(LOCK);
    all.add(LOCK, 1060, owner(2));
    assert!(all.known.is_empty());
    all.add(72, 1060, owner(2));
    assert_eq!(all.known.len(), 1);
}
