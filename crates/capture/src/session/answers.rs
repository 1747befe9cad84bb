//! Answers about names, kept in a log when they are given and looked up in it when it is replayed.

use std::{
    cell::{Cell, RefCell},
    hash::Hash,
    sync::Arc,
};

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::FrameKind;
use wallscope_observe::{
    CodeMaker, CodeModule, FrameKey, FrameName, FrameRoles, KernelFunction, LogWriter, ManagedKey,
    ManagedName, NamedFrame, Observation, OtherEnd, ProgramName,
};
use wallscope_unwind::{
    native::abi::FrameWord,
    runtime::{
        Role,
        hotspot::{Item, ScriptPosition},
    },
};

use super::{
    address_scope::AddressScope,
    managed::Word,
    naming::{CodeNames, HostNames, ManagedFrame, Names},
    unwound::Unwinding,
};
use crate::event::SocketRecord;

/// The question for a frame's name.
pub(super) fn frame_key(item: Item, unwinding: Unwinding, scope: AddressScope) -> FrameKey {
    let words = match item {
        Item::Native(word) => [0, word.0, 0, 0],
        Item::Compiled(word, at) => [1, word.0, at.into(), 0],
        Item::Interpreted { method, bcp } => [2, method, bcp, 0],
        Item::Script {
            frame,
            function,
            place,
        } => match place {
            ScriptPosition::Bytecode(at) => [3, frame.0, function, at.into()],
            ScriptPosition::Code(object) => [4, frame.0, function, object],
            // Both numbers in one word: an object's address has 48 bits.
            ScriptPosition::Unsure(at, object) => {
                [5, frame.0, function, object ^ u64::from(at) << 40]
            }
        },
    };
    FrameKey {
        pid: scope.pid,
        code: scope.code,
        late: unwinding == Unwinding::Deferred,
        words,
    }
}

pub(super) fn managed_key(pid: u32, word: Word) -> ManagedKey {
    ManagedKey {
        pid,
        code: word.code,
        check: word.check,
        lasti: word.lasti,
    }
}

/// Roles by their numbers in a log.
const ROLES: [Role; 4] = [Role::Other, Role::Interpreter, Role::Glue, Role::Switch];

pub(super) fn role_number(role: Role) -> u8 {
    ROLES.iter().position(|r| *r == role).unwrap_or(0) as u8
}

/// Names with answers that go to a log, each question once.
pub struct Logged<'a> {
    names: Names<'a>,
    log: RefCell<LogWriter>,
    asked: RefCell<FxHashSet<Question>>,
}

/// A question that may be asked more than once.
#[derive(PartialEq, Eq, Hash)]
enum Question {
    Managed(ManagedKey),
    Roles(u32, Box<[u64]>),
    Program(u32, u32),
    OtherEnd(u64),
}

impl<'a> Logged<'a> {
    /// Logs the answers of `names`.
    pub fn new(names: Names<'a>, log: LogWriter) -> Logged<'a> {
        Logged {
            names,
            log: RefCell::new(log),
            asked: RefCell::default(),
        }
    }

    /// The names.
    pub fn names(&self) -> Names<'_> {
        Names {
            code: self,
            host: self,
        }
    }

    /// The log.
    pub fn into_log(self) -> LogWriter {
        self.log.into_inner()
    }

    fn is_new(&self, question: Question) -> bool {
        self.asked.borrow_mut().insert(question)
    }

    fn keep(&self, observation: &Observation<'_>) {
        self.log.borrow_mut().append(observation);
    }
}

