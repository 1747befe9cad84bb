//! Facts about a process or thread from `/proc/PID`.

use crate::kernel_file;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use wallscope_model::Limits;

/// `/proc/PID/stat` or `/proc/PID/task/TID/stat`. Times are in clock ticks of 1/100 s.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    /// Process or thread id.
    pub pid: u32,
    /// Name of the thread (`comm`), at most 15 bytes.
    pub comm: String,
    /// State letter: `R`, `S`, `D`, `T`, `t`, `Z`, `X`, `I`…
    pub state: char,
    /// Parent process.
    pub parent: u32,
    /// Kernel flags (`PF_*`).
    pub flags: u32,
    /// Minor page faults.
    pub minor_faults: u64,
    /// Major page faults.
    pub major_faults: u64,
    /// Time in user mode, ticks.
    pub user_ticks: u64,
    /// Time in the kernel, ticks.
    pub system_ticks: u64,
    /// Threads in the process.
    pub threads: u64,
    /// Start after boot, ticks; with the pid it identifies a process for good.
    pub start_ticks: u64,
    /// CPU it last ran on.
    pub cpu: u32,
    /// Nice value, -20 to 19.
    pub nice: i32,
    /// Scheduling policy (`SCHED_*`): 0 other, 1 FIFO and 2 round-robin (real time), 3 batch, 5 idle,
    /// 6 deadline.
    pub policy: u32,
}

/// `PF_KTHREAD`: the thread belongs to the kernel.
const KERNEL_THREAD: u32 = 0x0020_0000;
/// `PF_EXITING`: the thread is ending and gives back its memory and files.
const EXITING: u32 = 0x0000_0004;

impl Stat {
    /// Parses the file's one line; `None` where it is not one.
    pub fn parse(text: &str) -> Option<Stat> {
        // The name may hold spaces and parentheses: it ends at the last one of the line.
        let (head, tail) = text.rsplit_once(')')?;
        let (pid, comm) = head.split_once('(')?;
        let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
        // `fields[0]` is field 3 of proc(5).
        let number = |n: usize| fields.get(n - 3)?.parse::<u64>().ok();
        Some(Stat {
            pid: pid.trim().parse().ok()?,
            comm: comm.to_owned(),
            state: fields.first()?.chars().next()?,
            parent: u32::try_from(number(4)?).ok()?,
            flags: u32::try_from(number(9)?).ok()?,
            minor_faults: number(10)?,
            major_faults: number(12)?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            threads: number(20)?,
            start_ticks: number(22)?,
            cpu: number(39).and_then(|c| u32::try_from(c).ok()).unwrap_or(0),
            nice: (fields.get(19 - 3))
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
            policy: number(41).and_then(|p| u32::try_from(p).ok()).unwrap_or(0),
        })
    }

    /// Whether it is a thread of the kernel.
    pub fn is_kernel_thread(&self) -> bool {
        self.flags & KERNEL_THREAD != 0
    }

    /// Whether the thread is ending: its memory and files may be gone already.
    pub fn is_exiting(&self) -> bool {
        self.flags & EXITING != 0
    }
}

/// Ids by which the kernel decides which files a thread may open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileIds {
    /// User id; `None`: unknown.
    pub user: Option<u32>,
    /// Group id; `None`: unknown.
    pub group: Option<u32>,
    /// Supplementary group ids.
    pub more_groups: Vec<u32>,
}

/// The used parts of `/proc/PID/status`, or of a thread's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Name of the thread.
    pub name: String,
    /// Process id.
    pub tgid: u32,
    /// Thread id.
    pub pid: u32,
    /// Parent process.
    pub parent: u32,
    /// Effective user id.
    pub uid: u32,
    /// Ids by which the kernel decides which files it may open.
    pub file_ids: FileIds,
    /// The process's ids from our pid namespace inwards; the last one is its id in its own namespace.
    pub ns_tgids: Vec<u32>,
    /// The thread's ids from our pid namespace inwards; the last one is its id in its own namespace.
    pub ns_pids: Vec<u32>,
    /// CPUs that it may run on: `0-3,8`.
    pub cpus: String,
    /// Resident memory, bytes.
    pub resident_bytes: Option<u64>,
    /// Memory that is swapped out, bytes.
    pub swapped_bytes: Option<u64>,
    /// Threads in the process.
    pub threads: u64,
    /// Number of voluntary switches: times it left the CPU to wait.
    pub voluntary_switches: u64,
    /// Number of involuntary switches: times it was preempted.
    pub involuntary_switches: u64,
}

