//! CPU time of children that came and went between two polls.

use std::collections::BTreeMap;

use wallscope_observe::ProcessClocks;

use super::tracked_process::TICK;

/// CPU time of children that came and went unseen, ns, by the process that waited for them. It is a
/// lower bound, since the kernel tells it in ticks. `on_cpu`: the seen CPU time of each process.
pub fn unseen_children(
    processes: &BTreeMap<u32, ProcessClocks>,
    on_cpu: &BTreeMap<u32, u64>,
) -> BTreeMap<u32, u64> {
    let mut ended: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for p in processes.values().filter(|p| p.ended) {
        ended.entry(p.parent).or_default().push(p.pid);
    }
    let families = Families {
        processes,
        ended,
        on_cpu,
    };
    // The first process waits for orphans of any process, and their parents are not known.
    let waiting = processes.values().filter(|p| p.pid != 1);
    waiting
        .map(|p| {
            let grown = p.reaped_ns[1].saturating_sub(p.reaped_ns[0]);
            let rest = grown.saturating_sub(families.seen_ns(p.pid, 0));
            (p.pid, rest.saturating_sub(2 * TICK))
        })
        .filter(|(_, ns)| *ns > 0)
        .collect()
}

struct Families<'a> {
    processes: &'a BTreeMap<u32, ProcessClocks>,
    /// Processes that have ended, by their parent.
    ended: BTreeMap<u32, Vec<u32>>,
    on_cpu: &'a BTreeMap<u32, u64>,
}

impl Families<'_> {
    /// CPU time of the children of `pid` that have ended, as far as it was seen, and of theirs, ns.
    fn seen_ns(&self, pid: u32, depth: u32) -> u64 {
        // Ids that are used again could make a cycle.
        const MAX_DEPTH: u32 = 32;
        let children = self.ended.get(&pid).filter(|_| depth < MAX_DEPTH);
        let whole = |child: &u32| {
            let Some(p) = self.processes.get(child) else {
                return 0;
            };
            let seen = self.on_cpu.get(child).copied().unwrap_or(0);
            let own = p.cpu_ns[1].max(p.cpu_ns[0].saturating_add(seen));
            let reaped = p.reaped_ns[1].max(self.seen_ns(*child, depth + 1));
            own.saturating_add(p.before_ns).saturating_add(reaped)
        };
        let all = children.into_iter().flatten().map(whole);
        all.fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::proc::{target_tracker::TargetTracker, tracked_process::TrackedProcess};

    /// CPU time of all children of this process that were waited for, ns.
    fn own_children() -> u64 {
        // SAFETY: all bytes zero are a value of it, and it is filled in.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage);
            usage
        };
        let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
        ns(usage.ru_utime) + ns(usage.ru_stime)
    }

    #[test]
    fn unseen_children_count_for_the_process_that_waited_for_them() {
        let own = std::process::id();
        let mut tracker = TargetTracker::new(100);
        // Other tests have children too, so only bounds are known: readings of all children around the tracker's own.
        let first = own_children();
        assert!(tracker.process(own, None, 1));
        let second = own_children();
        let loops = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let status = std::process::Command::new("sh")
            .args(["-c", loops])
            .status();
        assert!(status.expect("sh").success());
        let third = own_children();
        tracker.read_clocks();
        let fourth = own_children();
        let clocks = |(pid, p): (&u32, &TrackedProcess)| (*pid, p.clocks(*pid));
        let all = tracker.processes.iter().map(clocks).collect();
        let unseen = unseen_children(&all, &BTreeMap::new());
        let unseen = unseen.get(&own).copied().unwrap_or(0);
        let most = fourth - first;
        let least = (third - second).saturating_sub(5 * TICK);
        assert!(least > 0, "the loop took {} ns", third - second);
        assert!((least..=most).contains(&unseen), "{least} {unseen} {most}");
    }
}
