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
    /// Native functions that take from an unbounded queue: no thread ever waits to put something into it.
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
    /// Steps of an event loop: the functions that it calls for one event. A wait below one stops the whole loop.
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
        "*_doReadOrWrite", "event of a connection", "Twisted, internet/posixbase.py, selectreactor.py", Live;
        "*runUntilCurrent", "timed or handed-over call", "Twisted, internet/base.py", Source;
        "g_main_context_dispatch*", "callback of a source", "GLib, glib/gmain.c", Live;
        "QCoreApplication::notifyInternal2*", "event of an object", "Qt 5 and 6, qcoreapplication.cpp", Source;
        "event_process_active*", "callback of an event", "libevent, event.c", Source;
        "ev_invoke_pending", "callbacks of watchers", "libev, ev.c", Live;
        "io.netty.channel.nio.NioEventLoop.processSelectedKey*", "event of a connection", "Netty 4", Live;
        "io.netty.channel.epoll.EpollEventLoop.processReady*", "event of a connection", "Netty 4", Source;
        "tokio::runtime::scheduler::current_thread::Context::run_task*", "step of a task", "tokio, its runtime of one thread", Live;
        "io.netty.util.concurrent.SingleThreadEventExecutor.runAllTasks*", "task of the loop", "Netty 4", Source;
    }
}

table! {
    /// Event loops that poll, and run their steps in functions that mostly have no name. Every wait below them,
    /// except for the poll itself, is in a step.
    EVENT_LOOPS {
        "uv_run", "loop", "libuv, src/unix/core.c (Node.js)", Live;
        "event_base_loop", "loop", "libevent, event.c", Live;
        "ev_run", "loop", "libev, ev.c", Source;
        "aeMain", "loop", "Redis, ae.c", Live;
        "aeProcessEvents", "round of the loop", "Redis, ae.c", Source;
        "ngx_process_events_and_timers", "round of the loop", "nginx, ngx_event.c", Source;
        "g_main_loop_run", "loop", "GLib, glib/gmain.c", Live;
        "g_main_context_iteration", "round of the loop", "GLib, glib/gmain.c", Source;
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
