//! The polled processes, their threads, and their children as they appear.
//!
//! Threads are found by listing, so a thread that lives between two listings is never seen. Its CPU time still
//! shows in its process's clock and is reported there. Only a thread that ran can have made another thread or a
//! child, so only such threads are asked. If births are recorded ([`crate::backend::perf`]), threads come from
//! there, with their exact beginning and end.
//!
//! A child process that lives between two polls is never seen either. Its CPU time goes to the process that
//! waited for it: the kernel's own sum of such times, less those of children that were seen.
//!
//! Ids are used again. A process is the one we know only if it has the start time that we know. A thread's files
//! are kept open: they fail for good when it is gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    os::unix::fs::MetadataExt,
};
use wallscope_procfs::kernel_file;

use rustc_hash::FxHashMap;
use wallscope_observe::{AccountBegin, PolledThread};
use wallscope_procfs::process::{self, SchedStat};

use super::{
    thread::{TrackedThread, thread_stat},
    tracked_process::{TrackedProcess, exe, is_populated},
};

/// Least time between two listings of a process's threads, ns, and the time added for each thread.
const LIST_EVERY: u64 = 100_000_000;
const LIST_EACH: u64 = 500_000;

/// Time, ns, for which a birth is news: until every sleeping thread that may have caused it was polled.
const NEWS: u64 = 200_000_000;

/// The measured processes and threads.
pub struct TargetTracker {
    /// By process id.
    pub processes: BTreeMap<u32, TrackedProcess>,
    /// Processes that have not ended.
    pub living: BTreeSet<u32>,
    /// All threads ever seen.
    pub threads: Vec<TrackedThread>,
    /// Indices of the threads that are alive.
    pub live: Vec<usize>,
    /// Live threads that the next round polls.
    pub awake: Vec<usize>,
    /// Whether some of `live` have ended.
    has_dead: bool,
    ids: FxHashMap<(u32, u32), usize>,
    /// Indices of ended threads.
    ended: FxHashMap<(u32, u32), usize>,
    /// Threads of the kernel that were asked for and are left out.
    pub kernel_threads: u64,
    newest_file: Option<File>,
    /// Id of the thread that was born last on the machine.
    newest: Option<u32>,
    /// Time of the last change of `newest`, ns.
    born_ns: u64,
    /// The latest of `threads` that have no account yet.
    opened: Vec<PolledThread>,
    /// Number of further threads with `/proc` files that may stay open.
    free_file_slots: usize,
    /// The command that was released and has not reached its exec: it is a copy of this program until then.
    before_exec: Option<u32>,
}

impl TargetTracker {
    /// A tracker without processes. The files of at most `free_file_slots` threads are kept open.
    pub fn new(free_file_slots: usize) -> TargetTracker {
        TargetTracker {
            processes: BTreeMap::new(),
            living: BTreeSet::new(),
            threads: Vec::new(),
            live: Vec::new(),
            awake: Vec::new(),
            has_dead: false,
            ids: FxHashMap::default(),
            ended: FxHashMap::default(),
            kernel_threads: 0,
            newest_file: newest_file(),
            newest: None,
            born_ns: 0,
            opened: Vec::new(),
            free_file_slots,
            before_exec: None,
        }
    }

    /// The command `pid` was released.
    pub fn released(&mut self, pid: u32) {
        self.before_exec = Some(pid);
    }

    /// Process `pid` runs another program.
    pub fn executed(&mut self, pid: u32) {
        self.before_exec.take_if(|held| *held == pid);
    }

    /// Whether process `pid` is a copy of this program, so that no stack of it is the command's.
    pub fn is_before_exec(&self, pid: u32) -> bool {
        self.before_exec == Some(pid)
    }

    /// Asks the kernel whether process `pid` runs another program by now.
    pub fn look_for_exec(&mut self, pid: u32) {
        // A copy has this program's arguments, among which are those of the command and more.
        if self.is_before_exec(pid)
            && process::cmdline(pid).ok() != process::cmdline(std::process::id()).ok()
        {
            self.executed(pid);
        }
    }

    /// Threads that have come since this was called last, in the order of their numbers.
    pub fn take_opened(&mut self) -> Vec<PolledThread> {
        std::mem::take(&mut self.opened)
    }

    /// Adds a process. `since`: it did not exist at that time (ns on CLOCK_MONOTONIC); `None`: it existed before the
    /// start. Returns whether it is new to us.
    pub fn process(&mut self, pid: u32, since: Option<u64>, now: u64) -> bool {
        let known = self.processes.get(&pid);
        if known.is_some_and(|p| !p.ended) {
            return false;
        }
        let Ok(stat) = process::stat(pid) else {
            return false;
        };
        if known.is_some_and(|p| p.start_ticks == stat.start_ticks) {
            return false;
        }
        if stat.is_kernel_thread() {
            self.kernel_threads += 1;
            return false;
        }
        let from = (stat.start_ticks, stat.parent);
        let process = match since {
            Some(_) => TrackedProcess::born(pid, from),
            None => TrackedProcess::found(pid, from),
        };
        self.admit(pid, process);
        self.list(pid, since, now);
        true
    }

