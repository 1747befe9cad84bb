//! Destinations of unwind tables: kernel maps, or ordinary memory.

use crate::native::abi::{self, HostTable, Mapping, Proc, Rule};
use crate::native::table::Table;
use crate::runtime::hotspot::abi as hotspot;
use libbpf_rs::libbpf_sys;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rustc_hash::FxHashMap;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Capacity of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// File ids are below this.
    pub files: usize,
    /// Rule ids are below this.
    pub rules: usize,
    /// Mappings of all processes together.
    pub mappings: usize,
}

/// An operation that the kernel (or memory) refused.
#[derive(Debug, thiserror::Error)]
#[error("unwind tables: {what}: {source}")]
pub struct SinkError {
    /// The operation, in words.
    pub what: &'static str,
    /// The cause.
    pub source: libbpf_rs::Error,
}

fn refused(what: &'static str) -> impl Fn(libbpf_rs::Error) -> SinkError {
    move |source| SinkError { what, source }
}

/// Destination for the decisions of [`crate::native::TableStore`].
///
/// Readers run at the same time, so the order of writes matters: rules before the tables that use
/// them, tables before mappings, mappings before the process.
pub trait TableSink {
    /// Returns the sink's capacity.
    fn capacity(&self) -> Capacity;
    /// Stores `rules` from id `first` on.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn put_rules(&mut self, first: usize, rules: &[Rule]) -> Result<(), SinkError>;
    /// Stores or replaces tables by file id, all in one call: each call may wait for the kernel.
    ///
    /// # Errors
    /// If the kernel refuses; none of the tables is then reliable.
    fn put_tables(&mut self, tables: &[(u16, Table)]) -> Result<(), SinkError>;
    /// Frees a table.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn drop_table(&mut self, file: u16) -> Result<(), SinkError>;
    /// Replaces mappings from index `first` on. A concurrent reader rejects a half-written entry.
    fn put_mappings(&mut self, first: u32, mappings: &[Mapping]);
    /// Points a process at its mappings.
    ///
    /// # Errors
    /// If the kernel refuses, for example when the map of processes is full.
    fn put_proc(&mut self, tgid: u32, proc: Proc) -> Result<(), SinkError>;
    /// Removes a process and its VM, if they are known.
    fn remove_proc(&mut self, tgid: u32);
    /// Stores the HotSpot VM of a process.
    ///
    /// # Errors
    /// If the kernel refuses, for example when the map is full.
    fn put_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError>;
    /// Returns all processes, including those that the kernel copied at a fork.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn procs(&self) -> Result<Vec<(u32, Proc)>, SinkError>;
}

/// The maps that `bpf/unwind.h` defines.
#[derive(Debug)]
pub struct UnwindMaps {
    /// `uw_rules`
    pub rules: MapHandle,
    /// `uw_tables`
    pub tables: MapHandle,
    /// `uw_procs`
    pub procs: MapHandle,
    /// `uw_mappings`
    pub mappings: MapHandle,
    /// `hs_procs`
    pub hotspots: MapHandle,
}

/// [`TableSink`] over the maps of loaded kernel programs.
#[derive(Debug)]
pub struct KernelTables {
    maps: UnwindMaps,
    rules: Window<Rule>,
    mappings: Window<Mapping>,
}

impl KernelTables {
    /// Opens the maps of a loaded object.
    ///
    /// # Errors
    /// If the maps are not those of `bpf/unwind.h`, or cannot be mapped into memory.
    pub fn new(maps: UnwindMaps) -> Result<KernelTables, SinkError> {
        Ok(KernelTables {
            rules: Window::new(&maps.rules).map_err(refused("mapping the rules"))?,
            mappings: Window::new(&maps.mappings).map_err(refused("mapping the mappings"))?,
            maps,
        })
    }
}

impl TableSink for KernelTables {
    fn capacity(&self) -> Capacity {
        Capacity {
            files: self.maps.tables.max_entries() as usize,
            rules: self.rules.len,
            mappings: self.mappings.len,
        }
    }

    fn put_rules(&mut self, first: usize, rules: &[Rule]) -> Result<(), SinkError> {
        for (i, rule) in rules.iter().enumerate() {
            self.rules.write(first + i, *rule);
        }
        fence(Ordering::Release);
        Ok(())
    }

