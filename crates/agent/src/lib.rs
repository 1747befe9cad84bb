//! Always on: windows of one recorder, kept on disk, labelled, delivered and summed up as metrics.
//!
//! A window is an ordinary recording of some ten seconds. This crate never measures: it takes windows
//! from a source and needs no privilege. [`store`] keeps them in a directory with caps and reads them
//! back as one recording.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod config;
pub mod delivery;
pub mod http;
pub mod metrics;
pub mod run;
pub mod services;
pub mod store;
pub mod trigger;
