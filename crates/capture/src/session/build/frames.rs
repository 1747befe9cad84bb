//! The frames of stacks: native, of managed code, of code made at run time; each once.

use wallscope_model::{
    Frame, FrameId, FrameKind, Function, FunctionId, Line, Module, ModuleId, ModuleKind,
};
use wallscope_unwind::{
    native::{TableSink, abi::FrameWord},
    runtime::{hotspot::Item, v8},
};

use super::{
    super::{java::Meaning, managed::Word, processes::Processes},
    Stacks,
};
use crate::session::address_scope::AddressScope;

impl Stacks {
    pub(super) fn managed_frame<S: TableSink>(
        &mut self,
        pid: u32,
        word: Word,
        processes: &Processes<S>,
    ) -> FrameId {
        let key = Word {
            entry: false,
            ..word
        };
        if let Some(id) = self.managed_ids.get(&(pid, key)) {
            return *id;
        }
        let kind = processes.managed().kind(pid);
        let id = match processes.managed().code(pid, word) {
            Some(code) => {
                let function = Function {
                    name: code.name.as_str().into(),
                    system_name: code.name.as_str().into(),
                    file: code.file.as_str().into(),
                    start_line: code.line,
                };
                self.source_frame(kind, function, code.line_at(word.lasti))
            }
            None => self.frame(kind, None, word.code),
        };
        self.managed_ids.insert((pid, key), id);
        id
    }

    /// The frame of a function of a source file; one for each line of it.
    fn source_frame(&mut self, kind: FrameKind, function: Function, line: u32) -> FrameId {
        let modules = &mut self.modules;
        let path = function.file.to_string();
        let module = *self.source_ids.entry(path).or_insert_with_key(|path| {
            modules.push(Module {
                kind: ModuleKind::Source,
                path: path.as_str().into(),
                build_id: "".into(),
                pid: 0,
            });
            ModuleId((modules.len() - 1) as u32)
        });
        let functions = &mut self.functions;
        let id = *self
            .function_ids
            .entry(function)
            .or_insert_with_key(|function| {
                functions.push(function.clone());
                FunctionId((functions.len() - 1) as u32)
            });
        let frames = &mut self.frames;
        *self.source_frames.entry((id, line)).or_insert_with(|| {
            frames.push(Frame {
                kind,
                module: Some(module),
                address: u64::from(line),
                lines: vec![Line { function: id, line }],
            });
            FrameId((frames.len() - 1) as u32)
        })
    }

    pub(super) fn user_frame<S: TableSink>(
        &mut self,
        item: Item,
        late: bool,
        whose: AddressScope,
        processes: &Processes<S>,
    ) -> FrameId {
        let pid = whose.pid;
        if let Item::Script { frame, .. } = item {
            return match processes.managed().scripts.scopes(pid, item) {
                Some(scopes) => self.script_frame(pid, item, scopes),
                None => self.native_frame(frame, late, whose, processes),
            };
        }
        match (processes.managed().java.meaning(pid, item), item) {
            (Some(meaning), _) => self.java_frame(pid, item, &meaning),
            (None, Item::Native(word)) => self.native_frame(word, late, whose, processes),
            (None, _) => self.java_frame(pid, item, &Meaning::Unnamed),
        }
    }

    /// The frame in a Java VM's code: its methods, inlined into each other.
    fn java_frame(&mut self, pid: u32, item: Item, meaning: &Meaning<'_>) -> FrameId {
        if let Some(id) = self.vm_ids.get(&(pid, item)) {
            return *id;
        }
        let lines: Vec<Line> = match meaning {
            Meaning::Methods(scopes) => scopes
                .iter()
                .map(|s| self.line_of(&s.method.name, &s.method.file, s.method.line, s.line))
                .collect(),
            Meaning::Stub(name) => vec![self.line_of(name, "", 0, 0)],
            Meaning::Unnamed => Vec::new(),
        };
        let id = if lines.is_empty() {
            let address = match item {
                Item::Native(frame) | Item::Compiled(frame, _) | Item::Script { frame, .. } => {
                    frame.lookup_offset()
                }
                Item::Interpreted { method, .. } => method,
            };
            self.frame(FrameKind::Java, None, address)
        } else {
            self.vm_frame(FrameKind::Java, "[java]", lines)
        };
        self.vm_ids.insert((pid, item), id);
        id
    }

