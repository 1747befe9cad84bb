//! Marks collections of garbage that run on a CPU: the attribute `gc` of the contract.
//!
//! A thread that a collector stops or stalls is blocked, for reason `gc`. A thread that collects is on a CPU: a
//! collector's own thread, or one of the application (V8's main thread, a goroutine that assists, `gc.collect`).
//! Its stack runs through a function of the collector. Each such sample gets the label [`GC_KEY`].
//!
//! Go's pauses are known for the whole process only. The domain says so.

use std::collections::HashMap;

use wallscope_model::{Frame, GC_KEY, Limit, PauseGroup, Recording, StackId, State};

use crate::frames::frames;
use crate::knowledge::{COLLECT, COLLECTOR_THREADS, HOTSPOT_WORKERS, Known, find};
use crate::labels::SampleLabels;
use crate::stalls;

/// Labels each on-CPU sample that collects garbage with the collector's name. Waits for a collector that only their
/// stacks show get the reason `gc`. The recording is symbolised.
pub fn mark(recording: &mut Recording) {
    stalls::mark(recording);
    limit_of_pauses(recording);
    let mut by_function: Vec<Option<Option<&'static Known>>> =
        vec![None; recording.functions.len()];
    let mut by_stack: HashMap<StackId, Option<&'static str>> = HashMap::new();
    let mut found: Vec<(usize, &'static str)> = Vec::new();
    for (i, sample) in recording.samples.iter().enumerate() {
        if sample.state != State::OnCpu {
            continue;
        }
        let found_in = *by_stack.entry(sample.stack).or_insert_with(|| {
            frames(recording, sample.stack).find_map(|frame| {
                let in_vm = in_hotspot(recording, frame);
                let mut functions = frame.lines.iter().map(|line| line.function.0 as usize);
                functions.find_map(|f| {
                    let name = &recording.functions[f].name;
                    let known = by_function[f].get_or_insert_with(|| {
                        find(COLLECT, name).or_else(|| find(COLLECTOR_THREADS, name))
                    });
                    let worker = || find(HOTSPOT_WORKERS, name).filter(|_| in_vm);
                    known.or_else(worker).map(collector)
                })
            })
        });
        found.extend(found_in.map(|collector| (i, collector)));
    }
    let mut labels = SampleLabels::of(GC_KEY);
    for (i, collector) in found {
        labels.add(recording, i, collector);
    }
}

/// States the pauses that are not known by thread.
fn limit_of_pauses(recording: &mut Recording) {
    let known = |group: &PauseGroup| group.is_known_by_thread();
    if recording.pauses.iter().all(known) {
        return;
    }
    recording.domain.limits.push(Limit {
        what: "the time for which Go's collector stopped each thread: the runtime tells the sum of a collection's \
               two stops, and the begin of neither"
            .into(),
        remedy: String::new(),
    });
}

/// The collector's name: `HotSpot` of `HotSpot, G1`.
fn collector(known: &'static Known) -> &'static str {
    let origin = known.origin;
    origin.split_once(',').map_or(origin, |(name, _)| name)
}

/// Whether a frame is one of HotSpot's own library.
fn in_hotspot(recording: &Recording, frame: &Frame) -> bool {
    let module = frame
        .module
        .and_then(|m| recording.modules.get(m.0 as usize));
    module.is_some_and(|m| m.path.ends_with("/libjvm.so"))
}
