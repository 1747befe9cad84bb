//! Events from the kernel's ring, on their way to the estimator, the log, and the collector's own work.
//!
//! [`EventDispatcher::observe`] is the one place through which the estimator learns anything: it goes to the log,
//! if there is one, and to the estimator. What the collector needs for its own next steps (births, stacks
//! to be named, locks to be looked into) is put aside here until the session takes it.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::BlockReason;
use wallscope_observe::{
    Begin, LockHolder, LockOwner as ObservedOwner, LockWaits, LogWriter, Mark, Observation,
    SleepingThread, UnwoundStack,
};
use wallscope_unwind::{native::abi, runtime::hotspot};
use zerocopy::{FromBytes, IntoBytes};

use super::{
    copied_stack::CopiedStack,
    deferred_unwind::Deferred,
    estimator::{Estimator, TaskFacts, word, words},
    flight::FlightWriter,
    java::Java,
    lock_owner::{self, LockOwner, OwnerEvidence},
    observation_sink::ObservationSink,
    resources::{Locks, News, Resources},
    sample_key::{SampleKey, SampleSum, UserPart},
};
use crate::{
    backend::ebpf::{IterOrder, IterRecord},
    event::{
        Dump, LockSum, ManagedHead, OwnerEvent, Resolve, ResourceEvent, ThreadEvent, WordsEvent,
        kind, resource_kind, state,
    },
    syscalls::is_futex,
};

/// Dispatcher of the events of a session, with the work that they leave for the session.
pub struct EventDispatcher {
    /// Estimator that gets every observation.
    pub estimator: Estimator,
    /// Log of the observations, if there is one.
    pub log: Option<LogWriter>,
    /// Flight recorder for the turns, if a session in windows has one.
    pub flight: Option<FlightWriter>,
    /// Resources that threads waited for.
    pub resources: Resources,
    /// Hashes of managed stacks that have no names yet.
    pub unnamed: Vec<u64>,
    /// Hashes of user stacks with frames of a VM, HotSpot or V8, that have no names yet.
    pub unnamed_vm: Vec<u64>,
    /// Owners of Java monitors that were waited for, as their VMs write them.
    owners: Vec<OwnerEvent>,
    /// Words around locks that were waited for with a time limit.
    around: Vec<WordsEvent>,
    /// Stacks read before the wake-up, of waits for a futex with a time limit.
    read_ahead: Vec<Resolve>,
    /// Records of threads, by process and thread.
    records: FxHashMap<(u32, u32), u64>,
    /// Futexes by the hash that samples refer to: (process, address).
    futexes: FxHashMap<u64, (u32, u64)>,
    /// Java monitors by the hash that samples refer to: (process, address).
    monitors: FxHashMap<u64, (u32, u64)>,
    /// Number of finished samples that have been searched for waits of Java threads.
    read_by_java: usize,
    /// Stacks that could not be unwound yet, and wait for it.
    pub raws: Vec<CopiedStack>,
    /// Events that the session has not handled yet.
    pub unseen: UnseenEvents,
}

/// Events for the session, in the order in which they came.
#[derive(Default)]
pub struct UnseenEvents {
    /// Stacks that could not be unwound yet.
    pub copied: Vec<CopiedStack>,
    /// Threads that came, or changed by exec.
    pub threads: Vec<ThreadEvent>,
    /// Ends of threads: when, and of which process.
    pub gone: Vec<(u64, u32)>,
}

impl EventDispatcher {
    /// An empty intake, which also keeps the observations in `log`.
    pub fn new(begin: Begin, log: Option<LogWriter>) -> EventDispatcher {
        let mut intake = EventDispatcher {
            estimator: Estimator::new(&begin),
            log,
            flight: None,
            resources: Resources::default(),
            unnamed: Vec::new(),
            unnamed_vm: Vec::new(),
            owners: Vec::new(),
            around: Vec::new(),
            read_ahead: Vec::new(),
            records: FxHashMap::default(),
            futexes: FxHashMap::default(),
            monitors: FxHashMap::default(),
            read_by_java: 0,
            raws: Vec::new(),
            unseen: UnseenEvents::default(),
        };
        intake.observe(Observation::Begin(begin));
        intake
    }

