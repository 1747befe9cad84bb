//! Executable mappings of a process.

use std::{collections::BTreeMap, sync::Arc};

/// One executable mapping.
#[derive(Clone, Debug)]
pub struct Mapped {
    /// One past the last address.
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// The file (an index of [`Files`](super::files::Files)); `None` for memory without one.
    pub file: Option<u16>,
}

/// A process's mappings at one moment.
pub type MappingSnapshot = Arc<BTreeMap<u64, Mapped>>;
