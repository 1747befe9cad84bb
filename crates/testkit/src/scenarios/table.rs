//! Every scenario and its trouble.

use super::scenario::{Play, Right, Scenario};

const ON_CPU: &[&str] = &["on_cpu"];
const RUNNABLE: &[&str] = &["runnable"];
const BLOCKED: &[&str] = &["blocked"];

/// Something is wrong.
const fn wrong(
    states: &'static [&'static str],
    reasons: &'static [&'static str],
    functions: &'static [&'static str],
    words: &'static [&'static str],
) -> Right {
    Right {
        bottleneck: true,
        states,
        reasons,
        functions,
        words,
    }
}

/// Nothing is.
const HEALTHY: Right = Right {
    bottleneck: false,
    states: &[],
    reasons: &[],
    functions: &[],
    words: &["no bottleneck"],
};

const fn scenario(name: &'static str, about: &'static str, play: Play, right: Right) -> Scenario {
    Scenario {
        name,
        about,
        play,
        right,
        short: false,
        lower: &[],
    }
}

impl Scenario {
    const fn short(mut self) -> Scenario {
        self.short = true;
        self
    }

    /// With perf events too.
    const fn perf(mut self) -> Scenario {
        self.lower = &["perf"];
        self
    }

    /// Without kernel programs too.
    const fn lower(mut self) -> Scenario {
        self.lower = &["perf", "proc"];
        self
    }
}

use Play::{Program, Script, Trouble, Truth};

