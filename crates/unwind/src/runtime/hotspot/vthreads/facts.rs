//! Facts about a process and its virtual threads, learnt once.

use std::sync::Arc;

use super::classes::Classes;
use super::heap::Heap;
use super::offsets::{CarrierOffsets, ChunkOffsets, ThreadOffsets};
use crate::runtime::hotspot::Vm;

/// Facts about a process, learnt once.
pub(super) struct ProcessFacts {
    pub(super) vm: Vm,
    pub(super) heap: Heap,
    pub(super) classes: Classes,
    /// Address of the class from which all lists are found.
    pub(super) containers: u64,
    pub(super) places: Option<ThreadOffsets>,
    pub(super) chunk: Option<ChunkOffsets>,
    /// `None`: the VM's tables lack these fields.
    pub(super) record: Option<CarrierOffsets>,
}

/// Facts about one thread for its lifetime.
#[derive(Clone, Debug, Default)]
pub(super) struct ThreadFacts {
    pub(super) start: u64,
    pub(super) label: Option<Arc<str>>,
}
