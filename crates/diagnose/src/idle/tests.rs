use wallscope_model::{
    BlockReason, ContextId, FrameKind, Function, Recording, StackEnd, State, WaitSeen,
};

use super::mark::{mark_intervals, names};
use super::overturn::shared_part;
use super::rules::AT_ROOT;
use super::*;
use crate::frames::script_name;
use crate::thresholds::SHARED_PART;
use crate::wake_chain::WakeChains;

fn wait<'a>(reason: BlockReason, user: &'a [&'a str], kernel: &'a [&'a str]) -> Wait<'a> {
    Wait {
        reason,
        seen: WaitSeen {
            in_flight: Some(false),
            awaits: false,
            talks: true,
        },
        at: "",
        user,
        kernel,
    }
}

#[test]
fn a_server_of_datagrams_is_idle_and_a_client_is_not_known_to_be() {
    let mut w = wait(
        BlockReason::Network,
        &["__libc_recvfrom", "main"],
        &["udp_recvmsg"],
    );
    w.seen = WaitSeen::default();
    w.at = "socket at 127.0.0.1:53 (fd 3)";
    assert_eq!(judge_wait(&w), (true, "nobody at the other end"));
    w.at = "answers to UDP port 40000 (fd 3)";
    assert!(!judge_wait(&w).0);
    w.at = "peer 127.0.0.1:53 (fd 3)";
    assert!(!judge_wait(&w).0);
}

const EPOLL: &[&str] = &["schedule", "ep_poll", "do_epoll_wait"];
const POOL: &[&str] = &[
    "__futex_abstimed_wait_common",
    "__pthread_cond_wait",
    "queue_take",
    "pool_main",
    "start_thread",
    "clone3",
];

#[test]
fn an_event_loop_is_idle_only_with_nothing_in_flight() {
    let mut w = wait(
        BlockReason::Poll,
        &["epoll_wait", "event_loop", "main"],
        EPOLL,
    );
    assert_eq!(judge_wait(&w), (true, "nothing in flight"));
    w.seen.in_flight = Some(true);
    assert_eq!(judge_wait(&w), (false, "request in flight"));
    w.seen.in_flight = None;
    assert_eq!(judge_wait(&w), (false, "no rule"));
}

#[test]
fn a_pool_s_worker_waits_for_work_but_a_job_s_wait_is_in_the_way() {
    let w = wait(BlockReason::Lock, POOL, &["futex_wait"]);
    assert_eq!(judge_wait(&w), (true, "waits for work at its root"));
    let job = [
        &["pthread_cond_wait"],
        &["a", "b", "handle_request", "run"][..],
        &["start_thread"],
    ]
    .concat();
    let w = wait(BlockReason::Lock, &job, &["futex_wait"]);
    assert_eq!(judge_wait(&w), (false, "no rule"));
    let mutex = [
        "__lll_lock_wait",
        "pthread_mutex_lock",
        "worker",
        "start_thread",
    ];
    assert!(!judge_wait(&wait(BlockReason::Lock, &mutex, &[])).0);
    let main = ["pthread_cond_wait", "main", "__libc_start_main"];
    assert!(!judge_wait(&wait(BlockReason::Lock, &main, &[])).0);
}

#[test]
fn what_a_language_puts_below_a_worker_is_no_work_and_its_arguments_are_no_waits() {
    let cpp = [
        "pthread_cond_wait",
        "void std::condition_variable::wait<Pool::run()::{lambda()#1}>(std::unique_lock<std::mutex>&)",
        "Pool::take()",
        "Pool::run()",
        "Pool::Pool(int)::{lambda()#1}::operator()() const",
        "void std::__invoke_impl<void, Pool::Pool(int)::{lambda()#1}>(std::__invoke_other)",
        "std::thread::_Invoker<std::tuple<Pool::Pool(int)::{lambda()#1}> >::operator()()",
        "std::thread::_State_impl<std::thread::_Invoker<std::tuple<Pool::Pool(int)::{lambda()#1}> > >::_M_run()",
        "execute_native_thread_routine",
        "start_thread",
    ];
    let rust = [
        "std::sync::poison::condvar::Condvar::wait",
        "app::Queue::take",
        "app::worker",
        "std::sys::backtrace::__rust_begin_short_backtrace",
        "std::panicking::catch_unwind::do_call",
        "<alloc::boxed::Box<F> as core::ops::function::FnOnce<Args>>::call_once",
        "std::sys::thread::unix::Thread::new::thread_start",
        "start_thread",
    ];
    for user in [&cpp[..], &rust[..]] {
        let w = wait(BlockReason::Lock, user, &["futex_wait"]);
        assert_eq!(judge_wait(&w), (true, AT_ROOT), "{user:?}");
    }
    // One that brings something, by way of a function of the library that was inlined.
    let mut brings = cpp;
    brings[2] = "wait<add_event(int)::<lambda()> >";
    brings[3] = "add_event(int)";
    assert!(!judge_wait(&wait(BlockReason::Lock, &brings, &["futex_wait"])).0);
    let job = [
        "pthread_mutex_lock",
        "handle",
        "std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (*)(std::condition_variable&)> > >::_M_run()",
        "start_thread",
    ];
    assert!(!judge_wait(&wait(BlockReason::Lock, &job, &["futex_wait"])).0);
}

#[test]
fn a_worker_that_owes_an_answer_is_not_idle_wherever_it_waits() {
    let mut w = wait(BlockReason::Lock, POOL, &["futex_wait"]);
    w.seen.in_flight = Some(true);
    assert!(!judge_wait(&w).0);
}

#[test]
fn a_java_pool_s_worker_is_idle_and_a_lock_s_waiter_is_not() {
    let parked = [
        "__futex_abstimed_wait_common64",
        "__futex_abstimed_wait_common",
        "__pthread_cond_wait_common",
        "pthread_cond_wait",
        "Parker::park(bool, long)",
        "Unsafe_Park",
        "jdk.internal.misc.Unsafe.park",
        "java.util.concurrent.locks.LockSupport.park",
        "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionNode.block",
        "java.util.concurrent.ForkJoinPool.unmanagedBlock",
        "java.util.concurrent.ForkJoinPool.managedBlock",
        "java.util.concurrent.locks.AbstractQueuedSynchronizer$ConditionObject.await",
        "java.util.concurrent.LinkedBlockingQueue.take",
    ];
    let root = ["java.lang.Thread.run", "thread_native_entry(Thread*)"];
    let pool = ["java.util.concurrent.ThreadPoolExecutor.getTask"];
    let worker = [&parked[..], &pool, &root].concat();
    let w = wait(BlockReason::Lock, &worker, &["futex_wait"]);
    assert_eq!(judge_wait(&w), (true, "parking place"));
    let consumer = [&parked[..], &["app.Orders.next"], &root].concat();
    assert!(!judge_wait(&wait(BlockReason::Lock, &consumer, &[])).0);
    let fork_join = [
        "jdk.internal.misc.Unsafe.park",
        "java.util.concurrent.ForkJoinPool.awaitWork",
        "java.util.concurrent.ForkJoinPool.runWorker",
    ];
    let mut carrier = wait(BlockReason::Lock, &fork_join, &[]);
    assert!(judge_wait(&carrier).0);
    // One of its virtual threads has sent a request and was unmounted.
    carrier.seen.in_flight = Some(true);
    assert!(judge_wait(&carrier).0);
    // Node's main thread has, which its pool does not.
    let pool = [
        "pthread_cond_wait",
        "uv_cond_wait",
        "worker",
        "start_thread",
    ];
    let mut w = wait(BlockReason::Lock, &pool, &[]);
    w.seen.in_flight = Some(true);
    assert!(judge_wait(&w).0);
    let job = [
        "pthread_cond_wait",
        "uv_cond_wait",
        "job",
        "worker",
        "start_thread",
    ];
    w.user = &job;
    assert!(!judge_wait(&w).0);
    let marker = [
        "Monitor::wait(unsigned long)",
        "G1ConcurrentMarkThread::run_service()",
    ];
    let mut marking = wait(BlockReason::Lock, &marker, &[]);
    assert!(judge_wait(&marking).0);
    // A request of an unknown thread is not a collector's.
    marking.seen.in_flight = Some(true);
    assert_eq!(judge_wait(&marking), (true, "the runtime's own thread"));
    let launcher = [
        "__pthread_clockjoin_ex",
        "CallJavaMainInNewThread",
        "JLI_Launch",
        "main",
    ];
    let mut waits = wait(BlockReason::Lock, &launcher, &[]);
    waits.seen.in_flight = Some(true);
    assert!(judge_wait(&waits).0);
    waits.user = &worker;
    assert!(!judge_wait(&waits).0, "a pool's worker may owe an answer");
    let marks = [
        "sem_wait",
        "WorkerThreads::run_task(WorkerTask*)",
        marker[1],
    ];
    assert!(!judge_wait(&wait(BlockReason::Lock, &marks, &[])).0);
    for place in [
        "java.util.concurrent.DelayScheduler.loop",
        "java.lang.VirtualThread.unblockVirtualThreads",
        "sun.nio.ch.Poller.pollerLoop",
    ] {
        assert!(
            judge_wait(&wait(BlockReason::Lock, &[place], &[])).0,
            "{place}"
        );
    }
}

#[test]
fn a_script_s_executor_waits_for_work() {
    let function = |name: &str, file: &str| Function {
        name: name.into(),
        system_name: "".into(),
        file: file.into(),
        start_line: 1,
    };
    let worker = script_name(&function(
        "_worker",
        "/usr/lib/python3.11/concurrent/futures/thread.py",
    ));
    let user = ["sem_clockwait", &worker, "run (threading.py)"];
    let mut w = wait(BlockReason::Lock, &user, &["futex_wait"]);
    w.seen.talks = false;
    assert_eq!(judge_wait(&w), (true, "parking place"));
    assert_eq!(
        script_name(&function("Pool.get", "/srv/app/pool.py")),
        "get (pool.py)"
    );
}

#[test]
fn of_asio_s_threads_one_waits_for_events_and_the_others_for_work() {
    let parked = [
        "__futex_abstimed_wait_common",
        "___pthread_cond_wait",
        "void boost::asio::detail::posix_event::wait<boost::asio::detail::conditionally_enabled_mutex::scoped_lock>",
        "boost::asio::detail::conditionally_enabled_event::wait(…)",
        "boost::asio::detail::scheduler::do_run_one(…)",
        "boost::asio::detail::scheduler::run(boost::system::error_code&)",
        "main",
    ];
    let mut w = wait(BlockReason::Lock, &parked, &["futex_wait"]);
    w.seen.in_flight = Some(true);
    assert_eq!(judge_wait(&w), (true, "executor without work"));
    // A handler waits, and a thread for the scheduler's own lock.
    let mut handler = parked.to_vec();
    handler.splice(2..4, ["on_answer"]);
    w.user = &handler;
    assert!(!judge_wait(&w).0);
    let lock = [
        "__lll_lock_wait",
        "pthread_mutex_lock",
        "boost::asio::detail::scheduler::run(boost::system::error_code&)",
    ];
    w.user = &lock;
    assert!(!judge_wait(&w).0);
}

#[test]
fn collectors_threads_are_idle_where_they_wait_for_a_collection_and_not_within_one() {
    let root = [
        "ConcurrentGCThread::run()",
        "Thread::call_run()",
        "start_thread",
    ];
    let monitor = ["pthread_cond_wait", "os::PlatformMonitor::wait(long)"];
    let metronome = [
        "PlatformMonitor::wait(unsigned long)",
        "ZMetronome::wait_for_tick()",
    ];
    let sleep = [
        "__GI___clock_nanosleep",
        "__GI___nanosleep",
        "os::naked_short_sleep(long)",
    ];
    let idle: [(&[&str], &[&str]); 6] = [
        (&monitor, &["ZDriver::run_service()"]),
        (
            &monitor,
            &["ZDriverPort::receive()", "ZDriverMinor::run_thread()"],
        ),
        (
            &monitor,
            &[
                "ZUncommitter::wait(unsigned long) const",
                "ZUncommitter::run_thread()",
            ],
        ),
        (&metronome, &["ZStat::run_service()"]),
        (&sleep, &["ShenandoahControlThread::run_service()"]),
        (&monitor, &["ShenandoahUncommitThread::run_service()"]),
    ];
    for (machinery, place) in idle {
        let stack = [machinery, place, &root[..]].concat();
        let (is_idle, _) = judge_wait(&wait(BlockReason::Lock, &stack, &["futex_wait"]));
        assert!(is_idle, "{stack:?}");
    }
    for work in [
        [
            "VMThread::execute(VM_Operation*)",
            "ZDriver::gc(ZDriverRequest const&)",
            "ZDriver::run_service()",
        ],
        [
            "VMThread::execute(VM_Operation*)",
            "ShenandoahConcurrentGC::collect(GCCause::Cause)",
            "ShenandoahControlThread::run_service()",
        ],
    ] {
        let stack = [&monitor[..], &work, &root].concat();
        let (is_idle, _) = judge_wait(&wait(BlockReason::Lock, &stack, &["futex_wait"]));
        assert!(!is_idle, "{stack:?}");
    }
}

#[test]
fn tokio_s_threads_are_idle_where_the_runtime_waits_and_not_what_it_runs() {
    let (pool, worker) = (
        "tokio::runtime::blocking::pool::Inner::run",
        "<tokio::runtime::scheduler::multi_thread::worker::Context>::park_internal",
    );
    let idle = |user: &[&str]| judge_wait(&wait(BlockReason::Lock, user, &["futex_wait"])).0;
    assert!(idle(&[
        "syscall",
        "parking_lot::condvar::Condvar::wait_until_internal",
        pool
    ]));
    assert!(idle(&[
        "syscall",
        "tokio::runtime::park::Inner::park",
        worker
    ]));
    // The runtime calls a task's functions as well, perhaps from close by; the pool has a lock of its own.
    let polls = "tokio::runtime::task::raw::poll";
    assert!(!idle(&["syscall", "app::locks", polls, pool]));
    assert!(!idle(&[
        "syscall",
        "parking_lot::raw_mutex::RawMutex::lock_slow",
        pool
    ]));
}

#[test]
fn single_intervals_are_idle_where_all_sampled_waits_like_them_are() {
    use BlockReason::{Lock, Poll, Timer};
    use wallscope_model::{Interval, Lane, Sample, StackId, Timeline};
    let sample = |context: u32, reason, idle| Sample {
        context: ContextId(context),
        stack: StackId(0),
        state: State::Blocked,
        reason: Some(reason),
        part: None,
        idle,
        cpu: None,
        labels: None,
        count: 1,
        ns: 1,
        slices: Vec::new(),
    };
    let interval = |reason, request| Interval {
        start_ns: 0,
        ns: 1,
        state: State::Blocked,
        reason: Some(reason),
        part: None,
        waker: None,
        request,
        idle: false,
    };
    let lane = |context, intervals| Lane {
        context: ContextId(context),
        intervals,
    };
    let mut rec = Recording {
        // An event loop that was seen with and without a request; a worker with idle and other waits.
        samples: vec![
            sample(0, Poll, true),
            sample(0, Poll, false),
            sample(1, Lock, true),
            sample(1, Lock, false),
        ],
        timeline: Some(Timeline {
            lanes: vec![
                lane(0, vec![interval(Poll, false), interval(Poll, true)]),
                lane(1, vec![interval(Lock, false), interval(Timer, false)]),
            ],
            ..Timeline::default()
        }),
        ..Recording::default()
    };
    let seen = |in_flight| WaitSeen {
        in_flight: Some(in_flight),
        awaits: in_flight,
        talks: true,
    };
    mark_intervals(
        &mut rec,
        &[seen(false), seen(true), seen(false), seen(false)],
    );
    let lanes = rec.timeline.unwrap().lanes;
    let idle = |l: &Lane| l.intervals.iter().map(|i| i.idle).collect::<Vec<_>>();
    assert_eq!(
        lanes.iter().map(idle).collect::<Vec<_>>(),
        [[true, false], [false, false]]
    );
}

#[test]
fn kernel_threads_and_acceptors() {
    let home = [
        "schedule",
        "worker_thread",
        "kthread",
        "ret_from_fork",
        "ret_from_fork_asm",
    ];
    assert!(judge_wait(&wait(BlockReason::Other, &[], &home)).0);
    let work = [
        "schedule",
        "flush_work",
        "worker_thread",
        "kthread",
        "ret_from_fork",
    ];
    assert!(!judge_wait(&wait(BlockReason::Other, &[], &work)).0);
    assert!(!judge_wait(&wait(BlockReason::Disk, &[], &home[..4])).0);
    let worker = [
        "schedule",
        "schedule_timeout",
        "io_wq_worker",
        "ret_from_fork",
    ];
    assert!(judge_wait(&wait(BlockReason::Other, &[], &worker)).0);
    let write = ["schedule", "io_write", "io_issue_sqe", "io_wq_worker"];
    assert!(!judge_wait(&wait(BlockReason::Disk, &[], &write)).0);
    let fuse = ["schedule", "fuse_dev_do_read", "fuse_dev_read"];
    assert!(judge_wait(&wait(BlockReason::Pipe, &["read", "main"], &fuse)).0);
    let accept = ["schedule", "inet_csk_accept", "inet_accept"];
    assert!(judge_wait(&wait(BlockReason::Network, &["accept", "main"], &accept)).0);
    assert!(judge_wait(&wait(BlockReason::Network, &["__libc_accept", "main"], &[])).0);
}

#[test]
fn what_is_sent_or_connected_is_not_idle_whatever_is_in_flight() {
    let taken = ["wait_woken", "sk_stream_wait_memory", "tcp_sendmsg_locked"];
    let w = wait(BlockReason::Network, &["sendfile", "main"], &taken);
    assert_eq!(judge_wait(&w), (false, "sends or connects"));
    let w = wait(BlockReason::Network, &["__GI___libc_write", "main"], &[]);
    assert_eq!(judge_wait(&w), (false, "sends or connects"));
    let connect = ["inet_wait_for_connect", "__inet_stream_connect"];
    assert!(!judge_wait(&wait(BlockReason::Network, &["connect"], &connect)).0);
    let read = ["wait_woken", "sk_wait_data", "tcp_recvmsg"];
    assert!(judge_wait(&wait(BlockReason::Network, &["__libc_read"], &read)).0);
}

#[test]
fn a_wait_for_a_signal_is_idle_and_a_sleep_until_one_is_not_known_to_be() {
    let judged = |user: &[&str], kernel: &[&str]| {
        let mut w = wait(BlockReason::Poll, user, kernel);
        w.seen = WaitSeen::default();
        judge_wait(&w).0
    };
    assert!(judged(&["pause", "main"], &["schedule", "__do_sys_pause"]));
    assert!(judged(&["__libc_pause", "main"], &[]));
    let wait = ["schedule_timeout", "do_sigtimedwait"];
    assert!(judged(&["__sigtimedwait", "__sigwaitinfo", "main"], &wait));
    assert!(!judged(&["__sigtimedwait", "main"], &wait));
    // The program's own function of that name.
    assert!(!judged(&["poll", "pause", "main"], &[]));
}

#[test]
fn a_thread_that_sleeps_with_a_shared_thing_holds_it_also_where_that_is_one_function() {
    use wallscope_model::{
        Above, Actor, ActorId, Frame, FrameId, Hop, Line, Role, Sample, Stack, StackEnd, StackId,
    };
    let mut rec = Recording::default();
    let mut stack = |names: &[&str]| {
        let frames = names.iter().map(|name| {
            rec.functions.push(Function {
                name: (*name).into(),
                system_name: "".into(),
                file: "".into(),
                start_line: 1,
            });
            let function = wallscope_model::FunctionId(rec.functions.len() as u32 - 1);
            rec.frames.push(Frame {
                kind: FrameKind::Native,
                module: None,
                address: 0,
                lines: vec![Line { function, line: 1 }],
            });
            FrameId(rec.frames.len() as u32 - 1)
        });
        let frames = frames.collect();
        rec.stacks.push(Stack {
            frames,
            end: StackEnd::Root,
        });
        StackId(rec.stacks.len() as u32 - 1)
    };
    let waits = stack(&["sem_wait", "use_slot", "start_thread"]);
    let sleeps = stack(&["clock_nanosleep", "use_slot", "start_thread"]);
    for context in 0..2 {
        rec.samples.push(Sample {
            context: ContextId(context),
            stack: waits,
            state: State::Blocked,
            reason: Some(BlockReason::Lock),
            part: None,
            idle: false,
            cpu: None,
            labels: None,
            count: 1,
            ns: 100,
            slices: Vec::new(),
        });
    }
    rec.actors = vec![Actor::Context(ContextId(1))];
    let hop = |above, role, stack, reason| Hop {
        above,
        role,
        actor: ActorId(0),
        stack: Some(stack),
        reason,
        part: None,
        labels: None,
        count: 1,
        ns: 90,
    };
    rec.hops = vec![
        hop(Above::Sample(0), Role::Woke, waits, None),
        hop(
            Above::Hop(0),
            Role::Blocked,
            sleeps,
            Some(BlockReason::Timer),
        ),
    ];
    assert!(shared_part(&rec, &WakeChains::new(&rec), &[0, 1]) >= SHARED_PART);
    // Another one in the queue has nothing.
    rec.hops[1] = hop(Above::Hop(0), Role::Blocked, waits, Some(BlockReason::Lock));
    assert!(shared_part(&rec, &WakeChains::new(&rec), &[0, 1]) < SHARED_PART);
}

#[test]
fn asio_s_threads_wait_for_the_one_that_polls_and_their_handlers_do_not() {
    let wait_in = [
        "__futex_abstimed_wait_common64",
        "__pthread_cond_wait_common",
        "pthread_cond_wait",
        "void boost::asio::detail::posix_event::wait<boost::asio::detail::conditionally_enabled_mutex::scoped_lock>",
        "boost::asio::detail::conditionally_enabled_event::wait(boost::asio::detail::conditionally_enabled_mutex::scoped_lock&)",
    ];
    let runs = [
        "boost::asio::detail::scheduler::do_run_one(boost::asio::detail::conditionally_enabled_mutex::scoped_lock&)",
        "boost::asio::detail::scheduler::run(boost::system::error_code&)",
        "serve",
        "handle",
        "main_of_threads",
        "start_thread",
    ];
    let all = [&wait_in[..], &runs[..]].concat();
    let mut w = wait(BlockReason::Lock, &all, &[]);
    assert!(judge_wait(&w).0);
    // The thread that polls awaits a request in flight.
    w.seen.in_flight = Some(true);
    assert!(judge_wait(&w).0);
    // Without inlined functions.
    let plain = [&wait_in[..3], &runs[..]].concat();
    assert!(judge_wait(&wait(BlockReason::Lock, &plain, &[])).0);
    // A handler waits for something that it wants.
    let handler = [&wait_in[..3], &["take_connection"], &runs[..]].concat();
    assert!(!judge_wait(&wait(BlockReason::Lock, &handler, &[])).0);
}

/// The user's frames of a whole stack in files, innermost first, as idle waits are judged by.
fn judged_by(frames: &[(&str, &str)], end: StackEnd) -> Vec<String> {
    use wallscope_model::{Frame, FrameId, FunctionId, Line, Module, ModuleId, ModuleKind, Stack};
    let mut rec = Recording::default();
    for (i, (file, name)) in (0u32..).zip(frames) {
        rec.modules.push(Module {
            kind: ModuleKind::Elf,
            path: format!("/usr/lib/{file}").into(),
            build_id: "".into(),
            pid: 0,
        });
        rec.functions.push(Function {
            name: (*name).into(),
            system_name: if name.contains("+0x") { "" } else { *name }.into(),
            file: "".into(),
            start_line: 0,
        });
        rec.frames.push(Frame {
            kind: FrameKind::Native,
            module: Some(ModuleId(i)),
            address: 0,
            lines: vec![Line {
                function: FunctionId(i),
                line: 0,
            }],
        });
    }
    let frames = (0..frames.len() as u32).map(FrameId).collect();
    rec.stacks.push(Stack { frames, end });
    let (user, _) = names(&rec, wallscope_model::StackId(0));
    user.into_iter().map(String::from).collect()
}

#[test]
fn a_worker_is_known_without_debug_symbols_of_the_libraries() {
    let libc = "libc.so.6";
    let worker = [
        (libc, "libc.so.6+0x85e50"),
        (libc, "pthread_cond_clockwait"),
        (
            "server",
            "pool::wait_for_tasks(std::unique_lock<std::mutex>&)",
        ),
        ("server", "pool::get_task(pool::worker_data*)"),
        ("server", "pool::worker_main(pool::worker_data*)"),
        ("libstdc++.so.6.0.30", "libstdc++.so.6.0.30+0xd4490"),
        (libc, "libc.so.6+0x88ef0"),
        (libc, "libc.so.6+0x1098e1"),
    ];
    let verdict = |frames: &[(&str, &str)], end| {
        let user = judged_by(frames, end);
        let user: Vec<&str> = user.iter().map(|n| &**n).collect();
        judge_wait(&wait(BlockReason::Lock, &user, &["futex_wait"]))
    };
    assert_eq!(verdict(&worker, StackEnd::Root), (true, AT_ROOT));
    // Whether a thread begins there is not known, or it does not.
    assert!(!verdict(&worker, StackEnd::NoUnwindInfo).0);
    assert!(!verdict(&worker[..6], StackEnd::Root).0);
    let mut main = worker.to_vec();
    main[6..].copy_from_slice(&[(libc, "libc.so.6+0x2724a"), ("server", "_start")]);
    assert!(!verdict(&main, StackEnd::Root).0);
    // A program's own functions without names are work, as those with names are.
    let mut works = worker.to_vec();
    works.insert(5, ("server", "server+0x1234"));
    assert!(!verdict(&works, StackEnd::Root).0);
}

#[test]
fn a_thread_that_resolves_a_name_is_not_idle() {
    let poll = |user| judge_wait(&wait(BlockReason::Poll, user, &["do_sys_poll"]));
    let resolver = &[
        "__GI___poll",
        "send_dg",
        "__res_context_send",
        "getaddrinfo",
    ];
    assert_eq!(poll(resolver), (false, "sends or connects"));
    assert!(poll(&["__GI___poll", "loop_run", "main"]).0);
}
