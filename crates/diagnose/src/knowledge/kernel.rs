//! Functions of the Linux kernel that tell a wait's cause.

use super::known::table;

table! {
    /// Functions that only put their caller to sleep.
    SLEEP {
        "schedule*", "scheduler", "kernel/sched/core.c", Live;
        "__schedule*", "scheduler", "kernel/sched/core.c", Live;
        "io_schedule", "scheduler", "kernel/sched/core.c", Live;
    }
}

table! {
    /// Functions in which kernel threads wait for work, below their main function or without one.
    KERNEL_THREAD_WAITS {
        "io_wq_worker", "worker of io_uring", "io_uring/io-wq.c", Live;
        "kthreadd", "starts kernel threads", "kernel/kthread.c", Live;
        "devtmpfs_work_loop", "makes device files", "drivers/base/devtmpfs.c", Live;
        "rcu_tasks_one_gp", "RCU tasks", "kernel/rcu/tasks.h", Live;
        "rcu_gp_fqs_loop", "RCU grace periods", "kernel/rcu/tree.c", Live;
    }
}

table! {
    /// A thread waits until the data that it writes or sends is taken.
    NOT_TAKEN {
        "pipe_write*", "full pipe", "fs/pipe.c", Live;
        "anon_pipe_write*", "full pipe", "fs/pipe.c, from 6.13", Live;
        "n_tty_write*", "full terminal", "drivers/tty/n_tty.c", Source;
        "unix_stream_sendmsg*", "full unix socket", "net/unix/af_unix.c", Live;
        "unix_dgram_sendmsg*", "full unix socket", "net/unix/af_unix.c", Live;
        "unix_wait_for_peer*", "full unix socket", "net/unix/af_unix.c", Live;
        "sk_stream_wait_memory*", "full send buffer", "net/core/stream.c", Live;
        "sock_alloc_send_pskb*", "full send buffer", "net/core/sock.c", Live;
        "sock_wait_for_wmem*", "full send buffer", "net/core/sock.c", Source;
        "do_mq_timedsend*", "full message queue", "ipc/mqueue.c", Live;
        "__x64_sys_mq_timedsend*", "full message queue", "ipc/mqueue.c", Live;
        "do_msgsnd*", "full message queue", "ipc/msg.c", Live;
    }
}

table! {
    /// A thread waits for a connection to be made.
    CONNECT {
        "sk_stream_wait_connect", "TCP handshake", "net/core/stream.c", Live;
        "inet_wait_for_connect", "TCP handshake", "net/ipv4/af_inet.c", Live;
        "__inet_stream_connect", "TCP handshake", "net/ipv4/af_inet.c", Live;
        "unix_stream_connect", "full accept queue of a unix socket", "net/unix/af_unix.c", Live;
    }
}

table! {
    /// A thread waits for a connection, or for a request to a file system that it serves.
    ACCEPT {
        "inet_csk_accept", "accept", "net/ipv4/inet_connection_sock.c", Live;
        "inet_csk_wait_for_connect", "accept", "net/ipv4/inet_connection_sock.c", Live;
        "unix_accept", "accept", "net/unix/af_unix.c", Live;
        "fuse_dev_do_read", "FUSE server waits for a request", "fs/fuse/dev.c", Live;
    }
}

table! {
    /// A thread waits for a signal, without a time limit.
    SIGNAL_WAIT {
        "*sys_pause", "pause()", "kernel/signal.c", Live;
        "sigsuspend", "sigsuspend()", "kernel/signal.c", Live;
    }
}

table! {
    /// One end of a local connection, by which answers come as well as work.
    LOCAL_CONNECTION {
        "unix_stream_*", "unix socket", "net/unix/af_unix.c", Live;
        "unix_seqpacket_*", "unix socket", "net/unix/af_unix.c", Live;
    }
}

table! {
    /// Functions through which data on a connection wakes a thread.
    WAKE_BY_CONNECTION {
        "sock_def_*", "socket is readable or writable", "net/core/sock.c", Live;
        "tcp_*", "TCP", "net/ipv4/tcp.c", Live;
        "unix_*", "unix socket", "net/unix/af_unix.c", Live;
        "udp_*", "UDP", "net/ipv4/udp.c", Live;
    }
}

table! {
    /// A named pipe is opened and its other end has no process yet.
    FIFO_OPEN {
        "*wait_for_partner*", "opens a named pipe", "fs/pipe.c", Live;
        "*fifo_open*", "opens a named pipe", "fs/pipe.c", Live;
    }
}

