//! asyncio: the tasks of a process, and what their coroutines await.
//!
//! ```text
//! mod.rs      one look at all tasks
//! list.rs     where they are, and which have not changed since the last look
//! task.rs     one of them: its fields, what it waits for
//! chain.rs    from a task's coroutine to the innermost one that it awaits
//! objects.rs  dicts, attributes, texts, sets, types
//! places.rs   where CPython keeps them, by version
//! reasons.rs  what a task waits for, by the functions it waits in
//! ```
//!
//! The list is found as a program would: `sys.modules`, `asyncio.tasks`, and the sets in which it
//! keeps the tasks of all loops, whichever loop that is. Tasks of C (`_asyncio`) and of Python are
//! read; of C's, places are learnt from what must follow each other: coroutine, name, context.
//!
//! Not read: coroutines compiled to C (their tasks are there, with the frames up to them), other
//! libraries' tasks (trio, curio), loops of an interpreter that is free-threaded.

mod chain;
mod list;
mod objects;
mod places;
mod reasons;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::chain::Kind;
use self::objects::{Objects, Pages};
use self::places::Places;
use self::task::Class;
use super::{Code, Facts};
use crate::runtime::{
    Facts as AnyFacts,
    tasks::{Label, Look, Looker, Memory, Task},
};
pub use reasons::reason;

/// The word, and its number, for what another thread is to bring (`run_in_executor`, `to_thread`).
const EXECUTOR: &str = "executor";
const BY_EXECUTOR: u32 = 1;

/// Something that holds tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A set of tasks, or of weak references to them.
    Set { at: u64, weak: bool },
    /// The lists of C's tasks of the interpreter with this state.
    Lists { interpreter: u64 },
}

/// A task, and what that rests on.
struct Rests {
    task: Task,
    /// Where was read what it rests on, and what was there.
    seen: Vec<(u64, u64)>,
    /// Whether that is all: as long as it holds, nothing of the task has changed.
    whole: bool,
}

/// Looks at the tasks of one process.
pub struct Tasks {
    /// How far its addresses are moved.
    bias: u64,
    pages: Pages,
    holders: Vec<Holder>,
    /// How `sys.modules` was when the list was looked for in vain.
    in_vain: Vec<[u64; 2]>,
    /// The tasks of the last look, by address. Most tasks wait from one look to the next.
    last: FxHashMap<u64, Rests>,
    known: Known,
}

/// What was learnt so far.
struct Known {
    kinds: FxHashMap<u64, Kind>,
    classes: FxHashMap<u64, Class>,
    /// Names of types.
    names: FxHashMap<u64, Arc<str>>,
    /// Where a task of C has its coroutine.
    coroutine: Option<u64>,
    /// The functions of stacks, by address of the code object and its check.
    codes: FxHashMap<(u64, u32), Option<Arc<Code>>>,
    /// By code object: where its name is and what it is, and its check.
    checks: FxHashMap<u64, ((u64, u64), u32)>,
    /// Names of the functions that tasks began with.
    starts: FxHashMap<u64, String>,
    /// What tasks wait for, in words; the first one stands for what has none.
    words: Vec<String>,
    broken: u64,
}

impl Tasks {
    /// Of a process whose addresses are moved by `bias`.
    pub fn new(bias: u64) -> Tasks {
        Tasks {
            bias,
            pages: Pages::default(),
            holders: Vec::new(),
            in_vain: Vec::new(),
            last: FxHashMap::default(),
            known: Known {
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

    /// What tasks wait for, by number: empty, `executor`, or `task` and the functions that the awaited
    /// tasks began with.
    pub fn words(&self) -> Vec<String> {
        self.known.words.clone()
    }

    /// Hands out the functions in the stacks of the tasks, by address of the code object and check (see
    /// `bpf/python_abi.h`).
    pub fn take_codes(&mut self) -> impl Iterator<Item = ((u64, u32), Arc<Code>)> {
        let all = std::mem::take(&mut self.known.codes).into_iter();
        all.filter_map(|(key, code)| Some((key, code?)))
    }
}

fn of(facts: &AnyFacts) -> Option<(&Facts, Places)> {
    match facts {
        AnyFacts::Python(facts) => Some((facts, Places::of(facts.minor, facts.layout.modules)?)),
        _ => None,
    }
}

impl Looker for Tasks {
    fn look(&mut self, facts: &AnyFacts, memory: &mut dyn Memory) -> Look {
        let Some((facts, places)) = of(facts) else {
            return Look::Lost;
        };
        self.pages.renew(memory);
        let mut run = Run {
            objects: Objects {
                memory,
                pages: &mut self.pages,
                places: &places,
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
            if versions == self.in_vain {
                return Look::None;
            }
            let holders = interpreters.iter().flat_map(|i| run.holders(*i));
            self.holders = holders.collect();
            if self.holders.is_empty() {
                self.in_vain = versions;
                return Look::None;
            }
        }
        match run.tasks(&self.holders, std::mem::take(&mut self.last)) {
            Some(tasks) => {
                self.last = tasks;
                Look::Tasks(self.last.values().map(|rests| rests.task.clone()).collect())
            }
            None => {
                // The module was loaded anew, or the interpreter is ending.
                self.holders.clear();
                self.in_vain.clear();
                Look::None
            }
        }
    }

    /// The name that the program gave it.
    fn labels(&mut self, facts: &AnyFacts, memory: &mut dyn Memory, task: &Task) -> Vec<Label> {
        let Some((facts, places)) = of(facts).filter(|_| task.labels != 0) else {
            return Vec::new();
        };
        let mut objects = Objects {
            memory,
            pages: &mut self.pages,
            places: &places,
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

    fn name(&self, _: &AnyFacts, start: u64) -> String {
        self.known.starts.get(&start).cloned().unwrap_or_default()
    }

    fn broken(&self) -> u64 {
        self.known.broken
    }
}

/// One look.
struct Run<'l> {
    objects: Objects<'l>,
    facts: &'l Facts,
    bias: u64,
    known: &'l mut Known,
}
