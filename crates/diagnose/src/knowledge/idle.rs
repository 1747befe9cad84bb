//! Functions in which threads of known runtimes and servers wait for work.

use super::known::table;

table! {
    /// Functions in which workers wait for work. The process speaks to others through such
    /// threads: one with a request in flight is not idle here.
    WORKER_PLACES {
        "ngx_thread_pool_cycle", "thread pool waits for a task", "nginx, core/ngx_thread_pool.c", Source;
        "bioProcessBackgroundJobs", "background jobs", "Redis, bio.c", Source;
        "IOThreadMain", "I/O thread waits for its turn", "Redis, networking.c", Source;
        "handle_fildes_io", "asynchronous I/O thread", "glibc, rt/aio_misc.c", Live;
        "uv__threadpool*", "thread pool waits for a task", "libuv, threadpool.c", Live;
        "node::(anonymous namespace)::PlatformWorkerThread*", "worker waits for a task", "Node.js, node_platform.cc", Live;
        "node::WorkerThreadsTaskRunner::DelayedTaskScheduler*", "waits for delayed tasks", "Node.js, node_platform.cc", Live;
        "v8::platform::DefaultWorkerThreadsTaskRunner*", "worker waits for a task", "V8, libplatform", Source;
        "java.util.concurrent.ThreadPoolExecutor.getTask*", "pool waits for a task", "JDK", Live;
        "java.util.concurrent.ForkJoinPool.awaitWork*", "fork/join pool waits for a task", "JDK", Live;
        "sun.nio.ch.Poller.poll*", "poller for virtual threads", "JDK 21", Live;
        "java.util.TimerThread.mainLoop", "timer waits for its next task", "JDK", Live;
        "runtime.stopm", "thread without a goroutine to run", "Go, runtime/proc.go", Live;
        "runtime.sysmon", "scheduler's monitor", "Go, runtime/proc.go", Live;
        "runtime.templateThread", "maker of threads", "Go, runtime/proc.go", Live;
        "runtime.findRunnable*", "looks for a goroutine to run", "Go, runtime/proc.go", Live;
        "tokio::runtime::scheduler::multi_thread::worker::Context::park*", "worker parks", "tokio", Live;
        "rayon_core::sleep::Sleep::sleep*", "worker sleeps", "rayon", Source;
        "std::thread::park*", "receiver of a channel parks", "Rust's standard library, crossbeam", Source;
        "gomp_thread_start", "thread of a team waits for the next region", "libgomp, team.c", Source;
        "Per_thread_connection_handler::block_until_new_connection*", "cached thread waits for a connection", "MySQL", Source;
        "BackgroundWriterMain", "background writer", "PostgreSQL", Service;
        "WalWriterMain", "writer of the write-ahead log", "PostgreSQL", Service;
        "CheckpointerMain", "checkpointer", "PostgreSQL", Service;
        "AutoVacLauncherMain", "launcher of autovacuum", "PostgreSQL", Service;
        "ApplyLauncherMain", "launcher of logical replication", "PostgreSQL", Service;
    }
}

table! {
    /// Functions in which threads of a virtual machine's own wait for work. They never speak to
    /// other processes, so a request in flight in their process is not theirs.
    RUNTIME_THREADS {
        "java.util.concurrent.DelayScheduler.loop", "timer of fork/join pools", "JDK 25", Live;
        "java.lang.VirtualThread.unblockVirtualThreads", "waker of virtual threads", "JDK 25", Live;
        "CompileQueue::get*", "compiler waits for a method", "HotSpot", Live;
        "WorkerThread::run*", "collector's worker", "HotSpot, from JDK 19", Live;
        "GangWorker::*", "collector's worker", "HotSpot, to JDK 18", Live;
        "G1ServiceThread::*", "collector's service thread", "HotSpot", Live;
        "G1ConcurrentRefineThread::wait*", "concurrent refinement", "HotSpot", Live;
        "G1PrimaryConcurrentRefineThread::wait*", "concurrent refinement", "HotSpot, from JDK 20", Live;
        "G1ConcurrentMarkThread::wait*", "concurrent marking", "HotSpot", Live;
        "ZMetronome::wait_for_tick*", "ZGC's periodic threads", "HotSpot", Live;
        "ZDirector::wait_for_tick*", "ZGC's director", "HotSpot, from JDK 21", Source;
        "ZDriverPort::receive*", "ZGC's driver waits for a collection", "HotSpot, from JDK 21", Live;
        "ZUncommitter::wait*", "ZGC returns memory", "HotSpot", Live;
        "ShenandoahRegulatorThread::regulator_sleep*", "Shenandoah's regulator", "HotSpot, from JDK 24", Source;
        "StringDedup::Processor::wait_for_requests*", "string deduplication", "HotSpot, from JDK 18", Source;
        "ConcurrentMarkSweepThread::sleepBeforeNextCycle*", "concurrent mark and sweep", "HotSpot, to JDK 13", Source;
        "VMThread::wait_for_operation*", "VM operations", "HotSpot", Live;
        "WatcherThread::sleep*", "periodic tasks", "HotSpot", Live;
        "os::signal_wait*", "signal dispatcher", "HotSpot", Live;
        "ServiceThread::service_thread_entry*", "service thread", "HotSpot", Live;
        "NotificationThread::notification_thread_entry*", "notifications", "HotSpot", Live;
        "MonitorDeflationThread::monitor_deflation_thread_entry*", "monitor deflation", "HotSpot", Live;
        "NMethodSweeper::sweeper_loop*", "code sweeper", "HotSpot, to JDK 19", Live;
        "CallJavaMainInNewThread", "launcher waits for the main thread", "JDK, java_md.c", Live;
        "Threads::destroy_vm*", "main thread after main()", "HotSpot", Live;
        "java.lang.ref.Reference.waitForReferencePendingList", "reference handler", "JDK", Live;
        "java.lang.ref.ReferenceQueue.remove*", "finalizer and cleaners", "JDK", Live;
    }
}

