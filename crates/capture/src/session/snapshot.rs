//! Looks at a session under way: what was added since the last one, as a recording of its own.
//!
//! For live views and intervals. What a look has shown is not kept, so that a session may run for
//! hours: its own recording at the end holds only what came after the last look. Looks have no time
//! slices, no chains of waits and no facts about the host; frames have no names yet.
//!
//! A thread that stays blocked is charged to a stack only when it wakes. A look shows it where the
//! iterator has read it meanwhile.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::{ContextId, ModuleId, Recording, Window};

use super::{
    Options,
    build::{Observed, Stacks},
    estimator::Estimator,
    estimator::READ_AHEAD,
    event_dispatch::EventDispatcher,
    interface::Look,
    processes::Processes,
    sample_key::{self, SampleKey, SampleSum},
};
use crate::event::state;

/// The stretch that a look shows, ns on the recording's clock.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotWindow {
    /// Start of the session.
    pub start: u64,
    /// The last look, or the start.
    pub last: u64,
    /// Now.
    pub now: u64,
}

impl SnapshotWindow {
    /// The recording of it, still empty.
    pub fn recording(self) -> Recording {
        Recording {
            window: Window {
                start_ns: self.last,
                end_ns: self.now,
                clock: "CLOCK_MONOTONIC".into(),
                start_unix_ns: 0,
            },
            ..Recording::default()
        }
    }

    /// Time since the start.
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(self.now.saturating_sub(self.start))
    }
}

/// A look at what the kernel programs have told, which it takes.
pub(super) fn take(
    stretch: SnapshotWindow,
    intake: &mut EventDispatcher,
    processes: &Processes,
    options: &Options,
) -> Look {
    let mut recording = stretch.recording();
    recording.domain.backend = "ebpf".into();
    // They would be unwound at the end only.
    for raw in std::mem::take(&mut intake.raws) {
        intake.resolve(&raw.given_up());
    }
    let mut sums = intake.take_samples();
    let estimator = &mut intake.estimator;
    let open = open_waits(estimator, &stretch, options);
    let unsure: FxHashSet<SampleKey> = open.iter().map(|(key, _)| *key).collect();
    sums.extend(open);
    sample_key::sort(&mut sums);
    estimator.accounts.drop_told();
    let mut places = FxHashMap::default();
    for (index, context) in estimator.accounts.look(stretch.now) {
        places.insert(index, recording.contexts.len() as u32);
        recording.contexts.push(context);
    }
    let mut stacks = Stacks::new(processes.modules());
    stacks.interpreter_frames = options.interpreter_frames;
    let observed = Observed {
        estimator,
        names: processes,
    };
    let mut seen = Vec::with_capacity(sums.len());
    for (key, mut sum) in sums {
        sum.slices.clear();
        sum.lengths = Default::default();
        let Some(mut sample) = stacks.sample(key, sum, observed) else {
            continue;
        };
        let Some(place) = places.get(&sample.context.0) else {
            continue;
        };
        let mut what = estimator
            .samples
            .peers
            .seen(&key, estimator.accounts.pid(sample.context.0));
        if unsure.contains(&key) {
            what.in_flight = None;
        }
        seen.push(what);
        sample.context = ContextId(*place);
        recording.samples.push(sample);
    }
    let jit = stacks.jit_modules();
    recording.label_sets = std::mem::take(&mut stacks.labels.sets);
    recording.modules = stacks.modules;
    recording.frames = stacks.frames;
    recording.functions = stacks.functions;
    recording.stacks = stacks.stacks;
    recording.processes = processes.facts();
    recording
        .processes
        .extend(estimator.accounts.folded_processes());
    let sources = processes.sources_of(&used(&recording), &jit);
    Look {
        elapsed: stretch.elapsed(),
        recording,
        sources,
        seen,
    }
}

/// Waits that are not over, as far as their stacks were read ahead.
fn open_waits(
    estimator: &Estimator,
    stretch: &SnapshotWindow,
    options: &Options,
) -> Vec<(SampleKey, SampleSum)> {
    let mut open = Vec::new();
    for t in estimator.accounts.still_blocked() {
        let since = t.since.max(stretch.last);
        // Shorter ones are not read, and what is known of the thread's stack is of another wait.
        if stretch.now.saturating_sub(t.since)
            < READ_AHEAD * options.off_cpu_period.as_nanos() as u64
        {
            continue;
        }
        let Some(user) = estimator.samples.read_ahead(t.id) else {
            continue;
        };
        let key = SampleKey {
            id: t.id,
            former: 0,
            resource: 0,
            kernel: 0,
            user,
            code: 0,
            state: state::BLOCKED,
            detail: t.detail,
            user_mode: false,
            cpu: None,
            in_flight: false,
            awaits: false,
            talks: false,
        };
        let sum = SampleSum {
            count: 1,
            ns: stretch.now.saturating_sub(since),
            ..SampleSum::default()
        };
        open.push((key, sum));
    }
    open
}

/// The modules that frames lie in.
pub(crate) fn used(recording: &Recording) -> Vec<ModuleId> {
    let mut used: Vec<ModuleId> = recording.frames.iter().filter_map(|f| f.module).collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// Leaves out threads of which there is nothing, and numbers the others anew.
pub(crate) fn without_absent(recording: &mut Recording) {
    let mut present: FxHashSet<u32> = recording.samples.iter().map(|s| s.context.0).collect();
    let mut places = FxHashMap::default();
    let contexts = std::mem::take(&mut recording.contexts);
    for (index, context) in (0u32..).zip(contexts) {
        if context.ledger.wall_ns > 0 || present.remove(&index) {
            places.insert(index, recording.contexts.len() as u32);
            recording.contexts.push(context);
        }
    }
    for s in &mut recording.samples {
        s.context = ContextId(places[&s.context.0]);
    }
}
