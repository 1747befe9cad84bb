//! Queries about the code of processes.

use wallscope_model::{Module, ModuleId};
use wallscope_observe::UnwinderFile;
use wallscope_unwind::native::{FrameWord, TableSink};

use super::{
    super::{
        address_scope::AddressScope,
        address_space::AddressSpace,
        copied_stack::CopiedStack,
        deferred_unwind::{Code, Deferred, DeferredUnwinder, Due},
        files::Files,
        mappings::MappingSnapshot,
        unwound::Unwinding,
    },
    Processes, is_greenlet,
};

impl<S: TableSink> Processes<S> {
    /// The address space that the stack `frames`, seen at `time`, belongs to.
    pub fn scope_of(&self, pid: u32, time: u64, frames: &[FrameWord]) -> AddressScope {
        let unfiled = frames.iter().any(|w| w.file() == 0);
        let code = if unfiled {
            self.jit.version(pid, time)
        } else {
            0
        };
        AddressScope { pid, code }
    }

    /// Whether code without a file was mapped at `address` of `pid`.
    pub fn is_jit(&self, pid: u32, address: u64) -> bool {
        self.spaces.get(&pid).is_some_and(|s| {
            s.jit
                .iter()
                .any(|(start, end)| (*start..*end).contains(&address))
        })
    }

    /// The module, and the offset in it, of the code at `address` of `pid` if that was moved there from a file.
    pub fn moved_from(&self, pid: u32, address: u64) -> Option<(ModuleId, u64)> {
        let (file, offset) = self.spaces.get(&pid)?.moved_from(address)?;
        Some((ModuleId(file.into()), offset))
    }

    /// The module of a file by its number in such unwinding.
    pub fn module_of(&self, file: u16, unwinding: Unwinding) -> Option<ModuleId> {
        self.files.module_of(file, unwinding)
    }

    /// Whether code lies in a library that switches between stacks within a thread: greenlet's, which
    /// gevent and SQLAlchemy use.
    pub fn switches_stacks(&self, word: FrameWord) -> bool {
        let module = self.module_of(word.file(), Unwinding::Immediate);
        module.is_some_and(|m| is_greenlet(self.files.path(m.0 as u16)))
    }

    /// The files, for unwinding after the recording.
    pub fn files(&mut self) -> &mut Files<S> {
        &mut self.files
    }

    /// Unwinds those of `copies` that are due, and takes them out.
    pub fn unwind_deferred(&mut self, copies: &mut Vec<CopiedStack>, due: Due) -> Vec<Deferred> {
        let managed = &mut self.managed;
        // There may be thousands of copies, and each call here examines all of them.
        if due != Due::All && !managed.walks_some() {
            return Vec::new();
        }
        let is_due = |c: &mut CopiedStack| due == Due::All || managed.walked(c.pid()).is_some();
        let copies: Vec<CopiedStack> = copies.extract_if(.., is_due).collect();
        if copies.is_empty() {
            return Vec::new();
        }
        self.unwind_copies(&copies, &mut || ())
    }

    /// Unwinds the oldest copies, which were taken because there are many. `meanwhile`: work that cannot wait until
    /// tables are built.
    pub fn unwind_oldest(
        &mut self,
        copies: &[CopiedStack],
        meanwhile: &mut dyn FnMut(),
    ) -> Vec<Deferred> {
        let unwound = self.unwind_copies(copies, meanwhile);
        if let Some(late) = &mut self.late {
            late.forget();
        }
        unwound
    }

    fn unwind_copies(
        &mut self,
        copies: &[CopiedStack],
        meanwhile: &mut dyn FnMut(),
    ) -> Vec<Deferred> {
        if self.late.is_none() {
            self.late = DeferredUnwinder::new();
        }
        match &mut self.late {
            Some(late) => late.unwind(
                copies,
                Code {
                    files: &mut self.files,
                    managed: &mut self.managed,
                    meanwhile,
                },
            ),
            None => Vec::new(),
        }
    }

    /// Snapshot of the mappings of process `pid`.
    pub fn snapshot(&mut self, pid: u32) -> Option<MappingSnapshot> {
        self.spaces.get_mut(&pid).map(AddressSpace::snapshot)
    }

    /// All files, in the order of their module ids.
    pub fn modules(&self) -> Vec<Module> {
        self.files.modules_from(0)
    }

    /// Files that were met since this was called last, in the order of their module ids.
    pub fn take_modules(&mut self) -> Vec<Module> {
        self.files.take_modules()
    }

    /// Numbers that unwinders gave to files since this was called last.
    pub fn take_unwinder_files(&mut self) -> Vec<UnwinderFile> {
        self.files.take_unwinder_files()
    }

    /// Finds living processes that map closed files among `modules`: they can be opened there.
    pub(super) fn find_closed(&mut self, modules: &[ModuleId]) {
        let mut closed = self.files.closed_of(modules);
        for (pid, space) in self.spaces.iter().filter(|(_, space)| !space.ended) {
            if closed.is_empty() {
                return;
            }
            for (start, m) in &space.mappings {
                if let Some(index) = m.file.filter(|index| closed.remove(index)) {
                    self.files.is_mapped_at(index, *pid, *start..m.end);
                }
            }
        }
    }

    /// Opens closed files among `modules`, as far as they still can be opened.
    pub fn reopen(&mut self, modules: &[ModuleId]) {
        self.find_closed(modules);
        let closed = self.files.closed_of(modules);
        self.files.reopen_all(closed);
    }

    /// A window ended: closes files and root directories that no later one needs.
    pub fn end_window(&mut self) {
        // A perf map of an ended process may be read in a later window.
        let ended = self.spaces.values_mut().filter(|space| space.ended);
        for space in ended.filter(|space| space.jit.is_empty()) {
            space.root = None;
        }
        let living = self.spaces.values().filter(|space| !space.ended);
        let mappings = living.flat_map(|space| space.mappings.values());
        let mapped = mappings.filter_map(|m| m.file).collect();
        self.files.end_window(&mapped);
    }

    /// Bytes of kernel memory that unwind tables take.
    pub fn table_bytes(&self) -> u64 {
        self.files.table_bytes()
    }
}
