//! How perf events of single threads are asked for.

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;
use std::{
    io,
    os::fd::{FromRawFd, OwnedFd},
};

/// Fewest bytes of stack with a sample.
pub(super) const STACK: u32 = 8 << 10;
/// Most bytes of stack with a sample. The kernel takes less than 64 KiB.
const MAX_STACK: u32 = 32 << 10;
/// Bytes of a sample beside its stack: header, ids, time, period, registers.
pub(super) const SAMPLE_BYTES: u64 = 192;
/// Delay of a reader, ns, within which a ring must not be full of one CPU's samples.
const READER_LATE: u64 = 80_000_000;

/// ax, bx, cx, dx, si, di, bp, sp, ip and r8 … r15.
const REGISTERS: u64 = 0xff_01ff;

/// Descriptors that are left to everything else.
pub(super) const RESERVED: usize = 256;

/// Bytes of stack with each sample of a running thread, a power of two. Samples `period_ns` apart, made while the
/// reader is late, fit in a ring of `ring_bytes`. Compilers and interpreters of a JVM have stacks of over 8 KiB, and
/// a running thread's memory changes before more of it can be read.
pub(super) fn stack_bytes(period_ns: u64, ring_bytes: u64) -> u32 {
    let samples = (READER_LATE / period_ns.max(1)).max(1);
    let fits = |bytes: u32| samples * (SAMPLE_BYTES + u64::from(bytes)) <= ring_bytes;
    let sizes = std::iter::successors(Some(MAX_STACK), |bytes| Some(bytes / 2));
    let mut sizes = sizes.take_while(|bytes| *bytes > STACK);
    sizes.find(|bytes| fits(*bytes)).unwrap_or(STACK)
}

/// Samples have the user's registers and `bytes` of the user's stack.
pub(super) fn ask_for_stack(a: &mut b::perf_event_attr, bytes: u32) {
    a.sample_type |= u64::from(b::PERF_SAMPLE_REGS_USER | b::PERF_SAMPLE_STACK_USER);
    a.sample_regs_user = REGISTERS;
    a.sample_stack_user = bytes;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_holds_what_is_sampled_while_its_reader_is_late() {
        let at = |hz: u64, ring| stack_bytes(1_000_000_000 / hz, ring);
        let ring = 512 << 10;
        let usual = [(99, 32), (199, 32), (250, 16), (499, 8), (997, 8)];
        for (hz, kib) in usual {
            assert_eq!(at(hz, ring), kib << 10, "{hz} Hz");
        }
        // What may be locked is less for an ordinary user.
        assert_eq!(at(99, 128 << 10), 16 << 10);
        assert_eq!(at(99, 64 << 10), 8 << 10);
        assert_eq!(stack_bytes(0, 0), STACK);
    }
}
