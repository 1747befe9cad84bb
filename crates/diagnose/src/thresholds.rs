//! Every number that a judgement of this crate turns on.
//!
//! Shares are of 1. "Share of active time" means the wall time of threads that
//! work, without idle time and without waits for want of work. "Held by" names the test that fails
//! when the number moves far: a scenario of `crates/testkit/src/scenarios/table.rs`
//! (`cargo xtask verify --only ladder`), or a unit test of this crate. "Convention" marks a number
//! that has no measurement behind it. Limits on printed lists stand beside the code that prints.

// Reading the CPU.

/// Share of active time on a CPU above which faster code is the first thing to look for.
/// Convention of off-CPU analysis: half.
pub const CPU_FIRST: f64 = 0.5;
/// Share of active time on a CPU below which waiting is the first thing to look for. Convention.
pub const WALL_FIRST: f64 = 0.3;

// Causes.

/// Share of active time that makes a wait a cause. Convention: removing it saves a fifth. Held by
/// every scenario with a blocked state.
pub const CAUSE_SHARE: f64 = 0.20;
/// Share of the window for which one thread waits that makes its wait a cause, however many other
/// threads there are. Held by `each_case_is_told_by_its_rule_and_names_the_programs_own_function`.
pub const ONE_THREAD_SHARE: f64 = 0.5;
/// Share of active time that makes a cause of a wait which may be work or rest: sleep, poll, input.
/// Convention: more than half of the time is the process's main activity. Held by `cat`, `starved`, `ticker`.
pub const MOSTLY_SHARE: f64 = 0.5;
/// Share of active time on a CPU from which a verdict on waits mentions the computing beside it.
/// Convention: a quarter.
pub const BESIDE_SHARE: f64 = 0.25;
/// Share of the waits above which one root is the headline of their verdict. Convention: most.
pub const ROOT_OF_WAITS: f64 = 0.5;
/// Share of its waits for which a waker or its activity is worth a line. Convention.
pub const WAKER_SHARE: f64 = 0.10;
/// Share of active time of another wait in the lock's own function, where wakers are unknown.
/// Convention.
pub const SAME_FUNCTION_SHARE: f64 = 0.05;

// Unseen time.

/// Share of the time from which a blind spot could change a verdict. Convention: half of
/// [`CAUSE_SHARE`].
pub const BLIND_SHARE: f64 = 0.10;
/// Share of active time that was not seen above which nothing firm can be said. Held by
/// `unseen_time_leaves_nothing_firm_to_say`.
pub const UNSEEN_SHARE: f64 = 0.10;
/// Share of the window, in CPUs, that threads too short to be seen must compute to count. 1 % of one
/// CPU, as [`IDLE_CPUS`]. Held by
/// `a_process_with_unseen_busy_threads_is_not_called_idle`.
pub const BRIEF_CPUS: f64 = 0.01;
/// Share of the window in waits of unknown kind above which a process is not called healthy.
/// Convention.
pub const UNNAMED_SHARE: f64 = 0.25;

// CPU quota.

/// Share of active time lost to a CPU quota that makes it the cause: the share at which throttling
/// shows in latency quantiles. Held by `quota`.
pub const QUOTA_SHARE: f64 = 0.05;
/// Share of a quota's periods in which it ran out from which the quota binds. Held by
/// `a_quota_that_binds_is_told_by_the_cgroup_s_own_counters`.
pub const QUOTA_BINDING: f64 = 0.25;
/// Factor by which another wait may exceed the time lost to a quota that does not bind. Convention.
pub const QUOTA_OTHER_WAITS: u64 = 4;

// Work of the kernel and of runtimes.

/// Share of active time spent on freeing memory that makes it the cause. The kernel's own pressure
/// figures call 10 % serious. Held by `reclaim`.
pub const RECLAIM_SHARE: f64 = 0.15;
/// Use of a memory limit above which reclaim is blamed on it. Held by `reclaim`.
pub const NEAR_MEMORY_LIMIT: f64 = 0.9;
/// Use of a memory limit above which it counts as met. Held by
/// `a_memory_limit_that_is_met_is_told_where_the_kernel_computes`.
pub const AT_MEMORY_LIMIT: f64 = 0.95;
/// Part of the computing that the kernel must compute for a met memory limit to be mentioned.
/// Convention.
pub const KERNEL_AT_LIMIT: f64 = 0.5;
/// Share of active time in spinning functions that makes it the cause. Held by `spin`, `spin-flag`.
pub const SPIN_SHARE: f64 = 0.20;
/// One in so many parts of the computing must be spinning: on too few CPUs spinning fills them.
pub const SPIN_PART: u64 = 3;
/// Births a second from which a process starts threads or processes all the time. Held by `churn`,
/// `spawn`.
pub const CHURN_RATE: f64 = 20.0;
/// Part of the computing that starting and ending threads must take. Held by `churn`, `spawn`.
pub const CHURN_OF_COMPUTING: f64 = 0.15;
/// Part of the active time that starting and ending them must take, too. Convention.
pub const CHURN_OF_ACTIVE: f64 = 0.1;
/// Share of births above which the started things are processes rather than threads. Convention.
pub const CHURN_PROCESSES: f64 = 0.5;
/// Share of active time in page faults that makes them the cause. Convention: a quarter. Held by
/// `fault-storm`.
pub const FAULT_SHARE: f64 = 0.25;
/// Part of the computing that garbage collection must take to be mentioned. Held by
/// `the_collection_of_garbage_is_told_as_part_of_computing`.
pub const COLLECT_OF_COMPUTING: f64 = 0.2;
/// Part of the computing from which garbage collection is the cause, and no function. Convention: most.
pub const COLLECT_IS_CAUSE: f64 = 0.5;

