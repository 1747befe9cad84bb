//! The host's counters, as [`HostFacts`].
//!
//! They are read at the start, at the end and once a second while a recording runs, so reading has to be
//! cheap. Every file is opened once and re-read by `pread` into one buffer. Facts that only grow or change
//! slowly (load, pressure, memory, network counters, the cgroup's limits) are read at every [`EACH`]th
//! reading and repeated in between. The kernel sums those over all CPUs at each reading, which was a sixth
//! of the cost of measuring a quiet program. A fact that cannot be read or parsed is `None`; the others stay.
//!
//! Counters of sockets are those of the target's network namespace, the cgroup is the target's.
//! A CPU quota or memory limit of any ancestor group binds; the tightest one is reported, with the
//! throttling counted there.
//!
//! Not done: anything per process but limits (see [`crate::process::limits`]), device mapper and
//! partition detail, IPv6 socket counts.

mod parse;

use crate::kernel_file;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;
use wallscope_model::{CgroupFacts, DiskFacts, HostFacts, NetFacts, Pressure};

use crate::cgroup::{self, Group};
use crate::locks;

/// A read of fewer bytes than this reached the end of the file. The kernel fills a page except for a line
/// that does not fit any more, and no line of these files is half a page long.
const SHORT: usize = 2048;

/// Number of readings of which one reads all facts.
const EACH: usize = 5;

/// First size of a buffer for whole files, bytes.
const BUFFER: usize = 32 << 10;

/// Reads [`HostFacts`] again and again from descriptors that stay open.
pub struct HostReader {
    buffer: Vec<u8>,
    ns_per_tick: u64,
    load: Source,
    stat: Source,
    pressure: [Source; 3],
    memory: Source,
    vmstat: Source,
    disks: Source,
    whole_disks: FxHashMap<String, bool>,
    net: NetSources,
    cgroup: Option<CgroupReader>,
    locks: Source,
    /// The facts that are repeated, and the number of repetitions.
    slow: Slow,
    repeated: usize,
}

/// Facts that are not read each time.
#[derive(Clone, Default)]
struct Slow {
    /// The kernel makes it anew every five seconds.
    load: Option<[f64; 3]>,
    psi: [Option<Pressure>; 3],
    memory: Option<[u64; 4]>,
    major_faults: Option<u64>,
    net: Option<NetFacts>,
    /// The cgroup's facts, except its periods, which are read each time.
    cgroup: Option<CgroupFacts>,
}

/// Files about the network.
#[derive(Default)]
struct NetSources {
    sockets: Source,
    snmp: Source,
    netstat: Source,
}

/// A file that is read again and again; `None` where it could not be opened.
#[derive(Default)]
struct Source(Option<File>);

impl Source {
    fn open(path: impl AsRef<Path>) -> Source {
        Source(kernel_file::open(path).ok())
    }

    /// All of the file as it is now.
    fn read<'b>(&self, buffer: &'b mut Vec<u8>) -> Option<&'b str> {
        let file = self.0.as_ref()?;
        let mut filled = 0;
        loop {
            if buffer.len() - filled < 4096 {
                buffer.resize(buffer.len() * 2, 0);
            }
            match file.read_at(&mut buffer[filled..], filled as u64) {
                Ok(n) => {
                    filled += n;
                    if n < SHORT {
                        break;
                    }
                }
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        std::str::from_utf8(&buffer[..filled]).ok()
    }
}

/// Reads the time for which each CPU was busy, again and again.
pub struct CpuBusyReader {
    stat: Source,
    buffer: Vec<u8>,
}

impl CpuBusyReader {
    /// Opens the kernel's file.
    pub fn open() -> CpuBusyReader {
        CpuBusyReader {
            stat: Source::open("/proc/stat"),
            buffer: vec![0; BUFFER],
        }
    }

