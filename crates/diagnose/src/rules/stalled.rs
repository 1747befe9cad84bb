//! Threads that waited all the time in one place where no thread waits for work. They hold callers
//! up if those got no answer meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::stats::Interval;
use wallscope_model::{BlockReason, Sample, State};

use crate::evidence::{Cause, Evidence, main_resource};
use crate::frames::{Side, code_site, passes};
use crate::knowledge::FIFO_OPEN;
use crate::labels::resource;
use crate::wait_direction::{is_consumer, sends_or_connects};

/// The place where threads that never ran waited longest, as a cause; `None`: all of them may have
/// waited for work.
pub(super) fn most_stalled(e: &Evidence<'_>) -> Option<Cause> {
    let rec = e.recording;
    let mut places: HashMap<(Arc<str>, BlockReason), Vec<u32>> = HashMap::new();
    for (i, s) in (0..).zip(&rec.samples) {
        let ledger = &rec.contexts[s.context.0 as usize].ledger;
        let ran = ledger.state_ns(State::OnCpu) + ledger.state_ns(State::Runnable) > 0;
        if let Some(reason) = s.reason.filter(|_| !ran && in_the_way(e, i, s)) {
            let key = (code_site(rec, s.stack).function, reason);
            places.entry(key).or_default().push(i);
        }
    }
    let ((function, reason), samples) = places
        .into_iter()
        .max_by_key(|((name, _), of)| (e.time(of), std::cmp::Reverse(name.clone())))?;
    let ns = e.time(&samples);
    let first = e.sample(samples[0]);
    let site = code_site(rec, first.stack);
    let mut threads: Vec<u32> = samples.iter().map(|i| e.sample(*i).context.0).collect();
    threads.sort_unstable();
    threads.dedup();
    let mut resources: HashMap<Arc<str>, u64> = HashMap::new();
    for i in &samples {
        if let Some(name) = resource(rec, e.sample(*i)) {
            *resources.entry(name).or_default() += e.sample_ns(*i);
        }
    }
    Some(Cause {
        state: State::Blocked,
        reason: Some(reason.name()),
        function,
        module: site.module,
        through: site.callee,
        resource: main_resource(&resources, ns),
        ns,
        share: 1.0,
        interval: Interval {
            low: 1.0,
            high: 1.0,
        },
        threads: threads.len(),
        thread: rec.contexts[first.context.0 as usize].name.clone(),
        because: e.roots(&samples),
        samples,
    })
}

/// Whether no thread waits so for want of work.
fn in_the_way(e: &Evidence<'_>, i: u32, s: &Sample) -> bool {
    use BlockReason::{Disk, Gil, KernelLock, Lock, Memory, PageFault, Pipe, Stopped};
    let rec = e.recording;
    if s.state != State::Blocked || s.idle || e.is_starved(i) {
        return false;
    }
    match s.reason {
        Some(Disk | Gil | KernelLock | Memory | PageFault | Stopped) => true,
        Some(Lock) => !is_consumer(rec, s),
        // A named pipe is opened, and its other end has no process yet.
        Some(Pipe) => sends_or_connects(rec, s) || passes(rec, s.stack, Side::Kernel, FIFO_OPEN),
        _ => false,
    }
}
