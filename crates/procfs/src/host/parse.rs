//! Parsers of the texts that [`super::HostReader`] reads.

use wallscope_model::{DiskFacts, NetFacts, Pressure};

/// `/proc/loadavg`: the three averages.
pub(super) fn load(text: &str) -> Option<[f64; 3]> {
    let mut fields = text.split_ascii_whitespace().map(|f| f.parse().ok());
    Some([fields.next()??, fields.next()??, fields.next()??])
}

/// Maximum number of CPUs: numbers come from the text, and no machine has more.
const MAX_CPUS: usize = 8192;

/// The used parts of `/proc/stat`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Stat {
    /// user, nice, system, idle, iowait, irq, softirq, steal; clock ticks.
    pub cpu_ticks: Option<[u64; 8]>,
    /// Clock ticks that each CPU was busy, by its number.
    pub busy_ticks: Vec<u64>,
    pub switches: Option<u64>,
    pub running: Option<u64>,
}

/// `/proc/stat`.
pub(super) fn stat(text: &str) -> Stat {
    let mut stat = Stat::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(' ') else {
            continue;
        };
        match key {
            "cpu" => stat.cpu_ticks = ticks(value),
            "ctxt" => stat.switches = value.trim().parse().ok(),
            "procs_running" => stat.running = value.trim().parse().ok(),
            _ => {
                let cpu = key
                    .strip_prefix("cpu")
                    .and_then(|n| n.parse::<usize>().ok());
                if let (Some(cpu), Some(ticks)) = (cpu.filter(|c| *c < MAX_CPUS), ticks(value)) {
                    if stat.busy_ticks.len() <= cpu {
                        stat.busy_ticks.resize(cpu + 1, 0);
                    }
                    // All but idle and waiting for I/O.
                    let [user, nice, system, _, _, irq, softirq, steal] = ticks;
                    stat.busy_ticks[cpu] = user + nice + system + irq + softirq + steal;
                }
            }
        }
    }
    stat
}

fn ticks(text: &str) -> Option<[u64; 8]> {
    let mut ticks = [0; 8];
    let mut fields = text.split_ascii_whitespace();
    for (i, tick) in ticks.iter_mut().enumerate() {
        match fields.next() {
            Some(field) => *tick = field.parse().ok()?,
            // Kernels before 2.6.11 had no steal column: it is zero, the others must be there.
            None if i == 7 => {}
            None => return None,
        }
    }
    Some(ticks)
}

/// `/proc/pressure/*`; `full` is missing for the CPU on some kernels and then zero.
pub(super) fn pressure(text: &str) -> Option<Pressure> {
    let line = |kind: &str| -> Option<(f64, u64)> {
        let fields = text.lines().find_map(|l| l.strip_prefix(kind))?;
        let field = |key: &str| fields.split(' ').find_map(|f| f.strip_prefix(key));
        Some((
            field("avg10=")?.parse().ok()?,
            field("total=")?.trim().parse().ok()?,
        ))
    };
    let (some_avg10, some_total_us) = line("some ")?;
    let (full_avg10, full_total_us) = line("full ").unwrap_or_default();
    Some(Pressure {
        some_avg10,
        some_total_us,
        full_avg10,
        full_total_us,
    })
}

/// `/proc/meminfo`: total, available, swap total, swap free; bytes.
pub(super) fn memory(text: &str) -> Option<[u64; 4]> {
    let mut values = [None; 4];
    for line in text.lines() {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let slot = match key {
            "MemTotal" => 0,
            "MemAvailable" => 1,
            "SwapTotal" => 2,
            "SwapFree" => 3,
            _ => continue,
        };
        let kib: Option<u64> = value.trim().trim_end_matches(" kB").parse().ok();
        values[slot] = kib.and_then(|k| k.checked_mul(1024));
    }
    Some([
        values[0]?,
        values[1]?,
        values[2].unwrap_or(0),
        values[3].unwrap_or(0),
    ])
}

