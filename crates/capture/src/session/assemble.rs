//! What came in -> the recording: samples with their stacks, waits, peers, shapes, ledgers.

use rustc_hash::FxHashMap;
use wallscope_model::{Ledger, Limit, ModuleId, Recording, WaitSeen, call_filter::Moment};

use super::{
    Options, accounts::Accounts, address_scope::AddressScope, build::Stacks,
    event_dispatch::EventDispatcher, hops, jit_hints, processes::Processes,
};
use crate::event::{self, LockSum};
use wallscope_unwind::native::TableSink;

/// What putting a recording together gives beside it.
pub(super) struct Assembled {
    /// Modules of code made at run time, with their processes.
    pub jit: Vec<(ModuleId, u32)>,
    /// What was seen of connections, by sample.
    pub seen: Vec<WaitSeen>,
    /// When each sample was taken.
    pub moments: Vec<Moment>,
    /// What is to be told of code without names.
    pub unnamed: Vec<Limit>,
}

/// Puts what came in into `recording`, and what was lost into `losses`; `locks`: sums by lock.
pub(super) fn assemble<S: TableSink>(
    recording: &mut Recording,
    intake: &mut EventDispatcher,
    processes: &Processes<S>,
    locks: &[LockSum],
    losses: &mut Vec<(String, u64)>,
    mut stacks: Stacks,
    options: &Options,
) -> Assembled {
    let end_ns = recording.window.end_ns;
    let grid = intake.accounts.grid();
    let last_slice = (end_ns
        .saturating_sub(grid.start_ns)
        .div_ceil(grid.width_ns.max(1)))
    .max(1) as u32
        - 1;
    let sums = intake.samples.finish(last_slice);
    intake.resources.finish(processes.managed());
    intake.settle(u64::MAX);
    stacks.kernel_functions(&intake.kernel);
    let peers = std::mem::take(&mut intake.samples.peers);
    let mut seen = Vec::with_capacity(sums.len());
    let mut at = FxHashMap::default();
    for (key, sum) in sums {
        let Some(sample) = stacks.sample(key, sum, intake, processes) else {
            continue;
        };
        if key.state == event::state::HIT {
            if let Some(event) = recording.events.get_mut(usize::from(key.detail)) {
                event.samples.push(sample);
            }
            continue;
        }
        at.insert(key, recording.samples.len() as u32);
        let pid = intake.accounts.pid(sample.context.0);
        seen.push(peers.seen(&key, pid));
        recording.samples.push(sample);
    }
    let moments = (intake.samples.each.take().into_iter().flatten())
        .filter_map(|(key, [begin_ns, end_ns, ns, count])| {
            let sample = *at.get(&key)?;
            Some(Moment {
                sample,
                begin_ns,
                end_ns,
                ns,
                count,
            })
        })
        .collect();
    hops::assemble(recording, &mut stacks, &at, locks, intake, processes);
    recording.label_sets = std::mem::take(&mut stacks.labels.sets);
    losses.push((
        "parts of waits that are not told apart (too many)".into(),
        intake.chains.parts.crowded,
    ));
    recording.peers = peers.finish(end_ns, &intake.accounts, |user, context| {
        let whose = AddressScope::last(intake.accounts.pid(context));
        stacks.stack(0, user, whose, intake, processes)
    });
    losses.push(("malformed event".into(), intake.malformed));
    losses.push(("user stack never read".into(), intake.samples.unresolved));
    let mut truncated: Vec<_> = stacks.truncated.iter().collect();
    truncated.sort();
    for (end, count) in truncated {
        losses.push((format!("truncated:{}", end.name()), *count));
    }
    let jit = stacks.jit_modules();
    let unnamed = jit_hints::unnamed_code(stacks.unnamed_code(), |pid| processes.jit().maker(pid));
    recording.modules = stacks.modules;
    recording.frames = stacks.frames;
    recording.functions = stacks.functions;
    recording.stacks = stacks.stacks;
    let shapes = std::mem::take(&mut intake.shapes);
    recording.shapes = shapes.finish(&intake.accounts);
    recording.shapes.append(&mut stacks.lengths);
    recording.timeline = intake.turns.take().map(|turns| {
        let lost = losses.iter().find(|(cause, _)| cause == event::RING_TURN);
        turns.finish(&intake.accounts, lost.map_or(0, |(_, n)| *n))
    });
    let rest = options
        .looks
        .is_some()
        .then(|| intake.accounts.look(end_ns));
    let accounts = std::mem::replace(&mut intake.accounts, Accounts::new(0, 0));
    (
        recording.contexts,
        recording.slices,
        recording.ledger_slices,
    ) = accounts.finish(end_ns);
    // Looks have shown the rest.
    for context in recording.contexts.iter_mut().filter(|_| rest.is_some()) {
        context.ledger = Ledger::default();
        context.start_ns = context.end_ns;
    }
    for (index, context) in rest.into_iter().flatten() {
        recording.contexts[index as usize] = context;
    }
    // Preparing takes a moment: the window begins with the first thread's books.
    if let (Some(first), None) = (
        recording.contexts.iter().map(|c| c.start_ns).min(),
        options.looks,
    ) {
        let window = &mut recording.window;
        let late = first.saturating_sub(window.start_ns);
        window.start_ns += late;
        window.start_unix_ns += late;
    }
    recording.processes = processes.facts();
    Assembled {
        jit,
        seen,
        moments,
        unnamed,
    }
}

#[cfg(test)]
mod tests {
    use wallscope_model::StackEnd;
    use wallscope_unwind::native::MemoryTables;
    use zerocopy::FromZeros;

    use super::*;
    use crate::{
        event::{SampleEvent, ThreadEvent, state},
        places::Interrupts,
        session::{files::Files, unwound::UserStack},
        target::Target,
    };

    /// What a recording says of one thread's samples that came in this order.
    fn assembled(order: &mut dyn Iterator<Item = u64>) -> String {
        let mut intake = EventDispatcher::new(0, 1_000_000, Interrupts::default());
        let mut thread = ThreadEvent::new_zeroed();
        (thread.id, thread.pid, thread.tid) = (1, 7, 7);
        intake.accounts.thread(&thread);
        for n in order {
            let stack = UserStack {
                end: StackEnd::Root,
                late: false,
                frames: [n << 12 | 1 << 48].into(),
            };
            intake.unwound(n + 1, stack);
            let mut s = SampleEvent::new_zeroed();
            (s.id, s.pid, s.tid, s.state) = (1, 7, 7, state::BLOCKED);
            (s.begin, s.end, s.ns, s.count) = (1000, 2000 + n, 1000 + n, 1);
            (s.ustack, s.resource) = (n + 1, n % 3);
            intake.samples.sample(&s);
        }
        let tables = MemoryTables::new();
        let processes = Processes::over(Files::over(tables).expect("memory does not refuse"));
        let mut recording = Recording::default();
        recording.window.end_ns = 10_000_000;
        let (stacks, options) = (Stacks::new(&processes, false), Options::new(Target::All));
        let mut losses = Vec::new();
        let (intake, losses) = (&mut intake, &mut losses);
        assemble(
            &mut recording,
            intake,
            &processes,
            &[],
            losses,
            stacks,
            &options,
        );
        format!("{recording:?} {losses:?}")
    }

    #[test]
    fn a_recording_does_not_depend_on_which_sample_came_first() {
        let forwards = assembled(&mut (0..1000));
        assert!(forwards.contains("ns: 1999"), "all samples are there");
        assert!(forwards == assembled(&mut (0..1000).rev()));
    }
}
