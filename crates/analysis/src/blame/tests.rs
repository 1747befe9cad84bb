//! Blame over recordings with known roots.

use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;
use wallscope_model::scale::{Scaled, scale};
use wallscope_model::{
    Above, Actor, ActorId, BlockReason, ContextId, Hop, Label, LabelValue, LabelsId, Process,
    REQUEST_AWAITED, REQUEST_KEY, Recording, Role, State,
};
use wallscope_synthetic::any;
use wallscope_synthetic::chains::{Plan, STEP_NS};

use super::{Blame, NotFollowed, RootActor, timeline};

/// Time of each waiter's waits by computing root, ns.
type RootTimes = BTreeMap<(u32, u32), u64>;

/// By sampled waits and their hops.
fn sampled(recording: &Recording) -> RootTimes {
    let blame = Blame::new(recording, &scale(recording));
    let mut found = RootTimes::new();
    for part in &blame.parts {
        let root = blame.root(part);
        let RootActor::Context(thread) = root.actor else {
            panic!("no thread: {root:?}");
        };
        assert_eq!((root.state, root.open), (State::OnCpu, None), "{root:?}");
        let waiter = recording.samples[part.sample as usize].context.0;
        *found.entry((waiter, thread.0)).or_default() += part.ns;
    }
    found
}

/// By every interval.
fn exact(recording: &Recording) -> RootTimes {
    let mut found = RootTimes::new();
    for row in timeline::blame(recording) {
        assert_eq!((row.root.state, row.root.open), (State::OnCpu, None));
        let key = (row.waiter.context.0, row.root.context.0);
        *found.entry(key).or_default() += row.ns;
    }
    found
}

/// Both ways find the truth, to the nanosecond.
fn check(plan: &Plan) {
    let (recording, truth) = (plan.recording(), plan.truth());
    assert_eq!(sampled(&recording), truth, "sampled: {plan:?}");
    assert_eq!(exact(&recording), truth, "every wait: {plan:?}");
}

#[test]
fn chains_of_one_to_five_hops_lead_to_their_root() {
    for hops in 1..=5 {
        check(&Plan::line(hops, 7));
        check(&Plan::line(hops, 7).across_processes());
    }
}

#[test]
fn many_waiters_have_one_root_and_one_waiter_has_many() {
    for n in 1..=9 {
        check(&Plan::fan_in(n, 5));
        check(&Plan::fan_out(n));
        check(&Plan::fan_out(n).across_processes());
    }
}

/// Blocked time of each sample, ns, by its index.
fn blocked(recording: &Recording, scaled: &Scaled) -> BTreeMap<u32, u64> {
    let mut sums = BTreeMap::new();
    for piece in &scaled.pieces {
        if recording.samples[piece.sample as usize].state == State::Blocked && piece.ns > 0 {
            *sums.entry(piece.sample).or_default() += piece.ns;
        }
    }
    sums
}

fn parts_sum_to_waits(recording: &Recording) {
    let scaled = scale(recording);
    let blame = Blame::new(recording, &scaled);
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for part in &blame.parts {
        *sums.entry(part.sample).or_default() += part.ns;
        assert!((part.root as usize) < blame.roots.len());
    }
    assert_eq!(sums, blocked(recording, &scaled));
    for (sample, ns) in sums {
        let of = blame.of_sample(sample);
        assert_eq!(of.iter().map(|p| p.ns).sum::<u64>(), ns);
    }
}

proptest! {
    #[test]
    fn any_plan_is_found(seed in any::<u64>()) {
        check(&Plan::random(seed));
    }

    #[test]
    fn parts_sum_to_their_wait_in_any_recording(seed in any::<u64>()) {
        parts_sum_to_waits(&any::random(seed));
    }

    #[test]
    fn parts_sum_to_their_wait_at_any_scale(seed in any::<u64>(), scale in 1u64..50_000) {
        let mut recording = Plan::random(seed).recording();
        for context in &mut recording.contexts {
            let lock = &mut context.ledger.blocked[BlockReason::Lock as usize];
            *lock = *lock * scale / 977;
        }
        parts_sum_to_waits(&recording);
    }
}

