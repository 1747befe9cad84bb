//! Snapshots of a running session. Each is a recording of the time since the previous snapshot.
//!
//! Snapshots serve live views and intervals. The session forgets the time that a snapshot has shown, so that it may
//! run for hours: its own recording at the end holds only the time since the last snapshot. Only windows have chains
//! of waits. Snapshots have no facts about the host, and their frames have no names yet.
//!
//! A thread that stays blocked is charged to a stack only when it wakes. A snapshot charges it before that if the
//! task iterator has read its stack meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::histogram::{COARSE, Histogram, HistogramRow};
use wallscope_model::{Actor, ContextId, ModuleId, Recording, Slices, State, Window};

use super::{
    Options,
    accounts::StillBlocked,
    build::{Observed, Stacks},
    estimator::{Estimator, READ_AHEAD},
    event_dispatch::EventDispatcher,
    hops::{self, Followed},
    interface::Snapshot,
    processes::Processes,
    sample_key::{self, SampleKey, SampleSum},
    window_slices,
};
use crate::event::state;

/// Time that a snapshot covers, ns on the clock of the recording.
#[derive(Clone, Copy)]
pub(crate) struct SnapshotWindow {
    /// Start of the session.
    pub start: u64,
    /// Time of the last snapshot, or of the start.
    pub last: u64,
    /// Now.
    pub now: u64,
}

