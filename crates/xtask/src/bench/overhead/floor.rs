//! The least that hooks cost: programs that return at once.

use std::ffi::CString;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};

use libbpf_sys::{BPF_PROG_TYPE_RAW_TRACEPOINT, bpf_insn, bpf_prog_load, bpf_raw_tracepoint_open};

use crate::Outcome;

/// The hooks of a ledger: a thread leaves its CPU for another one, and a sleeper is woken.
pub(super) const LEDGER: &[&str] = &["sched_switch", "sched_waking"];
/// Those, and the further ones that a recording attaches to what happens often.
pub(super) const RECORDING: &[&str] = &[
    "sched_switch",
    "sched_waking",
    "sched_migrate_task",
    "hrtimer_start",
    "sock_send_length",
    "sock_recv_length",
];

/// `r0 = 0` and `exit`: operation, and the registers, offset and value of zero.
const RETURNS_AT_ONCE: [u8; 2] = [0xb7, 0x95];

/// Programs at hooks, until this is dropped.
pub(super) struct EmptyHooks {
    _held: Vec<OwnedFd>,
}

/// The descriptor that a call of libbpf returned, or its error.
fn owned(fd: i32) -> io::Result<OwnedFd> {
    match fd {
        // SAFETY: the call has just made it for us.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::from_raw_os_error(-fd)),
    }
}

impl EmptyHooks {
    /// Attaches a program to each of these tracepoints.
    ///
    /// # Errors
    /// The kernel refuses it, or has no such tracepoint.
    pub(super) fn attach(tracepoints: &[&str]) -> Outcome<EmptyHooks> {
        let code = RETURNS_AT_ONCE.map(|code| bpf_insn {
            code,
            ..Default::default()
        });
        let mut held = Vec::new();
        for tracepoint in tracepoints {
            let name = CString::new(*tracepoint)?;
            // SAFETY: names end in a zero, and there are as many instructions as are told.
            let program = owned(unsafe {
                bpf_prog_load(
                    BPF_PROG_TYPE_RAW_TRACEPOINT,
                    c"empty".as_ptr(),
                    c"GPL".as_ptr(),
                    code.as_ptr(),
                    code.len() as libbpf_sys::size_t,
                    std::ptr::null_mut(),
                )
            })?;
            let number = std::os::fd::AsRawFd::as_raw_fd(&program);
            // SAFETY: as above.
            let link = owned(unsafe { bpf_raw_tracepoint_open(name.as_ptr(), number) });
            held.push(link.map_err(|e| format!("no program at {tracepoint}: {e}"))?);
            held.push(program);
        }
        Ok(EmptyHooks { _held: held })
    }
}
