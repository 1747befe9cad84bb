//! Facts about the host around the target, read at the start, at the end and each second, so that a
//! recording can be judged later without the machine. A value that could not be read is `None`.

/// PSI: share of time stalled over 10 s in percent, and total stall time in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// `some avg10`, percent.
    pub some_avg10: f64,
    /// `some total`, µs since boot.
    pub some_total_us: u64,
    /// `full avg10`, percent.
    pub full_avg10: f64,
    /// `full total`, µs since boot.
    pub full_total_us: u64,
}

/// One block device, counters since boot (`/proc/diskstats`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// Device name.
    pub name: String,
    /// Reads completed.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes completed.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Time with requests in flight, ms.
    pub busy_ms: u64,
}

/// Sockets and TCP counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetFacts {
    /// TCP sockets in use.
    pub tcp_in_use: u64,
    /// TCP sockets in TIME_WAIT.
    pub tcp_time_wait: u64,
    /// UDP sockets in use.
    pub udp_in_use: u64,
    /// TCP segments retransmitted since boot.
    pub tcp_retransmits: u64,
    /// Times an accept queue overflowed since boot.
    pub listen_overflows: u64,
    /// Connections dropped at listen since boot.
    pub listen_drops: u64,
    /// Failed connection attempts since boot: refused, or not answered.
    pub tcp_failed_connects: u64,
}

/// The target's cgroup: CPU quota and memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupFacts {
    /// Path within its hierarchy.
    pub path: String,
    /// Quota in µs per period; `None`: no limit.
    pub quota_us: Option<u64>,
    /// Period of the quota, µs.
    pub period_us: Option<u64>,
    /// Enforcement periods so far.
    pub nr_periods: Option<u64>,
    /// Periods in which it was throttled.
    pub nr_throttled: Option<u64>,
    /// Total throttled time, ns.
    pub throttled_ns: Option<u64>,
    /// Memory in use, bytes.
    pub memory_bytes: Option<u64>,
    /// Memory limit, bytes; `None`: no limit.
    pub memory_limit_bytes: Option<u64>,
    /// Number of times its memory reached the limit.
    pub memory_limit_hits: Option<u64>,
    /// Tasks in it now.
    pub tasks: Option<u64>,
    /// Maximum tasks; `None`: no limit.
    pub tasks_limit: Option<u64>,
}

/// A listening socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// Its address: `127.0.0.1:8080`.
    pub address: String,
    /// Connections now waiting to be accepted.
    pub queued: u32,
    /// Maximum of such connections.
    pub room: u32,
}

/// Connections of the target processes with one peer in one state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// For outgoing connections: the peer's address with its port. For accepted ones: the own port,
    /// `port 8080`.
    pub peer: String,
    /// TCP's name of the state: `established`, `close-wait`…
    pub state: String,
    /// Number of connections.
    pub count: u32,
    /// Longest time since one of them sent or received, ms.
    pub silent_ms: u64,
    /// Bytes received and not read yet.
    pub unread_bytes: u64,
    /// Bytes written and not acknowledged yet.
    pub unsent_bytes: u64,
    /// Retransmitted segments so far.
    pub retransmits: u64,
    /// Connections on which Nagle's algorithm holds data back: less than a segment is written but
    /// not sent, because earlier data is not acknowledged yet.
    pub held_back: u32,
}

/// Limits of the target process, and its use of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Process.
    pub pid: u32,
    /// Soft limit of open files.
    pub nofile_soft: Option<u64>,
    /// Descriptors open now.
    pub open_files: Option<u64>,
    /// Soft limit of processes and threads of the user.
    pub nproc_soft: Option<u64>,
    /// Threads now.
    pub threads: Option<u64>,
    /// CPUs that it may run on: `0-3,8`; empty: unknown.
    pub cpus: String,
    /// Bytes read from disks for it so far.
    pub read_bytes: Option<u64>,
    /// Bytes written to disks for it so far.
    pub written_bytes: Option<u64>,
    /// Resident memory, bytes.
    pub resident_bytes: Option<u64>,
    /// Memory that is swapped out, bytes.
    pub swapped_bytes: Option<u64>,
}

/// A process that used CPU time during the recording; the targets are included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Neighbour {
    /// Process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Time on CPUs in the window, ns, with the resolution of the kernel's ticks.
    pub cpu_ns: u64,
    /// The CPU that it last ran on.
    pub cpu: u32,
    /// Nice value; that of its session if the kernel schedules sessions as groups (autogroup) and
    /// the targets are in others.
    pub nice: i32,
    /// Scheduling policy by the kernel's number: 1, 2 and 6 are real time, 5 is idle.
    pub policy: u32,
}

/// A lock (`fcntl`, `flock`) on a file that a target other than its holder has open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLock {
    /// Process id of the holder; 0 if the kernel does not tell it (a lock of an open file
    /// description, another namespace).
    pub pid: u32,
    /// The holder's name.
    pub name: String,
    /// The file.
    pub path: String,
    /// Whether the lock excludes all others.
    pub exclusive: bool,
}

/// The host at one moment. Pressure, memory, major faults, sockets, and the cgroup's memory, tasks
/// and limits are read at the start, at the end and every fifth second, and repeated in between.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// 1-, 5- and 15-minute load averages.
    pub load: Option<[f64; 3]>,
    /// Tasks running or runnable now.
    pub runnable_tasks: Option<u64>,
    /// CPU time since boot over all CPUs, in ns: user, nice, system, idle, iowait, irq, softirq, steal.
    pub cpu_ns: Option<[u64; 8]>,
    /// Busy time of each CPU since boot, ns, by CPU number; that of an offline CPU does not change.
    pub cpu_busy_ns: Vec<u64>,
    /// Context switches since boot.
    pub context_switches: Option<u64>,
    /// PSI of the CPU.
    pub psi_cpu: Option<Pressure>,
    /// PSI of I/O.
    pub psi_io: Option<Pressure>,
    /// PSI of memory.
    pub psi_memory: Option<Pressure>,
    /// Memory: total, available, swap total, swap free; bytes.
    pub memory: Option<[u64; 4]>,
    /// Major page faults since boot.
    pub major_faults: Option<u64>,
    /// Block devices (without partitions, idle loop devices and ram devices).
    pub disks: Vec<DiskFacts>,
    /// Sockets.
    pub net: Option<NetFacts>,
    /// Cgroup of the (first) target.
    pub cgroup: Option<CgroupFacts>,
    /// The targets' listening sockets (those of the whole machine if that is the target).
    pub listeners: Vec<Listener>,
    /// The targets' connections, most first (at start and end only).
    pub connections: Vec<Connections>,
    /// Limits of the target processes (at start and end only).
    pub limits: Vec<Limits>,
    /// The processes with the most CPU time in the window, most first (at the end only).
    pub neighbours: Vec<Neighbour>,
    /// Locks on files that targets have open (at the start, at the end and every fifth second).
    pub file_locks: Vec<FileLock>,
}

/// Host facts with their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSample {
    /// Time on the recording's clock, ns.
    pub time_ns: u64,
    /// The facts.
    pub facts: HostFacts,
}
