//! Places in the VM at which its collectors stop and stall threads.
//!
//! A thread that a safepoint stops waits at one futex, the VM's wait barrier. A thread that asks for an
//! operation waits at the lock of operations, and a thread that wants memory meanwhile at the heap's lock.
//! The VM thread notes the operation that it executes. The class of an operation is known by its virtual
//! table, which the file's symbols name: `VM_G1CollectForAllocation`.
//!
//! The barrier exists from JDK 14 on. A file without symbols (`strip`) names none of these places.

use super::vm::Vm;
use crate::runtime::{Image, memory::Memory};

/// A class of VM operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Virtual address that its objects begin with.
    pub table: u64,
    /// Its name without `VM_`.
    pub name: String,
    /// Whether it collects garbage.
    pub collects: bool,
}

/// Virtual addresses of a file's variables, and the classes of its operations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Symbols {
    variables: [u64; 5],
    operations: Vec<Operation>,
}

/// Names of [`Symbols::variables`].
const VARIABLES: [&str; 5] = [
    "_ZN20SafepointSynchronize13_wait_barrierE",
    "VMOperation_lock",
    "Heap_lock",
    "_ZN8VMThread17_cur_vm_operationE",
    "_ZN8VMThread18_next_vm_operationE",
];

/// Bytes in front of the first function of a virtual table.
const TABLE_HEAD: u64 = 16;

/// Operations that collect garbage, by the beginnings of their names; with the kind of collection.
const COLLECTIONS: &[(&str, &str)] = &[
    ("G1CollectForAllocation", "young"),
    ("G1CollectFull", "full"),
    ("G1TryInitiateConcMark", "young"),
    ("G1PauseRemark", "remark"),
    ("G1PauseCleanup", "cleanup"),
    ("G1Concurrent", "remark"),
    ("CGC_Operation", "remark"),
    ("ParallelGCFailedAllocation", "young"),
    ("ParallelCollectForAllocation", "young"),
    ("ParallelGCSystemGC", "full"),
    ("ParallelGCCollect", "full"),
    ("GenCollectForAllocation", "young"),
    ("GenCollectFull", "full"),
    ("SerialCollectForAllocation", "young"),
    ("SerialGCCollect", "full"),
    ("CollectForMetadataAllocation", "full"),
    ("ZMarkStart", "mark start"),
    ("ZMarkEnd", "mark end"),
    ("ZRelocateStart", "relocate start"),
    ("XMarkStart", "mark start"),
    ("XMarkEnd", "mark end"),
    ("XRelocateStart", "relocate start"),
    ("ShenandoahFullGC", "full"),
    ("ShenandoahDegeneratedGC", "degenerated"),
    ("ShenandoahInitMark", "mark start"),
    ("ShenandoahFinalMark", "mark end"),
    ("ShenandoahInitUpdateRefs", "update start"),
    ("ShenandoahFinalUpdateRefs", "update end"),
    ("ShenandoahFinalRoots", "mark end"),
];

/// Returns the kind of collection of the VM operation `name`; `None`: it collects nothing.
pub fn collection(name: &str) -> Option<&'static str> {
    let row = COLLECTIONS
        .iter()
        .find(|(begin, _)| name.starts_with(begin))?;
    Some(row.1)
}

/// Places in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SafepointPlaces {
    /// Address of the wait barrier.
    pub barrier: u64,
    /// Address of the lock of operations.
    pub operation_lock: u64,
    /// Address of the heap's lock.
    pub heap_lock: u64,
    /// Address of the pointer to the operation that is executed.
    pub current: u64,
    /// Address of the pointer to the operation that was asked for.
    pub next: u64,
    /// Difference of addresses to virtual addresses of the file.
    pub bias: u64,
    /// Addresses of the texts that tell the cause of the present collection and of the last one; 0: none.
    pub causes: [u64; 2],
    /// Addresses of the numbers of collections: young, full, pauses of concurrent ones; 0: none.
    pub collections: [u64; 3],
}

