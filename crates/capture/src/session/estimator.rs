//! The estimator of exact sums: observations of the kernel programs → threads, ledgers, samples, chains.
//!
//! It decides how time is attributed, and reads nothing from the machine: no clock, no file, no process. So equal
//! observations in an equal order give an equal recording, live or from a log (`replay.rs`). Names come as answers
//! (`naming.rs`).
//!
//! It decides the width of time slices too. The collector reads it to set its clock.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_model::{Cost, HostSample, Module, Process, Slices, StackEnd};
use wallscope_observe::{
    Begin, CountedEvent, CountedLoss, Counter, DescribedDomain, LockHolder, LockOwner, LockWaits,
    Mark, Observation, ObservedTaskTime, ObservedTasks, TaskStack, TaskWords,
};
use wallscope_unwind::native::abi::{self, End, FrameWord};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::{
    accounts::{Accounts, StillBlocked, number},
    chains::Chains,
    histograms::Histograms,
    lock_owner::OwnerEvidence,
    pauses::PauseGroups,
    sample_key::{Moves, SampleKey, SampleSum, UserPart},
    samples::Samples,
    sent_once::{Forgotten, SentOnce},
    timeline::Turns,
    unwound::{ManagedStack, Unwinding, UserStack},
    wait_tree::{ActorKey, Node},
};
use crate::{
    event::{
        Answer, Dump, Head, HoldsEvent, Join, ManagedHead, PARKED, PauseEvent, Resolve,
        ResourceEvent, SAMPLE_NO_USER, SAMPLE_OPEN, SampleEvent, SocketRecord, ThreadEvent,
        WakeEvent, how, kind, resource_kind, state,
    },
    places::Interrupts,
    slices,
};

/// Periods for which a thread must have been blocked for the iterator to read its stack (`read_blocked_stack` in
/// `bpf/stack.h`).
pub const READ_AHEAD: u64 = 10;

/// Waits for the end of processes that are moved in one go: each pass visits all samples.
const FOLDED_ENDS: usize = 1024;
/// First hash of such a wait in a group. Hashes of the kernel programs are 64 random bits.
const FIRST_FOLDED_END: u64 = 1 << 63;

/// Most rows of threads by slice, some 50 MB. Beyond it slices are merged in pairs, however long they are.
const MAX_ROWS: usize = 2_000_000;
/// Most samples by slice: some 400 MB.
const MAX_SAMPLE_ROWS: usize = 16_000_000;

/// Facts that the collector reports once measuring is over. They go into the recording unchanged.
#[derive(Default)]
pub struct Facts {
    /// When the window began, ns since the epoch.
    pub start_unix_ns: u64,
    /// End of the window.
    pub end_ns: Option<u64>,
    /// Facts about the host.
    pub host: Vec<HostSample>,
    /// Cost of measuring.
    pub cost: Cost,
    /// The domain.
    pub domain: DescribedDomain,
    /// Losses of all parts but the estimator.
    pub losses: Losses,
    /// Processes by pid, as they were last.
    pub processes: BTreeMap<u32, Process>,
    /// Files, in the order of their numbers.
    pub modules: Vec<Module>,
    /// Sums by thread's record, lock and system call.
    pub locks: BTreeMap<(u64, u64, u64), LockWaits>,
    /// Events at which stacks were taken.
    pub events: Vec<CountedEvent>,
    /// Number of these events, by event and record of the thread.
    pub hits: BTreeMap<(u32, u64), u64>,
    /// Tasks of runtimes.
    pub tasks: TaskFacts,
}

/// Losses by the part that counted them and by cause, in the order in which they were met.
#[derive(Default)]
pub struct Losses {
    all: Vec<CountedLoss>,
    places: FxHashMap<(Counter, String), usize>,
}