/// A plan of one waiter and one computing thread, without its hops.
fn without_hops() -> Recording {
    let mut recording = Plan::line(1, 10).recording();
    recording.hops.clear();
    recording.timeline = None;
    recording
}

fn only_root(recording: &Recording) -> super::Root {
    let blame = Blame::new(recording, &scale(recording));
    let of: Vec<_> = blame.of_sample(0).to_vec();
    assert_eq!(of.len(), 1, "{:?}", blame.roots);
    blame.root(&of[0]).clone()
}

fn woke(recording: &mut Recording, actor: Actor) {
    recording.actors.push(actor);
    recording.hops.push(Hop {
        above: Above::Sample(0),
        role: Role::Woke,
        actor: ActorId(recording.actors.len() as u32 - 1),
        stack: None,
        reason: None,
        part: None,
        labels: None,
        count: 1,
        ns: recording.samples[0].ns,
    });
}

fn wait_for(recording: &mut Recording, reason: BlockReason) {
    recording.samples[0].reason = Some(reason);
    let blocked = &mut recording.contexts[0].ledger.blocked;
    blocked.swap(BlockReason::Lock as usize, reason as usize);
}

#[test]
fn a_chain_that_stops_says_why() {
    let mut rec = without_hops();
    assert_eq!(only_root(&rec).open, Some(NotFollowed::WakerNotSeen));
    let stranger = Actor::Stranger {
        pid: 9,
        tid: 9,
        name: "other".into(),
    };
    woke(&mut rec, stranger);
    assert_eq!(only_root(&rec).open, Some(NotFollowed::NotMeasured));
    let mut rec = without_hops();
    woke(&mut rec, Actor::Interrupt("timer".into()));
    assert_eq!(only_root(&rec).open, Some(NotFollowed::TimedOut));
    let mut rec = without_hops();
    woke(&mut rec, Actor::Context(ContextId(1)));
    let root = only_root(&rec);
    assert_eq!(root.open, Some(NotFollowed::TooShort));
    assert_eq!(root.actor, RootActor::Context(ContextId(1)));
    rec.hops[0].role = Role::Cut;
    assert_eq!(only_root(&rec).open, Some(NotFollowed::TooDeep));
    rec.hops[0].role = Role::Circle;
    assert_eq!(only_root(&rec).open, Some(NotFollowed::Circle));
}

#[test]
fn a_poll_for_an_answer_that_its_limit_ended_is_charged_as_the_others() {
    let mut rec = without_hops();
    wait_for(&mut rec, BlockReason::Poll);
    let peer = Actor::Stranger {
        pid: 9,
        tid: 9,
        name: "peer".into(),
    };
    woke(&mut rec, peer);
    woke(&mut rec, Actor::Interrupt("timer".into()));
    let half = rec.samples[0].ns / 2;
    for hop in &mut rec.hops {
        hop.ns = half;
    }
    let opens = |rec: &Recording| {
        let blame = Blame::new(rec, &scale(rec));
        let parts = blame.of_sample(0).iter();
        let opens: HashSet<_> = parts.filter_map(|part| blame.root(part).open).collect();
        parts_sum_to_waits(rec);
        opens
    };
    // A loop that polls for events until its next timer.
    let both = [NotFollowed::NotMeasured, NotFollowed::TimedOut];
    assert_eq!(opens(&rec), HashSet::from(both));
    rec.label_sets = vec![vec![Label {
        key: REQUEST_KEY.into(),
        value: LabelValue::Text(REQUEST_AWAITED.into()),
    }]];
    rec.samples[0].labels = Some(LabelsId(0));
    assert_eq!(opens(&rec), HashSet::from([NotFollowed::NotMeasured]));
    // Nothing else ended one.
    rec.hops.remove(0);
    assert!(opens(&rec).contains(&NotFollowed::TimedOut));
}

