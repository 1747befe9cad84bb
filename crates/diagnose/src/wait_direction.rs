//! Direction of a wait: a consumer waits for another thread to bring something, as work; a producer
//! waits for room, or for something to be given back.
//!
//! Judged by the place of the wait and by the names of the functions that wait.

use wallscope_model::attribution::{CodeOrigin, origin};
use wallscope_model::{BlockReason, Function, Recording, Sample};

use crate::frames::{
    Side, code_site, frames, functions_on, in_python_library, passes, script_name, scripts,
};
use crate::knowledge::{
    ENDLESS_QUEUE_FILES, ENDLESS_QUEUE_TAKES, FUTURES, Known, LOCAL_CONNECTION, NameOrigin,
    PLAIN_SEMAPHORES, RESOLVERS, SCRIPT_CONSUMERS, SCRIPT_FUTURES, SCRIPT_QUEUE_TAKES, connects,
    is_not_taken, is_wait_machinery, knows, name_says_borrows, name_says_gives, name_says_locks,
    waits_for_condition,
};
use crate::lock_wait::{takes_a_lock, takes_ruby_lock};
use crate::thresholds::{SCRIPT_FUTURE_DEPTH, SEMAPHORE_DEPTH};

/// Whether a script's function gives something, or takes one of few things, by its name.
fn script_gives(function: &Function) -> bool {
    name_says_gives(&function.name, NameOrigin::Program)
}

/// Whether a wait is at a lock or a condition, which the kernel does not distinguish.
fn at_lock(sample: &Sample) -> bool {
    sample.reason == Some(BlockReason::Lock)
}

/// Whether a script waits for an entry of an unbounded queue. Such a queue may hold lent resources, too: the name of
/// the function that takes them says so.
pub(crate) fn takes_from_endless_queue(recording: &Recording, sample: &Sample) -> bool {
    let in_file = || {
        frames(recording, sample.stack)
            .filter_map(|frame| frame.module)
            .any(|m| knows(ENDLESS_QUEUE_FILES, recording.modules[m.0 as usize].name()))
    };
    let innermost = scripts(recording, sample.stack).next();
    at_lock(sample)
        && innermost.is_some_and(|function| !script_gives(function))
        && (passes(recording, sample.stack, Side::User, ENDLESS_QUEUE_TAKES) || in_file())
}

/// Whether a script waits in a queue's own function for an entry. If the queue holds lent resources, the name of the
/// program's function mostly says so.
pub(crate) fn takes_from_queue(recording: &Recording, sample: &Sample) -> bool {
    let mut own = scripts(recording, sample.stack).filter(|f| !in_python_library(f));
    at_lock(sample)
        && any_script(recording, sample, SCRIPT_QUEUE_TAKES)
        && own.next().is_some_and(|function| !script_gives(function))
}

fn any_script(recording: &Recording, sample: &Sample, table: &'static [Known]) -> bool {
    scripts(recording, sample.stack).any(|f| knows(table, &script_name(f)))
}

/// Whether a wait is for the result of a future. The thread that makes the result has work, or
/// waits itself: such a wait is neither want of work nor a queue.
pub(crate) fn awaits_result(recording: &Recording, sample: &Sample) -> bool {
    // A future's own thread runs in its functions too: only the one that waits itself counts.
    let innermost =
        functions_on(recording, sample.stack, Side::User).find(|name| !is_wait_machinery(name));
    at_lock(sample)
        && (innermost.is_some_and(|name| knows(FUTURES, name))
            || scripts(recording, sample.stack)
                .take(SCRIPT_FUTURE_DEPTH)
                .any(|f| knows(SCRIPT_FUTURES, &script_name(f))))
}

/// Whether a thread waits for another one to bring something, and not to give something back.
pub(crate) fn is_consumer(recording: &Recording, sample: &Sample) -> bool {
    match sample.reason {
        Some(BlockReason::Pipe) => !is_producer(recording, sample),
        Some(BlockReason::Lock) => {
            let excluded = takes_ruby_lock(recording, sample) || awaits_result(recording, sample);
            !excluded && consumes_at_condition(recording, sample)
        }
        _ => false,
    }
}

fn consumes_at_condition(recording: &Recording, sample: &Sample) -> bool {
    let stack = sample.stack;
    if scripts(recording, stack).next().is_none() {
        let at_condition = functions_on(recording, stack, Side::User)
            .any(|name| waits_for_condition(name) || name.contains("park"));
        return at_condition && !gives(recording, sample);
    }
    // A full queue is waited for at the same condition as an empty one.
    let gives = scripts(recording, stack)
        .filter(|f| in_python_library(f))
        .any(script_gives);
    let takes = takes_from_endless_queue(recording, sample)
        || any_script(recording, sample, SCRIPT_CONSUMERS);
    takes && !gives
}

