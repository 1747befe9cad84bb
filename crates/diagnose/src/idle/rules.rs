//! Rules for one wait: is it idle, so that no request of its context is in flight?
//!
//! The first rule of [`RULES`] that knows an answer gives it. A wait that no rule knows is not idle:
//! idle time is hidden from reports, so doubt must fall on the other side.
//!
//! A thread that waits in `epoll_wait` for a slow upstream has a request in flight, whatever its stack is. Rules
//! therefore judge by connections before they judge by the stack.

use wallscope_model::attribution::of_standard_library;
use wallscope_model::{BlockReason, WaitSeen};

use crate::knowledge::{
    ACCEPT, ACCEPT_CALLS, EXECUTOR_MAINS, EXECUTOR_PLACES, EXECUTOR_WAITS, KERNEL_THREAD_WAITS,
    LANGUAGE_ENTRIES, NameOrigin, RESOLVERS, SIGNAL_CALLS, SIGNAL_WAIT, SLEEP, THREAD_ENTRIES,
    connects, is_call, is_not_taken, is_runtime_thread, is_worker_place, knows, name_says_gives,
    own_lock_of, waits_for_condition,
};
use crate::thresholds::{ROOT_DEPTH, WORKER_PLACE_DEPTH};

/// Everything that is known of a wait.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// Block reason.
    pub reason: BlockReason,
    /// Requests on its connections.
    pub seen: WaitSeen,
    /// The resource that was waited for, as the recording names it; empty where it does not.
    pub at: &'a str,
    /// Functions of the program, innermost first.
    pub user: &'a [&'a str],
    /// Functions of the kernel, innermost first.
    pub kernel: &'a [&'a str],
}