/// `12 kB`, in bytes.
fn kib(value: &str) -> Option<u64> {
    let kib: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

impl Status {
    /// Parses the file; lines that are missing leave zeros.
    pub fn parse(text: &str) -> Status {
        let mut status = Status::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            let number = || value.parse::<u64>().unwrap_or(0);
            let id = || value.parse::<u32>().unwrap_or(0);
            match key {
                "Name" => status.name = value.to_owned(),
                "Cpus_allowed_list" => status.cpus = value.to_owned(),
                "VmRSS" => status.resident_bytes = kib(value),
                "VmSwap" => status.swapped_bytes = kib(value),
                "Tgid" => status.tgid = id(),
                "Pid" => status.pid = id(),
                "PPid" => status.parent = id(),
                // Real, effective, saved, and for the file system.
                "Uid" => {
                    let ids = numbers(value);
                    status.uid = ids.get(1).copied().unwrap_or(0);
                    status.file_ids.user = ids.get(3).copied();
                }
                "Gid" => status.file_ids.group = numbers(value).get(3).copied(),
                "Groups" => status.file_ids.more_groups = numbers(value),
                "NStgid" => status.ns_tgids = numbers(value),
                "NSpid" => status.ns_pids = numbers(value),
                "Threads" => status.threads = number(),
                "voluntary_ctxt_switches" => status.voluntary_switches = number(),
                "nonvoluntary_ctxt_switches" => status.involuntary_switches = number(),
                _ => {}
            }
        }
        status
    }
}

fn numbers(text: &str) -> Vec<u32> {
    text.split_ascii_whitespace()
        .filter_map(|v| v.parse().ok())
        .collect()
}

/// `/proc/PID/task/TID/schedstat`: the scheduler's own counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU, ns.
    pub on_cpu_ns: u64,
    /// Time waiting on a run queue, ns.
    pub run_delay_ns: u64,
    /// Times it was put on a CPU.
    pub timeslices: u64,
}

impl SchedStat {
    /// Parses the file's one line.
    pub fn parse(text: &str) -> Option<SchedStat> {
        let mut numbers = text.split_ascii_whitespace().map(str::parse);
        Some(SchedStat {
            on_cpu_ns: numbers.next()?.ok()?,
            run_delay_ns: numbers.next()?.ok()?,
            timeslices: numbers.next()?.ok()?,
        })
    }
}

/// Soft limits of `/proc/PID/limits`; `None`: `unlimited` or absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftLimits {
    /// Open files.
    pub open_files: Option<u64>,
    /// Processes and threads of the user.
    pub processes: Option<u64>,
}

impl SoftLimits {
    /// Parses the table.
    pub fn parse(text: &str) -> SoftLimits {
        let soft = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        SoftLimits {
            open_files: soft("Max open files"),
            processes: soft("Max processes"),
        }
    }
}

/// The arguments of a `cmdline` file, split at its NUL bytes.
pub fn split_cmdline(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(b"\0").unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    bytes
        .split(|b| *b == 0)
        .map(|a| String::from_utf8_lossy(a).into_owned())
        .collect()
}

fn text(path: String) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&kernel_file::read(path)?).into_owned())
}

fn invalid(what: &str, pid: u32) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("/proc/{pid}/{what} has an unknown form"),
    )
}

/// Reads `/proc/PID/stat`.
///
/// # Errors
/// `NotFound` where there is no such process; `InvalidData` where the file has an unknown form.
pub fn stat(pid: u32) -> io::Result<Stat> {
    Stat::parse(&text(format!("/proc/{pid}/stat"))?).ok_or_else(|| invalid("stat", pid))
}

/// Reads `/proc/PID/status`.
///
/// # Errors
/// `NotFound` where there is no such process.
pub fn status(pid: u32) -> io::Result<Status> {
    Ok(Status::parse(&text(format!("/proc/{pid}/status"))?))
}

/// Reads the `schedstat` of a thread.
///
/// ```
/// use wallscope_procfs::process;
///
/// let pid = std::process::id();
/// let main_thread = process::sched_stat(pid, pid)?;
/// assert!(main_thread.timeslices > 0);
/// assert!(process::threads(pid)?.contains(&pid));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// `NotFound` if there is no such thread or the kernel does not keep these counters; `InvalidData` if
/// the file has an unknown form.
pub fn sched_stat(pid: u32, tid: u32) -> io::Result<SchedStat> {
    let t = text(format!("/proc/{pid}/task/{tid}/schedstat"))?;
    SchedStat::parse(&t).ok_or_else(|| invalid("task/…/schedstat", pid))
}

/// The arguments of a process; empty for kernel threads and zombies.
///
/// # Errors
/// `NotFound` where there is no such process.
pub fn cmdline(pid: u32) -> io::Result<Vec<String>> {
    Ok(split_cmdline(&kernel_file::read(format!(
        "/proc/{pid}/cmdline"
    ))?))
}

