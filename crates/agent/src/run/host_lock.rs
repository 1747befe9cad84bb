//! One agent a host, whatever its directories, mounts and network: a lock on the host's user namespace.
//!
//! All processes of a host see that namespace as one file, if they are in it, and only they can load kernel programs.
//! Every process may lock the file, so a lock counts only if its holder may load kernel programs.

use std::fs::File;
use std::io;

use rustix::fs::{FlockOperation, flock, fstat, major, minor};
use wallscope_procfs::kernel_file;

use super::AgentError;

const NAMESPACE: &str = "/proc/self/ns/user";
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_BPF: u64 = 1 << 39;

/// The lock, until it is dropped or the process ends.
#[derive(Debug)]
pub(super) struct HostLock {
    _file: File,
}

impl HostLock {
    /// Locks this host. While a process has the lock that may not load kernel programs, no agent can have it, and none
    /// is refused.
    ///
    /// # Errors
    /// Another agent has it, or files of the kernel cannot be read.
    pub(super) fn take() -> Result<HostLock, AgentError> {
        let failed = |source| AgentError::Lock {
            path: NAMESPACE.into(),
            source,
        };
        let file = kernel_file::open(NAMESPACE).map_err(failed)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let stat = fstat(&file).map_err(|e| failed(io::Error::from(e)))?;
            let device = (major(stat.st_dev), minor(stat.st_dev));
            let inode = format!("{:02x}:{:02x}:{}", device.0, device.1, stat.st_ino);
            let locks = kernel_file::read_to_string("/proc/locks").map_err(failed)?;
            let holder = holder(&locks, &inode);
            if holder.is_none_or(may_load_programs) {
                let words = holder.map(|pid| format!("process {pid}"));
                let words = words.unwrap_or("in another PID namespace".into());
                return Err(AgentError::RunningOnHost(words));
            }
        }
        Ok(HostLock { _file: file })
    }
}

/// The process that holds the flock on `inode` (as /proc/locks writes it), if it is in this PID namespace.
fn holder(locks: &str, inode: &str) -> Option<u32> {
    let mut fields = locks.lines().map(|line| line.split_whitespace().skip(1));
    let pid = fields.find_map(|mut of| {
        let kind = of.next()?;
        let pid = of.nth(2)?;
        (kind == "FLOCK" && of.next()? == inode).then_some(pid)
    })?;
    pid.parse().ok().filter(|pid| *pid != 0)
}

/// Whether a process may load kernel programs. One that cannot be read has ended.
fn may_load_programs(pid: u32) -> bool {
    let status = kernel_file::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let effective = line.and_then(|l| u64::from_str_radix(l.trim(), 16).ok());
    effective.is_some_and(|e| e & (CAP_BPF | CAP_SYS_ADMIN) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_by_the_inode_of_its_lock() {
        let locks = "\
            1: POSIX  ADVISORY  WRITE 11 00:04:4026531837 0 EOF\n\
            2: FLOCK  ADVISORY  WRITE 12 00:04:4026531836 0 EOF\n\
            2: -> FLOCK  ADVISORY  WRITE 13 00:04:4026531837 0 EOF\n\
            3: FLOCK  ADVISORY  WRITE 14 00:04:4026531837 0 EOF\n\
            4: FLOCK  ADVISORY  WRITE 0 00:04:4026531838 0 EOF\n";
        assert_eq!(holder(locks, "00:04:4026531837"), Some(14));
        assert_eq!(holder(locks, "00:04:4026531838"), None);
        assert_eq!(holder(locks, "00:04:1"), None);
    }

    #[test]
    fn a_process_that_has_ended_loads_nothing() {
        assert!(!may_load_programs(u32::MAX));
    }
}
