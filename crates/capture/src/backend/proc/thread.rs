//! One thread as it is polled, and its files in `/proc`. Its time is its account's (`account.rs`).

use std::{fs::File, io, sync::Arc};
use wallscope_procfs::kernel_file;

use wallscope_model::{BlockReason, WaitSeen};
use wallscope_observe::{AccountBegin, CpuDeparture, PolledState, StackBegin};
use wallscope_procfs::process::{self, SchedStat, Status};

use super::{
    account::{Account, observed},
    counters::PolledActivity,
    io_ring::RingWait,
    last_ran,
    wait_observation::PartialObservation,
};
use crate::backend::perf::{KnownWaitSites, SwitchThrottle, SwitchTimeline};

/// Unit in which the kernel counts user and kernel time, ns.
const TICK: u64 = 10_000_000;
/// These times are read again when CPU time has grown by one part in this many. If the thread vanishes, the rest is
/// divided like the time until then.
const GROWN: u64 = 16;
/// Bounds of the time after which a name is read again, ns. The time is the thread's age at the last reading, because
/// names are mostly given soon after birth.
const RENAMED: [u64; 2] = [20_000_000, 10_000_000_000];

/// What the last poll of a thread read.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What the last poll saw.
    pub doing: PolledActivity,
    /// Its last block reason.
    pub reason: BlockReason,
    /// The stack it was seen with last, as an index of the samples' stacks.
    pub stack: Option<u32>,
    /// Extent of that stack, and where it begins.
    pub begin: Option<StackBegin>,
    /// The connections that it was seen to wait for last.
    pub seen: WaitSeen,
    /// That wait as far as it is known, if it was over before its stack was copied, at `copied_ns`.
    pub glimpse: Option<PartialObservation>,
    /// The ring of io_uring at which it waited then.
    pub ring: Option<RingWait>,
    /// When that stack was copied, ns.
    pub copied_ns: u64,
    /// Whether that is the stack of the wait even if the thread had just moved on by then.
    pub called: bool,
    /// Time until which the last poll knows it to have been where it was seen, ns.
    pub stood_ns: u64,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe {
            doing: PolledActivity::Running,
            reason: BlockReason::Other,
            stack: None,
            begin: None,
            seen: WaitSeen::default(),
            glimpse: None,
            ring: None,
            copied_ns: 0,
            called: false,
            stood_ns: 0,
        }
    }
}

/// When a thread is polled.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollDuty {
    /// Polls to leave out: it sleeps for long.
    pub skip: u32,
    /// Polls in a row at which nothing had changed.
    pub quiet: u32,
    /// Rounds that these stand for, those left out included.
    pub slept: u32,
    /// Polls left out since the last one, as it slept.
    pub left_out: u32,
    /// Polls in time at which it had moved.
    pub in_time: u32,
    /// Whether the next poll reads its counters though no record of it may have come.
    pub review: bool,
    /// Whether the next round polls it: it does not rest.
    pub awake: bool,
}

/// What perf events add to the polls of a thread.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Index of the thread that it inherited perf events from; `None`: it has its own, or none.
    pub heir_of: Option<usize>,
    /// Whether those events sample it when it is preempted.
    pub inherits_leaving: bool,
    /// Whether its switches are recorded now.
    pub open: bool,
    /// The kernel has taken its events away: no more records will come, though it goes on.
    pub silenced: bool,
    /// Throttle of its records, if its switches are too many for a record of each.
    pub ration: Option<SwitchThrottle>,
    /// On-CPU time since its last sample, where samples are thinned out, ns.
    pub credit_ns: u64,
    /// Time from its birth on that samples of newborn threads stand for, ns.
    pub covered_ns: u64,
    /// The last sample of the present time on a CPU, as an index of the samples' stacks.
    pub sampled: Option<u32>,
    /// The stack of its next preemption, as an index of the samples' stacks, and the number of switches that it
    /// stands for.
    pub leaves: Option<(u32, u64)>,
}

/// One thread.
pub struct TrackedThread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name, as last seen.
    pub name: String,
    /// What the last poll read.
    pub probe: Probe,
    /// When it is polled.
    pub duty: PollDuty,
    /// What perf events add.
    pub records: Records,
    /// Sites at which it was seen to wait, while its switches are recorded.
    pub wait_sites: KnownWaitSites,
    /// Whether it ran since the last listing.
    pub ran: bool,
    /// Whether its records named new threads when it was followed last.
    pub tells_births: bool,
    /// Whether it ran since its slowly changing facts were read.
    stale: bool,
    /// When that was, ns on the recording's clock, and its CPU time then, ns; 0: it is new.
    refreshed: (u64, u64),
    /// Still there.
    pub alive: bool,
    /// User and kernel ticks, as they were read last.
    pub ticks: (u64, u64),
    /// Voluntary and involuntary switches by the kernel's count, as they were read last.
    pub switches: (u64, u64),
    /// The scheduler's counters, as they were read last.
    pub books: SchedStat,
    /// The part of the counters' on-CPU time that is not its own, or was shown in a snapshot, ns.
    pub told_on_cpu_ns: u64,
    /// When its time began, ns on the recording's clock.
    since_ns: u64,
    after_reading: AfterReading,
    files: Files,
}

