//! Java threads of one VM, and the owners and classes of their monitors.

use super::{
    locks::{JavaThread, thread},
    method::class_name,
    vm::Vm,
};
use crate::runtime::memory::Memory;

/// A monitor's owner value if the owner has not registered yet, and the largest such special value.
const OWNER_UNREGISTERED: u64 = 1;

const MAX_SPECIAL_OWNER: u64 = 2;

impl Vm {
    /// Returns the Java threads; `None` if they did not change since the last call, or cannot be
    /// read.
    pub fn new_threads(
        &mut self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<&[JavaThread]> {
        let mut memory = Memory(read);
        let places = self.locks.clone()?;
        let list = places.list.state(&mut memory)?;
        if list == self.thread_list {
            return None;
        }
        let records = places.list.records(&mut memory)?;
        let mut all = Vec::with_capacity(records.len());
        for record in records {
            // A thread that is starting or ending may have no record.
            all.extend(thread(&places, record, self.objects.as_ref(), &mut memory));
        }
        self.thread_list = list;
        self.threads = all;
        Some(&self.threads)
    }

    /// Offsets of the pending monitor in a thread's record, and of the owner in a monitor.
    pub fn monitor_offsets(&self) -> Option<(u64, u64)> {
        self.locks.as_ref().map(|p| (p.pending, p.owner))
    }

    /// The thread id, as seen in the process, of a monitor's `owner` value.
    pub fn owner(&self, owner: u64) -> Option<u32> {
        let mut threads = self.threads.iter();
        let found = threads.find(|t| {
            let numbered = owner > MAX_SPECIAL_OWNER && t.owner_id == owner;
            numbered || t.record == owner || (t.stack.0..t.stack.1).contains(&owner)
        });
        found.map(|t| t.tid)
    }

    /// The thread id, as seen in the process, of the present owner of the monitor at `monitor`.
    pub fn monitor_owner(
        &self,
        monitor: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<u32> {
        let mut memory = Memory(read);
        let places = self.locks.as_ref()?;
        let owner = memory.word(monitor.checked_add(places.owner)?)?;
        if owner != OWNER_UNREGISTERED {
            return self.owner(owner);
        }
        places.stack_locker(monitor, &self.threads, &mut memory)
    }

    /// Reads the class of a monitor's object.
    pub fn monitor_class(
        &self,
        monitor: u64,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<String> {
        let mut memory = Memory(read);
        let places = self.locks.as_ref()?;
        let handle = memory.word(monitor.checked_add(places.object)?)?;
        // From JDK 16 on a weak handle, before the object itself.
        let object = memory.word(handle);
        let mut class = |object: u64| {
            let class = places.class_of(object, &mut memory)?;
            class_name(&self.layout, class, &mut memory)
        };
        object.and_then(&mut class).or_else(|| class(handle))
    }
}