    fn put_tables(&mut self, tables: &[(u16, Table)]) -> Result<(), SinkError> {
        if tables.is_empty() {
            return Ok(());
        }
        let mut inner = Vec::with_capacity(tables.len());
        for (_, table) in tables {
            inner.push(inner_map(table).map_err(refused("creating a table"))?);
        }
        let keys: Vec<u8> = tables
            .iter()
            .flat_map(|(file, _)| u32::from(*file).to_ne_bytes())
            .collect();
        let values: Vec<u8> = inner
            .iter()
            .flat_map(|m| m.as_fd().as_raw_fd().to_ne_bytes())
            .collect();
        // One call for all tables: the kernel waits for its readers at the end of each call.
        let batch = self.maps.tables.update_batch(
            &keys,
            &values,
            tables.len() as u32,
            MapFlags::ANY,
            MapFlags::ANY,
        );
        if batch.is_ok() {
            return Ok(());
        }
        // Kernels before about 5.15 have no batch updates for maps of maps.
        for ((file, _), map) in tables.iter().zip(&inner) {
            self.maps
                .tables
                .update(
                    &u32::from(*file).to_ne_bytes(),
                    &map.as_fd().as_raw_fd().to_ne_bytes(),
                    MapFlags::ANY,
                )
                .map_err(refused("storing a table"))?;
        }
        Ok(())
    }

    fn drop_table(&mut self, file: u16) -> Result<(), SinkError> {
        self.maps
            .tables
            .delete(&u32::from(file).to_ne_bytes())
            .map_err(refused("freeing a table"))
    }

    fn put_mappings(&mut self, first: u32, mappings: &[Mapping]) {
        for (i, mapping) in mappings.iter().enumerate() {
            self.mappings.write_guarded(first as usize + i, *mapping);
        }
    }

    fn put_proc(&mut self, tgid: u32, proc: Proc) -> Result<(), SinkError> {
        self.maps
            .procs
            .update(&tgid.to_ne_bytes(), &bytes_of(&proc), MapFlags::ANY)
            .map_err(refused("storing a process"))
    }

    fn remove_proc(&mut self, tgid: u32) {
        // The kernel programs may have removed it at exit.
        let _ = self.maps.procs.delete(&tgid.to_ne_bytes());
        let _ = self.maps.hotspots.delete(&tgid.to_ne_bytes());
    }

    fn put_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError> {
        self.maps
            .hotspots
            .update(&tgid.to_ne_bytes(), vm.as_bytes(), MapFlags::ANY)
            .map_err(refused("storing a HotSpot VM"))
    }

    fn procs(&self) -> Result<Vec<(u32, Proc)>, SinkError> {
        let mut out = Vec::new();
        for key in self.maps.procs.keys() {
            let value = self
                .maps
                .procs
                .lookup(&key, MapFlags::ANY)
                .map_err(refused("reading the processes"))?;
            let Some(value) = value else { continue };
            let word =
                |i: usize| u32::from_ne_bytes(value[4 * i..4 * i + 4].try_into().expect("4 bytes"));
            if let (Ok(key), 16) = (<[u8; 4]>::try_from(key.as_slice()), value.len()) {
                out.push((
                    u32::from_ne_bytes(key),
                    Proc {
                        first: word(0),
                        count: word(1),
                        generation: word(2),
                        voided: word(3),
                    },
                ));
            }
        }
        Ok(out)
    }
}

fn bytes_of(proc: &Proc) -> [u8; 16] {
    let mut out = [0; 16];
    for (to, from) in
        out.chunks_exact_mut(4)
            .zip([proc.first, proc.count, proc.generation, proc.voided])
    {
        to.copy_from_slice(&from.to_ne_bytes());
    }
    out
}

fn inner_map(table: &Table) -> Result<MapHandle, libbpf_rs::Error> {
    let opts = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _,
        map_flags: libbpf_sys::BPF_F_INNER_MAP | libbpf_sys::BPF_F_MMAPABLE,
        ..Default::default()
    };
    let words = table.words();
    let map = MapHandle::create(
        MapType::Array,
        Some("uw_table"),
        4,
        8,
        words.len().max(1) as u32,
        &opts,
    )?;
    let mut window = Window::<u64>::new(&map)?;
    window.fill(words);
    Ok(map)
}

/// An array map, mapped into memory and shared with the kernel.
#[derive(Debug)]
struct Window<T> {
    at: *mut T,
    len: usize,
}

// SAFETY: the memory belongs to this value alone on this side; it is unmapped when dropped.
unsafe impl<T: Send> Send for Window<T> {}

impl<T: Copy> Window<T> {
    fn new(map: &MapHandle) -> Result<Window<T>, libbpf_rs::Error> {
        if map.value_size() as usize != size_of::<T>() || !size_of::<T>().is_multiple_of(8) {
            return Err(std::io::Error::other("the map has values of another size").into());
        }
        Window::map(map.as_fd(), map.max_entries() as usize)
    }

    fn map(fd: BorrowedFd<'_>, len: usize) -> Result<Window<T>, libbpf_rs::Error> {
        // SAFETY: a new mapping, placed by the kernel.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len * size_of::<T>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                fd.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Window { at: at.cast(), len })
    }