// Computing, and waiting for a CPU.

/// Share of active time runnable that makes CPUs the cause. Held by `crowd`, `neighbour`.
pub const SHORTAGE_SHARE: f64 = 0.25;
/// Least ratio of waiting for a CPU to computing: a queue of one for two that run.
pub const SHORTAGE_OF_COMPUTING: f64 = 0.5;
/// Least waiting for a CPU, as share of the window. Held by
/// `a_thread_with_next_to_nothing_to_do_is_not_held_up_by_others_on_the_cpus`.
pub const SHORTAGE_OF_WINDOW: f64 = 0.05;
/// Ratio of a thread's wait for a CPU to the time in which all CPUs that it may use are busy; above it, something
/// else holds the thread back. 1 by arithmetic; 2, because the host's figures are of other moments.
pub const HELD_BACK_OF_BUSY: f64 = 2.0;
/// Use of the allowed CPUs below which they had room: the threads come in bursts. Held by
/// `a_shortage_of_cpus_is_blamed_on_the_process_that_used_them`.
pub const CPUS_WITH_ROOM: f64 = 0.75;
/// CPUs kept busy from which a process computes throughout. One, with room for sampling error.
pub const ONE_CPU: f64 = 0.95;
/// Part of the computing that one function, system call or the kernel must take to be named as
/// hot. Held by `hot-spot`, `flat`.
pub const HOT_OF_COMPUTING: f64 = 0.3;
/// Switches a second below which a process that polls and computes hardly ever waits. Convention.
pub const BUSY_POLL_SWITCHES: f64 = 20.0;
/// Part of a cause's time that must have one call path for the path to be named. Convention.
pub const CALL_PATH_PART: f64 = 0.5;

// Idle and healthy processes.

/// CPUs used or wanted below which a process does nothing. Held by `sleeper`, `idle-server`.
pub const IDLE_CPUS: f64 = 0.01;
/// Share of the window in waits for others below which a process does nothing. Held by `ticker`.
pub const IDLE_PENDING: f64 = 0.02;
/// Load of the busiest thread, and of all threads, below which a process has room. Convention.
pub const ROOM: f64 = 0.5;
/// Part of the computing that long-lived threads must do for the busiest thread to represent the process.
pub const LASTING_OF_COMPUTING: f64 = 0.8;
/// Share of the window in waits for others below which a process is healthy. Held by
/// `healthy-server`.
pub const HEALTHY_PENDING: f64 = 0.05;
/// Limit of [`HEALTHY_PENDING`] for a process that answers within [`AT_ONCE_NS`]. Held by `reactor`.
pub const HEALTHY_PENDING_QUICK: f64 = 0.25;
/// Longest answer that a person perceives as immediate, ns. Nielsen's 0.1 s.
pub const AT_ONCE_NS: u64 = 100_000_000;
/// Longest median sleep of a program that keeps to a rate by sleeping, ns: rsync sleeps 110 ms with `--bwlimit`.
/// Convention.
pub const SLEEP_FOR_A_RATE_NS: u64 = 1_000_000_000;
/// One in so many parts of the polled time may be waits for answers of others in a process that
/// answers by itself. Convention.
pub const POLLED_FOR_OTHERS_PART: u64 = 4;
/// CPUs computed below which a process may have no work to ask for. Convention.
pub const QUIET_CPUS: f64 = 0.02;
/// Shortest window in which "never" says something, ns. Held by
/// `a_thread_that_never_gets_a_lock_is_stuck_and_not_parked`.
pub const MIN_WINDOW_NS: u64 = 1_000_000_000;

// Requests.

