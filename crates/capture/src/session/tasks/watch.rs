//! Polls of the tasks of one process, and their sums.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use wallscope_procfs::process;
use wallscope_unwind::runtime::{
    Facts,
    go::{self, Goroutines},
    hotspot::VirtualThreads,
    python::asyncio,
    tasks::{Label, Memory, Task, TaskReader, TaskSnapshot, TaskStatus},
};

use crate::{
    clock::{now, unix_now},
    event::PauseEvent,
    session::found_runtime::FoundRuntime,
    target::{read_memory, read_pieces},
};

/// Shortest and longest mean interval between two polls of one process. Polls more frequent than the default
/// sampling of threads would tell little more.
const SHORTEST: Duration = Duration::from_millis(10);
const MAX_INTERVAL: Duration = Duration::from_secs(5);
/// Interval between the first two polls where there are no tasks yet; it doubles up to [`NO_TASKS`].
const FIRST: Duration = Duration::from_millis(1);
const NO_TASKS: Duration = Duration::from_millis(200);
/// Interval to the next poll where there will never be tasks.
const NEVER: Duration = Duration::from_secs(1 << 20);
/// Most labels of tasks that are remembered.
const MAX_KNOWN: usize = 1 << 16;

/// Most pauses that are kept of one process.
const MAX_PAUSES: usize = 1 << 16;

/// A process to poll.
pub struct Subject {
    pub pid: u32,
    pub found: FoundRuntime,
    /// Difference between its addresses and those in its file.
    pub bias: u64,
    /// The unwinder's id of its file.
    pub file: u16,
}

/// Reader of tasks, by runtime.
pub enum TaskSource {
    Go(Goroutines),
    Python(Box<asyncio::Tasks>),
    Java(Box<VirtualThreads>),
}

impl TaskSource {
    fn of(subject: &Subject) -> Option<TaskSource> {
        match subject.found.as_ref().as_ref().ok()? {
            Facts::Go(_) => Some(TaskSource::Go(Goroutines::new(subject.bias))),
            Facts::Python(_) => Some(TaskSource::Python(Box::new(asyncio::Tasks::new(
                subject.bias,
            )))),
            Facts::HotSpot(_) => Some(TaskSource::Java(Box::new(VirtualThreads::new(
                subject.bias,
            )))),
            _ => None,
        }
    }

    fn reader(&mut self) -> &mut dyn TaskReader {
        match self {
            TaskSource::Go(goroutines) => goroutines,
            TaskSource::Python(tasks) => &mut **tasks,
            TaskSource::Java(threads) => &mut **threads,
        }
    }
}

/// Activity of a task in a poll: status, stack, labels.
type TaskActivity = (TaskStatus, Option<u32>, u32);

/// Everything seen of one process.
pub struct PolledTasks {
    pub subject: Subject,
    pub eye: TaskSource,
    pub polls: u64,
    /// Stacks of tasks, each once, in the runtime's words.
    pub stacks: Vec<Vec<u64>>,
    /// Sets of labels; the first one is empty.
    pub labels: Vec<Vec<Label>>,
    /// Activities of tasks with their number and time, by the function that the tasks began with.
    pub groups: BTreeMap<u64, Group>,
    pub broken: u64,
    /// Whether there was no list of tasks where there should be one.
    pub lost: bool,
    /// The process was gone at the end.
    pub gone: bool,
    /// Pauses of the runtime's collector, from its own records.
    pub pauses: Vec<PauseEvent>,
    /// Number of pauses that `pauses` lacks.
    pub pauses_missed: u64,
    /// CPU time of all polls but the first, wake-ups included.
    pub spent: Duration,
}

/// Tasks that began with the same function.
#[derive(Default)]
pub struct Group {
    pub name: String,
    pub ids: BTreeSet<u64>,
    pub times: BTreeMap<TaskActivity, (u64, u64)>,
}

/// Memory of a process.
pub struct TargetMemory(pub u32);

