//! Is a wait idle? An attribute of a blocked interval: no request of its context is in flight.
//!
//! A table of named rules ([`RULES`]) over what is known of one wait ([`Wait`]): the first that
//! knows an answer gives it, and the recording keeps how much time each of them judged. A wait
//! that no rule knows is not idle: what is called idle is hidden from reports, so that doubt must
//! fall on the other side.
//!
//! A thread that waits in `epoll_wait` for a slow upstream has a request in flight, whatever its
//! stack looks like; that is why the connections are asked before the stack.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use wallscope_model::place::{of_standard_library, plain};
use wallscope_model::{
    BlockReason, ContextId, FrameKind, Function, Label, LabelValue, LabelsId, Peer, Recording,
    StackEnd, State, WaitSeen, scale,
};

use crate::{ladder, lock_names, parking};

/// What is known of a wait.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// For what.
    pub reason: BlockReason,
    /// Its connections.
    pub seen: WaitSeen,
    /// What was waited at, as the recording names it; empty where it does not.
    pub at: &'a str,
    /// Functions of the program, innermost first.
    pub user: &'a [&'a str],
    /// Functions of the kernel, innermost first.
    pub kernel: &'a [&'a str],
}

/// A named rule.
pub struct Rule {
    /// Its name, as recordings keep it.
    pub name: &'static str,
    /// When it knows the answer, in words.
    pub when: &'static str,
    /// Whether the wait is idle; `None`: it does not know.
    pub judges: fn(&Wait<'_>) -> Option<bool>,
}

/// Every rule; the first that knows decides.
pub const RULES: &[Rule] = &[
    Rule {
        name: "executor without work",
        when: "a thread of Go's, tokio's or Asio's scheduler, of a fork/join pool as Java's virtual threads run on, or \
               of Node's or tokio's pools waits for a lock's word to be given something to run: idle; who waits for \
               answers is not the thread",
        judges: executor,
    },
    Rule {
        name: "the runtime's own thread",
        when: "a thread of a Java VM's own (collector, compiler, references, signals…) waits for work: idle; it \
               speaks to nobody, so that a request in flight in its process is not its own",
        judges: silent,
    },
    Rule {
        name: "lock of a server's own",
        when: "the stack is that of a server that waits for a lock which it has made itself: not idle",
        judges: own_lock,
    },
    Rule {
        name: "request in flight",
        when: "the thread owes an answer, or awaits one: not idle",
        judges: in_flight,
    },
    Rule {
        name: "not a place to wait for work",
        when: "blocked on a disk, a page, memory, a kernel lock, a child, or stopped: not idle",
        judges: in_the_way,
    },
    Rule {
        name: "sends or connects",
        when: "what it sends is not taken, or a connection is not made yet: not idle",
        judges: sends,
    },
    Rule {
        name: "waits for a signal",
        when: "blocked in pause(), sigsuspend() or sigwait(): idle",
        judges: awaits_signal,
    },
    Rule {
        name: "kernel thread at home",
        when: "a kernel thread, or a worker of io_uring, waits in its own main function: idle",
        judges: kernel_thread,
    },
    Rule {
        name: "waits for a connection",
        when: "blocked in accept(), or in reading what FUSE is asked for: idle",
        judges: accepts,
    },
    Rule {
        name: "nobody at the other end",
        when: "reads, or polls alone, a socket that has a port of its own and no peer: idle; one from \
               which datagrams are sent to ask is another",
        judges: serves_datagrams,
    },
    Rule {
        name: "parking place",
        when: "the stack is that of a runtime's or server's worker that waits for work: idle",
        judges: parked,
    },
    Rule {
        name: AT_ROOT,
        when: "a condition variable, waited for at most three functions from a thread's entry, the \
               language's own left out, but for one of something that those who wait there hold in turn: idle",
        judges: root_condition,
    },
    Rule {
        name: NOTHING_IN_FLIGHT,
        when: "polls or reads connections, and none of them has a request in flight: idle, unless children \
               that it started or a disk end the waits",
        judges: nothing_in_flight,
    },
];

/// Tasks move from thread to thread: the one that last sent a request for one of them does not wait for
/// the answer.
fn executor(w: &Wait<'_>) -> Option<bool> {
    const PLACES: [&str; 2] = [
        "java.util.concurrent.ForkJoinPool.awaitWork",
        "runtime.stopm",
    ];
    // Node's threads, which speak to nobody, wait in their main functions themselves; below these they work.
    const MAINS: [&str; 2] = [
        "node::(anonymous namespace)::PlatformWorkerThread",
        "node::inspector::(anonymous namespace)::StartIoThreadMain",
    ];
    const WAITS: [&str; 6] = [
        "futex",
        "cond_wait",
        "cond_timedwait",
        "sem_wait",
        "asio::detail::posix_event::wait",
        "asio::detail::conditionally_enabled_event::wait",
    ];
    let at = |name: &&str| PLACES.iter().any(|place| name.starts_with(place));
    let waits = |name: &&&str| WAITS.iter().any(|wait| name.contains(wait));
    let mut own = w.user.iter().skip_while(waits);
    let main = own.next().copied().unwrap_or_default();
    let of_libuv = main == "worker" && own.next() == Some(&THREAD_BEGINS);
    let at_main =
        MAINS.iter().any(|m| main.starts_with(m)) || (of_libuv && w.user.contains(&"uv_cond_wait"));
    // One of Asio's threads waits for events, the others here: below the same functions they work.
    let of_asio = main.contains("asio::detail::scheduler::")
        && w.user.iter().any(|name| name.contains("cond_"));
    let found = at_main || of_asio || awaits_tokio_work(w.user) || w.user.iter().any(at);
    (w.reason == BlockReason::Lock && found).then_some(true)
}

/// Whether a thread of tokio's waits for work: a worker parks, or one of its blocking pool is at home. What such
/// threads run is called by the runtime's tasks, which then are its innermost functions.
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

fn silent(w: &Wait<'_>) -> Option<bool> {
    (may_park(w.reason) && parking::is_silent(w.user)).then_some(true)
}

fn own_lock(w: &Wait<'_>) -> Option<bool> {
    let locks = |name: &&str| parking::own_lock(name).is_some();
    (w.reason == BlockReason::Poll && w.user.iter().any(locks)).then_some(false)
}

fn in_flight(w: &Wait<'_>) -> Option<bool> {
    (w.seen.in_flight == Some(true)).then_some(false)
}

fn in_the_way(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Child, Disk, Gil, KernelLock, Memory, PageFault, Stopped};
    let reasons = [Disk, PageFault, Memory, KernelLock, Child, Stopped, Gil];
    reasons.contains(&w.reason).then_some(false)
}

