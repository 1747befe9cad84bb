//! Names of threads that runtimes keep and the kernel does not know.
//!
//! A process is read when its runtime is found, some times after each birth of a thread, and at the end; never
//! while its threads stay the same. The kernel's own name of a thread, where the program gave it one, stands.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::Context;
use wallscope_observe::ThreadName;
use wallscope_procfs::{maps, process};
use wallscope_unwind::runtime::{
    Facts,
    python::{ThreadNames as PythonNames, ThreadNamesRead},
    v8,
};

use super::{found_runtime::FoundRuntime, tasks::TargetMemory};
use crate::clock::now;

/// Delays after a thread's birth until its runtime is asked, ns. A runtime notes the name once the new thread
/// runs, which may have to wait for the interpreter's lock.
const AFTER_BIRTH: [u64; 3] = [5_000_000, 50_000_000, 500_000_000];
/// Longest time that events wait for names, ns: their ring would overflow.
const MAX_EVENT_WAIT_NS: u64 = 5_000_000;
/// Most processes that are read for names.
const MAX_PROCESSES: usize = 4096;
/// Sizes of memory that may be a thread's stack, bytes, and most such ranges of a process.
const STACK_BYTES: std::ops::RangeInclusive<u64> = 32 << 10..=1 << 30;
const MAX_STACKS: usize = 4096;

/// A process with a runtime that names threads.
struct Named {
    found: FoundRuntime,
    bias: u64,
    reader: Reader,
    /// Time of the next read, and reads since the last birth; `None`: nothing is due.
    due: Option<(u64, usize)>,
    /// The last read found a list that it could not read.
    unreadable: bool,
}

/// Reader of names, by runtime.
enum Reader {
    Python(Box<PythonNames>),
    V8,
}

/// All processes with a runtime that names threads.
#[derive(Default)]
pub struct ThreadNames {
    processes: FxHashMap<u32, Named>,
    /// Names by process and thread.
    names: FxHashMap<(u32, u32), Arc<str>>,
    /// Names that the recorder has not been told of yet.
    news: Vec<ThreadName>,
    /// Threads in the list of [`ThreadNames::births`] so far.
    met: usize,
    /// Processes that ended with an unreadable list, or for which there was no room.
    unread: u64,
}

impl ThreadNames {
    /// Process `pid` has the file of `found` mapped, its addresses moved by `bias`.
    pub fn mapped(&mut self, pid: u32, found: &FoundRuntime, bias: u64) {
        let reader = match &**found {
            Ok(Facts::Python(_)) => Reader::Python(Box::default()),
            Ok(Facts::V8(_)) => Reader::V8,
            _ => return,
        };
        let same = |n: &Named| n.bias == bias && Arc::ptr_eq(&n.found, found);
        if self.processes.get(&pid).is_some_and(same) {
            return;
        }
        if self.processes.len() >= MAX_PROCESSES {
            self.unread += 1;
            return;
        }
        let named = Named {
            found: Arc::clone(found),
            bias,
            reader,
            due: Some((now(), 0)),
            unreadable: false,
        };
        self.processes.insert(pid, named);
    }

    /// A thread of process `pid` was born.
    pub fn born(&mut self, pid: u32) {
        if let Some(process) = self.processes.get_mut(&pid) {
            process.due = Some((now() + AFTER_BIRTH[0], 0));
        }
    }

    /// Counts births in a list of all threads' processes that only grows.
    pub fn births(&mut self, pids: impl ExactSizeIterator<Item = u32>) {
        let all = pids.len();
        for pid in pids.skip(self.met) {
            self.born(pid);
        }
        self.met = all;
    }

    /// Reads the processes that are due, the longest due first, as long as events may wait.
    pub fn read_due(&mut self) {
        let time = now();
        let all = self.processes.iter();
        let due = all.filter_map(|(pid, n)| Some((n.due.filter(|(at, _)| *at <= time)?, *pid)));
        let mut due: Vec<_> = due.collect();
        due.sort_unstable();
        for (_, pid) in due {
            self.read(pid);
            if now() - time > MAX_EVENT_WAIT_NS {
                break;
            }
        }
    }

    /// Reads all processes, as their threads may have been renamed.
    pub fn read_all(&mut self) {
        let pids: Vec<u32> = self.processes.keys().copied().collect();
        pids.into_iter().for_each(|pid| self.read(pid));
    }

    /// Process `pid` is gone, or runs something else. Its names stay.
    pub fn forget(&mut self, pid: u32) {
        if let Some(named) = self.processes.remove(&pid) {
            self.unread += u64::from(named.unreadable);
        }
    }

