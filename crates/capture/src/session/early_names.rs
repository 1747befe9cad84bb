//! Names of code made at run time and of interpreters' frames, observed while their processes live.
//!
//! A recording is named at its end. A log that may end early gets the names as soon as samples meet the code, as
//! answers to the questions that the end would ask. Frames in files need none: the log has the unwinder's numbers of
//! files, and a recovery reads the files themselves.

use std::{
    cell::{Cell, RefCell},
    hash::{Hash, Hasher},
    sync::Arc,
};

use rustc_hash::{FxHashSet, FxHasher};
use wallscope_model::FrameKind;
use wallscope_observe::{
    CodeModule, FrameKey, FrameName, FrameRoles, ManagedKey, ManagedName, NamedFrame, Observation,
};
use wallscope_unwind::{
    native::abi::FrameWord,
    runtime::{Role, hotspot::Item},
};

use super::{
    address_scope::AddressScope,
    answers::{frame_key, managed_key, role_number},
    build::{Observed, Stacks},
    estimator::Estimator,
    managed::Word,
    naming::{CodeNames, ManagedFrame},
    sample_key::UserPart,
    unwound::Unwinding,
};

/// Stacks with unnamed frames that are kept to be asked about again.
const MAX_RETRIES: usize = 4096;
/// Times that such a stack is asked about again.
const TRIES: u8 = 3;

/// A stack as a sample has it: process, hash or number, version of the meaning of its addresses.
pub type StackOf = (u32, u64, u64);

/// The questions that were asked and answered.
#[derive(Default)]
pub struct EarlyNames {
    asked: FxHashSet<StackOf>,
    /// Stacks with frames that had no name, and how often they were asked about.
    nameless: Vec<(StackOf, u8)>,
    told: RefCell<SentNames>,
}

#[derive(Default)]
struct SentNames {
    frames: FxHashSet<FrameKey>,
    managed: FxHashSet<ManagedKey>,
    /// Hashes of process and frames.
    roles: FxHashSet<u64>,
}

/// Asks, and keeps the answers.
struct Asker<'a> {
    names: &'a dyn CodeNames,
    told: &'a RefCell<SentNames>,
    answers: RefCell<Vec<Observation<'static>>>,
    /// A frame had no name.
    nameless: Cell<bool>,
}

impl EarlyNames {
    /// The names of frames in the samples that `estimator` has not settled yet.
    pub fn of_samples(
        &mut self,
        estimator: &Estimator,
        names: &dyn CodeNames,
    ) -> Vec<Observation<'static>> {
        let mut new = Vec::new();
        for (key, s) in &estimator.samples.done {
            if let UserPart::Hash(hash) = key.user
                && self.asked.insert((s.pid, hash, key.code))
                && is_own(estimator, hash)
            {
                new.push((s.pid, hash, key.code));
            }
        }
        self.of(new, estimator, names)
    }

    /// The names of frames in these stacks.
    pub fn of(
        &mut self,
        stacks: Vec<StackOf>,
        source: &dyn NamedStacks,
        names: &dyn CodeNames,
    ) -> Vec<Observation<'static>> {
        let new = stacks.into_iter().map(|stack| (stack, 0)).collect();
        self.ask(new, source, names)
    }

    /// The names of frames that had none when they were asked for last.
    pub fn again(
        &mut self,
        source: &dyn NamedStacks,
        names: &dyn CodeNames,
    ) -> Vec<Observation<'static>> {
        let nameless = std::mem::take(&mut self.nameless);
        self.ask(nameless, source, names)
    }

    fn ask(
        &mut self,
        stacks: Vec<(StackOf, u8)>,
        source: &dyn NamedStacks,
        names: &dyn CodeNames,
    ) -> Vec<Observation<'static>> {
        let asker = Asker {
            names,
            told: &self.told,
            answers: RefCell::default(),
            nameless: Cell::new(false),
        };
        for (stack, tries) in stacks {
            asker.nameless.set(false);
            source.name(stack, &asker);
            if asker.nameless.get() && tries < TRIES && self.nameless.len() < MAX_RETRIES {
                self.nameless.push((stack, tries + 1));
            }
        }
        asker.answers.into_inner()
    }
}

