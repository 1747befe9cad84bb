//! The time that a fix saves: all time that ends with the root.

use wallscope_synthetic::chains::Plan;

use super::*;

/// `hop` hangs below the last one: its thread waited for `reason` there.
pub(super) fn waited_itself(rec: &mut Recording, reason: BlockReason, stack: StackId) {
    let mut hop = rec.hops.last().expect("a hop").clone();
    hop.above = Above::Hop(rec.hops.len() as u32 - 1);
    hop.role = Role::Blocked;
    hop.reason = Some(reason);
    hop.stack = Some(stack);
    rec.hops.push(hop);
}

#[test]
fn the_holders_own_wait_for_the_root_counts_as_its_impact() {
    let lock = BlockReason::Lock;
    let mut rec = recording(&[(5, 0, 0, lock, 95), (5, 0, 0, BlockReason::Disk, 95)]);
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    let stack = rec.samples[3].stack;
    waited_itself(&mut rec, BlockReason::Disk, stack);
    let v = climb(&rec).verdict;
    assert_eq!(v.reason, Some("lock"), "{}", v.cause);
    assert!((v.share - 0.95).abs() < 1e-9, "{}", v.share);
    assert_eq!(
        v.parts.impact,
        "an end of these waits saves at most 95 % of 20.0 s of active time (2 threads together): 9.5 s in these waits \
         and 9.5 s in other waits with the same root"
    );
    assert!(v.bound.starts_with("at most 95 %"), "{}", v.bound);
    // The page selects both.
    assert_eq!(v.samples(), [1, 3]);
    // Its waits for the disk in another function have another root.
    let other = rec.samples[1].stack;
    rec.hops.last_mut().expect("a hop").stack = Some(other);
    let v = climb(&rec).verdict;
    assert!((v.share - 0.475).abs() < 1e-9, "{}", v.parts.impact);
    assert!(v.parts.shares.is_empty());
}

#[test]
fn waits_for_the_holder_of_a_lock_count_where_it_waits_for_the_disk() {
    let mut rec = recording(&[
        (5, 0, 0, BlockReason::Lock, 40),
        (5, 0, 0, BlockReason::Disk, 95),
    ]);
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    let stack = rec.samples[3].stack;
    waited_itself(&mut rec, BlockReason::Disk, stack);
    let v = climb(&rec).verdict;
    assert_eq!(v.reason, Some("disk"), "{}", v.cause);
    let parts = "9.5 s in these waits, 4.0 s in other waits with the same root";
    assert!(v.parts.impact.contains(parts), "{}", v.parts.impact);
    // A lock that is kept for another reason is another matter.
    rec.hops.pop();
    let v = climb(&rec).verdict;
    assert!(
        !v.parts.impact.contains("other waits"),
        "{}",
        v.parts.impact
    );
}

#[test]
fn waits_that_one_unmeasured_process_ends_are_one_impact() {
    let mut rec = recording(&[
        (4, 0, 0, BlockReason::Lock, 72),
        (4, 0, 0, BlockReason::Pipe, 20),
    ]);
    let reader = || Actor::Stranger {
        pid: 70,
        tid: 70,
        name: "reader".into(),
    };
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    let stack = rec.samples[3].stack;
    waited_itself(&mut rec, BlockReason::Pipe, stack);
    for above in [Above::Hop(1), Above::Sample(3)] {
        rec.actors.push(reader());
        let mut hop = rec.hops[0].clone();
        (hop.above, hop.actor) = (above, ActorId(rec.actors.len() as u32 - 1));
        hop.ns = match above {
            Above::Sample(i) => rec.samples[i as usize].ns,
            _ => hop.ns,
        };
        rec.hops.push(hop);
    }
    let v = climb(&rec).verdict;
    assert_eq!(
        (v.reason, v.look_at),
        (Some("lock"), Some(70)),
        "{}",
        v.cause
    );
    assert!((v.share - 0.92).abs() < 1e-9, "{}", v.parts.impact);
    let parts = "7.2 s in these waits and 2.0 s in other waits with the same root";
    assert!(v.parts.impact.contains(parts), "{}", v.parts.impact);
}

#[test]
fn the_roots_own_computing_counts_as_its_impact() {
    let rec = Plan::line(3, 50).recording();
    let ladder = climb(&rec);
    let v = ladder.verdict;
    let root = &v.parts.blame[0];
    let computed = ladder
        .causes
        .iter()
        .filter(|c| c.state == State::OnCpu && c.function == root.function);
    let computed: f64 = computed.map(|c| c.share).sum();
    assert!(computed > 0.1);
    let parts: Vec<_> = v.parts.shares.iter().map(|(words, _)| *words).collect();
    assert_eq!(parts, ["in these waits", "computing there"]);
    assert!((v.parts.shares[1].1 - computed).abs() < 1e-9);
    // More interpreters compute as much: a fix saves the waiting alone.
    let mut rec = rec;
    let locks = rec
        .samples
        .iter_mut()
        .filter(|s| s.reason == Some(BlockReason::Lock));
    locks.for_each(|s| s.reason = Some(BlockReason::Gil));
    for context in &mut rec.contexts {
        let blocked = &mut context.ledger.blocked;
        blocked[BlockReason::Gil as usize] =
            std::mem::take(&mut blocked[BlockReason::Lock as usize]);
    }
    let v = climb(&rec).verdict;
    assert_eq!(v.reason, Some("gil"), "{}", v.cause);
    assert!(v.parts.shares.is_empty(), "{}", v.parts.impact);
}