impl CodeNames for Logged<'_> {
    fn frame(&self, item: Item, unwinding: Unwinding, scope: AddressScope) -> NamedFrame {
        let frame = self.names.code.frame(item, unwinding, scope);
        if let (Item::Native(word), CodeModule::File(_)) = (item, &frame.module)
            && word.file() != 0
        {
            // The unwinder's numbers of files say as much.
            return frame;
        }
        self.keep(&Observation::FrameName(FrameName {
            key: frame_key(item, unwinding, scope),
            frame: frame.clone(),
        }));
        frame
    }

    fn managed(&self, pid: u32, word: Word) -> ManagedFrame {
        let named = self.names.code.managed(pid, word);
        let key = managed_key(pid, word);
        if self.is_new(Question::Managed(key)) {
            self.keep(&Observation::ManagedName(ManagedName {
                key,
                frame: named.frame.clone(),
                coroutine: named.coroutine.clone(),
            }));
        }
        named
    }

    fn roles(&self, pid: u32, frames: &[FrameWord]) -> Vec<Role> {
        let roles = self.names.code.roles(pid, frames);
        let words: Box<[u64]> = frames.iter().map(|w| w.0).collect();
        if self.is_new(Question::Roles(pid, words.clone())) {
            self.keep(&Observation::FrameRoles(FrameRoles {
                pid,
                frames: words.into(),
                roles: roles.iter().map(|role| role_number(*role)).collect(),
            }));
        }
        roles
    }

    fn program(&self, pid: u32, former: u32) -> Option<Arc<str>> {
        let name = self.names.code.program(pid, former);
        if self.is_new(Question::Program(pid, former)) {
            self.keep(&Observation::ProgramName(ProgramName {
                pid,
                former,
                name: name.clone(),
            }));
        }
        name
    }

    fn maker(&self, pid: u32) -> Option<(String, String)> {
        let maker = self.names.code.maker(pid);
        self.keep(&Observation::CodeMaker(CodeMaker {
            pid,
            maker: maker.clone(),
        }));
        maker
    }
}

impl HostNames for Logged<'_> {
    fn kernel_functions(&self, stacks: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
        let functions = self.names.host.kernel_functions(stacks);
        let mut all: Vec<_> = functions.iter().collect();
        all.sort_unstable();
        for (stack, name) in all {
            self.keep(&Observation::KernelFunction(KernelFunction {
                stack: *stack,
                name: name.clone(),
            }));
        }
        functions
    }

    fn other_end(&self, socket: &SocketRecord) -> Option<(u32, String)> {
        let process = self.names.host.other_end(socket);
        if self.is_new(Question::OtherEnd(socket.cookie)) {
            self.keep(&Observation::OtherEnd(OtherEnd {
                cookie: socket.cookie,
                process: process.clone(),
                before: false,
            }));
        }
        process
    }
}

/// The answers of a log.
#[derive(Default)]
pub struct Answers {
    frames: FxHashMap<FrameKey, NamedFrame>,
    files: FxHashMap<(bool, u16), u32>,
    managed: FxHashMap<ManagedKey, ManagedFrame>,
    roles: FxHashMap<(u32, Vec<u64>), Vec<Role>>,
    programs: FxHashMap<(u32, u32), Option<Arc<str>>>,
    kernel: FxHashMap<u64, Arc<str>>,
    makers: FxHashMap<u32, Option<(String, String)>>,
    others: FxHashMap<u64, Option<(u32, String)>>,
    missing: Cell<u64>,
}

impl Answers {
    /// Takes an observation that is an answer.
    pub fn observe(&mut self, observation: &Observation<'_>) {
        match observation {
            Observation::FrameName(named) => {
                self.frames.insert(named.key, named.frame.clone());
            }
            Observation::UnwinderFile(f) => {
                self.files.insert((f.late, f.file), f.module);
            }
            Observation::ManagedName(named) => {
                let frame = ManagedFrame {
                    frame: named.frame.clone(),
                    coroutine: named.coroutine.clone(),
                };
                self.managed.insert(named.key, frame);
            }
            Observation::FrameRoles(r) => {
                let role = |number: &u8| ROLES.get(usize::from(*number)).copied();
                let mut roles: Vec<Role> = (r.roles.iter())
                    .map(|n| role(n).unwrap_or(Role::Other))
                    .collect();
                roles.resize(r.frames.len(), Role::Other);
                self.roles.insert((r.pid, r.frames.clone()), roles);
            }
            Observation::ProgramName(p) => {
                self.programs.insert((p.pid, p.former), p.name.clone());
            }
            Observation::KernelFunction(f) => {
                self.kernel.insert(f.stack, f.name.clone());
            }
            Observation::CodeMaker(m) => {
                self.makers.insert(m.pid, m.maker.clone());
            }
            Observation::OtherEnd(end) if !end.before => {
                self.others.insert(end.cookie, end.process.clone());
            }
            _ => {}
        }
    }

