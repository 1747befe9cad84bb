//! The block reason of each system call (x86-64), as far as the call alone determines it.
//!
//! Calls that are not listed count as `other`. Calls on a descriptor are decided in the kernel by
//! the descriptor's kind ([`BY_FD`]).

use wallscope_model::BlockReason::{self, Child, Disk, Lock, Memory, Pipe, Poll, Timer};

/// The kind of the descriptor in the first argument decides (`WS_BY_FD`).
pub const BY_FD: u8 = 32;
/// `restart_syscall`: the reason of the interrupted call applies (`WS_RESTART`).
pub const RESTART: u8 = 33;
/// `fcntl`: its command decides (`WS_BY_FCNTL`).
pub const BY_FCNTL: u8 = 34;
/// Calls of sockets: network, but for unix sockets (`WS_BY_SOCKET`).
pub const BY_SOCKET: u8 = 35;
/// `poll` and `ppoll`: a sleep if they have no descriptors and a time limit (`WS_BY_POLL`).
pub const BY_POLL: u8 = 36;
/// `select` and `pselect6`: a sleep if they have no descriptors and a time limit (`WS_BY_SELECT`).
pub const BY_SELECT: u8 = 37;
/// `splice` and similar calls: the kernel functions on the stack give the end that the thread waits for
/// (`WS_BY_PLACE`).
pub const BY_PLACE: u8 = 38;
/// Entries of the kernel's table (`WS_SYSCALLS`).
pub const TABLE: usize = 512;

/// The `futex` operation of that name.
pub const FUTEX_LOCK_PI2: i32 = 13;

/// Operation of a `futex` call, from its second argument without the option flags.
pub fn futex_operation(argument: u64) -> i32 {
    argument as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME)
}

