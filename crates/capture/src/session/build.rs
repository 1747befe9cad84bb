//! From hashes and words to the recording's frames, stacks and samples.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::histogram::HistogramRow;
use wallscope_model::{
    BlockReason, ContextId, Frame, FrameId, FrameKind, Function, FunctionId, LabelsId, Module,
    ModuleId, ModuleKind, Part, Recording, Sample, Stack, StackEnd, StackId, State,
};
use wallscope_unwind::{
    native::abi::FrameWord,
    runtime::{
        self, Entry, InterpreterFrames, MatchFrom,
        hotspot::{self, Item},
    },
};

use super::{
    address_scope::AddressScope,
    estimator::Estimator,
    labels::{self, Labels},
    managed::Word,
    naming::{CodeNames, HostNames},
    sample_key::{SampleKey, SampleSum, UserPart},
    unwound::Unwinding,
};
use crate::event::state;

mod frames;

/// The stacks of a recording in the making.
pub struct Stacks {
    /// Files that code came from.
    pub modules: Vec<Module>,
    /// Distinct addresses.
    pub frames: Vec<Frame>,
    /// Functions of managed frames.
    pub functions: Vec<Function>,
    /// Distinct stacks.
    pub stacks: Vec<Stack>,
    /// Histograms of the lengths of intervals spent in them.
    pub lengths: Vec<HistogramRow>,
    /// Truncated user stacks: weight in samples, by cause.
    pub truncated: FxHashMap<StackEnd, u64>,
    /// Sets of labels of the samples.
    pub labels: Labels,
    waits_in: FxHashMap<u64, Arc<str>>,
    kernel: ModuleId,
    ids: Ids,
    /// Coroutine with which the task began, by managed stack.
    tasks: FxHashMap<u64, Option<Arc<str>>>,
    /// Whether frames of interpreters are kept beside those of their programs.
    pub interpreter_frames: bool,
}

/// Numbers of the entries that exist already.
#[derive(Default)]
struct Ids {
    frames: FxHashMap<Frame, FrameId>,
    stacks: FxHashMap<(u64, UserPart, Option<AddressScope>), StackId>,
    functions: FxHashMap<Function, FunctionId>,
    /// Modules of code made at run time, by process.
    jit: FxHashMap<u32, ModuleId>,
    /// Modules by path, or by name of a virtual machine.
    sources: FxHashMap<Arc<str>, ModuleId>,
    /// Named user frames, by meaning and scope.
    user: FxHashMap<(AddressScope, Unwinding, Item), FrameId>,
    managed: FxHashMap<(u32, Word), FrameId>,
}

/// Sources of stacks and labels.
#[derive(Clone, Copy)]
pub struct Observed<'a> {
    /// Stacks and resources.
    pub estimator: &'a Estimator,
    /// Names of code.
    pub names: &'a dyn CodeNames,
}

/// Wait of a thread, as the kernel programs report it.
#[derive(Clone, Copy)]
pub struct WaitedFor {
    /// The reason, if the thread was blocked.
    pub reason: Option<BlockReason>,
    /// The kernel stack, 0: none.
    pub kernel: u64,
    /// The resource, 0: not known.
    pub resource: u64,
}

/// The two halves of a user stack, innermost frames first.
pub struct UserFrames<'a> {
    /// Native frames, in the unwinder's words.
    pub native: &'a [u64],
    /// Managed frames, two words each.
    pub managed: &'a [u64],
    /// End of the native frames.
    pub end: StackEnd,
}

impl Stacks {
    /// Starts with the files that processes had mapped; their index is the module's id.
    pub fn new(mut modules: Vec<Module>) -> Stacks {
        modules.push(Module {
            kind: ModuleKind::Kernel,
            path: "[kernel]".into(),
            build_id: "".into(),
            pid: 0,
        });
        let kernel = ModuleId((modules.len() - 1) as u32);
        Stacks {
            modules,
            frames: Vec::new(),
            functions: Vec::new(),
            stacks: Vec::new(),
            lengths: Vec::new(),
            truncated: FxHashMap::default(),
            labels: Labels::default(),
            waits_in: FxHashMap::default(),
            kernel,
            ids: Ids::default(),
            tasks: FxHashMap::default(),
            interpreter_frames: false,
        }
    }

    /// Learns the functions of the kernel in which threads waited.
    pub fn kernel_functions(&mut self, kernel: &FxHashMap<u64, Box<[u64]>>, names: &dyn HostNames) {
        self.waits_in = names.kernel_functions(kernel);
    }

    /// Gives all of it to the recording. Returns the modules of code made at run time, with their processes.
    pub fn give_to(self, recording: &mut Recording) -> Vec<(ModuleId, u32)> {
        let jit = self.jit_modules();
        recording.label_sets = self.labels.sets;
        recording.modules = self.modules;
        recording.frames = self.frames;
        recording.functions = self.functions;
        recording.stacks = self.stacks;
        jit
    }