impl Losses {
    /// Takes a count, which replaces an earlier one of its cause.
    pub fn take(&mut self, loss: &CountedLoss) {
        let all = &mut self.all;
        let place = (self.places.entry((loss.by, loss.cause.clone()))).or_insert_with(|| {
            all.push(loss.clone());
            all.len() - 1
        });
        self.all[*place].count = loss.count;
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &CountedLoss> {
        self.all.iter()
    }
}

/// Observations of the tasks that runtimes schedule.
#[derive(Default)]
pub struct TaskFacts {
    /// Tasks by process and function, with their times.
    pub groups: Vec<(ObservedTasks, Vec<ObservedTaskTime>)>,
    /// Their stacks.
    pub stacks: Vec<TaskStack>,
    /// Words of the domain on them.
    pub words: Vec<TaskWords>,
    /// Pauses of their runtimes' collectors.
    pub pauses: Vec<PauseEvent>,
}

impl TaskFacts {
    /// Passes all of it to `observe`, in the order of reading.
    pub fn tell(self, observe: &mut dyn FnMut(Observation<'_>)) {
        for stack in self.stacks {
            observe(Observation::TaskStack(stack));
        }
        for (tasks, times) in self.groups {
            observe(Observation::Tasks(tasks));
            for time in times {
                observe(Observation::TaskTime(time));
            }
        }
        for words in self.words {
            observe(Observation::TaskWords(words));
        }
        for pause in self.pauses {
            observe(Observation::Event(pause.as_bytes()));
        }
    }
}

/// Everything that has come in.
pub struct Estimator {
    /// Threads and their ledgers.
    pub accounts: Accounts,
    /// Samples.
    pub samples: Samples,
    /// Names of the resources that threads waited for, by hash.
    pub resources: FxHashMap<u64, Arc<str>>,
    /// Wakers of waits.
    pub chains: Chains,
    /// Kernel stacks by hash, innermost frame first.
    pub kernel: FxHashMap<u64, Box<[u64]>>,
    /// User stacks by hash.
    pub user: FxHashMap<u64, UserStack>,
    /// Managed frames by hash.
    pub managed: FxHashMap<u64, ManagedStack>,
    /// User stacks with managed frames: (hash in `user`, hash in `managed`).
    pub joins: FxHashMap<u64, (u64, u64)>,
    /// Histograms of interval lengths.
    pub histograms: Histograms,
    /// Pauses of runtimes.
    pub pauses: PauseGroups,
    /// The turns of a timeline, if there is one.
    pub turns: Option<Turns>,
    /// Malformed records: the kernel programs and this side disagree, which is never expected.
    pub malformed: u64,
    /// The rest.
    pub facts: Facts,
    /// Whether frames of interpreters are kept beside those of their programs.
    pub interpreter_frames: bool,
    /// Rows of threads by slice, and of samples by slice, before slices become wider.
    most_rows: [usize; 2],
    /// Whether waits are followed. Windows have chains of waits; other snapshots of a running session have none.
    pub follows_waits: bool,
    /// Ages of stacks and resources that are sent once, for a session in windows.
    pub sent_once: Option<SentOnce>,
    /// Hashes of waits for the end of a process, by the process.
    ends: FxHashMap<u32, u64>,
    /// Moves to groups of ended threads that are still to be made.
    pub(super) moves: Moves,
    /// Processes of which no thread stands for itself any more, since the last tick.
    pub forgotten: Vec<u32>,
}

impl Estimator {
    /// Nothing has come in yet.
    pub fn new(begin: &Begin) -> Estimator {
        let accounts = Accounts::new(begin.start_ns, begin.slice_ns);
        let samples = Samples::new(accounts.grid());
        Estimator {
            accounts,
            samples,
            resources: FxHashMap::default(),
            chains: Chains::new(Interrupts::from_codes(&begin.interrupts)),
            kernel: FxHashMap::default(),
            user: FxHashMap::default(),
            managed: FxHashMap::default(),
            joins: FxHashMap::default(),
            histograms: Histograms::default(),
            pauses: PauseGroups::default(),
            turns: begin.timeline_bytes.map(Turns::new),
            malformed: 0,
            facts: Facts {
                start_unix_ns: begin.start_unix_ns,
                ..Facts::default()
            },
            interpreter_frames: begin.interpreter_frames,
            most_rows: [2 * MAX_ROWS, MAX_SAMPLE_ROWS],
            follows_waits: true,
            sent_once: None,
            ends: FxHashMap::default(),
            moves: Moves::default(),
            forgotten: Vec::new(),
        }
    }

