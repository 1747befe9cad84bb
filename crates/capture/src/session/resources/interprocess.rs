//! Locks that processes share. Each process has its own hash for a lock, and only the place of the lock shows that
//! they are one.

use std::{fs, path::PathBuf};

use wallscope_procfs::maps::Mapping;

use crate::{
    event::{ResourceEvent, resource_kind},
    syscalls,
};

/// Identity of a lock that is equal in all processes that share it. Each process has its own hash for the lock.
#[derive(PartialEq, Eq, Hash)]
pub enum Shared {
    /// In a file or in memory that is mapped shared: device, inode, offset.
    Memory((u32, u32), u64, u64),
    /// Lock on a file: device, inode, system call.
    File(u32, u64, u32),
    /// System V semaphores: their number, and in which namespace of such numbers.
    Semaphores(u64, Option<PathBuf>),
}

impl Shared {
    /// Identity of the lock of `e`, if processes may share it; `maps`: the mappings of its process.
    pub fn of(e: &ResourceEvent, maps: Option<&Vec<Mapping>>) -> Option<Shared> {
        match e.kind {
            resource_kind::LOCK if syscalls::is_futex(e.call.into()) => {
                let m = maps?
                    .iter()
                    .find(|m| (m.start..m.end).contains(&e.address) && m.shared)?;
                let offset = e.address - m.start + m.offset;
                Some(Shared::Memory(m.device, m.inode, offset))
            }
            resource_kind::LOCK if syscalls::is_semaphore(e.call) => {
                let numbers = fs::read_link(format!("/proc/{}/ns/ipc", e.pid)).ok();
                Some(Shared::Semaphores(e.address, numbers))
            }
            resource_kind::FILE if syscalls::locks_file(e.call) => {
                Some(Shared::File(e.device, e.address, e.call))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::{
        super::{Locks, News, Resources},
        *,
    };

    struct NoRuntime;
    impl Locks for NoRuntime {
        fn is_gil(&self, _: u32, _: u64) -> bool {
            false
        }
        fn monitor_class(&self, _: u32, _: u64) -> Option<String> {
            None
        }
    }

    static LOCK: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

    #[test]
    fn a_lock_that_processes_share_is_the_same_for_all_of_them() {
        let mut all = Resources::default();
        // Each has a hash of its own for it; their processes are gone, so that nothing else is known of them.
        let mut take = |hash, what, address, device, call: libc::c_long, pid| {
            all.take(ResourceEvent {
                hash,
                address,
                device,
                kind: what,
                pid,
                call: call as u32,
                ..ResourceEvent::new_zeroed()
            });
            assert!(all.settle_one(&NoRuntime));
            let same = all.take_news().into_iter().filter_map(|news| match news {
                News::Same(same) => Some((same.hash, same.first)),
                News::Name(_) => None,
            });
            same.collect::<Vec<_>>()
        };
        let gone = u32::MAX;
        assert_eq!(
            take(1, resource_kind::FILE, 77, 5, libc::SYS_flock, gone),
            []
        );
        assert_eq!(
            take(2, resource_kind::FILE, 77, 5, libc::SYS_flock, gone - 1),
            [(2, 1)]
        );
        // Of another file system, another kind of lock, no lock.
        assert_eq!(
            take(3, resource_kind::FILE, 77, 6, libc::SYS_flock, gone),
            []
        );
        assert_eq!(
            take(4, resource_kind::FILE, 77, 5, libc::SYS_fcntl, gone),
            []
        );
        assert_eq!(
            take(5, resource_kind::FILE, 77, 5, libc::SYS_fsync, gone),
            []
        );
        assert_eq!(
            take(6, resource_kind::LOCK, 9, 0, libc::SYS_semop, gone),
            []
        );
        assert_eq!(
            take(7, resource_kind::LOCK, 9, 0, libc::SYS_semop, gone - 1),
            [(7, 6)]
        );
        // At the same address of two processes there are two locks, if memory is not shared.
        let own = std::process::id();
        let address = &raw const LOCK as u64;
        assert_eq!(
            take(8, resource_kind::LOCK, address, 0, libc::SYS_futex, own),
            []
        );
        assert_eq!(
            take(9, resource_kind::LOCK, address, 0, libc::SYS_futex, own),
            []
        );
    }
}
