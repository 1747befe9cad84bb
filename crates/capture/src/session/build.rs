//! From hashes and words to the recording's frames, stacks and samples.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use wallscope_model::histogram::HistogramRow;
use wallscope_model::{
    BlockReason, ContextId, Frame, FrameId, FrameKind, Function, FunctionId, LabelsId, Module,
    ModuleId, ModuleKind, Part, Sample, Stack, StackEnd, StackId, State,
};
use wallscope_unwind::{
    native::abi::FrameWord,
    runtime::{
        self, Entry,
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
    /// How long the intervals were that were spent in them.
    pub lengths: Vec<HistogramRow>,
    /// How often user stacks ended before their root, by cause: (cause, weight in samples).
    pub truncated: FxHashMap<StackEnd, u64>,
    /// What was waited for.
    pub labels: Labels,
    waits_in: FxHashMap<u64, Arc<str>>,
    frame_ids: FxHashMap<Frame, FrameId>,
    stack_ids: FxHashMap<(u64, UserPart, Option<AddressScope>), StackId>,
    jit: FxHashMap<u32, ModuleId>,
    kernel: ModuleId,
    function_ids: FxHashMap<Function, FunctionId>,
    /// By path, or name of a virtual machine.
    source_ids: FxHashMap<Arc<str>, ModuleId>,
    /// User frames that were named, by what they mean where.
    user_ids: FxHashMap<(AddressScope, bool, Item), FrameId>,
    managed_ids: FxHashMap<(u32, Word), FrameId>,
    /// By managed stack: what its task began with.
    tasks: FxHashMap<u64, Option<Arc<str>>>,
    interpreter_frames: bool,
}

impl Stacks {
    /// Starts with the files that processes had mapped; their index is the module's id.
    /// `interpreter_frames`: those of interpreters are kept beside those of their programs.
    pub fn new(mut modules: Vec<Module>, interpreter_frames: bool) -> Stacks {
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
            frame_ids: FxHashMap::default(),
            stack_ids: FxHashMap::default(),
            jit: FxHashMap::default(),
            kernel,
            function_ids: FxHashMap::default(),
            source_ids: FxHashMap::default(),
            user_ids: FxHashMap::default(),
            managed_ids: FxHashMap::default(),
            tasks: FxHashMap::default(),
            interpreter_frames,
        }
    }

    /// Learns in which functions of the kernel was waited.
    pub fn kernel_functions(&mut self, kernel: &FxHashMap<u64, Box<[u64]>>, names: &dyn HostNames) {
        self.waits_in = names.kernel_functions(kernel);
    }

    /// Modules of code made at run time, with their processes.
    pub fn jit_modules(&self) -> Vec<(ModuleId, u32)> {
        let mut all: Vec<_> = self
            .jit
            .iter()
            .map(|(pid, module)| (*module, *pid))
            .collect();
        all.sort_unstable();
        all
    }

    /// Processes with code made at run time that nothing named: how many addresses of it there are.
    pub fn unnamed_code(&self) -> Vec<(u32, u64)> {
        let unnamed = |module: ModuleId| {
            let of = |f: &&Frame| f.module == Some(module) && f.lines.is_empty();
            self.frames.iter().filter(of).count() as u64
        };
        let all = self
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
        estimator: &Estimator,
        names: &dyn CodeNames,
    ) -> Option<Sample> {
        let context = estimator.accounts.index(key.id)?;
        let pid = estimator.accounts.pid(context);
        let code = key.code;
        let stack = self.stack(
            key.kernel,
            key.user,
            AddressScope { pid, code },
            estimator,
            names,
        );
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
                shape: sum.lengths,
            });
        }
        let task = self.task(key.user, estimator, names);
        Some(Sample {
            context: ContextId(context),
            stack,
            state,
            reason,
            part,
            idle: false,
            cpu: key.cpu.map(u32::from),
            labels: self.labels(
                reason,
                key.kernel,
                key.resource,
                [names.program(pid, key.former), task],
                estimator,
            ),
            count: sum.count,
            ns: sum.ns,
            slices: sum.slices,
        })
    }

    /// The coroutine with which the task began that ran, or blocked its thread, in a stack.
    fn task(
        &mut self,
        user: UserPart,
        estimator: &Estimator,
        names: &dyn CodeNames,
    ) -> Option<Arc<str>> {
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

    /// What was waited for, which program and which task it was, as a set of labels.
    pub fn labels(
        &mut self,
        reason: Option<BlockReason>,
        kernel: u64,
        resource: u64,
        [program, task]: [Option<Arc<str>>; 2],
        estimator: &Estimator,
    ) -> Option<LabelsId> {
        let (function, named) = (
            self.waits_in.get(&kernel),
            estimator.resources.get(&resource),
        );
        let resource = labels::resource(reason, function, named);
        self.labels.id(resource, program, task)
    }

    /// The stack of these two halves, in its process.
    pub fn stack(
        &mut self,
        kernel: u64,
        user: UserPart,
        scope: AddressScope,
        estimator: &Estimator,
        names: &dyn CodeNames,
    ) -> StackId {
        // Stacks with addresses outside all files mean something in their own process only.
        let own = match user {
            UserPart::Hash(h) => {
                estimator.joins.contains_key(&h)
                    || estimator
                        .user
                        .get(&h)
                        .is_some_and(|s| s.frames.iter().any(|w| FrameWord(*w).file() == 0))
            }
            UserPart::Missing(_) => false,
        };
        let memo = (kernel, user, own.then_some(scope));
        if let Some(id) = self.stack_ids.get(&memo) {
            return *id;
        }
        let mut frames = Vec::new();
        let mut end = StackEnd::Lost;
        match estimator.kernel.get(&kernel) {
            Some(pcs) => {
                for (depth, pc) in pcs.iter().enumerate() {
                    let address = pc.saturating_sub(u64::from(depth > 0));
                    frames.push(self.frame(FrameKind::Kernel, Some(self.kernel), address));
                }
            }
            None if kernel != 0 => *self.truncated.entry(StackEnd::Lost).or_default() += 1,
            None => {}
        }
        match user {
            UserPart::Missing(cause) => end = cause,
            UserPart::Hash(hash) => {
                let (native, managed) = match estimator.joins.get(&hash) {
                    Some((native, managed)) => (*native, estimator.managed.get(managed)),
                    None => (hash, None),
                };
                if let Some(stack) = estimator.user.get(&native) {
                    let (_, items) = hotspot::items(&stack.frames);
                    match managed {
                        Some(m) => {
                            let scope = AddressScope {
                                pid: m.pid,
                                ..scope
                            };
                            end = m.end_with(stack.end);
                            let whole = end == StackEnd::Root;
                            let own =
                                self.mixed(&mut frames, &items, whole, scope, &m.words, names);
                            if own {
                                end = m.end_with(StackEnd::Root);
                            }
                        }
                        None => {
                            for item in items {
                                frames.push(self.user_frame(item, stack.late, scope, names));
                            }
                            end = stack.end;
                        }
                    }
                }
            }
        }
        let id = StackId(self.stacks.len() as u32);
        self.stacks.push(Stack { frames, end });
        self.stack_ids.insert(memo, id);
        id
    }

    /// The stack of user frames `words`, innermost first, with the managed frames `managed` (none, or two
    /// words each).
    pub fn user_stack(
        &mut self,
        words: &[u64],
        managed: &[u64],
        end: StackEnd,
        scope: AddressScope,
        names: &dyn CodeNames,
    ) -> StackId {
        let mut frames = Vec::new();
        let whole = end == StackEnd::Root;
        let (_, items) = hotspot::items(words);
        let own = self.mixed(&mut frames, &items, whole, scope, managed, names);
        let end = if own { StackEnd::Root } else { end };
        let id = StackId(self.stacks.len() as u32);
        self.stacks.push(Stack { frames, end });
        id
    }

    /// Adds the user frames of a stack with managed ones in the interpreter's place. Whether it is a stack
    /// of its own within its thread's, of which nothing is missing.
    fn mixed(
        &mut self,
        frames: &mut Vec<FrameId>,
        native: &[Item],
        whole: bool,
        scope: AddressScope,
        managed: &[u64],
        names: &dyn CodeNames,
    ) -> bool {
        let pid = scope.pid;
        let words: Vec<Word> = Word::all(managed).collect();
        let entries: Vec<_> = words
            .iter()
            .map(|w| runtime::Managed { entry: w.entry })
            .collect();
        let words_of = |item: &Item| match item {
            Item::Native(word) => *word,
            // Java's are no other runtime's business.
            _ => FrameWord(0),
        };
        let in_files: Vec<FrameWord> = native.iter().map(words_of).collect();
        let roles = names.roles(pid, &in_files);
        let own = runtime::running_frames(&roles).filter(|_| !words.is_empty());
        let (roles, whole) = match own {
            Some(n) => (&roles[..n], true),
            None => (&roles[..], whole),
        };
        for entry in runtime::fold(roles, &entries, whole, self.interpreter_frames) {
            frames.push(match entry {
                Entry::Native(i) => self.user_frame(native[i], false, scope, names),
                Entry::Managed(i) => self.managed_frame(pid, words[i], names),
            });
        }
        own.is_some()
    }
}
