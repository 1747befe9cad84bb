//! The second half of reading another tool's file: unwinding stacks that were copied as raw memory, and
//! naming addresses.
//!
//! Both need the files that ran. A file is looked for under its path, and used only if its build id is
//! the recorded one. Where no build id was recorded, the file that is there now is used: its names may
//! be those of a newer build, and a loss says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::sync::Arc;

use wallscope_formats::{Mapped, RawStack, Unnamed, Unwind};
use wallscope_model::{Loss, ModuleKind, Recording, StackEnd};
use wallscope_procfs::target_file::{Purpose, Rights, TargetPath, TargetRoot};
use wallscope_symbolize::{KernelSymbols, ModuleSource, Sources};
use wallscope_unwind::native::{
    CopiedMemory, End, FileKey, MappingSpec, MemoryTables, Registers, Source, StackStart,
    TableStore, Unwinder,
};

/// Most memory of unwind tables, bytes.
const MAX_TABLE_BYTES: u64 = 1 << 30;
/// Most frames of a stack; deeper ones are truncated.
const MAX_FRAMES: usize = 1024;

/// Unwinds copied stacks by the tables of the files that were mapped.
pub struct CopiedStacks {
    store: Option<TableStore<MemoryTables>>,
    unwinder: Unwinder,
    /// Files by path and build id; `None`: missing, or of another build.
    files: BTreeMap<(String, String), Option<(File, FileKey)>>,
    /// Generation of the mappings that the store has now, by process.
    loaded: BTreeMap<u32, u64>,
    /// Rights with which files are opened.
    rights: Rights,
}

impl CopiedStacks {
    /// An unwinder for a profile that belongs to the owner with these `rights`.
    pub fn new(rights: Rights) -> CopiedStacks {
        CopiedStacks {
            store: TableStore::new(MemoryTables::new(), MAX_TABLE_BYTES).ok(),
            unwinder: Unwinder::new(),
            files: BTreeMap::new(),
            loaded: BTreeMap::new(),
            rights,
        }
    }

    fn load(&mut self, stack: &RawStack) {
        let Some(store) = &mut self.store else { return };
        if self.loaded.get(&stack.process) == Some(&stack.generation) {
            return;
        }
        for m in stack.mappings.values() {
            let key = (m.path.to_string(), m.build_id.to_string());
            let open = || open(m, &self.rights);
            self.files.entry(key).or_insert_with(open);
        }
        let specs: Vec<MappingSpec> = stack
            .mappings
            .iter()
            .map(|(start, m)| {
                let key = (m.path.to_string(), m.build_id.to_string());
                MappingSpec {
                    start: *start,
                    end: m.end,
                    pgoff: m.offset,
                    source: match self.files.get(&key) {
                        Some(Some((file, key))) => Source::File {
                            key,
                            file: Some(file),
                        },
                        _ => Source::Anonymous,
                    },
                }
            })
            .collect();
        // A process that does not fit has truncated stacks, each with its cause.
        let _ = store.set_process(stack.process, &specs);
        self.loaded.insert(stack.process, stack.generation);
    }
}

/// The file of a mapping, if it is the one that was mapped.
fn open(m: &Mapped, rights: &Rights) -> Option<(File, FileKey)> {
    if !m.path.starts_with('/') {
        return None;
    }
    let root = TargetRoot::of_host(rights.clone()).ok()?;
    let file = root
        .open(&TargetPath::new(&*m.path), Purpose::Object)
        .ok()?;
    if !m.build_id.is_empty() {
        let mapped = wallscope_binfmt::mapped::MappedFile::map(&file).ok()?;
        let id = wallscope_binfmt::elf::Elf::parse(&mapped)
            .ok()?
            .build_id()?;
        if id != *m.build_id {
            return None;
        }
    }
    let key = FileKey::of_file(&file).ok()?;
    Some((file, key))
}

