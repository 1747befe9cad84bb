//! Means for a program to ask for an interrupt of its own CPU (`bpf/deferred_user_stack.h`): one event per CPU, to
//! which programs write. Its ring wakes the reader at each record. There is no reader, and the ring overwrites
//! itself.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
};

use perf_event_open_sys::bindings as b;

use crate::backend::perf_event::open_on_cpu;

/// The first page, and one of records.
const BYTES: usize = 2 * 4096;

/// The event of one CPU, with its ring.
pub(super) struct IrqWorkTrigger {
    event: OwnedFd,
    ring: *mut libc::c_void,
}

impl IrqWorkTrigger {
    /// Opens the event of `cpu`; `None` if the CPU has gone offline.
    ///
    /// # Errors
    /// The kernel refuses the event or the memory for its ring.
    pub fn open(cpu: u32) -> io::Result<Option<IrqWorkTrigger>> {
        let mut attr = b::perf_event_attr {
            size: size_of::<b::perf_event_attr>() as u32,
            type_: b::PERF_TYPE_SOFTWARE,
            config: u64::from(b::PERF_COUNT_SW_BPF_OUTPUT),
            sample_type: u64::from(b::PERF_SAMPLE_RAW),
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_period = 1;
        attr.__bindgen_anon_2.wakeup_events = 1;
        let Some(event) = open_on_cpu(cpu, attr)? else {
            return Ok(None);
        };
        // SAFETY: a fresh mapping of the event's ring, at an address that the kernel chooses. Because the mapping
        // is read-only, the kernel overwrites records that were not read.
        let ring = unsafe {
            libc::mmap(
                ptr::null_mut(),
                BYTES,
                libc::PROT_READ,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if ring == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Some(IrqWorkTrigger { event, ring }))
    }

    /// The value for the map of events.
    pub fn descriptor(&self) -> [u8; 4] {
        self.event.as_raw_fd().to_ne_bytes()
    }
}

impl Drop for IrqWorkTrigger {
    fn drop(&mut self) {
        // SAFETY: mapped in `open`, with this length.
        unsafe { libc::munmap(self.ring, BYTES) };
    }
}
