//! The VM of one process.

use std::{collections::HashMap, sync::Arc};

use super::{
    Item,
    abi::{Heap, MAX_BLOB_OFFSET, MAX_HEAPS, Proc},
    code::Compiled,
    facts::Facts,
    locks::{JavaThread, MonitorOffsets},
    method::Method,
    operations::Symbols,
    parking::ParkingOffsets,
    structs::{Layout, PageCache, Tables},
};
use crate::runtime::{Refusal, memory::Memory};

/// Maximum cached methods, and cached compiled methods.
const MAX_CACHED: usize = 1 << 16;
/// Maximum cached compiled methods of one compile id.
const MAX_CACHED_OF_ID: usize = 64;
/// Maximum bytes of a stub's name.
const MAX_NAME_BYTES: usize = 96;
/// Equal to `HS_MAX_SEGMENT_STEPS` of `hotspot_core.h`.
const MAX_SEGMENT_STEPS: usize = 24;

/// Reason why a frame has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Miss {
    /// The memory is gone, or its content has the wrong type.
    Unreadable,
    /// Other code has replaced the code that ran.
    Changed,
}

/// A method, at one line.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The method.
    pub method: Arc<Method>,
    /// The line; 0: unknown.
    pub line: u32,
}

/// The VM of one process: the location of its code, and the layout of its structures.
pub struct Vm {
    /// Parameters of the walk.
    pub proc: Proc,
    /// The VM's own version text: `17.0.15+6-Debian-1deb12u1`.
    pub version: String,
    pub(super) layout: Layout,
    /// The smallest byte of its numbers (see `number`).
    pub(super) first: u8,
    /// First instruction of the code to which the outermost thawed frame of a virtual thread
    /// returns; empty: unknown.
    barrier: Vec<u8>,
    /// Stubs by the address of their first instruction, with the VM's names.
    stubs: Vec<(u64, String)>,
    /// Address of the pointer to its counters, and the counters' addresses once known.
    pub(super) counters_at: Option<u64>,
    pub(super) counters: Option<[u64; 4]>,
    /// Offsets for monitors, if its tables have them; with the last list of threads and that list's
    /// state.
    pub(super) locks: Option<MonitorOffsets>,
    /// Offsets for parked-for objects, if its tables have them.
    pub(super) objects: Option<ParkingOffsets>,
    pub(super) threads: Vec<JavaThread>,
    pub(super) thread_list: u64,
    /// Names of the places that collectors stop threads at, and the difference of addresses to the file's.
    pub(super) safepoints: Option<(Arc<Symbols>, u64)>,
    methods: HashMap<u64, (u64, Arc<Method>)>,
    /// Methods by compile id: several if loops of a method are numbered separately.
    pub(super) compiled: HashMap<u32, Vec<Compiled>>,
}

/// A VM's description of itself, read before the VM can be.
pub struct Opening {
    pub(super) tables: Tables,
    layout: Layout,
    pub(super) version: String,
    safepoints: Option<(Arc<Symbols>, u64)>,
}