    fn jit_modules(&self) -> Vec<(ModuleId, u32)> {
        let mut all: Vec<_> = self
            .ids
            .jit
            .iter()
            .map(|(pid, module)| (*module, *pid))
            .collect();
        all.sort_unstable();
        all
    }

    /// Processes with unnamed code made at run time, and the number of addresses in it.
    pub fn unnamed_code(&self) -> Vec<(u32, u64)> {
        let unnamed = |module: ModuleId| {
            let of = |f: &&Frame| f.module == Some(module) && f.lines.is_empty();
            self.frames.iter().filter(of).count() as u64
        };
        let all = self
            .ids
            .jit
            .iter()
            .map(|(pid, module)| (*pid, unnamed(*module)));
        all.filter(|(_, n)| *n > 0).collect()
    }

    /// Turns one sum of samples into a sample of the recording.
    pub fn sample(
        &mut self,
        key: SampleKey,
        sum: SampleSum,
        observed: Observed<'_>,
    ) -> Option<Sample> {
        let Observed { estimator, names } = observed;
        let context = estimator.accounts.index(key.id)?;
        let pid = estimator.accounts.pid(context);
        let code = key.code;
        let scope = AddressScope { pid, code };
        let stack = self.stack(key.kernel, key.user, scope, observed);
        let end = self.stacks[stack.0 as usize].end;
        if !end.is_whole() {
            *self.truncated.entry(end).or_default() += sum.count;
        }
        let (state, reason, part) = match key.state {
            state::ON_CPU | state::HIT => (
                State::OnCpu,
                None,
                Some(if key.user_mode {
                    Part::User
                } else {
                    Part::Kernel
                }),
            ),
            state::RUNNABLE => {
                let part = [Part::Woken, Part::Preempted, Part::Throttled].get(key.detail as usize);
                (State::Runnable, None, part.copied())
            }
            _ => (
                State::Blocked,
                BlockReason::ALL.get(key.detail as usize).copied(),
                None,
            ),
        };
        if !sum.lengths.counts.is_empty() {
            self.lengths.push(HistogramRow {
                context: Some(ContextId(context)),
                stack: Some(stack),
                state,
                reason,
                part,
                histogram: sum.lengths,
            });
        }
        let task = self.task(key.user, observed);
        let waited_for = WaitedFor {
            reason,
            kernel: key.kernel,
            resource: key.resource,
        };
        Some(Sample {
            context: ContextId(context),
            stack,
            state,
            reason,
            part,
            idle: false,
            cpu: key.cpu.map(u32::from),
            labels: self.labels(
                waited_for,
                [names.program(pid, key.former), task],
                estimator,
            ),
            count: sum.count,
            ns: sum.ns,
            slices: sum.slices,
        })
    }

    /// The coroutine with which the task began that ran, or blocked its thread, in a stack.
    fn task(&mut self, user: UserPart, observed: Observed<'_>) -> Option<Arc<str>> {
        let Observed { estimator, names } = observed;
        let UserPart::Hash(hash) = user else {
            return None;
        };
        let (_, managed) = estimator.joins.get(&hash)?;
        let known = self.tasks.entry(*managed);
        let name = known.or_insert_with(|| {
            let stack = estimator.managed.get(managed)?;
            let coroutines =
                Word::all(&stack.words).filter_map(|word| names.managed(stack.pid, word).coroutine);
            // The outermost one: others are awaited by it.
            coroutines.last()
        });
        name.clone()
    }

    /// Set of labels with the resource, the program and the task of a wait.
    pub fn labels(
        &mut self,
        wait: WaitedFor,
        [program, task]: [Option<Arc<str>>; 2],
        estimator: &Estimator,
    ) -> Option<LabelsId> {
        let (function, named) = (
            self.waits_in.get(&wait.kernel),
            estimator.resources.get(&wait.resource),
        );
        let resource = labels::resource(wait.reason, function, named);
        self.labels.id(resource, program, task)
    }

    /// The stack of these two halves, in its process.
    pub fn stack(
        &mut self,
        kernel: u64,
        user: UserPart,
        scope: AddressScope,
        observed: Observed<'_>,
    ) -> StackId {
        let own = is_own(user, observed.estimator);
        let memo = (kernel, user, own.then_some(scope));
        if let Some(id) = self.ids.stacks.get(&memo) {
            return *id;
        }
        let mut frames = self.kernel_half(kernel, observed.estimator);
        let (user, end) = match user {
            UserPart::Missing(cause) => (Vec::new(), cause),
            UserPart::Hash(hash) => self.user_half(hash, scope, observed),
        };
        frames.extend(user);
        let id = self.push(Stack { frames, end });
        self.ids.stacks.insert(memo, id);
        id
    }

