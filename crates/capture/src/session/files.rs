//! The files behind executable mappings: open handles, unwind tables, names of modules.
//!
//! A file is known by device, inode and path, and opened when it is first met. Named memory counts as a file
//! only if it begins as a program does: some programs are started from memory. The unwinder gives ids to
//! files (the same build in two places gets one), the recording gives ids to modules; this is where the two
//! meet.
//!
//! A session in windows keeps a bounded number of files open; see `files/handles.rs` and `files/reopen.rs`.

use std::{
    cell::OnceCell, collections::BTreeMap, fs::File, ops::Range, os::unix::fs::FileExt as _,
    path::Path, sync::Arc,
};

use libbpf_rs::{MapHandle, MapMut};
use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_binfmt::{elf::Elf, mapped::MappedFile};
use wallscope_model::{Module, ModuleId, ModuleKind};
use wallscope_observe::UnwinderFile;
use wallscope_procfs::{
    maps,
    target_file::{Refusal, TargetRoot, open_mapped, open_named_by_user},
};
use wallscope_unwind::native::{
    FileKey, KernelTables, MappingSpec, MemoryTables, Source, TableSink, TableStore, UnwindMaps,
};
use wallscope_unwind::runtime::{self, hotspot};

use super::{found_runtime::FoundRuntime, mappings::Mapped, moved_code, unwound::Unwinding};
use crate::{
    Error,
    backend::ebpf::{Programs, sideband::Mapping},
};

mod handles;
mod limits;
mod reopen;
mod report;
mod sources;

pub use limits::FileLimits;

use handles::{Handle, Handles, MappedPart};

/// A file, or an image in memory.
struct Entry {
    path: Arc<str>,
    key: FileKey,
    handle: Handle,
    bytes: Option<Vec<u8>>,
    /// Build id, read when it is first asked for, and at the latest when the file is closed.
    build_id: OnceCell<Arc<str>>,
    /// Runtime that the file holds; the outer `None`: not searched for yet.
    runtime: Option<Option<FoundRuntime>>,
}

/// All files met so far.
pub struct Files<S = KernelTables> {
    store: TableStore<S>,
    entries: Vec<Entry>,
    /// Files by mapping; `None`: memory that is no program.
    known: FxHashMap<(u64, u64, String), Option<u16>>,
    /// From the unwinder's file ids to entries.
    by_unwinder: FxHashMap<u16, u16>,
    /// From the file ids of the unwinder used after the recording to entries.
    by_late: FxHashMap<u16, u16>,
    /// Entries, and numbers of unwinders, that have been told.
    told: usize,
    told_numbers: FxHashSet<(bool, u16)>,
    /// VMs that the unwinder has been told of.
    vms: usize,
    handles: Handles,
    unopened: u64,
    /// Files beyond the numbers that modules can have.
    unnumbered: u64,
    /// Mapped files that exist and were not opened, by reason.
    refusals: BTreeMap<String, u64>,
    refused: u64,
}

impl Files<KernelTables> {
    /// No file yet; tables go to the maps of `programs`.
    ///
    /// # Errors
    /// The unwinder's maps cannot be shared.
    pub fn new(programs: &Programs, limits: FileLimits) -> Result<Files, Error> {
        let maps = programs.maps();
        // Maps are shared by descriptor: by id would need CAP_SYS_ADMIN.
        let handle = |m: &MapMut<'_>| {
            MapHandle::try_from(m).map_err(Error::bpf("cannot share a map of the unwinder"))
        };
        let maps = UnwindMaps {
            rules: handle(&maps.uw_rules)?,
            tables: handle(&maps.uw_tables)?,
            procs: handle(&maps.uw_procs)?,
            mappings: handle(&maps.uw_mappings)?,
            hotspots: handle(&maps.hs_procs)?,
        };
        let sink = KernelTables::new(maps)
            .map_err(|e| Error::io("cannot set up unwind tables", std::io::Error::other(e)))?;
        Files::within(sink, limits)
    }
}

impl Files<MemoryTables> {
    /// The tables, for unwinding in this process.
    pub fn tables(&self) -> &MemoryTables {
        self.store.sink()
    }
}

/// Identity of the file behind a mapping: device, inode and path.
fn identity(m: &Mapping) -> (u64, u64, String) {
    let path = m.path.strip_suffix(" (deleted)").unwrap_or(&m.path);
    (m.device, m.inode, path.to_owned())
}

