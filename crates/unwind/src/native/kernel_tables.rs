//! Unwind tables in the maps of loaded kernel programs (feature `bpf`).

use crate::native::abi::{Mapping, Proc, Rule};
use crate::native::packed_rows::Table;
use crate::native::sink::{Capacity, SinkError, TableSink};
use crate::runtime::hotspot::abi as hotspot;
use libbpf_rs::libbpf_sys;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use rustc_hash::FxHashSet;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, fence};

fn refused(what: &'static str) -> impl Fn(libbpf_rs::Error) -> SinkError {
    move |error| SinkError {
        what,
        source: io::Error::other(error),
    }
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
    /// Processes with a VM in `hotspots`.
    with_vm: FxHashSet<u32>,
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
            with_vm: FxHashSet::default(),
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
        // The kernel programs may have removed it at an exec.
        let _ = self.maps.procs.delete(&tgid.to_ne_bytes());
        if self.with_vm.remove(&tgid) {
            let _ = self.maps.hotspots.delete(&tgid.to_ne_bytes());
        }
    }

    fn put_hotspot(&mut self, tgid: u32, vm: &hotspot::Proc) -> Result<(), SinkError> {
        self.with_vm.insert(tgid);
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
