//! Stacks seen by polls, and the time that they stand for.
//!
//! If switches are recorded, a polled wait stands for all waits of its thread that were about as
//! long ([`crate::backend::perf::wait_strata`]). A poll that is late for want of a CPU runs just when some thread
//! has blocked. It would favour some waits, and is used only if there are too few other polls of waits of
//! that length.
//!
//! A runnable thread shows no stack. A woken thread is still where it blocked, a preempted thread where it
//! computed: their run-queue latency is attributed to those stacks ([`wakeup_latency`]). Many a thread is preempted
//! where it wakes another thread, and hardly ever elsewhere. So a sample of on-CPU time that ended in a
//! preemption stands for the latency after it, weighted by how likely it was to be sampled. The more such
//! samples there are, the less latency is attributed to where the thread computes in general.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, Part, Sample, Slices, Stack, StackEnd, StackId, State, WaitSeen};
use wallscope_unwind::native::FrameWord;

mod caller_inference;
#[cfg(test)]
mod caller_inference_tests;
mod wakeup_latency;
mod weight;

use super::samples::weight::{AS_MUCH, ENOUGH, Key, Sum};
use crate::{
    backend::perf::told_apart,
    session::{
        address_scope::AddressScope,
        build::{Stacks, UserFrames},
        naming::CodeNames,
    },
};
use caller_inference::infer_callers;
use wakeup_latency::{RelativeLatency, WakeupLatency, divide_woken};
pub use weight::{Known, PollSample, Sums, Weight, WeightScope};

/// A stack as a poll saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Polled {
    /// Scope of its addresses.
    pub scope: AddressScope,
    /// Native frames in the unwinder's words, innermost first.
    pub frames: Box<[u64]>,
    /// Managed frames, two words each.
    pub managed: Box<[u64]>,
    /// How it ended.
    pub end: StackEnd,
    /// Name of the resource that the thread waits for there.
    pub resource: Option<Arc<str>>,
}

/// Identity of a stack: the address scope where it matters, words of both kinds of frames, the end, and the
/// resource that the thread waits for.
type StackKey = (
    Option<AddressScope>,
    Box<[u64]>,
    Box<[u64]>,
    StackEnd,
    Option<Arc<str>>,
);

impl Polled {
    /// A stack without frames of process `pid`.
    pub fn none(pid: u32, end: StackEnd) -> Polled {
        let scope = AddressScope { pid, code: 0 };
        Polled::of(scope, &[], Box::default(), end)
    }

    /// A stack, perhaps with managed frames.
    pub fn of(
        scope: AddressScope,
        frames: &[FrameWord],
        managed: Box<[u64]>,
        end: StackEnd,
    ) -> Polled {
        Polled {
            scope,
            frames: frames.iter().map(|w| w.0).collect(),
            managed,
            end,
            resource: None,
        }
    }

    fn key(&self) -> StackKey {
        let frames = self.frames.iter();
        // Addresses outside all files mean something in their own process only.
        let own = !self.managed.is_empty()
            || self.frames.is_empty()
            || frames.into_iter().any(|w| FrameWord(*w).file() == 0);
        (
            own.then_some(self.scope),
            self.frames.clone(),
            self.managed.clone(),
            self.end,
            self.resource.clone(),
        )
    }
}

/// The stacks of a recording, and the time of each by thread and state.
#[derive(Default)]
pub struct Samples {
    stacks: Vec<Polled>,
    ids: FxHashMap<StackKey, u32>,
    sums: Sums,
    /// Stack pointers of whole stacks of waits: thread, stack -> stack pointer.
    begin: FxHashMap<(u32, u32), u64>,
    /// The keys of each thread, once nothing more is added.
    keys: FxHashMap<u32, Vec<Key>>,
    /// What polls saw of runnable threads after wake-ups.
    pub wakeup_latency: WakeupLatency,
    /// Its relative latencies, once nothing more is added.
    lengths: RelativeLatency,
}

impl Samples {
    /// The index of a stack, if it was met before.
    pub fn known(&self, stack: &Polled) -> Option<u32> {
        self.ids.get(&stack.key()).copied()
    }

    /// Adds a stack; its index is the number of those before.
    pub fn push(&mut self, stack: Polled) -> u32 {
        let index = self.stacks.len() as u32;
        self.ids.entry(stack.key()).or_insert(index);
        self.stacks.push(stack);
        index
    }

    /// The index of a stack.
    pub fn stack(&mut self, stack: Polled) -> u32 {
        match self.known(&stack) {
            Some(index) => index,
            None => self.push(stack),
        }
    }

