//! Events from the kernel's ring, sorted into books, samples and stacks.

use rustc_hash::FxHashMap;
use wallscope_model::{BlockReason, StackEnd};
use wallscope_unwind::{
    native::abi::{self, End, FrameWord},
    runtime::hotspot,
};
use zerocopy::FromBytes;

use super::{
    accounts::Accounts,
    chains::Chains,
    copied_stack::CopiedStack,
    deferred_unwind::Deferred,
    java::Java,
    lock_owner::{self, LockOwner, OwnerEvidence},
    resources::Resources,
    sample_key::{SampleKey, SampleSum, UserPart},
    samples::Samples,
    shapes::Shapes,
    timeline::Turns,
    unwound::{ManagedStack, UserStack},
    wait_tree::ActorKey,
};
use crate::{
    backend::ebpf::Visited,
    event::{
        Answer, Dump, Head, HoldsEvent, Join, ManagedHead, OwnerEvent, PARKED, Resolve,
        ResourceEvent, SampleEvent, SocketRecord, ThreadEvent, WakeEvent, WordsEvent, how, kind,
        state, what,
    },
    places::Interrupts,
    syscalls::is_futex,
};

/// Everything that has come in.
pub struct EventDispatcher {
    /// Threads and their books.
    pub accounts: Accounts,
    /// Samples.
    pub samples: Samples,
    /// What was waited for.
    pub resources: Resources,
    /// Who ended waits.
    pub chains: Chains,
    /// Kernel stacks by hash, innermost frame first.
    pub kernel: FxHashMap<u64, Box<[u64]>>,
    /// User stacks by hash.
    pub user: FxHashMap<u64, UserStack>,
    /// Managed frames by hash.
    pub managed: FxHashMap<u64, ManagedStack>,
    /// Hashes of those that nobody has named yet.
    pub unnamed: Vec<u64>,
    /// Hashes of user stacks with frames of a VM, HotSpot or V8, likewise.
    pub unnamed_vm: Vec<u64>,
    /// Owners of Java monitors that were waited for, as their VMs write them.
    owners: Vec<OwnerEvent>,
    /// What lay around locks that were waited for with a time limit.
    around: Vec<WordsEvent>,
    /// Records of threads, by process and thread.
    records: FxHashMap<(u32, u32), u64>,
    /// Futexes by the hash that samples refer to: (process, address).
    futexes: FxHashMap<u64, (u32, u64)>,
    /// Java monitors, likewise.
    monitors: FxHashMap<u64, (u32, u64)>,
    /// How many of the finished samples have been looked at for Java's waits.
    looked: usize,
    /// User stacks with managed frames: (hash in `user`, hash in `managed`).
    pub joins: FxHashMap<u64, (u64, u64)>,
    /// Stacks that could not be unwound yet, and wait for it.
    pub raws: Vec<CopiedStack>,
    /// Those of them that the session has not looked at yet.
    pub copied: Vec<CopiedStack>,
    /// How long intervals were.
    pub shapes: Shapes,
    /// The turns of a timeline, if there is one.
    pub turns: Option<Turns>,
    /// Thread events that the session has not looked at yet.
    pub news: Vec<ThreadEvent>,
    /// Threads that ended, likewise: when, and of which process.
    pub gone: Vec<(u64, u32)>,
    /// Records that could not be read: a disagreement of the two sides, never expected.
    pub malformed: u64,
}

impl EventDispatcher {
    /// An empty intake.
    pub fn new(start_ns: u64, slice_ns: u64, interrupts: Interrupts) -> EventDispatcher {
        let accounts = Accounts::new(start_ns, slice_ns);
        let samples = Samples::new(accounts.grid());
        EventDispatcher {
            accounts,
            samples,
            resources: Resources::default(),
            chains: Chains::new(interrupts),
            kernel: FxHashMap::default(),
            user: FxHashMap::default(),
            managed: FxHashMap::default(),
            unnamed: Vec::new(),
            unnamed_vm: Vec::new(),
            owners: Vec::new(),
            around: Vec::new(),
            records: FxHashMap::default(),
            futexes: FxHashMap::default(),
            monitors: FxHashMap::default(),
            looked: 0,
            joins: FxHashMap::default(),
            raws: Vec::new(),
            copied: Vec::new(),
            shapes: Shapes::default(),
            turns: None,
            news: Vec::new(),
            gone: Vec::new(),
            malformed: 0,
        }
    }

    /// Takes one record of the ring.
    pub fn take(&mut self, bytes: &[u8]) {
        if self.parse(bytes).is_none() {
            self.malformed += 1;
        }
    }