table! {
    /// Main functions of threads that wait for work in them directly. Functions below them work.
    WORKER_MAINS {
        "G1ConcurrentMarkThread::run_service*", "concurrent marking", "HotSpot", Live;
        "G1ConcurrentRefineThread::run_service*", "concurrent refinement", "HotSpot", Live;
        "ZDirector::run_*", "ZGC's director", "HotSpot", Live;
        "ZDriver::run_*", "ZGC's driver waits for a collection", "HotSpot, to JDK 20", Live;
        "ZDriverMinor::run_*", "ZGC's driver waits for a collection", "HotSpot, from JDK 21", Live;
        "ZDriverMajor::run_*", "ZGC's driver waits for a collection", "HotSpot, from JDK 21", Live;
        "ZUncommitter::run_*", "ZGC returns memory", "HotSpot", Live;
        "ZUnmapper::run_*", "ZGC unmaps memory", "HotSpot", Live;
        "ShenandoahControlThread::run_service*", "Shenandoah waits for a collection", "HotSpot", Live;
        "ShenandoahGenerationalControlThread::*", "Shenandoah waits for a collection", "HotSpot, from JDK 24", Source;
        "ShenandoahUncommitThread::run_service*", "Shenandoah returns memory", "HotSpot, from JDK 24", Live;
        "boost::asio::detail::scheduler::do_run_one*", "thread waits for the one that polls", "Boost.Asio", Service;
        "boost::asio::detail::scheduler::do_wait_one*", "thread waits with a time limit", "Boost.Asio", Service;
        "asio::detail::scheduler::do_run_one*", "thread waits for the one that polls", "Asio without Boost", Source;
        "asio::detail::scheduler::do_wait_one*", "thread waits with a time limit", "Asio without Boost", Source;
        "boost::asio::detail::task_io_service::do_run_one*", "thread waits for the one that polls", "Boost.Asio before 1.66", Source;
    }
}

table! {
    /// Python functions that wait for work themselves, or through [`SCRIPT_MESSAGES`]. Functions
    /// below them work.
    SCRIPT_WORKERS {
        "_worker (concurrent/futures/thread.py)", "thread pool's worker", "CPython's library", Live;
        "_process_worker (concurrent/futures/process.py)", "process pool's worker", "CPython's library", Source;
        "worker (multiprocessing/pool.py)", "pool's worker", "CPython's library", Live;
        "_handle_tasks (multiprocessing/pool.py)", "pool's own thread", "CPython's library", Live;
        "_handle_results (multiprocessing/pool.py)", "pool's own thread", "CPython's library", Live;
        "_wait_for_updates (multiprocessing/pool.py)", "pool's own thread", "CPython's library", Live;
    }
}

table! {
    /// Files of Python's library by which threads and processes give each other work.
    SCRIPT_MESSAGES {
        "*(queue.py)", "queue", "CPython's library", Live;
        "*(threading.py)", "lock, event or condition", "CPython's library", Live;
        "*(multiprocessing/queues.py)", "queue between processes", "CPython's library", Live;
        "*(multiprocessing/synchronize.py)", "lock between processes", "CPython's library", Live;
        "*(multiprocessing/connection.py)", "pipe between processes", "CPython's library", Live;
    }
}

