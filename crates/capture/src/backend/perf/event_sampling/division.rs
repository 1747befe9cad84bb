//! How often an event happened to each of the threads that share a counter.
//!
//! A descriptor counts the occurrences in its thread and in all threads that inherited it. The kernel reports the
//! count of an heir when the heir ends (some kernels from Linux 5.13 on do not). The rest belongs to the threads
//! that live or were never reported. A single such thread gets all of it; several share it in proportion to their
//! samples. A sample stands for the occurrences since the sample before on its own event.

use std::collections::BTreeMap;

use wallscope_model::{ContextId, EventHits, Part, Slices, State, WaitSeen};
use wallscope_observe::{CountedEvent, EventStack};

use crate::{
    backend::proc::samples::{PollSample, Samples, Sums, Weight},
    session::{build::Stacks, naming::CodeNames},
};

/// An event at which stacks were taken.
struct CountedStacks {
    event: CountedEvent,
    /// Counts of the counters that were opened for a thread, by thread.
    counters: BTreeMap<u32, u64>,
    /// Occurrences that the samples stand for, by thread.
    sampled: BTreeMap<u32, u64>,
    /// Counts of ended threads as the kernel reported them, by thread.
    told: BTreeMap<u32, u64>,
    sums: Sums,
}

/// Events at which stacks were taken, and the threads that share their counters.
#[derive(Default)]
pub struct EventFamilies {
    events: Vec<CountedStacks>,
    /// The thread that another one inherited its counters from, by the latter.
    heirs: BTreeMap<u32, u32>,
}

impl EventFamilies {
    /// Stacks are taken at another event.
    pub fn begin(&mut self, event: &CountedEvent) {
        self.events.push(CountedStacks {
            event: event.clone(),
            counters: BTreeMap::new(),
            sampled: BTreeMap::new(),
            told: BTreeMap::new(),
            sums: Sums::default(),
        });
    }

    /// Takes a stack at an event. `None`: there is no such event.
    pub fn take(&mut self, grid: Slices, s: &EventStack) -> Option<()> {
        let event = self.events.get_mut(s.event as usize)?;
        let sampled = event.sampled.entry(s.thread).or_default();
        *sampled = sampled.saturating_add(s.hits);
        event.sums.add(
            grid,
            &PollSample {
                thread: s.thread,
                stack: s.stack,
                state: State::OnCpu,
                reason: None,
                part: Some(match s.user_mode {
                    true => Part::User,
                    false => Part::Kernel,
                }),
                begin: s.time,
                end: s.time,
                ns: s.hits,
                weight: Weight::Own,
                seen: WaitSeen::default(),
            },
        );
        Some(())
    }

    /// The kernel reported the count of a thread that ended. `None`: there is no such event.
    pub fn told(&mut self, event: u32, thread: u32, hits: u64) -> Option<()> {
        let event = self.events.get_mut(event as usize)?;
        let told = event.told.entry(thread).or_default();
        *told = told.saturating_add(hits);
        Some(())
    }

    /// The counters that were opened for a thread stand at `hits`. `None`: there is no such event.
    pub fn counted(&mut self, event: u32, thread: u32, hits: u64) -> Option<()> {
        let event = self.events.get_mut(event as usize)?;
        event.counters.insert(thread, hits);
        Some(())
    }

    /// A thread inherited the counters of another one.
    pub fn inherits(&mut self, thread: u32, of: u32) {
        self.heirs.insert(thread, of);
    }

    /// Rows by slice.
    pub fn rows(&self) -> usize {
        self.events.iter().map(|event| event.sums.rows()).sum()
    }

    /// The slices are twice as wide from here on.
    pub fn coarsen(&mut self) {
        self.events.iter_mut().for_each(|e| e.sums.coarsen());
    }

