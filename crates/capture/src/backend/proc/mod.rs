//! The ledger with nothing but `/proc` and `process_vm_readv`.
//!
//! ```text
//! recorder.rs         the order of a recording: prepare, go live, follow, end; recorder/ending.rs: its end;
//!                     recorder/switches.rs: perf events beside the polls
//! target_tracker.rs   processes and threads under watch, as they come and go; tracked_process.rs, thread.rs:
//!                     one of them; subreaper.rs: children after their parent's end
//! poller.rs           the poller's state; poll_round.rs: its rounds; pace.rs: how often
//! wait_probe.rs       one poll of one thread; wait_observation.rs: its result for a wait
//! waiting.rs          reason and stack of a waiting thread, read without stopping it;
//!                     call_site_check.rs: whether a stack that was copied too late is that of the wait
//! stop.rs             short stops of running threads, where they are permitted; stop_sampling.rs: their
//!                     stacks; pending_stop.rs: polls without a stack yet; last_ran.rs: when a thread left its CPU
//! io_ring.rs          waits for a ring of io_uring; polled.rs: the descriptors that a thread polls
//! connections.rs      peers of connections, and requests in flight; connection.rs: one connection
//! sched_slice.rs      scheduling of the poller itself
//! facts.rs            observations of new threads, clocks of processes, and losses
//! domain.rs           the measurement domain in words; refusal.rs: targets that cannot be measured
//! intake.rs           observations -> the log, the estimator
//! ------------------- above: the collector. Below: the estimator, which never reads the machine
//! estimator.rs        observations -> threads, samples; account.rs: one thread
//! counters.rs         a thread's time by the scheduler's counters
//! thread_ledger.rs    a thread's time by slice; time_kind.rs: its kinds; spans.rs: single intervals
//! stop_judgement.rs   the activity of a thread at a poll that found it runnable
//! samples.rs          stacks and the time they stand for; reason_imputation.rs: reasons of
//!                     waits that no poll met
//! unseen_children.rs  CPU time of children that no poll met
//! early_end.rs        threads at the end of a log of a killed recorder
//! assemble.rs         results of the estimator -> the recording
//! ```
//!
//! Each round reads the `schedstat` of every thread. A thread that has not run since the last round is still in its
//! last state, which needs no further reading. After a while it is polled in every eighth round only. If a thread ran
//! and now waits, its system call and its stack are read.
//!
//! With perf events ([`super::perf`]) the totals come from recorded switches. Running threads are sampled too, and
//! preemption is told apart from other run-queue latency. Without them this backend does not see the stacks of running
//! threads, which would have to be stopped for that, nor kernel stacks, nor wakers. Threads that live shorter than the
//! time between two listings are seen as CPU time of their process.

pub(crate) mod account;
mod assemble;
pub(crate) mod call_site_check;
mod connection;
mod connections;
pub(crate) mod counters;
mod domain;
mod early_end;
pub(crate) mod estimator;
pub(crate) mod facts;
mod intake;
mod io_ring;
mod last_ran;
mod pace;
mod pending_stop;
pub(crate) mod poll_round;
mod polled;
pub(crate) mod poller;
mod reason_imputation;
mod recorder;
mod refusal;
mod round_robin;
pub(crate) mod samples;
mod sched_slice;
pub(crate) mod spans;
mod stop;
mod stop_judgement;
mod stop_sampling;
mod subreaper;
pub(crate) mod target_tracker;
pub(crate) mod thread;
pub(crate) mod thread_ledger;
pub(crate) mod time_kind;
pub(crate) mod tracked_process;
mod unseen_children;
pub(crate) mod wait_observation;
mod wait_probe;
pub(crate) mod waiting;

pub(crate) use recorder::record;

/// Whether to use perf events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerfEvents {
    /// The user asked for them: without them nothing is recorded.
    Must,
    /// Used where they are allowed.
    May,
    /// Only `/proc`.
    Not,
}