/// State of a file after a reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterReading {
    /// It stays open for the next reading.
    KeepOpen,
    /// It is closed.
    Close,
}

/// A thread's files in `/proc`, as far as they are kept open.
#[derive(Clone, Debug, Default)]
pub struct Files {
    /// `schedstat`.
    pub books: Option<Arc<File>>,
    /// `syscall`.
    pub place: Option<Arc<File>>,
    wchan: Option<Arc<File>>,
    stat: Option<Arc<File>>,
    /// `sched`.
    pub departure: Option<Arc<File>>,
}

/// Reads a small file from its beginning.
fn read<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let n = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buffer, 0))?;
    Ok(&buffer[..n])
}

impl TrackedThread {
    /// A thread that is watched from `now` on. Its files are closed after each reading.
    pub fn new(pid: u32, tid: u32, name: String, now: u64) -> TrackedThread {
        TrackedThread {
            pid,
            tid,
            name,
            probe: Probe::default(),
            duty: PollDuty::default(),
            records: Records::default(),
            wait_sites: KnownWaitSites::default(),
            ran: false,
            tells_births: false,
            stale: false,
            refreshed: (0, 0),
            alive: true,
            ticks: (0, 0),
            switches: (0, 0),
            books: SchedStat::default(),
            told_on_cpu_ns: 0,
            since_ns: now,
            after_reading: AfterReading::Close,
            files: Files::default(),
        }
    }

    /// Whether polls can learn nothing of it until a record of it comes: it waits, and they have seen the reason
    /// and have left that wait. `account`: its own.
    pub fn rests(&self, account: &Account) -> bool {
        let since = account
            .course
            .as_ref()
            .and_then(SwitchTimeline::rests_since);
        let probe = account.wait.probe.filter(|p| p.left);
        let left = |begin| probe.is_some_and(|p| p.poll.at >= begin);
        !self.duty.review && !self.records.silenced && since.is_some_and(left)
    }

    /// Whether all of its time was recorded, but for lost records.
    pub fn is_recorded(&self) -> bool {
        self.records.open && self.records.ration.is_none_or(|r| r.unrecorded_ns == 0)
    }

    /// Its time begins at `now`, when the counters stand at `books`. Nothing that came before is its own.
    pub fn begins(&mut self, now: u64, books: SchedStat) -> AccountBegin {
        (self.since_ns, self.told_on_cpu_ns) = (now, books.on_cpu_ns);
        AccountBegin {
            time: now,
            counters: observed(books),
            ticks: self.ticks,
            switches: self.switches,
        }
    }

    /// It was born at `now`: all that its counters tell is its own.
    pub fn is_born(&mut self, now: u64) -> AccountBegin {
        (self.since_ns, self.told_on_cpu_ns) = (now, 0);
        AccountBegin {
            time: now,
            ..AccountBegin::default()
        }
    }

    /// What the last poll saw, as an observation.
    pub fn saw(&self) -> PolledState {
        PolledState {
            blocked: match self.probe.doing {
                PolledActivity::Running => None,
                PolledActivity::Blocked(reason) => Some(reason),
            },
            stack: self.probe.stack,
            begin: self.probe.begin,
            seen: self.probe.seen,
        }
    }

    /// Its files stay open from here on.
    pub fn keep_files(&mut self) {
        self.after_reading = AfterReading::KeepOpen;
    }

    /// Whether its files are kept open.
    pub fn is_cached(&self) -> bool {
        self.after_reading == AfterReading::KeepOpen
    }

    /// Closes its files; whether they were kept open.
    pub fn close(&mut self) -> bool {
        self.files = Files::default();
        let before = std::mem::replace(&mut self.after_reading, AfterReading::Close);
        before == AfterReading::KeepOpen
    }

    /// Its scheduler counters now.
    ///
    /// # Errors
    /// It is gone.
    pub fn schedstat(&mut self) -> io::Result<SchedStat> {
        let mut buffer = [0u8; 96];
        let path = || path(self.pid, self.tid, "schedstat");
        let text = line(&mut self.files.books, self.after_reading, path, &mut buffer)?;
        let books = SchedStat::parse(text).ok_or(io::ErrorKind::InvalidData)?;
        self.books = books;
        Ok(books)
    }