impl Unwind for CopiedStacks {
    fn unwind(&mut self, stack: &RawStack) -> (Vec<u64>, StackEnd) {
        self.load(stack);
        let Some(store) = &self.store else {
            return (vec![stack.ip], StackEnd::TableNotLoaded);
        };
        let start = stack.general[7];
        let memory = stack.memory;
        let read = |address: u64, to: &mut [u8]| {
            let from = address
                .checked_sub(start)
                .and_then(|at| usize::try_from(at).ok());
            let Some(from) = from.and_then(|at| memory.get(at..)) else {
                return 0;
            };
            let n = from.len().min(to.len());
            to[..n].copy_from_slice(&from[..n]);
            n
        };
        let registers = Registers {
            ip: stack.ip,
            general: stack.general,
        };
        let (tables, process) = (store.sink(), stack.process);
        let memory = CopiedMemory {
            stack: read,
            beside: |_, _: &mut [u8]| 0,
            code: |_, _: &mut [u8]| 0,
        };
        let start = StackStart::new(process, &registers).at_most(MAX_FRAMES);
        let unwound = self.unwinder.unwind_copy(tables, start, memory);
        let addresses = unwound
            .frames
            .iter()
            .map(|w| self.address(stack.mappings, w.file(), w.lookup_offset()))
            .collect();
        let end = match unwound.end {
            End::Root => StackEnd::Root,
            End::MaxFrames => StackEnd::MaxFrames,
            End::NoMapping => StackEnd::NoMapping,
            End::NotLoaded => StackEnd::TableNotLoaded,
            End::NoInfo => StackEnd::NoUnwindInfo,
            End::BadRule => StackEnd::BadRule,
            // The copy is a window of the stack.
            End::Unreadable => StackEnd::WindowEnd,
            End::NoProgress => StackEnd::NoProgress,
        };
        (addresses, end)
    }
}

impl CopiedStacks {
    /// The address of an offset in a file of the unwinder; without a file the offset is the address.
    fn address(&self, mappings: &BTreeMap<u64, Mapped>, file: u16, offset: u64) -> u64 {
        let key = self.store.as_ref().and_then(|s| s.file_key(file));
        let Some(key) = key.filter(|_| file != 0) else {
            return offset;
        };
        let shows = |m: &Mapped, start: u64| {
            let length = m.end - start;
            let own = (m.path.to_string(), m.build_id.to_string());
            let same = matches!(self.files.get(&own), Some(Some((_, k))) if k == key);
            same && (m.offset..m.offset.saturating_add(length)).contains(&offset)
        };
        mappings
            .iter()
            .find(|(start, m)| shows(m, **start))
            .map_or(offset, |(start, m)| start + (offset - m.offset))
    }
}

/// Names the addresses of `recording`, which belongs to the owner with these `rights`, as far as this
/// machine has the files that they lie in.
pub fn name(recording: &mut Recording, unnamed: Unnamed, rights: Rights) {
    let mut sources = Sources {
        root: TargetRoot::of_host(rights).ok().map(Arc::new),
        ..Sources::default()
    };
    let mut newer = 0;
    let nameless = recording.frames.iter().filter(|f| f.lines.is_empty());
    let wanted: BTreeSet<_> = nameless.filter_map(|f| f.module).collect();
    for id in wanted {
        let m = &recording.modules[id.0 as usize];
        // Without a build id to compare there is only the path to go by.
        if m.kind == ModuleKind::Elf && m.build_id.is_empty() && m.path.starts_with('/') {
            let path = TargetPath::new(&*m.path);
            let file = (sources.root.as_ref()).map(|root| root.open(&path, Purpose::Object));
            if let Some(Ok(file)) = file {
                sources.modules.insert(id, ModuleSource::from_file(file, 0));
                newer += 1;
            }
        }
    }
    if newer > 0 {
        recording.losses.push(Loss {
            cause: "file named by its path alone: no build id was recorded, so names may be those \
                    of another build"
                .to_string(),
            count: newer,
        });
    }
    if !same_kernel(unnamed) {
        // Symbols of another kernel, or of this one at another place, would be wrong.
        sources.kallsyms = Some(Arc::new(KernelSymbols::new("".into())));
    }
    let losses = wallscope_symbolize::resolve(recording, sources);
    recording.losses.extend(losses);
}

/// Whether the kernel is mapped at the address that it had while it was recorded.
fn same_kernel(unnamed: Unnamed) -> bool {
    let Some(then) = unnamed.kernel_text.filter(|a| *a != 0) else {
        return false;
    };
    let Ok(text) = wallscope_procfs::kernel_file::read_to_string("/proc/kallsyms") else {
        return false;
    };
    text.lines().any(|line| {
        let mut words = line.split_whitespace();
        let address = words.next().and_then(|a| u64::from_str_radix(a, 16).ok());
        address == Some(then) && words.nth(1) == Some("_text")
    })
}
