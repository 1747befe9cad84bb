//! Goroutines: looked at now and then by a thread of its own, without stopping anybody.
//!
//! A look reads the runtime's list of goroutines, what each does, and the stacks of those that do
//! not run. It stands for the time from half-way since the look before to half-way to the next. Looks
//! come at random distances, so that nothing that repeats can hide between them, and so far apart
//! that they stay within their share of what measuring may cost.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use rustc_hash::FxHashMap;
use wallscope_model::{Label, LabelValue, Limit, Recording, StackEnd, State, TaskGroup, TaskTime};
use wallscope_object::process;
use wallscope_unwind::{
    native::TableSink,
    runtime::{
        Facts,
        go::{self, Goroutine, Looker, Memory, Status},
    },
};

use super::{
    build::{Stacks, Whose},
    managed::Found,
    now,
    processes::Processes,
};
use crate::target::{read_memory, read_pieces};

/// Shortest and longest mean distance of two looks at one process.
const SHORTEST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);
/// Distance of the first two looks where there are no goroutines yet; then it doubles.
const FIRST: Duration = Duration::from_millis(1);
/// Of what measuring may cost, the part for looks.
const SHARE: f64 = 0.4;

/// A process to look at.
pub struct Subject {
    pub pid: u32,
    pub found: Found,
    /// How far its addresses are moved.
    pub bias: u64,
    /// The unwinder's id of its file.
    pub file: u16,
}

enum Word {
    Begin(Box<Subject>),
    Gone(u32),
    End,
}

/// The thread that looks.
pub struct Tasks {
    to: Sender<Word>,
    thread: Option<JoinHandle<Vec<Seen>>>,
}

/// What a goroutine was seen doing: status, stack, labels.
type Doing = (Status, Option<u32>, u32);

/// Everything seen of one process.
pub struct Seen {
    subject: Subject,
    looks: u64,
    /// The same stacks, each once: return addresses, virtual.
    stacks: Vec<Vec<u64>>,
    /// Sets of labels; the first one is empty.
    labels: Vec<Vec<go::Label>>,
    /// By function that they began with: what they did, how often and for how long.
    groups: BTreeMap<u64, Group>,
    broken: u64,
    /// The process was gone at the end.
    gone: bool,
}

#[derive(Default)]
struct Group {
    name: String,
    ids: BTreeSet<u64>,
    times: FxHashMap<Doing, (u64, u64)>,
}

impl Tasks {
    /// Starts the thread. `limit`: the most that measuring may cost, percent of one CPU.
    pub fn start(limit: f64) -> Tasks {
        let (to, from) = channel();
        // Signals are for the thread that waits for them; the new one inherits what is blocked here.
        // SAFETY: both sets are ours, and initialised before they are read.
        let spawned = unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            let spawned = std::thread::Builder::new()
                .name("goroutines".into())
                .spawn(move || run(&from, limit));
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            spawned
        };
        Tasks {
            to,
            thread: spawned.ok(),
        }
    }

    /// Looks at this process from now on.
    pub fn begin(&self, subject: Subject) {
        let _ = self.to.send(Word::Begin(Box::new(subject)));
    }

    /// Process `pid` is gone, or runs something else.
    pub fn gone(&self, pid: u32) {
        let _ = self.to.send(Word::Gone(pid));
    }

    /// Ends the thread; what it saw.
    pub fn finish(&mut self) -> Vec<Seen> {
        let _ = self.to.send(Word::End);
        let thread = self.thread.take();
        thread.and_then(|t| t.join().ok()).unwrap_or_default()
    }
}

/// Memory of process `pid`.
struct Other(u32);

impl Memory for Other {
    fn read(&mut self, at: u64, to: &mut [u8]) -> bool {
        read_memory(self.0, at, to) == to.len()
    }

    fn read_all(&mut self, wanted: &[(u64, usize)], to: &mut [u8]) -> Vec<bool> {
        read_pieces(self.0, wanted, to)
    }
}

/// A process that is being looked at.
struct Watch<'f> {
    seen: Seen,
    looker: Looker<'f>,
    next: Instant,
    /// The last look: when, and what was seen.
    last: Option<(u64, Vec<(u64, Doing)>)>,
    /// When it was looked at for the time before the last one, or began.
    before: u64,
    /// Labels by goroutine and where they are.
    known: FxHashMap<(u64, u64), u32>,
    stacks: FxHashMap<Vec<u64>, u32>,
}

