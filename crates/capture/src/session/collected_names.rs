//! Names of code as the collector knows them: of processes, files and runtimes, and of the host.

use std::{cell::OnceCell, sync::Arc};

use rustc_hash::FxHashMap;
use wallscope_binfmt::kallsyms;
use wallscope_model::{FrameKind, Function};
use wallscope_observe::{CodeModule, NamedFrame, NamedLine};
use wallscope_procfs::sockets::{self, Owners, Socket};
use wallscope_unwind::{
    native::{TableSink, abi::FrameWord},
    runtime::{Role, hotspot::Item},
};

use super::{
    address_scope::AddressScope,
    java::Meaning,
    labels,
    managed::Word,
    naming::{CodeNames, HostNames, ManagedFrame},
    peers::Lookup,
    processes::Processes,
    unwound::Unwinding,
};
use crate::event::SocketRecord;

impl<S: TableSink> CodeNames for Processes<S> {
    fn frame(&self, item: Item, unwinding: Unwinding, scope: AddressScope) -> NamedFrame {
        let pid = scope.pid;
        if let Item::Script { frame, .. } = item {
            return match self.managed().scripts.scopes(pid, item) {
                Some(scopes) => {
                    let lines = scopes.iter().map(|s| {
                        let f = &s.function;
                        line_of(&f.name, &f.file, f.line, s.line)
                    });
                    of_vm(FrameKind::JavaScript, "[javascript]", lines.collect())
                }
                None => self.native(frame, unwinding, scope),
            };
        }
        let address = match item {
            Item::Native(frame) | Item::Compiled(frame, _) | Item::Script { frame, .. } => {
                frame.lookup_offset()
            }
            Item::Interpreted { method, .. } => method,
        };
        let lines: Vec<NamedLine> = match (self.managed().java.meaning(pid, item), item) {
            (None, Item::Native(word)) => return self.native(word, unwinding, scope),
            (Some(Meaning::Methods(scopes)), _) => (scopes.iter())
                .map(|s| line_of(&s.method.name, &s.method.file, s.method.line, s.line))
                .collect(),
            (Some(Meaning::Stub(name)), _) => vec![line_of(name, "", 0, 0)],
            (Some(Meaning::Unnamed) | None, _) => Vec::new(),
        };
        match lines.is_empty() {
            true => unnamed(FrameKind::Java, CodeModule::Unknown, address),
            false => of_vm(FrameKind::Java, "[java]", lines),
        }
    }

    fn managed(&self, pid: u32, word: Word) -> ManagedFrame {
        let kind = Processes::managed(self).kind(pid);
        let Some(code) = Processes::managed(self).code(pid, word) else {
            return ManagedFrame {
                frame: unnamed(kind, CodeModule::Unknown, word.code),
                coroutine: None,
            };
        };
        let line = line_of(&code.name, &code.file, code.line, code.line_at(word.lasti));
        ManagedFrame {
            frame: NamedFrame {
                kind,
                module: CodeModule::Source(line.function.file.clone()),
                address: u64::from(line.line),
                lines: vec![line],
            },
            coroutine: code.coroutine.then(|| code.name.as_str().into()),
        }
    }

    fn roles(&self, pid: u32, frames: &[FrameWord]) -> Vec<Role> {
        let mut roles = Processes::managed(self).roles(pid, frames);
        for (role, word) in roles.iter_mut().zip(frames) {
            if *role == Role::Other && self.switches_stacks(*word) {
                *role = Role::Switch;
            }
        }
        roles
    }

    fn program(&self, pid: u32, former: u32) -> Option<Arc<str>> {
        Processes::program(self, pid, former)
    }

    fn maker(&self, pid: u32) -> Option<(String, String)> {
        let (name, remedy) = self.jit().maker(pid)?.told();
        Some((name.into(), remedy.into()))
    }
}

