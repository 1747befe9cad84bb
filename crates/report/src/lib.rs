//! Recordings ↔ bytes, and recordings → what people read.
//!
//! [`format`] writes and reads files (pprof, folded). [`view`] computes what every presentation
//! shows (ledger, functions with intervals, hottest stacks) as plain data; [`text`], [`markdown`]
//! and [`json`] only lay it out; [`calls`] does so for calls of single functions, and [`inflation`] for what instrumentation adds.
//! Samples are scaled to the ledger by `wallscope_model::scale`, so
//! whatever is shown of a view sums to the ledger.
//!
//! Nothing here measures, judges, prints, or looks at the machine: bytes and values in, bytes and
//! strings out. The sentence on top of a report comes from the caller.

pub mod calibrate;
pub mod calls;
pub mod diff;
pub mod format;
pub mod inflation;
pub mod json;
pub mod markdown;
pub mod name;
pub mod page;
pub mod select;
pub mod text;
pub mod view;
pub mod waits;