    /// Takes an observation. Answers to questions are not for it ([`super::naming`]).
    pub fn observe(&mut self, observation: &Observation<'_>) {
        let read = match observation {
            Observation::Event(bytes) => self.event(bytes),
            Observation::Turn(bytes) => match &mut self.turns {
                Some(turns) => turns.take(bytes),
                None => Some(()),
            },
            Observation::Books(bytes) => dump(bytes).map(|d| self.accounts.dump(&d)),
            Observation::LastBooks(bytes) => dump(bytes).map(|d| self.accounts.last_dump(&d)),
            Observation::Socket(bytes) => self.open_socket(bytes),
            // The figures of a thread that does not switch are known again at the end.
            Observation::FirstBooks(_) => Some(()),
            other => {
                self.value(other);
                Some(())
            }
        };
        self.malformed += u64::from(read.is_none());
        self.bound_rows();
    }

    fn value(&mut self, observation: &Observation<'_>) {
        match observation {
            Observation::Mark(Mark::Released { pid, time }) => {
                self.accounts.begins(*pid, *time);
                self.samples.released(*pid);
            }
            Observation::Mark(Mark::Tick { time }) => self.tick(*time),
            Observation::Mark(Mark::End { time }) => {
                self.facts.end_ns = Some(*time);
                self.accounts.close(*time);
            }
            Observation::Stack(s) => {
                let stack = UserStack {
                    end: s.end,
                    unwinding: Unwinding::Deferred,
                    frames: s.frames.as_slice().into(),
                };
                self.unwound(s.hash, stack);
            }
            Observation::CodeChanges(c) => self.samples.changed(c),
            Observation::Sleeping(thread) => {
                if let Some(index) = self.accounts.index(thread.record) {
                    self.accounts.sleeps(index);
                }
            }
            Observation::ThreadName(named) => self.accounts.named(named),
            Observation::LockOwner(owner) => self.lock_owner(owner),
            Observation::ResourceName(named) => {
                self.resources.insert(named.hash, named.name.clone());
            }
            Observation::SameLock(same) => self.chains.is_same(same.hash, same.first),
            Observation::Connected(connected) => self.samples.peers.connected(connected),
            Observation::OtherEnd(end) if end.before => self.samples.peers.other_end(end),
            Observation::Histogram(h) => {
                self.malformed += u64::from(self.histograms.class(h).is_none());
            }
            other => self.facts.take(other),
        }
    }

    fn event(&mut self, bytes: &[u8]) -> Option<()> {
        let first = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
        match first {
            n if n as usize <= abi::MAX_FRAMES => self.user_stack(n as usize, bytes)?,
            kind::THREAD => {
                let e = ThreadEvent::read_from_prefix(bytes).ok()?.0;
                self.accounts.thread(&e);
                if e.how == how::EXEC {
                    self.samples.exec(e.pid);
                }
            }
            kind::EXIT => {
                let d = dump(bytes)?;
                self.accounts.last_dump(&d);
                self.samples.thread_gone(d.id);
            }
            kind::SAMPLE => self
                .samples
                .sample(&SampleEvent::read_from_prefix(bytes).ok()?.0),
            kind::MANAGED => self.managed_stack(bytes)?,
            kind::JOIN => {
                let join = Join::read_from_prefix(bytes).ok()?.0;
                if self.samples.is_unfiled(join.native) {
                    self.samples.unfiled(join.hash);
                }
                self.joins.insert(join.hash, (join.native, join.managed));
                self.sent(join.hash);
            }
            kind::RESOLVE => {
                let r = Resolve::read_from_prefix(bytes).ok()?.0;
                self.samples.resolve(&r);
                self.chains.resolve(&r);
            }
            kind::RESOURCE => self.resource(&ResourceEvent::read_from_prefix(bytes).ok()?.0),
            kind::WAKE if !self.follows_waits => {}
            kind::WAKE => self
                .chains
                .wake(&WakeEvent::read_from_prefix(bytes).ok()?.0),
            kind::HOLDS if !self.follows_waits => {}
            kind::HOLDS => self
                .chains
                .holders
                .take(&HoldsEvent::read_from_prefix(bytes).ok()?.0),
            kind::HISTOGRAM => self.histograms.own(bytes)?,
            kind::SOCKET => {
                let record = bytes.get(size_of::<Head>()..)?;
                let record = SocketRecord::read_from_prefix(record).ok()?.0;
                self.samples.peers.gone(record);
            }
            kind::ANSWER => {
                let a = Answer::read_from_prefix(bytes).ok()?.0;
                self.samples.peers.answered(a.cookie, a.id, a.ns);
            }
            kind::KSTACK => self.kernel_stack(bytes)?,
            kind::PAUSE => self
                .pauses
                .take(&PauseEvent::read_from_prefix(bytes).ok()?.0),
            // The collector handles these: it finds the owner and reports it.
            kind::OWNER | kind::WORDS => {}
            _ => return None,
        }
        Some(())
    }

