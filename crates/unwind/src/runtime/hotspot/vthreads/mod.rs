//! Virtual threads of a HotSpot VM. A waiting one has no OS thread, so its time is in no thread's
//! ledger.
//!
//! ```text
//! mod.rs       one snapshot, from the start to tasks with stacks
//! snapshot.rs  status of each thread, and its stack
//! offsets.rs   field offsets, learnt from classes
//! facts.rs     facts of a process and of a thread
//! list.rs      the list of all virtual threads
//! heap.rs      objects, and whether they are moving
//! classes.rs   field offsets, by name
//! chunk.rs     the stack of an unmounted thread
//! start.rs     the task that a thread was started with, which names its kind
//! reasons.rs   wait reasons
//! ```
//!
//! The VM exports the location of its classes, and classes describe their fields. Only names of
//! classes and fields are built in. Tested on JDK 25. The numbers of states are read from the
//! class; those of 21 to 24 differ.
//!
//! Not read: stacks of mounted threads, which are part of their carrier's; threads that the JDK
//! does not list (`-Djdk.trackAllThreads=false`), which are counted; VMs with a concurrently moving
//! collector (ZGC, Shenandoah).

mod chunk;
mod classes;
mod facts;
mod heap;
mod list;
mod offsets;
mod reasons;
mod snapshot;
mod start;

use rustc_hash::{FxHashMap, FxHashSet};

use self::chunk::CodeCache;
use self::classes::Classes;
use self::facts::{ProcessFacts, ThreadFacts};
use self::heap::Heap;
use self::list::with_words;
use self::offsets::CarrierOffsets;
use self::snapshot::ThreadSnapshots;
use super::{Item, Miss, Opening, Scope, Vm, structs::Tables};
use crate::runtime::{
    Facts as AnyFacts,
    tasks::{Label, Memory, Task, TaskReader, TaskSnapshot, TaskStatus},
};

pub use self::chunk::STACK_TRUNCATED;
pub use self::reasons::reason;

/// The class of a virtual thread's continuation. It is loaded with the first virtual thread.
const CONTINUATION: &str = "java.lang.VirtualThread$VThreadContinuation";
/// First JDK version in which virtual threads are no preview.
const FIRST: u32 = 21;
/// Maximum attempts of a snapshot while objects move, and the pause between two.
const MAX_ATTEMPTS: u32 = 5;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// Maximum stacks with frames that are known to be named.
const MAX_NAMED_STACKS: usize = 1 << 12;

/// Name of a frame.
#[derive(Clone, Debug)]
pub enum FrameName {
    /// Methods, innermost first.
    Methods(Vec<Scope>),
    /// The VM's name for its own code.
    Stub(String),
    /// The name could not be read.
    Missed(Miss),
}

/// Snapshots of the virtual threads of one process.
pub struct VirtualThreads {
    bias: u64,
    opening: Option<Opening>,
    known: Option<Box<ProcessFacts>>,
    refused: Option<String>,
    /// A VM with an unreadable heap, and the reason. It is reported only once the VM has a virtual
    /// thread.
    doubt: Option<Box<(Vm, Classes, String)>>,
    /// The VM is too old for virtual threads.
    none: bool,
    codes: CodeCache,
    /// Facts about threads by thread id.
    own: FxHashMap<u64, ThreadFacts>,
    /// Names of the start classes of threads, and of the methods that these call.
    starts: FxHashMap<u64, String>,
    wait_words: Vec<String>,
    names: FxHashMap<Item, FrameName>,
    /// Stacks with only named frames, each with the start of its threads.
    named_stacks: FxHashSet<(u64, Vec<u64>)>,
    counts: Counts,
}

/// Threads and snapshots that could not be read.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    /// Stacks that could not be followed.
    broken: u64,
    /// Threads that ran on while their stacks were read.
    changed: u64,
    /// Threads that were not polled, as the collector was moving objects.
    missed: u64,
    /// Threads that the library only counts, most at once.
    untracked: u64,
}

impl VirtualThreads {
    /// Creates a value for a process in which the VM library has load bias `bias`.
    pub fn new(bias: u64) -> VirtualThreads {
        VirtualThreads {
            bias,
            opening: None,
            known: None,
            refused: None,
            doubt: None,
            none: false,
            codes: CodeCache::default(),
            own: FxHashMap::default(),
            starts: FxHashMap::default(),
            wait_words: vec![String::new()],
            names: FxHashMap::default(),
            named_stacks: FxHashSet::default(),
            counts: Counts::default(),
        }
    }