/// Fewest requests that say something of how a process answers. Convention.
pub const MIN_REQUESTS: u64 = 3;
/// Longest mean answer, as one in so many parts of the window, of a process that answers at all:
/// beyond it callers wait for news. Held by `subscribers`.
pub const ANSWER_PART: u64 = 4;
/// Share of the window for which requests must be open on average to count as unanswered.
/// Connections are polled a tick apart. Held by `subscribers`.
pub const UNANSWERED_SHARE: f64 = 0.95;
/// Part of the sleep that owed answers must reach where connections are polled: both times are off
/// by up to a tenth. Held by `script-sleep-in-request`.
pub const OWED_OF_SLEEP: f64 = 0.8;
/// Part of the waits at futures for which answers of others must be awaited to blame them. Held by
/// `a_future_is_no_full_queue_and_the_peer_that_is_asked_for_it_is_named`.
pub const ANSWERS_OF_FUTURES: f64 = 0.5;
/// Requests to a peer for each request of a caller, from and to, that count as one for one.
/// Convention.
pub const ONE_FOR_ONE: (f64, f64) = (0.5, 1.5);
/// Requests to a peer for each request of a caller from which they are many. Convention; held by `script-many-queries`.
pub const MANY_EACH: f64 = 10.0;
/// Longest mean answer of requests that are worth putting together, ns: a longer one is mostly the peer's own work.
/// Convention; held by `script-many-queries`.
pub const SHORT_ANSWER_NS: u64 = 10_000_000;
/// Factor by which callers wait longer than the peer takes from which they queue here. Convention.
pub const QUEUE_FACTOR: f64 = 2.0;
/// Part of the waits that measured threads must end for the peer to count as measured. Convention.
pub const MEASURED_PART: f64 = 0.5;
/// Failed connections a second of a program that tries again without end: every two seconds. Held by `script-retries`.
pub const FAILED_CONNECTS_RATE: f64 = 0.5;
/// Share of the polls in which an accept queue was full from which it counts as full. Held by
/// `accept-queue`.
pub const FULL_QUEUE_SHARE: f64 = 0.2;

// Locks.

/// Share of active time in waits for one kind of lock that makes a program serial. By Amdahl's law the program would
/// be 1.5 times as fast without it. Held by `locks_that_waiters_give_each_other_make_the_program_serial`.
pub const SERIAL_SHARE: f64 = 1.0 / 3.0;
/// Part of those waits that must be ended by threads that wait for the lock themselves.
pub const SERIAL_BY_WAITERS: f64 = 0.5;
/// Share of active time of threads that never get a lock. Held by `deadlock`.
pub const STUCK_SHARE: f64 = 0.10;
/// A single wait of this length is long, ns: half of [`AT_ONCE_NS`]. Held by `long-hold`.
pub const LONG_WAIT_NS: u64 = 50_000_000;
/// A single wait below this length is short, ns. Held by `short-holds`.
pub const SHORT_WAIT_NS: u64 = 5_000_000;
/// Share of the waits for a lock, by holders that do not queue for it, from which long waits are long holds.
/// Convention: most. Held by `long-hold`.
pub const HELD_BY_OUTSIDERS: f64 = 0.5;
/// A holder that waited for the lock less than this part of the time for which others waited for it does not queue.
/// Convention. Held by `long-hold`.
pub const OUTSIDER_WAITS: f64 = 0.1;
/// Part of the waits that counts as few if it has half of the time. For exponential lengths, half of the time is in
/// 19 % of the waits.
pub const FEW_WAITS: f64 = 0.1;
/// Share of active time of a delay's own kind, without waits of that kind in other calls.
/// Convention.
pub const DELAY_SHARE: f64 = 0.05;
/// Part of a sample's waits that an actor must end to count as their waker. Held by
/// `a_thread_that_polls_for_a_child_or_a_disk_does_not_rest`.
pub const MOSTLY_ENDED: f64 = 0.5;

// Runtime tasks (goroutines, asyncio tasks, virtual threads).

/// Tasks that must wait at any time for a verdict on tasks. Held by
/// `tasks_that_wait_for_a_lock_are_told_though_no_thread_does`.
pub const TASKS_WAITING: f64 = 1.0;
/// Factor by which polled tasks' waits may exceed the time for which callers are owed answers,
/// where connections are followed. Held by the same test.
pub const TASKS_OWED_FOLLOWED: f64 = 1.25;
/// Factor of [`TASKS_OWED_FOLLOWED`] where connections are polled.
pub const TASKS_OWED_POLLED: f64 = 3.0;
/// Part of their time that tasks must run, or be ready to, to be mentioned as busy. Convention.
pub const TASKS_BUSY: f64 = 0.5;

// Threads that work, tick or are parked.

