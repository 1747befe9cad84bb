//! Inputs of the symboliser: the bytes of files, and their build ids.

use std::sync::Arc;

use wallscope_binfmt::{elf::Elf, mapped::MappedFile};
use wallscope_model::ModuleId;
use wallscope_symbolize::{ModuleSource, Sources};
use wallscope_unwind::native::TableSink;

use super::{Entry, Files};

impl<S: TableSink> Files<S> {
    /// Returns the files of `modules` for a symboliser. They are duplicated: these stay open here.
    pub fn sources_of(&mut self, modules: &[ModuleId]) -> Sources {
        let mut sources = Sources::default();
        for module in modules {
            let Ok(index) = u16::try_from(module.0) else {
                continue;
            };
            if self.entries.len() <= index as usize {
                continue;
            }
            let file = self.file(index).and_then(|f| f.try_clone().ok());
            let e = &self.entries[index as usize];
            let source = ModuleSource {
                file,
                bytes: e.bytes.clone(),
                pid: e.handle.part.pid,
                root: e.handle.root.clone(),
            };
            sources.modules.insert(*module, source);
        }
        sources
    }

    /// Returns the open files for a symboliser, by module.
    pub fn into_sources(self) -> Sources {
        let mut sources = Sources::default();
        for (index, e) in self.entries.into_iter().enumerate() {
            let source = ModuleSource {
                file: e.handle.file,
                bytes: e.bytes,
                pid: e.handle.part.pid,
                root: e.handle.root,
            };
            sources.modules.insert(ModuleId(index as u32), source);
        }
        sources
    }
}

impl Entry {
    /// The build id; empty if there is none, or the file could not be read.
    pub(super) fn build_id(&self) -> Arc<str> {
        let read = || self.read_build_id().unwrap_or_default().into();
        self.build_id.get_or_init(read).clone()
    }

    fn read_build_id(&self) -> Option<String> {
        if let Some(bytes) = &self.bytes {
            return Elf::parse(bytes).ok()?.build_id();
        }
        let mapped = MappedFile::map(self.handle.file.as_ref()?).ok()?;
        Elf::parse(&mapped).ok()?.build_id()
    }
}