    /// Rows by slice.
    pub fn rows(&self) -> usize {
        self.sums.rows()
    }

    /// A thread that waits with stack number `stack` has its stack pointer at `sp`.
    pub fn stands_at(&mut self, thread: usize, stack: u32, sp: u64) {
        self.begin.insert((thread as u32, stack), sp);
    }

    /// Hash of a stack's native frames.
    pub fn told_apart(&self, stack: u32) -> u64 {
        told_apart(self.stacks[stack as usize].frames.iter().copied())
    }

    /// The stack of this index.
    pub fn polled(&self, stack: u32) -> &Polled {
        &self.stacks[stack as usize]
    }

    /// Number of stacks.
    pub fn distinct(&self) -> usize {
        self.stacks.len()
    }

    /// Adds one poll.
    pub fn add(&mut self, grid: Slices, poll: &PollSample) {
        self.sums.add(grid, poll);
    }

    /// Discards all polls so far.
    pub fn forget(&mut self) {
        self.sums.by_key.clear();
        self.wakeup_latency = WakeupLatency::default();
    }

    /// The slices are twice as wide from here on.
    pub fn coarsen(&mut self) {
        self.sums.coarsen();
    }

    /// Groups the samples by thread: from here on threads are settled one by one.
    pub fn by_thread(&mut self) {
        self.lengths = self.wakeup_latency.relative();
        for key in self.sums.by_key.keys() {
            self.keys.entry(key.0).or_default().push(*key);
        }
        // The division of time among the keys, and the order in which fractions are summed, must not depend on chance.
        self.keys.values_mut().for_each(|own| own.sort_unstable());
    }

    /// Adds the part of a thread's on-CPU time that could not be sampled: another `share` for each `of` of its sampled
    /// time, spread over time like the sampled part.
    pub fn unsampled_part(&mut self, thread: u32, stack: u32, share: u64, of: u64) {
        let mut all = Sum::default();
        let own = self.keys.entry(thread).or_default();
        for sum in own
            .iter()
            .filter(|key| key.2 == State::OnCpu)
            .filter_map(|key| self.sums.by_key.get(key))
        {
            all.add(sum.times(share, of));
        }
        if all.ns == 0 {
            return;
        }
        all.count = 0;
        all.slices.iter_mut().for_each(|v| v.count = 0);
        let part = Some(Part::Kernel);
        let seen = WaitSeen::default();
        let key = (thread, stack, State::OnCpu, None, part, Weight::Own, seen);
        own.push(key);
        self.sums.by_key.insert(key, all);
    }

    /// Divides the known times of thread number `thread` among its samples.
    pub fn settle(&mut self, thread: u32, known: Known<'_>) {
        let own = self.keys.remove(&thread).unwrap_or_default();
        let stacks = &self.stacks;
        let innermost = |stack: u32| stacks[stack as usize].frames.first().copied();
        let own = infer_callers(own, &mut self.sums.by_key, &self.begin, innermost);
        let Sampled {
            on_cpu,
            put_off,
            in_time,
        } = Sampled::of(&own, &self.sums.by_key);
        let n = if put_off.ns > 0 { put_off.count } else { 0 };
        let seen_put_off = match on_cpu {
            0 => known.preempted,
            _ => (u128::from(known.preempted) * u128::from(n) / u128::from(n + AS_MUCH)) as u64,
        };
        let with_late = |class: u8| in_time.get(&class).is_none_or(|n| *n < ENOUGH);
        // Sampled time of each class, ns.
        let mut seen: BTreeMap<u8, u64> = BTreeMap::new();
        for key in &own {
            match key.5 {
                Weight::Wait { class, late } if !late || with_late(class) => {
                    let ns = self.sums.by_key.get(key).map_or(0, |sum| sum.ns);
                    *seen.entry(class).or_default() += ns;
                }
                _ => {}
            }
        }
        let classes: Vec<u8> = seen.keys().copied().collect();
        let waits = known.waits.among(&classes);
        let woken = divide_woken(&own, &self.sums.by_key, known, &self.lengths);
        for key in &own {
            let (_, stack, state, reason, part, weight, seen_of) = *key;
            let as_own =
                |state, reason, part| (thread, stack, state, reason, part, Weight::Own, seen_of);
            let (key, exact) = match weight {
                Weight::Own if state == State::OnCpu && known.preempted > 0 => {
                    let Some(sum) = self.sums.by_key.get(key) else {
                        continue;
                    };
                    let more = sum.times(known.preempted - seen_put_off, on_cpu);
                    (as_own(State::Runnable, None, Some(Part::Preempted)), more)
                }
                Weight::Own | Weight::Innermost { .. } => continue,
                Weight::PutOff => {
                    let Some(sum) = self.sums.by_key.remove(key) else {
                        continue;
                    };
                    (
                        as_own(state, reason, part),
                        sum.times(seen_put_off, put_off.ns),
                    )
                }
                Weight::Wait { class, late: true } if !with_late(class) => {
                    self.sums.by_key.remove(key);
                    continue;
                }
                Weight::Wait { class, .. } => {
                    let Some(sum) = self.sums.by_key.remove(key) else {
                        continue;
                    };
                    let exact = sum.times(waits.of(class).ns, seen[&class]);
                    (as_own(state, reason, part), exact)
                }
                Weight::Wakeup { .. } => {
                    let Some(sum) = self.sums.by_key.remove(key) else {
                        continue;
                    };
                    let (ns, whole) = (woken[key], sum.ns);
                    (as_own(state, reason, part), sum.times(ns, whole))
                }
            };
            self.sums.by_key.entry(key).or_default().add(exact);
        }
    }

