//! Counters: how often something happened to a target, exactly, without a stack.
//!
//! One perf event for each task (its later children inherit it), or for each CPU if the scope is a cgroup or
//! the machine. If the CPU has fewer counters than events, the kernel takes turns. The value of a
//! counter is then scaled by the fraction of time in which it counted, and that fraction is reported. A
//! user without the right to count the kernel gets counts of user mode only; that is reported too.
//!
//! Not here: samples and stacks (`record -e`), and times by state, which are the ledger's.

mod catalogue;
mod device;
mod event_spec;
pub mod topdown;

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    path::Path,
};
use wallscope_procfs::kernel_file;

use perf_event_open_sys::{self as perf, bindings as b};
use wallscope_procfs::process;

pub use crate::counter::event_spec::{EventSpec, Source};
use crate::{cpus, open_files};
pub use catalogue::{EventError, split, tracing};

/// The scope of counted events.
#[derive(Debug)]
pub enum Scope {
    /// These processes, all their threads, and processes that they start.
    Processes(Vec<u32>),
    /// A process that is held before its `exec`, counted from the `exec` on, and processes that it starts.
    Command(u32),
    /// The tasks of a cgroup: its open folder.
    Cgroup(File),
    /// Everything.
    Machine,
}

/// Descriptors that are left to everything else.
const RESERVED: u64 = 256;

/// One event, opened as often as it takes.
struct OpenedEvent {
    spec: EventSpec,
    fds: Vec<OwnedFd>,
    user_only: bool,
    refused: Option<String>,
}

/// Open counters.
pub struct Counters {
    rows: Vec<OpenedEvent>,
}

/// Value of a counter.
#[derive(Clone, Debug, PartialEq)]
pub enum Count {
    /// Number of events.
    Value {
        /// Scaled where the kernel took turns.
        value: f64,
        /// The share of the time for which it counted, 1: all of it.
        share: f64,
    },
    /// Not counted, and the reason.
    None(String),
}

/// One event's count so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The event.
    pub name: String,
    /// Its source.
    pub source: Source,
    /// Whether values are nanoseconds.
    pub is_time: bool,
    /// Only events in user mode.
    pub user_only: bool,
    /// Its value.
    pub count: Count,
}

impl Counters {
    /// Opens `events` for `scope`. What is refused is kept with the reason.
    pub fn open(events: &[EventSpec], scope: &Scope) -> Counters {
        let tasks = match scope {
            Scope::Processes(pids) => tasks_of(pids),
            Scope::Command(pid) => vec![*pid],
            Scope::Cgroup(_) | Scope::Machine => Vec::new(),
        };
        let cpus = cpus::online().unwrap_or_default();
        let each = tasks.len().max(cpus.len()) as u64;
        let limit = open_files::raise_limit().saturating_sub(RESERVED);
        let mut left = limit;
        let mut rows: Vec<OpenedEvent> = Vec::with_capacity(events.len());
        for spec in events {
            // The events that it takes turns with.
            let leader = rows
                .iter()
                .rfind(|r| !r.spec.in_group)
                .filter(|_| spec.in_group);
            let group: Vec<i32> = leader
                .map(|r| r.fds.iter().map(|fd| fd.as_raw_fd()).collect())
                .unwrap_or_default();
            let mut row = OpenedEvent {
                spec: spec.clone(),
                fds: Vec::new(),
                user_only: false,
                refused: None,
            };
            if each > left {
                row.refused = Some(format!(
                    "{each} threads need as many descriptors, and {limit} may be open; raise ulimit -n"
                ));
                rows.push(row);
                continue;
            }
            if spec.in_group && group.is_empty() {
                row.refused = Some("the event it is counted together with is refused".into());
                rows.push(row);
                continue;
            }
            match scope {
                Scope::Processes(_) | Scope::Command(_) => {
                    let on_exec = matches!(scope, Scope::Command(_));
                    let on = tasks.iter().map(|tid| (*tid as i32, -1));
                    row.open_all(on, &group, 0, on_exec);
                }
                Scope::Cgroup(folder) => {
                    let on = cpus.iter().map(|cpu| (folder.as_raw_fd(), *cpu as i32));
                    row.open_all(on, &group, b::PERF_FLAG_PID_CGROUP, false);
                }
                Scope::Machine => {
                    let on = cpus.iter().map(|cpu| (-1, *cpu as i32));
                    row.open_all(on, &group, 0, false);
                }
            }
            left -= row.fds.len() as u64;
            rows.push(row);
        }
        Counters { rows }
    }

