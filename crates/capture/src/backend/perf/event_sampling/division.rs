//! How often an event happened to each of the threads that share a counter.
//!
//! A descriptor counts the hits of its thread and of all threads that inherited it. The kernel reports
//! the hits of an heir when the heir ends (some kernels from Linux 5.13 on do not). The rest belongs to
//! the threads that live or were never reported. A single such thread gets all of it; several share it in
//! proportion to their samples. A sample stands for the hits between it and the one before on its own event.

use rustc_hash::FxHashMap;
use wallscope_model::{ContextId, EventHits};

use super::{EventSampler, counter::Counter};
use crate::{
    counter::Source,
    session::{build::Stacks, naming::CodeNames},
};

/// Events at which stacks were taken, and the threads that share their counters.
pub struct EventFamilies {
    /// The events.
    pub sampler: EventSampler,
    /// The thread that each one inherited its counters from, in the order of the recording's contexts;
    /// `None`: it has its own.
    pub heirs: Vec<Option<usize>>,
}

impl EventFamilies {
    /// Number of each event by thread, with the stacks.
    pub fn finish(mut self, stacks: &mut Stacks, names: &dyn CodeNames) -> Vec<EventHits> {
        let mut families: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (index, heir_of) in self.heirs.iter().enumerate() {
            families
                .entry(heir_of.unwrap_or(index))
                .or_default()
                .push(index);
        }
        let events = self.sampler.events.iter_mut().map(|event| {
            let mut hits: Vec<(ContextId, u64)> = Vec::new();
            for (index, counters) in &event.counters {
                let own = [*index];
                let family = families.get(index).map_or(&own[..], Vec::as_slice);
                let members: Vec<Member> = (family.iter())
                    .map(|t| match event.told.get(t) {
                        Some(hits) => Member::Told(*hits),
                        None => Member::Sampled(event.sampled.get(t).copied().unwrap_or(0)),
                    })
                    .collect();
                let parts = divide(counters.iter().map(Counter::hits).sum(), &members);
                let rows = family.iter().zip(parts).filter(|(_, n)| *n > 0);
                hits.extend(rows.map(|(t, n)| (ContextId(*t as u32), n)));
            }
            hits.sort_unstable();
            EventHits {
                name: event.spec.name.clone(),
                counted: event.spec.source != Source::Hardware,
                hits,
                samples: event.samples.finish(stacks, names).0,
            }
        });
        events.collect()
    }
}

/// The known figures of one thread that shares a counter.
enum Member {
    /// Its hits, by the kernel.
    Told(u64),
    /// The hits that its samples stand for.
    Sampled(u64),
}

/// Divides `sum` among `members` without a remainder. If no member has samples, the first member without
/// a figure from the kernel gets all that the kernel did not report.
fn divide(sum: u64, members: &[Member]) -> Vec<u64> {
    let told = members.iter().map(|m| match m {
        Member::Told(hits) => *hits,
        Member::Sampled(_) => 0,
    });
    let rest = sum.saturating_sub(told.sum());
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