    fn managed_stack(&mut self, bytes: &[u8]) -> Option<()> {
        let (head, rest) = ManagedHead::read_from_prefix(bytes).ok()?;
        let stack = ManagedStack {
            pid: head.pid,
            end: head.end,
            words: words(rest, 0, (head.n as usize).checked_mul(2)?)?,
        };
        self.managed.insert(head.hash, stack);
        self.sent(head.hash);
        Some(())
    }

    fn kernel_stack(&mut self, bytes: &[u8]) -> Option<()> {
        let head = size_of::<Head>();
        let hash = word(bytes, head)?;
        let n = u32::from_ne_bytes(bytes.get(head + 8..head + 12)?.try_into().ok()?);
        self.kernel
            .insert(hash, words(bytes, head + 16, n as usize)?);
        self.sent(hash);
        Some(())
    }

    fn resource(&mut self, e: &ResourceEvent) {
        self.sent(e.hash);
        if e.kind == resource_kind::MONITOR && e.address & PARKED != 0 {
            self.chains.is_a_kind(e.hash);
        } else if matches!(e.kind, resource_kind::PROCESS | resource_kind::OWN_CHILD) {
            self.ends.insert(e.address as u32, e.hash);
        }
    }

    fn open_socket(&mut self, bytes: &[u8]) -> Option<()> {
        let record = SocketRecord::read_from_prefix(bytes).ok()?.0;
        self.samples.peers.open(record);
        Some(())
    }

    fn lock_owner(&mut self, o: &LockOwner) {
        let holder = match &o.holder {
            LockHolder::Record(record) => ActorKey::Record(*record),
            LockHolder::Stranger { pid, tid, name } => ActorKey::Stranger(*pid, *tid, name.clone()),
        };
        let told = OwnerEvidence::from_number(o.evidence);
        match (o.at_end, told) {
            (false, told) => self.chains.owned(o.record, o.begin, holder, told),
            (true, Some(told)) => self.chains.has_lock(o.record, o.begin, holder, told),
            (true, None) => self.malformed += 1,
        }
    }

    fn user_stack(&mut self, n: usize, bytes: &[u8]) -> Option<()> {
        let end = End::from_raw(u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?));
        let end = end.map_or(StackEnd::Lost, StackEnd::from);
        let hash = word(bytes, 8)?;
        let frames = words(bytes, 16, n)?;
        let stack = UserStack {
            end,
            unwinding: Unwinding::Immediate,
            frames,
        };
        self.unwound(hash, stack);
        Some(())
    }

    /// Keeps a user stack by its hash.
    fn unwound(&mut self, hash: u64, stack: UserStack) {
        if stack.frames.iter().any(|w| FrameWord(*w).file() == 0) {
            self.samples.unfiled(hash);
        }
        self.user.insert(hash, stack);
        self.sent(hash);
    }

    /// Widens the slices if they have too many rows: a log may claim more than there can be.
    fn bound_rows(&mut self) {
        if self.accounts.rows() <= self.most_rows[0] && self.samples.rows() <= self.most_rows[1] {
            return;
        }
        self.accounts.coarsen();
        self.samples.coarsen();
        // Each thread and each stack has one row at least.
        let rows = [self.accounts.rows(), self.samples.rows()];
        for (most, rows) in self.most_rows.iter_mut().zip(rows) {
            *most = (*most).max(2 * rows);
        }
    }