/// Whether a kernel function only puts its caller to sleep.
fn puts_to_sleep(name: &str) -> bool {
    name.starts_with("schedule") || name.starts_with("__schedule") || name == "io_schedule"
}

fn kernel_thread(w: &Wait<'_>) -> Option<bool> {
    let own: Vec<&&str> = w.kernel.iter().skip_while(|n| puts_to_sleep(n)).collect();
    let home = own.get(1).is_some_and(|n| **n == "kthread");
    let of_io_uring = own.first().is_some_and(|n| **n == "io_wq_worker");
    (w.user.is_empty() && (home || of_io_uring)).then_some(true)
}

/// Whether a wait's system call is one of `calls`, by the C library's function: for stacks without the
/// kernel's functions.
fn called(kernel: &[&str], user: &[&str], calls: &[&str]) -> bool {
    let call = |n: &&str| {
        let n = n.trim_start_matches("__GI_").trim_start_matches('_');
        calls.contains(&n.strip_prefix("libc_").unwrap_or(n))
    };
    kernel.is_empty() && user.first().is_some_and(call)
}

fn by_call(w: &Wait<'_>, calls: &[&str]) -> bool {
    called(w.kernel, w.user, calls)
}

/// Whether a wait on a pipe or the network is for what is written or sent to be taken, by the functions of
/// the kernel and of the process, innermost first.
pub(crate) fn is_not_taken(kernel: &[&str], user: &[&str]) -> bool {
    const INSIDE: [&str; 12] = [
        "pipe_write",
        "anon_pipe_write",
        "n_tty_write",
        "unix_stream_sendmsg",
        "unix_dgram_sendmsg",
        "unix_wait_for_peer",
        "sk_stream_wait_memory",
        "sock_alloc_send_pskb",
        "sock_wait_for_wmem",
        "do_mq_timedsend",
        "__x64_sys_mq_timedsend",
        "do_msgsnd",
    ];
    const CALLS: [&str; 9] = [
        "send",
        "sendto",
        "sendmsg",
        "sendmmsg",
        "sendfile",
        "sendfile64",
        "write",
        "writev",
        "splice",
    ];
    let inside = |n: &&str| INSIDE.iter().any(|i| n.starts_with(i));
    called(kernel, user, &CALLS) || kernel.iter().any(inside)
}

