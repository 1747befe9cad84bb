//! CPU time that other programs lose because the kernel programs displace their lines in the caches.
//!
//! A program that finds its code and data in the caches takes a known time, measured where two threads do
//! nothing but switch, wake and send to each other. Beside a program with much code and data it takes longer, as
//! its lines have been displaced meanwhile. Each line that it then fetches displaces one of the other program,
//! which fetches it again later. So the others lose about as much as the programs take beyond the known time.
//!
//! The entry into a program and the exit from it are timed at the start, in a loop and so with full caches. They
//! slow down as the programs do, up to a limit.
//!
//! Where a CPU is idle for most of the time, its programs find their lines displaced with or without ours: each has
//! slept for long. So the loss on a CPU counts by the share of the time for which the CPU is busy.

/// Kinds of hooks, in the order of `bpf/maps.h`: sides of switches (the thread that leaves, the thread that comes),
/// wake-ups, messages, timers, events.
pub(super) const HOOKS: usize = 5;

/// Run time with full caches, ns, on a machine where entry and exit took [`ENTRY_NS`]. A switch of two measured
/// threads was measured; each side counts as half of it.
const FULL_CACHES_NS: [f64; HOOKS] = [185.0, 150.0, 225.0, 90.0, 80.0];

/// Entry into a program and exit from it on that machine, ns.
const ENTRY_NS: f64 = 90.0;

/// How much longer entry and exit take at most, as a share of their time with full caches. They use few lines, so that
/// they slow down less than programs that take stacks.
const MAX_ENTRY_SLOWDOWN: f64 = 2.0;

/// Shortest stretch for which a CPU's busy share is taken, ns: its clock goes in steps of some milliseconds.
const MIN_STRETCH_NS: u64 = 500_000_000;

/// The hooks that are met often, so far, on one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Met {
    /// Runs that had something to do, by kind of hook.
    pub worked: [u64; HOOKS],
    /// All runs.
    pub runs: u64,
    /// Run time, ns.
    pub run_ns: u64,
}

/// Share of a stretch for which a CPU was busy, 0..=1, from its clocks of busy time. `None`: the kernel does not say.
fn busy_share(before: Option<&u64>, now: Option<&u64>, stretch_ns: u64) -> f64 {
    match (before, now) {
        (Some(before), Some(now)) => {
            (now.saturating_sub(*before) as f64 / stretch_ns.max(1) as f64).min(1.0)
        }
        _ => 1.0,
    }
}

/// The counters of all CPUs at one time.
#[derive(Clone, Debug, Default)]
pub(super) struct Moment {
    /// Time, ns.
    pub time: u64,
    /// By CPU.
    pub met: Vec<Met>,
    /// Time for which each CPU was busy, ns.
    pub busy_ns: Vec<u64>,
}

/// Adds up the displaced time, stretch by stretch.
#[derive(Debug, Default)]
pub(super) struct DisplacedMeter {
    /// End of the last closed stretch.
    last: Moment,
    /// Displaced time in closed stretches, ns.
    sum_ns: u64,
}

impl DisplacedMeter {
    /// A meter that begins at `first`.
    pub fn new(first: Moment) -> DisplacedMeter {
        DisplacedMeter {
            last: first,
            sum_ns: 0,
        }
    }

    /// CPU time that other programs have lost up to `now`, ns. `entry_ns`: entry into a program and exit from it, as
    /// measured at the start.
    pub fn displaced_ns(&mut self, now: Moment, entry_ns: f64) -> u64 {
        let stretch_ns = now.time.saturating_sub(self.last.time);
        let none = Met::default();
        let of_cpu = |(cpu, met): (usize, &Met)| {
            let before = self.last.met.get(cpu).unwrap_or(&none);
            let busy = busy_share(self.last.busy_ns.get(cpu), now.busy_ns.get(cpu), stretch_ns);
            met.since(before).displaced_ns(entry_ns) as f64 * busy
        };
        let open = now.met.iter().enumerate().map(of_cpu).sum::<f64>() as u64;
        if stretch_ns < MIN_STRETCH_NS {
            return self.sum_ns + open;
        }
        (self.last, self.sum_ns) = (now, self.sum_ns + open);
        self.sum_ns
    }
}

impl Met {
    /// The growth since `before`.
    fn since(&self, before: &Met) -> Met {
        let worked = std::array::from_fn(|i| self.worked[i].saturating_sub(before.worked[i]));
        Met {
            worked,
            runs: self.runs.saturating_sub(before.runs),
            run_ns: self.run_ns.saturating_sub(before.run_ns),
        }
    }

