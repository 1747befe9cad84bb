//! Who is looked at: processes, their threads, and their children as they appear.
//!
//! Threads are found by listing, so one that lives between two listings is never seen; its CPU time
//! still shows in its process's clock and is reported there. Only a thread that ran can have made
//! another or a child, so only those are asked.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
};

use rustc_hash::FxHashMap;
use wallscope_model::BlockReason;
use wallscope_object::process::{self, SchedStat, Status};

use super::book::{Book, Doing};

/// One thread.
pub struct Thread {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Name, as last seen.
    pub name: String,
    /// Its books.
    pub book: Book,
    /// What the last look saw.
    pub doing: Doing,
    /// The reason it was blocked for last.
    pub reason: BlockReason,
    /// The stack it was seen with last, as an index of the samples' stacks.
    pub stack: Option<u32>,
    /// Looks to leave out, and how many were left out last time: it sleeps for long.
    pub skip: u32,
    /// Looks in a row at which nothing had changed.
    pub quiet: u32,
    /// Whether it ran since the last listing.
    pub ran: bool,
    /// Still there.
    pub alive: bool,
    /// User and kernel ticks at the beginning and now.
    pub ticks: [(u64, u64); 2],
    /// Voluntary and involuntary switches at the beginning and now.
    pub switches: [(u64, u64); 2],
    /// When it was put off the CPU, ns on the recording's clock.
    pub put_off: Option<u64>,
    /// Time between being put off the CPU and getting it back, ns.
    pub preempted: u64,
    books: Option<File>,
    place: Option<File>,
}

/// One process.
pub struct Watched {
    /// Its CPU clock at the beginning and now, ns.
    pub clock: [u64; 2],
    /// Whether what its threads wait in may be read.
    pub readable: bool,
    /// When its mappings were read last.
    pub mapped_ns: u64,
    task: Option<File>,
    links: u64,
    exe: Option<(u64, u64)>,
}

/// Everybody.
#[derive(Default)]
pub struct Watch {
    /// By process id.
    pub processes: BTreeMap<u32, Watched>,
    /// All threads ever seen.
    pub threads: Vec<Thread>,
    /// Those that are alive, as indices.
    pub live: Vec<usize>,
    ids: FxHashMap<(u32, u32), usize>,
    /// Threads of the kernel that were asked for and are left out.
    pub kernel_threads: u64,
}

/// Reads a small file from its beginning.
fn read<'a>(file: &File, buffer: &'a mut [u8]) -> io::Result<&'a str> {
    let n = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut *buffer, 0))?;
    std::str::from_utf8(&buffer[..n]).map_err(|_| io::ErrorKind::InvalidData.into())
}

