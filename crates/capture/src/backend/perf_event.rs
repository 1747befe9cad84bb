//! Opening perf events that measure a CPU, whatever runs there.

use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

/// Opens the event `attr` for all that runs on `cpu`; `None` if the CPU has gone offline.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn open_on_cpu(cpu: u32, mut attr: b::perf_event_attr) -> io::Result<Option<OwnedFd>> {
    let flags = u64::from(b::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: the attribute is a plain value that the call only reads.
    let fd = unsafe { perf::perf_event_open(&mut attr, -1, cpu as i32, -1, flags) };
    if fd < 0 {
        let e = io::Error::last_os_error();
        return if e.raw_os_error() == Some(libc::ENODEV) {
            Ok(None)
        } else {
            Err(e)
        };
    }
    // SAFETY: the call has just returned this descriptor to us alone.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) }))
}