fn run(from: &Receiver<Word>, limit: f64) -> Vec<Seen> {
    let mut done = Vec::new();
    let mut waiting = Vec::new();
    // Lookers borrow the facts of their program, so each process is served by a loop of its own.
    std::thread::scope(|scope| {
        let mut running: Vec<(u32, Sender<()>, std::thread::ScopedJoinHandle<'_, Seen>)> =
            Vec::new();
        loop {
            match from.recv() {
                Ok(Word::Begin(subject)) => {
                    let (stop, stopped) = channel();
                    let pid = subject.pid;
                    let share = limit * SHARE / (running.len() + 1) as f64;
                    let spawned = std::thread::Builder::new()
                        .name("goroutines".into())
                        .spawn_scoped(scope, move || watch(*subject, &stopped, share));
                    if let Ok(handle) = spawned {
                        running.push((pid, stop, handle));
                    }
                }
                Ok(Word::Gone(pid)) => {
                    for (_, stop, _) in running.iter().filter(|r| r.0 == pid) {
                        let _ = stop.send(());
                    }
                }
                Ok(Word::End) | Err(_) => break,
            }
        }
        for (_, stop, _) in &running {
            let _ = stop.send(());
        }
        waiting.extend(running.into_iter().map(|r| r.2.join()));
        done.extend(waiting.drain(..).filter_map(Result::ok));
    });
    done
}

/// Looks at one process until told to stop.
fn watch(subject: Subject, stop: &Receiver<()>, limit: f64) -> Seen {
    let found = Arc::clone(&subject.found);
    let seen = Seen {
        subject,
        looks: 0,
        stacks: Vec::new(),
        labels: vec![Vec::new()],
        groups: BTreeMap::new(),
        broken: 0,
        gone: false,
    };
    let Ok(Facts::Go(facts)) = &*found else {
        return seen;
    };
    let Some(looker) = Looker::new(facts, seen.subject.bias) else {
        return seen;
    };
    let mut watch = Watch {
        seen,
        looker,
        next: Instant::now(),
        last: None,
        before: now(),
        known: FxHashMap::default(),
        stacks: FxHashMap::default(),
    };
    let mut chance = now() | 1;
    let (mut spent, mut counted) = (Duration::ZERO, 0u32);
    let mut first = FIRST;
    loop {
        let rest = watch.next.saturating_duration_since(Instant::now());
        match stop.recv_timeout(rest) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => break,
        }
        let began = own_cpu();
        watch.look();
        if watch.seen.looks == 0 {
            // Its runtime is just beginning, and it may not live long.
            watch.next = Instant::now() + first;
            first = (first * 2).min(SHORTEST);
            continue;
        }
        // The first one, which finds everything, says nothing about the others.
        if watch.seen.looks > 1 {
            spent += own_cpu().saturating_sub(began);
            counted += 1;
        }
        let cost = spent / counted.max(1);
        let mean = cost
            .mul_f64(100.0 / limit.max(0.001))
            .clamp(SHORTEST, LONGEST);
        // Half to one and a half of the mean, by xorshift.
        chance ^= chance << 13;
        chance ^= chance >> 7;
        chance ^= chance << 17;
        let factor = 0.5 + (chance >> 11) as f64 / (1u64 << 53) as f64;
        watch.next = Instant::now() + mean.mul_f64(factor);
    }
    watch.account(now());
    watch.seen.gone = process::stat(watch.seen.subject.pid).is_err();
    watch.seen.broken = watch.looker.broken;
    watch.seen
}

/// CPU time of this thread.
fn own_cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

impl Watch<'_> {
    fn look(&mut self) {
        let mut memory = Other(self.seen.subject.pid);
        let Some(all) = self.looker.look(&mut memory) else {
            // Not ready yet, or gone.
            return;
        };
        let time = now();
        self.account(self.last.as_ref().map_or(time, |(t, _)| t + (time - t) / 2));
        self.seen.looks += 1;
        let mut list = Vec::with_capacity(all.len());
        for goroutine in all {
            let labels = self.labels(&mut memory, &goroutine);
            let Goroutine {
                id,
                start,
                status,
                stack,
                ..
            } = goroutine;
            let stack = stack.map(|s| {
                let stacks = &mut self.seen.stacks;
                *self.stacks.entry(s).or_insert_with_key(|s| {
                    stacks.push(s.clone());
                    stacks.len() as u32 - 1
                })
            });
            let looker = &self.looker;
            let group = self.seen.groups.entry(start).or_insert_with(|| Group {
                name: looker.name(start),
                ..Group::default()
            });
            group.ids.insert(id);
            list.push((start, (status, stack, labels)));
        }
        self.last = Some((time, list));
    }

    fn labels(&mut self, memory: &mut Other, goroutine: &Goroutine) -> u32 {
        if goroutine.labels == 0 {
            return 0;
        }
        let key = (goroutine.id, goroutine.labels);
        if let Some(known) = self.known.get(&key) {
            return *known;
        }
        let labels = self.looker.labels(memory, goroutine);
        let all = &mut self.seen.labels;
        let index = all.iter().position(|l| *l == labels).unwrap_or_else(|| {
            all.push(labels);
            all.len() - 1
        });
        self.known.insert(key, index as u32);
        index as u32
    }

    /// What the last look saw went on until `until`.
    fn account(&mut self, until: u64) {
        let Some((_, list)) = self.last.take() else {
            self.before = until;
            return;
        };
        let ns = until.saturating_sub(self.before);
        self.before = until;
        for (start, doing) in list {
            let Some(group) = self.seen.groups.get_mut(&start) else {
                continue;
            };
            let sum = group.times.entry(doing).or_default();
            *sum = (sum.0 + 1, sum.1 + ns);
        }
    }
}