    /// Opens the counters of a cgroup's folder, where the kernel can count by cgroup.
    ///
    /// # Errors
    /// The cgroup is not of the hierarchy that perf events go by.
    pub fn cgroup(path: &Path) -> io::Result<Scope> {
        let folder = kernel_file::open(path)?;
        Ok(Scope::Cgroup(folder))
    }

    /// Reads the counts so far.
    pub fn read(&self) -> Vec<Reading> {
        self.rows.iter().map(OpenedEvent::read).collect()
    }
}

impl OpenedEvent {
    fn open_all(
        &mut self,
        on: impl Iterator<Item = (i32, i32)>,
        group: &[i32],
        flags: u32,
        on_exec: bool,
    ) {
        for (i, (pid, cpu)) in on.enumerate() {
            let with = if group.is_empty() {
                -1
            } else {
                group.get(i).copied().unwrap_or(-1)
            };
            let open = |row: &OpenedEvent| row.open_one((pid, cpu, with), flags, on_exec);
            let opened = match open(self) {
                Err(e) if !self.user_only && self.fds.is_empty() && is_refusal(&e) => {
                    self.user_only = true;
                    // The event does not happen in user mode.
                    if self.spec.is_of_the_kernel() {
                        Err(e)
                    } else {
                        open(self)
                    }
                }
                other => other,
            };
            match opened {
                Ok(fd) => self.fds.push(fd),
                // The thread has ended meanwhile.
                Err(e) if cpu < 0 && e.raw_os_error() == Some(libc::ESRCH) => {}
                Err(e) => {
                    self.refused = Some(why(&self.spec, &e));
                    self.fds.clear();
                    return;
                }
            }
        }
        if self.fds.is_empty() && self.refused.is_none() {
            self.refused = Some("nothing to count: the target has ended".into());
        }
    }

    fn open_one(
        &self,
        (pid, cpu, group): (i32, i32, i32),
        flags: u32,
        on_exec: bool,
    ) -> io::Result<OwnedFd> {
        let mut a = self.spec.attributes();
        a.read_format =
            (b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING).into();
        a.set_inherit((cpu < 0).into());
        // The others of a group go by the first.
        if on_exec && group < 0 {
            a.set_disabled(1);
            a.set_enable_on_exec(1);
        }
        if self.user_only {
            a.set_exclude_kernel(1);
        }
        a.set_exclude_hv(1);
        let flags = u64::from(flags | b::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: the attributes are whole and outlive the call.
        let fd = unsafe { perf::perf_event_open(&mut a, pid, cpu, group, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call has just returned this descriptor to us alone.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    fn read(&self) -> Reading {
        let count = match &self.refused {
            Some(why) => Count::None(why.clone()),
            None => self.sum(),
        };
        Reading {
            name: self.spec.name.clone(),
            source: self.spec.source,
            is_time: self.spec.is_time,
            user_only: self.user_only || self.spec.only.0,
            count,
        }
    }

    fn sum(&self) -> Count {
        let (mut value, mut enabled, mut running) = (0.0, 0u64, 0u64);
        for fd in &self.fds {
            let mut words = [0u8; 24];
            if !matches!(rustix::io::read(fd, &mut words), Ok(24)) {
                continue;
            }
            let word = |i: usize| {
                let bytes = words[i * 8..][..8].try_into().unwrap_or_default();
                u64::from_ne_bytes(bytes)
            };
            let (n, on, ran) = (word(0), word(1), word(2));
            (enabled, running) = (enabled + on, running + ran);
            if ran > 0 {
                value += n as f64 * (on as f64 / ran as f64);
            }
        }
        if enabled > 0 && running == 0 {
            return Count::None(
                "the counter never had its turn: too many events at once, or the CPU has no such counter"
                    .into(),
            );
        }
        Count::Value {
            value,
            share: running as f64 / enabled.max(1) as f64,
        }
        .whole_if_idle(enabled)
    }
}

impl Count {
    /// A target that never ran has counted nothing, all of the time.
    fn whole_if_idle(self, enabled: u64) -> Count {
        match self {
            Count::Value { value, .. } if enabled == 0 => Count::Value { value, share: 1.0 },
            other => other,
        }
    }
}

fn is_refusal(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EACCES | libc::EPERM))
}

/// Why an event could not be opened, in words.
pub(crate) fn why(spec: &EventSpec, e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) if spec.source == Source::Hardware => {
            "this machine offers no such counter".into()
        }
        Some(libc::EACCES | libc::EPERM) => {
            "not permitted: root, CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1".into()
        }
        Some(libc::EMFILE) => "too many open files; raise ulimit -n".into(),
        Some(libc::EBADF | libc::EINVAL) => format!("the kernel cannot count it so: {e}"),
        _ => e.to_string(),
    }
}

