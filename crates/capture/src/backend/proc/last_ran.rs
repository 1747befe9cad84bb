//! When a thread that is off its CPU left it, by the scheduler's own clock.
//!
//! `/proc/PID/task/TID/sched` shows when a thread's computing was last booked. For a thread off its CPU that is when
//! it left. The clock is that of the thread's CPU, so only differences on one CPU mean anything. Reading it takes
//! some 25 µs (2 virtual CPUs, Linux 6.18). Kernels without scheduler statistics do not have the file.

use wallscope_observe::CpuDeparture;

/// Parses the file; `None` where it does not tell.
pub fn parse(text: &str) -> Option<CpuDeparture> {
    let value = |key: &str| {
        let line = text.lines().find(|l| l.starts_with(key))?;
        Some(line.rsplit_once(':')?.1.trim())
    };
    // Milliseconds with six digits behind the point.
    let (ms, ns) = value("se.exec_start")?.split_once('.')?;
    let ns: u64 = ns.parse().ok().filter(|_| ns.len() == 6)?;
    Some(CpuDeparture {
        at_ns: ms
            .parse::<u64>()
            .ok()?
            .checked_mul(1_000_000)?
            .checked_add(ns)?,
        migrations: value("se.nr_migrations")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{super::stop_judgement::between, *};

    const TEXT: &str = "cat (19584, #threads: 1)\n---\n\
        se.exec_start                                :      43244596.269788\n\
        se.vruntime                                  :        797080.733117\n\
        se.nr_migrations                             :                    1\n";

    #[test]
    fn departures_of_one_cpu_are_comparable() {
        let first = parse(TEXT).expect("it tells");
        assert_eq!((first.at_ns, first.migrations), (43_244_596_269_788, 1));
        let later = CpuDeparture {
            at_ns: first.at_ns + 5,
            ..first
        };
        assert_eq!(
            (between(first, later), between(later, first)),
            (Some(5), None)
        );
        let moved = CpuDeparture {
            migrations: 2,
            ..later
        };
        assert_eq!(between(first, moved), None);
        for end in 0..TEXT.len() - 1 {
            let _ = parse(&TEXT[..end]);
        }
        assert_eq!(parse("se.exec_start : 7\n"), None);
    }

    #[test]
    fn our_own_file_is_understood_where_there_is_one() {
        if let Ok(text) = std::fs::read_to_string("/proc/self/sched") {
            assert!(parse(&text).is_some(), "{text}");
        }
    }
}
