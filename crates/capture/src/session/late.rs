//! Stacks that the kernel programs could not unwind, because the code they ran through was too new:
//! a program that has just begun, a library that has just been opened.
//!
//! Their registers and up to 28 KiB of stack were copied as they were. Once measuring is over they
//! are unwound by the same steps in user space, with the mappings that there were when the copy was
//! taken. Those of processes with a Java VM are not put off that long: what the VM keeps about its
//! code goes with it. So that no program can fill our memory, copies are rationed.

use std::{collections::BTreeMap, sync::Arc};

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_model::StackEnd;
use wallscope_unwind::native::{
    MemoryTables, Registers, TableSink, TableStore, Unwinder, Unwound,
    abi::{End, FILES},
};
use zerocopy::FromBytes;

use super::{estimator::UserStack, files::Files, intake::Intake, managed::Managed, space::Mapped};
use crate::{
    event::{Head, RawHead, Resolve, kind},
    target::read_memory,
};

/// Most copies of one recording (some 10 MB).
pub const MOST: usize = 2000;
/// Copies that the kernel programs may send between two looks.
pub const RATION: u64 = 256;

/// Bytes of stack that a copy may have (`WS_RAW_BYTES`): the last page is copied only if all of it fits.
const BYTES: usize = 28 * 1024;
const PAGE: u64 = 4096;

/// A process's mappings at one moment.
pub type Snapshot = Arc<BTreeMap<u64, Mapped>>;

/// A stack as it was.
pub struct Raw {
    head: RawHead,
    bytes: Box<[u8]>,
    /// What its process had mapped; `None` until the session has looked, and where that is unknown.
    pub mappings: Option<Snapshot>,
}

impl Raw {
    /// Reads a `struct ws_raw`.
    pub fn parse(bytes: &[u8]) -> Option<Raw> {
        let (head, rest) = RawHead::read_from_prefix(bytes).ok()?;
        let bytes = rest.get(..head.len as usize)?.into();
        Some(Raw {
            head,
            bytes,
            mappings: None,
        })
    }

    /// Says that it will not be unwound.
    pub fn given_up(&self) -> Resolve {
        Resolve {
            head: Head {
                kind: kind::RESOLVE,
                size: size_of::<Resolve>() as u32,
            },
            id: self.head.id,
            ticket: self.head.ticket,
            ustack: 0,
            futex: 0,
        }
    }

    /// When it was taken, ns.
    pub fn time(&self) -> u64 {
        self.head.time
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.head.pid
    }

    fn registers(&self) -> Registers {
        let [
            r15,
            r14,
            r13,
            r12,
            bp,
            bx,
            r11,
            r10,
            r9,
            r8,
            ax,
            cx,
            dx,
            si,
            di,
            _,
            ip,
            _,
            _,
            sp,
            _,
        ] = self.head.regs;
        Registers {
            ip,
            general: [
                ax, dx, cx, bx, si, di, bp, sp, r8, r9, r10, r11, r12, r13, r14, r15,
            ],
        }
    }

    /// Whether the copy is as long as they get, and `address` lies above it.
    fn is_beyond(&self, address: u64) -> bool {
        let end = self.head.start.saturating_add(self.bytes.len() as u64);
        self.bytes.len() > BYTES - PAGE as usize && address >= end
    }

    /// Copies what there is from `address` on, up to a page that could not be read.
    fn read(&self, address: u64, to: &mut [u8]) -> usize {
        let start = self.head.start;
        let Some(from) = address
            .checked_sub(start)
            .and_then(|at| self.bytes.get(at as usize..))
        else {
            return 0;
        };
        let whole = (address / PAGE..).take_while(|page| {
            let index = page - start / PAGE;
            index < 64 && self.head.holes >> index & 1 == 0
        });
        let pages = whole.take(to.len() / PAGE as usize + 2).count() as u64;
        let there = (pages * PAGE).saturating_sub(address % PAGE) as usize;
        let n = from.len().min(to.len()).min(there);
        to[..n].copy_from_slice(&from[..n]);
        n
    }
}

/// Unwinds what was put off, and resolves the tickets it stands for.
pub struct Late {
    store: TableStore<MemoryTables>,
    unwinder: Unwinder,
    /// Each snapshot is a process of its own to this store; kept, so that no two have one address.
    processes: FxHashMap<*const BTreeMap<u64, Mapped>, Process>,
    /// Files that stacks led through, by the store's ids: no others get tables. A program may have mapped hundreds,
    /// and run ten.
    wanted: FxHashSet<u16>,
}

