//! Queues, futures and the words in function names that tell giving from taking.

use super::known::table;

table! {
    /// Functions of Python's library in which scripts wait for others to bring something.
    SCRIPT_CONSUMERS {
        "wait (threading.py)", "event or condition", "CPython's library", Live;
        "get (queue.py)", "queue", "CPython's library", Live;
        "get (multiprocessing/queues.py)", "queue between processes", "CPython's library", Live;
        "_worker (concurrent/futures/thread.py)", "thread pool's worker", "CPython's library", Live;
    }
}

table! {
    /// Functions of Python's library that take from a queue.
    SCRIPT_QUEUE_TAKES {
        "get (queue.py)", "queue", "CPython's library", Live;
        "get (multiprocessing/queues.py)", "queue between processes", "CPython's library", Live;
    }
}

table! {
    /// Native functions that take from a queue without an end, into which no thread ever waits to
    /// put something.
    ENDLESS_QUEUE_TAKES {
        "_queue_SimpleQueue_get*", "queue.SimpleQueue", "CPython, _queuemodule.c", Service;
    }
}

table! {
    /// Files that hold such a queue and nothing else, for interpreters without symbols.
    ENDLESS_QUEUE_FILES {
        "_queue.*", "queue.SimpleQueue", "CPython", Service;
    }
}

table! {
    /// Functions that wait for the result of a future.
    FUTURES {
        "java.util.concurrent.CompletableFuture.*", "future", "JDK", Live;
        "java.util.concurrent.CompletableFuture$Signaller.*", "future", "JDK", Live;
        "java.util.concurrent.FutureTask.*", "future", "JDK", Live;
        "std::__atomic_futex_unsigned_base*", "std::future", "libstdc++", Live;
        "std::__future_base*", "std::future", "libstdc++", Live;
    }
}

table! {
    /// Functions of Python's library that wait for a result.
    SCRIPT_FUTURES {
        "result (concurrent/futures/_base.py)", "future", "CPython's library", Live;
        "wait (concurrent/futures/_base.py)", "futures", "CPython's library", Live;
        "wait (multiprocessing/pool.py)", "result of a pool", "CPython's library", Live;
        "next (multiprocessing/pool.py)", "results of a pool", "CPython's library", Live;
    }
}

table! {
    /// Python functions that wait for the output of a process that the script started.
    SCRIPT_CHILD_READS {
        "_communicate (subprocess.py)", "output of a child", "CPython's library", Live;
    }
}

table! {
    /// Steps of an event loop: what it calls for one event. A wait below one stops the whole loop.
    EVENT_LOOP_STEPS {
        "task_step*", "step of a task", "CPython, _asynciomodule.c", Live;
        "Handle._run*", "callback", "CPython, asyncio/events.py", Live;
        "Task.__step*", "step of a task", "CPython, asyncio/tasks.py", Live;
        "uv__stream_io", "data on a connection", "libuv, src/unix/stream.c (Node.js)", Service;
        "uv__server_io", "new connection", "libuv, src/unix/stream.c", Source;
        "uv__async_io", "result of another thread", "libuv, src/unix/async.c", Source;
        "uv__run_timers", "timer", "libuv, src/timer.c", Source;
        "uv__run_check", "end of a round", "libuv, src/unix/loop-watcher.c", Source;
        "uv__run_prepare", "begin of a round", "libuv, src/unix/loop-watcher.c", Source;
    }
}

table! {
    /// Words in a function's name that say that it gives something to another thread.
    GIVING_WORDS {
        "send", "gives", "usage", Live;
        "push", "gives", "usage", Live;
        "put", "gives", "usage", Live;
        "offer", "gives", "usage", Live;
        "enqueue", "gives", "usage", Live;
        "publish", "gives", "usage", Live;
        "produce", "gives", "usage", Source;
        "submit", "gives", "usage", Source;
        "emit", "gives", "usage", Source;
        "add", "gives", "usage", Live;
        "append", "gives", "usage", Source;
    }
}

table! {
    /// Words that say, of the program's own function, that it takes one of few things.
    POOL_WORDS {
        "acquire", "takes one of few", "usage", Live;
        "borrow", "takes one of few", "usage", Live;
        "checkout", "takes one of few", "usage", Live;
        "reserve", "takes one of few", "usage", Source;
    }
}

table! {
    /// Words that say that a function is a thread's main function: a thread without work is in it
    /// too, so its other words say nothing.
    MAIN_WORDS {
        "loop", "main function", "usage", Live;
        "worker", "main function", "usage", Live;
        "thread", "main function", "usage", Live;
        "run", "main function", "usage", Live;
    }
}

table! {
    /// Words that say that a function takes a lock.
    LOCKING_WORDS {
        "lock", "takes a lock", "usage", Live;
        "locked", "takes a lock", "usage", Source;
        "mutex", "takes a lock", "usage", Live;
        "acquire", "takes a lock", "usage", Live;
        "take", "takes a lock", "usage", Live;
        "enter", "takes a lock", "usage", Source;
        "hold", "takes a lock", "usage", Source;
        "guard", "takes a lock", "usage", Source;
        "rwlock", "takes a lock", "usage", Source;
    }
}