    /// CPU time for which each CPU was not idle, by its number, ns; empty where the kernel does not say.
    pub fn read(&mut self) -> Vec<u64> {
        let stat = self.stat.read(&mut self.buffer).map(parse::stat);
        busy_ns(&stat.unwrap_or_default(), ns_per_tick())
    }
}

/// Ticks for which each CPU was busy, in ns.
fn busy_ns(stat: &parse::Stat, ns_per_tick: u64) -> Vec<u64> {
    let ticks = stat.busy_ticks.iter();
    ticks.map(|t| t.saturating_mul(ns_per_tick)).collect()
}

/// Length of a clock tick in the files of `/proc`, ns.
fn ns_per_tick() -> u64 {
    1_000_000_000 / rustix::param::clock_ticks_per_second().max(1)
}

impl HostReader {
    /// Opens everything. With `target`, sockets and the cgroup are that process's; without, they
    /// are our own and none.
    pub fn open(target: Option<u32>) -> HostReader {
        let net = |file: &str| {
            let of_target =
                target.and_then(|p| kernel_file::open(format!("/proc/{p}/net/{file}")).ok());
            Source(of_target.or_else(|| kernel_file::open(format!("/proc/net/{file}")).ok()))
        };
        HostReader {
            buffer: vec![0; BUFFER],
            ns_per_tick: ns_per_tick(),
            load: Source::open("/proc/loadavg"),
            stat: Source::open("/proc/stat"),
            pressure: ["cpu", "io", "memory"].map(|r| Source::open(format!("/proc/pressure/{r}"))),
            memory: Source::open("/proc/meminfo"),
            vmstat: Source::open("/proc/vmstat"),
            disks: Source::open("/proc/diskstats"),
            whole_disks: FxHashMap::default(),
            net: NetSources {
                sockets: net("sockstat"),
                snmp: net("snmp"),
                netstat: net("netstat"),
            },
            cgroup: target.and_then(CgroupReader::open),
            locks: Source::open("/proc/locks"),
            slow: Slow::default(),
            repeated: 0,
        }
    }

    /// The facts as they are now; `limits`, `listeners`, `connections` and `file_locks` stay empty.
    pub fn read(&mut self) -> HostFacts {
        self.slow = self.read_slow();
        self.repeated = 0;
        self.read_fast()
    }

    /// Locks on files that are held now; none where that cannot be read.
    pub fn locks(&mut self) -> Vec<locks::Held> {
        let text = self.locks.read(&mut self.buffer);
        text.map(locks::parse).unwrap_or_default()
    }

    /// The facts as they are now, with some repeated from at most four such readings ago: load, pressure, memory,
    /// major faults, network counters, and the cgroup's facts except its throttling.
    pub fn follow(&mut self) -> HostFacts {
        self.repeated += 1;
        if self.repeated >= EACH {
            return self.read();
        }
        self.read_fast()
    }

    fn read_slow(&mut self) -> Slow {
        let buffer = &mut self.buffer;
        Slow {
            load: self.load.read(buffer).and_then(parse::load),
            psi: [0, 1, 2].map(|i| parse::pressure(self.pressure[i].read(buffer)?)),
            memory: self.memory.read(buffer).and_then(parse::memory),
            major_faults: self.vmstat.read(buffer).and_then(parse::major_faults),
            net: net(&self.net, buffer),
            cgroup: self.cgroup.as_ref().map(|c| c.read(buffer)),
        }
    }