    /// New names, for the recorder.
    pub fn take_news(&mut self) -> Vec<ThreadName> {
        std::mem::take(&mut self.news)
    }

    /// Losses, by cause.
    pub fn losses(&self) -> Vec<(String, u64)> {
        let left = self.processes.values().filter(|n| n.unreadable).count() as u64;
        let cause = "process with thread names in its runtime that could not be read";
        vec![(cause.to_owned(), self.unread + left)]
    }

    fn read(&mut self, pid: u32) {
        let Some(named) = self.processes.get_mut(&pid) else {
            return;
        };
        named.due = named.due.and_then(|(at, reads)| {
            let delay = AFTER_BIRTH.get(reads + 1)?;
            Some((at + delay, reads + 1))
        });
        let threads = Threads::of(pid);
        if threads.outer.len() < 2 {
            return;
        }
        let mut memory = TargetMemory(pid);
        let names = match (&mut named.reader, named.found.as_ref()) {
            (Reader::Python(reader), Ok(Facts::Python(facts))) => {
                match reader.read(facts, named.bias, &mut memory) {
                    ThreadNamesRead::Names(names) => Some(names),
                    ThreadNamesRead::NoThreading => Some(Vec::new()),
                    ThreadNamesRead::Unreadable => None,
                }
            }
            (Reader::V8, Ok(Facts::V8(facts))) => maps::read(pid).ok().map(|maps| {
                let own = v8::Threads {
                    bias: named.bias,
                    stacks: &stacks(&maps),
                    ids: &threads.inner,
                };
                facts.thread_names(own, &mut memory)
            }),
            _ => Some(Vec::new()),
        };
        // A process that has ended lacks no name that could still be read.
        named.unreadable = names.is_none() && process::stat(pid).is_ok();
        self.take(pid, names.unwrap_or_default(), &threads);
    }

    /// Takes names by the threads' ids in their own PID namespace.
    fn take(&mut self, pid: u32, names: Vec<(u32, String)>, threads: &Threads) {
        for (inner, name) in names {
            // The main thread stands for the program.
            let tid = threads.outer(inner).filter(|tid| *tid != pid);
            let Some(tid) = tid.filter(|_| !name.is_empty()) else {
                continue;
            };
            let name: Arc<str> = name.into();
            if self.names.insert((pid, tid), name.clone()).as_ref() != Some(&name) {
                self.news.push(ThreadName { pid, tid, name });
            }
        }
    }
}

/// Names the threads for which the kernel has only the name of the program. `names`: by process and thread.
pub fn name_threads(names: &FxHashMap<(u32, u32), Arc<str>>, threads: &mut [Context]) {
    let leaders = threads.iter().filter(|t| t.tid == t.pid);
    let programs: FxHashMap<u32, Arc<str>> = leaders.map(|t| (t.pid, t.name.clone())).collect();
    for thread in threads {
        let inherited = programs.get(&thread.pid).is_none_or(|p| *p == thread.name);
        let name = names.get(&(thread.pid, thread.tid));
        if let Some(name) = name.filter(|_| inherited) {
            thread.name = name.clone();
        }
    }
}

/// The threads of a process, by their ids here and in the process's own PID namespace.
struct Threads {
    outer: Vec<u32>,
    inner: Vec<u32>,
}

impl Threads {
    fn of(pid: u32) -> Threads {
        let outer = process::threads(pid).unwrap_or_default();
        let apart = process::inner_tid(pid).is_ok_and(|inner| inner != pid);
        let inner = |tid: &u32| match apart {
            true => process::inner_tid(*tid).unwrap_or(0),
            false => *tid,
        };
        Threads {
            inner: outer.iter().map(inner).collect(),
            outer,
        }
    }

    fn outer(&self, inner: u32) -> Option<u32> {
        let at = self.inner.iter().position(|id| *id == inner)?;
        self.outer.get(at).copied()
    }
}

/// Anonymous memory that may be threads' stacks.
fn stacks(maps: &[maps::Mapping]) -> Vec<std::ops::Range<u64>> {
    let may = |m: &&maps::Mapping| {
        let is_own = m.read && m.write && !m.shared && m.inode == 0;
        is_own && m.path.is_empty() && STACK_BYTES.contains(&(m.end - m.start))
    };
    let all = maps.iter().filter(may).map(|m| m.start..m.end);
    all.take(MAX_STACKS).collect()
}