/// Whether a wait is for a connection to be made.
pub(crate) fn connects(kernel: &[&str], user: &[&str]) -> bool {
    const INSIDE: [&str; 4] = [
        "sk_stream_wait_connect",
        "inet_wait_for_connect",
        "__inet_stream_connect",
        "unix_stream_connect",
    ];
    called(kernel, user, &["connect"]) || kernel.iter().any(|n| INSIDE.contains(n))
}

fn sends(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Network, Pipe};
    let goes_out = [Network, Pipe].contains(&w.reason)
        && (connects(w.kernel, w.user) || is_not_taken(w.kernel, w.user));
    goes_out.then_some(false)
}

fn awaits_signal(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Other, Poll, Timer};
    let inside = |n: &&str| n.ends_with("sys_pause") || *n == "sigsuspend";
    // The same call with a time limit is how one sleeps until a signal.
    let waits = w.kernel.contains(&"do_sigtimedwait")
        && w.user.iter().take(3).any(|n| n.contains("sigwait"));
    let awaits = [Other, Poll, Timer].contains(&w.reason)
        && (waits
            || w.kernel.iter().any(inside)
            || by_call(w, &["pause", "sigsuspend", "sigwait", "sigwaitinfo"]));
    awaits.then_some(true)
}

fn accepts(w: &Wait<'_>) -> Option<bool> {
    let accepting = [
        "inet_csk_accept",
        "inet_csk_wait_for_connect",
        "unix_accept",
        "fuse_dev_do_read",
    ];
    (by_call(w, &["accept", "accept4"]) || w.kernel.iter().any(|n| accepting.contains(n)))
        .then_some(true)
}

fn serves_datagrams(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Network, Poll};
    let alone = [Network, Poll].contains(&w.reason) && w.at.starts_with("socket at ");
    alone.then_some(true)
}

/// Waits that are for something else than work, wherever they are.
fn may_park(reason: BlockReason) -> bool {
    use BlockReason::{Lock, Network, Other, Pipe, Poll, Timer};
    [Lock, Poll, Pipe, Network, Timer, Other].contains(&reason)
}

fn parked(w: &Wait<'_>) -> Option<bool> {
    // Senders park as receivers do.
    let gives = |n: &&str| ladder::says_that_it_gives(n, false);
    let sends = || w.user.iter().take(parking::NEAR).any(gives);
    let found = may_park(w.reason) && parking::at_place(w.user) && !sends();
    found.then_some(true)
}

/// The C library's and other runtimes' waits for a condition, and what they are made of.
pub(crate) fn waits_for_condition(name: &str) -> bool {
    let parts = [
        "pthread_cond_wait",
        "pthread_cond_timedwait",
        "pthread_cond_clockwait",
        "cnd_wait",
        "std::condition_variable",
        "Condvar::wait",
        "sem_wait",
        "sem_timedwait",
        "sem_clockwait",
    ];
    // Not of what is told about its arguments: threads are templates over what they are given.
    let name = plain(name);
    parts.iter().any(|p| name.contains(p))
}