/// Whether a thread waits at one end of a local connection. Both answers and work arrive there; only requests in
/// flight distinguish them.
pub(crate) fn is_local_conversation(recording: &Recording, sample: &Sample) -> bool {
    passes(recording, sample.stack, Side::Kernel, LOCAL_CONNECTION)
}

/// Whether a thread waits until the data that it writes or sends is taken.
pub(crate) fn is_producer(recording: &Recording, sample: &Sample) -> bool {
    goes_out(recording, sample, is_not_taken)
}

/// Whether a thread waits for others to take the data that it sends, or to accept its connection.
/// No thread rests so.
pub(crate) fn sends_or_connects(recording: &Recording, sample: &Sample) -> bool {
    goes_out(recording, sample, |kernel, user| {
        is_not_taken(kernel, user) || connects(kernel, user)
    })
}

fn goes_out(
    recording: &Recording,
    sample: &Sample,
    judge: impl Fn(&[&str], &[&str]) -> bool,
) -> bool {
    use BlockReason::{Network, Pipe};
    if !matches!(sample.reason, Some(Pipe | Network)) {
        return false;
    }
    let on = |side| functions_on(recording, sample.stack, side).collect::<Vec<_>>();
    judge(&on(Side::Kernel), &on(Side::User))
}

/// Whether a wait that an unmeasured process ends may be a consumer's, as far as its stack tells: at
/// a condition, or at a semaphore or futex by which programs make locks and queues of their own,
/// unless a function's name says that it takes a lock.
pub(crate) fn may_be_consumer(recording: &Recording, sample: &Sample) -> bool {
    if is_consumer(recording, sample) {
        return true;
    }
    let user = || functions_on(recording, sample.stack, Side::User);
    let plain = |name: &str| knows(PLAIN_SEMAPHORES, name.trim_start_matches("__GI_"));
    at_lock(sample)
        && scripts(recording, sample.stack).next().is_none()
        && user().take(SEMAPHORE_DEPTH).any(plain)
        && !user().any(name_says_locks)
        && !gives(recording, sample)
}

/// Whether a script's wait may be a consumer's where the interpreter's functions have no names: a
/// lock and an empty queue look alike then. Such waits are for want of work only if nothing but
/// time limits ends them.
pub(crate) fn may_wait_in_vain(recording: &Recording, sample: &Sample) -> bool {
    let own = |f: &Function| !in_python_library(f) || f.file.contains("-packages/");
    at_lock(sample)
        && !takes_a_lock(recording, sample)
        && (scripts(recording, sample.stack).next())
            .is_some_and(|f| own(f) && !name_says_locks(&f.name) && !script_gives(f))
}

/// Whether the function in which a thread waits for a condition says by its name that it gives
/// something and waits for room, or takes one of few things: `queue_push`, `Channel::send`,
/// `pool_acquire`.
pub(crate) fn gives(recording: &Recording, sample: &Sample) -> bool {
    let says = |(name, origin): (&str, NameOrigin)| name_says_gives(name, origin);
    names_down_to_own(recording, sample).into_iter().any(says)
}

/// Functions in user space down to the program's own function, innermost first. Functions of the program that were
/// inlined into its own function are among them.
fn names_down_to_own<'r>(recording: &'r Recording, sample: &Sample) -> Vec<(&'r str, NameOrigin)> {
    let own = code_site(recording, sample.stack).function;
    let mut names = Vec::new();
    let user = frames(recording, sample.stack).filter(|f| Side::of(f.kind) == Side::User);
    for frame in user {
        for (i, line) in frame.lines.iter().enumerate() {
            let name = &*recording.functions[line.function.0 as usize].name;
            let is_own = *name == *own;
            let origin = match is_own || origin(recording, frame, Some(i)) == CodeOrigin::Program {
                true => NameOrigin::Program,
                false => NameOrigin::Library,
            };
            names.push((name, origin));
            if is_own {
                return names;
            }
        }
    }
    names
}

/// Whether the program's function in which a thread waits takes one of few things that are all in use:
/// `Pool.checkout`, `pool_acquire`.
pub(crate) fn borrows(recording: &Recording, sample: &Sample) -> bool {
    let names = names_down_to_own(recording, sample).into_iter();
    let mut own = names.filter(|(_, origin)| *origin == NameOrigin::Program);
    gives(recording, sample) && own.any(|(name, _)| name_says_borrows(name))
}

/// Whether a thread waits for the address of a name. No thread rests so.
pub(crate) fn resolves_name(recording: &Recording, sample: &Sample) -> bool {
    matches!(
        sample.reason,
        Some(BlockReason::Poll | BlockReason::Network)
    ) && passes(recording, sample.stack, Side::User, RESOLVERS)
}