/// Tables of an unwinder in user space.
pub struct LateTables {
    /// The tables.
    pub store: TableStore<MemoryTables>,
    /// Files that stacks led through, by the store's ids: no others get tables. A program may have mapped hundreds,
    /// and run ten.
    pub wanted: FxHashSet<u16>,
}

impl<S: TableSink> Files<S> {
    /// No file yet; tables go to `sink`.
    ///
    /// # Errors
    /// The sink refuses.
    pub fn over(sink: S) -> Result<Files<S>, Error> {
        Files::within(sink, FileLimits::RECORDING)
    }

    /// No file yet; tables go to `sink`.
    fn within(sink: S, limits: FileLimits) -> Result<Files<S>, Error> {
        let store = TableStore::new(sink, limits.table_bytes)
            .map_err(|e| Error::io("cannot set up unwind tables", std::io::Error::other(e)))?;
        Ok(Files {
            store,
            entries: Vec::new(),
            known: FxHashMap::default(),
            by_unwinder: FxHashMap::default(),
            by_late: FxHashMap::default(),
            told: 0,
            told_numbers: FxHashSet::default(),
            vms: 0,
            handles: Handles::within(limits.open),
            unopened: 0,
            unnumbered: 0,
            refusals: BTreeMap::new(),
            refused: 0,
        })
    }

    /// The index of the file behind a mapping; `None` for memory without one.
    pub fn open(&mut self, m: &Mapping, root: Option<&Arc<TargetRoot>>) -> Option<u16> {
        if m.path == "[vdso]" {
            return self.vdso();
        }
        if !m.path.starts_with('/') {
            return None;
        }
        let identity = identity(m);
        let path = &*identity.2;
        if let Some(index) = self.known.get(&identity).copied() {
            if let Some(index) = index {
                self.met_again(index, m, root);
            }
            return index;
        }
        let file = match open_mapped(&m.file(), root.map(|r| &**r)) {
            Ok(file) => Some(file),
            Err(Refusal::Absent) => {
                self.unopened += 1;
                None
            }
            Err(refusal) => {
                *self.refusals.entry(refusal.to_string()).or_default() += 1;
                None
            }
        };
        if maps::is_memory(path) && !file.as_ref().is_some_and(is_elf) {
            // Code made at run time.
            self.known.insert(identity, None);
            return None;
        }
        let key = match &file {
            Some(file) => FileKey::of_file(file).ok(),
            None => None,
        };
        // Without the file the key only has to be unique.
        let key = key.unwrap_or(FileKey::Inode {
            dev: m.device,
            ino: m.inode,
            mtime_ns: i64::MIN,
            size: 0,
        });
        let entry = Entry {
            path: path.into(),
            key,
            handle: Handle::new(file, root.cloned(), MappedPart::of(m)),
            bytes: None,
            build_id: OnceCell::new(),
            runtime: None,
        };
        let index = self.add(identity, entry)?;
        self.uses(index);
        Some(index)
    }

    /// Whether the file behind a mapping was met before, or there is none: then nothing is opened for it.
    pub fn is_known(&self, m: &Mapping) -> bool {
        !m.path.starts_with('/') || self.known.contains_key(&identity(m))
    }

    fn add(&mut self, identity: (u64, u64, String), entry: Entry) -> Option<u16> {
        let Ok(index) = u16::try_from(self.entries.len()) else {
            self.unnumbered += 1;
            return None;
        };
        self.entries.push(entry);
        self.known.insert(identity, Some(index));
        Some(index)
    }

    fn vdso(&mut self) -> Option<u16> {
        let identity = (0, 0, "[vdso]".to_owned());
        if let Some(index) = self.known.get(&identity) {
            return *index;
        }
        let bytes = own_vdso()?;
        let key = FileKey::of_bytes(&bytes);
        let entry = Entry {
            path: "[vdso]".into(),
            key,
            handle: Handle::default(),
            bytes: Some(bytes),
            build_id: OnceCell::new(),
            runtime: Some(None),
        };
        self.add(identity, entry)
    }

    /// Builds the table of a file that a process is about to map.
    pub fn prepare(&mut self, path: &Path, pid: u32) {
        let Ok(file) = open_named_by_user(path) else {
            return;
        };
        let Ok(key) = FileKey::of_file(&file) else {
            return;
        };
        let source = Source::File {
            key: &key,
            file: Some(&file),
        };
        let spec = MappingSpec {
            start: 0x1000,
            end: 0x2000,
            pgoff: 0,
            source,
        };
        // The table stays; the process's true mappings replace this list when it has some.
        self.refused += u64::from(self.store.set_process(pid, &[spec]).is_err());
    }

