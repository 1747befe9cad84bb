//! Places at which Java VMs stop threads, by process.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use wallscope_unwind::runtime::hotspot::SafepointPlaces;

use crate::session::found_runtime::FoundRuntime;

/// Places of all processes.
#[derive(Default)]
pub(super) struct Stops {
    /// The file of each VM, by process.
    pub files: FxHashMap<u32, FoundRuntime>,
    /// Processes of which the kernel programs know the places.
    pub told: FxHashSet<u32>,
    /// Places by process, for backends without kernel programs.
    pub places: FxHashMap<u32, SafepointPlaces>,
    /// Files with a VM; the kernel programs know the operations of file number n by n.
    pub numbered: Vec<FoundRuntime>,
}

impl Stops {
    /// The VM of `pid` is of the file `found`.
    pub fn opened(&mut self, pid: u32, found: &FoundRuntime) {
        self.files.insert(pid, Arc::clone(found));
    }

    /// Process `pid` is gone, or runs something else.
    pub fn forget(&mut self, pid: u32) {
        self.files.remove(&pid);
        self.told.remove(&pid);
        self.places.remove(&pid);
    }
}
