//! Who else used the CPUs: of all processes of the machine, how much each computed between two looks.
//!
//! Processes that came and went between are not seen, nor is anything where `/proc` shows only one's own.

use rustc_hash::FxHashMap;
use wallscope_model::Neighbour;
use wallscope_object::process::{self, Stat};

/// More processes than these are not looked at: it would take too long.
const MOST_LOOKED_AT: usize = 4096;
/// So many are kept.
const MOST: usize = 8;
/// Who computed less of the time between the looks is nobody's trouble.
const LEAST: f64 = 0.01;
/// Of [`Stat`]'s ticks.
const NS_PER_TICK: u64 = 10_000_000;

/// The first look.
pub(crate) struct Neighbours {
    /// Ticks so far, by process and when that began.
    before: FxHashMap<(u32, u64), u64>,
    at_ns: u64,
}

impl Neighbours {
    /// Looks the first time, at `now` ns.
    pub fn begin(now: u64) -> Neighbours {
        let ticks = |s: Stat| ((s.pid, s.start_ticks), s.user_ticks + s.system_ticks);
        Neighbours {
            before: look().map(ticks).collect(),
            at_ns: now,
        }
    }

    /// Looks again: those that computed most meanwhile, most first, and those of `targets`.
    pub fn end(&self, now: u64, targets: &[u32]) -> Vec<Neighbour> {
        let window = now.saturating_sub(self.at_ns);
        let grown = |s: Stat| {
            // Who was not there before has computed all of it since.
            let before = self.before.get(&(s.pid, s.start_ticks)).copied();
            let ticks = (s.user_ticks + s.system_ticks).saturating_sub(before.unwrap_or(0));
            let ns = ticks * NS_PER_TICK;
            let counts = ns as f64 >= LEAST * window as f64 || targets.contains(&s.pid);
            counts.then(|| Neighbour {
                pid: s.pid,
                name: s.comm.clone(),
                cpu_ns: ns,
                cpu: s.cpu,
                nice: s.nice,
                policy: s.policy,
            })
        };
        let mut all: Vec<Neighbour> = match self.before.is_empty() {
            true => Vec::new(),
            false => look().filter_map(grown).collect(),
        };
        all.sort_by_key(|n| (std::cmp::Reverse(n.cpu_ns), n.pid));
        let mut others = 0;
        all.retain(|n| {
            others += usize::from(!targets.contains(&n.pid));
            others <= MOST || targets.contains(&n.pid)
        });
        all
    }
}

fn look() -> impl Iterator<Item = Stat> {
    let mut all = process::processes().unwrap_or_default();
    if all.len() > MOST_LOOKED_AT {
        all.clear();
    }
    all.into_iter().filter_map(|pid| process::stat(pid).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn who_computed_meanwhile_is_told() {
        let now = |since: Instant| since.elapsed().as_nanos() as u64;
        let since = Instant::now();
        let first = Neighbours::begin(now(since));
        // Ticks are of 10 ms: computes until the books have some.
        let own = || {
            let all = first.end(now(since).max(1), &[]).into_iter();
            all.map(|n| (n.pid, n.cpu_ns)).collect::<Vec<_>>()
        };
        let mut sum = 0u64;
        while since.elapsed() < Duration::from_secs(20)
            && !own()
                .iter()
                .any(|(pid, ns)| *pid == std::process::id() && *ns >= 50_000_000)
        {
            (0..1_000_000u64).for_each(|i| sum = std::hint::black_box(sum ^ i));
        }
        let own = own();
        assert!(
            own.iter().any(|(pid, _)| *pid == std::process::id()),
            "{own:?}"
        );
        assert!(
            own.is_sorted_by_key(|(_, ns)| std::cmp::Reverse(*ns)),
            "{own:?}"
        );
    }
}