    /// Logs an observation, and gives it to the estimator.
    pub fn observe(&mut self, observation: Observation<'_>) {
        if let Some(log) = &mut self.log {
            log.append(&observation);
        }
        self.estimator.observe(&observation);
    }

    /// Takes one record of the ring.
    pub fn take(&mut self, bytes: &[u8]) {
        let first = bytes.get(..4).and_then(|b| b.try_into().ok());
        if first.map(u32::from_ne_bytes) == Some(kind::RAW) {
            // Memory of the target: nothing to estimate from, and logged only where that is asked for.
            match CopiedStack::parse(bytes) {
                Some(raw) => {
                    if let Some(log) = &mut self.log {
                        log.keep_memory(|| raw.memory());
                    }
                    self.unseen.copied.push(raw);
                }
                None => self.estimator.malformed += 1,
            }
            return;
        }
        // The estimator gets the record too, and counts it if it is malformed.
        let _ = self.put_aside(bytes);
        self.observe(Observation::Event(bytes));
    }

    /// Takes one record of the ring of turns.
    pub fn turn(&mut self, bytes: &[u8]) {
        let Some(flight) = &mut self.flight else {
            return self.observe(Observation::Turn(bytes));
        };
        self.estimator.malformed += u64::from(flight.take(bytes).is_none());
    }

    /// Ends a chunk of the flight recorder, if there is one.
    pub fn end_flight_chunk(&mut self, time: u64) {
        if let Some(flight) = &mut self.flight {
            flight.end_chunk(time, &self.estimator.accounts);
        }
    }

    /// Keeps a record that the collector itself has work with.
    fn put_aside(&mut self, bytes: &[u8]) -> Option<()> {
        let first = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
        match first {
            n if n as usize <= abi::MAX_FRAMES => {
                let (hash, frames) = (word(bytes, 8)?, words(bytes, 16, n as usize)?);
                if hotspot::are_managed(&frames) {
                    self.unnamed_vm.push(hash);
                }
            }
            kind::THREAD => {
                let e = ThreadEvent::read_from_prefix(bytes).ok()?.0;
                self.records.insert((e.pid, e.tid), e.id);
                if e.pid == e.tid {
                    self.resources.set_process_name(e.pid, e.name());
                }
                self.unseen.threads.push(e);
            }
            kind::EXIT => {
                let d = Dump::read_from_prefix(bytes).ok()?.0;
                self.unseen.gone.push((d.now, d.pid));
            }
            kind::MANAGED => {
                let head = ManagedHead::read_from_prefix(bytes).ok()?.0;
                self.unnamed.push(head.hash);
            }
            kind::RESOLVE => {
                let r = Resolve::read_from_prefix(bytes).ok()?.0;
                if r.futex != 0 && !self.estimator.samples.is_awaited(r.ticket) {
                    self.read_ahead.push(r);
                }
            }
            kind::RESOURCE => {
                let e = ResourceEvent::read_from_prefix(bytes).ok()?.0;
                if e.kind == resource_kind::LOCK && is_futex(e.call.into()) {
                    self.futexes.insert(e.hash, (e.pid, e.address));
                } else if e.kind == resource_kind::MONITOR {
                    self.monitors.insert(e.hash, (e.pid, e.address));
                }
                self.resources.take(e);
            }
            kind::OWNER => self
                .owners
                .push(OwnerEvent::read_from_prefix(bytes).ok()?.0),
            kind::WORDS => self
                .around
                .push(WordsEvent::read_from_prefix(bytes).ok()?.0),
            _ => {}
        }
        Some(())
    }

    /// Ends a window of the flight recorder, if there is one.
    pub fn end_flight(&mut self, time: u64) {
        self.end_flight_chunk(time);
        if let Some(flight) = &mut self.flight {
            flight.note_open(time, &self.estimator.accounts);
        }
    }

    /// Takes the figures that the task iterator reports of a thread.
    pub fn take_iterated(&mut self, v: &IterRecord<'_>, order: IterOrder) {
        match v {
            IterRecord::Books(d) if order == IterOrder::End => {
                self.observe(Observation::LastBooks(d.as_bytes()))
            }
            IterRecord::Books(d) => self.observe(Observation::Books(d.as_bytes())),
            IterRecord::Histogram(bytes) => self.take(bytes),
        }
    }

    /// Notes that all changed threads have reported their figures up to `time`.
    pub fn tick(&mut self, time: u64) {
        self.end_flight_chunk(time);
        self.observe(Observation::Mark(Mark::Tick { time }));
        self.read_by_java = 0;
    }

