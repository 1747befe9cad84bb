//! How perf events of single threads are asked for.

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

/// Bytes of stack with each sample.
const STACK: u32 = 8192;

/// ax, bx, cx, dx, si, di, bp, sp, ip and r8 … r15.
const REGISTERS: u64 = 0xff_01ff;

/// Descriptors that are left to everything else.
pub(super) const RESERVED: usize = 256;

/// Samples have the user's registers and stack.
pub(super) fn ask_for_stack(a: &mut b::perf_event_attr) {
    a.sample_type |= u64::from(b::PERF_SAMPLE_REGS_USER | b::PERF_SAMPLE_STACK_USER);
    a.sample_regs_user = REGISTERS;
    a.sample_stack_user = STACK;
}

pub(super) fn attributes(event: b::perf_sw_ids) -> b::perf_event_attr {
    let mut a = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        type_: b::PERF_TYPE_SOFTWARE,
        config: event.into(),
        sample_type: (b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME).into(),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    a.set_exclude_hv(1);
    a.set_use_clockid(1);
    a.set_sample_id_all(1);
    a
}

pub(super) fn open(a: &mut b::perf_event_attr, tid: i32, cpu: u32) -> io::Result<OwnedFd> {
    let flags = b::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: the attributes are whole and outlive the call.
    let fd = unsafe { perf::perf_event_open(a, tid, cpu as i32, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just returned this descriptor to us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
