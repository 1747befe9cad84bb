//! Functions of C libraries and of language runtimes that take locks, wait, send or allocate.

use super::known::table;

table! {
    /// Calls that wait until the data that they write or send is taken. For stacks without the
    /// kernel's functions; names as [`super::libc_call`] gives them.
    SEND_CALLS {
        "send", "socket", "POSIX", Live;
        "sendto", "socket", "POSIX", Live;
        "sendmsg", "socket", "POSIX", Live;
        "sendmmsg", "socket", "Linux", Source;
        "sendfile", "socket or pipe", "Linux", Live;
        "sendfile64", "socket or pipe", "glibc", Source;
        "write", "pipe or socket", "POSIX", Live;
        "writev", "pipe or socket", "POSIX", Live;
        "splice", "pipe", "Linux", Source;
    }
}

table! {
    /// Calls that wait for a signal without a time limit.
    SIGNAL_CALLS {
        "pause", "any signal", "POSIX", Live;
        "sigsuspend", "any signal", "POSIX", Live;
        "sigwait", "chosen signals", "POSIX", Live;
        "sigwaitinfo", "chosen signals", "POSIX", Live;
    }
}

table! {
    /// Calls that wait for a connection to be made to this process.
    ACCEPT_CALLS {
        "accept", "connection", "POSIX", Live;
        "accept4", "connection", "Linux", Live;
    }
}

table! {
    /// Calls that make a connection.
    CONNECT_CALLS {
        "connect", "connection", "POSIX", Live;
    }
}

table! {
    /// Calls that wait for the lock of a file.
    FILE_LOCK_CALLS {
        "flock", "lock of a file", "Linux", Live;
        "lockf", "lock of a file", "POSIX", Live;
        "fcntl", "lock of a file", "POSIX", Live;
        "fcntl64", "lock of a file", "glibc", Live;
    }
}

table! {
    /// Calls that wait while a message queue is full.
    MESSAGE_SEND_CALLS {
        "mq_timedsend", "POSIX message queue", "POSIX", Live;
        "mq_send", "POSIX message queue", "POSIX", Live;
        "msgsnd", "System V message queue", "POSIX", Live;
    }
}

table! {
    /// Calls that wait while a message queue is empty.
    MESSAGE_RECEIVE_CALLS {
        "mq_timedreceive", "POSIX message queue", "POSIX", Live;
        "mq_receive", "POSIX message queue", "POSIX", Live;
        "msgrcv", "System V message queue", "POSIX", Live;
    }
}

table! {
    /// Waits at a condition variable or semaphore, in any language. Matched without template
    /// arguments and parameters.
    CONDITION_WAITS {
        "*pthread_cond_wait*", "condition variable", "POSIX", Live;
        "*pthread_cond_timedwait*", "condition variable", "POSIX", Live;
        "*pthread_cond_clockwait*", "condition variable", "glibc 2.30", Live;
        "*cnd_wait*", "condition variable", "C11", Source;
        "*std::condition_variable*", "condition variable", "C++", Live;
        "*Condvar::wait*", "condition variable", "Rust", Live;
        "*sem_wait*", "semaphore", "POSIX", Live;
        "*sem_timedwait*", "semaphore", "POSIX", Live;
        "*sem_clockwait*", "semaphore", "glibc 2.30", Live;
    }
}

table! {
    /// The C library's functions that wait at a condition variable's futex.
    CONDITION_FUNCTIONS {
        "pthread_cond_wait", "condition variable", "glibc, nptl", Live;
        "pthread_cond_timedwait", "condition variable", "glibc, nptl", Live;
        "pthread_cond_clockwait", "condition variable", "glibc, nptl", Live;
        "__pthread_cond_wait", "condition variable", "glibc, nptl", Live;
        "__pthread_cond_timedwait", "condition variable", "glibc, nptl", Live;
        "__pthread_cond_clockwait", "condition variable", "glibc, nptl", Live;
    }
}

table! {
    /// The C library's functions that wait for a thread's end.
    JOIN_FUNCTIONS {
        "pthread_join", "join", "glibc, nptl", Live;
        "pthread_timedjoin_np", "join with a time limit", "glibc, nptl", Source;
        "pthread_clockjoin_np", "join with a time limit", "glibc, nptl", Source;
        "__pthread_join", "join", "glibc, nptl", Live;
        "__pthread_clockjoin_ex", "join", "glibc, nptl", Live;
    }
}

table! {
    /// The C library's functions that take a mutex, also inside a condition variable's wait.
    MUTEX_FUNCTIONS {
        "*mutex*", "mutex", "glibc, nptl", Live;
        "*lll_lock*", "low-level lock", "glibc, nptl", Live;
    }
}

table! {
    /// Files of the C library.
    C_LIBRARY_FILES {
        "libc.so*", "C library", "glibc", Live;
        "libc-2.*", "C library", "glibc before 2.34", Live;
        "libpthread.so*", "threads", "glibc before 2.34", Live;
        "libpthread-2.*", "threads", "glibc before 2.34", Live;
    }
}

