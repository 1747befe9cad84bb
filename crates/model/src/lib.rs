//! The values that wallscope works with: states, ledgers, stacks, samples, domains.
//!
//! Floor 0 of the architecture: pure data and arithmetic. No I/O, no clock, no libc, no foreign
//! format. Collectors, symbolisers, file formats and views exchange these values and no others.
//!
//! All times are integers in nanoseconds. Points in time are on the recording's clock (see
//! [`Window::clock`]); lengths are differences. Everything keeps one equation:
//!
//! ```text
//! wall = on_cpu + runnable + blocked + unknown + residue      (per execution context)
//! ```
//!
//! Samples are estimates, and [`scale`] scales them to the ledgers:
//!
//! ```
//! use wallscope_model::{
//!     Context, ContextId, Ledger, Recording, Sample, Stack, StackEnd, StackId, State, scale,
//! };
//!
//! let mut ledger = Ledger { wall_ns: 100, ..Ledger::default() };
//! ledger.on_cpu.user = 100;
//! let sample = Sample {
//!     context: ContextId(0),
//!     stack: StackId(0),
//!     state: State::OnCpu,
//!     reason: None,
//!     part: None,
//!     idle: false,
//!     cpu: None,
//!     labels: None,
//!     count: 9,
//!     ns: 90,
//!     slices: Vec::new(),
//! };
//! let recording = Recording {
//!     contexts: vec![Context {
//!         pid: 1,
//!         tid: 1,
//!         name: "main".into(),
//!         start_ns: 0,
//!         end_ns: 100,
//!         ledger,
//!     }],
//!     stacks: vec![Stack { frames: Vec::new(), end: StackEnd::Root }],
//!     samples: vec![sample],
//!     ..Recording::default()
//! };
//! // Nine samples of 10 ns represent the 100 ns of the ledger.
//! let scaled = scale::scale(&recording);
//! assert_eq!(scaled.pieces[0].ns, 100);
//! assert!(scaled.unsampled.is_empty());
//! ```

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod block_reason;
mod colour;
mod context;
mod domain;
mod event;
mod host;
mod label;
mod ledger;
mod of_event;
mod pause;
mod peer;
mod recording;
mod sample;
mod slices;
mod special_functions;
mod stack;
mod state;
mod task;
mod timeline;
mod wait;

pub mod attribution;
pub mod call_filter;
pub mod calls;
pub mod compare;
pub mod contention;
pub mod domain_text;
pub mod histogram;
pub mod merge;
pub mod name;
pub mod printable;
pub mod scale;
pub mod stats;
pub mod units;

pub use block_reason::{BlockReason, EndedBy, ReasonFacts};
pub use colour::{CODE_KINDS, INK};
pub use context::{Context, ContextId};
pub use domain::{Column, Cost, Domain, EventSource, Limit, Loss, UNTOLD, Unit};
pub use event::EventHits;
pub use host::{
    CgroupFacts, Connections, DiskFacts, FileLock, HostFacts, HostSample, Limits, Listener,
    Neighbour, NetFacts, Pressure,
};
pub use label::{GC_KEY, Label, LabelValue, LabelsId, REQUEST_AWAITED, REQUEST_KEY};
pub use ledger::{Audit, Ledger, OnCpu, Runnable};
pub use pause::{GO_COLLECTION, MAX_LONGEST, Pause, PauseGroup};
pub use peer::{Peer, PeerStack, WaitSeen};
pub use recording::{FileUser, Process, Recording, Slices, Window};
pub use sample::{Sample, SliceValue};
pub use slices::{LedgerSlice, LedgerSlices};
pub use stack::{
    Frame, FrameId, FrameKind, Function, FunctionId, Line, Module, ModuleId, ModuleKind, Stack,
    StackEnd, StackId,
};
pub use state::{Part, State, UnknownCause, View};
pub use task::{TaskGroup, TaskTime};
pub use timeline::{Interval, Lane, Timeline};
pub use wait::{Above, Actor, ActorId, Hop, LockWait, Role, told_by};

/// The examples of README.md are tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
