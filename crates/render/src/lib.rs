//! Data → text, JSON, Markdown, SVG and the page.
//!
//! * [`text`], [`markdown`], [`json`]: a report. [`waits`]: locks and chains of waits.
//! * [`calls`]: calls of single functions. [`calibrate`], [`inflation`]: wallscope beside other tools.
//! * [`queues`]: queues, what-if and scaling.
//! * [`diff`]: a comparison of recordings.
//! * [`page`], [`svg`]: pictures. [`off_wake`], [`blame`]: blocked stacks with those of their wakers,
//!   or of the roots of their waits, folded. [`tasks`]: stacks of a runtime's tasks, folded.
//! * [`export`]: a row for everything that a recording can be written as.
//!
//! Nothing here measures, judges, prints, or reads from the machine: values in, bytes and strings out.
//! The sentence on top of a report comes from the caller.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod blame;
pub mod calibrate;
pub mod calls;
pub mod diff;
pub mod export;
pub mod inflation;
pub mod json;
pub mod markdown;
pub mod off_wake;
pub mod page;
pub mod queues;
pub mod svg;
pub mod tasks;
pub mod text;
pub mod waits;

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
