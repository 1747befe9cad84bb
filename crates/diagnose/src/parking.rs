//! Places where workers of known runtimes and servers wait for work.

/// Functions in which known runtimes and servers wait for work. A name ending in `*` is a prefix.
const PARKING_PLACES: &[(&str, &str)] = &[
    ("nginx thread pools", "ngx_thread_pool_cycle"),
    ("redis background jobs", "bioProcessBackgroundJobs"),
    ("redis I/O threads", "IOThreadMain"),
    ("glibc asynchronous I/O", "handle_fildes_io"),
    ("libuv thread pool", "uv__threadpool*"),
    (
        "Node.js workers",
        "node::(anonymous namespace)::PlatformWorkerThread*",
    ),
    (
        "Node.js delayed tasks",
        "node::WorkerThreadsTaskRunner::DelayedTaskScheduler*",
    ),
    (
        "V8 workers",
        "v8::platform::DefaultWorkerThreadsTaskRunner*",
    ),
    (
        "JVM pools",
        "java.util.concurrent.ThreadPoolExecutor.getTask*",
    ),
    (
        "JVM fork/join pools",
        "java.util.concurrent.ForkJoinPool.awaitWork*",
    ),
    (
        "JVM timer of fork/join pools, from 25",
        "java.util.concurrent.DelayScheduler.loop",
    ),
    (
        "JVM waker of virtual threads",
        "java.lang.VirtualThread.unblockVirtualThreads",
    ),
    ("JVM pollers for virtual threads", "sun.nio.ch.Poller.poll*"),
    ("JVM compiler", "CompileQueue::get*"),
    ("JVM GC workers", "WorkerThread::run*"),
    ("JVM GC workers, to 18", "GangWorker::*"),
    ("JVM GC service", "G1ServiceThread::*"),
    (
        "JVM concurrent refinement",
        "G1ConcurrentRefineThread::wait*",
    ),
    (
        "JVM concurrent refinement, from 20",
        "G1PrimaryConcurrentRefineThread::wait*",
    ),
    ("JVM concurrent marking", "G1ConcurrentMarkThread::wait*"),
    ("JVM operations", "VMThread::wait_for_operation*"),
    ("JVM periodic tasks", "WatcherThread::sleep*"),
    ("JVM signals", "os::signal_wait*"),
    ("JVM service", "ServiceThread::service_thread_entry*"),
    (
        "JVM notifications",
        "NotificationThread::notification_thread_entry*",
    ),
    (
        "JVM monitor deflation",
        "MonitorDeflationThread::monitor_deflation_thread_entry*",
    ),
    ("JVM code sweeper", "NMethodSweeper::sweeper_loop*"),
    ("JVM launcher", "CallJavaMainInNewThread"),
    ("JVM thread of main() after it", "Threads::destroy_vm*"),
    (
        "JVM references",
        "java.lang.ref.Reference.waitForReferencePendingList",
    ),
    (
        "JVM finalizer, cleaners",
        "java.lang.ref.ReferenceQueue.remove*",
    ),
    ("Java timers", "java.util.TimerThread.mainLoop"),
    ("Go idle threads", "runtime.stopm"),
    ("Go monitor", "runtime.sysmon"),
    ("Go maker of threads", "runtime.templateThread"),
    ("Go idle processors", "runtime.findRunnable*"),
    (
        "tokio workers",
        "tokio::runtime::scheduler::multi_thread::worker::Context::park*",
    ),
    ("rayon workers", "rayon_core::sleep::Sleep::sleep*"),
    ("crossbeam channels' receivers", "std::thread::park*"),
    ("OpenMP workers", "gomp_thread_start"),
    (
        "MySQL thread cache",
        "Per_thread_connection_handler::block_until_new_connection*",
    ),
    ("PostgreSQL background writer", "BackgroundWriterMain"),
    ("PostgreSQL WAL writer", "WalWriterMain"),
    ("PostgreSQL checkpointer", "CheckpointerMain"),
    ("PostgreSQL launchers", "AutoVacLauncherMain"),
    ("PostgreSQL logical replication", "ApplyLauncherMain"),
];

/// Of those places, where threads of a runtime's own wait that never speak to anybody: a request that is in
/// flight in their process is not theirs.
const SILENT: &[&str] = &[
    "JVM timer of fork/join pools, from 25",
    "JVM waker of virtual threads",
    "JVM compiler",
    "JVM GC workers",
    "JVM GC workers, to 18",
    "JVM GC service",
    "JVM concurrent refinement",
    "JVM concurrent refinement, from 20",
    "JVM concurrent marking",
    "JVM operations",
    "JVM periodic tasks",
    "JVM signals",
    "JVM service",
    "JVM notifications",
    "JVM monitor deflation",
    "JVM code sweeper",
    "JVM launcher",
    "JVM thread of main() after it",
    "JVM references",
    "JVM finalizer, cleaners",
];

