//! asyncio: the tasks of a process, and the coroutines that they await.
//!
//! ```text
//! mod.rs      one snapshot of all tasks
//! list.rs     finds the tasks, and those unchanged since the last snapshot
//! class_role.rs  whether a class is a task, a future or neither
//! task.rs     one task: its fields and its wait
//! chain.rs    from a task's coroutine to the innermost one that it awaits
//! objects.rs  dicts, attributes, texts, sets, types
//! offsets.rs  CPython's structure offsets, by version
//! reasons.rs  classifies waits by the functions on the stack
//! ```
//!
//! The list is found as a program would find it: `sys.modules`, `asyncio.tasks`, and the sets with
//! the tasks of all loops of any kind. Tasks written in C (`_asyncio`) and in Python are read. The
//! offsets in C tasks are learnt from fields that must follow each other: coroutine, name, context.
//!
//! Not read: coroutines compiled to C (their tasks are listed, with the frames up to them), tasks
//! of other libraries (trio, curio), loops of a free-threaded interpreter.

mod chain;
mod class_role;
mod list;
pub(super) mod objects;
pub(super) mod offsets;
mod reasons;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::chain::AwaitRole;
use self::class_role::ClassRole;
use self::objects::{Objects, PageCache};
use self::offsets::Offsets;
use super::{Code, Facts};
use crate::runtime::{
    Facts as AnyFacts,
    tasks::{Label, Memory, Task, TaskReader, TaskSnapshot},
};
pub use reasons::reason;

/// The word for a wait on another thread (`run_in_executor`, `to_thread`), and its number.
const EXECUTOR: &str = "executor";
const BY_EXECUTOR: u32 = 1;

/// A container of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A set of tasks, or of weak references to them.
    Set { at: u64, weak: bool },
    /// The lists of C tasks of the interpreter with this state.
    Lists { interpreter: u64 },
}

/// A task, with the words that it depends on.
struct TrackedTask {
    task: Task,
    /// Addresses that the task depends on, with the words read there.
    seen: Vec<(u64, u64)>,
    /// Whether these are all: while they are unchanged, so is the task.
    whole: bool,
}

/// Snapshots of the tasks of one process.
pub struct Tasks {
    /// Load bias of its addresses.
    bias: u64,
    pages: PageCache,
    holders: Vec<Holder>,
    /// Version of `sys.modules` at the last failed search for the list.
    failed_versions: Vec<[u64; 2]>,
    /// Tasks of the last snapshot, by address. Most tasks wait from one snapshot to the next.
    last: FxHashMap<u64, TrackedTask>,
    known: LearntFacts,
}

/// Facts learnt so far.
struct LearntFacts {
    kinds: FxHashMap<u64, AwaitRole>,
    classes: FxHashMap<u64, ClassRole>,
    /// Names of types.
    names: FxHashMap<u64, Arc<str>>,
    /// Offset of the coroutine in a C task.
    coroutine: Option<u64>,
    /// Functions of stacks, by address of the code object and its checksum.
    codes: FxHashMap<(u64, u32), Arc<Code>>,
    /// Address and value of the name pointer, and the checksum, by code object.
    checks: FxHashMap<u64, ((u64, u64), u32)>,
    /// Names of the tasks' start functions.
    starts: FxHashMap<u64, String>,
    /// Wait words; the first one is for waits without a word.
    words: Vec<String>,
    broken: u64,
}

impl Tasks {
    /// Creates a value for a process with load bias `bias`.
    pub fn new(bias: u64) -> Tasks {
        Tasks {
            bias,
            pages: PageCache::default(),
            holders: Vec::new(),
            failed_versions: Vec::new(),
            last: FxHashMap::default(),
            known: LearntFacts {
                kinds: FxHashMap::default(),
                classes: FxHashMap::default(),
                names: FxHashMap::default(),
                coroutine: None,
                codes: FxHashMap::default(),
                checks: FxHashMap::default(),
                starts: FxHashMap::default(),
                words: vec![String::new(), EXECUTOR.into()],
                broken: 0,
            },
        }
    }

    /// The wait words by number: empty, `executor`, or `task` and the start functions of the
    /// awaited tasks.
    pub fn words(&self) -> Vec<String> {
        self.known.words.clone()
    }

    /// Takes the functions of the tasks' stacks, by address of the code object and checksum (see
    /// `bpf/python_abi.h`).
    pub fn take_codes(&mut self) -> impl Iterator<Item = ((u64, u32), Arc<Code>)> {
        std::mem::take(&mut self.known.codes).into_iter()
    }
}

fn python_facts(facts: &AnyFacts) -> Option<(&Facts, Offsets)> {
    match facts {
        AnyFacts::Python(facts) => Some((facts, Offsets::of(facts.minor, facts.layout.modules)?)),
        _ => None,
    }
}

impl TaskReader for Tasks {
    fn snapshot(&mut self, facts: &AnyFacts, memory: &mut dyn Memory) -> TaskSnapshot {
        let Some((facts, offsets)) = python_facts(facts) else {
            return TaskSnapshot::Lost;
        };
        self.pages.renew(memory);
        let mut run = SnapshotRun {
            objects: Objects {
                memory,
                pages: &mut self.pages,
                offsets: &offsets,
                texts: &facts.layout.objects,
            },
            facts,
            bias: self.bias,
            known: &mut self.known,
        };
        if self.holders.is_empty() {
            let interpreters = run.interpreters();
            let versions: Vec<_> = (interpreters.iter())
                .filter_map(|(_, modules)| run.objects.dict_version(*modules))
                .collect();
            if versions == self.failed_versions {
                return TaskSnapshot::None;
            }
            let holders = interpreters.iter().flat_map(|i| run.holders(*i));
            self.holders = holders.collect();
            if self.holders.is_empty() {
                self.failed_versions = versions;
                return TaskSnapshot::None;
            }
        }
        match run.tasks(&self.holders, std::mem::take(&mut self.last)) {
            Some(tasks) => {
                self.last = tasks;
                TaskSnapshot::Tasks(
                    self.last
                        .values()
                        .map(|tracked| tracked.task.clone())
                        .collect(),
                )
            }
            None => {
                // The module was reloaded, or the interpreter is ending.
                self.holders.clear();
                self.failed_versions.clear();
                TaskSnapshot::None
            }
        }
    }

    /// The name that the program gave the task.
    fn labels(&mut self, facts: &AnyFacts, memory: &mut dyn Memory, task: &Task) -> Vec<Label> {
        let Some((facts, offsets)) = python_facts(facts).filter(|_| task.labels != 0) else {
            return Vec::new();
        };
        let mut objects = Objects {
            memory,
            pages: &mut self.pages,
            offsets: &offsets,
            texts: &facts.layout.objects,
        };
        let given = |name: &String| {
            let number = name.strip_prefix("Task-");
            !number.is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
        };
        let name = objects.text(task.labels).filter(given);
        name.map(|name| ("task".to_owned(), name))
            .into_iter()
            .collect()
    }

    fn release(&mut self) {
        self.pages.release();
    }

    fn name(&self, _: &AnyFacts, start: u64) -> String {
        self.known.starts.get(&start).cloned().unwrap_or_default()
    }

    fn broken(&self) -> u64 {
        self.known.broken
    }
}

/// One snapshot in progress.
struct SnapshotRun<'l> {
    objects: Objects<'l>,
    facts: &'l Facts,
    bias: u64,
    known: &'l mut LearntFacts,
}
