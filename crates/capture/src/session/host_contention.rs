//! Who else used the CPUs: of all processes of the machine, how much each computed between two looks.
//!
//! Processes that came and went between are not seen, nor is anything where `/proc` shows only one's own.

use rustc_hash::FxHashMap;
use wallscope_model::Neighbour;
use wallscope_procfs::process::{self, Stat};

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
        weigh(&mut all, targets, process::session_group);
        all
    }
}

/// Where sessions are scheduled as groups (`group_of`), nice values count among processes of one session only, and
/// between sessions those of the groups.
fn weigh(all: &mut [Neighbour], targets: &[u32], group_of: impl Fn(u32) -> Option<(u64, i32)>) {
    let groups: Vec<Option<(u64, i32)>> = all.iter().map(|n| group_of(n.pid)).collect();
    let sides: Vec<(bool, Option<u64>)> = (all.iter().zip(&groups))
        .map(|(n, group)| (targets.contains(&n.pid), group.map(|(id, _)| id)))
        .collect();
    for ((n, group), (is_target, id)) in all.iter_mut().zip(&groups).zip(&sides) {
        let shared = sides
            .iter()
            .any(|(other, of)| other != is_target && of == id);
        if let Some((_, nice)) = group.filter(|_| !shared) {
            n.nice = nice;
        }
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
    fn nice_values_count_among_processes_of_one_session() {
        let all = [(1, 19), (2, -5), (3, -5), (4, -5)].map(|(pid, nice)| Neighbour {
            pid,
            nice,
            ..Neighbour::default()
        });
        // 2 is of the target's session, 3 of another, 4 of none.
        let group = |pid| [None, Some((7, 0)), Some((7, 0)), Some((8, 3)), None][pid as usize];
        let nice = |group: &dyn Fn(u32) -> Option<(u64, i32)>| {
            let mut all = all.to_vec();
            weigh(&mut all, &[1], group);
            all.iter().map(|n| n.nice).collect::<Vec<_>>()
        };
        assert_eq!(nice(&group), [19, -5, 3, -5]);
        // Alone in its session.
        assert_eq!(nice(&|pid| (pid == 1).then_some((9, 0))), [0, -5, -5, -5]);
    }

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
