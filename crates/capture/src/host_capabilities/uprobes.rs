//! Whether probes may be placed in user programs, by placing one.
//!
//! The kernel has two ways, which need different rights. The attempt takes the way that the verbs take.

use std::{io, os::fd::AsRawFd};
use wallscope_procfs::kernel_file;

use super::attempts::{attributes, bpf, open_event};
use crate::backend::ebpf::KernelFeatures;

/// Places a probe at a function of ours that no other process runs, as the verbs that count calls do, and removes it.
pub(super) fn uprobes() -> io::Result<()> {
    // This very function.
    let here = uprobes as fn() -> io::Result<()> as usize as u64;
    let own = wallscope_procfs::maps::read(std::process::id())?;
    let m = own
        .iter()
        .find(|m| (m.start..m.end).contains(&here))
        .ok_or(io::ErrorKind::NotFound)?;
    let offset = here - m.start + m.offset;
    match KernelFeatures::inspect() {
        Ok(kernel) if kernel.uprobe_multi => uprobe_by_link(offset),
        _ => uprobe_by_event(offset),
    }
}

/// Places the probe by a link of an empty program: since Linux 6.6, with CAP_BPF and CAP_PERFMON.
fn uprobe_by_link(offset: u64) -> io::Result<()> {
    const PROGRAM_OF_PROBES: u64 = 2;
    const MANY_UPROBES: u64 = 48;
    // r0 = 0; exit
    let code: [u64; 2] = [0xb7, 0x95];
    let licence = c"MIT";
    let mut load = [0u64; 16];
    load[0] = PROGRAM_OF_PROBES | (code.len() as u64) << 32;
    load[1] = code.as_ptr() as u64;
    load[2] = licence.as_ptr() as u64;
    // The upper half: expected_attach_type.
    load[8] = MANY_UPROBES << 32;
    let program = bpf(5, &load)?;
    let path = c"/proc/self/exe";
    let offsets = [offset];
    let mut link = [0u64; 16];
    // BPF_LINK_CREATE: program and target, attach_type and flags, path, offsets, counters, cookies, how many.
    link[0] = program.as_raw_fd() as u64;
    link[1] = MANY_UPROBES;
    link[2] = path.as_ptr() as u64;
    link[3] = offsets.as_ptr() as u64;
    link[6] = offsets.len() as u64;
    link[7] = std::process::id().into();
    bpf(28, &link).map(drop)
}

/// Places the probe by a perf event: with CAP_PERFMON, and since Linux 6.16 (and updates of older ones) with
/// CAP_SYS_ADMIN only.
fn uprobe_by_event(offset: u64) -> io::Result<()> {
    let kind = kernel_file::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let kind = kind
        .trim()
        .parse()
        .map_err(|_| io::ErrorKind::InvalidData)?;
    let path = c"/proc/self/exe";
    let mut a = attributes(kind, 0);
    a.__bindgen_anon_3.config1 = path.as_ptr() as u64;
    a.__bindgen_anon_4.config2 = offset;
    // The probe stays off.
    open_event(&mut a, 0, -1)
}
