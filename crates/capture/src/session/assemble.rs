//! From the sums of the estimator to the recording: samples with their stacks, waits, peers, histograms, ledgers.

use rustc_hash::FxHashMap;
use wallscope_model::{Ledger, Limit, ModuleId, Recording, WaitSeen, Window, call_filter::Moment};
use wallscope_observe::Counter;

use super::{
    accounts::{Accounts, settled},
    address_scope::AddressScope,
    build::{Observed, Stacks},
    domain,
    estimator::Estimator,
    event_sampling,
    hops::{self, Followed},
    jit_hints,
    naming::Names,
    peers,
    sample_key::{SampleKey, SampleSum},
    tasks,
};
use crate::event;

/// Result of an estimator: the recording, and facts that go beside it.
pub struct Assembled {
    /// The recording. The symboliser has not named its frames yet.
    pub recording: Recording,
    /// Modules of code made at run time, with their processes.
    pub jit: Vec<(ModuleId, u32)>,
    /// Connections seen in the waits of each sample.
    pub seen: Vec<WaitSeen>,
    /// When each sample was taken.
    pub moments: Vec<Moment>,
}

/// Whether snapshots have shown the time before the last of them, and taken it out of the estimator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshots {
    /// There were none.
    None,
    /// There were some.
    Taken,
}

impl Estimator {
    /// Puts the recording together once its window is over.
    pub fn finish(mut self, names: Names<'_>, snapshots: Snapshots) -> Assembled {
        let end_ns = self.facts.end_ns.unwrap_or(self.accounts.grid().start_ns);
        self.accounts.compact();
        let moves = std::mem::take(&mut self.moves);
        self.samples.fold(&moves);
        self.chains.fold(moves);
        let mut recording = Recording {
            window: Window {
                start_ns: self.accounts.grid().start_ns,
                end_ns,
                clock: "CLOCK_MONOTONIC".into(),
                start_unix_ns: self.facts.start_unix_ns,
            },
            host: std::mem::take(&mut self.facts.host),
            cost: self.facts.cost.clone(),
            events: event_sampling::assemble(&self.facts, &self.accounts),
            pauses: std::mem::take(&mut self.pauses).finish(),
            ..Recording::default()
        };
        let modules = std::mem::take(&mut self.facts.modules);
        let mut stacks = Stacks::new(modules);
        stacks.interpreter_frames = self.interpreter_frames;
        tasks::assemble::assemble(&mut recording, &mut stacks, &self.facts.tasks, names.code);
        let mut losses = self.losses(&[Counter::Kernel, Counter::Tasks]);
        let sums = self.sums(end_ns);
        self.settle(u64::MAX);
        stacks.kernel_functions(&self.kernel, names.host);
        let (seen, at) = self.samples(&mut recording, &mut stacks, sums, names);
        let moments = self.moments(&at);
        let (roots, nodes) = self.take_chains();
        let followed = Followed {
            roots,
            nodes,
            samples: &at,
        };
        let locks = std::mem::take(&mut self.facts.locks).into_values();
        recording.locks = hops::lock_waits(locks, &self.accounts, &mut stacks);
        hops::assemble(&mut recording, &mut stacks, &followed, self.observed(names));
        let peers = std::mem::take(&mut self.samples.peers);
        recording.peers = peers.finish(end_ns, &self.accounts, names.host, |user, context| {
            let scope = AddressScope::last(self.accounts.pid(context));
            stacks.stack(0, user, scope, self.observed(names))
        });
        losses.extend(self.own_losses(&stacks));
        losses.extend(self.losses(&[Counter::Collector]));
        let mut unnamed =
            jit_hints::unnamed_code(stacks.unnamed_code(), |pid| names.code.maker(pid));
        self.intervals(&mut recording, &mut stacks);
        unnamed.extend(self.accounts.folded_limit());
        let folded = self.accounts.take_folded_processes();
        self.ledgers(&mut recording, snapshots);
        self.describe(&mut recording, unnamed);
        let jit = stacks.give_to(&mut recording);
        recording.processes = self.facts.processes.into_values().collect();
        recording.processes.extend(folded);
        peers::name_measured(&mut recording);
        lose(&mut recording, losses);
        Assembled {
            recording,
            jit,
            seen,
            moments,
        }
    }

    fn observed<'a>(&'a self, names: Names<'a>) -> Observed<'a> {
        Observed {
            estimator: self,
            names: names.code,
        }
    }

