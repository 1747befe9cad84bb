//! CPU time of the benchmark and of all that runs for it: programs, clients, recorder, kernel. Context switches of
//! the machine.
//!
//! The CPU time is the time in which no CPU was idle, without the time that the host took, and without the time of
//! processes outside the benchmark's own cgroup, if it runs in one. Hooks that run on the way out of the idle
//! task are in it; the sum over processes would leave them out.

use std::fs;
use std::time::Instant;

use crate::Outcome;

/// Reads the counters.
#[derive(Clone, Debug)]
pub(in crate::bench) struct Meter {
    /// Usage of the machine and of the own cgroup: files; none without a cgroup of its own.
    groups: Option<(Usage, Usage)>,
    cpus: f64,
}

/// A file that tells a cgroup's CPU time.
#[derive(Clone, Debug)]
enum Usage {
    /// `cpuacct.usage`, ns.
    Nanoseconds(String),
    /// `cpu.stat`, in which `usage_usec` counts µs.
    CpuStat(String),
}

/// The counters at one moment.
#[derive(Clone, Copy, Debug)]
pub(in crate::bench) struct Reading {
    at: Instant,
    /// Time of idle CPUs and time that the host took, s.
    not_busy: f64,
    /// Time of processes outside, s.
    others: f64,
    /// Context switches since boot.
    switches: u64,
    cpus: f64,
}

impl Meter {
    /// For this process and its children.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub(in crate::bench) fn new() -> Outcome<Meter> {
        let stat = fs::read_to_string("/proc/stat")?;
        let cpus = stat.lines().filter(|l| l.starts_with("cpu")).count() - 1;
        Ok(Meter {
            groups: groups(),
            cpus: cpus as f64,
        })
    }

    /// Whether other processes are left out.
    pub(in crate::bench) fn leaves_others_out(&self) -> bool {
        self.groups.is_some()
    }

    /// The counters now.
    ///
    /// # Errors
    /// They cannot be read.
    pub(in crate::bench) fn read(&self) -> Outcome<Reading> {
        let stat = fs::read_to_string("/proc/stat")?;
        let all = stat.lines().next().unwrap_or_default();
        let ticks: Vec<f64> = all
            .split_whitespace()
            .skip(1)
            .filter_map(|v| v.parse().ok())
            .collect();
        // user, nice, system, idle, iowait, irq, softirq, steal; in hundredths of a second.
        let not_busy: f64 = [3, 4, 7].iter().filter_map(|i| ticks.get(*i)).sum();
        let switches = stat.lines().find_map(|l| l.strip_prefix("ctxt "));
        let others = match &self.groups {
            Some((machine, own)) => machine.seconds()? - own.seconds()?,
            None => 0.0,
        };
        Ok(Reading {
            at: Instant::now(),
            not_busy: not_busy / 100.0,
            others,
            switches: switches.ok_or("/proc/stat has no ctxt")?.trim().parse()?,
            cpus: self.cpus,
        })
    }
}

impl Reading {
    /// CPU time from this moment until `end`, s.
    pub(in crate::bench) fn until(&self, end: &Reading) -> f64 {
        let all = end.at.duration_since(self.at).as_secs_f64() * self.cpus;
        all - (end.not_busy - self.not_busy) - (end.others - self.others)
    }

    /// Context switches a second from this moment until `end`.
    pub(in crate::bench) fn switches_until(&self, end: &Reading) -> f64 {
        let seconds = end.at.duration_since(self.at).as_secs_f64();
        (end.switches - self.switches) as f64 / seconds
    }
}

impl Usage {
    fn seconds(&self) -> Outcome<f64> {
        match self {
            Usage::Nanoseconds(path) => Ok(fs::read_to_string(path)?.trim().parse::<f64>()? * 1e-9),
            Usage::CpuStat(path) => {
                let text = fs::read_to_string(path)?;
                let line = text.lines().find_map(|l| l.strip_prefix("usage_usec "));
                let line = line.ok_or_else(|| format!("{path} has no usage_usec"))?;
                Ok(line.trim().parse::<f64>()? * 1e-6)
            }
        }
    }
}

/// The machine's usage and that of this process's cgroup, where it is in one below the root.
fn groups() -> Option<(Usage, Usage)> {
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mount = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(1);
            let (at, is, options) = (fields.next()?, fields.next()?, fields.next()?);
            let has = option.is_empty() || options.split(',').any(|o| o == option);
            (is == kind && has).then(|| at.to_owned())
        })
    };
    let path = |controller: &str| {
        own.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            let it = controllers.split(',').any(|c| c == controller);
            (it && path != "/").then(|| path.to_owned())
        })
    };
    if let (Some(at), Some(path)) = (mount("cgroup", "cpuacct"), path("cpuacct")) {
        let file = |path: &str| Usage::Nanoseconds(format!("{at}{path}/cpuacct.usage"));
        return Some((file(""), file(&path)));
    }
    let (at, path) = (mount("cgroup2", "")?, path("")?);
    let file = |path: &str| Usage::CpuStat(format!("{at}{path}/cpu.stat"));
    Some((file(""), file(&path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_loop_is_seen_whole() {
        let meter = Meter::new().expect("counters");
        let before = meter.read().expect("a reading");
        let began = Instant::now();
        let mut n = 0u64;
        while began.elapsed().as_millis() < 300 {
            n = std::hint::black_box(n + 1);
        }
        let spent = before.until(&meter.read().expect("a reading"));
        // Counters of /proc/stat move by hundredths; other tests may run beside it.
        assert!(spent > 0.1 && spent < 0.4 * meter.cpus, "{spent} s");
    }
}
