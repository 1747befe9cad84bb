//! Opening and closing of files within the limit of open ones.

use std::{collections::BTreeMap, fs::File, ops::Range, os::unix::fs::MetadataExt as _, sync::Arc};

use rustc_hash::FxHashSet;
use wallscope_model::ModuleId;
use wallscope_procfs::target_file::{MappedAt, TargetRoot, open_mapped};
use wallscope_unwind::native::{FileKey, TableSink};

use super::handles::MappedPart;
use super::{super::mappings::Mapped, Files};
use crate::backend::ebpf::sideband::Mapping;

impl<S: TableSink> Files<S> {
    /// File `index` is mapped once more, by `m`: a closed one is opened.
    pub(super) fn met_again(&mut self, index: u16, m: &Mapping, root: Option<&Arc<TargetRoot>>) {
        let handle = &mut self.entries[index as usize].handle;
        handle.part = MappedPart::of(m);
        if handle.is_closed() {
            handle.root = root.cloned();
            self.reopen(index);
        }
        self.uses(index);
    }

    /// Closed files among `modules`.
    pub fn closed_of(&self, modules: &[ModuleId]) -> FxHashSet<u16> {
        let indices = modules.iter().filter_map(|m| u16::try_from(m.0).ok());
        let is_closed = |index: &u16| {
            let entry = self.entries.get(*index as usize);
            entry.is_some_and(|e| e.handle.is_closed())
        };
        indices.filter(is_closed).collect()
    }

    /// Process `pid` maps file `index` at these addresses now.
    pub fn is_mapped_at(&mut self, index: u16, pid: u32, range: Range<u64>) {
        let part = &mut self.entries[index as usize].handle.part;
        (part.pid, part.start, part.end) = (pid, range.start, range.end);
    }

    /// Closed files of `mappings` that `lacks` names.
    pub(super) fn lacking(
        &self,
        mappings: &BTreeMap<u64, Mapped>,
        lacks: impl Fn(&FileKey) -> bool,
    ) -> Vec<u16> {
        let indices = mappings.values().filter_map(|m| m.file);
        let is_lacking = |index: &u16| {
            let entry = &self.entries[*index as usize];
            entry.handle.is_closed() && lacks(&entry.key)
        };
        indices.filter(is_lacking).collect()
    }

    /// Opens closed files. Those that cannot be opened count as gone.
    pub fn reopen_all(&mut self, indices: impl IntoIterator<Item = u16>) {
        for index in indices {
            self.file(index);
        }
    }

    /// The bytes of file `index`; a closed one is opened.
    pub(super) fn file(&mut self, index: u16) -> Option<&File> {
        if self.entries[index as usize].handle.is_closed() && !self.reopen(index) {
            self.handles.gone += 1;
        }
        self.uses(index);
        self.entries[index as usize].handle.file.as_ref()
    }

    /// Opens file `index` by its last mapping, if that is still the same file. Returns whether it is open now.
    fn reopen(&mut self, index: u16) -> bool {
        let entry = &mut self.entries[index as usize];
        let part = &entry.handle.part;
        let at = MappedAt {
            pid: part.pid,
            start: part.start,
            end: part.end,
            device: part.device,
            inode: part.inode,
            path: &entry.path,
        };
        let opened = open_mapped(&at, entry.handle.root.as_deref()).ok();
        let opened = opened.filter(|f| FileKey::of_file(f).is_ok_and(|key| key == entry.key));
        entry.handle.file = opened;
        entry.handle.file.is_some()
    }

    /// File `index` is used now. Beyond the limit the least recently used one is closed.
    pub(super) fn uses(&mut self, index: u16) {
        let handle = &mut self.entries[index as usize].handle;
        if handle.file.is_none() {
            return;
        }
        let handles = &mut self.handles;
        handles.clock += 1;
        handles.by_use.remove(&handle.used);
        handle.used = handles.clock;
        handles.by_use.insert(handle.used, index);
        while self.handles.by_use.len() > self.handles.limit
            && let Some((_, oldest)) = self.handles.by_use.pop_first()
        {
            self.close(oldest);
        }
    }

    fn close(&mut self, index: u16) {
        let entry = &mut self.entries[index as usize];
        // It is asked for in each window.
        let _ = entry.build_id();
        (entry.handle.file, entry.handle.root) = (None, None);
        self.handles.by_use.remove(&entry.handle.used);
    }

    /// A window ended: closes deleted files that it did not use and that no process maps; `mapped`: files that
    /// processes map.
    pub fn end_window(&mut self, mapped: &FxHashSet<u16>) {
        let unused = self.handles.by_use.range(..=self.handles.window);
        let unmapped = unused
            .map(|(_, index)| *index)
            .filter(|i| !mapped.contains(i));
        let is_deleted = |index: &u16| {
            let file = self.entries[*index as usize].handle.file.as_ref();
            file.and_then(|f| f.metadata().ok())
                .is_some_and(|meta| meta.nlink() == 0)
        };
        let deleted: Vec<u16> = unmapped.filter(is_deleted).collect();
        deleted.into_iter().for_each(|index| self.close(index));
        self.handles.window = self.handles.clock;
        // Forgets mappings without a file (code made at run time): they are examined again if they are mapped again.
        self.known.retain(|_, index| index.is_some());
    }
}

#[cfg(test)]
#[path = "reopen_tests.rs"]
mod tests;