    /// Where file `index` was mapped from.
    pub fn path(&self, index: u16) -> &str {
        &self.entries[index as usize].path
    }

    /// The runtime of managed code in file `index`, if it holds one.
    pub fn runtime(&mut self, index: u16) -> Option<FoundRuntime> {
        if self.entries[index as usize].runtime.is_none() {
            let mapped = self.file(index).and_then(|f| MappedFile::map(f).ok());
            let e = &mut self.entries[index as usize];
            let found = mapped.and_then(|bytes| runtime::recognise(&bytes, &e.path));
            e.runtime = Some(found.map(Arc::new));
        }
        self.entries[index as usize].runtime.clone().flatten()
    }

    /// The offset in file `index` of the code at `range` of process `pid`, if it is a copy of that file's.
    pub fn copied_from(&mut self, index: u16, pid: u32, range: Range<u64>) -> Option<u64> {
        let mapped = MappedFile::map(self.file(index)?).ok()?;
        moved_code::copied_from(&mapped, pid, range)
    }

    /// Difference between the addresses in memory and those of file `index`, if its code at `offset` is mapped at
    /// `start`; with the unwinder's id of the file.
    pub fn placed(&mut self, index: u16, start: u64, offset: u64) -> Option<(u64, u16)> {
        let mapped = MappedFile::map(self.file(index)?).ok()?;
        let elf = Elf::parse(&mapped).ok()?;
        let page = |at: u64| at & !4095;
        let code = elf.segments().iter().find(|s| {
            s.executable
                && page(s.offset) <= offset
                && offset < s.offset.saturating_add(s.file_size)
        })?;
        let bias = start
            .wrapping_sub(offset)
            .wrapping_add(code.offset)
            .wrapping_sub(code.vaddr);
        let mut ids = self.by_unwinder.iter();
        let id = ids.find(|(_, i)| **i == index).map(|(id, _)| *id)?;
        Some((bias, id))
    }

    /// Hands a process's complete mappings to the kernel side. `meanwhile`: work that cannot wait until the tables of
    /// all its files are built.
    pub fn install(
        &mut self,
        pid: u32,
        mappings: &BTreeMap<u64, Mapped>,
        meanwhile: &mut dyn FnMut(),
    ) {
        for (start, m) in mappings {
            if let Some(index) = m.file {
                self.is_mapped_at(index, pid, *start..m.end);
            }
        }
        let lacking = self.lacking(mappings, |key| self.store.lacks(key));
        self.reopen_all(lacking);
        let specs = specs(&self.entries, mappings, |_| true);
        self.store
            .build(specs.iter().map(|spec| &spec.source), meanwhile);
        match self.store.set_process(pid, &specs) {
            Ok(given) => learn(&mut self.by_unwinder, given, mappings),
            Err(_) => self.refused += 1,
        }
    }

    /// Installs a process's mappings for unwinding in user space. Only files that are wanted get tables.
    /// `meanwhile`: work that cannot wait until these are built.
    pub fn install_late(
        &mut self,
        late: &mut LateTables,
        process: u32,
        mappings: &BTreeMap<u64, Mapped>,
        meanwhile: &mut dyn FnMut(),
    ) {
        let LateTables { store, wanted } = late;
        let is_wanted = |key: &FileKey| store.file_id(key).is_some_and(|id| wanted.contains(&id));
        let lacking = self.lacking(mappings, |key| is_wanted(key) && store.lacks(key));
        self.reopen_all(lacking);
        let specs = specs(&self.entries, mappings, is_wanted);
        store.build(specs.iter().map(|spec| &spec.source), meanwhile);
        if let Ok(given) = store.set_process(process, &specs) {
            learn(&mut self.by_late, given, mappings);
        }
    }

    /// Tells the unwinder of a process's HotSpot VM. Returns whether that worked.
    pub fn set_hotspot(&mut self, pid: u32, vm: &hotspot::abi::Proc) -> bool {
        let told = self.store.set_hotspot(pid, vm).is_ok();
        self.vms += usize::from(told);
        told
    }

    /// VMs that the unwinder has been told of, so far.
    pub fn vms(&self) -> usize {
        self.vms
    }

    /// Processes in which the kernel programs have found other mappings than they were told.
    pub fn outdated(&self) -> Vec<u32> {
        self.store.outdated().unwrap_or_default()
    }

