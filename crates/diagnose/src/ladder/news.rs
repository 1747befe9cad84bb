//! Whether a wait is for somebody to bring something, as work, and not for somebody to make room or to give
//! something back: by where it waits, and by what the function is called that does.

use wallscope_model::{BlockReason, FrameKind, Function, Recording, Sample};

use super::places::{functions, passes, place, scripts};
use super::waits::takes_a_lock;
use crate::idle::{connects, is_not_taken, script_name, waits_for_condition};
use crate::parking;

/// Functions of Python's library in which scripts wait for others to bring something.
const NEWS_IN_SCRIPTS: [&str; 4] = [
    "wait (threading.py)",
    "get (queue.py)",
    "get (multiprocessing/queues.py)",
    "_worker (concurrent/futures/thread.py)",
];

/// The same where the library's function is not a script's but native: a queue without an end, into which
/// nobody ever waits to put something.
const NEWS_IN_NATIVE: [&str; 1] = ["_queue_SimpleQueue_get"];
/// The library that it lies in, which holds nothing else, for where that has no names.
const NEWS_IN_MODULE: &str = "_queue.";

/// Whether a file whose name begins so is on the stack of a wait.
fn through(recording: &Recording, sample: &Sample, file: &str) -> bool {
    let frames = &recording.stacks[sample.stack.0 as usize].frames;
    (frames
        .iter()
        .filter_map(|id| recording.frames[id.0 as usize].module))
    .any(|m| recording.modules[m.0 as usize].name().starts_with(file))
}

/// Whether a script waits for something to be put into a queue without an end. What is lent may lie in one as
/// well: who takes it says so.
pub(super) fn takes_from_endless_queue(recording: &Recording, sample: &Sample) -> bool {
    let known = || {
        passes(recording, sample.stack, false, &NEWS_IN_NATIVE)
            || through(recording, sample, NEWS_IN_MODULE)
    };
    let lent = |f: &Function| says_that_it_gives(&f.name, true);
    sample.reason == Some(BlockReason::Lock)
        && scripts(recording, sample.stack)
            .next()
            .is_some_and(|f| !lent(f))
        && known()
}

/// Whether a script waits in a queue's own function for what is put into it; where that is lent, who takes it mostly
/// says so.
pub(super) fn takes_from_queue(recording: &Recording, sample: &Sample) -> bool {
    const TAKES: [&str; 2] = ["get (queue.py)", "get (multiprocessing/queues.py)"];
    let own = |f: &&Function| !f.file.contains("/python3");
    let takes = |f: &Function| TAKES.contains(&&*script_name(f));
    sample.reason == Some(BlockReason::Lock)
        && scripts(recording, sample.stack).any(takes)
        && (scripts(recording, sample.stack).find(own))
            .is_some_and(|f| !says_that_it_gives(&f.name, true))
}

/// Whether a wait is for what another thread is asked to find out, a future: whoever made it has work, or waits
/// for somebody himself, and it is neither want of work nor a queue.
pub(super) fn awaits_result(recording: &Recording, sample: &Sample) -> bool {
    const RESULTS: [&str; 5] = [
        "java.util.concurrent.CompletableFuture.",
        "java.util.concurrent.CompletableFuture$Signaller.",
        "java.util.concurrent.FutureTask.",
        "std::__atomic_futex_unsigned_base",
        "std::__future_base",
    ];
    const IN_SCRIPTS: [&str; 4] = [
        "result (concurrent/futures/_base.py)",
        "wait (concurrent/futures/_base.py)",
        "wait (multiprocessing/pool.py)",
        "next (multiprocessing/pool.py)",
    ];
    sample.reason == Some(BlockReason::Lock)
        && (near_results(recording, sample, &RESULTS)
            || scripts(recording, sample.stack)
                .take(SCRIPTS_IN_LIBRARY)
                .any(|f| IN_SCRIPTS.contains(&&*script_name(f))))
}

/// The library's own functions of Python that lie below one that waits for a result.
const SCRIPTS_IN_LIBRARY: usize = 3;

/// Whether one of those functions waits itself, and not what runs below it: a future's own thread runs in it as
/// well.
fn near_results(recording: &Recording, sample: &Sample, known: &[&str]) -> bool {
    let mut own = functions(recording, sample.stack)
        .filter(|(kind, _)| *kind != FrameKind::Kernel)
        .map(|(_, name)| &**name)
        .skip_while(|name| parking::only_waits(name));
    own.next()
        .is_some_and(|name| known.iter().any(|k| name.starts_with(k)))
}