#[test]
fn a_disk_and_a_sleep_are_ends_of_their_own() {
    for reason in [BlockReason::Disk, BlockReason::Timer] {
        for interrupt in [None, Some("disk"), Some("timer"), Some("")] {
            let mut rec = without_hops();
            wait_for(&mut rec, reason);
            if let Some(served) = interrupt {
                woke(&mut rec, Actor::Interrupt(served.into()));
            }
            let root = only_root(&rec);
            assert_eq!((root.open, root.reason), (None, Some(reason)));
            assert!(root.is_own(ContextId(0)));
        }
    }
    let mut rec = without_hops();
    woke(&mut rec, Actor::Interrupt("disk".into()));
    assert_eq!(only_root(&rec).reason, Some(BlockReason::Disk));
}

#[test]
fn a_disk_is_the_end_though_a_thread_of_the_kernel_completes_its_work() {
    for (name, is_end) in [("kworker/u8:3", true), ("fuse-server", false)] {
        let mut rec = without_hops();
        wait_for(&mut rec, BlockReason::Disk);
        let (pid, tid) = (9, 9);
        let name = name.into();
        woke(&mut rec, Actor::Stranger { pid, tid, name });
        let root = only_root(&rec);
        assert_eq!(
            (root.open.is_none(), root.is_own(ContextId(0))),
            (is_end, is_end)
        );
    }
}

/// A process that waits for its child, which waits for a child of its own half of the time.
fn family() -> Recording {
    let mut rec = Plan {
        processes: true,
        ..Plan::line(2, 10)
    }
    .recording();
    rec.hops.clear();
    rec.timeline = None;
    for (i, process) in (0u32..).zip(&mut rec.processes) {
        let parent = if i == 0 { 1 } else { 99 + i };
        *process = Process {
            parent,
            ..process.clone()
        };
    }
    for thread in [0, 1] {
        let context = &mut rec.contexts[thread];
        let ns = std::mem::take(&mut context.ledger.blocked[BlockReason::Lock as usize]);
        context.ledger.blocked[BlockReason::Child as usize] = ns;
    }
    for sample in rec.samples.iter_mut().filter(|s| s.reason.is_some()) {
        sample.reason = Some(BlockReason::Child);
    }
    rec
}

#[test]
fn a_wait_for_a_child_is_the_childs_ledger() {
    let rec = family();
    let blame = Blame::new(&rec, &scale(&rec));
    let of: BTreeMap<u32, u64> = (blame.of_sample(0).iter())
        .map(|part| match blame.root(part).actor {
            RootActor::Context(thread) => (thread.0, part.ns),
            RootActor::Actor(actor) => panic!("{actor:?}"),
        })
        .collect();
    // The child computes one step of eleven and waits ten for its own child, which computes.
    let wait = 10 * STEP_NS;
    assert_eq!(of.values().sum::<u64>(), wait);
    assert!(of[&1].abs_diff(wait / 11) <= 1, "{of:?}");
    // With the child's end as the last recorded hop, the same ledger is charged.
    let mut rec = family();
    woke(&mut rec, Actor::Context(ContextId(1)));
    let ended = Blame::new(&rec, &scale(&rec));
    let times = |b: &Blame| b.of_sample(0).iter().map(|p| p.ns).collect::<Vec<_>>();
    assert_eq!(times(&ended), times(&blame));
}

#[test]
fn parents_in_a_circle_end() {
    let mut rec = family();
    rec.processes[0].parent = 101;
    parts_sum_to_waits(&rec);
}

#[test]
fn a_gap_of_the_timeline_is_not_followed() {
    let mut rec = Plan::line(1, 10).recording();
    rec.timeline.as_mut().unwrap().lanes.remove(1);
    let rows = timeline::blame(&rec);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].root.open, Some(NotFollowed::Gap));
    assert_eq!(rows[0].ns, 10 * STEP_NS);
}