    fn admit(&mut self, pid: u32, mut watched: TrackedProcess) {
        watched.before = self.processes.get(&pid).map_or(0, TrackedProcess::cpu_ns);
        self.processes.insert(pid, watched);
        self.living.insert(pid);
    }

    /// Lists the threads of a process that it did not have at `since`.
    fn list(&mut self, pid: u32, since: Option<u64>, now: u64) {
        if !self.processes.get(&pid).is_some_and(|p| p.is_still(pid)) {
            return;
        }
        for tid in process::threads(pid).unwrap_or_default() {
            if !self.ids.contains_key(&(pid, tid)) {
                self.thread(pid, tid, since, now);
            }
        }
    }

    /// Lists the threads of all living processes. They existed at the start.
    pub fn list_all(&mut self, now: u64) {
        for pid in self.living.clone() {
            self.list(pid, None, now);
        }
    }

    fn thread(&mut self, pid: u32, tid: u32, since: Option<u64>, now: u64) {
        // A leader that has ended stays in the list as long as its threads live.
        let Some(stat) = thread_stat(pid, tid).filter(|s| !matches!(s.state, 'Z' | 'X')) else {
            return;
        };
        let mut thread = TrackedThread::new(pid, tid, stat.comm, now);
        if self.may_keep_files() {
            thread.keep_files();
        }
        let Ok(books) = thread.schedstat() else {
            return;
        };
        let begin = match since {
            None => {
                thread.refresh(now);
                thread.begins(now, books)
            }
            Some(since) => {
                // It is read once more when it has run: it may give itself a name.
                thread.refresh(0);
                // What was there at the start has just been read, its children too.
                thread.ran = true;
                let born = birth(stat.start_ticks, books, since, now);
                thread.is_born(born)
            }
        };
        self.insert(thread, begin);
    }

    /// Adds a thread, and its process if that is new. `begin`: the start of its account.
    pub fn insert(&mut self, thread: TrackedThread, begin: AccountBegin) -> usize {
        self.opened.push(PolledThread {
            pid: thread.pid,
            tid: thread.tid,
            name: thread.name.as_str().into(),
            begin,
        });
        let index = self.threads.len();
        let (pid, tid) = (thread.pid, thread.tid);
        if self.processes.get(&pid).is_none_or(|p| p.ended) {
            let from = process::stat(pid).map_or((0, 0), |stat| (stat.start_ticks, stat.parent));
            self.admit(pid, TrackedProcess::born(pid, from));
        }
        if let Some(p) = self.processes.get_mut(&pid) {
            p.alive += 1;
        }
        self.free_file_slots -= usize::from(thread.is_cached() && self.free_file_slots > 0);
        self.ids.insert((pid, tid), index);
        self.live.push(index);
        self.threads.push(thread);
        self.wake(index);
        index
    }

    /// Whether the `/proc` files of one more thread may stay open.
    pub fn may_keep_files(&self) -> bool {
        self.free_file_slots > 0
    }

    /// Whether a task was created on this machine within [`NEWS`]. `false` if the kernel does not tell.
    pub fn has_births(&mut self, now: u64) -> bool {
        let newest = self.newest_file.as_ref().and_then(newest_id);
        if newest != self.newest {
            (self.newest, self.born_ns) = (newest, now);
        }
        self.newest.is_some() && now < self.born_ns + NEWS
    }