/// A snapshot in the store.
struct Process {
    id: u32,
    /// How many files were wanted when it was put there.
    wanted: usize,
    _kept: Snapshot,
}

impl Late {
    /// Nothing known yet; `None`: there is no memory for it.
    pub fn new() -> Option<Late> {
        Some(Late {
            store: TableStore::new(MemoryTables::new(), u64::MAX).ok()?,
            unwinder: Unwinder::new(),
            processes: FxHashMap::default(),
            wanted: FxHashSet::default(),
        })
    }

    /// Unwinds a copy, and makes the tables that it turns out to need; with it, whether it led beyond what was
    /// copied.
    fn unwind_one<S: TableSink>(
        &mut self,
        raw: &Raw,
        mappings: &Snapshot,
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
        if let Some(vm) = managed.walked(raw.pid()) {
            // Into memory, which does not refuse.
            let _ = self.store.set_hotspot(process.id, &vm);
        }
        loop {
            let mut beyond = false;
            let stack = self.unwinder.unwind_copy(
                self.store.sink(),
                process.id,
                &raw.registers(),
                usize::MAX,
                |address, to| {
                    let n = raw.read(address, to);
                    beyond |= n == 0 && raw.is_beyond(address);
                    n
                },
                // A VM's books, if it still runs.
                |address, to| read_memory(raw.pid(), address, to),
                |address, to| read_memory(raw.pid(), address, to),
            );
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

    /// Unwinds the copies `raws`.
    pub fn unwind<S: TableSink>(
        &mut self,
        raws: &[Raw],
        intake: &mut Intake,
        files: &mut Files<S>,
        managed: &mut Managed,
    ) {
        for raw in raws {
            let Some(mappings) = &raw.mappings else {
                intake.resolve(&raw.given_up());
                continue;
            };
            let (stack, beyond) = self.unwind_one(raw, mappings, files, managed);
            // Apart from the kernel's hashes: there the same words mean other files.
            let hash = stack.hash ^ 0x6c61_7465_6c61_7465;
            let frames: Box<[u64]> = stack.frames.iter().map(|w| w.0).collect();
            managed.name_walked(&frames, raw.pid());
            let stack = UserStack {
                end: match stack.end {
                    End::Unreadable if beyond => StackEnd::WindowEnd,
                    end => end.into(),
                },
                late: true,
                frames,
            };
            intake.unwound(hash, &stack);
            intake.resolve(&Resolve {
                head: Head {
                    kind: kind::RESOLVE,
                    size: size_of::<Resolve>() as u32,
                },
                id: raw.head.id,
                ticket: raw.head.ticket,
                ustack: hash,
                futex: 0,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_page_that_could_not_be_read_is_not_taken_for_zeros() {
        let start = 0x7fff_0000_0f00;
        let mut head = RawHead::new_zeroed();
        head.start = start;
        // The end of a page, one that is missing, and one that is there.
        head.holes = 0b10;
        let bytes: Vec<u8> = (0..0x100 + 0x2000).map(|i| i as u8).collect();
        let raw = Raw {
            head,
            bytes: bytes.clone().into(),
            mappings: None,
        };
        let read = |at: u64, length: usize| {
            let mut to = vec![0; length];
            let n = raw.read(start + at, &mut to);
            assert_eq!(to[..n], bytes[at as usize..][..n]);
            n
        };
        assert_eq!(read(0, 64), 64);
        assert_eq!(read(0, 4096), 0x100);
        assert_eq!(read(0xf8, 64), 8);
        assert_eq!(read(0x100, 64), 0);
        assert_eq!(read(0x10f8, 64), 0);
        assert_eq!(read(0x1100, 4096), 4096);
        assert_eq!(read(0x20f8, 64), 8);
        assert_eq!(read(0x2100, 64), 0);
        assert_eq!(raw.read(start - 8, &mut [0; 8]), 0);
        // Shorter than it might be: there was no more.
        assert!(!raw.is_beyond(start + 0x2100));
        let whole = Raw {
            head,
            bytes: vec![0; BYTES - 0x700].into(),
            mappings: None,
        };
        let end = start + (BYTES - 0x700) as u64;
        assert!(whole.is_beyond(end) && !whole.is_beyond(end - 8));
    }
}