/// The threads of these processes. They are listed until no new ones appear: a new thread inherits counters
/// only from a thread that has one.
fn tasks_of(pids: &[u32]) -> Vec<u32> {
    let list = || -> Vec<u32> {
        let tasks = pids.iter().filter_map(|pid| process::threads(*pid).ok());
        tasks.flatten().collect()
    };
    let mut tasks = list();
    for _ in 0..8 {
        let again = list();
        if again == tasks {
            break;
        }
        tasks = again;
    }
    tasks
}

/// Resources used so far by commands that this process started and has waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Time on a CPU in user mode and in the kernel, ns.
    pub cpu_ns: (u64, u64),
    /// Page faults without and with reading from a disk.
    pub faults: (u64, u64),
    /// The largest resident size of any one of them, bytes.
    pub most_rss_bytes: u64,
}

/// Resources used by ended children, as the kernel counts them (`getrusage`).
pub fn usage_of_children() -> Usage {
    // SAFETY: a plain structure that the call fills.
    let r = unsafe {
        let mut r: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_CHILDREN, &mut r);
        r
    };
    let ns = |t: libc::timeval| t.tv_sec as u64 * 1_000_000_000 + t.tv_usec as u64 * 1000;
    Usage {
        cpu_ns: (ns(r.ru_utime), ns(r.ru_stime)),
        faults: (r.ru_minflt as u64, r.ru_majflt as u64),
        most_rss_bytes: r.ru_maxrss as u64 * 1024,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_of_our_own_are_counted() {
        let events = [EventSpec::parse("page-faults").unwrap()];
        let counters = Counters::open(&events, &Scope::Processes(vec![std::process::id()]));
        // SAFETY: a fresh mapping of our own; its pages are touched once each.
        unsafe {
            let size = 64 * 4096;
            let at = libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(at, libc::MAP_FAILED);
            libc::madvise(at, size, libc::MADV_NOHUGEPAGE);
            for page in 0..64 {
                at.cast::<u8>().add(page * 4096).write_volatile(1);
            }
            libc::munmap(at, size);
        }
        let reading = &counters.read()[0];
        match &reading.count {
            Count::Value { value, share } => {
                assert!(*value >= 64.0 && *share > 0.99, "{reading:?}")
            }
            Count::None(why) => println!("skipped: page faults cannot be counted here: {why}"),
        }
    }

    #[test]
    fn what_ended_has_nothing_to_count() {
        let events = [EventSpec::parse("task-clock").unwrap()];
        let counters = Counters::open(&events, &Scope::Processes(vec![4_194_000]));
        assert!(matches!(counters.read()[0].count, Count::None(_)));
    }
}