/// Puts what was seen into the recording that is being made. What the domain has to say of it.
pub fn assemble<S: TableSink>(
    recording: &mut Recording,
    stacks: &mut Stacks,
    seen: Vec<Seen>,
    processes: &Processes<S>,
    losses: &mut Vec<(String, u64)>,
) -> Option<(String, Limit)> {
    let (mut broken, mut looks, mut span) = (0, 0, 0);
    for seen in seen {
        broken += seen.broken;
        looks += seen.looks;
        if seen.looks == 0 {
            let cause = match seen.gone {
                true => "goroutines not read: the process ended before there were any to be seen",
                false => "goroutines not read: their list was not found",
            };
            losses.push((cause.to_owned(), 1));
            continue;
        }
        span += recording.window.end_ns - recording.window.start_ns;
        groups(recording, stacks, &seen, processes);
    }
    losses.push((
        "goroutine stack that could not be followed".to_owned(),
        broken,
    ));
    (looks > 0).then(|| {
        let every = span as f64 / looks as f64 / 1e6;
        let note = format!(
            "goroutines: sampled by {looks} looks at the runtime's own list, one each {every:.0} ms on \
             average, nobody stopped"
        );
        let limit = Limit {
            what: "what goroutines do between two looks; where those are that run (their threads' \
                   stacks say so)"
                .into(),
            remedy: String::new(),
        };
        (note, limit)
    })
}

fn groups<S: TableSink>(
    recording: &mut Recording,
    stacks: &mut Stacks,
    seen: &Seen,
    processes: &Processes<S>,
) {
    let Ok(Facts::Go(facts)) = &*seen.subject.found else {
        return;
    };
    let Some(table) = facts.functions() else {
        return;
    };
    let pid = seen.subject.pid;
    let mut ids = FxHashMap::default();
    for group in seen.groups.values() {
        let mut times = BTreeMap::new();
        for ((status, stack, labels), (count, ns)) in &group.times {
            let addresses = stack.map(|s| &seen.stacks[s as usize]);
            let word = match status {
                Status::Waiting(number) => facts.reason(*number),
                _ => "",
            };
            let reason = match status {
                Status::Waiting(_) => {
                    let functions = addresses.into_iter().flatten().filter_map(|a| {
                        let function = table.at(a.saturating_sub(1))?;
                        std::str::from_utf8(function.name()).ok()
                    });
                    go::reason(word, functions)
                }
                Status::Syscall => "syscall",
                _ => "",
            };
            let state = match status {
                Status::Running => State::OnCpu,
                Status::Runnable => State::Runnable,
                _ => State::Blocked,
            };
            let stack = addresses.map(|addresses| {
                *ids.entry(addresses.as_ptr()).or_insert_with(|| {
                    let words: Vec<u64> = addresses
                        .iter()
                        .filter_map(|a| facts.offset_of(*a))
                        .map(|offset| u64::from(seen.subject.file) << 48 | offset)
                        .collect();
                    let whose = Whose::last(pid);
                    stacks.user_stack(&words, &[], StackEnd::Root, whose, processes)
                })
            });
            let labels = &seen.labels[*labels as usize];
            let set: Vec<Label> = labels
                .iter()
                .map(|(key, value)| Label {
                    key: key.as_str().into(),
                    value: LabelValue::Text(value.as_str().into()),
                })
                .collect();
            let labels = (!set.is_empty()).then(|| stacks.labels.set(set));
            let sum: &mut (u64, u64) = times
                .entry((state, reason, word, stack, labels))
                .or_default();
            *sum = (sum.0 + count, sum.1 + ns);
        }
        recording.tasks.push(TaskGroup {
            pid,
            kind: "goroutine".into(),
            name: group.name.as_str().into(),
            seen: group.ids.len() as u64,
            looks: seen.looks,
            times: times
                .into_iter()
                .map(
                    |((state, reason, word, stack, labels), (count, ns))| TaskTime {
                        state,
                        reason: reason.into(),
                        detail: word.into(),
                        stack,
                        labels,
                        count,
                        ns,
                    },
                )
                .collect(),
        });
    }
}
