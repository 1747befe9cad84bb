//! What measuring costs on this side: own CPU time and memory. The run time of the kernel programs
//! is measured by themselves (`time_run` in `bpf/maps.h`): the kernel's own statistics would cost
//! more than what they count.

use std::fs;

/// Own CPU time from some moment on.
pub struct CostMeter {
    start_ns: u64,
}

impl CostMeter {
    /// Starts now.
    pub fn start() -> CostMeter {
        CostMeter {
            start_ns: own_cpu_ns(),
        }
    }

    /// Own CPU time since the start, ns.
    pub fn own_ns(&self) -> u64 {
        own_cpu_ns().saturating_sub(self.start_ns)
    }
}

/// CPU time of this process, ns.
fn own_cpu_ns() -> u64 {
    clock_ns(rustix::time::ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread, ns.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(rustix::time::ClockId::ThreadCPUTime)
}

fn clock_ns(id: rustix::time::ClockId) -> u64 {
    let t = rustix::time::clock_gettime(id);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Largest resident size of this process so far, bytes.
pub fn peak_rss_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|v| v.trim().trim_end_matches(" kB").trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}
