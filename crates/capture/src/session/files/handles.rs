//! Open handles of files, within a limit.
//!
//! A file is kept open so that its code can be unwound and named when it is gone from the file system. A session in
//! windows runs for weeks, and each deployment brings other files. So the least recently used file is closed beyond
//! the limit. A deleted file is closed when no process maps it any more and its last window has ended: an open handle
//! would keep its blocks on the disk.
//!
//! A closed file keeps its module, its build id and its unwind table. If its bytes are needed again it is opened by
//! the last mapping seen of it. If that fails, or leads to another file, its functions stay without a name in this
//! window, and [`Handles::losses`] counts it.

use std::{collections::BTreeMap, fs::File, sync::Arc};

use wallscope_procfs::target_file::TargetRoot;

use crate::backend::ebpf::sideband::Mapping;

/// The last mapping that was seen of a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MappedPart {
    /// A process that mapped it.
    pub pid: u32,
    /// First address.
    pub start: u64,
    /// Address behind it.
    pub end: u64,
    /// Device of the file.
    pub device: u64,
    /// Inode of the file.
    pub inode: u64,
}

impl MappedPart {
    /// The part of a file that `m` maps.
    pub fn of(m: &Mapping) -> MappedPart {
        MappedPart {
            pid: m.pid,
            start: m.start,
            end: m.end,
            device: m.device,
            inode: m.inode,
        }
    }
}

/// A file that is open, was closed, or never could be opened.
#[derive(Default)]
pub(super) struct Handle {
    pub file: Option<File>,
    /// Where its process sees files; a descriptor too.
    pub root: Option<Arc<TargetRoot>>,
    pub part: MappedPart,
    was_open: bool,
    /// Time of the last use, by the clock of [`Handles`].
    pub used: u64,
}

impl Handle {
    /// A file that was just opened, or could not be.
    pub fn new(file: Option<File>, root: Option<Arc<TargetRoot>>, part: MappedPart) -> Handle {
        Handle {
            was_open: file.is_some(),
            file,
            root,
            part,
            used: 0,
        }
    }

    /// It was open once, and is not now.
    pub fn is_closed(&self) -> bool {
        self.was_open && self.file.is_none()
    }
}

/// Order of the open files by use, and counts.
#[derive(Debug)]
pub(super) struct Handles {
    /// Most files that stay open.
    pub limit: usize,
    /// Open files by their last use, oldest first.
    pub by_use: BTreeMap<u64, u16>,
    /// Uses so far.
    pub clock: u64,
    /// Uses when the open window began.
    pub window: u64,
    /// Files that could not be opened a second time.
    pub gone: u64,
}

impl Handles {
    /// At most `limit` files stay open.
    pub fn within(limit: usize) -> Handles {
        Handles {
            limit: limit.max(1),
            by_use: BTreeMap::new(),
            clock: 0,
            window: 0,
            gone: 0,
        }
    }

    /// Files that could not be opened a second time.
    pub fn losses(&self) -> (String, u64) {
        let cause = "file closed to keep few open, and gone when it was needed again";
        (cause.to_owned(), self.gone)
    }
}
