//! CPU time that other programs lose because the kernel programs displace their lines in the caches.
//!
//! A program that finds its code and data in the caches takes a known time, measured where two threads do
//! nothing but switch, wake and send to each other. Beside a program with much code and data it takes longer, as
//! its lines have been displaced meanwhile. Each line that it then fetches displaces one of the other program,
//! which fetches it again later. So the others lose about as much as the programs take beyond the known time.
//!
//! The entry into a program and the exit from it are timed at the start, in a loop and so with full caches. They
//! slow down as the programs do.

/// Kinds of hooks, in the order of `bpf/maps.h`: sides of switches (the thread that leaves, the thread that comes),
/// wake-ups, messages, timers, events.
pub(super) const HOOKS: usize = 5;

/// Run time with full caches, ns, on a machine where entry and exit took [`ENTRY_NS`]. A switch of two measured
/// threads was measured; each side counts as half of it.
const FULL_CACHES_NS: [f64; HOOKS] = [185.0, 150.0, 225.0, 90.0, 80.0];

/// Entry into a program and exit from it on that machine, ns.
const ENTRY_NS: f64 = 90.0;

/// The hooks that are met often, so far.
#[derive(Clone, Copy, Debug)]
pub(super) struct Met {
    /// Runs that had something to do, by kind of hook.
    pub worked: [u64; HOOKS],
    /// All runs.
    pub runs: u64,
    /// Run time, ns.
    pub run_ns: u64,
}

impl Met {
    /// CPU time that other programs lost, ns. `entry_ns`: entry into a program and exit from it, as measured at the
    /// start.
    pub fn displaced_ns(&self, entry_ns: f64) -> u64 {
        let speed = entry_ns / ENTRY_NS;
        let known = self.worked.iter().zip(FULL_CACHES_NS);
        let full: f64 = known.map(|(runs, ns)| *runs as f64 * ns * speed).sum();
        if full <= 0.0 {
            return 0;
        }
        let beyond = (self.run_ns as f64 / full - 1.0).max(0.0);
        // Entries slow down too, but are not timed. Other programs lose as much by that, so the time counts twice.
        (beyond * (full + 2.0 * self.runs as f64 * entry_ns)) as u64
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
    fn a_slower_machine_has_slower_programs() {
        let slow = met(2.0 * FULL_CACHES_NS[0]);
        assert_eq!(slow.displaced_ns(2.0 * ENTRY_NS), 0);
    }
}