table! {
    /// Functions that a thread only waits through: they lie between the wait and the function that
    /// says where the thread waits.
    WAIT_MACHINERY {
        "__futex_abstimed_wait*", "futex", "glibc", Live;
        "futex_wait*", "futex", "glibc", Live;
        "__pthread_cond_wait*", "condition variable", "glibc", Live;
        "__new_sem_wait*", "semaphore", "glibc", Live;
        "pthread_cond_*", "condition variable", "C library", Live;
        "sem_wait*", "semaphore", "C library", Live;
        "Parker::park*", "parked thread", "HotSpot", Live;
        "Unsafe_Park*", "parked thread", "HotSpot", Live;
        "os::Platform*", "VM's lock or semaphore", "HotSpot", Live;
        "Platform*", "VM's lock or semaphore", "HotSpot", Live;
        "PosixSemaphore::wait*", "VM's semaphore", "HotSpot", Live;
        "Monitor::wait*", "VM's monitor", "HotSpot", Live;
        "os::naked_short_sleep*", "VM's sleep", "HotSpot", Live;
        "__GI___nanosleep", "sleep", "glibc", Live;
        "__GI___clock_nanosleep", "sleep", "glibc", Live;
        "nanosleep", "sleep", "C library", Live;
        "clock_nanosleep", "sleep", "C library", Live;
        "ObjectMonitor::*", "object's monitor", "HotSpot", Live;
        "ObjectSynchronizer::*", "object's monitor", "HotSpot", Live;
        "JVM_MonitorWait*", "object's monitor", "HotSpot", Live;
        "java.lang.Object.wait*", "object's monitor", "JDK", Live;
        "jdk.internal.misc.Unsafe.park*", "parked thread", "JDK", Live;
        "java.util.concurrent.locks.*", "lock or condition", "JDK", Live;
        "java.util.concurrent.ForkJoinPool.*", "managed blocking", "JDK", Live;
        "boost::asio::detail::conditionally_enabled_event::*", "event", "Boost.Asio", Service;
        "asio::detail::conditionally_enabled_event::*", "event", "Asio without Boost", Source;
        "void boost::asio::detail::posix_event::wait*", "event; a template names its result first", "Boost.Asio", Service;
        "void asio::detail::posix_event::wait*", "event; a template names its result first", "Asio without Boost", Source;
    }
}

table! {
    /// The fork/join pool's own place, which is no machinery though its name begins alike.
    FORK_JOIN_PLACE {
        "java.util.concurrent.ForkJoinPool.awaitWork*", "fork/join pool waits for a task", "JDK", Live;
    }
}

table! {
    /// Functions of schedulers that move tasks between threads: the thread that last sent a request
    /// for a task does not wait for the answer.
    EXECUTOR_PLACES {
        "java.util.concurrent.ForkJoinPool.awaitWork*", "carrier of virtual threads", "JDK", Live;
        "runtime.stopm*", "thread without a goroutine to run", "Go", Live;
    }
}

table! {
    /// Main functions of threads that talk to no other process and wait in them directly.
    EXECUTOR_MAINS {
        "node::(anonymous namespace)::PlatformWorkerThread*", "worker waits for a task", "Node.js", Live;
        "node::inspector::(anonymous namespace)::StartIoThreadMain*", "inspector's thread", "Node.js", Live;
    }
}

table! {
    /// Functions that executors wait through.
    EXECUTOR_WAITS {
        "*futex*", "futex", "C library", Live;
        "*cond_wait*", "condition variable", "C library", Live;
        "*cond_timedwait*", "condition variable", "C library", Live;
        "*sem_wait*", "semaphore", "C library", Live;
        "*asio::detail::posix_event::wait*", "event", "Asio", Service;
        "*asio::detail::conditionally_enabled_event::wait*", "event", "Asio", Service;
    }
}

table! {
    /// Functions at a thread's root that languages put below the program's first function.
    THREAD_ENTRIES {
        "start_thread", "a thread begins", "glibc", Live;
        "clone3", "a thread begins", "C library", Live;
        "__clone3", "a thread begins", "C library", Live;
        "clone", "a thread begins", "C library", Live;
        "__clone", "a thread begins", "C library", Live;
    }
}

table! {
    /// Code between a thread's entry and the program's first function that has no name of the
    /// standard library's.
    LANGUAGE_ENTRIES {
        "execute_native_thread_routine", "std::thread begins", "libstdc++", Live;
        "libstdc++.so*", "function without a name", "libstdc++", Service;
        "libc++.so*", "function without a name", "libc++", Source;
    }
}
