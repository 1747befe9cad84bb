//! Competition for the CPUs: how much CPU time each process of the machine used between two polls.
//!
//! Processes that began and ended between the polls are not seen. Nor are processes that `/proc` hides from
//! us.

use rustc_hash::FxHashMap;
use wallscope_model::Neighbour;
use wallscope_procfs::process::{self, Stat};

/// With more processes than these, none is polled: it would take too long.
const MAX_POLLED: usize = 4096;
/// Most processes that are kept beside the targets.
const MAX_PROCESSES: usize = 8;
/// Smallest share of the time between the polls for which a process counts as competition.
const MIN_SHARE: f64 = 0.01;
/// Length of a tick of [`Stat`], ns.
const NS_PER_TICK: u64 = 10_000_000;

/// The first poll.
pub(crate) struct HostContention {
    /// Ticks so far, by process and its start time.
    before: FxHashMap<(u32, u64), u64>,
    at_ns: u64,
}

impl HostContention {
    /// Polls the first time, at `now` ns.
    pub fn begin(now: u64) -> HostContention {
        let ticks = |s: Stat| ((s.pid, s.start_ticks), s.user_ticks + s.system_ticks);
        HostContention {
            before: process_stats().map(ticks).collect(),
            at_ns: now,
        }
    }

    /// Polls again. Returns the processes that used most CPU time meanwhile, most first, and all of
    /// `targets`.
    pub fn end(&self, now: u64, targets: &[u32]) -> Vec<Neighbour> {
        let window = now.saturating_sub(self.at_ns);
        let grown = |s: Stat| {
            // A process that was not there before has used all of its CPU time since.
            let before = self.before.get(&(s.pid, s.start_ticks)).copied();
            let ticks = (s.user_ticks + s.system_ticks).saturating_sub(before.unwrap_or(0));
            let ns = ticks * NS_PER_TICK;
            let counts = ns as f64 >= MIN_SHARE * window as f64 || targets.contains(&s.pid);
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
            false => process_stats().filter_map(grown).collect(),
        };
        all.sort_by_key(|n| (std::cmp::Reverse(n.cpu_ns), n.pid));
        let mut others = 0;
        all.retain(|n| {
            others += usize::from(!targets.contains(&n.pid));
            others <= MAX_PROCESSES || targets.contains(&n.pid)
        });
        weigh(&mut all, targets, process::session_group);
        all
    }
}

/// Takes the group's nice value for a process that shares its group with no process of the other side
/// (targets, and the rest). Where sessions are scheduled as groups (`group_of`), a process's own nice value
/// counts only within its session.
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

fn process_stats() -> impl Iterator<Item = Stat> {
    let mut all = process::processes().unwrap_or_default();
    if all.len() > MAX_POLLED {
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
        let first = HostContention::begin(now(since));
        // A tick is 10 ms: use the CPU until some are counted.
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
