//! One recording from start to finish.
//!
//! ```text
//! interface.rs  what is asked for, told on the way, and given
//! chosen.rs     whom the target means
//! course.rs     the order of things: prepare, go live, follow, end
//! events.rs     what the wait loop wakes up for
//! intake.rs     what is observed -> the log, the estimator, and the collector's own next steps
//! estimator.rs  observations -> accounts.rs (threads, ledgers, slices), samples.rs, stacks
//! naming.rs     what the estimator asks of code; collected_names.rs: answers of the living machine;
//!               answers.rs: those of a log
//! replay.rs     a log -> the recording
//! managed.rs    runtimes of managed code, and the names of its functions; java.rs: of Java's;
//!               scripts.rs: of JavaScript's
//! jit.rs        perf maps and jitdumps, as they are written
//! advice.rs     which flags make a runtime tell its code
//! tasks/        goroutines and asyncio's tasks, looked at by a thread of its own
//! peers.rs      requests in flight on connections, and with whom
//! hits.rs       stacks at events by name
//! timeline.rs   the single intervals, where they are wanted
//! shapes.rs     how long the single intervals were
//! chains.rs     who ended waits, and what that one did meanwhile; parts.rs: the tree of that;
//!               resources.rs: what for
//! gil.rs        who had an interpreter's lock, and when
//! waits.rs      these two -> hops, lock waits and labels of the recording
//! look.rs       what was added so far, for live views
//! late.rs       stacks whose code was too new to be unwound at once
//! upkeep.rs     births, execs and new mappings, in the order in which they came to pass
//! processes.rs  who runs what: unwind tables, open files for the symboliser; space.rs: mappings
//! cost.rs       what measuring costs; pace.rs: slowing down to keep the limit
//! host_log.rs   facts about the host, each second
//! files.rs      the files behind mappings; command.rs: those a command is going to map
//! assemble.rs   what came in -> the recording
//! build.rs      hashes and words -> stacks of the recording; build/frames.rs: their frames
//! domain.rs     what was measured, how, and what could not be seen
//! ```
//!
//! Everything that can be prepared is prepared before the first record exists; everything that
//! can wait (names, scaling, formats) happens after the last, and elsewhere.

mod accounts;
pub(crate) mod address_scope;
pub(crate) mod address_space;
mod answers;
mod assemble;
pub(crate) mod build;
mod chains;
pub(crate) mod collected_names;
pub(crate) mod command;
pub(crate) mod copied_stack;
pub(crate) mod cost;
mod deferred_unwind;
pub(crate) mod descriptors;
pub(crate) mod domain;
pub(crate) mod estimator;
pub(crate) mod event_dispatch;
mod event_merger;
mod event_sampling;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod found_runtime;
mod gil;
mod heap;
mod hops;
mod host_contention;
pub(crate) mod host_log;
mod interface;
pub(crate) mod java;
mod jit;
pub(crate) mod jit_hints;
pub(crate) mod labels;
mod lock_owner;
pub(crate) mod managed;
pub(crate) mod mappings;
pub(crate) mod naming;
mod pace;
pub(crate) mod peers;
pub(crate) mod processes;
mod recorder;
pub mod replay;
pub(crate) mod resources;
pub(crate) mod sample_key;
mod samples;
pub(crate) mod scripts;
mod shapes;
pub(crate) mod snapshot;
mod target_resolve;
pub(crate) mod tasks;
mod timeline;
pub(crate) mod unwound;
mod wait_tree;

use crate::{
    Error,
    backend::{
        Backend,
        ebpf::Kernel,
        proc::{self, PerfEvents},
    },
    host_capabilities,
    target::refuse_32_bit,
};
pub(crate) use domain::privilege;
pub use events::{Signals, Stopper};
pub use interface::{Captured, Live, Look, Observer, Options, Progress, Stop};
pub(crate) use target_resolve::{Chosen, choose, ended_early};

/// Measures `options.target` and returns everything that was seen.
///
/// # Errors
/// No such target, no privilege, a kernel that lacks what is needed; nothing was recorded then.
pub fn record(options: &Options, observer: &mut dyn Observer) -> Result<Captured, Error> {
    refuse_32_bit(&options.target)?;
    let kernel = || Kernel::inspect()?.with_all_that_is_needed();
    let lower = |why: String, perf, observer| match options.keep_log {
        None => proc::record(options, why, perf, observer),
        Some(_) => Err(Error::NoLog { why }),
    };
    match options.backend {
        Some(Backend::Ebpf) => recorder::record(options, &kernel()?, observer),
        Some(Backend::Perf) => lower("as asked".into(), PerfEvents::Must, observer),
        Some(Backend::Proc) => lower("as asked".into(), PerfEvents::Not, observer),
        None => {
            if let Some(why) = host_capabilities::ebpf_refused() {
                return lower(why, PerfEvents::May, observer);
            }
            match kernel().and_then(|kernel| recorder::record(options, &kernel, observer)) {
                // Both are found out before anything is measured.
                Err(e @ (Error::NotSupported { .. } | Error::Bpf { .. })) => {
                    lower(format!("not by eBPF: {e}"), PerfEvents::May, observer)
                }
                other => other,
            }
        }
    }
}
