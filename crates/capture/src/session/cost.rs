//! Cost of measuring in user space: CPU time and memory of this process. The kernel programs measure
//! their own run time (`time_run` in `bpf/maps.h`): the kernel's statistics of them would cost
//! more than the programs themselves.

use wallscope_procfs::kernel_file;

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

/// Largest resident size of this process so far, bytes, without the BPF maps that it has mapped. Their memory
/// counts as the kernel's. The event ring is mapped twice in a row, so it would count three times.
pub fn peak_rss_bytes() -> u64 {
    let status = kernel_file::read_to_string("/proc/self/status").unwrap_or_default();
    let smaps = kernel_file::read_to_string("/proc/self/smaps").unwrap_or_default();
    let peak = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    peak.map_or(0, kib)
        .saturating_sub(resident_map_bytes(&smaps))
}

/// Resident size of the BPF maps in the text of `/proc/self/smaps`, bytes.
fn resident_map_bytes(smaps: &str) -> u64 {
    let mut of_map = false;
    let mut bytes = 0;
    for line in smaps.lines() {
        match line.strip_prefix("Rss:") {
            Some(size) if of_map => bytes += kib(size),
            // A mapping's first line begins with its addresses, the others with a name.
            None if line.starts_with(|c: char| c.is_ascii_digit() || ('a'..='f').contains(&c)) => {
                of_map = line.ends_with(":bpf-map");
            }
            _ => {}
        }
    }
    bytes
}

/// ` 12 kB`, in bytes.
fn kib(text: &str) -> u64 {
    let number = text.trim().trim_end_matches(" kB").trim();
    number.parse::<u64>().unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_the_kernel_that_are_mapped_here_are_told_apart() {
        let smaps = "\
55d0a000-55d0b000 r--p 00000000 fe:00 12 /usr/bin/wallscope
Size:                  4 kB
Rss:                   4 kB
7f00a000-7f00c000 rw-s 00000000 00:0e 35 anon_inode:bpf-map
Size:                  8 kB
Rss:                   8 kB
Pss:                   8 kB
a700a000-a700c000 r--s 00001000 00:0e 35                         anon_inode:bpf-map
Rss:                  16 kB
7f00c000-7f00d000 rw-p 00000000 00:00 0
Rss:                 400 kB
";
        assert_eq!(resident_map_bytes(smaps), 24 << 10);
        assert!(peak_rss_bytes() > 0);
    }
}