    fn write(&mut self, index: usize, value: T) {
        if index < self.len {
            // SAFETY: within the mapping, which holds `len` values.
            unsafe { self.at.add(index).write_volatile(value) };
        }
    }

    fn fill(&mut self, values: &[T]) {
        // SAFETY: both hold at least this many values and do not overlap.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), self.at, values.len().min(self.len)) };
        fence(Ordering::Release);
    }
}

impl Window<Mapping> {
    /// Writes an entry so that a reader which finds its generation valid before and after reads a
    /// complete entry.
    fn write_guarded(&mut self, index: usize, value: Mapping) {
        if index >= self.len {
            return;
        }
        // SAFETY: within the mapping; readers access the generation atomically and reject the entry
        // while it is 0.
        unsafe {
            let entry = self.at.add(index);
            let generation = AtomicU32::from_ptr(&raw mut (*entry).generation);
            generation.store(0, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            (&raw mut (*entry).start).write_volatile(value.start);
            (&raw mut (*entry).end).write_volatile(value.end);
            (&raw mut (*entry).delta).write_volatile(value.delta);
            (&raw mut (*entry).file).write_volatile(value.file);
            generation.store(value.generation, Ordering::SeqCst);
        }
    }
}

impl<T> Drop for Window<T> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, with this length.
        unsafe { libc::munmap(self.at.cast(), self.len * size_of::<T>()) };
    }
}

/// [`TableSink`] in ordinary memory, for unwinding in user space.
#[derive(Debug)]
pub struct MemoryTables {
    pub(crate) rules: Vec<Rule>,
    words: Vec<Table>,
    pub(crate) tables: Vec<HostTable>,
    pub(crate) mappings: Vec<Mapping>,
    pub(crate) procs: FxHashMap<u32, Proc>,
    pub(crate) hotspots: FxHashMap<u32, hotspot::Proc>,
}

// SAFETY: the pointers in `tables` lead into `words`, which moves and is shared along with them.
unsafe impl Send for MemoryTables {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for MemoryTables {}

impl MemoryTables {
    /// Creates an empty sink.
    pub fn new() -> MemoryTables {
        MemoryTables {
            rules: Vec::new(),
            words: Vec::new(),
            tables: Vec::new(),
            mappings: Vec::new(),
            procs: FxHashMap::default(),
            hotspots: FxHashMap::default(),
        }
    }

    /// The rows of a file, each offset << 32 | rule id, sorted; empty if it has no table.
    pub(crate) fn rows(&self, file: u16) -> &[u64] {
        self.words.get(file as usize).map_or(&[], Table::row_words)
    }

    fn set(&mut self, file: u16, table: Table) {
        let file = file as usize;
        if self.words.len() <= file {
            self.words.resize(file + 1, Table::default());
        }
        self.words[file] = table;
        self.tables = self
            .words
            .iter()
            .map(|t| HostTable {
                words: t.words().as_ptr(),
                count: t.words().len() as u64,
            })
            .collect();
    }
}

impl Default for MemoryTables {
    fn default() -> Self {
        MemoryTables::new()
    }
}

impl TableSink for MemoryTables {
    fn capacity(&self) -> Capacity {
        Capacity {
            files: abi::FILES as usize,
            rules: 1 << 20,
            mappings: 1 << 20,
        }
    }

    fn put_rules(&mut self, first: usize, rules: &[Rule]) -> Result<(), SinkError> {
        self.rules.resize(first, Rule::default());
        self.rules.extend_from_slice(rules);
        Ok(())
    }

    fn put_tables(&mut self, tables: &[(u16, Table)]) -> Result<(), SinkError> {
        for (file, table) in tables {
            self.set(*file, table.clone());
        }
        Ok(())
    }

    fn drop_table(&mut self, file: u16) -> Result<(), SinkError> {
        self.set(file, Table::default());
        Ok(())
    }

    fn put_mappings(&mut self, first: u32, mappings: &[Mapping]) {
        let end = first as usize + mappings.len();
        if self.mappings.len() < end {
            self.mappings.resize(end, Mapping::default());
        }
        self.mappings[first as usize..end].copy_from_slice(mappings);
    }

    fn put_proc(&mut self, tgid: u32, proc: Proc) -> Result<(), SinkError> {
        self.procs.insert(tgid, proc);
        Ok(())
    }

    fn remove_proc(&mut self, tgid: u32) {
        self.procs.remove(&tgid);
        self.hotspots.remove(&tgid);
    }

    fn put_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError> {
        self.hotspots.insert(tgid, *vm);
        Ok(())
    }

    fn procs(&self) -> Result<Vec<(u32, Proc)>, SinkError> {
        Ok(self.procs.iter().map(|(t, p)| (*t, *p)).collect())
    }
}