    /// Takes one record of the timeline's ring.
    pub fn turn(&mut self, bytes: &[u8]) {
        if let Some(turns) = &mut self.turns
            && turns.take(bytes).is_none()
        {
            self.malformed += 1;
        }
    }

    fn parse(&mut self, bytes: &[u8]) -> Option<()> {
        let first = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?);
        match first {
            n if n as usize <= abi::MAX_FRAMES => self.user_stack(n as usize, bytes)?,
            kind::THREAD => {
                let e = ThreadEvent::read_from_prefix(bytes).ok()?.0;
                self.accounts.thread(&e);
                self.records.insert((e.pid, e.tid), e.id);
                if e.how == how::EXEC {
                    self.samples.exec(e.pid);
                }
                if e.pid == e.tid {
                    self.resources.called(e.pid, e.name());
                }
                self.news.push(e);
            }
            kind::EXIT => {
                let d = Dump::read_from_prefix(bytes).ok()?.0;
                self.accounts.dump(&d, true);
                self.samples.thread_gone(d.id);
                self.gone.push((d.now, d.pid));
            }
            kind::SAMPLE => self
                .samples
                .sample(&SampleEvent::read_from_prefix(bytes).ok()?.0),
            kind::MANAGED => {
                let (head, rest) = ManagedHead::read_from_prefix(bytes).ok()?;
                let stack = ManagedStack {
                    pid: head.pid,
                    end: head.end,
                    words: words(rest, 0, 2 * head.n as usize)?,
                };
                self.managed.insert(head.hash, stack);
                self.unnamed.push(head.hash);
            }
            kind::JOIN => {
                let join = Join::read_from_prefix(bytes).ok()?.0;
                if self.samples.is_unfiled(join.native) {
                    self.samples.unfiled(join.hash);
                }
                self.joins.insert(join.hash, (join.native, join.managed));
            }
            kind::RESOLVE => {
                let r = Resolve::read_from_prefix(bytes).ok()?.0;
                self.resolve(&r);
            }
            kind::RESOURCE => {
                let e = ResourceEvent::read_from_prefix(bytes).ok()?.0;
                if e.what == what::LOCK && is_futex(e.call.into()) {
                    self.futexes.insert(e.hash, (e.pid, e.address));
                } else if e.what == what::MONITOR {
                    self.monitors.insert(e.hash, (e.pid, e.address));
                    if e.address & PARKED != 0 {
                        self.chains.is_a_kind(e.hash);
                    }
                }
                self.resources.take(e);
            }
            kind::WAKE => self
                .chains
                .wake(&WakeEvent::read_from_prefix(bytes).ok()?.0),
            kind::OWNER => self
                .owners
                .push(OwnerEvent::read_from_prefix(bytes).ok()?.0),
            kind::WORDS => self
                .around
                .push(WordsEvent::read_from_prefix(bytes).ok()?.0),
            kind::HOLDS => self
                .chains
                .holders
                .take(&HoldsEvent::read_from_prefix(bytes).ok()?.0),
            kind::RAW => self.copied.push(CopiedStack::parse(bytes)?),
            kind::SHAPE => self.shapes.own(bytes)?,
            kind::SOCKET => {
                let record = bytes.get(size_of::<Head>()..)?;
                let record = SocketRecord::read_from_prefix(record).ok()?.0;
                self.samples.peers.gone.push(record);
            }
            kind::ANSWER => {
                let a = Answer::read_from_prefix(bytes).ok()?.0;
                self.samples.peers.answered(a.cookie, a.id, a.ns);
            }
            kind::KSTACK => {
                let head = size_of::<Head>();
                let hash = word(bytes, head)?;
                let n = u32::from_ne_bytes(bytes.get(head + 8..head + 12)?.try_into().ok()?);
                self.kernel
                    .insert(hash, words(bytes, head + 16, n as usize)?);
            }
            _ => return None,
        }
        Some(())
    }

    /// Takes what the task iterator tells of a thread; the last it tells, if `last`.
    pub fn visited(&mut self, v: &Visited<'_>, last: bool) {
        match v {
            Visited::Books(d) => self.accounts.dump(d, last),
            Visited::Shape(bytes) => self.take(bytes),
        }
    }

    /// A ticket's stack is known.
    pub fn resolve(&mut self, r: &Resolve) {
        self.samples.resolve(r);
        self.chains.resolve(r);
    }

    /// Lets `java` know of its threads' waits for locks since the last call.
    pub fn tell_java(&mut self, java: &mut Java) {
        for (key, _) in &self.samples.done[self.looked..] {
            if let UserPart::Hash(hash) = key.user
                && (key.state, key.detail) == (state::BLOCKED, BlockReason::Lock as u8)
                && let Some((pid, address)) = self.futexes.get(&key.resource)
                && let Some(stack) = self.user.get(&hash)
                && hotspot::are_managed(&stack.frames)
            {
                java.waited(*pid, *address, &stack.frames);
            }
        }
        self.looked = self.samples.done.len();
        for r in self.samples.looked_ahead.drain(..) {
            if let Some(stack) = self.user.get(&r.ustack)
                && hotspot::are_managed(&stack.frames)
                && let Some(index) = self.accounts.index(r.id)
                && java.sleeps(self.accounts.pid(index), stack.frames.iter().copied())
            {
                java.waited(self.accounts.pid(index), r.futex, &stack.frames);
                self.accounts.sleeps(index);
            }
        }
    }

    /// Finds out whose the locks were that threads began to wait for; `java` knows whose its monitors were.
    pub fn tell_owners(&mut self, java: &Java) {
        for e in self.owners.drain(..) {
            if let Some(tid) = java.owner(e.pid, e.owner)
                && let Some(owner) = self.records.get(&(e.pid, tid))
            {
                self.chains
                    .owned(e.id, e.begin, ActorKey::Record(*owner), None);
            }
        }
        let mut reader = lock_owner::Reader::default();
        for e in std::mem::take(&mut self.around) {
            let measured = |tid| self.records.contains_key(&(e.pid, tid));
            if let Some(owner) = reader.had(&e, measured) {
                let who = self.who(&owner);
                self.chains
                    .owned(e.id, e.begin, who, Some(owner.told.then()));
            }
        }
    }

    fn who(&self, owner: &LockOwner) -> ActorKey {
        match self.records.get(&(owner.pid, owner.tid)) {
            Some(record) => ActorKey::Record(*record),
            None => lock_owner::stranger(owner),
        }
    }

    /// Finds out who has the locks that threads still wait for, as the locks say. To be called at the end,
    /// while they wait.
    pub fn read_owners(&mut self, java: &Java) {
        let mut reader = lock_owner::Reader::default();
        for (key, s) in &self.samples.open {
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
            let who = self.who(&owner);
            self.chains.has_lock(s.id, s.begin, who, owner.told);
        }
    }

    /// Samples since the last time, for a look; waits are not followed then.
    pub fn take_samples(&mut self) -> Vec<(SampleKey, SampleSum)> {
        self.looked = 0;
        self.samples.take()
    }

    /// Follows the waits that ended some time before `now`.
    pub fn settle(&mut self, now: u64) {
        self.looked = 0;
        for (resource, lock) in self.resources.take_same() {
            self.chains.is_same(resource, lock);
        }
        for (key, s) in self.samples.done.drain(..) {
            self.chains.sample(key, &s);
        }
        for (key, s) in self.samples.open.drain(..) {
            self.chains.still(key, &s);
        }
        self.chains.settle(now, &self.kernel);
    }

    fn user_stack(&mut self, n: usize, bytes: &[u8]) -> Option<()> {
        let end = End::from_raw(u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?));
        let end = end.map_or(StackEnd::Lost, StackEnd::from);
        let hash = word(bytes, 8)?;
        let frames = words(bytes, 16, n)?;
        if hotspot::are_managed(&frames) {
            self.unnamed_vm.push(hash);
        }
        let late = false;
        self.unwound(hash, UserStack { end, late, frames });
        Some(())
    }

    /// Takes stacks that were put off and have been unwound, in their order.
    pub fn deferred(&mut self, all: Vec<Deferred>) {
        for Deferred { resolve, stack } in all {
            if let Some(stack) = stack {
                self.unwound(resolve.ustack, stack);
            }
            self.resolve(&resolve);
        }
    }

    /// Keeps a user stack by its hash.
    pub fn unwound(&mut self, hash: u64, stack: UserStack) {
        if stack.frames.iter().any(|w| FrameWord(*w).file() == 0) {
            self.samples.unfiled(hash);
        }
        self.user.insert(hash, stack);
    }

    /// Doubles the width of the slices.
    pub fn coarsen(&mut self) {
        self.accounts.coarsen();
        self.samples.coarsen();
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn words(bytes: &[u8], at: usize, n: usize) -> Option<Box<[u64]>> {
    (0..n).map(|i| word(bytes, at + i * 8)).collect()
}