    /// Forgets the processes of which the estimator keeps no single thread any more, and returns them.
    pub fn forget(&mut self) -> Vec<u32> {
        let forgotten = std::mem::take(&mut self.estimator.forgotten);
        if forgotten.is_empty() {
            return forgotten;
        }
        let gone: FxHashSet<u32> = forgotten.iter().copied().collect();
        self.records.retain(|(pid, _), _| !gone.contains(pid));
        self.futexes.retain(|_, (pid, _)| !gone.contains(pid));
        self.monitors.retain(|_, (pid, _)| !gone.contains(pid));
        self.resources.forget(&gone);
        forgotten
    }

    /// Ends a window. Returns the hashes that the kernel programs are to forget.
    pub fn end_window(&mut self) -> Vec<u64> {
        self.resources.end_window();
        let forgotten = self.estimator.end_window();
        let gone = &forgotten.gone;
        if !gone.is_empty() {
            self.futexes.retain(|hash, _| !gone.contains(hash));
            self.monitors.retain(|hash, _| !gone.contains(hash));
        }
        forgotten.stale
    }

    /// Notes the stack of a ticket.
    pub fn resolve(&mut self, r: &Resolve) {
        self.take(r.as_bytes());
    }

    /// Takes stacks that were put off and have been unwound, in their order.
    pub fn deferred(&mut self, all: Vec<Deferred>) {
        for Deferred { resolve, stack } in all {
            if let Some(stack) = stack {
                self.observe(Observation::Stack(UnwoundStack {
                    hash: resolve.ustack,
                    end: stack.end,
                    frames: stack.frames.into(),
                }));
            }
            self.resolve(&resolve);
        }
    }

    /// Names the oldest new resource; `false`: there is none.
    pub fn settle_resource(&mut self, locks: &dyn Locks) -> bool {
        let any = self.resources.settle_one(locks);
        self.take_resource_news();
        any
    }

    /// Names the resources that are known better at the end.
    pub fn finish_resources(&mut self, locks: &dyn Locks) {
        self.resources.finish(locks);
        self.take_resource_news();
    }

    fn take_resource_news(&mut self) {
        for news in self.resources.take_news() {
            self.observe(match news {
                News::Name(name) => Observation::ResourceName(name),
                News::Same(same) => Observation::SameLock(same),
            });
        }
    }

    /// Lets `java` know of its threads' waits for locks since the last call.
    pub fn tell_java(&mut self, java: &mut Java) {
        let estimator = &self.estimator;
        for (key, _) in &estimator.samples.done[self.read_by_java..] {
            if let UserPart::Hash(hash) = key.user
                && (key.state, key.detail) == (state::BLOCKED, BlockReason::Lock as u8)
                && let Some((pid, address)) = self.futexes.get(&key.resource)
                && let Some(stack) = estimator.user.get(&hash)
                && hotspot::are_managed(&stack.frames)
            {
                java.waited(*pid, *address, &stack.frames);
            }
        }
        self.read_by_java = estimator.samples.done.len();
        let mut sleeping = Vec::new();
        for r in self.read_ahead.drain(..) {
            if let Some(stack) = self.estimator.user.get(&r.ustack)
                && hotspot::are_managed(&stack.frames)
                && let Some(index) = self.estimator.accounts.index(r.id)
                && let pid = self.estimator.accounts.pid(index)
                && java.sleeps(pid, stack.frames.iter().copied())
            {
                java.waited(pid, r.futex, &stack.frames);
                sleeping.push(SleepingThread { record: r.id });
            }
        }
        for thread in sleeping {
            self.observe(Observation::Sleeping(thread));
        }
    }

    /// Looks up the owners of the locks that threads began to wait for; `java` knows the owners of its
    /// monitors.
    pub fn tell_owners(&mut self, java: &Java) {
        for e in std::mem::take(&mut self.owners) {
            if let Some(tid) = java.owner(e.pid, e.owner)
                && let Some(owner) = self.records.get(&(e.pid, tid))
            {
                self.observe(Observation::LockOwner(ObservedOwner {
                    record: e.id,
                    begin: e.begin,
                    holder: LockHolder::Record(*owner),
                    evidence: 0,
                    at_end: false,
                }));
            }
        }
        let mut reader = lock_owner::Reader::default();
        for e in std::mem::take(&mut self.around) {
            let measured = |tid| self.records.contains_key(&(e.pid, tid));
            if let Some(owner) = reader.had(&e, measured) {
                self.observe(Observation::LockOwner(ObservedOwner {
                    record: e.id,
                    begin: e.begin,
                    holder: self.holder(&owner),
                    evidence: owner.told.then() as u8,
                    at_end: false,
                }));
            }
        }
    }