fn root_condition(w: &Wait<'_>) -> Option<bool> {
    let entry = |n: &&str| [THREAD_BEGINS, "clone3", "__clone3", "clone", "__clone"].contains(n);
    let root = w.user.iter().position(entry)?;
    let wait = w.user[..root]
        .iter()
        .rposition(|n| waits_for_condition(n))?;
    // What languages put between a thread's entry and the program's first function is no work. Their libraries
    // mostly come without the names of functions that are not for others.
    let unnamed = |n: &str| {
        ["libstdc++.so", "libc++.so"]
            .iter()
            .any(|m| n.starts_with(m))
    };
    let begins =
        |n: &&&str| of_standard_library(n) || **n == "execute_native_thread_routine" || unnamed(n);
    let between: Vec<&&str> = (w.user[wait + 1..root].iter().filter(|n| !begins(n))).collect();
    let gives = between.iter().any(|n| ladder::says_that_it_gives(n, true));
    (w.reason == BlockReason::Lock && !gives && between.len() <= 3).then_some(true)
}

fn nothing_in_flight(w: &Wait<'_>) -> Option<bool> {
    use BlockReason::{Network, Pipe, Poll};
    let polls = w.reason == Poll || w.reason == Network;
    let reads = w.reason == Pipe && w.kernel.iter().any(|n| n.starts_with("unix_stream"));
    ((polls || reads) && w.seen.talks && w.seen.in_flight == Some(false)).then_some(true)
}

/// The verdict on a wait, and the rule that gave it; not idle where no rule knows.
pub fn judge(wait: &Wait<'_>) -> (bool, &'static str) {
    RULES
        .iter()
        .find_map(|rule| Some(((rule.judges)(wait)?, rule.name)))
        .unwrap_or((false, "no rule"))
}

/// The label of waits in which a request of their thread was in flight: key and value.
pub const REQUEST: (&str, &str) = ("request", "in flight");
/// The label's value where others await the process's answers, and it none of others.
pub const OWED: &str = "owed";

/// Judges every blocked sample of a recording whose frames have names, and sums up the idle time
/// of each thread. `seen` is what was seen of each sample's waits, by index; fewer: of none.
///
/// What was judged, and by which rule, is added to the domain's notes. Samples in which a request
/// was in flight get the label [`REQUEST`].
pub fn mark(recording: &mut Recording, seen: &[WaitSeen]) {
    label_requests(recording, seen);
    let mut verdicts = vec![None; recording.samples.len()];
    for (i, s) in recording.samples.iter().enumerate() {
        let Some(reason) = s.reason.filter(|_| s.state == State::Blocked) else {
            continue;
        };
        let (user, kernel) = names(recording, s.stack.0 as usize);
        let user: Vec<&str> = user.iter().map(|n| &**n).collect();
        let at = ladder::text_label(recording, s.labels, "resource");
        let wait = Wait {
            reason,
            seen: seen.get(i).copied().unwrap_or_default(),
            at: at.as_deref().unwrap_or(""),
            user: &user,
            kernel: &kernel,
        };
        verdicts[i] = Some(judge(&wait));
    }
    overturn_shared(recording, &mut verdicts);
    overturn_delays(recording, &mut verdicts);
    overturn_awaited(recording, &mut verdicts);
    for (s, verdict) in recording.samples.iter_mut().zip(&verdicts) {
        s.idle = verdict.is_some_and(|(idle, _)| idle);
    }
    mark_intervals(recording, seen);
    let scaled = scale::scale(recording);
    let mut by_rule: Vec<(&str, u64)> = Vec::new();
    for c in &mut recording.contexts {
        c.ledger.idle_ns = 0;
    }
    for p in &scaled.pieces {
        let Some((true, rule)) = verdicts[p.sample as usize] else {
            continue;
        };
        recording.contexts[p.context.0 as usize].ledger.idle_ns += p.ns;
        match by_rule.iter_mut().find(|(r, _)| *r == rule) {
            Some((_, ns)) => *ns += p.ns,
            None => by_rule.push((rule, p.ns)),
        }
    }
    by_rule.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let parts: Vec<String> = by_rule
        .iter()
        .map(|(rule, ns)| format!("{} by \"{rule}\"", crate::words::time(*ns)))
        .collect();
    let told = match parts.is_empty() {
        true => "none of the waits was judged idle".to_string(),
        false => format!("judged idle, from sampled waits: {}", parts.join(", ")),
    };
    recording.domain.notes.push(told);
}

