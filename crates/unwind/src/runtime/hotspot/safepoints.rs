//! Places in the VM at which its collectors stop and stall threads.
//!
//! A thread that a safepoint stops waits at one futex, the VM's wait barrier. A thread that asks for an
//! operation waits at the lock of operations, and a thread that wants memory meanwhile at the heap's lock, or
//! in JDK 25 at the lock of critical regions (JNI), which a collection holds.
//! The VM thread notes the operation that it executes.
//!
//! The barrier exists from JDK 14 on. A file without symbols (`strip`) names none of these places.

use super::vm::Vm;
use crate::runtime::memory::Memory;

/// Places in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SafepointPlaces {
    /// Address of the wait barrier.
    pub barrier: u64,
    /// Address of the lock of operations.
    pub operation_lock: u64,
    /// Address of the heap's lock.
    pub heap_lock: u64,
    /// Address of the lock of critical regions; 0: none.
    pub critical_lock: u64,
    /// Address of the pointer to the operation that is executed.
    pub current: u64,
    /// Address of the pointer to the requested operation.
    pub next: u64,
    /// Difference of addresses to virtual addresses of the file.
    pub bias: u64,
    /// Addresses of the texts that tell the cause of the present collection and of the last one; 0: none.
    pub causes: [u64; 2],
    /// Addresses of the numbers of collections: young, full, pauses of concurrent ones; 0: none.
    pub collections: [u64; 3],
}

impl Vm {
    /// Returns the places of this process; `None`: the file does not name them, or the VM has not made them
    /// yet.
    pub fn safepoint_places(
        &mut self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<SafepointPlaces> {
        let (symbols, bias) = self.safepoints.as_ref()?;
        let [barrier, operation_lock, heap_lock, current, next, _] =
            symbols.variables.map(|at| at.wrapping_add(*bias));
        let mut memory = Memory(&mut *read);
        let mut object = |at| memory.word(at).filter(|at| *at != 0);
        let mut places = SafepointPlaces {
            barrier: object(barrier)?,
            operation_lock: object(operation_lock)?,
            heap_lock: object(heap_lock)?,
            critical_lock: match symbols.variables {
                [.., 0] => 0,
                [.., at] => object(at.wrapping_add(*bias)).unwrap_or(0),
            },
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
        let asks = within(places.operation_lock, LOCK_BYTES)
            || within(places.heap_lock, MUTEX_BYTES)
            || within(places.critical_lock, MUTEX_BYTES);
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
        let all = symbols.operations();
        let known = all.binary_search_by_key(&table, |o| o.table);
        known.is_ok_and(|i| all[i].collects)
    }
}