    /// The names.
    pub fn names(&self) -> Names<'_> {
        Names {
            code: self,
            host: self,
        }
    }

    /// Questions that had no answer in the log: a recorder of another version asks others.
    pub fn missing(&self) -> u64 {
        self.missing.get()
    }

    /// A question has no answer.
    pub(super) fn miss(&self) {
        self.missing.set(self.missing.get() + 1);
    }

    /// All frames that have a name.
    pub(super) fn frames(&self) -> impl Iterator<Item = (&FrameKey, &NamedFrame)> {
        self.frames.iter()
    }

    /// A frame, if the log tells it.
    pub(super) fn known_frame(&self, item: Item, key: &FrameKey) -> Option<NamedFrame> {
        let named = self.frames.get(key).cloned();
        named.or_else(|| self.in_file(item, key.late))
    }

    /// The program of a process, if the log tells it.
    pub(super) fn known_program(&self, pid: u32, former: u32) -> Option<Arc<str>> {
        self.programs.get(&(pid, former)).cloned().flatten()
    }

    /// The runtime that makes a process's code, if the log tells it.
    pub(super) fn known_maker(&self, pid: u32) -> Option<(String, String)> {
        self.makers.get(&pid).cloned().flatten()
    }

    /// The process at the other end of a connection, if the log tells it.
    pub(super) fn known_other_end(&self, cookie: u64) -> Option<(u32, String)> {
        self.others.get(&cookie).cloned().flatten()
    }

    /// The frame of an address in a file, which the symboliser is to name.
    fn in_file(&self, item: Item, late: bool) -> Option<NamedFrame> {
        let Item::Native(word) = item else {
            return None;
        };
        let module = self.files.get(&(late, word.file()))?;
        Some(NamedFrame {
            module: CodeModule::File(*module),
            ..nameless(FrameKind::Native, word.lookup_offset())
        })
    }

    fn answer<K: Eq + Hash, V: Clone>(&self, all: &FxHashMap<K, V>, key: &K) -> Option<V> {
        let found = all.get(key).cloned();
        if found.is_none() {
            self.miss();
        }
        found
    }
}

/// A frame of which the log does not say the name.
pub(super) fn nameless(kind: FrameKind, address: u64) -> NamedFrame {
    NamedFrame {
        kind,
        module: CodeModule::Unknown,
        address,
        lines: Vec::new(),
    }
}

impl CodeNames for Answers {
    fn frame(&self, item: Item, unwinding: Unwinding, scope: AddressScope) -> NamedFrame {
        let key = frame_key(item, unwinding, scope);
        self.known_frame(item, &key).unwrap_or_else(|| {
            self.miss();
            nameless(FrameKind::Native, key.words[1])
        })
    }

    fn managed(&self, pid: u32, word: Word) -> ManagedFrame {
        let found = self.answer(&self.managed, &managed_key(pid, word));
        found.unwrap_or_else(|| ManagedFrame {
            frame: nameless(FrameKind::Python, word.code),
            coroutine: None,
        })
    }

    fn roles(&self, pid: u32, frames: &[FrameWord]) -> Vec<Role> {
        let words = frames.iter().map(|w| w.0).collect();
        let found = self.answer(&self.roles, &(pid, words));
        found.unwrap_or_else(|| vec![Role::Other; frames.len()])
    }

    fn program(&self, pid: u32, former: u32) -> Option<Arc<str>> {
        self.answer(&self.programs, &(pid, former)).flatten()
    }

    fn maker(&self, pid: u32) -> Option<(String, String)> {
        self.answer(&self.makers, &pid).flatten()
    }
}

impl HostNames for Answers {
    fn kernel_functions(&self, _stacks: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
        self.kernel.clone()
    }

    fn other_end(&self, socket: &SocketRecord) -> Option<(u32, String)> {
        self.answer(&self.others, &socket.cookie).flatten()
    }
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
