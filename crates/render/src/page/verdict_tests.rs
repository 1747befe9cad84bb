//! The verdict on top of the page, and the time that its statements rest on.

use wallscope_model::{
    BlockReason, Context, ContextId, Ledger, SliceValue, Slices, StackId, State,
};

use super::*;

/// A sample of `ns` in each of some slices.
fn sample(context: u32, reason: BlockReason, slices: std::ops::Range<u32>) -> Sample {
    let slices: Vec<SliceValue> = slices
        .map(|slice| SliceValue {
            slice,
            count: 1,
            ns: 100,
        })
        .collect();
    Sample {
        context: ContextId(context),
        stack: StackId(0),
        state: State::Blocked,
        reason: Some(reason),
        part: None,
        idle: false,
        cpu: None,
        labels: None,
        count: slices.len() as u64,
        ns: 100 * slices.len() as u64,
        slices,
    }
}

fn thread(tid: u32) -> Context {
    Context {
        pid: 1,
        tid,
        name: "worker".into(),
        start_ns: 0,
        end_ns: 100_000,
        ledger: Ledger::default(),
    }
}

fn recording(samples: Vec<Sample>) -> Recording {
    Recording {
        contexts: vec![thread(1), thread(2), thread(3)],
        slices: Slices {
            start_ns: 0,
            width_ns: 1000,
            count: 100,
        },
        samples,
        ..Recording::default()
    }
}

#[test]
fn a_choice_names_the_threads_reasons_and_part_that_hold_the_time() {
    let r = recording(vec![
        sample(0, BlockReason::Disk, 20..60),
        sample(2, BlockReason::Lock, 30..60),
        sample(1, BlockReason::Timer, 0..100),
    ]);
    let choice = Choice::of_samples(&r, &[0, 1]);
    assert_eq!(choice.view, "off-cpu");
    assert_eq!(choice.reasons, ["disk", "lock"]);
    assert_eq!(choice.threads, [0, 2]);
    // Slice 20 holds 1.4 % of the time: nearly all is in the others.
    assert_eq!(choice.time, Some((21, 60)));
    // All threads and the whole recording are no choice; an index out of bounds is left out.
    let all = Choice::of_samples(&r, &[0, 1, 2, 99]);
    assert_eq!((all.threads.len(), all.time), (0, None));
    assert_eq!(Choice::of_samples(&r, &[]).view, "wall");
}

#[test]
fn a_share_is_of_the_state_of_the_threads_concerned() {
    let r = recording(vec![
        sample(0, BlockReason::Disk, 0..30),
        sample(0, BlockReason::Lock, 0..10),
        sample(1, BlockReason::Timer, 0..100),
    ]);
    assert_eq!(Choice::share_of_state(&r, &[0]), 0.75);
    assert_eq!(Choice::share_of_state(&r, &[]), 0.0);
}

#[test]
fn time_outside_the_main_part_may_be_small() {
    let mut late = sample(0, BlockReason::Disk, 50..80);
    late.slices.push(SliceValue {
        slice: 2,
        count: 1,
        ns: 10,
    });
    let choice = Choice::of_samples(&recording(vec![late]), &[0]);
    assert_eq!(choice.time, Some((50, 80)));
}

#[test]
fn a_marker_is_no_function_to_look_for() {
    let choice = Choice::of_state(Some(State::OnCpu), Some("user"));
    assert!(choice.reasons.is_empty());
    let marked = choice.clone().through(Some("[not sampled]"));
    assert_eq!((marked.function, marked.only), (None, false));
    let named = choice.through(Some("hash"));
    assert_eq!(
        (named.function.as_deref(), named.only),
        (Some("hash"), true)
    );
}

#[test]
fn names_of_a_target_stay_text() {
    let hostile = "</dd><script>alert(1)</script>&\u{7}{{data}}";
    let verdict = Verdict {
        lines: vec![("Cause", hostile.into()), ("Evidence", hostile.into())],
        advice: Some(hostile.into()),
        command: Some(hostile.into()),
        assumes: Some("x"),
        sentence: hostile.into(),
        details: vec![("rule", hostile.into())],
        evidence: Some(Choice::default()),
        roots: vec![(hostile.into(), Some(Choice::default()))],
    };
    let out = html(&verdict);
    assert!(!out.contains("<script"));
    // Seven texts, and the label of one button.
    assert_eq!(out.matches("&lt;script&gt;").count(), 8);
    // Buttons are numbered as the choices are.
    assert_eq!(choices(&verdict).len(), 2);
    for number in ["data-choice=\"0\"", "data-choice=\"1\""] {
        assert_eq!(out.matches(number).count(), 1);
    }
}

#[test]
fn a_statement_has_an_end() {
    let verdict = Verdict {
        lines: vec![("Cause", "ä".repeat(100_000))],
        ..Verdict::default()
    };
    assert!(html(&verdict).len() < 2000);
}