/// A thread that computed less than one in so many parts of its life did nothing but begin.
/// Convention: 1 %.
pub const NO_WORK_PART: u64 = 100;
/// A thread that lived for this share of the window lived throughout.
pub const LASTING: f64 = 0.8;
/// Rest, as share of a thread's life without waits for a CPU, of a thread that only ticks. Held by
/// `ticker`.
pub const TICK_REST: f64 = 0.95;
/// On-CPU share of a thread that only ticks: 20 ms of each second, a fifth of [`AT_ONCE_NS`]. Held
/// by `ticker`.
pub const TICK_CPU: f64 = 0.02;
/// Share of its life that a thread must wait for a CPU to be held up, whatever it does then. Held
/// by `neighbour`.
pub const HELD_UP_RUNNABLE: f64 = 0.25;
/// Work of all threads, as share of the window, below which they do not represent the process. Held by `sleeper`.
pub const MIN_WORK: f64 = 0.02;
/// A thread that did nothing after the first of so many parts of the window has parked. Held by
/// `parked`.
pub const SETTLED_PART: u32 = 4;

// Waits for want of work.

/// Part of the waits at one place that must be for want of work. Held by `fed-workers`,
/// `script-executor`.
pub const STARVED_PART: f64 = 0.7;
/// Part of a thread's waits for one reason that must be rest for them to count as rest.
pub const RESTFUL_PART: f64 = 0.8;
/// Part of a bringer's own waits that the waiters must end to make it a dialogue. Held by
/// `asked-colleague`.
pub const DIALOGUE_PART: f64 = 0.2;
/// Waits for something to do, for each wait of the askers: an asked thread waits in turn. Held
/// by `asked-colleague`.
pub const ASKED_IN_TURN: f64 = 0.5;
/// Part of the waits at one stack that one thread must end to be the asker.
pub const ASKED_BY_ONE: f64 = 0.5;
/// Work of queue consumers, as share of the window, below which the queue holds work. Held by
/// `script-consumer`.
pub const CONSUMERS_AT_WORK: f64 = 0.5;
/// Work of the other threads, as share of the window, below which they bring nothing. Held by
/// `without_wakers_a_consumer_is_starved_while_all_others_rest`.
pub const OTHERS_AT_WORK: f64 = 0.2;
/// Mean time between a thread's wake-ups, ns, from which it wakes seldom. Held by the same test.
pub const SELDOM_NS: u64 = 50_000_000;

// Idle waits.

/// Most functions between a condition variable's wait and the thread's entry of an idle worker, the
/// language's own left out. Held by `parked`, `pool`.
pub const ROOT_DEPTH: usize = 3;
/// Number of functions, from the wait outwards, that are searched for a worker's place. In Java, many functions lie
/// between the two.
pub const WORKER_PLACE_DEPTH: usize = 8;
/// Functions of Python's library that may lie below one that waits for a result.
pub const SCRIPT_FUTURE_DEPTH: usize = 3;
/// Number of functions that are searched for a plain semaphore: the library's, and one inlined into it.
pub const SEMAPHORE_DEPTH: usize = 2;
/// Part of the waits at one place that fellow waiters must hold up for the place to be shared.
/// Chains are followed a few holders deep: the first of many in a queue is a small part of a wait.
/// Held by `script-pool`.
pub const SHARED_PART: f64 = 0.25;

// The host.

/// Share of the window in which tasks stalled for a resource (pressure `some`) that saturates it.
/// Convention.
pub const STALLED_SHARE: f64 = 0.10;
/// Use of a resource above which it is busy. Convention.
pub const BUSY_USE: f64 = 0.80;
/// Share of a quota's periods in which it ran out that saturates it.
pub const QUOTA_SATURATED: f64 = 0.05;
/// Retransmitted segments a second above which a network is saturated. Convention.
pub const RETRANSMIT_RATE: f64 = 10.0;
/// Hits of a memory limit a second that saturate it. Convention.
pub const LIMIT_HIT_RATE: f64 = 1.0;
/// Use of a count limit from which it is listed. Convention.
pub const LIMIT_LISTED: f64 = 0.5;
/// Use of a count limit above which it is saturated. Convention.
pub const LIMIT_SATURATED: f64 = 0.98;
/// CPUs that a neighbour must use to be named. Convention.
pub const NEIGHBOUR_CPUS: f64 = 0.05;

// The sentence at the end of a recording.

/// Share of wall time from which a state is mentioned in the sentence.
pub const MENTIONED_SHARE: f64 = 0.005;
/// Part of blocked time that one reason must take to be named for all of it.
pub const ONE_REASON: f64 = 0.9;
/// Blocked share of active time below which computing is all there is.
pub const NEARLY_ALL: f64 = 0.01;
/// CPUs kept busy from which waiting may be for the threads that compute.
pub const BUSY_BESIDE: f64 = 0.8;
/// Share of wall time that threads too short to be seen must compute for a note.
pub const UNATTRIBUTED_NOTE: f64 = 0.01;
/// Share of request time that waits for one peer must take for a note.
pub const PEER_NOTE: f64 = 0.10;
/// Part of the computing that spinning must take for a note.
pub const SPIN_NOTE: f64 = 0.05;
