//! What a thread waits for in each system call (x86-64), as far as the call alone tells.
//!
//! Calls that are not listed count as `other`. Calls on a descriptor are decided in the kernel by
//! the descriptor's kind ([`BY_FD`]).

use wallscope_model::BlockReason::{self, Child, Disk, Lock, Memory, Pipe, Poll, Timer};

/// The kind of the descriptor in the first argument decides (`WS_BY_FD`).
pub const BY_FD: u8 = 32;
/// `restart_syscall`: the reason of the interrupted call stands (`WS_RESTART`).
pub const RESTART: u8 = 33;
/// `fcntl`: its command decides (`WS_BY_FCNTL`).
pub const BY_FCNTL: u8 = 34;
/// Calls of sockets: network, but for unix sockets (`WS_BY_SOCKET`).
pub const BY_SOCKET: u8 = 35;
/// Entries of the kernel's table (`WS_SYSCALLS`).
pub const TABLE: usize = 512;

const BY_REASON: &[(BlockReason, &[libc::c_long])] = &[
    (
        Lock,
        &[
            libc::SYS_futex,
            449,
            454,
            455,
            456,
            libc::SYS_flock,
            libc::SYS_semop,
            libc::SYS_semtimedop,
        ],
    ),
    (
        Timer,
        &[
            libc::SYS_nanosleep,
            libc::SYS_clock_nanosleep,
            libc::SYS_pause,
        ],
    ),
    (
        Poll,
        &[
            libc::SYS_poll,
            libc::SYS_ppoll,
            libc::SYS_select,
            libc::SYS_pselect6,
            libc::SYS_epoll_wait,
            libc::SYS_epoll_pwait,
            441, // epoll_pwait2
            426, // io_uring_enter
            libc::SYS_io_getevents,
            libc::SYS_rt_sigtimedwait,
            libc::SYS_rt_sigsuspend,
        ],
    ),
    (Child, &[libc::SYS_wait4, libc::SYS_waitid, libc::SYS_vfork]),
    (
        Disk,
        &[
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_sync,
            libc::SYS_syncfs,
            libc::SYS_sync_file_range,
            libc::SYS_msync,
            libc::SYS_open,
            libc::SYS_openat,
            437, // openat2
            libc::SYS_creat,
            libc::SYS_stat,
            libc::SYS_lstat,
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_getdents64,
            libc::SYS_unlink,
            libc::SYS_unlinkat,
            libc::SYS_rename,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_mkdir,
            libc::SYS_mkdirat,
            libc::SYS_rmdir,
            libc::SYS_link,
            libc::SYS_symlink,
            libc::SYS_truncate,
            libc::SYS_ftruncate,
            libc::SYS_fallocate,
            libc::SYS_readahead,
            libc::SYS_fadvise64,
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_copy_file_range,
        ],
    ),
    (
        Pipe,
        &[
            libc::SYS_tee,
            libc::SYS_splice,
            libc::SYS_vmsplice,
            libc::SYS_mq_timedreceive,
            libc::SYS_mq_timedsend,
            libc::SYS_msgrcv,
            libc::SYS_msgsnd,
        ],
    ),
    (
        Memory,
        &[
            libc::SYS_mmap,
            libc::SYS_munmap,
            libc::SYS_mprotect,
            libc::SYS_madvise,
            libc::SYS_brk,
            libc::SYS_mremap,
        ],
    ),
];

const BY_DESCRIPTOR: &[libc::c_long] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_ioctl,
    libc::SYS_close,
    libc::SYS_sendfile,
];

const BY_SOCKET_CALL: &[libc::c_long] = &[
    libc::SYS_connect,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
];

/// The table by system call number, as the kernel programs read it.
pub fn reasons() -> [u8; TABLE] {
    let mut table = [BlockReason::Other as u8; TABLE];
    for (reason, calls) in BY_REASON {
        for call in *calls {
            table[*call as usize] = *reason as u8;
        }
    }
    for call in BY_DESCRIPTOR {
        table[*call as usize] = BY_FD;
    }
    for call in BY_SOCKET_CALL {
        table[*call as usize] = BY_SOCKET;
    }
    table[libc::SYS_fcntl as usize] = BY_FCNTL;
    table[libc::SYS_restart_syscall as usize] = RESTART;
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_known_calls_have_their_reasons() {
        let table = reasons();
        assert_eq!(table[libc::SYS_futex as usize], Lock as u8);
        assert_eq!(table[libc::SYS_read as usize], BY_FD);
        assert_eq!(table[libc::SYS_epoll_wait as usize], Poll as u8);
        assert_eq!(table[libc::SYS_getpid as usize], BlockReason::Other as u8);
    }
}