    fn read_fast(&mut self) -> HostFacts {
        let buffer = &mut self.buffer;
        let stat = self.stat.read(buffer).map(parse::stat).unwrap_or_default();
        let [psi_cpu, psi_io, psi_memory] = self.slow.psi;
        HostFacts {
            load: self.slow.load,
            runnable_tasks: stat.running,
            cpu_ns: stat
                .cpu_ticks
                .map(|t| t.map(|t| t.saturating_mul(self.ns_per_tick))),
            cpu_busy_ns: busy_ns(&stat, self.ns_per_tick),
            context_switches: stat.switches,
            psi_cpu,
            psi_io,
            psi_memory,
            memory: self.slow.memory,
            major_faults: self.slow.major_faults,
            disks: match self.disks.read(buffer) {
                Some(text) => disks(text, &mut self.whole_disks),
                None => Vec::new(),
            },
            net: self.slow.net,
            cgroup: (self.cgroup.as_ref().zip(self.slow.cgroup.clone()))
                .map(|(group, facts)| group.throttling(facts, buffer)),
            listeners: Vec::new(),
            connections: Vec::new(),
            limits: Vec::new(),
            neighbours: Vec::new(),
            file_locks: Vec::new(),
        }
    }
}

/// Block devices without partitions; memory-backed ones only where they were ever used.
fn disks(text: &str, whole: &mut FxHashMap<String, bool>) -> Vec<DiskFacts> {
    text.lines()
        .filter_map(parse::disk)
        .filter(|d| {
            let in_memory = ["loop", "ram", "zram"]
                .iter()
                .any(|p| d.name.starts_with(p));
            if in_memory && d.reads == 0 && d.writes == 0 {
                return false;
            }
            if let Some(&known) = whole.get(&d.name) {
                return known;
            }
            // sysfs cannot have `/` in a name and writes `!` instead.
            let entry = format!("/sys/block/{}", d.name.replace('/', "!"));
            let is_whole = Path::new(&entry).exists();
            whole.insert(d.name.clone(), is_whole);
            is_whole
        })
        .collect()
}

fn net(
    NetSources {
        sockets,
        snmp,
        netstat,
    }: &NetSources,
    buffer: &mut Vec<u8>,
) -> Option<NetFacts> {
    let mut facts = sockets.read(buffer).and_then(parse::sockets)?;
    if let Some(text) = snmp.read(buffer) {
        let keys = ["RetransSegs", "AttemptFails"];
        let [retransmits, failed] = parse::paired(text, "Tcp:", keys);
        facts.tcp_retransmits = retransmits.unwrap_or(0);
        facts.tcp_failed_connects = failed.unwrap_or(0);
    }
    if let Some(text) = netstat.read(buffer) {
        let [overflows, drops] = parse::paired(text, "TcpExt:", ["ListenOverflows", "ListenDrops"]);
        facts.listen_overflows = overflows.unwrap_or(0);
        facts.listen_drops = drops.unwrap_or(0);
    }
    Some(facts)
}

/// The target's cgroup, with its files open.
struct CgroupReader {
    path: String,
    cpu: Option<CpuFiles>,
    memory: MemoryFiles,
    tasks: Source,
    tasks_limit: Source,
}

#[derive(Default)]
struct MemoryFiles {
    used: Source,
    limit: Source,
    hits: Source,
}

struct CpuFiles {
    version: u8,
    /// v1: quota; v2: quota and period.
    quota: Source,
    /// v1 only.
    period: Source,
    stat: Source,
}

impl CgroupReader {
    fn open(pid: u32) -> Option<CgroupReader> {
        let cpu = cgroup::group_of(pid, "cpu");
        let memory = cgroup::group_of(pid, "memory");
        let path = cpu.as_ref().or(memory.as_ref())?.path.clone();
        let tasks = cgroup::group_of(pid, "pids");
        let of_tasks = |file: &str| {
            let group = tasks.as_ref();
            group.map_or_else(Source::default, |g| Source::open(g.dir.join(file)))
        };
        Some(CgroupReader {
            path,
            cpu: cpu.as_ref().map(cpu_files),
            memory: memory.as_ref().map(memory_files).unwrap_or_default(),
            tasks: of_tasks("pids.current"),
            tasks_limit: of_tasks("pids.max"),
        })
    }

