//! Queries of the tables of names, for rules and for every other module of the crate.

use wallscope_model::attribution::plain;

use super::known::{Known, find, knows};
use super::{
    ALLOCATOR, CONDITION_WAITS, CONNECT, CONNECT_CALLS, FORK_JOIN_PLACE, NOT_TAKEN, OWN_LOCKS,
    RUNTIME_THREADS, SCRIPT_MESSAGES, SCRIPT_WORKERS, SEND_CALLS, SYNCING_COMMITS,
    SYSTEM_CALL_ENTRY, TAKES_WORK, WAIT_MACHINERY, WORKER_MAINS, WORKER_PLACES,
};
use crate::thresholds::WORKER_PLACE_DEPTH;

/// A C library function's name without the decoration of its internal aliases:
/// `write` of `__GI___libc_write`.
pub(crate) fn libc_call(name: &str) -> &str {
    let plain = name.trim_start_matches("__GI_").trim_start_matches('_');
    plain.strip_prefix("libc_").unwrap_or(plain)
}

/// An allocator function's name without the decoration of its internal aliases: `malloc` of
/// `_int_malloc`.
fn allocator_call(name: &str) -> &str {
    let plain = name.trim_start_matches("__GI_").trim_start_matches('_');
    let plain = plain.trim_start_matches("libc_");
    plain.trim_start_matches("int_")
}

/// Whether a function takes memory from the C library's allocator, or gives it back.
pub(crate) fn allocates(name: &str) -> bool {
    knows(ALLOCATOR, allocator_call(name))
}

/// Whether the system call of a stack without the kernel's functions is one of `calls`, by the C
/// library's innermost function.
pub(crate) fn is_call(kernel: &[&str], user: &[&str], calls: &'static [Known]) -> bool {
    let innermost = user.first().filter(|_| kernel.is_empty());
    innermost.is_some_and(|name| knows(calls, libc_call(name)))
}

/// Whether a wait on a pipe or the network lasts until the data that is written or sent is taken,
/// by the functions of the kernel and of the process, innermost first.
pub(crate) fn is_not_taken(kernel: &[&str], user: &[&str]) -> bool {
    is_call(kernel, user, SEND_CALLS) || kernel.iter().any(|name| knows(NOT_TAKEN, name))
}

/// Whether a wait is for a connection to be made, by the functions of the kernel and of the
/// process, innermost first.
pub(crate) fn connects(kernel: &[&str], user: &[&str]) -> bool {
    is_call(kernel, user, CONNECT_CALLS) || kernel.iter().any(|name| knows(CONNECT, name))
}

/// Whether a function waits at a condition variable or semaphore. Template arguments do not count:
/// threads are templates over their arguments.
pub(crate) fn waits_for_condition(name: &str) -> bool {
    knows(CONDITION_WAITS, plain(name))
}

/// Whether a function asks another process for work, by its own name in any class and module.
pub(crate) fn takes_work(name: &str) -> bool {
    let plain = name.split(['(', '<']).next().unwrap_or_default();
    let own = plain.rsplit(['.', ':', ' ', '#']).next();
    knows(TAKES_WORK, &own.unwrap_or_default().to_ascii_lowercase())
}

/// A server's own lock, if `name` waits for one; its meaning is the way to ask for the holder.
pub(crate) fn own_lock_of(name: &str) -> Option<&'static Known> {
    find(OWN_LOCKS, name)
}

/// The change that makes a server wait less for its commits to reach the disk, if `name` is where it waits.
pub(crate) fn of_syncing_commits(name: &str) -> Option<&'static str> {
    find(SYNCING_COMMITS, name).map(|known| known.meaning)
}

/// The system call that a kernel function is the entry of.
pub(crate) fn system_call(name: &str) -> Option<&str> {
    SYSTEM_CALL_ENTRY
        .iter()
        .find_map(|entry| entry.rest_of(name))
}

/// Whether a function only leads from the place where a thread waits to the wait itself.
pub(crate) fn is_wait_machinery(name: &str) -> bool {
    knows(WAIT_MACHINERY, name) && !knows(FORK_JOIN_PLACE, name)
}

/// Whether the functions of a program, innermost first, are those of a worker that waits for work.
/// Work that a worker does has functions of its own above the place that it waits at.
pub(crate) fn is_worker_place(user: &[&str]) -> bool {
    let mut scripts = user.iter().filter(|name| name.ends_with(".py)"));
    let innermost = scripts.find(|name| !knows(SCRIPT_MESSAGES, name));
    innermost.is_some_and(|name| knows(SCRIPT_WORKERS, name))
        || is_worker_main(user)
        || near_wait(user).any(|name| knows(WORKER_PLACES, name) || knows(RUNTIME_THREADS, name))
}

/// Whether the functions of a program are those of a runtime's own thread, which speaks to no other
/// process.
pub(crate) fn is_runtime_thread(user: &[&str]) -> bool {
    is_worker_main(user) || near_wait(user).any(|name| knows(RUNTIME_THREADS, name))
}

fn is_worker_main(user: &[&str]) -> bool {
    near_wait(user)
        .next()
        .is_some_and(|name| knows(WORKER_MAINS, name))
}

/// The functions near the wait that may be a worker's place, from the wait outwards.
fn near_wait<'a>(user: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    let own = user.iter().skip_while(|name| is_wait_machinery(name));
    own.take(WORKER_PLACE_DEPTH).copied()
}

#[cfg(test)]
mod tests {
    use super::super::tables;
    use super::*;

    #[test]
    fn every_row_is_complete_and_stands_once_in_its_table() {
        for (name, table) in tables() {
            assert!(!table.is_empty(), "{name}");
            for (i, row) in table.iter().enumerate() {
                let cells = [row.pattern, row.meaning, row.origin];
                assert!(cells.iter().all(|cell| !cell.is_empty()), "{name}: {row:?}");
                let again = table[..i].iter().any(|other| other.pattern == row.pattern);
                assert!(!again, "{name}: {row:?}");
            }
        }
    }

    #[test]
    fn clients_that_ask_for_work_are_known_by_their_functions() {
        assert!(takes_work("RedisClient#blocking_call"));
        assert!(takes_work("Redis.brpop"));
        assert!(!takes_work("RedisClient#call"));
    }

    #[test]
    fn entries_of_system_calls_are_known() {
        assert_eq!(system_call("__x64_sys_epoll_wait"), Some("epoll_wait"));
        assert_eq!(system_call("do_epoll_wait"), None);
    }
}