    /// The samples, which are forgotten here ([`Samples::samples_of`]).
    pub fn finish(
        &mut self,
        stacks: &mut Stacks,
        names: &dyn CodeNames,
    ) -> (Vec<Sample>, Vec<WaitSeen>) {
        self.keys.clear();
        let sums = std::mem::take(&mut self.sums);
        self.samples_of(sums, stacks, names)
    }

    /// The samples of `sums`, with their stacks in `stacks`, and the connections that each waits for, as seen. `stacks`
    /// counts the polls with truncated stacks.
    pub fn samples_of(
        &self,
        sums: Sums,
        stacks: &mut Stacks,
        names: &dyn CodeNames,
    ) -> (Vec<Sample>, Vec<WaitSeen>) {
        let mut all: Vec<_> = (sums.by_key)
            .into_iter()
            .filter(|(_, s)| s.ns > 0)
            .collect();
        all.sort_unstable_by_key(|(key, _)| *key);
        let mut ids: FxHashMap<u32, StackId> = FxHashMap::default();
        all.into_iter()
            .map(|((thread, stack, state, reason, part, _, seen), sum)| {
                let polled = &self.stacks[stack as usize];
                let labels = stacks.labels.id(polled.resource.clone(), None, None);
                let stack = *ids.entry(stack).or_insert_with(|| {
                    let frames = UserFrames {
                        native: &polled.frames,
                        managed: &polled.managed,
                        end: polled.end,
                    };
                    stacks.user_stack(&frames, polled.scope, names)
                });
                let Stack { end, .. } = stacks.stacks[stack.0 as usize];
                if !end.is_whole() {
                    *stacks.truncated.entry(end).or_default() += sum.count;
                }
                let sample = Sample {
                    context: ContextId(thread),
                    stack,
                    state,
                    reason,
                    part,
                    idle: false,
                    cpu: None,
                    labels: labels.filter(|_| state == State::Blocked),
                    count: sum.count,
                    ns: sum.ns,
                    slices: sum.slices,
                };
                (sample, seen)
            })
            .unzip()
    }
}

/// Samples of one thread, summed.
#[derive(Default)]
struct Sampled {
    /// On-CPU time, ns.
    on_cpu: u64,
    /// Samples that ended in a preemption.
    put_off: Sum,
    /// Polls in time, by class of the wait.
    in_time: BTreeMap<u8, u64>,
}

