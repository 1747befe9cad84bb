//! Reads the kernel's view of processes and of the host; parses and decides nothing.
//!
//! * [`maps`], [`process`]: `/proc/PID/maps`, `stat`, `status`, `limits`, `cmdline` and so on.
//! * [`cgroup`]: the control groups of a process, and the processes of a group.
//! * [`sockets`], [`locks`]: connections and locks on files, with the processes that hold them.
//! * [`target_file`]: files that a target names, opened with the target's rights.
//! * [`host`]: the host's counters as [`wallscope_model::HostFacts`], cheap enough for each second.
//!
//! Every parser takes bytes or text, so that tests can use files of other machines; the readers
//! beside them only open files. Malformed text is an error, `None`, or a skipped line, never a
//! panic: files under `/proc` change while they are read.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod cgroup;
pub mod host;
pub mod kernel_file;
pub mod locks;
pub mod maps;
pub mod process;
pub mod sockets;
pub mod target_file;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