    /// The wait reasons, by the number that snapshots use.
    pub fn wait_words(&self) -> &[String] {
        &self.wait_words
    }

    /// Takes the names of the frames of all stacks so far.
    pub fn take_names(&mut self) -> FxHashMap<Item, FrameName> {
        std::mem::take(&mut self.names)
    }

    /// Losses so far, by cause, apart from stacks that could not be followed.
    pub fn losses(&self) -> [(&'static str, u64); 3] {
        [
            (
                "virtual threads not looked at: the collector was moving objects",
                self.counts.missed,
            ),
            (
                "virtual thread that ran on while its stack was read",
                self.counts.changed,
            ),
            (
                "virtual threads that the library only counts (-Djdk.trackAllThreads=false), most at once",
                self.counts.untracked,
            ),
        ]
    }

    /// Reason why no snapshot is possible, if known.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Opens the VM; `None` until it can be read, or if it has no virtual threads.
    fn open(&mut self, facts: &AnyFacts, memory: &mut dyn Memory) -> Option<()> {
        if self.known.is_some() {
            return Some(());
        }
        if let Some(doubt) = &mut self.doubt {
            let (vm, classes, why) = &mut **doubt;
            if with_words(memory, |m| classes.find(CONTINUATION, vm, m)).is_some() {
                self.refused = Some(std::mem::take(why));
            }
            return None;
        }
        let AnyFacts::HotSpot(facts) = facts else {
            return None;
        };
        let bias = self.bias;
        let mut read = |at: u64, to: &mut [u8]| memory.read(at, to);
        if self.opening.is_none() {
            // Code that names frames reports failures here.
            self.opening = Opening::read(facts, bias, &mut read).ok().flatten();
        }
        let opening = self.opening.as_ref()?;
        let digits = { opening.version.chars() }.take_while(char::is_ascii_digit);
        let major: u32 = digits.collect::<String>().parse().unwrap_or(0);
        if major < FIRST {
            self.none = true;
            return None;
        }
        let vm = Vm::open(opening, &mut read).ok().flatten()?;
        let tables: &Tables = &opening.tables;
        let class = vm.locks.as_ref()?.class;
        let classes = match Classes::of(tables, &vm.layout, vm.first) {
            Ok(classes) => classes,
            Err(why) => {
                self.refused = Some(why);
                return None;
            }
        };
        match with_words(memory, |m| Heap::of(tables, class, major, m)) {
            Err(why) => self.doubt = Some(Box::new((vm, classes, why))),
            Ok(None) => {}
            Ok(Some(heap)) => {
                let record = CarrierOffsets::of(tables);
                self.known = Some(Box::new(ProcessFacts {
                    vm,
                    heap,
                    classes,
                    containers: 0,
                    places: None,
                    chunk: None,
                    record,
                }));
                self.opening = None;
            }
        }
        self.known.as_ref().map(|_| ())
    }

    fn number(&mut self, word: &str) -> u32 {
        let known = self.wait_words.iter().position(|w| w == word);
        known.unwrap_or_else(|| {
            self.wait_words.push(word.to_owned());
            self.wait_words.len() - 1
        }) as u32
    }
}

impl TaskReader for VirtualThreads {
    fn snapshot(&mut self, facts: &AnyFacts, memory: &mut dyn Memory) -> TaskSnapshot {
        if self.is_impossible() || self.open(facts, memory).is_none() {
            return TaskSnapshot::None;
        }
        let Some(mut known) = self.known.take() else {
            return TaskSnapshot::None;
        };
        let snapshot = self.try_snapshot(&mut known, memory);
        self.known = Some(known);
        snapshot
    }

    fn labels(&mut self, _: &AnyFacts, _: &mut dyn Memory, task: &Task) -> Vec<Label> {
        let own = self.own.get(&task.id).and_then(|o| o.label.as_ref());
        own.map(|name| ("vthread".to_owned(), name.to_string()))
            .into_iter()
            .collect()
    }

    fn name(&self, _: &AnyFacts, start: u64) -> String {
        self.starts.get(&start).cloned().unwrap_or_default()
    }

    fn broken(&self) -> u64 {
        self.counts.broken
    }