/// Whether a `futex` call with this second argument waits; other operations wake threads.
pub fn futex_waits(argument: u64) -> bool {
    const WAITS: [i32; 5] = [
        libc::FUTEX_WAIT,
        libc::FUTEX_WAIT_BITSET,
        libc::FUTEX_LOCK_PI,
        FUTEX_LOCK_PI2,
        libc::FUTEX_WAIT_REQUEUE_PI,
    ];
    WAITS.contains(&futex_operation(argument))
}

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
    (Timer, &[libc::SYS_nanosleep, libc::SYS_clock_nanosleep]),
    (
        Poll,
        &[
            libc::SYS_epoll_wait,
            libc::SYS_epoll_pwait,
            441, // epoll_pwait2
            426, // io_uring_enter
            libc::SYS_io_getevents,
            libc::SYS_pause,
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

const BY_MORE: &[(u8, &[libc::c_long])] = &[
    (BY_FCNTL, &[libc::SYS_fcntl]),
    (RESTART, &[libc::SYS_restart_syscall]),
    (BY_POLL, &[libc::SYS_poll, libc::SYS_ppoll]),
    (BY_SELECT, &[libc::SYS_select, libc::SYS_pselect6]),
    (
        BY_PLACE,
        &[libc::SYS_tee, libc::SYS_splice, libc::SYS_vmsplice],
    ),
];

/// The argument of a call that names the resource it waits for (`enum ws_argument`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// None.
    None = 0,
    /// The first is a descriptor.
    Descriptor = 1,
    /// The first is a path.
    Path = 2,
    /// The second is a path.
    SecondPath = 3,
    /// The first is a lock: a futex's address, or the id of semaphores.
    Lock = 4,
    /// The first is a list of descriptors to poll, the second its length.
    PollList = 5,
    /// The first is a process, where it is positive.
    Process = 6,
    /// The second is a process, or a descriptor of one, as the first says.
    SecondProcess = 7,
}

const BY_ARGUMENT: &[(Argument, &[libc::c_long])] = &[
    (
        Argument::Descriptor,
        &[
            libc::SYS_fcntl,
            libc::SYS_flock,
            libc::SYS_fsync,
            libc::SYS_fdatasync,
            libc::SYS_syncfs,
            libc::SYS_sync_file_range,
            libc::SYS_getdents64,
            libc::SYS_ftruncate,
            libc::SYS_fallocate,
            libc::SYS_readahead,
            libc::SYS_fadvise64,
            libc::SYS_copy_file_range,
            libc::SYS_epoll_wait,
            libc::SYS_epoll_pwait,
            441, // epoll_pwait2
            426, // io_uring_enter
            libc::SYS_tee,
            libc::SYS_splice,
            libc::SYS_vmsplice,
            // Queues of messages are files of a file system of their own.
            libc::SYS_mq_timedreceive,
            libc::SYS_mq_timedsend,
        ],
    ),
    (
        Argument::Path,
        &[
            libc::SYS_open,
            libc::SYS_creat,
            libc::SYS_stat,
            libc::SYS_lstat,
            libc::SYS_unlink,
            libc::SYS_rename,
            libc::SYS_mkdir,
            libc::SYS_rmdir,
            libc::SYS_truncate,
            libc::SYS_execve,
        ],
    ),
    (
        Argument::SecondPath,
        &[
            libc::SYS_openat,
            437, // openat2
            libc::SYS_newfstatat,
            libc::SYS_statx,
            libc::SYS_unlinkat,
            libc::SYS_renameat,
            libc::SYS_renameat2,
            libc::SYS_mkdirat,
            libc::SYS_execveat,
        ],
    ),
    (
        Argument::Lock,
        &[
            libc::SYS_futex,
            454,
            455,
            456,
            libc::SYS_semop,
            libc::SYS_semtimedop,
        ],
    ),
    (Argument::PollList, &[libc::SYS_poll, libc::SYS_ppoll]),
    (Argument::Process, &[libc::SYS_wait4]),
    (Argument::SecondProcess, &[libc::SYS_waitid]),
];

/// The argument that names the resource, by system call number, as the kernel programs read it.
pub fn arguments() -> [u8; TABLE] {
    let mut table = [Argument::None as u8; TABLE];
    for call in BY_DESCRIPTOR.iter().chain(BY_SOCKET_CALL) {
        table[*call as usize] = Argument::Descriptor as u8;
    }
    for (argument, calls) in BY_ARGUMENT {
        for call in *calls {
            table[*call as usize] = *argument as u8;
        }
    }
    table
}

macro_rules! named {
    ($number:expr, $($call:ident => $syscall:ident,)*) => {
        match libc::c_long::from($number) {
            $(libc::$syscall => stringify!($call),)*
            426 => "io_uring_enter",
            435 => "clone3",
            437 => "openat2",
            441 => "epoll_pwait2",
            449 => "futex_waitv",
            454..=456 => "futex",
            _ => "system call",
        }
    };
}

/// The name of a system call that waits; the other calls share a general name.
pub fn name(number: u32) -> &'static str {
    named! { number,
        read => SYS_read,
        write => SYS_write,
        pread64 => SYS_pread64,
        pwrite64 => SYS_pwrite64,
        readv => SYS_readv,
        writev => SYS_writev,
        preadv => SYS_preadv,
        pwritev => SYS_pwritev,
        preadv2 => SYS_preadv2,
        pwritev2 => SYS_pwritev2,
        ioctl => SYS_ioctl,
        close => SYS_close,
        sendfile => SYS_sendfile,
        connect => SYS_connect,
        accept => SYS_accept,
        accept4 => SYS_accept4,
        sendto => SYS_sendto,
        recvfrom => SYS_recvfrom,
        sendmsg => SYS_sendmsg,
        recvmsg => SYS_recvmsg,
        sendmmsg => SYS_sendmmsg,
        recvmmsg => SYS_recvmmsg,
        shutdown => SYS_shutdown,
        fcntl => SYS_fcntl,
        flock => SYS_flock,
        fsync => SYS_fsync,
        fdatasync => SYS_fdatasync,
        syncfs => SYS_syncfs,
        sync => SYS_sync,
        sync_file_range => SYS_sync_file_range,
        msync => SYS_msync,
        getdents64 => SYS_getdents64,
        ftruncate => SYS_ftruncate,
        fallocate => SYS_fallocate,
        readahead => SYS_readahead,
        fadvise64 => SYS_fadvise64,
        copy_file_range => SYS_copy_file_range,
        epoll_wait => SYS_epoll_wait,
        epoll_pwait => SYS_epoll_pwait,
        tee => SYS_tee,
        splice => SYS_splice,
        vmsplice => SYS_vmsplice,
        open => SYS_open,
        creat => SYS_creat,
        stat => SYS_stat,
        lstat => SYS_lstat,
        unlink => SYS_unlink,
        rename => SYS_rename,
        mkdir => SYS_mkdir,
        rmdir => SYS_rmdir,
        truncate => SYS_truncate,
        execve => SYS_execve,
        openat => SYS_openat,
        newfstatat => SYS_newfstatat,
        statx => SYS_statx,
        unlinkat => SYS_unlinkat,
        renameat => SYS_renameat,
        renameat2 => SYS_renameat2,
        mkdirat => SYS_mkdirat,
        execveat => SYS_execveat,
        futex => SYS_futex,
        semop => SYS_semop,
        semtimedop => SYS_semtimedop,
        poll => SYS_poll,
        ppoll => SYS_ppoll,
        select => SYS_select,
        pselect6 => SYS_pselect6,
        wait4 => SYS_wait4,
        waitid => SYS_waitid,
        vfork => SYS_vfork,
        fork => SYS_fork,
        clone => SYS_clone,
        mmap => SYS_mmap,
        munmap => SYS_munmap,
        mprotect => SYS_mprotect,
        madvise => SYS_madvise,
        brk => SYS_brk,
        mremap => SYS_mremap,
        nanosleep => SYS_nanosleep,
        clock_nanosleep => SYS_clock_nanosleep,
        pause => SYS_pause,
        rt_sigtimedwait => SYS_rt_sigtimedwait,
        rt_sigsuspend => SYS_rt_sigsuspend,
        io_getevents => SYS_io_getevents,
        mq_timedreceive => SYS_mq_timedreceive,
        mq_timedsend => SYS_mq_timedsend,
        msgrcv => SYS_msgrcv,
        msgsnd => SYS_msgsnd,
        link => SYS_link,
        symlink => SYS_symlink,
        exit => SYS_exit,
        exit_group => SYS_exit_group,
    }
}