    /// The line of its `syscall` file now.
    ///
    /// # Errors
    /// It is gone, or may not be read.
    pub fn place<'a>(&mut self, buffer: &'a mut [u8; 256]) -> io::Result<&'a str> {
        let path = || path(self.pid, self.tid, "syscall");
        line(&mut self.files.place, self.after_reading, path, buffer)
    }

    /// Whether its `syscall` file still says `text`.
    pub fn still(&mut self, text: &str) -> bool {
        self.place(&mut [0u8; 256]).is_ok_and(|now| now == text)
    }

    /// The kernel's function in which it waits; empty if that cannot be read.
    pub fn wchan<'a>(&mut self, buffer: &'a mut [u8; 96]) -> &'a str {
        let path = || path(self.pid, self.tid, "wchan");
        line(&mut self.files.wchan, self.after_reading, path, buffer).unwrap_or("")
    }

    /// Content of its `stat` file now.
    pub fn stat(&mut self) -> Option<process::Stat> {
        let mut buffer = [0u8; 1024];
        let path = || path(self.pid, self.tid, "stat");
        let bytes = bytes(&mut self.files.stat, self.after_reading, path, &mut buffer).ok()?;
        process::Stat::parse(&String::from_utf8_lossy(bytes))
    }

    /// Whether it waits for the CPU that we are on. Many threads wait for that CPU only because we run there, and only
    /// while we do. Polls would see all of these, and others in proportion to their time.
    pub fn shares_our_cpu(&mut self) -> bool {
        (self.stat()).is_none_or(|s| s.cpu as usize == rustix::thread::sched_getcpu())
    }

    /// Its state letter, where nothing better may be read.
    pub fn letter(&mut self) -> char {
        self.stat().map_or('?', |s| s.state)
    }

    /// When it left its CPU, if it is off it and the kernel shows that.
    pub fn last_ran(&mut self) -> Option<CpuDeparture> {
        let path = || path(self.pid, self.tid, "sched");
        let mut buffer = [0u8; 2048];
        last_ran::parse(
            line(
                &mut self.files.departure,
                self.after_reading,
                path,
                &mut buffer,
            )
            .ok()?,
        )
    }

    /// Those of its files that are kept open.
    pub fn files(&self) -> &Files {
        &self.files
    }

    /// Takes that it has run: reads its slowly changing facts, if they may have changed by `now`. Ticks change only
    /// with CPU time, and records show new names.
    pub fn has_run(&mut self, now: u64) {
        self.stale = true;
        let (then, on_cpu_ns) = self.refreshed;
        let computed = self.books.on_cpu_ns.saturating_sub(on_cpu_ns);
        let [soonest, latest] = RENAMED;
        let renamed = then.saturating_sub(self.since_ns).clamp(soonest, latest);
        let may_be_renamed = !self.records.open && now.saturating_sub(then) >= renamed;
        let before = on_cpu_ns.saturating_sub(self.told_on_cpu_ns);
        if computed >= TICK.max(before / GROWN) || may_be_renamed {
            self.refresh(now);
        }
    }

    /// Takes that it has not run: reads the facts that its last run may have changed, because there may be no other
    /// run.
    pub fn has_not_run(&mut self, now: u64) {
        if self.stale {
            self.has_run(now);
        }
    }

    /// Reads its slowly changing facts, if they can have changed.
    pub fn catch_up(&mut self, now: u64) {
        if self.alive && (self.ran || self.stale) {
            self.refresh(now);
        }
    }

    /// Reads its slowly changing facts: name, ticks, switches.
    pub fn refresh(&mut self, now: u64) {
        (self.stale, self.refreshed) = (false, (now, self.books.on_cpu_ns));
        let mut buffer = [0u8; 4096];
        let path = || path(self.pid, self.tid, "status");
        let status = line(&mut None, AfterReading::Close, path, &mut buffer);
        let (Ok(text), Some(stat)) = (status, self.stat()) else {
            return;
        };
        let status = Status::parse(text);
        self.ticks = (stat.user_ticks, stat.system_ticks);
        self.switches = (status.voluntary_switches, status.involuntary_switches);
        self.name = stat.comm;
    }
}

/// The text of a small file. One that stays open is in `slot`.
///
/// # Errors
/// It cannot be read, or is no text.
pub fn line<'a>(
    slot: &mut Option<Arc<File>>,
    after: AfterReading,
    path: impl Fn() -> String,
    buffer: &'a mut [u8],
) -> io::Result<&'a str> {
    let bytes = bytes(slot, after, path, buffer)?;
    std::str::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The bytes of a small file. One that stays open is in `slot`.
fn bytes<'a>(
    slot: &mut Option<Arc<File>>,
    after: AfterReading,
    path: impl Fn() -> String,
    buffer: &'a mut [u8],
) -> io::Result<&'a [u8]> {
    if let Some(file) = slot {
        return read(file, buffer);
    }
    let file = kernel_file::open(path())?;
    let bytes = read(&file, buffer)?;
    if after == AfterReading::KeepOpen {
        *slot = Some(Arc::new(file));
    }
    Ok(bytes)
}

/// One of a thread's files.
pub fn path(pid: u32, tid: u32, name: &str) -> String {
    format!("/proc/{pid}/task/{tid}/{name}")
}

/// The `stat` file of a thread.
pub fn thread_stat(pid: u32, tid: u32) -> Option<process::Stat> {
    let mut buffer = [0u8; 1024];
    let path = || path(pid, tid, "stat");
    let bytes = bytes(&mut None, AfterReading::Close, path, &mut buffer).ok()?;
    process::Stat::parse(&String::from_utf8_lossy(bytes))
}