impl Memory for TargetMemory {
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
        read_memory(self.0, at, to) == to.len()
    }

    fn read_all(&mut self, wanted: &[(u64, usize)], to: &mut [u8]) -> Vec<bool> {
        read_pieces(self.0, wanted, to)
    }

    fn sleeps(&mut self, tid: u32) -> Option<bool> {
        // A process in a PID namespace of its own knows its threads by other ids.
        (process::inner_tid(self.0).ok()? == self.0).then_some(())?;
        let state = process::stat(tid).ok()?.state;
        Some(matches!(state, 'S' | 'D'))
    }
}

/// A process that is being polled.
pub struct Watch {
    seen: PolledTasks,
    /// Time of the next poll.
    pub next: Instant,
    /// Time of the last poll, and its result.
    last: Option<(u64, Vec<(u64, TaskActivity)>)>,
    /// Time of the poll before the last one, or of the start.
    before: u64,
    /// Labels by task and where they are.
    known: FxHashMap<(u64, u64), u32>,
    stacks: FxHashMap<Vec<u64>, u32>,
    /// CPU time of all polls but the first, wake-ups included, and their number.
    spent: (Duration, u32),
    chance: u64,
    /// Interval to the next poll while there are no tasks.
    rest: Duration,
    /// Reader of Go's collections.
    collections: Option<go::Collections>,
}

impl Watch {
    /// Watches the tasks of a process; `None`: its runtime has none.
    pub fn new(subject: Subject) -> Option<Watch> {
        let eye = TaskSource::of(&subject)?;
        let is_go = matches!(eye, TaskSource::Go(_));
        let collections = is_go.then(|| go::Collections::new(subject.bias));
        Some(Watch {
            seen: PolledTasks {
                subject,
                eye,
                polls: 0,
                stacks: Vec::new(),
                labels: vec![Vec::new()],
                groups: BTreeMap::new(),
                broken: 0,
                lost: false,
                gone: false,
                pauses: Vec::new(),
                pauses_missed: 0,
                spent: Duration::ZERO,
            },
            collections,
            next: Instant::now(),
            last: None,
            before: now(),
            known: FxHashMap::default(),
            stacks: FxHashMap::default(),
            spent: (Duration::ZERO, 0),
            chance: now() | 1,
            rest: FIRST,
        })
    }

    pub fn pid(&self) -> u32 {
        self.seen.subject.pid
    }

    /// Whether its program has had tasks.
    pub fn is_served(&self) -> bool {
        self.seen.polls > 0
    }

    /// Polls, and sets the next poll so that polls take `limit` percent of a CPU. `before`: the thread's CPU
    /// time when it went to sleep, since a wake-up costs as much as a short poll. Returns the thread's CPU
    /// time now.
    pub fn poll(&mut self, limit: f64, before: Duration) -> Duration {
        self.read_collections();
        let there = self.poll_now();
        self.seen.eye.reader().release();
        let spent = own_cpu();
        let mean = if there {
            // The first poll, which finds everything, says nothing about the others.
            if self.seen.polls > 1 {
                self.spent.0 += spent.saturating_sub(before);
                self.spent.1 += 1;
            }
            let cost = self.spent.0 / self.spent.1.max(1);
            cost.mul_f64(100.0 / limit.max(0.001))
                .clamp(SHORTEST, MAX_INTERVAL)
        } else {
            // The process may have just begun, and not live long.
            let rest = self.rest;
            self.rest = (2 * rest).min(NO_TASKS);
            rest
        };
        // Half to one and a half of the mean, by xorshift.
        self.chance ^= self.chance << 13;
        self.chance ^= self.chance >> 7;
        self.chance ^= self.chance << 17;
        let factor = 0.5 + (self.chance >> 11) as f64 / (1u64 << 53) as f64;
        self.next = match self.seen.eye.reader().is_impossible() {
            true => Instant::now() + NEVER,
            false => Instant::now() + mean.mul_f64(factor),
        };
        spent
    }

