//! Frames as they are named → frames of the recording, each once.

use wallscope_model::{Frame, FrameId, FrameKind, FunctionId, Line, Module, ModuleId, ModuleKind};
use wallscope_observe::{CodeModule, NamedFrame, NamedLine};
use wallscope_unwind::runtime::hotspot::Item;

use super::{
    super::{address_scope::AddressScope, managed::Word, naming::CodeNames, unwound::Unwinding},
    Stacks,
};

impl Stacks {
    pub(super) fn managed_frame(&mut self, pid: u32, word: Word, names: &dyn CodeNames) -> FrameId {
        let key = Word {
            entry: false,
            ..word
        };
        if let Some(id) = self.ids.managed.get(&(pid, key)) {
            return *id;
        }
        let id = self.intern(names.managed(pid, key).frame);
        self.ids.managed.insert((pid, key), id);
        id
    }

    pub(super) fn user_frame(
        &mut self,
        item: Item,
        unwinding: Unwinding,
        scope: AddressScope,
        names: &dyn CodeNames,
    ) -> FrameId {
        // Code in a file means the same in all processes.
        let scope = match item {
            Item::Native(word) if word.file() != 0 => AddressScope { pid: 0, code: 0 },
            _ => scope,
        };
        let key = (scope, unwinding, item);
        if let Some(id) = self.ids.user.get(&key) {
            return *id;
        }
        let id = self.intern(names.frame(item, unwinding, scope));
        self.ids.user.insert(key, id);
        id
    }

    fn intern(&mut self, named: NamedFrame) -> FrameId {
        let module = self.module(named.module);
        let lines = named.lines.into_iter().map(|l| self.line(l)).collect();
        self.frame_of(Frame {
            kind: named.kind,
            module,
            address: named.address,
            lines,
        })
    }

    fn module(&mut self, of: CodeModule) -> Option<ModuleId> {
        let module = |kind, path, pid| Module {
            kind,
            path,
            build_id: "".into(),
            pid,
        };
        let modules = &mut self.modules;
        let mut add = |module| {
            modules.push(module);
            ModuleId((modules.len() - 1) as u32)
        };
        match of {
            CodeModule::Unknown => None,
            CodeModule::File(number) => (number < self.kernel.0).then_some(ModuleId(number)),
            CodeModule::Jit(pid) => Some(
                *(self.ids.jit.entry(pid))
                    .or_insert_with(|| add(module(ModuleKind::Jit, "[jit]".into(), pid))),
            ),
            CodeModule::Source(path) => Some(
                *(self.ids.sources.entry(path))
                    .or_insert_with_key(|path| add(module(ModuleKind::Source, path.clone(), 0))),
            ),
        }
    }

    /// A function at a line of it.
    fn line(&mut self, named: NamedLine) -> Line {
        let functions = &mut self.functions;
        let function = (self.ids.functions.entry(named.function)).or_insert_with_key(|f| {
            functions.push(f.clone());
            FunctionId((functions.len() - 1) as u32)
        });
        Line {
            function: *function,
            line: named.line,
        }
    }

    /// The frame of an address that the symboliser is to name.
    pub(super) fn frame(
        &mut self,
        kind: FrameKind,
        module: Option<ModuleId>,
        address: u64,
    ) -> FrameId {
        self.frame_of(Frame {
            kind,
            module,
            address,
            lines: Vec::new(),
        })
    }

    fn frame_of(&mut self, frame: Frame) -> FrameId {
        let frames = &mut self.frames;
        *(self.ids.frames.entry(frame)).or_insert_with_key(|frame| {
            frames.push(frame.clone());
            FrameId((frames.len() - 1) as u32)
        })
    }
}