/// The name of a thread.
///
/// # Errors
/// `NotFound` where there is no such thread.
pub fn comm(pid: u32, tid: u32) -> io::Result<String> {
    let mut name = text(format!("/proc/{pid}/task/{tid}/comm"))?;
    if name.ends_with('\n') {
        name.pop();
    }
    Ok(name)
}

/// Number and nice value of the autogroup as which the kernel schedules a process's session. Nice values of
/// processes count only within such a group. `None`: the kernel has no autogroups, or the process is in a CPU
/// cgroup of its own.
pub fn session_group(pid: u32) -> Option<(u64, i32)> {
    let enabled = text("/proc/sys/kernel/sched_autogroup_enabled".into()).ok()?;
    let grouped =
        enabled.trim() == "1" && in_root_group(&text(format!("/proc/{pid}/cgroup")).ok()?);
    let line = text(format!("/proc/{pid}/autogroup"))
        .ok()
        .filter(|_| grouped)?;
    parse_session_group(&line)
}

/// Whether no CPU cgroup schedules processes with these memberships.
fn in_root_group(cgroups: &str) -> bool {
    cgroups.lines().all(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            return true;
        };
        let cpu = controllers.is_empty() || controllers.split(',').any(|c| c == "cpu");
        !cpu || path == "/"
    })
}

/// `/autogroup-42 nice 0`
fn parse_session_group(line: &str) -> Option<(u64, i32)> {
    let mut words = line.split_ascii_whitespace();
    let group = words.next()?.strip_prefix("/autogroup-")?.parse().ok()?;
    let nice = words.nth(1)?.parse().ok()?;
    Some((group, nice))
}

/// The path of a process's executable, without ` (deleted)`.
///
/// # Errors
/// `NotFound` for kernel threads and where there is no such process; `PermissionDenied` where it
/// may not be inspected.
pub fn exe(pid: u32) -> io::Result<PathBuf> {
    let target = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    let mut bytes = target.into_os_string().into_vec();
    if bytes.ends_with(b" (deleted)") {
        bytes.truncate(bytes.len() - b" (deleted)".len());
    }
    Ok(PathBuf::from(OsString::from_vec(bytes)))
}

/// The threads of a process, ascending.
///
/// # Errors
/// `NotFound` where there is no such process.
pub fn threads(pid: u32) -> io::Result<Vec<u32>> {
    ids(&format!("/proc/{pid}/task"))
}

/// All processes that can be seen, ascending.
///
/// # Errors
/// The error of listing `/proc`.
pub fn processes() -> io::Result<Vec<u32>> {
    ids("/proc")
}

fn ids(dir: &str) -> io::Result<Vec<u32>> {
    let mut ids = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        // An entry may vanish while the directory is read.
        let Ok(entry) = entry else { continue };
        if let Some(id) = entry.file_name().to_str().and_then(|n| n.parse().ok()) {
            ids.push(id);
        }
    }
    ids.sort_unstable();
    Ok(ids)
}

/// The id of a process in its own pid namespace.
///
/// # Errors
/// `NotFound` where there is no such process.
pub fn inner_pid(pid: u32) -> io::Result<u32> {
    Ok(status(pid)?.ns_tgids.last().copied().unwrap_or(pid))
}

/// The id of a thread in its own pid namespace.
///
/// # Errors
/// `NotFound` where there is no such thread.
pub fn inner_tid(tid: u32) -> io::Result<u32> {
    Ok(status(tid)?.ns_pids.last().copied().unwrap_or(tid))
}

/// A process's limits and its use of them; a fact that may not be read is `None`. Open descriptors are
/// counted, which takes about 1 µs each: call it at the start and the end of a recording only.
///
/// # Errors
/// `NotFound` where there is no such process.
pub fn limits(pid: u32) -> io::Result<Limits> {
    let status = status(pid)?;
    // Not every user may read this file: its facts are absent then.
    let io = text(format!("/proc/{pid}/io")).unwrap_or_default();
    let counted = |key: &str| -> Option<u64> {
        let mut lines = io.lines().filter_map(|l| l.split_once(':'));
        lines.find(|(k, _)| *k == key)?.1.trim().parse().ok()
    };
    let soft = text(format!("/proc/{pid}/limits"))
        .map(|t| SoftLimits::parse(&t))
        .unwrap_or_default();
    Ok(Limits {
        pid,
        nofile_soft: soft.open_files,
        open_files: std::fs::read_dir(format!("/proc/{pid}/fd"))
            .ok()
            .map(|d| d.count() as u64),
        nproc_soft: soft.processes,
        threads: Some(status.threads),
        cpus: status.cpus,
        read_bytes: counted("read_bytes"),
        written_bytes: counted("write_bytes"),
        resident_bytes: status.resident_bytes,
        swapped_bytes: status.swapped_bytes,
    })
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