/// Functions in which servers wait for locks of their own that are no locks to the system, and who tells more.
const OWN_LOCKS: [(&str, &str); 1] = [(
    "ProcSleep",
    "PostgreSQL tells who holds it: select pid, pg_blocking_pids(pid), query from pg_stat_activity where \
     wait_event_type = 'Lock'",
)];

/// What there is to say of a wait in that function, if it is for such a lock.
pub(crate) fn own_lock(name: &str) -> Option<&'static str> {
    let found = OWN_LOCKS.iter().find(|(function, _)| *function == name);
    found.map(|(_, says)| *says)
}

/// The same of scripts: the function itself waits, or does by way of [`MESSAGES`]. Below it it works.
const IN_SCRIPTS: [&str; 6] = [
    "_worker (concurrent/futures/thread.py)",
    "_process_worker (concurrent/futures/process.py)",
    "worker (multiprocessing/pool.py)",
    // What a pool's own threads do beside.
    "_handle_tasks (multiprocessing/pool.py)",
    "_handle_results (multiprocessing/pool.py)",
    "_wait_for_updates (multiprocessing/pool.py)",
];
/// Files of Python's library by which processes and threads bring each other work.
const MESSAGES: [&str; 5] = [
    "(queue.py)",
    "(threading.py)",
    "(multiprocessing/queues.py)",
    "(multiprocessing/synchronize.py)",
    "(multiprocessing/connection.py)",
];

/// Main functions of threads that wait for work in them directly; below them they work.
const HOMES: [&str; 7] = [
    "G1ConcurrentMarkThread::run_service",
    "G1ConcurrentRefineThread::run_service",
    // Asio, with Boost and alone: of the threads that run a context, one polls and the others wait for it. Called
    // so, or with a time limit; and before Boost 1.66.
    "boost::asio::detail::scheduler::do_run_one",
    "boost::asio::detail::scheduler::do_wait_one",
    "asio::detail::scheduler::do_run_one",
    "asio::detail::scheduler::do_wait_one",
    "boost::asio::detail::task_io_service::do_run_one",
];

/// What a wait of Java's threads, and of Asio's, is made of: of the C library, the VM, and the library of locks.
pub(crate) fn only_waits(name: &str) -> bool {
    const PARTS: [&str; 13] = [
        "__futex_abstimed_wait",
        "futex_wait",
        "__pthread_cond_wait",
        "__new_sem_wait",
        "Parker::park",
        "Unsafe_Park",
        "os::Platform",
        "Platform",
        "Monitor::wait",
        "ObjectMonitor::",
        "jdk.internal.misc.Unsafe.park",
        "java.util.concurrent.locks.",
        "java.util.concurrent.ForkJoinPool.",
    ];
    const MORE: [&str; 10] = [
        "boost::asio::detail::conditionally_enabled_event::",
        "asio::detail::conditionally_enabled_event::",
        // Templates have what they give back before their name.
        "void boost::asio::detail::posix_event::wait",
        "void asio::detail::posix_event::wait",
        "PosixSemaphore::wait",
        "ObjectSynchronizer::",
        "JVM_MonitorWait",
        "java.lang.Object.wait",
        "pthread_cond_",
        "sem_wait",
    ];
    // It is a worker's own place as well.
    let place = name.starts_with("java.util.concurrent.ForkJoinPool.awaitWork");
    !place && PARTS.iter().chain(&MORE).any(|part| name.starts_with(part))
}

/// How many functions from the wait outwards may be its place's.
pub(crate) const NEAR: usize = 8;

/// Whether a wait with these functions of the program, innermost first, is in such a place. Work that
/// a worker does has functions of its own above the place it waits at; Java's own way from there to
/// the wait is long.
pub(crate) fn at_place(user: &[&str]) -> bool {
    let mut scripts = user.iter().filter(|n| n.ends_with(".py)"));
    let brings = |n: &&&str| !MESSAGES.iter().any(|file| n.ends_with(file));
    if scripts.find(brings).is_some_and(|n| IN_SCRIPTS.contains(n)) {
        return true;
    }
    at_home(user) || near(user).any(|name| PARKING_PLACES.iter().any(|(_, p)| is(name, p)))
}

/// Whether it is one where a runtime's own threads wait, which never speak to anybody.
pub(crate) fn is_silent(user: &[&str]) -> bool {
    let silent = |(what, _): &&(&str, &str)| SILENT.contains(what);
    let places = || PARKING_PLACES.iter().filter(silent);
    at_home(user) || near(user).any(|name| places().any(|(_, place)| is(name, place)))
}

fn is(name: &str, place: &str) -> bool {
    match place.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == place,
    }
}

/// The functions that may be the place's, from the wait outwards.
fn near<'a>(user: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let own = user.iter().skip_while(|name| only_waits(name));
    own.take(NEAR).copied()
}

fn at_home(user: &[&str]) -> bool {
    near(user)
        .next()
        .is_some_and(|n| HOMES.iter().any(|h| n.starts_with(h)))
}