    /// Closes slices up to `time`, and follows the waits that ended some time before.
    fn tick(&mut self, time: u64) {
        let wide = |grid: Slices| grid.width_ns >= time.saturating_sub(grid.start_ns);
        while self.accounts.rows_at(time) > MAX_ROWS && !wide(self.accounts.grid()) {
            self.accounts.coarsen();
            self.samples.coarsen();
        }
        self.accounts.tick(time);
        if self.follows_waits {
            self.settle(time);
        }
        self.fold();
        let reports = match self.accounts.take_reports() {
            // Windows are merged: their slices keep their width.
            _ if self.sent_once.is_some() => 0,
            reports => reports,
        };
        let too_fine = slices::is_too_fine(&self.accounts.grid(), time, reports);
        if too_fine || self.accounts.rows() > MAX_ROWS {
            self.accounts.coarsen();
            self.samples.coarsen();
        }
    }

    /// Folds ended threads, where there are too many of them, and moves the data that is kept by their records.
    fn fold(&mut self) {
        let folded = self.accounts.fold();
        self.histograms.fold(&folded);
        self.samples.forget(&folded.forgotten);
        self.chains.holders.forget(&folded.forgotten);
        for pid in &folded.forgotten {
            self.facts.processes.remove(pid);
            self.fold_end_of(*pid);
        }
        self.forgotten = folded.forgotten;
        self.moves.records = folded.to;
        if self.moves.records.is_empty() && self.moves.resources.len() < FOLDED_ENDS {
            return;
        }
        let moves = std::mem::take(&mut self.moves);
        self.samples.fold(&moves);
        if self.follows_waits {
            self.chains.fold(moves);
        }
    }

    /// Waits for the end of process `pid`, which is not known any more, become waits for the end of any process of
    /// its name. A shell waits for each of its children under a name of its own.
    fn fold_end_of(&mut self, pid: u32) {
        let Some(hash) = self.ends.remove(&pid) else {
            return;
        };
        let name = self.resources.get(&hash).map_or("", |name| &**name);
        // A number in another namespace may be another process.
        let Some(any) = name.strip_suffix(&format!(" ({pid})")) else {
            return;
        };
        let any: Arc<str> = any.into();
        let group = FIRST_FOLDED_END | u64::from(number(&[&any]));
        self.resources.remove(&hash);
        self.resources.insert(group, any);
        self.moves.resources.insert(hash, group);
    }

    /// Follows the waits that ended some time before `now`.
    pub fn settle(&mut self, now: u64) {
        self.pass_on();
        self.chains.settle(now, &self.kernel);
    }

    /// Passes the samples with their stacks on to the chains.
    fn pass_on(&mut self) {
        for (key, s) in self.samples.done.drain(..) {
            self.chains.sample(key, &s);
        }
        for (key, s) in self.samples.open.drain(..) {
            self.chains.still(key, &s);
        }
    }

    /// The recorder ended at `end_ns` without last figures. `period_ns`: off-CPU time that a stack stands for.
    pub fn ends_early(&mut self, end_ns: u64, period_ns: u64) {
        let blocked: Vec<StillBlocked> = self.accounts.still_blocked().collect();
        self.accounts.stay(end_ns);
        for t in blocked {
            let open = end_ns.saturating_sub(t.since);
            // The task iterator reads the stacks of waits that last this long. The stack known for a shorter wait may
            // be that of an earlier one.
            if period_ns == 0 || open < READ_AHEAD * period_ns {
                continue;
            }
            let user = self.samples.read_ahead(t.id);
            let mut s = SampleEvent::new_zeroed();
            (s.id, s.pid, s.tid) = (t.id, t.pid, t.tid);
            (s.begin, s.end, s.ns) = (t.since, end_ns, open);
            (s.state, s.detail) = (state::BLOCKED, t.detail);
            s.count = u32::try_from(open / period_ns).unwrap_or(u32::MAX);
            s.flags = match t.is_kernel_thread {
                true => SAMPLE_OPEN | SAMPLE_NO_USER,
                false => SAMPLE_OPEN,
            };
            if let Some(UserPart::Hash(hash)) = user {
                s.ustack = hash;
            }
            self.samples.sample(&s);
        }
        self.observe(&Observation::Mark(Mark::End { time: end_ns }));
    }

    /// Takes the samples since the last call, for a snapshot.
    pub fn take_samples(&mut self) -> Vec<(SampleKey, SampleSum)> {
        if self.follows_waits {
            self.pass_on();
            let accounts = &self.accounts;
            (self.samples).move_keys(&|key| key.moved_late(accounts.record(key.id)));
        }
        self.samples.take()
    }

