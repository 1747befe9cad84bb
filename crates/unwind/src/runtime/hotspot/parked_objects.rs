//! Location of the object that a thread is parked for, and names of classes.

use super::{method::class_name, vm::Vm};
use crate::runtime::memory::Memory;

/// Maximum attempts to find the field.
const MAX_ATTEMPTS: u32 = 16;

/// Location of the object that a thread is parked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parking {
    /// Offset in the thread's object of the pointer to the parked-for object, bytes.
    pub blocker: u32,
    /// Whether that pointer has eight bytes; otherwise four.
    pub long: bool,
    /// Offset in any object of its 4-byte class.
    pub class: u32,
    /// Number of low bits of those four bytes that are not the class.
    pub below: u32,
    /// Shift of compressed pointers, bits.
    pub shift: u32,
    /// Base of compressed pointers.
    pub base: u64,
}

impl Vm {
    /// Returns the location of the parked-for object; `None` if it is unknown (yet).
    pub fn parking(&mut self, read: &mut dyn FnMut(u64, &mut [u8]) -> bool) -> Option<Parking> {
        let mut memory = Memory(read);
        let (objects, places) = (self.objects.as_mut()?, self.locks.as_ref()?);
        if objects.found.is_none() && objects.tries < MAX_ATTEMPTS {
            objects.tries += 1;
            let known = &*objects;
            let found = self.threads.iter().find_map(|t| {
                let object = memory.word(t.object)?;
                let class = places.class_of(object, &mut memory)?;
                known.field(&self.layout, self.first, class, &mut memory)
            });
            objects.found = found;
        }
        let (base, shift) = match objects.short {
            Some((base, shift)) => (memory.word(base)?, memory.half(shift)?),
            None => (0, 0),
        };
        // A wait reports its class in four bytes.
        (!places.class.whole).then_some(())?;
        Some(Parking {
            blocker: objects.found?,
            long: objects.short.is_none(),
            class: u32::try_from(places.class.at).ok()?,
            below: places.class.below,
            shift,
            base,
        })
    }

    /// Returns the name of the class with compressed pointer `narrow`.
    pub fn class(
        &self,
        narrow: u32,
        read: &mut dyn FnMut(u64, &mut [u8]) -> bool,
    ) -> Option<String> {
        let mut memory = Memory(read);
        let class = self.locks.as_ref()?.class(narrow, &mut memory)?;
        class_name(&self.layout, class, &mut memory)
    }
}