    /// The frame of functions of V8's, inlined into each other.
    fn script_frame(&mut self, pid: u32, item: Item, scopes: &[v8::Scope]) -> FrameId {
        if let Some(id) = self.vm_ids.get(&(pid, item)) {
            return *id;
        }
        let lines = (scopes.iter())
            .map(|s| self.line_of(&s.function.name, &s.function.file, s.function.line, s.line))
            .collect();
        let id = self.vm_frame(FrameKind::JavaScript, "[javascript]", lines);
        self.vm_ids.insert((pid, item), id);
        id
    }

    /// A function at a line of it.
    fn line_of(&mut self, name: &str, file: &str, start_line: u32, line: u32) -> Line {
        let functions = &mut self.functions;
        let function = Function {
            name: name.into(),
            system_name: name.into(),
            file: file.into(),
            start_line,
        };
        let function = *self.function_ids.entry(function).or_insert_with_key(|f| {
            functions.push(f.clone());
            FunctionId((functions.len() - 1) as u32)
        });
        Line { function, line }
    }

    /// The frame of `lines`, of which there is one at least, of a VM whose code is in `module`.
    fn vm_frame(&mut self, kind: FrameKind, module: &str, lines: Vec<Line>) -> FrameId {
        let modules = &mut self.modules;
        let module = *self.vms.entry(kind).or_insert_with(|| {
            modules.push(Module {
                kind: ModuleKind::Source,
                path: module.into(),
                build_id: "".into(),
                pid: 0,
            });
            ModuleId((modules.len() - 1) as u32)
        });
        let frames = &mut self.frames;
        let frame = self.vm_frames.entry((kind, lines));
        *frame.or_insert_with_key(|(_, lines)| {
            frames.push(Frame {
                kind,
                module: Some(module),
                address: u64::from(lines[0].line),
                lines: lines.clone(),
            });
            FrameId((frames.len() - 1) as u32)
        })
    }

    fn native_frame<S: TableSink>(
        &mut self,
        word: FrameWord,
        late: bool,
        whose: AddressScope,
        processes: &Processes<S>,
    ) -> FrameId {
        let address = word.lookup_offset();
        let AddressScope { pid, code } = whose;
        match processes.module_of(word.file(), late) {
            Some(module) => self.frame(FrameKind::Native, Some(module), address),
            None if processes.is_jit(pid, address) => {
                let modules = &mut self.modules;
                let module = *self.jit.entry(pid).or_insert_with(|| {
                    modules.push(Module {
                        kind: ModuleKind::Jit,
                        path: "[jit]".into(),
                        build_id: "".into(),
                        pid,
                    });
                    ModuleId((modules.len() - 1) as u32)
                });
                let place = processes.jit().at(pid, address, code);
                let line = place.map(|p| self.line_of(&p.name, &p.file, 0, p.line));
                self.frame_at(FrameKind::Jit, Some(module), address, line)
            }
            None => self.frame(FrameKind::Native, None, address),
        }
    }

    pub(super) fn frame(
        &mut self,
        kind: FrameKind,
        module: Option<ModuleId>,
        address: u64,
    ) -> FrameId {
        self.frame_at(kind, module, address, None)
    }

    fn frame_at(
        &mut self,
        kind: FrameKind,
        module: Option<ModuleId>,
        address: u64,
        line: Option<Line>,
    ) -> FrameId {
        let frames = &mut self.frames;
        *self
            .frame_ids
            .entry((kind, module, address, line))
            .or_insert_with(|| {
                frames.push(Frame {
                    kind,
                    module,
                    address,
                    lines: line.into_iter().collect(),
                });
                FrameId((frames.len() - 1) as u32)
            })
    }
}
