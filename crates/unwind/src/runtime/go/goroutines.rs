//! Takes a snapshot of all goroutines of a running process.
//!
//! The first goroutine reveals the layout. It points to itself where its registers are saved, it
//! started with `runtime.main`, and its id is 1 behind a valid status. A stack read during a change
//! does not end in a goroutine's first function. Such a stack is left out and counted.

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_binfmt::gopclntab::Pclntab;

use super::{Facts, labels};
use crate::runtime::{
    Facts as AnyFacts,
    tasks::{Label, Memory, Task, TaskReader, TaskSnapshot, TaskStatus},
};

/// Maximum goroutines, and maximum frames of each.
const MAX_GOROUTINES: u64 = 1 << 18;
const MAX_FRAMES: usize = 256;
/// Bytes of a goroutine that contain all fields, and bytes of its stack per read.
const GOROUTINE_BYTES: usize = 512;
const STACK_BYTES: usize = 2048;
/// Offsets of the saved registers in a goroutine. They are fixed: the linker knows the fields
/// before them.
const SP_OFFSET: usize = 56;
const SELF_OFFSET: usize = 72;
/// From the id to the wait reason, and from the start function to the labels, bytes.
const REASON_FROM_NUMBER: usize = 24;
const LABELS_FROM_START: usize = 48;
/// Status bit: the collector is scanning its stack.
const STATUS_SCAN_BIT: u32 = 0x1000;

/// Offsets in a goroutine, and the address of the list of goroutines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GoroutineOffsets {
    list: u64,
    status: usize,
    id: usize,
    start: usize,
}

/// Snapshots of the goroutines of one process.
pub struct Goroutines {
    /// Load bias of its addresses.
    bias: u64,
    offsets: Option<GoroutineOffsets>,
    /// Bytes to the caller's stack pointer by return address; `None` inside: no caller.
    known: FxHashMap<u64, Option<Option<u64>>>,
    broken: u64,
}

/// The snapshots together with the facts about the program.
struct SnapshotReader<'l, 'f> {
    own: &'l mut Goroutines,
    facts: &'f Facts,
    table: Pclntab<'f>,
}

impl Goroutines {
    /// Creates a value for a process with load bias `bias`.
    pub fn new(bias: u64) -> Goroutines {
        Goroutines {
            bias,
            offsets: None,
            known: FxHashMap::default(),
            broken: 0,
        }
    }
}

fn go_facts(facts: &AnyFacts) -> Option<&Facts> {
    match facts {
        AnyFacts::Go(facts) => Some(facts),
        _ => None,
    }
}

impl TaskReader for Goroutines {
    fn snapshot(&mut self, facts: &AnyFacts, memory: &mut dyn Memory) -> TaskSnapshot {
        let snapshot = go_facts(facts).and_then(|facts| {
            let table = facts.functions()?;
            SnapshotReader {
                own: self,
                facts,
                table,
            }
            .snapshot(memory)
        });
        snapshot.map_or(TaskSnapshot::Lost, TaskSnapshot::Tasks)
    }

    fn labels(&mut self, _: &AnyFacts, memory: &mut dyn Memory, task: &Task) -> Vec<Label> {
        match task.labels {
            0 => Vec::new(),
            address => labels::read(memory, address),
        }
    }

    fn name(&self, facts: &AnyFacts, start: u64) -> String {
        let table = go_facts(facts).and_then(Facts::functions);
        let function = table.as_ref().and_then(|t| t.at(start));
        let name = function.map_or(&b""[..], |f| f.name());
        String::from_utf8_lossy(name).into_owned()
    }

    fn broken(&self) -> u64 {
        self.broken
    }
}

impl SnapshotReader<'_, '_> {
    /// All goroutines except dead ones; `None` if they cannot be found (yet).
    fn snapshot(&mut self, memory: &mut dyn Memory) -> Option<Vec<Task>> {
        let offsets = match self.own.offsets {
            Some(offsets) => offsets,
            None => {
                let found = self.find_offsets(memory)?;
                *self.own.offsets.insert(found)
            }
        };
        let list = read_pointers(memory, offsets.list)?;
        let wanted: Vec<_> = list.iter().map(|g| (*g, GOROUTINE_BYTES)).collect();
        let mut heads = vec![0u8; wanted.len() * GOROUTINE_BYTES];
        let readable = memory.read_all(&wanted, &mut heads);
        let mut all = Vec::new();
        let mut parked = Vec::new();
        for (head, readable) in heads.chunks_exact(GOROUTINE_BYTES).zip(readable) {
            let Some((task, sp, pc)) = self.read_goroutine(&offsets, head).filter(|_| readable)
            else {
                continue;
            };
            if task.status != TaskStatus::Running {
                let end = word(head, 8);
                let bytes = (end.wrapping_sub(sp)).min(STACK_BYTES as u64) as usize & !7;
                let aligned = sp % 8 == 0 && bytes > 0;
                parked.push((all.len(), sp, pc, if aligned { bytes } else { 0 }));
            }
            all.push(task);
        }
        let wanted: Vec<_> = parked.iter().map(|p| (p.1, p.3)).collect();
        let mut stacks = vec![0u8; wanted.iter().map(|w| w.1).sum()];
        let readable = memory.read_all(&wanted, &mut stacks);
        let mut from = 0;
        for ((index, sp, pc, bytes), readable) in parked.into_iter().zip(readable) {
            let here = &stacks[from..from + bytes];
            from += bytes;
            if readable && bytes > 0 {
                all[index].stack = self.walk(memory, pc, sp, here);
            }
            self.own.broken += u64::from(all[index].stack.is_none());
        }
        Some(all)
    }