    fn push(&mut self, stack: Stack) -> StackId {
        self.stacks.push(stack);
        StackId((self.stacks.len() - 1) as u32)
    }

    fn kernel_half(&mut self, hash: u64, estimator: &Estimator) -> Vec<FrameId> {
        let Some(pcs) = estimator.kernel.get(&hash) else {
            if hash != 0 {
                *self.truncated.entry(StackEnd::Lost).or_default() += 1;
            }
            return Vec::new();
        };
        let address = |(depth, pc): (usize, &u64)| pc.saturating_sub(u64::from(depth > 0));
        (pcs.iter().enumerate().map(address))
            .map(|address| self.frame(FrameKind::Kernel, Some(self.kernel), address))
            .collect()
    }

    /// The user half of a stack, and how the stack ends with it.
    fn user_half(
        &mut self,
        hash: u64,
        scope: AddressScope,
        observed: Observed<'_>,
    ) -> (Vec<FrameId>, StackEnd) {
        let Observed { estimator, names } = observed;
        let (native, managed) = match estimator.joins.get(&hash) {
            Some((native, managed)) => (*native, estimator.managed.get(managed)),
            None => (hash, None),
        };
        let Some(stack) = estimator.user.get(&native) else {
            return (Vec::new(), StackEnd::Lost);
        };
        if let Some(m) = managed {
            let scope = AddressScope {
                pid: m.pid,
                ..scope
            };
            let halves = UserFrames {
                native: &stack.frames,
                managed: &m.words,
                end: m.end_with(stack.end),
            };
            return match self.mixed(&halves, scope, names) {
                (frames, StackOwner::Task) => (frames, m.end_with(StackEnd::Root)),
                (frames, StackOwner::Thread) => (frames, halves.end),
            };
        }
        let (_, items) = hotspot::items(&stack.frames);
        let frames = (items.into_iter())
            .map(|item| self.user_frame(item, stack.unwinding, scope, names))
            .collect();
        (frames, stack.end)
    }

    /// The stack of user frames in process `scope`.
    pub fn user_stack(
        &mut self,
        halves: &UserFrames<'_>,
        scope: AddressScope,
        names: &dyn CodeNames,
    ) -> StackId {
        let (frames, end) = match self.mixed(halves, scope, names) {
            (frames, StackOwner::Task) => (frames, StackEnd::Root),
            (frames, StackOwner::Thread) => (frames, halves.end),
        };
        self.push(Stack { frames, end })
    }

    /// User frames of a stack with managed ones in the interpreter's place.
    fn mixed(
        &mut self,
        halves: &UserFrames<'_>,
        scope: AddressScope,
        names: &dyn CodeNames,
    ) -> (Vec<FrameId>, StackOwner) {
        let pid = scope.pid;
        let (_, native) = hotspot::items(halves.native);
        let words: Vec<Word> = Word::all(halves.managed).collect();
        let entries: Vec<_> = words
            .iter()
            .map(|w| runtime::Managed { entry: w.entry })
            .collect();
        let words_of = |item: &Item| match item {
            Item::Native(word) => *word,
            // Frames of a Java VM are not frames of another runtime.
            _ => FrameWord(0),
        };
        let in_files: Vec<FrameWord> = native.iter().map(words_of).collect();
        let roles = names.roles(pid, &in_files);
        let own = runtime::running_frames(&roles).filter(|_| !words.is_empty());
        let (owner, roles) = match own {
            Some(n) => (StackOwner::Task, &roles[..n]),
            None => (StackOwner::Thread, &roles[..]),
        };
        let from = match owner == StackOwner::Task || halves.end == StackEnd::Root {
            true => MatchFrom::Root,
            false => MatchFrom::Leaf,
        };
        let interpreter = match self.interpreter_frames {
            true => InterpreterFrames::Keep,
            false => InterpreterFrames::Drop,
        };
        let folded = runtime::fold(roles, &entries, from, interpreter);
        let frames = folded.into_iter().map(|entry| match entry {
            Entry::Native(i) => self.user_frame(native[i], Unwinding::Immediate, scope, names),
            Entry::Managed(i) => self.managed_frame(pid, words[i], names),
        });
        (frames.collect(), owner)
    }
}

/// Owner of a stack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StackOwner {
    /// A thread.
    Thread,
    /// A task with a stack of its own within its thread's, of which nothing is missing.
    Task,
}

/// Whether the stack means something in its own process only: it has addresses outside all files.
fn is_own(user: UserPart, estimator: &Estimator) -> bool {
    let UserPart::Hash(hash) = user else {
        return false;
    };
    let in_no_file = |word: &u64| FrameWord(*word).file() == 0;
    estimator.joins.contains_key(&hash)
        || (estimator.user.get(&hash)).is_some_and(|s| s.frames.iter().any(in_no_file))
}