impl<S: TableSink> Processes<S> {
    fn native(&self, word: FrameWord, unwinding: Unwinding, scope: AddressScope) -> NamedFrame {
        let address = word.lookup_offset();
        let AddressScope { pid, code } = scope;
        let moved = (word.file() == 0)
            .then(|| self.moved_from(pid, address))
            .flatten();
        if let Some((module, offset)) = moved {
            return unnamed(FrameKind::Native, CodeModule::File(module.0), offset);
        }
        match self.module_of(word.file(), unwinding) {
            Some(module) => unnamed(FrameKind::Native, CodeModule::File(module.0), address),
            None if self.is_jit(pid, address) => {
                let place = self.jit().at(pid, address, code);
                NamedFrame {
                    lines: (place.into_iter())
                        .map(|p| line_of(&p.name, &p.file, 0, p.line))
                        .collect(),
                    ..unnamed(FrameKind::Jit, CodeModule::Jit(pid), address)
                }
            }
            None => unnamed(FrameKind::Native, CodeModule::Unknown, address),
        }
    }
}

/// A frame that the symboliser is to name, if anything does.
fn unnamed(kind: FrameKind, module: CodeModule, address: u64) -> NamedFrame {
    NamedFrame {
        kind,
        module,
        address,
        lines: Vec::new(),
    }
}

/// A frame of `lines`, one at least, in the code of a virtual machine.
fn of_vm(kind: FrameKind, vm: &str, lines: Vec<NamedLine>) -> NamedFrame {
    NamedFrame {
        kind,
        module: CodeModule::Source(vm.into()),
        address: lines.first().map_or(0, |l| l.line.into()),
        lines,
    }
}

/// A function at a line of it.
fn line_of(name: &str, file: &str, start_line: u32, line: u32) -> NamedLine {
    let name: Arc<str> = name.into();
    let function = Function {
        system_name: name.clone(),
        name,
        file: file.into(),
        start_line,
    };
    NamedLine { function, line }
}

/// The machine as it is at the end of a recording.
pub struct Host {
    sockets: Vec<Socket>,
    owners: Owners,
    kallsyms: Kallsyms,
}

/// The text of the kernel's symbols, several MB; read when it is asked first. Empty where it cannot be read.
#[derive(Default)]
pub struct Kallsyms(OnceCell<Arc<str>>);

impl Kallsyms {
    /// The functions of the kernel in which these stacks wait, by hash.
    pub fn functions(&self, stacks: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
        if stacks.is_empty() {
            return FxHashMap::default();
        }
        let read = || kallsyms::read().unwrap_or_default().into();
        labels::kernel_functions(stacks, self.0.get_or_init(read))
    }
}

/// The machine as it is when it is asked first.
#[derive(Default)]
pub struct HostWhenAsked {
    host: OnceCell<Host>,
    kallsyms: Kallsyms,
}

impl HostNames for HostWhenAsked {
    fn kernel_functions(&self, stacks: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
        self.kallsyms.functions(stacks)
    }

    fn other_end(&self, socket: &SocketRecord) -> Option<(u32, String)> {
        self.host.get_or_init(Host::now).other_end(socket)
    }
}

impl Host {
    /// As it is now.
    pub fn now() -> Host {
        Host {
            sockets: sockets::list().unwrap_or_default(),
            owners: sockets::owners(),
            kallsyms: Kallsyms::default(),
        }
    }

    /// The text of the kernel's symbols, if it was needed and could be read.
    pub fn into_kallsyms(self) -> Option<Arc<str>> {
        let text = self.kallsyms.0.into_inner();
        text.filter(|text| !text.is_empty())
    }
}

impl HostNames for Host {
    fn kernel_functions(&self, stacks: &FxHashMap<u64, Box<[u64]>>) -> FxHashMap<u64, Arc<str>> {
        self.kallsyms.functions(stacks)
    }

    fn other_end(&self, socket: &SocketRecord) -> Option<(u32, String)> {
        let lookup = Lookup {
            sockets: &self.sockets,
            owners: &self.owners,
        };
        lookup.other_end(socket)
    }
}