/// A named rule.
pub struct IdleRule {
    /// Its name, as recordings keep it.
    pub name: &'static str,
    /// When it knows the answer, in words.
    pub when: &'static str,
    /// Whether the wait is idle; `None`: the rule does not know.
    pub judges: fn(&Wait<'_>) -> Option<bool>,
}

/// Name of the rule that judges by connections alone.
pub(super) const NOTHING_IN_FLIGHT: &str = "nothing in flight";
/// Name of the rule that judges by the stack alone.
pub(super) const AT_ROOT: &str = "waits for work at its root";
/// The C library's function in which a thread begins.
pub(super) const THREAD_BEGINS: &str = "start_thread";

/// Every rule; the first that knows decides.
pub const RULES: &[IdleRule] = &[
    IdleRule {
        name: "executor without work",
        when: "a thread of Go's, tokio's or Asio's scheduler, of a fork/join pool as Java's virtual threads run on, or \
               of Node's or tokio's pools waits for a lock's word to be given something to run: idle; its tasks await \
               answers, and not the thread",
        judges: executor,
    },
    IdleRule {
        name: "the runtime's own thread",
        when: "a thread of a Java VM's own (collector, compiler, references, signals…) waits for work: idle; it \
               speaks to no other process, so that a request in flight in its process is not its own",
        judges: runtime_thread,
    },
    IdleRule {
        name: "lock of a server's own",
        when: "the stack is that of a server that waits for a lock which it has made itself: not idle",
        judges: server_lock,
    },
    IdleRule {
        name: "request in flight",
        when: "the thread owes an answer, or awaits one: not idle",
        judges: in_flight,
    },
    IdleRule {
        name: "not a place to wait for work",
        when: "blocked on a disk, a page, memory, a kernel lock, a child, or stopped: not idle",
        judges: in_the_way,
    },
    IdleRule {
        name: "sends or connects",
        when: "what it sends is not taken, a connection is not made yet, or a name is resolved: not idle",
        judges: sends,
    },
    IdleRule {
        name: "waits for a signal",
        when: "blocked in pause(), sigsuspend() or sigwait(): idle",
        judges: awaits_signal,
    },
    IdleRule {
        name: "kernel thread at home",
        when: "a kernel thread, or a worker of io_uring, waits in its own main function, or in one where kernel \
               threads are known to wait for work: idle",
        judges: kernel_thread,
    },
    IdleRule {
        name: "waits for a connection",
        when: "blocked in accept(), or in reading what FUSE is asked for: idle",
        judges: accepts,
    },
    IdleRule {
        name: "nobody at the other end",
        when: "reads, or polls alone, a socket that has a port of its own and no peer: idle; one from \
               which datagrams are sent to ask is another",
        judges: serves_datagrams,
    },
    IdleRule {
        name: "parking place",
        when: "the stack is that of a runtime's or server's worker that waits for work: idle",
        judges: parked,
    },
    IdleRule {
        name: AT_ROOT,
        when: "a condition variable, waited for at most three functions from a thread's entry, the \
               language's own left out, but for a condition of something that its waiters hold in turn: idle",
        judges: root_condition,
    },
    IdleRule {
        name: NOTHING_IN_FLIGHT,
        when: "polls or reads connections, and none of them has a request in flight: idle, unless children \
               that it started or a disk end the waits",
        judges: nothing_in_flight,
    },
];

/// The verdict on a wait, and the rule that gave it; not idle where no rule knows.
pub fn judge_wait(wait: &Wait<'_>) -> (bool, &'static str) {
    RULES
        .iter()
        .find_map(|rule| Some(((rule.judges)(wait)?, rule.name)))
        .unwrap_or((false, "no rule"))
}

/// Tasks move from thread to thread: the thread that last sent a request for one of them does not
/// wait for the answer.
fn executor(w: &Wait<'_>) -> Option<bool> {
    // Node's threads talk to no other process and wait in their main functions: functions below these work.
    let mut own = w.user.iter().skip_while(|n| knows(EXECUTOR_WAITS, n));
    let main = own.next().copied().unwrap_or_default();
    let of_libuv = main == "worker" && own.next() == Some(&THREAD_BEGINS);
    let at_main = knows(EXECUTOR_MAINS, main) || (of_libuv && w.user.contains(&"uv_cond_wait"));
    // One of Asio's threads waits for events, the others here: functions below these work.
    let of_asio = main.contains("asio::detail::scheduler::")
        && w.user.iter().any(|name| name.contains("cond_"));
    let at_place = w.user.iter().any(|name| knows(EXECUTOR_PLACES, name));
    let found = at_main || of_asio || awaits_tokio_work(w.user) || at_place;
    (w.reason == BlockReason::Lock && found).then_some(true)
}

/// Whether a tokio thread waits for work: a worker that parks, or a thread of the blocking pool in
/// its main function. Tasks that such threads run are called by the runtime's functions, which then
/// are not the innermost ones of the runtime.
fn awaits_tokio_work(user: &[&str]) -> bool {
    // A method's type stands in brackets or not, by how the compiler packs names.
    let own = user.iter().map(|n| n.trim_start_matches('<'));
    let Some(innermost) = own.clone().find(|n| n.starts_with("tokio::runtime::")) else {
        return false;
    };
    let parks = |n: &str| {
        let of = n.strip_prefix("tokio::runtime::scheduler::multi_thread::worker::Context");
        of.is_some_and(|method| method.trim_start_matches('>').starts_with("::park"))
    };
    let locks = |n: &str| n.contains("lock_slow") || n.contains("lock_contended");
    let at_home = innermost.starts_with("tokio::runtime::blocking::pool::");
    (at_home && !own.clone().any(locks)) || own.clone().any(parks)
}

/// Whether a thread may wait for work for this reason.
fn may_park(reason: BlockReason) -> bool {
    use BlockReason::{Lock, Network, Other, Pipe, Poll, Timer};
    [Lock, Poll, Pipe, Network, Timer, Other].contains(&reason)
}

fn runtime_thread(w: &Wait<'_>) -> Option<bool> {
    (may_park(w.reason) && is_runtime_thread(w.user)).then_some(true)
}

fn server_lock(w: &Wait<'_>) -> Option<bool> {
    let locks = |name: &&str| own_lock_of(name).is_some();
    (w.reason == BlockReason::Poll && w.user.iter().any(locks)).then_some(false)
}

fn in_flight(w: &Wait<'_>) -> Option<bool> {
    (w.seen.in_flight == Some(true)).then_some(false)
}

fn in_the_way(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Child, Disk, Gc, Gil, KernelLock, Memory, PageFault, Stopped};
    let reasons = [Disk, PageFault, Memory, KernelLock, Child, Stopped, Gil, Gc];
    reasons.contains(&w.reason).then_some(false)
}