    /// Losses of the estimator itself, and truncated stacks, by cause.
    fn own_losses(&self, stacks: &Stacks) -> Vec<(String, u64)> {
        let mut losses: Vec<(String, u64)> = Vec::new();
        for (cause, count) in [
            (
                "parts of waits that are not told apart (too many)",
                self.chains.parts.crowded,
            ),
            ("malformed event", self.malformed),
            ("user stack never read", self.samples.unresolved),
        ] {
            losses.push((cause.into(), count));
        }
        let mut truncated: Vec<_> = stacks.truncated.iter().collect();
        truncated.sort();
        for (end, count) in truncated {
            losses.push((format!("truncated:{}", end.name()), *count));
        }
        losses
    }

    /// Sums of samples, in the order of the recording's samples.
    fn sums(&mut self, end_ns: u64) -> Vec<(SampleKey, SampleSum)> {
        let accounts = &self.accounts;
        self.samples.end_waiting();
        self.samples
            .move_keys(&|key| key.moved_late(accounts.record(key.id)));
        let grid = self.accounts.grid();
        let slices = (end_ns.saturating_sub(grid.start_ns)).div_ceil(grid.width_ns.max(1));
        self.samples.finish(slices.max(1) as u32 - 1)
    }

    /// Puts samples into the recording. Returns the connections seen in each sample, and the index of the sample by
    /// key.
    fn samples(
        &self,
        recording: &mut Recording,
        stacks: &mut Stacks,
        sums: Vec<(SampleKey, SampleSum)>,
        names: Names<'_>,
    ) -> (Vec<WaitSeen>, FxHashMap<SampleKey, u32>) {
        let mut seen = Vec::with_capacity(sums.len());
        let mut at = FxHashMap::default();
        for (key, sum) in sums {
            let Some(sample) = stacks.sample(key, sum, self.observed(names)) else {
                continue;
            };
            if key.state == event::state::HIT {
                if let Some(event) = recording.events.get_mut(usize::from(key.detail)) {
                    event.samples.push(sample);
                }
                continue;
            }
            at.insert(key, recording.samples.len() as u32);
            let pid = self.accounts.pid(sample.context.0);
            seen.push(self.samples.peers.seen(&key, pid));
            recording.samples.push(sample);
        }
        (seen, at)
    }

    fn moments(&mut self, at: &FxHashMap<SampleKey, u32>) -> Vec<Moment> {
        (self.samples.each.take().into_iter().flatten())
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
            .collect()
    }

    /// Adds histograms of interval lengths, and the timeline if single intervals were kept.
    fn intervals(&mut self, recording: &mut Recording, stacks: &mut Stacks) {
        let histograms = std::mem::take(&mut self.histograms);
        recording.histograms = histograms.finish(&self.accounts);
        recording.histograms.append(&mut stacks.lengths);
        let mut losses = self.facts.losses.iter();
        let lost = losses.find(|l| l.cause == event::RING_TURN);
        let lost = lost.map_or(0, |l| l.count);
        let turns = self.turns.take();
        recording.timeline = turns.map(|turns| turns.finish(&self.accounts, lost));
    }

    /// Adds the threads with their ledgers, as a whole and by slice.
    fn ledgers(&mut self, recording: &mut Recording, snapshots: Snapshots) {
        let end_ns = recording.window.end_ns;
        let rest = (snapshots == Snapshots::Taken).then(|| {
            let rows = self.accounts.take_slices();
            (rows, self.accounts.take_snapshot(end_ns))
        });
        let accounts = std::mem::replace(&mut self.accounts, Accounts::new(0, 0));
        (
            recording.contexts,
            recording.slices,
            recording.ledger_slices,
        ) = accounts.finish(end_ns);
        // Snapshots have shown the rest.
        for context in recording.contexts.iter_mut().filter(|_| rest.is_some()) {
            context.ledger = Ledger::default();
            context.start_ns = context.end_ns;
        }
        if let Some((rows, parts)) = rest {
            for (index, context) in parts {
                recording.contexts[index as usize] = context;
            }
            let most = recording.slices.count.saturating_sub(1);
            let rows = rows.sorted(|context, slice| (context, slice.min(most)));
            recording.ledger_slices = settled(&rows, &recording.contexts, recording.slices);
        }
        // Preparation takes a moment, so the window begins with the ledger of the first thread.
        let first = recording.contexts.iter().map(|c| c.start_ns).min();
        if let (Some(first), Snapshots::None) = (first, snapshots) {
            let window = &mut recording.window;
            let late = first.saturating_sub(window.start_ns);
            window.start_ns += late;
            window.start_unix_ns += late;
        }
    }

    /// The domain: the collector's words, and facts that only the estimator knows.
    fn describe(&mut self, recording: &mut Recording, unnamed: Vec<Limit>) {
        let described = std::mem::take(&mut self.facts.domain);
        recording.domain = described.domain;
        let domain = &mut recording.domain;
        if let Some(timeline) = &recording.timeline {
            let at = (described.timeline_note as usize).min(domain.notes.len());
            domain.notes.insert(at, domain::timeline(timeline));
        }
        domain.limits.extend(unnamed);
        tasks::assemble::describe(domain, std::mem::take(&mut self.facts.tasks.words));
    }