impl Symbols {
    /// Reads the symbols of a file; `None`: it names not all of the variables.
    pub(super) fn of(image: &Image<'_>) -> Option<Symbols> {
        let mut variables = [0; VARIABLES.len()];
        let mut operations = Vec::new();
        for (name, address) in image.variables() {
            if let Some(i) = VARIABLES.iter().position(|v| *v == name) {
                variables[i] = address;
            } else if let Some(name) = operation(name) {
                operations.push(Operation {
                    table: address + TABLE_HEAD,
                    collects: collection(name).is_some(),
                    name: name.to_owned(),
                });
            }
        }
        operations.sort_by_key(|o| o.table);
        let whole = variables.iter().all(|at| *at != 0) && !operations.is_empty();
        whole.then_some(Symbols {
            variables,
            operations,
        })
    }

    /// The classes of operations.
    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }
}

/// Returns the class of VM operations with this symbol of a virtual table, without `VM_`.
fn operation(symbol: &str) -> Option<&str> {
    let rest = symbol.strip_prefix("_ZTV")?;
    let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
    let length: usize = rest[..rest.len() - name.len()].parse().ok()?;
    name.strip_prefix("VM_").filter(|_| name.len() == length)
}

impl Vm {
    /// Returns the places of this process; `None`: the file does not name them, or the VM has not made them
    /// yet.
    pub fn safepoint_places(
        &mut self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<SafepointPlaces> {
        let (symbols, bias) = self.safepoints.as_ref()?;
        let [barrier, operation_lock, heap_lock, current, next] =
            symbols.variables.map(|at| at.wrapping_add(*bias));
        let mut memory = Memory(&mut *read);
        let mut object = |at| memory.word(at).filter(|at| *at != 0);
        let mut places = SafepointPlaces {
            barrier: object(barrier)?,
            operation_lock: object(operation_lock)?,
            heap_lock: object(heap_lock)?,
            current,
            next,
            bias: *bias,
            ..SafepointPlaces::default()
        };
        (places.causes, places.collections) = self.collection_counters(read).unwrap_or_default();
        Some(places)
    }
}

/// Most bytes of a lock's object, of the mutex in front of its condition, and of the barrier, as in
/// `bpf/safepoint.h` of the capture crate.
const LOCK_BYTES: u64 = 128;
const MUTEX_BYTES: u64 = 48;
const BARRIER_BYTES: u64 = 16;

impl Vm {
    /// Whether a thread that waits for `futex` now is stopped or stalled by a collector; `places`: of this
    /// process.
    pub fn collector_stops(
        &self,
        places: &SafepointPlaces,
        futex: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> bool {
        let within = |at: u64, bytes| futex.wrapping_sub(at) < bytes;
        let asks =
            within(places.operation_lock, LOCK_BYTES) || within(places.heap_lock, MUTEX_BYTES);
        if !asks && !within(places.barrier, BARRIER_BYTES) {
            return false;
        }
        let mut memory = Memory(read);
        let mut object = |at| memory.word(at).filter(|at| *at != 0);
        let next = asks.then(|| object(places.next)).flatten();
        let table = (next.or_else(|| object(places.current))).and_then(object);
        let symbols = self.safepoints.as_ref().map(|(symbols, _)| symbols);
        let (Some(table), Some(symbols)) = (table, symbols) else {
            return false;
        };
        let table = table.wrapping_sub(places.bias);
        let all = &symbols.operations;
        let known = all.binary_search_by_key(&table, |o| o.table);
        known.is_ok_and(|i| all[i].collects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_known_by_their_virtual_tables() {
        let name = operation("_ZTV25VM_G1CollectForAllocation");
        assert_eq!(name, Some("G1CollectForAllocation"));
        assert_eq!(operation("_ZTV25VM_G1CollectFull"), None);
        assert_eq!(operation("_ZTV9G1Policy1"), None);
        assert_eq!(operation("_ZTVN2ab5VM_AbE"), None);
        assert_eq!(operation("VM_Exit"), None);
    }

    #[test]
    fn collections_have_kinds_and_other_operations_none() {
        assert_eq!(collection("G1CollectForAllocation"), Some("young"));
        assert_eq!(collection("ZRelocateStartYoung"), Some("relocate start"));
        assert_eq!(collection("ThreadDump"), None);
        assert_eq!(collection("GC_HeapInspection"), None);
    }
}