    fn find_offsets(&self, memory: &mut dyn Memory) -> Option<GoroutineOffsets> {
        let main = self.facts.main.wrapping_add(self.own.bias);
        let found = self.facts.lists.iter().filter_map(|list| {
            let list = list.wrapping_add(self.own.bias);
            let all = read_pointers(memory, list)?;
            // Other pointers to these goroutines are not followed by a length.
            let wanted: Vec<_> = all.iter().map(|g| (g + SELF_OFFSET as u64, 8)).collect();
            let mut own = vec![0u8; 8 * all.len()];
            let readable = memory.read_all(&wanted, &mut own);
            let mut selves = all.iter().zip(own.chunks_exact(8));
            let distinct: FxHashSet<u64> = all.iter().copied().collect();
            if readable.contains(&false)
                || !selves.all(|(g, own)| word(own, 0) == *g)
                || distinct.len() != all.len()
            {
                return None;
            }
            let mut head = [0u8; GOROUTINE_BYTES];
            if !memory.read(*all.first()?, &mut head) {
                return None;
            }
            let find_offsets = |wanted: &dyn Fn(usize) -> bool, from: usize| {
                (from..GOROUTINE_BYTES - 64)
                    .step_by(8)
                    .find(|at| wanted(*at))
            };
            let start = find_offsets(&|at| word(&head, at) == main, SELF_OFFSET)?;
            let status = |at| half(&head, at) & !STATUS_SCAN_BIT;
            let id = find_offsets(
                &|at| word(&head, at) == 1 && (1..=9).contains(&status(at - 8)),
                SELF_OFFSET + 40,
            )?;
            let offsets = GoroutineOffsets {
                list,
                status: id - 8,
                id,
                start,
            };
            Some((all.len(), offsets))
        });
        found.max_by_key(|(n, _)| *n).map(|(_, offsets)| offsets)
    }

    /// A goroutine, its stack pointer and its instruction pointer; `None` if it has ended.
    fn read_goroutine(&self, p: &GoroutineOffsets, head: &[u8]) -> Option<(Task, u64, u64)> {
        let status = match half(head, p.status) & !STATUS_SCAN_BIT {
            1 | 9 => TaskStatus::Runnable,
            2 | 8 => TaskStatus::Running,
            3 => TaskStatus::Syscall,
            4 => TaskStatus::Waiting(head[p.id + REASON_FROM_NUMBER].into()),
            _ => return None,
        };
        let task = Task {
            id: word(head, p.id),
            start: word(head, p.start).wrapping_sub(self.own.bias),
            status,
            stack: None,
            labels: word(head, p.start + LABELS_FROM_START),
        };
        Some((task, word(head, SP_OFFSET), word(head, SP_OFFSET + 8)))
    }

    /// Return addresses from `pc` on; `here` is the part of the stack from `sp` on that has been
    /// read.
    fn walk(
        &mut self,
        memory: &mut dyn Memory,
        mut pc: u64,
        mut sp: u64,
        here: &[u8],
    ) -> Option<Vec<u64>> {
        let mut stack = Vec::new();
        let (mut base, mut bytes) = (sp, std::borrow::Cow::Borrowed(here));
        while stack.len() < MAX_FRAMES {
            let address = pc.wrapping_sub(self.own.bias);
            stack.push(address);
            let Some(caller_distance) = self.caller_distance(address)? else {
                return Some(stack);
            };
            sp = sp.checked_add(caller_distance)?;
            let slot = sp.checked_sub(8)?;
            let mut at = usize::try_from(slot.checked_sub(base)?).ok()?;
            if at + 8 > bytes.len() {
                // Read deep stacks further, up to a page at a time.
                let room = 4096 - (slot % 4096) as usize;
                let mut more = vec![0u8; room.max(8)];
                if !memory.read(slot, &mut more) {
                    return None;
                }
                (base, bytes, at) = (slot, more.into(), 0);
            }
            pc = word(&bytes, at);
        }
        Some(stack)
    }

    /// Distance to the caller's stack pointer at return address `pc`: `None`: unknown;
    /// `Some(None)`: no caller.
    fn caller_distance(&mut self, pc: u64) -> Option<Option<u64>> {
        let table = &self.table;
        *self.own.known.entry(pc).or_insert_with(|| {
            // A goroutine that has not run yet is at its function's first instruction.
            let inside = table.at(pc).filter(|f| f.entry == pc);
            let function = inside.or_else(|| table.at(pc.wrapping_sub(1)))?;
            if function.is_top() || function.name() == b"runtime.goexit" {
                return Some(None);
            }
            let at = if function.entry == pc { pc } else { pc - 1 };
            let depth = function.depths().find(|s| s.end > at)?;
            u64::try_from(depth.value).ok().map(|d| Some(d + 8))
        })
    }
}

/// Reads the pointers of a slice at `address`.
fn read_pointers(memory: &mut dyn Memory, address: u64) -> Option<Vec<u64>> {
    let mut slice = [0u8; 24];
    if !memory.read(address, &mut slice) {
        return None;
    }
    let (first, length, capacity) = (word(&slice, 0), word(&slice, 8), word(&slice, 16));
    if first == 0 || first % 8 != 0 || length == 0 || length > capacity {
        return None;
    }
    let mut bytes = vec![0u8; 8 * length.min(MAX_GOROUTINES) as usize];
    let readable = memory.read(first, &mut bytes);
    let all = bytes.chunks_exact(8).map(|w| word(w, 0));
    readable.then(|| all.filter(|g| *g != 0 && g % 8 == 0).collect())
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}
