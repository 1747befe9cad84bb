//! Stacks that the kernel programs could not unwind, because the code they ran through was too new: a program
//! that has just begun, a library that has just been opened.
//!
//! Their registers and up to 28 KiB of stack were copied as they were. Once measuring is over, the same steps
//! unwind them in user space, with the mappings at the time of the copy. Copies from processes with a Java VM
//! are unwound earlier: the VM's notes about its code disappear with it. So are the oldest copies where very many
//! wait. Copies are rationed, so that no program can fill our memory.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::StackEnd;
use wallscope_unwind::native::{
    CopiedMemory, MemoryTables, StackStart, TableSink, TableStore, Unwinder, Unwound,
    abi::{End, FILES},
};

use super::{
    copied_stack::CopiedStack,
    files::{Files, LateTables},
    managed::Managed,
    mappings::{Mapped, MappingSnapshot},
    unwound::{Unwinding, UserStack},
};
use crate::{event::Resolve, target::read_memory};

/// Most copies that a recording keeps at a time (some 10 MB).
pub const MAX_COPIES: usize = 2000;
/// Most copies that a session in windows keeps at a time (some 2 MB). It unwinds those of processes with a VM
/// alone, as tables for the others would double the memory of unwinding.
pub const MAX_COPIES_IN_WINDOW: usize = 256;
/// Copies that wait before the oldest of them are unwound: beside the programs of a script they are few.
const UNWIND_FROM: usize = MAX_COPIES / 4;
/// Copies that are unwound in one turn then: other events wait meanwhile.
const IN_ONE_TURN: usize = 8;
/// Copies that the kernel programs may send until the session allows more.
pub const RATION: u64 = 256;

/// Choice of the copies that are to be unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Copies from processes with a VM: the VM's notes about its code disappear with the process.
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

/// The oldest of `copies`, taken out if there are many.
pub fn take_oldest(copies: &mut Vec<CopiedStack>) -> Vec<CopiedStack> {
    match copies.len() {
        ..UNWIND_FROM => Vec::new(),
        _ => copies.drain(..IN_ONE_TURN).collect(),
    }
}

/// Where the code of copied stacks is found.
pub struct Code<'a, S> {
    /// The files.
    pub files: &'a mut Files<S>,
    /// Managed code.
    pub managed: &'a mut Managed,
    /// Work that cannot wait until tables are built.
    pub meanwhile: &'a mut dyn FnMut(),
}

/// Unwinds copied stacks by tables of its own.
pub struct DeferredUnwinder {
    tables: LateTables,
    unwinder: Unwinder,
    /// Each mapping snapshot is a process of its own to this store. The snapshots are kept, so that no two have one
    /// address.
    processes: FxHashMap<*const BTreeMap<u64, Mapped>, Process>,
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
            tables: LateTables {
                store: TableStore::new(MemoryTables::new(), u64::MAX).ok()?,
                wanted: FxHashSet::default(),
            },
            unwinder: Unwinder::new(),
            processes: FxHashMap::default(),
        })
    }

    /// Unwinds a copy and makes the tables that it turns out to need. Also returns whether the stack led
    /// beyond the copied memory.
    fn unwind_one<S: TableSink>(
        &mut self,
        copy: &CopiedStack,
        mappings: &MappingSnapshot,
        code: &mut Code<'_, S>,
    ) -> (Unwound, bool) {
        let Code {
            files,
            managed,
            meanwhile,
        } = code;
        let tables = &mut self.tables;
        let next = self.processes.len() as u32 + 1;
        let process = self.processes.entry(Arc::as_ptr(mappings));
        let process = process.or_insert_with(|| Process {
            id: next,
            wanted: 0,
            _kept: Arc::clone(mappings),
        });
        if process.id == next {
            files.install_late(tables, next, mappings, meanwhile);
            process.wanted = tables.wanted.len();
        }
        if let Some(vm) = managed.walked(copy.pid()) {
            // This store lies in memory and does not refuse.
            let _ = tables.store.set_hotspot(process.id, &vm);
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
            let stack = self
                .unwinder
                .unwind_copy(tables.store.sink(), start, memory);
            let last = stack.frames.last().map(|frame| frame.file());
            let lacks = last.filter(|f| stack.end == End::NotLoaded && (1..FILES).contains(f));
            let Some(file) = lacks else {
                return (stack, beyond);
            };
            // Wanted before by another snapshot, it is here now, or cannot be had.
            if !tables.wanted.insert(file) && process.wanted == tables.wanted.len() {
                return (stack, beyond);
            }
            files.install_late(tables, process.id, mappings, meanwhile);
            process.wanted = tables.wanted.len();
        }
    }

    /// Forgets the mappings of all processes: copies of most of them come no more.
    pub fn forget(&mut self) {
        for (_, process) in self.processes.drain() {
            self.tables.store.forget_process(process.id);
        }
    }

    /// Unwinds `copies`, one after the other.
    pub fn unwind<S: TableSink>(
        &mut self,
        copies: &[CopiedStack],
        mut code: Code<'_, S>,
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
            let (stack, beyond) = self.unwind_one(copy, mappings, &mut code);
            // This keeps it apart from the hashes of the kernel programs, in which equal words mean other files.
            let hash = stack.hash ^ 0x6c61_7465_6c61_7465;
            let frames: Box<[u64]> = stack.frames.iter().map(|w| w.0).collect();
            code.managed.name_walked(&frames, copy.pid());
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