/// `/proc/vmstat`: major faults since boot.
pub(super) fn major_faults(text: &str) -> Option<u64> {
    text.lines()
        .find_map(|l| l.strip_prefix("pgmajfault "))?
        .trim()
        .parse()
        .ok()
}

/// A line of `/proc/diskstats`.
pub(super) fn disk(line: &str) -> Option<DiskFacts> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |n: usize| fields.get(n)?.parse::<u64>().ok();
    // Sectors here are 512 bytes, whatever the device's own are.
    Some(DiskFacts {
        name: (*fields.get(2)?).to_owned(),
        reads: number(3)?,
        read_bytes: number(5)?.saturating_mul(512),
        writes: number(7)?,
        written_bytes: number(9)?.saturating_mul(512),
        in_flight: number(11)?,
        busy_ms: number(12)?,
    })
}

/// `/proc/net/sockstat`; the counters of other files stay zero.
pub(super) fn sockets(text: &str) -> Option<NetFacts> {
    let value = |protocol: &str, key: &str| -> Option<u64> {
        let line = text.lines().find_map(|l| l.strip_prefix(protocol))?;
        let mut words = line.split_ascii_whitespace();
        words.find(|w| *w == key)?;
        words.next()?.parse().ok()
    };
    Some(NetFacts {
        tcp_in_use: value("TCP:", "inuse")?,
        tcp_time_wait: value("TCP:", "tw")?,
        udp_in_use: value("UDP:", "inuse").unwrap_or(0),
        ..NetFacts::default()
    })
}

/// `/proc/net/snmp` and `netstat`: a line of names and below it one of values, with one prefix.
pub(super) fn paired<const N: usize>(
    text: &str,
    prefix: &str,
    keys: [&str; N],
) -> [Option<u64>; N] {
    let mut lines = text.lines().filter_map(|l| l.strip_prefix(prefix));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return [None; N];
    };
    keys.map(|key| {
        let at = names.split_ascii_whitespace().position(|n| n == key)?;
        values.split_ascii_whitespace().nth(at)?.parse().ok()
    })
}

/// The used parts of a cgroup's `cpu.stat`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CpuStat {
    pub periods: Option<u64>,
    pub throttled: Option<u64>,
    pub throttled_ns: Option<u64>,
}

/// `cpu.stat` of version 1 (`throttled_time`, ns) and 2 (`throttled_usec`).
pub(super) fn cpu_stat(text: &str) -> CpuStat {
    let mut stat = CpuStat::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once(' ') else {
            continue;
        };
        let value: Option<u64> = value.trim().parse().ok();
        match key {
            "nr_periods" => stat.periods = value,
            "nr_throttled" => stat.throttled = value,
            "throttled_time" => stat.throttled_ns = value,
            "throttled_usec" => stat.throttled_ns = value.and_then(|v| v.checked_mul(1000)),
            _ => {}
        }
    }
    stat
}

/// `cpu.max` of version 2: quota (`None`: unlimited) and period, µs.
pub(super) fn cpu_max(text: &str) -> (Option<u64>, Option<u64>) {
    let mut fields = text.split_ascii_whitespace().map(|f| f.parse().ok());
    (fields.next().flatten(), fields.next().flatten())
}

/// A memory limit; `None` for `max` and for version 1's huge stand-in for it.
pub(super) fn byte_limit(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|b| *b < 1 << 62)
}