    /// Finds threads and children that were not there at `since`. Returns processes that are new or
    /// run a new program.
    pub fn follow(&mut self, since: u64, now: u64) -> Vec<u32> {
        let mut changed = Vec::new();
        let mut children = Vec::new();
        let births = self.has_births(now) || self.newest.is_none();
        for index in &self.live {
            let t = &mut self.threads[*index];
            if !std::mem::take(&mut t.ran) {
                t.has_not_run(now);
                continue;
            }
            t.has_run(now);
            // Its records name the threads that it made since, if it had records all the time.
            let tells = t.is_recorded();
            let told = std::mem::replace(&mut t.tells_births, tells);
            if !births || (told && tells) {
                continue;
            }
            children.extend(children_of(t.pid, t.tid));
        }
        for pid in self.living.clone() {
            let Some(p) = self.processes.get_mut(&pid) else {
                continue;
            };
            let links = p
                .task
                .as_ref()
                .and_then(|t| t.metadata().ok())
                .map(|m| m.nlink());
            let Some(links) = links else { continue };
            let ran = p.tick(pid);
            if ran {
                let exe = exe(pid);
                if exe.is_some() && exe != p.exe {
                    p.exe = exe;
                    changed.push(pid);
                }
            }
            // The kernel adds up all threads for it. An unseen thread was born not long ago.
            if births && ran && now >= p.reaped_read_ns + LIST_EVERY + LIST_EACH * p.alive as u64 {
                p.reaped_read_ns = now;
                p.count(pid);
            }
            // A listing of many threads is costly: without a sign of a change it is made less often.
            let due = p.listed_ns + LIST_EVERY + LIST_EACH * p.alive as u64;
            if links != p.links || (births && ran && now >= due) {
                (p.links, p.listed_ns) = (links, now);
                self.list(pid, Some(since), now);
            }
        }
        while let Some(child) = children.pop() {
            let known = self.threads.len();
            // A target that started us is measured without us.
            if child != std::process::id() && self.process(child, Some(since), now) {
                changed.push(child);
                // Children that it has made already, and waits for, may be gone by the next search.
                let new = self.threads[known..].iter();
                children.extend(new.flat_map(|t| children_of(t.pid, t.tid)));
            }
        }
        changed
    }

    /// Has the next round poll a thread, which may have rested.
    pub fn wake(&mut self, index: usize) {
        if !std::mem::replace(&mut self.threads[index].duty.awake, true) {
            self.awake.push(index);
        }
    }

    /// Has the next round poll all threads.
    pub fn wake_all(&mut self) {
        for number in 0..self.live.len() {
            self.wake(self.live[number]);
        }
    }

    /// Leaves ended threads out.
    pub fn leave_out_dead(&mut self) {
        if std::mem::take(&mut self.has_dead) {
            self.live.retain(|index| self.threads[*index].alive);
        }
    }

    /// Takes the end of a thread. Returns whether it was the last one of its process.
    pub fn gone(&mut self, index: usize) -> bool {
        let t = &mut self.threads[index];
        if !std::mem::take(&mut t.alive) {
            return false;
        }
        self.has_dead = true;
        self.free_file_slots += usize::from(t.close());
        let pid = t.pid;
        self.ids.remove(&(pid, t.tid));
        self.ended.insert((pid, t.tid), index);
        let Some(p) = self.processes.get_mut(&pid) else {
            return false;
        };
        p.alive = p.alive.saturating_sub(1);
        // The last one that is known; threads that have not been listed yet may outlive it.
        let is_there = p.alive == 0 && p.is_still(pid);
        p.ended = p.alive == 0 && !(is_there && is_populated(pid));
        if p.ended {
            if is_there {
                // Its clock and its counts can be read until its parent has waited for it.
                p.tick(pid);
                p.count(pid);
            }
            p.task = None;
            self.living.remove(&pid);
        }
        p.ended
    }

    /// The thread with these ids, if it is known.
    pub fn find(&self, pid: u32, tid: u32) -> Option<usize> {
        self.ids.get(&(pid, tid)).copied()
    }

    /// The last thread with these ids that has ended.
    pub fn find_ended(&self, pid: u32, tid: u32) -> Option<usize> {
        self.ended.get(&(pid, tid)).copied()
    }

    /// The thread with these ids, which an event named. One that is not known yet began after `since`.
    pub fn heard_of(&mut self, pid: u32, tid: u32, since: u64, now: u64) -> Option<usize> {
        if self.find(pid, tid).is_none() && self.processes.get(&pid).is_some_and(|p| !p.ended) {
            self.thread(pid, tid, Some(since), now);
        }
        self.find(pid, tid)
    }

    /// Reads all process clocks.
    pub fn read_clocks(&mut self) {
        for (pid, p) in &mut self.processes {
            if p.alive > 0 {
                p.tick(*pid);
                p.count(*pid);
            }
        }
    }
}

/// The children that a thread has made, and that have not been waited for.
pub(super) fn children_of(pid: u32, tid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{tid}/children");
    let list = kernel_file::read_to_string(path).unwrap_or_default();
    (list.split_ascii_whitespace().filter_map(|c| c.parse().ok())).collect()
}

/// The file with the id of the thread that was born last on the machine, as far as this `/proc` shows it. While
/// the id stays, no process has a new thread or child. `None`: the file is not there, or is not the kernel's, as
/// inside some containers.
fn newest_file() -> Option<File> {
    let device = |path| fs::metadata(path).ok().map(|m| m.dev());
    (device("/proc/loadavg")? == device("/proc")?)
        .then(|| kernel_file::open("/proc/loadavg").ok())?
}

