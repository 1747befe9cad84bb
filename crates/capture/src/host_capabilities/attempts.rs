//! Single attempts: the smallest call that the kernel judges as it judges measuring.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};
use wallscope_procfs::kernel_file;

use perf_event_open_sys::{self as perf, bindings as b};

pub(super) fn readable(path: &str) -> io::Result<()> {
    kernel_file::open(path).and_then(|mut f| io::Read::read(&mut f, &mut [0]).map(drop))
}

/// Inode of the first pid namespace (`PID_NS_INIT_INO` of linux/nsfs.h).
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Remedy in another pid namespace.
pub const PID_REMEDY: &str = "start the container with the host's process ids (docker run --pid=host, \
                              hostPID: true), or measure from outside of it";

/// Whether processes have the same ids here as in the kernel's programs.
///
/// # Errors
/// This is the pid namespace of a container, or the like.
pub fn first_pid_namespace() -> io::Result<()> {
    match fs::metadata("/proc/self/ns/pid") {
        Ok(m) if m.ino() != FIRST_PID_NAMESPACE => {
            Err(io::Error::other("this is a pid namespace of its own"))
        }
        _ => Ok(()),
    }
}

/// Loads a program that does nothing and attaches it to `sched_switch` for a moment.
///
/// # Errors
/// The kernel's error.
pub fn bpf_at_scheduler() -> io::Result<()> {
    // r0 = 0; exit
    let code: [u64; 2] = [0xb7, 0x95];
    let licence = c"MIT";
    let mut load = [0u64; 16];
    // union bpf_attr for BPF_PROG_LOAD: prog_type 17 (raw tracepoint), insn_cnt, insns, license.
    load[0] = 17 | (code.len() as u64) << 32;
    load[1] = code.as_ptr() as u64;
    load[2] = licence.as_ptr() as u64;
    let program = bpf(5, &load)?;
    let name = c"sched_switch";
    let mut open = [0u64; 16];
    open[0] = name.as_ptr() as u64;
    open[1] = program.as_raw_fd() as u64;
    bpf(17, &open).map(drop)
}

pub(super) fn bpf(command: i32, attributes: &[u64; 16]) -> io::Result<OwnedFd> {
    // SAFETY: the attributes are longer than these commands read, zero beyond the set fields, and
    // the memory that they point at outlives the call.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            attributes.as_ptr(),
            size_of_val(attributes),
        )
    };
    owned(fd as i32)
}

fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it, for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn attributes(kind: u32, config: u64) -> b::perf_event_attr {
    let mut a = b::perf_event_attr {
        size: size_of::<b::perf_event_attr>() as u32,
        type_: kind,
        config,
        ..Default::default()
    };
    a.set_disabled(1);
    a.set_exclude_hv(1);
    a
}

pub(super) fn open_event(a: &mut b::perf_event_attr, pid: i32, cpu: i32) -> io::Result<()> {
    // SAFETY: the attributes are whole and outlive the call.
    let fd = unsafe { perf::perf_event_open(a, pid, cpu, -1, b::PERF_FLAG_FD_CLOEXEC.into()) };
    owned(fd).map(drop)
}

/// Opens the sampling clock of the calling thread in user mode, and closes it.
///
/// # Errors
/// It is refused.
pub(crate) fn perf_clock() -> io::Result<()> {
    let mut a = attributes(b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK.into());
    a.set_exclude_kernel(1);
    open_event(&mut a, 0, -1)
}

/// Opens the sampling clock of the calling thread in user mode and in the kernel, and closes it.
///
/// # Errors
/// It is refused.
pub(super) fn perf_clock_with_kernel() -> io::Result<()> {
    let mut a = attributes(b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK.into());
    open_event(&mut a, 0, -1)
}

pub(super) fn perf_switches() -> io::Result<()> {
    let mut a = attributes(b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_DUMMY.into());
    a.set_exclude_kernel(1);
    a.set_context_switch(1);
    open_event(&mut a, 0, -1)
}

pub(super) fn perf_system() -> io::Result<()> {
    let mut a = attributes(b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK.into());
    open_event(&mut a, -1, 0)
}

pub(super) fn perf_cycles() -> io::Result<()> {
    let mut a = attributes(b::PERF_TYPE_HARDWARE, b::PERF_COUNT_HW_CPU_CYCLES.into());
    a.set_exclude_kernel(1);
    open_event(&mut a, 0, -1)
}

pub(super) fn tracepoints() -> io::Result<()> {
    let path = |root: &str| format!("{root}/events/sched/sched_switch/id");
    readable(&path("/sys/kernel/tracing"))
        .or_else(|e| readable(&path("/sys/kernel/debug/tracing")).map_err(|_| e))
}

pub(super) fn kernel_names() -> io::Result<()> {
    let file = kernel_file::open("/proc/kallsyms")?;
    // Even if addresses are shown, those of per-CPU variables may begin at zero.
    for line in io::BufRead::lines(io::BufReader::new(file)) {
        if line?.bytes().take_while(|c| *c != b' ').any(|c| c != b'0') {
            return Ok(());
        }
    }
    Err(io::Error::other("all addresses are hidden"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_with_the_kernel_s_words() {
        let mut a = attributes(b::PERF_TYPE_SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK.into());
        let gone = open_event(&mut a, i32::MAX, -1).expect_err("no process has this id");
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