/// How often a group's use of memory met its limit: `memory.failcnt` of version 1, `max` in
/// `memory.events` of version 2.
pub(super) fn limit_hits(text: &str) -> Option<u64> {
    let alone = text.trim().parse().ok();
    alone.or_else(|| {
        let line = text.lines().find_map(|l| l.strip_prefix("max "))?;
        line.trim().parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_counters() {
        let s = stat("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 1 1 1\nctxt 99\nprocs_running 3\n");
        assert_eq!(s.cpu_ticks, Some([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!((s.switches, s.running), (Some(99), Some(3)));
        assert!(s.busy_ticks.is_empty());
        let s = stat("cpu  1 2 3 4 5 6 7 8\ncpu0 1 1 1 9 9 1 1 1\ncpu2 5 0 0 9 9 0 0 0\n");
        assert_eq!(s.busy_ticks, [6, 0, 5]);
        assert_eq!(stat("cpu  1 2 x\nctxt\n"), Stat::default());
        assert_eq!(load("0.64 0.38 0.20 1/87 8823\n"), Some([0.64, 0.38, 0.2]));
        assert_eq!(load("0.64 0.38"), None);
    }

    #[test]
    fn stalls() {
        let p = pressure(
            "some avg10=3.31 avg60=2.60 avg300=1.40 total=18277911\n\
             full avg10=0.50 avg60=0.00 avg300=0.00 total=12\n",
        );
        assert_eq!(
            p,
            Some(Pressure {
                some_avg10: 3.31,
                some_total_us: 18_277_911,
                full_avg10: 0.5,
                full_total_us: 12
            })
        );
        let only_some = pressure("some avg10=1.00 avg60=0.00 avg300=0.00 total=5\n").unwrap();
        assert_eq!(only_some.full_total_us, 0);
        assert_eq!(pressure(""), None);
    }

    #[test]
    fn memory_and_disks() {
        assert_eq!(
            memory(
                "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:  50 kB\nSwapTotal: 7 kB\nSwapFree: 3 kB\n"
            ),
            Some([102_400, 51_200, 7168, 3072])
        );
        assert_eq!(memory("MemTotal: 100 kB\n"), None);
        assert_eq!(major_faults("pgfault 9\npgmajfault 42\n"), Some(42));
        let d = disk(
            " 254 0 vda 124086 33116 7284722 84510 39179 24178 3848152 12173 2 53612 97974 9597",
        )
        .unwrap();
        assert_eq!(
            (d.name.as_str(), d.reads, d.writes),
            ("vda", 124_086, 39_179)
        );
        assert_eq!(
            (d.read_bytes, d.written_bytes),
            (7_284_722 * 512, 3_848_152 * 512)
        );
        assert_eq!((d.in_flight, d.busy_ms), (2, 53_612));
        assert_eq!(disk("254 0 vda 1 2"), None);
    }

    #[test]
    fn network_counters() {
        let n = sockets("sockets: used 13\nTCP: inuse 5 orphan 0 tw 4 alloc 1 mem 3\nUDP: inuse 2 mem 0\nUDPLITE: inuse 9\n")
            .unwrap();
        assert_eq!((n.tcp_in_use, n.tcp_time_wait, n.udp_in_use), (5, 4, 2));
        let text = "Ip: A B\nIp: 1 2\nTcp: X RetransSegs Y\nTcp: -1 17 3\n";
        assert_eq!(
            paired(text, "Tcp:", ["RetransSegs", "Nope"]),
            [Some(17), None]
        );
        assert_eq!(paired(text, "Udp:", ["X"]), [None]);
    }

    #[test]
    fn group_limits() {
        let v1 = cpu_stat("nr_periods 5\nnr_throttled 2\nthrottled_time 777\n");
        assert_eq!(
            (v1.periods, v1.throttled, v1.throttled_ns),
            (Some(5), Some(2), Some(777))
        );
        assert_eq!(cpu_stat("throttled_usec 3\n").throttled_ns, Some(3000));
        assert_eq!(cpu_max("max 100000\n"), (None, Some(100_000)));
        assert_eq!(cpu_max("20000 100000\n"), (Some(20_000), Some(100_000)));
        assert_eq!(byte_limit("max\n"), None);
        assert_eq!(byte_limit("9223372036854771712\n"), None);
        assert_eq!(byte_limit("4096\n"), Some(4096));
        assert_eq!(limit_hits("17\n"), Some(17));
        assert_eq!(limit_hits("low 0\nhigh 3\nmax 9\noom 1\n"), Some(9));
    }
}