/// Id of the thread that was born last.
fn newest_id(file: &File) -> Option<u32> {
    let mut bytes = [0u8; 128];
    let n = rustix::io::retry_on_intr(|| rustix::io::pread(file, &mut bytes[..], 0)).ok()?;
    let text = str::from_utf8(&bytes[..n]).ok()?;
    text.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Time of a thread's birth, as nearly as its start time (in ticks), its counters, and its absence at
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
    use crate::backend::proc::tracked_process::process_clock;

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
        // Counters of more time than there was do not lead out of that range.
        let born = birth(u64::MAX >> 24, books, now - 1_000_000, now);
        assert!(born <= now);
    }

    #[test]
    fn a_child_is_found_with_those_that_it_waits_for() {
        if !fs::exists("/proc/thread-self/children").is_ok_and(|there| there) {
            return println!("skipped: this kernel does not list children");
        }
        let mut w = TargetTracker::new(100);
        assert!(w.process(std::process::id(), None, 1));
        let tree = "sh -c 'sleep 100; true'; true";
        let mut top = (std::process::Command::new("sh").args(["-c", tree]))
            .spawn()
            .expect("sh");
        let one = |pid| children_of(pid, pid).pop();
        let sleeps = |pid: &u32| process::stat(*pid).is_ok_and(|s| s.comm == "sleep");
        let last = loop {
            let below = one(top.id()).and_then(one);
            match below.filter(sleeps) {
                Some(pid) => break pid,
                None => std::thread::yield_now(),
            }
        };
        w.threads.iter_mut().for_each(|t| t.ran = true);
        let found = w.follow(2, 3);
        // SAFETY: a child of a child of ours, which stays a zombie until its parent has waited for it.
        unsafe { libc::kill(last as i32, libc::SIGKILL) };
        top.wait().expect("it ends");
        assert!(
            found.contains(&top.id()) && found.contains(&last),
            "{found:?}"
        );
    }

    /// Makes a process that has the id `pid` and waits.
    fn process_with(pid: u32) -> std::io::Result<()> {
        // struct clone_args, up to `set_tid_size`; the kernel reads 32 bits of ids.
        let id = pid as libc::pid_t;
        let mut args = [0u64; 10];
        args[4] = libc::SIGCHLD as u64;
        args[8] = &raw const id as u64;
        args[9] = 1;
        // SAFETY: without CLONE_VM the child has its own memory; it makes system calls only. The ids
        // outlive the call.
        unsafe {
            match libc::syscall(libc::SYS_clone3, &raw const args, size_of_val(&args)) {
                -1 => Err(std::io::Error::last_os_error()),
                0 => loop {
                    libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::syscall(libc::SYS_pause);
                },
                _ => Ok(()),
            }
        }
    }

    fn end(pid: u32) {
        // SAFETY: a child of ours, which is waited for here alone.
        unsafe {
            libc::kill(pid as i32, libc::SIGKILL);
            libc::waitpid(pid as i32, std::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn an_id_that_is_used_again_is_another_process() {
        let first = std::process::Command::new("sleep").arg("100").spawn();
        let mut first = first.expect("sleep");
        let pid = first.id();
        let mut w = TargetTracker::new(100);
        assert!(w.process(pid, None, 1));
        let index = w.find(pid, pid).expect("it is listed");
        let began = w.processes[&pid].start_ticks;
        first.kill().unwrap();
        first.wait().unwrap();
        // Its files fail for good, even if another process has its id by then.
        loop {
            match process_with(pid) {
                Ok(()) => {}
                Err(e) if e.raw_os_error() == Some(libc::EEXIST) => return,
                Err(e) => return println!("skipped: no process with a chosen id: {e}"),
            }
            if process::stat(pid).is_ok_and(|s| s.start_ticks != began) {
                break;
            }
            end(pid);
        }
        assert!(w.threads[index].schedstat().is_err());
        w.gone(index);
        w.process(pid, Some(1), 2);
        let found = w.find(pid, pid);
        let started = w.processes[&pid].start_ticks;
        end(pid);
        assert!(found.is_some_and(|i| i != index), "a thread of its own");
        assert_ne!(started, began);
    }

    #[test]
    fn each_birth_changes_the_newest_id() {
        let mut w = TargetTracker::new(100);
        if w.newest_file.is_none() {
            return println!("skipped: the newest id is not told here");
        }
        assert!(w.has_births(NEWS), "threads that were born before");
        let before = w.newest;
        std::thread::spawn(|| {}).join().unwrap();
        assert!(w.has_births(3 * NEWS));
        assert_ne!(w.newest, before);
    }

    #[test]
    fn own_threads_and_clock_are_found() {
        let own = std::process::id();
        let mut w = TargetTracker::new(100);
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
        let index = w.find(own, tid).expect("it was found");
        assert!(process_clock(own).is_some_and(|ns| ns > 0));
        drop(tell);
        assert!(thread.join().unwrap().is_err());
        assert!(!w.gone(index), "others are left");
        assert_eq!(w.find(own, tid), None);
    }
}