fn sends(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Network, Pipe, Poll};
    let goes_out = [Network, Pipe].contains(&w.reason)
        && (connects(w.kernel, w.user) || is_not_taken(w.kernel, w.user));
    // Requests of datagrams are not followed.
    let resolves =
        [Network, Poll].contains(&w.reason) && w.user.iter().any(|name| knows(RESOLVERS, name));
    (goes_out || resolves).then_some(false)
}

fn awaits_signal(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Other, Poll, Timer};
    // sigtimedwait() with a time limit is how a thread sleeps until a signal.
    let without_limit = w.kernel.contains(&"do_sigtimedwait")
        && w.user.iter().take(3).any(|n| n.contains("sigwait"));
    let awaits = [Other, Poll, Timer].contains(&w.reason)
        && (without_limit
            || w.kernel.iter().any(|name| knows(SIGNAL_WAIT, name))
            || is_call(w.kernel, w.user, SIGNAL_CALLS));
    awaits.then_some(true)
}

fn kernel_thread(w: &Wait<'_>) -> Option<bool> {
    let mut own = w.kernel.iter().skip_while(|name| knows(SLEEP, name));
    let main = own.next();
    let home = own.next() == Some(&"kthread");
    let waits = main.is_some_and(|name| knows(KERNEL_THREAD_WAITS, name));
    (w.user.is_empty() && (home || waits)).then_some(true)
}

fn accepts(w: &Wait<'_>) -> Option<bool> {
    let inside = || w.kernel.iter().any(|name| knows(ACCEPT, name));
    (is_call(w.kernel, w.user, ACCEPT_CALLS) || inside()).then_some(true)
}

fn serves_datagrams(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Network, Poll};
    let alone = [Network, Poll].contains(&w.reason) && w.at.starts_with("socket at ");
    alone.then_some(true)
}

fn parked(w: &Wait<'_>) -> Option<bool> {
    // Senders park as receivers do.
    let gives = |name: &&str| name_says_gives(name, NameOrigin::Library);
    let sends = || w.user.iter().take(WORKER_PLACE_DEPTH).any(gives);
    let found = may_park(w.reason) && is_worker_place(w.user) && !sends();
    found.then_some(true)
}

fn root_condition(w: &Wait<'_>) -> Option<bool> {
    let root = (w.user.iter()).position(|name| knows(THREAD_ENTRIES, name))?;
    let wait = w.user[..root]
        .iter()
        .rposition(|name| waits_for_condition(name))?;
    // Functions that languages put between a thread's entry and the program's first function are no work. Internal
    // functions of their libraries mostly have no names.
    let of_language = |name: &str| of_standard_library(name) || knows(LANGUAGE_ENTRIES, name);
    let between = w.user[wait + 1..root].iter();
    let between: Vec<&&str> = between.filter(|name| !of_language(name)).collect();
    let gives = between
        .iter()
        .any(|name| name_says_gives(name, NameOrigin::Program));
    (w.reason == BlockReason::Lock && !gives && between.len() <= ROOT_DEPTH).then_some(true)
}

fn nothing_in_flight(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Network, Pipe, Poll};
    let polls = w.reason == Poll || w.reason == Network;
    let reads = w.reason == Pipe && w.kernel.iter().any(|n| n.starts_with("unix_stream"));
    ((polls || reads) && w.seen.talks && w.seen.in_flight == Some(false)).then_some(true)
}