/// Whether a wait is for somebody to bring something, and not to give something back.
pub(super) fn is_for_news(recording: &Recording, sample: &Sample, reason: BlockReason) -> bool {
    match reason {
        BlockReason::Pipe => !brings(recording, sample),
        BlockReason::Lock if takes_rubys_lock(recording, sample) => false,
        BlockReason::Lock if awaits_result(recording, sample) => false,
        BlockReason::Lock => {
            // A script's locks and conditions are the same to the system.
            let mut scripts = scripts(recording, sample.stack).peekable();
            if scripts.peek().is_some() {
                // A full queue is waited for by the same condition as an empty one.
                let library = |f: &&Function| f.file.contains("/python3");
                let mut gives = self::scripts(recording, sample.stack).filter(library);
                return (takes_from_endless_queue(recording, sample)
                    || scripts.any(|f| NEWS_IN_SCRIPTS.contains(&&*script_name(f))))
                    && !gives.any(|f| says_that_it_gives(&f.name, true));
            }
            functions(recording, sample.stack).any(|(kind, name)| {
                kind != FrameKind::Kernel && (waits_for_condition(name) || name.contains("park"))
            }) && !gives(recording, sample)
        }
        _ => false,
    }
}

/// Whether a thread of Ruby waits to be given a mutex or a monitor. To the system it waits at a condition of its
/// own, as one does that waits for work; Ruby's innermost method tells.
pub(super) fn takes_rubys_lock(recording: &Recording, sample: &Sample) -> bool {
    const TAKES: [&str; 8] = [
        "Mutex#lock",
        "Mutex#synchronize",
        "Monitor#enter",
        "Monitor#synchronize",
        "Monitor#mon_enter",
        "Monitor#mon_synchronize",
        "MonitorMixin#mon_enter",
        "MonitorMixin#mon_synchronize",
    ];
    let frames = recording.stacks[sample.stack.0 as usize].frames.iter();
    let mut frames = frames.map(|id| &recording.frames[id.0 as usize]);
    let method = frames.find(|f| f.kind == FrameKind::Ruby && !f.lines.is_empty());
    let method = method.map(|f| &*recording.functions[f.lines[0].function.0 as usize].name);
    sample.reason == Some(BlockReason::Lock)
        && method.is_some_and(|m| TAKES.contains(&m.strip_prefix("Thread::").unwrap_or(m)))
}

/// Whether it waits at one end of a local connection, by which answers come as well as work: which of them
/// is told by requests in flight alone.
pub(super) fn converses(recording: &Recording, sample: &Sample) -> bool {
    const LOCAL: [&str; 2] = ["unix_stream_", "unix_seqpacket_"];
    passes(recording, sample.stack, true, &LOCAL)
}

/// Whether a wait is for what a thread writes or sends to be taken.
pub(super) fn brings(recording: &Recording, sample: &Sample) -> bool {
    goes_out(recording, sample, is_not_taken)
}

/// Whether a wait is for others to let the thread through: to take what it sends, or to make a connection.
/// Nobody rests so.
pub(super) fn is_let_in(recording: &Recording, sample: &Sample) -> bool {
    goes_out(recording, sample, |kernel, user| {
        is_not_taken(kernel, user) || connects(kernel, user)
    })
}

fn goes_out(
    recording: &Recording,
    sample: &Sample,
    judge: impl Fn(&[&str], &[&str]) -> bool,
) -> bool {
    if !matches!(
        sample.reason,
        Some(BlockReason::Pipe | BlockReason::Network)
    ) {
        return false;
    }
    let (mut kernel, mut user) = (Vec::new(), Vec::new());
    for (kind, name) in functions(recording, sample.stack) {
        match kind {
            FrameKind::Kernel => kernel.push(&**name),
            _ => user.push(&**name),
        }
    }
    judge(&kernel, &user)
}

/// Whether a wait that somebody who is not measured ends may be for news, as far as its stack tells: at a
/// condition, or at what programs make locks, conditions and queues of themselves, a semaphore of System V or
/// a futex of their own, unless a function's name says that it takes a lock.
pub(super) fn may_be_for_news(recording: &Recording, sample: &Sample, reason: BlockReason) -> bool {
    if is_for_news(recording, sample, reason) {
        return true;
    }
    const PLAIN: [&str; 4] = ["semop", "semtimedop", "__semtimedop", "syscall"];
    // The library's function, and what was inlined into it.
    const INSIDE: usize = 2;
    let inside: Vec<&str> = functions(recording, sample.stack)
        .filter(|(kind, _)| *kind != FrameKind::Kernel)
        .map(|(_, name)| &**name)
        .collect();
    let plain = |name: &&str| PLAIN.contains(&name.trim_start_matches("__GI_"));
    let locks = |name: &&str| says_that_it_locks(name);
    reason == BlockReason::Lock
        && scripts(recording, sample.stack).next().is_none()
        && inside.iter().take(INSIDE).any(plain)
        && !inside.iter().any(locks)
        && !gives(recording, sample)
}

