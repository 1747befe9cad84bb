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

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod block_reason;
mod domain;
mod event;
mod host;
mod label;
mod ledger;
mod pause;
mod peer;
mod recording;
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
pub use domain::{Column, Cost, Domain, EventSource, Limit, Loss, UNTOLD, Unit};
pub use event::EventHits;
pub use host::{
    CgroupFacts, Connections, DiskFacts, FileLock, HostFacts, HostSample, Limits, Listener,
    Neighbour, NetFacts, Pressure,
};
pub use label::{GC_KEY, Label, LabelValue, LabelsId};
pub use ledger::{Audit, Ledger, OnCpu, Runnable};
pub use pause::{MAX_LONGEST, Pause, PauseGroup};
pub use peer::{Peer, PeerStack, WaitSeen};
pub use recording::{
    Context, ContextId, FileUser, Process, Recording, Sample, SliceValue, Slices, Window,
};
pub use slices::{LedgerSlice, LedgerSlices};
pub use stack::{
    Frame, FrameId, FrameKind, Function, FunctionId, Line, Module, ModuleId, ModuleKind, Stack,
    StackEnd, StackId,
};
pub use state::{Part, State, UnknownCause, View};
pub use task::{TaskGroup, TaskTime};
pub use timeline::{Interval, Lane, Timeline};
pub use wait::{Above, Actor, ActorId, Hop, LockWait, Role, told_by};
