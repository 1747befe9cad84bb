//! One recording from start to finish.
//!
//! ```text
//! record.rs          picks the way to measure
//! interface.rs       options, observer and result; method.rs: the options of the command line
//! target_resolve.rs  processes and cgroups that the target means
//! recorder.rs        the order of a recording by kernel programs: prepare, go live, follow, end;
//!                    recorder/facts.rs: facts that a log needs on the way
//! events.rs          events that wake the loop of a recorder
//! event_dispatch.rs  observations -> the log, the estimator, and the collector's own next steps
//! estimator.rs       observations -> accounts.rs (threads, ledgers, slices), samples.rs, stacks
//! naming.rs          questions of the estimator about names; collected_names.rs: answers of the
//!                    living machine; answers.rs: those of a log
//! last_values.rs     figures and facts that changed since they were observed last; process_news.rs:
//!                    processes; early_names.rs: names of code while it is there, for a log that may end early
//! observation_sink.rs  the way of observations to the log and the estimator
//! replay.rs          a log of observations -> the recording; recover.rs: one that ended early;
//!                    plausible.rs: bounds for both
//! event_merger.rs    births, execs, new mappings and copied stacks, in the order of time
//! processes.rs       programs and their mappings: unwind tables, open files for the symboliser;
//!                    address_space.rs: one process; files.rs: the files behind mappings;
//!                    command.rs: the files that a command is going to map
//! managed.rs         runtimes of managed code, and names of its functions; java.rs, scripts.rs;
//!                    remote_interpreter.rs: frames read from outside the process
//! jit.rs             perf maps and jitdumps as they are written; jit_hints.rs: flags that help
//! deferred_unwind.rs stacks in code that was too new to be unwound at once
//! tasks/             goroutines, asyncio's tasks and virtual threads, polled by a thread of its own
//! chains.rs          wakers, and the activity of each in the wait; wait_tree.rs: the parts of each wait;
//!                    lock_owner.rs, gil.rs: owners of locks; resources.rs: names of resources
//! peers.rs           requests in flight on connections, and their peers
//! event_sampling.rs  stacks at events by name
//! timeline.rs        single intervals; histograms.rs: histograms of their lengths
//! flight/            single intervals of the last minutes, for a session in windows
//! host_log.rs        facts about the host, each second; host_contention.rs: other programs
//! cost.rs            overhead; pace.rs: rates that keep it below the limit
//! assemble.rs        all of it -> the recording; build.rs: stacks and frames; hops.rs: waits;
//!                    labels.rs: sets of labels
//! sent_once.rs       stacks and resources that a session without end forgets
//! snapshot.rs        snapshots of a running session, for live views; window_slices.rs: their slices
//! domain.rs          the measurement domain in words
//! ```
//!
//! Everything that can be prepared is prepared before the first record exists; everything that
//! can wait (names, scaling, formats) happens after the last, and elsewhere.

mod accounts;
pub(crate) mod address_scope;
pub(crate) mod address_space;
pub(crate) mod answers;
pub(crate) mod assemble;
mod budget;
pub(crate) mod build;
mod chains;
pub(crate) mod collected_names;
pub(crate) mod command;
pub(crate) mod copied_stack;
pub(crate) mod cost;
mod deferred_unwind;
pub(crate) mod descriptors;
pub(crate) mod domain;
pub(crate) mod early_names;
pub(crate) mod estimator;
pub(crate) mod event_dispatch;
mod event_merger;
mod event_sampling;
pub(crate) mod events;
pub(crate) mod files;
mod flight;
pub(crate) mod found_runtime;
mod gil;
mod heap;
mod histograms;
mod hops;
mod host_contention;
pub(crate) mod host_log;
pub(crate) mod interface;
pub(crate) mod java;
mod jit;
pub(crate) mod jit_hints;
pub(crate) mod labels;
pub(crate) mod last_values;
mod lock_owner;
pub(crate) mod managed;
pub(crate) mod mappings;
mod method;
mod moved_code;
pub(crate) mod naming;
pub(crate) mod observation_sink;
mod pace;
pub(crate) mod pauses;
pub(crate) mod peers;
mod plausible;
pub(crate) mod process_news;
pub(crate) mod processes;
mod ration;
mod record;
mod recorder;
pub mod recover;
pub mod replay;
pub(crate) mod resources;
pub(crate) mod sample_key;
mod samples;
pub(crate) mod scripts;
mod sent_once;
pub(crate) mod snapshot;
mod target_resolve;
pub(crate) mod tasks;
pub(crate) mod thread_names;
mod timeline;
pub(crate) mod unwound;
mod wait_tree;
mod window_slices;

pub(crate) use domain::privilege;
pub use events::{Control, Signals};
pub use files::own_vdso;
pub use flight::{
    FlightLimits, FlightMemory, FlightPart, FlightRecorder, FlightSnapshot, WrongFlight,
};
pub use interface::{Captured, Live, Log, Observer, Options, Progress, Snapshot, Stop};
pub use method::{Method, parse_duration, parse_overhead};
pub use record::record;
pub(crate) use target_resolve::{ResolvedTarget, ended_early, resolve_target};
