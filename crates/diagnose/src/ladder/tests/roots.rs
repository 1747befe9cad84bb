//! The root of a wait is the headline where it explains most.

use wallscope_model::{Above, Actor, ActorId, BlockReason, ContextId, Hop, Recording, Role};
use wallscope_synthetic::chains::Plan;

use super::impact::waited_itself;
use super::{TENTH, climb, ended_by, recording};
use crate::rules::VerdictParts;

/// Most lines of a verdict, with its cause.
const MAX_LINES: usize = 5;

fn lines(parts: &VerdictParts) -> usize {
    let evidence = usize::from(!parts.evidence.is_empty());
    // A blind spot shares a line with the evidence where a root is known; the next step is always there.
    let root = usize::from(parts.root.is_some() || parts.not_seen.is_some());
    2 + usize::from(!parts.impact.is_empty()) + root + evidence
}

#[test]
fn the_end_of_a_chain_is_the_headline() {
    // With one hop, the computing thread explains as much as the waiting one.
    for hops in 2..=5 {
        for plan in [
            Plan::line(hops, 50),
            Plan::line(hops, 50).across_processes(),
        ] {
            let v = climb(&plan.recording()).verdict;
            let root = format!("t{hops} computes in work_{hops} while ");
            assert!(v.cause.starts_with(&root), "{}", v.cause);
            let sentence = crate::finding(&plan.recording()).sentence;
            assert!(
                sentence.ends_with("shortens these waits, too."),
                "{sentence}"
            );
            assert_eq!(v.reason, Some("lock"), "{}", v.cause);
            let first = &v.parts.blame[0];
            assert!(first.share > 0.999, "{:?}", v.parts.blame);
            assert_eq!(&*first.function, format!("work_{hops}"));
            assert!(v.parts.root.is_some() && lines(&v.parts) <= MAX_LINES);
        }
    }
}

#[test]
fn a_wait_that_ran_into_its_limit_is_a_sleep_where_the_stack_says_so() {
    let lock = BlockReason::Lock;
    let mut rec = recording(&[(5, 0, 0, lock, 95), (5, 0, 0, BlockReason::Timer, 95)]);
    ended_by(&mut rec, Actor::Context(ContextId(1)));
    let stack = rec.samples[3].stack;
    waited_itself(&mut rec, lock, stack);
    rec.actors.push(Actor::Interrupt("timer".into()));
    let hop = rec.hops.last().expect("a hop").clone();
    rec.hops.push(Hop {
        above: Above::Hop(rec.hops.len() as u32 - 1),
        role: Role::Woke,
        actor: ActorId(rec.actors.len() as u32 - 1),
        stack: None,
        reason: None,
        ..hop
    });
    let root = |rec: &Recording| climb(rec).verdict.parts.root.expect("a root");
    let said = root(&rec);
    assert!(said.contains("until its own time limit"), "{said}");
    let call = rec.stacks[stack.0 as usize].frames[1].0 as usize;
    let function = rec.frames[call].lines[0].function.0 as usize;
    rec.functions[function].name = "java.lang.Thread.sleep".into();
    let said = root(&rec);
    assert!(said.starts_with("t1 sleeps in "), "{said}");
}

#[test]
fn two_roots_of_half_the_waits_each_are_no_headline() {
    let mut rec = Plan::fan_out(2).recording();
    rec.hops.truncate(2);
    let v = climb(&rec).verdict;
    assert!(!v.cause.contains(" while "), "{}", v.cause);
}

/// Four threads that wait in turn for two others, which do the same work.
fn two_workers() -> Plan {
    let row = |worker| {
        vec![
            Some(worker),
            Some(worker),
            Some(worker),
            Some(worker),
            None,
            None,
        ]
    };
    let mut steps: Vec<_> = (0..50).map(|i| row(4 + i % 2)).collect();
    steps.push(vec![None; 6]);
    Plan {
        threads: 6,
        steps,
        processes: false,
    }
}

#[test]
fn threads_of_one_process_are_not_called_processes() {
    for (plan, told) in [
        (two_workers(), "t4 (2 threads) computes in work_4 while "),
        (
            two_workers().across_processes(),
            "t4 (2 processes) computes in work_4 while ",
        ),
    ] {
        let mut rec = plan.recording();
        // No thread of the workers' process is missing from the root.
        rec.contexts[..4].iter_mut().for_each(|c| c.pid = 99);
        let computing = |h: &wallscope_model::Hop| h.role == Role::OnCpu;
        let of_one = rec
            .hops
            .iter()
            .find(|h| computing(h) && h.actor == ActorId(4));
        let stack = of_one.and_then(|h| h.stack);
        for hop in rec.hops.iter_mut().filter(|h| computing(h)) {
            hop.stack = stack;
        }
        let v = climb(&rec).verdict;
        assert!(v.cause.starts_with(told), "{}", v.cause);
    }
}

