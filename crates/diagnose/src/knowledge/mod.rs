//! Function names that rules know, as data: one row per name.
//!
//! A row says the name (exact, or a pattern), the meaning of a thread that is found there, the
//! software that has the function, and where wallscope's authors saw it. The tables decide nothing:
//! [`lookup`] asks them, and rules ask [`lookup`].
//!
//! To teach wallscope a name, add a row to the table of its topic. A new table also needs a row in
//! [`tables`].

mod clients;
mod idle;
mod kernel;
mod known;
mod libc;
mod lookup;
mod queues;
mod verbs;
mod wait_targets;
mod work;

pub use known::{Known, NameSource};
pub(crate) use {
    clients::*, idle::*, kernel::*, known::*, libc::*, lookup::*, queues::*, verbs::*,
    wait_targets::*, work::*,
};

/// Every table with its name, for tests and for documents made from them.
pub fn tables() -> Vec<(&'static str, &'static [Known])> {
    macro_rules! named {
        ($($table:ident)*) => { vec![$((stringify!($table), $table)),*] };
    }
    named! {
        TAKES_WORK RESOLVERS GO_ANSWERS GO_HANDLERS GO_POOLS SYNCING_COMMITS TRANSACTION_ENDS ROW_ACCESS
        WORKER_PLACES
        RUNTIME_THREADS WORKER_MAINS SCRIPT_WORKERS SCRIPT_MESSAGES WAIT_MACHINERY
        FORK_JOIN_PLACE EXECUTOR_PLACES EXECUTOR_MAINS EXECUTOR_WAITS THREAD_ENTRIES
        LANGUAGE_ENTRIES SLEEP KERNEL_THREAD_WAITS NOT_TAKEN CONNECT ACCEPT SIGNAL_WAIT LOCAL_CONNECTION
        WAKE_BY_CONNECTION FIFO_OPEN FILE_LOCK SYNC FUSE NETWORK_FILES PIPE_FULL MESSAGES_FULL
        MESSAGES_EMPTY TCP_FULL ANY_CONNECT FILE_FAULTS SWAP_FAULTS PIPE_READ SYSTEM_CALL_ENTRY ASKS_FOR_EVENTS
        IO_URING_WORKER SEND_CALLS SIGNAL_CALLS ACCEPT_CALLS CONNECT_CALLS FILE_LOCK_CALLS
        MESSAGE_SEND_CALLS MESSAGE_RECEIVE_CALLS CONDITION_WAITS CONDITION_FUNCTIONS
        JOIN_FUNCTIONS MUTEX_FUNCTIONS C_LIBRARY_FILES LOCK_FUNCTIONS RUBY_LOCKS SCRIPT_LOCKS OWN_LOCKS
        LOCK_RETRIES ASKED_SLEEPS SLEEPS ALLOCATOR PLAIN_SEMAPHORES SCRIPT_CONSUMERS SCRIPT_QUEUE_TAKES
        ENDLESS_QUEUE_TAKES ENDLESS_QUEUE_FILES FUTURES SCRIPT_FUTURES SCRIPT_CHILD_READS
        EVENT_LOOP_STEPS EVENT_LOOPS GIVING_WORDS POOL_WORDS MAIN_WORDS LOCKING_WORDS JOINS LIBRARY_AIO
        CPP_FUTURES BARRIERS WRITE_LOCKS READ_LOCKS SEMAPHORES JAVA_HEAP JAVA_PAUSES
        SYNC_FUNCTIONS OPENMP_FILES OPENMP_FUNCTIONS SPINNERS RECLAIM STARTS_OTHERS START_IN_KERNEL
        START_IN_LOADER COLLECT HOTSPOT_WORKERS COLLECTOR_THREADS STALLS FAULT PROGRAM_ENTRIES
    }
}
