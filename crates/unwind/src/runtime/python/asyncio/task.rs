//! One task: its fields, its coroutines, and its wait.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    BY_EXECUTOR, SnapshotRun, TrackedTask,
    chain::{self, AwaitRole, Chain, CoroutineState},
    class_role::ClassRole,
};
use crate::runtime::{
    python::Code,
    tasks::{Task, TaskStatus},
};

/// Bytes of a C task that contain all fields.
const TASK_BYTES: u64 = 320;
/// Offsets in a C future of its first callback and of the others. They are set until it is done.
const CALLBACK: u64 = 24;
const CALLBACKS: u64 = 40;
/// asyncio's name of the callback by which its own future follows one of another thread.
const FOLLOW_CALLBACK: &str = "_call_check_cancel";
/// Maximum distinct wait words, and functions named in one word.
const MAX_WORDS: usize = 4096;
const MAX_NAMED: usize = 4;

/// Fields of a task.
struct Fields {
    /// Future that it waits for.
    waiter: u64,
    coroutine: u64,
    name: u64,
}

impl SnapshotRun<'_> {
    /// Reads one task. `Some(None)`: there is none, or it is done. `None`: it changed meanwhile, or
    /// is garbage.
    pub(super) fn task(&mut self, at: u64) -> Option<Option<TrackedTask>> {
        let class = self.objects.type_of(at)?;
        let ClassRole::Task { of_c } = self.class(class)? else {
            return Some(None);
        };
        let mut seen = Vec::new();
        let Some(fields) = self.fields(at, of_c, &mut seen)? else {
            return Some(None);
        };
        let mut chain = self.chain(fields.coroutine)?;
        let status = match chain.state {
            CoroutineState::Finished => return Some(None),
            CoroutineState::Running => TaskStatus::Running,
            CoroutineState::Created => TaskStatus::Runnable,
            CoroutineState::Suspended => match self.wait_number(fields.waiter, &mut seen)? {
                Some(number) => TaskStatus::Waiting(number),
                None => TaskStatus::Runnable,
            },
        };
        let stack = match status {
            TaskStatus::Running => None,
            _ => Some(self.stack(&mut chain)?),
        };
        self.start(chain.start)?;
        seen.extend(chain.seen);
        // Tasks that it waits for may end without a change to the words read.
        let whole = of_c && !matches!(status, TaskStatus::Waiting(n) if n > BY_EXECUTOR);
        let task = Task {
            id: at ^ fields.coroutine.rotate_left(20),
            start: chain.start,
            status,
            stack,
            labels: fields.name,
        };
        Some(Some(TrackedTask { task, seen, whole }))
    }

    pub(super) fn type_name(&mut self, class: u64) -> Option<Arc<str>> {
        if let Some(known) = self.known.names.get(&class) {
            return Some(Arc::clone(known));
        }
        let name: Arc<str> = self.objects.type_name(class)?.into();
        self.known.names.insert(class, Arc::clone(&name));
        Some(name)
    }

    fn class(&mut self, class: u64) -> Option<ClassRole> {
        if let Some(known) = self.known.classes.get(&class) {
            return Some(*known);
        }
        let own = self.type_name(class)?;
        let mut names = Vec::new();
        let mut at = class;
        while at != 0 && names.len() < 16 {
            names.push(self.type_name(at)?);
            at = self.objects.base(at)?;
        }
        let any = |wanted: &str| names.iter().any(|n| **n == *wanted);
        let of_c = any("_asyncio.Future") || any("_asyncio.Task");
        let found = match () {
            () if any("_asyncio.Task") || any("Task") && any("Future") => ClassRole::Task { of_c },
            () if !of_c && !any("Future") => ClassRole::Other,
            () if &*own == "_GatheringFuture" => ClassRole::Gathering { of_c },
            () => ClassRole::Future { of_c },
        };
        self.known.classes.insert(class, found);
        Some(found)
    }

    /// Reads the fields of a task; `Some(None)` if it is done and its coroutine is gone.
    fn fields(
        &mut self,
        at: u64,
        of_c: bool,
        seen: &mut Vec<(u64, u64)>,
    ) -> Option<Option<Fields>> {
        let [waiter, coroutine, name] = if of_c {
            let from = at + self.coroutine_at(at)? - 8;
            let all: [u64; 3] = self.objects.words(from)?;
            seen.push((from, all[0]));
            all
        } else {
            let mut field = |name| self.objects.attribute(at, name);
            [field("_fut_waiter")?, field("_coro")?, field("_name")?]
        };
        // From 3.13 on a default name is a number until it is read.
        let class = match name >> 47 {
            0 => self.objects.type_of(name),
            _ => None,
        };
        let named = class.and_then(|class| self.type_name(class));
        let named = named.is_some_and(|class| &*class == "str");
        Some((coroutine != 0).then_some(Fields {
            waiter,
            coroutine,
            name: if named { name } else { 0 },
        }))
    }

    /// The offset of the coroutine in a C task: before a name and a context.
    fn coroutine_at(&mut self, task: u64) -> Option<u64> {
        if let Some(known) = self.known.coroutine {
            return Some(known);
        }
        let mut is = |at: u64, wanted: &[&str]| -> Option<bool> {
            let object = self.objects.pointer(at)?;
            let class = self.objects.type_of(object)?;
            let name = self.type_name(class)?;
            Some(wanted.contains(&&*name))
        };
        let found = (24..TASK_BYTES).step_by(8).find(|at| {
            is(task + at + 16, &["Context", "_contextvars.Context"]) == Some(true)
                && is(task + at + 8, &["str", "int"]) == Some(true)
        })?;
        self.known.coroutine = Some(found);
        Some(found)
    }

    fn chain(&mut self, coroutine: u64) -> Option<Chain> {
        let kinds = &mut self.known.kinds;
        chain::follow(
            &mut self.objects,
            self.facts,
            coroutine,
            |objects, class| {
                if let Some(kind) = kinds.get(&class) {
                    return Some(*kind);
                }
                let kind = AwaitRole::of(objects, class)?;
                kinds.insert(class, kind);
                Some(kind)
            },
        )
    }

    /// The frames of a chain, innermost first, in the words of the interpreter walk.
    fn stack(&mut self, chain: &mut Chain) -> Option<Vec<u64>> {
        let mut words = Vec::with_capacity(2 * chain.frames.len());
        for (code, lasti) in chain.frames.iter().rev() {
            let check = match self.known.checks.get(code) {
                Some((name, check)) => {
                    chain.seen.push(*name);
                    *check
                }
                None => {
                    let (name, check) = chain::check(&mut self.objects, self.facts, *code)?;
                    self.code(*code, check);
                    self.known.checks.insert(*code, (name, check));
                    check
                }
            };
            words.extend([*code, u64::from(check) << 32 | u64::from(*lasti as u32)]);
        }
        Some(words)
    }

    /// The function with this code object.
    fn code(&mut self, address: u64, check: u32) -> Option<Arc<Code>> {
        if let Some(known) = self.known.codes.get(&(address, check)) {
            return known.clone();
        }
        let read = |at, to: &mut [u8]| self.objects.read(at, to);
        let code = (self.facts).read_code(self.bias, address, check, read);
        let code = code.ok().map(Arc::new);
        self.known.codes.insert((address, check), code.clone());
        code
    }

    /// Learns the name of a task's start function.
    fn start(&mut self, start: u64) -> Option<String> {
        if let Some(known) = self.known.starts.get(&start) {
            return Some(known.clone());
        }
        let name = match chain::check(&mut self.objects, self.facts, start) {
            Some((_, check)) => self.code(start, check),
            None => None,
        };
        let name = match name {
            Some(code) => code.name.clone(),
            // A coroutine compiled to C has only its class.
            None => self.objects.type_name(start)?,
        };
        self.known.starts.insert(start, name.clone());
        Some(name)
    }

    /// The number of the wait on `waiter`; `Some(None)`: there is no waiter, or it is done.
    fn wait_number(&mut self, waiter: u64, seen: &mut Vec<(u64, u64)>) -> Option<Option<u32>> {
        if waiter == 0 {
            return Some(None);
        }
        let class = self.objects.type_of(waiter)?;
        if &*self.type_name(class)? == "NoneType" {
            return Some(None);
        }
        let of_c = match self.class(class)? {
            ClassRole::Task { of_c }
            | ClassRole::Future { of_c }
            | ClassRole::Gathering { of_c } => of_c,
            // A future of another library.
            ClassRole::Other => return Some(Some(0)),
        };
        // The first callback. In a Python future it is in a pair with a context.
        let (pending, first) = if of_c {
            let (one, others) = (waiter + CALLBACK, waiter + CALLBACKS);
            let called = [self.objects.word(one)?, self.objects.word(others)?];
            seen.extend([one, others].into_iter().zip(called));
            (called != [0, 0], Some(called[0]))
        } else {
            let callbacks = self.objects.attribute(waiter, "_callbacks")?;
            let n = self.objects.list_len(callbacks)?;
            let pair = self.objects.list_first(callbacks).filter(|_| n > 0);
            (n > 0, pair.and_then(|pair| self.objects.tuple_first(pair)))
        };
        if !pending {
            return Some(None);
        }
        let others = match self.class(class)? {
            ClassRole::Task { .. } => vec![waiter],
            ClassRole::Gathering { .. } => {
                let children = self.objects.attribute(waiter, "_children");
                children
                    .and_then(|c| self.objects.list(c))
                    .unwrap_or_default()
            }
            _ => {
                let by_executor = first.and_then(|f| self.follows_thread(f)).unwrap_or(false);
                return Some(Some(if by_executor { BY_EXECUTOR } else { 0 }));
            }
        };
        let mut names = BTreeSet::new();
        for other in others {
            if names.len() > MAX_NAMED {
                break;
            }
            names.extend(self.awaited(other));
        }
        Some(Some(self.number(names)))
    }

    /// Whether `callback` is the function by which a future follows one of another thread.
    fn follows_thread(&mut self, callback: u64) -> Option<bool> {
        let class = self
            .objects
            .type_of(callback)
            .filter(|_| callback >> 47 == 0)?;
        if &*self.type_name(class)? != "function" {
            return Some(false);
        }
        let name = callback + self.objects.offsets.function_name;
        let name = self.objects.pointer(name)?;
        Some(self.objects.text(name)? == FOLLOW_CALLBACK)
    }

    /// The start function of a task, unless the task is done.
    pub(super) fn awaited(&mut self, at: u64) -> Option<String> {
        let class = self.objects.type_of(at)?;
        let ClassRole::Task { of_c } = self.class(class)? else {
            return None;
        };
        let fields = self.fields(at, of_c, &mut Vec::new())??;
        let chain = self.chain(fields.coroutine)?;
        if chain.state == CoroutineState::Finished {
            return None;
        }
        self.start(chain.start)
    }

    /// The number of the word for a wait on tasks with these start functions.
    fn number(&mut self, names: BTreeSet<String>) -> u32 {
        let mut all: Vec<_> = names.into_iter().collect();
        if all.len() > MAX_NAMED {
            all.truncate(MAX_NAMED);
            all.push("…".into());
        }
        let word = format!("task {}", all.join(", "));
        let words = &mut self.known.words;
        let known = words.iter().position(|w| *w == word);
        let index = known.unwrap_or_else(|| match words.len() {
            MAX_WORDS.. => 0,
            n => {
                words.push(word);
                n
            }
        });
        index as u32
    }
}