/// Whether a function's name says that it takes a lock.
fn says_that_it_locks(name: &str) -> bool {
    const LOCKS: [&str; 9] = [
        "lock", "locked", "mutex", "acquire", "take", "enter", "hold", "guard", "rwlock",
    ];
    words_of(name).iter().any(|w| LOCKS.contains(&&**w))
}

/// Whether a script's wait may be for news, as far as its stack tells where the interpreter's functions have
/// no names: a lock and an empty queue are waited for alike then. Only if nothing but time limits ends such
/// waits are they for want of work: a lock is given some time.
pub(super) fn may_be_in_vain(recording: &Recording, sample: &Sample) -> bool {
    let own = |f: &Function| !f.file.contains("/python3") || f.file.contains("-packages/");
    sample.reason == Some(BlockReason::Lock)
        && !takes_a_lock(recording, sample)
        && (scripts(recording, sample.stack).next()).is_some_and(|f| {
            own(f) && !says_that_it_locks(&f.name) && !says_that_it_gives(&f.name, true)
        })
}

/// Whether the function in which a thread waits for a condition says by its name that it brings something
/// and waits for room, or takes one of few things: `queue_push`, `Channel::send`, `pool_acquire`.
pub(super) fn gives(recording: &Recording, sample: &Sample) -> bool {
    let own = place(recording, &recording.stacks[sample.stack.0 as usize]).function;
    for (kind, name) in functions(recording, sample.stack) {
        if kind == FrameKind::Kernel {
            continue;
        }
        let last = *name == own;
        if says_that_it_gives(name, last) {
            return true;
        }
        if last {
            break;
        }
    }
    false
}

/// Whether a function's name says that it brings something, or, of the program's `own`, that it takes one of
/// few things.
pub(crate) fn says_that_it_gives(name: &str, own: bool) -> bool {
    const GIVES: [&str; 11] = [
        "send", "push", "put", "offer", "enqueue", "publish", "produce", "submit", "emit", "add",
        "append",
    ];
    const TAKES: [&str; 4] = ["acquire", "borrow", "checkout", "reserve"];
    // A thread's own main function, which whoever waits for work is in as well.
    const MAINS: [&str; 4] = ["loop", "worker", "thread", "run"];
    let words = words_of(name);
    let has = |all: &[&str]| words.iter().any(|w| all.contains(&&**w));
    (has(&GIVES) || (own && has(&TAKES))) && !has(&MAINS)
}

/// The words of a function's own name, without its class, its parameters and types: `try`, `send` of
/// `<flavors::array::Channel<T>>::trySend::{{closure}}`.
fn words_of(name: &str) -> Vec<String> {
    let (mut depth, mut plain) = (0u32, String::new());
    for c in name.chars() {
        match c {
            '<' | '{' => depth += 1,
            '>' | '}' => depth = depth.saturating_sub(1),
            // Parameters, and not what a method of Go is of: `main.(*hub).publish`.
            '(' if depth == 0 && !plain.is_empty() && !plain.ends_with('.') => break,
            _ if depth == 0 => plain.push(c),
            _ => {}
        }
    }
    let own = plain.split(['.', ':', ' ']).rfind(|part| !part.is_empty());
    let mut words = vec![String::new()];
    for c in own.unwrap_or_default().chars() {
        if !c.is_alphanumeric() || c.is_uppercase() {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::words_of;

    #[test]
    fn a_function_s_words_are_those_of_its_own_name() {
        let is = |name, words: &str| {
            let all: Vec<String> = words_of(name);
            let all: Vec<&str> = (all.iter().map(|w| &**w))
                .filter(|w| !w.is_empty())
                .collect();
            assert_eq!(all.join(" "), words, "{name}");
        };
        is(
            "<std::sync::mpmc::array::Channel<T>>::send::{{closure}}",
            "send",
        );
        is("app::Queue::tryPush(int, send::Kind)", "try push");
        is("java.util.concurrent.ArrayBlockingQueue.put", "put");
        is("main.(*hub).publish", "publish");
        is("pool_acquire", "pool acquire");
        is("void Bounded<Row, 8>::enqueue<Row&>(Row&)", "enqueue");
        is("<(dyn Fn() + Send)>", "");
    }
}