#[test]
fn a_disk_that_the_holder_waits_for_is_the_headline() {
    let lock = BlockReason::Lock;
    let mut rec = recording(&[(5, 0, 0, lock, 95), (5, 0, 0, BlockReason::Disk, 95)]);
    ended_by(&mut rec, Actor::Context(wallscope_model::ContextId(1)));
    let mut hop = rec.hops[0].clone();
    hop.above = wallscope_model::Above::Hop(0);
    hop.role = Role::Blocked;
    hop.reason = Some(BlockReason::Disk);
    hop.stack = Some(rec.samples[3].stack);
    hop.actor = ActorId(0);
    hop.ns = 90 * TENTH;
    rec.hops.push(hop);
    let v = climb(&rec).verdict;
    assert_eq!(v.reason, Some("lock"), "{}", v.cause);
    let said = "t1 waits for the disk in program::f1";
    assert!(v.cause.starts_with(said), "{}", v.cause);
    let root = v.parts.root.unwrap_or_default();
    assert!(root.starts_with(said) && root.contains("95 %"), "{root}");
    assert!(v.parts.advice.is_some());
}

#[test]
fn a_process_that_the_holder_waits_for_is_the_headline() {
    let pipe = BlockReason::Pipe;
    let mut rec = recording(&[(5, 0, 0, BlockReason::Lock, 95), (5, 0, 0, pipe, 95)]);
    ended_by(&mut rec, Actor::Context(wallscope_model::ContextId(1)));
    let mut wait = rec.hops[0].clone();
    wait.above = wallscope_model::Above::Hop(0);
    wait.role = Role::Blocked;
    wait.reason = Some(pipe);
    wait.stack = Some(rec.samples[3].stack);
    rec.hops.push(wait);
    let (pid, tid, name) = (70, 70, "postgres".into());
    ended_by(&mut rec, Actor::Stranger { pid, tid, name });
    rec.hops[2].above = wallscope_model::Above::Hop(1);
    let v = climb(&rec).verdict;
    let said = "waits for postgres (pid 70) in program::f1 while ";
    assert!(v.cause.contains(said), "{}", v.cause);
    assert_eq!(v.look_at, Some(70));
}

/// A thread that two processes of one name wake, which are not measured.
pub(super) fn woken_by_strangers(waiter: &str) -> wallscope_model::Recording {
    let mut rec = recording(&[(5, 0, 0, BlockReason::Lock, 95)]);
    let native = wallscope_model::FrameKind::Native;
    super::rename(&mut rec, 1, native, "std::sync::condvar::Condvar::wait");
    super::rename(&mut rec, 2, native, waiter);
    for pid in [70, 71] {
        let (tid, name) = (pid, "postgres".into());
        ended_by(&mut rec, Actor::Stranger { pid, tid, name });
    }
    rec.hops.iter_mut().for_each(|hop| hop.ns /= 2);
    rec
}

#[test]
fn processes_of_one_name_that_are_not_measured_are_one_root_and_the_next_to_look_at() {
    let v = climb(&woken_by_strangers("Pool::checkout")).verdict;
    let root = "postgres (2 processes), which are not in this recording (100 % of the waits)";
    assert_eq!(v.parts.root.as_deref(), Some(root), "{}", v.cause);
    assert_eq!(v.look_at, Some(70));
    assert_eq!(
        v.parts.advice.as_deref(),
        Some("look at postgres (2 processes), or make the pool larger")
    );
    assert!(v.cause.contains("an exhausted pool"), "{}", v.cause);
}

#[test]
fn blind_spots_are_told_where_they_could_change_the_verdict() {
    // Without wakers, a wait for a lock may be for any thread.
    let rec = recording(&[(5, 0, 0, BlockReason::Lock, 95)]);
    let v = climb(&rec).verdict;
    let told = v.parts.not_seen.unwrap_or_default();
    assert!(told.contains("which thread ends a wait"), "{told}");
    // The verdict on computing needs no wakers.
    let rec = recording(&[(95, 0, 0, BlockReason::Lock, 5)]);
    let v = climb(&rec).verdict;
    assert_eq!((v.rule, v.parts.not_seen), ("computing", None));
    assert!(
        v.parts
            .impact
            .starts_with("faster code saves at most 95 % of 10.0 s of active time"),
        "{}",
        v.parts.impact
    );
}