    fn is_impossible(&self) -> bool {
        self.none || self.refused.is_some()
    }
}

impl VirtualThreads {
    fn try_snapshot(&mut self, known: &mut ProcessFacts, memory: &mut dyn Memory) -> TaskSnapshot {
        for turn in 0..MAX_ATTEMPTS {
            if turn > 0 {
                std::thread::sleep(PAUSE);
            }
            let heap = known.heap.clone();
            let Some(before) = with_words(memory, |m| heap.moves(m)) else {
                continue;
            };
            known.classes.renew(memory);
            self.codes.renew(&known.vm, memory);
            // Platform threads may have opened scopes for other threads.
            with_words(memory, |m| known.vm.new_threads(m.0).is_some());
            let seen = snapshot::take(known, &self.own, memory);
            if with_words(memory, |m| heap.moves(m)) != Some(before) {
                continue;
            }
            return match seen {
                Some(seen) => TaskSnapshot::Tasks(self.tasks(known, seen, memory)),
                None => TaskSnapshot::None,
            };
        }
        self.counts.missed += 1;
        TaskSnapshot::Missed
    }

    /// Converts a sighting to tasks with stacks.
    fn tasks(
        &mut self,
        known: &mut ProcessFacts,
        mut seen_threads: ThreadSnapshots,
        memory: &mut dyn Memory,
    ) -> Vec<Task> {
        self.counts.untracked = self.counts.untracked.max(seen_threads.untracked);
        self.counts.changed += seen_threads.changed;
        let alive: FxHashSet<u64> = seen_threads.threads.iter().map(|t| t.tid).collect();
        self.own.retain(|tid, _| alive.contains(tid));
        for (tid, own, name) in std::mem::take(&mut seen_threads.new) {
            self.starts.entry(own.start).or_insert(name);
            self.own.insert(tid, own);
        }
        let mut tasks = Vec::with_capacity(seen_threads.threads.len());
        for seen in &seen_threads.threads {
            let start = self.own.get(&seen.tid).map_or(0, |o| o.start);
            let stack = (!seen.parts.is_empty()).then(|| {
                let mut stack = Vec::new();
                let whole = with_words(memory, |m| {
                    seen.parts.iter().try_for_each(|part| {
                        let part = seen_threads.part(part);
                        self.codes.walk(&part, &known.vm, &mut stack, m)
                    })
                });
                if whole.is_none() {
                    self.counts.broken += 1;
                    stack.push(STACK_TRUNCATED);
                }
                let key = (start, stack);
                if !self.named_stacks.contains(&key) {
                    self.name_frames(known, &key.1, memory);
                    self.name_start(start, &key.1);
                    if self.named_stacks.len() >= MAX_NAMED_STACKS {
                        self.named_stacks.clear();
                    }
                    self.named_stacks.insert(key.clone());
                }
                let (_, stack) = key;
                stack
            });
            let status = match &seen.status {
                snapshot::ThreadStatus::Ready => TaskStatus::Runnable,
                snapshot::ThreadStatus::Running => TaskStatus::Running,
                snapshot::ThreadStatus::Waiting(word) => TaskStatus::Waiting(self.number(word)),
            };
            tasks.push(Task {
                id: seen.tid,
                start,
                status,
                stack,
                labels: u64::from(self.own.get(&seen.tid).is_some_and(|o| o.label.is_some())),
            });
        }
        tasks
    }

    /// Reads the names of a stack's frames while they exist.
    fn name_frames(&mut self, known: &mut ProcessFacts, stack: &[u64], memory: &mut dyn Memory) {
        let mut read = |at: u64, to: &mut [u8]| memory.read(at, to);
        for item in super::items(stack).1 {
            self.names.entry(item).or_insert_with(|| match item {
                Item::Native(word) => known
                    .vm
                    .stub(word.lookup_offset(), &mut read)
                    .map_or(FrameName::Missed(Miss::Unreadable), FrameName::Stub),
                _ => (known.vm.scopes(&item, &mut read))
                    .map_or_else(FrameName::Missed, FrameName::Methods),
            });
        }
    }

    /// Names the start of threads of this kind, if a stack reveals it.
    fn name_start(&mut self, start: u64, stack: &[u64]) {
        let Some(name) = self.starts.get(&start) else {
            return;
        };
        let items = super::items(stack).1;
        let named_stacks = items.iter().filter_map(|i| self.names.get(i));
        let scopes = named_stacks.flat_map(|t| match t {
            FrameName::Methods(scopes) => scopes.as_slice(),
            _ => &[],
        });
        let methods: Vec<&str> = scopes.map(|s| s.method.name.as_str()).collect();
        if let Some(called) = start::called_by_lambda(name, &methods) {
            self.starts.insert(start, called);
        }
    }
}
