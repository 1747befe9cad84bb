//! Run-queue latency after a wake-up, by the wait site that the thread is woken from.
//!
//! It differs by wake-up: a waiter that gets a lock from a thread that runs on waits for the CPU of that
//! thread; a thread woken by a timer mostly gets a CPU at once. Polls that saw runnable threads
//! ([`crate::backend::perf`], `known_wait_sites.rs`) tell how the time is divided. They are few, so the polls of all
//! threads are added up: threads woken at the same wait site have about the same latency.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::weight::{AS_MUCH, ENOUGH, Key, Known, Sum, Weight};

/// Wake-ups from one stack, as polls saw them.
#[derive(Clone, Copy, Debug, Default)]
struct WakeupPolls {
    /// Number of wake-ups, from the waits that were seen.
    wakeups: f64,
    /// Polls after them that saw the thread runnable.
    polls: u64,
    /// Time that those polls stand for, ns.
    ns: u64,
}

impl WakeupPolls {
    fn and(self, more: WakeupPolls) -> WakeupPolls {
        WakeupPolls {
            wakeups: self.wakeups + more.wakeups,
            polls: self.polls + more.polls,
            ns: self.ns.saturating_add(more.ns),
        }
    }
}

/// Wake-ups that polls of one punctuality saw, for all stacks.
#[derive(Clone, Debug, Default)]
pub struct SeenWakeups {
    by_stack: BTreeMap<u32, WakeupPolls>,
    /// Polls of runnable threads without a known wait site.
    unplaced: u64,
}

/// Wake-ups from all stacks, as polls saw them.
#[derive(Clone, Debug, Default)]
pub struct WakeupLatency {
    /// By polls in time.
    pub in_time: SeenWakeups,
    /// By late polls.
    pub late: SeenWakeups,
}

/// Run-queue latency after wake-ups from each stack, as a multiple of the mean.
#[derive(Debug, Default)]
pub struct RelativeLatency(BTreeMap<u32, f64>);

impl SeenWakeups {
    /// Adds a wait seen with `stack`, which stands for `waits` waits.
    pub fn woke(&mut self, stack: u32, waits: f64) {
        self.by_stack.entry(stack).or_default().wakeups += waits;
    }

    /// Adds a poll that stands for `ns` and saw a runnable thread, woken from that stack if it is known.
    pub fn queued(&mut self, stack: Option<u32>, ns: u64) {
        let Some(stack) = stack else {
            self.unplaced += 1;
            return;
        };
        let seen = self.by_stack.entry(stack).or_default();
        seen.polls += 1;
        seen.ns = seen.ns.saturating_add(ns);
    }
}

impl WakeupLatency {
    /// The relative latency of each stack. A stack with few polls is near the mean: it is counted with a few
    /// more polls of mean length.
    pub fn relative(&self) -> RelativeLatency {
        let mut seen = self.in_time.by_stack.clone();
        let mut unplaced = self.in_time.unplaced;
        if seen.values().map(|s| s.polls).sum::<u64>() < ENOUGH {
            // Late polls favour the thread that is woken just then, but are better than none.
            unplaced += self.late.unplaced;
            for (stack, late) in &self.late.by_stack {
                let all = seen.entry(*stack).or_default();
                *all = all.and(*late);
            }
        }
        let all = seen
            .values()
            .copied()
            .fold(WakeupPolls::default(), WakeupPolls::and);
        if all.polls == 0 || all.wakeups <= 0.0 {
            return RelativeLatency::default();
        }
        let (mean, poll) = (
            all.ns as f64 / all.wakeups,
            all.ns as f64 / all.polls as f64,
        );
        let more = AS_MUCH as f64 * poll;
        // Polls without a known wait site may belong to any.
        let placed = all.polls as f64 / (all.polls + unplaced) as f64;
        let length = |s: &WakeupPolls| (s.ns as f64 + more) / (s.wakeups * mean + more);
        let lengths = seen
            .iter()
            .map(|(stack, s)| (*stack, placed * length(s) + 1.0 - placed));
        RelativeLatency(lengths.collect())
    }
}