impl SnapshotWindow {
    /// The recording of this time, still empty.
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

/// Takes the samples and ledgers out of the dispatcher and makes a snapshot of them. `period`: off-CPU time that a
/// stack stands for at present.
pub(super) fn take(
    stretch: SnapshotWindow,
    intake: &mut EventDispatcher,
    processes: &mut Processes,
    (options, period): (&Options, Duration),
) -> Snapshot {
    let mut recording = stretch.recording();
    recording.domain.backend = "ebpf".into();
    let (sums, unsure) = take_sums(stretch, intake, period);
    let estimator = &mut intake.estimator;
    let (places, grids) = take_threads(&mut recording, estimator, stretch.now);
    let mut stacks = Stacks::new(processes.modules());
    stacks.interpreter_frames = options.method.interpreter_frames;
    let mut seen = Vec::with_capacity(sums.len());
    let mut waits: BTreeMap<u32, Histogram> = BTreeMap::new();
    let mut at = FxHashMap::default();
    for (key, mut sum) in sums {
        estimator.uses(key.kernel, key.user, key.resource);
        window_slices::values(&mut sum.slices, grids);
        let lengths = std::mem::take(&mut sum.lengths);
        let observed = Observed {
            estimator: &*estimator,
            names: &*processes,
        };
        let Some(mut sample) = stacks.sample(key, sum, observed) else {
            continue;
        };
        let Some(place) = places.get(&sample.context.0) else {
            continue;
        };
        if key.state == state::RUNNABLE {
            let own = waits.entry(*place);
            own.or_insert_with(|| Histogram::new(COARSE))
                .merge(&lengths);
        }
        let mut what = estimator
            .samples
            .peers
            .seen(&key, estimator.accounts.pid(sample.context.0));
        if unsure.contains(&key) {
            what.in_flight = None;
        }
        seen.push(what);
        at.insert(key, recording.samples.len() as u32);
        sample.context = ContextId(*place);
        recording.samples.push(sample);
    }
    recording.histograms = run_queue(waits);
    if estimator.follows_waits {
        let (roots, nodes) = estimator.take_chains();
        let followed = Followed {
            roots,
            nodes,
            samples: &at,
        };
        let observed = Observed {
            estimator: &*estimator,
            names: &*processes,
        };
        hops::assemble(&mut recording, &mut stacks, &followed, observed);
        place_actors(&mut recording, &places);
    }
    let jit = stacks.give_to(&mut recording);
    recording.processes = processes.facts();
    recording
        .processes
        .extend(estimator.accounts.take_folded_processes());
    let sources = processes.sources_of(&used(&recording), &jit);
    Snapshot {
        elapsed: stretch.elapsed(),
        recording,
        sources,
        seen,
    }
}

/// Takes the samples, including those of waits that are not over. Also returns the keys of these waits.
fn take_sums(
    stretch: SnapshotWindow,
    intake: &mut EventDispatcher,
    period: Duration,
) -> (Vec<(SampleKey, SampleSum)>, FxHashSet<SampleKey>) {
    // Copied stacks would otherwise wait for the end of the session.
    for raw in std::mem::take(&mut intake.raws) {
        intake.resolve(&raw.given_up());
    }
    let mut sums = intake.take_samples();
    let open = still_blocked(&intake.estimator, stretch, period);
    let unsure = open.iter().map(|(key, _)| *key).collect();
    sums.extend(open);
    sample_key::sort(&mut sums);
    (sums, unsure)
}

/// Takes the ledgers of all threads. Returns the index of each thread's context, by its account, and the slices of
/// the session and of the snapshot.
fn take_threads(
    recording: &mut Recording,
    estimator: &mut Estimator,
    now: u64,
) -> (FxHashMap<u32, u32>, (Slices, Slices)) {
    estimator.accounts.drop_told();
    let rows = estimator.accounts.take_slices();
    let mut places = FxHashMap::default();
    for (index, context) in estimator.accounts.take_snapshot(now) {
        places.insert(index, recording.contexts.len() as u32);
        recording.contexts.push(context);
    }
    let grid = estimator.accounts.grid();
    let own = window_slices::grid(grid, &recording.window);
    recording.ledger_slices = window_slices::rows(&rows, &places, &recording.contexts, (grid, own));
    recording.slices = own;
    (places, (grid, own))
}

/// Histograms of run-queue latency by thread, estimated from samples: the kernel programs keep the exact ones until a
/// thread ends.
fn run_queue(waits: BTreeMap<u32, Histogram>) -> Vec<HistogramRow> {
    let row = |(context, histogram)| HistogramRow {
        context: Some(ContextId(context)),
        stack: None,
        state: State::Runnable,
        reason: None,
        part: None,
        histogram,
    };
    waits.into_iter().map(row).collect()
}

/// Waits that are not over, of threads with a known stack.
fn still_blocked(
    estimator: &Estimator,
    stretch: SnapshotWindow,
    period: Duration,
) -> Vec<(SampleKey, SampleSum)> {
    let longest_unread = READ_AHEAD * period.as_nanos() as u64;
    let wait = |t: StillBlocked| {
        // The task iterator does not read shorter waits. The stack known of such a thread is that of an earlier wait.
        if stretch.now.saturating_sub(t.since) < longest_unread {
            return None;
        }
        let since = t.since.max(stretch.last);
        let key = SampleKey {
            id: t.id,
            former: 0,
            resource: 0,
            kernel: 0,
            user: estimator.samples.read_ahead(t.id)?,
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
            slices: window_slices::of_wait(estimator.accounts.grid(), since..stretch.now),
            ..SampleSum::default()
        };
        Some((key, sum))
    };
    estimator
        .accounts
        .still_blocked()
        .filter_map(wait)
        .collect()
}

/// Replaces the threads of actors by their contexts in the snapshot. A thread that ended before has none.
fn place_actors(recording: &mut Recording, places: &FxHashMap<u32, u32>) {
    for actor in &mut recording.actors {
        if let Actor::Context(context) = actor {
            *actor = match places.get(&context.0) {
                Some(place) => Actor::Context(ContextId(*place)),
                None => Actor::Unknown,
            };
        }
    }
}

/// The modules that frames lie in.
pub(crate) fn used(recording: &Recording) -> Vec<ModuleId> {
    let mut used: Vec<ModuleId> = recording.frames.iter().filter_map(|f| f.module).collect();
    used.sort_unstable();
    used.dedup();
    used
}

/// Removes threads without time and samples, and renumbers the others.
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