/// Marks single intervals. An interval has no stack: it is idle where every wait of its thread that was
/// sampled, for the same reason and with or without a request in flight as it, was judged so.
fn mark_intervals(recording: &mut Recording, seen: &[WaitSeen]) {
    let Some(timeline) = &mut recording.timeline else {
        return;
    };
    let mut idle: HashMap<(ContextId, BlockReason, bool), bool> = HashMap::new();
    for (i, s) in recording.samples.iter().enumerate() {
        if let Some(reason) = s.reason.filter(|_| s.state == State::Blocked) {
            let request = seen.get(i).is_some_and(|s| s.in_flight == Some(true));
            let all = idle.entry((s.context, reason, request)).or_insert(true);
            *all &= s.idle;
        }
    }
    for lane in &mut timeline.lanes {
        for i in &mut lane.intervals {
            let known = |reason| idle.get(&(lane.context, reason, i.request)).copied();
            i.idle = i.reason.and_then(known).unwrap_or(false);
        }
    }
}

/// Waits at a thread's root that are for something shared are not for work: see
/// [`ladder::held_by_fellows`].
fn overturn_shared(recording: &Recording, verdicts: &mut [Option<(bool, &'static str)>]) {
    let mut places: HashMap<Arc<str>, Vec<u32>> = HashMap::new();
    for (i, verdict) in verdicts.iter().enumerate() {
        if *verdict == Some((true, AT_ROOT)) {
            let stack = &recording.stacks[recording.samples[i].stack.0 as usize];
            let function = ladder::place(recording, stack).function;
            places.entry(function).or_default().push(i as u32);
        }
    }
    for samples in places.into_values() {
        if ladder::held_by_fellows(recording, &samples) >= SHARED {
            for i in samples {
                verdicts[i as usize] = Some((false, "shared with those who hold it"));
            }
        }
    }
}

/// Who polls with connections at rest may do so for a child or a disk: see [`ladder::delays`].
fn overturn_delays(recording: &Recording, verdicts: &mut [Option<(bool, &'static str)>]) {
    for (verdict, delay) in verdicts.iter_mut().zip(ladder::delays(recording)) {
        if delay.is_some() && *verdict == Some((true, NOTHING_IN_FLIGHT)) {
            *verdict = Some((false, "for a child or a disk"));
        }
    }
}

/// Who began to wait for an answer before the recording was seen with nothing in flight: where all that was asked
/// of a peer stood open in the whole window, waits at that peer are for it.
fn overturn_awaited(recording: &Recording, verdicts: &mut [Option<(bool, &'static str)>]) {
    // Looks at connections are a tick apart.
    const MOST: f64 = 0.95;
    let window = &recording.window;
    let window = window.length_ns() as f64;
    let open = |p: &&Peer| {
        p.asks && p.requests > 0 && p.in_flight_ns as f64 >= MOST * window * p.requests as f64
    };
    let awaited: Vec<(u32, &str)> = (recording.peers.iter().filter(open))
        .map(|p| (p.pid, &*p.address))
        .collect();
    if awaited.is_empty() {
        return;
    }
    for (verdict, s) in verdicts.iter_mut().zip(&recording.samples) {
        if *verdict != Some((true, NOTHING_IN_FLIGHT)) || s.reason != Some(BlockReason::Network) {
            continue;
        }
        let at = ladder::text_label(recording, s.labels, "resource");
        let peer = at.as_deref().and_then(|at| at.strip_prefix("peer "));
        let peer = peer.and_then(|p| p.split(' ').next());
        let pid = recording.contexts[s.context.0 as usize].pid;
        if peer.is_some_and(|peer| awaited.contains(&(pid, peer))) {
            *verdict = Some((false, "an answer that never came"));
        }
    }
}

/// Of the time of waits at one place, so much held by others who wait there too makes it shared.
/// Chains are followed a few holders deep: the first of many in a queue is a small part of a wait.
const SHARED: f64 = 0.25;
/// The C library's function in which a thread begins.
const THREAD_BEGINS: &str = "start_thread";
/// The rule that tells by connections alone.
const NOTHING_IN_FLIGHT: &str = "nothing in flight";
/// The rule that tells by the stack alone.
const AT_ROOT: &str = "waits for work at its root";

fn label_requests(recording: &mut Recording, seen: &[WaitSeen]) {
    let mut labelled: HashMap<(Option<LabelsId>, bool), LabelsId> = HashMap::new();
    let sets = &mut recording.label_sets;
    for (s, seen) in recording.samples.iter_mut().zip(seen) {
        if s.state != State::Blocked || seen.in_flight != Some(true) {
            continue;
        }
        let old = s.labels;
        s.labels = Some(*labelled.entry((old, seen.awaits)).or_insert_with(|| {
            let mut set = old.map_or_else(Vec::new, |l| sets[l.0 as usize].clone());
            set.push(Label {
                key: REQUEST.0.into(),
                value: LabelValue::Text(if seen.awaits { REQUEST.1 } else { OWED }.into()),
            });
            set.sort();
            sets.push(set);
            LabelsId((sets.len() - 1) as u32)
        }));
    }
}

/// Idle time by reason, ns, as it was marked.
pub(crate) fn by_reason(rec: &Recording) -> [u64; BlockReason::COUNT] {
    let mut sums = [0; BlockReason::COUNT];
    if !rec.samples.iter().any(|s| s.idle) {
        return sums;
    }
    for p in &scale::scale(rec).pieces {
        let s = &rec.samples[p.sample as usize];
        if let Some(reason) = s.reason.filter(|_| s.idle) {
            sums[reason as usize] += p.ns;
        }
    }
    sums
}

/// The names on a stack: of the program, of the kernel; innermost first. Of the C library without its debug symbols:
/// what it keeps to itself is left out, and where a stack begins in that, a thread does.
fn names(rec: &Recording, stack: usize) -> (Vec<Cow<'_, str>>, Vec<&str>) {
    let (mut user, mut kernel) = (Vec::new(), Vec::new());
    let mut begins_in_c = false;
    for id in &rec.stacks[stack].frames {
        let frame = &rec.frames[id.0 as usize];
        let functions = (frame.lines.iter()).map(|l| &rec.functions[l.function.0 as usize]);
        begins_in_c = frame.kind == FrameKind::Native
            && lock_names::in_c_library(rec, frame).is_some()
            && functions.clone().all(Function::is_unnamed);
        match frame.kind {
            _ if begins_in_c => {}
            FrameKind::Kernel => kernel.extend(functions.map(|f| &*f.name)),
            FrameKind::Python => user.extend(functions.map(|f| script_name(f).into())),
            _ => user.extend(functions.map(|f| Cow::Borrowed(&*f.name))),
        }
    }
    if begins_in_c && rec.stacks[stack].end == StackEnd::Root {
        user.push(THREAD_BEGINS.into());
    }
    (user, kernel)
}

/// A script's function as [`PARKING_PLACES`] has it: `get (queue.py)`, whatever its class and
/// wherever the language's library lies.
pub(crate) fn script_name(function: &Function) -> String {
    let name = function.name.rsplit('.').next().unwrap_or(&function.name);
    let library = function.file.split_once("/python3").map(|(_, rest)| rest);
    let file = match library.and_then(|rest| rest.split_once('/')) {
        Some((_, file)) => file,
        None => function.file.rsplit('/').next().unwrap_or(&function.file),
    };
    format!("{name} ({file})")
}

#[cfg(test)]
#[path = "idle_tests.rs"]
mod tests;