impl RelativeLatency {
    /// The multiple for wake-ups from this stack.
    pub fn of(&self, stack: u32) -> f64 {
        self.0.get(&stack).copied().unwrap_or(1.0)
    }
}

/// Divides the run-queue latency of a woken thread among its wake-ups, which are some of its keys. The weight
/// of a key is its number of wake-ups times the relative latency of one.
pub(super) fn divide_woken(
    own: &[Key],
    sums: &FxHashMap<Key, Sum>,
    known: Known<'_>,
    lengths: &RelativeLatency,
) -> FxHashMap<Key, u64> {
    let wakeups: Vec<(Key, u8, u64)> = (own.iter())
        .filter_map(|key| match key.5 {
            Weight::Wakeup { class } => Some((*key, class, sums.get(key).map_or(0, |sum| sum.ns))),
            _ => None,
        })
        .collect();
    let mut seen: BTreeMap<u8, u64> = BTreeMap::new();
    for (_, class, ns) in &wakeups {
        *seen.entry(*class).or_default() += ns;
    }
    let classes: Vec<u8> = seen.keys().copied().collect();
    let waits = known.waits.among(&classes);
    let weights = wakeups.iter().map(|(key, class, ns)| {
        let part = *ns as f64 / seen[class].max(1) as f64;
        waits.of(*class).count as f64 * part * lengths.of(key.1)
    });
    let weights: Vec<f64> = weights.collect();
    let all: f64 = weights.iter().sum();
    let each = |weight: f64| (known.woken as f64 * weight / all.max(1e-9)) as u64;
    let shares = wakeups.iter().zip(weights);
    shares
        .map(|((key, ..), weight)| (*key, each(weight)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock and a timer, each with 1000 wake-ups, and so many polls after those from the lock.
    fn lock_and_timer(polls: u64) -> SeenWakeups {
        let mut seen = SeenWakeups::default();
        for _ in 0..100 {
            seen.woke(1, 10.0);
            seen.woke(2, 10.0);
        }
        (0..polls).for_each(|_| seen.queued(Some(1), 1000));
        seen
    }

    fn in_time(polls: u64) -> WakeupLatency {
        WakeupLatency {
            in_time: lock_and_timer(polls),
            ..WakeupLatency::default()
        }
    }

    #[test]
    fn lengths_are_what_was_seen_as_far_as_that_goes() {
        let ratio = |q: &WakeupLatency| q.relative().of(1) / q.relative().of(2);
        assert!((ratio(&in_time(0)) - 1.0).abs() < 1e-9);
        let [few, many] = [4, 400].map(|polls| ratio(&in_time(polls)));
        assert!((1.5..5.0).contains(&few), "{few}");
        assert!(many > 90.0, "{many}");
        assert!((in_time(9).relative().of(3) - 1.0).abs() < 1e-9);
        // Polls without a known wait site make the ratio less certain: it comes nearer to 1.
        let mut unplaced = in_time(400);
        (0..1200).for_each(|_| unplaced.in_time.queued(None, 1000));
        let told = ratio(&unplaced);
        assert!((1.4..2.0).contains(&told), "{told}");
    }

    #[test]
    fn late_polls_count_where_there_are_no_others() {
        let mut q = WakeupLatency {
            late: lock_and_timer(400),
            ..WakeupLatency::default()
        };
        assert!(q.relative().of(1) > 1.9);
        for _ in 0..ENOUGH {
            q.in_time.woke(1, 1.0);
            q.in_time.woke(2, 1.0);
            q.in_time.queued(Some(2), 1000);
        }
        assert!(q.relative().of(1) < 0.5);
    }

    #[test]
    fn lengths_do_not_depend_on_which_stack_was_seen_first() {
        let lengths = |stacks: &mut dyn Iterator<Item = u32>| {
            let mut q = WakeupLatency::default();
            for n in stacks {
                q.in_time.woke(n, 1.0 / f64::from(n + 3));
                q.in_time.queued(Some(n), u64::from(n) + 1);
            }
            let lengths = q.relative();
            let bits = (0..1000).map(|n| lengths.of(n).to_bits());
            bits.collect::<Vec<_>>()
        };
        assert_eq!(lengths(&mut (0..1000)), lengths(&mut (0..1000).rev()));
    }
}
