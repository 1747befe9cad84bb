//! Marks idle waits in a recording.

use std::borrow::Cow;
use std::collections::HashMap;

use wallscope_model::scale::scale;
use wallscope_model::{
    BlockReason, ContextId, FrameKind, Function, Recording, StackEnd, StackId, State, WaitSeen,
};

use super::overturn::{Judged, overturn};
use super::rules::{THREAD_BEGINS, Wait, judge_wait};
use crate::frames::{frames, in_c_library, script_name};
use crate::labels::{
    REQUEST_AWAITED, REQUEST_KEY, REQUEST_OWED, RESOURCE_KEY, SampleLabels, text_label,
};
use crate::words;

/// Judges every blocked sample of a symbolised recording, and sums up the idle time of each thread. `seen` holds
/// the requests of each sample's waits, by index; missing ones count as none.
///
/// The time that each rule judged is added to the domain's notes. Samples during which a request was
/// in flight get the label [`REQUEST_KEY`].
pub fn mark(recording: &mut Recording, seen: &[WaitSeen]) {
    label_requests(recording, seen);
    let mut verdicts: Vec<Judged> = (0..recording.samples.len())
        .map(|i| judged(recording, i, seen))
        .collect();
    overturn(recording, &mut verdicts);
    for (s, verdict) in recording.samples.iter_mut().zip(&verdicts) {
        s.idle = verdict.is_some_and(|(idle, _)| idle);
    }
    mark_intervals(recording, seen);
    sum_up(recording, &verdicts);
}

/// The verdict on a sample by itself.
fn judged(recording: &Recording, i: usize, seen: &[WaitSeen]) -> Judged {
    let s = &recording.samples[i];
    let reason = s.reason.filter(|_| s.state == State::Blocked)?;
    let (user, kernel) = names(recording, s.stack);
    let user: Vec<&str> = user.iter().map(|n| &**n).collect();
    let at = text_label(recording, s.labels, RESOURCE_KEY);
    Some(judge_wait(&Wait {
        reason,
        seen: seen.get(i).copied().unwrap_or_default(),
        at: at.as_deref().unwrap_or(""),
        user: &user,
        kernel: &kernel,
    }))
}

/// Sums up idle time by thread, and by rule for the domain's notes.
fn sum_up(recording: &mut Recording, verdicts: &[Judged]) {
    let scaled = scale(recording);
    let mut by_rule: Vec<(&str, u64)> = Vec::new();
    for context in &mut recording.contexts {
        context.ledger.idle_ns = 0;
    }
    for piece in &scaled.pieces {
        let Some((true, rule)) = verdicts[piece.sample as usize] else {
            continue;
        };
        recording.contexts[piece.context.0 as usize].ledger.idle_ns += piece.ns;
        match by_rule.iter_mut().find(|(r, _)| *r == rule) {
            Some((_, ns)) => *ns += piece.ns,
            None => by_rule.push((rule, piece.ns)),
        }
    }
    by_rule.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let parts: Vec<String> = by_rule
        .iter()
        .map(|(rule, ns)| format!("{} by \"{rule}\"", words::time(*ns)))
        .collect();
    recording.domain.notes.push(match parts.is_empty() {
        true => "none of the waits was judged idle".to_string(),
        false => format!("judged idle, from sampled waits: {}", parts.join(", ")),
    });
}

/// Marks single intervals. An interval has no stack. It is idle if all sampled waits of its thread for its reason,
/// with or without a request in flight as it, were judged idle.
pub(super) fn mark_intervals(recording: &mut Recording, seen: &[WaitSeen]) {
    let Some(timeline) = &mut recording.timeline else {
        return;
    };
    let mut idle: HashMap<(ContextId, BlockReason, bool), bool> = HashMap::new();
    for (i, s) in recording.samples.iter().enumerate() {
        if let Some(reason) = s.reason.filter(|_| s.state == State::Blocked) {
            let request = seen.get(i).is_some_and(|s| s.in_flight == Some(true));
            let all = idle.entry((s.context, reason, request)).or_insert(true);
            *all &= s.idle;
        }
    }
    for lane in &mut timeline.lanes {
        for i in &mut lane.intervals {
            let known = |reason| idle.get(&(lane.context, reason, i.request)).copied();
            i.idle = i.reason.and_then(known).unwrap_or(false);
        }
    }
}

/// Labels the waits during which a request was in flight.
fn label_requests(recording: &mut Recording, seen: &[WaitSeen]) {
    let mut labels = SampleLabels::of(REQUEST_KEY);
    for (i, seen) in seen.iter().enumerate().take(recording.samples.len()) {
        if recording.samples[i].state != State::Blocked || seen.in_flight != Some(true) {
            continue;
        }
        let value = match seen.awaits {
            true => REQUEST_AWAITED,
            false => REQUEST_OWED,
        };
        labels.add(recording, i, value);
    }
}

/// Names on a stack, of the program and of the kernel, innermost first.
///
/// Without debug symbols of the C library, its internal functions are left out. A whole stack that begins in them
/// begins at a thread's entry.
pub(super) fn names(recording: &Recording, stack: StackId) -> (Vec<Cow<'_, str>>, Vec<&str>) {
    let (mut user, mut kernel) = (Vec::new(), Vec::new());
    let mut begins_in_c = false;
    for frame in frames(recording, stack) {
        let lines = frame.lines.iter();
        let functions = lines.map(|l| &recording.functions[l.function.0 as usize]);
        begins_in_c = frame.kind == FrameKind::Native
            && in_c_library(recording, frame).is_some()
            && functions.clone().all(Function::is_unnamed);
        match frame.kind {
            _ if begins_in_c => {}
            FrameKind::Kernel => kernel.extend(functions.map(|f| &*f.name)),
            FrameKind::Python => user.extend(functions.map(|f| script_name(f).into())),
            _ => user.extend(functions.map(|f| Cow::Borrowed(&*f.name))),
        }
    }
    if begins_in_c && recording.stacks[stack.0 as usize].end == StackEnd::Root {
        user.push(THREAD_BEGINS.into());
    }
    (user, kernel)
}
