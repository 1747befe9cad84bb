//! Threads that stood in one place all the time where nobody waits for work: in the way of callers, if those
//! got no answer meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::stats::Interval;
use wallscope_model::{BlockReason, Recording, Sample, State};

use super::causes::{Cause, main_resource};
use super::evidence::Evidence;
use super::news::{is_for_news, is_let_in};
use super::places::{passes, place};

/// The place where threads of which none moved stood longest, as a cause; `None`: all of them may have waited for
/// work.
pub(super) fn most(e: &Evidence<'_>) -> Option<Cause> {
    let rec = e.recording;
    let mut places: HashMap<(Arc<str>, BlockReason), Vec<u32>> = HashMap::new();
    for (i, s) in rec.samples.iter().enumerate() {
        let l = &rec.contexts[s.context.0 as usize].ledger;
        let moved = l.state_ns(State::OnCpu) + l.state_ns(State::Runnable) > 0;
        if let Some(reason) = s.reason.filter(|_| !moved && in_the_way(e, i, s)) {
            let at = place(rec, &rec.stacks[s.stack.0 as usize]);
            places
                .entry((at.function, reason))
                .or_default()
                .push(i as u32);
        }
    }
    let time = |of: &[u32]| -> u64 { of.iter().map(|i| e.waits.sample_ns[*i as usize]).sum() };
    let ((function, reason), samples) = places
        .into_iter()
        .max_by_key(|((name, _), of)| (time(of), std::cmp::Reverse(name.clone())))?;
    let ns = time(&samples);
    let first = &rec.samples[samples[0] as usize];
    let at = place(rec, &rec.stacks[first.stack.0 as usize]);
    let mut threads: Vec<u32> = (samples.iter())
        .map(|i| rec.samples[*i as usize].context.0)
        .collect();
    threads.sort_unstable();
    threads.dedup();
    let mut resources: HashMap<Arc<str>, u64> = HashMap::new();
    for i in &samples {
        if let Some(name) = super::waits::resource(rec, &rec.samples[*i as usize]) {
            *resources.entry(name).or_default() += e.waits.sample_ns[*i as usize];
        }
    }
    Some(Cause {
        state: State::Blocked,
        reason: Some(reason.name()),
        function,
        module: at.module,
        through: at.through,
        resource: main_resource(&resources, ns),
        ns,
        share: 1.0,
        interval: Interval {
            low: 1.0,
            high: 1.0,
        },
        threads: threads.len(),
        thread: rec.contexts[first.context.0 as usize].name.clone(),
        samples,
    })
}

/// Whether nobody waits so for want of work.
fn in_the_way(e: &Evidence<'_>, i: usize, s: &Sample) -> bool {
    use BlockReason::{Disk, Gil, KernelLock, Lock, Memory, PageFault, Pipe, Stopped};
    let rec = e.recording;
    if s.state != State::Blocked || s.idle || e.waits.starved[i] {
        return false;
    }
    let Some(reason) = s.reason else { return false };
    match reason {
        Disk | Gil | KernelLock | Memory | PageFault | Stopped => true,
        Lock => !is_for_news(rec, s, Lock),
        Pipe => is_let_in(rec, s) || opens_a_pipe(rec, s),
        _ => false,
    }
}

/// Whether a named pipe is opened, at whose other end there is nobody yet.
fn opens_a_pipe(recording: &Recording, sample: &Sample) -> bool {
    passes(
        recording,
        sample.stack,
        true,
        &["wait_for_partner", "fifo_open"],
    )
}