    /// Prepares for a session in windows, which does not end.
    pub fn make_windows(&mut self) {
        self.follows_waits = true;
        self.chains.remember_for_windows();
        self.accounts.follow_ancestors();
        self.sent_once = Some(SentOnce::default());
    }

    /// The kernel programs sent `hash`, which they send once.
    fn sent(&mut self, hash: u64) {
        if let Some(sent_once) = &mut self.sent_once {
            sent_once.used(hash);
        }
    }

    /// A sample or a part of a wait uses these.
    pub fn uses(&mut self, kernel: u64, user: UserPart, resource: u64) {
        let Some(sent_once) = &mut self.sent_once else {
            return;
        };
        sent_once.used(kernel);
        sent_once.used(resource);
        if let UserPart::Hash(hash) = user {
            sent_once.used(hash);
            if let Some((native, managed)) = self.joins.get(&hash) {
                sent_once.used(*native);
                sent_once.used(*managed);
            }
        }
    }

    /// The parts of waits since the last call, with the keys of the samples at their roots.
    pub fn take_chains(&mut self) -> (Vec<SampleKey>, Vec<Node>) {
        let (roots, nodes) = self.chains.take(&self.kernel);
        for part in nodes.iter().map(|node| &node.part) {
            self.uses(part.kernel, part.user, part.resource);
        }
        (roots, nodes)
    }

    /// Ends a window: forgets entries that no sample has used for long.
    pub fn end_window(&mut self) -> Forgotten {
        self.samples.peers.end_window();
        let Some(sent_once) = &mut self.sent_once else {
            return Forgotten::default();
        };
        let forgotten = sent_once.end_window();
        let gone = &forgotten.gone;
        if !gone.is_empty() {
            self.kernel.retain(|hash, _| !gone.contains(hash));
            self.user.retain(|hash, _| !gone.contains(hash));
            self.managed.retain(|hash, _| !gone.contains(hash));
            self.joins.retain(|hash, _| !gone.contains(hash));
            self.resources.retain(|hash, _| !gone.contains(hash));
            self.ends.retain(|_, hash| !gone.contains(hash));
            self.samples.forget_stacks(gone);
        }
        forgotten
    }
}

impl Facts {
    /// Takes an observation that is a fact.
    pub fn take(&mut self, observation: &Observation<'_>) {
        match observation {
            Observation::Host(sample) => self.host.push((**sample).clone()),
            Observation::Cost(cost) => self.cost = cost.clone(),
            Observation::Domain(domain) => self.domain = domain.clone(),
            Observation::Loss(loss) => self.losses.take(loss),
            Observation::Process(process) => {
                self.processes.insert(process.pid, process.clone());
            }
            Observation::Module(module) => self.modules.push(module.clone()),
            Observation::LockWaits(waits) => {
                let key = (waits.record, waits.address, waits.call);
                self.locks.insert(key, waits.clone());
            }
            Observation::CountedEvent(event) => self.events.push(event.clone()),
            Observation::EventHits(h) => {
                self.hits.insert((h.event, h.record), h.hits);
            }
            Observation::Tasks(tasks) => self.tasks.groups.push((tasks.clone(), Vec::new())),
            Observation::TaskTime(time) => {
                if let Some((_, times)) = self.tasks.groups.last_mut() {
                    times.push(time.clone());
                }
            }
            Observation::TaskStack(stack) => self.tasks.stacks.push(stack.clone()),
            Observation::TaskWords(words) => self.tasks.words.push(words.clone()),
            _ => {}
        }
    }
}

fn dump(bytes: &[u8]) -> Option<Dump> {
    Some(Dump::read_from_prefix(bytes).ok()?.0)
}

pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

pub(super) fn words(bytes: &[u8], at: usize, n: usize) -> Option<Box<[u64]>> {
    // Memory for the claimed count is allocated only once that many bytes are known to be there.
    let bytes = bytes.get(at..)?.get(..n.checked_mul(8)?)?;
    let word = |b: &[u8; 8]| u64::from_ne_bytes(*b);
    Some(bytes.as_chunks().0.iter().map(word).collect())
}

#[cfg(test)]
#[path = "storm_tests.rs"]
mod storm_tests;

#[cfg(test)]
#[path = "estimator_tests.rs"]
mod tests;
