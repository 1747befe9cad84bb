//! Descriptions of executable mappings, as the table store receives them.

use crate::native::image::{Identity, ImageError};
use crate::native::rules::RuleSet;
use crate::native::table::{self, Parsed};
use rustc_hash::FxHasher;
use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// Interval between calls of `meanwhile` while an image is parsed.
const MEANWHILE: Duration = Duration::from_millis(2);

/// Key that identifies a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FileKey {
    /// A file in a file system, at its last change.
    Inode {
        /// Device.
        dev: u64,
        /// Inode number.
        ino: u64,
        /// Time of the last change, ns since 1970.
        mtime_ns: i64,
        /// Size, bytes.
        size: u64,
    },
    /// An image in memory (the vdso), by a hash of its bytes.
    Image(u64),
}

impl FileKey {
    /// Computes the key of an open file.
    ///
    /// # Errors
    /// If the file's metadata cannot be read.
    pub fn of_file(file: &File) -> io::Result<FileKey> {
        let m = file.metadata()?;
        Ok(FileKey::Inode {
            dev: m.dev(),
            ino: m.ino(),
            mtime_ns: m.mtime().wrapping_mul(1_000_000_000) + m.mtime_nsec(),
            size: m.size(),
        })
    }

    /// Computes the key of an image in memory.
    pub fn of_bytes(bytes: &[u8]) -> FileKey {
        let mut hasher = FxHasher::default();
        bytes.hash(&mut hasher);
        FileKey::Image(hasher.finish())
    }
}

/// Origin of a mapping's code.
#[derive(Clone, Copy, Debug)]
pub enum Source<'a> {
    /// A file. `file` is read only if the store has no table of it; without it, such code has no
    /// table.
    File {
        /// Its key.
        key: &'a FileKey,
        /// The open file.
        file: Option<&'a File>,
    },
    /// An image in memory.
    Bytes {
        /// Its key.
        key: &'a FileKey,
        /// The whole image.
        bytes: &'a [u8],
    },
    /// No file: run-time code, unwound by frame pointer.
    Anonymous,
}

/// One executable mapping.
#[derive(Clone, Copy, Debug)]
pub struct MappingSpec<'a> {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// Offset in the file of the byte at `start`.
    pub pgoff: u64,
    /// The mapped file or image.
    pub source: Source<'a>,
}

impl<'a> Source<'a> {
    /// The key of the file or image; `None` for run-time code.
    pub(crate) fn key(&self) -> Option<&'a FileKey> {
        match self {
            Source::File { key, .. } | Source::Bytes { key, .. } => Some(key),
            Source::Anonymous => None,
        }
    }

    /// Parses the image, if it is available. With `meanwhile`, another thread parses it while this
    /// one calls `meanwhile`.
    pub(crate) fn parse(
        &self,
        rules: &mut RuleSet,
        known: impl Fn(&Identity) -> bool + Send,
        meanwhile: Option<&mut dyn FnMut()>,
    ) -> Option<Result<Parsed, ImageError>> {
        let parse = || match self {
            Source::File { file, .. } => file.map(|file| table::parse_file(file, rules, known)),
            Source::Bytes { bytes, .. } => Some(table::parse(*bytes, rules, known)),
            Source::Anonymous => None,
        };
        let nothing = matches!(self, Source::File { file: None, .. } | Source::Anonymous);
        let Some(meanwhile) = meanwhile.filter(|_| !nothing) else {
            return parse();
        };
        std::thread::scope(|scope| {
            let waiting = std::thread::current();
            let parsing = scope.spawn(move || {
                let parsed = parse();
                waiting.unpark();
                parsed
            });
            while !parsing.is_finished() {
                std::thread::park_timeout(MEANWHILE);
                meanwhile();
            }
            (parsing.join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}
