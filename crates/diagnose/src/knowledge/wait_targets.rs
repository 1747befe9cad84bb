//! Functions that tell the target of a wait, where the reason alone does not.

use super::known::table;

table! {
    /// Threads that are joined.
    JOINS {
        "*pthread_join*", "join", "POSIX", Live;
        "*pthread_clockjoin*", "join", "glibc", Live;
        "*JoinHandle*", "join", "Rust", Live;
        "*JoinInner*", "join", "Rust", Live;
    }
}

table! {
    /// Asynchronous I/O by the C library's threads.
    LIBRARY_AIO {
        "*aio_suspend*", "aio", "POSIX", Live;
        "*lio_listio*", "aio", "POSIX", Source;
    }
}

table! {
    /// C++ futures.
    CPP_FUTURES {
        "*std::__atomic_futex_unsigned_base*", "std::future", "libstdc++", Live;
        "*__future_base*", "std::future", "libstdc++", Live;
    }
}

table! {
    /// Barriers.
    BARRIERS {
        "*barrier_wait*", "barrier", "POSIX", Live;
        "*Barrier::wait*", "barrier", "Rust, C++", Source;
        "*CyclicBarrier.await*", "barrier", "JDK", Source;
    }
}

table! {
    /// Read-write locks, to write.
    WRITE_LOCKS {
        "*rwlock_wrlock*", "read-write lock", "POSIX", Live;
        "*rwlock_timedwrlock*", "read-write lock", "POSIX", Source;
    }
}

table! {
    /// Read-write locks, to read.
    READ_LOCKS {
        "*rwlock_rdlock*", "read-write lock", "POSIX", Live;
        "*rwlock_timedrdlock*", "read-write lock", "POSIX", Source;
    }
}

table! {
    /// System V semaphores.
    SEMAPHORES {
        "*semop*", "semaphore", "POSIX", Live;
        "*semtimedop*", "semaphore", "Linux", Live;
    }
}

table! {
    /// Memory of the Java heap.
    JAVA_HEAP {
        "*CollectedHeap::mem_allocate*", "allocation waits for the collector", "HotSpot", Live;
        "*CollectedHeap::attempt_allocation*", "allocation waits for the collector", "HotSpot", Live;
        "*MemAllocator::allocate*", "allocation waits for the collector", "HotSpot", Live;
        "*VM_CollectForAllocation*", "allocation waits for the collector", "HotSpot", Live;
    }
}

table! {
    /// Pauses of the Java VM.
    JAVA_PAUSES {
        "*SafepointSynchronize::block*", "safepoint", "HotSpot", Live;
        "*SafepointMechanism::process*", "safepoint", "HotSpot", Live;
    }
}

table! {
    /// Library calls that force written data to the disk.
    SYNC_FUNCTIONS {
        "*fsync*", "fsync()", "POSIX", Live;
        "*fdatasync*", "fdatasync()", "POSIX", Live;
        "*msync*", "msync()", "POSIX", Live;
        "*sync_file_range*", "sync_file_range()", "Linux", Source;
    }
}

table! {
    /// Files of OpenMP runtimes: they make their system calls themselves.
    OPENMP_FILES {
        "libgomp*", "team of threads", "GCC", Service;
        "libomp*", "team of threads", "LLVM", Source;
        "libiomp*", "team of threads", "Intel", Source;
    }
}

table! {
    /// Functions of OpenMP runtimes.
    OPENMP_FUNCTIONS {
        "libgomp*", "function without a name", "GCC", Service;
        "libomp*", "function without a name", "LLVM", Source;
        "libiomp*", "function without a name", "Intel", Source;
        "GOMP_*", "entry of the runtime", "GCC", Source;
    }
}