/// All of them.
pub const ALL: &[Scenario] = &[
    // CPUs
    scenario(
        "hot-spot",
        "one function computes, among threads that only tick",
        Trouble("hot"),
        wrong(ON_CPU, &["user"], &["hot_encode"], &["one hot spot"]),
    )
    .short()
    .lower(),
    scenario(
        "hot-shares",
        "one function takes half of the CPU time, others the rest",
        Truth("shares", &["--threads", "1"]),
        wrong(ON_CPU, &["user"], &["share_fifty"], &["one hot spot"]),
    ),
    scenario(
        "flat",
        "twelve functions compute in equal parts",
        Trouble("flat"),
        wrong(ON_CPU, &["user"], &["flat_"], &["flat"]),
    )
    .lower(),
    scenario(
        "memory-bound",
        "pointers are chased through 64 MiB: not to be told from computing without a PMU",
        Trouble("chase"),
        wrong(
            ON_CPU,
            &["user"],
            &["chase_pointers"],
            &["cannot be told without hardware counters"],
        ),
    ),
    scenario(
        "script-hot",
        "a Python function computes",
        Script("hot"),
        wrong(ON_CPU, &["user"], &["render_template"], &[]),
    ),
    scenario(
        "gzip",
        "a program without symbols compresses",
        Program("gzip", "gzip"),
        wrong(ON_CPU, &["user"], &[], &["gzip"]),
    ),
    scenario(
        "crowd",
        "four threads on one CPU",
        Truth("crowd", &[]),
        wrong(RUNNABLE, &["preempted", "woken"], &["crowd_spin"], &[]),
    )
    .lower(),
    scenario(
        "neighbour",
        "one thread, and three of another process on its CPU",
        Trouble("neighbour"),
        wrong(
            RUNNABLE,
            &["preempted", "woken"],
            &["crowded_work"],
            &["outside this process"],
        ),
    )
    .lower(),
    scenario(
        "quota",
        "a CPU quota of 0.3 CPUs",
        Truth("throttled", &[]),
        wrong(RUNNABLE, &["throttled"], &[], &["quota"]),
    )
    .short(),
    scenario(
        "fault-storm",
        "memory is mapped, touched and unmapped again and again",
        Trouble("storm"),
        wrong(ON_CPU, &["kernel"], &["storm_touch"], &["page faults"]),
    ),
    scenario(
        "reclaim",
        "a file of four times the memory limit is read through a mapping",
        Trouble("squeezed"),
        wrong(
            &[],
            &["memory", "page_fault", "disk"],
            &["squeezed_scan"],
            &["memory limit"],
        ),
    ),
    scenario(
        "spin",
        "threads spin on a lock, and one yields",
        Truth("spin", &[]),
        wrong(ON_CPU, &[], &["spin_"], &["spin"]),
    )
    .perf(),
    scenario(
        "spin-flag",
        "a thread yields until another raises a flag",
        Trouble("flag"),
        wrong(ON_CPU, &[], &["flag_wait"], &["spins"]),
    ),
    scenario(
        "churn",
        "threads that live for five microseconds",
        Trouble("churn"),
        wrong(
            ON_CPU,
            &["kernel"],
            &["churn_start_and_join", "churn_life"],
            &["threads a second"],
        ),
    ),
    scenario(
        "spawn",
        "a shell that starts a program for nothing, again and again",
        Program("bash", "spawn"),
        wrong(ON_CPU, &["kernel"], &[], &["processes a second"]),
    ),
    scenario(
        "garbage",
        "a Python program collects its garbage all the time",
        Script("garbage"),
        wrong(ON_CPU, &["user"], &["garbage", "build_graph"], &[]),
    ),
    scenario(
        "node-garbage",
        "a Node.js service fills its heap, and V8 collects most of the time",
        Program("node", "node-garbage"),
        wrong(&["on_cpu", "blocked"], &[], &[], &["garbage"]),
    ),
    scenario(
        "java-serial",
        "a Java service keeps its heap nearly full: the serial collector",
        Program("java", "java-serial"),
        wrong(&["on_cpu", "blocked"], &[], &[], &["garbage"]),
    ),
    scenario(
        "java-parallel",
        "a Java service keeps its heap nearly full: the parallel collector",
        Program("java", "java-parallel"),
        wrong(&["on_cpu", "blocked"], &[], &[], &["garbage"]),
    ),
    scenario(
        "java-g1",
        "a Java service keeps its heap nearly full: G1",
        Program("java", "java-g1"),
        wrong(&["on_cpu", "blocked"], &[], &[], &["garbage"]),
    ),
    scenario(
        "java-z",
        "a Java service keeps its heap nearly full: ZGC",
        Program("java", "java-z"),
        wrong(&["on_cpu", "blocked"], &[], &[], &["garbage"]),
    ),
    scenario(
        "java-shenandoah",
        "a Java service keeps its heap nearly full: Shenandoah",
        Program("java", "java-shenandoah"),
        wrong(&["on_cpu", "blocked"], &[], &[], &["garbage"]),
    ),
    scenario(
        "go-garbage",
        "a Go service collects a large heap again and again",
        Program("go", "go-garbage"),
        wrong(&["on_cpu", "blocked"], &[], &[], &["garbage"]),
    ),
    // Locks
    scenario(
        "go-mutex",
        "handlers of a Go service queue for one mutex",
        Program("go", "go-mutex"),
        wrong(
            BLOCKED,
            &["lock"],
            &["main.(*shared).Get"],
            &["compute in main.(*shared).get"],
        ),
    ),
    scenario(
        "go-channel",
        "goroutines send to one receiver, which sleeps",
        Program("go", "go-channel"),
        wrong(
            BLOCKED,
            &["channel"],
            &["main.produce"],
            &["wait for a receiver", "sleep meanwhile in main.store"],
        ),
    ),
    scenario(
        "convoy",
        "threads queue for one mutex",
        Truth("convoy", &[]),
        wrong(BLOCKED, &["lock"], &["convoy_wait_lock"], &["convoy_"]),
    )
    .short()
    .lower(),
    scenario(
        "long-hold",
        "a mutex is held for 250 ms by one thread, again and again",
        Trouble("long-hold"),
        wrong(
            BLOCKED,
            &["lock"],
            &["table_get"],
            &["long hold", "table_compact"],
        ),
    ),
    scenario(
        "short-holds",
        "a mutex is held for 0.2 ms by each of six threads",
        Trouble("short-holds"),
        wrong(BLOCKED, &["lock"], &["cache_update"], &["many short holds"]),
    ),
    scenario(
        "fault-held",
        "a lock is held while pages of a mapped file are read from the disk",
        Trouble("fault-held"),
        wrong(BLOCKED, &["lock"], &["index_get"], &["index_load", "page"]),
    ),
    scenario(
        "preempted-holder",
        "a lock is held by a thread that waits for a CPU, which other processes have",
        Trouble("preempted-holder"),
        wrong(
            &["blocked", "runnable"],
            &["lock", "preempted", "woken"],
            &["stock_"],
            &["counter-0 waits for a cpu"],
        ),
    ),
    scenario(
        "throttled-holder",
        "a lock is held by a thread that its quota keeps from running",
        Trouble("throttled-holder"),
        wrong(
            &["blocked", "runnable"],
            &["lock", "throttled"],
            &[],
            &["quota", "stock_"],
        ),
    ),
    scenario(
        "deadlock",
        "four threads take two locks in either order",
        Trouble("deadlock"),
        wrong(BLOCKED, &["lock"], &["transfer"], &["deadlock"]),
    ),
    scenario(
        "pool",
        "eight threads share two connections",
        Trouble("pool"),
        wrong(BLOCKED, &["lock"], &["pool_acquire"], &["pool_query"]),
    )
    .short(),
    scenario(
        "script-pool",
        "eight Python threads share two connections",
        Script("pool"),
        wrong(BLOCKED, &["lock"], &["handle_with_pool"], &[]),
    ),
    scenario(
        "script-full-queue",
        "a Python thread puts what it finds into a queue that another empties slowly",
        Script("full-queue"),
        wrong(BLOCKED, &["lock"], &["feed_pages"], &["index_pages"]),
    ),
    scenario(
        "gil",
        "four Python threads compute",
        Script("gil"),
        wrong(BLOCKED, &["gil"], &["count_words"], &[]),
    ),
    scenario(
        "stopped-world",
        "threads wait at a safepoint while a collector marks",
        Trouble("world"),
        wrong(
            &["blocked", "on_cpu"],
            &["lock", "user"],
            &["safepoint_wait", "collect_mark"],
            &["collect_mark"],
        ),
    ),
    // Disks
    scenario(
        "fsync",
        "each entry of a journal is synced",
        Trouble("commit"),
        wrong(BLOCKED, &["disk"], &["journal_commit"], &["fsync"]),
    )
    .lower(),
    scenario(
        "slow-disk",
        "pages are read past the cache",
        Trouble("reads"),
        wrong(BLOCKED, &["disk"], &["page_read"], &["the disk"]),
    ),
    scenario(
        "dsync",
        "dd writes with O_DSYNC",
        Program("dd", "dd"),
        wrong(BLOCKED, &["disk"], &[], &["disk"]),
    ),
    scenario(
        "sqlite",
        "a database commits each row",
        Program("sqlite3", "sqlite"),
        wrong(BLOCKED, &["disk"], &[], &["disk"]),
    ),
    // Others
    scenario(
        "script-writer",
        "another process has a database locked most of the time",
        Script("writer"),
        wrong(BLOCKED, &["timer"], &[], &["locked by", "not measured"]),
    ),
    scenario(
        "row",
        "six servers hand one row to each other, by events",
        Trouble("row"),
        wrong(
            BLOCKED,
            &["poll"],
            &["row_acquire"],
            &["its own threads", "row_release"],
        ),
    ),
    scenario(
        "curl",
        "a shell starts curl, which polls with a limit for a slow answer",
        Program("curl", "curl"),
        wrong(
            BLOCKED,
            &["child"],
            &[],
            &["curl waits for", "which is not in this recording"],
        ),
    ),
    scenario(
        "upstream",
        "a slow server is asked, and waited for",
        Trouble("fetch"),
        wrong(
            BLOCKED,
            &["network"],
            &["fetch_price"],
            &["outside this process"],
        ),
    )
    .short()
    .lower(),
    scenario(
        "upstream-limit",
        "the same with a time limit, by poll",
        Trouble("fetch-limit"),
        wrong(
            BLOCKED,
            &["poll"],
            &["fetch_with_limit"],
            &["outside this process"],
        ),
    ),
    scenario(
        "upstream-loop",
        "an event loop asks a slow server for each request",
        Trouble("loop-upstream"),
        wrong(
            BLOCKED,
            &["poll"],
            &["loop_events"],
            &["outside this process"],
        ),
    ),
    scenario(
        "script-upstream",
        "a Python program fetches from a slow server",
        Script("fetch"),
        wrong(
            BLOCKED,
            &["network", "poll"],
            &["fetch_rate"],
            &["outside this process"],
        ),
    ),
    scenario(
        "script-many-queries",
        "a web service asks a quick database 30 times for each request",
        Script("many-queries"),
        wrong(
            BLOCKED,
            &["network"],
            &["load_lines"],
            &["for each request of its own callers"],
        ),
    ),
    scenario(
        "script-held-loop",
        "eight asyncio tasks fetch from a slow server by a call that waits",
        Script("held-loop"),
        wrong(
            BLOCKED,
            &["network", "poll"],
            &["fetch_rate"],
            &["event loop", "ready to run"],
        ),
    ),
    scenario(
        "redis-sleep",
        "a client of Redis sends a command that sleeps in the server's only loop",
        Program("redis-server", "redis"),
        wrong(BLOCKED, &["timer"], &[], &["event loop"]),
    ),
    scenario(
        "rpc",
        "a client and its server, both measured: the server sleeps",
        Truth("rpc", &[]),
        wrong(
            BLOCKED,
            &["network", "timer"],
            &["rpc_client_call", "rpc_server_backend"],
            &[],
        ),
    ),
    scenario(
        "relay",
        "a process asks another one, which asks a third one, which sleeps; all are measured",
        Trouble("relay"),
        wrong(
            BLOCKED,
            &["pipe", "network", "timer"],
            &["relay_call", "relay_forward", "relay_store"],
            &["relay_store"],
        ),
    ),
    scenario(
        "two-writes",
        "a request is written in two pieces, and the second waits for an acknowledgement",
        Trouble("pieces"),
        wrong(BLOCKED, &["network"], &["ask_in_pieces"], &["nagle"]),
    ),
    scenario(
        "connect-full",
        "connections are made to a server with a full accept queue",
        Trouble("full"),
        wrong(
            BLOCKED,
            &["network"],
            &["trouble_connect"],
            &["connections to be made"],
        ),
    ),
    scenario(
        "asked-colleague",
        "a thread has another one do something by events, and that one sleeps",
        Trouble("codec"),
        wrong(
            BLOCKED,
            &["pipe"],
            &["frame_encode"],
            &["codec-0", "sleeps"],
        ),
    ),
    scenario(
        "delayed-answers",
        "an event loop answers each request 15 ms later, and does nothing meanwhile",
        Trouble("delayed"),
        wrong(
            BLOCKED,
            &["poll"],
            &["delayed_loop"],
            &["callers wait", "a time that it set itself"],
        ),
    ),
    scenario(
        "names",
        "each connection asks for a name first, by datagrams",
        Trouble("names"),
        wrong(BLOCKED, &["network"], &["resolve_name"], &[]),
    )
    .lower(),
    scenario(
        "names-limit",
        "the same with a time limit, by poll",
        Trouble("names-limit"),
        wrong(BLOCKED, &["poll"], &["resolve_name"], &[]),
    ),
    scenario(
        "slow-log",
        "threads log to a pipe with a slow reader",
        Trouble("log"),
        wrong(BLOCKED, &["pipe"], &["log_line"], &["the reader of a pipe"]),
    )
    .lower(),
    scenario(
        "script-log",
        "a Python program logs to a pipe with a slow reader",
        Script("log"),
        wrong(
            BLOCKED,
            &["pipe"],
            &["write_log"],
            &["the reader of a pipe"],
        ),
    ),
    scenario(
        "yes",
        "a program writes to a pipe with a slow reader",
        Program("yes", "yes"),
        wrong(BLOCKED, &["pipe"], &[], &["the reader of a pipe"]),
    ),
    scenario(
        "download",
        "a file is sent to a slow reader",
        Trouble("download"),
        wrong(
            BLOCKED,
            &["network"],
            &["send_download"],
            &["the other end reads too slowly"],
        ),
    ),
    scenario(
        "child",
        "a child process is started and waited for",
        Trouble("hook"),
        wrong(BLOCKED, &["child"], &["hook_run"], &["sleep"]),
    ),
    scenario(
        "script-child",
        "a Python program runs another program and waits",
        Script("child"),
        wrong(BLOCKED, &["child"], &["convert_image"], &[]),
    ),
    scenario(
        "one-in-a-hundred",
        "one call in a hundred asks a slow server",
        Trouble("outlier"),
        wrong(
            BLOCKED,
            &["network"],
            &["slow_path"],
            &["outside this process"],
        ),
    ),
    // Its own doing
    scenario(
        "sleep-in-request",
        "a server sleeps before each answer",
        Trouble("sleepy"),
        wrong(BLOCKED, &["timer"], &["server_handle"], &["callers wait"]),
    ),
    scenario(
        "script-sleep-in-request",
        "a Python web service sleeps before each answer",
        Script("sleepy-web"),
        wrong(BLOCKED, &["timer"], &["work"], &["callers wait"]),
    ),
    scenario(
        "script-retries",
        "a Python web service asks a peer that is not there, and sleeps between its tries",
        Script("retries"),
        wrong(
            BLOCKED,
            &["timer"],
            &["charge"],
            &["callers wait", "sleeps between its tries"],
        ),
    ),
    scenario(
        "accept-queue",
        "a server takes one connection after the other, and sleeps",
        Trouble("narrow"),
        wrong(BLOCKED, &["timer"], &["narrow_handle"], &["accept queue"]),
    ),
    // Nothing wrong
    scenario(
        "sleeper",
        "a process that sleeps",
        Program("sleep", "sleep"),
        HEALTHY,
    )
    .short()
    .lower(),
    scenario("ticker", "a thread that ticks", Trouble("ticker"), HEALTHY).lower(),
    scenario(
        "parked",
        "threads that wait for work that never comes",
        Trouble("parked"),
        HEALTHY,
    )
    .lower(),
    scenario(
        "timer-loop",
        "an event loop on a timer",
        Trouble("loop"),
        HEALTHY,
    ),
    scenario(
        "idle-server",
        "a server that nobody asks",
        Trouble("idle-server"),
        HEALTHY,
    )
    .lower(),
    scenario(
        "healthy-server",
        "a server that answers at once",
        Trouble("healthy"),
        HEALTHY,
    )
    .short(),
    scenario(
        "reactor",
        "a thread takes requests, and workers answer at once",
        Trouble("reactor"),
        HEALTHY,
    )
    .short(),
    scenario(
        "subscribers",
        "a server with callers that asked once and get no answer",
        Trouble("silent"),
        HEALTHY,
    ),
    scenario(
        "shipper",
        "a log is sent over a connection, and never answered",
        Trouble("ship"),
        HEALTHY,
    ),
    scenario(
        "orders",
        "a process that another one feeds, through a semaphore of System V",
        Trouble("orders"),
        HEALTHY,
    ),
    scenario(
        "fed-workers",
        "workers that have little to do",
        Trouble("fed"),
        HEALTHY,
    ),
    scenario(
        "script-executor",
        "a Python executor that has little to do",
        Script("executor"),
        HEALTHY,
    ),
    scenario(
        "script-offloaded",
        "a Python event loop that has a worker do what it is asked, at once",
        Script("offloaded"),
        HEALTHY,
    ),
    scenario(
        "script-copy",
        "a Python program that copies at a rate of its own, and sleeps between",
        Script("copy"),
        Right {
            words: &["no bottleneck", "rate limit"],
            ..HEALTHY
        },
    ),
    scenario(
        "script-pipeline",
        "a Python thread with little to do, which it has another one do",
        Script("pipeline"),
        HEALTHY,
    ),
    scenario(
        "script-arbiter",
        "a Python parent waits for signals by a queue with a time limit, and there are none",
        Script("arbiter"),
        HEALTHY,
    ),
    scenario(
        "script-consumer",
        "a Python worker asks the queue of another process for work, of which there is little",
        Script("consumer"),
        HEALTHY,
    ),
    scenario(
        "script-web",
        "a Python web service that answers at once",
        Script("web"),
        HEALTHY,
    ),
    scenario(
        "script-idle-web",
        "a Python web service that nobody asks",
        Script("idle-web"),
        HEALTHY,
    ),
    scenario(
        "tail",
        "a program that waits for a file to grow",
        Program("tail", "tail"),
        HEALTHY,
    ),
    scenario(
        "cat",
        "a program that waits for input that never comes",
        Program("cat", "cat"),
        HEALTHY,
    ),
    scenario(
        "starved",
        "a filter with input that comes slowly",
        Program("grep", "grep"),
        HEALTHY,
    ),
    scenario(
        "go-web",
        "a Go web service that answers at once",
        Program("go", "go-web"),
        HEALTHY,
    ),
    scenario(
        "node-web",
        "a Node.js web service that answers at once",
        Program("node", "node-web"),
        HEALTHY,
    ),
    scenario(
        "php-web",
        "PHP's own web server says at once that there is no such page",
        Program("php", "php-web"),
        HEALTHY,
    ),
    scenario(
        "ruby-workers",
        "Ruby threads that have little to do",
        Program("ruby", "ruby-workers"),
        HEALTHY,
    ),
    scenario(
        "redis-quiet",
        "a database that is asked now and then",
        Program("redis-server", "redis-quiet"),
        HEALTHY,
    ),
];