    /// Number of each event by thread, with the stacks, which are those of `samples`. Threads are numbered from 0 to
    /// `threads`.
    pub fn finish(
        self,
        threads: u32,
        samples: &Samples,
        stacks: &mut Stacks,
        names: &dyn CodeNames,
    ) -> Vec<EventHits> {
        let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for thread in 0..threads {
            let root = self.heirs.get(&thread).copied().unwrap_or(thread);
            families.entry(root).or_default().push(thread);
        }
        let events = self.events.into_iter().map(|e| EventHits {
            hits: e.divided(&families),
            name: e.event.name,
            counted: e.event.counted,
            samples: samples.samples_of(e.sums, stacks, names).0,
        });
        events.collect()
    }
}

impl CountedStacks {
    /// Occurrences by thread. `families`: the threads that share the counters of each.
    fn divided(&self, families: &BTreeMap<u32, Vec<u32>>) -> Vec<(ContextId, u64)> {
        let mut hits: Vec<(ContextId, u64)> = Vec::new();
        for (thread, counted) in &self.counters {
            let family = families.get(thread).map_or(&[][..], Vec::as_slice);
            let member = |t: &u32| match self.told.get(t) {
                Some(hits) => Member::Told(*hits),
                None => Member::Sampled(self.sampled.get(t).copied().unwrap_or(0)),
            };
            let members: Vec<Member> = family.iter().map(member).collect();
            let rows = family.iter().zip(divide(*counted, &members));
            let rows = rows.filter(|(_, n)| *n > 0);
            hits.extend(rows.map(|(t, n)| (ContextId(*t), n)));
        }
        hits.sort_unstable();
        hits
    }
}

/// The known figures of one thread that shares a counter.
enum Member {
    /// Its count as the kernel reported it.
    Told(u64),
    /// The occurrences that its samples stand for.
    Sampled(u64),
}

/// Divides `sum` among `members` without a remainder. If no member has samples, the first member without
/// a figure from the kernel gets all that the kernel did not report.
fn divide(sum: u64, members: &[Member]) -> Vec<u64> {
    let told = members.iter().map(|m| match m {
        Member::Told(hits) => *hits,
        Member::Sampled(_) => 0,
    });
    let rest = sum.saturating_sub(told.fold(0, u64::saturating_add));
    let weights = members.iter().map(|m| match m {
        Member::Told(_) => 0,
        Member::Sampled(hits) => u128::from(*hits),
    });
    let all: u128 = weights.sum();
    let first = members.iter().position(|m| matches!(m, Member::Sampled(_)));
    let (mut upto, mut given) = (0u128, 0);
    let part = |(i, member): (usize, &Member)| {
        let weight = match member {
            Member::Told(hits) => return *hits,
            Member::Sampled(hits) => u128::from(*hits),
        };
        upto += weight;
        let end = match all {
            0 if Some(i) == first => rest,
            0 => given,
            _ => (u128::from(rest) * upto / all) as u64,
        };
        std::mem::replace(&mut given, end).abs_diff(end)
    };
    members.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::Member::{Sampled, Told};
    use super::*;

    #[test]
    fn a_sum_is_divided_by_samples_and_none_is_lost() {
        assert_eq!(divide(10, &[Sampled(1), Sampled(1), Sampled(1)]), [3, 3, 4]);
        assert_eq!(divide(7, &[Sampled(0), Sampled(0)]), [7, 0]);
        assert_eq!(divide(0, &[Sampled(5), Sampled(5)]), [0, 0]);
        let most = u64::MAX;
        assert_eq!(divide(most, &[Sampled(most), Sampled(0)]), [most, 0]);
    }

    #[test]
    fn what_the_kernel_tells_of_each_is_not_divided() {
        assert_eq!(divide(10, &[Told(4), Sampled(9), Told(1)]), [4, 5, 1]);
        assert_eq!(divide(10, &[Told(4), Sampled(0), Sampled(3)]), [4, 0, 6]);
        assert_eq!(divide(10, &[Told(4), Sampled(0), Sampled(0)]), [4, 6, 0]);
    }
}