impl Opening {
    /// Reads the description in a process that maps the file of `facts` with load bias `bias`.
    /// `None`: it is not there yet.
    ///
    /// # Errors
    /// If it lacks a field. While the file is still being loaded, the field may yet appear.
    pub fn read(
        facts: &Facts,
        bias: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Option<Opening>, Refusal> {
        let mut pages = PageCache::new(read);
        let Some(tables) = Tables::read(facts, bias, &mut pages) else {
            return Ok(None);
        };
        let version = tables
            .get("Abstract_VM_Version", "_s_vm_release")
            .and_then(|at| pages.word(at))
            .and_then(|at| pages.text(at))
            .unwrap_or_default();
        let layout = Layout::of(&tables).map_err(|why| refuse(&version, why))?;
        Ok(Some(Opening {
            tables,
            layout,
            version,
            safepoints: facts.safepoints.clone().map(|s| (s, bias)),
        }))
    }
}

fn refuse(version: &str, why: String) -> Refusal {
    Refusal {
        what: format!("HotSpot {version}"),
        why,
    }
}

impl Vm {
    /// Opens the VM that `opening` describes. `None`: it is not ready yet.
    ///
    /// # Errors
    /// If the VM has an unknown layout.
    pub fn open(
        opening: &Opening,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Option<Vm>, Refusal> {
        let Opening {
            tables,
            layout,
            version,
            safepoints,
        } = opening;
        let mut memory = Memory(read);
        let Some(proc) = code(layout, tables, &mut memory) else {
            return Ok(None);
        };
        let proc = proc.map_err(|why| refuse(version, why))?;
        let mut stubs: Vec<(u64, String)> = tables
            .all("StubRoutines")
            .filter_map(|(name, at)| Some((memory.word(at)?, name)))
            .filter(|(at, _)| proc.owns(*at))
            .map(|(at, name)| (at, name.trim_start_matches('_').to_owned()))
            .collect();
        stubs.sort();
        stubs.dedup_by_key(|(at, _)| *at);
        let major: String = version.chars().take_while(char::is_ascii_digit).collect();
        let major = major.parse::<u32>().unwrap_or(0);
        let first = u8::from(major >= 20);
        Ok(Some(Vm {
            proc,
            version: version.clone(),
            layout: layout.clone(),
            first,
            barrier: barrier(tables.get("JavaThread", "_cont_entry"), major),
            stubs,
            counters_at: tables.get("PerfMemory", "_start"),
            counters: None,
            locks: MonitorOffsets::of(tables, &mut memory),
            objects: ParkingOffsets::of(tables, major, &mut memory),
            threads: Vec::new(),
            thread_list: 0,
            safepoints: safepoints.clone(),
            methods: HashMap::new(),
            compiled: HashMap::new(),
        }))
    }

    /// Returns the Java methods of a frame, innermost first; none for a frame that is not Java's.
    ///
    /// # Errors
    /// The reason for the miss; no other errors.
    pub fn scopes(
        &mut self,
        item: &Item,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Result<Vec<Scope>, Miss> {
        let mut memory = Memory(read);
        match *item {
            Item::Native(_) | Item::Script { .. } => Ok(Vec::new()),
            Item::Compiled(word, id) => self.compiled_scopes(word, id, &mut memory),
            Item::Interpreted { method, bcp } => {
                let method = self.method(method, &mut memory).ok_or(Miss::Unreadable)?;
                let line = method.bci(bcp).map_or(0, |bci| method.line_at(bci));
                Ok(vec![Scope { method, line }])
            }
        }
    }

    /// Whether the frame that returns to `address` has callers that the VM left in the heap. A
    /// waiting virtual thread's stack lies there. Such a stack lacks these frames, up to the
    /// carrier's.
    pub fn is_left_in_heap(
        &self,
        address: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> bool {
        let mut code = [0u8; MAX_BARRIER_BYTES];
        let length = self.barrier.len();
        length > 0
            && Memory(read).bytes(address, &mut code[..length]).is_some()
            && code[..length] == self.barrier
    }

    /// The VM's name for its code at `address`: `StubRoutines (1): call_stub_entry`.
    pub fn stub(
        &self,
        address: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<String> {
        let mut memory = Memory(read);
        let blob = self.blob(address, &mut memory)?;
        let name = memory.word(blob + self.layout.blob.name)?;
        let mut text = [0u8; MAX_NAME_BYTES];
        memory.bytes(name, &mut text)?;
        let length = text.iter().position(|b| *b == 0)?;
        let name = std::str::from_utf8(&text[..length]).ok()?;
        if name.is_empty() || name.chars().any(char::is_control) {
            return None;
        }
        let before = self.stubs.partition_point(|(at, _)| *at <= address);
        let inner = before.checked_sub(1).map(|i| &self.stubs[i]);
        Some(match inner {
            Some((at, stub)) if name.starts_with("StubRoutines") && *at > blob => {
                format!("{name}: {stub}")
            }
            _ => name.to_owned(),
        })
    }

    /// Returns the method at `address`. A cached one is valid while it has the same bytecode.
    pub(super) fn method(&mut self, address: u64, memory: &mut Memory<'_>) -> Option<Arc<Method>> {
        if address == 0 || !address.is_multiple_of(8) {
            return None;
        }
        let now = memory.word(address.checked_add(self.layout.method.constant)?)?;
        if let Some((code, method)) = self.methods.get(&address)
            && *code == now
        {
            return Some(Arc::clone(method));
        }
        let method = Method::read(&self.layout, self.first, address, memory)?;
        let method = Arc::new(method);
        if self.methods.len() >= MAX_CACHED {
            self.methods.clear();
        }
        self.methods.insert(address, (now, Arc::clone(&method)));
        Some(method)
    }

    /// Finds the blob that contains `address`.
    pub(super) fn blob(&self, address: u64, memory: &mut Memory<'_>) -> Option<u64> {
        let mut heaps = self.proc.heap.iter();
        let heap = heaps.find(|h| (h.low..h.high).contains(&address))?;
        let mut segment = (address - heap.low) >> self.proc.segment_shift;
        for _ in 0..MAX_SEGMENT_STEPS {
            let mut back = [0u8];
            memory.bytes(heap.segmap + segment, &mut back)?;
            match back[0] {
                0 => {
                    let start = heap.low + (segment << self.proc.segment_shift);
                    return Some(start + u64::from(self.proc.header));
                }
                0xff => return None,
                back => segment = segment.checked_sub(back.into())?,
            }
        }
        None
    }

    /// Caches the debug data of compilation `id`; returns its index among those with this id.
    pub(super) fn keep(&mut self, id: u32, compiled: Compiled) -> usize {
        if self.compiled.len() >= MAX_CACHED {
            self.compiled.clear();
        }
        let all = self.compiled.entry(id).or_default();
        if all.len() >= MAX_CACHED_OF_ID {
            all.clear();
        }
        all.push(compiled);
        all.len() - 1
    }
}

/// Maximum bytes of the instruction that [`barrier`] returns.
const MAX_BARRIER_BYTES: usize = 7;
/// First JDK version with virtual threads.
const FIRST_VIRTUAL: u32 = 21;

/// The first instruction of the code behind thawed frames. It restores the carrier's stack pointer,
/// which is at `entry` in the VM's record of the thread; no other code does so. If the VM does not
/// export `entry`, the result is the instruction's prefix for all but the smallest offsets. Empty:
/// the VM has no such code.
fn barrier(entry: Option<u64>, major: u32) -> Vec<u8> {
    // mov entry(%r15), %rsp
    let Some(entry) = entry else {
        return match major >= FIRST_VIRTUAL {
            true => vec![0x49, 0x8b, 0xa7],
            false => Vec::new(),
        };
    };
    match (i8::try_from(entry), i32::try_from(entry)) {
        (Ok(near), _) => vec![0x49, 0x8b, 0x67, near as u8],
        (_, Ok(far)) => [&[0x49, 0x8b, 0xa7][..], &far.to_le_bytes()].concat(),
        _ => Vec::new(),
    }
}

/// Reads the location of the VM's code; `None`: not ready yet.
fn code(l: &Layout, tables: &Tables, memory: &mut Memory<'_>) -> Option<Result<Proc, String>> {
    let small = |offset: u64| {
        u16::try_from(offset)
            .ok()
            .filter(|o| u64::from(*o) <= MAX_BLOB_OFFSET)
    };
    let mut proc = Proc {
        offsets: l.blob.by_offsets.into(),
        ..Proc::default()
    };
    let places = [
        (&mut proc.blob_name, l.blob.name),
        (&mut proc.blob_begin, l.blob.begin),
        (&mut proc.blob_end, l.blob.end),
        (&mut proc.blob_frame_size, l.blob.frame_size),
        (&mut proc.blob_complete, l.blob.complete),
        (&mut proc.method_deopt, l.compiled.deopt),
        (&mut proc.method_orig_pc, l.compiled.orig_pc),
        (&mut proc.method_id, l.compiled.id),
    ];
    for (to, offset) in places {
        match small(offset) {
            Some(offset) => *to = offset,
            None => {
                return Some(Err(format!(
                    "a compiled method's head is longer than {MAX_BLOB_OFFSET} bytes"
                )));
            }
        }
    }
    let Ok(header) = u8::try_from(l.heap.header) else {
        return Some(Err("its heaps of code are of an unknown kind".into()));
    };
    proc.header = header;
    let array = memory.word(tables.get("CodeCache", "_heaps")?)?;
    let n = memory.half(array.checked_add(l.array.length)?)? as usize;
    let data = memory.word(array.checked_add(l.array.data)?)?;
    if n == 0 {
        return None;
    }
    if n > MAX_HEAPS {
        return Some(Err(format!("it has {n} heaps of code")));
    }
    for i in 0..n {
        let heap = memory.word(data.checked_add(8 * i as u64)?)?;
        let memory_at = heap.checked_add(l.heap.memory)?;
        let segmap = heap.checked_add(l.heap.segmap)?;
        proc.heap[i] = Heap {
            low: memory.word(memory_at + l.heap.low)?,
            high: memory.word(memory_at + l.heap.high)?,
            segmap: memory.word(segmap + l.heap.low)?,
        };
        proc.segment_shift = memory.half(heap + l.heap.shift)? as u8;
        let h = &proc.heap[i];
        if h.low == 0 || h.high <= h.low || h.segmap == 0 || !(4..=20).contains(&proc.segment_shift)
        {
            return None;
        }
    }
    let heaps = &proc.heap[..n];
    proc.low = heaps.iter().map(|h| h.low).min()?;
    proc.high = heaps.iter().map(|h| h.high).max()?;
    Some(Ok(proc))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_to_a_carrier_s_stack_is_known_by_its_code() {
        // As in JDK 25: mov 0x618(%r15), %rsp
        let said = |entry| barrier(Some(entry), 25);
        assert_eq!(said(1560), [0x49, 0x8b, 0xa7, 0x18, 0x06, 0, 0]);
        assert_eq!(said(0x40), [0x49, 0x8b, 0x67, 0x40]);
        assert_eq!(said(u64::MAX), [0u8; 0]);
        // JDK 21 does not export the offset.
        assert_eq!(barrier(None, 21), [0x49, 0x8b, 0xa7]);
        assert_eq!(barrier(None, 17), [0u8; 0]);
    }
}