/// Stacks that can be named.
pub trait NamedStacks {
    /// Asks `names` all that the recording will ask about this stack.
    fn name(&self, stack: StackOf, names: &dyn CodeNames);
}

impl NamedStacks for Estimator {
    fn name(&self, (pid, hash, code): StackOf, names: &dyn CodeNames) {
        // Only the questions are of interest here; the stack itself is dropped.
        let mut stacks = Stacks::new(Vec::new());
        stacks.interpreter_frames = self.interpreter_frames;
        let source = Observed {
            estimator: self,
            names,
        };
        let scope = AddressScope { pid, code };
        stacks.stack(0, UserPart::Hash(hash), scope, source);
    }
}

/// Whether frames of the stack mean something in its own process only.
fn is_own(estimator: &Estimator, hash: u64) -> bool {
    let stack = estimator.user.get(&hash);
    estimator.joins.contains_key(&hash)
        || stack.is_some_and(|s| s.frames.iter().any(|w| FrameWord(*w).file() == 0))
}

impl Asker<'_> {
    fn keep(&self, answer: Observation<'static>) {
        self.answers.borrow_mut().push(answer);
    }
}

/// Placeholder for the answer to a question that was answered before.
fn placeholder(kind: FrameKind) -> NamedFrame {
    NamedFrame {
        kind,
        module: CodeModule::Unknown,
        address: 0,
        lines: Vec::new(),
    }
}

impl CodeNames for Asker<'_> {
    fn frame(&self, item: Item, unwinding: Unwinding, scope: AddressScope) -> NamedFrame {
        let in_file = matches!(item, Item::Native(word) if word.file() != 0);
        let key = frame_key(item, unwinding, scope);
        if in_file || self.told.borrow().frames.contains(&key) {
            return placeholder(FrameKind::Native);
        }
        let frame = self.names.frame(item, unwinding, scope);
        let is_named = !frame.lines.is_empty();
        if is_named {
            self.told.borrow_mut().frames.insert(key);
        } else {
            self.nameless.set(true);
        }
        if is_named || frame.module != CodeModule::Unknown {
            let frame = frame.clone();
            self.keep(Observation::FrameName(FrameName { key, frame }));
        }
        frame
    }

    fn managed(&self, pid: u32, word: Word) -> ManagedFrame {
        let key = managed_key(pid, word);
        if self.told.borrow().managed.contains(&key) {
            return ManagedFrame {
                frame: placeholder(FrameKind::Python),
                coroutine: None,
            };
        }
        let named = self.names.managed(pid, word);
        if named.frame.lines.is_empty() {
            self.nameless.set(true);
        } else {
            self.told.borrow_mut().managed.insert(key);
            self.keep(Observation::ManagedName(ManagedName {
                key,
                frame: named.frame.clone(),
                coroutine: named.coroutine.clone(),
            }));
        }
        named
    }

    fn roles(&self, pid: u32, frames: &[FrameWord]) -> Vec<Role> {
        let roles = self.names.roles(pid, frames);
        let frames: Vec<u64> = frames.iter().map(|w| w.0).collect();
        let mut hasher = FxHasher::default();
        (pid, &frames).hash(&mut hasher);
        if self.told.borrow_mut().roles.insert(hasher.finish()) {
            self.keep(Observation::FrameRoles(FrameRoles {
                pid,
                frames,
                roles: roles.iter().map(|role| role_number(*role)).collect(),
            }));
        }
        roles
    }

    fn program(&self, _pid: u32, _former: u32) -> Option<Arc<str>> {
        None
    }

    fn maker(&self, _pid: u32) -> Option<(String, String)> {
        None
    }
}
