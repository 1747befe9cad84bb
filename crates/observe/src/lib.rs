//! Observations, and the log that keeps them.
//!
//! Collectors observe a running system, unwind and name. The recorder decides how much time goes
//! where. An [`Observation`] is the only thing that passes from the first to the second. The log is
//! their sequence, so the recorder can be run again on any machine, without root: same log in, same
//! recording out.
//!
//! ```text
//! observation.rs  the kinds of observations, and the number of each
//! facts.rs        the values that observations carry; polls.rs: those of the poller of `/proc`;
//!                 switches.rs: those of perf events
//! wire.rs         values ↔ bytes; model.rs: the same for values of `wallscope_model`
//! kind.rs         kinds of the kernel programs' records
//! words.rs        records of the kernel programs ↔ bytes: differences of words
//! frame.rs        frames of at most 256 KiB: length, CRC, sequence number, payload
//! header.rs       the text at the top of a log: its version and its contents
//! write.rs        the log while it grows: flushing, bounds, a full disk; lock.rs: its lock
//! spool.rs        the log beside a recording's file: its name, its lock, its end
//! read.rs         the log as a sequence, up to its end or to the first damage
//! memory.rs       stack memory, kept on request
//! symbols.rs      a symboliser's results, taken from a recording and put into another
//! ```
//!
//! **Order.** The order of a log is the order in which the recorder got its observations. Times in
//! them are data and sort nothing.
//!
//! **Results, not inputs.** A fact that a collector read from the machine (a name, the owner of a lock, the
//! program of a frame) is logged as the recorder received it. A replay opens no other file.
//!
//! **Privacy.** A log holds names of functions, files, processes and network peers, command lines
//! and addresses. It holds stack memory only on request ([`LogFile::with_memory`]). Its header names these
//! contents, and its mode is 0600.
//!
//! **Damage.** A reader stops at the first frame that is not whole and says where and why. Lengths
//! from a log never decide how much memory is taken before the bytes are there.
//!
//! **State.** A fact that can change (a process's name, a loss, the sum of a lock) is observed again when it
//! has changed, and the last observation holds. So a log that ends early is a recording up to there.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod facts;
mod frame;
mod header;
pub mod kind;
mod lock;
mod memory;
mod model;
mod observation;
mod polls;
mod read;
mod spool;
mod switches;
mod symbols;
mod wire;
mod words;
mod write;

pub use facts::*;
pub use frame::MAX_PAYLOAD;
pub use header::{Header, VERSION};
pub use lock::is_being_written;
pub use memory::{StackBytes, StackMemory};
pub use observation::{Importance, LeftOut, Observation};
pub use polls::*;
pub use read::{End, LogReader, OpenError};
pub use spool::Spool;
pub use switches::*;
pub use symbols::{Symbols, Unresolved};
pub use wire::{Input, Malformed, Wire};
pub use write::{Closed, LogFile, LogWriter, Purpose};

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