impl Sampled {
    fn of(own: &[Key], sums: &FxHashMap<Key, Sum>) -> Sampled {
        let mut all = Sampled::default();
        for key in own {
            let Some(sum) = sums.get(key) else {
                continue;
            };
            match key.5 {
                Weight::Wait { class, late: false } => {
                    *all.in_time.entry(class).or_default() += sum.count;
                }
                Weight::Own if key.2 == State::OnCpu => all.on_cpu += sum.ns,
                Weight::PutOff => {
                    all.put_off.count += sum.count;
                    all.put_off.ns += sum.ns;
                }
                _ => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::perf::wait_strata::WaitStrata;
    use wallscope_model::BlockReason;

    const GRID: Slices = Slices {
        start_ns: 0,
        width_ns: 100,
        count: 0,
    };

    fn poll(stack: u32, state: State, weight: Weight, begin: u64, ns: u64) -> PollSample {
        let blocked = state == State::Blocked;
        PollSample {
            thread: 0,
            stack,
            state,
            reason: blocked.then_some(BlockReason::Timer),
            part: (!blocked).then_some(Part::Woken),
            begin,
            end: begin + ns,
            ns,
            weight,
            seen: WaitSeen::default(),
        }
    }

    fn time(samples: &Samples, stack: u32, state: State) -> u64 {
        let keys = samples
            .sums
            .by_key
            .iter()
            .filter(|(key, _)| key.1 == stack && key.2 == state);
        keys.map(|(_, sum)| {
            assert_eq!(sum.ns, sum.slices.iter().map(|v| v.ns).sum::<u64>());
            sum.ns
        })
        .sum()
    }

    const SHORT: Weight = Weight::Wait {
        class: 14,
        late: false,
    };
    const LATE: Weight = Weight::Wait {
        class: 14,
        late: true,
    };
    const LONG: Weight = Weight::Wait {
        class: 20,
        late: false,
    };

    /// Waits of so many ns in class 14 and of one in class 20.
    fn waits(short: u64, long: u64) -> WaitStrata {
        let mut waits = WaitStrata::default();
        (0..10).for_each(|_| waits.add(short / 10));
        waits.add(long);
        waits
    }

    #[test]
    fn waits_of_a_length_share_their_time() {
        let mut s = Samples::default();
        s.add(GRID, &poll(1, State::Blocked, LONG, 0, 1_400_000));
        for _ in 0..30 {
            s.add(GRID, &poll(2, State::Blocked, SHORT, 0, 10));
        }
        for _ in 0..10 {
            s.add(GRID, &poll(1, State::Blocked, SHORT, 0, 10));
            // Late polls favour waits that have just begun.
            s.add(GRID, &poll(3, State::Blocked, LATE, 0, 10));
        }
        let known = Known {
            waits: &waits(100, 1_400_000),
            woken: 0,
            preempted: 0,
        };
        s.by_thread();
        s.settle(0, known);
        assert_eq!(time(&s, 1, State::Blocked), 1_400_025);
        assert_eq!(time(&s, 2, State::Blocked), 75);
        assert_eq!(time(&s, 3, State::Blocked), 0);
    }

    #[test]
    fn late_polls_are_better_than_none() {
        let mut s = Samples::default();
        s.add(GRID, &poll(3, State::Blocked, LATE, 0, 10));
        let known = Known {
            waits: &waits(100, 1_400_000),
            woken: 0,
            preempted: 0,
        };
        s.by_thread();
        s.settle(0, known);
        assert_eq!(time(&s, 3, State::Blocked), 1_400_100);
    }

    #[test]
    fn run_queue_latency_goes_to_where_the_thread_is() {
        let mut s = Samples::default();
        let woken = |class| Weight::Wakeup { class };
        s.add(GRID, &poll(1, State::Runnable, woken(14), 0, 30));
        s.add(GRID, &poll(2, State::Runnable, woken(14), 150, 10));
        s.add(GRID, &poll(3, State::Runnable, woken(20), 150, 5));
        s.add(GRID, &poll(4, State::OnCpu, Weight::Own, 0, 60));
        s.add(GRID, &poll(5, State::OnCpu, Weight::Own, 100, 40));
        // Ten short waits ended, and one long one.
        let known = Known {
            waits: &waits(100, 1_400_000),
            woken: 88,
            preempted: 10,
        };
        s.by_thread();
        s.settle(0, known);
        let waited = [1, 2, 3, 4, 5].map(|stack| time(&s, stack, State::Runnable));
        assert_eq!(waited, [60, 20, 8, 6, 4]);
        assert_eq!(time(&s, 4, State::OnCpu), 60);
    }

    #[test]
    fn preemption_goes_to_where_it_happens() {
        let known = Known {
            waits: &WaitStrata::default(),
            woken: 0,
            preempted: 800,
        };
        for seen in [0, 4, 12] {
            let mut s = Samples::default();
            // It computes in one place, and is preempted in another.
            s.add(GRID, &poll(1, State::OnCpu, Weight::Own, 0, 1000));
            for _ in 0..seen {
                s.add(GRID, &poll(2, State::Runnable, Weight::PutOff, 0, 7));
            }
            s.by_thread();
            s.settle(0, known);
            let waited = [1, 2].map(|stack| time(&s, stack, State::Runnable));
            let expected = 800 * seen / (seen + AS_MUCH);
            assert_eq!(waited, [800 - expected, expected]);
        }
    }
}