impl Thread {
    /// The scheduler's books now.
    ///
    /// # Errors
    /// It is gone.
    pub fn schedstat(&mut self) -> io::Result<SchedStat> {
        if self.books.is_none() {
            self.books = File::open(format!("/proc/{}/task/{}/schedstat", self.pid, self.tid)).ok();
        }
        let Some(file) = &self.books else {
            return process::sched_stat(self.pid, self.tid);
        };
        let mut buffer = [0u8; 96];
        SchedStat::parse(read(file, &mut buffer)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The line of its `syscall` file now.
    ///
    /// # Errors
    /// It is gone, or may not be read.
    pub fn place<'a>(&mut self, buffer: &'a mut [u8; 256]) -> io::Result<&'a str> {
        let path = || format!("/proc/{}/task/{}/syscall", self.pid, self.tid);
        if self.place.is_none() {
            self.place = match File::open(path()) {
                Ok(file) => Some(file),
                Err(e) if e.raw_os_error() == Some(libc::EMFILE) => {
                    let text = fs::read(path())?;
                    let n = text.len().min(buffer.len());
                    buffer[..n].copy_from_slice(&text[..n]);
                    return std::str::from_utf8(&buffer[..n])
                        .map_err(|_| io::ErrorKind::InvalidData.into());
                }
                Err(e) => return Err(e),
            };
        }
        match &self.place {
            Some(file) => read(file, buffer),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Its state letter, where nothing better may be read.
    pub fn letter(&self) -> char {
        thread_stat(self.pid, self.tid).map_or('?', |s| s.state)
    }

    /// Reads what changes slowly: name, ticks, switches.
    pub fn refresh(&mut self) {
        let path = format!("/proc/{}/task/{}/status", self.pid, self.tid);
        let (Ok(text), Some(stat)) = (fs::read_to_string(path), thread_stat(self.pid, self.tid))
        else {
            return;
        };
        let status = Status::parse(&text);
        self.ticks[1] = (stat.user_ticks, stat.system_ticks);
        self.switches[1] = (status.voluntary_switches, status.involuntary_switches);
        self.name = stat.comm;
    }
}

fn thread_stat(pid: u32, tid: u32) -> Option<process::Stat> {
    let bytes = fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    process::Stat::parse(&String::from_utf8_lossy(&bytes))
}

/// CPU time of a process with all its threads, dead ones too, ns.
fn process_clock(pid: u32) -> Option<u64> {
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

impl Watch {
    /// Takes a process in. `since`: it was not there at that time (ns on CLOCK_MONOTONIC); `None`:
    /// it was there before the start.
    pub fn process(&mut self, pid: u32, since: Option<u64>, now: u64) -> bool {
        if self.processes.contains_key(&pid) {
            return false;
        }
        let Ok(stat) = process::stat(pid) else {
            return false;
        };
        if stat.is_kernel_thread() {
            self.kernel_threads += 1;
            return false;
        }
        let clock = process_clock(pid).unwrap_or(0);
        let watched = Watched {
            clock: [if since.is_some() { 0 } else { clock }, clock],
            readable: true,
            mapped_ns: 0,
            task: File::open(format!("/proc/{pid}/task")).ok(),
            links: 0,
            exe: exe(pid),
        };
        self.processes.insert(pid, watched);
        self.list(pid, since, now);
        true
    }

    /// Lists the threads of a process that it did not have at `since`.
    fn list(&mut self, pid: u32, since: Option<u64>, now: u64) {
        for tid in process::threads(pid).unwrap_or_default() {
            if !self.ids.contains_key(&(pid, tid)) {
                self.thread(pid, tid, since, now);
            }
        }
    }

    fn thread(&mut self, pid: u32, tid: u32, since: Option<u64>, now: u64) {
        let Some(stat) = thread_stat(pid, tid) else {
            return;
        };
        let mut thread = Thread {
            pid,
            tid,
            name: stat.comm,
            book: Book::new(now, SchedStat::default()),
            doing: Doing::Running,
            reason: BlockReason::Other,
            stack: None,
            skip: 0,
            quiet: 0,
            // What was there at the start has just been read, its children too.
            ran: since.is_some(),
            alive: true,
            ticks: [(0, 0); 2],
            switches: [(0, 0); 2],
            put_off: None,
            preempted: 0,
            books: None,
            place: None,
        };
        let Ok(books) = thread.schedstat() else {
            return;
        };
        thread.refresh();
        match since {
            None => {
                thread.book = Book::new(now, books);
                thread.ticks[0] = thread.ticks[1];
                thread.switches[0] = thread.switches[1];
            }
            Some(since) => {
                thread.book = Book::new(
                    birth(stat.start_ticks, books, since, now),
                    SchedStat::default(),
                );
            }
        }
        self.ids.insert((pid, tid), self.threads.len());
        self.live.push(self.threads.len());
        self.threads.push(thread);
    }

    /// Finds threads and children that were not there at `since`. Returns processes that are new or
    /// run a new program.
    pub fn follow(&mut self, since: u64, now: u64) -> Vec<u32> {
        let mut changed = Vec::new();
        let mut children = Vec::new();
        for index in &self.live {
            let t = &mut self.threads[*index];
            if !std::mem::take(&mut t.ran) {
                continue;
            }
            t.refresh();
            let path = format!("/proc/{}/task/{}/children", t.pid, t.tid);
            let list = fs::read_to_string(path).unwrap_or_default();
            children.extend(
                list.split_ascii_whitespace()
                    .filter_map(|c| c.parse::<u32>().ok()),
            );
        }
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        for pid in pids {
            let Some(p) = self.processes.get_mut(&pid) else {
                continue;
            };
            let links = p
                .task
                .as_ref()
                .and_then(|t| t.metadata().ok())
                .map(|m| m.nlink());
            let Some(links) = links else { continue };
            let clock = process_clock(pid).unwrap_or(p.clock[1]);
            if clock != p.clock[1] {
                p.clock[1] = clock;
                let exe = exe(pid);
                if exe.is_some() && exe != p.exe {
                    p.exe = exe;
                    changed.push(pid);
                }
                p.links = links;
                self.list(pid, Some(since), now);
            } else if links != p.links {
                p.links = links;
                self.list(pid, Some(since), now);
            }
        }
        for child in children {
            if self.process(child, Some(since), now) {
                changed.push(child);
            }
        }
        changed
    }

    /// A thread is gone.
    pub fn gone(&mut self, index: usize) {
        let t = &mut self.threads[index];
        t.alive = false;
        (t.books, t.place) = (None, None);
        self.ids.remove(&(t.pid, t.tid));
    }

    /// The thread with these ids, if it is known.
    pub fn find(&self, pid: u32, tid: u32) -> Option<usize> {
        self.ids.get(&(pid, tid)).copied()
    }

    /// The same for one that was heard of and may be new since `since`.
    pub fn heard_of(&mut self, pid: u32, tid: u32, since: u64, now: u64) -> Option<usize> {
        if self.find(pid, tid).is_none() && self.processes.contains_key(&pid) {
            self.thread(pid, tid, Some(since), now);
        }
        self.find(pid, tid)
    }

    /// Reads all process clocks a last time.
    pub fn close(&mut self) {
        for (pid, p) in &mut self.processes {
            p.clock[1] = process_clock(*pid).unwrap_or(p.clock[1]).max(p.clock[1]);
        }
    }
}

/// What identifies the program that a process runs.
fn exe(pid: u32) -> Option<(u64, u64)> {
    let m = fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((m.dev(), m.ino()))
}

/// When a thread was born, as nearly as its start time (in ticks), its books, and its absence at
/// `since` tell.
fn birth(start_ticks: u64, books: SchedStat, since: u64, now: u64) -> u64 {
    let clock = |id| {
        let t = rustix::time::clock_gettime(id);
        t.tv_sec as i64 * 1_000_000_000 + t.tv_nsec as i64
    };
    let asleep = clock(rustix::time::ClockId::Boottime) - clock(rustix::time::ClockId::Monotonic);
    let tick = (start_ticks as i64)
        .saturating_mul(10_000_000)
        .saturating_sub(asleep)
        .max(0) as u64;
    let latest = now.saturating_sub(books.on_cpu_ns + books.run_delay_ns);
    let earliest = tick.max(since).min(latest);
    let latest = latest.min(tick.saturating_add(10_000_000)).max(earliest);
    earliest + (latest - earliest) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_birth_lies_between_what_is_known() {
        let now = 50_000_000_000_000;
        let books = SchedStat {
            on_cpu_ns: 3_000_000,
            run_delay_ns: 1_000_000,
            timeslices: 2,
        };
        let born = birth(0, books, now - 20_000_000, now);
        assert!((now - 20_000_000..=now - 4_000_000).contains(&born));
        // Books that say more than there was time for do not lead out of it.
        let born = birth(u64::MAX >> 24, books, now - 1_000_000, now);
        assert!(born <= now);
    }

    #[test]
    fn own_threads_and_clock_are_found() {
        let own = std::process::id();
        let mut w = Watch::default();
        assert!(w.process(own, None, 1));
        assert!(!w.process(own, None, 1), "known already");
        let (tell, wait) = std::sync::mpsc::channel::<()>();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            // SAFETY: no arguments.
            ready.send(unsafe { libc::gettid() } as u32).unwrap();
            wait.recv()
        });
        let tid = is_ready.recv().unwrap();
        w.follow(1, 2);
        assert!(w.ids.contains_key(&(own, tid)));
        assert!(process_clock(own).is_some_and(|ns| ns > 0));
        drop(tell);
        assert!(thread.join().unwrap().is_err());
    }
}