/// Whether the call waits for a futex.
pub fn is_futex(number: u64) -> bool {
    number == libc::SYS_futex as u64 || (454..=456).contains(&number)
}

/// Whether the call waits for semaphores of System V.
pub fn is_semaphore(number: u32) -> bool {
    [libc::SYS_semop, libc::SYS_semtimedop].contains(&libc::c_long::from(number))
}

/// Whether the call waits for a lock on a file that it names by a descriptor.
pub fn locks_file(number: u32) -> bool {
    [libc::SYS_flock, libc::SYS_fcntl].contains(&libc::c_long::from(number))
}

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
    for (by, calls) in BY_MORE {
        for call in *calls {
            table[*call as usize] = *by;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_wakes_others_by_futex_does_not_wait() {
        let private = libc::FUTEX_PRIVATE_FLAG;
        for waits in [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET, FUTEX_LOCK_PI2] {
            assert!(futex_waits((waits | private) as u64) && futex_waits(waits as u64));
        }
        let other = [libc::FUTEX_WAKE, libc::FUTEX_UNLOCK_PI, libc::FUTEX_REQUEUE];
        assert!(!other.iter().any(|op| futex_waits((op | private) as u64)));
    }

    #[test]
    fn well_known_calls_have_their_reasons() {
        let table = reasons();
        assert_eq!(table[libc::SYS_futex as usize], Lock as u8);
        assert_eq!(table[libc::SYS_read as usize], BY_FD);
        assert_eq!(table[libc::SYS_epoll_wait as usize], Poll as u8);
        assert_eq!(table[libc::SYS_getpid as usize], BlockReason::Other as u8);
    }
}