    fn read(&self, buffer: &mut Vec<u8>) -> CgroupFacts {
        let mut facts = CgroupFacts {
            path: self.path.clone(),
            ..CgroupFacts::default()
        };
        if let Some(cpu) = &self.cpu {
            let (quota, period) = cpu.read_quota(buffer);
            facts.quota_us = quota;
            facts.period_us = period;
        }
        let number = |text: &str| text.trim().parse().ok();
        facts.memory_bytes = self.memory.used.read(buffer).and_then(number);
        facts.memory_limit_bytes = self.memory.limit.read(buffer).and_then(parse::byte_limit);
        facts.memory_limit_hits = self.memory.hits.read(buffer).and_then(parse::limit_hits);
        facts.tasks = self.tasks.read(buffer).and_then(number);
        facts.tasks_limit = self.tasks_limit.read(buffer).and_then(number);
        facts
    }

    /// `facts` with the periods of the quota up to now.
    fn throttling(&self, mut facts: CgroupFacts, buffer: &mut Vec<u8>) -> CgroupFacts {
        let stat = self.cpu.as_ref().and_then(|cpu| cpu.stat.read(buffer));
        if let Some(stat) = stat.map(parse::cpu_stat) {
            facts.nr_periods = stat.periods;
            facts.nr_throttled = stat.throttled;
            facts.throttled_ns = stat.throttled_ns;
        }
        facts
    }
}

impl CpuFiles {
    fn open(version: u8, dir: &Path) -> CpuFiles {
        let (quota, period) = match version {
            1 => (
                Source::open(dir.join("cpu.cfs_quota_us")),
                Source::open(dir.join("cpu.cfs_period_us")),
            ),
            _ => (Source::open(dir.join("cpu.max")), Source(None)),
        };
        CpuFiles {
            version,
            quota,
            period,
            stat: Source::open(dir.join("cpu.stat")),
        }
    }

    /// Quota (`None`: unlimited) and period, µs.
    fn read_quota(&self, buffer: &mut Vec<u8>) -> (Option<u64>, Option<u64>) {
        let Some(text) = self.quota.read(buffer) else {
            return (None, None);
        };
        if self.version == 2 {
            return parse::cpu_max(text);
        }
        // `-1`, no limit, is no u64.
        let quota = text.trim().parse().ok();
        let period = self.period.read(buffer).and_then(|t| t.trim().parse().ok());
        (quota, period)
    }
}

/// The files of the group that limits `group` most, by its quota: itself or an ancestor. Its own files if
/// there is no quota.
fn cpu_files(group: &Group) -> CpuFiles {
    let mut buffer = vec![0; 8192];
    let share = |dir: &Path, buffer: &mut Vec<u8>| -> Option<f64> {
        let (quota, period) = CpuFiles::open(group.version, dir).read_quota(buffer);
        Some(quota? as f64 / period? as f64)
    };
    let mut tightest: Option<(f64, PathBuf)> = None;
    for dir in group.lineage() {
        if let Some(share) = share(dir, &mut buffer)
            && tightest.as_ref().is_none_or(|(least, _)| share < *least)
        {
            tightest = Some((share, dir.to_owned()));
        }
    }
    let dir = tightest.map_or_else(|| group.dir.clone(), |(_, dir)| dir);
    CpuFiles::open(group.version, &dir)
}