    /// CPU time that other programs lose on a CPU that is always busy, ns.
    fn displaced_ns(&self, entry_ns: f64) -> u64 {
        let speed = entry_ns / ENTRY_NS;
        let known = self.worked.iter().zip(FULL_CACHES_NS);
        let full: f64 = known.map(|(runs, ns)| *runs as f64 * ns * speed).sum();
        if full <= 0.0 {
            return 0;
        }
        let beyond = (self.run_ns as f64 / full - 1.0).max(0.0);
        // Entries slow down too, but are not timed. Other programs lose as much by that, so the time counts twice.
        let entries = beyond.min(MAX_ENTRY_SLOWDOWN) * 2.0 * self.runs as f64 * entry_ns;
        (beyond * full + entries) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn met(switch_ns: f64) -> Met {
        Met {
            worked: [1000, 0, 0, 0, 0],
            runs: 1000,
            run_ns: (1000.0 * switch_ns) as u64,
        }
    }

    #[test]
    fn with_full_caches_others_lose_nothing() {
        assert_eq!(met(FULL_CACHES_NS[0]).displaced_ns(ENTRY_NS), 0);
        assert_eq!(met(FULL_CACHES_NS[0] / 2.0).displaced_ns(ENTRY_NS), 0);
        let none = Met {
            worked: [0; HOOKS],
            ..met(0.0)
        };
        assert_eq!(none.displaced_ns(ENTRY_NS), 0);
    }

    #[test]
    fn others_lose_the_excess_and_entries_are_as_slow() {
        let displaced = met(2.0 * FULL_CACHES_NS[0]).displaced_ns(ENTRY_NS);
        let of_runs = 1000.0 * FULL_CACHES_NS[0];
        let of_entries = 2.0 * 1000.0 * ENTRY_NS;
        assert_eq!(displaced, (of_runs + of_entries) as u64);
    }

    #[test]
    fn stacks_at_few_hooks_do_not_count_as_slow_entries() {
        // A computing program: few of the machine's switches are its own, and a stack is taken at each.
        let few = Met {
            worked: [10, 0, 0, 0, 0],
            runs: 1000,
            run_ns: (1000.0 * FULL_CACHES_NS[0]) as u64,
        };
        let of_runs = 990.0 * FULL_CACHES_NS[0];
        let of_entries = MAX_ENTRY_SLOWDOWN * 2.0 * 1000.0 * ENTRY_NS;
        assert_eq!(few.displaced_ns(ENTRY_NS), (of_runs + of_entries) as u64);
    }

    #[test]
    fn a_cpu_that_is_idle_loses_nothing() {
        let second = 1_000_000_000;
        let at = |time, switches: u64, busy_ns: Vec<u64>| Moment {
            time,
            met: vec![Met {
                worked: [switches, 0, 0, 0, 0],
                runs: switches,
                run_ns: (switches as f64 * 2.0 * FULL_CACHES_NS[0]) as u64,
            }],
            busy_ns,
        };
        let whole = met(2.0 * FULL_CACHES_NS[0]).displaced_ns(ENTRY_NS);
        let mut meter = DisplacedMeter::new(at(0, 0, vec![0]));
        // A stretch at a tenth, a stretch at the full, and one that has not been closed.
        assert_eq!(
            meter.displaced_ns(at(second, 1000, vec![second / 10]), ENTRY_NS),
            whole / 10
        );
        let now = at(2 * second, 2000, vec![second / 10 + second]);
        assert_eq!(meter.displaced_ns(now, ENTRY_NS), whole / 10 + whole);
        let soon = at(2 * second + 1000, 3000, vec![second / 10 + second]);
        assert_eq!(meter.displaced_ns(soon, ENTRY_NS), whole / 10 + whole);
        // A kernel that does not say it.
        let mut meter = DisplacedMeter::new(at(0, 0, Vec::new()));
        assert_eq!(
            meter.displaced_ns(at(second, 1000, Vec::new()), ENTRY_NS),
            whole
        );
    }

    #[test]
    fn a_slower_machine_has_slower_programs() {
        let slow = met(2.0 * FULL_CACHES_NS[0]);
        assert_eq!(slow.displaced_ns(2.0 * ENTRY_NS), 0);
    }
}