    /// Reads the collections that have ended since the last poll.
    fn read_collections(&mut self) {
        let seen = &mut self.seen;
        let (Some(collections), Ok(Facts::Go(facts))) =
            (&mut self.collections, &*seen.subject.found)
        else {
            return;
        };
        let pid = seen.subject.pid;
        let new = collections.read(facts, &mut TargetMemory(pid));
        let room = MAX_PAUSES - seen.pauses.len();
        seen.pauses_missed += new.len().saturating_sub(room) as u64;
        let ahead = unix_now().saturating_sub(now());
        let events = new.into_iter().map(|c| {
            let end = c.end_unix_ns.saturating_sub(ahead);
            PauseEvent {
                begin: end.saturating_sub(c.stopped_ns),
                end,
                ..match c.forced {
                    true => PauseEvent::of_go_forced(pid),
                    false => PauseEvent::of_go(pid),
                }
            }
        });
        seen.pauses.extend(events.take(room));
    }

    /// Whether there were tasks to poll.
    fn poll_now(&mut self) -> bool {
        let mut memory = TargetMemory(self.seen.subject.pid);
        let found = Arc::clone(&self.seen.subject.found);
        let Ok(facts) = &*found else { return false };
        let all = match self.seen.eye.reader().snapshot(facts, &mut memory) {
            TaskSnapshot::Tasks(all) => all,
            TaskSnapshot::None => {
                self.account(now());
                return false;
            }
            // Not ready yet, or gone.
            TaskSnapshot::Lost => {
                self.seen.lost = true;
                return false;
            }
            // The last poll stands for this time, too.
            TaskSnapshot::Missed => return self.is_served(),
        };
        let time = now();
        self.account(self.last.as_ref().map_or(time, |(t, _)| t + (time - t) / 2));
        self.seen.polls += 1;
        let mut list = Vec::with_capacity(all.len());
        for task in all {
            let labels = self.labels(facts, &mut memory, &task);
            let Task {
                id,
                start,
                status: doing,
                stack,
                ..
            } = task;
            let stack = stack.map(|s| {
                let stacks = &mut self.seen.stacks;
                *self.stacks.entry(s).or_insert_with_key(|s| {
                    stacks.push(s.clone());
                    stacks.len() as u32 - 1
                })
            });
            let eye = &mut self.seen.eye;
            let group = self.seen.groups.entry(start).or_insert_with(|| Group {
                name: eye.reader().name(facts, start),
                ..Group::default()
            });
            group.ids.insert(id);
            list.push((start, (doing, stack, labels)));
        }
        self.last = Some((time, list));
        true
    }

    fn labels(&mut self, facts: &Facts, memory: &mut TargetMemory, task: &Task) -> u32 {
        if task.labels == 0 {
            return 0;
        }
        let key = (task.id, task.labels);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let labels = self.seen.eye.reader().labels(facts, memory, task);
        let all = &mut self.seen.labels;
        let index = all.iter().position(|l| *l == labels).unwrap_or_else(|| {
            all.push(labels);
            all.len() - 1
        });
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, index as u32);
        index as u32
    }

    /// Charges the time until `until` to the states of the last poll.
    fn account(&mut self, until: u64) {
        let Some((_, list)) = self.last.take() else {
            self.before = until;
            return;
        };
        let ns = until.saturating_sub(self.before);
        self.before = until;
        for (start, did) in list {
            let Some(group) = self.seen.groups.get_mut(&start) else {
                continue;
            };
            let sum = group.times.entry(did).or_default();
            *sum = (sum.0 + 1, sum.1 + ns);
        }
    }

    /// Ends the polling and returns its results.
    pub fn finish(mut self) -> PolledTasks {
        self.account(now());
        self.read_collections();
        self.seen.pauses_missed += self.collections.as_ref().map_or(0, |c| c.missed);
        self.seen.spent = self.spent.0;
        self.seen.gone = process::stat(self.pid()).is_err();
        self.seen.broken = self.seen.eye.reader().broken();
        if let Ok(facts) = &*self.seen.subject.found {
            // More may be known of the functions now than when they were first seen.
            for (start, group) in &mut self.seen.groups {
                group.name = self.seen.eye.reader().name(facts, *start);
            }
        }
        self.seen
    }
}

/// CPU time of this thread.
pub fn own_cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}
