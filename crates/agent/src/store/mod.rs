//! Windows in a directory.
//!
//! ```text
//! DIR/FORMAT                  version of the layout
//! DIR/20261127T140010.000Z+10.000s_HOST_BOOT_EPOCH_SEQUENCE.pb.gz
//! DIR/outbox/TARGET/NAME      hard link: NAME waits for its delivery to TARGET
//! DIR/untold.json             losses that no window has reported yet
//! DIR/.new-NAME               a window that is being written
//! ```
//!
//! A file is written under a temporary name, brought to the disk (`fdatasync`) and renamed, so a window
//! is there as a whole or not at all, even if the process or the machine ends. Outboxes are links to
//! the same data: the list of pending deliveries is the directory itself, and needs no cursor
//! that a stepped clock or a crash could break.
//!
//! The directory has two caps: bytes and age. The oldest window goes first. A window that goes before
//! its age because of the bytes, or before its delivery, is a loss, and the next window's domain says so.
//!
//! What it does not do: it keeps no index beside the names, and it never changes a window.

mod files;
mod merged;
mod name;
mod outbox;
mod range;
mod read;
mod version;
mod write;

pub use files::write_atomically;
pub use merged::{Selected, merged};
pub use name::{WindowKey, WindowName, boot_id, host_name};
pub use outbox::Outbox;
pub use range::{RangeError, TimeRange, parse_range};
pub use read::{Stored, list};
pub use write::{Caps, DROPPED, Store, undelivered};

use std::io;
use std::path::PathBuf;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file or directory cannot be read or written.
    #[error("cannot {doing} '{}': {source}", path.display())]
    Io {
        /// The attempt, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The layout is of a later version.
    #[error(
        "'{}' has layout {found:?}, and this wallscope reads up to {newest:?}: update wallscope",
        path.display()
    )]
    Newer {
        /// The store.
        path: PathBuf,
        /// Content of its version file.
        found: String,
        /// The newest layout with a reader.
        newest: String,
    },
    /// The directory is no store.
    #[error(
        "'{}' holds no windows of an agent: name a file in it, or an agent's directory",
        path.display()
    )]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// No window of the range is there.
    #[error("no window between {from} and {until}: there are windows from {first} to {last}")]
    OutsideRange {
        /// Start of the range.
        from: String,
        /// End of the range.
        until: String,
        /// Start of the oldest window.
        first: String,
        /// End of the newest window.
        last: String,
    },
    /// A window cannot be read.
    #[error("cannot use window '{}': {source}", path.display())]
    Window {
        /// Its file.
        path: PathBuf,
        /// The reason.
        source: wallscope_formats::ReadError,
    },
    /// Windows of several hosts lie in one directory.
    #[error(
        "windows of several hosts ({hosts}): keep each host's windows in a directory of its own"
    )]
    Hosts {
        /// Their names.
        hosts: String,
    },
    /// Windows measure different things.
    #[error(
        "the windows before and from {at} {source}; select them apart with --until {at} and --from {at}"
    )]
    Domains {
        /// Start of the first window that differs.
        at: String,
        /// The difference.
        source: wallscope_model::merge::MergeError,
    },
}

impl StoreError {
    /// Whether the disk, or the share of it that this user may have, is full.
    fn is_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, StoreError::Io { source, .. } if full.contains(&source.kind()))
    }

    fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.into();
        move |source| StoreError::Io {
            doing,
            path,
            source,
        }
    }
}
