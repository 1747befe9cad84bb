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
pub(crate) mod advice;
mod answers;
mod assemble;
pub(crate) mod build;
mod chains;
mod chosen;
pub(crate) mod collected_names;
pub(crate) mod command;
pub(crate) mod cost;
mod course;
pub(crate) mod descriptors;
pub(crate) mod domain;
pub(crate) mod estimator;
pub(crate) mod events;
pub(crate) mod files;
mod gil;
mod heap;
mod hits;
pub(crate) mod host_log;
pub(crate) mod intake;
mod interface;
pub(crate) mod java;
mod jit;
mod late;
pub(crate) mod look;
pub(crate) mod managed;
pub(crate) mod naming;
mod neighbours;
mod owners;
mod pace;
mod parts;
pub(crate) mod peers;
pub(crate) mod processes;
pub mod replay;
pub(crate) mod resources;
mod samples;
pub(crate) mod scripts;
mod shapes;
pub(crate) mod space;
pub(crate) mod tasks;
mod timeline;
mod upkeep;
mod waits;

use std::time::Duration;

use wallscope_model::Slices;

use crate::{
    Error,
    backend::{
        Backend,
        ebpf::Kernel,
        proc::{self, PerfEvents},
    },
    probe,
    target::refuse_32_bit,
};
pub(crate) use chosen::{Chosen, choose, ended_early};
pub(crate) use domain::privilege;
pub use events::{Signals, Stopper};
pub use interface::{Captured, Live, Observer, Options, Progress, Stop};
pub use look::Look;

/// So many slices, and two become one: each has its price, as it wakes us up.
const MOST_SLICES: u32 = 12;
/// Longest a slice becomes for the number of slices, ns.
const LONGEST_SLICE: u64 = 1_000_000_000;

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
        Some(Backend::Ebpf) => course::record(options, &kernel()?, observer),
        Some(Backend::Perf) => lower("as asked".into(), PerfEvents::Must, observer),
        Some(Backend::Proc) => lower("as asked".into(), PerfEvents::Not, observer),
        None => {
            if let Some(why) = probe::ebpf_refused() {
                return lower(why, PerfEvents::May, observer);
            }
            match kernel().and_then(|kernel| course::record(options, &kernel, observer)) {
                // Both are found out before anything is measured.
                Err(e @ (Error::NotSupported { .. } | Error::Bpf { .. })) => {
                    lower(format!("not by eBPF: {e}"), PerfEvents::May, observer)
                }
                other => other,
            }
        }
    }
}

/// Slices are fine for short recordings: ten of them, or of half a second until it is seen how long one lasts. Of a
/// second they come when the host is looked at as well.
pub(crate) fn first_slice(duration: Option<Duration>) -> u64 {
    match duration {
        Some(d) => (d.as_nanos() as u64 / 10).clamp(50_000_000, LONGEST_SLICE),
        None => LONGEST_SLICE / 2,
    }
}

/// Whether there are by now so many slices that two should become one.
pub(crate) fn too_many_slices(grid: &Slices, now: u64) -> bool {
    let slices = now.saturating_sub(grid.start_ns) / grid.width_ns.max(1);
    slices >= u64::from(MOST_SLICES) && grid.width_ns < LONGEST_SLICE
}

/// CLOCK_MONOTONIC, ns.
pub(crate) fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// How often the scheduler's counter of a running thread moves at least: the kernel's timer tick, ns.
pub(crate) fn tick_ns() -> u64 {
    let t = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// CLOCK_REALTIME, ns.
pub(crate) fn unix_now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
