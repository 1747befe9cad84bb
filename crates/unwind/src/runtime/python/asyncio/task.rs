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
/// asyncio's name of the callback that copies the result of another thread's future.
const FOLLOW_CALLBACK: &str = "_call_check_cancel";
/// Maximum distinct wait words, and functions named in one word.
const MAX_WORDS: usize = 4096;
const MAX_NAMED: usize = 4;

/// Fields of a task.
struct Fields {
    /// Future that it awaits.
    future: u64,
    coroutine: u64,
    name: u64,
}

/// Callbacks of a future.
struct Callbacks {
    /// There are some: the future is not done.
    pending: bool,
    /// Address of the first one, if it can be read.
    first: Option<u64>,
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
            CoroutineState::Suspended => match self.wait_word(fields.future, &mut seen)? {
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
        // An awaited task may end without a change to the words in `seen`.
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
        let [future, coroutine, name] = if of_c {
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
            future,
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

    /// The await chain of a task, from its outermost coroutine inwards. `None`: it cannot be read.
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
                    // Its name is read while the code is there.
                    self.code(*code, check);
                    self.known.checks.insert(*code, (name, check));
                    check
                }
            };
            words.extend([*code, u64::from(check) << 32 | u64::from(*lasti as u32)]);
        }
        Some(words)
    }

    /// The function with the code object at `address`, as first read. `check`: its checksum. A reading that fails is
    /// not kept: the next one may succeed.
    fn code(&mut self, address: u64, check: u32) -> Option<Arc<Code>> {
        if let Some(known) = self.known.codes.get(&(address, check)) {
            return Some(Arc::clone(known));
        }
        let read = |at, to: &mut [u8]| self.objects.read(at, to);
        let code = (self.facts).read_code(self.bias, address, check, read);
        let code = Arc::new(code.ok()?);
        self.known.codes.insert((address, check), Arc::clone(&code));
        Some(code)
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

    /// The index of the word for a wait on `future` (an address). `Some(None)`: there is no future, or it is done.
    /// `None`: it cannot be read. Adds the words that it read, with their addresses, to `seen`.
    fn wait_word(&mut self, future: u64, seen: &mut Vec<(u64, u64)>) -> Option<Option<u32>> {
        if future == 0 {
            return Some(None);
        }
        let class = self.objects.type_of(future)?;
        if &*self.type_name(class)? == "NoneType" {
            return Some(None);
        }
        let role = self.class(class)?;
        let (ClassRole::Task { of_c } | ClassRole::Future { of_c } | ClassRole::Gathering { of_c }) =
            role
        else {
            // A future of another library.
            return Some(Some(0));
        };
        let Callbacks { pending, first } = self.callbacks(future, of_c, seen)?;
        if !pending {
            return Some(None);
        }
        Some(Some(match role {
            ClassRole::Task { .. } => self.word_of(&[future]),
            ClassRole::Gathering { .. } => {
                let children = self.objects.attribute(future, "_children");
                let children = children.and_then(|c| self.objects.list(c));
                self.word_of(&children.unwrap_or_default())
            }
            _ => self.word_of_future(first),
        }))
    }

    /// The callbacks of a future.
    fn callbacks(
        &mut self,
        future: u64,
        of_c: bool,
        seen: &mut Vec<(u64, u64)>,
    ) -> Option<Callbacks> {
        if of_c {
            let (first_at, rest_at) = (future + CALLBACK, future + CALLBACKS);
            let words = [self.objects.word(first_at)?, self.objects.word(rest_at)?];
            seen.extend([first_at, rest_at].into_iter().zip(words));
            return Some(Callbacks {
                pending: words != [0, 0],
                first: Some(words[0]),
            });
        }
        let all = self.objects.attribute(future, "_callbacks")?;
        let pending = self.objects.list_len(all)? > 0;
        // An item is a pair of a callback and its context.
        let pair = self.objects.list_first(all).filter(|_| pending);
        Some(Callbacks {
            pending,
            first: pair.and_then(|pair| self.objects.tuple_first(pair)),
        })
    }

    /// The index of the word for a wait on a future with this first callback.
    fn word_of_future(&mut self, first_callback: Option<u64>) -> u32 {
        let by_executor = first_callback.and_then(|f| self.follows_thread(f));
        match by_executor {
            Some(true) => BY_EXECUTOR,
            _ => 0,
        }
    }

    /// The index of the word for a wait on these tasks and futures: it names the tasks. Without a task it is the word
    /// of the futures, if they have the same.
    fn word_of(&mut self, awaited: &[u64]) -> u32 {
        let mut names = BTreeSet::new();
        let mut words = BTreeSet::new();
        for future in awaited {
            if names.len() > MAX_NAMED {
                break;
            }
            match self.awaited(*future) {
                Some(name) => _ = names.insert(name),
                None => words.extend(self.word_of_pending(*future)),
            }
        }
        match words.first() {
            Some(word) if names.is_empty() && words.len() == 1 => *word,
            _ if names.is_empty() => 0,
            _ => self.word_of_tasks(names),
        }
    }

    /// The index of the word for a wait on a plain future; `None` if it is none, or is done.
    fn word_of_pending(&mut self, future: u64) -> Option<u32> {
        let class = self.objects.type_of(future)?;
        let ClassRole::Future { of_c } = self.class(class)? else {
            return None;
        };
        let Callbacks { pending, first } = self.callbacks(future, of_c, &mut Vec::new())?;
        pending.then(|| self.word_of_future(first))
    }

    /// Whether `callback` links a future to one of another thread.
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

    /// The index of the word for a wait on tasks with these start functions.
    fn word_of_tasks(&mut self, names: BTreeSet<String>) -> u32 {
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