    /// Losses that the parts `by` have counted.
    fn losses(&self, by: &[Counter]) -> Vec<(String, u64)> {
        let all = self.facts.losses.iter();
        all.filter(|l| by.contains(&l.by))
            .map(|l| (l.cause.clone(), l.count))
            .collect()
    }
}

/// Adds losses to a recording. Several processes may have lost something for one cause.
fn lose(recording: &mut Recording, losses: Vec<(String, u64)>) {
    for (cause, count) in losses.into_iter().filter(|(_, count)| *count > 0) {
        match recording.losses.iter_mut().find(|l| l.cause == cause) {
            Some(loss) => loss.count += count,
            None => recording
                .losses
                .push(wallscope_model::Loss { cause, count }),
        }
    }
}

#[cfg(test)]
mod tests {
    use wallscope_model::StackEnd;
    use wallscope_observe::{Begin, Mark, Observation, UnwoundStack};
    use zerocopy::{FromZeros, IntoBytes};

    use super::*;
    use crate::{
        event::{Dump, SampleEvent, ThreadEvent, state},
        session::answers::Answers,
    };

    /// An estimator that knows one thread.
    fn of_one_thread() -> Estimator {
        let mut estimator = Estimator::new(&Begin {
            slice_ns: 1_000_000,
            ..Begin::default()
        });
        let mut thread = ThreadEvent::new_zeroed();
        (thread.id, thread.pid, thread.tid) = (1, 7, 7);
        estimator.accounts.thread(&thread);
        estimator
    }

    /// The recording of one thread's samples that came in this order.
    fn assembled(order: &mut dyn Iterator<Item = u64>) -> String {
        let mut estimator = of_one_thread();
        for n in order {
            estimator.observe(&Observation::Stack(UnwoundStack {
                hash: n + 1,
                end: StackEnd::Root,
                frames: vec![n << 12 | 1 << 48],
            }));
            let mut s = SampleEvent::new_zeroed();
            (s.id, s.pid, s.tid, s.state) = (1, 7, 7, state::BLOCKED);
            (s.begin, s.end, s.ns, s.count) = (1000, 2000 + n, 1000 + n, 1);
            (s.ustack, s.resource) = (n + 1, n % 3);
            estimator.samples.sample(&s);
        }
        estimator.observe(&Observation::Mark(Mark::End { time: 10_000_000 }));
        let answers = Answers::default();
        let assembled = estimator.finish(answers.names(), Snapshots::None);
        format!("{:?}", assembled.recording)
    }

    #[test]
    fn a_recording_does_not_depend_on_which_sample_came_first() {
        let forwards = assembled(&mut (0..1000));
        assert!(forwards.contains("ns: 1999"), "all samples are there");
        assert!(forwards == assembled(&mut (0..1000).rev()));
    }

    /// Samples of a thread that is blocked from 1 ms on. The recorder ended at 2 ms without last figures.
    fn cut_off(period_ns: u64) -> Vec<(u64, u64)> {
        let mut estimator = of_one_thread();
        let mut dump = Dump::new_zeroed();
        (dump.id, dump.pid, dump.tid, dump.state) = (1, 7, 7, state::BLOCKED);
        (dump.birth, dump.since, dump.now) = (1_000, 1_000_000, 1_500_000);
        estimator.observe(&Observation::Books(dump.as_bytes()));
        estimator.ends_early(2_000_000, period_ns);
        estimator.observe(&Observation::Mark(Mark::End { time: 2_000_000 }));
        let answers = Answers::default();
        let assembled = estimator.finish(answers.names(), Snapshots::None);
        let blocked = assembled.recording.samples.into_iter();
        blocked.map(|s| (s.ns, s.count)).collect()
    }

    #[test]
    fn an_early_end_charges_waits_that_were_long_enough_to_have_a_stack() {
        assert_eq!(cut_off(0), []);
        // Ten periods are needed.
        assert_eq!(cut_off(100_001), []);
        assert_eq!(cut_off(100_000), [(1_000_000, 10)]);
        assert_eq!(cut_off(70_000), [(1_000_000, 14)]);
    }

    #[test]
    fn losses_of_one_cause_add_up() {
        let mut recording = Recording::default();
        let losses = [("ring full", 2), ("nothing", 0), ("ring full", 3)];
        let losses = losses.map(|(cause, count)| (cause.to_string(), count));
        lose(&mut recording, losses.to_vec());
        let told: Vec<_> = recording
            .losses
            .iter()
            .map(|l| (&*l.cause, l.count))
            .collect();
        assert_eq!(told, [("ring full", 5)]);
    }
}