    /// Frees the kernel side's data of a process that is gone.
    pub fn forget(&mut self, pid: u32) {
        self.store.forget_process(pid);
    }

    /// The module of a file by its number in such unwinding.
    pub fn module_of(&self, id: u16, unwinding: Unwinding) -> Option<ModuleId> {
        let ids = match unwinding {
            Unwinding::Immediate => &self.by_unwinder,
            Unwinding::Deferred => &self.by_late,
        };
        ids.get(&id).map(|index| ModuleId(u32::from(*index)))
    }

    /// Files as modules, from the one with the id `first` on.
    pub fn modules_from(&self, first: usize) -> Vec<Module> {
        self.entries[first..]
            .iter()
            .map(|e| Module {
                kind: if e.bytes.is_some() {
                    ModuleKind::Vdso
                } else {
                    ModuleKind::Elf
                },
                path: e.path.clone(),
                build_id: e.build_id(),
                pid: 0,
            })
            .collect()
    }

    /// Modules of the files that were met since this was called last.
    pub fn take_modules(&mut self) -> Vec<Module> {
        let new = self.modules_from(self.told);
        self.told = self.entries.len();
        new
    }

    /// Numbers that unwinders gave to files since this was called last, in their order.
    pub fn take_unwinder_files(&mut self) -> Vec<UnwinderFile> {
        if self.told_numbers.len() == self.by_unwinder.len() + self.by_late.len() {
            return Vec::new();
        }
        let numbers = |late, ids: &FxHashMap<u16, u16>| {
            let of = move |(file, index): (&u16, &u16)| UnwinderFile {
                late,
                file: *file,
                module: (*index).into(),
            };
            ids.iter().map(of).collect::<Vec<_>>()
        };
        let mut all = [
            numbers(false, &self.by_unwinder),
            numbers(true, &self.by_late),
        ]
        .concat();
        all.retain(|n| self.told_numbers.insert((n.late, n.file)));
        all.sort_unstable_by_key(|n| (n.late, n.file));
        all
    }

    /// Whether file `index` could be opened.
    pub fn is_open(&self, index: u16) -> bool {
        let e = &self.entries[index as usize];
        e.handle.file.is_some() || e.bytes.is_some()
    }
}

/// Mappings as an unwinder takes them. Files that are not wanted get no new tables.
fn specs<'e>(
    entries: &'e [Entry],
    mappings: &BTreeMap<u64, Mapped>,
    is_wanted: impl Fn(&FileKey) -> bool,
) -> Vec<MappingSpec<'e>> {
    let source = |m: &Mapped| match m.file.map(|i| &entries[i as usize]) {
        None => Source::Anonymous,
        Some(Entry {
            bytes: Some(bytes),
            key,
            ..
        }) => Source::Bytes { key, bytes },
        Some(Entry { key, handle, .. }) => Source::File {
            key,
            file: handle.file.as_ref().filter(|_| is_wanted(key)),
        },
    };
    let spec = |(start, m): (&u64, &Mapped)| MappingSpec {
        start: *start,
        end: m.end,
        pgoff: m.offset,
        source: source(m),
    };
    mappings.iter().map(spec).collect()
}

/// Learns the ids that an unwinder has given to the files of `mappings`; 0: none.
fn learn(ids: &mut FxHashMap<u16, u16>, given: Vec<u16>, mappings: &BTreeMap<u64, Mapped>) {
    for (id, m) in given.into_iter().zip(mappings.values()) {
        if let (true, Some(index)) = (id != 0, m.file) {
            ids.entry(id).or_insert(index);
        }
    }
}

/// Whether a file begins as programs and shared objects do.
fn is_elf(file: &File) -> bool {
    let mut magic = [0; 4];
    file.read_exact_at(&mut magic, 0).is_ok() && magic == *b"\x7fELF"
}

/// The vDSO is the same in every 64-bit process, so our own serves.
pub fn own_vdso() -> Option<Vec<u8>> {
    let own = maps::read(std::process::id()).ok()?;
    let vdso = own.into_iter().find(|m| m.path == "[vdso]")?;
    let length = (vdso.end - vdso.start) as usize;
    // SAFETY: the kernel keeps these pages mapped readable for the life of the process.
    let bytes = unsafe { std::slice::from_raw_parts(vdso.start as *const u8, length) };
    Some(bytes.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vdso_is_an_elf_image() {
        let bytes = own_vdso().expect("Linux on x86-64 has a vDSO");
        assert!(Elf::parse(&bytes).is_ok());
    }
}