    fn holder(&self, owner: &LockOwner) -> LockHolder {
        match self.records.get(&(owner.pid, owner.tid)) {
            Some(record) => LockHolder::Record(*record),
            None => lock_owner::stranger(owner),
        }
    }

    /// Reads the owners of the locks that threads still wait for from the locks' memory. To be called at the
    /// end, while the threads wait.
    pub fn read_owners(&mut self, java: &Java) {
        let mut reader = lock_owner::Reader::default();
        let mut all = Vec::new();
        for (key, s) in &self.estimator.samples.open {
            if key.detail != BlockReason::Lock as u8 {
                continue;
            }
            let owner = if let Some((pid, address)) = self.futexes.get(&key.resource) {
                reader.owner(*pid, s.tid, *address)
            } else if let Some((pid, monitor)) = self.monitors.get(&key.resource) {
                java.has_monitor(*pid, *monitor).map(|tid| LockOwner {
                    told: OwnerEvidence::Monitor,
                    pid: *pid,
                    tid,
                })
            } else {
                None
            };
            let Some(owner) = owner else { continue };
            all.push(ObservedOwner {
                record: s.id,
                begin: s.begin,
                holder: self.holder(&owner),
                evidence: owner.told as u8,
                at_end: true,
            });
        }
        for owner in all {
            self.observe(Observation::LockOwner(owner));
        }
    }
}

fn waits(sum: &LockSum, name: Arc<str>) -> LockWaits {
    LockWaits {
        record: sum.id,
        address: sum.address,
        call: sum.call,
        total_ns: sum.total,
        longest_ns: sum.longest,
        count: sum.count,
        name,
    }
}

impl EventDispatcher {
    /// Takes observations of tasks.
    pub fn tasks(&mut self, facts: TaskFacts) {
        facts.tell(&mut |observation| self.observe(observation));
    }

    /// Exact waits by thread and lock, with the locks' names. The kernel lists them in no order: they
    /// come here in that of threads, locks and calls, as names depend on it.
    pub fn lock_waits(&mut self, sums: Vec<LockSum>, locks: &dyn Locks) -> Vec<LockWaits> {
        let accounts = &self.estimator.accounts;
        let known = |sum: LockSum| Some((accounts.index(sum.id)?, sum));
        let mut sums: Vec<(u32, LockSum)> = sums.into_iter().filter_map(known).collect();
        sums.sort_unstable_by_key(|(context, s)| (*context, s.address, s.call, s.id));
        let named = |(context, sum): (u32, LockSum)| {
            let pid = self.estimator.accounts.pid(context);
            let name = self.resources.lock(pid, sum.address, sum.call, locks);
            waits(&sum, name)
        };
        sums.into_iter().map(named).collect()
    }

    /// Exact waits by thread and lock, with the locks' names as far as they are known already.
    pub fn lock_waits_so_far(&self, sums: Vec<LockSum>) -> Vec<LockWaits> {
        let named = |sum: LockSum| {
            let index = self.estimator.accounts.index(sum.id)?;
            let pid = self.estimator.accounts.pid(index);
            Some(waits(
                &sum,
                self.resources.known_lock(pid, sum.address, sum.call),
            ))
        };
        sums.into_iter().filter_map(named).collect()
    }

    /// Takes the samples since the last call, for a snapshot.
    pub fn take_samples(&mut self) -> Vec<(SampleKey, SampleSum)> {
        self.read_by_java = 0;
        self.estimator.take_samples()
    }

    /// Why the log ended before the recording, if it did.
    pub fn log_failed(&self) -> Option<String> {
        self.log.as_ref()?.failed().map(str::to_owned)
    }
}

impl ObservationSink for EventDispatcher {
    fn observe(&mut self, observation: Observation<'_>) {
        EventDispatcher::observe(self, observation);
    }
}