/// The files with the memory limit and the use of memory of one group: the group or ancestor with the lowest
/// limit. Memory used by that group's other processes counts against the limit too.
fn memory_files(group: &Group) -> MemoryFiles {
    let (usage, limit, hits) = match group.version {
        1 => (
            "memory.usage_in_bytes",
            "memory.limit_in_bytes",
            "memory.failcnt",
        ),
        _ => ("memory.current", "memory.max", "memory.events"),
    };
    let mut lowest: Option<(u64, PathBuf)> = None;
    for dir in group.lineage() {
        let bytes = kernel_file::read_to_string(dir.join(limit))
            .ok()
            .and_then(|t| parse::byte_limit(&t));
        if let Some(bytes) = bytes
            && lowest.as_ref().is_none_or(|(least, _)| bytes < *least)
        {
            lowest = Some((bytes, dir.to_owned()));
        }
    }
    let limited = lowest.map_or_else(|| group.dir.clone(), |(_, dir)| dir);
    MemoryFiles {
        used: Source::open(limited.join(usage)),
        limit: Source::open(limited.join(limit)),
        hits: Source::open(limited.join(hits)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_is_read_and_its_counters_grow() {
        let mut reader = HostReader::open(Some(std::process::id()));
        let first = reader.read();
        let [total, available, ..] = first.memory.expect("/proc/meminfo is everywhere");
        assert!(0 < available && available <= total);
        assert!(first.load.is_some() && first.runnable_tasks.is_some_and(|n| n >= 1));
        assert!(first.major_faults.is_some());
        assert!(first.cpu_ns.is_some_and(|c| c.iter().sum::<u64>() > 0));
        // Giving the CPU away is a context switch somewhere, or at least none are taken back.
        std::thread::spawn(std::thread::yield_now).join().unwrap();
        let second = reader.read();
        assert!(second.context_switches >= first.context_switches);
        assert!(second.context_switches.is_some());
    }

    #[test]
    fn partitions_and_unused_memory_disks_are_left_out() {
        let line = |name: &str, n: u64| format!(" 8 0 {name} {n} 0 8 1 {n} 0 8 1 0 4 5\n");
        let text = line("sda", 1) + &line("sda1", 1) + &line("loop0", 0) + &line("loop1", 3);
        let mut whole: FxHashMap<String, bool> = [("sda", true), ("sda1", false), ("loop1", true)]
            .map(|(n, w)| (n.to_owned(), w))
            .into_iter()
            .collect();
        let names: Vec<_> = disks(&text, &mut whole)
            .into_iter()
            .map(|d| d.name)
            .collect();
        assert_eq!(names, ["sda", "loop1"]);
    }

    #[test]
    fn the_tightest_quota_and_limit_of_the_line_count() {
        let root = tempfile::tempdir().unwrap();
        let (outer, inner) = (root.path().join("outer"), root.path().join("outer/inner"));
        std::fs::create_dir_all(&inner).unwrap();
        let write = |dir: &Path, file: &str, text: &str| {
            std::fs::write(dir.join(file), text).unwrap();
        };
        write(&outer, "cpu.max", "50000 100000\n");
        write(
            &outer,
            "cpu.stat",
            "usage_usec 9\nnr_periods 7\nnr_throttled 3\nthrottled_usec 21\n",
        );
        write(&outer, "memory.max", "1048576\n");
        write(&inner, "cpu.max", "max 100000\n");
        write(&inner, "cpu.stat", "nr_periods 0\n");
        write(&inner, "memory.max", "max\n");
        write(&outer, "memory.current", "4096\n");
        write(&outer, "memory.events", "max 2\n");
        write(&inner, "memory.current", "1\n");
        let group = Group {
            version: 2,
            path: "/outer/inner".into(),
            dir: inner,
            mount_point: root.path().to_owned(),
        };
        let reader = CgroupReader {
            path: group.path.clone(),
            cpu: Some(cpu_files(&group)),
            memory: memory_files(&group),
            tasks: Source::default(),
            tasks_limit: Source::default(),
        };
        let mut buffer = vec![0; 64];
        let facts = reader.throttling(reader.read(&mut buffer), &mut buffer);
        assert_eq!(
            facts,
            CgroupFacts {
                path: "/outer/inner".into(),
                quota_us: Some(50_000),
                period_us: Some(100_000),
                nr_periods: Some(7),
                nr_throttled: Some(3),
                throttled_ns: Some(21_000),
                memory_bytes: Some(4096),
                memory_limit_bytes: Some(1 << 20),
                memory_limit_hits: Some(2),
                ..CgroupFacts::default()
            }
        );
    }
}
