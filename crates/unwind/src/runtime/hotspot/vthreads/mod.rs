//! Virtual threads of a HotSpot VM. A waiting one has no OS thread, so its time is in no thread's
//! ledger.
//!
//! ```text
//! mod.rs      one snapshot, from the start to tasks with stacks
//! look.rs     status of each thread, and its stack
//! list.rs     the list of all virtual threads
//! heap.rs     objects, and whether they are moving
//! classes.rs  field offsets, by name
//! chunk.rs    the stack of an unmounted thread
//! start.rs    the task that a thread was started with, which names its kind
//! reasons.rs  wait reasons
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
mod heap;
mod list;
mod look;
mod reasons;
mod start;

use rustc_hash::{FxHashMap, FxHashSet};
use std::sync::Arc;

use self::chunk::Codes;
use self::classes::Classes;
use self::heap::Heap;
use self::list::with;
use self::look::{ChunkPlaces, Places, Sight};
use super::{Item, Miss, Opening, Scope, Vm, structs::Tables};
use crate::runtime::{
    Facts as AnyFacts,
    tasks::{Doing, Label, Look, Looker, Memory, Task},
};

pub use self::chunk::CUT;
pub use self::reasons::reason;

/// The class of a virtual thread's continuation. It is loaded with the first virtual thread.
const CONTINUATION: &str = "java.lang.VirtualThread$VThreadContinuation";
/// First JDK version in which virtual threads are no preview.
const FIRST: u32 = 21;
/// Maximum attempts of a snapshot while objects move, and the pause between two.
const TRIES: u32 = 5;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(1);
/// Maximum stacks with frames that are known to be named.
const MOST_TOLD: usize = 1 << 12;

/// Name of a frame.
#[derive(Clone, Debug)]
pub enum Told {
    /// Methods, innermost first.
    Methods(Vec<Scope>),
    /// The VM's name for its own code.
    Stub(String),
    /// The name could not be read.
    Missed(Miss),
}

/// Facts about a process, learnt once.
struct Known {
    vm: Vm,
    heap: Heap,
    classes: Classes,
    /// Address of the class from which all lists are found.
    containers: u64,
    places: Option<Places>,
    chunk: Option<ChunkPlaces>,
    /// `None`: the VM's tables lack these fields.
    record: Option<Record>,
}

/// Offsets in the VM's record of a thread, for carriers.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// The OS thread, and the id in it.
    system: u64,
    id: u64,
    /// The monitor that it is about to enter, and the monitor that it waits to be notified by.
    /// Before JDK 24 a virtual thread blocks its carrier on these.
    pending: Option<u64>,
    waiting: Option<u64>,
}

impl Record {
    fn of(tables: &Tables) -> Option<Record> {
        let field = |name: &str| {
            let of = ["JavaThread", "Thread"].into_iter();
            { of }.find_map(|of| tables.get(of, name))
        };
        Some(Record {
            system: field("_osthread")?,
            id: tables.get("OSThread", "_thread_id")?,
            pending: field("_current_pending_monitor"),
            waiting: field("_current_waiting_monitor"),
        })
    }
}

/// Facts about one thread for its lifetime.
#[derive(Clone, Debug, Default)]
struct Own {
    start: u64,
    label: Option<Arc<str>>,
}

