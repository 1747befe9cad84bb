//! Always on: windows of one recorder, kept on disk, labelled, delivered and summed up as metrics.
//!
//! A window is an ordinary recording of some ten seconds. [`run`] takes windows from a source, which on a
//! host is the eBPF session of `run/live.rs`; nothing else here needs a privilege. [`store`] keeps windows
//! in a directory with caps and reads them back as one recording.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod config;
pub mod delivery;
pub mod http;
pub mod metrics;
pub mod run;
pub mod services;
pub mod store;
pub mod trigger;
