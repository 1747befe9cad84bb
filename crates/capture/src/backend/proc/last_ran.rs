//! When a thread that is off its CPU left it, by the scheduler's own clock.
//!
//! `/proc/PID/task/TID/sched` shows when a thread's computing was last booked. For a thread off its CPU that is when
//! it left. The clock is that of the thread's CPU, so only differences on one CPU mean anything. Reading it takes
//! some 25 µs (2 virtual CPUs, Linux 6.18). Kernels without scheduler statistics do not have the file.

/// When a thread left its CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastRan {
    /// On the clock of its CPU, ns.
    pub at_ns: u64,
    /// How often it had changed its CPU by then.
    pub migrations: u64,
}

impl LastRan {
    /// Parses the file; `None` where it does not tell.
    pub fn parse(text: &str) -> Option<LastRan> {
        let value = |key: &str| {
            let line = text.lines().find(|l| l.starts_with(key))?;
            Some(line.rsplit_once(':')?.1.trim())
        };
        // Milliseconds with six digits behind the point.
        let (ms, ns) = value("se.exec_start")?.split_once('.')?;
        let ns: u64 = ns.parse().ok().filter(|_| ns.len() == 6)?;
        Some(LastRan {
            at_ns: ms
                .parse::<u64>()
                .ok()?
                .checked_mul(1_000_000)?
                .checked_add(ns)?,
            migrations: value("se.nr_migrations")?.parse().ok()?,
        })
    }

    /// Time from an earlier departure to this one, ns; `None`: they are of different CPUs.
    pub fn since(self, earlier: LastRan) -> Option<u64> {
        let same = self.migrations == earlier.migrations;
        same.then(|| self.at_ns.checked_sub(earlier.at_ns))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "cat (19584, #threads: 1)\n---\n\
        se.exec_start                                :      43244596.269788\n\
        se.vruntime                                  :        797080.733117\n\
        se.nr_migrations                             :                    1\n";

    #[test]
    fn departures_of_one_cpu_are_comparable() {
        let first = LastRan::parse(TEXT).expect("it tells");
        assert_eq!((first.at_ns, first.migrations), (43_244_596_269_788, 1));
        let later = LastRan {
            at_ns: first.at_ns + 5,
            ..first
        };
        assert_eq!((later.since(first), first.since(later)), (Some(5), None));
        let moved = LastRan {
            migrations: 2,
            ..later
        };
        assert_eq!(moved.since(first), None);
        for end in 0..TEXT.len() - 1 {
            let _ = LastRan::parse(&TEXT[..end]);
        }
        assert_eq!(LastRan::parse("se.exec_start : 7\n"), None);
    }

    #[test]
    fn our_own_file_is_understood_where_there_is_one() {
        if let Ok(text) = std::fs::read_to_string("/proc/self/sched") {
            assert!(LastRan::parse(&text).is_some(), "{text}");
        }
    }
}