/// Snapshots of the virtual threads of one process.
pub struct VirtualThreads {
    bias: u64,
    opening: Option<Opening>,
    known: Option<Box<Known>>,
    refused: Option<String>,
    /// A VM with an unreadable heap, and the reason. It is reported only once the VM has a virtual
    /// thread.
    doubt: Option<Box<(Vm, Classes, String)>>,
    /// The VM is too old for virtual threads.
    none: bool,
    codes: Codes,
    /// By thread id.
    own: FxHashMap<u64, Own>,
    /// Names of the start classes of threads, and of the methods that these call.
    starts: FxHashMap<u64, String>,
    words: Vec<String>,
    names: FxHashMap<Item, Told>,
    /// Stacks with only named frames, each with the start of its threads.
    told: FxHashSet<(u64, Vec<u64>)>,
    broken: u64,
    changed: u64,
    missed: u64,
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
            codes: Codes::default(),
            own: FxHashMap::default(),
            starts: FxHashMap::default(),
            words: vec![String::new()],
            names: FxHashMap::default(),
            told: FxHashSet::default(),
            broken: 0,
            changed: 0,
            missed: 0,
            untracked: 0,
        }
    }

    /// The wait reasons, by the number that snapshots use.
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// Takes the names of the frames of all stacks so far.
    pub fn take_names(&mut self) -> FxHashMap<Item, Told> {
        std::mem::take(&mut self.names)
    }

    /// Losses so far, by cause, apart from stacks that could not be followed.
    pub fn losses(&self) -> [(&'static str, u64); 3] {
        [
            (
                "virtual threads not looked at: the collector was moving objects",
                self.missed,
            ),
            (
                "virtual thread that ran on while its stack was read",
                self.changed,
            ),
            (
                "virtual threads that the library only counts (-Djdk.trackAllThreads=false), most at once",
                self.untracked,
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
            if with(memory, |m| classes.find(CONTINUATION, vm, m)).is_some() {
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
        match with(memory, |m| Heap::of(tables, class, major, m)) {
            Err(why) => self.doubt = Some(Box::new((vm, classes, why))),
            Ok(None) => {}
            Ok(Some(heap)) => {
                let record = Record::of(tables);
                self.known = Some(Box::new(Known {
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
        let known = self.words.iter().position(|w| w == word);
        known.unwrap_or_else(|| {
            self.words.push(word.to_owned());
            self.words.len() - 1
        }) as u32
    }
}

impl Looker for VirtualThreads {
    fn look(&mut self, facts: &AnyFacts, memory: &mut dyn Memory) -> Look {
        if self.is_hopeless() || self.open(facts, memory).is_none() {
            return Look::None;
        }
        let Some(mut known) = self.known.take() else {
            return Look::None;
        };
        let look = self.try_to_look(&mut known, memory);
        self.known = Some(known);
        look
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
        self.broken
    }

    fn is_hopeless(&self) -> bool {
        self.none || self.refused.is_some()
    }
}

impl VirtualThreads {
    fn try_to_look(&mut self, known: &mut Known, memory: &mut dyn Memory) -> Look {
        for turn in 0..TRIES {
            if turn > 0 {
                std::thread::sleep(PAUSE);
            }
            let heap = known.heap.clone();
            let Some(before) = with(memory, |m| heap.moves(m)) else {
                continue;
            };
            known.classes.renew(memory);
            self.codes.renew(&known.vm, memory);
            // Platform threads may have opened scopes for other threads.
            with(memory, |m| known.vm.new_threads(m.0).is_some());
            let seen = look::see(known, &self.own, memory);
            if with(memory, |m| heap.moves(m)) != Some(before) {
                continue;
            }
            return match seen {
                Some(seen) => Look::Tasks(self.tasks(known, seen, memory)),
                None => Look::None,
            };
        }
        self.missed += 1;
        Look::Missed
    }

    /// Converts a sighting to tasks with stacks.
    fn tasks(&mut self, known: &mut Known, mut sight: Sight, memory: &mut dyn Memory) -> Vec<Task> {
        self.untracked = self.untracked.max(sight.untracked);
        self.changed += sight.changed;
        let alive: FxHashSet<u64> = sight.threads.iter().map(|t| t.tid).collect();
        self.own.retain(|tid, _| alive.contains(tid));
        for (tid, own, name) in std::mem::take(&mut sight.new) {
            self.starts.entry(own.start).or_insert(name);
            self.own.insert(tid, own);
        }
        let mut tasks = Vec::with_capacity(sight.threads.len());
        for seen in &sight.threads {
            let start = self.own.get(&seen.tid).map_or(0, |o| o.start);
            let stack = (!seen.parts.is_empty()).then(|| {
                let mut stack = Vec::new();
                let whole = with(memory, |m| {
                    seen.parts.iter().try_for_each(|part| {
                        let part = sight.part(part);
                        self.codes.walk(&part, &known.vm, &mut stack, m)
                    })
                });
                if whole.is_none() {
                    self.broken += 1;
                    stack.push(CUT);
                }
                let key = (start, stack);
                if !self.told.contains(&key) {
                    self.name_frames(known, &key.1, memory);
                    self.name_start(start, &key.1);
                    if self.told.len() >= MOST_TOLD {
                        self.told.clear();
                    }
                    self.told.insert(key.clone());
                }
                let (_, stack) = key;
                stack
            });
            let doing = match &seen.doing {
                look::Doing::Ready => Doing::Runnable,
                look::Doing::Runs => Doing::Running,
                look::Doing::Waits(word) => Doing::Waiting(self.number(word)),
            };
            tasks.push(Task {
                id: seen.tid,
                start,
                doing,
                stack,
                labels: u64::from(self.own.get(&seen.tid).is_some_and(|o| o.label.is_some())),
            });
        }
        tasks
    }

    /// Reads the names of a stack's frames while they exist.
    fn name_frames(&mut self, known: &mut Known, stack: &[u64], memory: &mut dyn Memory) {
        let mut read = |at: u64, to: &mut [u8]| memory.read(at, to);
        for item in super::items(stack).1 {
            self.names.entry(item).or_insert_with(|| match item {
                Item::Native(word) => known
                    .vm
                    .stub(word.lookup_offset(), &mut read)
                    .map_or(Told::Missed(Miss::Unreadable), Told::Stub),
                _ => (known.vm.scopes(&item, &mut read)).map_or_else(Told::Missed, Told::Methods),
            });
        }
    }

    /// Names the start of threads of this kind, if a stack reveals it.
    fn name_start(&mut self, start: u64, stack: &[u64]) {
        let Some(name) = self.starts.get(&start) else {
            return;
        };
        let items = super::items(stack).1;
        let told = items.iter().filter_map(|i| self.names.get(i));
        let scopes = told.flat_map(|t| match t {
            Told::Methods(scopes) => scopes.as_slice(),
            _ => &[],
        });
        let methods: Vec<&str> = scopes.map(|s| s.method.name.as_str()).collect();
        if let Some(called) = start::called_by_lambda(name, &methods) {
            self.starts.insert(start, called);
        }
    }
}
