//! One polled process: its clocks, and its difference from a later process with its id.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use wallscope_observe::ProcessClocks;
use wallscope_procfs::{kernel_file, process};

use super::thread::thread_stat;

/// One process.
pub struct TrackedProcess {
    /// Its CPU clock at the beginning and now, ns.
    pub clock: [u64; 2],
    /// CPU time of earlier processes with its id, ns.
    pub before: u64,
    /// Whether the `syscall` files of its threads may be read.
    pub readable: bool,
    /// When its mappings may be read again.
    pub mapped_until_ns: u64,
    /// Threads alive.
    pub alive: usize,
    /// Whether it had threads, and all of them have ended.
    pub ended: bool,
    /// When it started, ticks after boot; 0: not known.
    pub start_ticks: u64,
    /// Id of its parent; 0: not known.
    pub parent: u32,
    /// CPU time of children that it has waited for, and of theirs: at the beginning and now, ns.
    pub reaped: [u64; 2],
    /// When `reaped` was read last, ns.
    pub reaped_read_ns: u64,
    /// Timer ticks in its threads in user mode and in the kernel, ended threads included: at the beginning
    /// and now.
    pub ticks: [(u64, u64); 2],
    pub task: Option<File>,
    pub links: u64,
    pub listed_ns: u64,
    pub exe: Option<(u64, u64)>,
}

/// CPU time of a process with all its threads, dead ones too, ns.
pub fn process_clock(pid: u32) -> Option<u64> {
    // CPUCLOCK_SCHED of a process by id, as clock_getcpuclockid(3) makes it.
    let clock = (!(pid as i32) << 3) | 2;
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one timespec.
    let ok = unsafe { libc::clock_gettime(clock, &raw mut t) } == 0;
    ok.then_some(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

/// Counters that the kernel keeps of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Timer ticks in its threads, in user mode and in the kernel.
    ticks: (u64, u64),
    /// CPU time of the children that it has waited for, and of those that these have waited for, ns.
    reaped_ns: u64,
}

impl Counts {
    fn of(pid: u32) -> Option<Counts> {
        Counts::parse(&kernel_file::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(stat: &str) -> Option<Counts> {
        let (_, tail) = stat.rsplit_once(')')?;
        // utime, stime, cutime and cstime are fields 14 to 17 of proc(5). `tail` begins with field 3.
        let mut fields = tail.split_ascii_whitespace().skip(14 - 3);
        let mut next = || fields.next()?.parse::<u64>().ok();
        let ticks = (next()?, next()?);
        let reaped_ns = next()?.saturating_add(next()?).saturating_mul(TICK);
        Some(Counts { ticks, reaped_ns })
    }
}

/// Resolution of these times, ns: Linux shows 100 ticks a second to all programs.
pub const TICK: u64 = 10_000_000;

impl TrackedProcess {
    /// A process that exists already: its time so far does not count. Its start, ticks after boot, and its
    /// parent are known.
    pub fn found(pid: u32, (start_ticks, parent): (u64, u32)) -> TrackedProcess {
        let clock = process_clock(pid).unwrap_or(0);
        let now = Counts::of(pid).unwrap_or_default();
        TrackedProcess {
            clock: [clock; 2],
            before: 0,
            readable: true,
            mapped_until_ns: 0,
            alive: 0,
            ended: false,
            start_ticks,
            parent,
            reaped: [now.reaped_ns; 2],
            reaped_read_ns: 0,
            ticks: [now.ticks; 2],
            task: kernel_file::open(format!("/proc/{pid}/task")).ok(),
            links: 0,
            listed_ns: 0,
            exe: exe(pid),
        }
    }

    /// A process that was born under watch: all that it did counts.
    pub fn born(pid: u32, from: (u64, u32)) -> TrackedProcess {
        let mut born = TrackedProcess::found(pid, from);
        (born.clock[0], born.reaped[0], born.ticks[0]) = (0, 0, (0, 0));
        born
    }

    /// Its clocks and ticks as an observation; `pid`: its id.
    pub fn clocks(&self, pid: u32) -> ProcessClocks {
        ProcessClocks {
            pid,
            parent: self.parent,
            ended: self.ended,
            cpu_ns: self.clock,
            before_ns: self.before,
            reaped_ns: self.reaped,
            ticks: self.ticks,
        }
    }

    /// CPU time of the process, and of those that had its id before, ns.
    pub fn cpu_ns(&self) -> u64 {
        self.before + self.clock[1].saturating_sub(self.clock[0])
    }

    /// Whether the process that has this id now is still this one.
    pub fn is_still(&self, pid: u32) -> bool {
        self.start_ticks == 0
            || process::stat(pid).is_ok_and(|stat| stat.start_ticks == self.start_ticks)
    }

    /// Reads its clock; whether it has moved.
    pub fn tick(&mut self, pid: u32) -> bool {
        let clock = process_clock(pid).unwrap_or(0).max(self.clock[1]);
        std::mem::replace(&mut self.clock[1], clock) != clock
    }

    /// Reads the CPU time of the children that it has waited for, and its ticks.
    pub fn count(&mut self, pid: u32) {
        if let Some(counts) = Counts::of(pid) {
            self.reaped[1] = counts.reaped_ns.max(self.reaped[1]);
            self.ticks[1] = counts.ticks;
        }
    }

    /// Its ticks have been shown in a snapshot: the next one begins here.
    pub fn shown(&mut self) {
        self.ticks[0] = self.ticks[1];
    }
}

/// Whether a process still has a thread that lives.
pub fn is_populated(pid: u32) -> bool {
    let threads = process::threads(pid).unwrap_or_default();
    threads
        .into_iter()
        .filter_map(|tid| thread_stat(pid, tid))
        .any(|stat| !matches!(stat.state, 'Z' | 'X'))
}

/// Device and inode of the program that a process runs.
pub fn exe(pid: u32) -> Option<(u64, u64)> {
    let m = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((m.dev(), m.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_process_with_a_difficult_name() {
        let stat = "7 (a ) (b) S 1 7 7 0 -1 4194560 90 0 3 0 11 22 33 44 20 0 1 0 999";
        let expected = Counts {
            ticks: (11, 22),
            reaped_ns: 77 * TICK,
        };
        assert_eq!(Counts::parse(stat), Some(expected));
        assert_eq!(
            Counts::parse("7 (a) S 1 7 7 0 -1 4194560 90 0 3 0 11"),
            None
        );
    }
}
