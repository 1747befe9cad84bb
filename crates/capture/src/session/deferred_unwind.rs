//! Stacks that the kernel programs could not unwind, because the code they ran through was too new: a program
//! that has just begun, a library that has just been opened.
//!
//! Their registers and up to 28 KiB of stack were copied as they were. Once measuring is over, the same steps
//! unwind them in user space, with the mappings at the time of the copy. Copies from processes with a Java VM
//! are unwound earlier: what the VM keeps about its code disappears with it. Copies are rationed, so that no
//! program can fill our memory.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::StackEnd;
use wallscope_unwind::native::{
    CopiedMemory, MemoryTables, StackStart, TableSink, TableStore, Unwinder, Unwound,
    abi::{End, FILES},
};

use super::{
    copied_stack::CopiedStack,
    files::Files,
    managed::Managed,
    mappings::{Mapped, MappingSnapshot},
    unwound::{Unwinding, UserStack},
};
use crate::{event::Resolve, target::read_memory};

/// Most copies of one recording (some 10 MB).
pub const MOST: usize = 2000;
/// Most copies that a session in windows keeps at a time (some 2 MB). It unwinds those of processes with a VM
/// alone, as tables for the others would double the memory of unwinding.
pub const MOST_IN_WINDOW: usize = 256;
/// Copies that the kernel programs may send until the session allows more.
pub const RATION: u64 = 256;

/// Choice of the copies that are to be unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Copies from processes with a VM: what the VM knows of its code disappears with the process.
    CannotWait,
    /// All: measuring is over.
    All,
}

/// Result of unwinding one copy.
pub struct Deferred {
    /// The answer to its ticket, with the hash of its stack; 0: there is none.
    pub resolve: Resolve,
    /// That stack.
    pub stack: Option<UserStack>,
}

/// Unwinds copied stacks by tables of its own.
pub struct DeferredUnwinder {
    store: TableStore<MemoryTables>,
    unwinder: Unwinder,
    /// Each mapping snapshot is a process of its own to this store. The snapshots are kept, so that no two have one
    /// address.
    processes: FxHashMap<*const BTreeMap<u64, Mapped>, Process>,
    /// Files that stacks led through, by the store's ids: no others get tables. A program may have mapped hundreds,
    /// and run ten.
    wanted: FxHashSet<u16>,
}

/// A mapping snapshot in the store.
struct Process {
    id: u32,
    /// Number of wanted files when it was put there.
    wanted: usize,
    _kept: MappingSnapshot,
}

impl DeferredUnwinder {
    /// Nothing known yet; `None`: there is no memory for it.
    pub fn new() -> Option<DeferredUnwinder> {
        Some(DeferredUnwinder {
            store: TableStore::new(MemoryTables::new(), u64::MAX).ok()?,
            unwinder: Unwinder::new(),
            processes: FxHashMap::default(),
            wanted: FxHashSet::default(),
        })
    }

    /// Unwinds a copy and makes the tables that it turns out to need. Also returns whether the stack led
    /// beyond the copied memory.
    fn unwind_one<S: TableSink>(
        &mut self,
        copy: &CopiedStack,
        mappings: &MappingSnapshot,
        files: &mut Files<S>,
        managed: &Managed,
    ) -> (Unwound, bool) {
        let next = self.processes.len() as u32 + 1;
        let process = self.processes.entry(Arc::as_ptr(mappings));
        let process = process.or_insert_with(|| Process {
            id: next,
            wanted: 0,
            _kept: Arc::clone(mappings),
        });
        if process.id == next {
            files.install_late(&mut self.store, next, mappings, &self.wanted);
            process.wanted = self.wanted.len();
        }
        if let Some(vm) = managed.walked(copy.pid()) {
            // This store lies in memory and does not refuse.
            let _ = self.store.set_hotspot(process.id, &vm);
        }
        loop {
            let mut beyond = false;
            let registers = copy.registers();
            let start = StackStart::new(process.id, &registers);
            let memory = CopiedMemory {
                stack: |address, to: &mut [u8]| {
                    let n = copy.read(address, to);
                    beyond |= n == 0 && copy.is_beyond(address);
                    n
                },
                // If the VM still runs.
                beside: |address, to: &mut [u8]| read_memory(copy.pid(), address, to),
                code: |address, to: &mut [u8]| {
                    copy.read_code(address, to, |to| read_memory(copy.pid(), address, to))
                },
            };
            let stack = self.unwinder.unwind_copy(self.store.sink(), start, memory);
            let last = stack.frames.last().map(|frame| frame.file());
            let lacks = last.filter(|f| stack.end == End::NotLoaded && (1..FILES).contains(f));
            let Some(file) = lacks else {
                return (stack, beyond);
            };
            // Wanted before by another snapshot, it is here now, or cannot be had.
            if !self.wanted.insert(file) && process.wanted == self.wanted.len() {
                return (stack, beyond);
            }
            files.install_late(&mut self.store, process.id, mappings, &self.wanted);
            process.wanted = self.wanted.len();
        }
    }

    /// Unwinds `copies`, one after the other.
    pub fn unwind<S: TableSink>(
        &mut self,
        copies: &[CopiedStack],
        files: &mut Files<S>,
        managed: &mut Managed,
    ) -> Vec<Deferred> {
        let mut unwound = Vec::with_capacity(copies.len());
        for copy in copies {
            let Some(mappings) = &copy.mappings else {
                unwound.push(Deferred {
                    resolve: copy.given_up(),
                    stack: None,
                });
                continue;
            };
            let (stack, beyond) = self.unwind_one(copy, mappings, files, managed);
            // This keeps it apart from the hashes of the kernel programs, in which equal words mean other files.
            let hash = stack.hash ^ 0x6c61_7465_6c61_7465;
            let frames: Box<[u64]> = stack.frames.iter().map(|w| w.0).collect();
            managed.name_walked(&frames, copy.pid());
            let end = match stack.end {
                End::Unreadable if beyond => StackEnd::WindowEnd,
                end => end.into(),
            };
            unwound.push(Deferred {
                resolve: copy.resolved(hash),
                stack: Some(UserStack {
                    end,
                    unwinding: Unwinding::Deferred,
                    frames,
                }),
            });
        }
        unwound
    }
}