table! {
    /// Functions that take a lock which another thread has to give up.
    LOCK_FUNCTIONS {
        "*mutex_lock*", "mutex", "POSIX, C11", Live;
        "*lll_lock_wait*", "low-level lock", "glibc", Live;
        "*futex_lock_pi*", "mutex with priority inheritance", "glibc", Live;
        "*rwlock_rdlock*", "read-write lock", "POSIX", Live;
        "*rwlock_wrlock*", "read-write lock", "POSIX", Live;
        "*lock_contended*", "mutex", "Rust's standard library", Live;
        "*read_contended*", "read-write lock", "Rust's standard library", Live;
        "*write_contended*", "read-write lock", "Rust's standard library", Live;
        "*::lock_slow*", "mutex", "parking_lot", Live;
        "*lock_exclusive_slow*", "read-write lock", "parking_lot", Source;
        "*lock_shared_slow*", "read-write lock", "parking_lot", Source;
        "*ObjectMonitor::enter*", "object's monitor", "HotSpot", Live;
        "*lock_PyThread_acquire*", "threading.Lock", "CPython", Live;
        "*rlock_acquire*", "threading.RLock", "CPython", Live;
        "*_enter_buffered_busy*", "lock of a buffered file", "CPython, bufferedio.c", Source;
    }
}

table! {
    /// Ruby's methods that take a mutex or a monitor. The kernel sees such a thread wait at a condition of its own,
    /// as it sees a thread that waits for work.
    RUBY_LOCKS {
        "Mutex#lock", "mutex", "Ruby", Live;
        "Mutex#synchronize", "mutex", "Ruby", Live;
        "Monitor#enter", "monitor", "Ruby", Live;
        "Monitor#synchronize", "monitor", "Ruby", Live;
        "Monitor#mon_enter", "monitor", "Ruby", Source;
        "Monitor#mon_synchronize", "monitor", "Ruby", Source;
        "MonitorMixin#mon_enter", "monitor", "Ruby", Source;
        "MonitorMixin#mon_synchronize", "monitor", "Ruby", Source;
    }
}

table! {
    /// Functions in which servers wait for locks of their own making, with the way to ask for the
    /// holder.
    OWN_LOCKS {
        "ProcSleep", "PostgreSQL tells which process holds it: select pid, pg_blocking_pids(pid), query from pg_stat_activity where wait_event_type = 'Lock'", "PostgreSQL, proc.c", Service;
    }
}

table! {
    /// Functions of Python's library that take a lock which the library holds across work.
    SCRIPT_LOCKS {
        "acquire (logging/__init__.py)", "handler's lock, held while it writes", "CPython's library", Live;
        "handle (logging/__init__.py)", "handler's lock, held while it writes", "CPython's library, from 3.13", Source;
    }
}

table! {
    /// Functions that sleep between their tries to get a lock; of scripts with their file.
    LOCK_RETRIES {
        "sqlite3_step", "busy handler", "SQLite", Live;
        "sqlite3_exec", "busy handler", "SQLite", Source;
        "sqlite3_prepare*", "busy handler", "SQLite", Source;
        "sqlite3_wal_checkpoint*", "busy handler", "SQLite", Source;
        "sqlite3_backup_step", "busy handler", "SQLite", Source;
        "sqlite3_blob_open", "busy handler", "SQLite", Source;
        "sqlite3_close*", "busy handler", "SQLite", Source;
        "s_lock", "spinlock", "PostgreSQL", Source;
        "perform_spin_delay", "spinlock", "PostgreSQL", Source;
        "hold_lock_file_for_update_timeout*", "lock file", "git", Source;
        "acquire (site-packages/filelock/_api.py)", "lock file", "Python, filelock", Source;
        "acquire (site-packages/portalocker/utils.py)", "lock file", "Python, portalocker", Source;
        "acquire (site-packages/fasteners/process_lock.py)", "lock file", "Python, fasteners", Source;
    }
}

table! {
    /// Sleeps that the program asked such a library for: no try to get a lock.
    ASKED_SLEEPS {
        "sqlite3_sleep", "sleep", "SQLite", Source;
    }
}

table! {
    /// Functions that sleep for a time that their caller names, by a call that may also wait for others.
    SLEEPS {
        "java.lang.Thread.sleep*", "sleep", "JDK", Live;
        "pg_sleep", "sleep", "PostgreSQL", Live;
    }
}

table! {
    /// Functions of the memory allocator, as [`super::allocator_call`] gives their names.
    ALLOCATOR {
        "malloc", "allocates", "C library", Live;
        "calloc", "allocates", "C library", Live;
        "realloc", "allocates", "C library", Live;
        "free", "frees", "C library", Live;
        "cfree", "frees", "C library", Source;
        "memalign", "allocates", "C library", Source;
    }
}

table! {
    /// Calls by which programs make locks, conditions and queues of their own.
    PLAIN_SEMAPHORES {
        "semop", "System V semaphore", "POSIX", Live;
        "semtimedop", "System V semaphore", "Linux", Live;
        "__semtimedop", "System V semaphore", "glibc", Live;
        "syscall", "futex called directly", "C library", Live;
    }
}