table! {
    /// A thread waits for the lock of a file.
    FILE_LOCK {
        "*flock_lock_inode*", "flock()", "fs/locks.c", Live;
        "*fcntl_setlk*", "fcntl()", "fs/locks.c", Live;
        "*locks_lock_inode*", "any lock of a file", "fs/locks.c", Live;
    }
}

table! {
    /// Written data is forced to the disk.
    SYNC {
        "*fsync_range*", "fsync()", "fs/sync.c", Live;
        "*do_fsync*", "fsync()", "fs/sync.c", Live;
        "*datasync*", "fdatasync()", "fs/sync.c", Live;
    }
}

table! {
    /// A process serves the file system.
    FUSE {
        "*__fuse_simple_request*", "request to the server", "fs/fuse/dev.c", Live;
        "*fuse_simple_request*", "request to the server", "fs/fuse/dev.c", Live;
        "*fuse_request_*", "request to the server", "fs/fuse/dev.c", Live;
    }
}

table! {
    /// The file system lies over the network.
    NETWORK_FILES {
        "*nfs_*", "NFS", "fs/nfs", Source;
        "*nfs4_*", "NFS", "fs/nfs", Source;
        "*rpc_wait_bit_killable*", "NFS", "net/sunrpc/sched.c", Source;
        "*cifs_*", "SMB", "fs/smb/client", Source;
        "*smb2_*", "SMB", "fs/smb/client", Source;
        "*ceph_*", "Ceph", "fs/ceph", Source;
    }
}

table! {
    /// The reader of a pipe or local socket is slower than its writer.
    PIPE_FULL {
        "*pipe_write*", "full pipe", "fs/pipe.c", Live;
        "*unix_stream_sendmsg*", "full unix socket", "net/unix/af_unix.c", Live;
        "*unix_dgram_sendmsg*", "full unix socket", "net/unix/af_unix.c", Live;
        "*n_tty_write*", "full terminal", "drivers/tty/n_tty.c", Source;
    }
}

table! {
    /// A message queue is full.
    MESSAGES_FULL {
        "*mq_timedsend*", "POSIX message queue", "ipc/mqueue.c", Live;
        "*do_msgsnd*", "System V message queue", "ipc/msg.c", Live;
    }
}

table! {
    /// A message queue is empty.
    MESSAGES_EMPTY {
        "*mq_timedreceive*", "POSIX message queue", "ipc/mqueue.c", Live;
        "*do_msgrcv*", "System V message queue", "ipc/msg.c", Live;
    }
}

table! {
    /// The other end of a TCP connection reads slower than this one writes.
    TCP_FULL {
        "*tcp_sendmsg*", "full send buffer", "net/ipv4/tcp.c", Live;
        "*sk_stream_wait_memory*", "full send buffer", "net/core/stream.c", Live;
    }
}

table! {
    /// Any way to make a connection.
    ANY_CONNECT {
        "*connect*", "connect()", "net", Live;
    }
}

table! {
    /// A page of a mapped file is missing.
    FILE_FAULTS {
        "*filemap_fault", "the page cache lacks it", "mm/filemap.c", Live;
    }
}

table! {
    /// A page of anonymous memory is missing.
    SWAP_FAULTS {
        "do_swap_page", "swapped out", "mm/memory.c", Source;
    }
}

table! {
    /// A pipe is read.
    PIPE_READ {
        "*pipe_read*", "empty pipe", "fs/pipe.c", Live;
    }
}

table! {
    /// Entry functions of system calls: the call's name follows the prefix.
    SYSTEM_CALL_ENTRY {
        "__x64_sys_*", "x86-64", "arch/x86", Live;
        "__arm64_sys_*", "arm64", "arch/arm64", Source;
        "__ia32_sys_*", "32-bit x86", "arch/x86", Source;
        "__se_sys_*", "sign-extended arguments", "include/linux/syscalls.h", Live;
        "__do_sys_*", "the call's body", "include/linux/syscalls.h", Live;
    }
}

table! {
    /// System calls that ask for events.
    ASKS_FOR_EVENTS {
        "epoll_*", "epoll", "fs/eventpoll.c", Live;
        "poll*", "poll()", "fs/select.c", Live;
        "ppoll*", "ppoll()", "fs/select.c", Live;
        "select*", "select()", "fs/select.c", Live;
        "pselect*", "pselect()", "fs/select.c", Live;
        "io_getevents*", "aio", "fs/aio.c", Live;
    }
}

table! {
    /// Kernel threads that finish requests of io_uring that would block.
    IO_URING_WORKER {
        "iou-wrk*", "worker", "io_uring/io-wq.c", Live;
    }
}
